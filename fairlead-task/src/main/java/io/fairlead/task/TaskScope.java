package io.fairlead.task;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.TaskCancelledException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A bracket around concurrent children: none of them outlives it.
 *
 * <p>Opened, forked into, joined and closed by one task, its owner; by one thread if that is ROOT.
 * Anybody may cancel it. A fork is one virtual thread, or one command on an owner's queue.
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
 * joiner    | owner               | children          | volatile; then reads running. A child
 *           |                     |                   | decrements running, then reads joiner
 * phase     | owner               | owner             | plain
 * </pre>
 *
 * Lock order: no locks. A thread that sees a problem cancels; only the owner waits.
 *
 * @param <T> the children's result
 */
public final class TaskScope<T extends @Nullable Object> implements AutoCloseable {
  private enum Phase {
    OPEN,
    JOINED,
    CLOSED
  }

  private record Reason(@Nullable Throwable cause) {}

  private static final VarHandle CANCELLED;
  private static final VarHandle FIRST;
  private static final VarHandle RUNNING;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      CANCELLED = lookup.findVarHandle(TaskScope.class, "cancelled", Reason.class);
      FIRST = lookup.findVarHandle(TaskScope.class, "first", Fork.class);
      RUNNING = lookup.findVarHandle(TaskScope.class, "running", int.class);
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

  /** Engine calls that wait for this scope's end: those that its owner was in when it opened. */
  private final Engine.@Nullable Frame frames;

  private final @Nullable Future<?> timer;

  private volatile @Nullable Fork<T> last;
  private volatile @Nullable Reason cancelled;
  private volatile @Nullable Fork<T> first;
  private volatile int running;
  private volatile @Nullable Thread joiner;
  private Phase phase = Phase.OPEN;

  TaskScope(TaskRuntime runtime, ScopeOptions options) {
    this.runtime = runtime;
    this.options = options;
    this.owner = Task.current();
    this.rootThread = owner.isRoot() ? Thread.currentThread() : null;
    this.outer = owner.innermostScope();
    this.frames = owner.engineFrames;
    WaitMode inherited = owner.isRoot() ? runtime.waitMode() : owner.waitMode();
    this.waitMode = options.waitMode() == null ? inherited : options.waitMode();
    this.timer = options.deadline() == null ? null : startTimer(options.deadline());
    owner.push(this);
    if (owner.isCancelled()) {
      cancel(owner.cancelCause()); // a canceller that missed this scope has set the flag before
    }
  }

  @SuppressWarnings("FutureReturnValueIgnored") // kept in timer
  private Future<?> startTimer(Duration deadline) {
    // The JDK's own timer: no thread of ours for something that hardly ever fires.
    return ForkJoinPool.commonPool()
        .schedule(
            () -> cancel(new DeadlineExceededException("scope '" + name() + "'", deadline)),
            Completion.nanos(deadline),
            TimeUnit.NANOSECONDS);
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
   * Starts a child. By the owner; parks it only while the queue of an owner that the child is bound
   * to is full. In a scope that is cancelled already the child does not begin and its fork is
   * CANCELLED.
   *
   * @throws IllegalStateException after join or close, or in another task than the owner
   */
  public Fork<T> fork(ForkOptions forkOptions, TaskBody<? extends T> body) {
    Objects.requireNonNull(body, "body");
    checkOwner("forked into");
    checkOpen();
    Fork<T> fork = prepare(forkOptions, body);
    start(fork, forkOptions.placement());
    return fork;
  }

  private Fork<T> prepare(ForkOptions forkOptions, TaskBody<? extends T> body) {
    Fork<T> previous = last;
    Task child =
        new Task(
            owner,
            forkOptions.name(),
            forkOptions.priority() == null ? owner.priority() : forkOptions.priority(),
            forkOptions.placement(),
            forkOptions.waitMode() == null ? waitMode : forkOptions.waitMode());
    child.engineFrames = frames;
    owner.forkAttachmentsTo(child);
    Fork<T> fork =
        new Fork<>(this, child, body, previous == null ? 0 : previous.index + 1, previous);
    RUNNING.getAndAdd(this, 1);
    last = fork;
    return fork;
  }

  private void start(Fork<T> fork, Placement placement) {
    if (cancelled != null) {
      fork.skip(reason());
      return;
    }
    try {
      switch (placement) {
        case Placement.Free _ -> startFree(fork);
        case Placement.Bound bound -> startBound(fork, bound.owner());
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
      to.submit(fork::run);
    }
  }

  private void startFree(Fork<T> fork) {
    Thread thread = runtime.threads().newThread(fork.task(), fork::run);
    String name = fork.task().givenName();
    if (name != null) {
      thread.setName(name);
    }
    thread.start();
  }

  /** Runs the body as a child of the current task on the calling thread, begin to end. */
  T runInline(String childName, int priority, TaskBody<T> body) throws Exception {
    Fork<T> fork = prepare(ForkOptions.named(childName).priority(priority), body);
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
      owner.joinAttachmentsOf(fork.task(), problems);
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
   * @throws IllegalStateException the second time, or in another task than the owner
   */
  public List<T> join() {
    checkOwner("joined");
    checkOpen();
    awaitChildren(true);
    phase = Phase.JOINED;
    Problems problems = new Problems();
    List<Fork<T>> all = forks();
    for (Fork<T> fork : all) {
      owner.joinAttachmentsOf(fork.task(), problems);
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
              + fork.index
              + " of scope '"
              + scope
              + "', which was joined here");
    }
  }

  /** The children so far, in fork order. By the owner, also after join and close; never blocks. */
  public List<Fork<T>> forks() {
    checkOwner("asked for its forks");
    Fork<T> newest = last;
    int count = newest == null ? 0 : newest.index + 1;
    List<Fork<T>> list = new ArrayList<>(count);
    for (Fork<T> fork = newest; fork != null; fork = fork.previous) {
      list.add(fork);
    }
    Collections.reverse(list);
    return list;
  }

  // --- cancelling and closing -----------------------------------------------------------------

  /**
   * Asks all children to stop, and those that are forked later not to begin. Any thread; never
   * blocks; the first cause stands.
   */
  public void cancel(@Nullable Throwable cause) {
    // compare-and-set: one canceller walks the children; full fence between this and reading last
    if (!CANCELLED.compareAndSet(this, null, new Reason(cause))) {
      return;
    }
    for (Fork<T> fork = last; fork != null; fork = fork.previous) {
      fork.task().cancel(cause);
    }
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
      awaitChildren(false);
      for (Fork<T> fork : forks()) {
        owner.joinAttachmentsOf(fork.task(), problems);
      }
    }
    finish();
    problems.throwUnchecked("a join hook of scope '" + name() + "'");
  }

  private void finish() {
    phase = Phase.CLOSED;
    owner.pop(this);
    if (timer != null) {
      timer.cancel(false);
    }
  }

  // --- children ---------------------------------------------------------------------------------

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
        if (fork.state() == Fork.State.SUCCEEDED && FIRST.compareAndSet(this, null, fork)) {
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

  private void awaitChildren(boolean obeys) {
    if (running == 0) {
      return;
    }
    owner.checkMayWait();
    boolean interrupted = false;
    joiner = Thread.currentThread();
    try {
      while (running != 0) {
        if (obeys) {
          checkOwnerGoesOn();
        } else {
          interrupted |= Thread.interrupted(); // cleared, else parking would return at once
        }
        Completion.parkHelpingOwner(this);
      }
    } finally {
      joiner = null;
      if (interrupted) {
        Thread.currentThread().interrupt();
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

  private @Nullable Throwable reason() {
    Reason seen = cancelled;
    return seen == null ? null : seen.cause;
  }

  private void checkOwner(String what) {
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
              + Thread.currentThread());
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
