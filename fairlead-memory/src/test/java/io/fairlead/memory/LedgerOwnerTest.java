package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.fault.Mutant;
import io.fairlead.host.HostStepper;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/**
 * The stream that alone uses a storage: when it becomes the owner, what ends that, and that whoever
 * comes next comes after all that it has done without the lock. {@link #everyRuleIsNeeded} takes
 * the rules away one by one.
 */
class LedgerOwnerTest {
  private static final int BYTES = 1024;
  private static final Access[] READ = {Access.READ};
  private static final Access[] WRITE = {Access.WRITE};

  private TestDevice world;
  private HostStepper stepper;
  private Arena arena;
  private MemorySegment host;

  @BeforeEach
  void open() {
    world = TestDevice.stepped();
    stepper = world.stepper();
    arena = Arena.ofAuto();
    host = arena.allocate(BYTES);
  }

  @AfterEach
  void close() {
    stepper.completeAll();
    world.close();
  }

  /** Whenever {@code hasty} can go on it does; the others move only to let it, a step at a time. */
  private void adversarially(DeviceStream hasty) {
    while (true) {
      stepper.completeAll(hasty.handle());
      List<Long> others = stepper.ready();
      if (others.isEmpty()) {
        return;
      }
      stepper.complete(others.getFirst());
    }
  }

  private static void nothing(DeviceStream stream, Access[] access, DeviceBuffer buffer) {
    stream.enqueue(DriverCall.LAUNCH, "nothing", new Operand[] {buffer}, access, (_, _) -> {});
  }

  /** A buffer of 1s that nobody is working on, and that is the stream's own. */
  private DeviceBuffer ownedBy(DeviceStream stream) {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    nothing(stream, WRITE, buffer);
    nothing(stream, WRITE, buffer);
    assertThat(buffer.storage().isOwnedBy(stream)).isTrue();
    return buffer;
  }

  // --- who becomes the owner
  // ----------------------------------------------------------------------

  @Test
  void aNewBufferIsOfTheStreamThatAllocatedIt() {
    DeviceBuffer buffer = world.device.allocate(BYTES);
    assertThat(buffer.storage().isOwnedBy(world.device.stream())).isTrue();
    buffer.fill((byte) 1);
    assertThat(buffer.storage().isOwnedBy(world.device.stream())).isTrue();
    buffer.close();
  }

  @Test
  void aBufferIsNotOfAStreamThatHasToComeAfterItsLastOwner() {
    DeviceBuffer before = world.filled(stepper, BYTES, 1);
    world.newStream().copyToHost(host, before, 0);
    before.close();
    DeviceBuffer next = world.device.allocate(BYTES);
    DeviceStream mine = world.device.stream();
    if (next.storage().isOwnedBy(mine)) {
      assertThat(next.storage().frontier()).allMatch(mark -> mark.stream() == mine);
    }
    next.close();
  }

  @Test
  void theSecondUseInARowMakesAStreamTheOwner() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    DeviceStream stream = world.newStream();
    nothing(stream, READ, buffer);
    assertThat(buffer.storage().isOwnedBy(stream)).isFalse();
    nothing(stream, READ, buffer);
    assertThat(buffer.storage().isOwnedBy(stream)).as("it comes after the writer").isTrue();
    nothing(world.newStream(), READ, buffer);
    assertThat(buffer.storage().isOwnedBy(stream)).isFalse();
    nothing(stream, WRITE, buffer);
    nothing(stream, WRITE, buffer);
    assertThat(buffer.storage().isOwnedBy(stream)).isTrue();
    buffer.close();
  }

  @Test
  void aReaderBecomesTheOwnerOnceTheReadsOfOthersHaveEnded() {
    DeviceBuffer buffer = world.filled(stepper, BYTES, 1);
    DeviceStream other = world.newStream();
    other.copyToHost(host, buffer, 0);
    DeviceStream stream = world.newStream();
    for (int i = 0; i < 40; i++) {
      nothing(stream, READ, buffer);
    }
    assertThat(buffer.storage().isOwnedBy(stream)).as("a write would come after it").isFalse();
    other.reached();
    stepper.completeAll();
    for (int i = 0; i < 40; i++) {
      nothing(stream, READ, buffer);
    }
    assertThat(buffer.storage().isOwnedBy(stream)).isTrue();
    buffer.close();
  }

  @Test
  void aStreamOfAnotherDeviceIsNoOwner() {
    try (TestDevice two = TestDevice.open(MemoryConfig.defaults(), Map.of("devices", "2"))) {
      DeviceBuffer source = two.devices.getFirst().allocate(BYTES);
      DeviceStream peer = two.devices.getLast().context().openStream(0);
      Operand forPeers = source.forPeers();
      for (int i = 0; i < 3; i++) {
        peer.enqueue(DriverCall.LAUNCH, "peer", new Operand[] {forPeers}, READ, (_, _) -> {});
      }
      assertThat(source.storage().isOwnedBy(peer)).isFalse();
      source.close();
      peer.close();
    }
  }

  // --- who comes after the owner
  // -------------------------------------------------------------------

  @Test
  void aReadComesAfterTheOwnersWrite() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    owner.checkpoint(); // an edge to an earlier use would be made from here
    owner.fill(buffer, 0, BYTES, (byte) 7);
    DeviceStream reader = world.newStream();
    reader.copyToHost(host, buffer, 0);
    adversarially(reader);

    HazardTest.assertAll(host, 7);
    buffer.close();
  }

  @Test
  void aWriteComesAfterTheOwnersRead() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    owner.fill(buffer, 0, BYTES, (byte) 7);
    owner.checkpoint(); // an edge to an earlier use would be made from here
    owner.copyToHost(host, buffer, 0);
    DeviceStream writer = world.newStream();
    writer.fill(buffer, 0, BYTES, (byte) 9);
    adversarially(writer);

    HazardTest.assertAll(host, 7);
    buffer.close();
  }

  @Test
  void theNextOwnerOfTheMemoryComesAfterTheOwnersRead() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    owner.fill(buffer, 0, BYTES, (byte) 7);
    owner.reached(); // so that all before the read is known to have ended
    stepper.completeAll();
    owner.copyToHost(host, buffer, 0);
    buffer.close();
    DeviceBuffer next = world.device.allocate(BYTES);
    DeviceStream hasty = world.newStream();
    hasty.fill(next, 0, BYTES, (byte) 9);
    adversarially(hasty);

    HazardTest.assertAll(host, 7);
    next.close();
  }

  @Test
  void aReadDoesNotWaitForTheOwnersRead() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    owner.fill(buffer, 0, BYTES, (byte) 7);
    owner.reached();
    stepper.completeAll();
    owner.copyToHost(arena.allocate(BYTES), buffer, 0);
    DeviceStream reader = world.newStream();
    reader.copyToHost(host, buffer, 0);
    stepper.completeAll(reader.handle());

    HazardTest.assertAll(host, 7);
    buffer.close();
  }

  @Test
  void whatOwnersDoIsInTheLedger() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    Storage storage = buffer.storage();
    long before = storage.generation();
    own(buffer, owner);
    nothing(owner, WRITE, buffer);
    long write = owner.mark().sequence();
    assertThat(storage.isOwnedBy(owner)).isTrue();
    assertThat(storage.frontier()).containsExactly(new Mark(owner, write));
    own(buffer, owner);
    nothing(owner, READ, buffer);
    nothing(owner, READ, buffer);
    long read = owner.mark().sequence();
    assertThat(storage.isOwnedBy(owner)).isTrue();
    assertThat(storage.frontier().getLast()).isEqualTo(new Mark(owner, read));
    assertThat(storage.generation()).as("a copy from before is worth nothing").isNotEqualTo(before);
    buffer.close();
  }

  /** Makes it the owner again, after somebody has looked. */
  private static void own(DeviceBuffer buffer, DeviceStream stream) {
    nothing(stream, WRITE, buffer);
    nothing(stream, WRITE, buffer);
    assertThat(buffer.storage().isOwnedBy(stream)).isTrue();
  }

  @Test
  void aRefusedOperationOfTheOwnerLeavesTheLedgerAsItWas() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    List<Mark> before = buffer.storage().frontier();
    own(buffer, owner);
    for (Access[] access : List.of(READ, WRITE)) {
      assertThatThrownBy(
              () ->
                  owner.enqueue(
                      DriverCall.LAUNCH,
                      "refused",
                      new Operand[] {buffer},
                      access,
                      (_, _) -> {
                        throw new IllegalStateException("refused");
                      }))
          .hasMessage("refused");
      assertThat(buffer.storage().isOwnedBy(owner)).isTrue();
    }
    assertThat(buffer.storage().frontier()).hasSameSizeAs(before);
    nothing(world.newStream(), WRITE, buffer); // would wait for ever for an open window
    buffer.close();
  }

  @Test
  void anOperationMayUseItsOwnersBufferTwice() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    owner.enqueue(
        DriverCall.LAUNCH,
        "twice",
        new Operand[] {buffer, buffer.slice(0, 8), buffer},
        new Access[] {Access.READ, Access.WRITE, Access.READ},
        (_, _) -> {});
    assertThat(buffer.storage().frontier())
        .contains(new Mark(owner, owner.mark().sequence()))
        .hasSize(2);
    nothing(world.newStream(), WRITE, buffer); // would wait for ever for an open window
    buffer.close();
  }

  @Test
  void anOperationInsideAnotherMayUseItsOwnersBuffer() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    owner.enqueue(
        DriverCall.LAUNCH,
        "outer",
        new Operand[] {buffer},
        READ,
        (_, _) -> nothing(owner, WRITE, buffer));
    nothing(world.newStream(), WRITE, buffer); // would wait for ever for an open window
    buffer.close();
  }

  // --- what ends it
  // --------------------------------------------------------------------------------

  @Test
  void aLeaseEndsItAndKeepsItsStreamTheOnlyOne() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    DeviceStream foreign = world.newStream();
    try (Lease _ = buffer.lease(foreign)) {
      assertThatThrownBy(() -> nothing(owner, READ, buffer)).hasMessageContaining("is leased");
      nothing(foreign, WRITE, buffer);
      nothing(foreign, WRITE, buffer);
      assertThat(buffer.storage().isOwnedBy(foreign)).as("others have it, too").isFalse();
    }
    nothing(foreign, WRITE, buffer);
    assertThat(buffer.storage().isOwnedBy(foreign)).isTrue();
    buffer.close();
  }

  @Test
  void aClosedBufferIsNotUsedByItsOwner() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    DeviceBuffer view = buffer.slice(0, 8);
    view.close();
    assertThatThrownBy(() -> nothing(owner, READ, view)).hasMessageContaining("was closed");
    nothing(owner, READ, buffer);
    buffer.close();
    assertThatThrownBy(() -> nothing(owner, READ, buffer)).hasMessageContaining("was closed");
  }

  @Test
  void aCopyBelowEndsIt() {
    DeviceStream owner = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    Storage storage = buffer.storage();
    assertThat(storage.beginCopy()).isTrue();
    nothing(owner, WRITE, buffer);
    nothing(owner, WRITE, buffer);
    assertThat(storage.isOwnedBy(owner)).as("while it is copied").isFalse();
    storage.endCopy();
    nothing(owner, WRITE, buffer);
    assertThat(storage.isOwnedBy(owner)).isTrue();
    buffer.close();
  }

  @Test
  void anOwnersOpenWindowHoldsOthersUp() throws InterruptedException {
    assertOthersWaitFor(WRITE, READ);
    assertOthersWaitFor(READ, WRITE);
    assertOthersWaitFor(WRITE, WRITE);
  }

  private void assertOthersWaitFor(Access[] owners, Access[] others) throws InterruptedException {
    DeviceStream owner = world.newStream();
    DeviceStream other = world.newStream();
    DeviceBuffer buffer = ownedBy(owner);
    List<String> order = Collections.synchronizedList(new ArrayList<>());
    CountDownLatch open = new CountDownLatch(1);
    CountDownLatch mayEnd = new CountDownLatch(1);
    Thread first =
        Thread.ofPlatform()
            .start(
                () ->
                    enqueue(
                        owner,
                        buffer,
                        owners,
                        _ -> {
                          open.countDown();
                          awaitQuietly(mayEnd);
                          order.add("owner");
                        }));
    open.await();
    Thread second =
        Thread.ofPlatform().start(() -> enqueue(other, buffer, others, _ -> order.add("other")));
    while (buffer.storage().awaited() == 0 && second.isAlive()) {
      Thread.onSpinWait();
    }
    mayEnd.countDown();
    first.join();
    second.join();
    assertThat(order).containsExactly("owner", "other");
    buffer.close();
  }

  private static void enqueue(
      DeviceStream stream, DeviceBuffer buffer, Access[] access, Consumer<Long> body) {
    stream.enqueue(
        DriverCall.LAUNCH,
        "watched",
        new Operand[] {buffer},
        access,
        (handle, _) -> body.accept(handle));
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e); // nobody interrupts it
    }
  }

  // --- each rule is needed
  // ------------------------------------------------------------------------

  private interface Hazard {
    void run() throws InterruptedException;
  }

  private record Rule(String mutant, Hazard hazard) {}

  @TestFactory
  Stream<DynamicTest> everyRuleIsNeeded() {
    return Stream.of(
            new Rule("ledger.owner.lose", this::aReadComesAfterTheOwnersWrite),
            new Rule("ledger.owner.lose", this::aWriteComesAfterTheOwnersRead),
            new Rule("ledger.owner.lose", this::theNextOwnerOfTheMemoryComesAfterTheOwnersRead),
            new Rule("ledger.owner.forget", this::anOwnersOpenWindowHoldsOthersUp),
            new Rule("ledger.write.skip", this::aReadComesAfterTheOwnersWrite),
            new Rule("ledger.read.skip", this::aWriteComesAfterTheOwnersRead))
        .map(rule -> DynamicTest.dynamicTest(rule.mutant, () -> assertFound(rule)));
  }

  private void assertFound(Rule rule) {
    close();
    open(); // a device of its own for each
    try (var _ = Mutant.enable(rule.mutant)) {
      assertThatThrownBy(rule.hazard::run).as(rule.mutant).isInstanceOf(AssertionError.class);
    }
  }
}
