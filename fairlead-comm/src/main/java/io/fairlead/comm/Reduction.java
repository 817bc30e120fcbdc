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
 */
final class Reduction extends Collective {
  /** 16 ranks: 240 small messages, no more than a tree's latency of 8 hops costs on a few cores. */
  static final int DIRECT_RANKS = 16;

  /** 512 values, 4 KiB, a rank: from there on the bytes cost more than the messages. */
  static final int SLICED_VALUES = 512;

  private enum Way {
    DIRECT,
    SLICED,
    TREE
  }

  private final double[] values;
  private final ReduceOp op;
  private final AtomicReference<double[]> spare;
  private final Way way;
  private final MemorySegment own;
  private double[] others = {};
  private int step;

  Reduction(
      CommEngine engine,
      int channel,
      int sequence,
      String name,
      double[] values,
      ReduceOp op,
      AtomicReference<double[]> spare) {
    super(engine, channel, sequence, name);
    this.values = values;
    this.op = op;
    this.spare = spare;
    this.own = MemorySegment.ofArray(values);
    this.way = way(size, values.length);
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
      exchange(0, values.length);
      return;
    }
    combine(0, values.length);
    finish();
  }

  /** Receives this rank's slice from all others; sends each of them its slice, or the whole. */
  private void exchange(int from, int count) {
    others = scratch((long) size * count);
    MemorySegment places = MemorySegment.ofArray(others);
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
      op.combine(others, 0, others, other * count, count);
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
    return (int) ((long) values.length * slice / size);
  }

  private MemorySegment slice(int slice) {
    int from = start(slice);
    return own.asSlice(bytes(from), bytes(start(slice + 1) - from));
  }

  // --- tree -------------------------------------------------------------------------------------

  private void tree(int now) {
    switch (now) {
      case 0 -> {
        others = scratch((long) size * values.length);
        System.arraycopy(values, 0, others, rank * values.length, values.length);
        receiveFromChildren();
        if (isLeaf()) {
          sendToParent();
          receive(Binomial.parent(rank), own);
        }
      }
      case 1 -> {
        if (rank == 0) {
          combine(0, values.length);
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
    return MemorySegment.ofArray(others)
        .asSlice(bytes((long) top * values.length), bytes((long) ranks * values.length));
  }

  // --- memory -----------------------------------------------------------------------------------

  private double[] scratch(long length) {
    if (length > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException(
          "an all-reduce of " + values.length + " values over " + size + " ranks is too long");
    }
    double[] kept = spare.getAndSet(NONE);
    return kept.length >= length ? kept : new double[(int) length];
  }

  private void finish() {
    spare.set(others);
    done();
  }

  static final double[] NONE = {};

  private static long bytes(long values) {
    return values * Double.BYTES;
  }
}
