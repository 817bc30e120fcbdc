package io.fairlead.memory;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import java.util.ArrayDeque;

/** A library of others that allocates from the same device, past Fairlead. */
final class Foreigners implements AutoCloseable {
  private final TestDevice world;
  private final Driver driver;
  private final long stream;
  private final ArrayDeque<Long> blocks = new ArrayDeque<>();
  private final long blockBytes;

  Foreigners(TestDevice world, long blockBytes) {
    this.world = world;
    this.driver = world.driver;
    this.blockBytes = blockBytes;
    long[] made = new long[1];
    world.behind(
        () -> made[0] = driver.streamCreate(world.device.context().nativeHandle(), 0, null));
    this.stream = made[0];
  }

  /** Whether the device had a block. */
  synchronized boolean take() {
    boolean[] taken = {true};
    world.behind(
        () -> {
          try {
            blocks.add(driver.allocAsync(stream, blockBytes));
          } catch (DriverException none) {
            taken[0] = false;
          }
        });
    return taken[0];
  }

  void take(int count) {
    for (int i = 0; i < count; i++) {
      if (!take()) {
        throw new IllegalStateException("no room for block " + i);
      }
    }
  }

  synchronized long bytes() {
    return blocks.size() * blockBytes;
  }

  /** Gives back as many blocks as it takes for so many bytes; answers what they had. */
  synchronized long free(long bytes) {
    long[] freed = {0};
    world.behind(
        () -> {
          while (freed[0] < bytes && !blocks.isEmpty()) {
            driver.freeAsync(stream, blocks.removeLast());
            freed[0] += blockBytes;
          }
          driver.streamSynchronize(stream);
        });
    return freed[0];
  }

  @Override
  public void close() {
    free(Long.MAX_VALUE);
    world.behind(() -> driver.streamDestroy(stream));
  }
}
