package io.fairlead.memory;

import io.fairlead.task.Completion;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/**
 * A {@link Spillable} that a device knows of. Keep it as long as that is to be asked: nothing else
 * keeps it, nor the spillable, so both can be collected together, and are not asked any more then.
 *
 * <pre>
 * IDLE --asked--> CALLED --returned--> IDLE
 *  \--close--> CLOSED  \--close--> CLOSING --returned--> CLOSED
 * </pre>
 *
 * <pre>
 * field             | writer           | reader | mode
 * ------------------|------------------|--------|-------------------------------------------------
 * state             | who asks, closes,| any    | compare-and-set
 *                   | or has called    |        |
 * began             | who asks         | any    | volatile, before the state: who sees a call sees
 *                   |                  |        | that it has begun just now
 * priority, lastUse | any              | any    | volatile: late is right too
 * spent             | who has asked;   | any    | volatile: when it was found to give nothing; 0 once
 *                   | used()           |        | it may give again
 * pressing          | any              | any    | atomic
 * </pre>
 *
 * <p><b>Threads.</b> Any, for every method.
 */
public final class SpillRegistration implements AutoCloseable {
  private static final System.Logger LOG = System.getLogger("io.fairlead.memory");

  private static final int IDLE = 0;
  private static final int CALLED = 1;
  private static final int CLOSING = 2;
  private static final int CLOSED = 3;

  final String name;
  final Spillable.Memory memory;
  private final Device device;
  private final Spillable spillable;
  private final Ticks ticks;
  private final AtomicInteger state = new AtomicInteger(IDLE);

  /** Calls of {@link #makeRoom}: who is inside of one cannot give anything himself. */
  private final AtomicInteger pressing = new AtomicInteger();

  private final Completion.Source<@Nullable Void> ended = Completion.source();
  private final LongAdder calls = new LongAdder();
  private final LongAdder freed = new LongAdder();
  private final LongAdder failures = new LongAdder();
  private final LongAdder late = new LongAdder();
  private volatile int priority;
  private volatile long lastUse;
  private volatile long spent;
  private volatile long began;

  SpillRegistration(
      Device device, Ticks ticks, String name, Spillable.Memory memory, Spillable spillable) {
    this.device = device;
    this.ticks = ticks;
    this.name = Objects.requireNonNull(name, "name");
    this.memory = Objects.requireNonNull(memory, "memory");
    this.spillable = Objects.requireNonNull(spillable, "spillable");
    this.lastUse = ticks.now;
  }

  /**
   * Says that it was used just now, so that what was used before goes first, and that it may have
   * something to give again. Cheap, so it can be said of each use; does not block.
   */
  public void used() {
    long now = ticks.now;
    if (lastUse != now) {
      lastUse = now;
    }
    if (spent != 0) {
      spent = 0;
      device.spiller().mayPick();
    }
  }

  /**
   * Says who is asked first: lower ones before higher ones, as for {@link DeviceBuffer#priority}. 0
   * for one that nobody has said it of. Does not block.
   */
  public void priority(int priority) {
    this.priority = priority;
  }

  /**
   * As {@link Device#makeRoom}, for what is registered here: it is not asked itself meanwhile,
   * since it may hold a lock just then. For the callback of a library's allocator that has failed.
   */
  public long makeRoom(long bytes, Duration atMost) {
    pressing.incrementAndGet();
    try {
      return device.makeRoom(bytes, atMost);
    } finally {
      pressing.decrementAndGet();
    }
  }

  /** What has become of asking it so far. Does not block. */
  public SpillableStats stats() {
    return new SpillableStats(calls.sum(), freed.sum(), failures.sum(), late.sum());
  }

  /**
   * It is not asked from now on. Does not wait for a call that is going on, so it may be closed
   * from inside of one, or under a lock that one wants: {@link #ended} tells when that has
   * returned. Twice is harmless.
   */
  @Override
  public void close() {
    if (state.compareAndSet(IDLE, CLOSED)) {
      device.spillables().closed();
      ended.complete(null);
    } else if (state.compareAndSet(CALLED, CLOSING)) {
      device.spillables().closed();
    } else if (state.get() == IDLE) {
      close(); // a call has just returned
    }
  }

  /** Done once it is closed and no call of it is going on: then nothing of it is used any more. */
  public Completion<@Nullable Void> ended() {
    return ended.completion();
  }

  @Override
  public String toString() {
    SpillableStats now = stats();
    return "'"
        + name
        + "' (priority "
        + priority
        + (memory == Spillable.Memory.UNTRACKED ? ", outside of the limit" : "")
        + ") was asked "
        + now.calls()
        + " times, and freed "
        + Sizes.text(now.freedBytes())
        + (isCalled() ? "; a call has not returned" : "")
        + (now.failures() == 0 ? "" : "; " + now.failures() + " calls failed");
  }

  // --- for those who ask --------------------------------------------------------------------

  int rank() {
    return priority;
  }

  long lastUse() {
    return lastUse;
  }

  boolean isOpen() {
    int now = state.get();
    return now == IDLE || now == CALLED;
  }

  boolean isCalled() {
    int now = state.get();
    return now == CALLED || now == CLOSING;
  }

  /** Whether a call is going on that others still wait for. */
  boolean isAnswering(long now) {
    return isCalled() && now - began < Spillables.patienceNanos;
  }

  /** Whether a call can begin now. */
  boolean isReady() {
    return state.get() == IDLE && pressing.get() == 0;
  }

  /** Whether it was found to give nothing, and nothing is known to have changed since. */
  boolean isSpent() {
    return spent != 0;
  }

  /** The same, within the pause before it is asked again all the same. */
  boolean isResting(long now) {
    long since = spent;
    return since != 0 && now - since < Spillables.restNanos;
  }

  void spend(long now) {
    spent = now == 0 ? 1 : now;
  }

  /** Somebody goes on without it. */
  void isLate() {
    late.increment();
  }

  boolean begin() {
    if (state.get() != IDLE) {
      return false;
    }
    began = System.nanoTime();
    boolean begins = state.compareAndSet(IDLE, CALLED);
    calls.add(begins ? 1 : 0);
    return begins;
  }

  /** On a thread of its own, in a task. What it answers is not yet what is true. */
  long call(long bytes) throws Exception {
    if (spillable.spillableBytes() <= 0) {
      return 0;
    }
    long said = Math.max(0, spillable.spill(bytes));
    freed.add(said);
    return said;
  }

  void failed(Throwable failure) {
    failures.increment();
    // one that fails once fails again: the first time shows what is wrong
    System.Logger.Level level =
        failures.sum() == 1 ? System.Logger.Level.WARNING : System.Logger.Level.DEBUG;
    LOG.log(
        level,
        () ->
            "spillable '" + name + "' of " + device + " threw, and counts as having freed nothing",
        failure);
  }

  void end() {
    if (!state.compareAndSet(CALLED, IDLE)) {
      state.set(CLOSED);
      ended.complete(null);
    }
  }
}
