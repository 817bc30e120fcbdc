package io.fairlead.device;

import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A piece of pinned memory, as a pool keeps account of it: a region, as the driver pinned it, or a
 * half of another piece. Pieces are halved and put together again as the buddy system does (K. C.
 * Knowlton, A fast storage allocator, CACM 8(10), 1965): in powers of two, and a piece only with
 * the other half of the same one.
 *
 * <pre>
 * FREE  → LENT    it is lent, and whoever has the slot has it        (pool: PENDING counts as LENT)
 * LENT  → FREE    it was given back, and its uses have ended
 * FREE  → HALVED  its halves are FREE now; made with the first time, kept from then on
 * HALVED → FREE   both halves were FREE, and are PART now
 * PART  → FREE    the whole is halved again
 * </pre>
 *
 * <pre>
 * field               | writer                  | reader              | guard
 * idle, isFree, left, | the pool                | the pool            | its lock
 * right               |                         |                     |
 * takenAt             | who takes and gives     | the cleaner, owner  | volatile
 * </pre>
 *
 * <p>Does not keep a lent slot alive, so that the collector finds one that was dropped.
 */
final class PinnedPiece {
  final HostBlocks pool;
  final MemorySegment memory;
  final int sizeClass;

  /** Whether its region is for small blocks. */
  final boolean isOfSmall;

  final @Nullable PinnedPiece whole;

  /** Where it was taken, while it is lent; volatile: the cleaner and the owner read it. */
  volatile @Nullable String takenAt;

  /** Null while it is lent. */
  private HostBlocks.@Nullable Slot idle;

  /** Whether it is in a list of free ones. */
  private boolean isFree;

  private @Nullable PinnedPiece left;
  private @Nullable PinnedPiece right;

  /** A region. */
  PinnedPiece(HostBlocks pool, MemorySegment memory, int sizeClass, boolean isOfSmall) {
    this.pool = pool;
    this.memory = memory;
    this.sizeClass = sizeClass;
    this.isOfSmall = isOfSmall;
    this.whole = null;
  }

  private PinnedPiece(PinnedPiece whole, MemorySegment half) {
    this.pool = whole.pool;
    this.memory = half;
    this.sizeClass = whole.sizeClass - 1;
    this.isOfSmall = whole.isOfSmall;
    this.whole = whole;
  }

  /** It is not lent any more. */
  void idle(HostBlocks.Slot slot) {
    idle = slot;
  }

  /** FREE → LENT. */
  void lend() {
    idle = null;
  }

  /**
   * It is in a list of free ones from now on, or no more.
   *
   * @return the whole, if the other half of it is there, too
   */
  @Nullable PinnedPiece setFree(boolean on) {
    isFree = on;
    PinnedPiece of = whole;
    if (of == null || of.left == null || of.right == null) {
      return null;
    }
    return (of.left == this ? of.right : of.left).isFree ? of : null;
  }

  boolean isFree() {
    return isFree;
  }

  /** FREE → HALVED; the right half is handed over. Returns the left one; both are idle. */
  HostBlocks.Slot halve(Consumer<HostBlocks.Slot> rest) {
    if (left == null || right == null) {
      long half = memory.byteSize() / 2;
      left = half(memory.asSlice(0, half));
      right = half(memory.asSlice(half, half));
    }
    rest.accept(right.slot());
    return left.slot();
  }

  private PinnedPiece half(MemorySegment part) {
    PinnedPiece half = new PinnedPiece(this, part);
    half.idle = new HostBlocks.Slot(half);
    return half;
  }

  /** Of an idle one. */
  HostBlocks.Slot slot() {
    return Objects.requireNonNull(idle, "it is lent");
  }

  HostBlocks.Slot leftSlot() {
    return Objects.requireNonNull(left).slot();
  }

  HostBlocks.Slot rightSlot() {
    return Objects.requireNonNull(right).slot();
  }

  /** Itself and all pieces that it was halved to. */
  void eachPiece(Consumer<PinnedPiece> action) {
    action.accept(this);
    if (left != null && right != null) {
      left.eachPiece(action);
      right.eachPiece(action);
    }
  }

  /** The slot was collected: if it was lent, nobody can close it any more. The cleaner. */
  void dropped() {
    String lentAt = takenAt;
    if (lentAt != null) {
      pool.dropped(this, lentAt);
    }
  }

  @Override
  public String toString() {
    return "host block of " + memory.byteSize() + " bytes";
  }
}
