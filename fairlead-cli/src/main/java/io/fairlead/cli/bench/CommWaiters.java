package io.fairlead.cli.bench;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.comm.Comm;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Many tasks that all wait to receive at once, on one rank; the other one serves them. Each method
 * is called on both ranks, in a task each.
 */
final class CommWaiters {
  /** Waiters share tags, as many as the smallest space of tags has room for beside others. */
  private static final int TAGS = 10_000;

  private static final int TAG = 1_000;

  /** So many sends are on their way at a time. */
  private static final int WINDOW = 1_000;

  /** A parked task keeps its frames, and those of code that is not compiled are larger. */
  private static final int WARM_UP_CROWDS = 3;

  private static final int WARM_UP_CROWD = 20_000;

  private final Fairlead fairlead;
  private final Comm comm;

  CommWaiters(Fairlead fairlead, Comm comm) {
    this.fairlead = fairlead;
    this.comm = comm;
  }

  /**
   * So many tasks wait.
   *
   * @return at the rank whose tasks wait: how many were not served what was sent to them, and the
   *     bytes of heap of each beyond those of a task that waits for nothing of a message engine;
   *     else nothing
   */
  double[] serve(int count) {
    for (int crowd = 0; crowd < WARM_UP_CROWDS; crowd++) {
      serveOnce(Math.min(count, WARM_UP_CROWD));
    }
    return serveOnce(count);
  }

  private double[] serveOnce(int count) {
    if (comm.rank() == 1) {
      return receive(count);
    }
    send(count);
    return new double[0];
  }

  private void send(int count) {
    comm.barrier().await(); // all are there
    List<Completion<?>> sent = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      MemorySegment number = Arena.ofAuto().allocate(JAVA_LONG);
      number.set(JAVA_LONG, 0, i % TAGS);
      sent.add(comm.send(1, TAG + i % TAGS, number));
      if (sent.size() == WINDOW) {
        sent.forEach(Completion::await);
        sent.clear();
      }
    }
    sent.forEach(Completion::await);
  }

  private double[] receive(int count) {
    double plain = bytesOfPlain(count);
    AtomicInteger there = new AtomicInteger();
    AtomicInteger served = new AtomicInteger();
    Completion.Source<String> all = Completion.source();
    long before = heapInUse();
    double bytes;
    try (TaskScope<Boolean> scope = fairlead.scope()) {
      for (int i = 0; i < count; i++) {
        int number = i % TAGS;
        scope.fork(
            () -> {
              var received = comm.receive(0, TAG + number);
              if (there.incrementAndGet() == count) {
                all.complete("all are there");
              }
              MemorySegment data = received.await().data();
              return data.get(JAVA_LONG, 0) == number && served.incrementAndGet() > 0;
            });
      }
      all.completion().await();
      bytes = (heapInUse() - before) / (double) count;
      comm.barrier().await();
      scope.join();
    }
    return new double[] {count - served.get(), bytes - plain};
  }

  /** Of tasks that wait for a plain completion. */
  private double bytesOfPlain(int count) {
    AtomicInteger there = new AtomicInteger();
    Completion.Source<String> all = Completion.source();
    List<Completion.Source<String>> gates = new ArrayList<>(count);
    long before = heapInUse();
    try (TaskScope<String> scope = fairlead.scope()) {
      for (int i = 0; i < count; i++) {
        Completion.Source<String> gate = Completion.source();
        gates.add(gate);
        scope.fork(
            () -> {
              if (there.incrementAndGet() == count) {
                all.complete("all are there");
              }
              return gate.completion().await();
            });
      }
      all.completion().await();
      double bytes = (heapInUse() - before) / (double) count;
      gates.forEach(gate -> gate.complete("go"));
      scope.join();
      return bytes;
    }
  }

  private static long heapInUse() {
    return WakeProbes.heapInUse();
  }
}
