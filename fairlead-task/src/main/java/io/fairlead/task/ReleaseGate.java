package io.fairlead.task;

/** Knows when what a call left running (work on the task's stream, say) has ended. */
@FunctionalInterface
public interface ReleaseGate {

  /**
   * Called right after a call's body, in the task that called. The instance and the admitted bytes
   * go back when the result is done. Must not wait itself.
   */
  Completion<?> afterCall(Task task);
}
