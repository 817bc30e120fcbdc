package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.ffi.StandInLibrary.Live;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** The stand-in's graphs of nodes, and what is wrong with some. */
class StandInGraphTest extends StandInFixture {

  private MemorySegment graph() {
    return pointer("cuGraphCreate", 0);
  }

  private MemorySegment nodes(MemorySegment... nodes) {
    MemorySegment array = arena.allocate(ValueLayout.ADDRESS, Math.max(1, nodes.length));
    for (int i = 0; i < nodes.length; i++) {
      array.setAtIndex(ValueLayout.ADDRESS, i, nodes[i]);
    }
    return array;
  }

  private MemorySegment empty(MemorySegment graph, MemorySegment... after) {
    return pointer("cuGraphAddEmptyNode", graph, nodes(after), (long) after.length);
  }

  /** CUDA_MEMSET_NODE_PARAMS for bytes. */
  private MemorySegment filling(long target, int value, long bytes) {
    MemorySegment fill = arena.allocate(40, 8);
    fill.set(ValueLayout.JAVA_LONG, 0, target);
    fill.set(ValueLayout.JAVA_INT, 16, value);
    fill.set(ValueLayout.JAVA_INT, 20, 1);
    fill.set(ValueLayout.JAVA_LONG, 24, bytes);
    fill.set(ValueLayout.JAVA_LONG, 32, 1);
    return fill;
  }

  private MemorySegment fill(MemorySegment graph, long target, int value, MemorySegment... after) {
    return pointer(
        "cuGraphAddMemsetNode",
        graph,
        nodes(after),
        (long) after.length,
        filling(target, value, 8),
        context);
  }

  private MemorySegment executable(MemorySegment graph) {
    MemorySegment executable = pointer("cuGraphInstantiateWithFlags", graph, 0L);
    ok("cuGraphDestroy", graph);
    return executable;
  }

  private int launched(MemorySegment stream, MemorySegment graph, long block) {
    MemorySegment back = pinned(8);
    MemorySegment executable = executable(graph);
    ok("cuGraphUpload", executable, stream);
    ok("cuGraphLaunch", executable, stream);
    ok("cuMemcpyDtoHAsync_v2", back, block, 8L, stream);
    ok("cuStreamSynchronize", stream);
    ok("cuGraphExecDestroy", executable);
    return back.get(ValueLayout.JAVA_BYTE, 0);
  }

  @Test
  void nodesKeepTheirDependenciesAndNothingElse() {
    MemorySegment stream = stream();
    long block = allocate(stream, 8);
    ok("cuStreamSynchronize", stream);
    MemorySegment ordered = graph();
    fill(ordered, block, 2, empty(ordered, fill(ordered, block, 1)));
    assertThat(launched(stream, ordered, block)).isEqualTo(2);
    MemorySegment raced = graph();
    fill(raced, block, 1);
    fill(raced, block, 2);
    assertThat(launched(stream, raced, block)).as("the youngest runs first").isEqualTo(1);
    assertThat(standIn.live(Live.GRAPHS) + standIn.live(Live.GRAPH_EXECS)).isZero();
  }

  @Test
  void dependenciesAreNodesOfTheSameGraph() {
    MemorySegment graph = graph();
    MemorySegment node = empty(graph);
    answers(INVALID_VALUE, "cuGraphAddEmptyNode", out(), graph, nodes(node, node), 2L); // twice
    MemorySegment other = graph();
    answers(INVALID_VALUE, "cuGraphAddEmptyNode", out(), other, nodes(node), 1L);
    trapped("wrong graph");
    ok("cuGraphDestroy", graph);
    answers(INVALID_HANDLE, "cuGraphAddEmptyNode", out(), other, nodes(node), 1L);
    trapped("stale handle");
  }

  @Test
  void nodesAreCheckedWhenTheyAreAdded() {
    MemorySegment graph = graph();
    MemorySegment stream = stream();
    long block = allocate(stream, 8);
    MemorySegment none = nodes();
    answers(
        INVALID_VALUE,
        "cuGraphAddMemsetNode",
        out(),
        graph,
        none,
        0L,
        filling(block, 300, 8),
        context);
    answers(
        INVALID_VALUE,
        "cuGraphAddMemsetNode",
        out(),
        graph,
        none,
        0L,
        filling(block, 1, 9),
        context);
    trapped("outside an allocation");
    MemorySegment copy = arena.allocate(200, 8); // of no bytes, from nowhere
    answers(INVALID_VALUE, "cuGraphAddMemcpyNode", out(), graph, none, 0L, copy, context);
    MemorySegment launch = arena.allocate(72, 8);
    answers(INVALID_VALUE, "cuGraphAddKernelNode_v2", out(), graph, none, 0L, launch);
    launch.set(ValueLayout.ADDRESS, 0, kernel("nop")); // and an empty grid
    answers(INVALID_VALUE, "cuGraphAddKernelNode_v2", out(), graph, none, 0L, launch);
  }

  /** A driver's executable is not safe for that. */
  @Test
  void oneExecutableIsLaunchedByOneThreadAtATime() {
    MemorySegment stream = stream();
    long block = allocate(stream, 8);
    ok("cuStreamSynchronize", stream);
    MemorySegment graph = graph();
    fill(graph, block, 1);
    MemorySegment executable = executable(graph);
    standIn.depth(1);
    Held held = hold(stream);
    CompletableFuture<Integer> first = new CompletableFuture<>();
    Thread.ofPlatform()
        .start(() -> first.complete(standIn.call("cuGraphLaunch", executable, stream)));
    eventually("the first is inside", () -> standIn.blocked() == 1);
    MemorySegment other = stream();
    ok("cuGraphLaunch", executable, other);
    trapped("two at once");
    held.release();
    assertThat(first.join()).isZero();
    ok("cuStreamSynchronize", stream);
  }

  @Test
  void aGraphIsNotLaunchedIntoACapture() {
    MemorySegment stream = stream();
    MemorySegment executable = executable(graph());
    ok("cuStreamBeginCapture_v2", stream, 2);
    answers(900, "cuGraphLaunch", executable, stream);
    trapped("capture");
    answers(901, "cuStreamEndCapture", stream, out());
  }
}
