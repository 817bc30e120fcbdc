package io.fairlead.task;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.TaskCancelledException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One child of a scope, as its parent sees it.
 *
 * <pre>
 * RUNNING → SUCCEEDED   the body returned, and no end hook failed
 *         → FAILED      it threw, and nobody had asked it to stop
 *         → CANCELLED   it was asked to stop and threw, or never began
 *
 * field    | writer              | reader | mode, guard
 * outcome  | the child, once     | anyone | plain: published by state
 * state    | the child, once     | anyone | release / volatile: what the child wrote comes with it
 * previous | the forker, before the fork is published in its scope | cancellers | plain
 * </pre>
 *
 * @param <T> the result
 */
public final class Fork<T extends @Nullable Object> extends ForkFrame {

  /** Where the child stands. */
  public enum State {
    /** Not begun, or going on. */
    RUNNING,
    /** Has its result. */
    SUCCEEDED,
    /** Threw. */
    FAILED,
    /** Was asked to stop, and did. */
    CANCELLED
  }

  private static final VarHandle STATE;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(Fork.class, "state", State.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  final int index;
  final @Nullable Fork<T> previous;
  private final TaskScope<T> scope;
  private final Task task;
  private final TaskBody<? extends T> body;
  private final boolean lazy;

  /** Whether its parent began it, or found it cancelled: plain, of the parent's thread. */
  private boolean here;

  /** The result, or what was thrown. */
  private @Nullable Object outcome;

  /** Null is RUNNING: a volatile store at birth would cost as much as all the rest. */
  private volatile @Nullable State state;

  Fork(
      TaskScope<T> scope,
      Task task,
      TaskBody<? extends T> body,
      int index,
      @Nullable Fork<T> previous,
      boolean lazy) {
    this.scope = scope;
    this.task = task;
    this.body = body;
    this.index = index;
    this.previous = previous;
    this.lazy = lazy;
  }

  /** The child's task. */
  public Task task() {
    return task;
  }

  /** Where the child stands. Any thread; never blocks. */
  public State state() {
    State seen = state;
    return seen == null ? State.RUNNING : seen;
  }

  /**
   * The result. Any thread; never blocks.
   *
   * @throws IllegalStateException while it is running: join the scope first
   * @throws RuntimeException what the child threw; a checked one inside a {@link
   *     io.fairlead.fault.TaskFailedException}
   */
  @SuppressWarnings("unchecked") // set from a TaskBody<? extends T>
  public T get() {
    return switch (state()) {
      case RUNNING -> throw stillRunning();
      case SUCCEEDED -> (T) Task.nullable(outcome);
      case FAILED, CANCELLED ->
          throw Problems.unchecked("task '" + task.name() + "'", failureThatIsThere());
    };
  }

  private IllegalStateException stillRunning() {
    Task asks = Task.current();
    return new IllegalStateException(
        asks.isWaitedForBy(task)
            ? "task '"
                + asks.name()
                + "' asks for the result of task '"
                + task.name()
                + "', which cannot end before it does: it would wait for itself. Pass on what it needs "
                + "as an argument, and let who joins ask for results"
            : "task '" + task.name() + "' is still running: join its scope first");
  }

  /** What the child threw, as it is; null if it runs or succeeded. Any thread; never blocks. */
  public @Nullable Throwable failure() {
    return switch (state()) {
      case RUNNING, SUCCEEDED -> null;
      case FAILED, CANCELLED -> (Throwable) outcome;
    };
  }

  // --- on a thread of its own, or an owner's -----------------------------------------------------

  /** The child, from begin to end. On its thread. */
  void run() {
    try {
      settle(State.SUCCEEDED, task.run(body));
    } catch (Throwable failure) {
      fail(failure);
    }
    scope.ended(this);
  }

  /** As run, unless its scope has withdrawn it meanwhile. On its owner's thread. */
  void runBound() {
    if (task.claimForRunner()) {
      run();
    }
  }

  /** The child will not begin; its end hooks run on the forker's thread, so that they balance. */
  void skip(@Nullable Throwable cause) {
    task.cancel(cause);
    here = true;
    try {
      settle(State.SUCCEEDED, task.run(body));
    } catch (Throwable failure) {
      fail(failure);
    }
    if (lazy) {
      scope.endedInPlace(this);
    } else {
      scope.ended(this);
    }
  }

  private void settle(State outcomeState, @Nullable Object value) {
    outcome = value;
    // release: what the child wrote comes with it
    STATE.setRelease(this, outcomeState);
  }

  private void fail(Throwable failure) {
    if (failure instanceof TaskCancelledException
        && failure.getCause() instanceof DeadlineExceededException late
        && isOwn(late)) {
      settle(State.CANCELLED, late);
    } else {
      settle(task.isStopping() ? State.CANCELLED : State.FAILED, failure);
    }
  }

  /** Whether this child's own deadline has passed, not that of somebody above. */
  @SuppressWarnings("ReferenceEquality") // a throwable is itself
  private boolean isOwn(DeadlineExceededException late) {
    return task.cancelCause() == late && !scope.isReason(late);
  }

  // --- in a deque -------------------------------------------------------------------------------

  boolean isLazy() {
    return lazy;
  }

  @Override
  long waiting() {
    return lazy && task.isUnclaimed() ? 1 : 0;
  }

  /** Whether somebody else than its parent began it. Parent's thread, once it does not wait. */
  boolean isTaken() {
    return lazy && !here;
  }

  boolean claim() {
    return task.claim(Thread.currentThread());
  }

  @Override
  boolean take(long number) {
    return claim();
  }

  @Override
  boolean takeForRunner() {
    return task.claimForRunner();
  }

  /** In the thread of its parent, which joins and has claimed it. */
  void runInPlace(Execution execution) {
    here = true;
    Task parent = execution.enter(task);
    try {
      settleClaimed();
    } finally {
      execution.leave(parent);
    }
    Thread thread = Thread.currentThread();
    // what it did to the interrupt status was its own. But on a thread of the user's an interrupt
    // may have been meant for whoever entered
    if (task.isDisturbed() || thread.isVirtual()) {
      Thread.interrupted();
    }
    scope.endedInPlace(this);
  }

  @Override
  void failTaken(Throwable none) {
    task.cancel(none); // its end hooks run, so that they balance; its body does not
    try {
      settle(State.SUCCEEDED, task.run(body));
    } catch (Throwable failure) {
      fail(failure);
    }
    scope.ended(this);
  }

  @Override
  void runTaken(Execution runner, Runners runners) {
    Thread thread = Thread.currentThread();
    String name = task.givenName();
    if (name != null) {
      thread.setName(name);
    }
    Task before = runner.enter(task);
    try {
      if (task.isHanded()) {
        scope.stopIfCancelled(task);
        settle(State.SUCCEEDED, task.run(body));
      } else {
        settleClaimed();
      }
    } catch (Throwable failure) {
      fail(failure);
    } finally {
      runner.leave(before);
    }
    scope.ended(this);
    if (name != null) {
      thread.setName("");
    }
  }

  private void settleClaimed() {
    scope.stopIfCancelled(task); // after the claim: see the table of TaskScope
    try {
      settle(State.SUCCEEDED, task.runClaimed(body));
    } catch (Throwable failure) {
      fail(failure);
    }
  }

  Throwable failureThatIsThere() {
    return Objects.requireNonNull(failure());
  }

  @Override
  public String toString() {
    return "Fork[" + task.name() + " " + state() + "]";
  }
}
