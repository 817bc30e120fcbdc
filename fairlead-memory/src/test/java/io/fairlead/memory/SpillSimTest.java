package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceStream;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import io.fairlead.task.TaskScope;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Many tasks over a device that has room for a quarter of what they keep, each doing what its seed
 * says: every buffer holds what was last put into it, wherever it was meanwhile, nobody runs out of
 * memory, and in the end everything is back.
 */
class SpillSimTest {
  private static final long LIMIT = 256 << 10;
  private static final int TASKS = 12;
  private static final int BUFFERS = 6;
  private static final int BYTES_MAX = 28 << 10;
  private static final int STEPS = 40;

  static LongStream seeds() {
    return LongStream.rangeClosed(31, Boolean.getBoolean("fairlead.long") ? 60 : 33);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void everythingKeepsItsContent(long seed) {
    try (TestDevice world = TestDevice.open(config())) {
      run(world, seed);
    }
  }

  @ParameterizedTest
  @ValueSource(longs = {41, 42})
  void soItIsOnTheDriversPool(long seed) {
    try (TestDevice world = TestDevice.open(config().withPool(MemoryPool.DRIVER))) {
      run(world, seed);
    }
  }

  @ParameterizedTest
  @ValueSource(longs = {51, 52})
  void soItIsOnADriverThatDoesNotNotify(long seed) {
    try (TestDevice world =
        TestDevice.open(config(), Map.of("notify", "false", "strict", "true"))) {
      run(world, seed);
    }
  }

  @ParameterizedTest
  @ValueSource(longs = {61, 62, 63})
  void soItIsOverPinnedMemoryToDisk(long seed, @TempDir Path directory) {
    // an eighth of what they keep fits into pinned memory
    SpillConfig spill =
        SpillConfig.TO_HOST.withHostBytesMax(128 << 10).withDisk(directory, 16 << 20);
    try (TestDevice world = TestDevice.open(config().withSpill(spill))) {
      run(world, seed);
      assertThat(world.device.spiller().toDisk()).as("seed %d", seed).isPositive();
    }
    assertThat(directory).isEmptyDirectory();
  }

  /** Pinned memory is refused, the disk is full for a while, calls take a part or break off. */
  @ParameterizedTest
  @ValueSource(longs = {71, 72})
  void soItIsWhereWhatIsBelowFails(long seed, @TempDir Path directory) {
    SpillConfig spill =
        SpillConfig.TO_HOST
            .withHostBytesMax(128 << 10)
            .withDisk(directory, 16 << 20)
            .withFailures(MemoryFailures.rate(0.02, seed));
    MemoryConfig patient = config().withGrace(Duration.ofMinutes(5));
    try (TestDevice world = TestDevice.open(patient.withSpill(spill))) {
      run(world, seed);
      assertThat(world.device.spiller().toDisk()).as("seed %d", seed).isPositive();
    }
    assertThat(directory).isEmptyDirectory();
  }

  @Test
  void aCommitThatDoesNotLookForChangesIsFound() {
    try (TestDevice world = TestDevice.open(config());
        var _ = Mutant.enable("spill.generation.skip")) {
      assertThatThrownBy(() -> run(world, 31)).hasStackTraceContaining("seed 31");
    }
  }

  private static MemoryConfig config() {
    return MemoryConfig.defaults()
        .withLimit(LIMIT)
        .withChunk(4096)
        .withWait(Duration.ofMinutes(5))
        .withSpill(SpillConfig.TO_HOST.withHostBytesMax(16 << 20));
  }

  private static void run(TestDevice world, long seed) {
    Device device = world.device;
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      for (int i = 0; i < TASKS; i++) {
        long taskSeed = 1_000_003 * seed + i;
        scope.fork(() -> new Actor(device, seed, taskSeed).run());
      }
      assertThat(scope.join()).hasSize(TASKS);
    }
    world.awaitNothingLeft();
    device.trim().await();
    MemoryStats stats = device.memory();
    assertThat(stats.spills()).as("spills, seed %d", seed).isGreaterThan(BUFFERS * TASKS / 2);
    assertThat(stats.returns()).as("returns, seed %d", seed).isPositive();
    assertThat(stats.peak()).as("peak, seed %d", seed).isBetween(LIMIT / 2, LIMIT);
    assertThat(device.budget().hasWaiting()).isFalse();
  }

  /** One task with a few buffers, whose content it knows. */
  private static final class Actor {
    private final Device device;
    private final long seed;
    private final Random random;
    private final List<DeviceBuffer> buffers = new ArrayList<>();
    private final List<Byte> values = new ArrayList<>();

    Actor(Device device, long seed, long taskSeed) {
      this.device = device;
      this.seed = seed;
      this.random = new Random(taskSeed);
    }

    int run() {
      try {
        for (int i = 0; i < BUFFERS; i++) {
          buffers.add(device.allocate(1 + random.nextInt(BYTES_MAX)));
          values.add((byte) 0);
          set(i);
        }
        for (int step = 0; step < STEPS; step++) {
          step();
        }
        for (int i = 0; i < BUFFERS; i++) {
          check(i);
        }
      } finally {
        buffers.forEach(DeviceBuffer::close);
      }
      return STEPS;
    }

    private void step() {
      int one = random.nextInt(BUFFERS);
      switch (random.nextInt(10)) {
        case 0 -> set(one);
        case 1 -> onAnotherStream(one);
        case 2 -> upload(one);
        case 3 -> copy(one, random.nextInt(BUFFERS));
        case 4 -> replace(one);
        case 5 -> held(one);
        case 6 -> interrupted(one);
        case 7 -> buffers.get(one).spill();
        case 8 -> buffers.get(one).priority(random.nextInt(3));
        default -> check(one);
      }
    }

    private void set(int one) {
      byte value = (byte) random.nextInt();
      buffers.get(one).fill(value);
      values.set(one, value);
    }

    private void onAnotherStream(int one) {
      byte value = (byte) random.nextInt();
      DeviceBuffer buffer = buffers.get(one);
      try (DeviceStream other = device.context().openStream(0)) {
        other.fill(buffer, 0, buffer.bytes(), value);
      }
      values.set(one, value);
    }

    private void upload(int one) {
      byte value = (byte) random.nextInt();
      byte[] bytes = new byte[(int) buffers.get(one).bytes()];
      Arrays.fill(bytes, value);
      buffers.get(one).upload(bytes);
      values.set(one, value);
    }

    private void copy(int one, int other) {
      if (one != other && buffers.get(one).bytes() <= buffers.get(other).bytes()) {
        long bytes = buffers.get(one).bytes();
        buffers.get(one).copyFrom(0, buffers.get(other), 0, bytes);
        values.set(one, values.get(other));
      }
    }

    private void replace(int one) {
      buffers.get(one).close();
      buffers.set(one, device.allocate(1 + random.nextInt(BYTES_MAX)));
      set(one);
    }

    private void held(int one) {
      // one of each task, so that what is held and one operation always fit
      try (Hold hold = buffers.get(one).hold()) {
        assertThat(buffers.get(one).tier()).isEqualTo(Tier.DEVICE);
        assertThat(hold).isNotNull();
      }
    }

    /** Wherever it waits, nothing of it is left behind. */
    private void interrupted(int one) {
      Thread self = Thread.currentThread();
      self.interrupt();
      try {
        byte value = (byte) random.nextInt();
        buffers.get(one).fill(value);
        values.set(one, value);
      } catch (TaskInterruptedException | TaskCancelledException stopped) {
        // it was not filled then
      } finally {
        boolean _ = Thread.interrupted();
      }
    }

    private void check(int one) {
      assertThat(buffers.get(one).toBytes()).as("seed %d", seed).containsOnly(values.get(one));
    }
  }
}
