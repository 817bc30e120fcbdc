package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * What a waiting task looks for in the place of its carrier: see {@link Carriers}. Used by the
 * task's thread.
 *
 * @param wanted what it waits for
 * @param help how its end is found where nobody is told of it, or null
 * @param task who waits
 * @param known what {@link WaitGraph} knows the wait as, and may refuse
 * @param since when it began to look
 * @param latest when it has to stop at the latest
 */
record Look(
    Completion<?> wanted,
    @Nullable WaitHelp help,
    Task task,
    WaitGraph.@Nullable Wait known,
    long since,
    long latest) {

  /** Whether the end is there, but for a poll of the help. */
  boolean isThere() {
    return wanted.isDone() || (help != null && help.isReady());
  }

  /** Whether the wait has to end, or to be looked at by who knows more. */
  boolean mustStop(long now) {
    return now - latest >= 0
        || task.isDisturbed()
        || Thread.currentThread().isInterrupted()
        || (known != null && known.isRefused());
  }
}
