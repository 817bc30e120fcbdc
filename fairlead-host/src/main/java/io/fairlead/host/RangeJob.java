package io.fairlead.host;

import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * A range operation that several workers share.
 *
 * <p>Each worker has its own part of the range and takes pieces of it first, then of the others':
 * the same worker meets the same items in launch after launch, which keeps its caches warm. Whoever
 * ends the last piece owns the stream from then on; nobody waits for anybody.
 *
 * <table>
 * <caption>Shared state</caption>
 * <tr><th>field</th><th>written by</th><th>read by</th><th>mode</th></tr>
 * <tr><td>next</td><td>whoever takes a piece</td><td>the same</td><td>get and add</td></tr>
 * <tr><td>unfinished</td><td>whoever ended pieces</td><td>the same</td><td>add and get: the last
 *     one must see what all pieces wrote</td></tr>
 * </table>
 */
final class RangeJob {
  /** Enough to even out workers that start late, few enough to stay cheap. */
  private static final int PIECES_PER_WORKER = 8;

  /** A cache line between counters, in longs. */
  private static final int LINE = 8;

  final HostStream stream;
  final RangeOperation operation;
  final long startNanos = System.nanoTime();
  private final int parts;
  private final long pieces;
  private final long pieceItems;
  private final long items;
  private final AtomicLongArray next;
  private final AtomicLong unfinished;

  RangeJob(HostStream stream, RangeOperation operation, int workers) {
    this.stream = stream;
    this.operation = operation;
    this.parts = workers;
    this.items = operation.items();
    long most = Math.min(items / operation.grain(), (long) workers * PIECES_PER_WORKER);
    this.pieceItems = Math.ceilDiv(items, most);
    this.pieces = Math.ceilDiv(items, pieceItems);
    this.unfinished = new AtomicLong(pieces);
    this.next = new AtomicLongArray(workers * LINE);
    for (int part = 0; part < workers; part++) {
      next.setPlain(part * LINE, begin(part)); // published with the job
    }
  }

  private long begin(int part) {
    return pieces * part / parts;
  }

  /** Runs pieces until there is none to take; true if the caller ended the last one of all. */
  boolean work(int worker) {
    long done = 0;
    for (int i = 0; i < parts; i++) {
      int part = worker + i < parts ? worker + i : worker + i - parts;
      done += workOn(part);
    }
    return done > 0 && unfinished.addAndGet(-done) == 0;
  }

  private long workOn(int part) {
    long end = begin(part + 1);
    long done = 0;
    while (next.get(part * LINE) < end) {
      long piece = next.getAndIncrement(part * LINE);
      if (piece < end) {
        run(piece);
        done++;
      }
    }
    return done;
  }

  private void run(long piece) {
    HostContext context = stream.context();
    if (context.isLost()) {
      return;
    }
    long begin = piece * pieceItems;
    try {
      operation.piece(begin, Math.min(items, begin + pieceItems));
    } catch (Throwable t) { // whatever a kernel throws is its context's fault, not the worker's end
      context.lose(Fault.of(t, stream, operation));
    }
  }
}
