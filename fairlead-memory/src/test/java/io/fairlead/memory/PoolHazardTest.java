package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The same hazards where Fairlead's pool hands memory on, without an operation of the device. */
class PoolHazardTest extends HazardTest {
  @Override
  MemoryPool pool() {
    return MemoryPool.FAIRLEAD;
  }

  @Test
  void h4TheNextOwnerWritesAfterEveryReader() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream slow = world.newStream();
    slow.copyToHost(host, buffer, 0);
    buffer.close();
    DeviceStream hasty = world.newStream();
    DeviceBuffer next = world.device.allocate(BYTES);
    hasty.fill(next, 0, BYTES, (byte) 9);
    adversarially(hasty);

    assertHostIs(7);
    next.close();
    assertEverythingWasFreed();
  }

  @Test
  void h11TheNextOwnerInheritsTheUsesOfTheLast() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream mine = world.device.stream();
    mine.copyToHost(host, buffer, 0);
    buffer.close();
    DeviceBuffer next = world.device.allocate(BYTES);
    assertThat(next.storage().address).as("reused").isEqualTo(buffer.storage().address);
    DeviceStream hasty = world.newStream();
    hasty.fill(next, 0, BYTES, (byte) 9);
    adversarially(hasty);

    assertHostIs(7);
    next.close();
    assertEverythingWasFreed();
  }

  @Override
  Stream<Rule> rules() {
    return Stream.of(
        new Rule("ledger.read.skip", this::h4TheNextOwnerWritesAfterEveryReader),
        new Rule("pool.frontier.skip", this::h4TheNextOwnerWritesAfterEveryReader),
        new Rule("pool.frontier.skip", this::h11TheNextOwnerInheritsTheUsesOfTheLast),
        new Rule("pool.frontier.skip", this::h12MemoryIsInUseUntilItsFreeWasReached));
  }
}
