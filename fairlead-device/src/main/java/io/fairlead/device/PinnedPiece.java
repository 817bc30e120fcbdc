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

  /** LENT → FREE. */
  void free(HostBlocks.Slot slot) {
    idle = slot;
    isFree = true;
  }

  /** FREE → LENT. */
  void lend() {
    idle = null;
    isFree = false;
  }

  /** FREE → HALVED; the right half is handed over. Returns the left one, which is FREE as well. */
  HostBlocks.Slot halve(Consumer<HostBlocks.Slot> rest) {
    isFree = false;
    if (left == null || right == null) {
      long half = memory.byteSize() / 2;
      left = half(memory.asSlice(0, half));
      right = half(memory.asSlice(half, half));
    }
    rest.accept(right.becomesFree());
    return left.becomesFree();
  }

  private PinnedPiece half(MemorySegment part) {
    PinnedPiece half = new PinnedPiece(this, part);
    half.idle = new HostBlocks.Slot(half);
    return half;
  }

  private HostBlocks.Slot becomesFree() {
    isFree = true;
    return Objects.requireNonNull(idle, "a part is lent");
  }

  /** The other half, if both are FREE and so can be put together. */
  HostBlocks.@Nullable Slot freeOther() {
    PinnedPiece of = whole;
    if (!isFree || of == null || of.left == null || of.right == null) {
      return null;
    }
    PinnedPiece other = of.left == this ? of.right : of.left;
    return other.isFree ? other.idle : null;
  }

  /** Both halves of {@link #whole} are FREE: it is again, and they are parts of it. */
  HostBlocks.Slot putTogether() {
    PinnedPiece of = Objects.requireNonNull(whole);
    Objects.requireNonNull(of.left).isFree = false;
    Objects.requireNonNull(of.right).isFree = false;
    return of.becomesFree();
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
