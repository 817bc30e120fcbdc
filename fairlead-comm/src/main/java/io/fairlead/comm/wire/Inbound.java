package io.fairlead.comm.wire;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Bytes of a peer on their way to their place, in pieces, in order, a window of them at a time.
 *
 * <pre>
 * WAITING → LANDING   a bulk tag and memory are free: a window of receives is posted, then TAKE goes
 * LANDING → landed    every piece came
 *         → nothing   the first piece was empty: the sender took it back
 *         → broken    a piece was short: the sender cannot read its memory
 * </pre>
 *
 * <p>Whenever the oldest piece has ended the next is posted; nothing else is needed for that, so
 * the sender can count on it. After a short piece no more are posted, and those that are come
 * empty: {@link Outbound} sends as many.
 */
abstract class Inbound {
  final Rank rank;
  final Peer peer;
  final Channel channel;
  private final long id;
  private final long[] runs;
  private final boolean staged;
  private final Plan plan;
  private final long pieceBytes;
  private final Cursor posts;
  private final Cursor copies;
  private final Piece[] window;
  private int tag = -1;
  private long posted;
  private long ended;
  private boolean isShort;
  private boolean first = true;
  private boolean discarding;
  private @Nullable TransportException fault;
  private boolean withdrawn;

  /** For {@link Landings}. */
  boolean live;

  /**
   * @param id the operation that the sender offered
   * @param runs checked: not negative, not empty in sum, no overflow
   * @param into as long as the runs; each a piece of its own if there are several runs
   * @param staged the sender must copy the bytes through memory of its own
   */
  Inbound(
      Rank rank,
      Peer peer,
      Channel channel,
      long id,
      long[] runs,
      MemorySegment[] into,
      boolean staged) {
    this.rank = rank;
    this.peer = peer;
    this.channel = channel;
    this.id = id;
    this.runs = runs;
    boolean matching = runs.length == into.length || Cursor.single(into);
    this.staged = !matching || !Cursor.allNative(into);
    long most = rank.wire.bulkBytesMax();
    this.pieceBytes = staged || this.staged ? Math.min(Rank.STAGED_PIECE, most) : most;
    this.plan = new Plan(runs, pieceBytes);
    this.posts = new Cursor(into);
    this.copies = new Cursor(into);
    this.window = new Piece[(int) Math.min(Rank.WINDOW, plan.count())];
    for (int i = 0; i < window.length; i++) {
      window[i] = new Piece();
    }
  }

  /** All came. */
  abstract void landed();

  /** Nothing came: the sender took it back. */
  abstract void nothing();

  /** Nothing of use came. */
  abstract void broken(TransportException cause);

  /** Nobody wants the bytes any more; what is their own memory of is written no more. */
  final boolean discard() {
    discarding = staged;
    return staged;
  }

  /** Whether it is the sender who had no bytes. */
  final boolean isShort() {
    return isShort;
  }

  final int tag() {
    return tag;
  }

  /** The most memory that the window needs. */
  final long stagingBytes() {
    long longest = 0;
    for (long run : runs) {
      longest = Math.max(longest, Math.min(run, pieceBytes));
    }
    return staged ? longest : 0;
  }

  final int windowLength() {
    return window.length;
  }

  /** With a tag, and a block for each of the window if the bytes pass through such. */
  final void begin(int newTag, Blocks.@Nullable Block[] blocks) {
    tag = newTag;
    for (int i = 0; i < window.length; i++) {
      window[i].block = blocks.length == 0 ? null : blocks[i];
    }
    for (Piece piece : window) {
      post(piece);
    }
    peer.control(Kind.TAKE, 0, Plan.print(runs), tag, pieceBytes, id);
  }

  private void post(Piece piece) {
    long bytes = plan.next();
    piece.bytes = bytes;
    piece.ended = false;
    Blocks.Block block = piece.block;
    MemorySegment memory;
    if (block != null) {
      posts.skip(bytes);
      memory = block.memory.asSlice(0, bytes);
    } else {
      MemorySegment direct = posts.direct(bytes);
      if (direct == null) {
        throw new AssertionError("a piece of " + bytes + " bytes lies in several segments");
      }
      memory = direct;
    }
    posted++;
    rank.wire.receiveBulk(peer.rank, tag, memory, piece);
  }

  private void retire() {
    while (ended < posted) {
      Piece oldest = window[(int) (ended % window.length)];
      if (!oldest.ended) {
        return;
      }
      ended++;
      retire(oldest);
    }
    if (isShort || ended == plan.count()) {
      finish();
    }
  }

  private void retire(Piece piece) {
    boolean beginning = first;
    first = false;
    if (isShort) {
      return;
    }
    if (piece.came != piece.bytes) {
      isShort = true;
      withdrawn = beginning && piece.came == 0;
      return;
    }
    copy(piece);
    if (posted < plan.count()) {
      post(piece);
    }
  }

  private void copy(Piece piece) {
    Blocks.Block block = piece.block;
    if (block == null || discarding) {
      return;
    }
    try {
      copies.copyFrom(block.memory, 0, piece.bytes);
    } catch (RuntimeException e) {
      fault = Faults.unreachable(peer.rank, rank.number, e);
      discarding = true;
    }
  }

  private void finish() {
    rank.landings().ended(this);
    if (withdrawn) {
      nothing();
    } else if (isShort) {
      broken(
          Faults.memory(
              "rank " + peer.rank + " could not read the memory that its message was in"));
    } else if (fault != null) {
      broken(fault);
    } else {
      landed();
    }
  }

  /** Gives the blocks of the window back. */
  final void giveBlocks(Blocks blocks) {
    for (Piece piece : window) {
      Blocks.Block block = piece.block;
      if (block != null) {
        piece.block = null;
        blocks.give(block);
      }
    }
  }

  /** One receive of the window. */
  private final class Piece extends Transfer {
    private long bytes;
    private long came;
    private boolean ended;
    private Blocks.@Nullable Block block;

    @Override
    public void done(long count) {
      if (!live) {
        // The world is over, and whoever waited was told.
        return;
      }
      came = count;
      ended = true;
      retire();
    }

    @Override
    public void failed(Throwable cause) {
      // The sender may send on: the two cannot agree any more.
      rank.fail(
          new TransportException(
              Reason.PEER_FAILED,
              "receiving from rank " + peer.rank + " failed: " + cause.getMessage(),
              cause));
    }
  }
}
