package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import org.jetbrains.lincheck.datastructures.IntGen;
import org.jetbrains.lincheck.datastructures.ModelCheckingOptions;
import org.jetbrains.lincheck.datastructures.Operation;
import org.jetbrains.lincheck.datastructures.Param;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Lincheck's model checker on the queues of the task runtime: in every interleaving that it tries,
 * each looks like the plain queue beside it. In the package of the queues, which are not public;
 * here and not in their module, since Lincheck rewrites the classes of its JVM.
 *
 * <p>What is not linearizable on purpose is not asked for: {@code ReadyQueue.take} gives nothing
 * while somebody else takes, and its {@code isEmpty} promises only that what was published before
 * the look began is seen; {@code Forks.oldest} likewise, so who finds nothing there looks again if
 * the deque has moved; {@code CommandQueue.poll} gives nothing while the oldest command is claimed
 * but not stored, so its consumer looks at {@code isEmpty} as well.
 */
@Timeout(300)
public class QueuesLinearizableTest {
  private static final boolean LONG = Boolean.getBoolean("fairlead.long");

  private static ModelCheckingOptions options(int threads) {
    return new ModelCheckingOptions()
        .threads(threads)
        .actorsBefore(0)
        .actorsPerThread(2)
        .actorsAfter(2)
        .iterations(LONG ? 50 : 4)
        .invocationsPerIteration(LONG ? 2_000 : 200);
  }

  /** Known by its number. */
  private static final class Numbered extends Resumable {
    final int number;

    @SuppressWarnings("NullAway") // runs nowhere
    Numbered(int number) {
      super(null, null);
      this.number = number;
    }

    @Override
    void queue() {
      throw new AssertionError("not executed here");
    }

    static int of(Resumable ready) {
      return ready == null ? -1 : ((Numbered) ready).number;
    }
  }

  // --- one carrier adds, anybody takes

  /** The plain queue beside {@link OfCarrier}. */
  public static class PlainOfCarrier {
    private final ArrayDeque<Integer> queue = new ArrayDeque<>();

    public boolean offer(int number) {
      return queue.add(number);
    }

    public int poll() {
      return queue.isEmpty() ? -1 : queue.poll();
    }

    public List<Integer> steal() {
      List<Integer> taken = new ArrayList<>();
      for (int half = (queue.size() + 1) / 2; half > 0; half--) {
        taken.add(queue.poll());
      }
      return taken;
    }

    public boolean isEmpty() {
      return queue.isEmpty();
    }
  }

  /**
   * At most two lie in it while threads meet, so that half of what a thief saw is half of what
   * there is.
   */
  public static class OfCarrier {
    private final CarrierQueue queue = new CarrierQueue();

    @Operation(nonParallelGroup = "carrier")
    public boolean offer(@Param(gen = IntGen.class) int number) {
      return queue.offer(new Numbered(number));
    }

    @Operation
    public int poll() {
      return Numbered.of(queue.poll());
    }

    @Operation
    public List<Integer> steal() {
      CarrierQueue thief = new CarrierQueue();
      List<Integer> taken = new ArrayList<>();
      for (Resumable next = queue.steal(thief, new ReadyQueue());
          next != null;
          next = thief.poll()) {
        taken.add(Numbered.of(next));
      }
      return taken;
    }

    @Operation
    public boolean isEmpty() {
      return queue.isEmpty();
    }
  }

  @Test
  void carrierQueue() {
    options(3).sequentialSpecification(PlainOfCarrier.class).check(OfCarrier.class);
  }

  // --- anybody adds, one takes

  /** The plain queue beside those that one thread takes from. */
  public static class PlainOfOne {
    private final ArrayDeque<Integer> queue = new ArrayDeque<>();

    public void add(int number) {
      queue.add(number);
    }

    public int poll() {
      return queue.isEmpty() ? -1 : queue.poll();
    }

    public int take() {
      return poll();
    }

    public boolean isEmpty() {
      return queue.isEmpty();
    }
  }

  /** As an owner uses it. */
  public static class OfOwner {
    private final ReadyQueue queue = new ReadyQueue();

    @Operation
    public void add(@Param(gen = IntGen.class) int number) {
      queue.add(new Numbered(number));
    }

    @Operation(nonParallelGroup = "consumer")
    public int poll() {
      return Numbered.of(queue.poll());
    }

    @Operation(nonParallelGroup = "consumer")
    public boolean isEmpty() {
      return queue.isEmpty();
    }
  }

  @Test
  void readyQueueOfAnOwner() {
    options(3).sequentialSpecification(PlainOfOne.class).check(OfOwner.class);
  }

  /** As carriers use it, of which one takes at a time. */
  public static class OfCarriers {
    private static final int SO_MANY_THAT_NONE_GETS_A_SHARE = 1_000;
    private final ReadyQueue queue = new ReadyQueue();
    private final CarrierQueue own = new CarrierQueue();

    @Operation
    public void add(@Param(gen = IntGen.class) int number) {
      queue.add(new Numbered(number));
    }

    @Operation(nonParallelGroup = "consumer")
    public int take() {
      return Numbered.of(queue.take(own, SO_MANY_THAT_NONE_GETS_A_SHARE));
    }

    @Operation(nonParallelGroup = "consumer")
    public boolean isEmpty() {
      return queue.isEmpty();
    }
  }

  @Test
  void readyQueueOfCarriers() {
    options(3).sequentialSpecification(PlainOfOne.class).check(OfCarriers.class);
  }

  // --- an owner's commands

  /** The plain queue beside {@link Commands}. */
  public static class PlainCommands {
    private final ArrayDeque<Integer> queue = new ArrayDeque<>();
    private boolean closed;

    public String offer(int number) {
      if (closed) {
        return "CLOSED";
      }
      if (queue.size() == Commands.CAPACITY) {
        return "FULL";
      }
      queue.add(number);
      return "ADDED";
    }

    public int poll() {
      return queue.isEmpty() ? -1 : queue.poll();
    }

    public boolean isEmpty() {
      return queue.isEmpty();
    }

    public void close() {
      closed = true;
    }
  }

  /** Many producers, one consumer, somebody closes. */
  public static class Commands {
    static final int CAPACITY = 2;
    private final CommandQueue queue = new CommandQueue(CAPACITY);

    private record Command(int number) implements Runnable {
      @Override
      public void run() {}
    }

    @Operation
    public String offer(@Param(gen = IntGen.class) int number) {
      return queue.offer(new Command(number)).name();
    }

    @Operation(nonParallelGroup = "consumer", blocking = true)
    public int poll() {
      for (; ; ) {
        Command next = (Command) queue.poll();
        if (next != null) {
          return next.number;
        }
        if (queue.isEmpty()) {
          return -1;
        }
      }
    }

    @Operation(nonParallelGroup = "consumer")
    public boolean isEmpty() {
      return queue.isEmpty();
    }

    @Operation
    public void close() {
      queue.close();
    }
  }

  @Test
  void commandQueue() {
    options(3).sequentialSpecification(PlainCommands.class).check(Commands.class);
  }

  // --- a parent's children: it runs them in fork order, one runner takes

  /** The plain queue beside {@link Children}. */
  public static class PlainChildren {
    private final ArrayDeque<Integer> queue = new ArrayDeque<>();

    public void fork(int number) {
      queue.add(number);
    }

    public int begin() {
      return queue.isEmpty() ? -1 : queue.poll();
    }

    public int take() {
      return queue.isEmpty() ? -1 : queue.poll();
    }
  }

  /** The deque of one thread; its runners are closed, so that nobody else looks at it. */
  public static class Children {
    private static final TaskRuntime RUNTIME = TaskRuntime.open(TaskConfig.DEFAULT);
    private static final TaskScope<Integer> SCOPE = RUNTIME.scope();

    static {
      RUNTIME.runners().close();
    }

    private final Forks forks =
        new Forks(RUNTIME.runners(), new Execution(Task.root(), null), null);
    private final List<Fork<Integer>> all = new ArrayList<>();
    private final List<Integer> numbers = new ArrayList<>();
    private int reckoned;

    @Operation(nonParallelGroup = "parent")
    public void fork(@Param(gen = IntGen.class) int number) {
      Task task = new Task(Task.root(), "c" + number, 0, Placement.FREE, WaitMode.NONBLOCKING);
      Fork<Integer> child = new Fork<>(SCOPE, task, () -> number, null, true);
      all.add(child);
      numbers.add(number);
      forks.push(child);
    }

    @Operation(nonParallelGroup = "parent")
    public int begin() {
      int begun = -1;
      while (reckoned < all.size() && begun < 0) {
        if (all.get(reckoned).claim()) {
          begun = numbers.get(reckoned);
        }
        reckoned++;
      }
      forks.trim(0);
      return begun;
    }

    @Operation(nonParallelGroup = "runner")
    public int take() {
      for (; ; ) {
        int head = forks.head();
        ForkFrame frame = forks.oldest();
        if (frame == null) {
          if (forks.head() == head) {
            return -1;
          }
          continue;
        }
        if (forks.take(frame, frame.waiting())) {
          String name = ((Fork<?>) frame).task().name();
          return Integer.parseInt(name.substring(1));
        }
      }
    }
  }

  @Test
  void childrenInTheDeque() {
    options(2)
        .actorsPerThread(4)
        .actorsAfter(0)
        .sequentialSpecification(PlainChildren.class)
        .check(Children.class);
  }

  // --- a strand

  /** The plain counter beside {@link Turns}. */
  public static class PlainTurns {
    private int count;

    public int turn() {
      return ++count;
    }
  }

  /** Each takes the turn, counts without care, and passes it on. */
  public static class Turns {
    private final Strand strand = new Strand();
    private int count;

    public Turns() {
      strand.pass(); // free
    }

    @Operation(blocking = true)
    public int turn() {
      strand.take();
      int seen = ++count;
      strand.pass();
      return seen;
    }
  }

  @Test
  void strand() {
    options(3).sequentialSpecification(PlainTurns.class).check(Turns.class);
  }

  // --- the harness

  /** A queue that two may take the same from. */
  public static class Wrong {
    private final List<Integer> queue = new ArrayList<>();
    private volatile int taken;

    @Operation(nonParallelGroup = "producer")
    public void add(@Param(gen = IntGen.class) int number) {
      queue.add(number);
    }

    @Operation
    public int poll() {
      int at = taken;
      if (at >= queue.size()) {
        return -1;
      }
      taken = at + 1;
      return queue.get(at);
    }
  }

  @Test
  void aQueueThatGivesTheSameTwiceIsFound() {
    assertThatExceptionOfType(AssertionError.class)
        .isThrownBy(() -> options(3).sequentialSpecification(PlainOfOne.class).check(Wrong.class))
        .satisfies(found -> assertThat(found.getMessage()).contains("Invalid execution results"));
  }
}
