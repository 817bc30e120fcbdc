package io.fairlead.host;

import io.fairlead.device.spi.Capability;
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
import io.fairlead.host.pool.Block;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * The driver's calls. Each looks its handles up, checks what a GPU driver checks at once (current
 * context, soundness, arguments), and enqueues; what a GPU finds out late is found out when the
 * operation runs.
 *
 * <p>Nothing here takes a lock that can suspend a virtual thread, except in the calls that the
 * interface lists as blocking.
 */
final class HostDriver implements Driver {
  static final String NAME = "host";
  static final String VERSION = "0.1";

  /**
   * What a CUDA 580 driver answers 201 to without a current context, as measured: calls that create
   * something, load code, or name no object of a context.
   */
  private static final Set<DriverCall> NEED_CURRENT =
      Collections.unmodifiableSet(
          EnumSet.of(
              DriverCall.STREAM_CREATE,
              DriverCall.EVENT_CREATE,
              DriverCall.HOST_ALLOC,
              DriverCall.MODULE_LOAD,
              DriverCall.MODULE_UNLOAD,
              DriverCall.MEMORY_INFO,
              DriverCall.TRIM,
              DriverCall.CONNECT,
              DriverCall.GRAPH_BUILD));

  private final HostConfig config;
  private final HandleTable handles = new HandleTable();
  private final CurrentContexts currents = CurrentContexts.installed();
  private final HostDevice.FaultPlanHolder faults = new HostDevice.FaultPlanHolder();
  private final List<HostDevice> devices = new ArrayList<>();
  private final HostGraphs graphs = new HostGraphs(this, handles);
  private final Set<DriverCall> needCurrent;
  private final AtomicBoolean closed = new AtomicBoolean();

  HostDriver(HostConfig config) {
    this.config = config;
    this.needCurrent = config.strict() ? EnumSet.allOf(DriverCall.class) : NEED_CURRENT;
    AtomicInteger spinners = new AtomicInteger();
    for (int i = 0; i < config.devices(); i++) {
      devices.add(new HostDevice(i, config, handles, faults, spinners));
    }
  }

  // --- what there is --------------------------------------------------------------------------

  @Override
  public String name() {
    return NAME;
  }

  @Override
  public String version() {
    return VERSION;
  }

  @Override
  public int deviceCount() {
    return devices.size();
  }

  @Override
  public DeviceInfo info(int device) {
    return device(device).info();
  }

  private HostDevice device(int ordinal) {
    if (ordinal < 0 || ordinal >= devices.size()) {
      throw Status.refused(
          DriverException.INVALID_DEVICE,
          "there is no host device "
              + ordinal
              + "; there are "
              + devices.size()
              + " (setting 'devices')");
    }
    return devices.get(ordinal);
  }

  @Override
  public Set<Capability> capabilities() {
    EnumSet<Capability> all =
        EnumSet.of(Capability.JAVA_KERNELS, Capability.PEER_COPY, Capability.GRAPHS);
    if (config.notifies()) {
      all.add(Capability.NOTIFY);
    }
    if (config.stepped()) {
      all.add(Capability.STEPPED);
    }
    return all;
  }

  @Override
  public boolean needsCurrent(DriverCall call) {
    return needCurrent.contains(call);
  }

  // --- checks ---------------------------------------------------------------------------------

  HostStream enter(DriverCall call, long stream) {
    HostStream found = handles.stream(stream);
    enter(call, found.context());
    return found;
  }

  void enter(DriverCall call, HostContext context) {
    if (needCurrent.contains(call)) {
      checkCurrent(call, context);
    }
    context.checkSound();
    FaultPlan plan = faults.plan;
    if (plan != null) {
      plan.beforeCall(call);
    }
  }

  private void checkCurrent(DriverCall call, HostContext context) {
    long current = currents.get();
    if (current != context.handle()) {
      throw Status.refused(
          DriverException.INVALID_CONTEXT,
          call
              + " needs context "
              + Status.hex(context.handle())
              + " of device "
              + context.device.ordinal()
              + " to be current on this OS thread, where "
              + (current == 0 ? "none is" : Status.hex(current) + " is")
              + "; call makeCurrent first");
    }
  }

  /** The objects of a call must all live in one context. */
  static void checkSame(HandleTable.Entry one, HandleTable.Entry other) {
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

  // --- contexts -------------------------------------------------------------------------------

  @Override
  public long retain(int device) {
    return device(device).retain().handle();
  }

  @Override
  public void release(long context) {
    HostContext found = handles.context(context);
    found.device.release(found);
  }

  @Override
  public long current() {
    long handle = currents.get();
    // A context that ended is current nowhere, wherever it was made so.
    return handle == 0 || handles.contextOrNull(handle) == null ? 0 : handle;
  }

  @Override
  public void makeCurrent(long context) {
    currents.set(context == 0 ? 0 : handles.context(context).handle());
  }

  @Override
  public @Nullable DriverException status(long context) {
    HostContext found = handles.contextOrNull(context);
    return found == null
        ? Status.fatal(
            DriverException.INVALID_CONTEXT,
            "context " + Status.hex(context) + " ended, or never was",
            null)
        : found.fault();
  }

  @Override
  public MemoryInfo memoryInfo(long context) {
    HostContext found = handles.context(context);
    enter(DriverCall.MEMORY_INFO, found);
    return new MemoryInfo(found.pool.freeBytes(), found.pool.limitBytes());
  }

  /** What is freed here goes back at once, so there is nothing to return. */
  @Override
  public void trimPool(long context, long keepBytes) {
    enter(DriverCall.TRIM, handles.context(context));
    if (keepBytes < 0) {
      throw Status.invalidValue("a pool cannot keep " + keepBytes + " bytes");
    }
  }

  @Override
  public long kernelNanos(long context) {
    HostContext found = handles.contextOrNull(context);
    return found == null ? -1 : found.kernelNanos.sum();
  }

  // --- streams and events ---------------------------------------------------------------------

  @Override
  public long streamCreate(long context, int priority, @Nullable StreamListener listener) {
    HostContext found = handles.context(context);
    enter(DriverCall.STREAM_CREATE, found);
    HostStream stream =
        new HostStream(found, ReadyQueue.clamp(priority), config.notifies() ? listener : null);
    stream.device.startWorkers();
    long handle = handles.add(stream);
    if (found.isLost()) {
      stream.contextLost(); // the fault may have come before the stream was there to be told
    }
    return handle;
  }

  @Override
  public void streamDestroy(long stream) {
    HostStream found = enter(DriverCall.STREAM_DESTROY, stream);
    if (found.destroy()) {
      found.enqueue(new StreamOperations.Destroy(handles));
    }
  }

  @Override
  public void signal(long stream, long value) {
    HostStream found = enter(DriverCall.SIGNAL, stream);
    found.checkNotCaptured(DriverCall.SIGNAL);
    found.checkSignal(value);
    found.enqueue(new StreamOperations.Signal(value));
  }

  @Override
  public long reached(long stream) {
    return handles.stream(stream).reached();
  }

  @Override
  public void streamSynchronize(long stream) {
    HostStream found = enter(DriverCall.STREAM_SYNCHRONIZE, stream);
    found.checkNotCaptured(DriverCall.STREAM_SYNCHRONIZE);
    StreamOperations.Synchronize here = new StreamOperations.Synchronize();
    found.enqueue(here);
    here.await(found, config.spinNanos());
    found.context().checkSound();
  }

  @Override
  public long eventCreate(long context) {
    HostContext found = handles.context(context);
    enter(DriverCall.EVENT_CREATE, found);
    return handles.add(new HostEvent(found));
  }

  @Override
  public void eventDestroy(long event) {
    HostEvent found = handles.event(event);
    enter(DriverCall.EVENT_DESTROY, found.context());
    handles.remove(found);
  }

  @Override
  public void eventRecord(long event, long stream) {
    HostEvent found = handles.event(event);
    HostStream target = enter(DriverCall.EVENT_RECORD, stream);
    checkSame(target, found);
    target.checkNotCaptured(DriverCall.EVENT_RECORD);
    EventRecord before;
    EventRecord point;
    do {
      before = found.last();
      point = new EventRecord(target);
      target.enqueue(point);
      // If another record came between, it may be the earlier one of the two: go behind both, lest
      // the event promises less than its last record did.
    } while (!found.record(before, point));
  }

  @Override
  public void streamWaitEvent(long stream, long event) {
    HostEvent found = handles.event(event);
    HostStream target = enter(DriverCall.STREAM_WAIT_EVENT, stream);
    found.context().checkSound();
    target.checkNotCaptured(DriverCall.STREAM_WAIT_EVENT);
    EventRecord point = found.last();
    // Never recorded: nothing to wait for. Its own stream: in order anyway.
    if (point != null && point.stream != target && !point.isDone()) {
      target.enqueue(new StreamOperations.Wait(point));
    }
  }

  @Override
  public boolean eventQuery(long event) {
    HostEvent found = handles.event(event);
    enter(DriverCall.EVENT_QUERY, found.context());
    EventRecord point = found.last();
    return point == null || point.isDone();
  }

  // --- memory ---------------------------------------------------------------------------------

  @Override
  public long allocAsync(long stream, long bytes) {
    HostStream found = enter(DriverCall.ALLOC_ASYNC, stream);
    found.checkNotCaptured(DriverCall.ALLOC_ASYNC);
    if (bytes <= 0) {
      throw Status.invalidValue("an allocation needs at least one byte, not " + bytes);
    }
    HostContext context = found.context();
    Block block = context.pool.allocate(found.frees, bytes);
    if (block == null) {
      throw Status.refused(
          DriverException.OUT_OF_MEMORY,
          "device "
              + context.device.ordinal()
              + " has no room for "
              + bytes
              + " bytes: "
              + context.pool.describe());
    }
    found.enqueue(new StreamOperations.Allocation(block));
    return block.address();
  }

  @Override
  public void freeAsync(long stream, long address) {
    HostStream found = enter(DriverCall.FREE_ASYNC, stream);
    found.checkNotCaptured(DriverCall.FREE_ASYNC);
    Block block = block(found.context(), address, "free");
    if (block.address() != address || !block.claimFree()) {
      throw Status.invalidValue(
          Status.hex(address)
              + " is not the address of an allocation; it lies within the one at "
              + Status.hex(block.address())
              + ", or that one is being freed already");
    }
    // Enqueued first: whoever gets this room at once enqueues behind it.
    found.enqueue(new StreamOperations.Free(block));
    found.context().pool.free(found.frees, block);
  }

  private static Block block(HostContext context, long address, String what) {
    Block block = context.pool.find(address);
    if (block == null) {
      long owner = (address >>> 48) - 1;
      int here = context.device.ordinal();
      throw Status.invalidValue(
          what
              + ": "
              + Status.hex(address)
              + " is no allocated memory of device "
              + here
              + (owner >= 0 && owner < HostConfig.DEVICES_MAX && owner != here
                  ? "; it looks like one of device " + owner
                  : ""));
    }
    return block;
  }

  @Override
  public MemorySegment hostAlloc(long context, long bytes) {
    HostContext found = handles.context(context);
    enter(DriverCall.HOST_ALLOC, found);
    if (bytes <= 0) {
      throw Status.invalidValue("pinned memory needs at least one byte, not " + bytes);
    }
    return found.hostAlloc(bytes);
  }

  @Override
  public void hostFree(long context, MemorySegment block) {
    HostContext found = handles.context(context);
    enter(DriverCall.HOST_FREE, found);
    found.hostFree(block);
  }

  @Override
  public void copyToDevice(long stream, long target, MemorySegment source) {
    HostStream found = enter(DriverCall.COPY, stream);
    found.take(copyToDevice(found.context(), target, source));
  }

  @Override
  public void copyToHost(long stream, MemorySegment target, long source) {
    HostStream found = enter(DriverCall.COPY, stream);
    found.take(copyToHost(found.context(), target, source));
  }

  @Override
  public void copyOnDevice(long stream, long target, long source, long bytes) {
    HostStream found = enter(DriverCall.COPY, stream);
    found.take(copyOnDevice(target, source, bytes));
  }

  @Override
  public void fill(long stream, long target, long bytes, byte value) {
    HostStream found = enter(DriverCall.FILL, stream);
    found.take(fill(target, bytes, value));
  }

  @Override
  public void fillPattern(long stream, long target, long bytes, int width, int pattern) {
    HostStream found = enter(DriverCall.FILL, stream);
    checkLength(bytes);
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
    found.take(
        bytes == 0
            ? null
            : on ->
                TransferOperation.fill(bytes, device(on, target, bytes, "fill"), width, pattern));
  }

  /** They are one operation as it is. */
  @Override
  public boolean preparePieces(long context) {
    enter(DriverCall.MODULE_LOAD, handles.context(context));
    return true;
  }

  @Override
  public void copyPiecesToHost(long stream, Pieces pieces) {
    copyPieces(stream, pieces, true);
  }

  @Override
  public void copyPiecesToDevice(long stream, Pieces pieces) {
    copyPieces(stream, pieces, false);
  }

  private void copyPieces(long stream, Pieces pieces, boolean down) {
    HostStream found = enter(DriverCall.COPY, stream);
    found.checkNotCaptured(DriverCall.COPY);
    HostContext context = found.context();
    checkHost(context, pieces.table());
    PiecesOperation operation = new PiecesOperation(pieces.count(), pieces.bytes(), down);
    for (int i = 0; i < pieces.count(); i++) {
      try {
        operation.add(host(context, pieces.host(i), down), device(context, pieces, i));
      } catch (DriverException e) {
        throw e.ofPiece(i, pieces.count());
      }
    }
    if (pieces.count() > 0) {
      found.enqueue(operation);
    }
  }

  private static MemorySegment host(HostContext context, MemorySegment memory, boolean down) {
    checkHost(context, memory);
    if (down) {
      checkTarget(memory);
    }
    return memory;
  }

  private static TransferOperation.Side device(HostContext context, Pieces pieces, int i) {
    long bytes = pieces.host(i).byteSize();
    return bytes == 0
        ? TransferOperation.Side.NONE
        : device(context, pieces.address(i), bytes, "copy of pieces");
  }

  private static void checkTarget(MemorySegment memory) {
    if (memory.isReadOnly()) {
      throw Status.invalidValue("copy to host: the target is read-only");
    }
  }

  // --- recipes: checked now, made into an operation for each time it runs -----------------------

  static @Nullable Recipe copyToDevice(HostContext context, long target, MemorySegment source) {
    checkHost(context, source);
    long bytes = source.byteSize();
    return bytes == 0
        ? null
        : stream ->
            TransferOperation.copy(
                "copy to device",
                bytes,
                device(stream, target, bytes, "copy to device"),
                TransferOperation.Side.host(source));
  }

  static @Nullable Recipe copyToHost(HostContext context, MemorySegment target, long source) {
    checkHost(context, target);
    checkTarget(target);
    long bytes = target.byteSize();
    return bytes == 0
        ? null
        : stream ->
            TransferOperation.copy(
                "copy to host",
                bytes,
                TransferOperation.Side.host(target),
                device(stream, source, bytes, "copy to host"));
  }

  static @Nullable Recipe copyOnDevice(long target, long source, long bytes) {
    checkLength(bytes);
    return bytes == 0
        ? null
        : stream ->
            TransferOperation.copy(
                "copy on device",
                bytes,
                device(stream, target, bytes, "copy on device, target"),
                device(stream, source, bytes, "copy on device, source"));
  }

  static @Nullable Recipe fill(long target, long bytes, byte value) {
    checkLength(bytes);
    return bytes == 0
        ? null
        : stream -> TransferOperation.fill(bytes, device(stream, target, bytes, "fill"), 1, value);
  }

  /** The operation itself is never run: it keeps the arguments. */
  static Recipe launch(HostKernel code, Grid grid, LaunchOperation arguments) {
    return stream -> LaunchOperation.of(stream.context().pool, code, grid, arguments);
  }

  private static TransferOperation.Side device(
      HostStream stream, long address, long bytes, String what) {
    return device(stream.context(), address, bytes, what);
  }

  private static TransferOperation.Side device(
      HostContext context, long address, long bytes, String what) {
    return TransferOperation.Side.device(block(context, address, what), address, bytes);
  }

  private static void checkLength(long bytes) {
    if (bytes < 0) {
      throw Status.invalidValue("a length of " + bytes + " bytes");
    }
  }

  /** A device reads host memory by address, from threads of its own. */
  private static void checkHost(HostContext context, MemorySegment memory) {
    if (!memory.isNative()) {
      throw Status.invalidValue(
          "a copy needs native memory, not an array on the heap: copy it into a block from"
              + " hostAlloc or Arena.ofShared() first");
    }
    if (!memory.scope().isAlive()) {
      throw Status.invalidValue("a copy needs live memory; the arena of this block is closed");
    }
    Thread worker = context.device.anyWorker();
    if (worker != null && !memory.isAccessibleBy(worker)) {
      throw Status.invalidValue(
          "a copy needs memory that other threads may touch, not one from a confined arena: take"
              + " it from hostAlloc or Arena.ofShared()");
    }
  }

  // --- between devices ------------------------------------------------------------------------

  /** Always so: all of them are this machine's memory. */
  @Override
  public boolean connect(long context, long other) {
    enter(DriverCall.CONNECT, handles.context(context));
    checkOther(handles.context(other));
    return true;
  }

  /** That it is lost is no loss of the context that the call is about. */
  private static void checkOther(HostContext other) {
    DriverException lost = other.fault();
    if (lost != null) {
      throw new DriverException(
          lost.status(),
          lost.statusName(),
          false,
          "device " + other.device.ordinal() + ", the other one, is lost: " + lost.getMessage(),
          lost);
    }
  }

  @Override
  public void copyPeer(
      long stream, long target, long targetContext, long source, long sourceContext, long bytes) {
    HostStream found = enter(DriverCall.PEER_COPY, stream);
    found.checkNotCaptured(DriverCall.PEER_COPY);
    HostContext to = handles.context(targetContext);
    HostContext from = handles.context(sourceContext);
    checkOther(found.context() == to ? from : to);
    if (found.context() != to && found.context() != from) {
      throw Status.refused(
          DriverException.INVALID_HANDLE,
          "a copy between two devices runs on a stream of one of them, not of device "
              + found.device.ordinal());
    }
    checkLength(bytes);
    if (bytes > 0) {
      found.enqueue(
          TransferOperation.copyPeer(
              bytes,
              device(to, target, bytes, "copy between devices, target"),
              device(from, source, bytes, "copy between devices, source")));
    }
  }

  // --- code -----------------------------------------------------------------------------------

  @Override
  public boolean accepts(ModuleImage image) {
    return image instanceof ModuleImage.Java;
  }

  @Override
  public long moduleLoad(long context, ModuleImage image) {
    HostContext found = handles.context(context);
    enter(DriverCall.MODULE_LOAD, found);
    if (!(image instanceof ModuleImage.Java java)) {
      throw Status.refused(
          DriverException.INVALID_IMAGE,
          "the host device runs kernels in Java (ModuleImage.Java), not "
              + image.getClass().getSimpleName());
    }
    return handles.add(new HostModule(found, handles, java.kernels()));
  }

  @Override
  public void moduleUnload(long module) {
    HostModule found = handles.module(module);
    enter(DriverCall.MODULE_UNLOAD, found.context());
    if (handles.remove(found)) {
      found.unload();
    }
  }

  @Override
  public long kernel(long module, String name) {
    HostModule found = handles.module(module);
    enter(DriverCall.KERNEL, found.context());
    return found.kernel(name).handle();
  }

  @Override
  public void launch(long stream, long kernel, Grid grid, KernelArguments arguments) {
    HostStream found = enter(DriverCall.LAUNCH, stream);
    HostKernel code = handles.kernel(kernel);
    checkSame(found, code);
    checkGrid(code, grid);
    LaunchOperation operation = LaunchOperation.of(found.context().pool, code, grid, arguments);
    HostGraph writing = found.capturing();
    if (writing == null) {
      found.enqueue(operation);
    } else {
      writing.add(launch(code, grid, operation));
    }
  }

  static void checkGrid(HostKernel code, Grid grid) {
    if (grid.isCooperative() || grid.cluster() > 1) {
      throw Status.refused(
          DriverException.NOT_SUPPORTED,
          "the host device runs the pieces of a kernel in no set order, so its threads cannot wait"
              + " for each other: launch kernel '"
              + code.name
              + "' without cooperative() and withCluster(), in as many launches as it has phases");
    }
  }

  @Override
  public Graphs graphs() {
    return graphs;
  }

  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      devices.forEach(HostDevice::close);
    }
  }

  // --- for tests ------------------------------------------------------------------------------

  HandleTable handles() {
    return handles;
  }

  List<HostDevice> devices() {
    return devices;
  }

  boolean isStepped() {
    return config.stepped();
  }

  void faults(@Nullable FaultPlan plan) {
    faults.plan = plan;
  }

  synchronized FaultPlan faults() {
    FaultPlan plan = faults.plan;
    if (plan == null) {
      plan = new FaultPlan();
      faults.plan = plan;
    }
    return plan;
  }
}
