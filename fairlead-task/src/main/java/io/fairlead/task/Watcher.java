package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.locks.LockSupport;

/**
 * Looks after carriers that cannot look after themselves, because the task on them does not
 * suspend.
 *
 * <pre>
 * AWAKE   every 100 µs to 1 ms: polls if no carrier did for 100 µs; hands over what lies with a
 *         carrier that stands still for 200 µs; has a spare carrier work if nobody else is free
 *   → ASLEEP  announced, after nothing was ready and nothing unattended for some time; looks once
 *             more; then without limit
 *   → AWAKE   woken by who made something ready that no idle carrier was woken for
 *
 * field | writer               | reader    | mode, guard
 * bell  | watcher, producers   | producers | volatile, compare-and-set: one unpark for each sleep.
 *       |                      |           | A producer publishes, then looks here; the watcher
 *       |                      |           | writes ASLEEP, then looks: one sees the other
 * others| watcher              | watcher   | plain
 * </pre>
 *
 * Carriers that stand still are of two kinds. One that is blocked, in native code or in a pinned
 * wait, uses no processor: a spare takes its place. One that computes is given a spare too, so that
 * ready work shares the processors with it, but only one for each processor.
 */
final class Watcher extends RoleThread {
  private static final int AWAKE = 0;
  private static final int ASLEEP = 1;

  /** Nobody polled for so long while something is pending: the watcher does. */
  private static final long POLL_NANOS = 100_000;

  /** Ready work has waited so long with a carrier that stands still: others shall have it. */
  static final long LATE_NANOS = 200_000;

  private static final long NAP_NANOS_FIRST = 100_000;
  private static final long NAP_NANOS_MAX = 1_000_000;

  /** Rounds without anything to see to before it sleeps: about 20 ms, so as not to flap. */
  private static final int QUIET_ROUNDS = 24;

  /** As many as the JDK's own scheduler has carriers at most. */
  static final int SPARES_MAX = 256;

  private static final VarHandle BELL;

  static {
    try {
      BELL = MethodHandles.lookup().findVarHandle(Watcher.class, "bell", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final Carriers carriers;
  private volatile int bell;
  private int spareNumber;
  private long takenSeen;
  private long takenSeenNanos;

  Watcher(Carriers carriers) {
    super(carriers.label + "-watcher", Role.DEVICE_MANAGER, null, null);
    this.carriers = carriers;
    setContextClassLoader(ClassLoader.getSystemClassLoader());
  }

  @Override
  boolean isPolling() {
    return true;
  }

  /** Any thread; never blocks; a read while it is awake. */
  void wake() {
    if (bell == ASLEEP && BELL.compareAndSet(this, ASLEEP, AWAKE)) {
      LockSupport.unpark(this);
    }
  }

  boolean isAsleep() {
    return bell == ASLEEP;
  }

  @Override
  public void run() {
    int quiet = 0;
    while (!carriers.isClosing()) {
      quiet = look(System.nanoTime()) ? 0 : quiet + 1;
      if (quiet < QUIET_ROUNDS) {
        LockSupport.parkNanos(
            this, Math.min(NAP_NANOS_FIRST << Math.min(quiet, 10), NAP_NANOS_MAX));
      } else {
        fallAsleep();
        quiet = 0;
      }
      Thread.interrupted();
    }
  }

  private void fallAsleep() {
    bell = ASLEEP;
    VarHandle.fullFence(); // see the class comment
    if (nothingToSeeTo()) {
      carriers.sparesWanted(0); // one that stood still when last seen would keep its spare for good
      while (bell == ASLEEP && !carriers.isClosing()) {
        LockSupport.park(this);
        Thread.interrupted();
      }
    }
    bell = AWAKE;
  }

  private boolean nothingToSeeTo() {
    for (Carrier carrier : carriers.all()) {
      if (carrier.hasWork()) {
        return false;
      }
    }
    return carriers.ready.isEmpty() && !carriers.pendingUnattended();
  }

  /** One round. Whether there is something that will want another soon. */
  private boolean look(long now) {
    boolean pending = lookAtPending(now);
    boolean ready = lookAtCarriers(now);
    return pending || ready;
  }

  private boolean lookAtPending(long now) {
    if (!carriers.pendingUnattended()) {
      return false;
    }
    if (carriers.anyParked()) {
      carriers.signal(); // it has nothing else to do than to poll
    } else if (carriers.nanosSincePoll(now) >= POLL_NANOS) {
      carriers.poll();
    }
    return true;
  }

  private boolean lookAtCarriers(long now) {
    boolean ready = false;
    boolean handedOver = false;
    int stuck = 0;
    int active = 0;
    for (Carrier carrier : carriers.all()) {
      boolean mounted = carrier.isMounted();
      boolean still = standsStill(carrier, now) && mounted;
      active += mounted ? 1 : 0;
      stuck += still ? 1 : 0;
      if (carrier.hasWork()) {
        ready = true;
        handedOver |= still && carrier.handOver();
      }
    }
    boolean common = !carriers.ready.isEmpty();
    if (handedOver) {
      carriers.signal();
    }
    boolean late = isCommonLate(now) || (common && stuck == active);
    if (late || carriers.sparesActive() > 0) {
      carriers.sparesWanted(sparesFor(now));
    }
    if (late && !carriers.anySearching()) {
      if (carriers.anyParked()) {
        carriers.signal();
      } else {
        carriers.useSpare(++spareNumber);
      }
    }
    return ready || common;
  }

  /** One for each that stands still: see the class comment. */
  private int sparesFor(long now) {
    int blocked = 0;
    int computing = 0;
    for (Carrier carrier : carriers.all()) {
      if (carrier.isMounted() && now - carrier.turnsSeenNanos >= LATE_NANOS) {
        if (carrier.isBlocked(now)) {
          blocked++;
        } else {
          computing++;
        }
      }
    }
    return Math.min(blocked + Math.min(computing, carriers.regulars), SPARES_MAX);
  }

  private static boolean standsStill(Carrier carrier, long now) {
    long turns = carrier.turns();
    if (turns != carrier.turnsSeen) {
      carrier.turnsSeen = turns;
      carrier.turnsSeenNanos = now;
    }
    return now - carrier.turnsSeenNanos >= LATE_NANOS;
  }

  private boolean isCommonLate(long now) {
    long taken = carriers.ready.taken();
    if (taken != takenSeen || carriers.ready.isEmpty()) {
      takenSeen = taken;
      takenSeenNanos = now;
      return false;
    }
    return now - takenSeenNanos >= LATE_NANOS;
  }
}
