package io.fairlead.host;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.host.pool.Block;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** Copies between and within host and device, and fills. */
final class TransferOperation extends RangeOperation {
  /** About 100 µs of one core's memory bandwidth: far above what sharing costs. */
  private static final long GRAIN = 1L << 20;

  private final DriverCall call;
  private final String what;
  private final long bytes;
  private final long grain;

  /** Bytes of what is filled in, 1 for copies. */
  private final int width;

  private final int pattern;
  private @Nullable MemorySegment target;
  private @Nullable MemorySegment source;
  private final @Nullable Block targetBlock;
  private final @Nullable Block sourceBlock;

  private TransferOperation(
      DriverCall call, String what, long bytes, Side to, Side from, int width, int pattern) {
    super(to.misuse != null ? to.misuse : from.misuse);
    this.call = call;
    this.what = what;
    this.bytes = bytes;
    this.width = width;
    this.pattern = pattern;
    this.target = to.memory;
    this.source = from.memory;
    this.targetBlock = to.block;
    this.sourceBlock = from.block;
    // Pieces of a copy onto itself would overwrite each other's source.
    this.grain =
        targetBlock != null && targetBlock == sourceBlock ? Math.max(1, bytes) : GRAIN / width;
  }

  /** One end of a transfer. */
  record Side(@Nullable MemorySegment memory, @Nullable Block block, @Nullable String misuse) {
    static final Side NONE = new Side(null, null, null);

    static Side host(MemorySegment memory) {
      return new Side(memory, null, null);
    }

    /** A range that begins in a block and ends beyond it is found out late, as on a GPU. */
    static Side device(Block block, long address, long bytes) {
      return block.holds(address, bytes)
          ? new Side(block.slice(address, bytes), block, null)
          : new Side(
              null,
              block,
              bytes
                  + " bytes at "
                  + Status.hex(address)
                  + " go beyond their block of "
                  + block.bytes()
                  + " bytes");
    }
  }

  static TransferOperation copy(String what, long bytes, Side to, Side from) {
    return new TransferOperation(DriverCall.COPY, what, bytes, to, from, 1, 0);
  }

  static TransferOperation copyPeer(long bytes, Side to, Side from) {
    return new TransferOperation(
        DriverCall.PEER_COPY, "copy between devices", bytes, to, from, 1, 0);
  }

  static TransferOperation fill(long bytes, Side to, int width, int pattern) {
    return new TransferOperation(DriverCall.FILL, "fill", bytes, to, Side.NONE, width, pattern);
  }

  @Override
  long items() {
    return bytes / width;
  }

  @Override
  long grain() {
    return grain;
  }

  @Override
  void piece(long begin, long end) {
    MemorySegment to = target;
    MemorySegment from = source;
    if (to == null) {
      return;
    }
    if (from == null) {
      fill(to, begin, end);
    } else {
      MemorySegment.copy(from, begin, to, begin, end - begin);
    }
  }

  private void fill(MemorySegment to, long begin, long end) {
    switch (width) {
      case 1 -> to.asSlice(begin, end - begin).fill((byte) pattern);
      case Short.BYTES -> {
        for (long i = begin; i < end; i++) {
          to.setAtIndex(JAVA_SHORT, i, (short) pattern);
        }
      }
      default -> {
        for (long i = begin; i < end; i++) {
          to.setAtIndex(JAVA_INT, i, pattern);
        }
      }
    }
  }

  @Override
  void checkBlocks() {
    check(targetBlock);
    check(sourceBlock);
  }

  @Override
  void drop() {
    target = null;
    source = null;
  }

  @Override
  DriverCall call() {
    return call;
  }

  @Override
  String describe() {
    return what + " of " + bytes + " bytes";
  }
}
