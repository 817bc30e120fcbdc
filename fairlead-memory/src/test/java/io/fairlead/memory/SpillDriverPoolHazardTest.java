package io.fairlead.memory;

import java.util.stream.Stream;

/** The same hazards where each residence is the driver's, at both ends. */
class SpillDriverPoolHazardTest extends SpillHazardTest {
  @Override
  MemoryPool pool() {
    return MemoryPool.DRIVER;
  }

  @Override
  Stream<Rule> rules() {
    return Stream.of(
        new Rule("spill.frontier.skip", this::h3WhatItLeavesIsFreedAfterEveryReader),
        new Rule("spill.return.skip", this::h9AnotherStreamUsesItAfterItsCopyUp),
        new Rule("spill.pending.skip", this::h14WhatIsBeingEnqueuedKeepsItsMemory));
  }
}
