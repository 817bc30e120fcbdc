package io.fairlead.cli.bench;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceStats;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Operand;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.StreamOperation;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskScope;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * What the ledger and the pool of a device cost, and how much of its memory can be had; nanoseconds
 * unless said otherwise. Each probe warms itself up, and gives its samples in the order they were
 * taken.
 */
final class MemoryProbes {
  /**
   * Three times the operations after which a stream signals and records a checkpoint: so each batch
   * has as many of these. Below the 512 unfinished operations that a stream takes.
   */
  static final int BATCH = 192;

  static final int OPERANDS = 4;
  private static final int BATCHES = 2_000;
  private static final int PAIRS = 16;
  private static final int PAIR_BATCHES = 10_000;
  private static final long ALLOCATED_BYTES = 4096;

  /** Of the limit: what lives while the full device is measured. */
  private static final double FULL = 0.95;

  private static final int STREAMS = 8;

  /** What every driver hands out at least. */
  static final long SMALLEST = 256;

  /** The limit over the largest buffer of the trace. */
  private static final long LARGEST_SHARE = 256;

  /** Compiling what an allocation takes lasts longer than its figures do. */
  private static final long WARM_UP_NANOS = 4_000_000_000L;

  private static final StreamOperation NOTHING = (_, _) -> {};

  private final Fairlead fairlead;
  private final Device device;
  private final int scale;

  /**
   * Measures on the first device.
   *
   * @param scale divides the numbers of rounds
   */
  MemoryProbes(Fairlead fairlead, int scale) {
    this.fairlead = fairlead;
    this.device = fairlead.device();
    this.scale = scale;
  }

  private <T> T inTask(TaskBody<T> body) {
    return ProbeTask.run(fairlead, body);
  }

  private int rounds(int full) {
    return Math.max(5, full / scale);
  }

  // --- the ledger -------------------------------------------------------------------------------

  /**
   * An operation that does nothing, with operands of several kinds: for each.
   *
   * @param none without operands
   * @param one with one that is written
   * @param reads with {@link #OPERANDS} that are read
   * @param writes with as many that are written
   * @param plain with as many that keep no ledger, less those without operands of the same round
   * @param calls driver calls for edges, events and signals in all that had operands in a ledger,
   *     less those of as many operations that had none
   */
  record Ledger(
      Samples none, Samples one, Samples reads, Samples writes, Samples plain, double calls) {}

  /** Enqueues on one stream, whose operands are used on no other. */
  Ledger ledger() {
    return inTask(
        () -> {
          DeviceStream stream = device.stream();
          List<DeviceBuffer> buffers = new ArrayList<>();
          for (int i = 0; i < OPERANDS; i++) {
            buffers.add(device.allocate(ALLOCATED_BYTES));
          }
          try {
            return ledger(stream, buffers.toArray(Operand[]::new));
          } finally {
            buffers.forEach(DeviceBuffer::close);
          }
        });
  }

  private Ledger ledger(DeviceStream stream, Operand[] four) {
    Mentions none = new Mentions(new Operand[0], Access.READ);
    Mentions one = new Mentions(Arrays.copyOf(four, 1), Access.READ_WRITE);
    Mentions reads = new Mentions(four, Access.READ);
    Mentions writes = new Mentions(four, Access.READ_WRITE);
    List<Samples> samples = inTurn(stream, none, one, reads, writes);
    double calls =
        calls(stream, one) + calls(stream, reads) + calls(stream, writes) - 3 * calls(stream, none);
    // last, since the compiler has seen but one kind of operand so far, as in most programs
    Operand[] plain = new Operand[OPERANDS];
    Arrays.setAll(plain, i -> new Plain());
    List<Samples> beside = inTurn(stream, none, new Mentions(plain, Access.READ_WRITE));
    return new Ledger(
        samples.get(0),
        samples.get(1),
        samples.get(2),
        samples.get(3),
        beside.get(1).minus(beside.get(0)),
        calls);
  }

  /** Operands that are all used in one way. */
  private static final class Mentions {
    final Operand[] operands;
    final Access[] accesses;

    Mentions(Operand[] operands, Access access) {
      this.operands = operands;
      this.accesses = new Access[operands.length];
      Arrays.fill(accesses, access);
    }
  }

  private List<Samples> inTurn(DeviceStream stream, Mentions... kinds) {
    long end = System.nanoTime() + WARM_UP_NANOS / scale;
    while (System.nanoTime() < end) {
      for (Mentions kind : kinds) {
        enqueueBatch(stream, kind);
      }
    }
    double[][] samples = new double[kinds.length][rounds(BATCHES)];
    for (int i = 0; i < samples[0].length; i++) {
      for (int kind = 0; kind < kinds.length; kind++) {
        samples[kind][i] = enqueueBatch(stream, kinds[kind]);
      }
    }
    return Arrays.stream(samples).map(Samples::of).toList();
  }

  private static double enqueueBatch(DeviceStream stream, Mentions mentions) {
    long start = System.nanoTime();
    for (int i = 0; i < BATCH; i++) {
      stream.enqueue(DriverCall.LAUNCH, "nothing", mentions.operands, mentions.accesses, NOTHING);
    }
    double each = (System.nanoTime() - start) / (double) BATCH;
    stream.reached().await();
    return each;
  }

  private double calls(DeviceStream stream, Mentions mentions) {
    DeviceStats before = device.context().stats();
    for (int i = 0; i < rounds(BATCHES) / 5; i++) {
      enqueueBatch(stream, mentions);
    }
    DeviceStats after = device.context().stats();
    return after.edges()
        + after.events()
        + after.signals()
        - before.edges()
        - before.events()
        - before.signals();
  }

  /** What is left of an operand if nobody has to know who used it. */
  private static final class Plain implements Operand {
    private static final AtomicLong ORDERS = new AtomicLong();

    private final long order = ORDERS.incrementAndGet();

    @Override
    public long bytes() {
      return ALLOCATED_BYTES;
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      return order;
    }

    @Override
    public void recorded(DeviceStream stream, long sequence, Access access) {}

    @Override
    public void abandoned(DeviceStream stream, Access access) {}

    @Override
    public long order() {
      return order;
    }
  }

  // --- the pool ---------------------------------------------------------------------------------

  /** A buffer of 4 KiB is allocated and closed, a few times: for each. */
  double[] pairs() {
    return inTask(() -> pairs(device));
  }

  private double[] pairs(Device on) {
    long end = System.nanoTime() + WARM_UP_NANOS / scale;
    while (System.nanoTime() < end) {
      pairSamples(on); // with its waits, after which a block is in another state
    }
    return pairSamples(on);
  }

  private double[] pairSamples(Device on) {
    double[] samples = new double[rounds(PAIR_BATCHES)];
    for (int i = 0; i < samples.length; i++) {
      samples[i] = pairBatch(on);
      if (i % 8 == 7) {
        on.stream().reached().await(); // a driver's pool enqueues an operation at either end
      }
    }
    return samples;
  }

  private static double pairBatch(Device on) {
    long start = System.nanoTime();
    for (int i = 0; i < PAIRS; i++) {
      on.allocate(ALLOCATED_BYTES).close();
    }
    return (System.nanoTime() - start) / (double) PAIRS;
  }

  /** As {@link #pairs}, each used by an operation before it is closed. */
  double[] usedPairs() {
    return inTask(
        () -> {
          DeviceStream stream = device.stream();
          long end = System.nanoTime() + WARM_UP_NANOS / scale;
          while (System.nanoTime() < end) {
            usedBatch(stream);
          }
          double[] samples = new double[rounds(PAIR_BATCHES)];
          for (int i = 0; i < samples.length; i++) {
            samples[i] = usedBatch(stream);
          }
          return samples;
        });
  }

  private double usedBatch(DeviceStream stream) {
    Access[] writes = {Access.WRITE};
    long start = System.nanoTime();
    for (int i = 0; i < PAIRS; i++) {
      try (DeviceBuffer buffer = device.allocate(ALLOCATED_BYTES)) {
        stream.enqueue(DriverCall.LAUNCH, "nothing", new Operand[] {buffer}, writes, NOTHING);
      }
    }
    double each = (System.nanoTime() - start) / (double) PAIRS;
    stream.reached().await();
    return each;
  }

  /**
   * The median of a pair on the device while it is nearly empty, and while 95 % of its limit are in
   * use by buffers of many sizes, in turn: for each round.
   *
   * @return empty, full
   */
  double[][] pairsEmptyAndFull() {
    int rounds = scale > 1 ? 2 : 5;
    return inTask(
        () -> {
          double[][] medians = new double[2][rounds];
          pairs(device);
          for (int i = 0; i < rounds; i++) {
            medians[0][i] = Samples.of(pairSamples(device)).median();
            List<DeviceBuffer> living = fill(i);
            try {
              pairBatch(device); // the first is of the driver's
              medians[1][i] = Samples.of(pairSamples(device)).median();
            } finally {
              living.forEach(DeviceBuffer::close);
            }
          }
          return medians;
        });
  }

  private List<DeviceBuffer> fill(long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    long limit = device.memory().limit();
    long most = (long) (FULL * limit);
    List<DeviceBuffer> living = new ArrayList<>();
    while (true) {
      long bytes = random.nextLong(limit / 2048, limit / 512);
      if (device.memory().inUse() + bytes > most) {
        return living;
      }
      living.add(device.allocate(bytes));
    }
  }

  // --- the whole of it --------------------------------------------------------------------------

  /**
   * The share of the limit that living buffers had asked for when the first request was refused: in
   * a trace of a seed, by tasks that take turns, each on a stream of its own. Sizes from 256 bytes
   * to a 256th of the limit, as many in each octave. First the device is filled to 80 %, then it is
   * churned, then filled for good. Each buffer is written when it is new.
   *
   * @param why gets what the refusal said
   */
  double usable(long seed, Consumer<String> why) {
    Trace trace = new Trace(seed, device.memory().limit(), why);
    List<Completion.Source<@Nullable Void>> turns = new ArrayList<>();
    try (TaskScope<@Nullable Void> scope = fairlead.scope()) {
      for (int i = 0; i < STREAMS; i++) {
        turns.add(Completion.source());
      }
      for (int i = 0; i < STREAMS; i++) {
        int mine = i;
        scope.fork(
            ForkOptions.named("stream " + i).eager(true),
            () -> {
              takeTurns(trace, turns, mine);
              return null;
            });
      }
      turns.getFirst().complete(null);
      scope.join();
    }
    return trace.usable();
  }

  /**
   * The turn of a task is a completion that the one before it completes, and a new one each time.
   */
  private void takeTurns(Trace trace, List<Completion.Source<@Nullable Void>> turns, int mine) {
    int next = (mine + 1) % STREAMS;
    boolean refused = false;
    while (!refused) {
      turns.get(mine).completion().await();
      turns.set(mine, Completion.source()); // before the next one is told: a turn comes round
      refused = trace.isRefused() || !trace.step(device);
      turns.get(next).complete(null);
    }
  }

  /** Used by one task at a time. */
  private static final class Trace {
    private static final double FILLED = 0.80;
    private static final double CHURNED = 0.90;

    private final SplittableRandom random;
    private final long limit;
    private final Consumer<String> why;
    private final List<DeviceBuffer> living = new ArrayList<>();
    private long bytes;
    private int churns = -1;
    private double usable = -1;

    Trace(long seed, long limit, Consumer<String> why) {
      this.random = new SplittableRandom(seed);
      this.limit = limit;
      this.why = why;
    }

    boolean isRefused() {
      return usable >= 0;
    }

    double usable() {
      return usable;
    }

    /** Returns false once a request was refused. */
    boolean step(Device device) {
      if (churns < 0 && bytes > FILLED * limit) {
        churns = 4 * living.size();
      }
      boolean close = churns > 0 && (bytes > CHURNED * limit || random.nextBoolean());
      churns = Math.max(churns - 1, Math.min(churns, 0));
      return close ? close() : allocate(device);
    }

    private boolean close() {
      int last = living.size() - 1;
      int chosen = random.nextInt(living.size());
      DeviceBuffer victim = living.set(chosen, living.get(last));
      living.remove(last);
      bytes -= victim.bytes();
      victim.close();
      return true;
    }

    private boolean allocate(Device device) {
      double octaves = Math.log(limit / (double) LARGEST_SHARE / SMALLEST);
      long size = (long) (SMALLEST * Math.exp(octaves * random.nextDouble()));
      try {
        DeviceBuffer made = device.allocate(size);
        made.slice(0, SMALLEST).fill((byte) 1);
        living.add(made);
        bytes += size;
        return true;
      } catch (OutOfDeviceMemoryException refused) {
        usable = (double) bytes / limit;
        why.accept(String.valueOf(refused.getMessage()));
        living.forEach(DeviceBuffer::close);
        return false;
      }
    }
  }
}
