package io.fairlead.cli.join;

import java.util.ArrayList;
import java.util.List;

/** A list of longs that grows without copying. Confined to who fills it; then only read. */
final class Longs {
  private static final int BLOCK_BITS = 16;
  private static final int BLOCK = 1 << BLOCK_BITS;

  private final List<long[]> blocks = new ArrayList<>();
  private long size;

  void add(long value) {
    int at = (int) (size & (BLOCK - 1));
    if (at == 0) {
      blocks.add(new long[BLOCK]);
    }
    blocks.getLast()[at] = value;
    size++;
  }

  long get(long index) {
    return blocks.get((int) (index >> BLOCK_BITS))[(int) (index & (BLOCK - 1))];
  }

  void set(long index, long value) {
    blocks.get((int) (index >> BLOCK_BITS))[(int) (index & (BLOCK - 1))] = value;
  }

  long size() {
    return size;
  }
}
