package io.fairlead.memory;

import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/**
 * A copy of a storage's bytes below the device, in pieces.
 *
 * <p>Whoever reads it counts: it begins with one reference, its storage's; the one that is given
 * back last gives the memory back. What a device still copies from or to then is lent again only
 * after that.
 */
abstract class Image {
  final long bytes;

  /**
   * What it is a copy of. Written by who makes it, before it is the storage's; read under that
   * one's lock.
   */
  long generation = -1;

  private final AtomicInteger references = new AtomicInteger(1);

  Image(long bytes) {
    this.bytes = bytes;
  }

  final void retain() {
    references.incrementAndGet();
  }

  /** Any thread; does not block. */
  final void release() {
    if (references.decrementAndGet() == 0) {
      drop();
    }
  }

  /** Whether nobody else reads it, of who took it out of its storage: nobody begins to, then. */
  final boolean isOnlyMine() {
    return references.get() == 1;
  }

  abstract Tier tier();

  /** It will be copied up on that stream: says what has to be read for that. Does not wait. */
  abstract void prepare(DeviceStream stream, ReadAhead ahead);

  /**
   * Enqueues copies of all of it to {@code address}. Parks for room on the stream, and for what has
   * to be read first.
   *
   * @param ahead which was told by {@link #prepare}, in the order of these calls
   * @param enqueued told of each, at once
   * @throws SpillException if it cannot be read
   */
  abstract void copyUp(DeviceStream stream, long address, ReadAhead ahead, Consumer<Mark> enqueued);

  /** Nobody reads it any more, except copies that were enqueued. */
  abstract void drop();
}
