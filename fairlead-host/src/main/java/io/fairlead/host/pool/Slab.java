package io.fairlead.host.pool;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.jspecify.annotations.Nullable;

/**
 * One piece of real memory behind a run of device addresses, and the map from addresses to blocks.
 *
 * <table>
 * <caption>Shared state</caption>
 * <tr><th>field</th><th>written by</th><th>read by</th><th>mode</th></tr>
 * <tr><td>starts, covers</td><td>the pool, under its lock</td><td>any caller</td>
 *     <td>release / acquire: whoever finds a block must see all of it</td></tr>
 * <tr><td>first</td><td colspan="3">guarded by the pool's lock</td></tr>
 * </table>
 */
final class Slab {
  static final int GRANULE_BITS = 8;
  static final long GRANULE = 1L << GRANULE_BITS;

  /** Granules for each page of the map: 1,024, so that a page is 256 KiB of device memory. */
  private static final int PAGE_BITS = 10;

  private static final int PAGE = 1 << PAGE_BITS;

  final long base;
  final long bytes;
  final MemorySegment memory;
  final Chunk first;
  private final Arena arena;

  /** For each page, the blocks that begin in it; made when the first one does. */
  private final AtomicReferenceArray<@Nullable AtomicReferenceArray<@Nullable Block>> starts;

  /** For each page, the block that began before it and reaches into it. */
  private final AtomicReferenceArray<@Nullable Block> covers;

  Slab(long base, Arena arena, MemorySegment memory) {
    this.base = base;
    this.arena = arena;
    this.memory = memory;
    this.bytes = memory.byteSize();
    long granules = bytes >>> GRANULE_BITS;
    int pages = Math.toIntExact((granules + PAGE - 1) >>> PAGE_BITS);
    this.starts = new AtomicReferenceArray<>(pages);
    this.covers = new AtomicReferenceArray<>(pages);
    this.first = new Chunk(this, 0, granules);
  }

  /** Whether all of it is one chunk that anybody may use. */
  boolean isFree() {
    return first.index != null && first.pendingOf == null && first.after == null;
  }

  long address(long granule) {
    return base + (granule << GRANULE_BITS);
  }

  void map(Chunk chunk, Block block) {
    starts(chunk).setRelease((int) chunk.start & (PAGE - 1), block);
    cover(chunk, block);
  }

  void unmap(Chunk chunk) {
    starts(chunk).setRelease((int) chunk.start & (PAGE - 1), null);
    cover(chunk, null);
  }

  private AtomicReferenceArray<@Nullable Block> starts(Chunk chunk) {
    int page = (int) (chunk.start >>> PAGE_BITS);
    AtomicReferenceArray<@Nullable Block> found = starts.getPlain(page);
    if (found == null) {
      found = new AtomicReferenceArray<>(PAGE);
      starts.setRelease(page, found);
    }
    return found;
  }

  private void cover(Chunk chunk, @Nullable Block block) {
    int last = (int) ((chunk.start + chunk.granules - 1) >>> PAGE_BITS);
    for (int page = (int) (chunk.start >>> PAGE_BITS) + 1; page <= last; page++) {
      covers.setRelease(page, block);
    }
  }

  /** The block that holds the address, or null. Any thread, no lock. */
  @Nullable Block find(long address) {
    long granule = (address - base) >>> GRANULE_BITS;
    int page = (int) (granule >>> PAGE_BITS);
    Block block = lastStart(page, (int) granule & (PAGE - 1));
    if (block == null) {
      block = covers.getAcquire(page);
    }
    return block != null && block.contains(address) ? block : null;
  }

  private @Nullable Block lastStart(int page, int from) {
    AtomicReferenceArray<@Nullable Block> found = starts.getAcquire(page);
    if (found == null) {
      return null;
    }
    for (int i = from; i >= 0; i--) {
      Block block = found.getAcquire(i);
      if (block != null) {
        return block;
      }
    }
    return null;
  }

  void close() {
    arena.close();
  }
}
