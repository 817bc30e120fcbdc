package io.fairlead.memory;

import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Makes room on the device itself, whatever the limit says: for others who allocate there without
 * Fairlead, and for a buffer that the driver has no room for.
 *
 * <h2>The steps, as long as it is not enough</h2>
 *
 * <ol>
 *   <li>What nobody uses goes back to the device: from the driver's shared pool, and from ours.
 *   <li>Frees that the device has not reached are waited for.
 *   <li>{@link Spillable}s outside of the limit that come before every buffer are asked.
 *   <li>Buffers leave, and spillables within the limit are asked, as for whoever waits for memory
 *       of the limit; what they had goes back to the device, too.
 *   <li>The other spillables are asked.
 * </ol>
 *
 * <p><b>Against ourselves.</b> The limit knows nothing of what others allocate. So all of it that
 * is free is taken while this makes room, and what has left for them is kept from our own
 * allocations for {@link #KEPT_NANOS} more: he who has asked comes first. Where nothing can leave
 * since all of it is in use, it is given back and asked for again, after a pause: else those who
 * use it would have to wait for what is kept from them, as long as he does.
 *
 * <p><b>Threads.</b> Any that may wait; no locks are held. Nobody is told by whom it is waited for,
 * since it is for a time only.
 */
final class Pressure {
  /** Longer than a failed allocation takes to be tried again, and short for who waits for us. */
  private static final long KEPT_NANOS = 100_000_000;

  private static final long PAUSE_MIN_NANOS = 1_000_000;
  private static final long PAUSE_MAX_NANOS = 20_000_000;

  /** A part of the limit that leaves at a time, so that it ends soon after it is enough. */
  private static final int STEPS = 8;

  private final Budget budget;
  private final Reclaimer reclaimer;
  private final Pool pool;
  private final DriverPool drivers;
  private final Spiller spiller;
  private final Spillables others;

  /** Who it is that the limit's bytes are kept for. */
  private final Account account = new Account("others on the device", 0, null);

  /** Of the limit, in use by nobody of ours. */
  private final AtomicLong kept = new AtomicLong();

  Pressure(
      Budget budget,
      Reclaimer reclaimer,
      Pool pool,
      DriverPool drivers,
      Spiller spiller,
      Spillables others) {
    this.budget = budget;
    this.reclaimer = reclaimer;
    this.pool = pool;
    this.drivers = drivers;
    this.spiller = spiller;
    this.others = others;
  }

  /** Bytes that count as in use, and that no buffer has. */
  long kept() {
    return kept.get();
  }

  /**
   * Makes room until so many bytes are free for anybody, or the time has passed, or nothing more
   * can be done.
   *
   * @return how many are free then
   */
  long makeRoom(long bytes, long nanos) {
    if (!Role.current().mayWait() || Spillables.isInside()) {
      return drivers.memoryInfo().outsideBytes();
    }
    Effort effort = new Effort(bytes, System.nanoTime() + nanos);
    try {
      return effort.run();
    } finally {
      effort.end();
    }
  }

  // --- what others have outside of the limit -----------------------------------------------

  /**
   * Asks one more of them, the first in their order, and waits for its answer.
   *
   * @param tried who has given nothing, as one sees at the device
   * @param all also those that come after a buffer of ours
   * @return whether there was one
   */
  boolean askNext(long bytes, Set<SpillRegistration> tried, boolean all, long deadline) {
    SpillRegistration next = next(tried, all);
    if (next == null) {
      return false;
    }
    long before = drivers.memoryInfo().freeBytes();
    Completion<Long> answer = others.ask(next, bytes);
    if (answer == null) {
      tried.add(next); // somebody else has just asked it
      return true;
    }
    long now = System.nanoTime();
    long patience = Math.min(Spillables.patienceNanos, deadline - now);
    boolean said = Waiting.hasCome(answer, now + patience) && answer.getNow() > 0;
    if (!answer.isDone()) {
      next.isLate();
    }
    if (!said || drivers.memoryInfo().freeBytes() <= before) {
      tried.add(next);
    }
    return true;
  }

  private @Nullable SpillRegistration next(Set<SpillRegistration> tried, boolean all) {
    return others.open(Spillable.Memory.UNTRACKED).stream()
        .filter(each -> each.isReady() && !tried.contains(each))
        .min(
            Comparator.comparingInt(SpillRegistration::rank)
                .thenComparingLong(SpillRegistration::lastUse))
        .filter(each -> all || spiller.isBeforeBuffers(each))
        .orElse(null);
  }

  // --- one who asks -------------------------------------------------------------------------

  /** Of one thread. */
  private final class Effort {
    private final long bytes;
    private final long deadline;
    private final Set<SpillRegistration> tried = new HashSet<>();

    /** What has left for him. */
    private final List<Charge> left = new ArrayList<>();

    private long pauseNanos = PAUSE_MIN_NANOS;

    Effort(long bytes, long deadline) {
      this.bytes = bytes;
      this.deadline = deadline;
    }

    long run() {
      boolean goesOn = true;
      while (true) {
        long free = giveUnused();
        boolean freed = free < bytes && awaitFrees();
        free = freed ? giveUnused() : free;
        if (free >= bytes || !goesOn || isLate()) {
          return free;
        }
        boolean helped =
            askNext(bytes - free, tried, false, deadline)
                || leave(bytes - free)
                || askNext(bytes - free, tried, true, deadline)
                || freed;
        goesOn = helped || letOthersGoOn();
        pauseNanos = helped ? PAUSE_MIN_NANOS : Math.min(2 * pauseNanos, PAUSE_MAX_NANOS);
      }
    }

    /**
     * What is in use now need not be later, as long as its users go on: so they may have for a
     * moment what is kept from them.
     *
     * @return false if nothing can leave later either, or there is no time for that
     */
    private boolean letOthersGoOn() {
      if (!spiller.canHelp() || isVain() || deadline - System.nanoTime() <= pauseNanos) {
        return false;
      }
      if (!keepsOn()) {
        left.forEach(this::giveBack);
        left.clear();
      }
      Waiting.pause(pauseNanos);
      return true;
    }

    private boolean isLate() {
      return System.nanoTime() - deadline >= 0;
    }

    /** Answers what is free for anybody after that. */
    private long giveUnused() {
      MemoryInfo info = drivers.memoryInfo();
      if (info.outsideBytes() >= bytes) {
        return info.outsideBytes();
      }
      reclaimer.sweep();
      if (pool.cached() > 0) {
        Waiting.hasCome(pool.trim(Long.MAX_VALUE), deadline);
        info = drivers.memoryInfo();
      }
      // no more than it takes: what stays in the driver's pool is had again for nothing
      long missing = bytes - info.outsideBytes();
      if (drivers.trimShared(Math.max(0, info.poolBytes() - missing))) {
        info = drivers.memoryInfo();
      }
      return info.outsideBytes();
    }

    /** Whether the device had something to do with, and has come to it. */
    private boolean awaitFrees() {
      long pending = budget.pendingFree();
      if (pending == 0) {
        return false;
      }
      reclaimer.awaitOldest(Math.max(0, deadline - System.nanoTime()));
      return budget.pendingFree() < pending;
    }

    /** Whether so much, or a part of it, has left the device. */
    private boolean leave(long missing) {
      if (!spiller.canHelp()) {
        return false;
      }
      long step = Math.max(Sizes.GRANULE, budget.limit() / STEPS);
      long wanted = Sizes.rounded(Math.min(missing, step));
      Charge free = takeFree();
      try {
        Charge room = await(wanted);
        if (room != null) {
          left.add(room);
        }
        return room != null;
      } finally {
        if (free != null) {
          giveBack(free);
        }
      }
    }

    /** All that is free of the limit, so that what is missing there is missing on the device. */
    private @Nullable Charge takeFree() {
      long free = budget.freeBytes();
      if (free <= 0) {
        return null;
      }
      Budget.Request request = budget.chargeForOthers(account, free);
      if (!budget.isGranted(request)) {
        Waiting.forget(budget, request); // somebody was quicker
        return null;
      }
      return noted(request.charge);
    }

    private @Nullable Charge await(long wanted) {
      Budget.Request request = budget.chargeForOthers(account, wanted);
      boolean granted = false;
      try {
        if (request.source != null) {
          spiller.needed();
        }
        long pause = PAUSE_MIN_NANOS;
        while (!granted) {
          long rest = deadline - System.nanoTime();
          boolean vain = rest <= 0 || isVain() || (spiller.standsStill() && !keepsOn());
          granted = Waiting.await(budget, reclaimer, request, vain ? 0 : Math.min(pause, rest));
          if (!granted && vain) {
            return null;
          }
          pause = Math.min(2 * pause, PAUSE_MAX_NANOS);
        }
        return noted(request.charge);
      } finally {
        if (!granted) {
          Waiting.forget(budget, request);
        }
      }
    }

    private static boolean keepsOn() {
      return Mutant.on("pressure.keeps-on");
    }

    /** Whether nothing can leave any more. */
    private boolean isVain() {
      return spiller.isExhausted() && !spiller.othersMayGive() && !spiller.isBusy();
    }

    private @Nullable Charge noted(@Nullable Charge charge) {
      if (charge != null) {
        kept.addAndGet(charge.bytes);
      }
      return charge;
    }

    private void giveBack(Charge charge) {
      kept.addAndGet(-charge.bytes);
      budget.cancel(charge);
    }

    void end() {
      if (!left.isEmpty()) {
        // the JDK's own timer: no thread of ours for something that hardly ever happens
        Future<?> _ =
            ForkJoinPool.commonPool()
                .schedule(() -> left.forEach(this::giveBack), KEPT_NANOS, TimeUnit.NANOSECONDS);
      }
    }
  }
}
