package io.fairlead.host;

import io.fairlead.device.spi.DriverException;
import io.fairlead.host.pool.Block;
import org.jspecify.annotations.Nullable;

/**
 * Work over a range of items that several workers may share: kernels, copies, fills.
 *
 * <p>Every block it uses was looked up when it was enqueued, since the map of addresses follows the
 * order of the calls; whether the block may be used is looked up when it runs.
 */
abstract class RangeOperation extends Operation {
  /** What the caller got wrong in a way that a GPU finds out late; null if nothing. */
  private final @Nullable String misuse;

  RangeOperation(@Nullable String misuse) {
    this.misuse = misuse;
  }

  abstract long items();

  /** The fewest items worth giving to another worker. */
  abstract long grain();

  abstract void piece(long begin, long end);

  /** Whether the driver counts its time as kernel time. */
  boolean isKernel() {
    return false;
  }

  /** Refuses blocks that may not be used now. */
  abstract void checkBlocks();

  final void check(@Nullable Block block) {
    String wrong = block == null ? null : block.misuse();
    if (wrong != null && block != null) {
      throw Status.fatal(
          DriverException.ILLEGAL_ADDRESS,
          describe()
              + " used block "
              + Status.hex(block.address())
              + " "
              + wrong
              + "; order the streams with an event",
          null);
    }
  }

  final void check() {
    if (misuse != null) {
      throw Status.fatal(DriverException.ILLEGAL_ADDRESS, describe() + ": " + misuse, null);
    }
    checkBlocks();
  }

  @Override
  final boolean run(HostStream stream, @Nullable Worker worker) {
    check();
    long items = items();
    if (items == 0) {
      return true;
    }
    if (worker != null && items / grain() > 1 && worker.mayShare()) {
      return worker.share(stream, this);
    }
    piece(0, items);
    return true;
  }
}
