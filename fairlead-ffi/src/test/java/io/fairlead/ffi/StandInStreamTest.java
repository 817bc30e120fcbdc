package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.ffi.StandInLibrary.Live;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The stand-in's streams, events, hardware queues, write-values and host functions. */
class StandInStreamTest extends StandInFixture {

  private static long at(MemorySegment slot) {
    return (long) ValueLayout.JAVA_LONG.varHandle().getAcquire(slot, 0L);
  }

  private void write(MemorySegment stream, MemorySegment slot, long value) {
    ok("cuStreamWriteValue64_v2", stream, slot, value, 0);
  }

  // --- order --------------------------------------------------------------------------------

  @Test
  void aStreamIsFirstInFirstOut() {
    MemorySegment stream = stream();
    MemorySegment slot = pinned(8);
    Held held = hold(stream);
    write(stream, slot, 1);
    write(stream, slot, 2);
    answers(NOT_READY, "cuStreamQuery", stream);
    assertThat(at(slot)).isZero();
    held.release();
    ok("cuStreamSynchronize", stream);
    assertThat(at(slot)).isEqualTo(2);
    ok("cuStreamQuery", stream);
  }

  @Test
  void nonBlockingStreamsDoNotWaitForEachOther() {
    MemorySegment slot = pinned(8);
    Held held = hold(stream());
    MemorySegment other = stream();
    write(other, slot, 7);
    ok("cuStreamSynchronize", other);
    assertThat(at(slot)).isEqualTo(7);
    held.release();
  }

  @Test
  void aWaitMeansWhatWasRecordedThen() {
    MemorySegment first = stream();
    MemorySegment second = stream();
    MemorySegment event = event();
    MemorySegment slot = pinned(8);
    Held early = hold(first);
    ok("cuEventRecord", event, first);
    ok("cuStreamWaitEvent", second, event, 0);
    write(second, slot, 1);
    Held late = hold(first);
    ok("cuEventRecord", event, first); // later than the wait, which does not mean it
    assertThat(standIn.queued(second)).isEqualTo(2); // the wait, and the write behind it
    early.release();
    ok("cuStreamSynchronize", second);
    assertThat(at(slot)).isEqualTo(1);
    answers(NOT_READY, "cuEventQuery", event);
    late.release();
    ok("cuEventSynchronize", event);
    ok("cuEventQuery", event);
  }

  @Test
  void anEventThatWasNeverRecordedIsReached() {
    MemorySegment event = event();
    ok("cuEventQuery", event);
    ok("cuEventSynchronize", event);
    ok("cuStreamWaitEvent", stream(), event, 0);
  }

  @Test
  void anEventMayGoWhileItIsPending() {
    MemorySegment first = stream();
    MemorySegment second = stream();
    MemorySegment event = event();
    MemorySegment slot = pinned(8);
    Held held = hold(first);
    ok("cuEventRecord", event, first);
    ok("cuStreamWaitEvent", second, event, 0);
    ok("cuEventDestroy_v2", event);
    write(second, slot, 1);
    assertThat(standIn.queued(second)).isEqualTo(2);
    assertThat(at(slot)).isZero();
    held.release();
    ok("cuStreamSynchronize", second);
    assertThat(at(slot)).isEqualTo(1);
  }

  @Test
  void aDestroyedStreamEndsItsWork() {
    MemorySegment stream = stream();
    MemorySegment slot = pinned(8);
    Held held = hold(stream);
    write(stream, slot, 3);
    ok("cuStreamDestroy_v2", stream);
    assertThat(standIn.live(Live.STREAMS)).isZero();
    held.release();
    eventually("its last write", () -> at(slot) == 3);
  }

  @Test
  void timeBetweenEvents() {
    MemorySegment stream = stream();
    MemorySegment start = pointer("cuEventCreate", 0);
    MemorySegment end = pointer("cuEventCreate", 0);
    ok("cuEventRecord", start, stream);
    assertThat(launch(stream, kernel("spin"), 1, 1, 2_000_000L)).isZero();
    ok("cuEventRecord", end, stream);
    ok("cuStreamSynchronize", stream);
    MemorySegment millis = out();
    ok("cuEventElapsedTime_v2", millis, start, end);
    assertThat(millis.get(ValueLayout.JAVA_FLOAT, 0)).isGreaterThanOrEqualTo(2);
    answers(INVALID_HANDLE, "cuEventElapsedTime", millis, start, event());
  }

  @Test
  void priorities() {
    MemorySegment least = out();
    MemorySegment greatest = out();
    ok("cuCtxGetStreamPriorityRange", least, greatest);
    assertThat(least.get(ValueLayout.JAVA_INT, 0)).isZero();
    assertThat(greatest.get(ValueLayout.JAVA_INT, 0)).isEqualTo(-5);
    MemorySegment priority = out();
    ok("cuStreamGetPriority", pointer("cuStreamCreateWithPriority", 1, -99), priority);
    assertThat(priority.get(ValueLayout.JAVA_INT, 0)).isEqualTo(-5);
  }

  // --- the default stream -------------------------------------------------------------------

  @Test
  void theDefaultStreamIsATrapAndSynchronisesBlockingStreams() {
    MemorySegment blocking = pointer("cuStreamCreateWithPriority", 0, 0);
    MemorySegment slot = pinned(8);
    Held held = hold(blocking);
    write(MemorySegment.NULL, slot, 1);
    trapped("default stream");
    write(blocking, slot, 2);
    // The held kernel, the default stream's mark, the wait for its write, and the write.
    assertThat(standIn.queued(blocking)).isEqualTo(4);
    assertThat(at(slot)).isZero();
    held.release();
    ok("cuStreamSynchronize", blocking);
    assertThat(at(slot)).isEqualTo(2);
  }

  @Test
  void nonBlockingStreamsDoNotCareForTheDefaultStream() {
    MemorySegment slot = pinned(8);
    Held held = hold(stream());
    write(MemorySegment.ofAddress(2), slot, 1);
    trapped("default stream");
    eventually("the default stream's write", () -> at(slot) == 1);
    held.release();
  }

  private static final MemorySegment LEGACY = MemorySegment.ofAddress(1);
  private static final MemorySegment PER_THREAD = MemorySegment.ofAddress(2);

  @Test
  void foreignCodeMayUseTheDefaultStreams() {
    MemorySegment slots = pinned(16);
    standIn.call("standin_foreign", 1);
    Held held = hold(PER_THREAD);
    write(MemorySegment.NULL, slots, 1); // after the per-thread one
    assertThat(at(slots)).isZero();
    CompletableFuture<Integer> elsewhere =
        CompletableFuture.supplyAsync(
            () -> {
              ok("cuCtxSetCurrent", context);
              standIn.call("standin_foreign", 1);
              write(PER_THREAD, slots.asSlice(8), 1); // another one, after the legacy one too
              int status = standIn.call("cuStreamQuery", PER_THREAD);
              standIn.call("standin_foreign", 0);
              return status;
            });
    assertThat(elsewhere.join()).isEqualTo(NOT_READY);
    held.release();
    ok("cuStreamSynchronize", MemorySegment.NULL);
    assertThat(at(slots)).isEqualTo(1);
    assertThat(standIn.call("standin_foreign", 0)).isEqualTo(1);
    eventually("the other thread's", () -> at(slots.asSlice(8)) == 1);
  }

  @Test
  void eventsOrderTheLegacyStreamByItsNameOnly() {
    MemorySegment stream = stream();
    MemorySegment before = event();
    MemorySegment after = event();
    Held held = hold(stream);
    ok("cuEventRecord", before, stream);
    ok("cuStreamWaitEvent", LEGACY, before, 0);
    ok("cuEventRecord", after, LEGACY);
    answers(NOT_READY, "cuEventQuery", after);
    held.release();
    ok("cuEventSynchronize", after);
    ok("cuEventRecord", after, PER_THREAD);
    trapped("default stream");
    under(
        MemorySegment.NULL, () -> answers(INVALID_CONTEXT, "cuStreamWaitEvent", LEGACY, before, 0));
  }

  // --- how much a stream and the hardware take ----------------------------------------------

  @Test
  void theLaunchAfterTheLastPlaceBlocksItsCaller() throws InterruptedException {
    MemorySegment stream = stream();
    MemorySegment nop = kernel("nop");
    Held held = hold(stream);
    Thread filler =
        Thread.ofPlatform()
            .start(
                () -> {
                  for (int i = 0; i < 1_022; i++) {
                    assertThat(launch(stream, nop, 1, 1)).isZero();
                  }
                });
    eventually("a caller is blocked", () -> standIn.blocked() == 1);
    assertThat(standIn.queued(stream)).isEqualTo(1_022); // the held one and 1,021 behind it
    MemorySegment other = stream();
    assertThat(launch(other, nop, 1, 1)).isZero();
    ok("cuStreamSynchronize", other);
    assertThat(standIn.blocked()).isEqualTo(1);
    held.release();
    filler.join();
    ok("cuStreamSynchronize", stream);
  }

  @Test
  void theDepthCanBeSet() throws InterruptedException {
    standIn.depth(2);
    MemorySegment stream = stream();
    MemorySegment nop = kernel("nop");
    Held held = hold(stream);
    assertThat(launch(stream, nop, 1, 1)).isZero();
    Thread blocked = Thread.ofPlatform().start(() -> launch(stream, nop, 1, 1));
    eventually("a caller is blocked", () -> standIn.blocked() == 1);
    held.release();
    blocked.join();
  }

  private interface BehindKernel {
    void enqueue(MemorySegment stream, MemorySegment slot);
  }

  /** Whatever the process's environment says: the driver under test changes it. */
  @BeforeEach
  void asManyQueuesAsADriverHasByItself() {
    standIn.connections(8);
  }

  /** That many streams, each a held kernel with something behind it. */
  private List<Held> load(int streams, BehindKernel behind) {
    standIn.hardwareQueues(true);
    MemorySegment slots = pinned(8L * streams);
    List<Held> held = new ArrayList<>();
    for (int i = 0; i < streams; i++) {
      MemorySegment stream = stream();
      held.add(hold(stream));
      behind.enqueue(stream, slots.asSlice(8L * i, 8));
    }
    return held;
  }

  private MemorySegment probe() {
    MemorySegment probe = stream();
    assertThat(launch(probe, kernel("nop"), 1, 1)).isZero();
    return probe;
  }

  private void endsAfter(List<Held> held, MemorySegment probe) {
    held.forEach(Held::release);
    ok("cuStreamSynchronize", probe);
  }

  @Test
  void oneQueueLeftIsEnough() {
    List<Held> held = load(7, (stream, slot) -> write(stream, slot, 1));
    eventually("7 are occupied", () -> standIn.occupied(0) == 7);
    MemorySegment probe = probe();
    ok("cuStreamSynchronize", probe);
    endsAfter(held, probe);
  }

  @Test
  void streamsStickOnceWriteValuesBehindKernelsOccupyAllQueues() {
    List<Held> held = load(16, (stream, slot) -> write(stream, slot, 1));
    eventually("all are occupied", () -> standIn.occupied(0) >= 8);
    MemorySegment probe = probe();
    answers(NOT_READY, "cuStreamQuery", probe);
    assertThat(standIn.queued(probe)).isEqualTo(1);
    endsAfter(held, probe);
  }

  @Test
  void streamsStickBehindFlagKernelsToo() {
    MemorySegment flag64 = kernel("flag64");
    List<Held> held =
        load(8, (stream, slot) -> assertThat(launch(stream, flag64, 1, 1, slot, 1L)).isZero());
    eventually("all are occupied", () -> standIn.occupied(0) == 8);
    MemorySegment probe = probe();
    answers(NOT_READY, "cuStreamQuery", probe);
    endsAfter(held, probe);
  }

  @Test
  void eventsBehindKernelsOccupyNone() {
    MemorySegment event = event();
    List<Held> held = load(64, (stream, slot) -> ok("cuEventRecord", event, stream));
    MemorySegment probe = probe();
    ok("cuStreamSynchronize", probe);
    assertThat(standIn.occupied(0)).isZero();
    endsAfter(held, probe);
  }

  @Test
  void moreConnectionsAreMoreQueues() {
    standIn.connections(32);
    List<Held> held = load(16, (stream, slot) -> write(stream, slot, 1));
    eventually("16 are occupied", () -> standIn.occupied(0) == 16);
    MemorySegment probe = probe();
    ok("cuStreamSynchronize", probe);
    endsAfter(held, probe);
  }

  /** Whose stream it is does not matter, nor what it is: it is behind it in the queue. */
  @Test
  void inAQueueInOrderAllSticksBehindWhatWaits() {
    standIn.connections(2);
    standIn.hardwareQueuesInOrder();
    MemorySegment gate = stream(); // the streams take turns with the queues
    MemorySegment mine = stream();
    stream();
    MemorySegment other = stream();
    MemorySegment first = event();
    MemorySegment second = event();
    MemorySegment early = event();
    MemorySegment late = event();
    Held one = hold(gate);
    ok("cuEventRecord", first, gate);
    Held two = hold(gate);
    ok("cuEventRecord", second, gate);
    MemorySegment nop = kernel("nop");
    ok("cuStreamWaitEvent", mine, first, 0);
    assertThat(launch(mine, nop, 1, 1)).isZero();
    ok("cuEventRecord", early, mine);
    ok("cuStreamWaitEvent", other, second, 0);
    assertThat(launch(other, nop, 1, 1)).isZero();
    ok("cuEventRecord", late, mine);
    one.release();
    eventually("what came before it ends", () -> standIn.call("cuEventQuery", early) == 0);
    answers(NOT_READY, "cuEventQuery", late);
    assertThat(standIn.queued(mine)).isEqualTo(1);
    two.release();
    ok("cuEventSynchronize", late);
    ok("cuStreamSynchronize", other);
  }

  @Test
  void withoutTheModeThereIsAQueueForEach() {
    List<Held> held = load(16, (stream, slot) -> write(stream, slot, 1));
    standIn.hardwareQueues(false);
    MemorySegment probe = probe();
    ok("cuStreamSynchronize", probe);
    endsAfter(held, probe);
  }

  // --- host functions -----------------------------------------------------------------------

  private final List<Integer> seen = Collections.synchronizedList(new ArrayList<>());

  @SuppressWarnings("UnusedMethod") // called by the stand-in
  private void callWithin(MemorySegment data) {
    seen.add(standIn.call("cuStreamQuery", data));
  }

  private MemorySegment hostFunction() throws ReflectiveOperationException {
    MethodHandle handle =
        MethodHandles.lookup()
            .bind(this, "callWithin", MethodType.methodType(void.class, MemorySegment.class));
    return Linker.nativeLinker()
        .upcallStub(handle, FunctionDescriptor.ofVoid(ValueLayout.ADDRESS), arena);
  }

  @Test
  void aHostFunctionRunsInOrderAndMustNotCall() throws ReflectiveOperationException {
    MemorySegment stream = stream();
    Held held = hold(stream);
    ok("cuLaunchHostFunc", stream, hostFunction(), stream);
    assertThat(seen).isEmpty();
    held.release();
    ok("cuStreamSynchronize", stream);
    assertThat(seen).containsExactly(NOT_PERMITTED);
    trapped("call inside a host function");
  }

  // --- wrong uses ---------------------------------------------------------------------------

  @Test
  void staleAndFalseHandles() {
    MemorySegment stream = stream();
    ok("cuStreamDestroy_v2", stream);
    eventually("it is gone", () -> standIn.queued(stream) == 0);
    answers(INVALID_HANDLE, "cuStreamQuery", stream);
    trapped("stale handle");
    MemorySegment next = stream(); // in the same slot
    assertThat(next).isNotEqualTo(stream);
    answers(INVALID_HANDLE, "cuStreamDestroy_v2", stream);
    trapped("stale handle");
    answers(INVALID_HANDLE, "cuEventQuery", next);
    trapped("stale handle");
    answers(INVALID_HANDLE, "cuStreamQuery", MemorySegment.ofAddress(0xDEADBEEFL));
    trapped("stale handle");
    MemorySegment event = event();
    ok("cuEventDestroy_v2", event);
    answers(INVALID_HANDLE, "cuEventDestroy_v2", event);
    trapped("stale handle");
  }

  @Test
  void eventsAndStreamsOfDifferentContexts() {
    MemorySegment event = event();
    MemorySegment stream = stream();
    MemorySegment[] foreign = new MemorySegment[1];
    under(otherContext(), () -> foreign[0] = stream());
    answers(INVALID_HANDLE, "cuEventRecord", event, foreign[0]);
    trapped("wrong context");
    ok("cuEventRecord", event, stream);
    ok("cuStreamWaitEvent", foreign[0], event, 0); // this is allowed
    ok("cuStreamSynchronize", foreign[0]);
  }
}
