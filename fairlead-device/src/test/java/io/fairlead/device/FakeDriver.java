package io.fairlead.device;

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
import io.fairlead.device.spi.OsThreads;
import io.fairlead.device.spi.StreamListener;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A strict driver for tests: contexts are current per OS thread, every call that needs one is
 * checked, operations end when the test says so (or at once), and everything is written down.
 *
 * <p>It keeps its one lock as the contract asks: a spin lock, so that no call suspends a virtual
 * thread.
 */
final class FakeDriver implements Driver {
  private static final long FIRST_HANDLE = 1000;

  private final OsThreads osThreads = new PosixThreads();
  private final SpinLock currentLock = new SpinLock();
  private final Map<Long, Long> current = new HashMap<>(); // guarded by currentLock
  private final Set<DriverCall> needsCurrent;
  private final boolean notifies;
  private final SpinLock lock = new SpinLock();
  private final ConcurrentLinkedQueue<Runnable> deviceWork = new ConcurrentLinkedQueue<>();
  private final Thread deviceThread;

  // guarded by lock
  private final Map<Long, Stream> streams = new LinkedHashMap<>();
  private final Map<Long, Event> events = new HashMap<>();
  private final Map<Long, Set<String>> modules = new HashMap<>();
  private final Map<Long, String> kernels = new HashMap<>();
  private final Set<Long> contexts = new HashSet<>();
  private final List<String> calls = new ArrayList<>();
  private final List<String> ended = new ArrayList<>();
  private final Map<Long, List<String>> graphs = new HashMap<>();
  private final Map<Long, List<String>> executables = new HashMap<>();
  private final Graphs graphCalls = new FakeGraphs();
  private boolean withoutGraphs;
  private final Set<MemorySegment> pinned = new HashSet<>();
  private boolean recording = true;
  private boolean automatic = true;
  private long nextHandle = FIRST_HANDLE;
  private volatile @Nullable DriverException fault;
  private @Nullable DriverException nextRefusal;
  private @Nullable DriverCall refusedCall;
  private @Nullable Stream defaultStream;
  private boolean defaultStreamBlocked;
  private final Set<DriverCall> refusedAlways = EnumSet.noneOf(DriverCall.class);
  private boolean asked;
  private final List<List<Long>> questions = new ArrayList<>();
  private volatile boolean questionFails;
  private final AtomicReference<Runnable> beforeRecord = new AtomicReference<>(() -> {});

  FakeDriver(boolean notifies, Set<DriverCall> needsCurrent) {
    this.notifies = notifies;
    this.needsCurrent = needsCurrent;
    this.deviceThread =
        Thread.ofPlatform().daemon().name("fake-device").start(this::runDeviceThread);
  }

  /** Every call needs the context; the driver notifies; operations end at once. */
  static FakeDriver strict() {
    return new FakeDriver(true, EnumSet.allOf(DriverCall.class));
  }

  /** Operations end when the test says so. */
  static FakeDriver stepped() {
    return strict().manual();
  }

  /** As stepped, but nobody is told of an end. */
  static FakeDriver polled() {
    return new FakeDriver(false, EnumSet.allOf(DriverCall.class)).manual();
  }

  FakeDriver manual() {
    automatic = false;
    return this;
  }

  /** For long runs: nothing is written down. */
  FakeDriver quiet() {
    recording = false;
    return this;
  }

  /** As polled, and signals do not arrive by themselves: the driver must be asked. */
  static FakeDriver asked() {
    FakeDriver driver = polled();
    driver.asked = true;
    return driver;
  }

  /** The next question goes wrong, which it must not. */
  void failNextQuestion() {
    questionFails = true;
  }

  /** What was asked so far: the handles of each question, in its order. */
  List<List<Long>> questions() {
    return locked(() -> List.copyOf(questions));
  }

  FakeDriver withoutGraphs() {
    withoutGraphs = true;
    return this;
  }

  /** Foreign code of device 0 has a default stream: {@link #foreignWork} with this handle. */
  long withDefaultStream() {
    return locked(
        () -> {
          Stream stream = new Stream(nextHandle++, 1, null);
          streams.put(stream.handle, stream);
          defaultStream = stream;
          return stream.handle;
        });
  }

  private void runDeviceThread() {
    while (!Thread.currentThread().isInterrupted()) {
      Runnable work = deviceWork.poll();
      if (work == null) {
        LockSupport.park(this);
      } else {
        work.run();
      }
    }
  }

  /** Tells somebody something, later and without the lock. Does not suspend the caller. */
  private void tell(Runnable work) {
    deviceWork.add(work);
    LockSupport.unpark(deviceThread);
  }

  private static final class Stream {
    final long handle;
    final long context;
    final @Nullable StreamListener listener;
    final ArrayDeque<Op> queue = new ArrayDeque<>();
    volatile long reached;
    volatile long found;
    long signalled;
    int released;

    /** What is captured, or null. */
    @Nullable List<String> captured;

    Stream(long handle, long context, @Nullable StreamListener listener) {
      this.handle = handle;
      this.context = context;
      this.listener = listener;
    }
  }

  private static final class Op {
    final String name;
    final @Nullable Op after;
    final long signal;
    volatile boolean done;

    Op(String name, @Nullable Op after, long signal) {
      this.name = name;
      this.after = after;
      this.signal = signal;
    }
  }

  private static final class Event {
    final long context;
    @Nullable Op recorded;

    Event(long context) {
      this.context = context;
    }
  }

  // --- what tests do with it ------------------------------------------------------------------

  /** Ends the oldest operation of the stream that is not an event, a wait or a signal. */
  void endOne(DeviceStream stream) {
    locked(
        () -> {
          streams.get(stream.handle()).released++;
          return advance();
        });
  }

  /** Ends everything that can end. */
  void endAll() {
    locked(
        () -> {
          streams.values().forEach(each -> each.released = each.queue.size());
          return advance();
        });
  }

  /** From now on operations end at once. */
  void automatic() {
    locked(
        () -> {
          automatic = true;
          return advance();
        });
  }

  /** Loses the context. */
  void fail(String message) {
    List<StreamListener> told = new ArrayList<>();
    locked(
        () -> {
          fault =
              new DriverException(
                  DriverException.ILLEGAL_ADDRESS, "ILLEGAL_ADDRESS", true, message, null);
          for (Stream stream : streams.values()) {
            if (notifies && stream.listener != null) {
              told.add(stream.listener);
            }
          }
          return null;
        });
    tell(() -> told.forEach(StreamListener::lost));
  }

  /** Refuses the next call of that kind. */
  void refuseNext(DriverCall call, int status, String statusName) {
    locked(
        () -> {
          refusedCall = call;
          nextRefusal = new DriverException(status, statusName, false, "as the test asked", null);
          return null;
        });
  }

  /** Runs once, on the thread that records an event next, before it does. */
  void beforeNextRecord(Runnable action) {
    beforeRecord.set(action);
  }

  /** Refuses each call of that kind from now on, or no more. */
  void refuseAlways(DriverCall call, boolean on) {
    locked(() -> on ? refusedAlways.add(call) : refusedAlways.remove(call));
  }

  /** Whether somebody captures a blocking stream, so that the default stream cannot be used. */
  void blockDefaultStream(boolean on) {
    locked(() -> defaultStreamBlocked = on);
  }

  List<String> calls() {
    return locked(() -> List.copyOf(calls));
  }

  long count(String prefix) {
    return calls().stream().filter(each -> each.startsWith(prefix)).count();
  }

  void forgetCalls() {
    locked(
        () -> {
          calls.clear();
          return null;
        });
  }

  /** Names of the operations that ended, in order; events, waits and signals left out. */
  List<String> ended() {
    return locked(() -> List.copyOf(ended));
  }

  int openStreams() {
    return locked(streams::size);
  }

  int openEvents() {
    return locked(events::size);
  }

  int openGraphs() {
    return locked(() -> graphs.size() + executables.size());
  }

  int openModules() {
    return locked(modules::size);
  }

  int pinnedBlocks() {
    return locked(pinned::size);
  }

  /** A stream that Fairlead did not make. */
  long foreignStream() {
    return locked(
        () -> {
          long context = contexts.iterator().next();
          Stream stream = new Stream(nextHandle++, context, null);
          streams.put(stream.handle, stream);
          return stream.handle;
        });
  }

  /** Work that Fairlead does not know of. */
  void foreignWork(long stream, String name) {
    locked(() -> enqueue(streams.get(stream), new Op(name, null, 0)));
  }

  void endForeign(long stream) {
    locked(
        () -> {
          streams.get(stream).released++;
          return advance();
        });
  }

  // --- inside ---------------------------------------------------------------------------------

  private <T> T locked(Supplier<T> body) {
    return lock.call(body);
  }

  /**
   * A lock that never suspends a virtual thread. A {@code ReentrantLock} would, and since JDK 24 so
   * does a contended monitor, the one inside {@code ConcurrentHashMap.put} too: a caller would come
   * back on another OS thread, without the context that it has just made current.
   */
  private static final class SpinLock {
    private final AtomicBoolean held = new AtomicBoolean();

    <T> T call(Supplier<T> body) {
      while (!held.compareAndSet(false, true)) {
        Thread.onSpinWait();
      }
      try {
        return body.get();
      } finally {
        held.set(false);
      }
    }
  }

  private void note(String call) {
    if (recording) {
      calls.add(call);
    }
  }

  /** The checks that every call begins with. Lock held. */
  private void begin(DriverCall call, long context, String text) {
    note(text);
    if (needsCurrent(call) && current() != context) {
      throw new DriverException(
          DriverException.INVALID_CONTEXT,
          "INVALID_CONTEXT",
          false,
          call + " needs context " + context + " current, but it is " + current(),
          null);
    }
    DriverException lost = fault;
    if (lost != null) {
      throw lost;
    }
    if (refusedAlways.contains(call)) {
      throw new DriverException(
          DriverException.OUT_OF_MEMORY, "OUT_OF_MEMORY", false, "as the test asked", null);
    }
    DriverException refusal = nextRefusal;
    if (refusal != null && refusedCall == call) {
      nextRefusal = null;
      throw refusal;
    }
  }

  private Stream stream(long handle) {
    Stream stream = streams.get(handle);
    if (stream == null) {
      throw unknown("stream", handle);
    }
    return stream;
  }

  private Event event(long handle) {
    Event event = events.get(handle);
    if (event == null) {
      throw unknown("event", handle);
    }
    return event;
  }

  private static DriverException unknown(String what, long handle) {
    return new DriverException(
        DriverException.INVALID_HANDLE, "INVALID_HANDLE", false, "no " + what + " " + handle, null);
  }

  private @Nullable Void enqueue(Stream stream, Op op) {
    stream.queue.add(op);
    return advance();
  }

  /** Ends what can end, in any order that the rules allow. Lock held. */
  private @Nullable Void advance() {
    boolean moved = fault == null;
    while (moved) {
      moved = false;
      for (Stream stream : streams.values()) {
        while (endHead(stream)) {
          moved = true;
        }
      }
    }
    return null;
  }

  private boolean endHead(Stream stream) {
    Op head = stream.queue.peek();
    if (head == null || (head.after != null && !head.after.done)) {
      return false;
    }
    boolean work = !head.name.isEmpty();
    if (work && !automatic && stream.released == 0) {
      return false;
    }
    stream.queue.remove();
    head.done = true;
    if (work) {
      stream.released -= automatic ? 0 : 1;
      if (recording) {
        ended.add(head.name);
      }
    }
    if (head.signal > 0) {
      stream.reached = head.signal;
      StreamListener listener = stream.listener;
      if (notifies && listener != null) {
        long value = head.signal;
        tell(() -> listener.reached(value));
      }
    }
    return true;
  }

  private void operation(DriverCall call, long handle, String name) {
    locked(
        () -> {
          Stream stream = stream(handle);
          begin(call, stream.context, name);
          if (stream.captured != null) {
            if (call == DriverCall.ALLOC_ASYNC || call == DriverCall.FREE_ASYNC) {
              refuseCaptured(stream, name);
            }
            stream.captured.add(name);
            return null;
          }
          return enqueue(stream, new Op(name, null, 0));
        });
  }

  /** Enqueues an operation that is only a name. */
  void named(long stream, String name) {
    operation(DriverCall.LAUNCH, stream, name);
  }

  // --- the driver -----------------------------------------------------------------------------

  @Override
  public String name() {
    return "fake";
  }

  @Override
  public String version() {
    return "1";
  }

  @Override
  public int deviceCount() {
    return 2;
  }

  @Override
  public DeviceInfo info(int device) {
    return new DeviceInfo(device, "fake " + device, 1L << 30, 1, Integer.MAX_VALUE);
  }

  @Override
  public Set<Capability> capabilities() {
    EnumSet<Capability> all = EnumSet.noneOf(Capability.class);
    if (notifies) {
      all.add(Capability.NOTIFY);
    }
    if (defaultStream != null) {
      all.add(Capability.DEFAULT_STREAM);
    }
    if (!withoutGraphs) {
      all.add(Capability.GRAPHS);
    }
    return all;
  }

  @Override
  public boolean needsCurrent(DriverCall call) {
    return needsCurrent.contains(call);
  }

  @Override
  public long retain(int device) {
    return locked(
        () -> {
          note("retain");
          long context = device + 1L;
          contexts.add(context);
          return context;
        });
  }

  @Override
  public void release(long context) {
    locked(
        () -> {
          note("release");
          contexts.remove(context);
          return null;
        });
  }

  @Override
  public long current() {
    return currentLock.call(() -> current.getOrDefault(osThreads.current(), 0L));
  }

  @Override
  public void makeCurrent(long context) {
    currentLock.call(() -> current.put(osThreads.current(), context));
  }

  @Override
  public @Nullable DriverException status(long context) {
    return fault;
  }

  @Override
  public MemoryInfo memoryInfo(long context) {
    return locked(
        () -> {
          begin(DriverCall.MEMORY_INFO, context, "memoryInfo");
          return new MemoryInfo(1L << 29, 1L << 30);
        });
  }

  @Override
  public long streamCreate(long context, int priority, @Nullable StreamListener listener) {
    return locked(
        () -> {
          begin(DriverCall.STREAM_CREATE, context, "streamCreate");
          Stream stream = new Stream(nextHandle++, context, listener);
          streams.put(stream.handle, stream);
          return stream.handle;
        });
  }

  @Override
  public void streamDestroy(long handle) {
    locked(
        () -> {
          Stream stream = stream(handle);
          begin(
              DriverCall.STREAM_DESTROY,
              stream.context,
              "streamDestroy" + (stream.queue.isEmpty() ? "" : " with unfinished work"));
          streams.remove(handle);
          return null;
        });
  }

  @Override
  public void signal(long handle, long value) {
    locked(
        () -> {
          Stream stream = stream(handle);
          begin(DriverCall.SIGNAL, stream.context, "signal " + value);
          refuseCaptured(stream, "signal");
          if (value < stream.signalled) {
            throw new AssertionError("signal " + value + " after " + stream.signalled);
          }
          stream.signalled = value;
          return enqueue(stream, new Op("", null, value));
        });
  }

  @Override
  public long reached(long handle) {
    // as the contract says: a memory read, so nothing is written down
    return locked(() -> asked ? stream(handle).found : stream(handle).reached);
  }

  @Override
  public boolean mustAsk(long handle) {
    return locked(
        () -> {
          Stream stream = streams.get(handle);
          return asked && stream != null && stream.found < stream.signalled;
        });
  }

  @Override
  public int ask(long context, long[] handles, int count, long nanosMax) {
    if (questionFails) {
      questionFails = false;
      throw new IllegalStateException("a question goes wrong, on purpose");
    }
    return locked(
        () -> {
          List<Long> question = new ArrayList<>();
          for (int i = 0; i < count; i++) {
            question.add(handles[i]);
            Stream stream = streams.get(handles[i]);
            if (stream != null) {
              stream.found = stream.reached;
            }
          }
          if (recording) {
            questions.add(question);
          }
          return count;
        });
  }

  @Override
  public void streamSynchronize(long handle) {
    locked(
        () -> {
          begin(DriverCall.STREAM_SYNCHRONIZE, stream(handle).context, "streamSynchronize");
          refuseCaptured(stream(handle), "streamSynchronize");
          return null;
        });
    while (fault == null && locked(() -> !stream(handle).queue.isEmpty())) {
      Thread.onSpinWait();
    }
    DriverException lost = fault;
    if (lost != null) {
      throw lost;
    }
    locked(
        () -> {
          stream(handle).found = stream(handle).reached;
          return null;
        });
  }

  @Override
  public long eventCreate(long context) {
    return locked(
        () -> {
          begin(DriverCall.EVENT_CREATE, context, "eventCreate");
          events.put(nextHandle, new Event(context));
          return nextHandle++;
        });
  }

  @Override
  public void eventDestroy(long handle) {
    locked(
        () -> {
          begin(DriverCall.EVENT_DESTROY, event(handle).context, "eventDestroy");
          events.remove(handle);
          return null;
        });
  }

  @Override
  public void eventRecord(long handle, long streamHandle) {
    beforeRecord.getAndSet(() -> {}).run();
    locked(
        () -> {
          Stream stream = stream(streamHandle);
          begin(DriverCall.EVENT_RECORD, stream.context, "eventRecord");
          refuseCaptured(stream, "eventRecord");
          Op op = new Op("", null, 0);
          event(handle).recorded = op;
          return enqueue(stream, op);
        });
  }

  @Override
  public void streamWaitEvent(long streamHandle, long handle) {
    locked(
        () -> {
          Stream stream = stream(streamHandle);
          begin(DriverCall.STREAM_WAIT_EVENT, stream.context, "streamWaitEvent");
          refuseCaptured(stream, "streamWaitEvent");
          return enqueue(stream, after(event(handle)));
        });
  }

  @Override
  public void defaultStreamWait(long context, long handle) {
    locked(
        () -> {
          begin(DriverCall.STREAM_WAIT_EVENT, context, "defaultStreamWait");
          refuseBlocked();
          return enqueue(Objects.requireNonNull(defaultStream), after(event(handle)));
        });
  }

  /** The default stream is that of the current context. */
  private void refuseBlocked() {
    if (defaultStreamBlocked) {
      throw graphRefusal(DriverException.CAPTURE_UNSUPPORTED, "a blocking stream is captured");
    }
    if (current() == 0) {
      throw graphRefusal(DriverException.INVALID_CONTEXT, "no context is current");
    }
  }

  private static Op after(Event event) {
    return new Op("", event.recorded, 0);
  }

  @Override
  public void defaultStreamRecord(long context, long handle) {
    locked(
        () -> {
          begin(DriverCall.EVENT_RECORD, context, "defaultStreamRecord");
          refuseBlocked();
          Op op = new Op("", null, 0);
          event(handle).recorded = op;
          return enqueue(Objects.requireNonNull(defaultStream), op);
        });
  }

  @Override
  public boolean eventQuery(long handle) {
    return locked(
        () -> {
          begin(DriverCall.EVENT_QUERY, event(handle).context, "eventQuery");
          Op recorded = event(handle).recorded;
          return recorded == null || recorded.done;
        });
  }

  @Override
  public long allocAsync(long stream, long bytes) {
    operation(DriverCall.ALLOC_ASYNC, stream, "alloc " + bytes);
    return locked(() -> nextHandle += 256);
  }

  @Override
  public void freeAsync(long stream, long address) {
    operation(DriverCall.FREE_ASYNC, stream, "free");
  }

  @Override
  public MemorySegment hostAlloc(long context, long bytes) {
    return locked(
        () -> {
          begin(DriverCall.HOST_ALLOC, context, "hostAlloc " + bytes);
          MemorySegment block = Arena.ofAuto().allocate(bytes, 64);
          pinned.add(block);
          return block;
        });
  }

  @Override
  public void hostFree(long context, MemorySegment block) {
    locked(
        () -> {
          begin(DriverCall.HOST_FREE, context, "hostFree");
          if (!pinned.remove(block)) {
            throw unknown("pinned block", block.address());
          }
          return null;
        });
  }

  @Override
  public void copyToDevice(long stream, long target, MemorySegment source) {
    operation(DriverCall.COPY, stream, "copyToDevice " + target);
  }

  @Override
  public void copyToHost(long stream, MemorySegment target, long source) {
    operation(DriverCall.COPY, stream, "copyToHost " + source);
  }

  @Override
  public void copyOnDevice(long stream, long target, long source, long bytes) {
    operation(DriverCall.COPY, stream, "copyOnDevice " + target + " " + source);
  }

  @Override
  public void fill(long stream, long target, long bytes, byte value) {
    operation(DriverCall.FILL, stream, "fill " + target);
  }

  @Override
  public boolean accepts(ModuleImage image) {
    return image instanceof ModuleImage.Java;
  }

  @Override
  public long moduleLoad(long context, ModuleImage image) {
    return locked(
        () -> {
          begin(DriverCall.MODULE_LOAD, context, "moduleLoad");
          modules.put(nextHandle, ((ModuleImage.Java) image).kernels().keySet());
          return nextHandle++;
        });
  }

  @Override
  public void moduleUnload(long module) {
    locked(
        () -> {
          begin(DriverCall.MODULE_UNLOAD, contexts.iterator().next(), "moduleUnload");
          modules.remove(module);
          return null;
        });
  }

  @Override
  public long kernel(long module, String name) {
    return locked(
        () -> {
          begin(DriverCall.KERNEL, contexts.iterator().next(), "kernel " + name);
          if (!modules.get(module).contains(name)) {
            throw new DriverException(
                DriverException.NOT_FOUND,
                "NOT_FOUND",
                false,
                "no kernel " + name + "; there are " + modules.get(module),
                null);
          }
          kernels.put(nextHandle, name);
          return nextHandle++;
        });
  }

  @Override
  public void launch(long stream, long kernel, Grid grid, KernelArguments arguments) {
    String name = locked(() -> kernels.get(kernel));
    StringBuilder text = new StringBuilder(name).append('(');
    for (int i = 0; i < arguments.count(); i++) {
      text.append(i == 0 ? "" : ", ")
          .append(arguments.isBuffer(i) ? "@" + arguments.bits(i) : "" + arguments.bits(i))
          .append(':')
          .append(arguments.bytes(i));
    }
    operation(DriverCall.LAUNCH, stream, text.append(')').toString());
  }

  /** A call that the device layer must not make; it is written down, also where records are not. */
  private void refuseCaptured(Stream stream, String call) {
    if (stream.captured != null) {
      calls.add("forbidden: " + call);
      throw graphRefusal(DriverException.CAPTURE_UNSUPPORTED, call);
    }
  }

  private static DriverException graphRefusal(int status, String what) {
    return new DriverException(status, "CAPTURE", false, what, null);
  }

  @Override
  public Graphs graphs() {
    return withoutGraphs ? Driver.super.graphs() : graphCalls;
  }

  /** Graphs as lists of names; a launch is one operation with all of them. */
  private final class FakeGraphs implements Graphs {
    @Override
    public void beginCapture(long handle) {
      locked(
          () -> {
            Stream stream = stream(handle);
            begin(DriverCall.CAPTURE, stream.context, "beginCapture");
            stream.captured = new ArrayList<>();
            return null;
          });
    }

    @Override
    public long endCapture(long handle) {
      return locked(
          () -> {
            Stream stream = stream(handle);
            List<String> names = stream.captured;
            stream.captured = null;
            begin(DriverCall.CAPTURE, stream.context, "endCapture");
            if (names == null) {
              throw graphRefusal(DriverException.ILLEGAL_STATE, "not captured");
            }
            graphs.put(nextHandle, names);
            return nextHandle++;
          });
    }

    @Override
    public long create(long context) {
      return locked(
          () -> {
            begin(DriverCall.GRAPH_BUILD, context, "createGraph");
            graphs.put(nextHandle, new ArrayList<>());
            return nextHandle++;
          });
    }

    private int add(long graph, int[] after, String name) {
      return locked(
          () -> {
            begin(DriverCall.GRAPH_BUILD, contexts.iterator().next(), "addNode");
            List<String> names = graphs.get(graph);
            names.add(name + (after.length == 0 ? "" : " after " + Arrays.toString(after)));
            return names.size() - 1;
          });
    }

    @Override
    public int addLaunch(
        long graph, int[] after, long kernel, Grid grid, KernelArguments arguments) {
      return add(graph, after, locked(() -> kernels.get(kernel)));
    }

    @Override
    public int addCopyToDevice(long graph, int[] after, long target, MemorySegment source) {
      return add(graph, after, "copyToDevice " + target);
    }

    @Override
    public int addCopyToHost(long graph, int[] after, MemorySegment target, long source) {
      return add(graph, after, "copyToHost " + source);
    }

    @Override
    public int addCopyOnDevice(long graph, int[] after, long target, long source, long bytes) {
      return add(graph, after, "copyOnDevice " + target + " " + source);
    }

    @Override
    public int addFill(long graph, int[] after, long target, long bytes, byte value) {
      return add(graph, after, "fill " + target);
    }

    @Override
    public int addEmpty(long graph, int[] after) {
      return add(graph, after, "empty");
    }

    @Override
    public long instantiate(long graph) {
      return locked(
          () -> {
            begin(DriverCall.GRAPH_BUILD, contexts.iterator().next(), "instantiate");
            executables.put(nextHandle, List.copyOf(graphs.get(graph)));
            return nextHandle++;
          });
    }

    @Override
    public void launch(long stream, long executable) {
      operation(
          DriverCall.GRAPH_LAUNCH, stream, locked(() -> executables.get(executable)).toString());
    }

    @Override
    public void destroyGraph(long graph) {
      locked(
          () -> {
            begin(DriverCall.GRAPH_DESTROY, contexts.iterator().next(), "destroyGraph");
            return graphs.remove(graph);
          });
    }

    @Override
    public void destroyExecutable(long executable) {
      locked(
          () -> {
            begin(DriverCall.GRAPH_DESTROY, contexts.iterator().next(), "destroyExecutable");
            return executables.remove(executable);
          });
    }
  }

  @Override
  public void close() {
    deviceThread.interrupt();
  }
}
