package io.fairlead.comm;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicReference;

/**
 * All-reduce (and, of no values, barrier): every rank ends with the same bits, because whoever
 * combines does so in rank order.
 *
 * <p>Three ways to bring the values together, by size alone, so that all ranks choose alike:
 *
 * <ul>
 *   <li><b>direct</b>, up to {@link #DIRECT_RANKS} ranks: each rank sends all its values to each
 *       other and combines all of them itself. One message time.
 *   <li><b>sliced</b>, for {@link #SLICED_VALUES} values a rank or more: rank r combines the r-th
 *       slice of the values and sends it to the others. Each value crosses twice, whatever the
 *       number of ranks.
 *   <li><b>tree</b>, else: the values are gathered uncombined along a binomial tree, since
 *       combining on the way would depend on the tree; rank 0 combines and the result goes back.
 * </ul>
 *
 * @param <A> the type of the array that holds the values
 */
final class Reduction<A> extends Collective {
  /** 16 ranks: 240 small messages, no more than a tree's latency of 8 hops costs on a few cores. */
  static final int DIRECT_RANKS = 16;

  /** 512 values, 4 KiB, a rank: from there on the bytes cost more than the messages. */
  static final int SLICED_VALUES = 512;

  private enum Way {
    DIRECT,
    SLICED,
    TREE
  }

  private final Elements<A> elements;
  private final A values;
  private final int length;
  private final ReduceOp op;
  private final AtomicReference<Object> spare;
  private final Way way;
  private final MemorySegment own;

  /** Room for the values of all ranks; the own values while there are no others. */
  private A others;

  private int step;

  Reduction(
      CommEngine engine,
      int channel,
      int sequence,
      String name,
      Elements<A> elements,
      A values,
      ReduceOp op,
      AtomicReference<Object> spare) {
    super(engine, channel, sequence, name);
    this.elements = elements;
    this.values = values;
    this.length = elements.length(values);
    this.op = op;
    this.spare = spare;
    this.own = elements.segment(values);
    this.others = values;
    this.way = way(size, length);
  }

  private static Way way(int size, int length) {
    if (size > 2 && length / size >= SLICED_VALUES) {
      return Way.SLICED;
    }
    return size <= DIRECT_RANKS ? Way.DIRECT : Way.TREE;
  }

  @Override
  void round() {
    int now = step++;
    switch (way) {
      case DIRECT -> direct(now);
      case SLICED -> sliced(now);
      case TREE -> tree(now);
    }
  }

  // --- direct -----------------------------------------------------------------------------------

  private void direct(int now) {
    if (now == 0 && size > 1) {
      exchange(0, length);
      return;
    }
    combine(0, length);
    finish();
  }

  /** Receives this rank's slice from all others; sends each of them its slice, or the whole. */
  private void exchange(int from, int count) {
    others = scratch((long) size * count);
    MemorySegment places = elements.segment(others);
    for (int distance = 1; distance < size; distance++) {
      int source = (rank - distance + size) % size;
      receive(source, places.asSlice(bytes((long) source * count), bytes(count)));
    }
    for (int distance = 1; distance < size; distance++) {
      int target = (rank + distance) % size;
      send(target, way == Way.SLICED ? slice(target) : own.asSlice(bytes(from), bytes(count)));
    }
  }

  /** Combines what lies in {@code others}, in rank order, with the own values at {@code from}. */
  private void combine(int from, int count) {
    if (size == 1) {
      return;
    }
    // The own values take their place in the row, so that the order is the ranks'.
    System.arraycopy(values, from, others, rank * count, count);
    for (int other = 1; other < size; other++) {
      elements.combine(op, others, others, other * count, count);
    }
    System.arraycopy(others, 0, values, from, count);
  }

  // --- sliced -----------------------------------------------------------------------------------

  private void sliced(int now) {
    int from = start(rank);
    int count = start(rank + 1) - from;
    switch (now) {
      case 0 -> exchange(from, count);
      case 1 -> {
        combine(from, count);
        share();
      }
      default -> finish();
    }
  }

  private void share() {
    for (int distance = 1; distance < size; distance++) {
      int source = (rank - distance + size) % size;
      receive(source, slice(source));
    }
    for (int distance = 1; distance < size; distance++) {
      send((rank + distance) % size, slice(rank));
    }
  }

  private int start(int slice) {
    return (int) ((long) length * slice / size);
  }

  private MemorySegment slice(int slice) {
    int from = start(slice);
    return own.asSlice(bytes(from), bytes(start(slice + 1) - from));
  }

  // --- tree -------------------------------------------------------------------------------------

  private void tree(int now) {
    switch (now) {
      case 0 -> {
        others = scratch((long) size * length);
        System.arraycopy(values, 0, others, rank * length, length);
        receiveFromChildren();
        if (isLeaf()) {
          sendToParent();
          receive(Binomial.parent(rank), own);
        }
      }
      case 1 -> {
        if (rank == 0) {
          combine(0, length);
          sendToChildren();
        } else if (isLeaf()) {
          finish();
        } else {
          sendToParent();
          receive(Binomial.parent(rank), own);
        }
      }
      case 2 -> {
        if (rank == 0) {
          finish();
        } else {
          sendToChildren();
        }
      }
      default -> finish();
    }
  }

  private boolean isLeaf() {
    return Binomial.children(rank, size).length == 0;
  }

  private void receiveFromChildren() {
    for (int child : Binomial.children(rank, size)) {
      receive(child, subtree(child));
    }
  }

  private void sendToParent() {
    send(Binomial.parent(rank), subtree(rank));
  }

  private void sendToChildren() {
    for (int child : Binomial.children(rank, size)) {
      send(child, own);
    }
  }

  /** The places of a rank and all below it: neighbours, since the tree is binomial. */
  private MemorySegment subtree(int top) {
    int ranks = Binomial.subtree(top, size);
    return elements
        .segment(others)
        .asSlice(bytes((long) top * length), bytes((long) ranks * length));
  }

  // --- memory -----------------------------------------------------------------------------------

  /** What the last reduction of this kind left, if it is long enough. */
  @SuppressWarnings("unchecked") // looked at before
  private A scratch(long needed) {
    if (needed > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException(
          "an all-reduce of "
              + length
              + " values over "
              + size
              + " ranks is too long: reduce it in parts");
    }
    Object kept = spare.getAndSet(Elements.NONE);
    return kept.getClass() == values.getClass() && elements.length((A) kept) >= needed
        ? (A) kept
        : elements.make((int) needed);
  }

  private void finish() {
    if (size > 1) {
      spare.set(others);
    }
    done();
  }

  private long bytes(long count) {
    return count * elements.bytes;
  }
}
