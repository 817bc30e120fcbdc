package io.fairlead.task;

import io.fairlead.fault.TaskFailedException;
import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * The tasks of one Fairlead: makes scopes, lets foreign threads enter, and owns the poller, the
 * owners and the engines, which end with it.
 *
 * <p>Threads: one for each owner, one cleaner for the process. Tasks are virtual threads; in mode
 * OWN they run on the process's carriers, which also poll what is registered; in mode JDK on the
 * JDK's, and one poller is started as soon as something is registered.
 *
 * <p>Lock order: no locks. {@code owners}, {@code engines}, {@code polled} and {@code OPEN} are
 * copy on write.
 */
public final class TaskRuntime implements AutoCloseable {

  /** Everything a virtual thread may touch first: see {@link #initialiseClasses}. */
  private static final List<Class<?>> CLASSES =
      List.of(
          Task.class,
          Completion.class,
          TaskScope.class,
          Fork.class,
          Execution.class,
          Forks.class,
          JoinFrame.class,
          Runners.class,
          Problems.class,
          Owner.class,
          OwnerCall.class,
          LentCall.class,
          CommandQueue.class,
          Retired.class,
          Carriers.class,
          Carrier.class,
          CarrierQueue.class,
          ReadyQueue.class,
          Resumable.class,
          Resumable.Free.class,
          Resumable.OfFork.class,
          Resumable.Foreign.class,
          Resumable.Initial.class,
          Nap.class,
          Look.class,
          Strand.class,
          Strand.Member.class,
          Strand.Start.class,
          Resumable.Affine.class,
          Polled.class,
          Watcher.class,
          VirtualThreads.class,
          Gate.class,
          Engine.class,
          WaitGraph.class,
          WaitGraph.Held.class,
          WaitGraph.Wait.class,
          WaitGraph.Frame.class,
          WaitGraph.In.class,
          WaitGraph.Lent.class,
          WaitGraph.Timed.class,
          CallHelp.class,
          CallHelp.Wait.class,
          Role.class,
          io.fairlead.fault.Mutant.class,
          io.fairlead.fault.TaskCancelledException.class,
          io.fairlead.fault.TaskInterruptedException.class);

  private static final System.Logger LOG = System.getLogger(TaskRuntime.class.getName());

  /** Whether it was said in this process that own carriers cannot be had. */
  private static final AtomicBoolean SAID = new AtomicBoolean();

  /** Runtimes that are open, oldest first; ROOT waits as the last one does. */
  private static final CopyOnWriteArrayList<TaskRuntime> OPEN = new CopyOnWriteArrayList<>();

  /** On the JDK's carriers. No inherited thread-locals: state follows the task. */
  private static final ThreadFactory JDK_THREADS =
      Thread.ofVirtual().inheritInheritableThreadLocals(false).factory();

  private final TaskConfig config;
  private final CopyOnWriteArrayList<Owner> owners = new CopyOnWriteArrayList<>();
  private final CopyOnWriteArrayList<Engine<?>> engines = new CopyOnWriteArrayList<>();
  private final AtomicBoolean closed = new AtomicBoolean();
  private final Owner poller;
  private final Runners runners;
  private final AtomicBoolean pollerStarted = new AtomicBoolean();

  /** Null in mode JDK. */
  private final @Nullable Carriers carriers;

  /** Where the threads of its tasks come from. Another one in tests only. */
  volatile ThreadFactory threads;

  private final CopyOnWriteArrayList<Polled> polled = new CopyOnWriteArrayList<>();

  private TaskRuntime(TaskConfig config, Stealing stealing, @Nullable Carriers carriers) {
    this.config = Objects.requireNonNull(config, "config");
    this.carriers = carriers;
    this.threads = carriers == null ? JDK_THREADS : carriers.threads;
    this.runners = new Runners(this, stealing);
    this.poller = Owner.poller(config);
  }

  /**
   * Opens a runtime. Any thread; never blocks.
   *
   * @throws IllegalStateException if own carriers are asked for and the JDK's package is closed;
   *     says the flag to pass
   */
  public static TaskRuntime open(TaskConfig config) {
    Nap.lookNanos(); // what it may be is better said here than by a class that cannot begin
    return open(config, Stealing.fromProperty());
  }

  static TaskRuntime open(TaskConfig config, Stealing stealing) {
    return open(config, stealing, carriersFor(config.carriers()));
  }

  private static @Nullable Carriers carriersFor(@Nullable CarrierMode wanted) {
    String closed = VirtualThreads.closed();
    if (wanted == CarrierMode.OWN && closed != null) {
      throw new IllegalStateException(
          "own carriers were asked for, but "
              + closed
              + ": pass "
              + VirtualThreads.flag()
              + " to java, or set fairlead.carriers=auto");
    }
    if (wanted == null && closed != null && !SAID.getAndSet(true)) {
      LOG.log(
          Level.DEBUG,
          "tasks run on the JDK's carriers: {0}. For own ones pass {1}",
          closed,
          VirtualThreads.flag());
    }
    return wanted == CarrierMode.JDK || closed != null ? null : Carriers.shared();
  }

  /** For tests that bring carriers of their own. */
  static TaskRuntime open(TaskConfig config, @Nullable Carriers carriers) {
    return open(config, Stealing.fromProperty(), carriers);
  }

  private static TaskRuntime open(
      TaskConfig config, Stealing stealing, @Nullable Carriers carriers) {
    initialiseClasses();
    TaskRuntime runtime = new TaskRuntime(config, stealing, carriers);
    OPEN.add(runtime);
    updateRoot();
    return runtime;
  }

  /**
   * A virtual thread cannot leave its carrier inside a static initialiser, and others that need the
   * class then hold theirs too: so all are run here, by the thread that opens.
   */
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

  private static void updateRoot() {
    TaskRuntime newest = null;
    for (TaskRuntime runtime : OPEN) {
      newest = runtime;
    }
    Task.rootWaitMode(newest == null ? WaitMode.NONBLOCKING : newest.config.waitMode());
  }

  // --- tasks
  // --------------------------------------------------------------------------------------

  /** A scope with the default options; see {@link #scope(ScopeOptions)}. */
  public <T extends @Nullable Object> TaskScope<T> scope() {
    return scope(ScopeOptions.DEFAULT);
  }

  /** Opens a scope, owned by the current task (by the calling thread, if it never entered). */
  public <T extends @Nullable Object> TaskScope<T> scope(ScopeOptions options) {
    checkOpen();
    return new TaskScope<>(this, options);
  }

  /**
   * The calling thread becomes a task for the length of the body: a child of the current task, or
   * of ROOT. It blocks only its own thread, obeys its interrupts, and is known wherever tasks are.
   * Any thread; blocks as the body does.
   *
   * @return what the body returned
   * @throws RuntimeException unchecked exceptions and errors of the body, as they are
   * @throws TaskFailedException around a checked exception of the body
   */
  public <T extends @Nullable Object> T enter(String name, int priority, TaskBody<T> body) {
    Objects.requireNonNull(name, "name");
    TaskScope<T> scope = scope(ScopeOptions.DEFAULT.name(name).policy(ScopePolicy.COLLECT));
    try {
      return scope.runInline(name, priority, body);
    } catch (RuntimeException unchecked) {
      throw unchecked;
    } catch (Exception checked) {
      throw new TaskFailedException("task '" + name + "' failed: " + checked, checked);
    }
  }

  /** What threads count as that never entered: one for the process, shared. */
  public Task root() {
    return Task.root();
  }

  /** How tasks of this runtime wait unless they say otherwise. */
  public WaitMode waitMode() {
    return config.waitMode();
  }

  /** Where the threads of its tasks come from. */
  ThreadFactory threads() {
    return threads;
  }

  /** Begins the fork, on a virtual thread of its own. */
  void start(Fork<?> fork) {
    Thread thread = carriers == null ? JDK_THREADS.newThread(fork::run) : carriers.threadFor(fork);
    named(fork, thread).start();
  }

  /** Begins the fork, on a virtual thread, when it has the turn of the strand. */
  void startIn(Strand strand, Fork<?> fork) {
    if (carriers != null) {
      Runnable body = () -> Execution.beginInTurn(strand, false, fork::run);
      named(fork, carriers.threadIn(strand, body)).start();
    } else {
      Runnable body = () -> Execution.beginInTurn(strand, true, fork::run);
      Thread thread = named(fork, JDK_THREADS.newThread(body));
      strand.enter(new Strand.Start(strand, fork, thread));
    }
  }

  /** Begins the fork, on a thread that stays on one OS thread. */
  void startInitial(Fork<?> fork) {
    Thread thread =
        carriers != null
            ? carriers.threadThatStays(fork::run)
            : Thread.ofPlatform()
                .daemon()
                .inheritInheritableThreadLocals(false)
                .name("fairlead-initial")
                .unstarted(fork::run);
    named(fork, thread).start();
  }

  static Thread named(Fork<?> fork, Thread thread) {
    String name = fork.task().givenName();
    if (name != null) {
      thread.setName(name);
    }
    return thread;
  }

  /**
   * A new group of tasks of which at most one runs at a time: see {@link Placement.Serial}. Any
   * thread; never blocks. It is garbage like any object once nobody uses it.
   */
  public Strand strand(String name) {
    checkOpen();
    return new Strand(name, this);
  }

  boolean isClosed() {
    return closed.get();
  }

  /** Whose threads run its tasks, why, and what they have done so far. Any thread. */
  public CarrierReport carriers() {
    List<CarrierReport.Mounted> mounted =
        owners.stream().map(Owner::mounted).filter(Objects::nonNull).toList();
    return carriers == null
        ? new CarrierReport(CarrierMode.JDK, whyJdk(), VirtualThreads.flag(), 0, 0, 0, mounted)
        : new CarrierReport(
            CarrierMode.OWN,
            config.carriers() == null ? "auto: java.lang is open to us" : "asked for",
            VirtualThreads.flag(),
            carriers.regulars,
            carriers.sparesActive(),
            carriers.wakes.sum(),
            mounted);
  }

  private String whyJdk() {
    return config.carriers() == null ? "auto: " + VirtualThreads.closed() : "asked for";
  }

  /** Who takes what its tasks fork. */
  Runners runners() {
    return runners;
  }

  /** The settings it was opened with. */
  public TaskConfig config() {
    return config;
  }

  // --- owners, polling, engines
  // --------------------------------------------------------------------

  /** A new owner with its own daemon thread, which is started. It ends with the runtime. */
  public Owner owner(String name, Role role) {
    return start(new Owner(name, role, config, carriers));
  }

  private Owner start(Owner owner) {
    checkOpen();
    owners.add(owner);
    owner.ended().onDone(done -> owners.remove(owner));
    return owner.start();
  }

  void forget(Engine<?> engine) {
    engines.remove(engine);
  }

  Owner engineOwner(String name) {
    return start(Owner.forEngine(name, config, carriers));
  }

  /**
   * Has this source polled from now on: by carriers, or by the runtime's poller. For sources that
   * have no owner. Any thread; never blocks; in mode JDK the first one starts the poller's thread.
   */
  public void register(PollSource source) {
    checkOpen();
    Objects.requireNonNull(source, "source");
    if (carriers != null) {
      polled.add(carriers.addSource(source, config.pollParkNanosMax()));
      return;
    }
    poller.addSource(source);
    if (pollerStarted.compareAndSet(false, true)) {
      poller.start();
    }
  }

  /** Stops polling it; one poll may still be going on. Any thread; never blocks. */
  @SuppressWarnings("ReferenceEquality") // the source that was registered, not one like it
  public void unregister(PollSource source) {
    if (carriers == null) {
      poller.removeSource(source);
      return;
    }
    for (Polled each : polled) {
      if (each.source == source && polled.remove(each)) {
        carriers.removeSource(each);
        return;
      }
    }
  }

  /**
   * Has sources looked at: one has something new pending. Any thread; never blocks; a few
   * nanoseconds while somebody looks.
   */
  public void ringPoller() {
    if (carriers == null) {
      poller.ring();
    } else {
      carriers.ring();
    }
  }

  /**
   * Declares a library of the user's as an engine. Instances are made when first needed; for
   * OWNER_ONLY their threads are started now.
   */
  public <I> Engine<I> engine(
      String name, ThreadRule rule, EngineFactory<I> factory, EngineLimits limits) {
    checkOpen();
    Engine<I> engine = new Engine<>(this, name, rule, factory, limits);
    engines.add(engine);
    return engine;
  }

  // --- closing
  // ------------------------------------------------------------------------------------

  private void checkOpen() {
    if (closed.get()) {
      throw new IllegalStateException("this runtime is closed: open another one");
    }
  }

  /**
   * Closes the engines (calls in flight end first), then the owners, newest first, then the poller.
   * Waits for all that. Scopes must have been closed by their owners. Twice is harmless.
   *
   * @throws IllegalStateException from inside a call of one of its engines: nothing is closed then
   * @throws io.fairlead.fault.EngineException if a call of one of its engines waits, through
   *     others, for the caller: close it again outside
   */
  @Override
  public void close() {
    if (!closed.get()) {
      engines.forEach(Engine::checkNotInside); // before anything is closed
    }
    if (!closed.compareAndSet(false, true)) {
      return;
    }
    OPEN.remove(this);
    updateRoot();
    closeEngines();
    runners.close();
    owners.reversed().forEach(Owner::close);
    if (pollerStarted.getAndSet(true)) {
      poller.close();
    }
    if (carriers != null) {
      endPolling(carriers);
    }
  }

  private void closeEngines() {
    boolean ended = false;
    try {
      engines.reversed().forEach(Engine::close);
      ended = true;
    } finally {
      if (!ended) {
        closed.set(false); // the next close goes on
      }
    }
  }

  private void endPolling(Carriers from) {
    boolean withinPoll = Thread.currentThread() instanceof RoleThread own && own.isPolling();
    for (Polled each : polled) {
      from.removeSource(each);
      if (!withinPoll) {
        each.end();
      }
    }
  }
}
