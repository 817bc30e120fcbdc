package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.ffi.StandInLibrary.Live;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

/** The stand-in's devices, primary contexts, current contexts, faults and injected failures. */
class StandInContextTest extends StandInFixture {
  private static final int NOT_INITIALIZED = 3;
  private static final int INVALID_DEVICE = 101;

  private static <T> T onAnotherThread(Supplier<T> body) {
    CompletableFuture<T> answer = new CompletableFuture<>();
    Thread.ofPlatform()
        .start(
            () -> {
              try {
                answer.complete(body.get());
              } catch (RuntimeException | Error e) {
                answer.completeExceptionally(e);
              }
            });
    return answer.join();
  }

  private void onAnotherThread(Runnable body) {
    onAnotherThread(
        () -> {
          body.run();
          return true;
        });
  }

  // --- the driver ---------------------------------------------------------------------------

  @Test
  void demandsInit() {
    standIn.reset();
    ok("cuDriverGetVersion", out());
    answers(NOT_INITIALIZED, "cuDeviceGetCount", out());
    answers(INVALID_VALUE, "cuInit", 1);
    ok("cuInit", 0);
    ok("cuDeviceGetCount", out());
  }

  @Test
  void hasNoDevice() {
    standIn.reset();
    standIn.devices(0);
    answers(100, "cuInit", 0);
  }

  @Test
  void describesItsDevices() {
    assertThat(number("cuDeviceGetCount")).isEqualTo(2);
    answers(INVALID_DEVICE, "cuDeviceGet", out(), 2);
    MemorySegment name = arena.allocate(32);
    ok("cuDeviceGetName", name, 32, 1);
    assertThat(name.getString(0)).isEqualTo("Stand-in 1");
    standIn.memory(1, 4_096);
    assertThat(number("cuDeviceTotalMem_v2", 1)).isEqualTo(4_096);
    assertThat(number("cuDeviceGetAttribute", 75, 0)).isEqualTo(9);
    answers(INVALID_VALUE, "cuDeviceGetAttribute", out(), 9_999, 0);
    ok("cuDeviceGetUuid_v2", out(), 1);
  }

  @Test
  void errorNamesComeBack() {
    MemorySegment text = out();
    ok("cuGetErrorName", 700, text);
    assertThat(text.get(ValueLayout.ADDRESS, 0).reinterpret(64).getString(0))
        .isEqualTo("CUDA_ERROR_ILLEGAL_ADDRESS");
    answers(INVALID_VALUE, "cuGetErrorName", -7, text);
    ok("cuGetErrorString", 2, text);
    assertThat(text.get(ValueLayout.ADDRESS, 0).reinterpret(64).getString(0))
        .isEqualTo("out of memory");
  }

  // --- current contexts ---------------------------------------------------------------------

  @Test
  void currentIsPerThread() {
    assertThat(pointer("cuCtxGetCurrent")).isEqualTo(context);
    assertThat(onAnotherThread(() -> pointer("cuCtxGetCurrent"))).isEqualTo(MemorySegment.NULL);
  }

  @Test
  void currentIsAStack() {
    MemorySegment other = otherContext();
    ok("cuCtxPushCurrent_v2", other);
    assertThat(pointer("cuCtxGetCurrent")).isEqualTo(other);
    assertThat(number("cuCtxGetDevice") & 0xFFFF).isEqualTo(1);
    assertThat(pointer("cuCtxPopCurrent_v2")).isEqualTo(other);
    assertThat(pointer("cuCtxGetCurrent")).isEqualTo(context);
    assertThat(pointer("cuCtxPopCurrent_v2")).isEqualTo(context);
    answers(INVALID_CONTEXT, "cuCtxPopCurrent_v2", out());
    ok("cuCtxSetCurrent", MemorySegment.NULL);
    answers(INVALID_CONTEXT, "cuCtxGetDevice", out());
  }

  @Test
  void aNewDriverDemandsACurrentContextOfFewCalls() {
    MemorySegment stream = stream();
    MemorySegment event = event();
    MemorySegment nop = kernel("nop");
    MemorySegment module = pointer("cuModuleLoadData", IMAGE);
    onAnotherThread(
        () -> {
          answers(INVALID_CONTEXT, "cuMemAlloc_v2", out(), 8L);
          answers(INVALID_CONTEXT, "cuEventCreate", out(), 2);
          answers(INVALID_CONTEXT, "cuStreamCreateWithPriority", out(), 1, 0);
          answers(INVALID_CONTEXT, "cuMemHostAlloc", out(), 8L, 0);
          answers(INVALID_CONTEXT, "cuModuleLoadData", out(), IMAGE);
          ok("cuStreamQuery", stream);
          ok("cuEventRecord", event, stream);
          ok("cuStreamWaitEvent", stream, event, 0);
          ok("cuEventSynchronize", event);
          ok("cuMemFreeAsync", allocate(stream, 64), stream);
          ok("cuModuleGetFunction", out(), module, "nop");
          assertThat(launch(stream, nop, 1, 1)).isZero();
          ok("cuStreamSynchronize", stream);
        });
  }

  @Test
  void anOldDriverDemandsOneOfEvery() {
    MemorySegment stream = stream();
    MemorySegment event = event();
    standIn.oldDriver(true);
    onAnotherThread(
        () -> {
          answers(INVALID_CONTEXT, "cuStreamQuery", stream);
          answers(INVALID_CONTEXT, "cuEventQuery", event);
          answers(INVALID_CONTEXT, "cuMemAllocAsync", out(), 8L, stream);
          ok("cuDeviceGetCount", out());
          ok("cuCtxSetCurrent", context);
          ok("cuStreamQuery", stream);
        });
  }

  @Test
  void anOldDriverTrapsTheWrongOne() {
    MemorySegment stream = stream();
    standIn.oldDriver(true);
    under(otherContext(), () -> answers(INVALID_HANDLE, "cuStreamQuery", stream));
    trapped("wrong context");
    ok("cuStreamQuery", stream);
  }

  // --- primary contexts ---------------------------------------------------------------------

  @Test
  void retainsAreCounted() {
    assertThat(pointer("cuDevicePrimaryCtxRetain", 0)).isEqualTo(context);
    ok("cuDevicePrimaryCtxRelease_v2", 0);
    MemorySegment flags = out();
    MemorySegment active = out();
    ok("cuDevicePrimaryCtxSetFlags_v2", 0, 4);
    ok("cuDevicePrimaryCtxGetState", 0, flags, active);
    assertThat(flags.get(ValueLayout.JAVA_INT, 0)).isEqualTo(4);
    assertThat(active.get(ValueLayout.JAVA_INT, 0)).isEqualTo(1);
    ok("cuDevicePrimaryCtxRelease_v2", 0);
    ok("cuDevicePrimaryCtxGetState", 0, flags, active);
    assertThat(active.get(ValueLayout.JAVA_INT, 0)).isZero();
    answers(INVALID_CONTEXT, "cuDevicePrimaryCtxRelease_v2", 0);
    trapped("released too often");
  }

  @Test
  void theLastReleaseEndsAllThatLivesInIt() {
    MemorySegment stream = stream();
    event();
    kernel("nop");
    pinned(64);
    allocate(stream, 64);
    ok("cuDevicePrimaryCtxRelease_v2", 0);
    for (Live kind : Live.values()) {
      assertThat(standIn.live(kind)).as("live %s", kind).isZero();
    }
    answers(CONTEXT_IS_DESTROYED, "cuStreamQuery", stream);
    trapped("stale handle");
    answers(CONTEXT_IS_DESTROYED, "cuCtxSynchronize");
    trapped("stale handle");
    answers(INVALID_CONTEXT, "cuCtxSetCurrent", context);
    trapped("stale handle");
    assertThat(pointer("cuCtxGetCurrent")).isEqualTo(context); // looking is allowed
  }

  @Test
  void aResetEndsWorkAtOnceAndGivesANewContext() {
    MemorySegment stream = stream();
    hold(stream);
    ok("cuDevicePrimaryCtxReset_v2", 0);
    answers(CONTEXT_IS_DESTROYED, "cuStreamSynchronize", stream);
    trapped("stale handle");
    MemorySegment next = pointer("cuDevicePrimaryCtxRetain", 0);
    assertThat(next).isNotEqualTo(context);
    ok("cuCtxSetCurrent", next);
    ok("cuStreamSynchronize", stream());
    ok("cuDevicePrimaryCtxRelease_v2", 0);
    ok("cuDevicePrimaryCtxRelease_v2", 0); // each retain wants its release
    assertThat(standIn.live(Live.CONTEXTS)).isZero();
  }

  @Test
  void contextsOfOnesOwnAreCurrentWhereTheyWereMade() {
    MemorySegment own = pointer("cuCtxCreate_v2", 0, 0);
    assertThat(own).isNotEqualTo(context);
    assertThat(pointer("cuCtxGetCurrent")).isEqualTo(own);
    MemorySegment stream = stream();
    MemorySegment home = out();
    ok("cuStreamGetCtx", stream, home);
    assertThat(home.get(ValueLayout.ADDRESS, 0)).isEqualTo(own);
    answers(INVALID_CONTEXT, "cuCtxDestroy_v2", context);
    ok("cuCtxDestroy_v2", own);
    assertThat(pointer("cuCtxGetCurrent")).isEqualTo(context); // the one below
    answers(CONTEXT_IS_DESTROYED, "cuStreamQuery", stream);
    trapped("stale handle");
    pointer("cuCtxCreate_v2", 0, 1); // a reset ends it
  }

  // --- faults -------------------------------------------------------------------------------

  private void faultsWith(int status, String kernel) {
    MemorySegment stream = stream();
    MemorySegment other = stream();
    MemorySegment event = event();
    MemorySegment slot = pinned(8);
    hold(other);
    ok("cuEventRecord", event, other);
    assertThat(launch(stream, kernel(kernel), 1, 1)).isZero(); // asynchronously
    standIn.call("cuStreamWriteValue64_v2", stream, slot, 1L, 0);
    answers(status, "cuStreamSynchronize", stream);
    answers(status, "cuStreamQuery", other);
    answers(status, "cuStreamSynchronize", other); // what it held is given up
    answers(status, "cuEventQuery", event);
    answers(status, "cuMemAllocAsync", out(), 8L, stream);
    answers(status, "cuMemAlloc_v2", out(), 8L);
    answers(status, "cuCtxSynchronize");
    answers(status, "cuStreamDestroy_v2", stream);
    assertThat(slot.get(ValueLayout.JAVA_LONG, 0)).as("nothing after a fault").isZero();
    under(otherContext(), () -> ok("cuCtxSynchronize")); // another context goes on
    answers(status, "cuDevicePrimaryCtxRetain", out(), 0);
    ok("cuDevicePrimaryCtxReset_v2", 0);
    ok("cuCtxSetCurrent", pointer("cuDevicePrimaryCtxRetain", 0));
    ok("cuStreamSynchronize", stream());
  }

  @Test
  void anIllegalAddressIsFatal() {
    faultsWith(ILLEGAL_ADDRESS, "nullstore");
  }

  @Test
  void anAssertIsFatal() {
    faultsWith(710, "assertfail");
  }

  @Test
  void aTrapIsFatal() {
    faultsWith(719, "trapfail");
  }

  @Test
  void whoWaitsLearnsOfAFault() {
    MemorySegment stream = stream();
    hold(stream);
    CompletableFuture<Integer> waits =
        CompletableFuture.supplyAsync(() -> standIn.call("cuStreamSynchronize", stream));
    standIn.fault(0, 714);
    assertThat(waits.join()).isEqualTo(714);
    standIn.fault(0, ILLEGAL_ADDRESS);
    answers(714, "cuStreamQuery", stream); // the first cause stays
  }

  @Test
  void aStreamOfAnotherContextGoesOnPastAFault() {
    MemorySegment stream = stream();
    MemorySegment event = event();
    hold(stream);
    ok("cuEventRecord", event, stream);
    under(
        otherContext(),
        () -> {
          MemorySegment waits = stream();
          ok("cuStreamWaitEvent", waits, event, 0);
          answers(NOT_READY, "cuStreamQuery", waits);
          standIn.fault(0, ILLEGAL_ADDRESS);
          ok("cuStreamSynchronize", waits);
        });
  }

  @Test
  void failuresAreInjected() {
    MemorySegment stream = stream();
    standIn.failNext("cuMemAllocAsync", OUT_OF_MEMORY, 2);
    answers(OUT_OF_MEMORY, "cuMemAllocAsync", out(), 8L, stream);
    answers(OUT_OF_MEMORY, "cuMemAllocAsync", out(), 8L, stream);
    ok("cuMemAllocAsync", out(), 8L, stream);
    assertThat(standIn.calls("cuMemAllocAsync")).isEqualTo(3);
  }
}
