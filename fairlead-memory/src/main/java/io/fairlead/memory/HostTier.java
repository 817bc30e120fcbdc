package io.fairlead.memory;

import io.fairlead.device.HostBlock;
import io.fairlead.device.HostBlocks;
import io.fairlead.device.OutOfDeviceMemoryException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Images in pinned host memory: pieces of a pool of the context's that has nothing else to do.
 *
 * <p>Pieces are powers of two, as the pool has them: an image of at least a chunk is made of
 * chunks, but of fewer than {@link #PIECES_MAX} and what is left behind them, since each is an
 * operation of a stream; unless there is room for smaller pieces only.
 *
 * <p>Any thread; does not wait for blocks, but the driver may take its time to pin them.
 */
final class HostTier {
  /**
   * Each piece costs the link some microseconds; with fewer, nothing of an image is there early.
   */
  private static final int PIECES_MAX = 8;

  /** A page; the pool has nothing smaller. */
  private static final long PIECE_MIN = 4096;

  /** Small enough to split what is left behind chunks, large enough for a disk to be fast. */
  private static final long UNIT_MAX = 64 << 10;

  /** Who takes blocks, for reports. */
  private static final String USER = "images of spilled buffers";

  private final HostBlocks blocks;
  private final long bytesMax;
  private final long chunkBytes;
  private final MemoryFailures failures;
  private final AtomicLong requests = new AtomicLong();
  private final AtomicLong bytes = new AtomicLong();

  HostTier(HostBlocks blocks, long bytesMax, long chunkBytes, MemoryFailures failures) {
    this.blocks = blocks;
    this.bytesMax = bytesMax;
    this.failures = failures;
    this.chunkBytes = Math.max(PIECE_MIN, Long.highestOneBit(chunkBytes));
  }

  /** Room for a copy; null if there is none now, not even in pieces of a chunk. */
  @Nullable HostImage begin(long size) {
    HostImage image = null;
    for (long piece = pieceBytes(size); image == null && piece >= chunkBytes; piece /= 2) {
      image = begin(size, piece);
    }
    return image;
  }

  private @Nullable HostImage begin(long size, long pieceBytes) {
    List<HostBlock> pieces = new ArrayList<>();
    boolean complete = false;
    try {
      for (long piece : split(size, pieceBytes)) {
        refuseOnPurpose(piece);
        HostBlock block = blocks.tryTake(piece, USER);
        if (block == null) {
          return null;
        }
        pieces.add(block);
      }
      complete = true;
    } finally {
      if (!complete) {
        pieces.forEach(HostBlock::close);
      }
    }
    bytes.addAndGet(size);
    return new HostImage(this, size, pieces);
  }

  private void refuseOnPurpose(long piece) {
    if (failures.isAny() && failures.isDue(requests.incrementAndGet())) {
      throw new OutOfDeviceMemoryException(
          Sizes.text(piece) + " of pinned memory are refused on purpose", "pin", 0, null);
    }
  }

  private long pieceBytes(long size) {
    long piece = chunkBytes;
    while (size / piece >= PIECES_MAX) {
      piece *= 2;
    }
    return piece;
  }

  /** The sizes of its pieces. What is left behind whole ones goes into one or two. */
  private List<Long> split(long size, long piece) {
    List<Long> pieces = new ArrayList<>();
    long left = size;
    for (; left >= piece; left -= piece) {
      pieces.add(piece);
    }
    long half = Long.highestOneBit(left);
    if (left > unitBytes() && left != half && left <= half + half / 2) {
      pieces.add(half);
      left -= half;
    }
    if (left > 0) {
      pieces.add(left);
    }
    return pieces;
  }

  /** Whether there is so much more room once the device has done with what was given back. */
  boolean comes(long size) {
    return blocks.isPending(size);
  }

  /** Every piece but the last is a multiple of this, for files. */
  long unitBytes() {
    return Math.min(chunkBytes, UNIT_MAX);
  }

  long chunkBytes() {
    return chunkBytes;
  }

  void dropped(HostImage image) {
    bytes.addAndGet(-image.bytes);
  }

  /** Most bytes of pinned memory. */
  long max() {
    return bytesMax;
  }

  /** Bytes of images. */
  long bytes() {
    return bytes.get();
  }
}
