package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.locks.LockSupport;

/**
 * Looks after carriers that cannot look after themselves, because the task on them does not
 * suspend.
 *
 * <pre>
 * AWAKE   every 100 µs while something is late, else up to 1 ms: polls, or wakes a carrier that
 *         does, if none did for 100 µs; hands over what lies with a carrier that stands still for
 *         200 µs; has a spare carrier work if nobody else is free
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
 * Carriers that stand still are of two kinds. One that is blocked, in native code, in a pinned wait
 * or in a callback of its poll, uses no processor: a spare takes its place. One that computes is
 * given a spare too, so that ready work shares the processors with it, but only one for each
 * processor. One whose task forks does not stand still: it takes what is ready at a fork, and a
 * spare would take the processor from it.
 *
 * <p>Where no carrier is free it polls itself, and so runs callbacks. It looks at the carriers
 * while one waits for a lock of the runtime; while a stranger's callback blocks here, nobody does.
 *
 * <p>What lies with a carrier that has not moved for 200 µs is handed over whatever the carrier
 * does: it may have lost its processor on the way from a poll to what that has found, or have come
 * by a fork just before.
 */
final class Watcher extends RoleThread {
  private static final int AWAKE = 0;
  private static final int ASLEEP = 1;

  /** Ready work has waited so long with a carrier that stands still: others shall have it. */
  static final long LATE_NANOS = 200_000;

  private static final long NAP_NANOS_FIRST = 100_000;
  private static final long NAP_NANOS_MAX = 1_000_000;

  /** Longest nap while work is ready: with the time until it counts as late, less than 1 ms. */
  private static final long NAP_NANOS_READY = 500_000;

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

  /** A carrier was blocked within a poll when spares were last counted. */
  private boolean heldUp;

  private long lookedNanos;
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
  void work() {
    int quiet = 0;
    int calm = 0;
    while (!carriers.isClosing()) {
      Need need = look(System.nanoTime());
      calm = need == Need.NOW ? 0 : calm + 1;
      quiet = need == Need.NOTHING ? quiet + 1 : 0;
      if (quiet < QUIET_ROUNDS) {
        LockSupport.parkNanos(this, napNanos(need, calm));
      } else {
        fallAsleep();
        quiet = 0;
        calm = 0;
      }
      Thread.interrupted();
    }
  }

  /** Where nothing waits too long, each look takes a little time from those who work. */
  private static long napNanos(Need need, int calm) {
    long max = need == Need.SOON ? NAP_NANOS_READY : NAP_NANOS_MAX;
    return Math.min(NAP_NANOS_FIRST << Math.min(calm, 10), max);
  }

  private void fallAsleep() {
    if (mayFallAsleep()) {
      carriers.sparesWanted(0); // one that stood still when last seen would keep its spare for good
      while (bell == ASLEEP && !carriers.isClosing()) {
        LockSupport.park(this);
        Thread.interrupted();
      }
    }
    bell = AWAKE;
  }

  /** Announces that it sleeps, then looks once more: whether it may. */
  boolean mayFallAsleep() {
    bell = ASLEEP;
    VarHandle.fullFence(); // see the class comment
    return nothingToSeeTo();
  }

  private boolean nothingToSeeTo() {
    for (Carrier carrier : carriers.all()) {
      if (carrier.hasWork()) {
        return false;
      }
    }
    return carriers.ready.isEmpty() && !carriers.pendingUnattended();
  }

  /** When there has to be another round; the most urgent first. */
  enum Need {
    /** Something waits, with a carrier that stands still or with nobody to poll it. */
    NOW,
    /** Something is ready, or pending and looked at, and carriers go on. */
    SOON,
    NOTHING
  }

  /** One round. */
  Need look(long now) {
    Need pending = lookAtPending(now);
    Need ready = lookAtCarriers(now);
    return pending.compareTo(ready) < 0 ? pending : ready;
  }

  private Need lookAtPending(long now) {
    return switch (carriers.attention(now)) {
      case ENOUGH -> Need.NOTHING;
      case LIVELY -> Need.SOON;
      case NONE -> {
        if (carriers.anyParked()) {
          carriers.signal(); // it has nothing else to do than to poll
        } else {
          carriers.poll();
        }
        yield Need.NOW;
      }
    };
  }

  /** By itself, in a poll of its own that waits for a lock. */
  void lookWhileItWaits() {
    long now = System.nanoTime();
    if (now - lookedNanos > NAP_NANOS_FIRST) {
      lookedNanos = now;
      Need _ = lookAtCarriers(now);
    }
  }

  private Need lookAtCarriers(long now) {
    boolean ready = false;
    boolean handedOver = false;
    int stuck = 0;
    int active = 0;
    for (Carrier carrier : carriers.all()) {
      boolean mounted = carrier.isMounted();
      boolean unmoved = isUnmoved(carrier, now);
      boolean still = unmoved && mounted && !carrier.forksNow(now);
      carrier.still = still;
      carrier.heldUp = isHeldUp(carrier, now) && unmoved;
      active += mounted ? 1 : 0;
      stuck += still ? 1 : 0;
      if (carrier.hasWork()) {
        ready = true;
        handedOver |= unmoved && carrier.handOver();
      }
    }
    boolean common = !carriers.ready.isEmpty();
    if (handedOver) {
      carriers.signal();
    }
    boolean overdue = isCommonLate(now);
    boolean late = overdue || (common && stuck == active);
    if (late || carriers.sparesActive() > 0) {
      carriers.sparesWanted(sparesFor(now));
    }
    if (late && (overdue || !carriers.anySearching())) {
      if (carriers.anyParked()) {
        carriers.signalAlthoughOthersSearch();
      } else if (heldUp || !carriers.anySearching()) {
        carriers.useSpare(++spareNumber);
      }
    }
    if (!ready && !common) {
      return Need.NOTHING;
    }
    return late || stuck > 0 ? Need.NOW : Need.SOON;
  }

  /** One for each that stands still: see the class comment. */
  private int sparesFor(long now) {
    int blocked = 0;
    int computing = 0;
    heldUp = false;
    for (Carrier carrier : carriers.all()) {
      if (carrier.heldUp && carrier.isBlocked(now)) {
        heldUp = true;
        blocked++;
      } else if (carrier.heldUp && carrier.isCalling()) {
        heldUp = true;
        computing++;
      } else if (carrier.still) {
        if (carrier.isBlocked(now)) {
          blocked++;
        } else {
          computing++;
        }
      }
    }
    return Math.min(blocked + Math.min(computing, carriers.regulars), SPARES_MAX);
  }

  private static boolean isUnmoved(Carrier carrier, long now) {
    long turns = carrier.turns();
    if (turns != carrier.turnsSeen) {
      carrier.turnsSeen = turns;
      carrier.turnsSeenNanos = now;
    }
    return now - carrier.turnsSeenNanos >= LATE_NANOS;
  }

  /** Between two tasks, awake, for so long. */
  private static boolean isHeldUp(Carrier carrier, long now) {
    if (!carrier.mayBeHeldUp()) {
      carrier.notHeldUpNanos = now;
    }
    return now - carrier.notHeldUpNanos >= LATE_NANOS;
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
