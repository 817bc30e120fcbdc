package io.fairlead.host.pool;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class DevicePoolTest {
  private static final long MIB = 1L << 20;

  private final AtomicLong addresses = new AtomicLong(1L << 48);
  private final StreamCache a = new StreamCache();
  private final StreamCache b = new StreamCache();
  private DevicePool pool = new DevicePool(32 * MIB, addresses);

  @AfterEach
  void close() {
    pool.close();
  }

  private void freeNow(Block block) {
    pool.free(a, block);
    pool.freeRan(block);
  }

  @Test
  void allOfItCanBeHadAndNotAByteMore() {
    List<Block> blocks = new ArrayList<>();
    for (Block next = pool.allocate(a, MIB); next != null; next = pool.allocate(a, MIB)) {
      blocks.add(next);
    }
    assertThat(blocks).hasSize(32);
    assertThat(pool.allocate(b, 1)).isNull();
    assertThat(pool.describe()).contains("33554432 are in use");
  }

  @Test
  void smallSlabsAreGivenUpForALargeRequest() {
    List<Block> blocks = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      blocks.add(pool.allocate(a, 4 * MIB));
    }
    blocks.forEach(this::freeNow);
    Block large = pool.allocate(a, 32 * MIB);
    assertThat(large).isNotNull();
    assertThat(large.memory().byteSize()).isEqualTo(32 * MIB);
  }

  @Test
  void theTightestChunkIsTaken() {
    Block wide = pool.allocate(a, 64 << 10);
    Block wall1 = pool.allocate(a, 256);
    Block tight = pool.allocate(a, 16 << 10);
    Block wall2 = pool.allocate(a, 256);
    long expected = tight.address();
    freeNow(wide);
    freeNow(tight);
    assertThat(pool.allocate(b, 16 << 10).address()).isEqualTo(expected);
    assertThat(List.of(wall1, wall2)).doesNotContainNull();
  }

  /** Else each of the small ones, for as long as it lives, keeps two large pieces apart. */
  @Test
  void smallBlocksGatherAwayFromLargeOnes() {
    long limit = 4 * MIB;
    DevicePool inOneSlab = new DevicePool(limit, addresses);
    Block all = inOneSlab.allocate(a, limit);
    inOneSlab.free(a, all);
    inOneSlab.freeRan(all);
    List<Block> large = new ArrayList<>();
    for (int i = 0; i < 16; i++) {
      assertThat(inOneSlab.allocate(a, 256)).isNotNull();
      large.add(inOneSlab.allocate(a, 128 << 10));
    }
    for (Block each : large) {
      inOneSlab.free(a, each);
      inOneSlab.freeRan(each);
    }
    assertThat(inOneSlab.allocate(a, limit - 16 * 256)).as("in one piece").isNotNull();
    inOneSlab.close();
  }

  @Test
  void neighboursGrowTogether() {
    List<Block> blocks = new ArrayList<>();
    for (int i = 0; i < 16; i++) {
      blocks.add(pool.allocate(a, 64 << 10));
    }
    long first = blocks.get(0).address();
    for (int i : new int[] {3, 1, 0, 2, 7, 5, 6, 4}) {
      freeNow(blocks.get(i));
    }
    assertThat(pool.allocate(b, 8 * (64 << 10)).address()).isEqualTo(first);
  }

  @Test
  void whatAStreamReusedIsNotGivenToOthersWhenItsOldFreeRuns() {
    Block old = pool.allocate(a, 32 * MIB);
    pool.free(a, old);
    Block reused = pool.allocate(a, 20 * MIB);
    assertThat(reused.address()).isEqualTo(old.address());
    assertThat(pool.allocate(b, MIB)).as("the rest waits for the free").isNull();
    pool.freeRan(old);
    assertThat(pool.allocate(b, 12 * MIB)).isNotNull();
    assertThat(pool.allocate(b, 256)).isNull();
  }

  @Test
  void reuseDoesNotClear() {
    Block block = pool.allocate(a, 4096);
    block.memory().fill((byte) 7);
    freeNow(block);
    assertThat(pool.allocate(a, 4096).memory().get(ValueLayout.JAVA_BYTE, 4095))
        .isEqualTo((byte) 7);
  }

  @Test
  void addressesInsideALargeBlockAreFound() {
    Block block = pool.allocate(a, 20 * MIB + 1);
    for (long offset = 0; offset < block.bytes(); offset += 77_777) {
      assertThat(pool.find(block.address() + offset)).isSameAs(block);
    }
    assertThat(pool.find(block.address() + block.bytes())).isNull();
    assertThat(pool.find(block.address() - 1)).isNull();
    assertThat(pool.find(0)).isNull();
    pool.free(a, block);
    assertThat(pool.find(block.address() + 10 * MIB)).isNull();
  }

  @Test
  void addressesOfAnEarlierPoolAreNeverUsedAgain() {
    Block before = pool.allocate(a, MIB);
    pool.close();
    pool = new DevicePool(32 * MIB, addresses);
    Block after = pool.allocate(b, MIB);
    assertThat(after.address()).isGreaterThan(before.address() + before.bytes());
    assertThat(pool.find(before.address())).isNull();
  }

  @Test
  void aBlockIsFreedByOneCallerOnly() {
    Block block = pool.allocate(a, 256);
    assertThat(block.claimFree()).isTrue();
    assertThat(block.claimFree()).isFalse();
  }

  @Test
  void binsAscendWithSize() {
    int before = -1;
    for (long granules = 1;
        granules < 1L << 38;
        granules = Math.max(granules + 1, granules * 9 / 8)) {
      int bin = FreeIndex.bin(granules);
      assertThat(bin).isGreaterThanOrEqualTo(before).isLessThan(320);
      before = bin;
    }
  }
}
