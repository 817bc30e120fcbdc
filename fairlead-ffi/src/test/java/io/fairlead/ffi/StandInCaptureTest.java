package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.ffi.StandInLibrary.Live;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** The stand-in's capture of streams, what it forbids, and replay. */
class StandInCaptureTest extends StandInFixture {
  private static final int GLOBAL = 0;
  private static final int THREAD_LOCAL = 1;
  private static final int RELAXED = 2;

  private static final int ILLEGAL_STATE = 401;
  private static final int UNSUPPORTED = 900;
  private static final int INVALIDATED = 901;
  private static final int CAPTURED_EVENT = 907;

  private void begin(MemorySegment stream, int mode) {
    ok("cuStreamBeginCapture_v2", stream, mode);
  }

  private MemorySegment end(MemorySegment stream) {
    MemorySegment out = out();
    ok("cuStreamEndCapture", stream, out);
    return out.get(ValueLayout.ADDRESS, 0);
  }

  private void endsWith(int status, MemorySegment stream) {
    MemorySegment out = arena.allocateFrom(ValueLayout.JAVA_LONG, 1);
    answers(status, "cuStreamEndCapture", stream, out);
    assertThat(out.get(ValueLayout.JAVA_LONG, 0)).isZero();
  }

  private int capturing(MemorySegment stream) {
    MemorySegment status = out();
    ok("cuStreamIsCapturing", stream, status);
    return status.get(ValueLayout.JAVA_INT, 0);
  }

  private int elsewhere(String function, Object... arguments) {
    CompletableFuture<Integer> status = new CompletableFuture<>();
    Thread.ofPlatform()
        .start(
            () -> {
              standIn.call("cuCtxSetCurrent", context);
              status.complete(standIn.call(function, arguments));
            });
    return status.join();
  }

  private MemorySegment executable(MemorySegment graph) {
    MemorySegment executable = pointer("cuGraphInstantiateWithFlags", graph, 0L);
    ok("cuGraphDestroy", graph);
    return executable;
  }

  // --- replay -------------------------------------------------------------------------------

  @Test
  void whatIsCapturedRunsWhenReplayed() {
    MemorySegment stream = stream();
    MemorySegment counter = pinned(8);
    MemorySegment back = pinned(8);
    long address = allocate(stream, 8);
    MemorySegment count = kernel("count");
    begin(stream, THREAD_LOCAL);
    assertThat(capturing(stream)).isEqualTo(1);
    ok("cuMemsetD32Async", address, 3, 2L, stream);
    assertThat(launch(stream, count, 1, 1, address)).isZero();
    ok("cuMemcpyDtoHAsync_v2", back, address, 8L, stream);
    assertThat(launch(stream, count, 1, 1, counter)).isZero();
    MemorySegment graph = end(stream);
    assertThat(capturing(stream)).isZero();
    ok("cuStreamSynchronize", stream);
    assertThat(counter.get(ValueLayout.JAVA_LONG, 0)).isZero();
    MemorySegment executable = executable(graph);
    MemorySegment other = stream();
    ok("cuStreamSynchronize", stream);
    ok("cuGraphLaunch", executable, other);
    ok("cuGraphLaunch", executable, other);
    ok("cuStreamSynchronize", other);
    assertThat(counter.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(2);
    assertThat(back.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(0x0000000300000004L);
    ok("cuGraphExecDestroy", executable);
    assertThat(standIn.live(Live.GRAPHS) + standIn.live(Live.GRAPH_EXECS)).isZero();
  }

  /** As measured: the replay moved a ticket from 9 back to 5. */
  @Test
  void aWriteValueIsCapturedSilently() {
    MemorySegment stream = stream();
    MemorySegment ticket = pinned(8);
    begin(stream, THREAD_LOCAL);
    ok("cuStreamWriteValue64_v2", stream, ticket, 5L, 0);
    MemorySegment executable = executable(end(stream));
    ok("cuStreamWriteValue64_v2", stream, ticket, 9L, 0);
    ok("cuGraphLaunch", executable, stream);
    ok("cuStreamSynchronize", stream);
    assertThat(ticket.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(5);
  }

  @Test
  void streamsJoinACaptureByEvents() {
    MemorySegment origin = stream();
    MemorySegment side = stream();
    MemorySegment event = event();
    MemorySegment counter = pinned(8);
    MemorySegment count = kernel("count");
    begin(origin, THREAD_LOCAL);
    ok("cuEventRecord", event, origin);
    ok("cuStreamWaitEvent", side, event, 0);
    assertThat(launch(side, count, 1, 1, counter)).isZero();
    assertThat(capturing(side)).isEqualTo(1);
    ok("cuEventRecord", event, side);
    ok("cuStreamWaitEvent", origin, event, 0);
    MemorySegment executable = executable(end(origin));
    assertThat(capturing(side)).isZero();
    ok("cuGraphLaunch", executable, origin);
    ok("cuStreamSynchronize", origin);
    assertThat(counter.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(1);
  }

  @Test
  void replayOfFreedMemoryIsTrapped() {
    MemorySegment stream = stream();
    long address = allocate(stream, 8);
    begin(stream, THREAD_LOCAL);
    ok("cuMemsetD32Async", address, 3, 2L, stream);
    MemorySegment executable = executable(end(stream));
    ok("cuMemFreeAsync", address, stream);
    answers(INVALID_VALUE, "cuGraphLaunch", executable, stream);
    trapped("use after free");
  }

  @Test
  void aGraphBelongsToItsContext() {
    MemorySegment stream = stream();
    begin(stream, THREAD_LOCAL);
    MemorySegment executable = executable(end(stream));
    under(otherContext(), () -> answers(INVALID_HANDLE, "cuGraphLaunch", executable, stream()));
    trapped("wrong context");
  }

  // --- how it ends --------------------------------------------------------------------------

  @Test
  void anEndNeedsItsBeginning() {
    MemorySegment stream = stream();
    endsWith(ILLEGAL_STATE, stream);
    begin(stream, THREAD_LOCAL);
    answers(ILLEGAL_STATE, "cuStreamBeginCapture_v2", stream, THREAD_LOCAL);
    assertThat(elsewhere("cuStreamEndCapture", stream, out())).isEqualTo(908);
    end(stream);
    begin(stream, RELAXED);
    assertThat(elsewhere("cuStreamEndCapture", stream, out())).isZero();
  }

  @Test
  void unjoinedWorkGivesNoGraph() {
    MemorySegment origin = stream();
    MemorySegment side = stream();
    MemorySegment event = event();
    begin(origin, THREAD_LOCAL);
    ok("cuEventRecord", event, origin);
    ok("cuStreamWaitEvent", side, event, 0);
    answers(903, "cuStreamEndCapture", side, out());
    endsWith(904, origin);
  }

  // --- what it forbids ----------------------------------------------------------------------

  private void invalidates(int status, String function, Object... arguments) {
    MemorySegment stream = stream();
    Object[] all = arguments.clone();
    for (int i = 0; i < all.length; i++) {
      all[i] = MemorySegment.NULL.equals(all[i]) ? stream : all[i];
    }
    begin(stream, THREAD_LOCAL);
    answers(status, function, all);
    trapped("capture");
    assertThat(capturing(stream)).isEqualTo(2);
    answers(INVALIDATED, "cuMemsetD8Async", allocate(stream(), 8), 0, 8L, stream);
    endsWith(INVALIDATED, stream);
  }

  @Test
  void callsOnAStreamThatCaptures() {
    MemorySegment it = MemorySegment.NULL;
    invalidates(UNSUPPORTED, "cuStreamSynchronize", it);
    invalidates(UNSUPPORTED, "cuStreamQuery", it);
    invalidates(UNSUPPORTED, "cuMemAllocAsync", out(), 8L, it);
    invalidates(UNSUPPORTED, "cuMemFreeAsync", allocate(stream(), 8), it);
    invalidates(UNSUPPORTED, "cuStreamDestroy_v2", it);
  }

  @Test
  void callsThatACaptureDoesNotSee() {
    MemorySegment pinned = pinned(8);
    MemorySegment block = arena.allocate(8);
    invalidates(UNSUPPORTED, "cuMemAlloc_v2", out(), 8L);
    invalidates(UNSUPPORTED, "cuMemFree_v2", number("cuMemAlloc_v2", 8L));
    invalidates(UNSUPPORTED, "cuMemHostAlloc", out(), 8L, 0);
    invalidates(UNSUPPORTED, "cuMemFreeHost", pinned);
    invalidates(UNSUPPORTED, "cuMemHostRegister_v2", block, 8L, 0);
    invalidates(UNSUPPORTED, "cuModuleLoadData", out(), IMAGE);
    invalidates(UNSUPPORTED, "cuCtxSynchronize");
  }

  @Test
  void waitsForWorkThatIsNotCaptured() {
    MemorySegment event = event();
    ok("cuEventRecord", event, stream());
    invalidates(905, "cuStreamWaitEvent", MemorySegment.NULL, event, 0);
  }

  @Test
  void aCapturedEventIsNotQueried() {
    MemorySegment stream = stream();
    MemorySegment event = event();
    begin(stream, THREAD_LOCAL);
    ok("cuEventRecord", event, stream);
    answers(CAPTURED_EVENT, "cuEventQuery", event);
    trapped("capture");
    endsWith(INVALIDATED, stream);
    answers(CAPTURED_EVENT, "cuEventQuery", event);
    trapped("capture");
    ok("cuEventRecord", event, stream);
    ok("cuEventSynchronize", event);
  }

  @Test
  void capturesDoNotMerge() {
    MemorySegment one = stream();
    MemorySegment other = stream();
    MemorySegment event = event();
    begin(one, THREAD_LOCAL);
    begin(other, THREAD_LOCAL);
    ok("cuEventRecord", event, one);
    answers(902, "cuStreamWaitEvent", other, event, 0);
    assertThat(standIn.traps()).hasSize(2).allMatch(text -> text.startsWith("capture: "));
    standIn.clearTraps();
    endsWith(INVALIDATED, one);
    endsWith(INVALIDATED, other);
  }

  @Test
  void anotherContextCannotJoin() {
    MemorySegment stream = stream();
    MemorySegment event = event();
    begin(stream, RELAXED);
    ok("cuEventRecord", event, stream);
    under(otherContext(), () -> answers(906, "cuStreamWaitEvent", stream(), event, 0));
    trapped("capture");
    endsWith(INVALIDATED, stream);
  }

  @Test
  void theLegacyStreamCannotWaitForWhatIsCaptured() {
    MemorySegment blocking = pointer("cuStreamCreateWithPriority", 0, 0);
    long address = allocate(blocking, 8);
    begin(blocking, THREAD_LOCAL);
    answers(906, "cuMemsetD8Async", address, 0, 8L, MemorySegment.NULL);
    assertThat(standIn.traps()).hasSize(2);
    assertThat(standIn.traps().get(0)).startsWith("default stream: ");
    assertThat(standIn.traps().get(1)).startsWith("capture: ");
    standIn.clearTraps();
    endsWith(INVALIDATED, blocking);
    answers(UNSUPPORTED, "cuStreamBeginCapture_v2", MemorySegment.NULL, THREAD_LOCAL);
    trapped("default stream");
  }

  // --- whom it concerns ---------------------------------------------------------------------

  @Test
  void threadLocalLeavesOtherThreadsAlone() {
    MemorySegment stream = stream();
    MemorySegment outside = event();
    ok("cuEventRecord", outside, stream());
    begin(stream, THREAD_LOCAL);
    assertThat(elsewhere("cuMemAlloc_v2", out(), 8L)).isZero();
    assertThat(elsewhere("cuEventSynchronize", outside)).isZero();
    ok("cuEventQuery", outside);
    ok("cuStreamQuery", stream());
    end(stream);
  }

  @Test
  void globalConcernsAll() {
    MemorySegment stream = stream();
    MemorySegment outside = event();
    begin(stream, GLOBAL);
    assertThat(elsewhere("cuMemAlloc_v2", out(), 8L)).isEqualTo(UNSUPPORTED);
    trapped("capture");
    endsWith(INVALIDATED, stream);
    begin(stream, GLOBAL);
    assertThat(elsewhere("cuEventQuery", outside)).isEqualTo(UNSUPPORTED); // a watchdog's
    trapped("capture");
    endsWith(INVALIDATED, stream);
  }

  @Test
  void relaxedConcernsNobody() {
    MemorySegment stream = stream();
    begin(stream, RELAXED);
    ok("cuMemAlloc_v2", out(), 8L);
    assertThat(elsewhere("cuMemAlloc_v2", out(), 8L)).isZero();
    end(stream);
  }

  @Test
  void aThreadCanLoosenItsOwnSide() {
    MemorySegment stream = stream();
    MemorySegment outside = event();
    MemorySegment mode = arena.allocateFrom(ValueLayout.JAVA_INT, THREAD_LOCAL);
    CompletableFuture<Integer> queried = new CompletableFuture<>();
    begin(stream, GLOBAL);
    Thread.ofPlatform()
        .start(
            () -> {
              standIn.call("cuThreadExchangeStreamCaptureMode", mode);
              queried.complete(standIn.call("cuEventQuery", outside));
            });
    assertThat(queried.join()).isZero();
    assertThat(mode.get(ValueLayout.JAVA_INT, 0)).isEqualTo(GLOBAL); // as it was before
    end(stream);
  }
}
