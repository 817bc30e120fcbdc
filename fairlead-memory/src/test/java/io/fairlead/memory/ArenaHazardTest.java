package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceStream;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The same hazards where one piece of memory is cut and grows together again. */
@Timeout(60)
class ArenaHazardTest extends PoolHazardTest {
  @Override
  MemoryPool pool() {
    return MemoryPool.ARENA;
  }

  /** A device of two buffers only, so that others get what is not finished with. */
  private void openNarrow() {
    world.close();
    world =
        TestDevice.stepped(MemoryConfig.defaults().withPool(pool()).withLimit(2 * (long) BYTES));
    stepper = world.stepper();
  }

  /** Here the allocation is that of the range, and what is cut from it later needs none. */
  @Override
  @Test
  void h5UseAfterTheAllocation() {
    DeviceBuffer first = world.device.allocate(BYTES);
    DeviceBuffer second = world.device.allocate(BYTES);
    DeviceStream user = world.newStream();
    user.fill(second, 0, BYTES, (byte) 7);
    user.copyToHost(host, second, 0);
    stepper.completeAll(user.handle());
    assertThat(stepper.pending(user.handle())).as("after the allocation").isNotEmpty();
    adversarially(user);

    assertHostIs(7);
    first.close();
    second.close();
  }

  @Test
  void h11APartHasThePastOfTheWhole() {
    openNarrow();
    DeviceBuffer whole = world.filled(stepper, 2 * BYTES, 7);
    MemorySegment low = arena.allocate(BYTES);
    DeviceStream slow = world.newStream();
    slow.copyToHost(low, whole, 0);
    slow.copyToHost(host, whole, BYTES);
    whole.close();
    world.device.stream().after(slow.mark());
    DeviceStream hasty = world.newStream();
    List<DeviceBuffer> parts = new ArrayList<>();
    for (DeviceStream each : List.of(world.newStream(), hasty)) {
      DeviceBuffer part = world.device.allocate(BYTES);
      each.fill(part, 0, BYTES, (byte) 9);
      parts.add(part);
    }
    assertThat(world.device.memory().inUse()).isEqualTo(2 * BYTES);
    adversarially(hasty);

    assertHostIs(7);
    assertAll(low, 7);
    parts.forEach(DeviceBuffer::close);
    assertEverythingWasFreed();
  }

  @Test
  void h11AWholeHasThePastOfItsParts() {
    openNarrow();
    MemorySegment[] read = {host, arena.allocate(BYTES)};
    List<DeviceBuffer> parts = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      parts.add(world.filled(stepper, BYTES, 7));
    }
    for (int i = 0; i < 2; i++) {
      world.newStream().copyToHost(read[i], parts.get(i), 0);
      parts.get(i).close();
    }
    DeviceStream hasty = world.newStream();
    DeviceBuffer whole = world.device.allocate(2 * BYTES);
    hasty.fill(whole, 0, 2 * BYTES, (byte) 9);
    adversarially(hasty);

    for (MemorySegment each : read) {
      assertAll(each, 7);
    }
    whole.close();
    assertEverythingWasFreed();
  }

  @Test
  void h12TheRangeIsReturnedOnceTheHostHasSeenEveryEnd() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream slow = world.newStream();
    slow.copyToHost(host, buffer, 0);
    buffer.close();
    Completion<Void> trimmed = world.device.trim();
    world.awaitRetired(); // behind the trim
    assertThat(trimmed.isDone()).as("nothing is leaving").isTrue();
    DeviceStream hasty = world.newStream();
    DeviceBuffer next = world.device.allocate(2 * BYTES);
    hasty.fill(next, 0, 2 * BYTES, (byte) 9);
    adversarially(hasty);

    assertHostIs(7);
    next.close();
    assertEverythingWasFreed();
  }

  @Override
  Stream<Rule> rules() {
    return Stream.concat(
        super.rules(),
        Stream.of(
            new Rule("ledger.alloc.skip", this::h5UseAfterTheAllocation),
            new Rule("pool.split.nofrontier", this::h11APartHasThePastOfTheWhole),
            new Rule("pool.merge.nofrontier", this::h11AWholeHasThePastOfItsParts),
            new Rule("pool.frontier.skip", this::h11APartHasThePastOfTheWhole),
            new Rule("pool.frontier.skip", this::h11AWholeHasThePastOfItsParts),
            new Rule("pool.trim.early", this::h12TheRangeIsReturnedOnceTheHostHasSeenEveryEnd)));
  }
}
