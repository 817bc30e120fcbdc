package io.fairlead.task;

import io.fairlead.fault.Mutant;
import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The threads that take what the tasks of one runtime have forked, and the registry of where it
 * lies. Runners are virtual threads; they begin with the first fork and end with the runtime.
 *
 * <p><b>A runner</b> is one of
 *
 * <pre>
 * WATCHING  the one that looks for frames: there is at most one
 *   → BUSY    it took a frame, and has made another one the watcher first
 * SENT      to a deque whose owner waits; it takes the oldest frame there
 *   → BUSY    and has sent another one first, if there are more: see {@link Forks}
 *   → IDLE    there is none
 * BUSY      runs a frame. Then one that was sent takes the next there; others hunt for a moment,
 *           unless something else is ready on their carrier
 *   → IDLE    found none; leaves if enough are idle already
 * IDLE      parked until it is made the watcher, sent to a deque, or given a frame
 * </pre>
 *
 * So however many runners are blocked in frames, one more looks for the next: how many there are is
 * bounded by the frames that are blocked, not by a cap that could keep a frame waiting.
 *
 * <p><b>The watcher</b> looks, and then
 *
 * <pre>
 * NAPPING   while frames are seen: 50 µs, twice as long each time, up to 1 ms
 *   → DEEP    when none was seen for 5 ms: asleep is set, it looks once more after 20 ms, then
 *             sleeps until somebody forks. Nothing runs while nothing is forked
 * AWAKE     woken, not yet looking
 * </pre>
 *
 * <p><b>Who wakes it.</b> A fork only looks whether it is asleep: a plain read, without a fence, so
 * a fork at that very moment may be missed; the look after 20 ms is for that one. Whoever waits for
 * something of ours exposes its frames first and has a runner sent to them; one that holds none,
 * and leaves a processor with nothing to do, wakes the watcher from a nap, if there are deques of
 * others.
 *
 * <p><b>Tiny work stays where it is.</b> The watcher takes a frame only if it saw the same one, by
 * its number, 2 µs before: a pair of 1 µs jobs is joined by then. Frames that are exposed are taken
 * at first sight.
 *
 * <pre>
 * field     | writer                   | reader      | mode, guard
 * watch     | watcher; wakers (AWAKE)  | both        | volatile: the watcher writes NAPPING or DEEP,
 *           |                          |             | then looks; a waker exposes, then reads it
 * attention | watcher                  | forkers     | opaque
 * watcher   | who was it before        | wakers      | volatile, before watch
 * ring      | anyone                   | anyone      | lock
 * idle      | anyone                   | anyone      | compare-and-set of a stack of new nodes. Who
 *           |                          |             | rests pushes, then reads closed; who closes
 *           |                          |             | writes closed, then takes all: one lets it go
 * Runner.order | who gives it          | the runner  | volatile, then unpark
 * Runner.started | who made it         | who gives   | plain: published by idle, or by watcher
 * </pre>
 *
 * Lock order: {@code lock} is innermost, and held for a bounded number of steps; nothing is called
 * back under it.
 */
final class Runners {
  private static final int AWAKE = 0;
  private static final int NAPPING = 1;
  private static final int DEEP = 2;
  private static final int NONE = 3;

  private static final int ASLEEP = 1;
  private static final int HAND_OVER_ALL = 2;

  private static final long NAP_NANOS_MIN = 50_000;
  private static final long NAP_NANOS_MAX = 1_000_000;

  /** The backstop: what a fork may be late by that nobody saw. */
  private static final long DEEP_NANOS = 20_000_000;

  /** No frame seen for so long: sleep deeply. */
  private static final long EMPTY_NANOS = 5_000_000;

  /** Twice a job that is not worth taking. */
  private static final long THROTTLE_NANOS = 2_000;

  /** Looks of a runner that has just ended a frame, each {@link #THROTTLE_NANOS} at least. */
  private static final int HUNTS = 8;

  /** Deques in one look: some 10 µs. The ring goes on where it stopped. */
  private static final int LOOK_MAX = 256;

  private static final int CANDIDATES = 4;

  private static final System.Logger LOG = System.getLogger(Runners.class.getName());
  private static final VarHandle WATCH;
  private static final VarHandle ATTENTION;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      WATCH = lookup.findVarHandle(Runners.class, "watch", int.class);
      ATTENTION = lookup.findVarHandle(Runners.class, "attention", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final TaskRuntime runtime;
  private final Stealing stealing;
  private final int processors = Runtime.getRuntime().availableProcessors();

  /** Idle ones that are kept: as many as can be needed at once. */
  private final int idleMax = 2 * processors;

  private final ReentrantLock lock = new ReentrantLock();
  private final AtomicReference<@Nullable Idle> idle = new AtomicReference<>();
  private final AtomicInteger alive = new AtomicInteger();
  private @Nullable Forks ring;
  private final AtomicInteger registered = new AtomicInteger();
  private volatile boolean closed;
  private volatile int watch = NONE;
  private volatile @Nullable Runner watcher;
  private int attention;

  Runners(TaskRuntime runtime, Stealing stealing) {
    this.runtime = runtime;
    this.stealing = stealing;
    this.attention = stealing == Stealing.ALWAYS ? ASLEEP | HAND_OVER_ALL : ASLEEP;
  }

  // --- forkers, and those that wait -------------------------------------------------------------

  /** Whether a fork has more to do than to push. One plain read. */
  boolean wantsAttention() {
    // opaque: seen some time; a fork that misses it is found by the backstop
    return (int) ATTENTION.getOpaque(this) != 0;
  }

  void attend(ForkFrame frame) {
    if (stealing == Stealing.ALWAYS) {
      if (frame.takeForRunner()) {
        execute(frame);
      }
    } else {
      wake();
    }
  }

  /** Whether nobody else could run meanwhile. */
  boolean alone() {
    return processors == 1;
  }

  /** Has the watcher look now. Any thread; 2 µs if it sleeps, else a read. */
  void wake() {
    if (Mutant.on("forks.nobody-watches")) {
      return;
    }
    int seen = watch;
    // compare-and-set: of many wakers one unparks
    if (seen == AWAKE || closed || !WATCH.compareAndSet(this, seen, AWAKE)) {
      return;
    }
    if (seen == NONE) {
      makeWatcher();
    } else {
      unparkWatcher();
    }
  }

  private void unparkWatcher() {
    Runner sleeping = watcher;
    if (sleeping != null) {
      LockSupport.unpark(sleeping.thread);
    }
  }

  /** Where no thread is to be had there is none: whoever forks or waits next tries again. */
  @SuppressWarnings("CatchingUnchecked") // who forks, or has a frame to run, goes on without
  private void makeWatcher() {
    try {
      Runner idling = takeIdle();
      Runner next = idling == null ? new Runner(WATCHING) : idling;
      watcher = next;
      next.give(WATCHING);
    } catch (Throwable none) {
      watcher = null;
      watch = NONE; // volatile
      // opaque: forks look for it, and come here again
      ATTENTION.setOpaque(this, attention | ASLEEP);
      LOG.log(Level.WARNING, "no thread to be had for a runner; forks run where they are", none);
    }
  }

  /**
   * Has a runner begin this frame, which was taken for one; it fails if there is no thread to be
   * had. Any thread.
   */
  @SuppressWarnings("CatchingUnchecked") // whoever joins it must not wait for ever
  void execute(ForkFrame frame) {
    try {
      give(frame);
    } catch (Throwable none) {
      frame.failTaken(none);
    }
  }

  /**
   * Has a runner come to this deque, whose owner is about to wait. Any thread. Throws what the
   * thread factory throws where there is no thread to be had.
   */
  void send(Forks forks) {
    give(forks);
  }

  private void give(Object order) {
    Runner idling = takeIdle();
    Runner runner = idling == null ? new Runner(order) : idling;
    runner.give(order);
  }

  /** Wakes the watcher, which looks at all deques; false if there is none. */
  boolean wakesWatcher() {
    wake();
    return watch != NONE;
  }

  /** The calling thread is about to wait, and holds no frames: others' may be taken meanwhile. */
  void processorFree() {
    if (registered.get() > 1 && !Carriers.hasWorkHere()) {
      wake();
    }
  }

  /** Whether what the caller waits for needs its processor most likely. */
  boolean spinsAreVain() {
    return alone() || Carriers.hasWorkHere();
  }

  private @Nullable Runner takeIdle() {
    for (; ; ) {
      Idle newest = idle.get();
      if (newest == null || idle.compareAndSet(newest, newest.below)) {
        return newest == null ? null : newest.runner;
      }
    }
  }

  /** False if enough are kept. */
  private boolean keepIdle(Runner runner) {
    for (; ; ) {
      Idle newest = idle.get();
      int height = newest == null ? 1 : newest.height + 1;
      if (height > idleMax) {
        return false;
      }
      if (idle.compareAndSet(newest, new Idle(runner, newest, height))) {
        return true;
      }
    }
  }

  /** A stack of new nodes: one that comes back to the top is not taken for itself. */
  private record Idle(Runner runner, @Nullable Idle below, int height) {}

  private void letIdleGo() {
    for (Runner leaves = takeIdle(); leaves != null; leaves = takeIdle()) {
      leaves.give(LEAVE);
    }
  }

  // --- the registry -----------------------------------------------------------------------------

  void register(Forks forks) {
    lock.lock();
    try {
      Forks at = ring;
      if (at == null) {
        forks.ringNext = forks;
        forks.ringPrevious = forks;
        ring = forks;
      } else {
        link(forks, at);
      }
      registered.incrementAndGet();
    } finally {
      lock.unlock();
    }
  }

  @SuppressWarnings("NullAway") // who is in the ring has neighbours
  private static void link(Forks forks, Forks before) {
    forks.ringNext = before;
    forks.ringPrevious = before.ringPrevious;
    before.ringPrevious.ringNext = forks;
    before.ringPrevious = forks;
  }

  @SuppressWarnings({"NullAway", "ReferenceEquality"}) // who is in the ring has neighbours
  void unregister(Forks forks) {
    lock.lock();
    try {
      if (ring == forks) {
        ring = forks.ringNext == forks ? null : forks.ringNext;
      }
      forks.ringPrevious.ringNext = forks.ringNext;
      forks.ringNext.ringPrevious = forks.ringPrevious;
      forks.ringNext = null;
      forks.ringPrevious = null;
      registered.decrementAndGet();
    } finally {
      lock.unlock();
    }
  }

  /** How many deques there are. For tests. */
  int registered() {
    return registered.get();
  }

  /** Whether the watcher sleeps until somebody forks. For tests. */
  boolean isAsleep() {
    return watch == DEEP;
  }

  /** How many runners rest, so that the next order needs no thread. For tests. */
  int resting() {
    Idle newest = idle.get();
    return newest == null ? 0 : newest.height;
  }

  /** How many runners there are. For tests. */
  int alive() {
    return alive.get();
  }

  // --- looking ----------------------------------------------------------------------------------

  /** What one look saw; of its runner. */
  private static final class Sight {
    final Forks[] where = new Forks[CANDIDATES];
    final ForkFrame[] frames = new ForkFrame[CANDIDATES];
    final long[] numbers = new long[CANDIDATES];
    int count;
    boolean partial;

    void add(Forks forks, ForkFrame frame, long number) {
      if (count < CANDIDATES) {
        where[count] = forks;
        frames[count] = frame;
        numbers[count] = number;
        count++;
      }
    }

    @SuppressWarnings("NullAway") // forgets, so that nothing that has ended is kept alive
    void clear() {
      for (int i = 0; i < count; i++) {
        where[i] = null;
        frames[i] = null;
      }
      count = 0;
      partial = false;
    }
  }

  /** Looks at the oldest frame of each deque; takes one that is exposed at once, if it may. */
  @SuppressWarnings("NullAway") // who is in the ring has a next
  private @Nullable ForkFrame look(Sight sight, boolean mayTake) {
    sight.clear();
    lock.lock();
    try {
      int all = registered.get();
      int steps = Math.min(all, LOOK_MAX);
      sight.partial = steps < all;
      for (int i = 0; i < steps; i++) {
        Forks forks = ring;
        ring = forks.ringNext;
        ForkFrame frame = forks.oldest();
        long number = frame == null ? 0 : frame.waiting();
        if (number != 0) {
          if (mayTake && forks.isExposed() && forks.take(frame, number)) {
            return frame;
          }
          sight.add(forks, frame, number);
        }
      }
      return null;
    } finally {
      lock.unlock();
    }
  }

  /** Looks twice, and takes what still waits then. */
  private @Nullable ForkFrame find(Sight sight) {
    ForkFrame exposed = look(sight, true);
    if (exposed != null || sight.count == 0 || stealing == Stealing.NEVER) {
      return exposed;
    }
    if (alone()) {
      // a parent that computes is better left alone; one that waits elsewhere waits for this long
      LockSupport.parkNanos(this, DEEP_NANOS);
    } else if (!Mutant.on("forks.no-throttle")) {
      for (long end = System.nanoTime() + THROTTLE_NANOS; System.nanoTime() - end < 0; ) {
        Thread.onSpinWait();
      }
    }
    for (int i = 0; i < sight.count; i++) {
      if (sight.where[i].take(sight.frames[i], sight.numbers[i])) {
        return sight.frames[i];
      }
    }
    return null;
  }

  // --- closing ----------------------------------------------------------------------------------

  /** Lets all runners go. Scopes are closed by then, so none is in a frame. */
  void close() {
    closed = true; // volatile, before the look at who is idle
    letIdleGo();
    unparkWatcher();
  }

  // --- a runner ---------------------------------------------------------------------------------

  private static final Object WATCHING = new Object();
  private static final Object LEAVE = new Object();

  private final class Runner {
    /** Null until it looks for frames: most are only sent where they lie. */
    private @Nullable Sight seen;

    private final Thread thread;
    private boolean started;
    private volatile @Nullable Object order;

    Runner(Object firstOrder) {
      this.order = firstOrder;
      this.thread = runtime.threads().newThread(this::begin);
      alive.incrementAndGet();
    }

    /** By whoever took it out of idle, or made it. */
    void give(Object next) {
      order = next; // volatile, and unpark after it: the runner reads it after its park
      if (started) {
        LockSupport.unpark(thread);
      } else {
        started = true;
        start();
      }
    }

    private void start() {
      boolean runs = false;
      try {
        thread.start();
        runs = true;
      } finally {
        if (!runs) {
          alive.decrementAndGet();
        }
      }
    }

    @SuppressWarnings("CatchingUnchecked") // said, since nobody else would hear of it
    private void begin() {
      try {
        Execution.begin(
            Task.root(),
            () -> {
              loop(Objects.requireNonNull(Execution.current()));
              return null;
            });
      } catch (Throwable bug) {
        LOG.log(Level.ERROR, "a runner ended by a bug of its own", bug);
      } finally {
        alive.decrementAndGet();
      }
    }

    @SuppressWarnings("ReferenceEquality") // orders are what they are
    private void loop(Execution execution) {
      for (Object next = order; next != LEAVE; next = rest()) {
        if (next instanceof Forks forks) {
          help(forks, execution);
          continue;
        }
        ForkFrame frame = next == WATCHING ? watch() : (ForkFrame) next;
        while (frame != null) {
          run(frame, execution);
          frame = Carriers.hasWorkHere() ? null : hunt();
        }
      }
    }

    private void help(Forks forks, Execution execution) {
      ForkFrame frame = forks.takeAsSent();
      while (frame != null) {
        run(frame, execution);
        frame = forks.takeExposed();
      }
    }

    private void run(ForkFrame frame, Execution execution) {
      frame.runTaken(execution, Runners.this);
      Thread.interrupted(); // meant for what has ended
    }

    /** A processor is warm: looks a few times before it rests. */
    @SuppressWarnings("ThreadPriorityCheck") // those that were woken come first
    private @Nullable ForkFrame hunt() {
      for (int i = 0; i < HUNTS && !closed && !alone(); i++) {
        Thread.yield();
        ForkFrame frame = find(sight());
        if (frame != null) {
          return frame;
        }
      }
      return null;
    }

    private Sight sight() {
      Sight known = seen;
      if (known == null) {
        known = new Sight();
        seen = known;
      }
      return known;
    }

    private Object rest() {
      if (seen != null) {
        seen.clear();
      }
      order = null;
      if (!keepIdle(this)) {
        return LEAVE;
      }
      if (closed) {
        letIdleGo(); // this one too, unless somebody else did
      }
      for (; ; ) {
        Object given = order;
        if (given != null) {
          return given;
        }
        LockSupport.park(Runners.this);
        Thread.interrupted(); // nobody interrupts a runner that rests; what is left is forgotten
      }
    }

    // --- as the watcher

    /** Until it has taken a frame, and somebody else watches; null when all is closed. */
    private @Nullable ForkFrame watch() {
      long shortest = processors == 1 ? DEEP_NANOS : NAP_NANOS_MIN;
      long nap = shortest;
      long seenAt = System.nanoTime();
      Sight sight = sight();
      while (!closed) {
        watch = NAPPING; // volatile, then the look: see the table
        ForkFrame frame = find(sight);
        if (frame != null) {
          makeWatcher();
          return frame;
        }
        if (sight.count > 0 || sight.partial) {
          seenAt = System.nanoTime();
        } else if (System.nanoTime() - seenAt > EMPTY_NANOS) {
          sleepDeeply();
          nap = shortest;
          seenAt = System.nanoTime();
          continue;
        }
        sight.clear();
        LockSupport.parkNanos(Runners.this, nap);
        nap = watch == AWAKE ? shortest : Math.min(2 * nap, Math.max(shortest, NAP_NANOS_MAX));
      }
      return null;
    }

    private void sleepDeeply() {
      ATTENTION.setOpaque(Runners.this, attention | ASLEEP);
      // compare-and-set: somebody may have woken it since the look
      if (WATCH.compareAndSet(Runners.this, NAPPING, DEEP) && !seesAny()) {
        LockSupport.parkNanos(Runners.this, DEEP_NANOS);
        while (watch == DEEP && !closed && !seesAny()) {
          // once more: a look may have parked for its lock, and eaten the unpark that came with it
          if (watch == DEEP && !closed) {
            LockSupport.park(Runners.this);
          }
        }
      }
      ATTENTION.setOpaque(Runners.this, attention & ~ASLEEP);
    }

    private boolean seesAny() {
      Sight sight = sight();
      look(sight, false);
      boolean any = sight.count > 0 || sight.partial;
      sight.clear();
      return any;
    }
  }
}
