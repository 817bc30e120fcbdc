package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.HostBlocks;
import io.fairlead.device.Mark;
import io.fairlead.device.Operand;
import io.fairlead.fault.Mutant;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/**
 * The hazards of stream-ordered memory, one test each, on a device that runs operations in the
 * order that hurts most: the later stream goes as far as it can before the earlier one begins (rows
 * 003.1 to 003.3). {@link #everyRuleIsNeeded} takes the rules away one by one, and the test of that
 * hazard must fail.
 */
class HazardTest {
  static final int BYTES = 1024;

  TestDevice world;
  HostStepper stepper;
  Arena arena;
  MemorySegment host;

  @BeforeEach
  void open() {
    world = TestDevice.stepped(MemoryConfig.defaults().withPool(pool()));
    stepper = world.stepper();
    arena = Arena.ofAuto();
    host = arena.allocate(BYTES);
  }

  MemoryPool pool() {
    return MemoryPool.DRIVER;
  }

  @AfterEach
  void close() {
    stepper.completeAll();
    world.close();
  }

  /** Whenever {@code hasty} can go on it does; the others move only to let it, a step at a time. */
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

  void assertHostIs(int value) {
    assertAll(host, value);
  }

  static void assertAll(MemorySegment segment, int value) {
    byte[] bytes = segment.toArray(ValueLayout.JAVA_BYTE);
    assertThat(bytes).containsOnly(value);
  }

  // --- H1, H2: reading what another stream has not written yet
  // ------------------------------------

  @Test
  void h1ReadAfterWrite() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    DeviceStream writer = world.newStream();
    DeviceStream reader = world.newStream();

    writer.fill(buffer, 0, BYTES, (byte) 7);
    reader.copyToHost(host, buffer, 0);
    adversarially(reader);

    assertHostIs(7);
    buffer.close();
  }

  @Test
  void h2ReadAfterTheSecondOfTwoWriters() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    DeviceStream first = world.newStream();
    DeviceStream second = world.newStream();
    DeviceStream reader = world.newStream();

    first.fill(buffer, 0, BYTES, (byte) 5);
    second.fill(buffer, 0, BYTES, (byte) 7);
    reader.copyToHost(host, buffer, 0);
    stepper.completeAll(reader.handle());
    adversarially(second);

    assertHostIs(7);
    buffer.close();
  }

  // --- H3, H4: the memory of a buffer that is still in use
  // ----------------------------------------

  @Test
  void h3FreeAfterEveryReader() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream slow = world.newStream();
    DeviceStream fast = world.newStream();
    slow.copyToHost(host, buffer, 0);
    fast.copyToHost(arena.allocate(BYTES), buffer, 0);

    buffer.close();
    adversarially(fast);

    assertHostIs(7);
    assertEverythingWasFreed();
  }

  @Test
  void h4FreeAfterTheWriter() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    DeviceStream writer = world.newStream();
    DeviceStream reader = world.newStream();
    writer.fill(buffer, 0, BYTES, (byte) 7);
    reader.copyToHost(host, buffer, 0);
    buffer.close();
    adversarially(reader);

    DeviceBuffer next = world.device.allocate(BYTES);
    assertHostIs(7);
    next.close();
    stepper.completeAll();
    assertEverythingWasFreed();
  }

  @Test
  void h4WriteAfterEveryReader() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream reader = world.newStream();
    DeviceStream writer = world.newStream();

    reader.copyToHost(host, buffer, 0);
    writer.fill(buffer, 0, BYTES, (byte) 9);
    adversarially(writer);

    assertHostIs(7);
    buffer.close();
  }

  @Test
  void h4WriteAfterMoreReadersThanFitInline() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    MemorySegment[] targets = new MemorySegment[6];
    for (int i = 0; i < targets.length; i++) {
      targets[i] = arena.allocate(BYTES);
      world.newStream().copyToHost(targets[i], buffer, 0);
    }
    DeviceStream writer = world.newStream();
    writer.fill(buffer, 0, BYTES, (byte) 9);
    adversarially(writer);

    for (MemorySegment target : targets) {
      assertAll(target, 7);
    }
    buffer.close();
  }

  @Test
  void writeAfterWrite() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    DeviceStream first = world.newStream();
    DeviceStream second = world.newStream();

    first.fill(buffer, 0, BYTES, (byte) 5);
    second.fill(buffer, 0, BYTES, (byte) 7);
    adversarially(second);

    host.copyFrom(read(buffer));
    assertHostIs(7);
    buffer.close();
  }

  private MemorySegment read(DeviceBuffer buffer) {
    Completion<byte[]> bytes = buffer.download(segment -> segment.toArray(ValueLayout.JAVA_BYTE));
    stepper.completeAll();
    return MemorySegment.ofArray(bytes.getNow());
  }

  // --- H5: using memory before it is there
  // --------------------------------------------------------

  @Test
  void h5UseAfterTheAllocation() {
    DeviceBuffer before = world.filled(stepper, BYTES, 1);
    DeviceStream old = world.newStream();
    old.copyToHost(host, before, 0);
    before.close(); // the free is enqueued, and has not run

    DeviceBuffer buffer = world.device.allocate(BYTES);
    DeviceStream user = world.newStream();
    user.fill(buffer, 0, BYTES, (byte) 7);
    stepper.completeAll(user.handle());

    assertThat(stepper.pending(user.handle()))
        .as("the use waits for the allocation, which is on another stream")
        .isNotEmpty();
    stepper.completeAll();
    assertAll(read(buffer), 7);
    buffer.close();
  }

  // --- H6, H7, H8: copies and the host
  // ------------------------------------------------------------

  @Test
  void h6FreeAfterTheCopyOut() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream copier = world.newStream();
    copier.copyToHost(host, buffer, 0);
    DeviceStream last = world.newStream();
    last.copyToHost(arena.allocate(BYTES), buffer, 0);
    buffer.close();
    adversarially(last);

    assertHostIs(7);
  }

  @Test
  void h7TheHostReadsOnlyWhatHasArrived() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    Completion<byte[]> bytes = buffer.download(segment -> segment.toArray(ValueLayout.JAVA_BYTE));

    assertThat(bytes.isDone()).as("nothing was copied yet").isFalse();
    stepper.completeAll();
    assertThat(bytes.getNow()).containsOnly(7);
    buffer.close();
  }

  @Test
  void h8StagingIsReusedOnlyAfterItsCopy() {
    DeviceBuffer first = world.filled(stepper, BYTES, 1);
    DeviceBuffer second = world.filled(stepper, BYTES, 1);
    first.upload(bytes(5));
    second.upload(bytes(6));
    stepper.completeAll();

    assertAll(read(first), 5);
    assertAll(read(second), 6);
    first.close();
    second.close();
  }

  @Test
  void anUploadedArrayMayChangeAtOnce() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    byte[] source = bytes(5);
    buffer.upload(source);
    source[0] = 99;
    stepper.completeAll();

    assertAll(read(buffer), 5);
    buffer.close();
  }

  private static byte[] bytes(int value) {
    byte[] bytes = new byte[BYTES];
    Arrays.fill(bytes, (byte) value);
    return bytes;
  }

  // --- H11: one ledger for one memory
  // -------------------------------------------------------------

  @Test
  void h11AViewSharesTheLedgerOfItsBuffer() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    DeviceBuffer view = buffer.slice(0, BYTES).slice(0, BYTES);
    DeviceStream writer = world.newStream();
    DeviceStream reader = world.newStream();

    writer.fill(view, 0, BYTES, (byte) 7);
    reader.copyToHost(host, buffer, 0);
    adversarially(reader);

    assertHostIs(7);
    view.close();
    buffer.close();
  }

  // --- H12: memory counts until the device has let it go
  // ------------------------------------------

  @Test
  void h12MemoryIsInUseUntilItsFreeWasReached() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream reader = world.newStream();
    reader.copyToHost(host, buffer, 0);
    buffer.close();

    assertThat(world.device.memory().inUse()).isEqualTo(BYTES);
    assertThat(world.device.memory().pendingFree()).isEqualTo(BYTES);
    assertEverythingWasFreed();
  }

  void assertEverythingWasFreed() {
    Completion<Void> all = world.device.context().reached();
    stepper.completeAll();
    assertThat(all.isDone()).isTrue();
    assertThat(world.device.memory().inUse()).isZero();
  }

  // --- H13: memory in foreign hands
  // ---------------------------------------------------------------

  @Test
  void h13ALeaseKeepsTheMemoryAndItsEndIsAUse() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream foreign = world.newStream();
    Lease lease = buffer.lease(foreign, Access.READ);
    long address = lease.address();
    buffer.close();
    stepper.completeAll();
    assertThat(world.device.memory().pendingFree()).as("a lease is open").isZero();

    foreign.enqueue(
        "foreign read",
        new Operand[0],
        new Access[0],
        (handle, none) -> world.driver.copyToHost(handle, host, address));
    lease.close();
    lease.close();
    assertThatThrownBy(lease::address).isInstanceOf(IllegalStateException.class);

    adversarially(world.newStream());
    assertHostIs(7);
    assertEverythingWasFreed();
  }

  @Test
  void h13AWriteComesAfterWhatALeaseDid() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream foreign = world.newStream();
    try (Lease lease = buffer.lease(foreign, Access.READ)) {
      foreign.checkpoint(); // an edge to the beginning of the lease would be made from here
      foreign.enqueue(
          "foreign read",
          new Operand[0],
          new Access[0],
          (handle, none) -> world.driver.copyToHost(handle, host, lease.address()));
    }
    DeviceStream writer = world.newStream();
    writer.fill(buffer, 0, BYTES, (byte) 9);
    adversarially(writer);

    assertHostIs(7);
    buffer.close();
  }

  @Test
  void h13AWriteComesAfterWhatWasEnqueuedBehindOurBack() {
    for (boolean signalled : new boolean[] {false, true}) {
      DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
      DeviceStream foreign = world.newStream();
      try (Lease lease = buffer.lease(foreign, Access.READ)) {
        if (signalled) {
          Completion<Void> begun = foreign.reached();
          stepper.completeAll();
          assertThat(begun.isDone()).isTrue();
        } else {
          foreign.checkpoint();
        }
        behindOurBack(() -> world.driver.copyToHost(foreign.handle(), host, lease.address()));
      }
      DeviceStream writer = world.newStream();
      writer.fill(buffer, 0, BYTES, (byte) 9);
      adversarially(writer);

      assertHostIs(7);
      buffer.close();
    }
  }

  /** As a library does that was given the handle. */
  private void behindOurBack(Runnable call) {
    long before = world.driver.current();
    world.driver.makeCurrent(world.device.context().nativeContext());
    try {
      call.run();
    } finally {
      world.driver.makeCurrent(before);
    }
  }

  @Test
  void h13TheNextOwnerComesAfterForeignWorkOnAStreamThatWasClosedFirst() {
    for (boolean signalled : new boolean[] {false, true}) {
      DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
      DeviceStream foreign = world.device.context().openStream(0);
      Lease lease = buffer.lease(foreign, Access.READ);
      foreignReadBehind(foreign, lease, signalled);
      foreign.close();
      lease.close();
      lease.close();
      assertTheNextOwnerComesAfterTheRead(buffer);
    }
  }

  @Test
  void h13AWriteComesAfterForeignWorkOnAStreamThatIsCaptured() {
    for (boolean signalled : new boolean[] {false, true}) {
      DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
      DeviceStream foreign = world.newStream();
      Lease lease = buffer.lease(foreign, Access.READ);
      foreignReadBehind(foreign, lease, signalled);
      foreign
          .capture(
              "meanwhile",
              () ->
                  assertThatThrownBy(lease::close)
                      .isInstanceOf(IllegalStateException.class)
                      .hasMessageContaining("is being captured: close it before"))
          .close();
      DeviceStream writer = world.newStream();
      writer.fill(buffer, 0, BYTES, (byte) 9);
      adversarially(writer);

      assertHostIs(7);
      buffer.close();
    }
  }

  private void foreignReadBehind(DeviceStream foreign, Lease lease, boolean signalled) {
    if (signalled) {
      Completion<Void> begun = foreign.reached();
      stepper.completeAll();
      assertThat(begun.isDone()).isTrue();
    } else {
      foreign.checkpoint();
    }
    behindOurBack(() -> world.driver.copyToHost(foreign.handle(), host, lease.address()));
  }

  private void assertTheNextOwnerComesAfterTheRead(DeviceBuffer buffer) {
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
  void h3AReaderThatIsNoLongerThereLeavesNoWindowOpen() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceBuffer target = world.filled(stepper, BYTES, 1);
    long[] handle = new long[1];
    behindOurBack(() -> handle[0] = world.driver.streamCreate(world.driver.current(), 0, null));
    DeviceStream gone = world.device.context().adoptStream(handle[0]);
    gone.copyToHost(host, buffer, 0);
    stepper.completeAll();
    behindOurBack(() -> world.driver.streamDestroy(gone.handle()));
    for (int i = 0; i < 4; i++) {
      // an operand before and one behind: each is recorded, whatever is found out about readers
      world.newStream().copyOnDevice(target, 0, buffer, 0, BYTES);
    }
    DeviceStream writer = world.newStream();
    writer.fill(target, 0, BYTES, (byte) 3);
    stepper.completeAll();
    target.close();
    // its maker destroyed the stream before it was closed here: nobody can come after it
    assertThatThrownBy(buffer::close).isInstanceOf(DeviceException.class);
    gone.close();
  }

  @Test
  void h13NobodyElseUsesWhatIsLeased() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    DeviceStream foreign = world.newStream();
    DeviceStream other = world.newStream();
    try (Lease lease = buffer.lease(foreign)) {
      assertThat(lease.bytes()).isEqualTo(BYTES);
      assertThatThrownBy(() -> other.fill(buffer, 0, BYTES, (byte) 9))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("leased to foreign code on stream " + foreign.id());
      foreign.fill(buffer, 0, BYTES, (byte) 8);
    }
    other.copyToHost(host, buffer, 0);
    adversarially(other);
    assertHostIs(8);
    buffer.close();
  }

  @Test
  void aBlockWhoseCopyWasGivenUpIsNotLentBeforeTheCopyHasEnded() {
    HostBlocks blocks = world.device.context().hostBlocks();
    DeviceBuffer buffer = world.filled(stepper, BYTES, 7);
    HostBlock down = blocks.take(4096);
    HostBlock up = blocks.take(4096);
    List<Long> used = List.of(down.segment().address(), up.segment().address());
    assertThat(buffer.downloadTo(down).cancel()).isTrue();
    assertThat(buffer.uploadFrom(up, BYTES).cancel()).isTrue();
    down.close();
    up.close();
    try (HostBlock one = blocks.take(4096);
        HostBlock other = blocks.take(4096)) {
      assertThat(used).doesNotContain(one.segment().address(), other.segment().address());
    }
    buffer.close();
  }

  @Test
  void aBlockThatTwoStreamsUseWaitsForBoth() {
    HostBlocks blocks = world.device.context().hostBlocks();
    HostBlock block = blocks.take(4096);
    long address = block.segment().address();
    for (DeviceStream stream : List.of(world.newStream(), world.newStream())) {
      DeviceBuffer buffer = world.device.allocate(BYTES);
      block.usedUntil(
          new Mark(stream, stream.copyToHost(block.segment().asSlice(0, BYTES), buffer, 0)));
      buffer.close();
    }
    block.close();
    HostBlock other = blocks.take(4096);
    assertThat(other.segment().address()).isNotEqualTo(address);
    stepper.completeAll();
    while (!isLentNow(blocks, address)) {
      Thread.onSpinWait(); // another thread may be about to hear of the second one
    }
    other.close();
  }

  /** Others of its size may have been made meanwhile; they are lent in any order. */
  private static boolean isLentNow(HostBlocks blocks, long address) {
    try (HostBlock one = blocks.take(4096);
        HostBlock another = blocks.take(4096);
        HostBlock third = blocks.take(4096)) {
      return Stream.of(one, another, third).anyMatch(each -> each.segment().address() == address);
    }
  }

  @Test
  void aBlockWhoseStreamTheDriverHasForgottenComesBackAfterAllOtherWork() {
    HostBlocks blocks = world.device.context().hostBlocks();
    HostBlock block = blocks.take(4096);
    long address = block.segment().address();
    long[] handle = new long[1];
    behindOurBack(() -> handle[0] = world.driver.streamCreate(world.driver.current(), 0, null));
    DeviceStream gone = world.device.context().adoptStream(handle[0]);
    block.usedUntil(gone.mark());
    DeviceStream other = world.newStream();
    DeviceBuffer buffer = world.device.allocate(BYTES);
    other.fill(buffer, 0, BYTES, (byte) 1);
    behindOurBack(() -> world.driver.streamDestroy(gone.handle()));
    block.close(); // an exception would lose it
    HostBlock meanwhile = blocks.take(4096);
    assertThat(meanwhile.segment().address()).isNotEqualTo(address);
    gone.close();
    buffer.close();
    stepper.completeAll();
    meanwhile.close();
  }

  // --- H16: order, not waiting
  // --------------------------------------------------------------------

  @Test
  void h16ClosingAndUsingNeverWaitsForTheDevice() {
    for (int i = 0; i < 40; i++) {
      DeviceBuffer buffer = world.device.allocate(BYTES);
      world.newStream().fill(buffer, 0, BYTES, (byte) i);
      world.newStream().copyToHost(host, buffer, 0);
      buffer.close(); // nothing has run: it would hang here
    }
    assertThat(stepper.pending()).hasSizeGreaterThan(100);
    assertEverythingWasFreed();
  }

  // --- each rule is needed
  // ------------------------------------------------------------------------

  record Rule(String mutant, Runnable hazard) {}

  @TestFactory
  Stream<DynamicTest> everyRuleIsNeeded() {
    return rules().map(rule -> DynamicTest.dynamicTest(rule.mutant, () -> assertFound(rule)));
  }

  Stream<Rule> rules() {
    return Stream.of(
        new Rule("ledger.write.skip", this::h1ReadAfterWrite),
        new Rule("ledger.write.skip", this::writeAfterWrite),
        new Rule("ledger.read.skip", this::h3FreeAfterEveryReader),
        new Rule("ledger.read.skip", this::h4WriteAfterEveryReader),
        new Rule("ledger.free.skip", this::h3FreeAfterEveryReader),
        new Rule("ledger.free.skip", this::h6FreeAfterTheCopyOut),
        new Rule("ledger.alloc.skip", this::h5UseAfterTheAllocation),
        new Rule("ledger.slice.own", this::h11AViewSharesTheLedgerOfItsBuffer),
        new Rule("ledger.lease.skip", this::h13AWriteComesAfterWhatALeaseDid),
        new Rule("ledger.lease.begin", this::h13AWriteComesAfterWhatWasEnqueuedBehindOurBack),
        new Rule(
            "device.foreignend.skip",
            this::h13TheNextOwnerComesAfterForeignWorkOnAStreamThatWasClosedFirst),
        new Rule(
            "device.foreignend.skip", this::h13AWriteComesAfterForeignWorkOnAStreamThatIsCaptured),
        new Rule("download.early", this::h7TheHostReadsOnlyWhatHasArrived),
        new Rule("staging.recycle.early", this::h8StagingIsReusedOnlyAfterItsCopy),
        new Rule("memory.release.early", this::h12MemoryIsInUseUntilItsFreeWasReached));
  }

  private void assertFound(Rule rule) {
    close();
    open(); // a device of its own for each
    try (var _ = Mutant.enable(rule.mutant)) {
      assertThatThrownBy(rule.hazard::run).as(rule.mutant).isInstanceOf(AssertionError.class);
    }
  }
}
