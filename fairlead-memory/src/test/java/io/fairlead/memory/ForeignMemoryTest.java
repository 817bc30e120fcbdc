package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.fault.EngineException;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Memory of others under the ledger, and code of others that uses ours. Foreign code here is what
 * calls the embedded device's driver by itself.
 */
@Timeout(60)
class ForeignMemoryTest {
  private static final long BYTES = 4096;

  /** A stream and memory that somebody else made. */
  private static final class Foreign implements AutoCloseable {
    final TestDevice world;
    final long stream;
    final long address;
    final AtomicInteger released = new AtomicInteger();
    final List<Role> releasedBy = new ArrayList<>();
    final List<Long> releasedUnder = new ArrayList<>();

    Foreign(TestDevice world) {
      this.world = world;
      long[] made = new long[2];
      world.behind(
          () -> {
            made[0] = world.driver.streamCreate(world.driver.current(), 0, null);
            made[1] = world.driver.allocAsync(made[0], BYTES);
          });
      stream = made[0];
      address = made[1];
    }

    void fill(int value) {
      world.behind(() -> world.driver.fill(stream, address, BYTES, (byte) value));
    }

    /** Frees it in the order of its own stream, as a library would. */
    void release() {
      releasedBy.add(Role.current());
      releasedUnder.add(world.driver.current());
      world.driver.freeAsync(stream, address);
      released.incrementAndGet();
    }

    @Override
    public void close() {
      world.behind(() -> world.driver.streamDestroy(stream));
    }
  }

  private static void until(String what, BooleanSupplier condition) {
    long deadline = System.nanoTime() + 20_000_000_000L;
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > deadline) {
        throw new AssertionError("waited in vain until " + what);
      }
      LockSupport.parkNanos(100_000);
    }
  }

  // --- adopted memory -----------------------------------------------------------------------

  @Test
  void adoptedMemoryComesAfterItsMakersWorkAndGoesBackAfterOurs() {
    try (TestDevice world = TestDevice.stepped();
        Arena arena = Arena.ofShared()) {
      HostStepper stepper = world.stepper();
      Foreign foreign = new Foreign(world);
      foreign.fill(7);
      DeviceStream theirs = world.device.adoptStream(foreign.stream);
      DeviceBuffer buffer = world.device.adopt(foreign.address, BYTES, theirs, foreign::release);
      MemorySegment host = arena.allocate(BYTES);
      DeviceStream reader = world.newStream();
      reader.copyToHost(host, buffer, 0);
      buffer.close();
      buffer.close();
      stepper.completeAll(reader.handle());
      assertThat(stepper.pending(reader.handle())).as("after their fill").isNotEmpty();
      assertThat(foreign.released).hasValue(0);
      theirs.close();
      stepper.completeAll();
      assertThat(host.get(ValueLayout.JAVA_BYTE, BYTES - 1)).isEqualTo((byte) 7);
      until("it is released", () -> foreign.released.get() == 1);
      assertThat(foreign.releasedBy).containsExactly(Role.DEVICE_MANAGER);
      assertThat(foreign.releasedUnder).containsExactly(world.device.context().nativeContext());
      stepper.completeAll();
      foreign.close();
      assertThat(foreign.released).hasValue(1);
    }
  }

  @Test
  void adoptedMemoryTakesNothingOfTheLimitAndIsAsGoodAsAnyOther() {
    try (TestDevice world = TestDevice.open();
        Foreign foreign = new Foreign(world)) {
      foreign.fill(3);
      DeviceStream theirs = world.device.adoptStream(foreign.stream);
      MemoryStats before = world.device.memory();
      DeviceBuffer buffer = world.device.adopt(foreign.address, BYTES, theirs, foreign::release);
      assertThat(world.device.memory().inUse()).isEqualTo(before.inUse());
      try (DeviceBuffer copy = world.device.allocate(BYTES)) {
        copy.copyFrom(0, buffer.slice(0, BYTES / 2), 0, BYTES / 2);
        buffer.slice(BYTES / 2, BYTES / 2).fill((byte) 4);
        assertThat(copy.slice(0, BYTES / 2).toBytes()).containsOnly(3);
      }
      assertThat(buffer.slice(BYTES / 2, BYTES / 2).toBytes()).containsOnly(4);
      buffer.close();
      until("it is released", () -> foreign.released.get() == 1);
      theirs.close();
      assertThatThrownBy(buffer::toBytes).isInstanceOf(IllegalStateException.class);
    }
  }

  @Test
  void adoptedMemoryThatIsClosedGoesBackAfterAUseThatIsBeingEnqueued() throws Exception {
    try (TestDevice world = TestDevice.stepped()) {
      Foreign foreign = new Foreign(world);
      DeviceStream stream = world.newStream();
      DeviceBuffer buffer = world.device.adopt(foreign.address, BYTES, stream, foreign::release);
      Completion<Void> before = stream.reached();
      world.stepper().completeAll();
      before.await();
      CountDownLatch open = new CountDownLatch(1);
      CountDownLatch mayEnd = new CountDownLatch(1);
      Thread user =
          Thread.ofPlatform().start(() -> fillHeldUp(world, stream, buffer, open, mayEnd));
      open.await();
      Thread closer = Thread.ofPlatform().start(buffer::close);
      while (buffer.storage().awaited() == 0 && closer.isAlive()) {
        Thread.onSpinWait();
      }
      mayEnd.countDown();
      user.join();
      closer.join();
      world.awaitRetired();
      assertThat(foreign.released).as("the fill has not ended").hasValue(0);
      world.stepper().completeAll();
      until("it is released", () -> foreign.released.get() == 1);
    }
  }

  private static void fillHeldUp(
      TestDevice world,
      DeviceStream stream,
      DeviceBuffer buffer,
      CountDownLatch open,
      CountDownLatch mayEnd) {
    stream.enqueue(
        DriverCall.FILL,
        "fill",
        new Operand[] {buffer},
        new Access[] {Access.WRITE},
        (handle, addresses) -> {
          open.countDown();
          awaitQuietly(mayEnd);
          world.driver.fill(handle, addresses[0], BYTES, (byte) 7);
        });
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e); // nobody interrupts it
    }
  }

  @Test
  void memoryIsUnderOneLedgerOnly() {
    try (TestDevice world = TestDevice.stepped()) {
      Foreign foreign = new Foreign(world);
      DeviceStream stream = world.device.stream();
      DeviceBuffer buffer = world.device.adopt(foreign.address, BYTES, stream, foreign::release);
      assertThatThrownBy(() -> world.device.adopt(foreign.address + 8, 8, stream, foreign::release))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("8 bytes at 0x")
          .hasMessageContaining("use that one, or wait for its release");
      buffer.fill((byte) 1);
      buffer.close();
      assertThatThrownBy(() -> world.device.adopt(foreign.address, BYTES, stream, () -> {}))
          .as("its work has not ended")
          .isInstanceOf(IllegalArgumentException.class);
      world.stepper().completeAll();
      until("it is released", () -> foreign.released.get() == 1);
      try (DeviceBuffer own = world.device.allocate(BYTES);
          Lease lease = own.lease(stream)) {
        assertThatThrownBy(
                () -> world.device.adopt(lease.address(), BYTES, stream, foreign::release))
            .isInstanceOf(IllegalArgumentException.class);
      }
      assertThatThrownBy(() -> world.device.adopt(0, BYTES, stream, () -> {}))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("an address and at least one byte");
      assertThatThrownBy(() -> world.device.adopt(foreign.address, 0, stream, () -> {}))
          .isInstanceOf(IllegalArgumentException.class);
      world.stepper().completeAll();
      foreign.close();
    }
  }

  @Test
  void aDeviceThatClosesReportsAdoptedMemoryAndReleasesItOnce() {
    List<Leak> leaks = new ArrayList<>();
    AtomicInteger released = new AtomicInteger();
    TestDevice world = TestDevice.open(MemoryConfig.defaults().withLeakListener(leaks::addAll));
    Foreign foreign = new Foreign(world);
    DeviceBuffer buffer =
        world.device.adopt(
            foreign.address, BYTES, world.device.stream(), released::incrementAndGet);
    buffer.fill((byte) 1);
    world.device.close();
    assertThat(released).as("told before close returns").hasValue(1);
    assertThat(leaks).singleElement().extracting(Leak::bytes).isEqualTo(BYTES);
    assertThat(leaks.getFirst().site()).contains("ForeignMemoryTest");
    buffer.close();
    world.close();
    assertThat(released).hasValue(1);
  }

  @Test
  void theMakerIsToldAlsoOnceTheDeviceIsClosed() {
    TestDevice world = TestDevice.open(MemoryConfig.defaults().withLeakListener(_ -> {}));
    Foreign foreign = new Foreign(world);
    AtomicInteger released = new AtomicInteger();
    DeviceStream stream = world.device.stream();
    DeviceBuffer buffer =
        world.device.adopt(foreign.address, BYTES, stream, released::incrementAndGet);
    DeviceBuffer own = world.device.allocate(BYTES);
    Lease ownLease = own.lease(stream);
    Lease last = buffer.lease(stream, Access.READ);
    Lease other = buffer.lease(stream, Access.READ);
    world.close();
    other.close();
    assertThat(released).as("a lease is open").hasValue(0);
    last.close();
    until("it is released", () -> released.get() == 1);
    ownLease.close();
    assertThat(world.device.memory().inUse()).isZero();
  }

  @Test
  void theMakerIsToldAlsoIfAnotherDeviceReadsOn() {
    Map<String, String> two = Map.of("stepped", "true", "devices", "2");
    try (TestDevice world = TestDevice.open(MemoryConfig.defaults(), two)) {
      Foreign foreign = new Foreign(world);
      Device reading = world.devices.get(1);
      DeviceBuffer target = reading.allocate(BYTES);
      DeviceBuffer buffer =
          world.device.adopt(
              foreign.address, BYTES, world.device.stream(), foreign.released::incrementAndGet);
      target.copyFrom(buffer);
      buffer.close();
      world.device.close(); // waits for nobody, since nobody steps
      assertThat(foreign.released).hasValue(0);
      Completion<Void> read = reading.context().reached();
      world.stepper().completeAll();
      assertThat(read.isDone()).isTrue();
      until("it is released", () -> foreign.released.get() == 1);
      target.close();
    }
  }

  /** What failed was no adoption: the memory is its maker's as before. */
  @Test
  void whatAClosedDeviceRefusesIsNotReleased() {
    TestDevice world = TestDevice.open();
    Foreign foreign = new Foreign(world);
    AtomicInteger released = new AtomicInteger();
    DeviceStream stream = world.device.stream();
    world.close();
    assertThatThrownBy(
            () -> world.device.adopt(foreign.address, BYTES, stream, released::incrementAndGet))
        .isInstanceOf(IllegalStateException.class);
    assertThat(released).hasValue(0);
  }

  @Test
  void aReleaseThatThrowsStopsNobody() {
    try (TestDevice world = TestDevice.open();
        Foreign one = new Foreign(world);
        Foreign other = new Foreign(world)) {
      DeviceStream stream = world.device.stream();
      AtomicInteger tried = new AtomicInteger();
      DeviceBuffer first =
          world.device.adopt(
              one.address,
              BYTES,
              stream,
              () -> {
                tried.incrementAndGet();
                throw new IllegalStateException("on purpose");
              });
      DeviceBuffer second = world.device.adopt(other.address, BYTES, stream, other::release);
      first.close();
      second.close();
      until("the second is released", () -> other.released.get() == 1);
      until("the first was tried too: which comes first is not said", () -> tried.get() == 1);
    }
  }

  @Test
  void aDroppedBufferIsReleasedByTheOwnerNotTheCollector() {
    List<Leak> leaks = Collections.synchronizedList(new ArrayList<>());
    try (TestDevice world =
            TestDevice.open(MemoryConfig.defaults().withLeakListener(leaks::addAll));
        Foreign foreign = new Foreign(world)) {
      adoptAndDrop(world, foreign);
      until(
          "the collector has found it",
          () -> {
            System.gc();
            return foreign.released.get() == 1;
          });
      assertThat(foreign.releasedBy).containsExactly(Role.DEVICE_MANAGER);
      assertThat(leaks).hasSize(1);
    }
  }

  private static void adoptAndDrop(TestDevice world, Foreign foreign) {
    world
        .device
        .adopt(foreign.address, BYTES, world.device.stream(), foreign::release)
        .fill((byte) 1);
  }

  // --- foreign code -------------------------------------------------------------------------

  @Test
  void foreignCodeFindsItsInputsAndItsOutputsAreFound() {
    try (TestDevice world = TestDevice.open();
        DeviceBuffer in = world.device.allocate(BYTES);
        DeviceBuffer out = world.device.allocate(BYTES)) {
      in.fill((byte) 5);
      long answer =
          world.device.foreign(
              List.of(in),
              List.of(out.slice(BYTES / 2, BYTES / 2), out.slice(0, BYTES / 2)),
              (reads, writes) -> {
                // as a library that works at once: here, with a stream of its own
                long stream = world.driver.streamCreate(world.driver.current(), 0, null);
                for (long write : writes) {
                  world.driver.copyOnDevice(stream, write, reads[0], BYTES / 2);
                }
                world.driver.streamSynchronize(stream);
                world.driver.streamDestroy(stream);
                return writes[0] - writes[1];
              });
      assertThat(answer).isEqualTo(BYTES / 2);
      assertThat(out.toBytes()).containsOnly(5);
    }
  }

  @Test
  void whileForeignCodeRunsOthersAreRefusedAndAClosedBufferIsKept() throws Exception {
    try (TestDevice world = TestDevice.open()) {
      DeviceBuffer buffer = world.device.allocate(BYTES);
      buffer.fill((byte) 1);
      DeviceStream other = world.newStream();
      CountDownLatch began = new CountDownLatch(1);
      CountDownLatch go = new CountDownLatch(1);
      AtomicReference<Throwable> failed = new AtomicReference<>();
      Thread caller =
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      world.device.foreign(
                          List.of(),
                          List.of(buffer),
                          (reads, writes) -> {
                            began.countDown();
                            go.await();
                            return null;
                          });
                    } catch (RuntimeException e) {
                      failed.set(e);
                    }
                  });
      began.await();
      assertThatThrownBy(() -> other.fill(buffer, 0, BYTES, (byte) 2))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("leased to foreign code");
      long inUse = world.device.memory().inUse();
      buffer.close();
      Completion<Void> soFar = world.device.context().reached();
      soFar.await();
      assertThat(world.device.memory().inUse()).as("not freed").isEqualTo(inUse);
      go.countDown();
      caller.join();
      assertThat(failed).hasValue(null);
      world.awaitNothingInUse();
    }
  }

  @Test
  void aBodyThatFailsLeavesNoLease() {
    try (TestDevice world = TestDevice.open();
        DeviceBuffer buffer = world.device.allocate(BYTES)) {
      IOException thrown = new IOException("on purpose");
      assertThatThrownBy(
              () ->
                  world.device.foreign(
                      List.of(buffer),
                      List.of(),
                      (reads, writes) -> {
                        throw thrown;
                      }))
          .isInstanceOf(EngineException.class)
          .hasCause(thrown);
      DeviceBuffer closed = world.device.allocate(BYTES);
      closed.close();
      assertThatThrownBy(
              () -> world.device.foreign(List.of(buffer), List.of(closed), (r, w) -> null))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("was closed at");
      world.newStream().fill(buffer, 0, BYTES, (byte) 2);
      assertThat(buffer.toBytes()).containsOnly(2);
    }
  }
}
