package io.fairlead.ffi.cuda;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.spi.DriverException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * The functions of one CUDA driver library, one method each, named as in {@code cuda.h} without
 * {@code cu} and version suffix. Pointers, handles and sizes are longs; the answer is the status.
 *
 * <p>There is one handle for each shape of call, a constant, which takes the function's address
 * first; addresses are looked up once, when the library is loaded. No call is {@code critical}: any
 * of them can block inside the driver, and would stop the collector then.
 *
 * <p>A library that was loaded stays loaded: CUDA does not survive being let go. Threads: any.
 */
public final class CudaApi {
  private static final Map<String, CudaApi> LOADED = new ConcurrentHashMap<>();

  /** Missing functions that an error names; with more of them it is another library anyway. */
  private static final int MISSING_NAMED = 5;

  // --- shapes of calls: P is a pointer, handle or size, I an int, B a byte -----------------------

  private static final MethodHandle VOID = shape();
  private static final MethodHandle I = shape(JAVA_INT);
  private static final MethodHandle P = shape(JAVA_LONG);
  private static final MethodHandle IP = shape(JAVA_INT, JAVA_LONG);
  private static final MethodHandle PI = shape(JAVA_LONG, JAVA_INT);
  private static final MethodHandle PII = shape(JAVA_LONG, JAVA_INT, JAVA_INT);
  private static final MethodHandle IPP = shape(JAVA_INT, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PP = shape(JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPI = shape(JAVA_LONG, JAVA_LONG, JAVA_INT);
  private static final MethodHandle PPPI = shape(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT);
  private static final MethodHandle PPP = shape(JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PIP = shape(JAVA_LONG, JAVA_INT, JAVA_LONG);
  private static final MethodHandle PPPP = shape(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PBPP = shape(JAVA_LONG, JAVA_BYTE, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PIPP = shape(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPIPP =
      shape(JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PIIIIIIIPPP =
      shape(
          JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT,
          JAVA_LONG, JAVA_LONG, JAVA_LONG);

  private final String library;

  private final MemorySegment init;
  private final MemorySegment driverGetVersion;
  private final MemorySegment getErrorName;
  private final MemorySegment getErrorString;
  private final MemorySegment deviceGetCount;
  private final MemorySegment deviceGet;
  private final MemorySegment deviceGetName;
  private final MemorySegment deviceTotalMem;
  private final MemorySegment deviceGetAttribute;
  private final MemorySegment primaryCtxRetain;
  private final MemorySegment primaryCtxRelease;
  private final MemorySegment primaryCtxGetState;
  private final MemorySegment ctxGetCurrent;
  private final MemorySegment ctxSetCurrent;
  private final MemorySegment ctxPushCurrent;
  private final MemorySegment ctxPopCurrent;
  private final MemorySegment ctxSynchronize;
  private final MemorySegment ctxGetStreamPriorityRange;
  private final MemorySegment streamCreateWithPriority;
  private final MemorySegment streamDestroy;
  private final MemorySegment streamSynchronize;
  private final MemorySegment streamQuery;
  private final MemorySegment streamWaitEvent;
  private final MemorySegment streamGetCtx;
  private final MemorySegment streamWriteValue64;
  private final MemorySegment eventCreate;
  private final MemorySegment eventDestroy;
  private final MemorySegment eventRecord;
  private final MemorySegment eventQuery;
  private final MemorySegment eventSynchronize;
  private final MemorySegment memAllocAsync;
  private final MemorySegment memFreeAsync;
  private final MemorySegment memGetInfo;
  private final MemorySegment memHostAlloc;
  private final MemorySegment memFreeHost;
  private final MemorySegment memHostRegister;
  private final MemorySegment memHostUnregister;
  private final MemorySegment memHostGetDevicePointer;
  private final MemorySegment deviceGetDefaultMemPool;
  private final MemorySegment memPoolSetAttribute;
  private final MemorySegment memPoolGetAttribute;
  private final MemorySegment memPoolTrimTo;
  private final MemorySegment memcpyHtoDAsync;
  private final MemorySegment memcpyDtoHAsync;
  private final MemorySegment memcpyDtoDAsync;
  private final MemorySegment memsetD8Async;
  private final MemorySegment memsetD32Async;
  private final MemorySegment moduleLoadDataEx;
  private final MemorySegment moduleUnload;
  private final MemorySegment moduleGetFunction;
  private final MemorySegment moduleGetFunctionCount;
  private final MemorySegment moduleEnumerateFunctions;
  private final MemorySegment funcGetName;
  private final MemorySegment funcGetParamInfo;
  private final MemorySegment funcLoad;
  private final MemorySegment funcGetAttribute;
  private final MemorySegment exchangeStreamCaptureMode;
  private final MemorySegment launchKernel;
  private final GraphApi graphs;

  private final List<String> missing = new ArrayList<>();
  private final SymbolLookup symbols;
  private final LaunchApi launches;
  private final PeerApi peers;
  private String versionText = "";

  static MethodHandle shape(MemoryLayout... parameters) {
    return Linker.nativeLinker().downcallHandle(FunctionDescriptor.of(JAVA_INT, parameters));
  }

  private CudaApi(String library, SymbolLookup symbols) {
    this.library = library;
    this.symbols = symbols;
    this.launches = new LaunchApi(this);
    this.peers = new PeerApi(this);
    init = needed("cuInit");
    driverGetVersion = needed("cuDriverGetVersion");
    getErrorName = needed("cuGetErrorName");
    getErrorString = needed("cuGetErrorString");
    deviceGetCount = needed("cuDeviceGetCount");
    deviceGet = needed("cuDeviceGet");
    deviceGetName = needed("cuDeviceGetName");
    deviceTotalMem = needed("cuDeviceTotalMem_v2");
    deviceGetAttribute = needed("cuDeviceGetAttribute");
    primaryCtxRetain = needed("cuDevicePrimaryCtxRetain");
    primaryCtxRelease = needed("cuDevicePrimaryCtxRelease_v2");
    primaryCtxGetState = needed("cuDevicePrimaryCtxGetState");
    ctxGetCurrent = needed("cuCtxGetCurrent");
    ctxSetCurrent = needed("cuCtxSetCurrent");
    ctxPushCurrent = needed("cuCtxPushCurrent_v2");
    ctxPopCurrent = needed("cuCtxPopCurrent_v2");
    ctxSynchronize = needed("cuCtxSynchronize");
    ctxGetStreamPriorityRange = needed("cuCtxGetStreamPriorityRange");
    streamCreateWithPriority = needed("cuStreamCreateWithPriority");
    streamDestroy = needed("cuStreamDestroy_v2");
    streamSynchronize = needed("cuStreamSynchronize");
    streamQuery = needed("cuStreamQuery");
    streamWaitEvent = needed("cuStreamWaitEvent");
    streamGetCtx = needed("cuStreamGetCtx");
    streamWriteValue64 = optional("cuStreamWriteValue64_v2", "cuStreamWriteValue64");
    eventCreate = needed("cuEventCreate");
    eventDestroy = needed("cuEventDestroy_v2");
    eventRecord = needed("cuEventRecord");
    eventQuery = needed("cuEventQuery");
    eventSynchronize = needed("cuEventSynchronize");
    memAllocAsync = needed("cuMemAllocAsync");
    memFreeAsync = needed("cuMemFreeAsync");
    memGetInfo = needed("cuMemGetInfo_v2");
    memHostAlloc = needed("cuMemHostAlloc");
    memFreeHost = needed("cuMemFreeHost");
    memHostRegister = needed("cuMemHostRegister_v2");
    memHostUnregister = needed("cuMemHostUnregister");
    memHostGetDevicePointer = needed("cuMemHostGetDevicePointer_v2");
    deviceGetDefaultMemPool = needed("cuDeviceGetDefaultMemPool");
    memPoolSetAttribute = needed("cuMemPoolSetAttribute");
    memPoolGetAttribute = needed("cuMemPoolGetAttribute");
    memPoolTrimTo = needed("cuMemPoolTrimTo");
    memcpyHtoDAsync = needed("cuMemcpyHtoDAsync_v2");
    memcpyDtoHAsync = needed("cuMemcpyDtoHAsync_v2");
    memcpyDtoDAsync = needed("cuMemcpyDtoDAsync_v2");
    memsetD8Async = needed("cuMemsetD8Async");
    memsetD32Async = needed("cuMemsetD32Async");
    moduleLoadDataEx = needed("cuModuleLoadDataEx");
    moduleUnload = needed("cuModuleUnload");
    moduleGetFunction = needed("cuModuleGetFunction");
    moduleGetFunctionCount = optional("cuModuleGetFunctionCount");
    moduleEnumerateFunctions = optional("cuModuleEnumerateFunctions");
    funcGetName = optional("cuFuncGetName");
    funcGetParamInfo = optional("cuFuncGetParamInfo");
    funcLoad = optional("cuFuncLoad");
    funcGetAttribute = needed("cuFuncGetAttribute");
    exchangeStreamCaptureMode = optional("cuThreadExchangeStreamCaptureMode");
    launchKernel = needed("cuLaunchKernel");
    graphs = new GraphApi(this::optional);
  }

  // --- loading ----------------------------------------------------------------------------------

  /**
   * Loads the library, or finds it loaded. Blocking.
   *
   * @param library a file name that the system's loader finds, or a path
   * @throws DriverException NOT_SUPPORTED if it cannot be loaded, is no CUDA driver, or lacks a
   *     function that is needed; the message says which, and the driver's version
   */
  public static CudaApi load(String library) {
    CudaApi known = LOADED.get(library);
    if (known != null) {
      return known;
    }
    Environment.prepare(); // the driver reads it once, and maybe as it is loaded
    CudaApi loaded = new CudaApi(library, find(library));
    loaded.check();
    CudaApi first = LOADED.putIfAbsent(library, loaded);
    return first == null ? loaded : first;
  }

  private static SymbolLookup find(String library) {
    try {
      return SymbolLookup.libraryLookup(library, Arena.global());
    } catch (IllegalArgumentException e) {
      throw unsupported(
          "there is no CUDA driver here: "
              + library
              + " cannot be loaded; install NVIDIA's driver, or use the host device",
          e);
    } catch (IllegalCallerException e) {
      throw unsupported(
          "native access is denied; start Java with --enable-native-access=io.fairlead.ffi (or"
              + " ALL-UNNAMED on the class path), or use the host device",
          e);
    }
  }

  private void check() {
    if (missing.contains("cuDriverGetVersion")) {
      throw unsupported(library + " is there, and is no CUDA driver: no cuDriverGetVersion", null);
    }
    versionText = readVersion();
    if (!missing.isEmpty()) {
      throw unsupported(
          "the driver in "
              + library
              + " (CUDA "
              + versionText
              + ") cannot be used: it has no "
              + named(missing)
              + "; CUDA 11.4 or newer is needed",
          null);
    }
  }

  private static String named(List<String> names) {
    int more = names.size() - MISSING_NAMED;
    return more <= 0
        ? String.join(", ", names)
        : String.join(", ", names.subList(0, MISSING_NAMED)) + " and " + more + " more functions";
  }

  private String readVersion() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_INT);
      int status = driverGetVersion(answer.address());
      int number = answer.get(JAVA_INT, 0);
      return status == 0
          ? number / 1000 + "." + number % 1000 / 10
          : "of unknown version, cuDriverGetVersion answers " + status;
    }
  }

  static DriverException unsupported(String message, @Nullable Throwable e) {
    return new DriverException(
        DriverException.NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", false, message, e);
  }

  private MemorySegment needed(String name) {
    return symbols
        .find(name)
        .orElseGet(
            () -> {
              missing.add(name);
              return MemorySegment.NULL;
            });
  }

  /** The first of these that is there, or null: a capability that is not there. */
  MemorySegment optional(String... names) {
    for (String name : names) {
      MemorySegment found = symbols.find(name).orElse(MemorySegment.NULL);
      if (found.address() != 0) {
        return found;
      }
    }
    return MemorySegment.NULL;
  }

  /** As it was asked for. */
  public String library() {
    return library;
  }

  /** The highest CUDA version that the driver supports: {@code 13.0}. */
  public String version() {
    return versionText;
  }

  /** What a launch can say and ask beyond {@link #launchKernel}. */
  LaunchApi launches() {
    return launches;
  }

  /** What is between two devices. */
  PeerApi peers() {
    return peers;
  }

  boolean hasWriteValue() {
    return streamWriteValue64.address() != 0;
  }

  boolean hasParameterInfo() {
    return funcGetParamInfo.address() != 0;
  }

  boolean hasFunctionNames() {
    return moduleGetFunctionCount.address() != 0
        && moduleEnumerateFunctions.address() != 0
        && funcGetName.address() != 0;
  }

  boolean hasFunctionLoading() {
    return funcLoad.address() != 0;
  }

  boolean hasCaptureMode() {
    return exchangeStreamCaptureMode.address() != 0;
  }

  GraphApi graphs() {
    return graphs;
  }

  // --- functions, as in cuda.h ------------------------------------------------------------------

  int init(int flags) {
    try {
      return (int) I.invokeExact(this.init, flags);
    } catch (Throwable e) {
      throw unexpected("cuInit", e);
    }
  }

  int driverGetVersion(long version) {
    try {
      return (int) P.invokeExact(this.driverGetVersion, version);
    } catch (Throwable e) {
      throw unexpected("cuDriverGetVersion", e);
    }
  }

  int getErrorName(int status, long name) {
    try {
      return (int) IP.invokeExact(this.getErrorName, status, name);
    } catch (Throwable e) {
      throw unexpected("cuGetErrorName", e);
    }
  }

  int getErrorString(int status, long text) {
    try {
      return (int) IP.invokeExact(this.getErrorString, status, text);
    } catch (Throwable e) {
      throw unexpected("cuGetErrorString", e);
    }
  }

  int deviceGetCount(long count) {
    try {
      return (int) P.invokeExact(this.deviceGetCount, count);
    } catch (Throwable e) {
      throw unexpected("cuDeviceGetCount", e);
    }
  }

  int deviceGet(long device, int ordinal) {
    try {
      return (int) PI.invokeExact(this.deviceGet, device, ordinal);
    } catch (Throwable e) {
      throw unexpected("cuDeviceGet", e);
    }
  }

  int deviceGetName(long name, int length, int device) {
    try {
      return (int) PII.invokeExact(this.deviceGetName, name, length, device);
    } catch (Throwable e) {
      throw unexpected("cuDeviceGetName", e);
    }
  }

  int deviceTotalMem(long bytes, int device) {
    try {
      return (int) PI.invokeExact(this.deviceTotalMem, bytes, device);
    } catch (Throwable e) {
      throw unexpected("cuDeviceTotalMem_v2", e);
    }
  }

  int deviceGetAttribute(long value, int attribute, int device) {
    try {
      return (int) PII.invokeExact(this.deviceGetAttribute, value, attribute, device);
    } catch (Throwable e) {
      throw unexpected("cuDeviceGetAttribute", e);
    }
  }

  int primaryCtxRetain(long context, int device) {
    try {
      return (int) PI.invokeExact(this.primaryCtxRetain, context, device);
    } catch (Throwable e) {
      throw unexpected("cuDevicePrimaryCtxRetain", e);
    }
  }

  int primaryCtxRelease(int device) {
    try {
      return (int) I.invokeExact(this.primaryCtxRelease, device);
    } catch (Throwable e) {
      throw unexpected("cuDevicePrimaryCtxRelease_v2", e);
    }
  }

  int primaryCtxGetState(int device, long flags, long active) {
    try {
      return (int) IPP.invokeExact(this.primaryCtxGetState, device, flags, active);
    } catch (Throwable e) {
      throw unexpected("cuDevicePrimaryCtxGetState", e);
    }
  }

  int ctxGetCurrent(long context) {
    try {
      return (int) P.invokeExact(this.ctxGetCurrent, context);
    } catch (Throwable e) {
      throw unexpected("cuCtxGetCurrent", e);
    }
  }

  int ctxSetCurrent(long context) {
    try {
      return (int) P.invokeExact(this.ctxSetCurrent, context);
    } catch (Throwable e) {
      throw unexpected("cuCtxSetCurrent", e);
    }
  }

  int ctxPushCurrent(long context) {
    try {
      return (int) P.invokeExact(this.ctxPushCurrent, context);
    } catch (Throwable e) {
      throw unexpected("cuCtxPushCurrent_v2", e);
    }
  }

  /**
   * @param context where the driver writes what it took off, or 0
   */
  int ctxPopCurrent(long context) {
    try {
      return (int) P.invokeExact(this.ctxPopCurrent, context);
    } catch (Throwable e) {
      throw unexpected("cuCtxPopCurrent_v2", e);
    }
  }

  int ctxSynchronize() {
    try {
      return (int) VOID.invokeExact(this.ctxSynchronize);
    } catch (Throwable e) {
      throw unexpected("cuCtxSynchronize", e);
    }
  }

  int ctxGetStreamPriorityRange(long least, long greatest) {
    try {
      return (int) PP.invokeExact(this.ctxGetStreamPriorityRange, least, greatest);
    } catch (Throwable e) {
      throw unexpected("cuCtxGetStreamPriorityRange", e);
    }
  }

  int streamCreateWithPriority(long stream, int flags, int priority) {
    try {
      return (int) PII.invokeExact(this.streamCreateWithPriority, stream, flags, priority);
    } catch (Throwable e) {
      throw unexpected("cuStreamCreateWithPriority", e);
    }
  }

  int streamDestroy(long stream) {
    try {
      return (int) P.invokeExact(this.streamDestroy, stream);
    } catch (Throwable e) {
      throw unexpected("cuStreamDestroy_v2", e);
    }
  }

  int streamSynchronize(long stream) {
    try {
      return (int) P.invokeExact(this.streamSynchronize, stream);
    } catch (Throwable e) {
      throw unexpected("cuStreamSynchronize", e);
    }
  }

  int streamQuery(long stream) {
    try {
      return (int) P.invokeExact(this.streamQuery, stream);
    } catch (Throwable e) {
      throw unexpected("cuStreamQuery", e);
    }
  }

  int streamGetCtx(long stream, long context) {
    try {
      return (int) PP.invokeExact(this.streamGetCtx, stream, context);
    } catch (Throwable e) {
      throw unexpected("cuStreamGetCtx", e);
    }
  }

  int streamWaitEvent(long stream, long event, int flags) {
    try {
      return (int) PPI.invokeExact(this.streamWaitEvent, stream, event, flags);
    } catch (Throwable e) {
      throw unexpected("cuStreamWaitEvent", e);
    }
  }

  int streamWriteValue64(long stream, long address, long value, int flags) {
    try {
      return (int) PPPI.invokeExact(this.streamWriteValue64, stream, address, value, flags);
    } catch (Throwable e) {
      throw unexpected("cuStreamWriteValue64_v2", e);
    }
  }

  int eventCreate(long event, int flags) {
    try {
      return (int) PI.invokeExact(this.eventCreate, event, flags);
    } catch (Throwable e) {
      throw unexpected("cuEventCreate", e);
    }
  }

  int eventDestroy(long event) {
    try {
      return (int) P.invokeExact(this.eventDestroy, event);
    } catch (Throwable e) {
      throw unexpected("cuEventDestroy_v2", e);
    }
  }

  int eventRecord(long event, long stream) {
    try {
      return (int) PP.invokeExact(this.eventRecord, event, stream);
    } catch (Throwable e) {
      throw unexpected("cuEventRecord", e);
    }
  }

  int eventQuery(long event) {
    try {
      return (int) P.invokeExact(this.eventQuery, event);
    } catch (Throwable e) {
      throw unexpected("cuEventQuery", e);
    }
  }

  /** Only for an event that has ended, or it waits. */
  int eventSynchronize(long event) {
    try {
      return (int) P.invokeExact(this.eventSynchronize, event);
    } catch (Throwable e) {
      throw unexpected("cuEventSynchronize", e);
    }
  }

  int memAllocAsync(long address, long bytes, long stream) {
    try {
      return (int) PPP.invokeExact(this.memAllocAsync, address, bytes, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemAllocAsync", e);
    }
  }

  int memFreeAsync(long address, long stream) {
    try {
      return (int) PP.invokeExact(this.memFreeAsync, address, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemFreeAsync", e);
    }
  }

  int memGetInfo(long free, long total) {
    try {
      return (int) PP.invokeExact(this.memGetInfo, free, total);
    } catch (Throwable e) {
      throw unexpected("cuMemGetInfo_v2", e);
    }
  }

  int memHostAlloc(long address, long bytes, int flags) {
    try {
      return (int) PPI.invokeExact(this.memHostAlloc, address, bytes, flags);
    } catch (Throwable e) {
      throw unexpected("cuMemHostAlloc", e);
    }
  }

  int memFreeHost(long address) {
    try {
      return (int) P.invokeExact(this.memFreeHost, address);
    } catch (Throwable e) {
      throw unexpected("cuMemFreeHost", e);
    }
  }

  int memHostRegister(long address, long bytes, int flags) {
    try {
      return (int) PPI.invokeExact(this.memHostRegister, address, bytes, flags);
    } catch (Throwable e) {
      throw unexpected("cuMemHostRegister_v2", e);
    }
  }

  int memHostUnregister(long address) {
    try {
      return (int) P.invokeExact(this.memHostUnregister, address);
    } catch (Throwable e) {
      throw unexpected("cuMemHostUnregister", e);
    }
  }

  int memHostGetDevicePointer(long device, long host, int flags) {
    try {
      return (int) PPI.invokeExact(this.memHostGetDevicePointer, device, host, flags);
    } catch (Throwable e) {
      throw unexpected("cuMemHostGetDevicePointer_v2", e);
    }
  }

  int deviceGetDefaultMemPool(long pool, int device) {
    try {
      return (int) PI.invokeExact(this.deviceGetDefaultMemPool, pool, device);
    } catch (Throwable e) {
      throw unexpected("cuDeviceGetDefaultMemPool", e);
    }
  }

  int memPoolSetAttribute(long pool, int attribute, long value) {
    try {
      return (int) PIP.invokeExact(this.memPoolSetAttribute, pool, attribute, value);
    } catch (Throwable e) {
      throw unexpected("cuMemPoolSetAttribute", e);
    }
  }

  int memPoolGetAttribute(long pool, int attribute, long value) {
    try {
      return (int) PIP.invokeExact(this.memPoolGetAttribute, pool, attribute, value);
    } catch (Throwable e) {
      throw unexpected("cuMemPoolGetAttribute", e);
    }
  }

  int memPoolTrimTo(long pool, long bytesKept) {
    try {
      return (int) PP.invokeExact(this.memPoolTrimTo, pool, bytesKept);
    } catch (Throwable e) {
      throw unexpected("cuMemPoolTrimTo", e);
    }
  }

  int memcpyHtoDAsync(long target, long source, long bytes, long stream) {
    try {
      return (int) PPPP.invokeExact(this.memcpyHtoDAsync, target, source, bytes, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemcpyHtoDAsync_v2", e);
    }
  }

  int memcpyDtoHAsync(long target, long source, long bytes, long stream) {
    try {
      return (int) PPPP.invokeExact(this.memcpyDtoHAsync, target, source, bytes, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemcpyDtoHAsync_v2", e);
    }
  }

  int memcpyDtoDAsync(long target, long source, long bytes, long stream) {
    try {
      return (int) PPPP.invokeExact(this.memcpyDtoDAsync, target, source, bytes, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemcpyDtoDAsync_v2", e);
    }
  }

  int memsetD8Async(long target, byte value, long bytes, long stream) {
    try {
      return (int) PBPP.invokeExact(this.memsetD8Async, target, value, bytes, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemsetD8Async", e);
    }
  }

  int memsetD32Async(long target, int value, long count, long stream) {
    try {
      return (int) PIPP.invokeExact(this.memsetD32Async, target, value, count, stream);
    } catch (Throwable e) {
      throw unexpected("cuMemsetD32Async", e);
    }
  }

  int moduleLoadDataEx(long module, long image, int options, long names, long values) {
    try {
      return (int) PPIPP.invokeExact(this.moduleLoadDataEx, module, image, options, names, values);
    } catch (Throwable e) {
      throw unexpected("cuModuleLoadDataEx", e);
    }
  }

  int moduleUnload(long module) {
    try {
      return (int) P.invokeExact(this.moduleUnload, module);
    } catch (Throwable e) {
      throw unexpected("cuModuleUnload", e);
    }
  }

  int moduleGetFunction(long function, long module, long name) {
    try {
      return (int) PPP.invokeExact(this.moduleGetFunction, function, module, name);
    } catch (Throwable e) {
      throw unexpected("cuModuleGetFunction", e);
    }
  }

  int moduleGetFunctionCount(long count, long module) {
    try {
      return (int) PP.invokeExact(this.moduleGetFunctionCount, count, module);
    } catch (Throwable e) {
      throw unexpected("cuModuleGetFunctionCount", e);
    }
  }

  int moduleEnumerateFunctions(long functions, int count, long module) {
    try {
      return (int) PIP.invokeExact(this.moduleEnumerateFunctions, functions, count, module);
    } catch (Throwable e) {
      throw unexpected("cuModuleEnumerateFunctions", e);
    }
  }

  int funcGetName(long name, long function) {
    try {
      return (int) PP.invokeExact(this.funcGetName, name, function);
    } catch (Throwable e) {
      throw unexpected("cuFuncGetName", e);
    }
  }

  int funcGetParamInfo(long function, long index, long offset, long size) {
    try {
      return (int) PPPP.invokeExact(this.funcGetParamInfo, function, index, offset, size);
    } catch (Throwable e) {
      throw unexpected("cuFuncGetParamInfo", e);
    }
  }

  int funcLoad(long function) {
    try {
      return (int) P.invokeExact(this.funcLoad, function);
    } catch (Throwable e) {
      throw unexpected("cuFuncLoad", e);
    }
  }

  int funcGetAttribute(long value, int attribute, long function) {
    try {
      return (int) PIP.invokeExact(this.funcGetAttribute, value, attribute, function);
    } catch (Throwable e) {
      throw unexpected("cuFuncGetAttribute", e);
    }
  }

  int exchangeStreamCaptureMode(long mode) {
    try {
      return (int) P.invokeExact(this.exchangeStreamCaptureMode, mode);
    } catch (Throwable e) {
      throw unexpected("cuThreadExchangeStreamCaptureMode", e);
    }
  }

  int launchKernel(
      long function,
      int gridX,
      int gridY,
      int gridZ,
      int blockX,
      int blockY,
      int blockZ,
      int sharedBytes,
      long stream,
      long parameters,
      long extra) {
    try {
      return (int)
          PIIIIIIIPPP.invokeExact(
              this.launchKernel,
              function,
              gridX,
              gridY,
              gridZ,
              blockX,
              blockY,
              blockZ,
              sharedBytes,
              stream,
              parameters,
              extra);
    } catch (Throwable e) {
      throw unexpected("cuLaunchKernel", e);
    }
  }
}
