package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Graphs;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** Capture and graphs of a {@link CudaDriver}: the same checks, and one call of the library. */
final class CudaGraphs implements Graphs {
  private final CudaDriver driver;
  private final HandleTable handles;
  private final GraphApi api;

  CudaGraphs(CudaDriver driver, HandleTable handles, GraphApi api) {
    this.driver = driver;
    this.handles = handles;
    this.api = api;
  }

  // --- capture ----------------------------------------------------------------------------------

  @Override
  public void beginCapture(long stream) {
    CudaStream found = driver.enterStream(DriverCall.CAPTURE, stream);
    try {
      found.beginCapture();
    } finally {
      found.exit();
    }
  }

  @Override
  public long endCapture(long stream) {
    CudaStream found = driver.enterStream(DriverCall.CAPTURE, stream);
    try {
      return handles.add(new CudaGraph(found.context(), found.endCapture(), true));
    } finally {
      found.exit();
    }
  }

  // --- nodes ------------------------------------------------------------------------------------

  @Override
  public long create(long context) {
    CudaContext found = driver.enterContext(DriverCall.GRAPH_BUILD, context);
    Scratch scratch = Scratch.take();
    try {
      found.check(api.create(scratch.answer(), 0), "cuGraphCreate");
      return handles.add(new CudaGraph(found, scratch.longAnswer(), false));
    } finally {
      scratch.giveBack();
      found.exit();
    }
  }

  /** The caller has entered the graph. */
  private interface Adding {
    int add(CudaGraph graph, Arena arena);
  }

  private int add(long graph, Adding adding) {
    CudaGraph found = handles.graph(graph);
    CudaDriver.enter(DriverCall.GRAPH_BUILD, found);
    try (Arena arena = Arena.ofConfined()) {
      return adding.add(found, arena);
    } finally {
      found.exit();
    }
  }

  private int addNothing(CudaGraph graph, Arena arena, int[] after) {
    return graph.add(
        arena,
        after,
        "cuGraphAddEmptyNode",
        (node, before, count) -> api.addEmptyNode(node, graph.raw, before, count));
  }

  @Override
  public int addEmpty(long graph, int[] after) {
    return add(graph, (found, arena) -> addNothing(found, arena, after));
  }

  @Override
  public int addLaunch(long graph, int[] after, long kernel, Grid grid, KernelArguments arguments) {
    return add(graph, (found, arena) -> addLaunch(found, arena, after, kernel, grid, arguments));
  }

  private int addLaunch(
      CudaGraph graph,
      Arena arena,
      int[] after,
      long kernel,
      Grid grid,
      KernelArguments arguments) {
    CudaKernel code = handles.kernel(kernel);
    CudaDriver.checkSame(graph, code);
    if (!code.module.enter()) {
      throw HandleTable.unknown(CudaObject.Kind.KERNEL, kernel);
    }
    try {
      @Nullable MemorySegment launch = code.node(arena, grid, arguments);
      return launch == null
          ? addNothing(graph, arena, after)
          : graph.add(
              arena,
              after,
              "cuGraphAddKernelNode(" + code.name() + ")",
              (node, before, count) ->
                  api.addKernelNode(node, graph.raw, before, count, launch.address()));
    } finally {
      code.module.exit();
    }
  }

  @Override
  public int addCopyToDevice(long graph, int[] after, long target, MemorySegment source) {
    CudaDriver.checkHost(source);
    return addCopy(
        graph,
        after,
        NodeLayouts.DEVICE,
        target,
        NodeLayouts.HOST,
        source.address(),
        source.byteSize());
  }

  @Override
  public int addCopyToHost(long graph, int[] after, MemorySegment target, long source) {
    CudaDriver.checkTarget(target);
    return addCopy(
        graph,
        after,
        NodeLayouts.HOST,
        target.address(),
        NodeLayouts.DEVICE,
        source,
        target.byteSize());
  }

  @Override
  public int addCopyOnDevice(long graph, int[] after, long target, long source, long bytes) {
    return addCopy(graph, after, NodeLayouts.DEVICE, target, NodeLayouts.DEVICE, source, bytes);
  }

  private int addCopy(
      long graph,
      int[] after,
      int targetKind,
      long target,
      int sourceKind,
      long source,
      long bytes) {
    CudaDriver.checkLength(bytes);
    return add(
        graph,
        (found, arena) -> {
          if (bytes == 0) {
            return addNothing(found, arena, after);
          }
          MemorySegment copy =
              NodeLayouts.copy(arena, targetKind, target, sourceKind, source, bytes);
          return found.add(
              arena,
              after,
              "cuGraphAddMemcpyNode of " + bytes + " bytes at " + Status.hex(target),
              (node, before, count) ->
                  api.addMemcpyNode(
                      node, found.raw, before, count, copy.address(), found.context().raw));
        });
  }

  @Override
  public int addFill(long graph, int[] after, long target, long bytes, byte value) {
    CudaDriver.checkLength(bytes);
    return add(
        graph,
        (found, arena) -> {
          if (bytes == 0) {
            return addNothing(found, arena, after);
          }
          MemorySegment fill = NodeLayouts.fill(arena, target, bytes, value);
          return found.add(
              arena,
              after,
              "cuGraphAddMemsetNode of " + bytes + " bytes at " + Status.hex(target),
              (node, before, count) ->
                  api.addMemsetNode(
                      node, found.raw, before, count, fill.address(), found.context().raw));
        });
  }

  // --- executables ------------------------------------------------------------------------------

  @Override
  public long instantiate(long graph) {
    CudaGraph found = handles.graph(graph);
    CudaDriver.enter(DriverCall.GRAPH_BUILD, found);
    try {
      long raw = found.instantiate();
      found.context().upload(raw);
      return handles.add(new CudaExecutable(found.context(), raw));
    } finally {
      found.exit();
    }
  }

  @Override
  public void launch(long stream, long executable) {
    CudaStream found = driver.enterStream(DriverCall.GRAPH_LAUNCH, stream);
    try {
      CudaExecutable code = handles.executable(executable);
      CudaDriver.checkSame(found, code);
      found.checkNotCaptured(DriverCall.GRAPH_LAUNCH);
      if (!code.enter()) {
        throw HandleTable.unknown(CudaObject.Kind.EXECUTABLE, executable);
      }
      try {
        code.launch(found);
      } finally {
        code.exit();
      }
    } finally {
      found.exit();
    }
  }

  @Override
  public void destroyGraph(long graph) {
    CudaGraph found = handles.graph(graph);
    found.context().checkCurrent(DriverCall.GRAPH_DESTROY);
    driver.remove(found);
  }

  @Override
  public void destroyExecutable(long executable) {
    CudaExecutable found = handles.executable(executable);
    found.context().checkCurrent(DriverCall.GRAPH_DESTROY);
    driver.remove(found);
  }
}
