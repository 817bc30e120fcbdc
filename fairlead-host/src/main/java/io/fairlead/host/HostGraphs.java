package io.fairlead.host;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Graphs;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** Capture and graphs of a {@link HostDriver}: operations are made anew for each launch. */
final class HostGraphs implements Graphs {
  private final HostDriver driver;
  private final HandleTable handles;

  HostGraphs(HostDriver driver, HandleTable handles) {
    this.driver = driver;
    this.handles = handles;
  }

  // --- capture --------------------------------------------------------------------------------

  @Override
  public void beginCapture(long stream) {
    HostStream found = driver.enter(DriverCall.CAPTURE, stream);
    if (!found.capture(HostGraph.ofCapture(found.context()))) {
      throw Status.refused(
          DriverException.ILLEGAL_STATE,
          "stream " + Status.hex(stream) + " is being captured already; end that capture first");
    }
  }

  @Override
  public long endCapture(long stream) {
    HostStream found = driver.enter(DriverCall.CAPTURE, stream);
    HostGraph graph = found.endCapture();
    if (graph == null) {
      throw Status.refused(
          DriverException.ILLEGAL_STATE,
          "stream " + Status.hex(stream) + " is not being captured; begin first");
    }
    return handles.add(graph);
  }

  // --- nodes ----------------------------------------------------------------------------------

  @Override
  public long create(long context) {
    HostContext found = handles.context(context);
    driver.enter(DriverCall.GRAPH_BUILD, found);
    return handles.add(HostGraph.ofNodes(found));
  }

  private HostGraph enter(long graph, int[] after) {
    HostGraph found = handles.graph(graph);
    driver.enter(DriverCall.GRAPH_BUILD, found.context());
    if (found.isCaptured()) {
      throw Status.invalidValue("a captured graph takes no more nodes; capture them too");
    }
    int size = found.size();
    boolean distinct = IntStream.of(after).distinct().count() == after.length;
    if (!distinct || IntStream.of(after).anyMatch(node -> node < 0 || node >= size)) {
      throw Status.invalidValue(
          "a node comes after distinct ones of the "
              + size
              + " of its graph, not after "
              + Arrays.toString(after));
    }
    return found;
  }

  /** Null is a node that does nothing. */
  private static int add(HostGraph graph, @Nullable Recipe recipe) {
    return graph.add(recipe == null ? EventRecord::new : recipe);
  }

  @Override
  public int addLaunch(long graph, int[] after, long kernel, Grid grid, KernelArguments arguments) {
    HostGraph found = enter(graph, after);
    HostKernel code = handles.kernel(kernel);
    HostDriver.checkSame(found, code);
    HostDriver.checkGrid(code, grid);
    LaunchOperation kept = LaunchOperation.of(found.context().pool, code, grid, arguments);
    return add(found, HostDriver.launch(code, grid, kept));
  }

  @Override
  public int addCopyToDevice(long graph, int[] after, long target, MemorySegment source) {
    HostGraph found = enter(graph, after);
    return add(found, HostDriver.copyToDevice(found.context(), target, source));
  }

  @Override
  public int addCopyToHost(long graph, int[] after, MemorySegment target, long source) {
    HostGraph found = enter(graph, after);
    return add(found, HostDriver.copyToHost(found.context(), target, source));
  }

  @Override
  public int addCopyOnDevice(long graph, int[] after, long target, long source, long bytes) {
    HostGraph found = enter(graph, after);
    return add(found, HostDriver.copyOnDevice(target, source, bytes));
  }

  @Override
  public int addFill(long graph, int[] after, long target, long bytes, byte value) {
    HostGraph found = enter(graph, after);
    return add(found, HostDriver.fill(target, bytes, value));
  }

  @Override
  public int addEmpty(long graph, int[] after) {
    HostGraph found = enter(graph, after);
    return add(found, null);
  }

  // --- executables ----------------------------------------------------------------------------

  @Override
  public long instantiate(long graph) {
    HostGraph found = handles.graph(graph);
    driver.enter(DriverCall.GRAPH_BUILD, found.context());
    return handles.add(new HostExecutable(found.context(), found.snapshot()));
  }

  @Override
  public void launch(long stream, long executable) {
    HostStream found = driver.enter(DriverCall.GRAPH_LAUNCH, stream);
    HostExecutable code = handles.executable(executable);
    HostDriver.checkSame(found, code);
    found.checkNotCaptured(DriverCall.GRAPH_LAUNCH);
    code.launch(found);
  }

  @Override
  public void destroyGraph(long graph) {
    destroy(handles.graph(graph));
  }

  @Override
  public void destroyExecutable(long executable) {
    destroy(handles.executable(executable));
  }

  private void destroy(HandleTable.Entry entry) {
    driver.enter(DriverCall.GRAPH_DESTROY, entry.context());
    handles.remove(entry);
  }
}
