package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** What the stand-in knows of two devices. */
@EnabledOnOs(OS.LINUX)
class StandInPeerTest extends StandInFixture {
  private static final int PEER_ACCESS_UNSUPPORTED = 217;
  private static final int PEER_ACCESS_ALREADY_ENABLED = 704;

  private MemorySegment access(int device, int flags) {
    return arena.allocateFrom(ValueLayout.JAVA_INT, 1, device, flags);
  }

  @Test
  void accessIsAskedForOnceByContextAndByPool() {
    MemorySegment other = otherContext();
    assertThat((int) number("cuDeviceCanAccessPeer", 0, 1)).isEqualTo(1);
    assertThat((int) number("cuDeviceCanAccessPeer", 0, 0)).isZero();
    ok("cuCtxEnablePeerAccess", other, 0);
    answers(PEER_ACCESS_ALREADY_ENABLED, "cuCtxEnablePeerAccess", other, 0);
    answers(PEER_ACCESS_UNSUPPORTED, "cuCtxEnablePeerAccess", context, 0);
    assertThat(standIn.reaches(0, 1)).as("not the pool's memory yet").isFalse();
    MemorySegment pool = pointer("cuDeviceGetDefaultMemPool", 1);
    answers(INVALID_VALUE, "cuMemPoolSetAccess", pool, access(1, 3), 1L);
    ok("cuMemPoolSetAccess", pool, access(0, 3), 1L);
    assertThat(standIn.reaches(0, 1)).isTrue();
    assertThat(standIn.reaches(1, 0)).isFalse();
    ok("cuMemPoolSetAccess", pool, access(0, 0), 1L);
    assertThat(standIn.reaches(0, 1)).isFalse();
  }

  @Test
  void devicesMayBeApart() {
    standIn.apart(true);
    MemorySegment other = otherContext();
    assertThat((int) number("cuDeviceCanAccessPeer", 0, 1)).isZero();
    answers(PEER_ACCESS_UNSUPPORTED, "cuCtxEnablePeerAccess", other, 0);
  }

  @Test
  void eachDeviceHasAPlaceOnTheBus() {
    MemorySegment text = arena.allocate(20);
    ok("cuDeviceGetPCIBusId", text, 20, 1);
    assertThat(text.getString(0)).isEqualTo("0000:02:00.0");
    answers(INVALID_VALUE, "cuDeviceGetPCIBusId", text, 5, 1);
  }

  @Test
  void fillsOfTwoBytes() {
    MemorySegment stream = stream();
    long memory = allocate(stream, 16);
    answers(INVALID_VALUE, "cuMemsetD16Async", memory + 1, 7, 2L, stream);
    ok("cuMemsetD16Async", memory + 2, 0x1234, 2L, stream);
    MemorySegment host = pinned(8);
    ok("cuMemcpyDtoHAsync_v2", host, memory, 8L, stream);
    ok("cuStreamSynchronize", stream);
    assertThat(host.get(ValueLayout.JAVA_INT_UNALIGNED, 2)).isEqualTo(0x12341234);
    ok("cuMemFreeAsync", memory, stream);
    ok("cuStreamSynchronize", stream);
  }
}
