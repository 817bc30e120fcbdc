package io.fairlead.comm;

import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.SplittableRandom;

/** Ranks for a test: opened together, closed together. */
final class World implements AutoCloseable {
  final TaskRuntime tasks;
  final List<Comm> ranks;

  World(int size) {
    this(size, CommConfig.DEFAULT);
  }

  World(int size, CommConfig config) {
    tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    ranks = InProcess.ranks(tasks, size, config);
  }

  World(TaskRuntime tasks, List<Comm> ranks) {
    this.tasks = tasks;
    this.ranks = ranks;
  }

  Comm rank(int rank) {
    return ranks.get(rank);
  }

  /** Runs a body as a task of each rank and waits for all; the first failure is thrown. */
  void each(Body body) {
    try (TaskScope<Object> scope = tasks.scope()) {
      for (Comm rank : ranks) {
        scope.fork(
            () -> {
              body.run(rank);
              return "done";
            });
      }
      scope.join();
    }
  }

  @Override
  public void close() {
    ranks.forEach(Comm::close);
    tasks.close();
  }

  interface Body {
    void run(Comm comm) throws Exception;
  }

  static MemorySegment memory(int length) {
    return MemorySegment.ofArray(new byte[length]);
  }

  static MemorySegment bytes(int length, long seed) {
    byte[] bytes = new byte[length];
    new SplittableRandom(seed).nextBytes(bytes);
    return MemorySegment.ofArray(bytes);
  }

  static MemorySegment longs(long... values) {
    return MemorySegment.ofArray(values);
  }

  static long value(MemorySegment segment) {
    return segment.get(ValueLayout.JAVA_LONG_UNALIGNED, 0);
  }
}
