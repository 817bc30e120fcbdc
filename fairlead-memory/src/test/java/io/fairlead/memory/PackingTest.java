package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Mark;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.host.HostFaults;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Small buffers that leave together, and come back together. */
@Timeout(120)
class PackingTest {
  private static final int BYTES = 4096;
  private static final int COUNT = 40;
  private static final long LIMIT = (long) COUNT * BYTES;

  private TestDevice world;
  private Device device;

  @BeforeEach
  void open() {
    MemoryConfig config =
        MemoryConfig.defaults()
            .withLimit(LIMIT)
            .withCachedBytesMax(LIMIT)
            .withWait(Duration.ofMinutes(5))
            .withSpill(SpillConfig.TO_HOST.withHostBytesMax(4 * LIMIT));
    world = TestDevice.open(config);
    device = world.device;
  }

  @AfterEach
  void close() {
    world.close();
  }

  private List<DeviceBuffer> filled() {
    List<DeviceBuffer> all = new ArrayList<>();
    for (int i = 0; i < COUNT; i++) {
      DeviceBuffer buffer = device.allocate(BYTES);
      buffer.fill((byte) (i + 1));
      all.add(buffer);
    }
    device.stream().reached().await();
    return all;
  }

  private void readTogether(List<DeviceBuffer> buffers) {
    Access[] reads = new Access[buffers.size()];
    Arrays.fill(reads, Access.READ);
    device.stream()
        .enqueue(DriverCall.LAUNCH, "read", buffers.toArray(Operand[]::new), reads, (_, _) -> {});
  }

  private long operations() {
    return device.context().stats().operations();
  }

  /** One wait for memory: the spiller finds all its victims in one look. */
  @Test
  void whatLeavesForOneWaitLeavesByOneOperation() throws Exception {
    world.tasks.enter(
        "packs",
        0,
        () -> {
          List<DeviceBuffer> small = filled();
          long before = operations();
          DeviceBuffer large = device.allocate(LIMIT);
          long down = operations() - before;
          large.close();
          assertThat(device.memory().spills()).isEqualTo(COUNT);
          assertThat(down).as("40 frees, an allocation, one copy").isEqualTo(COUNT + 2);
          for (int i = 0; i < COUNT; i++) {
            assertThat(small.get(i).toBytes()).containsOnly(i + 1);
          }
          small.forEach(DeviceBuffer::close);
          return down;
        });
  }

  @Test
  void whatAnOperationNeedsComesBackByOneOperation() throws Exception {
    world.tasks.enter(
        "packs",
        0,
        () -> {
          List<DeviceBuffer> small = filled();
          device.allocate(LIMIT).close();
          device.stream().reached().await();
          readTogether(small.subList(0, 1)); // so that memory is there
          long before = operations();
          long returns = device.memory().returns();
          readTogether(small);
          assertThat(device.memory().returns() - returns).isEqualTo(COUNT - 1L);
          assertThat(operations() - before)
              .as("39 allocations, one copy, and what reads them")
              .isEqualTo(COUNT + 1);
          for (int i = 0; i < COUNT; i++) {
            assertThat(small.get(i).toBytes()).containsOnly(i + 1);
          }
          small.forEach(DeviceBuffer::close);
          return before;
        });
  }

  // --- one operation by itself ------------------------------------------------------------------

  /** Device memory of its own, which a test says is there or not. */
  private static final class FakePart implements Packing.Part {
    private final HostImage image;
    private final long address;
    private final boolean taken;
    int abandoned;

    FakePart(HostImage image, long address, boolean taken) {
      this.image = image;
      this.address = address;
      this.taken = taken;
    }

    @Override
    public HostImage image() {
      return image;
    }

    @Override
    public boolean isTaken() {
      return taken;
    }

    @Override
    public long bytes() {
      return BYTES;
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      return taken ? address : 0;
    }

    @Override
    public void recorded(DeviceStream stream, long sequence, Access access) {}

    @Override
    public void abandoned(DeviceStream stream, Access access) {
      abandoned++;
    }
  }

  private HostTier tier() {
    return new HostTier(
        device.context().openHostBlocks(1 << 20), 1 << 20, 64 << 10, MemoryFailures.NONE);
  }

  private static HostImage image(HostTier tier) {
    HostImage image = Objects.requireNonNull(tier.begin(BYTES));
    image.memory().fill((byte) 99);
    return image;
  }

  private static byte[] content(HostImage image) {
    return image.memory().toArray(ValueLayout.JAVA_BYTE);
  }

  private HostBlock table() {
    return Objects.requireNonNull(Packing.table(device.context()));
  }

  @Test
  void whatIsGoneByThenIsLeftOutAndTheOthersGo() {
    DeviceStream stream = world.newStream();
    try (DeviceBuffer first = device.allocate(BYTES);
        DeviceBuffer third = device.allocate(BYTES)) {
      first.fill((byte) 1);
      third.fill((byte) 3);
      device.stream().reached().await();
      HostTier tier = tier();
      List<FakePart> parts =
          List.of(
              new FakePart(image(tier), first.storage().address, true),
              new FakePart(image(tier), 4711, false),
              new FakePart(image(tier), third.storage().address, true));
      Mark mark = Packing.down(stream, parts, table());
      stream.reached(mark).await();
      assertThat(content(parts.get(0).image)).containsOnly(1);
      assertThat(content(parts.get(1).image)).containsOnly(99);
      assertThat(content(parts.get(2).image)).containsOnly(3);
      parts.forEach(part -> part.image.release());
    }
  }

  @Test
  void whatTheDriverRefusesTouchesNothingAndKeepsNothing() {
    DeviceStream stream = world.newStream();
    try (DeviceBuffer buffer = device.allocate(BYTES)) {
      HostTier tier = tier();
      List<FakePart> parts =
          List.of(
              new FakePart(image(tier), buffer.storage().address, true),
              new FakePart(image(tier), buffer.storage().address, true));
      HostFaults.of(world.driver).failCall(DriverCall.COPY, 1, DriverException.NOT_SUPPORTED);
      assertThatThrownBy(() -> Packing.down(stream, parts, table()))
          .isInstanceOf(DeviceException.class);
      assertThat(parts).allMatch(part -> part.abandoned == 1);
      stream.reached().await();
      parts.forEach(part -> part.image.release());
      assertThat(tier.bytes()).isZero();
    }
  }

  @Test
  void largeImagesAndThoseOfSeveralPiecesDoNotFit() {
    HostTier tier = tier();
    HostImage small = image(tier);
    HostImage large = Objects.requireNonNull(tier.begin(128 << 10));
    HostImage pieces =
        Objects.requireNonNull(
            new HostTier(
                    device.context().openHostBlocks(1 << 20), 1 << 20, 4096, MemoryFailures.NONE)
                .begin(16 << 10));
    assertThat(Packing.fits(small)).isTrue();
    assertThat(Packing.fits(large)).isFalse();
    assertThat(Packing.fits(pieces)).isFalse();
    assertThat(Packing.fits(null)).isFalse();
    List.of(small, large, pieces).forEach(HostImage::release);
  }
}
