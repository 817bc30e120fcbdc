package io.fairlead.host;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Streams that have work and no owner, by priority; first come, first served within one. Lock-free.
 *
 * <p>{@code size} rises before a stream is in and falls after it is out: it may promise too much,
 * never too little, so a worker that sees 0 may park.
 */
final class ReadyQueue {
  /** 0 is normal; as many as an NVIDIA device has above it that make a difference. */
  static final int LEVELS = 3;

  /** Every so many picks the lowest level goes first, so that no stream starves. */
  private static final int PICKS_UNTIL_LOWEST = 61;

  private final List<ConcurrentLinkedQueue<HostStream>> levels = new ArrayList<>();
  private final AtomicInteger size = new AtomicInteger();

  ReadyQueue() {
    for (int i = 0; i < LEVELS; i++) {
      levels.add(new ConcurrentLinkedQueue<>());
    }
  }

  static int clamp(int priority) {
    return Math.clamp(priority, 0, LEVELS - 1);
  }

  void offer(HostStream stream) {
    size.getAndIncrement();
    levels.get(stream.priority).offer(stream);
  }

  boolean isEmpty() {
    return size.get() == 0;
  }

  boolean hasAbove(int priority) {
    for (int level = LEVELS - 1; level > priority; level--) {
      if (!levels.get(level).isEmpty()) {
        return true;
      }
    }
    return false;
  }

  /**
   * @param pick the caller's count of picks
   */
  @Nullable HostStream poll(int pick) {
    if (isEmpty()) {
      return null;
    }
    boolean lowestFirst = Math.floorMod(pick, PICKS_UNTIL_LOWEST) == 0;
    for (int i = 0; i < LEVELS; i++) {
      HostStream stream = levels.get(lowestFirst ? i : LEVELS - 1 - i).poll();
      if (stream != null) {
        size.getAndDecrement();
        return stream;
      }
    }
    return null;
  }
}
