package io.fairlead.device;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Graphs;
import io.fairlead.task.Collected;
import io.fairlead.task.Retired;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

/**
 * Work of one device that was written down once, by {@link DeviceContext#capture} or a {@link
 * GraphBuilder}, and is launched as often as wanted: many short operations for the price of one.
 *
 * <p>A launch is one operation of its stream, and takes as much of the room for unfinished ones as
 * the operations that it stands for, up to half of it. To the ledger it reads and writes all that
 * the graph does, so it is ordered like any other use of those buffers; launches of one graph
 * follow each other, on whichever streams. The graph holds its buffers and modules: one that is
 * closed before the graph stays until the graph is gone, but a graph with a closed buffer is not
 * launched.
 *
 * <p>Any thread. Belongs to whoever made it; closing it takes effect once its launches have ended.
 * A dropped one is closed by the collector, and reported; the context closes what is left.
 */
public final class DeviceGraph implements AutoCloseable {
  private final Executable executable;
  private final Cleaner.Cleanable cleanable;

  private DeviceGraph(Executable executable) {
    this.executable = executable;
    Executable core = executable;
    this.cleanable = Collected.register(this, core::dropped);
  }

  /** What makes the driver's graph, for {@link #make}. */
  interface Maker {
    long make(Graphs graphs);
  }

  /** Of a graph that was captured. */
  static DeviceGraph of(DeviceContext context, Capture capture, long graph) {
    return make(
        context,
        capture.name,
        capture.operations,
        capture.holdings,
        _ -> graph,
        () -> drop(context, graph));
  }

  /**
   * The owner makes it. Waits. If it is not made, the holdings are released.
   *
   * @param unmade what to do if the maker was not even asked
   */
  static DeviceGraph make(
      DeviceContext context,
      String name,
      int operations,
      Holdings holdings,
      Maker maker,
      Runnable unmade) {
    String madeAt = CallSite.here();
    boolean[] asked = {false};
    try {
      return new DeviceGraph(
          context.onOwner(
              "make graph " + name,
              () -> {
                asked[0] = true;
                return executable(context, name, operations, holdings, maker, madeAt);
              }));
    } catch (RuntimeException | Error failure) {
      if (!asked[0]) {
        unmade.run();
      }
      holdings.release();
      throw failure;
    }
  }

  /** Owner only, so a context that closes comes before or after. */
  private static Executable executable(
      DeviceContext context,
      String name,
      int operations,
      Holdings holdings,
      Maker maker,
      String madeAt) {
    long handle =
        context.driverCall(
            DriverCall.GRAPH_BUILD,
            "make graph " + name,
            () -> instantiate(context.driver().graphs(), maker));
    Executable made = new Executable(context, name, handle, operations, holdings, madeAt);
    context.graphs().remember(made);
    return made;
  }

  private static long instantiate(Graphs graphs, Maker maker) {
    long graph = maker.make(graphs);
    try {
      return graphs.instantiate(graph);
    } finally {
      graphs.destroyGraph(graph);
    }
  }

  /** Lets go of a driver's graph that nothing is made of. */
  static void drop(DeviceContext context, long graph) {
    context.owner().retire(new Dropped(context, graph));
  }

  public String name() {
    return executable.name;
  }

  public DeviceContext context() {
    return executable.context;
  }

  /** As {@link #launch(DeviceStream)}, on the current task's stream. */
  public void launch() {
    launch(executable.context.stream());
  }

  /**
   * Enqueues all of it on the stream, as one operation. Does not wait for the device; parks the
   * task while the stream has too many unfinished operations, as {@link DeviceStream#enqueue} does.
   *
   * @return the position of its end
   * @throws DeviceException if the driver refuses
   * @throws IllegalArgumentException if the stream is another device's
   * @throws IllegalStateException if the graph, one of its buffers or the stream was closed
   */
  public Mark launch(DeviceStream stream) {
    if (stream.context() != executable.context) {
      throw new IllegalArgumentException(
          this + " was made on another device than " + stream + "; make one there too");
    }
    try {
      return new Mark(stream, executable.launch(stream));
    } finally {
      // the cleaner must not find it dropped while it is being launched
      Reference.reachabilityFence(this);
    }
  }

  /**
   * Refuses further launches, and destroys the graph once those that were enqueued have ended. Does
   * not wait for the device; a second call does nothing.
   */
  @Override
  public void close() {
    executable.close();
    cleanable.clean();
  }

  @Override
  public String toString() {
    return "graph '" + name() + "' of device " + context().ordinal();
  }

  private static final class Dropped extends Retired {
    private final DeviceContext context;
    private final long graph;

    Dropped(DeviceContext context, long graph) {
      this.context = context;
      this.graph = graph;
    }

    @Override
    protected void release() {
      context.quietly(
          DriverCall.GRAPH_DESTROY,
          "destroy a graph that was given up",
          () -> context.driver().graphs().destroyGraph(graph));
    }
  }
}
