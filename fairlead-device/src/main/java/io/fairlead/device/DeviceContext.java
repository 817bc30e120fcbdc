package io.fairlead.device;

import io.fairlead.device.DeviceException.Cause;
import io.fairlead.device.DeviceException.Site;
import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.DeviceInfo;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.fault.Severity;
import io.fairlead.task.Binding;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Collected;
import io.fairlead.task.Completion;
import io.fairlead.task.Gate;
import io.fairlead.task.Owner;
import io.fairlead.task.PollSource;
import io.fairlead.task.Retired;
import io.fairlead.task.Role;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.ThreadRule;
import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * One device, as everybody in this process shares it: its primary context, the streams that tasks
 * draw from, and what is known of its health.
 *
 * <h2>States</h2>
 *
 * <pre>
 * from | to      | by                                    | what it means
 * -----|---------|---------------------------------------|---------------------------------------
 * OPEN | LOST    | the first fatal fault, whoever sees it | every waiter fails with it at once, and
 *      |         |                                       | every later call says the same
 * any  | CLOSED  | close()                               | calls are refused; what is left is
 *      |         |                                       | released in order
 * </pre>
 *
 * <h2>Who does what</h2>
 *
 * The owner's thread creates, loads and destroys, and drains what was retired. Tasks enqueue from
 * wherever they run. A driver that notifies completes waiters on its own threads; for one that does
 * not, and for adopted streams, the runtime's poller looks at each stream that somebody waits for,
 * asks the driver for those whose signals do not arrive by themselves (see {@link Asks}), and now
 * and then looks at the context's health. The cleaner only retires.
 *
 * <h2>Lock order</h2>
 *
 * turn of a stream → operands' locks → table, host blocks. {@code table}, the pool's lock and the
 * block pool's are leaves: nothing is called under them. Waiters and faults take no lock.
 *
 * <pre>
 * field       | writer                  | reader      | mode, guard
 * cores       | table                   | any         | volatile, copied on write
 * modules     | table                   | table       | plain
 * connected   | table                   | any         | volatile, copied on write
 * failure     | first fault, or close   | any         | CAS from null
 * closed      | close                   | any         | volatile
 * polling     | table, once             | table       | plain
 * heartbeat,  | poller                  | poller      | plain
 *   asks      |                         |             |
 * </pre>
 */
public final class DeviceContext implements AutoCloseable {
  /** The answer of every wait for what has ended; shared, so that such a wait makes no garbage. */
  static final Completion<Void> REACHED = Completion.completed(null);

  /** Launch sites kept for each stream of a lost context: the oldest, since work fails in order. */
  private static final int SITES_PER_STREAM = 8;

  /** Launch sites kept in all. */
  private static final int SITES_MAX = 256;

  /** Launch sites in the message itself; more would hide what it says. */
  private static final int SITES_NAMED = 4;

  private static final System.Logger LOG = System.getLogger("io.fairlead.device");

  private static final AtomicLong STREAM_IDS = new AtomicLong();

  /** Calls that may block, create or load: the owner makes them. */
  private static final Set<DriverCall> MANAGED =
      EnumSet.of(
          DriverCall.STREAM_CREATE,
          DriverCall.STREAM_DESTROY,
          DriverCall.EVENT_CREATE,
          DriverCall.EVENT_DESTROY,
          DriverCall.HOST_ALLOC,
          DriverCall.HOST_FREE,
          DriverCall.MODULE_LOAD,
          DriverCall.MODULE_UNLOAD,
          DriverCall.KERNEL,
          DriverCall.CONNECT,
          DriverCall.TRIM,
          DriverCall.GRAPH_BUILD,
          DriverCall.GRAPH_DESTROY);

  /** Calls that are made where the caller is. */
  private static final CallTable DIRECT =
      new CallTable(call -> !MANAGED.contains(call) && call != DriverCall.STREAM_SYNCHRONIZE);

  private static final List<DriverCall> ENQUEUING =
      List.of(
          DriverCall.LAUNCH,
          DriverCall.COPY,
          DriverCall.FILL,
          DriverCall.ALLOC_ASYNC,
          DriverCall.FREE_ASYNC,
          DriverCall.PEER_COPY);

  /** A virtual thread holds its carrier while a class is initialised, so open() does it. */
  private static final List<Class<?>> CLASSES =
      List.of(
          StreamCore.class,
          Waiters.class,
          Waiters.Waiter.class,
          Clock.class,
          Checkpoint.class,
          LaunchRing.class,
          LaunchArguments.class,
          TaskStreams.class,
          TaskStreams.Lease.class,
          StreamPool.class,
          Asks.class,
          Asks.Asked.class,
          AfterWork.class,
          LateOrder.class,
          DriverGate.class,
          ForeignThreads.class,
          HostBlocks.class,
          HostBlock.class,
          CallSite.class,
          Mark.class,
          Kernel.class,
          KernelModule.class,
          StreamDoor.class,
          Capture.class,
          Captures.class,
          Holdings.class,
          Executable.class,
          DeviceGraph.class,
          GraphBuilder.class,
          DeviceLostException.class,
          OutOfDeviceMemoryException.class);

  private static final VarHandle FAILURE;

  static {
    try {
      FAILURE =
          MethodHandles.lookup()
              .findVarHandle(DeviceContext.class, "failure", DeviceException.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final TaskRuntime tasks;
  private final Driver driver;
  private final DeviceConfig config;
  private final DeviceInfo info;
  private final Owner owner;
  private final long nativeContext;
  private final DriverGate gate;
  private final Gate managed;
  private final Gate bound;
  private final Gate unbound;
  private final DriverCall strictestCall;
  private final boolean notified;
  private final Counters counters = new Counters();
  private final StreamPool pool;
  private final TaskStreams taskStreams = new TaskStreams(this);
  private final HostBlocks hostBlocks;
  private final List<HostBlocks> otherBlocks = new CopyOnWriteArrayList<>();
  private final ForeignThreads foreignThreads;
  private final Asks asks;
  private final GraphTable graphs = new GraphTable();
  private final Captures captures = new Captures(this);
  private final Poller poller = new Poller();
  private final BriefLock table = new BriefLock();
  private final List<KernelModule.Loaded> modules = new ArrayList<>();
  private final List<DeviceStream> adopted = new ArrayList<>();

  /** What waits for the end of work; what is left of it is done when the context has ended. */
  private final Set<AfterWork> afterWork = ConcurrentHashMap.newKeySet();

  private final Completion.Source<DeviceLostException> lost = Completion.source();

  /** Copied on write under table; two that connect at once do the same. */
  private volatile Set<DeviceContext> connected = Set.of();

  private boolean polling;
  private volatile StreamCore[] cores = {};
  private volatile @Nullable DeviceException failure;
  private volatile boolean closed;

  /** Nothing of it is left in the driver. Written by the owner. */
  private volatile boolean ended;

  private DeviceContext(
      TaskRuntime tasks,
      Driver driver,
      DeviceInfo info,
      DeviceConfig config,
      Owner owner,
      long nativeContext) {
    this.tasks = tasks;
    this.driver = driver;
    this.config = config;
    this.info = info;
    this.owner = owner;
    this.nativeContext = nativeContext;
    this.gate = new DriverGate(driver, nativeContext);
    String engine = "device " + info.ordinal();
    this.managed = Gate.of(engine, ThreadRule.OWNER_ONLY, owner, Set.of(), null);
    this.bound = Gate.of(engine, ThreadRule.CONTEXT_CURRENT, owner, Set.of(), gate);
    this.unbound = Gate.of(engine, ThreadRule.ANY_THREAD, owner, Set.of(), null);
    this.strictestCall =
        ENQUEUING.stream().filter(gate::needsCurrent).findFirst().orElse(DriverCall.LAUNCH);
    this.notified = driver.capabilities().contains(Capability.NOTIFY);
    this.asks = new Asks(driver, nativeContext);
    this.pool = new StreamPool(this, config.streamsMax());
    this.hostBlocks = new HostBlocks(this, config.hostBytesMax());
    this.foreignThreads = new ForeignThreads(tasks, this);
  }

  /**
   * Opens a device: starts its owner, which retains the primary context. Any thread; waits for the
   * owner. The driver stays the caller's and must outlive the context.
   *
   * @throws IllegalArgumentException if there is no such device
   * @throws DeviceException if the driver refuses
   */
  public static DeviceContext open(
      TaskRuntime tasks, Driver driver, int ordinal, DeviceConfig config) {
    if (ordinal < 0 || ordinal >= driver.deviceCount()) {
      throw new IllegalArgumentException(
          "there is no device "
              + ordinal
              + ": driver "
              + driver.name()
              + " has "
              + driver.deviceCount());
    }
    initialiseClasses();
    Owner owner = tasks.owner("device-" + ordinal, Role.DEVICE_MANAGER);
    try {
      long context = owner.call(() -> retain(driver, ordinal)).awaitUninterruptibly();
      DeviceContext opened =
          new DeviceContext(tasks, driver, driver.info(ordinal), config, owner, context);
      if (!opened.notified) {
        opened.poll();
      }
      return opened;
    } catch (RuntimeException e) {
      owner.close();
      throw e;
    }
  }

  private static void initialiseClasses() {
    MethodHandles.Lookup lookup = MethodHandles.lookup();
    for (Class<?> type : CLASSES) {
      try {
        lookup.ensureInitialized(type);
      } catch (IllegalAccessException e) {
        throw new IllegalStateException(type + " is not accessible to its own package", e);
      }
    }
  }

  private static long retain(Driver driver, int ordinal) {
    try {
      return driver.retain(ordinal);
    } catch (DriverException e) {
      Site site = new Site("retain the primary context", ordinal, 0);
      throw refusal(site, e);
    }
  }

  // --- what it is -----------------------------------------------------------------------------

  /** What the device is. Any thread; never blocks. */
  public DeviceInfo info() {
    return info;
  }

  /** Ordinal of the device. */
  public int ordinal() {
    return info.ordinal();
  }

  /** The driver; go through {@link #driverCall} for every call. */
  public Driver driver() {
    return driver;
  }

  /** What the driver can do beyond the minimum. */
  public Set<Capability> capabilities() {
    return driver.capabilities();
  }

  public DeviceConfig config() {
    return config;
  }

  /** The handle that the driver's interface takes; foreign code wants {@link #nativeHandle}. */
  public long nativeContext() {
    return nativeContext;
  }

  /**
   * The primary context as foreign code names it: for CUDA the {@code CUcontext}. It lives until
   * this is closed, or longer if others hold it too. Any thread; does not block.
   *
   * @throws IllegalStateException if the context is closed
   */
  public long nativeHandle() {
    requireOpen("native handle");
    return driver.contextNative(nativeContext);
  }

  /**
   * Makes the primary context current on an OS thread, for foreign code that looks for it there: an
   * engine whose rule is {@link ThreadRule#CONTEXT_CURRENT} takes this as its binding, and one that
   * is {@link ThreadRule#OWNER_ONLY} may bind its own thread once and for all. A task must not
   * suspend between bind and restore. Any thread; does not block.
   */
  public Binding binding() {
    return gate;
  }

  /** The device manager, {@link Role#DEVICE_MANAGER}: creates, loads, releases what was retired. */
  public Owner owner() {
    return owner;
  }

  /** What has been done so far. Any thread; cheap enough to ask often. */
  public DeviceStats stats() {
    long kernelNanos = closed ? -1 : driver.kernelNanos(nativeContext);
    return counters.snapshot(kernelNanos, cores.length, bytesPinned());
  }

  private long bytesPinned() {
    return hostBlocks.bytesHeld() + otherBlocks.stream().mapToLong(HostBlocks::bytesHeld).sum();
  }

  // --- streams --------------------------------------------------------------------------------

  /**
   * The current task's stream: leased from the pool at first use, an idle one first, ordered after
   * what its parent had enqueued at the fork, and given back when the task ends. Threads that never
   * entered share one. Any thread; parks only while a new stream is made.
   *
   * @throws DeviceLostException if the context is lost
   * @throws IllegalStateException if the context is closed
   */
  public DeviceStream stream() {
    return taskStreams.current();
  }

  /**
   * A stream of the caller's own, to be closed by it; a dropped one is closed by the collector, and
   * reported. Any thread; waits for the owner.
   *
   * @param priority 0 is normal, higher runs sooner; clamped to what the device has
   */
  public DeviceStream openStream(int priority) {
    DeviceStream stream = new DeviceStream(create(priority), false);
    closeWhenDropped(stream);
    return stream;
  }

  private static void closeWhenDropped(DeviceStream stream) {
    StreamCore core = stream.core();
    core.madeAt(CallSite.here());
    Collected.register(stream, core::dropped);
  }

  /**
   * A stream that somebody else made, so that it can be waited for and ordered against: each {@link
   * DeviceStream#mark} on it stands for all that anybody has enqueued by then. It is never
   * destroyed by us; close it before its maker destroys it: after that we do not touch it any more,
   * and what was marked is still reached. Adopting it twice gives the same object. Any thread;
   * waits for the owner.
   *
   * @param nativeStream a stream of this context, as its maker names it: for CUDA a {@code
   *     CUstream} or {@code cudaStream_t}. Default streams are refused, since their names mean
   *     another stream on another thread: see {@link #foreign}
   */
  public DeviceStream adoptStream(long nativeStream) {
    requireSound("adopt stream", 0);
    DeviceStream known = findAdopted(nativeStream);
    return known != null ? known : managedCall("adopt stream", () -> adopt(nativeStream));
  }

  /** Owner only, so that of several who adopt a stream at once the first one's is everybody's. */
  private DeviceStream adopt(long nativeStream) {
    DeviceStream known = findAdopted(nativeStream);
    if (known != null) {
      return known;
    }
    StreamCore core = publish(newCore(true), made -> made.adopt(nativeStream));
    poll();
    DeviceStream stream = new DeviceStream(core, false);
    table.lock();
    try {
      adopted.removeIf(each -> !each.core().isOpen());
      adopted.add(stream);
      return stream;
    } finally {
      table.unlock();
    }
  }

  /** The last number that earlier adoptions, which have not ended yet, gave out or signalled. */
  long lastNumberOf(long handle) {
    long last = 0;
    for (StreamCore core : cores) {
      if (core.adopted && core.handle() == handle) {
        last = Math.max(last, core.enqueued());
      }
    }
    return last;
  }

  private @Nullable DeviceStream findAdopted(long nativeStream) {
    table.lock();
    try {
      for (DeviceStream each : adopted) {
        if (each.core().adoptedFrom() == nativeStream && each.core().isOpen()) {
          return each;
        }
      }
      return null;
    } finally {
      table.unlock();
    }
  }

  /** A stream for the pool. */
  DeviceStream createPooled(int priority) {
    return new DeviceStream(create(priority), true);
  }

  private StreamCore create(int priority) {
    StreamCore core =
        managedCall("create stream", () -> publish(newCore(false), made -> made.create(priority)));
    counters.streamsCreated.increment();
    return core;
  }

  private StreamCore newCore(boolean foreign) {
    requireSound("create stream", 0);
    return new StreamCore(this, STREAM_IDS.incrementAndGet(), foreign);
  }

  /** Makes a stream and puts it into the table. Owner only, so close() comes before or after. */
  private StreamCore publish(StreamCore core, Consumer<StreamCore> maker) {
    try {
      maker.accept(core);
    } catch (DeviceException e) {
      core.destroy(); // what was made of it
      throw e;
    }
    table.lock();
    try {
      StreamCore[] longer = Arrays.copyOf(cores, cores.length + 1);
      longer[cores.length] = core;
      cores = longer;
    } finally {
      table.unlock();
    }
    return core;
  }

  /** Whether the stream is still in the table: it is not once it was destroyed or let go. */
  boolean isKnown(DeviceStream stream) {
    return Arrays.asList(cores).contains(stream.core());
  }

  void forget(StreamCore core) {
    table.lock();
    try {
      cores = Arrays.stream(cores).filter(each -> each != core).toArray(StreamCore[]::new);
    } finally {
      table.unlock();
    }
  }

  /**
   * Completes when everything enqueued on all streams so far has ended. Any thread; does not block.
   */
  public Completion<Void> reached() {
    List<Completion<Void>> unfinished = new ArrayList<>();
    for (StreamCore core : cores) {
      Completion<Void> each = endOf(core, core.last());
      if (each != REACHED) {
        unfinished.add(each);
      }
    }
    return unfinished.isEmpty() ? REACHED : allOf(unfinished);
  }

  /**
   * Runs something on the owner's thread once all these positions, of whichever contexts' streams,
   * are reached, or can be reached no more since their context is lost or closed. For what must not
   * happen while the work goes on: unlike a wait, it is not ended by a refusal of the driver's,
   * which says nothing of the work, and asks again later. Of a stream that its maker has destroyed
   * nobody knows the end: then it happens when this context has ended. Any thread; never blocks.
   *
   * @param then what it throws is logged
   */
  public void afterWork(List<Mark> marks, Runnable then) {
    new AfterWork(this, marks.stream().map(AfterWork.Work::of).toList(), true, then).begin();
  }

  /** As {@link #afterWork}, for everything that is enqueued on all streams so far. */
  void afterAllWork(Runnable then) {
    new AfterWork(this, allWork(), true, then).begin();
  }

  private List<AfterWork.Work> allWork() {
    List<AfterWork.Work> all = new ArrayList<>();
    for (StreamCore core : cores) {
      all.add(new AfterWork.Work(core, core.last()));
    }
    return all;
  }

  void remember(AfterWork waits) {
    afterWork.add(waits);
  }

  /** Whether it was to be done still. */
  boolean forget(AfterWork waits) {
    return afterWork.remove(waits);
  }

  /**
   * Runs something on the owner's thread, soon; once the owner has ended, on a thread of its own.
   * Any thread.
   */
  void errand(Runnable errand) {
    if (!owner.retire(new Errand(errand))) {
      // the caller may be a driver's thread, or a carrier
      Role.OWNER.newThread("after-" + ordinal(), errand).start();
    }
  }

  /** As {@link #errand}, after a while. */
  void errandLater(long nanos, Runnable errand) {
    // the JDK's own timer: no thread of ours for something that hardly ever happens
    Future<?> _ =
        ForkJoinPool.commonPool().schedule(() -> errand(errand), nanos, TimeUnit.NANOSECONDS);
  }

  private static final class Errand extends Retired {
    private final Runnable errand;

    Errand(Runnable errand) {
      this.errand = errand;
    }

    @Override
    protected void release() {
      errand.run();
    }
  }

  /**
   * Fails for a stream that the driver no longer knows, an adopted one that its maker destroyed.
   */
  static Completion<Void> endOf(StreamCore core, long sequence) {
    try {
      return core.completion(sequence);
    } catch (DeviceException e) {
      return Completion.failed(e);
    }
  }

  @SuppressWarnings("NullAway") // Void has no other value
  static Completion<Void> allOf(List<Completion<Void>> parts) {
    return Completion.all(parts).thenApply(_ -> null);
  }

  // --- foreign code ---------------------------------------------------------------------------

  /**
   * Runs code that knows no streams, on a thread that may block, with the primary context current:
   * what it enqueues without naming a stream comes after all that is on {@code stream} now, and
   * what {@code stream} is given later comes after that. The task parks until a thread is free (of
   * {@link ForeignThreads#THREADS}) and the body has returned; what the body enqueued need not have
   * ended. The body runs as the caller's task, and may wait; whatever context it leaves current is
   * none of the next one's.
   *
   * <p>That covers the legacy default stream, those of threads, and streams that order themselves
   * with the legacy one. A library that has non-blocking streams of its own waits for those itself
   * before it returns. Where the driver has no default stream, the body begins when {@code stream}
   * has ended, and its work ends when it returns.
   *
   * <p>It can happen that the driver does not say where that work ends: a library captures a
   * blocking stream just then, say. Then this fails although the body has returned, work on {@code
   * stream} is refused, and {@code ordered} is run later: when {@code stream} comes after that
   * work, which is tried again and again, or when the work has ended, or can end no more since the
   * context is lost. A body ends the captures that it begins on blocking streams.
   *
   * <p>Any thread that may wait. Cancellation and interrupts end the wait for a thread; a body that
   * has begun is waited for.
   *
   * @param ordered run after the body, on the same thread if the order is made at once, else on the
   *     owner's; until then whatever the body's work uses must not be used otherwise. Not run if
   *     the body did not begin, nor if the context was closed before the work's end was known; must
   *     not throw
   * @throws RuntimeException unchecked exceptions of the body, as they are
   * @throws io.fairlead.fault.EngineException around a checked exception of the body; or if it is
   *     called from inside such a body
   * @throws DeviceException if the driver refuses
   * @throws DeviceLostException if the context is lost
   */
  public <T extends @Nullable Object> T foreign(
      DeviceStream stream, TaskBody<T> body, Runnable ordered) {
    requireSound("foreign code", stream.id());
    return foreignThreads.call(stream, body, ordered);
  }

  /** As the other {@code foreign}, where nothing has to be done when the order is made. */
  public <T extends @Nullable Object> T foreign(DeviceStream stream, TaskBody<T> body) {
    return foreign(stream, body, () -> {});
  }

  // --- code and host memory -------------------------------------------------------------------

  /**
   * Loads a module: the first of its images that the driver accepts for this device. Any thread;
   * waits for the owner, which may compile. Close it when it is not needed any more.
   *
   * <p>Should the driver find only when it loads that an image is not for it or for the device, the
   * next one is taken, and the log says so. An image with an error in it is refused, whatever comes
   * after it. {@link KernelModule#image} says which one it is.
   *
   * @throws DeviceException if the driver accepts no image, or refuses the one it accepted
   */
  public KernelModule load(ModuleSource source) {
    KernelModule.Loaded loaded =
        managedCall("load module " + source.name(), () -> loadImage(source));
    return new KernelModule(loaded, CallSite.here());
  }

  private KernelModule.Loaded loadImage(ModuleSource source) {
    String operation = "load module " + source.name();
    requireSound(operation, 0);
    List<ModuleImage> images = fitting(source);
    for (int i = 0; i < images.size(); i++) {
      ModuleImage image = images.get(i);
      try {
        return load(source, image, operation);
      } catch (DeviceException e) {
        if (i == images.size() - 1 || !isForAnotherDevice(e, image)) {
          throw e;
        }
        LOG.log(
            Level.INFO,
            e.getMessage() + ". Of the module's forms the next is taken instead of " + kind(image));
      }
    }
    throw noImage(source, operation);
  }

  /** What can be loaded here; if nothing, the first whose kind can, since the driver says why. */
  private List<ModuleImage> fitting(ModuleSource source) {
    List<ModuleImage> fitting =
        source.images().stream().filter(image -> driver.accepts(ordinal(), image)).toList();
    return fitting.isEmpty()
        ? source.images().stream().filter(driver::accepts).limit(1).toList()
        : fitting;
  }

  /** A binary that the driver cannot read was made by newer tools, or is none. */
  private static boolean isForAnotherDevice(DeviceException e, ModuleImage image) {
    return e.getCause() instanceof DriverException cause
        && (cause.isNotForThisDevice()
            || (image instanceof ModuleImage.Binary
                && cause.status() == DriverException.INVALID_IMAGE));
  }

  private KernelModule.Loaded load(ModuleSource source, ModuleImage image, String operation) {
    long handle =
        directCall(
            DriverCall.MODULE_LOAD, operation, () -> driver.moduleLoad(nativeContext, image));
    KernelModule.Loaded loaded = new KernelModule.Loaded(this, source.name(), handle, image);
    remember(loaded);
    return loaded;
  }

  private DeviceException noImage(ModuleSource source, String operation) {
    Site site = new Site(operation, ordinal(), 0);
    String kinds =
        source.images().stream().map(DeviceContext::kind).collect(Collectors.joining(", "));
    return new DeviceException(
        Severity.OPERATION,
        site,
        List.of(),
        site
            + ": driver "
            + driver.name()
            + " "
            + driver.version()
            + " accepts none of its images ("
            + kinds
            + "); add one that it does",
        new Cause(DriverException.INVALID_IMAGE, "INVALID_IMAGE", null));
  }

  private static String kind(ModuleImage image) {
    return switch (image) {
      case ModuleImage.Java _ -> "Java kernels";
      case ModuleImage.CudaSource source -> "CUDA source " + source.fileName();
      case ModuleImage.Ptx _ -> "PTX";
      case ModuleImage.Binary _ -> "a binary";
    };
  }

  private void remember(KernelModule.Loaded module) {
    table.lock();
    try {
      modules.add(module);
    } finally {
      table.unlock();
    }
  }

  void forget(KernelModule.Loaded module) {
    table.lock();
    try {
      modules.remove(module);
    } finally {
      table.unlock();
    }
  }

  /**
   * Captures what the body enqueues on the current task's stream, and makes a graph of it: nothing
   * of it runs now, and all of it, as one operation, at each {@link DeviceGraph#launch}.
   *
   * <p>Launches, copies and fills are captured, also those of buffers, and those that foreign code
   * enqueues on {@link DeviceStream#handle} in the body of a {@link DeviceStream#enqueue}; an
   * {@code enqueue} answers -1 instead of a position. The task's stream is another one meanwhile,
   * which the body is given. What children do that the body forks is not captured. Buffers and
   * modules are held as long as the graph lives. Host memory that is copied from or to must stay
   * the graph's as long, since each launch copies again: the segment of a {@link HostBlock} may not
   * be closed before the graph.
   *
   * <p>On that stream, whatever cannot be part of a graph is refused, with what to do instead:
   * waiting, marks, checkpoints, edges to other streams, allocations, leases, and copies through
   * staging memory. A buffer may be closed.
   *
   * <p>Any task that may wait; parks for the owner. What the body throws ends the capture and comes
   * through; there is no graph then.
   *
   * @param name for errors, reports and launch sites
   * @throws DeviceException if the driver has no graphs, or something ended the capture: foreign
   *     code that synchronised, say
   * @throws IllegalStateException outside a task, and inside another such body
   */
  public DeviceGraph capture(String name, Consumer<DeviceStream> body) {
    requireGraphs("capture");
    return captures.capture(taskStreams, name, body);
  }

  /**
   * Makes a graph node by node; {@link #capture} makes one of what is enqueued. Any thread; does
   * not wait. Close the builder.
   *
   * @param name for errors, reports and launch sites
   * @throws DeviceException if the driver has no graphs
   */
  public GraphBuilder buildGraph(String name) {
    Objects.requireNonNull(name, "name");
    requireGraphs("build graph " + name);
    return new GraphBuilder(this, name);
  }

  /** Refuses where the driver has no graphs, in its own words. */
  void requireGraphs(String operation) {
    requireSound(operation, 0);
    try {
      driver.graphs();
    } catch (DriverException e) {
      throw translate(e, operation, 0);
    }
  }

  GraphTable graphs() {
    return graphs;
  }

  /**
   * Closes the graphs that are still open, and reports them; completes when their launches have
   * ended and all that they held is let go. For who gives memory back before the context closes.
   * Any thread; does not wait.
   */
  public Completion<Void> closeGraphs() {
    return graphs.closeAll();
  }

  /** The pool of page-locked host memory. */
  public HostBlocks hostBlocks() {
    return hostBlocks;
  }

  /**
   * Another pool of page-locked host memory, with a limit of its own: who takes from it does not
   * take from {@link #hostBlocks}. Ends with the context. Any thread; does not block.
   */
  public HostBlocks openHostBlocks(long bytesMax) {
    HostBlocks pool = new HostBlocks(this, bytesMax);
    otherBlocks.add(pool);
    return pool;
  }

  // --- driver calls ---------------------------------------------------------------------------

  /**
   * Makes a driver call where and how it may be made: calls that create, destroy or load shift to
   * the owner, and the caller waits for it; all others run here, with the context current if they
   * need it and what was current restored after. Any thread that may wait; the cleaner is refused.
   *
   * <p>What is enqueued goes through {@link DeviceStream#enqueue} instead, which orders and counts
   * it.
   *
   * @param operation for errors: {@code pin host memory}
   * @param body calls the driver, and nothing that could suspend a task
   * @throws DeviceException in place of the driver's exception
   */
  public <T extends @Nullable Object> T driverCall(
      DriverCall call, String operation, TaskBody<T> body) {
    requireSound(operation, 0);
    if (!DIRECT.has(call)) {
      return shiftedCall(call, operation, body);
    }
    return gate.needsCurrent(call) ? boundCall(operation, body) : freeCall(operation, body);
  }

  /** Apart from the other, so that it stays small enough to become a part of its caller. */
  private <T extends @Nullable Object> T freeCall(String operation, TaskBody<T> body) {
    try {
      return unbound.call(operation, body);
    } catch (DriverException e) {
      throw translate(e, operation, 0);
    }
  }

  private <T extends @Nullable Object> T boundCall(String operation, TaskBody<T> body) {
    try {
      return bound.call(operation, body);
    } catch (DriverException e) {
      throw translate(e, operation, 0);
    }
  }

  /** On the calling thread, whatever call it is. */
  private <T extends @Nullable Object> T directCall(
      DriverCall call, String operation, TaskBody<T> body) {
    return gate.needsCurrent(call) ? boundCall(operation, body) : freeCall(operation, body);
  }

  private <T extends @Nullable Object> T shiftedCall(
      DriverCall call, String operation, TaskBody<T> body) {
    if (call == DriverCall.STREAM_SYNCHRONIZE) {
      throw new IllegalArgumentException(
          operation + ": a stream is waited for with stream.reached().await(), in any wait mode");
    }
    return managedCall(operation, () -> directCall(call, operation, body));
  }

  private <T extends @Nullable Object> T managedCall(String operation, TaskBody<T> body) {
    return managed.call(operation, body);
  }

  /** Runs on the owner's thread and is waited for, except by the owner itself. */
  <T> T onOwner(String operation, TaskBody<T> body) {
    return managedCall(operation, body);
  }

  /** A release on the owner: nobody is there to be told, so a refusal is logged. */
  void quietly(DriverCall call, String operation, Runnable release) {
    try {
      long previous = gate.enter(call);
      try {
        release.run();
      } finally {
        gate.leave(previous);
      }
    } catch (DriverException e) {
      // releasing in a lost context fails as everything does, and that was reported already
      Level level = failure instanceof DeviceLostException ? Level.DEBUG : Level.WARNING;
      LOG.log(level, "device " + ordinal() + ": cannot " + operation + ": " + e.getMessage());
    }
  }

  @SuppressWarnings("ReferenceEquality") // handles mean something to the one object that gave them
  boolean hasSameDriver(DeviceContext other) {
    return driver == other.driver;
  }

  /**
   * Whether {@link DeviceStream#copyFromPeer} can copy from that device to this one. Any thread; a
   * memory read.
   */
  public boolean canCopyFrom(DeviceContext source) {
    return hasSameDriver(source) && driver.capabilities().contains(Capability.PEER_COPY);
  }

  /** Lets this device reach the other's memory, the first time. May wait for the owner. */
  void connect(DeviceContext other) {
    if (other == this || connected.contains(other)) {
      return;
    }
    boolean direct =
        driverCall(
            DriverCall.CONNECT,
            "connect to device " + other.ordinal(),
            () -> driver.connect(nativeContext, other.nativeContext));
    LOG.log(
        Level.DEBUG,
        "device {0} reaches device {1} {2}",
        ordinal(),
        other.ordinal(),
        direct ? "directly" : "through the host");
    table.lock();
    try {
      Set<DeviceContext> more = new HashSet<>(connected);
      more.removeIf(each -> each.closed);
      more.add(other);
      connected = Set.copyOf(more);
    } finally {
      table.unlock();
    }
  }

  /**
   * Makes ready for the driver's copies of many pieces at once; what was done is not done again.
   * Any thread; waits for the driver, which may load code for it, and maybe for the owner.
   *
   * @return whether they are one operation now
   * @throws DeviceException if the driver refuses
   * @throws DeviceLostException if the context is lost
   */
  public boolean preparePieces() {
    return driverCall(
        DriverCall.MODULE_LOAD,
        "prepare copies of pieces",
        () -> driver.preparePieces(nativeContext));
  }

  DriverGate gate() {
    return gate;
  }

  ForeignThreads foreignThreads() {
    return foreignThreads;
  }

  Counters counters() {
    return counters;
  }

  StreamPool pool() {
    return pool;
  }

  /** An enqueuing call that needs the context, if any does. */
  DriverCall strictestCall() {
    return strictestCall;
  }

  /** Refuses the collector's thread: law 5, whatever object it came by. */
  static void requireMayEnter(String operation) {
    if (Role.current() == Role.CLEANER) {
      throw new IllegalStateException(
          operation
              + " on the cleaner's thread: a cleaning action only retires a node to the owner");
    }
  }

  /** Whether the calling thread would hold up others, or itself, by waiting. */
  static boolean mustNotPark() {
    return !Role.current().mayWait();
  }

  // --- health ---------------------------------------------------------------------------------

  /** Whether a fatal fault has happened. Any thread; a memory read. */
  public boolean isLost() {
    return failure instanceof DeviceLostException;
  }

  /**
   * The first fatal fault, with the launch sites that were in flight, or null. Any thread; a memory
   * read. It is the cause of every {@link DeviceLostException} of this context.
   */
  public @Nullable DeviceException fault() {
    return failure instanceof DeviceLostException lost ? (DeviceException) lost.getCause() : null;
  }

  /**
   * Brings what every later call says once the context is lost, for who waits for something that
   * only others' work on it would bring. Not settled by a close. Any thread; never blocks.
   */
  public Completion<DeviceLostException> lost() {
    return lost.completion();
  }

  /**
   * Whether nothing will be reached here any more: it is lost, or closed. Any thread; a memory
   * read.
   */
  public boolean isOver() {
    return failure != null;
  }

  /** What waiters fail with once nothing will be reached any more, or null. */
  @Nullable DeviceException failure() {
    return failure;
  }

  void requireSound(String operation, long stream) {
    DeviceException seen = failure;
    if (seen != null) {
      throw fault() == null ? closedNow(operation) : lostNow(operation, stream);
    }
    if (closed) {
      throw closedNow(operation);
    }
  }

  void requireOpen(String operation) {
    if (closed) {
      throw closedNow(operation);
    }
  }

  IllegalStateException closedNow(String operation) {
    return new IllegalStateException(
        operation + ": device " + ordinal() + " was closed; open it again");
  }

  private DeviceLostException lostNow(String operation, long stream) {
    return new DeviceLostException(
        new Site(operation, ordinal(), stream), Objects.requireNonNull(fault()));
  }

  /**
   * What the user gets for the driver's refusal. A fatal one loses the context first, and tells
   * everybody: so not while a stream's turn is held.
   */
  DeviceException translate(DriverException e, String operation, long stream) {
    DeviceException translated = translateUnderTurn(e, operation, stream);
    if (e.isFatal()) {
      failWaiters();
    }
    return translated;
  }

  /** As translate, but whoever holds the turn calls {@link #failWaiters} when it is given up. */
  DeviceException translateUnderTurn(DriverException e, String operation, long stream) {
    if (e.isFatal()) {
      DriverException first = driver.status(nativeContext);
      lose(first == null ? e : first);
    }
    return isLost()
        ? lostNow(operation, stream)
        : refusal(new Site(operation, ordinal(), stream), e);
  }

  /** What another call gets that was refused because of {@code e}. */
  DeviceException because(DeviceException e, String operation, long stream, String why) {
    Site site = new Site(operation, ordinal(), stream);
    return new DeviceException(
        Severity.OPERATION,
        site,
        List.of(),
        site + why + e.getMessage(),
        new Cause(e.status(), e.statusName(), e));
  }

  private static DeviceException refusal(Site site, DriverException e) {
    String message =
        site + " failed: " + e.statusName() + " (" + e.status() + "): " + e.getMessage();
    if (e.isOutOfMemory()) {
      return new OutOfDeviceMemoryException(site, message, e);
    }
    return new DeviceException(
        Severity.OPERATION, site, List.of(), message, new Cause(e.status(), e.statusName(), e));
  }

  /** The driver says that the context is lost. Any thread, a driver's too; never blocks. */
  void reportedLost() {
    DriverException status = driver.status(nativeContext);
    lose(
        status != null
            ? status
            : new DriverException(
                DriverException.LAUNCH_FAILED,
                "LAUNCH_FAILED",
                true,
                "the driver says that the context is lost, but not why",
                null));
    failWaiters();
  }

  /** The context is lost; whoever says so calls {@link #failWaiters} next, with no lock held. */
  private void lose(DriverException cause) {
    if (failure != null) {
      return;
    }
    List<String> sites = inFlight();
    Site site = new Site("work in flight", ordinal(), 0);
    DeviceException first =
        new DeviceException(
            Severity.CONTEXT,
            site,
            sites,
            cause.statusName()
                + " ("
                + cause.status()
                + "): "
                + cause.getMessage()
                + ". In flight: "
                + named(sites),
            new Cause(cause.status(), cause.statusName(), cause));
    // CAS: one first cause for all, however many threads find a fault at once
    FAILURE.compareAndSet(this, null, new DeviceLostException(site, first));
  }

  private List<String> inFlight() {
    List<String> sites = new ArrayList<>();
    for (StreamCore core : cores) {
      core.describeInFlight(Math.min(SITES_MAX, sites.size() + SITES_PER_STREAM), sites);
    }
    return sites;
  }

  private static String named(List<String> sites) {
    if (sites.isEmpty()) {
      return "nothing that was recorded";
    }
    int more = sites.size() - SITES_NAMED;
    String first = String.join("; ", more > 0 ? sites.subList(0, SITES_NAMED) : sites);
    return more > 0 ? first + "; and " + more + " more (see launchSites())" : first;
  }

  /** Runs their callbacks, so no lock may be held. Any thread; never blocks; may be repeated. */
  void failWaiters() {
    for (StreamCore core : cores) {
      core.drain();
    }
    // told to those who wait before it is told to the log, whose first message takes milliseconds
    if (failure instanceof DeviceLostException first && lost.complete(first)) {
      DeviceException cause = Objects.requireNonNull(fault());
      LOG.log(Level.WARNING, "device " + ordinal() + " is lost: " + cause.getMessage());
    }
  }

  /** The cause for waiters whose work had not ended when the context was closed. */
  DeviceException closedBeforeEnd() {
    Site site = new Site("close", ordinal(), 0);
    return new DeviceException(
        Severity.CONTEXT,
        site,
        List.of(),
        "device "
            + ordinal()
            + " was closed before this work had ended (it was waited for "
            + TimeUnit.NANOSECONDS.toMillis(config.closeNanos())
            + " ms)",
        Cause.NONE);
  }

  void reportLeak(String what, String madeAt) {
    counters.leaks.increment();
    LOG.log(
        Level.WARNING,
        "device " + ordinal() + ": " + what + " was never closed; close it. Made at " + madeAt);
  }

  // --- polling --------------------------------------------------------------------------------

  /** Whether the driver completes this stream's waiters without being asked. */
  boolean isNotified(StreamCore core) {
    return notified && !core.adopted;
  }

  /**
   * Somebody waits for this stream now, who has counted himself: the poller looks, and looks often
   * again if it napped between looks at older waits.
   */
  void waitingBegan(StreamCore core) {
    if (!isNotified(core)) {
      tasks.ringPoller();
    }
  }

  /** Has the poller look at streams from now on. */
  private void poll() {
    table.lock();
    try {
      if (!polling) {
        polling = true;
        tasks.register(poller);
      }
    } finally {
      table.unlock();
    }
  }

  /** Looks at the streams that nobody notifies us of. Called by one thread at a time. */
  private final class Poller implements PollSource {
    private long heartbeat = System.nanoTime();

    @Override
    public int poll() {
      int found = 0;
      boolean waited = false;
      asks.forget();
      for (StreamCore core : cores) {
        if (!isNotified(core) && core.hasWaiters()) {
          waited = true;
          found += core.drainIfDue();
          if (core.mustAsk() && core.hasWaiters()) {
            asks.add(core);
          }
        }
      }
      if (waited) {
        found += asks.ask();
        beat();
      }
      return found;
    }

    private void beat() {
      long now = System.nanoTime();
      if (now - heartbeat >= config.heartbeatNanos()) {
        heartbeat = now;
        DriverException status = driver.status(nativeContext);
        if (status != null) {
          lose(status);
          failWaiters();
        }
      }
    }

    @Override
    public boolean hasPending() {
      for (StreamCore core : cores) {
        if (!isNotified(core) && core.hasWaiters()) {
          return true;
        }
      }
      return false;
    }

    @Override
    public boolean mayFind() {
      for (StreamCore core : cores) {
        if (!isNotified(core) && core.hasWaiters() && core.mayFind()) {
          return true;
        }
      }
      return false;
    }
  }

  // --- end ------------------------------------------------------------------------------------

  /**
   * Closes in order: lets foreign code that runs return, refuses new calls, waits until all streams
   * have ended (bounded by {@link DeviceConfig#closeNanos}), then destroys events, streams, modules
   * and host blocks, releases the context, and ends the owner. Blocks or parks the caller
   * meanwhile; not from the owner's thread. Idempotent. Streams, graphs, modules and blocks that
   * are still open are reported and closed.
   */
  @Override
  public void close() {
    foreignThreads.close();
    table.lock();
    try {
      if (closed) {
        return;
      }
      closed = true;
    } finally {
      table.unlock();
    }
    if (!awaitEnd(System.nanoTime() + config.closeNanos())) {
      LOG.log(
          Level.WARNING,
          "device " + ordinal() + " is closed with unfinished work: " + named(inFlight()));
    }
    FAILURE.compareAndSet(this, null, closedBeforeEnd());
    owner.call(this::release).awaitUninterruptibly();
    tasks.unregister(poller);
    owner.close();
  }

  /**
   * Waits for all streams, also in a task that is cancelled: memory must not be freed under them.
   */
  private boolean awaitEnd(long deadline) {
    CountDownLatch ended = new CountDownLatch(1);
    new AfterWork(this, allWork(), false, ended::countDown).begin();
    return awaitUntil(ended, deadline);
  }

  /** False if it does not happen in time. Goes on when it is interrupted. */
  static boolean awaitUntil(CountDownLatch ended, long deadline) {
    boolean interrupted = false;
    try {
      while (true) {
        try {
          return ended.await(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Owner only. */
  private @Nullable Void release() {
    taskStreams.forget();
    foreignThreads.giveUp();
    for (StreamCore core : cores) {
      core.reportIfOpen();
      core.destroy();
    }
    graphs.endAll();
    loadedModules().forEach(KernelModule.Loaded::unload);
    hostBlocks.close();
    otherBlocks.forEach(HostBlocks::close);
    try {
      driver.release(nativeContext);
    } catch (DriverException e) {
      LOG.log(Level.WARNING, "device " + ordinal() + ": cannot release the context", e);
    }
    ended = true; // before the look: who is remembered later sees it
    afterWork.forEach(this::finish);
    return null;
  }

  /** Whether all its work has ended with it. */
  boolean hasEnded() {
    return ended;
  }

  /** All work has ended with the context. */
  private void finish(AfterWork waits) {
    try {
      waits.finish();
    } catch (RuntimeException e) {
      LOG.log(Level.WARNING, "device " + ordinal() + ": releasing what work had used", e);
    }
  }

  private List<KernelModule.Loaded> loadedModules() {
    table.lock();
    try {
      return List.copyOf(modules);
    } finally {
      table.unlock();
    }
  }

  @Override
  public String toString() {
    return "device " + ordinal() + " (" + info.name() + ")";
  }
}
