package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DeviceInfo;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.ffi.posix.PageRun;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import org.jspecify.annotations.Nullable;

/**
 * A device's primary context, retained once by us however often callers retain it, so that cuBLAS
 * and others who use the primary context share it.
 *
 * <pre>
 *   SOUND --a call, or the heartbeat, is answered with a fatal status--> LOST --last release--> ENDED
 *     '--------------------------- last release ---------------------------------------------^
 * </pre>
 *
 * Lost: calls are not made any more and fail with the first cause. Ended: the handle is stale, and
 * nothing of the context is with the driver any more, except what others hold of it.
 *
 * <pre>
 * field      | writer                        | reader         | mode, guard
 * fault      | who meets the first fault     | every call     | CAS: the first cause wins, and stays
 * streams    | streamCreate, dispose         | heartbeat, end | volatile, copied on write under lock
 * hostBlocks | hostAlloc, hostFree, end      | same           | concurrent map; they may all block
 * keptPages  | hostFree, end                 | end            | concurrent queue
 * peers      | connect, of either            | connect        | concurrent map; may block too
 * retains    | retain, release               | same           | the driver's life lock
 * asking     | who asks streams              | same           | CAS: one at a time, since queries at
 *            |                               |                | once slow each other down
 * unfinished | dispose of a stream           | end            | volatile, only ever set
 * </pre>
 *
 * The lock spins and is a leaf.
 */
final class CudaContext extends CudaObject {
  private static final int CAPTURE_MODE_RELAXED = 2;
  private static final int PEER_ACCESS_ALREADY_ENABLED = 704;
  private static final long LOOK_NANOS = TimeUnit.MICROSECONDS.toNanos(50);

  final DriverState driver;
  final CudaApi api;
  final DeviceInfo device;
  final int ordinal;
  final long raw;
  final Tickets tickets;
  final SignalEvents events;
  final FreedMemory freed;
  final CudaPieces pieces = new CudaPieces();
  private final int rawDevice;
  private final AtomicBoolean asking = new AtomicBoolean();
  private final AtomicReference<@Nullable DriverException> fault = new AtomicReference<>();
  private final SpinLock lock = new SpinLock();
  private final Map<Long, PinnedMemory> hostBlocks = new ConcurrentHashMap<>();
  private final Queue<PageRun> keptPages = new ConcurrentLinkedQueue<>();
  private final Map<Long, Boolean> peers = new ConcurrentHashMap<>();
  private final MemPool pool;
  private volatile CudaStream[] streams = {};
  private volatile boolean unfinished;
  private long healthStream;
  private int leastPriority;
  private int greatestPriority;
  private int retains = 1;

  /** Retained, and nothing else yet. */
  private CudaContext(DriverState driver, DeviceInfo device, int rawDevice, long raw) {
    this.driver = driver;
    this.api = driver.api();
    this.device = device;
    this.ordinal = device.ordinal();
    this.rawDevice = rawDevice;
    this.raw = raw;
    this.tickets = new Tickets(api, driver.wideSignals(), device.streamsWithSignals());
    this.events = new SignalEvents(api);
    this.freed = new FreedMemory(this);
    this.pool = new MemPool(this, rawDevice, device.memoryBytes(), driver.reuse());
  }

  // --- life: under the driver's life lock -------------------------------------------------------

  /** Retains the device's primary context. Blocks, the first time for a good part of a second. */
  static CudaContext open(DriverState driver, DeviceInfo device, int rawDevice) {
    CudaContext context = new CudaContext(driver, device, rawDevice, retain(driver, rawDevice));
    long previous = Current.bind(driver.api(), context.raw);
    try {
      context.prepare();
    } catch (DriverException e) {
      context.giveBack();
      throw e;
    } finally {
      Current.restore(driver.api(), context.raw, previous);
    }
    driver.handles().add(context);
    return context;
  }

  private static long retain(DriverState driver, int device) {
    Scratch scratch = Scratch.take();
    try {
      int status = driver.api().primaryCtxRetain(scratch.answer(), device);
      if (status != Status.SUCCESS) {
        throw Status.of(
            driver.api(),
            status,
            "cuDevicePrimaryCtxRetain",
            Status.isFatal(status)
                ? "The driver gives this process no other context after a fault; start a new"
                    + " process"
                : "");
      }
      return scratch.longAnswer();
    } finally {
      scratch.giveBack();
    }
  }

  /** Everything a context needs to work, so that what is wrong with it is found here. */
  private void prepare() {
    readPriorities();
    healthStream = newStream(0);
    if (!driver.needs().isKnown()) {
      CurrentProbe.run(this, driver.needs());
    }
    pool.open();
    tickets.grow(this);
    events.open(this);
  }

  private void readPriorities() {
    Scratch scratch = Scratch.take();
    try {
      check(
          api.ctxGetStreamPriorityRange(scratch.value(0), scratch.value(1)),
          "cuCtxGetStreamPriorityRange");
      leastPriority = Memory.getInt(scratch.value(0));
      greatestPriority = Memory.getInt(scratch.value(1));
    } finally {
      scratch.giveBack();
    }
  }

  void retainAgain() {
    checkSound();
    retains++;
  }

  /** Whether that was the last one. */
  boolean releaseOnce() {
    return --retains == 0;
  }

  /**
   * Ends the context: what is enqueued ends first, then all that is left is given back, and the
   * primary context is released. Nothing of it is current on the calling thread afterwards.
   */
  void end() {
    driver.handles().remove(this);
    awaitDisposed(List.of(this)); // calls that concern the context itself are out
    synchronizeStreams();
    List<CudaObject> left = driver.handles().of(this);
    left.forEach(driver.handles()::remove);
    awaitDisposed(left);
    long previous = Current.bind(api, raw);
    try {
      giveBack();
    } finally {
      Current.restore(api, raw, previous == raw ? 0 : previous);
    }
  }

  /**
   * A lost context is not waited for: what it had enqueued was dropped. Streams that were destroyed
   * before their work had ended can only be waited for with all that others do in this context.
   */
  private void synchronizeStreams() {
    long previous = Current.bind(api, raw);
    try {
      for (CudaStream stream : streams) {
        if (stream.isAdopted()) {
          unfinished |= stream.isOutstanding();
        } else if (!isLost() && stream.enter()) {
          stream.dropCapture();
          note(api.streamSynchronize(stream.raw), "cuStreamSynchronize");
          stream.exit();
        }
      }
      if (unfinished && !isLost()) {
        note(api.ctxSynchronize(), "cuCtxSynchronize");
      }
    } finally {
      Current.restore(api, raw, previous);
    }
  }

  private static void awaitDisposed(List<? extends CudaObject> objects) {
    for (CudaObject object : objects) {
      while (!object.isDisposed()) {
        LockSupport.parkNanos(LOOK_NANOS);
      }
    }
  }

  /** Current on this thread. */
  private void giveBack() {
    hostBlocks.keySet().forEach(this::freeBlock);
    if (healthStream != 0 && !isLost()) {
      api.streamDestroy(healthStream);
    }
    if (!isLost()) {
      events.close();
    }
    tickets.close();
    pool.close();
    if (api.primaryCtxRelease(rawDevice) == Status.SUCCESS) {
      keptPages.forEach(PageRun::close);
    }
  }

  // --- faults -----------------------------------------------------------------------------------

  boolean isLost() {
    return fault.get() != null;
  }

  @Nullable DriverException fault() {
    return fault.get();
  }

  void checkSound() {
    DriverException first = fault.get();
    if (first != null) {
      throw Status.again(first);
    }
  }

  /** Throws unless the call succeeded. */
  void check(int status, String call) {
    if (status != Status.SUCCESS) {
      throw failed(status, call);
    }
  }

  /** What a refused call throws; a fatal status loses the context. */
  DriverException failed(int status, String call) {
    note(status, call);
    DriverException first = fault.get();
    return first != null && Status.isFatal(status)
        ? Status.again(first)
        : Status.of(api, status, call);
  }

  /** Loses the context if the status says so. Never throws. */
  void note(int status, String call) {
    if (Status.isFatal(status) && fault.get() == null) {
      fault.compareAndSet(null, Status.of(api, status, call)); // the first cause wins
    }
  }

  /**
   * Asks the driver how the context is. A stream of our own answers for the context; one that has
   * work to do is asked too, since a fault shows there first. Never blocks, never throws, and
   * disturbs no capture that another thread has under way.
   */
  @Nullable DriverException heartbeat() {
    DriverException known = fault.get();
    if (known != null || !enter()) {
      return known;
    }
    try {
      long previous = Current.bind(api, raw);
      int mode = exchangeCaptureMode(CAPTURE_MODE_RELAXED);
      try {
        seen(api.streamQuery(healthStream), "cuStreamQuery");
        queryOutstanding();
      } finally {
        exchangeCaptureMode(mode);
        Current.restore(api, raw, previous);
      }
    } finally {
      exit();
    }
    return fault.get();
  }

  /** Loses the context if a query says so. Never throws. */
  void seen(int status, String call) {
    if (status == Status.UNKNOWN) {
      fault.compareAndSet(null, unknown(call));
    } else {
      note(status, call);
    }
  }

  /** A query cannot fail for a reason of its own. */
  private DriverException unknown(String call) {
    return new DriverException(
        Status.UNKNOWN,
        Status.name(api, Status.UNKNOWN),
        true,
        call + ": " + Status.describe(api, Status.UNKNOWN),
        null);
  }

  private void queryOutstanding() {
    for (CudaStream stream : streams) {
      if (stream.isOutstanding() && !isLost() && beat(stream)) {
        return;
      }
    }
  }

  /**
   * Asks for events of streams in the order given, until the time is up. As the heartbeat, and with
   * the context bound only where a query needs that. Of several callers at once one asks.
   *
   * @return how many of the streams need not be asked any more
   */
  int ask(long[] handles, int count, long nanosMax) {
    if (!asking.compareAndSet(false, true)) {
      return 0;
    }
    try {
      if (count == 0 || isLost() || !enter()) {
        return count;
      }
      try {
        return askEntered(handles, count, nanosMax);
      } finally {
        exit();
      }
    } finally {
      asking.set(false);
    }
  }

  private int askEntered(long[] handles, int count, long nanosMax) {
    boolean binds = driver.needs().of(DriverCall.EVENT_QUERY);
    long previous = binds ? Current.bind(api, raw) : raw;
    int mode = exchangeCaptureMode(CAPTURE_MODE_RELAXED);
    try {
      long start = System.nanoTime();
      int asked = 0;
      do {
        ask(handles[asked++]);
      } while (asked < count && !isLost() && System.nanoTime() - start < nanosMax);
      events.askOrphan();
      return asked;
    } finally {
      exchangeCaptureMode(mode);
      if (binds) {
        Current.restore(api, raw, previous);
      }
    }
  }

  /** One that is gone is passed over. */
  private void ask(long handle) {
    CudaStream stream = driver.handles().streamOrNull(handle);
    if (stream != null && stream.context() == this && stream.enter()) {
      try {
        stream.ask();
      } finally {
        stream.exit();
      }
    }
  }

  /** Whether the driver says that a capture of that stream is under way. */
  boolean isCaptured(long stream) {
    GraphApi graphs = api.graphs();
    if (!graphs.hasCaptureStatus()) {
      return false;
    }
    boolean binds = driver.needs().ofCaptureStatus();
    long previous = binds ? Current.bind(api, raw) : raw;
    Scratch scratch = Scratch.take();
    try {
      return graphs.streamIsCapturing(stream, scratch.answer()) == Status.SUCCESS
          && scratch.intAnswer() != 0;
    } finally {
      scratch.giveBack();
      if (binds) {
        Current.restore(api, raw, previous);
      }
    }
  }

  /**
   * Refuses the default stream while a blocking one is captured: a call on it would be refused too,
   * and end that capture; this question does not. The context is current.
   */
  void checkDefaultStream(String call) {
    GraphApi graphs = api.graphs();
    if (!graphs.hasCaptureStatus()) {
      return;
    }
    Scratch scratch = Scratch.take();
    try {
      if (graphs.streamIsCapturing(CudaStream.LEGACY, scratch.answer()) == Status.IMPLICIT) {
        throw Status.refused(
            DriverException.CAPTURE_UNSUPPORTED,
            call
                + " of the default stream is not possible while a blocking stream is captured, since"
                + " the default stream waits for those; end that capture, or make its stream with"
                + " cudaStreamNonBlocking");
      }
    } finally {
      scratch.giveBack();
    }
  }

  /** Whether the driver was asked about this stream. */
  private boolean beat(CudaStream stream) {
    if (!stream.enter()) {
      return false;
    }
    try {
      if (!stream.mayAsk()) {
        return false;
      }
      if (!stream.isAdopted() && stream.isCapturedByOthers()) {
        stream.asked();
        return false; // the query would end their capture
      }
      long signalled = stream.signalled(); // before the query, which speaks of what was there
      int status = stream.query();
      stream.asked();
      seen(status, "cuStreamQuery");
      if (status == Status.SUCCESS && !stream.isAdopted()) {
        stream.saw(signalled);
      }
      return true;
    } finally {
      stream.exit();
    }
  }

  /** Answers what it was; the mode belongs to the OS thread. */
  private int exchangeCaptureMode(int mode) {
    if (!api.hasCaptureMode()) {
      return mode;
    }
    Scratch scratch = Scratch.take();
    try {
      Memory.setInt(scratch.answer(), mode);
      return api.exchangeStreamCaptureMode(scratch.answer()) == Status.SUCCESS
          ? scratch.intAnswer()
          : mode;
    } finally {
      scratch.giveBack();
    }
  }

  // --- streams and events -----------------------------------------------------------------------

  /** Current on this thread, and entered. */
  CudaStream createStream(int priority) {
    Tickets.Slot slot = tickets.take(this);
    CudaStream stream;
    try {
      stream = new CudaStream(this, newStream(priority), 0, slot);
    } catch (DriverException e) {
      tickets.giveBack(slot);
      throw e;
    }
    return publish(stream);
  }

  /** Current on this thread, and entered. */
  CudaStream adoptStream(long raw) {
    if (raw == 0 || raw == CudaStream.LEGACY || raw == CudaStream.PER_THREAD) {
      throw Status.refused(
          DriverException.INVALID_HANDLE,
          "a default stream cannot be adopted, since it is another one on another thread; run what"
              + " uses it with device.foreign(...)");
    }
    if (driver.handles().isKnown(raw)) { // for the driver it would be a pointer to anywhere
      throw Status.refused(
          DriverException.INVALID_HANDLE,
          Status.hex(raw)
              + " is a handle of this driver's interface, not a CUstream; adopt what"
              + " stream.nativeHandle() gives");
    }
    if (contextOf(raw) != this.raw) {
      throw Status.refused(
          DriverException.INVALID_HANDLE,
          Status.hex(raw)
              + " is no stream of the primary context "
              + Status.hex(this.raw)
              + " of device "
              + ordinal
              + "; make the stream while that context is current");
    }
    long pulse = newEvent();
    try {
      return publish(new CudaStream(this, raw, pulse, tickets.take(this)));
    } catch (DriverException e) {
      api.eventDestroy(pulse);
      throw e;
    }
  }

  /** 0 for what the driver does not know as a stream here. */
  private long contextOf(long stream) {
    Scratch scratch = Scratch.take();
    try {
      int status = api.streamGetCtx(stream, scratch.answer());
      if (status == DriverException.INVALID_HANDLE || status == DriverException.INVALID_CONTEXT) {
        return 0;
      }
      check(status, "cuStreamGetCtx");
      return scratch.longAnswer();
    } finally {
      scratch.giveBack();
    }
  }

  private CudaStream publish(CudaStream stream) {
    lock.lock();
    try {
      CudaStream[] longer = Arrays.copyOf(streams, streams.length + 1);
      longer[streams.length] = stream;
      streams = longer;
    } finally {
      lock.unlock();
    }
    driver.handles().add(stream);
    return stream;
  }

  /** CUDA's priorities run the other way: 0 is normal there too, and lower runs sooner. */
  private long newStream(int priority) {
    int wanted = Math.clamp(-(long) priority, greatestPriority, leastPriority);
    Scratch scratch = Scratch.take();
    try {
      check(
          api.streamCreateWithPriority(scratch.answer(), CudaStream.NON_BLOCKING, wanted),
          "cuStreamCreateWithPriority");
      return scratch.longAnswer();
    } finally {
      scratch.giveBack();
    }
  }

  /** A stream goes whose work has not ended. */
  void noteUnfinished() {
    unfinished = true;
  }

  void forget(CudaStream stream) {
    lock.lock();
    try {
      streams = Arrays.stream(streams).filter(each -> each != stream).toArray(CudaStream[]::new);
    } finally {
      lock.unlock();
    }
  }

  /** Current on this thread, and entered. */
  CudaEvent createEvent() {
    CudaEvent event = new CudaEvent(this, newEvent());
    driver.handles().add(event);
    return event;
  }

  private long newEvent() {
    Scratch scratch = Scratch.take();
    try {
      check(api.eventCreate(scratch.answer(), CudaEvent.DISABLE_TIMING), "cuEventCreate");
      return scratch.longAnswer();
    } finally {
      scratch.giveBack();
    }
  }

  /**
   * Gives something back to the driver, on whatever thread was the last to use it. What a lost
   * context had goes with the context.
   */
  void disposing(String call, IntSupplier destroy) {
    if (isLost()) {
      return;
    }
    long previous = Current.bind(api, raw);
    try {
      note(destroy.getAsInt(), call);
    } finally {
      Current.restore(api, raw, previous);
    }
  }

  /**
   * Brings an executable to the device now: the first launch would do it, and may wait there for
   * kernels that run. What is wrong with it shows at the launch.
   */
  void upload(long executable) {
    if (api.graphs().hasUpload()) {
      note(api.graphs().upload(executable, healthStream), "cuGraphUpload");
    }
  }

  // --- memory -----------------------------------------------------------------------------------

  /**
   * Free memory is what the device has, and what its pool holds without using it. Not one picture:
   * others allocate between the questions.
   */
  MemoryInfo memoryInfo() {
    Scratch scratch = Scratch.take();
    try {
      check(api.memGetInfo(scratch.value(0), scratch.value(1)), "cuMemGetInfo");
      long free = Memory.getLong(scratch.value(0));
      long total = Memory.getLong(scratch.value(1));
      long used = pool.usedBytes();
      long has = Math.max(used, pool.bytes());
      return new MemoryInfo(free + has - used, total, has, used);
    } finally {
      scratch.giveBack();
    }
  }

  void trimPool(long keepBytes) {
    pool.trim(keepBytes);
  }

  MemorySegment hostAlloc(long bytes) {
    PinnedMemory pinned = PinnedMemory.pin(this, bytes);
    hostBlocks.put(pinned.address(), pinned);
    return pinned.segment();
  }

  void hostFree(MemorySegment block) {
    if (!freeBlock(block.address())) {
      throw Status.invalidValue(
          "this block at "
              + Status.hex(block.address())
              + " does not stem from hostAlloc of this context, or was freed before");
    }
  }

  private boolean freeBlock(long address) {
    PinnedMemory pinned = hostBlocks.remove(address);
    if (pinned == null) {
      return false;
    }
    PageRun kept = pinned.unpin(this);
    if (kept != null) {
      keptPages.add(kept);
    }
    return true;
  }

  // --- other devices ----------------------------------------------------------------------------

  /**
   * Lets both devices reach each other's memory, if they can: that of allocations in stream order
   * by the pools, all else by the contexts. May block.
   */
  boolean connect(CudaContext other) {
    if (other == this) {
      return true;
    }
    Boolean known = peers.get(other.handle());
    if (known != null) {
      return known;
    }
    boolean direct =
        api.peers().hasAccess()
            && reaches(other)
            && other.reaches(this)
            && opens(other)
            && other.opens(this);
    peers.put(other.handle(), direct);
    other.peers.put(handle(), direct);
    return direct;
  }

  private boolean reaches(CudaContext other) {
    Scratch scratch = Scratch.take();
    try {
      return api.peers().deviceCanAccessPeer(scratch.answer(), rawDevice, other.rawDevice)
              == Status.SUCCESS
          && scratch.intAnswer() != 0;
    } finally {
      scratch.giveBack();
    }
  }

  /** Opens the other's memory for this one's device. */
  private boolean opens(CudaContext other) {
    long previous = Current.bind(api, raw);
    int status;
    try {
      status = api.peers().ctxEnablePeerAccess(other.raw, 0);
    } finally {
      Current.restore(api, raw, previous);
    }
    if (status != Status.SUCCESS && status != PEER_ACCESS_ALREADY_ENABLED) {
      note(status, "cuCtxEnablePeerAccess");
      return false;
    }
    return other.pool.allow(rawDevice) == Status.SUCCESS;
  }

  // --- what it is -------------------------------------------------------------------------------

  /** Refuses a call that needs the context current, and finds another one or none. */
  void checkCurrent(DriverCall call) {
    if (!driver.needs().of(call)) {
      return;
    }
    long current = Current.get(api);
    if (current != raw) {
      throw Status.refused(
          DriverException.INVALID_CONTEXT,
          call
              + " needs context "
              + Status.hex(handle())
              + " of device "
              + ordinal
              + " to be current on this OS thread, where "
              + (current == 0 ? "none is" : "another one is")
              + "; call makeCurrent first");
    }
  }

  @Override
  Kind kind() {
    return Kind.CONTEXT;
  }

  @Override
  CudaContext context() {
    return this;
  }

  /** {@link #end} does it. */
  @Override
  void dispose() {}
}
