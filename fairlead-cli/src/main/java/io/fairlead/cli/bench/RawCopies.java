package io.fairlead.cli.bench;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * What the embedded device's copies are compared with: copies of memory by one thread, in the
 * pieces in which buffers are spilled. Confined to the thread that measures, or handed on.
 */
final class RawCopies implements AutoCloseable {
  /** What is compared with it is compiled as well. */
  private static final long WARM_UP_NANOS = 300_000_000;

  private final Arena arena = Arena.ofShared();
  private final MemorySegment device;
  private final MemorySegment host;
  private final int count;
  private final long bytes;

  RawCopies(int count, long bytes) {
    this.count = count;
    this.bytes = bytes;
    this.device = arena.allocate(count * bytes, 4096);
    this.host = arena.allocate(count * bytes, 4096);
    long end = System.nanoTime() + WARM_UP_NANOS;
    do {
      pass(device, host);
      pass(host, device);
    } while (System.nanoTime() < end);
  }

  /** Copies all; nanoseconds. */
  double down() {
    return pass(device, host);
  }

  /** Copies all back; nanoseconds. */
  double up() {
    return pass(host, device);
  }

  private double pass(MemorySegment from, MemorySegment to) {
    long start = System.nanoTime();
    for (int i = 0; i < count; i++) {
      MemorySegment.copy(from, i * bytes, to, i * bytes, bytes);
    }
    return System.nanoTime() - start;
  }

  @Override
  public void close() {
    arena.close();
  }
}
