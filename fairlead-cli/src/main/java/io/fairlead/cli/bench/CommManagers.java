package io.fairlead.cli.bench;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.comm.Comm;
import io.fairlead.comm.Received;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * What messages cost a thread that manages a device, which never enters a transport itself: it
 * hands them to the communication thread. As for {@link CommProbes}, each method is called on both
 * ranks, once for each world; the managing thread is rank 0's.
 */
final class CommManagers {
  private static final int SHIFTED = 20_000;
  private static final int SUBMITTED = 200_000;

  /** So many are submitted before the manager waits until they are on their way. */
  private static final int BURST = 32;

  /** About as long as a submit takes. */
  private static final int SPINS_OF_NOTHING = 4;

  /** As many, and as many bytes, as a submit leaves. */
  private static final int OBJECTS = 5;

  private static final int OBJECT_LONGS = 3;

  /** 2 µs of looks, as a thread of ours that manages a device makes them. */
  private static final int LOOKS_PER_YIELD = 50;

  private static final int PING_TAG = 11;
  private static final int ACK_HANDLER = 11;
  private static final int SINK_HANDLER = 12;
  private static final double P999 = 0.999;

  private final Comm comm;
  private final CommProbes probes;
  private final int scale;

  /** Counts acknowledgements; by the communication thread of rank 0. */
  private final AtomicInteger acknowledged = new AtomicInteger();

  /** Keeps what is made for nothing, so that it is made. */
  private final Object[] fresh = new Object[OBJECTS];

  /** Of {@link #ACK_HANDLER}, which is set once. */
  private boolean listens;

  CommManagers(Comm comm, CommProbes probes, int scale) {
    this.comm = comm;
    this.probes = probes;
    this.scale = scale;
  }

  private int rounds(int full) {
    return Math.max(50, full / scale);
  }

  static MemorySegment word() {
    return Arena.ofAuto().allocate(JAVA_LONG);
  }

  // --- how long a shifted message takes ---------------------------------------------------------

  /**
   * From the call on the manager's thread to the callback of the receive on the other rank of this
   * machine; nanoseconds, of 8 bytes.
   */
  double[] shiftedToCallback() {
    return shifted(this::receiveByCallback);
  }

  /** The same, to the task that waits for the receive. */
  double[] shiftedToTask() {
    return shifted(this::receiveInTask);
  }

  private interface Receiver {
    /** Receives so many, acknowledges each, and says how late each was. */
    double[] receive(int count);
  }

  private double[] shifted(Receiver receiver) {
    int count = rounds(SHIFTED);
    if (comm.rank() == 0 && !listens) {
      comm.handle(ACK_HANDLER, (source, header, blobs) -> acknowledged.incrementAndGet());
    }
    listens = true;
    comm.barrier().await();
    if (comm.rank() != 0) {
      double[] late = receiver.receive(2 * count);
      return probes.atRoot(Arrays.copyOfRange(late, count, 2 * count));
    }
    onManager(
        () -> {
          MemorySegment out = word();
          for (int i = 0; i < 2 * count; i++) {
            int before = acknowledged.get();
            out.set(JAVA_LONG, 0, System.nanoTime());
            Completion<@Nullable Void> sent = comm.send(1, PING_TAG, out);
            lookUntil(() -> hasEnded(sent) && acknowledged.get() != before);
          }
          return count;
        });
    return probes.atRoot();
  }

  private double[] receiveInTask(int count) {
    double[] late = new double[count];
    MemorySegment in = word();
    Completion<Received> received = comm.receive(0, PING_TAG, in);
    for (int i = 0; i < count; i++) {
      received.await();
      late[i] = System.nanoTime() - in.get(JAVA_LONG, 0);
      if (i + 1 < count) {
        received = comm.receive(0, PING_TAG, in); // there before the next one is sent
      }
      acknowledge();
    }
    return late;
  }

  private double[] receiveByCallback(int count) {
    Callbacks callbacks = new Callbacks(count);
    callbacks.receive();
    return callbacks.late.completion().await();
  }

  private void acknowledge() {
    comm.message(0, ACK_HANDLER, word());
  }

  /** Receives one after the other without any task. Its callbacks follow one another. */
  private final class Callbacks {
    private final double[] nanos;
    private final MemorySegment in = word();
    private final Completion.Source<double[]> late = Completion.source();
    private int count;

    Callbacks(int count) {
      this.nanos = new double[count];
    }

    void receive() {
      comm.receive(0, PING_TAG, in).onDone(this::received);
    }

    private void received(Completion<Received> received) {
      long now = System.nanoTime();
      if (received.state() != Completion.State.DONE) {
        late.fail(new IllegalStateException("a receive failed", received.cause()));
        return;
      }
      nanos[count++] = now - in.get(JAVA_LONG, 0);
      if (count < nanos.length) {
        receive();
      }
      acknowledge();
      if (count == nanos.length) {
        late.complete(nanos);
      }
    }
  }

  // --- what submitting costs the manager --------------------------------------------------------

  /**
   * What a submit takes on the manager's thread, its clock included; nanoseconds. Beside it, in the
   * same bursts, what nothing takes, and what it takes to make as much garbage and do nothing else:
   * what is as late there is not the engine's.
   *
   * @return p50, p99.9, the greatest; p99.9 of nothing and of garbage; none on other ranks
   */
  double[] submits() {
    int count = rounds(SUBMITTED) / BURST * BURST;
    comm.handle(SINK_HANDLER, (source, header, blobs) -> {});
    comm.barrier().await();
    double[] figures = comm.rank() == 0 ? onManager(() -> submit(count)) : new double[0];
    comm.barrier().await();
    return figures;
  }

  private double[] submit(int count) {
    double[] nanos = new double[count];
    double[] nothing = new double[count];
    double[] garbage = new double[count];
    MemorySegment header = word();
    for (int i = -count / 2 / BURST * BURST; i < count; i += BURST) {
      Completion<@Nullable Void> last = Completion.completed(null);
      for (int j = 0; j < BURST; j++) {
        long start = System.nanoTime();
        last = comm.message(1, SINK_HANDLER, header);
        long end = System.nanoTime();
        if (i >= 0) {
          nanos[i + j] = end - start;
        }
      }
      Completion<@Nullable Void> sent = last;
      lookUntil(() -> hasEnded(sent));
      burst(nothing, i, this::doNothing);
      burst(garbage, i, this::makeGarbage);
    }
    Samples all = Samples.of(nanos);
    return new double[] {
      all.median(),
      all.quantile(P999),
      all.max(),
      Samples.of(nothing).quantile(P999),
      Samples.of(garbage).quantile(P999)
    };
  }

  private static void burst(double[] nanos, int first, Runnable body) {
    for (int j = 0; j < BURST; j++) {
      long start = System.nanoTime();
      body.run();
      long end = System.nanoTime();
      if (first >= 0) {
        nanos[first + j] = end - start;
      }
    }
  }

  private void doNothing() {
    for (int i = 0; i < SPINS_OF_NOTHING; i++) {
      Thread.onSpinWait();
    }
  }

  private void makeGarbage() {
    for (int i = 0; i < OBJECTS; i++) {
      fresh[i] = new long[OBJECT_LONGS];
    }
  }

  // --- the manager's thread ---------------------------------------------------------------------

  /** Runs on a thread that manages a device, for every gate; the calling task waits. */
  private static <T> T onManager(Callable<T> body) {
    Completion.Source<T> done = Completion.source();
    Role.DEVICE_MANAGER
        .newThread(
            "bench-manager",
            () -> {
              try {
                done.complete(body.call());
              } catch (Exception | Error failed) {
                done.fail(failed);
              }
            })
        .start();
    return done.completion().await();
  }

  private interface Condition {
    boolean holds();
  }

  /**
   * Such a thread must not wait for others; between two messages it looks, as it does for events.
   */
  @SuppressWarnings("ThreadPriorityCheck") // makes room on a machine that is full
  private static void lookUntil(Condition condition) {
    for (int looks = 1; !condition.holds(); looks++) {
      if (looks % LOOKS_PER_YIELD == 0) {
        Thread.yield();
      } else {
        Thread.onSpinWait();
      }
    }
  }

  /** Throws if it has failed: nobody else looks. */
  private static boolean hasEnded(Completion<?> completion) {
    if (completion.isDone() && completion.state() != Completion.State.DONE) {
      throw new IllegalStateException("a send failed", completion.cause());
    }
    return completion.isDone();
  }
}
