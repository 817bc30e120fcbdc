package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.ffi.StandInLibrary.Live;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** The stand-in's allocations, pools, pinned memory, copies and fills, and their wrong uses. */
class StandInMemoryTest extends StandInFixture {
  private static final int ALREADY_REGISTERED = 712;
  private static final int NOT_REGISTERED = 713;

  private long available() {
    MemorySegment free = out();
    ok("cuMemGetInfo_v2", free, out());
    return free.get(ValueLayout.JAVA_LONG, 0);
  }

  private long pool(int attribute) {
    MemorySegment value = out();
    ok("cuMemPoolGetAttribute", pointer("cuDeviceGetDefaultMemPool", 0), attribute, value);
    return value.get(ValueLayout.JAVA_LONG, 0);
  }

  private long read(MemorySegment stream, long address) {
    MemorySegment target = pinned(8);
    ok("cuMemcpyDtoHAsync_v2", target, address, 8L, stream);
    ok("cuStreamSynchronize", stream);
    return target.get(ValueLayout.JAVA_LONG, 0);
  }

  /** Makes what the stream is given next come after all that the other one has. */
  private void order(MemorySegment before, MemorySegment after) {
    MemorySegment event = event();
    ok("cuEventRecord", event, before);
    ok("cuStreamWaitEvent", after, event, 0);
  }

  // --- how much there is --------------------------------------------------------------------

  @Test
  void memoryIsLimited() {
    standIn.memory(0, 1_000);
    MemorySegment stream = stream();
    long first = allocate(stream, 600);
    answers(OUT_OF_MEMORY, "cuMemAllocAsync", out(), 401L, stream);
    answers(OUT_OF_MEMORY, "cuMemAlloc_v2", out(), 401L);
    answers(INVALID_VALUE, "cuMemAlloc_v2", out(), 0L);
    long second = number("cuMemAlloc_v2", 400L);
    assertThat(available()).isZero();
    ok("cuMemFreeAsync", first, stream);
    ok("cuMemFree_v2", second);
    ok("cuStreamSynchronize", stream);
    assertThat(available()).isEqualTo(1_000);
    assertThat(standIn.live(Live.DEVICE_ALLOCATIONS)).isZero();
  }

  @Test
  void aStreamMayHaveAgainWhatItIsAboutToFree() {
    standIn.memory(0, 1_000);
    MemorySegment stream = stream();
    MemorySegment other = stream();
    Held held = hold(stream);
    ok("cuMemFreeAsync", allocate(stream, 1_000), stream);
    answers(OUT_OF_MEMORY, "cuMemAllocAsync", out(), 1_000L, other);
    long again = allocate(stream, 1_000);
    ok("cuMemFreeAsync", again, stream);
    held.release();
    ok("cuStreamSynchronize", stream);
    ok("cuMemFreeAsync", allocate(other, 1_000), other);
  }

  @Test
  void aPoolKeepsUpToItsThreshold() {
    MemorySegment stream = stream();
    MemorySegment pool = pointer("cuDeviceGetDefaultMemPool", 0);
    MemorySegment threshold = arena.allocateFrom(ValueLayout.JAVA_LONG, 500);
    ok("cuMemPoolSetAttribute", pool, 4, threshold);
    ok("cuMemFreeAsync", allocate(stream, 800), stream);
    ok("cuStreamSynchronize", stream);
    assertThat(pool(4)).isEqualTo(500);
    assertThat(pool(7)).isZero(); // in use
    assertThat(pool(8)).isEqualTo(800); // at most
    assertThat(pool(5)).isEqualTo(500); // kept
    ok("cuMemPoolTrimTo", pool, 100L);
    assertThat(pool(5)).isEqualTo(100);
  }

  @Test
  void aPoolThatKeepsLeavesNothingToOthersUntilItIsTrimmed() {
    standIn.memory(0, 1_000);
    MemorySegment stream = stream();
    MemorySegment pool = pointer("cuDeviceGetDefaultMemPool", 0);
    ok("cuMemPoolSetAttribute", pool, 4, arena.allocateFrom(ValueLayout.JAVA_LONG, -1L));
    ok("cuMemFreeAsync", allocate(stream, 800), stream);
    ok("cuStreamSynchronize", stream);
    ok("cuMemFree_v2", number("cuMemAlloc_v2", 400L));
    standIn.poolKeeps(true);
    assertThat(available()).isEqualTo(200);
    answers(OUT_OF_MEMORY, "cuMemAlloc_v2", out(), 400L);
    ok("cuMemFreeAsync", allocate(stream, 800), stream); // its own it may have
    ok("cuStreamSynchronize", stream);
    ok("cuMemPoolTrimTo", pool, 0L);
    assertThat(available()).isEqualTo(1_000);
    ok("cuMemFree_v2", number("cuMemAlloc_v2", 400L));
  }

  // --- copies and fills ---------------------------------------------------------------------

  @Test
  void copiesAndFills() {
    MemorySegment stream = stream();
    long a = allocate(stream, 64);
    long b = allocate(stream, 64);
    MemorySegment source = pinned(64);
    source.set(ValueLayout.JAVA_LONG, 56, 42);
    ok("cuMemcpyHtoDAsync_v2", a, source, 64L, stream);
    ok("cuMemcpyDtoDAsync_v2", b, a, 64L, stream);
    assertThat(read(stream, b + 56)).isEqualTo(42);
    ok("cuMemsetD8Async", a, (int) (byte) 0x11, 64L, stream);
    assertThat(read(stream, a)).isEqualTo(0x1111111111111111L);
    ok("cuMemsetD32Async", a, 7, 2L, stream);
    assertThat(read(stream, a)).isEqualTo(0x0000000700000007L);
    answers(INVALID_VALUE, "cuMemsetD32Async", a + 2, 7, 1L, stream);
  }

  @Test
  void peersCopy() {
    MemorySegment stream = stream();
    long here = allocate(stream, 8);
    ok("cuMemsetD32Async", here, 5, 2L, stream);
    ok("cuStreamSynchronize", stream);
    MemorySegment other = otherContext();
    under(
        other,
        () -> {
          MemorySegment foreign = stream();
          long there = allocate(foreign, 8);
          ok("cuMemcpyPeerAsync", there, other, here, context, 8L, foreign);
          assertThat(read(foreign, there)).isEqualTo(0x0000000500000005L);
          answers(INVALID_VALUE, "cuMemcpyPeerAsync", there, context, here, context, 8L, foreign);
          trapped("wrong context");
        });
  }

  @Test
  void freshAndFreedMemoryIsPoison() {
    MemorySegment stream = stream();
    long address = allocate(stream, 8);
    assertThat(read(stream, address)).isEqualTo(0xCDCDCDCDCDCDCDCDL);
    MemorySegment pinned = pointer("cuMemHostAlloc", 8L, 0).reinterpret(8);
    assertThat(pinned.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(0xCDCDCDCDCDCDCDCDL);
    ok("cuMemFreeHost", pinned);
    assertThat(pinned.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(0xDDDDDDDDDDDDDDDDL);
  }

  @Test
  void pageableMemoryIsStaged() {
    MemorySegment stream = stream();
    long address = allocate(stream, 8);
    MemorySegment pageable = arena.allocateFrom(ValueLayout.JAVA_LONG, 9);
    ok("cuMemcpyHtoDAsync_v2", address, pageable, 8L, stream);
    MemorySegment back = arena.allocate(8);
    ok("cuMemcpyDtoHAsync_v2", back, address, 8L, stream); // returns when all is there
    assertThat(back.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(9);
  }

  @Test
  void unpinnedMemoryMustNotChangeUntilItIsCopied() {
    MemorySegment stream = stream();
    long address = allocate(stream, 8);
    MemorySegment pageable = arena.allocateFrom(ValueLayout.JAVA_LONG, 9);
    Held held = hold(stream);
    ok("cuMemcpyHtoDAsync_v2", address, pageable, 8L, stream);
    pageable.set(ValueLayout.JAVA_LONG, 0, 10);
    held.release();
    ok("cuStreamSynchronize", stream);
    trapped("changed during the copy");
  }

  // --- pinned memory ------------------------------------------------------------------------

  @Test
  void pinnedMemoryHasADeviceAddress() {
    MemorySegment pinned = pinned(64);
    MemorySegment inside = pinned.asSlice(8);
    assertThat(number("cuMemHostGetDevicePointer_v2", inside, 0)).isEqualTo(inside.address());
    MemorySegment kind = out();
    ok("cuPointerGetAttribute", kind, 2, pinned.address());
    assertThat(kind.get(ValueLayout.JAVA_INT, 0)).isEqualTo(1); // host
    long device = allocate(stream(), 64);
    ok("cuPointerGetAttribute", kind, 2, device + 63);
    assertThat(kind.get(ValueLayout.JAVA_INT, 0)).isEqualTo(2);
    answers(INVALID_VALUE, "cuPointerGetAttribute", kind, 2, device + 64);
  }

  @Test
  void hostMemoryIsRegistered() {
    MemorySegment block = arena.allocate(64, 64);
    ok("cuMemHostRegister_v2", block, 64L, 0);
    answers(ALREADY_REGISTERED, "cuMemHostRegister_v2", block.asSlice(32), 64L, 0);
    MemorySegment stream = stream();
    ok("cuMemcpyHtoDAsync_v2", allocate(stream, 64), block, 64L, stream);
    ok("cuStreamSynchronize", stream);
    answers(NOT_REGISTERED, "cuMemHostUnregister", block.asSlice(8));
    ok("cuMemHostUnregister", block);
    answers(NOT_REGISTERED, "cuMemHostUnregister", block);
    assertThat(standIn.live(Live.HOST_ALLOCATIONS)).isZero();
  }

  // --- wrong uses ---------------------------------------------------------------------------

  @Test
  void copiesStayWithinAllocations() {
    MemorySegment stream = stream();
    long address = allocate(stream, 64);
    MemorySegment pinned = pinned(64);
    answers(INVALID_VALUE, "cuMemcpyHtoDAsync_v2", address + 8, pinned, 64L, stream);
    trapped("outside an allocation");
    answers(INVALID_VALUE, "cuMemcpyHtoDAsync_v2", 0x1000L, pinned, 8L, stream);
    trapped("outside an allocation");
    answers(INVALID_VALUE, "cuMemcpyHtoDAsync_v2", address, pinned.asSlice(8), 64L, stream);
    trapped("outside an allocation");
    answers(
        INVALID_VALUE,
        "cuMemcpyHtoDAsync_v2",
        address,
        MemorySegment.ofAddress(address),
        8L,
        stream);
    trapped("outside an allocation");
    answers(INVALID_VALUE, "cuMemsetD8Async", address, 0, 65L, stream);
    trapped("outside an allocation");
    answers(INVALID_VALUE, "cuStreamWriteValue64_v2", stream, address + 64, 1L, 0);
    trapped("outside an allocation");
    answers(INVALID_VALUE, "cuStreamWriteValue64_v2", stream, address + 4, 1L, 0);
  }

  @Test
  void freedMemoryIsNotUsed() {
    MemorySegment stream = stream();
    long address = allocate(stream, 64);
    Held held = hold(stream);
    ok("cuMemFreeAsync", address, stream); // not yet come to pass, but nobody may name it now
    answers(INVALID_VALUE, "cuMemcpyHtoDAsync_v2", address, pinned(8), 8L, stream);
    trapped("use after free");
    held.release();
    ok("cuStreamSynchronize", stream);
    answers(INVALID_VALUE, "cuMemcpyDtoHAsync_v2", pinned(8), address, 8L, stream);
    trapped("use after free");
    assertThat(launch(stream, kernel("count"), 1, 1, address)).isZero();
    trapped("use after free");
    answers(ILLEGAL_ADDRESS, "cuStreamSynchronize", stream);
  }

  @Test
  void nothingIsFreedTwice() {
    MemorySegment stream = stream();
    long address = allocate(stream, 64);
    ok("cuMemFreeAsync", address, stream);
    answers(INVALID_VALUE, "cuMemFreeAsync", address, stream);
    trapped("double free");
    answers(INVALID_VALUE, "cuMemFree_v2", address);
    trapped("double free");
    answers(INVALID_VALUE, "cuMemFreeAsync", allocate(stream, 64) + 8, stream);
    trapped("outside an allocation");
    MemorySegment pinned = pinned(8);
    ok("cuMemFreeHost", pinned);
    answers(INVALID_VALUE, "cuMemFreeHost", pinned);
    trapped("double free");
  }

  @Test
  void aFreeComesAfterOtherStreamsWork() {
    MemorySegment user = stream();
    MemorySegment owner = stream();
    long address = allocate(owner, 64);
    ok("cuStreamSynchronize", owner);
    Held held = hold(user);
    ok("cuMemsetD8Async", address, 0, 64L, user);
    ok("cuMemFreeAsync", address, owner);
    trapped("free with work pending");
    held.release();
    ok("cuStreamSynchronize", user);
  }

  @Test
  void aFreeMayComeAfterAnEvent() {
    MemorySegment user = stream();
    MemorySegment between = stream();
    MemorySegment owner = stream();
    long address = allocate(owner, 64);
    ok("cuStreamSynchronize", owner);
    Held held = hold(user);
    ok("cuMemsetD8Async", address, 0, 64L, user);
    order(user, between); // through a third stream as well
    order(between, owner);
    ok("cuMemFreeAsync", address, owner);
    held.release();
    ok("cuStreamSynchronize", owner);
  }

  @Test
  void workThatIsOverNeedsNoEvent() {
    MemorySegment user = stream();
    MemorySegment owner = stream();
    long address = allocate(owner, 64);
    ok("cuStreamSynchronize", owner);
    ok("cuMemsetD8Async", address, 0, 64L, user);
    ok("cuStreamSynchronize", user);
    ok("cuMemFreeAsync", address, owner);
  }

  @Test
  void aUseComesAfterTheAllocationInTheOrderOfStreams() {
    MemorySegment owner = stream();
    MemorySegment user = stream();
    Held held = hold(owner);
    long address = allocate(owner, 64);
    ok("cuMemsetD8Async", address, 0, 64L, user);
    trapped("use before its allocation");
    held.release();
    ok("cuStreamSynchronize", owner);
    ok("cuStreamSynchronize", user);
  }

  @Test
  void pinnedMemoryIsFreedAfterItsCopies() {
    MemorySegment stream = stream();
    long address = allocate(stream, 8);
    MemorySegment pinned = pinned(8);
    Held held = hold(stream);
    ok("cuMemcpyHtoDAsync_v2", address, pinned, 8L, stream);
    CompletableFuture<Integer> freed =
        CompletableFuture.supplyAsync(() -> standIn.call("cuMemFreeHost", pinned));
    eventually("it is trapped", () -> !standIn.traps().isEmpty());
    held.release();
    assertThat(freed.join()).isZero();
    trapped("free with work pending");
  }

  @Test
  void aSynchronousFreeWaitsForAll() {
    long address = number("cuMemAlloc_v2", 64L);
    MemorySegment stream = stream();
    Held held = hold(stream);
    CompletableFuture<Integer> freed =
        CompletableFuture.supplyAsync(() -> standIn.call("cuMemFree_v2", address));
    eventually("it is called", () -> standIn.calls("cuMemFree_v2") == 1);
    assertThat(freed).isNotDone();
    held.release();
    assertThat(freed.join()).isZero();
    ok("cuStreamQuery", stream);
  }

  @Test
  void anotherDevicesMemory() {
    long here = allocate(stream(), 64);
    under(
        otherContext(),
        () -> {
          MemorySegment foreign = stream();
          answers(INVALID_VALUE, "cuMemsetD8Async", here, 0, 64L, foreign);
          trapped("wrong context");
          answers(INVALID_VALUE, "cuMemFreeAsync", here, foreign);
          trapped("wrong context");
        });
  }
}
