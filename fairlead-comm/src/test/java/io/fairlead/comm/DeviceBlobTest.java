package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.Driver;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.host.HostStepper;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Device buffers as blobs, on the host device (rows 004.3, 004.6). */
@Timeout(60)
class DeviceBlobTest {
  private static final Duration SOON = Duration.ofSeconds(30);

  @Test
  void hostAndDeviceBlobsMixInOneMessage_row004_3() {
    try (Place place = new Place(Map.of());
        DeviceBuffer source = place.device.allocate(1000);
        DeviceBuffer target = place.device.allocate(1000)) {
      source.upload(bytes(1000, 1));
      MemorySegment head = memory(8);
      Completion<Received> received =
          place.rank(1).receiveInto(0, 1, Blob.of(head), Blob.of(target.slice(100, 900)));
      place.rank(0).send(1, 1, null, Blob.of(longs(7)), Blob.of(source.slice(0, 900))).await(SOON);
      assertThat(received.await(SOON).bytes()).isEqualTo(908);
      assertThat(World.value(head)).isEqualTo(7);
      byte[] got = target.toBytes();
      assertThat(MemorySegment.ofArray(got).asSlice(100).mismatch(bytes(1000, 1).asSlice(0, 900)))
          .isEqualTo(-1);
      assertThat(place.rank(0).engine().lender.bytesLent()).isZero();
    }
  }

  @Test
  void aDeviceBufferLeavesWhenItsStreamHasReachedItAndNobodyBlocks_row004_6() {
    try (Place place = new Place(Map.of("stepped", "true"));
        DeviceBuffer source = place.device.allocate(64)) {
      HostStepper stepper = HostStepper.of(place.driver);
      source.fill((byte) 5);
      Completion<?> sent = place.rank(0).send(1, 1, null, Blob.of(source));
      source.fill((byte) 6);
      assertThat(sent.isDone()).isFalse();
      assertThat(place.rank(0).engine().gates.out()).isEqualTo(1);
      stepper.completeAll();
      sent.await(SOON);
      MemorySegment data = place.rank(1).receive(0, 1).await(SOON).data();
      byte[] expected = new byte[64];
      Arrays.fill(expected, (byte) 5);
      assertThat(data.mismatch(MemorySegment.ofArray(expected))).isEqualTo(-1);
      stepper.completeAll();
    }
  }

  /** Those that are small are copied out at once, and those that are large are not. */
  @Test
  void deviceBuffersOfOneTagArriveInTheOrderInWhichTheyWereSent() {
    int sends = 400;
    try (Place place = new Place(Map.of());
        DeviceBuffer large = place.device.allocate(1 << 20);
        DeviceBuffer small = place.device.allocate(8)) {
      List<Completion<?>> sent = new ArrayList<>();
      for (int i = 0; i < sends; i++) {
        DeviceBuffer source = i % 8 == 0 ? large : small;
        source.slice(0, 8).upload(longs(i));
        sent.add(place.rank(0).send(1, 1, null, Blob.of(source)));
      }
      for (int i = 0; i < sends; i++) {
        MemorySegment data = place.rank(1).receive(0, 1).await(SOON).data();
        assertThat(World.value(data)).isEqualTo(i);
      }
      sent.forEach(send -> send.await(SOON));
    }
  }

  @Test
  void stagingOfACancelledSendIsKeptUntilTheCopyHasEnded() {
    try (Place place = new Place(Map.of("stepped", "true"));
        DeviceBuffer source = place.device.allocate(64)) {
      HostStepper stepper = HostStepper.of(place.driver);
      source.fill((byte) 5);
      Completion<?> sent = place.rank(0).send(1, 1, null, Blob.of(source));
      assertThat(sent.cancel()).isTrue();
      Lender lender = place.rank(0).engine().lender;
      assertThat(lender.bytesLent()).isPositive();
      Completion<Void> reached = place.device.context().reached();
      stepper.completeAll();
      reached.await(SOON);
      Completion<Void> settled = place.device.context().reached();
      stepper.completeAll();
      settled.await(SOON);
      long deadline = System.nanoTime() + SOON.toNanos();
      while (lender.bytesLent() > 0 && System.nanoTime() < deadline) {
        LockSupport.parkNanos(100_000); // the copy's end comes on a thread of the device's
      }
      assertThat(lender.bytesLent()).isZero();
      assertThat(place.rank(0).engine().gates.out()).isZero();
    }
  }

  @Test
  void aMessageForAHandlerTakesDeviceBlobsToo() {
    try (Place place = new Place(Map.of());
        DeviceBuffer source = place.device.allocate(300_000)) {
      source.upload(bytes(300_000, 3));
      Completion.Source<MemorySegment> seen = Completion.source();
      place.rank(1).handle(1, (from, header, blobs) -> seen.complete(blobs.get(1)));
      place.rank(0).message(1, 1, longs(1), Blob.of(bytes(10, 1)), Blob.of(source)).await(SOON);
      assertThat(seen.completion().await(SOON).mismatch(bytes(300_000, 3))).isEqualTo(-1);
    }
  }

  @Test
  void deviceBuffersArePutAndGot() {
    try (Place place = new Place(Map.of());
        DeviceBuffer source = place.device.allocate(70_000);
        DeviceBuffer target = place.device.allocate(70_000)) {
      MemorySegment memory = memory(80_000);
      Comm comm = place.rank(0);
      try (Window window = place.rank(1).expose(memory).await(SOON)) {
        source.upload(bytes(70_000, 8));
        Completion<?> put = comm.put(1, window.key(), 1_000, null, Blob.of(source));
        source.fill((byte) 0); // after the put in the order of the stream
        put.await(SOON);
        assertThat(memory.asSlice(1_000, 70_000).mismatch(bytes(70_000, 8))).isEqualTo(-1);
        comm.getInto(1, window.key(), 1_000, Blob.of(target)).await(SOON);
        assertThat(MemorySegment.ofArray(target.toBytes()).mismatch(bytes(70_000, 8)))
            .isEqualTo(-1);
        try (LentBuffer lent = comm.lend(8)) {
          assertThatThrownBy(() -> comm.getInto(1, window.key(), 0, lent))
              .isInstanceOf(IllegalArgumentException.class);
        }
      }
      assertThat(comm.engine().lender.bytesLent()).isZero();
    }
  }

  @Test
  void ranksPassADeviceBufferRoundTheRing() {
    int rounds = 50;
    try (Place place = new Place(Map.of())) {
      place.world.each(
          comm -> {
            try (DeviceBuffer mine = place.device.allocate(4096);
                DeviceBuffer next = place.device.allocate(4096)) {
              mine.upload(bytes(4096, comm.rank()));
              for (int i = 0; i < rounds; i++) {
                Completion<Received> received = comm.receiveInto(1 - comm.rank(), i, Blob.of(next));
                comm.send(1 - comm.rank(), i, null, Blob.of(mine)).await(SOON);
                received.await(SOON);
                mine.copyFrom(next);
              }
              int expected = rounds % 2 == 0 ? comm.rank() : 1 - comm.rank();
              assertThat(MemorySegment.ofArray(mine.toBytes()).mismatch(bytes(4096, expected)))
                  .isEqualTo(-1);
            }
          });
    }
  }

  @Test
  void anotherSizeAndALentBufferAreRefused() {
    try (Place place = new Place(Map.of());
        DeviceBuffer target = place.device.allocate(100)) {
      Completion<Received> received = place.rank(1).receiveInto(0, 1, Blob.of(target));
      place.rank(0).send(1, 1, memory(99)).await(SOON);
      assertThatThrownBy(() -> received.await(SOON))
          .isInstanceOf(CommException.class)
          .hasMessageContaining("has 99 bytes");
      CommException failure = (CommException) received.cause();
      assertThat(failure.reason()).isEqualTo(Reason.SIZE_MISMATCH);
      try (LentBuffer lent = place.rank(1).lend(8)) {
        assertThatThrownBy(() -> place.rank(1).receiveInto(0, 1, lent))
            .isInstanceOf(IllegalArgumentException.class);
      }
    }
  }

  @Test
  void aFaultOfTheDeviceFailsTheSendWithItsCause() {
    Place place = new Place(Map.of("stepped", "true"));
    DeviceBuffer source = place.device.allocate(64);
    HostStepper stepper = HostStepper.of(place.driver);
    source.fill((byte) 5);
    Completion<?> sent = place.rank(0).send(1, 1, null, Blob.of(source));
    stepper.failNext(stepper.ready().getFirst(), 700);
    stepper.completeAll();
    assertThatThrownBy(() -> sent.await(SOON))
        .isInstanceOf(CommException.class)
        .hasCauseInstanceOf(DeviceException.class);
    assertThat(place.rank(0).engine().gates.out()).isZero();
    source.close();
    place.close();
  }

  /** Two ranks that share a host device. */
  private static final class Place implements AutoCloseable {
    final World world;
    final Driver driver;
    final Device device;

    Place(Map<String, String> settings) {
      TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
      driver = new HostDriverProvider().open(settings);
      DeviceConfig config = DeviceConfig.defaults().withCloseNanos(1_000_000);
      DeviceContext context = DeviceContext.open(tasks, driver, 0, config);
      device = Device.open(tasks, context, MemoryConfig.defaults());
      List<Comm> ranks = InProcess.ranks(tasks, 2, CommConfig.DEFAULT);
      world = new World(tasks, ranks);
    }

    Comm rank(int rank) {
      return world.rank(rank);
    }

    @Override
    public void close() {
      world.ranks.forEach(Comm::close);
      if (driver.capabilities().contains(Capability.STEPPED)) {
        device.context().reached();
        HostStepper.of(driver).completeAll();
      }
      device.close();
      world.tasks.close();
      driver.close();
    }
  }
}
