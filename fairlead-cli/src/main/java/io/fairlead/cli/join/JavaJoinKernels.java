package io.fairlead.cli.join;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.util.Map;

/**
 * The join's kernels as Java code, for the host device. {@link JoinKernels} has their names and
 * parameters. The same in CUDA C++ is {@code join.cu}: what is changed here must change there.
 *
 * <p>Several workers run pieces of one launch at once, so what they share is changed by atomic
 * operations. All of those add, or take a free entry; the order in which they come changes where
 * rows and entries lie, and no sum.
 */
final class JavaJoinKernels {
  /** A word of a segment, by its offset in bytes. */
  private static final VarHandle WORD = JAVA_LONG.varHandle();

  private JavaJoinKernels() {}

  static final Map<String, JavaKernel> ALL =
      Map.of(
          JoinKernels.COUNT, JavaJoinKernels::count,
          JoinKernels.SCATTER, JavaJoinKernels::scatter,
          JoinKernels.CLEAR, JavaJoinKernels::clear,
          JoinKernels.BUILD, JavaJoinKernels::build,
          JoinKernels.PROBE, JavaJoinKernels::probe,
          JoinKernels.COLLECT, JavaJoinKernels::collect);

  /** A work item is a row. */
  private static void count(KernelArguments a, long begin, long end) {
    addAll(counted(a, begin, end), a.buffer(4));
  }

  private static long[] counted(KernelArguments a, long begin, long end) {
    MemorySegment rows = a.buffer(0);
    int words = a.i32(2);
    int bits = a.i32(3);
    long[] counts = new long[1 << bits];
    for (long row = begin; row < end; row++) {
      counts[KeyHash.partition(KeyHash.of(rows.getAtIndex(JAVA_LONG, row * words)), bits)]++;
    }
    return counts;
  }

  /** Adds, and leaves in {@code counts} what was there before. */
  private static void addAll(long[] counts, MemorySegment target) {
    for (int i = 0; i < counts.length; i++) {
      if (counts[i] != 0) {
        counts[i] = (long) WORD.getAndAdd(target, 8L * i, counts[i]);
      }
    }
  }

  /** A work item is a row; those of a piece find their places together. */
  private static void scatter(KernelArguments a, long begin, long end) {
    MemorySegment rows = a.buffer(0);
    int words = a.i32(2);
    int bits = a.i32(3);
    long[] next = counted(a, begin, end);
    addAll(next, a.buffer(4));
    MemorySegment sorted = a.buffer(5);
    for (long row = begin; row < end; row++) {
      long from = row * words;
      long hash = KeyHash.of(rows.getAtIndex(JAVA_LONG, from));
      long to = next[KeyHash.partition(hash, bits)]++ * words;
      for (int word = 0; word < words; word++) {
        sorted.setAtIndex(JAVA_LONG, to + word, rows.getAtIndex(JAVA_LONG, from + word));
      }
    }
  }

  /** A work item is an entry. */
  private static void clear(KernelArguments a, long begin, long end) {
    MemorySegment table = a.buffer(0);
    int stride = a.i32(2);
    for (long entry = begin; entry < end; entry++) {
      long at = entry * stride;
      table.setAtIndex(JAVA_LONG, at, JoinKernels.FREE);
      for (int word = 1; word < stride; word++) {
        table.setAtIndex(JAVA_LONG, at + word, 0);
      }
    }
  }

  /** A work item is a row of the left table. */
  private static void build(KernelArguments a, long begin, long end) {
    MemorySegment rows = a.buffer(0);
    int words = a.i32(2);
    Entries entries = new Entries(a);
    long probesMax = a.i64(7);
    MemorySegment counters = a.buffer(8);
    long taken = 0;
    for (long row = begin; row < end; row++) {
      long from = row * words;
      long at = entries.take(rows.getAtIndex(JAVA_LONG, from), probesMax);
      if (at < 0) {
        WORD.setOpaque(counters, 8L * JoinKernels.OVERFLOWED, 1L);
        return; // the host looks at that, and begins anew
      }
      if (entries.add(at, Groups.LEFT_ROWS, 1) == 0) {
        taken++;
      }
      entries.addRow(at, Groups.SUMS, rows, from, words);
    }
    long _ = (long) WORD.getAndAdd(counters, 8L * JoinKernels.TAKEN, taken);
  }

  /** A work item is a row of the right table. */
  private static void probe(KernelArguments a, long begin, long end) {
    MemorySegment rows = a.buffer(0);
    int words = a.i32(2);
    Entries entries = new Entries(a);
    int sums = entries.stride - (words - 1);
    for (long row = begin; row < end; row++) {
      long from = row * words;
      long at = entries.find(rows.getAtIndex(JAVA_LONG, from));
      if (at >= 0) {
        entries.add(at, Groups.RIGHT_ROWS, 1);
        entries.addRow(at, sums, rows, from, words);
      }
    }
  }

  /** A work item is an entry; the groups of a piece find their places together. */
  private static void collect(KernelArguments a, long begin, long end) {
    MemorySegment table = a.buffer(0);
    int stride = a.i32(2);
    long found = 0;
    for (long entry = begin; entry < end; entry++) {
      found += isGroup(table, entry * stride) ? 1 : 0;
    }
    MemorySegment groups = a.buffer(4);
    long to = (long) WORD.getAndAdd(a.buffer(3), 8L * JoinKernels.COLLECTED, found) * stride;
    for (long entry = begin; entry < end; entry++) {
      long from = entry * stride;
      if (isGroup(table, from)) {
        MemorySegment.copy(table, 8 * from, groups, 8 * to, 8L * stride);
        to += stride;
      }
    }
  }

  private static boolean isGroup(MemorySegment table, long at) {
    return table.getAtIndex(JAVA_LONG, at + Groups.LEFT_ROWS) > 0
        && table.getAtIndex(JAVA_LONG, at + Groups.RIGHT_ROWS) > 0;
  }

  /** The entries of a table, as arguments 3 to 6 say. */
  private static final class Entries {
    private final int bits;
    private final MemorySegment table;
    private final long capacity;
    final int stride;

    Entries(KernelArguments a) {
      bits = a.i32(3);
      table = a.buffer(4);
      capacity = a.i64(5);
      stride = a.i32(6);
    }

    /** Where the key's entry is, which is taken if there is none; negative if none is free. */
    long take(long key, long probesMax) {
      if (key == JoinKernels.FREE) {
        return capacity * stride; // its key is that already
      }
      long slot = KeyHash.slot(KeyHash.of(key), bits, capacity);
      for (long probe = 0; probe < probesMax; probe++) {
        long at = slot * stride;
        long there = (long) WORD.getOpaque(table, 8 * at);
        if (there == JoinKernels.FREE) {
          there = (long) WORD.compareAndExchange(table, 8 * at, JoinKernels.FREE, key);
        }
        if (there == key || there == JoinKernels.FREE) {
          return at;
        }
        slot = slot + 1 == capacity ? 0 : slot + 1;
      }
      return -1;
    }

    /** Where the key's entry is; negative if there is none. Nobody takes entries meanwhile. */
    long find(long key) {
      if (key == JoinKernels.FREE) {
        return capacity * stride;
      }
      long slot = KeyHash.slot(KeyHash.of(key), bits, capacity);
      for (long probe = 0; probe < capacity; probe++) {
        long there = table.getAtIndex(JAVA_LONG, slot * stride);
        if (there == key) {
          return slot * stride;
        }
        if (there == JoinKernels.FREE) {
          return -1;
        }
        slot = slot + 1 == capacity ? 0 : slot + 1;
      }
      return -1;
    }

    long add(long at, int word, long value) {
      return (long) WORD.getAndAdd(table, 8 * (at + word), value);
    }

    void addRow(long at, int sums, MemorySegment rows, long from, int words) {
      for (int word = 1; word < words; word++) {
        add(at, sums + word - 1, rows.getAtIndex(JAVA_LONG, from + word));
      }
    }
  }
}
