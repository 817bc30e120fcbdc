package io.fairlead.device.spi;

import java.lang.foreign.MemorySegment;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A device driver as Fairlead sees it: the CUDA driver API's model, in few calls.
 *
 * <p><b>Handles.</b> Contexts, streams, events, modules and kernels are opaque non-zero longs. A
 * handle is never given out twice by one driver within a process, so a stale one is refused with
 * {@link DriverException} and never hits a newer object.
 *
 * <p><b>Threads.</b> Every call may be made from any thread, at the same time as any other. A
 * context is current per operating-system thread; calls for which {@link #needsCurrent} is true
 * fail with status {@code INVALID_CONTEXT} (201) unless the context they belong to is current on
 * the calling OS thread. The driver never looks at Java thread identity for that.
 *
 * <p><b>Blocking.</b> Only {@link #streamSynchronize}, {@link #close}, {@link #moduleLoad}, {@link
 * #retain}, {@link #release}, {@link #hostAlloc}, {@link #hostFree}, {@link #connect}, {@link
 * #trimPool} and {@link #preparePieces} may block, and on a real driver also {@link #streamCreate},
 * {@link #streamDestroy}, {@link #eventCreate} and {@link #kernel}: they may wait until no kernel
 * of the context runs (CUDA does so once some 32 streams are there). So whoever must not be held up
 * by others' kernels makes streams and events and loads kernels beforehand, or on a thread that may
 * wait. Even then they block the operating-system thread, and never suspend a virtual one. Code is
 * on the device once {@link #kernel} has returned, so that no {@link #launch} has to wait for it.
 * All others return promptly and never suspend a virtual thread: a caller may make a context
 * current, call, and restore what was current, and be sure that it stayed on one OS thread. So a
 * driver keeps its tables without locks, or under locks that spin: a {@code ReentrantLock}
 * suspends, and since JDK 24 a contended monitor does too, the one inside {@code
 * ConcurrentHashMap.put} included.
 *
 * <p><b>Errors.</b> Every failure is a {@link DriverException} with the driver's number and name.
 * Asynchronous faults surface on later calls of the same context, which then all fail with the same
 * first cause, and through {@link #status}.
 */
public interface Driver extends AutoCloseable {

  String name();

  String version();

  int deviceCount();

  DeviceInfo info(int device);

  Set<Capability> capabilities();

  /** Whether this call fails when the context it concerns is not current. Probed, never assumed. */
  boolean needsCurrent(DriverCall call);

  // --- contexts -----------------------------------------------------------------------------

  /**
   * Retains the device's primary context and returns its handle. Does not make it current. After a
   * fatal fault it is refused with that fault: until the last release, or, where the driver gives a
   * process no other context (CUDA), for good.
   */
  long retain(int device);

  /** Releases one retain; at the last one the context and all that lives in it end. */
  void release(long context);

  /** The context current on the calling OS thread, or 0. */
  long current();

  /** Makes {@code context} (0: none) current on the calling OS thread. */
  void makeCurrent(long context);

  /**
   * Makes {@code context} current on the calling OS thread for the length of one call, and answers
   * what {@link #restore} needs to put back what was current: anything but {@link Long#MIN_VALUE}.
   * May be nested; nothing may suspend before the restore. A driver that can do both in fewer calls
   * than these overrides both.
   */
  default long bind(long context) {
    long previous = current();
    if (previous != context) {
      makeCurrent(context);
    }
    return previous;
  }

  /** Puts back what was current before the {@link #bind} of this context that gave the token. */
  default void restore(long context, long token) {
    if (token != context) {
      makeCurrent(token);
    }
  }

  /** The first fatal fault of the context, or null while it is sound. Never throws. */
  @Nullable DriverException status(long context);

  MemoryInfo memoryInfo(long context);

  /**
   * Returns to the device what the driver's shared pool has and nobody uses, until it has no more
   * than so many bytes, or nothing more can go: what is in use stays, and so may what was freed in
   * the order of a stream that has not come to it. Does nothing where there is no such pool. May
   * block; never loses anybody's memory.
   *
   * @param keepBytes of all that the pool has, in use or not
   */
  default void trimPool(long context, long keepBytes) {}

  /**
   * Nanoseconds that kernels of this context have run so far, or -1 where the driver does not
   * measure it. A memory read: never blocks, never throws.
   */
  default long kernelNanos(long context) {
    return -1;
  }

  // --- streams and events -------------------------------------------------------------------

  /**
   * Creates a non-blocking stream (never ordered against a legacy default stream).
   *
   * @param priority 0 is normal, higher runs sooner; clamped to what the device has
   * @param listener called when {@link #reached} grew or the context faulted; null if not wanted.
   *     Only with {@link Capability#NOTIFY}; otherwise ignored
   */
  long streamCreate(long context, int priority, @Nullable StreamListener listener);

  /** Destroys the stream; work already enqueued still ends. */
  void streamDestroy(long stream);

  /**
   * Ends a capture of the stream by others, if they have begun one, and throws away what they have
   * captured: the stream is about to be destroyed, and its work has to be waited for. Never one of
   * an adopted stream. The context is current as for {@link #streamDestroy}.
   */
  default void streamDropCapture(long stream) {}

  /**
   * Enqueues: once all earlier work of the stream has ended and its effects are visible to the
   * host, {@link #reached} is at least {@code value}. Values of one stream must not fall.
   */
  void signal(long stream, long value);

  /**
   * The latest signalled value that is known to be reached; 0 at first. A memory read, no driver
   * call.
   */
  long reached(long stream);

  /**
   * Whether a signal is on its way of which {@link #reached} will not know before somebody {@link
   * #ask asks} for it. A memory read; false also for a stream that is gone.
   */
  default boolean mustAsk(long stream) {
    return false;
  }

  /**
   * Asks the device how far streams are, in the order given, until {@code nanosMax} have passed and
   * at least one was asked; {@link #reached} knows the answer afterwards. Whoever waits for a
   * stream that {@link #mustAsk} has to see to it that somebody does. Any thread; returns promptly;
   * of several who ask for a context at once one does, and the others are answered 0. Makes the
   * context current by itself, if that is needed, and disturbs no capture. Never throws: what is
   * gone is passed over, and a fault shows in {@link #status}.
   *
   * @param streams of this context; the first {@code count} are asked
   * @return how many were asked, from the first on: what is left goes first next time
   */
  default int ask(long context, long[] streams, int count, long nanosMax) {
    return count;
  }

  /** Blocks the calling OS thread until all enqueued work ended; throws the context's fault. */
  void streamSynchronize(long stream);

  long eventCreate(long context);

  void eventDestroy(long event);

  void eventRecord(long event, long stream);

  /** Later work of {@code stream} starts after what {@code event} last recorded. */
  void streamWaitEvent(long stream, long event);

  /** Whether the work that the event last recorded has ended. */
  boolean eventQuery(long event);

  // --- foreign code -------------------------------------------------------------------------

  /**
   * The context as foreign code names it: for CUDA a {@code CUcontext}. The handle itself where a
   * driver has no other names.
   */
  default long contextNative(long context) {
    return context;
  }

  /**
   * The stream as foreign code names it: for CUDA a {@code CUstream}. The handle itself where a
   * driver has no other names. From now on others may capture the stream; while they do, calls that
   * would be captured are refused with CAPTURE_UNSUPPORTED, where the driver can tell.
   */
  default long streamNative(long stream) {
    return stream;
  }

  /**
   * A handle for a stream that others made, by the name that they know it by. It stays theirs:
   * {@link #streamLetGo} ends the handle. They destroy it after that, not before. Needs what {@link
   * DriverCall#STREAM_CREATE} needs, and may block like it.
   *
   * @throws DriverException INVALID_HANDLE for a stream of another context, or for a default
   *     stream, whose name means another stream on another thread
   */
  default long streamAdopt(long context, long nativeStream) {
    return nativeStream;
  }

  /**
   * Ends a handle of {@link #streamAdopt}; what was enqueued with it ends all the same. Does not
   * touch the stream, which may be gone by now.
   */
  default void streamLetGo(long stream) {}

  /**
   * What foreign code enqueues from now on without naming a stream, on this context's default
   * stream, comes after what {@code event} last recorded. The context is current, whatever {@link
   * #needsCurrent} says: a default stream is that of the current context.
   *
   * @throws DriverException NOT_SUPPORTED without {@link Capability#DEFAULT_STREAM};
   *     CAPTURE_UNSUPPORTED while foreign code captures a stream that the default stream waits for,
   *     and that capture is none the worse
   */
  default void defaultStreamWait(long context, long event) {
    throw noDefaultStream();
  }

  /**
   * Records, in {@code event}, all that foreign code has enqueued in this context without naming a
   * stream. As {@link #defaultStreamWait}.
   */
  default void defaultStreamRecord(long context, long event) {
    throw noDefaultStream();
  }

  private DriverException noDefaultStream() {
    return DriverException.notSupported(
        "driver " + name() + " has no default stream; foreign code runs where it is called");
  }

  // --- memory -------------------------------------------------------------------------------

  /**
   * Allocates in stream order and returns a device address aligned to at least 256 bytes.
   *
   * @throws DriverException with {@link DriverException#isOutOfMemory()} if the device has no room
   */
  long allocAsync(long stream, long bytes);

  /** Frees in stream order. The address must stem from {@link #allocAsync}. */
  void freeAsync(long stream, long address);

  /** Page-locked host memory, usable by asynchronous copies. Owned by the caller until freed. */
  MemorySegment hostAlloc(long context, long bytes);

  void hostFree(long context, MemorySegment block);

  /** The source must stay valid and unchanged until the copy ended. */
  void copyToDevice(long stream, long target, MemorySegment source);

  /** Copies {@code target.byteSize()} bytes; the target is undefined until the copy ended. */
  void copyToHost(long stream, MemorySegment target, long source);

  void copyOnDevice(long stream, long target, long source, long bytes);

  void fill(long stream, long target, long bytes, byte value);

  /**
   * Fills with a pattern of 2 or 4 bytes, the low ones of {@code pattern} in the machine's order.
   *
   * @param bytes a multiple of {@code width}; {@code target} is aligned to it
   */
  default void fillPattern(long stream, long target, long bytes, int width, int pattern) {
    throw DriverException.notSupported(name() + " fills with single bytes only");
  }

  // --- many pieces at once ------------------------------------------------------------------

  /**
   * Makes ready for {@link #copyPiecesToHost} and {@link #copyPiecesToDevice} in this context:
   * brings the code for them to the device, where it takes some. What was done is not done again.
   * Needs what {@link DriverCall#MODULE_LOAD} needs, and may block like it.
   *
   * @return whether pieces are copied as one operation from now on; else they are one by one, which
   *     needs no making ready
   */
  default boolean preparePieces(long context) {
    return false;
  }

  /**
   * Enqueues copies of all pieces to their host memory: as one operation where the driver can,
   * after {@link #preparePieces}, else one by one. In the order of the stream they are all after
   * what was enqueued before and all before what comes later; among each other they have no order.
   * Needs what {@link DriverCall#LAUNCH} and {@link DriverCall#COPY} need.
   *
   * <p>The table and the host memory must stay as they are until all of it has ended; {@code
   * pieces} may be dropped at once. The host memory must be page-locked: what a driver does with
   * other memory is undefined, and may lose the context, as may a device address that is wrong.
   *
   * @throws DriverException CAPTURE_UNSUPPORTED while the stream is captured, since a graph would
   *     read the table again and again. If a piece is refused, the message says which, {@code piece
   *     7 of 32}; those before it may be under way, and touch their memory until what is on the
   *     stream then has ended
   */
  default void copyPiecesToHost(long stream, Pieces pieces) {
    for (int i = 0; i < pieces.count(); i++) {
      try {
        copyToHost(stream, pieces.host(i), pieces.address(i));
      } catch (DriverException e) {
        throw e.ofPiece(i, pieces.count());
      }
    }
  }

  /** As {@link #copyPiecesToHost}, the other way. */
  default void copyPiecesToDevice(long stream, Pieces pieces) {
    for (int i = 0; i < pieces.count(); i++) {
      try {
        copyToDevice(stream, pieces.address(i), pieces.host(i));
      } catch (DriverException e) {
        throw e.ofPiece(i, pieces.count());
      }
    }
  }

  // --- between devices ----------------------------------------------------------------------

  /**
   * Lets the devices of two contexts reach each other's memory directly, where they can; copies
   * between them work in any case, maybe through the host. Done once for each pair, by callers that
   * may wait: it may block. What was done before is not done again.
   *
   * @return whether they reach each other directly
   */
  default boolean connect(long context, long other) {
    return false;
  }

  /**
   * Enqueues a copy between the memories of two contexts, which may also be one. Only with {@link
   * Capability#PEER_COPY}. That the other context is lost is no fault of the stream's: it is
   * refused with the status of that loss, and is not fatal.
   *
   * @param stream of either context
   */
  default void copyPeer(
      long stream, long target, long targetContext, long source, long sourceContext, long bytes) {
    throw DriverException.notSupported(
        name() + " copies between devices through the host only: copy to host, then to device");
  }

  // --- code ---------------------------------------------------------------------------------

  /** Whether {@link #moduleLoad} takes this kind of image. */
  boolean accepts(ModuleImage image);

  /**
   * Whether {@link #moduleLoad} takes this image for this device: as {@link #accepts(ModuleImage)},
   * and made for the device's architecture as far as can be seen without loading it.
   */
  default boolean accepts(int device, ModuleImage image) {
    return accepts(image);
  }

  long moduleLoad(long context, ModuleImage image);

  void moduleUnload(long module);

  /**
   * The handle of a kernel in a loaded module.
   *
   * @throws DriverException NOT_FOUND, naming the kernels that the module has
   */
  long kernel(long module, String name);

  /** Enqueues a launch. Arguments are copied before it returns. */
  void launch(long stream, long kernel, Grid grid, KernelArguments arguments);

  /**
   * How many blocks like those of {@code grid} the device holds at once: the most that a {@link
   * Grid#cooperative} launch may have. As the call {@link DriverCall#KERNEL}.
   */
  default long residentBlocks(long kernel, Grid grid) {
    throw DriverException.notSupported(name() + " has no blocks that are resident at once");
  }

  // --- profilers ----------------------------------------------------------------------------

  /**
   * Whether a profiler listens, so that {@link #rangeBegin} is worth its call. Does not change
   * while the driver is open.
   */
  default boolean isProfiled() {
    return false;
  }

  /**
   * What the calling OS thread asks of the driver until the matching {@link #rangeEnd} is shown
   * under this name. Returns promptly; nothing may suspend between the two.
   */
  default void rangeBegin(String name) {}

  /** Ends what the calling OS thread began last. */
  default void rangeEnd() {}

  // --- graphs -------------------------------------------------------------------------------

  /**
   * Work that is written down once and launched often.
   *
   * @throws DriverException NOT_SUPPORTED, saying why, without {@link Capability#GRAPHS}
   */
  default Graphs graphs() {
    throw DriverException.notSupported(
        "driver " + name() + " " + version() + " has no graphs; enqueue the operations one by one");
  }

  @Override
  void close();
}
