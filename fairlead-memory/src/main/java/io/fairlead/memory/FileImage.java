package io.fairlead.memory;

import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.device.spi.Driver;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.util.function.Consumer;

/** An image in a file. It comes up through the pinned blocks of the context, a chunk at a time. */
final class FileImage extends Image {
  /** How much is read at once; whole pieces of the file. */
  final long chunkBytes;

  private final DiskImage file;

  FileImage(DiskImage file, long chunkBytes) {
    super(file.bytes());
    this.file = file;
    this.chunkBytes = chunkBytes;
    this.generation = file.generation();
  }

  @Override
  Tier tier() {
    return Tier.DISK;
  }

  @Override
  void prepare(DeviceStream stream, ReadAhead ahead) {
    ahead.add(this, stream.context().hostBlocks());
  }

  Completion<Void> read(long offset, MemorySegment into) {
    return file.read(offset, into);
  }

  @Override
  void copyUp(DeviceStream stream, long address, ReadAhead ahead, Consumer<Mark> enqueued) {
    Driver driver = stream.context().driver();
    for (long offset = 0; offset < bytes; ) {
      ReadAhead.Reading chunk = ahead.next();
      enqueued.accept(chunk.copyTo(address + offset, stream, driver));
      offset += chunk.bytes();
    }
  }

  @Override
  void drop() {
    file.close();
  }
}
