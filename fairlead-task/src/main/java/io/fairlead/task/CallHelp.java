package io.fairlead.task;

import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * No help, but who settles it is known: an owner's thread, and for a call that is a task of its own
 * that task. Neither must be waited for by somebody on whom it waits.
 *
 * @param owner whose thread has to do something
 * @param task what it runs in, if it is a task of its own
 * @param call the same, for {@link WaitGraph}; for an owner's end what else that waits for
 */
record CallHelp(Owner owner, @Nullable Task task, WaitGraph.@Nullable Held call)
    implements WaitHelp {

  /** For what is not a task: room in the owner's queue, a lent call, its end. */
  CallHelp(Owner owner) {
    this(owner, null, null);
  }

  @Override
  public boolean poll() {
    return false;
  }

  @Override
  public boolean block(long nanos) {
    return false;
  }

  @Override
  public String what() {
    return task == null
        ? "owner '" + owner.name() + "'"
        : "task '" + task.name() + "' on owner '" + owner.name() + "'";
  }

  /** Whether the waiter is this task, or must end before it can. */
  boolean isAwaitedFromWithin(Task waiter) {
    return task != null && waiter.isWaitedForBy(task);
  }

  boolean isStuck(Predicate<WaitGraph.Held> stuck) {
    return stuck.test(owner.held) || (call != null && stuck.test(call));
  }

  /** A wait for calls on owners: one, or a combination. */
  static final class Wait extends WaitGraph.Wait {
    private final Completion<?> until;
    private final boolean mayFail;

    Wait(Task task, WaitGraph.Frame frames, Completion<?> until, boolean obeys, boolean mayFail) {
      super(task, frames, obeys);
      this.until = until;
      this.mayFail = mayFail;
    }

    @Override
    boolean mayBeRefused() {
      return mayFail;
    }

    @Override
    boolean isDone() {
      return until.isDone();
    }

    @Override
    boolean isHopeless(Predicate<WaitGraph.Held> stuck) {
      return until.needs(help -> help.isStuck(stuck));
    }

    @Override
    String what() {
      return until.what();
    }

    @Override
    IllegalStateException refusal(String circle) {
      return new IllegalStateException(
          "this wait would never end: "
              + circle
              + ". An owner's thread does nothing else while a command waits on it: register "
              + "onDone instead of waiting, wait in an affine task, or outside of the owner");
    }
  }
}
