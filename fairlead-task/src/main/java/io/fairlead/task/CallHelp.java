package io.fairlead.task;

/** No help, but who settles it is known: a task of its own, which must not wait for itself. */
record CallHelp(Task task) implements WaitHelp {

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
    return "task '" + task.name() + "'";
  }

  void checkNotAwaitedFromWithin(Task waiter) {
    if (waiter.isWaitedForBy(task)) {
      throw new IllegalStateException(
          "task '"
              + waiter.name()
              + "' awaits task '"
              + task.name()
              + "', which cannot end before it does: it would wait for itself");
    }
  }
}
