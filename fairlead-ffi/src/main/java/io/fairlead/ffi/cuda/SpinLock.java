package io.fairlead.ffi.cuda;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A lock that spins, for a few instructions at a time: one that parks would suspend a virtual
 * thread that has its context current. Nothing is called under it that could wait.
 */
final class SpinLock {
  private final AtomicBoolean held = new AtomicBoolean();

  void lock() {
    while (!held.compareAndSet(false, true)) {
      Thread.onSpinWait();
    }
  }

  void unlock() {
    held.set(false);
  }
}
