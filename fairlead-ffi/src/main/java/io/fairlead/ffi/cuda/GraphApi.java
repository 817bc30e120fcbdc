package io.fairlead.ffi.cuda;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/**
 * The functions for capture and graphs, as {@link CudaApi} has the others; named as in {@code
 * cuda.h} without {@code cuGraph}. A library may lack them: {@link #missing} says which.
 */
final class GraphApi {
  private static final MethodHandle P = CudaApi.shape(JAVA_LONG);
  private static final MethodHandle PI = CudaApi.shape(JAVA_LONG, JAVA_INT);
  private static final MethodHandle PP = CudaApi.shape(JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPP = CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPPP =
      CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPPPP =
      CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPPPPP =
      CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);

  private final MemorySegment streamBeginCapture;
  private final MemorySegment streamEndCapture;
  private final MemorySegment streamIsCapturing;
  private final MemorySegment create;
  private final MemorySegment addKernelNode;
  private final MemorySegment addMemcpyNode;
  private final MemorySegment addMemsetNode;
  private final MemorySegment addEmptyNode;
  private final MemorySegment instantiate;
  private final MemorySegment upload;
  private final MemorySegment launch;
  private final MemorySegment destroy;
  private final MemorySegment execDestroy;

  private final List<String> missing = new ArrayList<>();

  /**
   * @param find the first of these functions that is there, or a null pointer
   */
  GraphApi(Function<String[], MemorySegment> find) {
    streamBeginCapture = found(find, "cuStreamBeginCapture_v2");
    streamEndCapture = found(find, "cuStreamEndCapture");
    streamIsCapturing = find.apply(new String[] {"cuStreamIsCapturing"});
    create = found(find, "cuGraphCreate");
    addKernelNode = found(find, "cuGraphAddKernelNode_v2", "cuGraphAddKernelNode");
    addMemcpyNode = found(find, "cuGraphAddMemcpyNode");
    addMemsetNode = found(find, "cuGraphAddMemsetNode");
    addEmptyNode = found(find, "cuGraphAddEmptyNode");
    instantiate = found(find, "cuGraphInstantiateWithFlags");
    upload = find.apply(new String[] {"cuGraphUpload"});
    launch = found(find, "cuGraphLaunch");
    destroy = found(find, "cuGraphDestroy");
    execDestroy = found(find, "cuGraphExecDestroy");
  }

  /** Whether {@link #upload} is there. */
  boolean hasUpload() {
    return upload.address() != 0;
  }

  /** Whether {@link #streamIsCapturing} is there. */
  boolean hasCaptureStatus() {
    return streamIsCapturing.address() != 0;
  }

  private MemorySegment found(Function<String[], MemorySegment> find, String... names) {
    MemorySegment function = find.apply(names);
    if (function.address() == 0) {
      missing.add(names[0]);
    }
    return function;
  }

  /** The functions that the library does not have; empty if graphs can be used. */
  List<String> missing() {
    return missing;
  }

  // --- functions, as in cuda.h ------------------------------------------------------------------

  int streamBeginCapture(long stream, int mode) {
    try {
      return (int) PI.invokeExact(this.streamBeginCapture, stream, mode);
    } catch (Throwable e) {
      throw unexpected("cuStreamBeginCapture", e);
    }
  }

  int streamEndCapture(long stream, long graph) {
    try {
      return (int) PP.invokeExact(this.streamEndCapture, stream, graph);
    } catch (Throwable e) {
      throw unexpected("cuStreamEndCapture", e);
    }
  }

  int streamIsCapturing(long stream, long status) {
    try {
      return (int) PP.invokeExact(this.streamIsCapturing, stream, status);
    } catch (Throwable e) {
      throw unexpected("cuStreamIsCapturing", e);
    }
  }

  int create(long graph, int flags) {
    try {
      return (int) PI.invokeExact(this.create, graph, flags);
    } catch (Throwable e) {
      throw unexpected("cuGraphCreate", e);
    }
  }

  int addKernelNode(long node, long graph, long after, long count, long parameters) {
    try {
      return (int) PPPPP.invokeExact(this.addKernelNode, node, graph, after, count, parameters);
    } catch (Throwable e) {
      throw unexpected("cuGraphAddKernelNode", e);
    }
  }

  int addMemcpyNode(long node, long graph, long after, long count, long copy, long context) {
    try {
      return (int) PPPPPP.invokeExact(this.addMemcpyNode, node, graph, after, count, copy, context);
    } catch (Throwable e) {
      throw unexpected("cuGraphAddMemcpyNode", e);
    }
  }

  int addMemsetNode(long node, long graph, long after, long count, long fill, long context) {
    try {
      return (int) PPPPPP.invokeExact(this.addMemsetNode, node, graph, after, count, fill, context);
    } catch (Throwable e) {
      throw unexpected("cuGraphAddMemsetNode", e);
    }
  }

  int addEmptyNode(long node, long graph, long after, long count) {
    try {
      return (int) PPPP.invokeExact(this.addEmptyNode, node, graph, after, count);
    } catch (Throwable e) {
      throw unexpected("cuGraphAddEmptyNode", e);
    }
  }

  int instantiate(long executable, long graph, long flags) {
    try {
      return (int) PPP.invokeExact(this.instantiate, executable, graph, flags);
    } catch (Throwable e) {
      throw unexpected("cuGraphInstantiateWithFlags", e);
    }
  }

  int upload(long executable, long stream) {
    try {
      return (int) PP.invokeExact(this.upload, executable, stream);
    } catch (Throwable e) {
      throw unexpected("cuGraphUpload", e);
    }
  }

  int launch(long executable, long stream) {
    try {
      return (int) PP.invokeExact(this.launch, executable, stream);
    } catch (Throwable e) {
      throw unexpected("cuGraphLaunch", e);
    }
  }

  int destroy(long graph) {
    try {
      return (int) P.invokeExact(this.destroy, graph);
    } catch (Throwable e) {
      throw unexpected("cuGraphDestroy", e);
    }
  }

  int execDestroy(long executable) {
    try {
      return (int) P.invokeExact(this.execDestroy, executable);
    } catch (Throwable e) {
      throw unexpected("cuGraphExecDestroy", e);
    }
  }
}
