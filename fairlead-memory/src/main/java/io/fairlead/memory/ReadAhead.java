package io.fairlead.memory;

import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.HostBlocks;
import io.fairlead.device.Mark;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;

/**
 * Reads images in files into pinned blocks, chunk by chunk in the order in which they are copied
 * up, and some chunks ahead of that: over the end of an image to the next one, so that the disk has
 * something to do meanwhile.
 *
 * <p>A block is used by the disk until its read has settled, and by the device until its copy has
 * ended; it goes back after both. Who waits for a block here has none: what is ahead takes only
 * those that are free. Nor should it wait for anything else but the device while it has any.
 *
 * <p>Used by one task.
 */
final class ReadAhead implements AutoCloseable {
  /** Enough for all threads of a disk, while as many are copied. */
  private static final int CHUNKS_MAX = 8;

  private final ArrayDeque<Source> sources = new ArrayDeque<>();
  private final ArrayDeque<Reading> ahead = new ArrayDeque<>();

  /** In the first of the sources: what is read next. */
  private long offset;

  private record Source(FileImage image, HostBlocks blocks) {
    long length(long offset) {
      return Math.min(image.chunkBytes, image.bytes - offset);
    }
  }

  /** This image will be copied up after those that were added before. */
  void add(FileImage image, HostBlocks blocks) {
    sources.addLast(new Source(image, blocks));
  }

  /** Begins what can be begun. Does not wait. */
  void begin() {
    while (!sources.isEmpty() && ahead.size() < CHUNKS_MAX) {
      Source source = sources.getFirst();
      HostBlock block = source.blocks.tryTake(source.length(offset));
      if (block == null) {
        return;
      }
      read(source, block);
    }
  }

  /** The next chunk of all, which the caller copies or gives up. Parks for a block if need be. */
  Reading next() {
    if (ahead.isEmpty()) {
      Source source = sources.getFirst();
      read(source, source.blocks.take(source.length(offset)));
    }
    begin();
    return ahead.removeFirst();
  }

  private void read(Source source, HostBlock block) {
    MemorySegment memory = block.segment();
    try {
      ahead.addLast(new Reading(block, memory, source.image.read(offset, memory)));
    } catch (RuntimeException | Error refused) {
      block.close();
      throw refused;
    }
    offset += memory.byteSize();
    if (offset == source.image.bytes) {
      sources.removeFirst();
      offset = 0;
    }
  }

  /** Gives up what nobody has asked for. */
  @Override
  public void close() {
    sources.clear();
    ahead.forEach(Reading::giveUp);
    ahead.clear();
  }

  /** A chunk on its way. */
  record Reading(HostBlock block, MemorySegment memory, Completion<Void> read) {
    long bytes() {
      return memory.byteSize();
    }

    /** Parks until it is read, and for room on the stream. */
    Mark copyTo(long target, DeviceStream stream, Driver driver) {
      boolean enqueued = false;
      try {
        read.await();
        Mark mark =
            new Mark(
                stream,
                stream.enqueue(
                    DriverCall.COPY,
                    "bring back",
                    (handle, none) -> driver.copyToDevice(handle, target, memory)));
        enqueued = true;
        block.closeAfter(mark);
        return mark;
      } finally {
        if (!enqueued) {
          giveUp();
        }
      }
    }

    /** The disk may write to it still. */
    private void giveUp() {
      read.onDone(_ -> block.close());
    }
  }
}
