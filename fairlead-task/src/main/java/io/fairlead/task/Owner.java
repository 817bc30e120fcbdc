package io.fairlead.task;

import io.fairlead.fault.Mutant;
import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.HashSet;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * One platform thread that owns something which only one thread may touch, and does what others ask
 * of it. Its loop: retired nodes → commands → tasks that are ready → poll sources → spin → yield →
 * while a source has something pending: search on, if it is a poller, then {@link Nap} → park.
 *
 * <p>Commands come through a bounded queue that refuses with a value. Retired nodes come through an
 * intrusive list that never refuses. An owner outlives the tasks that use it.
 *
 * <p><b>Affine tasks</b> are virtual threads whose only carrier is this thread: between two of
 * their suspensions they are as one command. They need own carriers. One that waits for what is
 * found by looking looks itself first, as long as nothing is queued here ({@link #isIdle}), and the
 * sources were polled not long ago: the loop would do the same. Such a look ends a turn, as a
 * suspension does.
 *
 * <p><b>Life.</b>
 *
 * <pre>
 * RUNNING → CLOSING   close(): the queue takes no more; what is in it is done, calls in flight and
 *                     affine tasks end
 *         → ENDED     retired nodes are released, the thread is gone; later ones are counted only
 * </pre>
 *
 * <b>Doorbell.</b> The owner announces that it will park, looks once more, then parks; a producer
 * publishes, then looks whether an announcement stands. Between the write and the read of each side
 * stands a full fence, so at least one sees the other and no wake is lost:
 *
 * <pre>
 * owner:     bell = PARKING; fence; anything there? → bell = AWAKE, go on; else park
 * producer:  publish;        fence; bell == PARKING and I swap it to AWAKE? → unpark
 *
 * The unpark alone is no promise: a source that is asked on the way to the park may park for a lock
 * of its own and use it up. So the owner looks at the bell, and a wait at what it waits for, after
 * the last source was asked.
 *
 * field     | writer                 | reader    | mode, guard
 * bell      | owner, producers       | both      | volatile; swapped by one producer for each park
 * retired   | anyone (push), owner (take all) | owner | compare-and-set / getAndSet
 * sources   | anyone                 | owner     | copy on write
 * waiting   | producers              | owner     | concurrent queue of parked producers' turns. A
 *           |                        |           | producer enters, then offers again; the owner
 *           |                        |           | takes a command, then gives one turn here; a
 *           |                        |           | turn that is not used is passed on
 * resumes   | anyone (add), owner    | owner     | a queue that never refuses
 * affine, tasks | owner, and the affine tasks on it | same | plain: one platform thread
 * mountedAt | owner                  | anyone    | opaque: a report may be late; 0: none is mounted
 * longTurns, longestTurn | owner     | anyone    | opaque: a report may be late
 * polling, idleSince, rung, polls | owner | owner | plain
 * turnBegan, pollsAtLook, lookSince | owner, and the affine tasks on it | same | plain: as above
 * closing   | closer                 | anyone    | volatile, after the queue was closed
 * </pre>
 *
 * Lock order: no locks of its own ({@link #lock} is for those of others); a wait for an owner that
 * others may need takes that of {@link WaitGraph}, for a moment. Commands, release() and poll() run
 * on the owner's thread, under none.
 *
 * <p><b>Waiting on an owner's thread</b> holds up all that is queued there. A command that waits
 * for a call that needs its own thread, or for owners and engines that wait for it, is told: {@link
 * IllegalStateException}.
 */
public final class Owner implements AutoCloseable {
  private static final int AWAKE = 0;
  private static final int PARKING = 1;

  /**
   * A turn of an affine task that holds the thread up so long is counted as long: a few times what
   * a thread loses where others want its processor, 3 to 4 ms on Linux.
   */
  static final long LONG_TURN_NANOS = 20_000_000;

  /** Commands and retired nodes in a row before the sources are looked at again. */
  private static final int BATCH = 64;

  /**
   * Rounds of spinning, 2 µs, after which it yields once all the same: whoever asks may have been
   * put behind it on the same processor.
   */
  private static final int SPINS_PER_YIELD = 50;

  /**
   * A command or a poll that waits for a lock: between two looks, so that who holds it can run.
   * Each further nap is twice as long, {@value #LOCK_NAPS_DOUBLED} times at most.
   */
  private static final long LOCK_NAP_NANOS = 1_000;

  private static final int LOCK_NAPS_DOUBLED = 8;

  /** A command that waits: longest sleep between two polls of the owner's sources. */
  private static final long NAP_NANOS_WAITING = 50_000;

  /**
   * How long a loop of messages searches after the last one, yielding: as long as an answer takes
   * that comes at once, by way of a task and its carrier on either side.
   */
  private static final long SEARCH_NANOS_COMM = 200_000;

  /** How long an affine task looks itself before it suspends, and several in a row do. */
  static final long LOOK_NANOS = Nap.lookNanos();

  /** Stands in the retired list once the owner has ended. */
  private static final Retired END =
      new Retired() {
        @Override
        protected void release() {
          throw new IllegalStateException("the end mark is never queued");
        }
      };

  private static final System.Logger LOG = System.getLogger(Owner.class.getName());
  private static final VarHandle BELL;
  private static final VarHandle RETIRED;
  private static final VarHandle MOUNTED_AT;
  private static final VarHandle LONG_TURNS;
  private static final VarHandle LONGEST_TURN;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      BELL = lookup.findVarHandle(Owner.class, "bell", int.class);
      RETIRED = lookup.findVarHandle(Owner.class, "retired", Retired.class);
      MOUNTED_AT = lookup.findVarHandle(Owner.class, "mountedAt", long.class);
      LONG_TURNS = lookup.findVarHandle(Owner.class, "longTurns", long.class);
      LONGEST_TURN = lookup.findVarHandle(Owner.class, "longestTurn", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Its thread, for {@link WaitGraph}: free when what runs on it has ended. */
  final WaitGraph.Held held =
      new WaitGraph.Held() {
        @Override
        String where() {
          return "on the thread of owner '" + name() + "'";
        }
      };

  /** Its end, as far as that waits for affine tasks. */
  private final WaitGraph.Held lasting =
      new WaitGraph.Held() {
        @Override
        String where() {
          return "before the end of owner '" + name() + "'";
        }
      };

  private final String name;
  private final Role role;

  /** It serves one engine, which gives it one call at a time. */
  final boolean forEngine;

  /**
   * How long it looks at what is pending without a nap. Only the poller of the JDK's carriers does,
   * which waits for devices in place of all tasks; other owners would do it in place of those who
   * compute.
   */
  private final long searchNanos;

  private final TaskConfig config;

  /** Rounds of spinning: none on one processor, where whoever would ring waits for this one. */
  private final int spins;

  private final CommandQueue commands;
  private final CopyOnWriteArrayList<PollSource> sources = new CopyOnWriteArrayList<>();
  private final ConcurrentLinkedQueue<Completion.Source<@Nullable Void>> waiting =
      new ConcurrentLinkedQueue<>();
  private final Completion.Source<@Nullable Void> ended =
      Completion.source(new CallHelp(this, null, lasting));
  private final LongAdder refused = new LongAdder();
  private final LongAdder late = new LongAdder();
  private final RoleThread thread;

  /** Whose tasks may run here; null in mode JDK. */
  private final @Nullable Carriers carriers;

  private final ReadyQueue resumes = new ReadyQueue();
  private volatile int bell;
  private volatile @Nullable Retired retired;
  private volatile boolean closing;
  private boolean polling;
  private long idleSince;

  /** Since it last napped or found something: it looks again and again, whoever else does. */
  private boolean rung;

  private long turnBegan;

  /** How often the sources were polled; as it was at the first look of a row, and when that was. */
  private long polls;

  private long pollsAtLook = -1;
  private long lookSince;
  private int affine;
  private final Set<Thread> tasks = new HashSet<>();

  @SuppressWarnings("unused") // through MOUNTED_AT
  private long mountedAt;

  private long longTurns;
  private long longestTurn;

  Owner(String name, Role role, TaskConfig config, @Nullable Carriers carriers) {
    this(name, role, config, carriers, false, searchNanos(role));
  }

  /** With one processor, as a launcher gives to a rank, searching hinders whoever would answer. */
  private static long searchNanos(Role role) {
    boolean alone = Runtime.getRuntime().availableProcessors() == 1;
    return role == Role.COMM && !alone ? SEARCH_NANOS_COMM : 0;
  }

  private Owner(
      String name,
      Role role,
      TaskConfig config,
      @Nullable Carriers carriers,
      boolean forEngine,
      long searchNanos) {
    this.forEngine = forEngine;
    this.searchNanos = searchNanos;
    this.name = Objects.requireNonNull(name, "name");
    this.role = ownerRole(role);
    this.config = config;
    this.spins = Runtime.getRuntime().availableProcessors() == 1 ? 0 : config.idleSpins();
    this.carriers = carriers;
    this.commands = new CommandQueue(config.ownerQueue());
    this.thread = new RoleThread(name, role, this, this::loop);
  }

  /** One that serves an engine. */
  static Owner forEngine(String name, TaskConfig config, @Nullable Carriers carriers) {
    return new Owner(name, Role.OWNER, config, carriers, true, 0);
  }

  /** One that looks at sources for tasks that the JDK's carriers run. */
  static Owner poller(TaskConfig config) {
    boolean alone = Runtime.getRuntime().availableProcessors() == 1; // searching hinders
    return new Owner(
        "poller", Role.DEVICE_MANAGER, config, null, false, alone ? 0 : Nap.SEARCH_NANOS);
  }

  private static Role ownerRole(Role role) {
    return switch (role) {
      case OWNER, DEVICE_MANAGER, COMM -> role;
      case TASK, FOREIGN, CLEANER ->
          throw new IllegalArgumentException(
              "an owner's role is OWNER, DEVICE_MANAGER or COMM, not " + role);
    };
  }

  Completion<@Nullable Void> ended() {
    return ended.completion();
  }

  /**
   * Starts its thread; if there is none to be had, this owner has ended, and nobody waits for it.
   */
  Owner start() {
    boolean started = false;
    try {
      thread.start();
      started = true;
      return this;
    } finally {
      if (!started) {
        commands.close();
        closing = true;
        end();
      }
    }
  }

  // --- asking
  // -------------------------------------------------------------------------------------

  /** As given; the thread is called "fairlead-" and this. */
  public String name() {
    return name;
  }

  /** What its thread is to every gate. */
  public Role role() {
    return role;
  }

  /** Whether the caller is this owner's thread, or an affine task on it. */
  public boolean isOwnerThread() {
    // an affine task cannot leave this thread, so what is learnt from the carrier stays true
    return (carriers == null ? Thread.currentThread() : VirtualThreads.carrier()) == thread;
  }

  /** The task that is mounted on it just now, if there is one. */
  CarrierReport.@Nullable Mounted mounted() {
    long since = (long) MOUNTED_AT.getOpaque(this);
    return since == 0 ? null : new CarrierReport.Mounted(name, System.nanoTime() - since);
  }

  /** Commands waiting, about. Any thread; never blocks. */
  public int queued() {
    return commands.size();
  }

  /** How many commands were refused because the queue was full. */
  public long refused() {
    return refused.sum();
  }

  /**
   * How many nodes were retired after the end; whatever they stood for has ended with the owner.
   */
  public long retiredLate() {
    return late.sum();
  }

  // --- work
  // ---------------------------------------------------------------------------------------

  /**
   * Queues a command. Any thread; never blocks. The command runs on the owner's thread, in no task;
   * what it throws is logged.
   *
   * @return false if the queue is full: back-pressure, counted; try later or refuse in turn
   * @throws IllegalStateException if the owner is closed: it would never run
   */
  public boolean trySubmit(Runnable command) {
    Objects.requireNonNull(command, "command");
    return switch (commands.offer(command)) {
      case ADDED -> {
        ring();
        yield true;
      }
      case FULL -> {
        refused.increment();
        yield false;
      }
      case CLOSED -> throw closed();
    };
  }

  /** As trySubmit, but waits for room: parks a task, blocks a thread. Obeys cancellation. */
  void submit(Runnable command) {
    if (trySubmit(command)) {
      return;
    }
    if (Thread.currentThread() == thread) {
      throw new IllegalStateException(
          "the queue of '" + name + "' is full, and its own thread waits for room in it");
    }
    Task.current().checkMayWait();
    while (!submitAfterWaiting(command)) {
      Thread.onSpinWait(); // somebody was faster: queue up again
    }
  }

  /** Waits for one wake, and offers once more; every wake that is not used is passed on. */
  private boolean submitAfterWaiting(Runnable command) {
    Completion.Source<@Nullable Void> turn = Completion.source(new CallHelp(this));
    waiting.add(turn);
    try {
      // full fence: either this offer sees the room, or the owner sees who waits
      VarHandle.fullFence();
      if (trySubmit(command)) {
        withdraw(turn);
        return true;
      }
      turn.completion().await(WaitMode.NONBLOCKING);
    } catch (RuntimeException stop) {
      withdraw(turn);
      throw stop;
    }
    return trySubmit(command);
  }

  private void withdraw(Completion.Source<@Nullable Void> turn) {
    if (!turn.completion().cancel()) {
      wakeOne(); // its wake had come: somebody else may use the room
    }
  }

  /**
   * Runs the body on the owner's thread, in a task of its own whose parent is the caller's. Any
   * thread; parks a task while the queue is full; on the owner's thread itself the body runs
   * inline. Cancelling the completion cancels that task: before it began it does not begin.
   *
   * @throws IllegalStateException if the owner is closed
   */
  public <T extends @Nullable Object> Completion<T> call(TaskBody<T> body) {
    boolean here = isOwnerThread();
    OwnerCall<T> call = new OwnerCall<>(this, body, framesOfCaller(here));
    if (here) {
      call.run();
    } else {
      submit(call);
    }
    return call.completion();
  }

  /**
   * Runs the body on the owner's thread, in a task of its own that can suspend: while it waits the
   * owner goes on with other work, and it goes on there afterwards. It may use whatever only this
   * thread may use, and must leave that in order wherever it waits. It must not hold a lock there
   * that a command of this owner wants: the command would block the thread that has to go on with
   * it. Any thread; parks a task while the queue is full. Cancelling the completion cancels the
   * task. The owner's end waits for it. Locks for which a command, a poll source or a handler of
   * this owner may come too are {@link BriefLock}s, or are taken with {@link #lock}; any other
   * lock, and {@code synchronized}, can hang both.
   *
   * @throws IllegalStateException if the owner is closed; or if the runtime's tasks run on the
   *     JDK's carriers, which lend no thread of ours: the message says the flag to pass
   */
  public <T extends @Nullable Object> Completion<T> affine(TaskBody<T> body) {
    if (carriers == null) {
      throw new IllegalStateException(
          "a task cannot run on the thread of owner '"
              + name
              + "' where the JDK's carriers run the tasks: pass "
              + VirtualThreads.flag()
              + " to java, and do not set fairlead.carriers=jdk; or use call(...)");
    }
    OwnerCall<T> call = new OwnerCall<>(this, body, new WaitGraph.In(lasting, null));
    Thread task = VirtualThreads.unstarted(new Resumable.Affine(carriers, this), affine(call));
    if (isOwnerThread()) {
      startAffine(task);
    } else {
      submit(() -> startAffine(task));
    }
    return call.completion();
  }

  /** What a call that is run inline is a part of, and cannot end before. */
  private static WaitGraph.@Nullable Frame framesOfCaller(boolean inline) {
    return inline ? Task.current().frames : null;
  }

  private Runnable affine(OwnerCall<?> call) {
    return () -> {
      try {
        call.run();
      } finally {
        affine--;
        tasks.remove(Thread.currentThread());
      }
    };
  }

  private void startAffine(Thread task) {
    affine++;
    tasks.add(task);
    task.start();
  }

  /** An affine task can go on. Any thread, never blocks. */
  void resume(Resumable ready) {
    resumes.add(ready);
    ring();
  }

  /** As call, but never waits: fails the completion if the queue is full. */
  <T extends @Nullable Object> Completion<T> tryCall(TaskBody<T> body) {
    boolean here = isOwnerThread();
    OwnerCall<T> call = new OwnerCall<>(this, body, framesOfCaller(here));
    if (here) {
      call.run();
    } else if (!trySubmit(call)) {
      call.refuse();
    }
    return call.completion();
  }

  /**
   * Runs the body on the owner's thread as the caller's own task, which is lent for that time, and
   * waits for it. A caller that is cancelled or interrupted stops waiting only if the body has not
   * begun; else the body sees the cancellation, and the caller waits for its end.
   */
  <T extends @Nullable Object> T callLent(TaskBody<T> body) throws Exception {
    if (isOwnerThread()) {
      return Task.nullable(body.run());
    }
    Task task = Task.current();
    task.checkMayWait(); // before anything is queued: a lent task must be waited for
    LentCall<T> call = new LentCall<>(forEngine ? null : this, task, Thread.currentThread(), body);
    submit(call);
    return call.await();
  }

  /**
   * Hands over something to release. Any thread, the collector's too; never blocks, never refuses,
   * needs no memory. The second retire of one node does nothing.
   *
   * @return false if the owner has ended, so that nobody will release it: what stands for more than
   *     what the owner had is released by the caller
   */
  public boolean retire(Retired node) {
    if (!node.take()) {
      return true;
    }
    for (; ; ) {
      Retired head = retired;
      if (head == END) {
        late.increment();
        return false;
      }
      node.next = head;
      // compare-and-set: publishes the node and its next
      if (RETIRED.weakCompareAndSet(this, head, node)) {
        break;
      }
    }
    ring();
    return true;
  }

  /** Polls this source from now on. Any thread; never blocks. */
  public void addSource(PollSource source) {
    sources.add(Objects.requireNonNull(source, "source"));
    ring();
  }

  /** Stops polling it; one poll may still be going on. Any thread; never blocks. */
  public void removeSource(PollSource source) {
    sources.remove(source);
  }

  /** Wakes the owner if it sleeps: something is there for it. Any thread; never blocks. */
  public void ring() {
    // full fence between what the caller published and the look at the bell: see the class comment
    VarHandle.fullFence();
    // compare-and-set: of many producers one unparks
    if (bell == PARKING && BELL.compareAndSet(this, PARKING, AWAKE)) {
      LockSupport.unpark(thread);
    }
  }

  /** Wakes the thread whatever the bell says. For tests that have made it lose a wake. */
  void ringForced() {
    LockSupport.unpark(thread);
  }

  /**
   * Takes no more commands, does what is queued, releases what was retired, ends the thread. Waits
   * for that, uninterruptibly; on the owner's own thread it returns at once and the thread ends
   * later. Twice is harmless.
   */
  @Override
  public void close() {
    // In this order: an owner that sees `closing` takes an empty queue for the end, so nothing may
    // be accepted any more by then.
    commands.close();
    closing = true;
    ring();
    if (!isOwnerThread()) {
      ended.completion().awaitUninterruptibly();
    }
  }

  // --- locks that an owner's commands and its affine tasks both take
  // --------------------------------

  /**
   * Takes a lock for which both an owner's commands or sources, and its affine tasks, may come. It
   * is a plain {@code lock.lock()} elsewhere; on an owner that has affine tasks nobody queues for
   * it. A task at the head of the queue could take it on the owner's thread only, and that may be
   * waiting in a command behind it: both would wait for ever. So a task tries again whenever its
   * turn on the thread comes, and a command looks again and again, which it may only do for locks
   * that are held for moments. So do a callback within a poll, on whatever thread, and a task that
   * only one carrier may run, for the same reason. Any thread, holding no lock that others on this
   * owner may want: a task may suspend here. What is taken under such a lock is a {@link
   * BriefLock}.
   */
  public static void lock(ReentrantLock lock) {
    if (!lock.tryLock()) {
      waitFor(lock, true);
    }
  }

  /** For {@link BriefLock}, of which nobody knows what other locks the caller holds. */
  static void waitForInner(BriefLock lock) {
    waitFor(lock, false);
  }

  @SuppressWarnings("ThreadPriorityCheck") // a yield is a suspension, after which it looks again
  private static void waitFor(ReentrantLock lock, boolean maySuspend) {
    Owner below = below();
    boolean looks = isPoll() || (below == null ? staysOnItsCarrier() : below.affine > 0);
    Carrier.callsNow(); // if it polls: a wait is no search
    if (!looks || Mutant.on("owner.queues-for-locks")) {
      if (lock instanceof BriefLock brief) {
        brief.queue();
      } else {
        lock.lock();
      }
      return;
    }
    boolean task = Thread.currentThread().isVirtual();
    for (int tries = 1; !lock.tryLock(); tries++) {
      if (task && maySuspend) {
        Thread.yield();
      } else if (tries % SPINS_PER_YIELD != 0) {
        Thread.onSpinWait();
      } else if (!task) {
        nap(lock, tries / SPINS_PER_YIELD - 1);
      } else if (lock instanceof BriefLock brief
          && below != null
          && below.tasks.contains(brief.holder())) {
        Thread.yield(); // another task of this owner, that was suspended holding it
      } else {
        yieldThread();
      }
    }
  }

  private static void nap(ReentrantLock lock, int naps) {
    if (Thread.currentThread() instanceof Watcher watcher) {
      watcher.lookWhileItWaits(); // who holds the lock may need a carrier
    }
    LockSupport.parkNanos(lock, LOCK_NAP_NANOS << Math.min(naps, LOCK_NAPS_DOUBLED));
  }

  /** Whether the caller, no task, polls: who is first in the queue may need what that finds. */
  private static boolean isPoll() {
    return Thread.currentThread() instanceof RoleThread own && own.isPolling();
  }

  /**
   * Whether the caller is a task that one carrier alone may run. That carrier's poll may want a
   * lock that the task holds while it waits for this one: suspended, it could not go on.
   */
  private static boolean staysOnItsCarrier() {
    return Thread.currentThread().isVirtual() && Resumable.current() instanceof Resumable.Initial;
  }

  /**
   * Whether the caller is on an owner's thread that has affine tasks: one of them, or a command.
   */
  static boolean isAmongAffineTasks() {
    Owner below = below();
    return below != null && below.affine != 0;
  }

  private static void yieldThread() {
    if (VirtualThreads.canYieldCarrier()) {
      VirtualThreads.yieldCarrier();
    }
  }

  /** The owner whose thread carries the caller, a task or not. */
  private static @Nullable Owner below() {
    Thread thread =
        Thread.currentThread().isVirtual() && VirtualThreads.closed() == null
            ? VirtualThreads.carrier()
            : Thread.currentThread();
    return thread instanceof RoleThread of ? of.owner : null;
  }

  // --- the loop
  // -------------------------------------------------------------------------------------

  private void loop() {
    int idle = 0;
    while (!(closing && commands.isEmpty() && affine == 0)) {
      boolean released = releaseRetired();
      boolean ran = runCommands();
      boolean resumed = runTasks();
      boolean found = poll();
      rung &= !found; // what it was rung for, most likely
      idle = released || ran || resumed || found ? 0 : rest(idle);
    }
    end();
  }

  private void end() {
    release(takeRetired(END)); // in one step: what is pushed from now on sees the end
    while (wakeOne()) {
      Thread.onSpinWait(); // they find the queue closed
    }
    ended.complete(null);
  }

  private boolean releaseRetired() {
    if (retired == null) {
      return false;
    }
    release(takeRetired(null));
    return true;
  }

  /** Takes all at once; acquire: the nodes' fields come with it. */
  private @Nullable Retired takeRetired(@Nullable Retired instead) {
    return (Retired) RETIRED.getAndSet(this, instead);
  }

  private void release(@Nullable Retired newest) {
    for (Retired node = oldestFirst(newest); node != null; ) {
      Retired following = node.next;
      node.next = null;
      guarded("releasing a retired resource", node::release);
      node = following;
    }
  }

  private static @Nullable Retired oldestFirst(@Nullable Retired newest) {
    Retired reversed = null;
    for (Retired node = newest; node != null; ) {
      Retired following = node.next;
      node.next = reversed;
      reversed = node;
      node = following;
    }
    return reversed;
  }

  private boolean runCommands() {
    for (int i = 0; i < BATCH; i++) {
      Runnable command = commands.poll();
      if (command == null) {
        return i > 0;
      }
      wakeOne();
      guarded("a command", command);
    }
    return true;
  }

  private boolean runTasks() {
    for (int i = 0; i < BATCH; i++) {
      Resumable task = resumes.poll();
      if (task == null) {
        return i > 0;
      }
      turnBegins(System.nanoTime());
      guarded("a task", task::resume);
      MOUNTED_AT.setOpaque(this, 0L);
      meter(System.nanoTime() - turnBegan);
    }
    return true;
  }

  private void turnBegins(long now) {
    turnBegan = now;
    MOUNTED_AT.setOpaque(this, now | 1); // 0 says that there is none
  }

  /** The owner on whose thread the caller runs, which is an affine task; else null. */
  static @Nullable Owner belowTask() {
    return Thread.currentThread().isVirtual() ? below() : null;
  }

  /** Whether nothing is queued here, so that an affine task may look for itself. By such a task. */
  boolean isIdle() {
    return retired == null && commands.isEmpty() && resumes.isEmpty() && !anythingReady();
  }

  /**
   * How long affine tasks may still look for themselves before all sources are polled: those whose
   * looks always find what they wait for would never let the loop come to that. By such a task.
   */
  long lookNanosLeft(long now) {
    if (pollsAtLook != polls) {
      pollsAtLook = polls;
      lookSince = now;
    }
    return lookSince + LOOK_NANOS - now;
  }

  /** An affine task has nothing to do but look, from now on. */
  void taskLooks(long now) {
    meter(now - turnBegan);
    turnBegins(now);
  }

  /** Counts turns that held the thread up; says so the first time and whenever that doubles. */
  private void meter(long nanos) {
    if (nanos > longestTurn) {
      LONGEST_TURN.setOpaque(this, nanos);
    }
    if (nanos < LONG_TURN_NANOS) {
      return;
    }
    long count = longTurns + 1;
    LONG_TURNS.setOpaque(this, count);
    if (Long.bitCount(count) == 1) {
      LOG.log(
          Level.WARNING,
          "'"
              + name
              + "' was held up for "
              + nanos / 1_000_000
              + " ms by a task that ran on it (long turns so far: "
              + count
              + "): compute in another task, and let this one only wait and call");
    }
  }

  /** What affine tasks held up its thread so far. A snapshot; any thread; never blocks. */
  public Turns turns() {
    return new Turns((long) LONG_TURNS.getOpaque(this), (long) LONGEST_TURN.getOpaque(this));
  }

  /**
   * How long affine tasks kept an owner's thread from one suspension to the next.
   *
   * @param longCount how often one kept it for 20 ms or more; a machine that is full counts too
   * @param longestNanos the longest
   */
  public record Turns(long longCount, long longestNanos) {}

  /** One command was taken, so one more can come: wakes one that waits and has not given up. */
  private boolean wakeOne() {
    // full fence between moving the queue's head and looking here: see submit
    VarHandle.fullFence();
    for (; ; ) {
      Completion.Source<@Nullable Void> turn = waiting.poll();
      if (turn == null) {
        return false;
      }
      if (turn.complete(null)) {
        return true;
      }
    }
  }

  private boolean poll() {
    int found = 0;
    polls++;
    polling = true;
    try {
      for (PollSource source : sources) {
        found += pollOne(source);
      }
    } finally {
      polling = false;
    }
    return found > 0;
  }

  @SuppressWarnings("CatchingUnchecked") // a stranger's source must not stop the others
  private int pollOne(PollSource source) {
    try {
      return source.poll();
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "'" + name + "': poll source " + source + " threw", thrown);
      return 0;
    }
  }

  @SuppressWarnings("CatchingUnchecked") // a stranger's command must not end the owner
  private void guarded(String what, Runnable work) {
    try {
      work.run();
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "'" + name + "': " + what + " threw; the owner goes on", thrown);
    } finally {
      Thread.interrupted(); // an interrupt meant for the work that has ended
    }
  }

  /**
   * Nothing was found: spin, yield, search on or nap while something is pending, or sleep till the
   * bell.
   *
   * @return what to pass next time; 0 after a ring, which stands for something new
   */
  @SuppressWarnings("ThreadPriorityCheck") // a step between spinning and parking, not a promise
  private int rest(int idle) {
    int yields = spins + config.idleYields();
    boolean othersLook = othersLook();
    boolean aside = othersLook && !rung;
    if (!aside && idle < spins && (idle + 1) % SPINS_PER_YIELD != 0) {
      Thread.onSpinWait();
    } else if (!aside && idle < yields) {
      Thread.yield();
    } else {
      long now = System.nanoTime();
      if (aside || idle == yields) {
        idleSince = now;
      }
      if (aside || now - idleSince >= searchNanos || !anythingPending()) {
        rung = !sleep(othersLook ? Long.MAX_VALUE : now - idleSince);
        if (aside) {
          idleSince = System.nanoTime(); // once nobody looks any more, it searches first
        }
        return rung ? 0 : yields + 1;
      }
      Thread.yield(); // whoever is woken meanwhile may need this processor
      return yields + 1;
    }
    return idle + 1;
  }

  /**
   * Sleeps, for a share of the time that it was idle already or till the bell; false if it rang.
   */
  private boolean sleep(long idleNanos) {
    bell = PARKING; // volatile
    VarHandle.fullFence(); // see the class comment
    if (!Mutant.on("owner.no-look-before-park") && (hasWork() || anythingReady())) {
      bell = AWAKE;
      return false;
    }
    long nap = napNanosMax();
    if (hasRung()) {
      return false; // the unpark may be used up: a source that was asked may have parked for a lock
    }
    if (nap > 0) {
      LockSupport.parkNanos(this, Nap.nanos(idleNanos, nap));
    } else {
      LockSupport.park(this);
    }
    boolean rang = bell == AWAKE;
    bell = AWAKE;
    Thread.interrupted(); // nobody else's business wakes it twice
    return !rang;
  }

  /** Whether somebody rang since the announcement. */
  private boolean hasRung() {
    return bell == AWAKE && !Mutant.on("owner.trusts-the-permit");
  }

  private boolean hasWork() {
    return retired != null || !commands.isEmpty() || !resumes.isEmpty() || (closing && affine == 0);
  }

  private boolean anythingPending() {
    for (PollSource source : sources) {
      if (hasPending(source)) {
        return true;
      }
    }
    return false;
  }

  /** Whether tasks look for all that is pending, if anything is. */
  private boolean othersLook() {
    boolean any = false;
    for (PollSource source : sources) {
      any |= isLookedFor(source);
    }
    return any && !anythingElsePending();
  }

  private boolean anythingElsePending() {
    for (PollSource source : sources) {
      if (!isLookedFor(source) && hasPending(source)) {
        return true;
      }
    }
    return false;
  }

  @SuppressWarnings("CatchingUnchecked") // a stranger's source must not end the owner
  private boolean isLookedFor(PollSource source) {
    try {
      return source.isLookedFor();
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "'" + name + "': poll source " + source + " threw", thrown);
      return false;
    }
  }

  /** The longest nap that whatever is pending allows; 0 if nothing is. */
  private long napNanosMax() {
    long nap = 0;
    for (PollSource source : sources) {
      if (hasPending(source)) {
        long most = Math.min(napNanosMax(source), config.pollParkNanosMax());
        nap = nap == 0 ? most : Math.min(nap, most);
      }
    }
    return nap;
  }

  @SuppressWarnings("CatchingUnchecked") // a stranger's source must not end the owner
  private long napNanosMax(PollSource source) {
    try {
      return Math.max(1, source.napNanosMax());
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "'" + name + "': poll source " + source + " threw", thrown);
      return Long.MAX_VALUE;
    }
  }

  /** Whether something was handed to a source since it was polled. */
  private boolean anythingReady() {
    if (Mutant.on("owner.no-look-at-ready")) {
      return false;
    }
    for (PollSource source : sources) {
      if (isReady(source)) {
        return true;
      }
    }
    return false;
  }

  @SuppressWarnings("CatchingUnchecked") // a stranger's source must not end the owner
  private boolean isReady(PollSource source) {
    try {
      return source.isReady();
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "'" + name + "': poll source " + source + " threw", thrown);
      return false; // then it is slept over, as anything that a source does not say
    }
  }

  @SuppressWarnings("CatchingUnchecked") // a stranger's source must not end the owner
  private boolean hasPending(PollSource source) {
    try {
      return source.hasPending();
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "'" + name + "': poll source " + source + " threw", thrown);
      return true; // it may have something, so it must not be slept over
    }
  }

  // --- an owner's thread that waits itself -------------------------------------------------------

  boolean isPolling() {
    return polling;
  }

  /** Polls the sources while a command waits. */
  void pollWhileWaiting() {
    if (!polling) {
      poll();
    }
  }

  /**
   * Parks the owner's thread in a command that waits: a nap while a source has something pending,
   * else until what it waits for, or the bell, wakes it. The doorbell is that of {@link #sleep},
   * since a source that has nothing yet rings it when that changes.
   *
   * <p>A source may park for a lock, and so use up the unpark that ends the wait: after the last
   * source was asked, this looks whether the wait is over or the bell rang, and parks only then.
   */
  void parkWhileWaiting(Object blocker, long nanos, BooleanSupplier over) {
    pollWhileWaiting();
    bell = PARKING; // volatile
    VarHandle.fullFence(); // see the class comment
    boolean pending = !polling && anythingPending();
    boolean ready = !polling && anythingReady();
    if (!ready && !hasRung() && !isOver(over)) {
      if (pending) {
        LockSupport.parkNanos(blocker, Math.min(nanos, NAP_NANOS_WAITING));
      } else if (nanos == Long.MAX_VALUE) {
        LockSupport.park(blocker);
      } else {
        LockSupport.parkNanos(blocker, nanos);
      }
    }
    bell = AWAKE;
  }

  private static boolean isOver(BooleanSupplier over) {
    return !Mutant.on("owner.trusts-the-permit") && over.getAsBoolean();
  }

  private IllegalStateException closed() {
    return new IllegalStateException(
        "owner '"
            + name
            + "' is closed and takes no more work: close it, or its runtime, after the last of it");
  }

  @Override
  public String toString() {
    return "Owner[" + name + " " + role + "]";
  }
}
