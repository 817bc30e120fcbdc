package io.fairlead.runtime;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.ReduceOp;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.task.Engine;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.Task;
import io.fairlead.task.TaskScope;
import io.fairlead.task.ThreadRule;
import io.fairlead.task.WaitMode;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The whole path, through the front door. */
class FairleadTest {
  private static final FairleadConfig HOST =
      FairleadConfig.defaults().withDevice("host").withHostWorkers(2).withDeviceMemory(8 << 20);

  @ParameterizedTest
  @EnumSource
  void tasksUseTheDeviceInEveryWaitMode(WaitMode mode) {
    try (Fairlead fairlead = Fairlead.open(HOST.withWaitMode(mode));
        TaskScope<Double> scope = fairlead.scope()) {
      Device device = fairlead.device();
      for (int i = 0; i < 50; i++) {
        double value = i;
        scope.fork(
            () -> {
              try (DeviceBuffer buffer = device.allocate(80)) {
                buffer.upload(IntStream.range(0, 10).mapToDouble(j -> value).toArray());
                return buffer.toDoubles()[9];
              }
            });
      }
      assertThat(scope.join())
          .containsExactlyElementsOf(IntStream.range(0, 50).mapToObj(i -> (double) i).toList());
    }
  }

  @ParameterizedTest
  @EnumSource
  void ranksTalkInEveryWaitMode(WaitMode mode) {
    try (Fairlead fairlead = Fairlead.open(HOST.withWaitMode(mode))) {
      List<String> results =
          fairlead.ranks(
              4,
              comm -> {
                double[] sum = {comm.rank() + 1.0};
                comm.allReduce(sum, ReduceOp.SUM).await();
                comm.barrier().await();
                boolean virtual = Thread.currentThread().isVirtual();
                return comm.rank() + " of " + comm.size() + ": " + sum[0] + " " + virtual;
              });

      boolean virtual = mode != WaitMode.BLOCKING;
      assertThat(results)
          .containsExactly(
              "0 of 4: 10.0 " + virtual,
              "1 of 4: 10.0 " + virtual,
              "2 of 4: 10.0 " + virtual,
              "3 of 4: 10.0 " + virtual);
      assertThat(fairlead.report()).contains("messages of 4 ranks");
    }
  }

  @ParameterizedTest
  @EnumSource
  void ranksWaitAsTheCallOrItsTaskSays(WaitMode mode) {
    RankBody<String> body =
        comm -> {
          comm.barrier().await();
          return Task.current().waitMode() + " " + Thread.currentThread().isVirtual();
        };
    String expected = mode + " " + (mode != WaitMode.BLOCKING);
    try (Fairlead fairlead = Fairlead.open(HOST.withWaitMode(WaitMode.SPIN))) {
      assertThat(fairlead.ranks(2, mode, body)).containsExactly(expected, expected);
      try (TaskScope<List<String>> scope = fairlead.scope(ScopeOptions.DEFAULT.waitMode(mode))) {
        scope.fork(() -> fairlead.ranks(1, body));
        assertThat(scope.join()).containsExactly(List.of(expected));
      }
      assertThat(fairlead.ranks(1, body)).containsExactly("SPIN true");
    }
  }

  @ParameterizedTest
  @EnumSource
  void ranksUseTheDeviceInEveryWaitMode(WaitMode mode) {
    try (Fairlead fairlead = Fairlead.open(HOST.withWaitMode(mode))) {
      List<Double> results =
          fairlead.ranks(
              3,
              comm -> {
                try (DeviceBuffer buffer = fairlead.device().allocate(8)) {
                  buffer.upload(new double[] {comm.rank()});
                  comm.barrier().await();
                  return buffer.toDoubles()[0];
                }
              });
      assertThat(results).containsExactly(0.0, 1.0, 2.0);
    }
  }

  @ParameterizedTest
  @EnumSource
  void aFailingRankEndsTheOthersWithItsCause(WaitMode mode) {
    try (Fairlead fairlead = Fairlead.open(HOST.withWaitMode(mode))) {
      assertThatThrownBy(
              () ->
                  fairlead.ranks(
                      3,
                      comm -> {
                        if (comm.rank() == 1) {
                          throw new IllegalStateException("rank 1 is broken");
                        }
                        comm.barrier().await(); // would wait for rank 1 for ever
                        return comm.rank();
                      }))
          .hasStackTraceContaining("rank 1 is broken");
    }
  }

  @Test
  void aForeignThreadEntersAndIsATaskMeanwhile() throws Exception {
    try (Fairlead fairlead = Fairlead.open(HOST)) {
      CompletableFuture<String> result = new CompletableFuture<>();
      Thread thread =
          Thread.ofPlatform()
              .start(
                  () ->
                      result.complete(
                          fairlead.enter(
                              "visitor",
                              0,
                              () -> {
                                try (DeviceBuffer buffer = fairlead.device().allocate(8)) {
                                  buffer.upload(new double[] {1});
                                  return Task.current().name() + " " + buffer.toDoubles()[0];
                                }
                              })));
      assertThat(result.get(30, TimeUnit.SECONDS)).isEqualTo("visitor 1.0");
      thread.join();
      assertThatThrownBy(
              () ->
                  fairlead.enter(
                      "fails",
                      0,
                      () -> {
                        throw new UnsupportedOperationException("as it is");
                      }))
          .isInstanceOf(UnsupportedOperationException.class)
          .hasMessage("as it is");
    }
  }

  @Test
  void anEngineReservesMemoryForItsCalls() {
    try (Fairlead fairlead = Fairlead.open(HOST)) {
      Device device = fairlead.device();
      Engine<StringBuilder> engine =
          fairlead.engine("words", ThreadRule.OWNER_ONLY, StringBuilder::new, EngineLimits.of(1));
      String result =
          fairlead.enter(
              "caller",
              0,
              () ->
                  engine.call(
                      1 << 20,
                      words -> {
                        assertThat(device.memory().reserved()).isEqualTo(1 << 20);
                        return words.append("called").toString();
                      }));

      assertThat(result).isEqualTo("called");
      assertThat(device.memory().reserved()).isZero();
      assertThatThrownBy(() -> engine.call(1L << 40, words -> ""))
          .hasMessageContaining("it can never fit");
    }
  }

  @Test
  void severalDevicesAreSeveral() {
    try (Fairlead fairlead = Fairlead.open(HOST.withHostDevices(2))) {
      assertThat(fairlead.devices()).hasSize(2);
      assertThat(fairlead.device(1).info().ordinal()).isEqualTo(1);
      try (DeviceBuffer there = fairlead.device(1).allocate(8);
          DeviceBuffer here = fairlead.device().allocate(8)) {
        there.upload(new double[] {4});
        here.copyFrom(there);
        assertThat(here.toDoubles()).containsExactly(4);
      }
      assertThatThrownBy(() -> fairlead.device(2))
          .isInstanceOf(IndexOutOfBoundsException.class)
          .hasMessageContaining("no device 2")
          .hasMessageContaining("has 2");
    }
  }

  @Test
  void theReportSaysWhatWasTakenAndDone() {
    try (Fairlead fairlead = Fairlead.open(HOST)) {
      try (DeviceBuffer buffer = fairlead.device().allocate(1 << 20)) {
        buffer.upload(new double[1 << 17]);
        assertThat(buffer.toDoubles()).hasSize(1 << 17);
      }
      assertThat(fairlead.report())
          .contains("driver host")
          .contains("asked for by name")
          .contains("nonblocking")
          .contains("memory peak 1.0 MiB of 8.0 MiB in 1 allocations")
          .contains("1.0 MiB up, 1.0 MiB down")
          .contains("no ranks have run");
    }
  }

  @Test
  void aClosedFairleadRefusesEverything() {
    Fairlead fairlead = Fairlead.open(HOST);
    fairlead.close();
    fairlead.close();

    assertThatThrownBy(fairlead::scope)
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("closed");
    assertThatThrownBy(() -> fairlead.enter("late", 0, () -> 1))
        .isInstanceOf(IllegalStateException.class);
    assertThatThrownBy(() -> fairlead.ranks(1, comm -> 1))
        .isInstanceOf(IllegalStateException.class);
    assertThatThrownBy(() -> fairlead.device().allocate(8))
        .isInstanceOf(IllegalStateException.class);
  }

  @Test
  void closingLeavesNoThreadBehind() throws InterruptedException {
    Fairlead fairlead = Fairlead.open(HOST.withWaitMode(WaitMode.BLOCKING).withHostDevices(2));
    fairlead.ranks(2, comm -> comm.barrier().await());
    fairlead.close();

    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (thread.getName().startsWith("fairlead-") && !belongsToTheProcess(thread)) {
        // It has said that it ends, and may have a few instructions left.
        assertThat(thread.join(Duration.ofSeconds(30))).as(thread.getName()).isTrue();
      }
    }
  }

  /** The cleaner, and the carriers: one set for the process, asleep while nothing runs. */
  private static boolean belongsToTheProcess(Thread thread) {
    return thread.getName().contains("cleaner") || thread.getName().contains("carrier");
  }

  @Test
  void opensAndClosesManyTimes() {
    for (int i = 0; i < 20; i++) {
      try (Fairlead fairlead = Fairlead.open(HOST);
          DeviceBuffer buffer = fairlead.device().allocate(8)) {
        buffer.upload(new double[] {i});
        assertThat(buffer.toDoubles()).containsExactly(i);
      }
    }
  }

  @Test
  void ranksNeedAtLeastOne() {
    try (Fairlead fairlead = Fairlead.open(HOST)) {
      assertThatThrownBy(() -> fairlead.ranks(0, comm -> 1))
          .isInstanceOf(IllegalArgumentException.class);
    }
  }
}
