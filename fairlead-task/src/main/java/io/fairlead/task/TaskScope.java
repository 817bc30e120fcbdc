package io.fairlead.task;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.TaskCancelledException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * A bracket around concurrent children: none of them outlives it.
 *
 * <p>Opened, forked into, joined and closed by one task, its owner; by one thread if that is ROOT.
 * Anybody may cancel it. A fork lies in its parent's deque until it is begun in place or by a
 * runner, or is a virtual thread, or one command on an owner's queue.
 *
 * <pre>
 * OPEN    fork, fork, ...      children run
 *   → JOINED  join()           waits for all children to end, runs the join hooks, gives or throws
 *   → CLOSED  close()          cancels what was not joined, waits for it, runs its join hooks
 *
 * at any time, besides:  cancelled = null → Reason    by cancel, a failure or success as the policy
 *                        says, the deadline, or the owner's own cancellation; the first reason
 *                        stands; children forked from then on do not begin
 *
 * field     | writer              | reader            | mode, guard
 * last      | owner               | cancellers        | volatile; then reads cancelled. A canceller
 *           |                     |                   | writes cancelled, then reads last: one of
 *           |                     |                   | the two sees the other, no child is missed
 * cancelled | the first canceller | anyone            | compare-and-set
 * first     | children            | owner             | compare-and-set: first failure or success
 * running   | owner, children     | owner             | atomic add; the decrement publishes all that
 *           |                     |                   | the child wrote, also its attachments
 *           |                     |                   | A lazy child counts from when the owner finds
 *           |                     |                   | that somebody took it, so it may be negative
 * joiner    | owner               | children, cancellers | volatile; then reads running and
 *           |                     |                   | cancelled. A child decrements running, a
 *           |                     |                   | canceller writes, then both read joiner
 * inPlace   | owner               | who interrupts it | opaque; between it and a look at the owner's
 *           |                     |                   | flags stands the claim of a child, a fence
 * helpers   | runners             | cancellers        | concurrent set; add, fence, read cancelled
 * hoped     | {@link WaitGraph}   | children          | volatile: the graph writes it, then reads
 *           |                     |                   | the children's states; a child that did not
 *           |                     |                   | succeed writes its state, then reads it
 * forked, lazy, lazyBase, reckoned, phase, timers, bindsChildren, ended | owner | owner | plain
 * </pre>
 *
 * Lock order: no locks. A thread that sees a problem cancels; only the owner waits.
 *
 * @param <T> the children's result
 */
public final class TaskScope<T extends @Nullable Object> extends WaitGraph.Frame
    implements AutoCloseable {
  /** Children that were begun in a row before runners are told to look behind them. */
  private static final int SKIP_EACH = 32;

  /** Looks of a joiner before it parks: about 2 µs, what the wake would cost. */
  private static final int SPINS_BEFORE_PARK = 50;

  private enum Phase {
    OPEN,
    JOINED,
    CLOSED
  }

  private record Reason(@Nullable Throwable cause) {}

  private static final VarHandle CANCELLED;
  private static final VarHandle FIRST;
  private static final VarHandle RUNNING;
  private static final VarHandle LAST;
  private static final VarHandle IN_PLACE;
  private static final VarHandle HELPERS;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      CANCELLED = lookup.findVarHandle(TaskScope.class, "cancelled", Reason.class);
      FIRST = lookup.findVarHandle(TaskScope.class, "first", Fork.class);
      RUNNING = lookup.findVarHandle(TaskScope.class, "running", int.class);
      LAST = lookup.findVarHandle(TaskScope.class, "last", Fork.class);
      IN_PLACE = lookup.findVarHandle(TaskScope.class, "inPlace", boolean.class);
      HELPERS = lookup.findVarHandle(TaskScope.class, "helpers", Set.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final TaskRuntime runtime;
  private final ScopeOptions options;
  private final WaitMode waitMode;
  private final Task owner;
  private final @Nullable Thread rootThread;
  final @Nullable TaskScope<?> outer;

  private final @Nullable Future<?> timer;

  /** Of the forks that have a deadline. Null until there is one, and after the end. */
  private @Nullable List<Future<?>> timers;

  private volatile @Nullable Fork<T> last;
  private volatile @Nullable Reason cancelled;
  private volatile @Nullable Fork<T> first;
  private volatile int running;
  private volatile @Nullable Thread joiner;
  private volatile boolean inPlace;
  private @Nullable Set<Task> helpers;
  private final @Nullable Execution execution;
  private @Nullable Forks lazy;
  private int lazyBase;
  private int reckoned;
  private int forked;
  private Phase phase = Phase.OPEN;
  private volatile boolean hoped;

  /** Whether a child was bound to an owner, whose thread the join depends on. */
  private boolean bindsChildren;

  /** All children, once they have been joined or closed. */
  private @Nullable List<Fork<T>> ended;

  TaskScope(TaskRuntime runtime, ScopeOptions options) {
    this(runtime, options, Execution.current());
  }

  private TaskScope(TaskRuntime runtime, ScopeOptions options, @Nullable Execution execution) {
    super(WaitGraph.framesHere(Task.of(execution))); // what cannot be free before this ends
    this.runtime = runtime;
    this.options = options;
    this.execution = execution;
    this.owner = Task.of(execution);
    this.rootThread = owner.isRoot() ? Thread.currentThread() : null;
    this.outer = owner.innermostScope();
    WaitMode inherited = owner.isRoot() ? runtime.waitMode() : owner.waitMode();
    this.waitMode = options.waitMode() == null ? inherited : options.waitMode();
    this.timer = options.deadline() == null ? null : startTimer(options.deadline());
    owner.push(this);
    if (owner.isCancelled()) {
      cancel(owner.cancelCause()); // a canceller that missed this scope has set the flag before
    }
  }

  private Future<?> startTimer(Duration deadline) {
    return schedule(
        () -> cancel(new DeadlineExceededException("scope '" + name() + "'", deadline)), deadline);
  }

  private static Future<?> startTimer(Task child, Duration deadline) {
    return schedule(
        () -> child.cancel(new DeadlineExceededException("task '" + child.name() + "'", deadline)),
        deadline);
  }

  @SuppressWarnings("FutureReturnValueIgnored") // kept by the callers
  private static Future<?> schedule(Runnable command, Duration deadline) {
    // The JDK's own timer: no thread of ours for something that hardly ever fires.
    return ForkJoinPool.commonPool()
        .schedule(command, Completion.nanos(deadline), TimeUnit.NANOSECONDS);
  }

  String name() {
    return options.name();
  }

  // --- forking ----------------------------------------------------------------------------------

  /** As {@link #fork(ForkOptions, TaskBody)} with the default options. */
  public Fork<T> fork(TaskBody<? extends T> body) {
    return fork(ForkOptions.DEFAULT, body);
  }

  /**
   * Adds a child. By the owner; parks it only while the queue of an owner that the child is bound
   * to is full. In a scope that is cancelled already the child does not begin and its fork is
   * CANCELLED.
   *
   * <p>A FREE child lies with its parent until somebody begins it: a runner that has a processor to
   * spare, within about a millisecond, and at once when the parent waits for something of Fairlead;
   * else the parent itself, in join, in fork order. It is a task of its own everywhere. Children of
   * {@link ForkOptions#eager}, of ROOT and of tasks on an owner's thread have a thread each.
   *
   * @throws IllegalStateException after join or close, or in another task than the owner; or if the
   *     placement cannot be honoured: Bound to an owner that is closed, Serial in a strand whose
   *     runtime is, WITH_PARENT where the parent has no turn to give up
   */
  public Fork<T> fork(ForkOptions forkOptions, TaskBody<? extends T> body) {
    Objects.requireNonNull(body, "body");
    checkOwner("forked into");
    checkOpen();
    boolean free = forkOptions.placement() instanceof Placement.Free;
    if (!free) {
      checkPlacement(forkOptions.placement());
    }
    Forks forks = free && !forkOptions.eager() ? lazy() : null;
    Fork<T> fork = prepare(forkOptions, body, forks != null);
    if (forks == null) {
      start(fork, forkOptions.placement());
    } else if (cancelled != null) {
      fork.skip(reason());
    } else {
      forks.push(fork);
    }
    return fork;
  }

  /** The deque of the thread that the owner runs on, or null if its children need threads. */
  private @Nullable Forks lazy() {
    Forks known = lazy;
    if (known != null) {
      return known;
    }
    Execution here = execution;
    if (here == null || owner.isRoot() || !here.isOf(Thread.currentThread(), owner)) {
      return null;
    }
    if (here.thread instanceof RoleThread || owner.placement() instanceof Placement.Bound) {
      return null; // in place they would hold up an owner's thread
    }
    Forks found = here.forksOf(runtime.runners());
    lazy = found;
    lazyBase = found.head();
    return found;
  }

  private Fork<T> prepare(ForkOptions forkOptions, TaskBody<? extends T> body, boolean lazily) {
    Fork<T> previous = last;
    Task child = isUsual(forkOptions, lazily) ? null : newTask(forkOptions);
    if (child != null) {
      owner.forkAttachmentsTo(child);
      if (forkOptions.deadline() != null) {
        child.frames = new WaitGraph.Timed(this);
        keepTimer(startTimer(child, forkOptions.deadline()));
      }
    }
    Fork<T> fork = new Fork<>(this, child, body, previous, lazily);
    forked++;
    if (lazily) {
      // release: it begins by a compare-and-set, a full fence, and looks at cancelled after that
      LAST.setRelease(this, fork);
    } else {
      RUNNING.getAndAdd(this, 1);
      last = fork;
    }
    return fork;
  }

  /** Whether its task can wait until somebody asks for it: it tells nothing of its own. */
  @SuppressWarnings("ReferenceEquality") // one like it is made a task for, which is as good
  private boolean isUsual(ForkOptions forkOptions, boolean lazily) {
    return lazily && forkOptions == ForkOptions.DEFAULT && !owner.hasAttachments();
  }

  /** The task of a child that is as usual. Any thread. */
  Task newTask() {
    return newTask(ForkOptions.DEFAULT);
  }

  private Task newTask(ForkOptions forkOptions) {
    Task child =
        new Task(
            owner,
            forkOptions.name(),
            forkOptions.priority() == null ? owner.priority() : forkOptions.priority(),
            forkOptions.placement(),
            forkOptions.waitMode() == null ? waitMode : forkOptions.waitMode());
    child.frames = this;
    return child;
  }

  private void keepTimer(Future<?> made) {
    List<Future<?>> kept = timers;
    if (kept == null) {
      kept = new ArrayList<>();
      timers = kept;
    }
    kept.add(made);
  }

  private void start(Fork<T> fork, Placement placement) {
    if (cancelled != null) {
      fork.skip(reason());
      return;
    }
    try {
      switch (placement) {
        case Placement.Free _ -> runtime.start(fork);
        case Placement.Bound bound -> {
          bindsChildren = true;
          startBound(fork, bound.owner());
        }
        case Placement.Initial _ -> runtime.startInitial(fork);
        case Placement.Serial serial -> runtime.startIn(serial.group(), fork);
        case Placement.WithParent _ -> runtime.startIn(family(), fork);
      }
    } catch (RuntimeException | Error e) {
      fork.skip(e); // counted as running: must end, or join would wait for ever
      throw e;
    }
  }

  private void startBound(Fork<T> fork, Owner to) {
    if (to.isOwnerThread()) {
      fork.run(); // its queue would be served only after the parent that waits for it
      owner.resume();
    } else {
      to.submit(fork::runBound);
    }
  }

  /**
   * Ends those that were cancelled before the owner that they are bound to came to them: its thread
   * may be waiting for this one. Owner's thread; their end hooks run here.
   */
  private void withdrawBound() {
    for (Fork<T> fork = bindsChildren ? last : null; fork != null; fork = fork.previous()) {
      if (fork.task().placement() instanceof Placement.Bound && fork.takeForRunner()) {
        fork.skip(reason());
      }
    }
  }

  /** What refuses a fork before there is one. */
  private void checkPlacement(Placement placement) {
    switch (placement) {
      case Placement.Serial serial -> serial.group().checkOpen();
      case Placement.WithParent _ -> executionOfParent();
      case Placement.Free _, Placement.Initial _, Placement.Bound _ -> {}
    }
  }

  private Strand family() {
    return owner.family(executionOfParent());
  }

  private Execution executionOfParent() {
    Execution here = Execution.current();
    if (here == null || owner.isRoot()) {
      throw new IllegalStateException(
          "scope '"
              + name()
              + "' belongs to a thread that never entered, which has no turn to give up to a child "
              + "WITH_PARENT: enter(...) first, or fork Serial into a strand");
    }
    Owner below = RoleThread.currentOwner();
    if (below != null) {
      throw new IllegalStateException(
          "scope '"
              + name()
              + "' is forked into on the thread of owner '"
              + below.name()
              + "', which must not wait for the turn of children WITH_PARENT: fork Bound to the "
              + "owner, or Serial into a strand");
    }
    return here;
  }

  /** Runs the body as a child of the current task on the calling thread, begin to end. */
  T runInline(String childName, int priority, TaskBody<T> body) throws Exception {
    Fork<T> fork = prepare(ForkOptions.named(childName).priority(priority), body, false);
    try {
      if (cancelled != null) {
        fork.skip(reason());
      } else {
        fork.run();
        owner.resume();
      }
      phase = Phase.JOINED;
      Problems problems = new Problems();
      Throwable failure = fork.failure();
      if (failure != null) {
        problems.add(failure);
      }
      fork.joinAttachments(owner, problems);
      problems.throwAny();
      return fork.get();
    } finally {
      finish();
    }
  }

  // --- joining ----------------------------------------------------------------------------------

  /**
   * Waits until all children have ended and gives what the policy says. By the owner; parks it.
   * Work that a child left on its streams comes before what the owner enqueues after this.
   *
   * @return ALL_SUCCEED: all results, in fork order. FIRST_SUCCESS: one. COLLECT: the successes, in
   *     fork order, also if it was cancelled; the forks know the rest
   * @throws RuntimeException the first failure of a child, as it is, with a note on where it was
   *     joined; a checked one inside a {@link io.fairlead.fault.TaskFailedException}
   * @throws DeadlineExceededException if the scope's deadline passed
   * @throws TaskCancelledException if the owner was cancelled; or the scope, but for COLLECT
   * @throws io.fairlead.fault.TaskInterruptedException if the owner was interrupted; the scope is
   *     cancelled, and close waits for the children
   * @throws IllegalStateException the second time, or in another task than the owner; or if a child
   *     waits for what the owner is in now, a call of an engine or an owner's thread, so that
   *     neither would ever go on. Join it outside then, which is still possible
   */
  public List<T> join() {
    checkOwner("joined");
    checkOpen();
    List<Fork<T>> all = children();
    awaitAll(all, true);
    phase = Phase.JOINED;
    ended = all;
    Problems problems = new Problems();
    for (Fork<T> fork : all) {
      fork.joinAttachments(owner, problems);
    }
    try {
      throwScopeFailure();
    } catch (RuntimeException failure) {
      problems.noteOn(failure);
      throw failure;
    }
    problems.throwUnchecked("a join hook of scope '" + name() + "'");
    return results(all);
  }

  private void throwScopeFailure() {
    Fork<T> decisive = first;
    boolean failed = decisive != null && decisive.state() != Fork.State.SUCCEEDED;
    Throwable reason = reason();
    if (reason instanceof DeadlineExceededException late && !(decisive != null && !failed)) {
      throw late;
    }
    if (failed && options.policy() == ScopePolicy.ALL_SUCCEED) {
      throw joinFailure(Objects.requireNonNull(decisive));
    }
    boolean decided =
        switch (options.policy()) {
          case ALL_SUCCEED -> false;
          case FIRST_SUCCESS -> decisive != null;
          case COLLECT -> true; // takes what there is
        };
    if (cancelled != null && !decided) {
      throw new TaskCancelledException("scope '" + name() + "' was cancelled", reason);
    }
  }

  private List<T> results(List<Fork<T>> all) {
    return switch (options.policy()) {
      case ALL_SUCCEED, COLLECT -> successes(all);
      case FIRST_SUCCESS -> firstSuccess(all);
    };
  }

  private List<T> successes(List<Fork<T>> all) {
    List<T> values = new ArrayList<>(all.size());
    for (Fork<T> fork : all) {
      if (fork.state() == Fork.State.SUCCEEDED) {
        values.add(fork.get());
      }
    }
    return Collections.unmodifiableList(values); // List.copyOf refuses null results
  }

  private List<T> firstSuccess(List<Fork<T>> all) {
    Fork<T> winner = first;
    if (winner != null) {
      return Collections.singletonList(winner.get());
    }
    if (all.isEmpty()) {
      throw new IllegalStateException(
          "scope '" + name() + "' waits for a first success, but nothing was forked");
    }
    throw joinFailure(all.getFirst());
  }

  private RuntimeException joinFailure(Fork<T> fork) {
    Throwable failure = fork.failureThatIsThere();
    Problems.note(failure, new JoinNote(fork, name()));
    return Problems.unchecked("task '" + fork.task().name() + "'", failure);
  }

  /** Says on a child's failure which fork it was and, by its stack trace, who joined it. */
  private static final class JoinNote extends Exception {
    JoinNote(Fork<?> fork, String scope) {
      super(
          "thrown by task '"
              + fork.task().name()
              + "', fork "
              + fork.index()
              + " of scope '"
              + scope
              + "', which was joined here");
    }
  }

  /** The children so far, in fork order. By the owner, also after join and close; never blocks. */
  public List<Fork<T>> forks() {
    checkOwner("asked for its forks");
    List<Fork<T>> known = ended;
    return known == null ? children() : new ArrayList<>(known);
  }

  @SuppressWarnings({"unchecked", "rawtypes"}) // an array of forks cannot say of what
  private List<Fork<T>> children() {
    Fork<T> newest = last;
    Fork<T>[] all = new Fork[forked];
    int at = forked;
    for (Fork<T> fork = newest; fork != null; fork = fork.previous()) {
      all[--at] = fork;
    }
    return Arrays.asList(all);
  }

  // --- children that nobody has begun -----------------------------------------------------------

  /**
   * Runs those that nobody took, in fork order, in the calling thread; those that somebody took
   * count as running from here on. By the owner.
   */
  private void endLazy(List<Fork<T>> all, boolean obeys) {
    Forks forks = lazy;
    if (forks == null || reckoned == all.size()) {
      return;
    }
    owner.checkMayWait();
    Execution here = Objects.requireNonNull(execution);
    boolean own = here.isOf(Thread.currentThread(), owner);
    // opaque: the claims below are full fences between this and a look at the owner's flags
    IN_PLACE.setOpaque(this, true);
    try {
      while (reckoned < all.size()) {
        Fork<T> fork = all.get(reckoned);
        if (fork.isLazy() && fork.waiting() != 0) {
          if (obeys) {
            checkOwnerGoesOn();
          }
          endOne(fork, forks, own ? here : null);
        } else if (fork.isTaken()) {
          // atomic add: may come after its end, which then took it below 0
          RUNNING.getAndAdd(this, 1);
        }
        reckoned++;
        if (reckoned % SKIP_EACH == 0) {
          forks.skipBegun();
        }
      }
      if (obeys && owner.isDisturbed()) {
        checkOwnerGoesOn(); // as if it had waited for the last one
      }
    } finally {
      IN_PLACE.setOpaque(this, false);
      if (own) {
        forks.trim(lazyBase);
      }
    }
  }

  private void endOne(Fork<T> fork, Forks forks, @Nullable Execution here) {
    if (here == null || forks.isDeep()) {
      if (fork.takeForRunner()) {
        runtime.runners().execute(fork); // an owner's thread, or a deep stack: somebody else's
      }
      RUNNING.getAndAdd(this, 1);
    } else if (fork.claim()) {
      if (owner.isDisturbed()) {
        cancel(whyOwnerStops());
      }
      forks.enterChild();
      fork.runInPlace(here);
      forks.leaveChild();
      owner.resumeAfterChild();
    } else {
      RUNNING.getAndAdd(this, 1);
    }
  }

  /** The owner was interrupted: if it runs a child in place, that is its wait in join. */
  void ownerInterrupted() {
    if (inPlace) {
      cancel(whyOwnerStops());
    }
  }

  private @Nullable Throwable whyOwnerStops() {
    return owner.isCancelled() ? owner.cancelCause() : owner.interruption();
  }

  // --- frames -----------------------------------------------------------------------------------

  /**
   * Runs a function that forks and joins by frames, in the calling thread, which idle processors
   * join in on: see {@link Forks}. By the owner; blocks as the function does.
   *
   * @throws TaskCancelledException if the scope is cancelled before the last fork
   * @throws IllegalStateException after join or close, or in another task than the owner
   */
  public long forkJoin(LongFork fn, long argument) {
    Objects.requireNonNull(fn, "fn");
    checkOwner("forked into");
    checkOpen();
    owner.checkMayWait();
    Execution here = execution;
    if (here != null && here.thread == Thread.currentThread()) {
      return here.forksOf(runtime.runners()).call(this, fn, argument);
    }
    return elsewhere(forks -> forks.call(this, fn, argument));
  }

  /**
   * As {@link #forkJoin(LongFork, long)}, with objects.
   *
   * @throws TaskCancelledException if the scope is cancelled before the last fork
   * @throws IllegalStateException after join or close, or in another task than the owner
   */
  public <A extends @Nullable Object, R extends @Nullable Object> R forkJoin(
      ObjectFork<A, R> fn, A argument) {
    Objects.requireNonNull(fn, "fn");
    checkOwner("forked into");
    checkOpen();
    owner.checkMayWait();
    Execution here = execution;
    if (here != null && here.thread == Thread.currentThread()) {
      return here.forksOf(runtime.runners()).call(this, fn, argument);
    }
    return elsewhere(forks -> forks.call(this, fn, argument));
  }

  /** In a thread that never entered, or that the owner is lent to. */
  private <R extends @Nullable Object> R elsewhere(Function<Forks, R> call) {
    Execution here = Execution.current();
    if (here != null) {
      return call.apply(here.forksOf(runtime.runners()));
    }
    try {
      return Execution.begin(
          owner,
          () -> call.apply(Objects.requireNonNull(Execution.current()).forksOf(runtime.runners())));
    } catch (RuntimeException unchecked) {
      throw unchecked;
    } catch (Exception checked) {
      throw new IllegalStateException("a function without checked exceptions threw one", checked);
    }
  }

  /** Whether somebody has begun to cancel it, so that frames must stop. Any thread. */
  boolean isStopped() {
    return cancelled != null;
  }

  void stopIfCancelled(Task task) {
    if (cancelled != null) {
      task.cancel(reason());
    }
  }

  RuntimeException stopped() {
    Throwable cause = reason();
    return new TaskCancelledException(
        "scope '" + name() + "' was cancelled" + (cause == null ? "" : ": " + cause), cause);
  }

  /** A task for a frame that a runner took: a child of the owner that cancel reaches. */
  @SuppressWarnings("unchecked") // only sets of tasks are put there
  Task lendHelper(WaitGraph.Lent lent) {
    Task helper = new Task(owner, name() + "-frame", owner.priority(), Placement.FREE, waitMode);
    helper.frames = lent;
    Set<Task> known = (Set<Task>) HELPERS.getAcquire(this);
    if (known == null) {
      Set<Task> made = ConcurrentHashMap.newKeySet();
      // compare-and-set: of runners that come together one makes it
      Set<Task> other = (Set<Task>) HELPERS.compareAndExchange(this, null, made);
      known = other == null ? made : other;
    }
    known.add(helper);
    VarHandle.fullFence(); // then a look at cancelled: a canceller sees the helper, or is seen here
    if (cancelled != null) {
      helper.cancel(reason());
    }
    return helper;
  }

  void returnHelper(Task helper) {
    Set<Task> known = helpers;
    if (known != null) {
      known.remove(helper);
    }
  }

  // --- cancelling and closing -----------------------------------------------------------------

  /**
   * Asks all children to stop, and those that are forked later not to begin. Any thread; never
   * blocks; the first cause stands.
   */
  @SuppressWarnings("unchecked") // only sets of tasks are put there
  public void cancel(@Nullable Throwable cause) {
    // compare-and-set: one canceller walks the children; full fence between this and reading last
    if (!CANCELLED.compareAndSet(this, null, new Reason(cause))) {
      return;
    }
    for (Fork<T> fork = last; fork != null; fork = fork.previous()) {
      // one that has ended, and that nobody has asked for, is told when it is made: stopIfCancelled
      if (fork.taskIfAsked() != null || fork.state() == Fork.State.RUNNING) {
        fork.task().cancel(cause);
      }
    }
    Set<Task> lent = (Set<Task>) HELPERS.getAcquire(this);
    if (lent != null) {
      lent.forEach(helper -> helper.cancel(cause));
    }
    LockSupport.unpark(joiner); // for children that are bound: see withdrawBound
  }

  /**
   * Ends the scope: cancels what was not joined and waits until it has ended, also if the owner is
   * cancelled or interrupted meanwhile. By the owner; twice is harmless. Scopes that the owner
   * opened later are closed first, which is then reported as the mistake it is.
   *
   * @throws IllegalStateException in another task than the owner, or before an inner scope
   */
  @Override
  public void close() {
    checkOwner("closed");
    if (phase == Phase.CLOSED) {
      return;
    }
    Problems problems = new Problems();
    closeInner(problems);
    problems.run(this::closeNow);
    problems.throwUnchecked("closing scope '" + name() + "'");
  }

  private void closeInner(Problems problems) {
    for (TaskScope<?> inner = owner.innermostScope();
        inner != null && inner != this;
        inner = owner.innermostScope()) {
      TaskScope<?> scope = inner;
      problems.add(
          new IllegalStateException(
              "scope '"
                  + name()
                  + "' was closed before its inner scope '"
                  + scope.name()
                  + "': close in reverse order, with try-with-resources"));
      problems.run(scope::closeNow);
    }
  }

  /** Owner's thread: cancels, waits, runs the hooks that join did not, and leaves the stack. */
  void closeNow() {
    if (phase == Phase.CLOSED) {
      return;
    }
    Problems problems = new Problems();
    if (phase == Phase.OPEN) {
      cancel(null);
      List<Fork<T>> all = children();
      awaitAll(all, false);
      for (Fork<T> fork : all) {
        fork.joinAttachments(owner, problems);
      }
    }
    finish();
    problems.throwUnchecked("a join hook of scope '" + name() + "'");
  }

  private void finish() {
    phase = Phase.CLOSED;
    owner.pop(this);
    lazy = null; // a scope that is kept for its forks keeps no deque
    if (hoped) {
      WaitGraph.forget(this);
    }
    letForksGo();
    if (timer != null) {
      timer.cancel(false);
    }
    if (timers != null) {
      timers.forEach(each -> each.cancel(false));
      timers = null;
    }
  }

  /**
   * Who keeps a fork for its result keeps no others: only this scope knows them all from here on.
   */
  private void letForksGo() {
    if (forked < 2) {
      return; // there are no others
    }
    if (ended == null) {
      ended = children();
    }
    LAST.setRelease(this, null);
    boolean usual = cancelled == null && waitMode == owner.waitMode();
    Object maker = usual ? owner : new Left(owner, waitMode, cancelled);
    for (Fork<T> fork : ended) {
      fork.leave(maker);
    }
  }

  /** What makes the tasks of forks whose scope is closed, where the owner alone does not say it. */
  private record Left(Task owner, WaitMode waitMode, @Nullable Reason cancelled) {}

  /** The task of a child that is as usual, and that has ended. Any thread. */
  static Task newTask(Object maker) {
    Left left = maker instanceof Left known ? known : null;
    Task parent = left == null ? (Task) maker : left.owner;
    WaitMode mode = left == null ? parent.waitMode() : left.waitMode;
    Task child =
        new Task(parent, ForkOptions.DEFAULT.name(), parent.priority(), Placement.FREE, mode);
    if (left != null && left.cancelled != null) {
      child.cancel(left.cancelled.cause);
    }
    return child;
  }

  // --- children ---------------------------------------------------------------------------------

  /** A child in place has its outcome, or one that was never pushed. Owner's thread. */
  void endedInPlace(Fork<T> fork) {
    decide(fork);
  }

  /** A child has its outcome. On its thread, or on the owner's if it did not begin. */
  void ended(Fork<T> fork) {
    decide(fork);
    // atomic add: whoever sees 0 sees all that the children wrote. Then joiner: see the table
    if ((int) RUNNING.getAndAdd(this, -1) == 1) {
      LockSupport.unpark(joiner);
    }
  }

  private void decide(Fork<T> fork) {
    switch (options.policy()) {
      case ALL_SUCCEED -> {
        // compare-and-set: of failures that come together one is the first, and cancels the rest
        if (isMissing(fork) && FIRST.compareAndSet(this, null, fork)) {
          cancel(fork.failure());
        }
      }
      case FIRST_SUCCESS -> {
        if (fork.state() != Fork.State.SUCCEEDED) {
          endHope();
        } else if (FIRST.compareAndSet(this, null, fork)) {
          cancel(null);
        }
      }
      case COLLECT -> {}
    }
  }

  /** Whether its result will be missing for a reason of its own, not because the scope gave up. */
  private boolean isMissing(Fork<T> fork) {
    return switch (fork.state()) {
      case FAILED -> true;
      // the scope's canceller writes cancelled before it cancels the children
      case CANCELLED -> cancelled == null;
      case SUCCEEDED, RUNNING -> false;
    };
  }

  /** Waits for all, as the graph of waits has to know it. */
  private void awaitAll(List<Fork<T>> all, boolean obeys) {
    boolean left = running != 0 || (lazy != null && reckoned < all.size());
    if (!left) {
      return;
    }
    owner.parksFor(this);
    try {
      awaitLeft(all, obeys);
    } finally {
      owner.goesOn();
    }
  }

  private void awaitLeft(List<Fork<T>> all, boolean obeys) {
    JoinWait known = knownWait(obeys);
    if (known == null) {
      endLazy(all, obeys);
      awaitChildren(obeys, null);
      return;
    }
    owner.checkMayWait();
    checkNoneIsBoundHere();
    WaitGraph.enter(known);
    try {
      endLazy(all, obeys);
      awaitChildren(obeys, known);
    } finally {
      WaitGraph.leave(known);
    }
  }

  private void awaitChildren(boolean obeys, @Nullable JoinWait known) {
    if (running == 0) {
      return;
    }
    owner.checkMayWait();
    checkNoneIsBoundHere();
    if (known != null) {
      known.parks = true;
      WaitGraph.look(); // while a child ran in place, an interrupt of its may have passed for ours
    }
    if (lazy != null && !runtime.runners().spinsAreVain()) {
      for (int i = 0; i < SPINS_BEFORE_PARK; i++) {
        if (running == 0) {
          return;
        }
        Thread.onSpinWait();
      }
    }
    boolean interrupted = false;
    Execution here = Execution.current();
    // what scopes further out have forked lies in the same deque
    if (here != null && obeys) {
      here.expose();
    } else if (here != null) {
      here.exposeAnyhow();
    }
    joiner = Thread.currentThread();
    StuckTasks.parks();
    Forks forked = lazy;
    boolean lent = forked != null && forked.execution != here; // then it is the lender's deque
    if (forked != null) {
      if (lent) {
        forked.exposeAnyhow();
      }
      forked.lookElsewhere();
    }
    try {
      while (running != 0) {
        if (obeys) {
          checkOwnerGoesOn();
        } else {
          interrupted |= Thread.interrupted(); // cleared, else parking would return at once
        }
        if (cancelled != null) {
          withdrawBound();
          if (running == 0) {
            break;
          }
        }
        if (known != null) {
          known.throwIfRefused();
        }
        Completion.parkHelpingOwner(this, () -> running == 0 || isRefused(known));
      }
    } finally {
      joiner = null;
      if (here != null) {
        here.cover();
      }
      if (lent && forked != null) {
        forked.cover();
      }
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  // --- for the graph of waits
  // -------------------------------------------------------------------------

  private static boolean isRefused(@Nullable JoinWait known) {
    return known != null && known.isRefused();
  }

  /** Null where the children stand for the owner: see {@link WaitGraph}. */
  private @Nullable JoinWait knownWait(boolean obeys) {
    WaitGraph.Frame frames = WaitGraph.framesHere(owner);
    if (frames == null || (frames.inside == null && !bindsChildren)) {
      return null;
    }
    return bindsChildren || WaitGraph.isMore(frames, this)
        ? new JoinWait(this, frames, obeys)
        : null;
  }

  /** The owner's wait for the children, in join or close. A close must not fail. */
  private static final class JoinWait extends WaitGraph.Wait {
    private final TaskScope<?> scope;
    private final boolean joins;

    /** Volatile: not while a child runs in place, which goes on whatever happens to the join. */
    private volatile boolean parks;

    JoinWait(TaskScope<?> scope, WaitGraph.Frame frames, boolean joins) {
      super(scope.owner, frames, joins);
      this.scope = scope;
      this.joins = joins;
    }

    @Override
    boolean isDone() {
      return false; // it leaves
    }

    @Override
    boolean isHopeless(Predicate<WaitGraph.Held> stuck) {
      return stuck.test(scope) || scope.waitsForThread(stuck);
    }

    @Override
    boolean isJoin() {
      return true;
    }

    @Override
    WaitGraph.Frame joins() {
      return scope;
    }

    @Override
    boolean mayBeRefused() {
      return joins && parks;
    }

    @Override
    boolean mayBegin() {
      return !joins;
    }

    @Override
    String what() {
      return "the children of scope '" + scope.name() + "'";
    }

    @Override
    IllegalStateException refusal(String circle) {
      return new IllegalStateException(
          "joining scope '"
              + scope.name()
              + "' would wait for ever: "
              + circle
              + ". Join and close it outside of what its children wait for, or open it inside");
    }
  }

  /** Whether a child that has not ended is bound to an owner of whose thread this is so. */
  private boolean waitsForThread(Predicate<WaitGraph.Held> stuck) {
    for (Fork<T> fork = bindsChildren ? last : null; fork != null; fork = fork.previous()) {
      if (fork.state() == Fork.State.RUNNING && isBound(fork, stuck)) {
        return true;
      }
    }
    return false;
  }

  private static boolean isBound(Fork<?> fork, Predicate<WaitGraph.Held> such) {
    return fork.task().placement() instanceof Placement.Bound bound
        && such.test(bound.owner().held);
  }

  @Override
  String where() {
    return "in scope '" + name() + "'";
  }

  @Override
  boolean cancels() {
    return options.deadline() != null || cancelled != null;
  }

  boolean isForFirst() {
    return options.policy() == ScopePolicy.FIRST_SUCCESS;
  }

  /** FIRST_SUCCESS: whether a child that is not among these may succeed, or has. */
  boolean maySucceedWithout(Set<Task> stuck, Predicate<WaitGraph.Held> held) {
    hoped = true; // volatile, before the looks: see the table
    for (Fork<T> fork = last; fork != null; fork = fork.previous()) {
      boolean may =
          switch (fork.state()) {
            case SUCCEEDED -> true;
            case RUNNING -> !stuck.contains(fork.task()) && !isBound(fork, held);
            case FAILED, CANCELLED -> false;
          };
      if (may) {
        return true;
      }
    }
    return false;
  }

  /** A child did not succeed. */
  private void endHope() {
    VarHandle.fullFence(); // between its state and this look: see the table
    if (hoped && cancelled == null) {
      WaitGraph.look();
    }
  }

  /** The child of this scope that is the task, or from which it descends. */
  @Nullable Task childAbove(Task task) {
    for (Task at = task; at != null; at = at.parent()) {
      if (at.parent() == owner) {
        return at;
      }
    }
    return null;
  }

  /** A lent task that joins on an owner's thread children that are queued for that thread. */
  private void checkNoneIsBoundHere() {
    Owner here = RoleThread.currentOwner();
    if (here == null) {
      return;
    }
    Placement bound = new Placement.Bound(here);
    for (Fork<T> fork = last; fork != null; fork = fork.previous()) {
      if (fork.state() == Fork.State.RUNNING && fork.task().placement().equals(bound)) {
        throw new IllegalStateException(
            "scope '"
                + name()
                + "' is waited for in a call on the thread of owner '"
                + here.name()
                + "', which its child '"
                + fork.task().name()
                + "' needs: it would wait for itself. Join and close it outside of the call");
      }
    }
  }

  private void checkOwnerGoesOn() {
    try {
      owner.checkCancelled();
    } catch (RuntimeException stop) {
      cancel(stop);
      throw stop;
    }
  }

  /** Whether this is why the scope was cancelled. Any thread. */
  @SuppressWarnings("ReferenceEquality") // a throwable is itself
  boolean isReason(Throwable cause) {
    return reason() == cause;
  }

  private @Nullable Throwable reason() {
    Reason seen = cancelled;
    return seen == null ? null : seen.cause;
  }

  private void checkOwner(String what) {
    if (execution != null && execution.isOf(Thread.currentThread(), owner)) {
      return;
    }
    boolean owned =
        Task.current() == owner && (rootThread == null || rootThread == Thread.currentThread());
    if (!owned) {
      throw new IllegalStateException(
          "scope '"
              + name()
              + "' belongs to "
              + (rootThread == null ? owner : rootThread)
              + " and must be "
              + what
              + " by it, not by "
              + Task.current()
              + " on "
              + Thread.currentThread()
              + ": open a scope in each task that forks");
    }
  }

  private void checkOpen() {
    switch (phase) {
      case OPEN -> {}
      case JOINED ->
          throw new IllegalStateException(
              "scope '" + name() + "' was joined already: open another scope");
      case CLOSED ->
          throw new IllegalStateException("scope '" + name() + "' is closed: open another scope");
    }
  }

  @Override
  public String toString() {
    return "TaskScope[" + name() + " " + running + " running]";
  }
}
