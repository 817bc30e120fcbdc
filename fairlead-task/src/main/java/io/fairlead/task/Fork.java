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
 * content  | the forker; the child, once | the child; anyone | plain: the body until it is begun,
 *          |                     |        | then the outcome, published by state
 * state    | the child, once     | anyone | release / volatile: what the child wrote comes with it
 * before   | the forker, before the fork is published in its scope: the fork before it; its close:
 *          | what makes its task | cancellers, who asks | plain: who finds no fork there any more
 *          |                     |        | misses only children that have ended; else with scope
 * scope    | the forker; its close, to null | anyone | release / acquire: who finds none sees before
 * task     | the forker; or who asks first | anyone | compare-and-set, acquire
 * runner   | as {@link Task}'s   | as Task's | as Task's, whose it is where the fork is lazy
 * </pre>
 *
 * <b>A task when asked for.</b> Most children run in place, and nobody asks for their task: they
 * have none. Who asks makes it, with a compare-and-set, and looks then whether the scope was
 * cancelled: a canceller that came before has cancelled all tasks that there were, one that comes
 * later asks itself. A child that begins claims itself, and looks then whether it has a task; who
 * wants to stop it makes the task, and looks then at the claim: one sees the other.
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
  private static final VarHandle TASK;
  private static final VarHandle SCOPE;
  private static final VarHandle RUNNER;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      STATE = lookup.findVarHandle(Fork.class, "state", State.class);
      TASK = lookup.findVarHandle(Fork.class, "task", Task.class);
      SCOPE = lookup.findVarHandle(Fork.class, "scope", TaskScope.class);
      RUNNER = lookup.findVarHandle(Fork.class, "runner", Object.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** The fork before it; once the scope is closed, what makes its task. */
  private @Nullable Object before;

  /** Null once it is closed, when nobody but {@link #makeTask} asks for it. */
  private TaskScope<T> scope;

  private @Nullable Task task;
  private volatile @Nullable Object runner;
  private final boolean lazy;

  /** Whether its parent began it, or found it cancelled: plain, of the parent's thread. */
  private boolean here;

  /** The body; then the result, or what was thrown. */
  private @Nullable Object content;

  /** Null is RUNNING: a volatile store at birth would cost as much as all the rest. */
  private volatile @Nullable State state;

  /** Without a task only if it is lazy. */
  Fork(
      TaskScope<T> scope,
      @Nullable Task task,
      TaskBody<? extends T> body,
      @Nullable Fork<T> previous,
      boolean lazy) {
    this.scope = scope;
    this.task = task;
    this.content = body;
    this.before = previous;
    this.lazy = lazy;
    if (lazy && task != null) {
      task.sits(this);
    }
  }

  /** The child's task. Any thread; never blocks. */
  public Task task() {
    Task known = taskIfAsked();
    return known == null ? makeTask() : known;
  }

  @SuppressWarnings("ReferenceEquality") // a mark is itself
  private Task makeTask() {
    // acquire: who finds none finds what was left in its place
    TaskScope<?> open = (TaskScope<?>) SCOPE.getAcquire(this);
    Task made = open == null ? TaskScope.newTask(Objects.requireNonNull(before)) : open.newTask();
    if (runner == Task.GONE) {
      made.endsAsMade();
    } else {
      made.sits(this);
    }
    // compare-and-set, a full fence between this and the look at what the scope was told
    Task other = (Task) TASK.compareAndExchange(this, null, made);
    Task known = other == null ? made : other;
    if (open != null) {
      open.stopIfCancelled(known);
    }
    if (runner == Task.GONE) {
      known.letGo(); // it ended meanwhile, and may not have seen its task
    }
    return known;
  }

  /** The child's task if there is one. */
  @Nullable Task taskIfAsked() {
    // acquire: what it is made of comes with it
    return (Task) TASK.getAcquire(this);
  }

  /** Who runs it, as {@link Task} has it: null while it lies in a deque. */
  @Nullable Object runner() {
    return runner;
  }

  boolean moveRunner(@Nullable Object seen, Object next) {
    return RUNNER.compareAndSet(this, seen, next);
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
      case SUCCEEDED -> (T) Task.nullable(content);
      case FAILED, CANCELLED ->
          throw Problems.unchecked("task '" + task().name() + "'", failureThatIsThere());
    };
  }

  private IllegalStateException stillRunning() {
    Task asks = Task.current();
    return new IllegalStateException(
        asks.isWaitedForBy(task())
            ? "task '"
                + asks.name()
                + "' asks for the result of task '"
                + task().name()
                + "', which cannot end before it does: it would wait for itself. Pass on what it needs "
                + "as an argument, and let who joins ask for results"
            : "task '" + task().name() + "' is still running: join its scope first");
  }

  /** What the child threw, as it is; null if it runs or succeeded. Any thread; never blocks. */
  public @Nullable Throwable failure() {
    return switch (state()) {
      case RUNNING, SUCCEEDED -> null;
      case FAILED, CANCELLED -> (Throwable) content;
    };
  }

  // --- on a thread of its own, or an owner's -----------------------------------------------------

  /** The child, from begin to end. On its thread. */
  void run() {
    try {
      settle(State.SUCCEEDED, task().run(body()));
    } catch (Throwable failure) {
      fail(failure);
    }
    scope.ended(this);
  }

  /** As run, unless its scope has withdrawn it meanwhile. On its owner's thread. */
  void runBound() {
    if (takeForRunner()) {
      run();
    }
  }

  /** The child will not begin; its end hooks run on the forker's thread, so that they balance. */
  void skip(@Nullable Throwable cause) {
    task().cancel(cause);
    here = true;
    try {
      settle(State.SUCCEEDED, task().run(body()));
    } catch (Throwable failure) {
      fail(failure);
    }
    if (lazy) {
      scope.endedInPlace(this);
    } else {
      scope.ended(this);
    }
  }

  @SuppressWarnings("unchecked") // it was given as one
  private TaskBody<? extends T> body() {
    return (TaskBody<? extends T>) Objects.requireNonNull(content);
  }

  /** Its place among the children of its scope, in fork order. */
  int index() {
    int count = 0;
    for (Fork<T> fork = previous(); fork != null; fork = fork.previous()) {
      count++;
    }
    return count;
  }

  private void settle(State outcomeState, @Nullable Object value) {
    content = value;
    // release: what the child wrote comes with it
    STATE.setRelease(this, outcomeState);
  }

  private void fail(Throwable failure) {
    if (failure instanceof TaskCancelledException
        && failure.getCause() instanceof DeadlineExceededException late
        && isOwn(late)) {
      settle(State.CANCELLED, late);
    } else {
      settle(task().isStopping() ? State.CANCELLED : State.FAILED, failure);
    }
  }

  /** Whether this child's own deadline has passed, not that of somebody above. */
  @SuppressWarnings("ReferenceEquality") // a throwable is itself
  private boolean isOwn(DeadlineExceededException late) {
    return task().cancelCause() == late && !scope.isReason(late);
  }

  /** The fork before it; null for the first one, and once the scope is closed. */
  @SuppressWarnings("unchecked") // of the same scope
  @Nullable Fork<T> previous() {
    return before instanceof Fork<?> fork ? (Fork<T>) fork : null;
  }

  /**
   * The scope is closed: a fork that is kept for its result keeps neither that nor its siblings,
   * and so not their results. By the scope's owner.
   *
   * @param maker what {@link TaskScope#newTask(Object)} takes
   */
  void leave(Object maker) {
    before = maker;
    SCOPE.setRelease(this, null);
  }

  // --- in a deque -------------------------------------------------------------------------------

  boolean isLazy() {
    return lazy;
  }

  @Override
  long waiting() {
    return lazy && runner == null ? 1 : 0;
  }

  /** Whether somebody else than its parent began it. Parent's thread, once it does not wait. */
  boolean isTaken() {
    return lazy && !here;
  }

  boolean claim() {
    // compare-and-set, a full fence: flags that are set from now on find the runner
    return RUNNER.compareAndSet(this, null, Thread.currentThread());
  }

  @Override
  boolean take(long number) {
    return claim();
  }

  @Override
  boolean takeForRunner() {
    return RUNNER.compareAndSet(this, null, Task.HANDED);
  }

  /** In the thread of its parent, which joins and has claimed it. */
  void runInPlace(Execution execution) {
    here = true;
    if (scope.isStopped()) {
      task(); // after the claim: see the table of TaskScope
    }
    Task asked = taskIfAsked();
    Task parent = asked == null ? execution.enter(this) : execution.enter(asked);
    try {
      if (asked == null) {
        settleUnasked();
      } else {
        settleClaimed(asked);
      }
    } finally {
      execution.leave(parent);
    }
    Thread thread = Thread.currentThread();
    asked = taskIfAsked();
    // what it did to the interrupt status was its own. But on a thread of the user's an interrupt
    // may have been meant for whoever entered
    if ((asked != null && asked.isDisturbed()) || thread.isVirtual()) {
      Thread.interrupted();
    }
    scope.endedInPlace(this);
  }

  @Override
  void failTaken(Throwable none) {
    task().cancel(none); // its end hooks run, so that they balance; its body does not
    try {
      settle(State.SUCCEEDED, task().run(body()));
    } catch (Throwable failure) {
      fail(failure);
    }
    scope.ended(this);
  }

  @Override
  @SuppressWarnings("ReferenceEquality") // as above
  void runTaken(Execution execution, Runners runners) {
    Thread thread = Thread.currentThread();
    Task task = task();
    String name = task.givenName();
    if (name != null) {
      thread.setName(name);
    }
    Task before = execution.enter(task);
    try {
      if (runner == Task.HANDED) {
        scope.stopIfCancelled(task);
        settle(State.SUCCEEDED, task.run(body()));
      } else {
        settleClaimed(task);
      }
    } catch (Throwable failure) {
      fail(failure);
    } finally {
      execution.leave(before);
    }
    scope.ended(this);
    if (name != null) {
      thread.setName("");
    }
  }

  private void settleClaimed(Task task) {
    scope.stopIfCancelled(task); // after the claim: see the table of TaskScope
    try {
      settle(State.SUCCEEDED, task.runClaimed(body()));
    } catch (Throwable failure) {
      fail(failure);
    }
  }

  private void settleUnasked() {
    try {
      settle(State.SUCCEEDED, Task.runUnasked(this, body()));
    } catch (Throwable failure) {
      fail(failure);
    }
  }

  /** Hands what its task has to the parent's. Joiner's thread. */
  void joinAttachments(Task parent, Problems problems) {
    Task asked = taskIfAsked();
    if (asked != null) {
      parent.joinAttachmentsOf(asked, problems);
    }
  }

  Throwable failureThatIsThere() {
    return Objects.requireNonNull(failure());
  }

  @Override
  public String toString() {
    return "Fork[" + task().name() + " " + state() + "]";
  }
}
