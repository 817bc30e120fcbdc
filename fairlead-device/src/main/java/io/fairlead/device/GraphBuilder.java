package io.fairlead.device;

import io.fairlead.device.spi.Graphs;
import io.fairlead.device.spi.Grid;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Makes a {@link DeviceGraph} node by node.
 *
 * <p>Order follows the data here too: a node comes after the earlier ones that wrote what it reads,
 * and after those that read or wrote what it writes, host memory included; what shares nothing may
 * run at the same time. {@link Node#after} adds to that.
 *
 * <p>One task at a time. Buffers, modules and host memory are held from their first mention; {@link
 * #close} lets go of them if no graph was built, and does nothing after that. Host memory is copied
 * again at each launch, so it must stay the graph's: the segment of a {@link HostBlock} may not be
 * closed before the graph.
 */
public final class GraphBuilder implements AutoCloseable {

  /** One operation of the graph. */
  public final class Node {
    private final int number = nodes.size();
    private final Maker maker;
    private final Set<Node> before = new LinkedHashSet<>();

    private Node(Maker maker) {
      this.maker = maker;
    }

    /**
     * Orders this node after others, which were added before it.
     *
     * @throws IllegalArgumentException if they are not earlier nodes of this graph
     */
    public Node after(Node... others) {
      requireOpen();
      for (Node other : others) {
        if (other.builder() != builder() || other.number >= number) {
          throw new IllegalArgumentException(
              "node "
                  + number
                  + " can only come after earlier nodes of graph '"
                  + name
                  + "'; add that one first");
        }
        before.add(other);
      }
      return this;
    }

    private GraphBuilder builder() {
      return GraphBuilder.this;
    }

    private int make(Graphs graphs, long graph) {
      return maker.make(graphs, graph, before.stream().mapToInt(node -> node.number).toArray());
    }
  }

  /** Adds one node to the driver's graph and answers its number. */
  interface Maker {
    int make(Graphs graphs, long graph, int[] after);
  }

  /** Who used one storage so far: the last writer, and who read since. */
  private static final class Uses {
    private @Nullable Node writer;
    private final List<Node> readers = new ArrayList<>();
  }

  /** Host memory that a node copies from or to. */
  private record HostUse(Node node, long begin, long end, boolean writes) {
    boolean conflicts(HostUse other) {
      return (writes || other.writes) && begin < other.end && other.begin < end;
    }
  }

  private final DeviceContext context;
  private final String name;
  private final Holdings holdings = new Holdings();
  private final List<Node> nodes = new ArrayList<>();
  private final Map<Long, Uses> uses = new HashMap<>();
  private final List<HostUse> hostUses = new ArrayList<>();
  private boolean closed;

  GraphBuilder(DeviceContext context, String name) {
    this.context = context;
    this.name = name;
  }

  /**
   * Adds a launch.
   *
   * @param args as {@link Kernel#launch(Grid, Object...)} takes them
   * @throws IllegalArgumentException that says what is wrong with an argument
   * @throws IllegalStateException if a buffer, the kernel's module or this builder was closed
   */
  public Node launch(Kernel kernel, Grid grid, @Nullable Object... args) {
    requireOpen();
    return kernel.addTo(this, grid, args);
  }

  /** Adds a copy to {@code target}, from {@code offset} on, of what the source holds then. */
  public Node copyToDevice(Operand target, long offset, MemorySegment source) {
    DeviceStream.requireRange("copy to device", target, offset, source.byteSize());
    long address = hold(target, Access.WRITE) + offset;
    Node node =
        add(
            new Operand[] {target},
            DeviceStream.WRITES,
            (graphs, graph, after) -> graphs.addCopyToDevice(graph, after, address, source));
    return host(node, source, false);
  }

  /** Adds a copy of {@code target.byteSize()} bytes from {@code source}, from {@code offset} on. */
  public Node copyToHost(MemorySegment target, Operand source, long offset) {
    DeviceStream.requireRange("copy to host", source, offset, target.byteSize());
    long address = hold(source, Access.READ) + offset;
    Node node =
        add(
            new Operand[] {source},
            DeviceStream.READS,
            (graphs, graph, after) -> graphs.addCopyToHost(graph, after, target, address));
    return host(node, target, true);
  }

  /** Adds a copy between device memories. */
  public Node copyOnDevice(
      Operand target, long targetOffset, Operand source, long sourceOffset, long bytes) {
    DeviceStream.requireRange("copy on device, target", target, targetOffset, bytes);
    DeviceStream.requireRange("copy on device, source", source, sourceOffset, bytes);
    long to = hold(target, Access.WRITE) + targetOffset;
    long from = hold(source, Access.READ) + sourceOffset;
    return add(
        new Operand[] {target, source},
        DeviceStream.WRITES_AND_READS,
        (graphs, graph, after) -> graphs.addCopyOnDevice(graph, after, to, from, bytes));
  }

  /** Adds setting {@code bytes} bytes to {@code value}. */
  public Node fill(Operand target, long offset, long bytes, byte value) {
    DeviceStream.requireRange("fill", target, offset, bytes);
    long address = hold(target, Access.WRITE) + offset;
    return add(
        new Operand[] {target},
        DeviceStream.WRITES,
        (graphs, graph, after) -> graphs.addFill(graph, after, address, bytes, value));
  }

  /** Adds a node that does nothing but come after others. */
  public Node join(Node... others) {
    return add(DeviceStream.NO_OPERANDS, DeviceStream.NO_ACCESSES, Graphs::addEmpty).after(others);
  }

  /**
   * Makes the graph, of at least no node; this builder is used up. Any thread that may wait; parks
   * for the owner.
   *
   * @throws DeviceException if the driver refuses
   */
  public DeviceGraph build() {
    requireOpen();
    closed = true;
    return DeviceGraph.make(context, name, nodes.size(), holdings, this::make, () -> {});
  }

  private long make(Graphs graphs) {
    long graph = graphs.create(context.nativeContext());
    try {
      for (Node node : nodes) {
        int number = node.make(graphs, graph);
        assert number == node.number : "nodes are numbered in the order in which they are added";
      }
      return graph;
    } catch (RuntimeException | Error failure) {
      graphs.destroyGraph(graph);
      throw failure;
    }
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      holdings.release();
    }
  }

  private void requireOpen() {
    if (closed) {
      throw new IllegalStateException(
          "the builder of graph '" + name + "' was closed or has built it; take a new one");
    }
  }

  // --- what nodes use ---------------------------------------------------------------------------

  /** Its address. Parks if it has to be brought back to the device. */
  long hold(Operand operand, Access access) {
    requireOpen();
    long address = holdings.hold(context, operand, access);
    while (address == Operand.AWAY) {
      try (var _ = operand.bringBack(context.stream(), new Operand[] {operand})) {
        address = holdings.hold(context, operand, access);
      }
    }
    return address;
  }

  void hold(Kernel kernel, KernelModule module) {
    if (module.context() != context) {
      throw new IllegalArgumentException(
          kernel + " was loaded on another device than graph '" + name + "'; load it there too");
    }
    holdings.hold(module.loaded());
    holdings.keep(module);
  }

  Node add(Operand[] operands, Access[] accesses, Maker maker) {
    requireOpen();
    Node node = new Node(Objects.requireNonNull(maker, "maker"));
    for (int i = 0; i < operands.length; i++) {
      comeAfterUses(node, uses.computeIfAbsent(operands[i].order(), _ -> new Uses()), accesses[i]);
    }
    for (int i = 0; i < operands.length; i++) {
      note(node, Objects.requireNonNull(uses.get(operands[i].order())), accesses[i]);
    }
    nodes.add(node);
    return node;
  }

  private static void comeAfterUses(Node node, Uses known, Access access) {
    if (known.writer != null) {
      node.before.add(known.writer);
    }
    if (access.writes()) {
      node.before.addAll(known.readers);
    }
  }

  /** A node that reads and writes one storage, by two operands, has written it in the end. */
  private static void note(Node node, Uses known, Access access) {
    if (access.writes()) {
      known.writer = node;
      known.readers.clear();
    } else if (known.writer != node) {
      known.readers.add(node);
    }
  }

  private Node host(Node node, MemorySegment memory, boolean writes) {
    long begin = memory.address();
    HostUse use = new HostUse(node, begin, begin + memory.byteSize(), writes);
    for (HostUse earlier : hostUses) {
      if (use.conflicts(earlier)) {
        node.before.add(earlier.node);
      }
    }
    hostUses.add(use);
    holdings.keep(memory);
    return node;
  }
}
