package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Mark;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.function.Consumer;

/**
 * An image in pinned host memory. The pieces are told of every copy, so they are lent again only
 * after it has ended.
 */
final class HostImage extends Image {
  private static final Access[] READ = {Access.READ};

  private final HostTier tier;
  private final List<HostBlock> pieces;

  HostImage(HostTier tier, long bytes, List<HostBlock> pieces) {
    super(bytes);
    this.tier = tier;
    this.pieces = pieces;
  }

  @Override
  Tier tier() {
    return Tier.HOST;
  }

  int pieces() {
    return pieces.size();
  }

  /** Of an image that is one piece. */
  MemorySegment memory() {
    return pieces.getFirst().segment();
  }

  /** It is copied from or to up to there. */
  void usedUntil(Mark mark) {
    for (HostBlock piece : pieces) {
      usedUntil(piece, mark);
    }
  }

  /**
   * Whether the next image of the same bytes may be made in its place, of who took it out of its
   * storage: as if it were dropped, and its blocks taken again.
   */
  boolean mayBeMadeAnew() {
    if (!isOnlyMine()) { // first: who has read it has told of that before letting go
      return false;
    }
    for (HostBlock piece : pieces) {
      if (!piece.isUnused()) {
        return false;
      }
    }
    return true;
  }

  private long offset(int piece) {
    long offset = 0;
    for (int i = 0; i < piece; i++) {
      offset += pieces.get(i).bytes();
    }
    return offset;
  }

  /** Enqueues the copy of a piece from a storage that is being copied. */
  long copyDown(int piece, DeviceStream stream, Operand source) {
    HostBlock block = pieces.get(piece);
    MemorySegment target = block.segment();
    long offset = offset(piece);
    Driver driver = stream.context().driver();
    long sequence =
        stream.enqueue(
            DriverCall.COPY,
            "spill",
            new Operand[] {source},
            READ,
            (handle, addresses) -> driver.copyToHost(handle, target, addresses[0] + offset));
    usedUntil(block, new Mark(stream, sequence));
    return sequence;
  }

  private static void usedUntil(HostBlock block, Mark mark) {
    if (!Mutant.on("spill.image.early")) {
      block.usedUntil(mark);
    }
  }

  @Override
  void prepare(DeviceStream stream, ReadAhead ahead) {}

  @Override
  void copyUp(DeviceStream stream, long address, ReadAhead ahead, Consumer<Mark> enqueued) {
    Driver driver = stream.context().driver();
    long target = address;
    for (HostBlock piece : pieces) {
      long begin = target;
      MemorySegment source = piece.segment();
      long sequence =
          stream.enqueue(
              DriverCall.COPY,
              "bring back",
              (handle, none) -> driver.copyToDevice(handle, begin, source));
      Mark mark = new Mark(stream, sequence);
      usedUntil(piece, mark);
      enqueued.accept(mark);
      target += piece.bytes();
    }
  }

  /** Hands a piece to be written; the image has to be kept until that has ended. */
  Completion<Void> writeTo(Writing file, int piece) {
    return file.write(offset(piece), pieces.get(piece).segment());
  }

  @Override
  void drop() {
    for (HostBlock piece : pieces) {
      close(piece);
    }
    tier.dropped(this);
  }

  private static void close(HostBlock piece) {
    try {
      piece.close();
    } catch (DeviceException unknown) {
      // nobody knows when its copies end: it goes with the context
    }
  }
}
