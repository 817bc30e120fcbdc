package io.fairlead.device;

import java.util.ArrayDeque;
import java.util.PriorityQueue;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * Waiters in order, the first one first. Almost all come in that order, and cost no more than a
 * place at the end; only who waits for less than the one before is sorted in. Confined to one
 * thread at a time.
 */
final class WaitLine<W extends Comparable<W>> {
  private final ArrayDeque<W> inOrder = new ArrayDeque<>();
  private final PriorityQueue<W> others = new PriorityQueue<>();

  void add(W waiter) {
    W last = inOrder.peekLast();
    if (last == null || last.compareTo(waiter) <= 0) {
      inOrder.addLast(waiter);
    } else {
      others.add(waiter);
    }
  }

  /** The first one, or null. */
  @Nullable W peek() {
    W one = inOrder.peekFirst();
    W other = others.peek();
    return other == null || (one != null && one.compareTo(other) <= 0) ? one : other;
  }

  /** Takes the first one, or gives null. */
  @Nullable W poll() {
    W other = others.peek();
    if (other != null) {
      W one = inOrder.peekFirst();
      if (one == null || one.compareTo(other) > 0) {
        return others.poll();
      }
    }
    return inOrder.pollFirst();
  }

  void removeIf(Predicate<W> gone) {
    inOrder.removeIf(gone);
    others.removeIf(gone);
  }

  int size() {
    return inOrder.size() + others.size();
  }

  boolean isEmpty() {
    return inOrder.isEmpty() && others.isEmpty();
  }
}
