package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.HostBlocks;
import io.fairlead.device.Mark;
import io.fairlead.device.spi.DriverCall;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What is read before it is asked for, and what becomes of it. */
@Timeout(60)
class ReadAheadTest {
  private static final int CHUNK = 64 << 10;
  private static final int CHUNKS = 3;
  private static final int IMAGE = CHUNKS * CHUNK;

  @TempDir Path directory;
  private TestDevice world;
  private DiskTier tier;
  private HookedFiles.Hook hook = (_, _) -> {};

  @BeforeEach
  void open() {
    world = TestDevice.open();
    tier =
        DiskTier.open(
            DiskOptions.of(directory, 64 << 20, CHUNK)
                .withFaults(
                    real -> new HookedFiles(real, (call, file) -> hook.before(call, file))));
  }

  @AfterEach
  void close() {
    tier.close();
    world.close();
  }

  private List<FileImage> images(int count) {
    List<FileImage> images = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      images.add(
          new FileImage(DiskTierTest.image(tier, i, 1, DiskTierTest.bytes(IMAGE, i), 0), CHUNK));
    }
    return images;
  }

  private ReadAhead of(List<FileImage> images, HostBlocks blocks) {
    ReadAhead ahead = new ReadAhead();
    images.forEach(image -> ahead.add(image, blocks));
    return ahead;
  }

  /** Copies all of it to one place on the device after the other, and looks what is there. */
  private void assertComesUp(List<FileImage> images, ReadAhead ahead) {
    DeviceStream stream = world.newStream();
    try (DeviceBuffer target = world.device.allocate(images.size() * (long) IMAGE);
        Lease lease = target.lease(stream)) {
      List<Mark> marks = new ArrayList<>();
      long address = lease.address();
      for (FileImage image : images) {
        image.copyUp(stream, address, ahead, marks::add);
        address += IMAGE;
      }
      MemorySegment back = Arena.ofAuto().allocate(target.bytes());
      stream.enqueue(
          DriverCall.COPY,
          "look",
          (handle, _) -> world.driver.copyToHost(handle, back, lease.address()));
      stream.reached().await();
      for (int i = 0; i < images.size(); i++) {
        MemorySegment expected = MemorySegment.ofArray(DiskTierTest.bytes(IMAGE, i));
        assertThat(back.asSlice(i * (long) IMAGE, IMAGE).mismatch(expected)).isEqualTo(-1);
      }
      assertThat(marks).hasSize(CHUNKS * images.size());
    }
  }

  @Test
  void theNextImagesAreReadBeforeTheFirstOneIsCopied() {
    List<FileImage> images = images(2);
    Set<Path> read = ConcurrentHashMap.newKeySet();
    CountDownLatch both = new CountDownLatch(2);
    hook =
        (call, file) -> {
          if (call.equals("read") && read.add(file)) {
            both.countDown();
          }
          if (call.equals("read")) {
            await(both);
          }
        };
    try (ReadAhead ahead = of(images, world.device.context().hostBlocks())) {
      ahead.begin();
      assertComesUp(images, ahead);
    }
  }

  @Test
  void oneBlockIsEnoughForAll() {
    List<FileImage> images = images(4);
    HostBlocks one = world.device.context().openHostBlocks(CHUNK);
    try (ReadAhead ahead = of(images, one)) {
      ahead.begin();
      assertComesUp(images, ahead);
    }
  }

  @Test
  void whatNobodyAskedForGivesItsBlocksBackOnceItIsRead() throws Exception {
    List<FileImage> images = images(2);
    HostBlocks two = world.device.context().openHostBlocks(2 * CHUNK);
    CountDownLatch go = new CountDownLatch(1);
    hook =
        (call, _) -> {
          if (call.equals("read")) {
            await(go);
          }
        };
    ReadAhead ahead = of(images, two);
    ahead.begin();
    ahead.close();
    assertThat(two.tryTake(CHUNK)).as("the disk still writes to it").isNull();
    go.countDown();
    two.take(CHUNK).close();
    HostBlock first = two.take(CHUNK);
    two.take(CHUNK).close();
    first.close();
  }

  @Test
  void whatCannotBeReadFailsInItsTurn() {
    List<FileImage> images = images(2);
    Set<Path> seen = ConcurrentHashMap.newKeySet();
    hook =
        (call, file) -> {
          if (call.equals("read") && file.endsWith("image-1")) {
            seen.add(file);
            throw new IOException("Input/output error");
          }
        };
    HostBlocks blocks = world.device.context().openHostBlocks(8L * CHUNK);
    try (ReadAhead ahead = of(images, blocks)) {
      ahead.begin();
      DeviceStream stream = world.newStream();
      try (DeviceBuffer target = world.device.allocate(IMAGE);
          Lease lease = target.lease(stream)) {
        images.get(0).copyUp(stream, lease.address(), ahead, _ -> {});
        assertThatThrownBy(() -> images.get(1).copyUp(stream, lease.address(), ahead, _ -> {}))
            .isInstanceOf(SpillException.class);
      }
      stream.reached().await();
    }
    assertThat(seen).isNotEmpty();
    blocks.take(8L * CHUNK).close(); // all of them came back
  }

  private static void await(CountDownLatch latch) throws IOException {
    try {
      latch.await();
    } catch (InterruptedException never) {
      throw new IOException(never);
    }
  }
}
