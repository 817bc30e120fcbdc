package io.fairlead.ffi.cuda;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.JAVA_CHAR;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * The functions of a driver library between two devices, and fills that only some callers need; as
 * {@link CudaApi}.
 */
final class PeerApi {
  private static final MethodHandle PII = CudaApi.shape(JAVA_LONG, JAVA_INT, JAVA_INT);
  private static final MethodHandle PI = CudaApi.shape(JAVA_LONG, JAVA_INT);
  private static final MethodHandle PPP = CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPPPPP =
      CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PCPP =
      CudaApi.shape(JAVA_LONG, JAVA_CHAR, JAVA_LONG, JAVA_LONG);

  private final MemorySegment deviceCanAccessPeer;
  private final MemorySegment ctxEnablePeerAccess;
  private final MemorySegment memPoolSetAccess;
  private final MemorySegment memcpyPeerAsync;
  private final MemorySegment memsetD16Async;
  private final MemorySegment deviceGetPciBusId;

  PeerApi(CudaApi api) {
    deviceCanAccessPeer = api.optional("cuDeviceCanAccessPeer");
    ctxEnablePeerAccess = api.optional("cuCtxEnablePeerAccess");
    memPoolSetAccess = api.optional("cuMemPoolSetAccess");
    memcpyPeerAsync = api.optional("cuMemcpyPeerAsync");
    memsetD16Async = api.optional("cuMemsetD16Async");
    deviceGetPciBusId = api.optional("cuDeviceGetPCIBusId");
  }

  boolean hasAccess() {
    return deviceCanAccessPeer.address() != 0
        && ctxEnablePeerAccess.address() != 0
        && memPoolSetAccess.address() != 0;
  }

  boolean hasCopies() {
    return memcpyPeerAsync.address() != 0;
  }

  boolean hasWideFills() {
    return memsetD16Async.address() != 0;
  }

  boolean hasBusIds() {
    return deviceGetPciBusId.address() != 0;
  }

  int deviceCanAccessPeer(long answer, int device, int peer) {
    try {
      return (int) PII.invokeExact(deviceCanAccessPeer, answer, device, peer);
    } catch (Throwable e) {
      throw unexpected("cuDeviceCanAccessPeer", e);
    }
  }

  int ctxEnablePeerAccess(long peer, int flags) {
    try {
      return (int) PI.invokeExact(ctxEnablePeerAccess, peer, flags);
    } catch (Throwable e) {
      throw unexpected("cuCtxEnablePeerAccess", e);
    }
  }

  int memPoolSetAccess(long pool, long descriptions, long count) {
    try {
      return (int) PPP.invokeExact(memPoolSetAccess, pool, descriptions, count);
    } catch (Throwable e) {
      throw unexpected("cuMemPoolSetAccess", e);
    }
  }

  int memcpyPeerAsync(
      long target, long targetContext, long source, long sourceContext, long bytes, long stream) {
    try {
      return (int)
          PPPPPP.invokeExact(
              memcpyPeerAsync, target, targetContext, source, sourceContext, bytes, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemcpyPeerAsync", e);
    }
  }

  int memsetD16Async(long target, char value, long count, long stream) {
    try {
      return (int) PCPP.invokeExact(memsetD16Async, target, value, count, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemsetD16Async", e);
    }
  }

  int deviceGetPciBusId(long text, int length, int device) {
    try {
      return (int) PII.invokeExact(deviceGetPciBusId, text, length, device);
    } catch (Throwable e) {
      throw unexpected("cuDeviceGetPCIBusId", e);
    }
  }
}
