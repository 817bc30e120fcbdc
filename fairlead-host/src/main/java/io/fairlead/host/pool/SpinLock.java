package io.fairlead.host.pool;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A lock for sections of well under a microsecond. A driver call must not suspend the virtual
 * thread that makes it, and every lock of the JDK does when it is contended; so this one only
 * spins. A platform thread gives its processor away after {@link #SPINS_BEFORE_YIELD} looks, in
 * case the holder lost its own; a virtual thread cannot do that without being suspended.
 */
public final class SpinLock {
  /** Longer than any section takes on a processor of its own. */
  private static final int SPINS_BEFORE_YIELD = 200;

  private static final VarHandle HELD;

  static {
    try {
      HELD = MethodHandles.lookup().findVarHandle(SpinLock.class, "held", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  @SuppressWarnings("unused") // through HELD
  private volatile boolean held;

  /** Held by nobody. */
  public SpinLock() {}

  /** Spins until it is held. */
  @SuppressWarnings("ThreadPriorityCheck") // only so that a holder without a processor gets one
  public void lock() {
    if (HELD.compareAndSet(this, false, true)) {
      return;
    }
    boolean mayYield = !Thread.currentThread().isVirtual();
    int spins = 0;
    while (held || !HELD.compareAndSet(this, false, true)) {
      if (mayYield && ++spins > SPINS_BEFORE_YIELD) {
        Thread.yield();
      } else {
        Thread.onSpinWait();
      }
    }
  }

  /** Only by who holds it. */
  public void unlock() {
    // Release: the next holder must see all that was written under the lock.
    HELD.setRelease(this, false);
  }
}
