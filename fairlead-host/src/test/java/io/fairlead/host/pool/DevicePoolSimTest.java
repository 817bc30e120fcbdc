package io.fairlead.host.pool;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;

/** Random lives of blocks against what must always hold; a failure names its seed. */
class DevicePoolSimTest {
  private static final long LIMIT = 4L << 20;
  private static final int STEPS = 4_000;

  private record Freed(int stream, Block block) {}

  private final long seed = Long.getLong("fairlead.seed", System.nanoTime());
  private final Random random = new Random(seed);
  private final AtomicLong addresses = new AtomicLong(1L << 48);
  private final DevicePool pool = new DevicePool(LIMIT, addresses);
  private final List<StreamCache> streams =
      List.of(new StreamCache(), new StreamCache(), new StreamCache());
  private final List<Block> live = new ArrayList<>();
  private final List<Freed> freed = new ArrayList<>();

  @RepeatedTest(300)
  @EnabledIfSystemProperty(
      named = "fairlead.long",
      matches = "true",
      disabledReason = "the test below with many more seeds; ./verify --long does")
  void atLength() {
    blocksNeverOverlapAndNothingIsLost();
  }

  @RepeatedTest(10)
  void blocksNeverOverlapAndNothingIsLost() {
    System.out.println("pool: -Dfairlead.seed=" + seed);
    for (int step = 0; step < STEPS; step++) {
      switch (random.nextInt(5)) {
        case 0, 1, 2 -> allocate();
        case 3 -> free();
        default -> run();
      }
      if (step % 100 == 0) {
        check();
      }
    }
    while (!live.isEmpty()) {
      free();
    }
    while (!freed.isEmpty()) {
      run();
    }
    assertThat(pool.freeBytes()).as("seed %d", seed).isEqualTo(LIMIT);
    assertThat(pool.allocate(streams.get(0), LIMIT)).as("all in one piece again").isNotNull();
    pool.close();
  }

  private void allocate() {
    long bytes = 1L + random.nextInt(1 << (4 + random.nextInt(16)));
    Block block = pool.allocate(streams.get(random.nextInt(3)), bytes);
    if (block != null) {
      assertThat(block.memory().byteSize()).isEqualTo(bytes);
      assertThat(block.address() % 256).isZero();
      live.add(block);
    }
  }

  /** The call: the address is unknown from here on. */
  private void free() {
    if (!live.isEmpty()) {
      Block block = live.remove(random.nextInt(live.size()));
      int stream = random.nextInt(3);
      if (random.nextInt(8) == 0) {
        pool.freeRan(block); // the stream was faster than the caller
        pool.free(streams.get(stream), block);
      } else {
        pool.free(streams.get(stream), block);
        freed.add(new Freed(stream, block));
      }
    }
  }

  /** The stream reaches some free. */
  private void run() {
    if (!freed.isEmpty()) {
      pool.freeRan(freed.remove(random.nextInt(freed.size())).block());
    }
  }

  private void check() {
    List<Block> sorted = new ArrayList<>(live);
    sorted.sort(java.util.Comparator.comparingLong(Block::address));
    long used = 0;
    for (int i = 0; i < sorted.size(); i++) {
      Block block = sorted.get(i);
      used += (block.bytes() + 255) / 256 * 256;
      long last = block.address() + block.bytes() - 1;
      assertThat(pool.find(block.address())).isSameAs(block);
      assertThat(pool.find(last)).isSameAs(block);
      if (i > 0) {
        Block before = sorted.get(i - 1);
        assertThat(before.address() + before.bytes())
            .as("seed %d", seed)
            .isLessThanOrEqualTo(block.address());
      }
    }
    assertThat(pool.freeBytes()).as("seed %d", seed).isLessThanOrEqualTo(LIMIT - used);
  }
}
