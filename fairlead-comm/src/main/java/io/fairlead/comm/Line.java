package io.fairlead.comm;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.Entry.Way;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * What was sent to one peer with one tag and waits for a gate, or behind one that does, in the
 * order in which it was sent.
 *
 * <p>The first is posted once its gate is open, and then whoever stands behind it. One thread at a
 * time posts, so that the order is kept: the first who calls for it; who calls meanwhile leaves
 * word, and the poster looks again. Nobody waits for anybody. So if the first of a line is not
 * waiting for its gate, somebody posts, or is called to.
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>first, last, Gated.before, behind</td><td>senders, who posts</td><td>same</td><td>the lock of
 *       {@link GatedSends}</td></tr>
 *   <tr><td>calls</td><td>who calls, who posts</td><td>same</td><td>getAndIncrement: 0 → 1 makes
 *       the poster, who goes on until he has taken all calls back</td></tr>
 * </table>
 */
final class Line {

  /** Whose order is kept: one peer and one tag, or one handler there. */
  record Key(Operation operation, int peer, int tag) {}

  /** Null: of a single one that keeps no order with others. */
  final @Nullable Key key;

  @Nullable Gated first;
  private @Nullable Gated last;
  private final CommEngine engine;
  private final GatedSends sends;
  private final AtomicInteger calls = new AtomicInteger();

  Line(CommEngine engine, GatedSends sends, @Nullable Key key) {
    this.engine = engine;
    this.sends = sends;
    this.key = key;
  }

  /** Under the lock. True if nobody stands in front of it. */
  boolean add(Gated gated) {
    Gated before = last;
    last = gated;
    if (before == null) {
      first = gated;
      return true;
    }
    before.behind = gated;
    gated.before = before;
    return false;
  }

  /** Under the lock: the first has left; answers who is first now. */
  @Nullable Gated advance() {
    Gated left = first;
    Gated next = null;
    if (left != null) {
      next = left.behind;
      left.behind = null; // its gate may keep it, if that never opens
    }
    if (next != null) {
      next.before = null;
    }
    first = next;
    if (next == null) {
      last = null;
    }
    return next;
  }

  /**
   * Under the lock: takes out one that is over and not the first, which only {@link #advance} may
   * move on, since somebody may be posting it. Else it would stay until those before it have left,
   * whose gates may never open.
   *
   * @return false: it is the first
   */
  boolean remove(Gated over) {
    Gated before = over.before;
    if (before == null) {
      return false;
    }
    Gated behind = over.behind;
    before.behind = behind;
    if (behind == null) {
      last = before;
    } else {
      behind.before = before;
    }
    over.before = null;
    over.behind = null;
    return true;
  }

  /**
   * The node may be posted, or stands in nobody's way any more; it was never queued for the loop.
   * Any thread; never waits where that is not allowed.
   */
  void call(Gated node, Operation operation) {
    if (calls.getAndIncrement() > 0) {
      return;
    }
    if (!node.queues && engine.way(operation) == Way.INLINE) {
      post(false);
    } else {
      engine.counters.shifted.increment();
      engine.loop().push(node);
    }
  }

  /** Under the lock. For tests. */
  int length() {
    int length = 0;
    for (Gated at = first; at != null; at = at.behind) {
      length++;
    }
    return length;
  }

  /**
   * By who was called, where the transport may be entered.
   *
   * @param queued whether that came through the queue of the loop
   */
  void post(boolean queued) {
    int taken = calls.get();
    do {
      Gated gated = sends.first(this);
      while (gated != null && !gated.isWaiting()) {
        if (gated.queues && !queued) {
          engine.loop().push(new CommEngine.Entering(() -> post(true)));
          return;
        }
        engine.enter(gated);
        gated = sends.advance(this);
      }
      taken = calls.addAndGet(-taken);
    } while (taken > 0);
  }
}
