package io.fairlead.task;

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
 * outcome  | the child, once     | anyone | volatile: what the child wrote comes with it
 * previous | the forker, before the fork is published in its scope | cancellers | plain
 * </pre>
 *
 * @param <T> the result
 */
public final class Fork<T extends @Nullable Object> {

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

  private record Outcome(State state, @Nullable Object value, @Nullable Throwable failure) {}

  final int index;
  final @Nullable Fork<T> previous;
  private final TaskScope<T> scope;
  private final Task task;
  private final TaskBody<? extends T> body;
  private volatile @Nullable Outcome outcome;

  Fork(
      TaskScope<T> scope,
      Task task,
      TaskBody<? extends T> body,
      int index,
      @Nullable Fork<T> previous) {
    this.scope = scope;
    this.task = task;
    this.body = body;
    this.index = index;
    this.previous = previous;
  }

  /** The child's task. */
  public Task task() {
    return task;
  }

  /** Where the child stands. Any thread; never blocks. */
  public State state() {
    Outcome seen = outcome;
    return seen == null ? State.RUNNING : seen.state;
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
    Outcome seen = outcome;
    if (seen == null) {
      throw new IllegalStateException(
          "task '" + task.name() + "' is still running: join its scope first");
    }
    if (seen.failure != null) {
      throw Problems.unchecked("task '" + task.name() + "'", seen.failure);
    }
    return (T) Task.nullable(seen.value);
  }

  /** What the child threw, as it is; null if it runs or succeeded. Any thread; never blocks. */
  public @Nullable Throwable failure() {
    Outcome seen = outcome;
    return seen == null ? null : seen.failure;
  }

  /** The child, from begin to end. On its thread. */
  void run() {
    try {
      T value = Task.nullable(task.run(body));
      outcome = new Outcome(State.SUCCEEDED, value, null);
    } catch (Throwable failure) {
      outcome = new Outcome(task.isCancelled() ? State.CANCELLED : State.FAILED, null, failure);
    }
    scope.ended(this);
  }

  /** The child will not begin; its end hooks run on the forker's thread, so that they balance. */
  void skip(@Nullable Throwable cause) {
    task.cancel(cause);
    run();
  }

  Throwable failureThatIsThere() {
    return Objects.requireNonNull(failure());
  }

  @Override
  public String toString() {
    return "Fork[" + task.name() + " " + state() + "]";
  }
}
