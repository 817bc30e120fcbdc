package io.fairlead.memory;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Requests of a {@link Budget} in the order in which they came. Any one of them may leave, and the
 * first that wants no more than so much is found, in as many steps as the number of them has bits:
 * for each byte that comes back somebody looks, and very many may wait.
 *
 * <p>A tree of the least that is wanted: that of slot {@code i} is at {@code slots.length + i},
 * that of a pair at half of its index. Slots are given in order; those of who has left stay empty
 * until all move up.
 *
 * <p>Guarded by the lock of the budget.
 */
final class Line {
  private static final int SLOTS_MIN = 16;

  /** As many as hardly ever wait are there for the next ones, too. */
  private static final int SLOTS_KEPT = 1 << 10;

  private static final long NOBODY = Long.MAX_VALUE;

  private Budget.@Nullable Request[] slots = new Budget.Request[SLOTS_MIN];
  private long[] least = nobody(SLOTS_MIN);

  /** Nobody is at this slot, or behind it. */
  private int end;

  private int size;

  /** Slots and nodes that were looked at; for tests. */
  private long steps;

  /**
   * @param wanted what it may be granted for at the earliest
   */
  void add(Budget.Request request, long wanted) {
    if (end == slots.length) {
      moveUp();
    }
    request.line = this;
    request.slot = end;
    slots[end] = request;
    size++;
    put(end++, wanted);
  }

  /** From now on it may be granted for so much. */
  void change(Budget.Request request, long wanted) {
    put(request.slot, wanted);
  }

  /** Whether it was here. */
  @SuppressWarnings("ReferenceEquality") // it stands in one line at a time
  boolean remove(Budget.Request request) {
    if (request.line != this) {
      return false;
    }
    slots[request.slot] = null;
    put(request.slot, NOBODY);
    request.line = null;
    if (--size == 0) {
      reset();
    }
    return true;
  }

  int size() {
    return size;
  }

  /** Who came first of those that are here. */
  Budget.@Nullable Request peek() {
    return firstUpTo(NOBODY, 0);
  }

  /** Who came next after it, which is still here. */
  Budget.@Nullable Request after(Budget.Request request) {
    int next = request.slot + 1;
    steps++;
    boolean isThere = next < end && slots[next] != null;
    return isThere ? slots[next] : firstUpTo(NOBODY, next);
  }

  /**
   * The first that may be granted for so much.
   *
   * @param from the slot to begin with: the next after that of the last one
   */
  Budget.@Nullable Request firstUpTo(long bytes, int from) {
    if (from >= end) {
      return null;
    }
    long most = Math.min(bytes, NOBODY - 1);
    int node = slots.length + from;
    while (least[node] > most) {
      while ((node & 1) == 1) { // the last of its pair
        steps++;
        if (node == 1) {
          return null;
        }
        node >>= 1;
      }
      node++;
    }
    while (node < slots.length) {
      steps++;
      node = 2 * node;
      if (least[node] > most) {
        node++;
      }
    }
    return slots[node - slots.length];
  }

  void forEach(Consumer<Budget.Request> action) {
    for (int i = 0; i < end; i++) {
      Budget.Request request = slots[i];
      if (request != null) {
        action.accept(request);
      }
    }
    steps += end;
  }

  List<Budget.Request> toList() {
    List<Budget.Request> all = new ArrayList<>(size);
    forEach(all::add);
    return all;
  }

  List<Budget.Request> clear() {
    List<Budget.Request> all = toList();
    for (Budget.Request request : all) {
      request.line = null;
    }
    size = 0;
    slots = new Budget.Request[SLOTS_MIN];
    least = nobody(SLOTS_MIN);
    reset();
    return all;
  }

  /** Of an empty one. */
  private void reset() {
    end = 0;
    if (slots.length > SLOTS_KEPT) {
      slots = new Budget.Request[SLOTS_MIN];
      least = nobody(SLOTS_MIN);
    }
  }

  long steps() {
    return steps;
  }

  private void put(int slot, long wanted) {
    int node = slots.length + slot;
    least[node] = wanted;
    while (node > 1) {
      steps++;
      node >>= 1;
      long before = least[node];
      least[node] = Math.min(least[2 * node], least[2 * node + 1]);
      if (least[node] == before) {
        return;
      }
    }
  }

  /** Into twice as many slots as there are requests: so each has made room for that by coming. */
  private void moveUp() {
    Budget.@Nullable Request[] before = slots;
    long[] wanted = least;
    int length = SLOTS_MIN;
    while (length < 2 * size) {
      length *= 2;
    }
    slots = new Budget.Request[length];
    least = nobody(length);
    int to = 0;
    for (int i = 0; i < end; i++) {
      Budget.Request request = before[i];
      if (request != null) {
        request.slot = to;
        slots[to] = request;
        least[length + to] = wanted[before.length + i];
        to++;
      }
    }
    for (int node = length - 1; node > 0; node--) {
      least[node] = Math.min(least[2 * node], least[2 * node + 1]);
    }
    steps += end;
    end = to;
  }

  private static long[] nobody(int length) {
    long[] least = new long[2 * length];
    Arrays.fill(least, NOBODY);
    return least;
  }
}
