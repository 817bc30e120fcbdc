package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.HostBlock;
import io.fairlead.device.spi.Driver;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * What may happen to a storage after it was picked for a pack and before that is enqueued: in
 * between, the table of the pack is made.
 */
@Timeout(120)
class PackingHazardTest {
  private static final int COUNT = 20;

  /** An image is a block of this size, and a table one of half of it. */
  private static final int BYTES = 8192;

  private static final int TABLE = 4096;
  private static final long LIMIT = (long) COUNT * BYTES;

  private final AtomicReference<@Nullable Runnable> between = new AtomicReference<>();

  private Driver hooked(Driver driver) {
    return DriverAround.of(
        driver,
        (name, arguments, call) -> {
          if (name.equals("hostAlloc") && arguments[1].equals((long) TABLE)) {
            Runnable once = between.getAndSet(null);
            if (once != null) {
              once.run();
            }
          }
          return call.make();
        });
  }

  @Test
  void oneThatIsClosedIsLeftOutAndOneThatIsWrittenLeavesAsItIsThen() throws Exception {
    MemoryConfig config =
        MemoryConfig.defaults()
            .withLimit(LIMIT)
            .withWait(Duration.ofMinutes(1))
            .withSpill(SpillConfig.TO_HOST.withHostBytesMax(8 * LIMIT));
    try (TestDevice world = TestDevice.open(config, this::hooked)) {
      Device device = world.device;
      List<DeviceBuffer> all = new ArrayList<>();
      for (int i = 0; i < COUNT; i++) {
        all.add(device.allocate(BYTES));
        all.getLast().fill((byte) (i + 1));
      }
      // alone, so without a table: the spiller has its streams after that
      assertThat(all.getFirst().spill().await()).isEqualTo(Tier.HOST);
      assertThat(all.getFirst().toBytes()).containsOnly(1);
      device.context().reached().await();
      long before = device.memory().spills();

      Thread changes =
          Thread.ofPlatform()
              .unstarted(
                  () -> {
                    all.get(3).close();
                    all.get(5).fill((byte) 99);
                  });
      between.set(
          () -> {
            changes.start();
            join(changes);
          });
      // what was staged by is in use, so that the table has to be pinned
      try (HostBlock staged = device.context().hostBlocks().take(BYTES);
          DeviceBuffer large = device.allocate(LIMIT)) {
        assertThat(staged.bytes()).isEqualTo(BYTES);
        large.fill((byte) 77);
        assertThat(between.get()).as("a table was made").isNull();
        assertThat(changes.isAlive()).isFalse();
        assertThat(device.memory().spills() - before).isEqualTo(COUNT - 1);
      }
      for (int i = 0; i < COUNT; i++) {
        if (i != 3) {
          assertThat(all.get(i).toBytes()).as("buffer %d", i).containsOnly(i == 5 ? 99 : i + 1);
        }
      }
      all.forEach(DeviceBuffer::close);
      world.awaitNothingLeft();
    }
  }

  private static void join(Thread thread) {
    try {
      thread.join(Duration.ofSeconds(30));
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }
}
