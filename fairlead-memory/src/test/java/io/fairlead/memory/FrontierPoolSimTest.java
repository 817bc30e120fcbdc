package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * One seed says who allocates, uses and closes what on which stream, and which stream of the device
 * goes on next. No two live buffers share a byte, and whatever is read is what its owner has
 * written last: nobody has it before the last owner's work has ended.
 */
class FrontierPoolSimTest {
  private static final int STEPS = 600;
  private static final int STREAMS = 4;
  private static final int LIVE_MAX = 12;
  private static final long[] SIZES = {256, 1024, 1024, 4096};

  /** Hardly any twice, so that an arena cuts and merges. */
  private static final long[] MANY_SIZES = LongStream.range(1, 17).map(i -> 256 * i).toArray();

  /** Within so many seeds, a pool that forgets frontiers is found. */
  private static final int SEEDS_TO_FIND = 3;

  /** And one that forgets those of a part. */
  private static final int SEEDS_TO_FIND_PARTS = 20;

  static LongStream seeds() {
    return LongStream.rangeClosed(1, Boolean.getBoolean("fairlead.long") ? 400 : 30);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void everybodyFindsWhatTheyHaveWritten(long seed) {
    assertThat(new Run(seed, 4L << 20).wrong()).as("seed %d", seed).isZero();
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void alsoWhereUnfinishedBlocksHaveToDo(long seed) {
    // no more than the largest live set, so that it is waited for, or taken with an edge
    assertThat(new Run(seed, 16 << 10).wrong()).as("seed %d", seed).isZero();
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void alsoWherePiecesAreCutAndMerged(long seed) {
    for (long limit : new long[] {4L << 20, 16 << 10}) {
      assertThat(new Run(seed, limit, MemoryPool.ARENA, MANY_SIZES).wrong())
          .as("seed %d, limit %d", seed, limit)
          .isZero();
    }
  }

  @Test
  void anArenaThatForgetsFrontiersIsFound() {
    for (String mutant :
        List.of("pool.frontier.skip", "pool.split.nofrontier", "pool.merge.nofrontier")) {
      int found = 0;
      try (var _ = Mutant.enable(mutant)) {
        for (long seed = 1; seed <= SEEDS_TO_FIND_PARTS && found == 0; seed++) {
          found += isFound(seed, 16 << 10, MemoryPool.ARENA, MANY_SIZES) ? 1 : 0;
        }
      }
      assertThat(found).as(mutant).isPositive();
    }
  }

  @Test
  void aPoolThatForgetsFrontiersIsFound() {
    int found = 0;
    try (var _ = Mutant.enable("pool.frontier.skip")) {
      for (long seed = 1; seed <= SEEDS_TO_FIND; seed++) {
        found += isFound(seed, 4L << 20, MemoryPool.FAIRLEAD, SIZES) ? 1 : 0;
      }
    }
    assertThat(found).isPositive();
  }

  private static boolean isFound(long seed, long limit, MemoryPool pool, long[] sizes) {
    try {
      return new Run(seed, limit, pool, sizes).wrong() > 0;
    } catch (DeviceException fault) {
      return true; // the host device itself has seen a use before the allocation
    }
  }

  private record Live(DeviceBuffer buffer, byte value) {}

  private record Read(MemorySegment target, byte expected) {}

  private static final class Run {
    private final Random random;
    private final long limit;
    private final MemoryPool pool;
    private final long[] sizes;
    private final List<Live> live = new ArrayList<>();
    private final List<Read> reads = new ArrayList<>();
    private final List<DeviceStream> streams = new ArrayList<>();
    private int next;

    Run(long seed, long limit) {
      this(seed, limit, MemoryPool.FAIRLEAD, SIZES);
    }

    Run(long seed, long limit, MemoryPool pool, long[] sizes) {
      this.random = new Random(seed);
      this.limit = limit;
      this.pool = pool;
      this.sizes = sizes;
    }

    long wrong() {
      MemoryConfig config =
          MemoryConfig.defaults()
              .withPool(pool)
              .withLimit(limit)
              .withCachedBytesMax(limit)
              .withWait(Duration.ZERO);
      try (TestDevice world = TestDevice.stepped(config);
          Arena arena = Arena.ofShared()) {
        for (int i = 0; i < STREAMS; i++) {
          streams.add(world.newStream());
        }
        HostStepper stepper = world.stepper();
        for (int step = 0; step < STEPS; step++) {
          step(world, stepper, arena);
          if (world.device.pool() instanceof ArenaPool pieces) {
            pieces.check();
          }
        }
        live.forEach(each -> each.buffer.close());
        Completion<Void> all = world.device.context().reached();
        stepper.completeAll();
        assertThat(all.isDone()).isTrue();
        assertThat(world.device.memory().inUse()).isZero();
        assertThat(world.device.memory().reused()).isPositive();
        return reads.stream().filter(Run::isWrong).count();
      }
    }

    private static boolean isWrong(Read read) {
      for (byte each : read.target.toArray(ValueLayout.JAVA_BYTE)) {
        if (each != read.expected) {
          return true;
        }
      }
      return false;
    }

    private void step(TestDevice world, HostStepper stepper, Arena arena) {
      switch (random.nextInt(9)) {
        case 0, 1 -> allocate(world);
        case 2, 3 -> close();
        case 4 -> read(arena);
        case 5 -> write();
        case 6 -> world.device.context().reached(); // so that the end of what is there is seen
        default -> progress(stepper);
      }
    }

    private DeviceStream anyStream() {
      return streams.get(random.nextInt(STREAMS));
    }

    private void allocate(TestDevice world) {
      if (live.size() == LIVE_MAX) {
        return;
      }
      long bytes = sizes[random.nextInt(sizes.length)];
      DeviceBuffer buffer;
      try {
        buffer =
            random.nextBoolean()
                ? world.device.allocate(bytes)
                : world.tasks.enter("other", 0, () -> world.device.allocate(bytes));
      } catch (OutOfDeviceMemoryException full) {
        return; // nobody steps while somebody waits
      }
      for (Live other : live) {
        assertThat(other.buffer.storage().overlaps(buffer.storage().address, bytes)).isFalse();
      }
      fill(buffer);
    }

    private void fill(DeviceBuffer buffer) {
      byte value = (byte) next++;
      anyStream().fill(buffer, 0, buffer.bytes(), value);
      live.add(new Live(buffer, value));
    }

    private void close() {
      if (!live.isEmpty()) {
        live.remove(random.nextInt(live.size())).buffer.close();
      }
    }

    private void read(Arena arena) {
      if (!live.isEmpty()) {
        Live one = live.get(random.nextInt(live.size()));
        MemorySegment target = arena.allocate(one.buffer.bytes());
        anyStream().copyToHost(target, one.buffer, 0);
        reads.add(new Read(target, one.value));
      }
    }

    private void write() {
      if (!live.isEmpty()) {
        fill(live.remove(random.nextInt(live.size())).buffer);
      }
    }

    private void progress(HostStepper stepper) {
      List<Long> ready = stepper.ready();
      if (!ready.isEmpty()) {
        stepper.complete(ready.get(random.nextInt(ready.size())));
      }
    }
  }
}
