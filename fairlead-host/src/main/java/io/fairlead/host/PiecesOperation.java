package io.fairlead.host;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.host.pool.Block;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** Copies of many pieces between host and device, as one operation. */
final class PiecesOperation extends RangeOperation {
  /** As for one large copy. */
  private static final long GRAIN_BYTES = 1L << 20;

  private static final MemorySegment[] NO_MEMORY = {};
  private static final TransferOperation.Side[] NO_SIDES = {};

  private final int count;
  private final long bytes;
  private final boolean down;
  private MemorySegment[] hosts;
  private TransferOperation.Side[] devices;
  private int added;

  /**
   * @param bytes of all of them
   * @param down to the host
   */
  PiecesOperation(int count, long bytes, boolean down) {
    super(null); // each piece says itself what is wrong with it
    this.count = count;
    this.bytes = bytes;
    this.down = down;
    this.hosts = new MemorySegment[count];
    this.devices = new TransferOperation.Side[count];
  }

  /** As many as were announced, before it is enqueued. */
  void add(MemorySegment host, TransferOperation.Side device) {
    hosts[added] = host;
    devices[added] = device;
    added++;
  }

  @Override
  long items() {
    return count;
  }

  @Override
  long grain() {
    return Math.max(1, GRAIN_BYTES * count / Math.max(1, bytes));
  }

  @Override
  void piece(long begin, long end) {
    for (int i = (int) begin; i < end; i++) {
      MemorySegment device = devices[i].memory();
      if (device != null) {
        MemorySegment host = hosts[i];
        (down ? host : device).copyFrom(down ? device : host);
      }
    }
  }

  /** All of them before the first is copied, as a kernel's buffers are. */
  @Override
  void checkBlocks() {
    for (int i = 0; i < count; i++) {
      TransferOperation.Side device = devices[i];
      Block block = device.block();
      String late = block == null ? null : block.misuse();
      String wrong = device.misuse() != null ? device.misuse() : wrong(block, late);
      if (wrong != null) {
        throw Status.fatal(DriverException.ILLEGAL_ADDRESS, describe() + ": " + wrong, null)
            .ofPiece(i, count);
      }
    }
  }

  private static @Nullable String wrong(@Nullable Block block, @Nullable String misuse) {
    return block == null || misuse == null
        ? null
        : "block "
            + Status.hex(block.address())
            + " was used "
            + misuse
            + "; order the streams with an event";
  }

  @Override
  void drop() {
    hosts = NO_MEMORY;
    devices = NO_SIDES;
  }

  @Override
  DriverCall call() {
    return DriverCall.COPY;
  }

  @Override
  String describe() {
    return (down ? "copy to host of " : "copy to device of ")
        + count
        + " pieces, "
        + bytes
        + " bytes";
  }
}
