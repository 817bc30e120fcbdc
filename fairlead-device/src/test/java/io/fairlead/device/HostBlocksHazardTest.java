package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.TaskScope;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.Timeout;

/**
 * Pinned memory under the rules of device memory: nobody has a block, nor is it unpinned, before
 * every read and write of it has ended (H8, H12).
 */
@Timeout(60)
class HostBlocksHazardTest {
  private static final int BYTES = 4096;
  private static final DeviceConfig TWO_BLOCKS =
      DeviceConfig.defaults().withHostBytesMax(2 * BYTES);

  private static long address(HostBlock block) {
    return block.segment().address();
  }

  /** Ends the stream's oldest operation, which is that one, and has that seen. */
  private static void end(World world, Mark oldest) {
    Completion<Void> reached = oldest.stream().reached(oldest);
    world.driver.endOne(oldest.stream());
    reached.await();
  }

  @Test
  void h8ABlockIsLentAgainOnceEveryReadAndWriteHasEnded() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream reader = world.context.openStream(0);
        DeviceStream writer = world.context.openStream(0)) {
      HostBlocks blocks = world.context.hostBlocks();
      HostBlock block = blocks.take(BYTES);
      long address = address(block);
      Mark written = new Mark(writer, work(writer, "write"));
      Mark read = new Mark(reader, work(reader, "read"));
      block.usedUntil(written);
      block.usedUntil(read);
      block.close();
      end(world, read);
      try (HostBlock other = blocks.take(BYTES)) {
        assertThat(address(other)).as("the write goes on").isNotEqualTo(address);
      }
      end(world, written);
      World.until(
          "it is lent again",
          () -> {
            // the third may have been made here; they are lent in any order
            try (HostBlock one = blocks.take(BYTES);
                HostBlock another = blocks.take(BYTES);
                HostBlock third = blocks.take(BYTES)) {
              return List.of(address(one), address(another), address(third)).contains(address);
            }
          });
    }
  }

  @Test
  void h8OfOneStreamTheLatestUseCountsInWhicheverOrderTheyAreTold() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream stream = world.context.openStream(0)) {
      HostBlocks blocks = world.context.hostBlocks();
      HostBlock block = blocks.take(BYTES);
      long address = address(block);
      Mark first = new Mark(stream, work(stream, "first"));
      Completion<Void> firstEnd = stream.reached(); // so that its end is seen before the second's
      Mark second = new Mark(stream, work(stream, "second"));
      block.usedUntil(second);
      block.closeAfter(first);
      world.driver.endOne(stream);
      firstEnd.await();
      try (HostBlock other = blocks.take(BYTES)) {
        assertThat(address(other)).isNotEqualTo(address);
      }
      end(world, second);
    }
  }

  @Test
  void h12ABlockThatIsInUseIsNotUnpinnedForOneOfAnotherSize() {
    try (World world = new World(FakeDriver.stepped(), TWO_BLOCKS);
        DeviceStream stream = world.context.openStream(0);
        TaskScope<Void> scope = world.tasks.scope()) {
      HostBlocks blocks = world.context.hostBlocks();
      HostBlock used = blocks.take(BYTES);
      used.closeAfter(new Mark(stream, work(stream, "copy")));
      blocks.take(BYTES).close(); // makes no room that is enough
      Fork<Void> large =
          scope.fork(
              () -> {
                blocks.take(2 * BYTES).close();
                return null;
              });
      World.until("it waits", () -> world.driver.count("signal") > 0);
      assertThat(world.driver.pinnedBlocks()).isPositive();
      assertThat(large.state()).isEqualTo(Fork.State.RUNNING);
      world.driver.endOne(stream);
      scope.join();
      World.until("the small ones are unpinned", () -> world.driver.pinnedBlocks() == 1);
    }
  }

  /** Else the pool of a sound device would have one block less for ever, and then none. */
  @Test
  void whatALostDeviceHasUsedComesBackToASoundOne() throws Exception {
    try (World losing = new World(FakeDriver.stepped());
        World world = new World(FakeDriver.stepped(), TWO_BLOCKS);
        DeviceStream lost = losing.context.openStream(0);
        DeviceStream sound = world.context.openStream(0);
        TaskScope<Long> scope = world.tasks.scope()) {
      HostBlocks blocks = world.context.hostBlocks();
      HostBlock one = blocks.take(BYTES);
      HostBlock both = blocks.take(BYTES);
      List<Long> used = List.of(address(one), address(both));
      one.closeAfter(new Mark(lost, work(lost, "read")));
      both.usedUntil(new Mark(lost, work(lost, "read")));
      both.closeAfter(new Mark(sound, work(sound, "write")));
      int before = lost.core().waiting(); // for the second one's use
      Fork<Long> waits =
          scope.fork(
              () -> {
                try (HostBlock block = blocks.take(BYTES)) {
                  return address(block);
                }
              });
      World.until("it waits", () -> lost.core().waiting() > before);
      losing.driver.fail("on purpose");
      World.until("it is lost", losing.context::isLost);
      World.until("it has the block", () -> waits.state() != Fork.State.RUNNING);
      assertThat(scope.join()).containsExactly(used.getFirst());

      try (HostBlock again = blocks.take(BYTES)) {
        assertThat(address(again)).as("the other one is in use").isEqualTo(used.getFirst());
        Completion<Void> written = sound.reached();
        world.driver.endOne(sound);
        written.await();
        try (HostBlock other = blocks.take(BYTES)) {
          assertThat(address(other)).isEqualTo(used.getLast());
        }
      }
    }
  }

  @TestFactory
  Stream<DynamicTest> everyRuleIsNeeded() {
    return Stream.<Runnable>of(
            this::h8ABlockIsLentAgainOnceEveryReadAndWriteHasEnded,
            this::h8OfOneStreamTheLatestUseCountsInWhicheverOrderTheyAreTold)
        .map(
            hazard ->
                DynamicTest.dynamicTest(
                    "hostblocks.recycle.early",
                    () -> {
                      try (var _ = Mutant.enable("hostblocks.recycle.early")) {
                        assertThatThrownBy(hazard::run).isInstanceOf(AssertionError.class);
                      }
                    }));
  }
}
