package io.fairlead.ffi.cuda;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.DeviceFeatures;
import io.fairlead.device.spi.DeviceInfo;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Graphs;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.KernelArguments;
import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.device.spi.Pieces;
import io.fairlead.device.spi.StreamListener;
import io.fairlead.task.BriefLock;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * CUDA's driver API behind Fairlead's. Each call finds its objects, keeps them alive while it is
 * under way, refuses what it can see to be wrong, calls the library once, and tells the status.
 *
 * <h2>Kernels</h2>
 *
 * A {@link Grid} becomes ceil(items / block) blocks of {@code block} threads along x. A kernel gets
 * its arguments in order, buffers as pointers, and, <b>if it has exactly one parameter more, of 8
 * bytes, then in that last one the number of items</b>:
 *
 * <pre>{@code
 * extern "C" __global__ void axpy(double a, const double* x, double* y, long long items) {
 *   long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
 *   if (i < items) y[i] += a * x[i];
 * }
 * }</pre>
 *
 * so that one declaration, {@code kernel("axpy", F64, in(F64), inOut(F64))}, fits it and its twin
 * in Java, which is told its items too. See {@link CudaKernel}.
 *
 * <h2>Current contexts</h2>
 *
 * What is current is per OS thread, and the driver's to know: {@link #current} asks it. A context
 * that is not of this driver is answered as a negative number, which {@link #makeCurrent} takes, so
 * that what foreign code had made current is put back.
 *
 * <h2>Blocking</h2>
 *
 * No call here parks or takes a lock that does, except those that the interface allows it. A copy
 * from or to memory that is not page-locked waits inside the driver; the device layer stages those.
 * A launch waits inside the driver while about a thousand of its stream are unfinished; the device
 * layer allows fewer. All other waiting inside CUDA is for its own locks.
 *
 * <pre>
 * field           | writer            | reader | mode, guard
 * devices[].opened| retain, release   | any    | volatile; written under life
 * closed          | close             | retain | life
 * </pre>
 */
public final class CudaDriver implements Driver {
  /** What users select it by. */
  public static final String NAME = "cuda";

  private static final int ATTRIBUTE_MULTIPROCESSORS = 16;
  private static final int ATTRIBUTE_CAPABILITY_MAJOR = 75;
  private static final int ATTRIBUTE_CAPABILITY_MINOR = 76;
  private static final int ATTRIBUTE_WRITE_VALUE_64 = 122;
  private static final int ATTRIBUTE_WRITE_VALUE_64_V1 = 93;
  private static final int ATTRIBUTE_SHARED_BYTES = 8;
  private static final int ATTRIBUTE_CACHE_BYTES = 38;
  private static final int ATTRIBUTE_COPY_ENGINES = 40;
  private static final int ATTRIBUTE_COOPERATIVE = 95;
  private static final int ATTRIBUTE_SHARED_BYTES_OPT_IN = 97;
  private static final int ATTRIBUTE_CLUSTERS = 120;
  private static final int NAME_BYTES = 256;
  private static final int BUS_ID_BYTES = 32;

  /** In a handle of {@link #current}: a context of somebody else's. Pointers have 57 bits. */
  private static final long FOREIGN = Long.MIN_VALUE;

  /** The token of a bind: what was current lies below. */
  private static final long ON_TOP = 1;

  /** One device of the machine. */
  private static final class Device {
    final int raw;
    final DeviceInfo info;

    /** The primary context as we hold it, or null. */
    volatile @Nullable CudaContext opened;

    /** Where the one before was, whose handle must not come back as a foreign one. */
    volatile long ended;

    Device(int raw, DeviceInfo info) {
      this.raw = raw;
      this.info = info;
    }
  }

  private final CudaApi api;
  private final DriverState state;
  private final CudaLoader loader;
  private final Nvtx profiler;
  private final List<Device> devices;
  private final CudaGraphs graphs;
  private final BriefLock life = new BriefLock();
  private boolean closed;

  private CudaDriver(CudaApi api, CudaSettings settings) {
    this.api = api;
    boolean inUse = false;
    boolean canWrite = api.hasWriteValue();
    List<Device> found = new ArrayList<>();
    int count = count(api);
    for (int ordinal = 0; ordinal < count; ordinal++) {
      int raw = device(ordinal);
      inUse |= isActive(raw);
      canWrite &= canWrite(raw);
      found.add(describe(ordinal, raw, tickets(settings, inUse)));
    }
    this.devices = List.copyOf(found);
    this.state =
        new DriverState(
            api,
            new HandleTable(),
            wideSignals(settings.signals(), canWrite),
            new DriverState.NeedsCurrent(),
            settings.reuse());
    this.loader = new CudaLoader(api, settings.compiler(), settings.code());
    this.profiler = Nvtx.attach(settings.profiler());
    this.graphs = new CudaGraphs(this, state.handles(), api.graphs());
  }

  private static int tickets(CudaSettings settings, boolean inUse) {
    return settings.tickets() == CudaSettings.TICKETS_AUTO
        ? Environment.streamsWithSignals(inUse)
        : settings.tickets();
  }

  private static boolean wideSignals(CudaSettings.Signals wanted, boolean canWrite) {
    return switch (wanted) {
      case AUTO -> canWrite;
      case FILL -> false;
      case WRITE -> {
        if (!canWrite) {
          throw CudaApi.unsupported(
              "not all devices can write 64-bit values in stream order, as the setting"
                  + " signals=write asks for; leave it out",
              null);
        }
        yield true;
      }
    };
  }

  /**
   * Opens the driver of a library. Blocking; no context is made yet.
   *
   * @throws DriverException if the library does not work here
   */
  public static CudaDriver open(CudaApi api, CudaSettings settings) {
    initialise(api);
    return new CudaDriver(api, settings);
  }

  /**
   * How many devices the driver has; initialises it. Blocking.
   *
   * @throws DriverException if it cannot be initialised, or there is no device
   */
  public static int devices(CudaApi api) {
    initialise(api);
    return count(api);
  }

  private static void initialise(CudaApi api) {
    int status = api.init(0);
    if (status != Status.SUCCESS) {
      throw Status.of(api, status, "cuInit of CUDA " + api.version());
    }
  }

  private static int count(CudaApi api) {
    Scratch scratch = Scratch.take();
    try {
      int status = api.deviceGetCount(scratch.answer());
      if (status != Status.SUCCESS) {
        throw Status.of(api, status, "cuDeviceGetCount");
      }
      return scratch.intAnswer();
    } finally {
      scratch.giveBack();
    }
  }

  // --- what there is ----------------------------------------------------------------------------

  private int device(int ordinal) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_INT);
      require(api.deviceGet(answer.address(), ordinal), "cuDeviceGet");
      return answer.get(JAVA_INT, 0);
    }
  }

  private Device describe(int ordinal, int raw, int tickets) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment name = arena.allocate(NAME_BYTES);
      MemorySegment bytes = arena.allocate(JAVA_LONG);
      require(api.deviceGetName(name.address(), NAME_BYTES, raw), "cuDeviceGetName");
      require(api.deviceTotalMem(bytes.address(), raw), "cuDeviceTotalMem");
      DeviceInfo info =
          new DeviceInfo(
              ordinal,
              name.getString(0),
              bytes.get(JAVA_LONG, 0),
              Math.max(1, attribute(raw, ATTRIBUTE_MULTIPROCESSORS)),
              tickets,
              features(raw));
      return new Device(raw, info);
    }
  }

  private DeviceFeatures features(int raw) {
    return new DeviceFeatures(
        10 * attribute(raw, ATTRIBUTE_CAPABILITY_MAJOR)
            + attribute(raw, ATTRIBUTE_CAPABILITY_MINOR),
        attribute(raw, ATTRIBUTE_COOPERATIVE) != 0,
        attribute(raw, ATTRIBUTE_CLUSTERS) != 0,
        Math.max(
            attribute(raw, ATTRIBUTE_SHARED_BYTES), attribute(raw, ATTRIBUTE_SHARED_BYTES_OPT_IN)),
        attribute(raw, ATTRIBUTE_CACHE_BYTES),
        attribute(raw, ATTRIBUTE_COPY_ENGINES),
        busId(raw));
  }

  private String busId(int raw) {
    if (!api.peers().hasBusIds()) {
      return "";
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = arena.allocate(BUS_ID_BYTES);
      int status = api.peers().deviceGetPciBusId(text.address(), BUS_ID_BYTES, raw);
      return status == Status.SUCCESS ? text.getString(0).toLowerCase(Locale.ROOT) : "";
    }
  }

  private boolean canWrite(int raw) {
    return attribute(raw, ATTRIBUTE_WRITE_VALUE_64) != 0
        || attribute(raw, ATTRIBUTE_WRITE_VALUE_64_V1) != 0;
  }

  /** 0 for an attribute that the driver does not know. */
  private int attribute(int raw, int attribute) {
    Scratch scratch = Scratch.take();
    try {
      return api.deviceGetAttribute(scratch.answer(), attribute, raw) == Status.SUCCESS
          ? scratch.intAnswer()
          : 0;
    } finally {
      scratch.giveBack();
    }
  }

  /** Whether anybody in this process has the device's primary context. */
  private boolean isActive(int raw) {
    Scratch scratch = Scratch.take();
    try {
      int status = api.primaryCtxGetState(raw, scratch.value(0), scratch.value(1));
      return status == Status.SUCCESS && Memory.getInt(scratch.value(1)) != 0;
    } finally {
      scratch.giveBack();
    }
  }

  private void require(int status, String call) {
    if (status != Status.SUCCESS) {
      throw Status.of(api, status, call);
    }
  }

  @Override
  public String name() {
    return NAME;
  }

  @Override
  public String version() {
    return api.version();
  }

  @Override
  public int deviceCount() {
    return devices.size();
  }

  @Override
  public DeviceInfo info(int device) {
    return find(device).info;
  }

  private Device find(int ordinal) {
    if (ordinal < 0 || ordinal >= devices.size()) {
      throw Status.refused(
          DriverException.INVALID_DEVICE,
          "there is no CUDA device " + ordinal + "; there are " + devices.size());
    }
    return devices.get(ordinal);
  }

  /** Signals are polled, kernels are not Java, and nobody steps a GPU. */
  @Override
  public Set<Capability> capabilities() {
    EnumSet<Capability> all = EnumSet.of(Capability.DEFAULT_STREAM);
    if (api.peers().hasCopies()) {
      all.add(Capability.PEER_COPY);
    }
    if (api.graphs().missing().isEmpty()) {
      all.add(Capability.GRAPHS);
    }
    return all;
  }

  /** Before the first context is there to try it, one is made for that, which takes a while. */
  @Override
  public boolean needsCurrent(DriverCall call) {
    if (!state.needs().isKnown() && !devices.isEmpty()) {
      release(retain(0));
    }
    return state.needs().of(call);
  }

  // --- contexts ---------------------------------------------------------------------------------

  @Override
  public long retain(int device) {
    Device found = find(device);
    life.lock();
    try {
      if (closed) {
        throw Status.refused(DriverException.NOT_INITIALIZED, "the cuda driver is closed");
      }
      CudaContext context = found.opened;
      if (context == null) {
        context = CudaContext.open(state, found.info, found.raw);
        found.opened = context;
      } else {
        context.retainAgain();
      }
      return context.handle();
    } finally {
      life.unlock();
    }
  }

  @Override
  public void release(long context) {
    life.lock();
    try {
      CudaContext found = state.handles().context(context);
      if (found.releaseOnce()) {
        end(devices.get(found.ordinal), found);
      }
    } finally {
      life.unlock();
    }
  }

  /** Under life. */
  private static void end(Device device, CudaContext context) {
    device.ended = context.raw;
    device.opened = null;
    context.end();
  }

  @Override
  public long current() {
    long raw = Current.get(api);
    return raw == 0 ? 0 : handle(raw);
  }

  /** A context that ended is current nowhere, unless others still hold it. */
  private long handle(long raw) {
    for (Device device : devices) {
      CudaContext context = device.opened;
      if (context != null && context.raw == raw) {
        return context.handle();
      }
      if (device.ended == raw && !isActive(device.raw)) {
        return 0;
      }
    }
    return raw | FOREIGN;
  }

  @Override
  public void makeCurrent(long context) {
    if (context < 0) {
      restoreForeign(context & ~FOREIGN);
      return;
    }
    CudaContext found = context == 0 ? null : state.handles().context(context);
    int status = api.ctxSetCurrent(found == null ? 0 : found.raw);
    if (status != Status.SUCCESS) {
      throw found == null
          ? Status.of(api, status, "cuCtxSetCurrent")
          : found.failed(status, "cuCtxSetCurrent");
    }
  }

  /** If it has ended meanwhile, none is current, as if its owner had looked. */
  private void restoreForeign(long raw) {
    if (api.ctxSetCurrent(raw) != Status.SUCCESS) {
      api.ctxSetCurrent(0);
    }
  }

  /**
   * Lays the context on top of the OS thread's stack of current ones: what was current stays below,
   * whatever it is, and nobody has to be asked for it. So two calls, where asking, setting and
   * setting back are three.
   */
  @Override
  public long bind(long context) {
    CudaContext found = state.handles().context(context);
    int status = api.ctxPushCurrent(found.raw);
    if (status != Status.SUCCESS) {
      throw found.failed(status, "cuCtxPushCurrent");
    }
    return ON_TOP;
  }

  /** It fails only where the driver is going down with the process. */
  @Override
  public void restore(long context, long token) {
    api.ctxPopCurrent(0);
  }

  /** Asks the driver, about a microsecond. */
  @Override
  public @Nullable DriverException status(long context) {
    CudaContext found = state.handles().contextOrNull(context);
    return found == null
        ? Status.fatal(
            DriverException.INVALID_CONTEXT,
            "context " + Status.hex(context) + " ended, or never was")
        : found.heartbeat();
  }

  @Override
  public MemoryInfo memoryInfo(long context) {
    CudaContext found = enterContext(DriverCall.MEMORY_INFO, context);
    try {
      return found.memoryInfo();
    } finally {
      found.exit();
    }
  }

  @Override
  public void trimPool(long context, long keepBytes) {
    CudaContext found = enterContext(DriverCall.TRIM, context);
    try {
      found.trimPool(keepBytes);
    } finally {
      found.exit();
    }
  }

  // --- checks -----------------------------------------------------------------------------------

  /** For calls that name a context; exit it in a finally block. */
  CudaContext enterContext(DriverCall call, long handle) {
    CudaContext found = state.handles().context(handle);
    check(call, found);
    if (!found.enter()) {
      throw HandleTable.unknown(CudaObject.Kind.CONTEXT, handle);
    }
    return found;
  }

  /** For calls that name a stream; exit it in a finally block. */
  CudaStream enterStream(DriverCall call, long handle) {
    CudaStream found = state.handles().stream(handle);
    enter(call, found);
    try {
      found.checkNotCapturedByOthers(call);
    } catch (DriverException e) {
      found.exit();
      throw e;
    }
    return found;
  }

  /** For calls that name an event; exit it in a finally block. */
  private CudaEvent enterEvent(DriverCall call, long handle) {
    CudaEvent found = state.handles().event(handle);
    enter(call, found);
    return found;
  }

  static void enter(DriverCall call, CudaObject found) {
    check(call, found.context());
    if (!found.enter()) {
      throw HandleTable.unknown(found.kind(), found.handle());
    }
  }

  private static void check(DriverCall call, CudaContext context) {
    context.checkSound();
    context.checkCurrent(call);
  }

  // --- streams and events -----------------------------------------------------------------------

  /** The listener is ignored: CUDA tells nobody, {@link #reached} is polled. */
  @Override
  public long streamCreate(long context, int priority, @Nullable StreamListener listener) {
    CudaContext found = enterContext(DriverCall.STREAM_CREATE, context);
    try {
      return found.createStream(priority).handle();
    } finally {
      found.exit();
    }
  }

  @Override
  public void streamDestroy(long stream) {
    CudaStream found = state.handles().stream(stream);
    found.context().checkCurrent(DriverCall.STREAM_DESTROY);
    if (found.isAdopted()) {
      throw Status.refused(
          DriverException.INVALID_HANDLE,
          "stream " + Status.hex(stream) + " is its maker's: let it go instead of destroying it");
    }
    remove(found);
  }

  @Override
  public void streamDropCapture(long stream) {
    CudaStream found = state.handles().stream(stream);
    found.context().checkCurrent(DriverCall.STREAM_DESTROY);
    if (!found.isAdopted()) {
      found.dropCapture();
    }
  }

  /** The handle goes also in a lost context; that it is lost is said all the same. */
  void remove(CudaObject found) {
    if (!state.handles().remove(found)) {
      throw HandleTable.unknown(found.kind(), found.handle());
    }
    found.context().checkSound();
  }

  @Override
  public void signal(long stream, long value) {
    CudaStream found = enterStream(DriverCall.SIGNAL, stream);
    try {
      found.checkNotCaptured(DriverCall.SIGNAL);
      found.signal(value);
    } finally {
      found.exit();
    }
  }

  @Override
  public long reached(long stream) {
    CudaStream found = state.handles().stream(stream);
    long value = found.reached();
    if (found.isDisposed()) {
      throw HandleTable.unknown(CudaObject.Kind.STREAM, stream);
    }
    return value;
  }

  @Override
  public boolean mustAsk(long stream) {
    CudaStream found = state.handles().streamOrNull(stream);
    return found != null && found.mustAsk();
  }

  @Override
  public int ask(long context, long[] streams, int count, long nanosMax) {
    CudaContext found = state.handles().contextOrNull(context);
    return found == null ? count : found.ask(streams, count, nanosMax);
  }

  @Override
  public void streamSynchronize(long stream) {
    CudaStream found = enterStream(DriverCall.STREAM_SYNCHRONIZE, stream);
    try {
      found.checkNotCaptured(DriverCall.STREAM_SYNCHRONIZE);
      long signalled = found.signalled(); // before, since others may signal meanwhile
      found.context().check(api.streamSynchronize(found.raw), "cuStreamSynchronize");
      found.saw(signalled);
    } finally {
      found.exit();
    }
  }

  @Override
  public long eventCreate(long context) {
    CudaContext found = enterContext(DriverCall.EVENT_CREATE, context);
    try {
      return found.createEvent().handle();
    } finally {
      found.exit();
    }
  }

  @Override
  public void eventDestroy(long event) {
    CudaEvent found = state.handles().event(event);
    found.context().checkCurrent(DriverCall.EVENT_DESTROY);
    remove(found);
  }

  @Override
  public void eventRecord(long event, long stream) {
    CudaEvent found = enterEvent(DriverCall.EVENT_RECORD, event);
    try {
      CudaStream target = enterStream(DriverCall.EVENT_RECORD, stream);
      try {
        checkSame(target, found);
        target.checkNotCaptured(DriverCall.EVENT_RECORD);
        check(target, api.eventRecord(found.raw, target.raw), "cuEventRecord");
      } finally {
        target.exit();
      }
    } finally {
      found.exit();
    }
  }

  private static void check(CudaStream stream, int status, String call) {
    if (status != Status.SUCCESS) {
      throw stream.failed(status, call);
    }
  }

  /** The objects of a call must all live in one context. */
  static void checkSame(CudaObject one, CudaObject other) {
    if (one.context() != other.context()) {
      throw Status.refused(
          DriverException.INVALID_HANDLE,
          other.kind().noun()
              + " "
              + Status.hex(other.handle())
              + " belongs to another context than "
              + one.kind().noun()
              + " "
              + Status.hex(one.handle()));
    }
  }

  @Override
  public void streamWaitEvent(long stream, long event) {
    CudaStream found = enterStream(DriverCall.STREAM_WAIT_EVENT, stream);
    try {
      CudaEvent target = state.handles().event(event);
      target.context().checkSound();
      found.checkNotCaptured(DriverCall.STREAM_WAIT_EVENT);
      if (!target.enter()) {
        throw HandleTable.unknown(CudaObject.Kind.EVENT, event);
      }
      try {
        check(found, api.streamWaitEvent(found.raw, target.raw, 0), "cuStreamWaitEvent");
      } finally {
        target.exit();
      }
    } finally {
      found.exit();
    }
  }

  @Override
  public boolean eventQuery(long event) {
    CudaEvent found = enterEvent(DriverCall.EVENT_QUERY, event);
    try {
      int status = api.eventQuery(found.raw);
      if (status == Status.NOT_READY) {
        return false;
      }
      found.context().check(status, "cuEventQuery");
      return true;
    } finally {
      found.exit();
    }
  }

  // --- foreign code -----------------------------------------------------------------------------

  @Override
  public long contextNative(long context) {
    return state.handles().context(context).raw;
  }

  @Override
  public long streamNative(long stream) {
    return state.handles().stream(stream).lend();
  }

  @Override
  public long streamAdopt(long context, long nativeStream) {
    CudaContext found = enterContext(DriverCall.STREAM_CREATE, context);
    try {
      return found.adoptStream(nativeStream).handle();
    } finally {
      found.exit();
    }
  }

  @Override
  public void streamLetGo(long stream) {
    CudaStream found = state.handles().stream(stream);
    if (!found.isAdopted()) {
      throw Status.refused(
          DriverException.INVALID_HANDLE,
          "stream " + Status.hex(stream) + " is ours: destroy it instead of letting it go");
    }
    remove(found);
  }

  /** The legacy stream has all blocking streams wait for it too, those of threads included. */
  @Override
  public void defaultStreamWait(long context, long event) {
    CudaContext found = enterDefaultStream(context);
    try {
      CudaEvent target = enterEvent(DriverCall.STREAM_WAIT_EVENT, event);
      try {
        found.checkDefaultStream("cuStreamWaitEvent");
        found.check(
            api.streamWaitEvent(CudaStream.LEGACY, target.raw, 0),
            "cuStreamWaitEvent of the default stream");
      } finally {
        target.exit();
      }
    } finally {
      found.exit();
    }
  }

  /** The legacy stream comes after all blocking streams, those of threads included. */
  @Override
  public void defaultStreamRecord(long context, long event) {
    CudaContext found = enterDefaultStream(context);
    try {
      CudaEvent target = enterEvent(DriverCall.EVENT_RECORD, event);
      try {
        found.checkDefaultStream("cuEventRecord");
        found.check(
            api.eventRecord(target.raw, CudaStream.LEGACY), "cuEventRecord of the default stream");
      } finally {
        target.exit();
      }
    } finally {
      found.exit();
    }
  }

  /** Its name means that of the current context, so no other one may be current. */
  private CudaContext enterDefaultStream(long context) {
    CudaContext found = enterContext(DriverCall.STREAM_WAIT_EVENT, context);
    long current = Current.get(api);
    if (current != found.raw) {
      found.exit();
      throw Status.refused(
          DriverException.INVALID_CONTEXT,
          "the default stream is that of the current context, and context "
              + Status.hex(context)
              + " is not current here; call makeCurrent first");
    }
    return found;
  }

  // --- memory -----------------------------------------------------------------------------------

  @Override
  public long allocAsync(long stream, long bytes) {
    CudaStream found = enterStream(DriverCall.ALLOC_ASYNC, stream);
    try {
      found.checkNotCaptured(DriverCall.ALLOC_ASYNC);
      if (bytes <= 0) {
        throw Status.invalidValue("an allocation needs at least one byte, not " + bytes);
      }
      return allocate(found, bytes);
    } finally {
      found.exit();
    }
  }

  private long allocate(CudaStream stream, long bytes) {
    Scratch scratch = Scratch.take();
    stream.context().freed.settle(bytes);
    try {
      int status = api.memAllocAsync(scratch.answer(), bytes, stream.raw);
      if (status != Status.SUCCESS) {
        throw stream.context().failed(status, "cuMemAllocAsync of " + bytes + " bytes");
      }
      return scratch.longAnswer();
    } finally {
      scratch.giveBack();
    }
  }

  @Override
  public void freeAsync(long stream, long address) {
    CudaStream found = enterStream(DriverCall.FREE_ASYNC, stream);
    try {
      found.checkNotCaptured(DriverCall.FREE_ASYNC);
      if (address == 0) {
        throw Status.invalidValue("0 is not the address of an allocation");
      }
      int status = api.memFreeAsync(address, found.raw);
      if (status != Status.SUCCESS) {
        throw found.context().failed(status, "cuMemFreeAsync of " + Status.hex(address));
      }
      found.context().freed.freed(found);
    } finally {
      found.exit();
    }
  }

  @Override
  public MemorySegment hostAlloc(long context, long bytes) {
    CudaContext found = enterContext(DriverCall.HOST_ALLOC, context);
    try {
      if (bytes <= 0) {
        throw Status.invalidValue("pinned memory needs at least one byte, not " + bytes);
      }
      return found.hostAlloc(bytes);
    } finally {
      found.exit();
    }
  }

  @Override
  public void hostFree(long context, MemorySegment block) {
    CudaContext found = enterContext(DriverCall.HOST_FREE, context);
    try {
      found.hostFree(block);
    } finally {
      found.exit();
    }
  }

  @Override
  public void copyToDevice(long stream, long target, MemorySegment source) {
    CudaStream found = enterStream(DriverCall.COPY, stream);
    try {
      checkHost(source);
      long bytes = source.byteSize();
      if (bytes > 0) {
        int status = api.memcpyHtoDAsync(target, source.address(), bytes, found.raw);
        checkCopy(found, status, "cuMemcpyHtoDAsync", bytes, target);
      }
    } finally {
      found.exit();
      Reference.reachabilityFence(source);
    }
  }

  @Override
  public void copyToHost(long stream, MemorySegment target, long source) {
    CudaStream found = enterStream(DriverCall.COPY, stream);
    try {
      checkTarget(target);
      long bytes = target.byteSize();
      if (bytes > 0) {
        int status = api.memcpyDtoHAsync(target.address(), source, bytes, found.raw);
        checkCopy(found, status, "cuMemcpyDtoHAsync", bytes, source);
      }
    } finally {
      found.exit();
      Reference.reachabilityFence(target);
    }
  }

  @Override
  public void copyOnDevice(long stream, long target, long source, long bytes) {
    CudaStream found = enterStream(DriverCall.COPY, stream);
    try {
      checkLength(bytes);
      if (bytes > 0) {
        int status = api.memcpyDtoDAsync(target, source, bytes, found.raw);
        checkCopy(found, status, "cuMemcpyDtoDAsync", bytes, target);
      }
    } finally {
      found.exit();
    }
  }

  @Override
  public void fill(long stream, long target, long bytes, byte value) {
    CudaStream found = enterStream(DriverCall.FILL, stream);
    try {
      checkLength(bytes);
      if (bytes > 0) {
        int status = api.memsetD8Async(target, value, bytes, found.raw);
        checkCopy(found, status, "cuMemsetD8Async", bytes, target);
      }
    } finally {
      found.exit();
    }
  }

  @Override
  public void fillPattern(long stream, long target, long bytes, int width, int pattern) {
    CudaStream found = enterStream(DriverCall.FILL, stream);
    try {
      checkLength(bytes);
      checkPattern(target, bytes, width);
      if (bytes > 0) {
        int status =
            width == Short.BYTES
                ? api.peers().memsetD16Async(target, (char) pattern, bytes / Short.BYTES, found.raw)
                : api.memsetD32Async(target, pattern, bytes / Integer.BYTES, found.raw);
        checkCopy(found, status, "cuMemsetD" + 8 * width + "Async", bytes, target);
      }
    } finally {
      found.exit();
    }
  }

  private void checkPattern(long target, long bytes, int width) {
    if ((width != Short.BYTES && width != Integer.BYTES)
        || bytes % width != 0
        || target % width != 0) {
      throw Status.invalidValue(
          "a fill with a pattern of "
              + width
              + " bytes over "
              + bytes
              + " bytes at "
              + Status.hex(target)
              + "; patterns have 2 or 4 bytes, and address and length are multiples of that");
    }
    if (width == Short.BYTES && !api.peers().hasWideFills()) {
      throw CudaApi.unsupported("the driver has no cuMemsetD16Async; fill with 4 bytes", null);
    }
  }

  private static void checkCopy(
      CudaStream stream, int status, String call, long bytes, long address) {
    if (status != Status.SUCCESS) {
      throw stream
          .context()
          .failed(status, call + " of " + bytes + " bytes at " + Status.hex(address));
    }
  }

  static void checkLength(long bytes) {
    if (bytes < 0) {
      throw Status.invalidValue("a length of " + bytes + " bytes");
    }
  }

  static void checkTarget(MemorySegment target) {
    checkHost(target);
    if (target.isReadOnly()) {
      throw Status.invalidValue("copy to host: the target is read-only");
    }
  }

  static void checkHost(MemorySegment memory) {
    if (!memory.isNative()) {
      throw Status.invalidValue(
          "a copy needs native memory, not an array on the heap: copy it into a block from"
              + " hostAlloc first");
    }
    if (!memory.scope().isAlive()) {
      throw Status.invalidValue("a copy needs live memory; this block was freed or closed");
    }
  }

  // --- many pieces at once ----------------------------------------------------------------------

  @Override
  public boolean preparePieces(long context) {
    CudaContext found = enterContext(DriverCall.MODULE_LOAD, context);
    try {
      return found.pieces.prepare(found, loader);
    } finally {
      found.exit();
    }
  }

  @Override
  public void copyPiecesToHost(long stream, Pieces pieces) {
    if (!copyPieces(stream, pieces, true)) {
      Driver.super.copyPiecesToHost(stream, pieces);
    }
  }

  @Override
  public void copyPiecesToDevice(long stream, Pieces pieces) {
    if (!copyPieces(stream, pieces, false)) {
      Driver.super.copyPiecesToDevice(stream, pieces);
    }
  }

  /** Whether they went by one launch. */
  private boolean copyPieces(long stream, Pieces pieces, boolean down) {
    CudaStream found = enterStream(DriverCall.LAUNCH, stream);
    try {
      found.checkNotCaptured(DriverCall.COPY);
      return found.context().pieces.copy(found, pieces, down);
    } finally {
      found.exit();
    }
  }

  // --- between devices --------------------------------------------------------------------------

  @Override
  public boolean connect(long context, long other) {
    CudaContext found = enterContext(DriverCall.CONNECT, context);
    try {
      CudaContext peer = state.handles().context(other);
      enterOther(peer);
      try {
        return found.connect(peer);
      } finally {
        peer.exit();
      }
    } finally {
      found.exit();
    }
  }

  @Override
  public void copyPeer(
      long stream, long target, long targetContext, long source, long sourceContext, long bytes) {
    CudaStream found = enterStream(DriverCall.PEER_COPY, stream);
    try {
      CudaContext to = state.handles().context(targetContext);
      CudaContext from = state.handles().context(sourceContext);
      checkEither(found, to, from);
      CudaContext other = found.context() == to ? from : to;
      enterOther(other);
      try {
        copyPeer(found, target, to, source, from, bytes);
      } finally {
        other.exit();
      }
    } finally {
      found.exit();
    }
  }

  /** That it is lost is no loss of the context that the call is about. */
  private static void enterOther(CudaContext other) {
    DriverException lost = other.fault();
    if (lost != null) {
      throw new DriverException(
          lost.status(),
          lost.statusName(),
          false,
          "device " + other.ordinal + ", the other one, is lost: " + lost.getMessage(),
          lost);
    }
    if (!other.enter()) {
      throw HandleTable.unknown(CudaObject.Kind.CONTEXT, other.handle());
    }
  }

  private void copyPeer(
      CudaStream stream, long target, CudaContext to, long source, CudaContext from, long bytes) {
    checkLength(bytes);
    if (bytes > 0) {
      int status = api.peers().memcpyPeerAsync(target, to.raw, source, from.raw, bytes, stream.raw);
      checkCopy(stream, status, "cuMemcpyPeerAsync", bytes, target);
    }
  }

  private void checkEither(CudaStream stream, CudaContext to, CudaContext from) {
    if (!api.peers().hasCopies()) {
      throw CudaApi.unsupported(
          "the driver has no cuMemcpyPeerAsync; copy to host, then to the other device", null);
    }
    if (stream.context() != to && stream.context() != from) {
      throw Status.refused(
          DriverException.INVALID_HANDLE,
          "a copy between two devices runs on a stream of one of them, not of device "
              + stream.context().ordinal);
    }
  }

  // --- code -------------------------------------------------------------------------------------

  @Override
  public boolean accepts(ModuleImage image) {
    return loader.accepts(image);
  }

  @Override
  public boolean accepts(int device, ModuleImage image) {
    return loader.accepts(image, find(device).info);
  }

  @Override
  public long moduleLoad(long context, ModuleImage image) {
    CudaContext found = enterContext(DriverCall.MODULE_LOAD, context);
    try {
      return loader.load(found, image).handle();
    } finally {
      found.exit();
    }
  }

  @Override
  public void moduleUnload(long module) {
    CudaModule found = state.handles().module(module);
    found.context().checkCurrent(DriverCall.MODULE_UNLOAD);
    found.forgetKernels();
    remove(found);
  }

  @Override
  public long kernel(long module, String name) {
    CudaModule found = state.handles().module(module);
    enter(DriverCall.KERNEL, found);
    try {
      return found.kernel(name).handle();
    } finally {
      found.exit();
    }
  }

  @Override
  public void launch(long stream, long kernel, Grid grid, KernelArguments arguments) {
    CudaStream found = enterStream(DriverCall.LAUNCH, stream);
    try {
      CudaKernel code = state.handles().kernel(kernel);
      checkSame(found, code);
      if (!code.module.enter()) {
        throw HandleTable.unknown(CudaObject.Kind.KERNEL, kernel);
      }
      try {
        code.launch(found, grid, arguments);
      } finally {
        code.module.exit();
      }
    } finally {
      found.exit();
    }
  }

  @Override
  public long residentBlocks(long kernel, Grid grid) {
    CudaKernel code = state.handles().kernel(kernel);
    enter(DriverCall.KERNEL, code.module);
    try {
      return code.residentBlocks(grid);
    } finally {
      code.module.exit();
    }
  }

  // --- profilers --------------------------------------------------------------------------------

  @Override
  public boolean isProfiled() {
    return profiler.isAttached();
  }

  @Override
  public void rangeBegin(String name) {
    if (profiler.isAttached()) {
      profiler.push(name);
    }
  }

  @Override
  public void rangeEnd() {
    if (profiler.isAttached()) {
      profiler.pop();
    }
  }

  // --- graphs -----------------------------------------------------------------------------------

  @Override
  public Graphs graphs() {
    List<String> missing = api.graphs().missing();
    if (!missing.isEmpty()) {
      throw CudaApi.unsupported(
          "the driver in "
              + api.library()
              + " (CUDA "
              + api.version()
              + ") has no graphs: it lacks "
              + String.join(", ", missing)
              + "; enqueue the operations one by one, or install CUDA 11.4 or newer",
          null);
    }
    return graphs;
  }

  /** Ends all contexts, however often they are retained. Blocks until their work has ended. */
  @Override
  public void close() {
    life.lock();
    try {
      closed = true;
      for (Device device : devices) {
        CudaContext context = device.opened;
        if (context != null) {
          end(device, context);
        }
      }
    } finally {
      life.unlock();
    }
  }
}
