package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.task.Fork;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
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
