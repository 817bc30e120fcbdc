package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/** A daemon platform thread that knows its role and, if it has one, its owner. */
final class RoleThread extends Thread {
  final Role role;
  final @Nullable Owner owner;

  RoleThread(String name, Role role, @Nullable Owner owner, Runnable body) {
    // No inherited thread-locals: a thread of ours outlives whoever happened to start it.
    super(null, body, "fairlead-" + name, 0, false);
    this.role = role;
    this.owner = owner;
    setDaemon(true);
  }

  /** The owner whose thread the caller is, or null. */
  static @Nullable Owner currentOwner() {
    return Thread.currentThread() instanceof RoleThread thread ? thread.owner : null;
  }
}
