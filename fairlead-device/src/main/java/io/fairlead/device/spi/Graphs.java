package io.fairlead.device.spi;

import java.lang.foreign.MemorySegment;

/**
 * Work that is written down once and launched often: CUDA's graphs, in few calls.
 *
 * <p>A <b>graph</b> is what a capture wrote down, or nodes with what each comes after. An
 * <b>executable</b> is made of a graph and launched like an operation; the graph is not needed any
 * more then. Both have handles as {@link Driver} says. What is launched uses the addresses, kernels
 * and host memory that were written down: the caller keeps them, and the kernels' modules, as long
 * as the executable lives.
 *
 * <p><b>Capture.</b> Between {@link #beginCapture} and {@link #endCapture} a stream's launches,
 * copies and fills are written down instead of run, also those that others enqueue on its handle.
 * Everything else that would touch the stream ({@link Driver#signal}, {@link
 * Driver#streamSynchronize}, {@link Driver#eventRecord}, {@link Driver#streamWaitEvent}, {@link
 * Driver#allocAsync}, {@link Driver#freeAsync}, {@link #launch}) is refused with
 * CAPTURE_UNSUPPORTED, and leaves the capture as it is; {@link Driver#reached} and {@link
 * Driver#status} may be asked all the time. {@link Driver#streamDestroy} and the end of the context
 * drop what was captured. The caller sees to it that no such call on the stream is under way when
 * the capture begins. Calls that concern other streams are not limited, whichever thread makes
 * them, and the thread that ends a capture need not be the one that began it.
 *
 * <p><b>Threads.</b> Any, at the same time as any other call. Only {@link #instantiate} and the two
 * destroying calls may block, as {@link Driver#moduleLoad} may, and none suspends a virtual thread.
 * Nodes of one graph are numbered in the order in which they are added.
 */
public interface Graphs {

  // --- capture --------------------------------------------------------------------------------

  /**
   * From now on the stream writes down what it is given.
   *
   * @throws DriverException ILLEGAL_STATE if it does already
   */
  void beginCapture(long stream);

  /**
   * Ends the capture and gives the graph; the stream runs what it is given again, whatever this
   * answers.
   *
   * @throws DriverException ILLEGAL_STATE if no capture is under way; CAPTURE_INVALIDATED if
   *     something was done that it forbids, so that there is no graph
   */
  long endCapture(long stream);

  // --- nodes ----------------------------------------------------------------------------------

  /** An empty graph of the context, for nodes. */
  long create(long context);

  /**
   * Adds a launch. Arguments are copied.
   *
   * @param after the nodes of this graph that come before; distinct
   * @return the node's number
   */
  int addLaunch(long graph, int[] after, long kernel, Grid grid, KernelArguments arguments);

  /** Adds a copy of what the source holds at each launch. As {@link #addLaunch}. */
  int addCopyToDevice(long graph, int[] after, long target, MemorySegment source);

  /** Adds a copy of {@code target.byteSize()} bytes. As {@link #addLaunch}. */
  int addCopyToHost(long graph, int[] after, MemorySegment target, long source);

  /** As {@link #addLaunch}. */
  int addCopyOnDevice(long graph, int[] after, long target, long source, long bytes);

  /** As {@link #addLaunch}. */
  int addFill(long graph, int[] after, long target, long bytes, byte value);

  /** Adds a node that does nothing but come after others. As {@link #addLaunch}. */
  int addEmpty(long graph, int[] after);

  // --- executables ----------------------------------------------------------------------------

  /** Makes an executable of the graph as it is now. */
  long instantiate(long graph);

  /**
   * Enqueues all work of the executable as one operation: it begins after the stream's earlier work
   * and after the executable's earlier launches, on whichever streams, and the stream's later work
   * comes after all of it.
   */
  void launch(long stream, long executable);

  /** Executables that were made of it live on. */
  void destroyGraph(long graph);

  /** What was launched still ends. */
  void destroyExecutable(long executable);
}
