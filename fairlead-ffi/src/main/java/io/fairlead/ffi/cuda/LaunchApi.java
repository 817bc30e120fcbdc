package io.fairlead.ffi.cuda;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * The functions of a driver library about kernels and launches that older drivers lack; as {@link
 * CudaApi}. Whoever calls one asks first whether it is there.
 */
final class LaunchApi {
  private static final MethodHandle PII = CudaApi.shape(JAVA_LONG, JAVA_INT, JAVA_INT);
  private static final MethodHandle PPP = CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPPP =
      CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPIP = CudaApi.shape(JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG);

  private final MemorySegment launchKernelEx;
  private final MemorySegment funcSetAttribute;
  private final MemorySegment maxActiveBlocks;
  private final MemorySegment maxActiveClusters;

  LaunchApi(CudaApi api) {
    launchKernelEx = api.optional("cuLaunchKernelEx");
    funcSetAttribute = api.optional("cuFuncSetAttribute");
    maxActiveBlocks = api.optional("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    maxActiveClusters = api.optional("cuOccupancyMaxActiveClusters");
  }

  boolean hasLaunchAttributes() {
    return launchKernelEx.address() != 0;
  }

  boolean hasFunctionSetting() {
    return funcSetAttribute.address() != 0;
  }

  boolean hasOccupancy() {
    return maxActiveBlocks.address() != 0;
  }

  boolean hasClusterOccupancy() {
    return maxActiveClusters.address() != 0;
  }

  int launchKernelEx(long config, long function, long parameters, long extra) {
    try {
      return (int) PPPP.invokeExact(launchKernelEx, config, function, parameters, extra);
    } catch (Throwable e) {
      throw unexpected("cuLaunchKernelEx", e);
    }
  }

  int funcSetAttribute(long function, int attribute, int value) {
    try {
      return (int) PII.invokeExact(funcSetAttribute, function, attribute, value);
    } catch (Throwable e) {
      throw unexpected("cuFuncSetAttribute", e);
    }
  }

  int maxActiveBlocks(long blocks, long function, int threads, long sharedBytes) {
    try {
      return (int) PPIP.invokeExact(maxActiveBlocks, blocks, function, threads, sharedBytes);
    } catch (Throwable e) {
      throw unexpected("cuOccupancyMaxActiveBlocksPerMultiprocessor", e);
    }
  }

  int maxActiveClusters(long clusters, long function, long config) {
    try {
      return (int) PPP.invokeExact(maxActiveClusters, clusters, function, config);
    } catch (Throwable e) {
      throw unexpected("cuOccupancyMaxActiveClusters", e);
    }
  }
}
