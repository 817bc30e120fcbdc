package io.fairlead.task;

import io.fairlead.fault.EngineException;
import org.jspecify.annotations.Nullable;

/**
 * A call on an owner as a task of its own.
 *
 * <pre>
 * made → begun → completion settled       the owner's thread runs the task
 *      → cancelled                        the task is cancelled; it does not begin, or its waits end
 * </pre>
 */
final class OwnerCall<T extends @Nullable Object> implements Runnable {
  private final Owner owner;
  private final TaskBody<T> body;
  private final Task task;
  private final Completion.Source<T> source;

  /** For {@link WaitGraph}: free when the call's task has ended. */
  private static final class Held extends WaitGraph.Held {
    private final Owner owner;

    Held(Owner owner) {
      this.owner = owner;
    }

    @Override
    String where() {
      return "in a call on owner '" + owner.name() + "'";
    }
  }

  /**
   * A call that its maker queues, or runs at once.
   *
   * @param around what cannot be free before it ends, but the owner's thread
   */
  OwnerCall(Owner owner, TaskBody<T> body, WaitGraph.@Nullable Frame around) {
    this.owner = owner;
    this.body = body;
    Task caller = Task.current();
    this.task =
        new Task(
            caller,
            "call-" + owner.name(),
            caller.priority(),
            new Placement.Bound(owner),
            caller.waitMode());
    task.called = true;
    Held held = new Held(owner);
    task.frames = new WaitGraph.In(held, around);
    this.source = Completion.source(new CallHelp(owner, task, held));
    source.onCancel(() -> task.cancel(null));
  }

  Completion<T> completion() {
    return source.completion();
  }

  @Override
  public void run() {
    if (source.completion().isDone()) {
      return;
    }
    try {
      source.complete(task.run(body));
    } catch (Throwable failure) {
      source.fail(failure);
    }
  }

  void refuse() {
    source.fail(
        new EngineException(
            owner.name(), "its queue is full; try again when some of its calls have ended", null));
  }
}
