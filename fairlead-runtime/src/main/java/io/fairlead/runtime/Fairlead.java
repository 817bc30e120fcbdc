package io.fairlead.runtime;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.InProcess;
import io.fairlead.comm.Launch;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.spi.Driver;
import io.fairlead.memory.Device;
import io.fairlead.task.Engine;
import io.fairlead.task.EngineFactory;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.Owner;
import io.fairlead.task.Placement;
import io.fairlead.task.Role;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.Task;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import io.fairlead.task.ThreadRule;
import io.fairlead.task.WaitMode;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * The front door: tasks, devices and ranks, opened together and closed in order.
 *
 * <pre>
 * OPEN --close()--> CLOSING (nothing new begins) --> CLOSED
 * </pre>
 *
 * Everything is initialised in {@link #open}: a virtual thread must never be the first to run a
 * static initialiser of the runtime, since it could not leave its carrier inside.
 *
 * <p><b>Threads.</b> Any, for every method. Code that does not run in a scope's task and was not
 * {@link #enter entered} counts as the root task: it may use everything, shares one stream for each
 * device, and blocks its own thread when it waits.
 *
 * <p><b>Ownership.</b> Closing it closes its devices and engines, and with them what is still open
 * on them.
 */
public final class Fairlead implements AutoCloseable {

  private enum State {
    OPEN,
    CLOSING,
    CLOSED
  }

  private final FairleadConfig config;
  private final TaskRuntime tasks;
  private final DriverChoice choice;
  private final List<Device> devices;
  private final RankTraffic traffic = new RankTraffic();
  private final World world;

  /** In the order of their making; closed before the devices that their calls use. */
  private final List<Engine<?>> engines = new CopyOnWriteArrayList<>();

  /** Compare-and-set: of several closers one does it. */
  private final AtomicReference<State> state = new AtomicReference<>(State.OPEN);

  private Fairlead(
      FairleadConfig config, TaskRuntime tasks, DriverChoice choice, List<Device> devices) {
    this.config = config;
    this.tasks = tasks;
    this.choice = choice;
    this.devices = List.copyOf(devices);
    this.world = new World(tasks, config, traffic);
  }

  // --- opening ------------------------------------------------------------------------------

  /** Opens with the {@code fairlead.*} system properties; see {@link FairleadConfig}. Blocking. */
  public static Fairlead open() {
    return open(FairleadConfig.fromSystem());
  }

  /**
   * Opens a driver with all of its devices, and the threads that serve them. Blocking. If anything
   * fails, what was opened so far is closed again.
   *
   * @throws DriverUnavailableException if the driver that was asked for is not there, with the
   *     reason
   */
  public static Fairlead open(FairleadConfig config) {
    Deque<AutoCloseable> opened = new ArrayDeque<>();
    try {
      TaskRuntime tasks = TaskRuntime.open(config.tasks());
      opened.push(tasks);
      DriverChoice choice = openDriver(tasks, config);
      opened.push(choice.driver());
      List<Device> devices = new ArrayList<>();
      for (int ordinal : ordinals(choice)) {
        Device device = openDevice(tasks, choice.driver(), ordinal, config);
        opened.push(device);
        devices.add(device);
      }
      return new Fairlead(config, tasks, choice, devices);
    } catch (RuntimeException | Error failure) {
      closeAll(opened, failure);
      throw failure;
    }
  }

  /** Of a host's devices those that are this rank's. */
  private static int[] ordinals(DriverChoice choice) {
    int count = choice.driver().deviceCount();
    Optional<Launch> launch = choice.isHost() ? Optional.empty() : Launch.current();
    LocalDevices.warnIfShared(launch, choice.driver().name(), count);
    return LocalDevices.of(launch, count);
  }

  /** Providers may block in native code, which no carrier should: an owner's thread opens them. */
  private static DriverChoice openDriver(TaskRuntime tasks, FairleadConfig config) {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    try (Owner opener = tasks.owner("open-driver", Role.OWNER)) {
      return opener.call(() -> DriverChoice.open(config, loader)).await();
    }
  }

  private static Device openDevice(
      TaskRuntime tasks, Driver driver, int ordinal, FairleadConfig config) {
    DeviceContext context = DeviceContext.open(tasks, driver, ordinal, config.context());
    try {
      return Device.open(tasks, context, config.memoryWithLimit());
    } catch (RuntimeException | Error failure) {
      context.close();
      throw failure;
    }
  }

  /** Last opened, first closed; a failure does not keep the rest open. */
  private static void closeAll(Deque<AutoCloseable> opened, Throwable failure) {
    for (AutoCloseable each : opened) {
      try {
        each.close();
      } catch (Exception second) {
        failure.addSuppressed(second);
      }
    }
  }

  /**
   * What the drivers on the path say of themselves, the one that {@code auto} prefers first. Opens
   * none. Any thread that may block.
   */
  public static List<DriverReport> drivers() {
    return DriverChoice.reports();
  }

  /** What the transports on the path say of themselves. Opens none. Any thread that may block. */
  public static List<TransportReport> transports() {
    return World.reports();
  }

  // --- what there is ------------------------------------------------------------------------

  public FairleadConfig config() {
    return config;
  }

  /** The first device. */
  public Device device() {
    return device(0);
  }

  /**
   * The device with this ordinal.
   *
   * @throws IndexOutOfBoundsException if there is none, saying how many there are
   */
  public Device device(int ordinal) {
    if (ordinal < 0 || ordinal >= devices.size()) {
      throw new IndexOutOfBoundsException(
          "there is no device "
              + ordinal
              + "; driver '"
              + choice.driver().name()
              + "' has "
              + devices.size());
    }
    return devices.get(ordinal);
  }

  public List<Device> devices() {
    return devices;
  }

  /** The runtime underneath, for those who bring engines or transports of their own. */
  public TaskRuntime tasks() {
    return tasks;
  }

  // --- running things -----------------------------------------------------------------------

  /** Opens a scope of tasks that ends before it closes; its first failure cancels the rest. */
  public <T extends @Nullable Object> TaskScope<T> scope() {
    return scope(ScopeOptions.DEFAULT);
  }

  /** As {@link #scope()}, with a name, a policy or a deadline. */
  public <T extends @Nullable Object> TaskScope<T> scope(ScopeOptions options) {
    requireOpen();
    return tasks.scope(options);
  }

  /**
   * Runs {@code body} as a task on the calling thread, which Fairlead need not have made. Waiting
   * blocks only that thread; interrupting it interrupts the task. Unchecked exceptions of the body
   * come out as they are.
   */
  public <T extends @Nullable Object> T enter(String name, int priority, TaskBody<T> body) {
    requireOpen();
    return tasks.enter(name, priority, body);
  }

  /**
   * Puts a library of your own behind a rule; see {@link Engine}. Unless {@code limits} say
   * otherwise, a call's bytes are reserved on the first device before it begins, and its instance
   * goes back when the work that it left on its task's stream has ended.
   */
  public <I> Engine<I> engine(
      String name, ThreadRule rule, EngineFactory<I> factory, EngineLimits limits) {
    requireOpen();
    Engine<I> engine =
        tasks.engine(name, rule, factory, DeviceEngines.withDefaults(limits, device()));
    engines.add(engine);
    return engine;
  }

  /**
   * The communicator of all ranks of this program: of the processes that a launcher such as {@code
   * mpirun} started; of this one alone, if it was started by itself. {@link
   * FairleadConfig#transport} can say otherwise.
   *
   * <p>The first call opens it: every rank makes it, and it waits until all have. It ends, and the
   * message library with it, when this Fairlead is closed, where all ranks meet once more; a
   * library that has ended cannot start again in the same process. Rank r of a host with g devices
   * opens devices of its own, r modulo g at least.
   *
   * <p>Any thread that may block. Do not close it; {@link Comm#duplicate} makes one to close.
   *
   * @throws io.fairlead.comm.spi.TransportException if the ranks cannot find each other: no
   *     library, one of another family or version, or a rank that does not come; what to do is said
   */
  public Comm world() {
    requireOpen();
    return world.comm();
  }

  /**
   * Runs {@code body} as {@code n} ranks of this process, each with its communicator, and returns
   * their results by rank. If one fails, the others' waits fail with its cause, and it is thrown
   * once all have ended. One that returns closes its communicator: what it sent can still be
   * received, and whoever waits for more from it fails. Waits for all ranks.
   *
   * <p>Ranks wait as the calling task does, which is as configured outside of tasks. In {@link
   * WaitMode#BLOCKING}, where a wait holds a thread, each rank runs on a platform thread of its
   * own; otherwise on virtual ones.
   */
  public <T extends @Nullable Object> List<T> ranks(int n, RankBody<T> body) {
    Task caller = Task.current();
    return ranks(n, caller.isRoot() ? config.waitMode() : caller.waitMode(), body);
  }

  /** As {@link #ranks(int, RankBody)}, with ranks that wait as {@code mode} says. */
  public <T extends @Nullable Object> List<T> ranks(int n, WaitMode mode, RankBody<T> body) {
    Objects.requireNonNull(mode, "mode");
    requireOpen();
    if (n < 1) {
      throw new IllegalArgumentException(n + " ranks; there must be at least 1");
    }
    List<Comm> comms = InProcess.ranks(tasks, n, CommConfig.DEFAULT);
    List<Owner> threads = new ArrayList<>();
    try {
      startRankThreads(n, mode, threads);
      return runRanks(comms, mode, threads, body);
    } finally {
      for (Comm comm : comms) {
        traffic.add(comm.stats());
        comm.close();
      }
      threads.forEach(Owner::close);
    }
  }

  /** A rank that blocks its thread gets one: as a virtual thread it would hold a carrier. */
  private void startRankThreads(int n, WaitMode mode, List<Owner> threads) {
    for (int rank = 0; rank < n && mode == WaitMode.BLOCKING; rank++) {
      threads.add(tasks.owner("rank-" + rank, Role.OWNER));
    }
  }

  private <T extends @Nullable Object> List<T> runRanks(
      List<Comm> comms, WaitMode mode, List<Owner> threads, RankBody<T> body) {
    ScopeOptions options = ScopeOptions.DEFAULT.name("ranks").waitMode(mode);
    try (TaskScope<T> scope = tasks.scope(options)) {
      for (Comm comm : comms) {
        scope.fork(rankOptions(comm.rank(), threads), () -> runRank(comm, body));
      }
      return scope.join();
    }
  }

  private static ForkOptions rankOptions(int rank, List<Owner> threads) {
    ForkOptions options = ForkOptions.named("rank-" + rank);
    return threads.isEmpty() ? options : options.placement(new Placement.Bound(threads.get(rank)));
  }

  /**
   * A rank that fails takes its peers along, and one that has returned sends no more: they would
   * wait for its messages for ever.
   */
  private static <T extends @Nullable Object> T runRank(Comm comm, RankBody<T> body)
      throws Exception {
    try (comm) {
      try {
        return body.run(comm);
      } catch (Exception | Error failure) {
        comm.fail(failure);
        throw failure;
      }
    }
  }

  /** What happened so far, for people: one line for each device, and one for messages. */
  public String report() {
    return RuntimeReport.text(config, choice, devices, traffic);
  }

  // --- closing ------------------------------------------------------------------------------

  /**
   * Ends everything in order: nothing new begins; messages between ranks end; calls in flight of
   * engines end; work on the devices ends, and buffers that were left open are reported; then the
   * driver, and last the owners' threads. Waits for all of it. A second close does nothing.
   *
   * <p>Close scopes first, as try-with-resources does by itself: a task that still runs gets {@link
   * IllegalStateException} from its next call on a device.
   *
   * @throws CloseFailure if some of it failed; the rest was closed all the same
   */
  @Override
  public void close() {
    if (!state.compareAndSet(State.OPEN, State.CLOSING)) {
      return;
    }
    Deque<AutoCloseable> inOrder = new ArrayDeque<>();
    inOrder.add(world);
    inOrder.addAll(engines);
    inOrder.addAll(devices.reversed());
    inOrder.add(choice.driver());
    inOrder.add(tasks);
    CloseFailure failures = new CloseFailure();
    closeAll(inOrder, failures);
    state.set(State.CLOSED);
    failures.throwIfAny();
  }

  private void requireOpen() {
    if (state.get() != State.OPEN) {
      throw new IllegalStateException("this Fairlead was closed; open another one");
    }
  }
}
