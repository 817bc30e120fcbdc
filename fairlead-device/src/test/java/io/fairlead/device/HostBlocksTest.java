package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.task.Fork;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class HostBlocksTest {

  @Test
  void aBlockIsExactlyAsLargeAsAskedFor() {
    try (World world = new World(FakeDriver.strict());
        HostBlock block = world.context.hostBlocks().take(5000)) {
      assertThat(block.segment().byteSize()).isEqualTo(5000);
      assertThat(block.bytes()).isEqualTo(5000);
      assertThat(world.context.hostBlocks().bytesHeld()).isEqualTo(8192);
      assertThat(world.driver.calls()).contains("hostAlloc 8192");
    }
  }

  @Test
  void aBlockThatWasGivenBackIsLentAgain() {
    try (World world = new World(FakeDriver.strict())) {
      HostBlocks blocks = world.context.hostBlocks();
      HostBlock first = blocks.take(5000);
      MemorySegment memory = first.segment();
      first.close();
      first.close();
      assertThatThrownBy(first::segment).isInstanceOf(IllegalStateException.class);
      HostBlock second = blocks.take(8000);
      assertThat(second.segment().address()).isEqualTo(memory.address());
      first.close(); // must not give back what is another's by now
      HostBlock third = blocks.take(8000);
      assertThat(third.segment().address()).isNotEqualTo(memory.address());
      second.close();
      third.close();
      assertThat(world.driver.count("hostAlloc")).isEqualTo(2);
    }
  }

  @Test
  void aBlockIsLentAgainOnlyAfterItsMark() {
    try (World world = new World(FakeDriver.stepped())) {
      HostBlocks blocks = world.context.hostBlocks();
      DeviceStream stream = world.context.stream();
      HostBlock first = blocks.take(100);
      long address = first.segment().address();
      work(stream, "copy");
      var reached = stream.reached();
      first.closeAfter(stream.mark());
      HostBlock second = blocks.take(100);
      assertThat(second.segment().address()).isNotEqualTo(address);
      world.driver.endOne(stream);
      reached.await();
      HostBlock third = blocks.take(100);
      assertThat(third.segment().address()).isEqualTo(address);
      second.close();
      third.close();
    }
  }

  @Test
  void aBlockIsUnusedOnceAllItsUsesHaveEnded() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream one = world.context.stream();
      HostBlock block = world.context.hostBlocks().take(100);
      assertThat(block.isUnused()).isTrue();
      try (DeviceStream other = world.context.openStream(0)) {
        work(one, "copy");
        work(other, "copy");
        block.usedUntil(one.mark());
        block.usedUntil(other.mark());
        var first = one.reached();
        var second = other.reached();
        world.driver.endOne(one);
        first.await();
        assertThat(block.isUnused()).as("the other stream's use goes on").isFalse();
        world.driver.endOne(other);
        second.await();
        assertThat(block.isUnused()).isTrue();
      }
      block.close();
      assertThat(block.isUnused()).as("it is somebody else's by now").isFalse();
    }
  }

  @Test
  void aFullPoolWaitsForTheDeviceAndForOthers() throws Exception {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(8192);
    try (World world = new World(FakeDriver.stepped(), config);
        TaskScope<Void> scope = world.tasks.scope()) {
      HostBlocks blocks = world.context.hostBlocks();
      DeviceStream stream = world.context.stream();
      HostBlock held = blocks.take(4096);
      HostBlock used = blocks.take(4096);
      work(stream, "copy");
      used.closeAfter(stream.mark());
      AtomicInteger taken = new AtomicInteger();
      for (int i = 0; i < 2; i++) {
        scope.fork(
            () -> {
              HostBlock block = blocks.take(4096);
              taken.incrementAndGet();
              World.until("both have one", () -> taken.get() == 2);
              block.close();
              return null;
            });
      }
      world.driver.endOne(stream);
      World.until("one has the pending block", () -> taken.get() == 1);
      held.close();
      scope.join();
      assertThat(blocks.bytesHeld()).isEqualTo(8192);
    }
  }

  @Test
  void aTryDoesNotWait() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(8192);
    try (World world = new World(FakeDriver.stepped(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      assertThat(blocks.tryTake(8193)).as("it never fits").isNull();
      assertThat(world.context.openHostBlocks(0).tryTake(1)).isNull();
      HostBlock first = blocks.tryTake(4096);
      HostBlock second = blocks.tryTake(4096);
      assertThat(first).isNotNull();
      assertThat(second).isNotNull();
      assertThat(blocks.tryTake(1)).isNull();
      first.close();
      first = blocks.tryTake(1);
      assertThat(first).isNotNull();
      first.close();
      second.close();
    }
  }

  @Test
  void whoTriesInVainFindsTheEndOfWorkThatNobodyWaitsFor() {
    findsTheEndOfWork();
  }

  @Test
  void aTryThatAsksNobodyIsFound() {
    try (var _ = Mutant.enable("staging.ask.skip")) {
      assertThatThrownBy(this::findsTheEndOfWork).isInstanceOf(AssertionError.class);
    }
  }

  private void findsTheEndOfWork() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(4096);
    try (World world = new World(FakeDriver.stepped(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      DeviceStream stream = world.context.stream();
      HostBlock used = blocks.take(4096);
      work(stream, "copy");
      used.closeAfter(stream.mark());
      assertThat(blocks.tryTake(4096)).isNull();
      world.driver.endOne(stream);
      HostBlock again = blocks.tryTake(4096);
      assertThat(again).isNotNull();
      again.close();
    }
  }

  @Test
  void anotherPoolHasALimitOfItsOwn() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(4096);
    try (World world = new World(FakeDriver.strict(), config)) {
      HostBlocks other = world.context.openHostBlocks(8192);
      try (HostBlock mine = world.context.hostBlocks().take(4096);
          HostBlock others = other.take(8192)) {
        assertThat(mine.segment().address()).isNotEqualTo(others.segment().address());
        assertThat(world.context.stats().hostBytes()).isEqualTo(12288);
      }
      world.context.close();
      assertThat(world.driver.count("hostFree")).isEqualTo(2);
    }
  }

  @Test
  void aSlowStreamDoesNotKeepTheBlocksOfOthers() throws Exception {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(8192);
    try (World world = new World(FakeDriver.stepped(), config);
        DeviceStream slow = world.context.openStream(0);
        DeviceStream fast = world.context.openStream(0);
        TaskScope<Void> scope = world.tasks.scope()) {
      HostBlocks blocks = world.context.hostBlocks();
      HostBlock first = blocks.take(4096);
      HostBlock second = blocks.take(4096);
      work(slow, "copy");
      work(fast, "copy");
      first.closeAfter(slow.mark());
      second.closeAfter(fast.mark());
      var reached = fast.reached();
      world.driver.endOne(fast);
      reached.await();
      HostBlock third = blocks.take(4096); // found, although an older one is still in use

      work(fast, "copy");
      third.closeAfter(fast.mark());
      AtomicInteger taken = new AtomicInteger();
      scope.fork(
          () -> {
            blocks.take(4096).close();
            taken.incrementAndGet();
            return null;
          });
      World.until("it waits", () -> world.driver.count("signal") == 3);
      world.driver.endOne(fast);
      World.until("it was woken", () -> taken.get() == 1);
      world.driver.endOne(slow);
      scope.join();
    }
  }

  @Test
  void freeBlocksOfOtherSizesMakeRoom() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(8192);
    try (World world = new World(FakeDriver.strict(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      HostBlock small = blocks.take(4096);
      blocks.take(4096).close();
      small.close();
      blocks.take(8192).close();
      assertThat(blocks.bytesHeld()).isEqualTo(8192);
      World.until("the small ones are unpinned", () -> world.driver.pinnedBlocks() == 1);
    }
  }

  @Test
  void oneThatIsFreeIsHalvedForSmallerOnes() {
    try (World world = new World(FakeDriver.strict())) {
      HostBlocks blocks = world.context.hostBlocks();
      blocks.take(64 << 10).close();
      List<HostBlock> taken = new ArrayList<>();
      for (int i = 0; i < 16; i++) {
        taken.add(blocks.take(4096));
      }
      assertThat(world.driver.count("hostAlloc")).isEqualTo(1);
      assertDisjoint(taken);
      taken.forEach(HostBlock::close);
      blocks.take(64 << 10).close();
      assertThat(world.driver.count("hostAlloc")).as("halves are put together").isEqualTo(1);
    }
  }

  @Test
  void halvesThatAreNotBothFreeAreNotPutTogether() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(16 << 10);
    try (World world = new World(FakeDriver.strict(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      blocks.take(16 << 10).close();
      HostBlock first = blocks.take(4096);
      HostBlock second = blocks.take(4096);
      HostBlock third = blocks.take(8192);
      second.close();
      third.close();
      assertThat(blocks.tryTake(16 << 10)).isNull();
      HostBlock half = blocks.tryTake(8192);
      assertThat(half).isNotNull();
      half.close();
      first.close();
      HostBlock whole = blocks.tryTake(16 << 10);
      assertThat(whole).isNotNull();
      whole.close();
      assertThat(world.driver.count("hostAlloc")).isEqualTo(1);
    }
  }

  @Test
  void theMoreThereIsTheMoreIsPinnedAtOnce() {
    try (World world = new World(FakeDriver.strict())) {
      HostBlocks blocks = world.context.hostBlocks();
      List<HostBlock> taken = new ArrayList<>();
      for (int i = 0; i < 1000; i++) {
        taken.add(blocks.take(4096));
      }
      assertDisjoint(taken);
      assertThat(world.driver.count("hostAlloc")).isLessThan(25);
      assertThat(blocks.bytesHeld()).isBetween(1000L * 4096, 1500L * 4096);
      taken.forEach(HostBlock::close);
    }
  }

  @Test
  void smallOnesDoNotKeepLargeOnesInPiecesWhileThereIsRoom() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(3 << 20);
    try (World world = new World(FakeDriver.strict(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      blocks.take(1 << 20).close();
      HostBlock small = blocks.take(4096);
      HostBlock again = blocks.take(1 << 20);
      HostBlock other = blocks.take(1 << 20);
      assertThat(world.driver.count("hostAlloc")).isEqualTo(3);
      again.close();
      List<HostBlock> rest = new ArrayList<>();
      for (HostBlock block = blocks.tryTake(4096); block != null; block = blocks.tryTake(4096)) {
        rest.add(block);
      }
      assertThat(rest).as("where there is none, they may").hasSizeGreaterThan(256 + 200);
      rest.forEach(HostBlock::close);
      small.close();
      other.close();
    }
  }

  @Test
  void aRegionThatIsRefusedIsNoReasonNotToPinTheBlock() {
    try (World world = new World(FakeDriver.strict())) {
      HostBlocks blocks = world.context.hostBlocks();
      List<HostBlock> taken = new ArrayList<>();
      for (int i = 0; i < 8; i++) {
        taken.add(blocks.take(4096));
      }
      while (blocks.bytesHeld() > 4096L * taken.size()) {
        taken.add(blocks.take(4096)); // until the next one has to be pinned
      }
      world.driver.refuseNext(DriverCall.HOST_ALLOC, DriverException.OUT_OF_MEMORY, "no");
      taken.add(blocks.take(4096));
      assertThat(world.driver.calls()).contains("hostAlloc 16384");
      assertThat(blocks.bytesHeld()).isEqualTo(4096L * taken.size());
      taken.forEach(HostBlock::close);
    }
  }

  @Test
  void whateverIsTakenAndGivenBackNobodyHasWhatAnotherHas() {
    for (int seed = 0; seed < 200; seed++) {
      takesAndGivesBack(seed);
    }
  }

  /** The last of it ends on the device, and is of the large ones' region. */
  @Test
  void whoWaitsForASmallOneFindsOneThatWasPutTogetherOfALargeOnes() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(512 << 10);
    try (World world = new World(FakeDriver.stepped(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      DeviceStream stream = world.context.stream();
      HostBlock large = blocks.take(256 << 10);
      blocks.take(256 << 10).close();
      HostBlock first = blocks.take(64 << 10);
      HostBlock second = blocks.take(64 << 10);
      HostBlock third = blocks.take(128 << 10);
      assertThat(blocks.bytesHeld()).isEqualTo(512 << 10);
      work(stream, "copy");
      first.closeAfter(stream.mark());
      second.close();
      var reached = stream.reached();
      world.driver.endOne(stream);
      reached.await();
      HostBlock whole = blocks.tryTake(128 << 10);
      assertThat(whole).isNotNull();
      whole.close();
      third.close();
      large.close();
    }
  }

  @Test
  void aContextThatIsClosedIsNotKeptByItsBlocks() {
    WeakReference<DeviceContext> closed = closedAfterUse();
    World.until(
        "it is collected",
        () -> {
          System.gc();
          return closed.refersTo(null);
        });
  }

  private static WeakReference<DeviceContext> closedAfterUse() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(1 << 20);
    try (World world = new World(FakeDriver.strict(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      blocks.take(64 << 10).close();
      HostBlock open = blocks.take(4096);
      blocks.take(8192).close();
      world.context.close();
      open.close();
      return new WeakReference<>(world.context);
    }
  }

  @Test
  void aSizeThatIsNoneIsRefused() {
    try (World world = new World(FakeDriver.strict())) {
      assertThatThrownBy(() -> world.context.hostBlocks().tryTake(-1))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("give 0 or more");
    }
  }

  private static void takesAndGivesBack(long seed) {
    long limit = 1 << 20;
    SplittableRandom random = new SplittableRandom(seed);
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(limit);
    try (World world = new World(FakeDriver.strict(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      List<HostBlock> taken = new ArrayList<>();
      for (int step = 0; step < 300; step++) {
        HostBlock block =
            random.nextInt(5) < 3 ? blocks.tryTake(1L << random.nextInt(10, 20)) : null;
        if (block != null) {
          taken.add(block);
        } else if (!taken.isEmpty()) {
          taken.remove(random.nextInt(taken.size())).close();
        }
        assertThat(blocks.bytesHeld()).as("seed %d", seed).isLessThanOrEqualTo(limit);
      }
      assertDisjoint(taken);
      taken.forEach(HostBlock::close);
      HostBlock all = blocks.tryTake(limit);
      assertThat(all).as("all that was given back, seed %d", seed).isNotNull();
      all.close();
    }
  }

  private static void assertDisjoint(List<HostBlock> blocks) {
    List<HostBlock> order = new ArrayList<>(blocks);
    order.sort(Comparator.comparingLong(block -> block.segment().address()));
    for (int i = 1; i < order.size(); i++) {
      MemorySegment before = order.get(i - 1).segment();
      assertThat(order.get(i).segment().address())
          .isGreaterThanOrEqualTo(before.address() + before.byteSize());
    }
  }

  @Test
  void whatCanNeverFitIsRefusedAtOnce() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(10_000);
    try (World world = new World(FakeDriver.strict(), config)) {
      assertThatThrownBy(() -> world.context.hostBlocks().take(10_001))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("limit of 10000");
      assertThatThrownBy(() -> world.context.hostBlocks().take(9_000))
          .hasMessageContaining("takes 16384 of the pool's limit");
    }
  }

  @Test
  void waitingForABlockCanBeCancelled() throws Exception {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(4096);
    try (World world = new World(FakeDriver.strict(), config);
        TaskScope<Void> scope = world.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT));
        HostBlock held = world.context.hostBlocks().take(100)) {
      AtomicInteger began = new AtomicInteger();
      Fork<Void> fork =
          scope.fork(
              () -> {
                began.incrementAndGet();
                world.context.hostBlocks().take(100);
                return null;
              });
      World.until("it waits", () -> began.get() == 1);
      fork.task().cancel(null);
      scope.join();
      assertThat(fork.failure()).isInstanceOf(TaskCancelledException.class);
      assertThat(held.bytes()).isEqualTo(100);
    }
  }

  @Test
  void aDroppedBlockIsReportedAndComesBack() {
    try (World world = new World(FakeDriver.strict())) {
      HostBlocks blocks = world.context.hostBlocks();
      long address = dropped(blocks);
      World.until(
          "the block is found",
          () -> {
            System.gc();
            return world.context.stats().leaks() == 1;
          });
      List<HostBlock> taken = new ArrayList<>();
      World.until(
          "it is lent again",
          () -> {
            taken.add(blocks.take(100));
            return taken.getLast().segment().address() == address;
          });
      taken.forEach(HostBlock::close);
    }
  }

  private static long dropped(HostBlocks blocks) {
    return blocks.take(100).segment().address();
  }

  @Test
  void aBlockThatIsOpenAtTheEndIsReported() {
    World world = new World(FakeDriver.strict());
    HostBlock open = world.context.hostBlocks().take(100);
    world.context.close();
    assertThat(world.context.stats().leaks()).isEqualTo(1);
    assertThat(world.driver.pinnedBlocks()).isZero();
    open.close();
    world.close();
  }
}
