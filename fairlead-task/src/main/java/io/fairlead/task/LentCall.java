package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * A call that an owner's thread makes as the caller's task, while the caller waits.
 *
 * <pre>
 * QUEUED → BEGUN      by the owner: the body runs; the caller waits, whatever happens
 *        → WITHDRAWN  by a caller that was cancelled or interrupted: the body will not run
 * </pre>
 *
 * One compare-and-set of {@code step} decides between the two.
 */
final class LentCall<T extends @Nullable Object> implements Runnable {
  private static final int QUEUED = 0;
  private static final int BEGUN = 1;
  private static final int WITHDRAWN = 2;
  private static final VarHandle STEP;

  static {
    try {
      STEP = MethodHandles.lookup().findVarHandle(LentCall.class, "step", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private record Outcome(@Nullable Object value, @Nullable Throwable failure) {}

  private final Task task;
  private final Thread lender;
  private final TaskBody<T> body;
  private final Completion.Source<Outcome> source;

  @SuppressWarnings("unused") // through STEP
  private volatile int step = QUEUED;

  /**
   * A call that its maker queues.
   *
   * @param owner who makes it; null where its thread waits for nobody but this call
   */
  LentCall(@Nullable Owner owner, Task task, Thread lender, TaskBody<T> body) {
    this.task = task;
    this.lender = lender;
    this.body = body;
    this.source = owner == null ? Completion.source() : Completion.source(new CallHelp(owner));
  }

  @Override
  public void run() {
    if (!STEP.compareAndSet(this, QUEUED, BEGUN)) {
      return;
    }
    Outcome outcome;
    try {
      T value = task.runLent(lender, body);
      outcome = new Outcome(value, null);
    } catch (Throwable failure) {
      outcome = new Outcome(null, failure);
    }
    source.complete(outcome);
  }

  /** Lender's thread. */
  @SuppressWarnings("unchecked") // set from a TaskBody<T>
  T await() throws Exception {
    Outcome outcome;
    try {
      outcome = source.completion().await(WaitMode.NONBLOCKING);
    } catch (RuntimeException | Error stop) {
      if (STEP.compareAndSet(this, QUEUED, WITHDRAWN)) {
        throw stop;
      }
      outcome = source.completion().awaitAnyhow(); // the body runs as this task
    }
    Problems problems = new Problems();
    if (outcome.failure != null) {
      problems.add(outcome.failure);
    }
    problems.throwAny();
    return (T) Task.nullable(outcome.value);
  }
}
