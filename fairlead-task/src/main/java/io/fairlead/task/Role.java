package io.fairlead.task;

/**
 * What the calling thread is, for {@link Gate}. Owner and cleaner threads are told by their type,
 * for they are platform threads that never change; everything else by its {@link Task}.
 */
public enum Role {
  /** A task, wherever it runs, except on an owner's thread. May wait. */
  TASK,
  /** A thread that Fairlead did not make and that has not entered. May wait. */
  FOREIGN,
  /** The owner of an engine. May wait for other engines, at its own cost. */
  OWNER,
  /**
   * The owner of a device context, the runtime's poller, or a thread on which a driver says that
   * work has ended. Must not wait for others.
   */
  DEVICE_MANAGER,
  /** The loop of a message engine. Must not wait for others. */
  COMM,
  /** Runs after the collector. Must not wait, and enters no engine at all. */
  CLEANER;

  /** The caller's role. Any thread; never blocks. */
  public static Role current() {
    if (Thread.currentThread() instanceof RoleThread thread) {
      return thread.role;
    }
    return Task.current().isRoot() ? FOREIGN : TASK;
  }

  /**
   * A daemon platform thread that has this role for every gate, not started. For drivers that call
   * back from threads of their own, which are {@link #DEVICE_MANAGER}: else whoever is called back
   * counts as {@link #FOREIGN}, and would wait, or enter another engine, on the device's thread.
   *
   * @param name what follows "fairlead-" in the thread's name
   */
  public Thread newThread(String name, Runnable body) {
    return new RoleThread(name, this, null, body);
  }

  /** Whether a thread of this role may wait for another engine to do something. */
  public boolean mayWait() {
    return this == TASK || this == FOREIGN || this == OWNER;
  }
}
