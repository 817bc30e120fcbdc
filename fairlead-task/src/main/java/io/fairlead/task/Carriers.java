package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The platform threads on which tasks run, as one: a scheduler for virtual threads that also polls
 * completions. One for the process, started by the first runtime that wants it and never ended, for
 * a virtual thread may outlive every runtime; idle, it costs nothing.
 *
 * <p><b>A carrier's life.</b>
 *
 * <pre>
 * BUSY       takes from its next slot, its own queue, the common queue; runs it
 *   → SEARCHING  nothing of its own: steals, polls, spins for a while. Counted in
 *                `searching`: while one searches, nobody is woken
 *   → PARKED     announced (bell), looked once more, asleep; the attendant naps instead
 *   → SEARCHING  woken by one who made work ready, and who counted it as searching
 * SEARCHING → BUSY   found something; the last searcher wakes another if there is more
 * </pre>
 *
 * <b>Park and wake.</b> No wake is lost, and one piece of work wakes at most one carrier, unless it
 * is late, and the watcher wakes one more:
 *
 * <pre>
 * producer:  publish; FENCE; searching > 0? → done: a searcher will look once more
 *                            no bell says PARKED? → done: all are busy, and the watcher sees to it
 *                            searching 0 → 1; take one PARKED bell, unpark; none left: searching - 1
 *                            and look again whether one has parked meanwhile
 * carrier:   searching - 1; bell = PARKED; FENCE; look at everything
 *                            found? take the bell back, or be the one who was woken
 * mover:     takes several, keeps one; FENCE; the rest is work that it has published
 * </pre>
 *
 * A producer that saw `searching` > 0 read it before that searcher took itself off, so the
 * searcher's last look comes after the publication. A producer that saw no bell likewise comes
 * before the last look of whoever parks next. A waker that finds no bell has hidden later producers
 * behind its count: hence its second look, after it took itself off.
 *
 * <p><b>The attendant</b> is the one idle carrier that sees to what is pending with a source; the
 * others sleep. It is the one that went idle last, since what its task waits for is most likely
 * what ends next, and goes on best where it is warm. It runs what it finds at once.
 *
 * <pre>
 * attendant  | goes to                    | when, and what sees to it that no source is forgotten
 * none       | a carrier that goes idle   | something is pending: it looks, then swaps itself in
 * another    | the same                   | likewise, without asking: that one sees it at its next
 *            |                            | look, and sleeps
 * none       | one that rests             | it has said that it will park; swaps itself in, and looks
 *            |                            | then: of two that rest at once each sees the other's
 *            |                            | claim, or none is needed
 * itself     | none                       | it rests and nothing is pending: it looks once more
 *            |                            | afterwards, for who relied on it. What is pending later
 *            |                            | rings
 * itself     | none                       | it goes to run something: afterwards it looks whether
 *            |                            | the watcher sleeps while something is pending
 * </pre>
 *
 * It searches on for {@link Nap#SEARCH_NANOS}, then it naps, for a share of the time that it has
 * waited. A ring wakes it from a nap, and it searches on again. While carriers are all busy, or
 * sleep because the attendant has just gone to run something, the watcher polls, or wakes one. What
 * a busy carrier finds between two tasks it puts into the common queue and takes from there, so
 * that others go on with it at their next fork if the system takes the processor away just then.
 *
 * <p><b>A task that waits</b> for what is found by looking, or for an owner, on a carrier with
 * nothing else to do, looks in the carrier's place before it parks: being put down and taken up
 * again costs more than a microsecond, and the carrier would do nothing but look. To all others the
 * carrier is idle meanwhile: not mounted, counted as searching, the attendant as if it had gone
 * idle. The task looks at its own end and whether there is anything that a carrier would run or
 * find, its own queues, the common one, what could be stolen, who waits for its turn, what a poll
 * might find. As soon as there is, it takes the carrier off the searchers and parks, and the
 * carrier sees to it. The time that it looked is the carrier's: together they search no longer than
 * a carrier alone.
 *
 * <pre>
 * looking task                            | then
 * its end is there                        | searching - 1; the last one wakes another if there is
 *                                         | work; leaves the attendance; goes on
 * work, a find, its turn is wanted, an    | searching - 1; leaves the attendance; parks. The carrier
 * interrupt, a deadline, time over        | looks at everything, and before it parks again
 * another took the attendance over        | the same; the carrier does not take it back
 * it is pinned, so the carrier never looks | the watcher was woken if there was work
 * </pre>
 *
 * It runs no callbacks but those that its own poll brings along, once it counts no more: a poll of
 * sources is no task's, and may suspend, which must not happen while it stands for the carrier.
 *
 * <p><b>The next slot</b> is not published in that sense: what a running task wakes last waits
 * there for it to suspend, since waking a carrier costs more than most tasks go on for. A task that
 * is known to go on signals at once, and a searcher may take what it left at sight. From any other
 * it takes what it has seen there for 2 µs of one turn; else the watcher finds it after 200 µs.
 *
 * <pre>
 * field      | writer                | reader   | mode, guard
 * all        | watcher (spares come and go) | anyone | copy on write
 * searching  | carriers, wakers, watcher | producers | atomic: see above
 * bell (of each) | its carrier, wakers | wakers | volatile, compare-and-set: one waker for each park
 * attendant  | carriers              | carriers, watcher | volatile; taken over by a write, given up by
 *            |                       |          | compare-and-set, so that only who has it does
 * sparesWanted | watcher             | spares   | volatile
 * sparesActive | watcher, spares     | same     | atomic
 * lastPoll   | who polls, who looks  | carriers, watcher | opaque: a hint
 * lastWholePoll | who polls          | who looks | opaque: a hint
 * looksSince | who looks             | same     | opaque: a hint; first look since that poll
 * sources    | anyone                | carriers | copy on write
 * watching   | watcher, producers    | producers | volatile, compare-and-set, as a bell
 * </pre>
 *
 * Lock order: no locks but the try-locks of {@link ReadyQueue} and {@link Polled}, which nobody
 * waits for, and the monitor under which spares come and go. Carrier code must take no lock that a
 * virtual thread can hold when it suspends, nor stand in a queue behind one: the carrier would wait
 * for a thread that waits for a carrier. Callbacks of completions may all the same. So a carrier
 * takes itself off the searchers, and leaves the attendance, before it runs the first one of a
 * poll, and counts again after the poll; what lies with it meanwhile the watcher gives to others,
 * to a spare if need be. Tasks that may run there only wait; they hold no lock of the runtime then
 * ({@link BriefLock}).
 */
final class Carriers {

  /**
   * Turns between two looks at the common queue and the sources: prime, so that no rhythm hides.
   */
  static final int TURNS_PER_LOOK = 61;

  /** Longest time between two polls of a carrier that is busy with short tasks. */
  static final long POLL_NANOS = 50_000;

  /** Nobody polled for so long while something is pending: the watcher sees to it. */
  static final long UNATTENDED_NANOS = 100_000;

  /** A task that forks lets its carrier look at the common queue no more often than this. */
  static final long READY_NANOS = 10_000;

  /**
   * How long a carrier searches before it parks: about what a park and a wake cost together, 25 to
   * 45 µs on virtual machines. A task that waits for an owner which slept then has its carrier
   * awake.
   */
  static final long SEARCH_NANOS = 50_000;

  /** Looks of a searcher, some 100 ns each, between two times that it lets others run. */
  static final int SEARCHES_PER_YIELD = 32;

  /**
   * The same of a task that looks, most likely for an owner that it has woken just now: where that
   * one was put behind it, nothing comes before it yields.
   */
  static final int LOOKS_PER_YIELD = 8;

  /** Longest nap while something is pending, whatever its source says. */
  static final long NAP_NANOS_MAX = 20_000_000;

  /**
   * A busy carrier whose task forks polls no more often than this: a poll costs it a yield, some 1
   * µs, and the look at the clock that leads there comes every 10 to 25 µs.
   */
  static final long FORK_POLL_NANOS = 25_000;

  /**
   * Longest time without a poll while tasks look: a source may do more in it than find ends. Each
   * one wakes the watcher, which makes one wait some 40 µs longer: far fewer than one in a hundred
   * are to be such. A fault does not wait for it, since the look of who waits for lost work ends.
   */
  private static final long WHOLE_POLL_NANOS = 50_000_000;

  /** What a searcher sees in a next slot for so long, in one turn, it may take. */
  static final long SLOT_NANOS = 2_000;

  /** Turns in a row from the next slot before the own queue has one. */
  static final int SLOT_TURNS_MAX = 16;

  /** A test that leaves a task running must fail, not hang. */
  private static final long CLOSE_NANOS_MAX = 30_000_000_000L;

  private static final VarHandle LAST_POLL;
  private static final VarHandle LAST_WHOLE_POLL;
  private static final VarHandle LOOKS_SINCE;
  private static final VarHandle ATTENDANT;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      LAST_POLL = lookup.findVarHandle(Carriers.class, "lastPoll", long.class);
      LAST_WHOLE_POLL = lookup.findVarHandle(Carriers.class, "lastWholePoll", long.class);
      LOOKS_SINCE = lookup.findVarHandle(Carriers.class, "looksSince", long.class);
      ATTENDANT = lookup.findVarHandle(Carriers.class, "attendant", Carrier.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private static final class Shared {
    static final Carriers CARRIERS =
        new Carriers("carrier", Runtime.getRuntime().availableProcessors()).start();
  }

  /** Carriers beyond these are spares. */
  final int regulars;

  final String label;
  final ReadyQueue ready = new ReadyQueue();
  final ThreadFactory threads = this::thread;
  private final CopyOnWriteArrayList<Polled> sources = new CopyOnWriteArrayList<>();
  private final AtomicInteger searching = new AtomicInteger();
  private final AtomicInteger sparesActive = new AtomicInteger();
  final Watcher watcher;
  final LongAdder wakes = new LongAdder();
  private volatile Carrier[] all;
  private volatile @Nullable Carrier attendant;
  private volatile int sparesWanted;
  private volatile boolean closing;
  private long lastPoll;
  private long lastWholePoll = System.nanoTime();
  private long looksSince = lastWholePoll;

  /** How long a task looks in the place of its carrier. Another one in tests only. */
  volatile long lookNanos = Nap.lookNanos();

  Carriers(String label, int regulars) {
    this.label = label;
    this.regulars = regulars;
    this.watcher = new Watcher(this);
    this.all = new Carrier[regulars];
    for (int i = 0; i < regulars; i++) {
      all[i] = new Carrier(this, i, false);
    }
  }

  /** Those of the process: as many as it has processors. Only where the package is open. */
  static Carriers shared() {
    return Shared.CARRIERS;
  }

  Carriers start() {
    startUnwatched();
    watcher.start();
    return this;
  }

  /** Nobody makes good what parking and waking would miss: for tests of just that. */
  Carriers startUnwatched() {
    for (Carrier carrier : all) {
      carrier.start();
    }
    return this;
  }

  /** A virtual thread on these carriers, not started. Any thread; never blocks. */
  Thread thread(Runnable body) {
    return VirtualThreads.unstarted(new Resumable.Free(this), body);
  }

  /** One that runs this child of a scope. */
  Thread threadFor(Fork<?> fork) {
    Resumable.OfFork both = new Resumable.OfFork(this, fork);
    return VirtualThreads.unstarted(both, both);
  }

  /** One that runs when it has the turn of this strand. */
  Thread threadIn(Strand strand, Runnable body) {
    return VirtualThreads.unstarted(new Resumable.Free(this, strand), body);
  }

  /** One that stays on the carrier that first runs it. */
  Thread threadThatStays(Runnable body) {
    return VirtualThreads.unstarted(new Resumable.Initial(this), body);
  }

  // --- tasks that fork and never suspend
  // ----------------------------------------------------------

  /**
   * The calling task forks, and may not have suspended for long: lets its carrier look at
   * completions and at what lies with nobody, if that is due. A yield, since a poll runs callbacks,
   * which are no task's.
   */
  @SuppressWarnings("ThreadPriorityCheck") // not a hint: the carrier goes through its loop
  static void atForkPoint(long now) {
    if (VirtualThreads.closed() == null
        && Thread.currentThread().isVirtual()
        && VirtualThreads.carrier() instanceof Carrier carrier
        && !Task.current().isBinding()
        && carrier.isLookDue(now)) {
      Thread.yield();
    }
  }

  /** Whether something else is ready on the carrier below the calling task. */
  static boolean hasWorkHere() {
    return VirtualThreads.closed() == null
        && Thread.currentThread().isVirtual()
        && VirtualThreads.carrier() instanceof Carrier carrier
        && carrier.hasWork();
  }

  // --- tasks that look themselves, in the place of an idle carrier
  // ----------------------------------

  /** Whether the carrier below the calling task has nothing else to run, and nobody has. */
  static boolean isIdleHere() {
    Carrier carrier = below();
    return carrier != null
        && !carrier.hasWork()
        && !carrier.isTurnWanted()
        && carrier.carriers.ready.isEmpty();
  }

  /** How long the calling task may look itself; 0 on a thread that is no carrier's. */
  static long lookNanosHere() {
    Carrier carrier = below();
    return carrier == null ? 0 : carrier.carriers.lookNanos;
  }

  /**
   * The calling task waits: looks for the end as its carrier would. See the class comment.
   *
   * @return whether its help's next poll finds the end; else the task has to park
   */
  static boolean looksHere(Look look) {
    Carrier carrier = below();
    return carrier != null && carrier.looksInItsPlace(look);
  }

  private static @Nullable Carrier below() {
    return VirtualThreads.closed() == null
            && Thread.currentThread().isVirtual()
            && VirtualThreads.carrier() instanceof Carrier carrier
        ? carrier
        : null;
  }

  // --- making ready
  // -------------------------------------------------------------------------------

  /** It can go on. Any thread; never blocks, never throws. */
  void ready(Resumable resumable) {
    Carrier carrier = here();
    if (carrier != null) {
      carrier.ready(resumable);
    } else {
      inject(resumable);
    }
  }

  /** The carrier of these that runs the caller, or null. */
  private @Nullable Carrier here() {
    return VirtualThreads.carrier() instanceof Carrier carrier && carrier.carriers == this
        ? carrier
        : null;
  }

  void inject(Resumable resumable) {
    ready.add(resumable);
    signal();
  }

  /** Something was published: sees to it that somebody looks. See the class comment. */
  void signal() {
    VarHandle.fullFence(); // between what was published and the look at who searches
    while (searching.get() == 0) {
      if (!anyParked()) {
        watch();
        return;
      }
      if (searching.compareAndSet(0, 1)) {
        if (wakeOne()) {
          return;
        }
        searching.decrementAndGet(); // and look again: it has hidden others meanwhile
      }
    }
  }

  /** By the watcher: as {@link #signal}, although others search, since they do not come to it. */
  void signalAlthoughOthersSearch() {
    searching.incrementAndGet(); // who is woken takes itself off
    if (!wakeOne() && searching.decrementAndGet() == 0 && workVisible()) {
      signal(); // it has hidden others meanwhile
    }
  }

  private boolean wakeOne() {
    for (Carrier carrier : all) {
      if (carrier.takeBell()) {
        wakes.increment();
        LockSupport.unpark(carrier);
        return true;
      }
    }
    return false;
  }

  /** Something was published that only this carrier may take. Any thread; never blocks. */
  void signal(Carrier carrier) {
    VarHandle.fullFence(); // between what was published and the look at the bell
    if (!carrier.isParked()) {
      return; // it looks before it parks
    }
    searching.incrementAndGet(); // who is woken takes itself off
    if (carrier.takeBell()) {
      wakes.increment();
      LockSupport.unpark(carrier);
    } else if (searching.decrementAndGet() == 0 && (workVisible() || pendingUnattended())) {
      signal(); // it has hidden others meanwhile
    }
  }

  /** Where a task stays that this carrier is the first to take: with it, or, a spare, elsewhere. */
  Carrier homeFor(Carrier taker) {
    if (!taker.spare) {
      return taker;
    }
    Carrier[] known = all; // the regular ones come first, and for good
    for (int i = 0; i < regulars; i++) {
      if (!known[i].isMounted()) {
        return known[i];
      }
    }
    return known[taker.nextVictim() % regulars];
  }

  /** Something waits that no carrier may look at for a while. */
  void watch() {
    watcher.wake();
  }

  /** The calling carrier stops looking: what is pending is the watcher's. */
  void watchPending() {
    if (watcher.isAsleep() && !sources.isEmpty() && anyPending()) {
      watch();
    }
  }

  // --- polling
  // ----------------------------------------------------------------------

  Polled addSource(PollSource source, long napNanosMax) {
    Polled polled = new Polled(source, napNanosMax);
    sources.add(polled);
    ring();
    return polled;
  }

  /** One poll may still be going on; {@link Polled#end} waits for it. */
  void removeSource(Polled source) {
    sources.remove(source);
  }

  /** A source has something new pending: somebody has to look. Any thread; never blocks. */
  void ring() {
    VarHandle.fullFence(); // between what was published and the look at who sleeps
    if (here() != null) {
      watch(); // this carrier looks as soon as its task suspends, which most often is at once
      return;
    }
    Carrier attends = attendant;
    if (attends == null) {
      signal();
    } else {
      signal(attends); // from a nap, if it is in one
    }
  }

  boolean hasSources() {
    return !sources.isEmpty();
  }

  /** Looks at all sources that nobody looks at. On a thread that runs no task; never blocks. */
  int poll() {
    if (sources.isEmpty()) {
      return 0;
    }
    int found = 0;
    for (Polled source : sources) {
      found += source.poll();
    }
    long now = System.nanoTime();
    LAST_POLL.setOpaque(this, now);
    LAST_WHOLE_POLL.setOpaque(this, now);
    return found;
  }

  /**
   * By a task that looks as the attendant: whether a carrier has to poll. It may only look, since a
   * poll runs callbacks, which are no task's.
   */
  boolean wantsPoll(long now) {
    for (Polled source : sources) {
      if (source.mayFind()) {
        return true;
      }
    }
    LAST_POLL.setOpaque(this, now);
    return now - (long) LOOKS_SINCE.getOpaque(this) > Math.max(WHOLE_POLL_NANOS, lookNanos);
  }

  /** A task begins to look: whether it is the first since somebody polled. */
  void lookBegins(long now) {
    long polled = (long) LAST_WHOLE_POLL.getOpaque(this);
    if (polled - (long) LOOKS_SINCE.getOpaque(this) >= 0) {
      LOOKS_SINCE.setOpaque(this, now);
    }
  }

  long nanosSincePoll(long now) {
    return now - (long) LAST_POLL.getOpaque(this);
  }

  boolean anyPending() {
    for (Polled source : sources) {
      if (source.hasPending()) {
        return true;
      }
    }
    return false;
  }

  private long napNanosMax() {
    long least = NAP_NANOS_MAX;
    for (Polled source : sources) {
      least = Math.min(least, source.napNanosMax);
    }
    return least;
  }

  /** How what is pending is seen to. */
  enum Attention {
    /** Nothing is pending; or only what has been for so long that its attendant naps. */
    ENOUGH,
    /** A carrier looks just now, or did not long ago. */
    LIVELY,
    /** Nobody has looked for {@link #UNATTENDED_NANOS}, and no idle carrier sees to it. */
    NONE
  }

  /** By the watcher. */
  Attention attention(long now) {
    if (sources.isEmpty()) {
      return Attention.ENOUGH;
    }
    Carrier attends = attendant;
    if (attends != null) {
      return attends.isParked() ? Attention.ENOUGH : Attention.LIVELY;
    }
    if (!anyPending()) {
      return Attention.ENOUGH;
    }
    return nanosSincePoll(now) < UNATTENDED_NANOS ? Attention.LIVELY : Attention.NONE;
  }

  /** Something is pending, and no idle carrier sees to it. */
  boolean pendingUnattended() {
    return !sources.isEmpty() && attendant == null && anyPending();
  }

  // --- searching and parking: called by carriers
  // --------------------------------------------------

  /** Whether one more may search: half of them at most, for the others hinder those who work. */
  boolean trySearch() {
    int now = searching.get();
    return (roomToSearch() || roomToLinger())
        && 2 * now < regulars
        && searching.compareAndSet(now, now + 1);
  }

  /** Whether a processor is free for it: with one only, or with all in use, searching hinders. */
  boolean roomToSearch() {
    int mounted = 0;
    for (Carrier carrier : all) {
      mounted += carrier.isMounted() ? 1 : 0;
    }
    return regulars > 1 && mounted < regulars;
  }

  /** Whether something is pending for the only carrier, which has nothing else to do. */
  boolean roomToLinger() {
    return regulars == 1 && hasSources() && anyPending();
  }

  /** Whether more search than {@link #trySearch} lets. */
  boolean tooManySearch() {
    return 2 * searching.get() > regulars;
  }

  /** Whether it is the attendant. */
  boolean isAttendant(Carrier carrier) {
    return attendant == carrier;
  }

  /**
   * The caller has just gone idle: whether it is the attendant now, because something is pending.
   */
  boolean takeOver(Carrier carrier) {
    if (!needsAttendant()) {
      return false;
    }
    attendant = carrier; // volatile: who was it sees that at its next look
    return true;
  }

  /** The caller searches: whether it is the attendant, or is now since nobody was. */
  boolean attends(Carrier carrier) {
    Carrier now = attendant;
    return now == carrier
        || (now == null && needsAttendant() && ATTENDANT.compareAndSet(this, null, carrier));
  }

  /** Whether one is needed. */
  private boolean needsAttendant() {
    return !sources.isEmpty() && anyPending();
  }

  /** One that was about to park goes back to search, whatever the others do. */
  void startSearch() {
    searching.incrementAndGet();
  }

  /** A searcher gives up; it has still to look once more before it parks. */
  void stopSearch() {
    searching.decrementAndGet();
  }

  /** A searcher has found something; the last one looks whether there is more. */
  void foundWork() {
    if (searching.decrementAndGet() == 0 && workVisible()) {
      signal();
    }
  }

  /** What was published while the caller looked relied on it: others may have the rest. */
  void passOn() {
    if (workVisible()) {
      signal();
    }
  }

  @Nullable Resumable steal(Carrier thief) {
    Carrier[] victims = all;
    int first = thief.nextVictim();
    for (int i = 0; i < victims.length; i++) {
      Carrier victim = victims[(first + i) % victims.length];
      if (victim != thief) {
        Resumable stolen = victim.queue.steal(thief.queue, ready);
        if (stolen == null) {
          stolen = thief.takeAgedSlot(victim);
        }
        if (stolen != null) {
          if (!thief.queue.isEmpty()) {
            signal(); // a mover publishes what it does not keep
          }
          return stolen;
        }
      }
    }
    return null;
  }

  /** Whether the next slot of another is there for this thief: what {@link #steal} would take. */
  boolean anyAgedSlot(Carrier thief) {
    for (Carrier victim : all) {
      if (victim != thief && thief.isSlotAged(victim)) {
        return true;
      }
    }
    return false;
  }

  /** Whether there is anything that a carrier could take, next slots aside. */
  boolean workVisible() {
    if (!ready.isEmpty()) {
      return true;
    }
    for (Carrier carrier : all) {
      if (!carrier.queue.isEmpty()) {
        return true;
      }
    }
    return false;
  }

  /**
   * How long a carrier that has announced itself may sleep: 0 not at all, for ever if nothing is
   * pending or another sees to it, else, as the attendant, for a nap.
   *
   * @param idleNanos how long it has found nothing
   */
  long sleepNanos(Carrier carrier, long idleNanos) {
    if (workVisible() || closing) {
      return 0;
    }
    return rests(carrier) ? Long.MAX_VALUE : Nap.nanos(idleNanos, napNanosMax());
  }

  /** Whether there is nothing that the caller has to look at now and then. */
  private boolean rests(Carrier carrier) {
    // the attendant of a source that has gone since still has to give that up
    if (sources.isEmpty() && attendant != carrier) {
      return true;
    }
    for (; ; ) {
      Carrier now = attendant;
      if (now != null && now != carrier) {
        return true;
      }
      // first the claim, then the look: two that rest at once must not leave it to each other
      if (now == null && !ATTENDANT.compareAndSet(this, null, carrier)) {
        return true;
      }
      if (anyPending()) {
        return false;
      }
      // before a look: others may have parked relying on the claim
      if (!giveUp(carrier) || !anyPending()) {
        return true;
      }
    }
  }

  /** Compare-and-set: another may have taken over. */
  private boolean giveUp(Carrier carrier) {
    return ATTENDANT.compareAndSet(this, carrier, null);
  }

  /** It runs something now: what it looked after is the watcher's. */
  void leave(Carrier carrier) {
    // also where another took over and has given up since: who rang may rely on the caller's search
    if (giveUp(carrier) || attendant == null) {
      watchPending(); // after it: the watcher sees that nobody is left, or is woken
    }
  }

  // --- spares: called by the watcher, and a spare that ends
  // ---------------------------------------

  Carrier[] all() {
    return all;
  }

  boolean anyParked() {
    for (Carrier carrier : all) {
      if (carrier.isParked()) {
        return true;
      }
    }
    return false;
  }

  boolean anySearching() {
    return searching.get() > 0;
  }

  /** By the watcher: how many carriers are stuck, so that so many spares may take their place. */
  void sparesWanted(int wanted) {
    sparesWanted = wanted;
  }

  /** By the watcher: has one more spare work, if one is wanted. */
  synchronized void useSpare(int number) {
    if (sparesActive.get() >= sparesWanted) {
      return;
    }
    sparesActive.incrementAndGet();
    for (Carrier carrier : all) {
      if (carrier.wakeSpare()) {
        return;
      }
    }
    Carrier[] now = all;
    Carrier[] more = Arrays.copyOf(now, now.length + 1);
    Carrier spare = new Carrier(this, number, true);
    more[now.length] = spare;
    all = more;
    try {
      spare.start();
    } catch (OutOfMemoryError noThread) {
      // the watcher must live on; it tries again while work is late
      all = now;
      sparesActive.decrementAndGet();
    }
  }

  int sparesActive() {
    return sparesActive.get();
  }

  boolean hasTooManySpares() {
    return sparesActive.get() > sparesWanted;
  }

  /** Whether the calling spare is one too many; if so it counts no more. */
  boolean standDown() {
    for (; ; ) {
      int active = sparesActive.get();
      if (active <= sparesWanted && !closing) {
        return false;
      }
      if (sparesActive.compareAndSet(active, active - 1)) {
        return true;
      }
    }
  }

  /** By a spare that ends. */
  synchronized void dropSpare(Carrier spare) {
    all = Arrays.stream(all).filter(carrier -> !carrier.equals(spare)).toArray(Carrier[]::new);
  }

  boolean isWatcherAsleep() {
    return watcher.isAsleep();
  }

  boolean isClosing() {
    return closing;
  }

  /**
   * Ends the threads once nothing is ready; for tests, whose carriers are their own. What is parked
   * then stays so.
   */
  void close() {
    closing = true;
    for (Carrier carrier : all) {
      LockSupport.unpark(carrier);
    }
    LockSupport.unpark(watcher);
    joinAll();
  }

  private void joinAll() {
    boolean interrupted = false;
    long end = System.nanoTime() + CLOSE_NANOS_MAX;
    for (Thread thread : threadsOf()) {
      while (thread.isAlive() && System.nanoTime() - end < 0) {
        try {
          thread.join(Duration.ofNanos(CLOSE_NANOS_MAX));
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
      if (thread.isAlive()) {
        throw new IllegalStateException(thread + " still runs a task that does not suspend");
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private Thread[] threadsOf() {
    Carrier[] carriers = all;
    Thread[] threadsOf = Arrays.copyOf(carriers, carriers.length + 1, Thread[].class);
    threadsOf[carriers.length] = watcher;
    return threadsOf;
  }
}
