package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.ElementType;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Param;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.task.TaskScope;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.RepetitionInfo;
import org.junit.jupiter.api.Test;

/** Tasks that use the same buffers at once, with no order of their own. */
class SharedBufferTest {
  private static final int TASKS = 16;
  private static final int ROUNDS = 100;

  /** Adds one to each element, with a plain load and store: two at once would lose some. */
  private static final ModuleSource INCREMENT =
      new ModuleSource(
          "increment",
          List.of(
              new ModuleImage.Java(
                  Map.of(
                      "increment",
                      (arguments, begin, end) -> {
                        for (int buffer = 0; buffer < 2; buffer++) {
                          for (long i = begin; i < end; i++) {
                            long old =
                                arguments.buffer(buffer).getAtIndex(ValueLayout.JAVA_LONG, i);
                            arguments.buffer(buffer).setAtIndex(ValueLayout.JAVA_LONG, i, old + 1);
                          }
                        }
                      }))));

  private TestDevice world;
  private Device device;

  @BeforeEach
  void open() {
    world = TestDevice.open();
    device = world.device;
  }

  @AfterEach
  void close() {
    world.close();
  }

  /** Half of the launches name the buffers the other way round; none waits for ever. */
  @Test
  void conflictingLaunchesFollowEachOther() {
    Kernel increment =
        device
            .load(INCREMENT)
            .kernel("increment", Param.inOut(ElementType.I64), Param.inOut(ElementType.I64));
    try (DeviceBuffer x = device.allocate(8 * 64);
        DeviceBuffer y = device.allocate(8 * 64)) {
      x.fill((byte) 0);
      y.fill((byte) 0);
      device.stream().reached().await();
      try (TaskScope<Boolean> scope = world.tasks.scope()) {
        for (int i = 0; i < TASKS; i++) {
          boolean swapped = i % 2 == 1;
          scope.fork(() -> launchAll(increment, swapped ? y : x, swapped ? x : y));
        }
        scope.join();
      }
      assertThat(x.toLongs()).containsOnly((long) TASKS * ROUNDS);
      assertThat(y.toLongs()).containsOnly((long) TASKS * ROUNDS);
    }
  }

  private static boolean launchAll(Kernel kernel, DeviceBuffer first, DeviceBuffer second) {
    for (int round = 0; round < ROUNDS; round++) {
      kernel.launch(Grid.of(64), first, second);
    }
    return true;
  }

  /** A buffer that is closed while others use it: each use happens wholly, or is refused. */
  @RepeatedTest(20)
  void closingWhileOthersUseItIsSafe(RepetitionInfo repetition) {
    DeviceBuffer shared = device.allocate(4096);
    shared.fill((byte) 7);
    device.stream().reached().await();
    AtomicInteger refused = new AtomicInteger();
    int closer = repetition.getCurrentRepetition() % TASKS;
    try (TaskScope<Boolean> scope = world.tasks.scope()) {
      for (int i = 0; i < TASKS; i++) {
        boolean closes = i == closer;
        scope.fork(
            () -> {
              if (closes) {
                shared.close();
                return true;
              }
              try {
                byte[] bytes = shared.toBytes();
                assertThat(bytes).as("freed memory is overwritten").containsOnly(7);
              } catch (IllegalStateException closed) {
                assertThat(closed).hasMessageContaining("was closed at");
                refused.incrementAndGet();
              }
              return true;
            });
      }
      scope.join();
    }
    world.awaitNothingInUse();
    assertThat(refused.get()).isBetween(0, TASKS);
  }
}
