package io.fairlead.ffi.cuda;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * A graph, by nodes or by capture. The driver's graphs are not safe for two threads at once, so a
 * lock that spins is held around each call.
 *
 * <pre>
 * field        | writer       | reader       | mode, guard
 * nodes, count | who adds one | who adds one | lock
 * </pre>
 */
final class CudaGraph extends CudaObject {
  /** Makes the driver's node; answers its status. */
  interface Maker {
    int make(long node, long after, long count);
  }

  final long raw;
  private final CudaContext context;
  private final boolean captured;
  private final SpinLock lock = new SpinLock();
  private long[] nodes = new long[16];
  private int count;

  CudaGraph(CudaContext context, long raw, boolean captured) {
    this.context = context;
    this.raw = raw;
    this.captured = captured;
  }

  /** Adds a node behind others of this graph, and gives its number. The caller has entered. */
  int add(Arena arena, int[] after, String call, Maker maker) {
    if (captured) {
      throw Status.invalidValue("a captured graph takes no more nodes; capture them too");
    }
    if (IntStream.of(after).distinct().count() < after.length) {
      throw Status.invalidValue(
          "a node comes after each other one once, not after " + Arrays.toString(after));
    }
    MemorySegment node = arena.allocate(ValueLayout.JAVA_LONG);
    MemorySegment before = arena.allocate(ValueLayout.JAVA_LONG, Math.max(1, after.length));
    lock.lock();
    try {
      for (int i = 0; i < after.length; i++) {
        before.setAtIndex(ValueLayout.JAVA_LONG, i, node(after[i]));
      }
      context.check(maker.make(node.address(), before.address(), after.length), call);
      if (count == nodes.length) {
        nodes = Arrays.copyOf(nodes, 2 * count);
      }
      nodes[count] = node.get(ValueLayout.JAVA_LONG, 0);
      return count++;
    } finally {
      lock.unlock();
    }
  }

  private long node(int number) {
    if (number < 0 || number >= count) {
      throw Status.invalidValue(
          "there is no node " + number + " to come after; the graph has " + count);
    }
    return nodes[number];
  }

  /** The driver's executable. The caller has entered. */
  long instantiate() {
    Scratch scratch = Scratch.take();
    lock.lock();
    try {
      int status = context.api.graphs().instantiate(scratch.answer(), raw, 0);
      context.check(status, "cuGraphInstantiate");
      return scratch.longAnswer();
    } finally {
      lock.unlock();
      scratch.giveBack();
    }
  }

  @Override
  Kind kind() {
    return Kind.GRAPH;
  }

  @Override
  CudaContext context() {
    return context;
  }

  @Override
  void dispose() {
    context.disposing("cuGraphDestroy", () -> context.api.graphs().destroy(raw));
  }
}
