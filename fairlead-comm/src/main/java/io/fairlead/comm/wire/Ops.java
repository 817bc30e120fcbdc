package io.fairlead.comm.wire;

import java.util.Arrays;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The operations that a peer is to answer, by number. A number is used once: its lower half is a
 * place that is used again, its upper half counts how often, so that an answer to an operation that
 * is over, or to none, is told from a right one.
 */
final class Ops {
  private @Nullable Op[] ops = new @Nullable Op[64];
  private int[] uses = new int[64];
  private int[] free = new int[64];
  private int freeCount;
  private int made;
  private int live;

  long add(Op op) {
    int place = freeCount > 0 ? free[--freeCount] : made++;
    if (place == ops.length) {
      ops = Arrays.copyOf(ops, place * 2);
      uses = Arrays.copyOf(uses, place * 2);
      free = Arrays.copyOf(free, place * 2);
    }
    ops[place] = op;
    live++;
    return place | (long) uses[place] << 32;
  }

  /** The live operation of this number that this peer is to answer; null: there is none. */
  @Nullable Op find(long id, Peer peer) {
    int place = (int) id;
    if (place < 0 || place >= made || uses[place] != (int) (id >>> 32)) {
      return null;
    }
    Op op = ops[place];
    return op == null || op.peer != peer ? null : op;
  }

  /** Whether there once was an operation of this number, which is over: an answer came too late. */
  boolean isPast(long id) {
    int place = (int) id;
    return place >= 0 && place < made && id >= 0 && uses[place] > (int) (id >>> 32);
  }

  void remove(long id) {
    int place = (int) id;
    ops[place] = null;
    // Never negative: a number is then never mistaken for "none".
    uses[place] = uses[place] + 1 & Integer.MAX_VALUE;
    free[freeCount++] = place;
    live--;
  }

  int live() {
    return live;
  }

  /** Each live operation; {@code visit} may remove it. */
  void forEach(Consumer<Op> visit) {
    for (int place = 0; place < made; place++) {
      Op op = ops[place];
      if (op != null) {
        visit.accept(op);
      }
    }
  }
}
