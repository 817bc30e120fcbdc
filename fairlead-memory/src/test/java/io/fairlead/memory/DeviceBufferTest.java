package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.HostBlock;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskFailedException;
import io.fairlead.host.HostFaults;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What one buffer does, and what it says when it cannot. */
class DeviceBufferTest {
  /** Small chunks, so that a megabyte is a large copy. */
  private static final long CHUNK = 64 << 10;

  private TestDevice world;
  private Device device;

  @BeforeEach
  void open() {
    world = TestDevice.open(MemoryConfig.defaults().withChunk(CHUNK), Map.of("devices", "2"));
    device = world.device;
  }

  @AfterEach
  void close() {
    world.close();
  }

  // --- copies -------------------------------------------------------------------------------

  @Test
  void bringsArraysThereAndBack() {
    try (DeviceBuffer buffer = device.allocate(32)) {
      double[] doubles = {1.5, -2, Double.MAX_VALUE, 0};
      buffer.upload(doubles);
      assertThat(buffer.toDoubles()).isEqualTo(doubles);
      float[] floats = {1.5f, -2, Float.MIN_VALUE, 0, 1, 2, 3, 4};
      buffer.upload(floats);
      assertThat(buffer.toFloats()).isEqualTo(floats);
      long[] longs = {1, Long.MIN_VALUE, 3, 4};
      buffer.upload(longs);
      assertThat(buffer.toLongs()).isEqualTo(longs);
      int[] ints = {1, 2, 3, 4, 5, 6, 7, Integer.MIN_VALUE};
      buffer.upload(ints);
      assertThat(buffer.toInts()).isEqualTo(ints);
      byte[] bytes = new byte[32];
      bytes[31] = 9;
      buffer.upload(bytes);
      assertThat(buffer.toBytes()).isEqualTo(bytes);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 4096, (int) CHUNK - 1, (int) CHUNK, (int) CHUNK + 1, 1_000_003})
  void bringsAnySizeThereAndBackInEveryWay(int size) {
    byte[] source = new byte[size];
    new Random(size).nextBytes(source);
    try (Arena arena = Arena.ofShared();
        DeviceBuffer buffer = device.allocate(size)) {
      MemorySegment target = arena.allocate(size);
      buffer.upload(source);
      assertThat(buffer.toBytes()).isEqualTo(source);
      assertThat(buffer.download(s -> s.toArray(ValueLayout.JAVA_BYTE)).await()).isEqualTo(source);
      buffer.downloadTo(target).await();
      assertThat(target.toArray(ValueLayout.JAVA_BYTE)).isEqualTo(source);

      buffer.fill((byte) 3);
      assertThat(buffer.toBytes()).containsOnly(3);
      buffer.uploadFrom(target).await();
      target.fill((byte) 0);
      buffer.downloadInto(target);
      assertThat(target.toArray(ValueLayout.JAVA_BYTE)).isEqualTo(source);
    }
    assertThat(device.context().hostBlocks().bytesHeld())
        .as("pinned memory is bounded by the pool, whatever is copied")
        .isLessThanOrEqualTo(device.context().config().hostBytesMax());
  }

  @Test
  void copiesPinnedBlocksWithoutAnotherCopy() {
    try (DeviceBuffer buffer = device.allocate(64);
        HostBlock block = device.context().hostBlocks().take(100)) {
      block.segment().fill((byte) 4);
      buffer.uploadFrom(block, 64).await();
      block.segment().fill((byte) 0);
      buffer.downloadTo(block).await();
      assertThat(block.segment().asSlice(0, 64).toArray(ValueLayout.JAVA_BYTE)).containsOnly(4);
      assertThat(block.segment().asSlice(64).toArray(ValueLayout.JAVA_BYTE)).containsOnly(0);
    }
  }

  @Test
  void copiesBetweenBuffersOfOneDevice() {
    try (DeviceBuffer source = device.allocate(8);
        DeviceBuffer target = device.allocate(16)) {
      source.upload(new byte[] {1, 2, 3, 4, 5, 6, 7, 8});
      target.fill((byte) 0);
      target.copyFrom(source);
      target.copyFrom(8, source, 4, 4);
      target.copyFrom(12, target, 0, 4);
      assertThat(target.toBytes()).containsExactly(1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 1, 2, 3, 4);
    }
  }

  @Test
  void copiesBetweenDevicesInOrder() {
    Device other = world.devices.get(1);
    byte[] bytes = new byte[300_000];
    new Random(7).nextBytes(bytes);
    try (DeviceBuffer source = device.allocate(bytes.length);
        DeviceBuffer target = other.allocate(bytes.length)) {
      source.upload(bytes);
      target.copyFrom(source);
      source.fill((byte) 0); // after what the copy has read
      assertThat(target.toBytes()).isEqualTo(bytes);
    }
  }

  @Test
  void aSliceIsPartOfItsBuffer() {
    try (DeviceBuffer buffer = device.allocate(16)) {
      buffer.fill((byte) 1);
      DeviceBuffer middle = buffer.slice(4, 8);
      middle.fill((byte) 2);
      DeviceBuffer last = middle.slice(6, 2);
      last.upload(new byte[] {3, 4});
      last.close();
      assertThat(middle.toBytes()).as("closing a slice frees nothing").hasSize(8);
      middle.close();
      assertThat(buffer.toBytes()).containsExactly(1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 4, 1, 1, 1, 1);
    }
  }

  @Test
  void noBytesAreLegalAndTakeNothing() {
    long before = device.memory().inUse();
    try (DeviceBuffer empty = device.allocate(0);
        DeviceBuffer other = device.allocate(0)) {
      empty.upload(new double[0]);
      empty.fill((byte) 1);
      empty.copyFrom(other);
      assertThat(empty.toDoubles()).isEmpty();
      assertThat(empty.download(MemorySegment::byteSize).await()).isZero();
      assertThat(empty.slice(0, 0).bytes()).isZero();
      assertThat(device.memory().inUse()).isEqualTo(before);
      assertThat(device.memory().allocations()).isZero();
    }
  }

  // --- misuse -------------------------------------------------------------------------------

  @Test
  void saysWhereItWasClosed() {
    DeviceBuffer buffer = device.allocate(8);
    buffer.close();
    buffer.close();
    assertThatThrownBy(() -> buffer.upload(new double[1]))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("allocated at " + DeviceBufferTest.class.getName() + ".saysWhere")
        .hasMessageContaining("closed at " + DeviceBufferTest.class.getName() + ".saysWhere");
    assertThatThrownBy(() -> buffer.slice(0, 1)).isInstanceOf(IllegalStateException.class);
    assertThatThrownBy(buffer::toDoubles).isInstanceOf(IllegalStateException.class);
    assertThatThrownBy(() -> buffer.download(s -> 0)).isInstanceOf(IllegalStateException.class);
    assertThatThrownBy(() -> buffer.fill((byte) 0)).isInstanceOf(IllegalStateException.class);
    assertThatThrownBy(() -> buffer.lease(device.stream()))
        .isInstanceOf(IllegalStateException.class);
  }

  @Test
  void aClosedSliceAndASliceOfAClosedBufferAreRefused() {
    DeviceBuffer buffer = device.allocate(16);
    DeviceBuffer slice = buffer.slice(0, 8);
    DeviceBuffer inner = slice.slice(0, 4);
    slice.close();
    assertThatThrownBy(() -> slice.fill((byte) 0))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("slice");
    assertThatThrownBy(() -> inner.fill((byte) 0)).isInstanceOf(IllegalStateException.class);
    DeviceBuffer another = buffer.slice(0, 8);
    buffer.close();
    assertThatThrownBy(() -> another.fill((byte) 0)).isInstanceOf(IllegalStateException.class);
  }

  @Test
  void refusesSizesThatDoNotFit() {
    try (DeviceBuffer buffer = device.allocate(12)) {
      assertThatThrownBy(() -> buffer.upload(new double[2]))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("16 bytes")
          .hasMessageContaining("12 bytes");
      assertThatThrownBy(() -> buffer.upload(8, MemorySegment.ofArray(new long[1])))
          .isInstanceOf(IllegalArgumentException.class);
      assertThatThrownBy(() -> buffer.upload(-1, MemorySegment.ofArray(new byte[1])))
          .isInstanceOf(IllegalArgumentException.class);
      assertThatThrownBy(buffer::toDoubles)
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("no array of doubles");
      assertThatThrownBy(() -> buffer.downloadInto(MemorySegment.ofArray(new byte[11])))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("11 bytes");
      assertThatThrownBy(() -> buffer.downloadTo(MemorySegment.ofArray(new byte[12]).asReadOnly()))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("read-only");
      assertThatThrownBy(() -> buffer.slice(8, 5)).isInstanceOf(IndexOutOfBoundsException.class);
      assertThatThrownBy(() -> buffer.slice(-1, 5)).isInstanceOf(IndexOutOfBoundsException.class);
      assertThatThrownBy(() -> buffer.slice(0, -1)).isInstanceOf(IndexOutOfBoundsException.class);
      assertThatThrownBy(() -> buffer.slice(Long.MAX_VALUE, 1))
          .isInstanceOf(IndexOutOfBoundsException.class);
      assertThatThrownBy(() -> buffer.copyFrom(4, buffer, 0, 8))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("overlap");
    }
    assertThatThrownBy(() -> device.allocate(-1)).isInstanceOf(IllegalArgumentException.class);
    assertThatThrownBy(() -> device.reserve(-1)).isInstanceOf(IllegalArgumentException.class);
    assertThatThrownBy(() -> device.allocate(Long.MAX_VALUE))
        .isInstanceOf(IllegalArgumentException.class);
  }

  @Test
  void refusesNullAtOnce() {
    try (DeviceBuffer buffer = device.allocate(8)) {
      assertThatThrownBy(() -> buffer.upload((double[]) null))
          .isInstanceOf(NullPointerException.class);
      assertThatThrownBy(() -> buffer.download(null)).isInstanceOf(NullPointerException.class);
      assertThatThrownBy(() -> buffer.copyFrom(null)).isInstanceOf(NullPointerException.class);
      assertThatThrownBy(() -> buffer.lease(null)).isInstanceOf(NullPointerException.class);
    }
  }

  @Test
  void refusesAStreamOfAnotherDevice() {
    Device other = world.devices.get(1);
    try (DeviceBuffer buffer = device.allocate(8)) {
      assertThatThrownBy(() -> other.stream().fill(buffer, 0, 8, (byte) 0))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("on device 0")
          .hasMessageContaining("stream of device 1")
          .hasMessageContaining("copyFrom");
      assertThatThrownBy(() -> buffer.lease(other.stream()))
          .isInstanceOf(IllegalArgumentException.class);
      buffer.fill((byte) 1);
      assertThat(buffer.toBytes()).as("it is as usable as before").containsOnly(1);
    }
  }

  /** Without the host's memory in between, and without waiting. */
  @Test
  void copiesBetweenDevicesOfOneDriver() {
    Device other = world.devices.get(1);
    long copies = device.context().stats().copies();
    try (DeviceBuffer here = device.allocate(300_000);
        DeviceBuffer there = other.allocate(300_000)) {
      there.fillInts(0x01020304);
      here.copyFrom(there);
      there.fill((byte) 0);
      assertThat(here.toInts()).containsOnly(0x01020304);
      there.copyFrom(8, here, 4, 100);
      assertThat(there.slice(0, 112).toBytes()).startsWith(0, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1);
      assertThat(device.context().stats().bytesDown()).isEqualTo(300_000);
    }
    assertThat(device.context().stats().copies()).isGreaterThan(copies);
  }

  @Test
  void fillsWithShortsAndInts() {
    try (DeviceBuffer buffer = device.allocate(12);
        DeviceBuffer odd = device.allocate(9)) {
      buffer.fillShorts((short) 0x1234);
      assertThat(buffer.toInts()).containsOnly(0x12341234);
      buffer.slice(4, 8).fillInts(-2);
      assertThat(buffer.toInts()).containsExactly(0x12341234, -2, -2);
      assertThatThrownBy(() -> odd.fillShorts((short) 1))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("no array of shorts");
      assertThatThrownBy(() -> buffer.slice(2, 4).fillInts(1))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("no array of ints");
    }
  }

  @Test
  void aReaderThatThrowsFailsItsDownloadAlone() {
    try (DeviceBuffer buffer = device.allocate(8);
        DeviceBuffer large = device.allocate(200_000)) {
      buffer.fill((byte) 1);
      Completion<Object> failing =
          buffer.download(
              segment -> {
                throw new UnsupportedOperationException("mine");
              });
      assertThatThrownBy(failing::await)
          .isInstanceOf(TaskFailedException.class)
          .hasRootCauseMessage("mine");
      Completion<Object> failingToo =
          large.download(
              segment -> {
                throw new UnsupportedOperationException("mine");
              });
      assertThatThrownBy(failingToo::await)
          .isInstanceOf(TaskFailedException.class)
          .hasRootCauseMessage("mine");
      assertThat(buffer.toBytes()).containsOnly(1);
    }
  }

  @Test
  void aClosedDeviceIsRefused() {
    device.close();
    device.close();
    assertThatThrownBy(() -> device.allocate(8))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("device 0 was closed");
    assertThatThrownBy(() -> device.reserve(8)).isInstanceOf(IllegalStateException.class);
  }

  // --- stepped: what has not happened yet
  // ---------------------------------------------------------

  @Test
  void aCancelledDownloadGivesItsBlockBackOnlyAfterTheCopy() {
    try (TestDevice stepped = TestDevice.stepped()) {
      HostStepper stepper = stepped.stepper();
      DeviceBuffer first = stepped.filled(stepper, 4096, 1);
      DeviceBuffer second = stepped.filled(stepper, 4096, 2);
      Completion<byte[]> cancelled = first.download(s -> s.toArray(ValueLayout.JAVA_BYTE));
      assertThat(cancelled.cancel()).isTrue();
      Completion<byte[]> wanted = second.download(s -> s.toArray(ValueLayout.JAVA_BYTE));

      stepper.completeAll();
      assertThatThrownBy(cancelled::await).isInstanceOf(TaskCancelledException.class);
      assertThat(wanted.await()).containsOnly(2);
      assertThat(stepped.device.context().hostBlocks().bytesHeld())
          .as("a block each: the first was not reused while a copy wrote it")
          .isEqualTo(2 * 4096);
      first.close();
      second.close();
      stepper.completeAll();
    }
  }

  @Test
  void aLostContextFailsUsersAndClosesQuietly() {
    DeviceBuffer buffer = device.allocate(64);
    buffer.fill((byte) 1);
    assertThat(buffer.toBytes()).containsOnly(1);
    Lease lease = buffer.lease(device.stream(), Access.READ);
    HostFaults.of(world.driver).failOperation(DriverCall.COPY, 1, DriverException.ILLEGAL_ADDRESS);

    assertThatThrownBy(() -> buffer.download(s -> 0).await())
        .isInstanceOf(DeviceLostException.class);
    assertThatThrownBy(() -> device.allocate(64)).isInstanceOf(DeviceLostException.class);
    lease.close();
    buffer.close();
    assertThat(device.memory().inUse()).as("it ended with its context").isZero();
  }
}
