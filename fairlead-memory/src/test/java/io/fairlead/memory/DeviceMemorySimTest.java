package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.fault.Mutant;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Many tasks at once, each doing what its seed says: however the threads interleave, the driver's
 * own counter never passes the limit, every buffer holds what was last put into it, and in the end
 * everything is back. The device has more memory than the limit, and overwrites what is freed.
 */
class DeviceMemorySimTest {
  private static final long LIMIT = 512 << 10;
  private static final int TASKS = 24;
  private static final int STEPS = 30;
  private static final int BYTES_MAX = 100 << 10;

  static LongStream seeds() {
    return LongStream.rangeClosed(11, Boolean.getBoolean("fairlead.long") ? 40 : 13);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void theLimitHoldsOnTheDriversPool(long seed) {
    try (TestDevice world = TestDevice.open(config().withPool(MemoryPool.DRIVER))) {
      run(world, seed);
    }
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void theLimitHoldsInAnArena(long seed) {
    try (TestDevice world = TestDevice.open(config().withPool(MemoryPool.ARENA))) {
      run(world, seed);
      ((ArenaPool) world.device.pool()).check();
    }
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void theLimitHoldsHoweverTasksInterleave(long seed) {
    try (TestDevice world = TestDevice.open(config())) {
      run(world, seed);
    }
  }

  @ParameterizedTest
  @ValueSource(longs = {21, 22})
  void theLimitHoldsOnADriverThatDoesNotNotify(long seed) {
    try (TestDevice world =
        TestDevice.open(config(), Map.of("notify", "false", "strict", "true"))) {
      run(world, seed);
    }
  }

  @Test
  void aDeviceThatForgetsItsLimitIsFound() {
    try (TestDevice world = TestDevice.open(config().withPool(MemoryPool.DRIVER));
        var _ = Mutant.enable("memory.limit.skip")) {
      assertThatThrownBy(() -> run(world, 11)).hasStackTraceContaining("the driver's own counter");
    }
  }

  private static MemoryConfig config() {
    return MemoryConfig.defaults().withLimit(LIMIT).withWait(Duration.ofMinutes(5));
  }

  private static void run(TestDevice world, long seed) {
    Device device = world.device;
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      for (int i = 0; i < TASKS; i++) {
        long taskSeed = 1_000_003 * seed + i;
        scope.fork(() -> new Actor(device, taskSeed).run());
      }
      assertThat(scope.join()).hasSize(TASKS);
    }
    world.awaitNothingInUse();
    device.trim().await();
    MemoryStats stats = device.memory();
    assertThat(stats.cached()).as("cached, seed %d", seed).isZero();
    assertThat(stats.reserved()).as("reserved, seed %d", seed).isZero();
    assertThat(stats.peak()).as("peak, seed %d", seed).isBetween(LIMIT / 2, LIMIT);
    assertThat(driverUses(device.context())).as("seed %d", seed).isZero();
    assertThat(device.budget().hasWaiting()).isFalse();
  }

  private static long driverUses(DeviceContext context) {
    MemoryInfo info =
        context.driverCall(
            DriverCall.MEMORY_INFO,
            "memory info",
            () -> context.driver().memoryInfo(context.nativeContext()));
    return info.totalBytes() - info.freeBytes();
  }

  /** One task: works with one buffer at a time, or with several inside a reservation. */
  private static final class Actor {
    private final Device device;
    private final long seed;
    private final Random random;

    Actor(Device device, long seed) {
      this.device = device;
      this.seed = seed;
      this.random = new Random(seed);
    }

    int run() {
      for (int step = 0; step < STEPS; step++) {
        if (random.nextInt(4) == 0) {
          reserved();
        } else {
          try (DeviceBuffer buffer = allocate(BYTES_MAX)) {
            use(buffer);
          }
        }
      }
      return STEPS;
    }

    private DeviceBuffer allocate(int most) {
      DeviceBuffer buffer = device.allocate(1 + random.nextInt(most));
      assertThat(driverUses(device.context()))
          .as("seed %d: the driver's own counter", seed)
          .isLessThanOrEqualTo(LIMIT);
      return buffer;
    }

    private void reserved() {
      int each = 1 + random.nextInt(BYTES_MAX / 2);
      List<DeviceBuffer> buffers = new ArrayList<>();
      try (Reservation reservation = device.reserve(3L * Sizes.rounded(each))) {
        for (int i = 0; i < 3; i++) {
          buffers.add(allocate(each));
        }
        buffers.forEach(this::use);
        buffers.remove(random.nextInt(3)).close();
        assertThat(reservation.free()).isNotNegative();
      } finally {
        buffers.forEach(DeviceBuffer::close); // two of them after the reservation
      }
    }

    @SuppressWarnings("ThreadPriorityCheck") // to be interleaved, not to be ordered
    private void use(DeviceBuffer buffer) {
      byte value = (byte) random.nextInt();
      switch (random.nextInt(3)) {
        case 0 -> buffer.fill(value);
        case 1 -> onAnotherStream(buffer, value);
        default -> upload(buffer, value);
      }
      if (random.nextInt(3) == 0) {
        Thread.yield();
      }
      if (random.nextBoolean()) {
        assertThat(buffer.toBytes()).as("seed %d", seed).containsOnly(value);
      }
    }

    private static void onAnotherStream(DeviceBuffer buffer, byte value) {
      try (DeviceStream other = buffer.device().context().openStream(0)) {
        other.fill(buffer, 0, buffer.bytes(), value);
      }
    }

    private static void upload(DeviceBuffer buffer, byte value) {
      byte[] bytes = new byte[(int) buffer.bytes()];
      Arrays.fill(bytes, value);
      buffer.upload(bytes);
    }
  }
}
