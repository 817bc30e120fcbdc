package io.fairlead.comm.wire;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.Deque;
import org.jspecify.annotations.Nullable;

/**
 * The bytes of one operation on their way, in pieces, in order, a window of them at a time.
 *
 * <p>The receiver has posted a window of receives and posts another whenever one has ended, so each
 * piece meets a receive sooner or later. If the bytes cannot be had (any more), the next piece is
 * sent short, see {@link #lament}, and then as many empty ones as the receiver will have posted, so
 * that nothing is left of this transfer under its tag.
 */
final class Outbound {
  private static final MemorySegment NOTHING = Arena.global().allocate(64, 64).asSlice(0, 0);
  private static final MemorySegment ONE = Arena.global().allocate(64, 64).asSlice(0, 1);

  private final Rank rank;
  private final Departures departures;
  private final Op op;
  private final int tag;
  private final Plan plan;
  private final Cursor cursor;
  private final Deque<Piece> free = new ArrayDeque<>(Rank.WINDOW);
  private long posted;
  private int outstanding;

  /** A length that was planned and waits for memory; 0: none. */
  private long planned;

  private boolean over;
  private @Nullable TransportException fault;

  Outbound(Rank rank, Departures departures, Op op, int tag, long piece) {
    this.rank = rank;
    this.departures = departures;
    this.op = op;
    this.tag = tag;
    this.plan = new Plan(op.runs, piece);
    this.cursor = new Cursor(op.pieces);
  }

  void begin() {
    if (op.isWithdrawn()) {
      op.drop();
      lament(false);
    } else if (!Cursor.reachable(op.pieces, false)) {
      lament(Faults.unreachable(rank.number, op.peer.rank, null));
    } else {
      pump();
    }
    endIfDone();
  }

  /** Goes on after waiting for memory. */
  void resume() {
    pump();
    endIfDone();
  }

  private void pump() {
    if (op.isOver() && !over && posted < plan.count()) {
      // Whoever asked was told that it failed, and the memory is his again.
      lament(false);
    }
    while (!over && posted < plan.count() && outstanding < Rank.WINDOW) {
      long bytes = planned > 0 ? planned : plan.next();
      planned = bytes;
      MemorySegment memory = cursor.direct(bytes);
      Piece piece = free.isEmpty() ? new Piece() : free.pop();
      if (memory == null) {
        memory = stage(piece, bytes);
      }
      if (memory == null) {
        free.push(piece);
        return;
      }
      planned = 0;
      post(piece, memory);
    }
  }

  /** The bytes in memory of our own; null: there is none, or they cannot be read. */
  private @Nullable MemorySegment stage(Piece piece, long bytes) {
    Blocks.Block block = rank.sendStaging.tryTake(bytes);
    if (block == null) {
      departures.awaitStaging(this);
      return null;
    }
    try {
      cursor.copyTo(block.memory, 0, bytes);
    } catch (RuntimeException e) {
      rank.sendStaging.give(block);
      lament(Faults.unreachable(rank.number, op.peer.rank, e));
      return null;
    }
    piece.block = block;
    return block.memory.asSlice(0, bytes);
  }

  private void post(Piece piece, MemorySegment memory) {
    posted++;
    outstanding++;
    rank.wire.sendBulk(op.peer.rank, tag, memory, piece);
  }

  private void lament(TransportException cause) {
    fault = cause;
    lament(true);
  }

  /**
   * Says that there are no (more) bytes: by an empty piece, or, if a send cannot be read from the
   * beginning on, by a piece of one byte; a first piece of a send is always longer.
   */
  private void lament(boolean fault) {
    over = true;
    boolean one = fault && posted == 0 && op.kind != Frame.MESSAGE;
    long rest = plan.count() - posted - 1;
    post(new Piece(), one ? ONE : NOTHING);
    for (long i = Math.min(rest, Rank.WINDOW - 1); i > 0; i--) {
      post(new Piece(), NOTHING);
    }
  }

  private void endIfDone() {
    if (outstanding == 0 && (over || posted == plan.count())) {
      over = true;
      departures.sent(op, fault);
    }
  }

  /** One piece on its way. */
  private final class Piece extends Transfer {
    private Blocks.@Nullable Block block;

    @Override
    public void done(long bytes) {
      end();
      pump();
      endIfDone();
    }

    @Override
    public void failed(Throwable cause) {
      // The receiver waits for a piece that never comes: the two cannot agree any more.
      rank.fail(
          new TransportException(
              Reason.PEER_FAILED,
              "sending to rank " + op.peer.rank + " failed: " + cause.getMessage(),
              cause));
      end();
      endIfDone();
    }

    private void end() {
      outstanding--;
      Blocks.Block used = block;
      if (used != null) {
        block = null;
        rank.sendStaging.give(used);
        departures.stagingGiven();
      }
      free.push(this);
    }
  }
}
