package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceGraph;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.GraphBuilder;
import io.fairlead.device.Operand;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskInterruptedException;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.Timeout;

/**
 * The hazards of memory that moves, one test each, on a device that does nothing by itself: each
 * test says how far which copy has come. {@link #everyRuleIsNeeded} takes the rules away one by
 * one, and the test of that hazard must fail.
 */
@Timeout(300)
class SpillHazardTest {
  static final int BYTES = 8192;

  /** Many more than the owner has things to do. */
  private static final int TRIES = 100;

  /** Of three buffers. */
  static final long LIMIT = 3 * BYTES;

  TestDevice world;
  Device device;
  HostStepper stepper;
  Arena arena;
  MemorySegment host;

  @BeforeEach
  void open() {
    open(DeviceConfig.defaults());
  }

  void open(DeviceConfig contexts) {
    open(contexts, 1 << 20);
  }

  private void open(DeviceConfig contexts, long hostBytes) {
    MemoryConfig config =
        MemoryConfig.defaults()
            .withPool(pool())
            .withLimit(LIMIT)
            .withCachedBytesMax(LIMIT)
            .withChunk(4096)
            .withWait(Duration.ofHours(1))
            .withGrace(Duration.ofHours(1))
            .withSpill(SpillConfig.TO_HOST.withHostBytesMax(hostBytes));
    world = TestDevice.stepped(config, contexts);
    device = world.device;
    stepper = world.stepper();
    arena = Arena.ofAuto();
    host = arena.allocate(BYTES);
  }

  MemoryPool pool() {
    return MemoryPool.FAIRLEAD;
  }

  @AfterEach
  void close() {
    stepper.completeAll();
    world.close();
  }

  // --- steps ------------------------------------------------------------------------------------

  /** The device does all that it has, and the spiller learns of it. */
  void settle() {
    for (int i = 0; i < 3; i++) {
      device.spiller().awaitLook();
      Completion<Void> all = device.context().reached(); // so that it is known how far it is
      do {
        stepper.completeAll();
      } while (!all.isDone()); // another thread may be about to signal
    }
    device.spiller().awaitLook();
  }

  /** Its copy is enqueued, and has not run. */
  Completion<Tier> begin(DeviceBuffer buffer) {
    Completion<Tier> spilled = buffer.spill();
    device.spiller().awaitLook();
    return spilled;
  }

  DeviceBuffer filled(int value) {
    return world.filled(stepper, BYTES, value);
  }

  DeviceBuffer spilled(int value) {
    DeviceBuffer buffer = filled(value);
    Completion<Tier> spilled = begin(buffer);
    settle();
    assertThat(spilled.getNow()).isEqualTo(Tier.HOST);
    return buffer;
  }

  /** Whenever {@code hasty} can go on it does; the others move only to let it. */
  void adversarially(DeviceStream hasty) {
    while (true) {
      stepper.completeAll(hasty.handle());
      List<Long> others = stepper.ready();
      if (others.isEmpty()) {
        return;
      }
      stepper.complete(others.getFirst());
    }
  }

  static void assertAll(MemorySegment segment, int value) {
    assertThat(segment.toArray(ValueLayout.JAVA_BYTE)).containsOnly(value);
  }

  void assertContent(DeviceBuffer buffer, int value) {
    Completion<byte[]> bytes = read(buffer);
    stepper.completeAll();
    assertThat(bytes.getNow()).containsOnly(value);
  }

  private static Completion<byte[]> read(DeviceBuffer buffer) {
    // within a chunk each, so that nothing is waited for
    return Completion.all(
            List.of(
                buffer.slice(0, 4096).download(part -> part.toArray(ValueLayout.JAVA_BYTE)),
                buffer.slice(4096, 4096).download(part -> part.toArray(ValueLayout.JAVA_BYTE))))
        .thenApply(
            parts -> {
              byte[] all = new byte[BYTES];
              System.arraycopy(parts.get(0), 0, all, 0, 4096);
              System.arraycopy(parts.get(1), 0, all, 4096, 4096);
              return all;
            });
  }

  void assertNothingIsLeft() {
    settle();
    // a graph ends on the owner's thread, and what it held is freed from there
    for (int i = 0; i < TRIES && device.memory().inUse() > 0; i++) {
      device.context().owner().call(() -> null).await();
      settle();
    }
    assertThat(device.memory().inUse()).isZero();
    assertThat(device.memory().onHost()).isZero();
  }

  /** Runs it where it may wait, beside this thread. */
  private <T> CompletableFuture<T> beside(java.util.concurrent.Callable<T> body) {
    CompletableFuture<T> result = new CompletableFuture<>();
    Thread thread =
        Thread.startVirtualThread(
            () -> {
              try {
                result.complete(world.tasks.enter("beside", 0, body::call));
              } catch (Throwable failure) {
                result.completeExceptionally(failure);
              }
            });
    threads.add(thread);
    return result;
  }

  private final List<Thread> threads = new ArrayList<>();

  /** The device goes on until it is done. */
  private <T> T stepUntil(CompletableFuture<T> result) throws Exception {
    while (!result.isDone()) {
      settle();
      Thread.onSpinWait();
    }
    return result.get();
  }

  private void awaitWaiting() {
    while (!device.budget().hasWaiting()) {
      Thread.onSpinWait();
    }
  }

  // --- there and back
  // -----------------------------------------------------------------------------

  @Test
  void itComesBackByItself() {
    DeviceBuffer buffer = spilled(7);
    assertThat(buffer.tier()).isEqualTo(Tier.HOST);
    assertThat(device.memory().inUse()).isZero();
    assertThat(device.memory().onHost()).isEqualTo(BYTES);

    assertContent(buffer, 7);

    assertThat(buffer.tier()).isEqualTo(Tier.DEVICE);
    assertThat(device.memory().inUse()).isEqualTo(BYTES);
    assertThat(device.memory().spills()).isOne();
    assertThat(device.memory().returns()).isOne();
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void whatIsStillValidBelowLeavesWithoutACopy() {
    DeviceBuffer buffer = spilled(7);
    assertContent(buffer, 7);
    long copies = device.context().stats().copies();
    assertThat(begin(buffer).getNow()).isEqualTo(Tier.HOST);
    assertThat(device.context().stats().copies()).isEqualTo(copies);
    assertContent(buffer, 7);
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void whatWasWrittenSinceIsCopiedAnew() {
    DeviceBuffer buffer = spilled(7);
    assertContent(buffer, 7);
    buffer.fill((byte) 9);
    Completion<Tier> again = begin(buffer);
    assertThat(again.isDone()).isFalse();
    settle();
    assertThat(again.getNow()).isEqualTo(Tier.HOST);
    assertContent(buffer, 9);
    buffer.close();
    assertNothingIsLeft();
  }

  /** What is below has room for one, and the device still reads what was there. */
  private boolean isFullWhileRoomBelowComes(long graceNanos) throws Exception {
    long before = Ladder.graceNanos;
    Ladder.graceNanos = graceNanos;
    try {
      return isFullOnceRoomBelowComes();
    } finally {
      Ladder.graceNanos = before;
    }
  }

  private boolean isFullOnceRoomBelowComes() throws Exception {
    close();
    open(DeviceConfig.defaults(), BYTES);
    DeviceBuffer first = spilled(1);
    DeviceBuffer second = filled(2);
    DeviceBuffer third = filled(3);
    first.slice(0, BYTES / 2).fill((byte) 4); // comes back for that, and is not what is below then
    CompletableFuture<DeviceBuffer> wanted = beside(() -> device.allocate(BYTES));
    awaitWaiting();
    boolean full = false;
    for (int i = 0; i < TRIES && !full; i++) {
      device.spiller().needed(); // who waits is told so a moment after he can be seen to
      device.spiller().awaitLook();
      full = device.spiller().isExhausted();
    }
    DeviceBuffer fourth = stepUntil(wanted);
    assertContent(third, 3);
    List.of(first, second, third, fourth).forEach(DeviceBuffer::close);
    assertNothingIsLeft();
    return full;
  }

  @Test
  void whereRoomBelowComesByItselfItIsNotFull() throws Exception {
    assertThat(isFullWhileRoomBelowComes(Long.MAX_VALUE)).isFalse();
  }

  /** Behind a long kernel, say: others may have to give way. */
  @Test
  void whereThatTakesTooLongItIsFull() throws Exception {
    assertThat(isFullWhileRoomBelowComes(0)).isTrue();
  }

  @Test
  void whoTakesItForFullIsFound() throws Exception {
    try (var _ = Mutant.enable("spill.full.hasty")) {
      assertThat(isFullWhileRoomBelowComes(Long.MAX_VALUE)).isTrue();
    }
  }

  // --- H1, H2: reading for the image what is not, or no longer, there
  // ------------------------------

  @Test
  void h1TheImageComesAfterTheWriter() {
    DeviceBuffer buffer = filled(1);
    DeviceStream writer = world.newStream();
    writer.fill(buffer, 0, BYTES, (byte) 7);
    Completion<Tier> spilled = begin(buffer);
    for (Long lane : stepper.ready()) {
      if (lane != writer.handle()) {
        stepper.completeAll(lane);
      }
    }
    settle();
    assertThat(spilled.getNow()).isEqualTo(Tier.HOST);
    assertContent(buffer, 7);
    buffer.close();
  }

  @Test
  void h2AWriteAfterTheCopyBeganIsNotLost() {
    DeviceBuffer buffer = filled(7);
    Completion<Tier> spilled = begin(buffer);
    world.newStream().fill(buffer, 0, BYTES, (byte) 9);
    settle();
    assertThat(spilled.getNow()).as("it was used meanwhile").isEqualTo(Tier.DEVICE);
    assertContent(buffer, 9);
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void h2AWriteBetweenTwoPiecesIsNotLost() throws Exception {
    close();
    open(DeviceConfig.defaults().withUnfinishedMax(4)); // one lane takes fewer than all pieces
    DeviceBuffer buffer = world.device.allocate(5 * 4096);
    buffer.fill((byte) 7);
    stepper.completeAll();
    Completion<Tier> spilled = buffer.spill();
    // its thread waits for room in the lane, with some of the pieces enqueued
    while (stepper.pending().stream().filter(each -> isCopy(each)).count() < 3) {
      assertThat(spilled.isDone()).isFalse();
    }
    DeviceStream writer = world.newStream();
    writer.fill(buffer, 0, 5 * 4096, (byte) 9);
    while (!spilled.isDone()) {
      stepper.completeAll();
      Thread.onSpinWait();
    }
    assertThat(spilled.getNow()).isEqualTo(Tier.DEVICE);
    Completion<byte[]> last =
        buffer.slice(4 * 4096, 4096).download(part -> part.toArray(ValueLayout.JAVA_BYTE));
    Completion<byte[]> first =
        buffer.slice(0, 4096).download(part -> part.toArray(ValueLayout.JAVA_BYTE));
    while (!last.isDone() || !first.isDone()) {
      stepper.completeAll();
    }
    assertThat(last.getNow()).containsOnly(9);
    assertThat(first.getNow()).containsOnly(9);
    buffer.close();
  }

  private static boolean isCopy(HostStepper.Pending pending) {
    return pending.description().contains("copy");
  }

  // --- H3, H4, H6: the memory that was left
  // ---------------------------------------------------------

  @Test
  void h3WhatItLeavesIsFreedAfterEveryReader() {
    DeviceBuffer buffer = filled(7);
    DeviceStream slow = world.newStream();
    Completion<Tier> spilled = begin(buffer);
    slow.copyToHost(host, buffer, 0);
    world.newStream().copyToHost(arena.allocate(BYTES), buffer, 0);
    stepAllBut(slow);
    device.spiller().awaitLook();
    assertThat(spilled.getNow()).isEqualTo(Tier.HOST);

    DeviceStream hasty = world.newStream();
    List<DeviceBuffer> next = new ArrayList<>();
    for (int i = 0; i < 2; i++) { // within the limit, also with what is left behind
      next.add(device.allocate(BYTES));
      hasty.fill(next.getLast(), 0, BYTES, (byte) 9);
    }
    stepAllBut(slow);
    stepper.completeAll();
    assertAll(host, 7);
    next.forEach(DeviceBuffer::close);
    buffer.close();
    assertNothingIsLeft();
  }

  private void stepAllBut(DeviceStream slow) {
    stepAllBut(slow.handle());
  }

  private void stepAllBut(long slow) {
    boolean moved = true;
    while (moved) {
      moved = false;
      for (Long stream : stepper.ready()) {
        if (stream != slow) {
          stepper.complete(stream);
          moved = true;
        }
      }
    }
  }

  @Test
  void h6ACloseWhileItIsCopiedFreesAfterTheCopy() {
    DeviceBuffer buffer = filled(7);
    Completion<Tier> spilled = begin(buffer);
    buffer.close();
    stepAllBut(stepper.ready().getFirst());
    assertThat(device.memory().pendingFree()).as("the copy still reads it").isEqualTo(BYTES);
    settle();
    assertThat(spilled.isDone()).isTrue();
    assertNothingIsLeft();
  }

  // --- H7, H8: the memory below -----------------------------------------------------------------

  @Test
  void h7ItHasLeftOnlyWhenItsCopyHasArrived() {
    DeviceBuffer buffer = filled(7);
    Completion<Tier> spilled = begin(buffer);
    device.spiller().awaitLook();
    assertThat(buffer.tier()).as("nothing was copied yet").isEqualTo(Tier.DEVICE);
    assertThat(spilled.isDone()).isFalse();
    settle();
    assertThat(buffer.tier()).isEqualTo(Tier.HOST);
    assertContent(buffer, 7);
    buffer.close();
  }

  @Test
  void h8AnImageIsNotReusedBeforeItsCopyUpHasEnded() {
    DeviceBuffer buffer = spilled(7);
    DeviceBuffer other = filled(9);
    DeviceStream user = world.newStream();
    user.copyToHost(host, buffer, 0); // and the copy up before it, which has not run
    buffer.close(); // and with it the image
    Completion<Tier> spilled = begin(other);
    stepAllBut(user);
    device.spiller().awaitLook();
    assertThat(spilled.getNow()).isEqualTo(Tier.HOST);
    stepper.completeAll();
    assertAll(host, 7);
    other.close();
    assertNothingIsLeft();
  }

  @Test
  void h8AnImageIsNotReusedBeforeItsCopyDownHasEnded() {
    DeviceBuffer buffer = filled(7);
    DeviceBuffer other = filled(9);
    Completion<Tier> first = begin(buffer);
    List<Long> slow = stepper.ready();
    buffer.close(); // the image is worth nothing, and is still being written
    Completion<Tier> second = begin(other);
    for (Long stream : stepper.ready()) {
      if (!slow.contains(stream)) {
        stepper.completeAll(stream);
      }
    }
    device.spiller().awaitLook();
    settle(); // the late copy writes where it was told to
    assertThat(first.isDone()).isTrue();
    assertThat(second.getNow()).isEqualTo(Tier.HOST);
    assertContent(other, 9);
    other.close();
    assertNothingIsLeft();
  }

  @Test
  void h8AnImageIsMadeAnewOnlyWhileNobodyReadsIt() {
    DeviceBuffer buffer = filled(7);
    HostTier tier =
        new HostTier(device.context().openHostBlocks(1 << 20), 1 << 20, 4096, MemoryFailures.NONE);
    HostImage image = Objects.requireNonNull(tier.begin(BYTES));
    assertThat(image.mayBeMadeAnew()).isTrue();
    DeviceStream user = world.newStream();
    user.fill(buffer, 0, BYTES, (byte) 8);
    image.usedUntil(user.mark());
    assertThat(image.mayBeMadeAnew()).as("the device may still read it").isFalse();
    Completion<Void> ended = user.reached();
    stepper.completeAll();
    assertThat(ended.isDone()).isTrue();
    assertThat(image.mayBeMadeAnew()).isTrue();
    image.retain();
    assertThat(image.mayBeMadeAnew()).as("somebody else may").isFalse();
    image.release();
    assertThat(image.mayBeMadeAnew()).isTrue();
    image.release();
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void h8WhatWasWrittenSinceIsSpilledInTheSamePlace() {
    DeviceBuffer buffer = spilled(7);
    for (int value = 8; value < 12; value++) {
      device.stream().fill(buffer, 0, BYTES, (byte) value);
      settle();
      Completion<Tier> again = begin(buffer);
      settle();
      assertThat(again.getNow()).isEqualTo(Tier.HOST);
      assertThat(device.memory().onHost()).isEqualTo(BYTES);
      assertContent(buffer, value);
    }
    buffer.close();
    assertNothingIsLeft();
  }

  // --- H9: back, and used elsewhere
  // ---------------------------------------------------------------

  @Test
  void h9AnotherStreamUsesItAfterItsCopyUp() {
    DeviceBuffer buffer = spilled(7);
    filled(5).close(); // what it left has another content now
    settle();
    DeviceStream first = world.newStream();
    DeviceStream second = world.newStream();
    first.copyToHost(arena.allocate(BYTES), buffer, 0);
    second.copyToHost(host, buffer, 0);
    adversarially(second);
    assertAll(host, 7);
    buffer.close();
  }

  @Test
  void h9ItsNewMemoryIsUsedAfterTheLastOwner() {
    DeviceBuffer buffer = spilled(7);
    DeviceBuffer last = filled(5);
    DeviceStream slow = world.newStream();
    slow.copyToHost(host, last, 0);
    last.close();
    DeviceStream hasty = world.newStream();
    hasty.copyToHost(arena.allocate(BYTES), buffer, 0);
    adversarially(hasty);
    assertAll(host, 5);
    buffer.close();
    assertNothingIsLeft();
  }

  // --- H12, H13: in other hands -----------------------------------------------------------------

  @Test
  void h12TheMemoryCountsUntilItsLastReaderHasEnded() {
    DeviceBuffer buffer = filled(7);
    Completion<Tier> spilled = begin(buffer);
    DeviceStream slow = world.newStream();
    slow.copyToHost(host, buffer, 0);
    stepAllBut(slow);
    device.spiller().awaitLook();
    assertThat(spilled.getNow()).isEqualTo(Tier.HOST);
    assertThat(device.memory().pendingFree()).isEqualTo(BYTES);
    settle();
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void h13WhatIsLentStays() {
    DeviceBuffer buffer = filled(7);
    DeviceStream foreign = world.newStream();
    try (Lease lease = buffer.lease(foreign, Access.READ)) {
      Completion<Tier> spilled = begin(buffer);
      settle();
      assertThat(spilled.getNow()).isEqualTo(Tier.DEVICE);
      assertThat(lease.address()).isEqualTo(buffer.storage().address);
    }
    buffer.close();
  }

  @Test
  void h13WhatIsLentWhileItIsCopiedStays() {
    DeviceBuffer buffer = filled(7);
    Completion<Tier> spilled = begin(buffer);
    try (Lease lease = buffer.lease(world.newStream(), Access.READ)) {
      settle();
      assertThat(spilled.getNow()).isEqualTo(Tier.DEVICE);
      assertThat(lease.address()).isEqualTo(buffer.storage().address);
    }
    assertThat(begin(buffer).getNow()).as("the copy is still good").isEqualTo(Tier.HOST);
    buffer.close();
  }

  @Test
  void h13ALeaseBringsItBack() {
    DeviceBuffer buffer = spilled(7);
    try (Lease lease = buffer.lease(world.newStream())) {
      assertThat(lease.address()).isEqualTo(buffer.storage().address);
      assertThat(buffer.tier()).isEqualTo(Tier.DEVICE);
    }
    assertContent(buffer, 7);
    buffer.close();
  }

  @Test
  void h13WhatIsHeldStays() {
    DeviceBuffer buffer = spilled(7);
    Hold hold = buffer.slice(0, 1).hold();
    assertThat(buffer.tier()).isEqualTo(Tier.DEVICE);
    Completion<Tier> spilled = begin(buffer);
    settle();
    assertThat(spilled.getNow()).isEqualTo(Tier.DEVICE);
    hold.close();
    hold.close();
    begin(buffer);
    settle();
    assertThat(buffer.tier()).isEqualTo(Tier.HOST);
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void h13WhatAGraphHoldsStays() {
    DeviceBuffer buffer = spilled(7);
    try (GraphBuilder builder = device.buildGraph("g")) {
      builder.fill(buffer, 0, BYTES, (byte) 9); // brings it back
      try (DeviceGraph graph = builder.build()) {
        Completion<Tier> spilled = begin(buffer);
        settle();
        assertThat(spilled.getNow()).isEqualTo(Tier.DEVICE);
        graph.launch();
        assertContent(buffer, 9);
      }
    }
    settle();
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void h13ACaptureBringsBackOnAnotherStream() throws Exception {
    DeviceBuffer buffer = spilled(7);
    CompletableFuture<DeviceGraph> captured =
        beside(() -> device.capture("g", stream -> stream.fill(buffer, 0, BYTES / 2, (byte) 9)));
    try (DeviceGraph graph = stepUntil(captured)) {
      assertThat(buffer.tier()).isEqualTo(Tier.DEVICE);
      assertContent(buffer, 7);
      graph.launch();
      Completion<byte[]> bytes = read(buffer);
      stepper.completeAll();
      assertThat(bytes.getNow()[0]).isEqualTo((byte) 9);
      assertThat(bytes.getNow()[BYTES - 1]).isEqualTo((byte) 7);
    }
    settle();
    buffer.close();
    assertNothingIsLeft();
  }

  // --- H14: two things at once ------------------------------------------------------------------

  @Test
  void h14TwoSpillsAreOne() {
    DeviceBuffer buffer = filled(7);
    Completion<Tier> first = begin(buffer);
    Completion<Tier> second = begin(buffer);
    settle();
    assertThat(first.getNow()).isEqualTo(Tier.HOST);
    assertThat(second.getNow()).isEqualTo(Tier.HOST);
    assertThat(device.memory().spills()).isOne();
    assertThat(device.memory().onHost()).isEqualTo(BYTES);
    assertContent(buffer, 7);
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void h14WhatIsBeingEnqueuedKeepsItsMemory() {
    DeviceBuffer buffer = filled(7);
    Completion<Tier> spilled = begin(buffer);
    DeviceStream reader = world.newStream();
    reader.enqueue(
        "read",
        new Operand[] {buffer},
        new Access[] {Access.READ},
        (handle, addresses) -> {
          stepper.completeAll(); // the copy has ended, and the use is pending
          device.spiller().awaitLook();
          assertThat(buffer.tier()).isEqualTo(Tier.DEVICE);
          world.driver.copyToHost(handle, host, addresses[0]);
        });
    settle();
    assertThat(spilled.getNow()).isEqualTo(Tier.DEVICE);
    assertAll(host, 7);
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void h14ACloseBelowFreesTheImage() {
    DeviceBuffer buffer = spilled(7);
    buffer.close();
    assertThat(device.memory().onHost()).isZero();
    assertNothingIsLeft();
    assertThatThrownBy(() -> buffer.fill((byte) 1))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("was closed");
  }

  @Test
  void h14ACloseOnTheWayBackFreesBoth() throws Exception {
    close();
    open(DeviceConfig.defaults().withUnfinishedMax(4));
    DeviceBuffer buffer = world.device.allocate(5 * 4096);
    buffer.fill((byte) 7);
    stepper.completeAll();
    Completion<Tier> spilled = buffer.spill();
    while (!spilled.isDone()) {
      stepper.completeAll();
    }
    assertThat(spilled.getNow()).isEqualTo(Tier.HOST);
    settle(); // its memory has come back, too: nobody steps while the use waits for it
    DeviceStream user = world.newStream();
    CompletableFuture<Long> use = beside(() -> user.fill(buffer, 0, 1, (byte) 9));
    while (stepper.pending(user.handle()).size() < 3) { // it waits for room, half way up
      assertThat(use).isNotDone();
    }
    buffer.close();
    assertThatThrownBy(() -> stepUntil(use)).hasMessageContaining("was closed");
    user.close();
    assertNothingIsLeft();
  }

  @Test
  void whatIsUsedAgainAndAgainIsCopiedFirmly() throws Exception {
    DeviceBuffer buffer = filled(7);
    Completion<Tier> soft = begin(buffer);
    world.newStream().fill(buffer, 0, BYTES, (byte) 8);
    settle();
    assertThat(soft.getNow()).isEqualTo(Tier.DEVICE);
    Completion<Tier> firm = begin(buffer);
    CompletableFuture<Long> use = beside(() -> device.stream().fill(buffer, 0, BYTES, (byte) 9));
    while (!device.returns().isTaken() && !use.isDone()) {
      Thread.onSpinWait();
    }
    stepUntil(use);
    settle();
    // it left, and came back for the one who waited
    assertThat(firm.isDone()).isTrue();
    assertThat(device.memory().spills()).isOne();
    assertThat(device.memory().returns()).isOne();
    assertContent(buffer, 9);
    buffer.close();
    assertNothingIsLeft();
  }

  // --- room
  // ---------------------------------------------------------------------------------------

  @Test
  void whoWaitsForMemoryGetsIt() throws Exception {
    List<DeviceBuffer> buffers = new ArrayList<>(List.of(filled(1), filled(2), filled(3)));
    CompletableFuture<DeviceBuffer> fourth = beside(() -> device.allocate(BYTES));
    buffers.add(stepUntil(fourth));
    assertThat(device.memory().spills()).as("no more than was asked for").isOne();
    assertThat(buffers.getFirst().tier()).as("the one used longest ago").isEqualTo(Tier.HOST);
    buffers.get(3).fill((byte) 4);
    for (int i = 0; i < 4; i++) {
      DeviceBuffer buffer = buffers.get(i);
      Completion<byte[]> bytes = stepUntil(beside(() -> read(buffer)));
      settle();
      assertThat(bytes.getNow()).containsOnly(i + 1);
    }
    buffers.forEach(DeviceBuffer::close);
    assertNothingIsLeft();
  }

  @Test
  void whatIsUnderWayCountsWithWhatItTakesOfTheLimit() throws Exception {
    int odd = BYTES - 100;
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 1; i <= 3; i++) {
      buffers.add(world.filled(stepper, odd, i));
    }
    CompletableFuture<DeviceBuffer> fourth = beside(() -> device.allocate(odd));
    awaitWaiting();
    while (device.memory().onHost() == 0) {
      Thread.onSpinWait();
    }
    device.spiller().needed(); // it looks once more, while that is under way
    device.spiller().awaitLook();
    long begun = device.memory().onHost();
    buffers.add(stepUntil(fourth));
    assertThat(begun).as("no more than was asked for").isEqualTo(odd);
    buffers.forEach(DeviceBuffer::close);
    assertNothingIsLeft();
  }

  @Test
  void whatMattersLessLeavesFirst() throws Exception {
    List<DeviceBuffer> buffers = new ArrayList<>(List.of(filled(1), filled(2), filled(3)));
    buffers.get(0).priority(2);
    buffers.get(1).priority(1);
    buffers.get(2).priority(2);
    buffers.add(stepUntil(beside(() -> device.allocate(BYTES))));
    assertThat(buffers.get(1).tier()).isEqualTo(Tier.HOST);
    buffers.forEach(DeviceBuffer::close);
    assertNothingIsLeft();
  }

  /** What it cannot move now may be moved later, and nobody says when. */
  @Test
  void itLooksAgainAndAgainForThoseWhoWait() throws Exception {
    List<DeviceBuffer> buffers = new ArrayList<>(List.of(filled(1), filled(2), filled(3)));
    List<Hold> holds = buffers.stream().map(DeviceBuffer::hold).toList();
    long before = device.spiller().looks();
    CompletableFuture<DeviceBuffer> fourth = beside(() -> device.allocate(BYTES));
    try {
      while (device.spiller().looks() == before) { // the first is at his wish
        Thread.onSpinWait();
      }
      long enough = before + 6;
      while (device.spiller().looks() < enough) {
        assertThat(device.spiller().isAsleep()).as("nobody will look again").isFalse();
      }
    } catch (AssertionError found) {
      threads.forEach(Thread::interrupt);
      throw found;
    } finally {
      holds.forEach(Hold::close);
    }
    buffers.add(stepUntil(fourth));
    buffers.forEach(DeviceBuffer::close);
    assertNothingIsLeft();
  }

  @Test
  void anOperationKeepsWhatItHasWhileItWaitsForMore() throws Exception {
    DeviceBuffer away = spilled(1);
    DeviceBuffer there = filled(2);
    DeviceBuffer one = filled(3);
    DeviceBuffer other = filled(4);
    Hold first = one.hold();
    Hold second = other.hold();
    device.spiller().awaitLook();
    long before = device.spiller().looks();
    CompletableFuture<DeviceBuffer> copy =
        beside(
            () -> {
              away.copyFrom(there);
              return away;
            });
    try {
      awaitWaiting();
      while (device.spiller().looks() == before) { // the first is at his wish
        Thread.onSpinWait();
      }
      settle();
      assertThat(there.tier()).as("it is needed for the same operation").isEqualTo(Tier.DEVICE);
    } catch (AssertionError found) {
      threads.forEach(Thread::interrupt);
      throw found;
    }
    first.close();
    second.close();
    stepUntil(copy);
    for (DeviceBuffer buffer : List.of(away, there)) {
      Completion<byte[]> bytes = stepUntil(beside(() -> read(buffer)));
      settle();
      assertThat(bytes.getNow()).containsOnly(2);
    }
    List.of(away, there, one, other).forEach(DeviceBuffer::close);
    assertNothingIsLeft();
  }

  @Test
  void operandsThatNeverFitTogetherAreRefused() throws Exception {
    DeviceBuffer big = stepUntil(beside(() -> device.allocate(2 * BYTES)));
    DeviceBuffer other = stepUntil(beside(() -> device.allocate(2 * BYTES)));
    assertThatThrownBy(() -> stepUntil(beside(() -> copied(big, other))))
        .hasRootCauseInstanceOf(OutOfDeviceMemoryException.class)
        .hasMessageContaining("the operands of one operation can never fit");
    // and nothing of it is left
    stepUntil(beside(() -> filledNow(big)));
    stepUntil(beside(() -> filledNow(other)));
    big.close();
    other.close();
    assertNothingIsLeft();
  }

  private static DeviceBuffer copied(DeviceBuffer target, DeviceBuffer source) {
    target.copyFrom(source);
    return target;
  }

  private static DeviceBuffer filledNow(DeviceBuffer buffer) {
    buffer.fill((byte) 3);
    return buffer;
  }

  // --- stopping
  // -----------------------------------------------------------------------------------

  @Test
  void whoIsInterruptedWhileHeWaitsForMemoryLeavesNothing() throws Exception {
    DeviceBuffer away = spilled(1);
    List<DeviceBuffer> others = List.of(filled(2), filled(3), filled(4));
    List<Hold> holds = others.stream().map(DeviceBuffer::hold).toList();
    CompletableFuture<DeviceBuffer> use = beside(() -> filledNow(away));
    awaitWaiting();
    CompletableFuture<DeviceBuffer> behind = beside(() -> filledNow(away));
    while (!device.returns().isWaitedFor()) {
      Thread.onSpinWait();
    }
    threads.forEach(Thread::interrupt); // one waits for memory, one for his turn
    assertThatThrownBy(use::get).hasCauseInstanceOf(TaskInterruptedException.class);
    assertThatThrownBy(behind::get).hasCauseInstanceOf(TaskInterruptedException.class);
    assertThat(device.budget().hasWaiting()).isFalse();
    holds.forEach(Hold::close);
    stepUntil(beside(() -> filledNow(away)));
    away.close();
    others.forEach(DeviceBuffer::close);
    assertNothingIsLeft();
  }

  @Test
  void whoIsInterruptedAsTheLadderTellsHimPassesNoTurnOn() throws Exception {
    DeviceBuffer away = spilled(1);
    List<DeviceBuffer> others = List.of(filled(2), filled(3), filled(4));
    List<Hold> holds = others.stream().map(DeviceBuffer::hold).toList();
    CompletableFuture<DeviceBuffer> use = beside(() -> filledNow(away));
    awaitWaiting();
    CompletableFuture<DeviceBuffer> behind = beside(() -> filledNow(away));
    while (!device.returns().isWaitedFor()) {
      Thread.onSpinWait();
    }
    Returns.Place place = device.returns().waiting().getFirst();
    assertThat(device.returns().takeOut(place)).isTrue(); // the ladder, before it tells him
    threads.getLast().interrupt();
    assertThatThrownBy(behind::get).hasCauseInstanceOf(TaskInterruptedException.class);
    assertThat(device.returns().isTaken()).isTrue(); // by the other one, as before
    holds.forEach(Hold::close);
    stepUntil(use);
    assertThat(device.returns().isTaken()).isFalse();
    away.close();
    others.forEach(DeviceBuffer::close);
    assertNothingIsLeft();
  }

  @Test
  void whoIsInterruptedHalfWayUpLeavesItBelow() throws Exception {
    assumeTrue(
        pool() == MemoryPool.FAIRLEAD,
        "the driver's pool frees on the stream, and waits for room there");
    close();
    open(DeviceConfig.defaults().withUnfinishedMax(4));
    DeviceBuffer buffer = world.device.allocate(5 * 4096);
    buffer.fill((byte) 7);
    stepper.completeAll();
    Completion<Tier> spilled = buffer.spill();
    while (!spilled.isDone()) {
      stepper.completeAll();
    }
    assertThat(spilled.getNow()).isEqualTo(Tier.HOST);
    DeviceStream user = world.newStream();
    CompletableFuture<Long> use = beside(() -> user.fill(buffer, 0, 1, (byte) 9));
    while (stepper.pending(user.handle()).size() < 3) { // it waits for room
      assertThat(use).isNotDone();
    }
    threads.getFirst().interrupt();
    assertThatThrownBy(use::get).hasCauseInstanceOf(TaskInterruptedException.class);
    assertThat(buffer.tier()).isEqualTo(Tier.HOST);

    // what was copied half is not used before that has ended, and others bring it back
    CompletableFuture<byte[]> read =
        beside(
            () -> buffer.slice(4096, 4096).download(s -> s.toArray(ValueLayout.JAVA_BYTE)).await());
    assertThat(stepUntil(read)).containsOnly(7);
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void whoIsInterruptedWhileItIsCopiedFirmlyLeavesNothing() throws Exception {
    DeviceBuffer buffer = filled(7);
    begin(buffer);
    buffer.fill((byte) 8);
    settle();
    Completion<Tier> firm = begin(buffer);
    CompletableFuture<DeviceBuffer> use = beside(() -> filledNow(buffer));
    while (!device.returns().isTaken()) {
      Thread.onSpinWait();
    }
    threads.getFirst().interrupt();
    assertThatThrownBy(use::get).hasCauseInstanceOf(TaskInterruptedException.class);
    settle();
    assertThat(firm.getNow()).isEqualTo(Tier.HOST);
    assertContent(buffer, 8);
    buffer.close();
    assertNothingIsLeft();
  }

  @Test
  void aDeviceThatClosesTellsWhoWaits() throws Exception {
    DeviceBuffer away = spilled(1);
    List<DeviceBuffer> others = List.of(filled(2), filled(3), filled(4));
    others.forEach(DeviceBuffer::hold);
    CompletableFuture<DeviceBuffer> use = beside(() -> filledNow(away));
    awaitWaiting();
    CompletableFuture<DeviceBuffer> behind = beside(() -> filledNow(away));
    while (!device.returns().isWaitedFor()) {
      Thread.onSpinWait();
    }
    device.close();
    assertThatThrownBy(use::get).hasMessageContaining("was closed");
    assertThatThrownBy(behind::get).hasMessageContaining("was closed");
  }

  @Test
  void aContextThatIsLostLosesWhatIsBelow() {
    DeviceBuffer below = spilled(1);
    DeviceBuffer copied = filled(2);
    Completion<Tier> spilled = begin(copied);
    DeviceStream broken = world.newStream();
    broken.fill(copied, 0, BYTES, (byte) 3);
    stepper.failNext(broken.handle(), 700);
    stepper.completeAll();
    assertThat(device.context().isLost()).isTrue();
    device.spiller().awaitLook();
    device.spiller().awaitLook();
    assertThat(spilled.isDone()).isTrue();
    assertThat(device.memory().onHost()).isZero();
    assertThatThrownBy(() -> below.fill((byte) 4))
        .isInstanceOf(io.fairlead.device.DeviceLostException.class);
    below.close();
    copied.close();
    assertThat(device.memory().inUse()).isZero();
  }

  // --- each rule is needed
  // ------------------------------------------------------------------------

  interface Hazard {
    void run() throws Exception;
  }

  record Rule(String mutant, Hazard hazard) {}

  @TestFactory
  Stream<DynamicTest> everyRuleIsNeeded() {
    return rules().map(rule -> DynamicTest.dynamicTest(rule.mutant, () -> assertFound(rule)));
  }

  Stream<Rule> rules() {
    return Stream.of(
        new Rule("ledger.write.skip", this::h1TheImageComesAfterTheWriter),
        new Rule("spill.generation.skip", this::h2AWriteAfterTheCopyBeganIsNotLost),
        new Rule("spill.generation.skip", this::h2AWriteBetweenTwoPiecesIsNotLost),
        new Rule("spill.generation.skip", this::whatWasWrittenSinceIsCopiedAnew),
        new Rule("spill.frontier.skip", this::h3WhatItLeavesIsFreedAfterEveryReader),
        new Rule("ledger.read.skip", this::h6ACloseWhileItIsCopiedFreesAfterTheCopy),
        new Rule("spill.commit.early", this::h7ItHasLeftOnlyWhenItsCopyHasArrived),
        new Rule("spill.image.early", this::h8AnImageIsNotReusedBeforeItsCopyUpHasEnded),
        new Rule("spill.return.skip", this::h9AnotherStreamUsesItAfterItsCopyUp),
        new Rule("pool.frontier.skip", this::h9ItsNewMemoryIsUsedAfterTheLastOwner),
        new Rule("spill.frontier.skip", this::h12TheMemoryCountsUntilItsLastReaderHasEnded),
        new Rule("spill.lease.skip", this::h13WhatIsLentStays),
        new Rule("spill.lease.skip", this::h13WhatIsLentWhileItIsCopiedStays),
        new Rule("spill.hold.skip", this::h13WhatIsHeldStays),
        new Rule("spill.hold.skip", this::h13WhatAGraphHoldsStays),
        new Rule("spill.twice", this::h14TwoSpillsAreOne),
        new Rule("spill.pending.skip", this::h14WhatIsBeingEnqueuedKeepsItsMemory),
        new Rule("spill.firm.skip", this::whatIsUsedAgainAndAgainIsCopiedFirmly),
        new Rule("spill.rounding.skip", this::whatIsUnderWayCountsWithWhatItTakesOfTheLimit),
        new Rule("spill.pause.late", this::itLooksAgainAndAgainForThoseWhoWait),
        new Rule("spill.keep.skip", this::anOperationKeepsWhatItHasWhileItWaitsForMore));
  }

  private void assertFound(Rule rule) {
    close();
    open(); // a device of its own for each
    try (var _ = Mutant.enable(rule.mutant)) {
      assertThatThrownBy(rule.hazard::run).as(rule.mutant).isInstanceOf(AssertionError.class);
    }
  }
}
