package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/** A daemon platform thread that knows its role and, if it has one, its owner. */
class RoleThread extends Thread {
  final Role role;
  final @Nullable Owner owner;

  /** What follows "fairlead-" in its name. */
  final String label;

  /** The task's thread that is mounted on it; of this thread, as {@link #holds}. */
  @Nullable Resumable runs;

  /** The strand whose turn what is mounted has. */
  @Nullable Strand holds;

  RoleThread(String label, Role role, @Nullable Owner owner, @Nullable Runnable body) {
    this(label, role, owner, body, 0);
  }

  RoleThread(
      String label, Role role, @Nullable Owner owner, @Nullable Runnable body, long stackBytes) {
    // No inherited thread-locals: a thread of ours outlives whoever happened to start it.
    super(null, body, "fairlead-" + label, stackBytes, false);
    this.label = label;
    this.role = role;
    this.owner = owner;
    setDaemon(true);
  }

  @Override
  public final void run() {
    TimerSlack.tighten();
    work();
  }

  /** What it was made with, or what a kind of its own puts here. */
  void work() {
    super.run();
  }

  /** The owner whose thread the caller is, or null. */
  static @Nullable Owner currentOwner() {
    return Thread.currentThread() instanceof RoleThread thread ? thread.owner : null;
  }

  /** Whether the caller runs after the collector. */
  static boolean isCleaner() {
    return Thread.currentThread() instanceof RoleThread thread && thread.role == Role.CLEANER;
  }

  /** Whether it polls just now: what it runs then would wait for itself. Its own thread only. */
  boolean isPolling() {
    return owner != null && owner.isPolling();
  }
}
