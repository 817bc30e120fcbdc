package io.fairlead.task;

import io.fairlead.fault.Mutant;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * One platform thread that runs tasks. {@link Carriers} has its states and the protocol of parking;
 * this is the loop of one.
 *
 * <pre>
 * field      | writer             | reader        | mode, guard
 * slot       | own thread (swap in), takers (swap out) | takers | volatile, swapped: one taker
 * bell       | own thread, wakers | wakers        | volatile, compare-and-set
 * turns      | own thread         | watcher, thieves | opaque: stands still while a task neither
 *            |                    |               | suspends nor forks
 * passed     | own thread         | watcher       | opaque: when its task last forked, about
 * mounted    | own thread         | watcher, idle carriers | opaque: a hint; so is its goesOn
 * calls      | own thread         | own thread, watcher | opaque: a hint to the watcher
 * lookDue    | own thread         | own thread    | plain: from a fork that wants a look until that
 *            |                    |               | look; a task that is pinned leaves it set
 * others     | own thread         | own thread    | plain. "Own thread" includes the virtual thread
 *            |                    |               | that is mounted and makes others ready: it is
 *            |                    |               | pinned meanwhile
 * </pre>
 *
 * <b>Tasks that go on.</b> Whether a task suspends soon after it woke another decides what becomes
 * of the other, so it is measured: from the wake, the signal that it may have given not counted
 * (waking a processor can take 20 µs), to the end of the turn. Two in a row decide: one may only
 * have lost its processor for a while, and the other must not be sent away from warm caches for
 * that. A look at the clock costs a tenth of a wake, so where {@value #BATCH} turns that woke
 * somebody take less than {@link #GOES_ON_NANOS} all together, none of the next {@value #BATCH} is
 * measured by itself.
 *
 * <p>A spare is one that the watcher adds while others are stuck. It does not search, is woken by
 * the watcher only, hands over what it has when it is not needed any more, and ends when it has
 * been idle for some time.
 */
final class Carrier extends RoleThread {
  private static final int AWAKE = 0;
  private static final int PARKED = 1;

  /** Asleep, a spare: only the watcher wakes it. */
  private static final int SPARE = 2;

  private static final int ENDED = 3;

  /** As deep as a main thread's: what runs in place of a fork goes deep. Reserved, not used. */
  private static final long STACK_BYTES = 8L << 20;

  /** A task that runs this long after it woke another leaves the other to somebody else. */
  private static final long GOES_ON_NANOS = 5_000;

  /** Turns that woke another, between two decisions whether single ones are worth measuring. */
  private static final int BATCH = 8;

  /** A task that has looked and then parks has done so by then; else it went on, or was pinned. */
  private static final long PARKS_NANOS = 1_000_000;

  /** How long a spare waits for the next use: more than between two bursts of one program. */
  private static final long SPARE_IDLE_NANOS = 5_000_000_000L;

  /** It counts as asleep if it still is so long after it was first seen so: no stop of the JVM. */
  private static final long BLOCKED_NANOS = 300_000;

  /** A carrier that stands still is asked so often whether it sleeps; asking costs some µs. */
  private static final long BLOCKED_LOOK_NANOS = 5_000_000;

  /** A task that has come by a fork within this time comes by another soon. */
  private static final long FORKS_NANOS = 1_000_000;

  private static final System.Logger LOG = System.getLogger(Carriers.class.getName());
  private static final VarHandle SLOT;
  private static final VarHandle BELL;
  private static final VarHandle TURNS;
  private static final VarHandle PASSED;
  private static final VarHandle MOUNTED;
  private static final VarHandle CALLS;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      SLOT = lookup.findVarHandle(Carrier.class, "slot", Resumable.class);
      BELL = lookup.findVarHandle(Carrier.class, "bell", int.class);
      TURNS = lookup.findVarHandle(Carrier.class, "turns", long.class);
      PASSED = lookup.findVarHandle(Carrier.class, "passed", long.class);
      MOUNTED = lookup.findVarHandle(Carrier.class, "mounted", Resumable.class);
      CALLS = lookup.findVarHandle(Carrier.class, "calls", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  final Carriers carriers;
  final boolean spare;
  final CarrierQueue queue = new CarrierQueue();

  /** What may run here only; nobody steals from it. Any thread adds, this one takes. */
  private final ReadyQueue staying = new ReadyQueue();

  private volatile @Nullable Resumable slot;
  private volatile int bell;
  private long turns;
  private long passed = System.nanoTime() - FORKS_NANOS;
  private @Nullable Resumable mounted;

  private boolean woke;
  private long wokeNanos;
  private boolean measures = true;
  private int batch;
  private long batchNanos;
  private int slotTurns;

  /** The task that looks in its place, and is mounted again afterwards. */
  private @Nullable Resumable looker;

  /** Its task has looked, from then to then: what it has to search on is less by that. */
  private boolean looked;

  private long lookedSince;
  private long lookedUntil;

  /** The last one that it took of its own may run here only. */
  private boolean stayed;

  private boolean searches;
  private boolean works = true;

  /** It has run something since it last looked for more. */
  private boolean ran;

  /** It has slept since it last found something. */
  private boolean slept;

  /** It may be the attendant; has found nothing since then. */
  private boolean attends;

  private long attendedNanos;

  /** A time that costs nothing: when this carrier last asked for it. */
  private long clock;

  private long lookedAround;

  /** What it runs wants it to look around, and yields for that. */
  private boolean lookDue;

  /**
   * It polls between two tasks. What it finds then is for whoever comes first: where all processors
   * are in use, the system may take this one's away before it goes on.
   */
  private boolean looksAround;

  /**
   * Callbacks run within its poll. They may block, so it neither counts as a searcher nor attends
   * until the poll has ended, and what lies with it is the watcher's.
   */
  private boolean calls;

  private int victim;

  /** A next slot that this one, as a thief, has seen filled: whose, in which turn, and when. */
  private @Nullable Carrier agingAt;

  private long agingTurn;
  private long agingNanos;

  // the watcher's: what it saw when it last looked
  long turnsSeen;
  long turnsSeenNanos;
  boolean still;
  boolean heldUp;
  long notHeldUpNanos = System.nanoTime();
  private int looksBlocked;
  private long lookedNanos;

  /** Where the system tells what this thread does; null where it does not, or before it runs. */
  private volatile @Nullable Path status;

  Carrier(Carriers carriers, int number, boolean spare) {
    super(
        carriers.label + "-" + (spare ? "spare-" : "") + number,
        Role.DEVICE_MANAGER,
        null,
        null,
        STACK_BYTES);
    this.carriers = carriers;
    this.spare = spare;
    this.victim = number;
    // not that of whoever opened first: it would be kept as long as the process lives
    setContextClassLoader(ClassLoader.getSystemClassLoader());
  }

  @Override
  boolean isPolling() {
    return true; // no task is mounted where this thread is asked: it polls, or runs callbacks
  }

  // --- the loop
  // -----------------------------------------------------------------------------------

  @Override
  void work() {
    status = statusOfThisThread();
    for (; ; ) {
      Resumable next = searches ? null : next();
      if (next == null) {
        next = search();
      }
      if (next != null) {
        leaveAttendance();
        if (looked) {
          looked = false;
          carriers.passOn();
        }
        resume(next);
      } else if (!rest()) {
        return;
      }
    }
  }

  private @Nullable Resumable next() {
    long turn = turns;
    TURNS.setOpaque(this, turn + 1);
    if (!isNeeded()) {
      return null;
    }
    if (lookDue
        || turn % Carriers.TURNS_PER_LOOK == 0
        || clock - lookedAround > Carriers.POLL_NANOS) {
      lookDue = false;
      lookedAround = clock;
      Resumable common = lookAround();
      if (common != null) {
        return common;
      }
    }
    return nextOwn();
  }

  /**
   * Between two tasks. What the poll finds lies with nobody, until this one or another takes it.
   */
  private @Nullable Resumable lookAround() {
    looksAround = true;
    int _ = poll();
    looksAround = false;
    Resumable common = takeCommon();
    if (common == null && !carriers.ready.isEmpty()) {
      carriers.signal(); // another takes just now, and may not take all
    }
    return common;
  }

  /**
   * By the mounted task, where it may yield: whether its carrier has something to look at and has
   * not for long. Whoever passes here does not stand still.
   */
  boolean isLookDue(long now) {
    clock = now;
    if (!lookDue) {
      TURNS.setOpaque(this, turns + 1);
      PASSED.setOpaque(this, now);
      lookDue = isOverdue(now, now - lookedAround);
    }
    return lookDue; // still: it is pinned, and could not yield when it last wanted to
  }

  private boolean isOverdue(long now, long since) {
    return (since > Carriers.READY_NANOS && !carriers.ready.isEmpty())
        || (since > Carriers.POLL_NANOS && (slot != null || !staying.isEmpty()))
        || (since > Carriers.FORK_POLL_NANOS && isPollDue(now))
        || (since > Watcher.LATE_NANOS && !queue.isEmpty())
        || (spare && carriers.hasTooManySpares());
  }

  private boolean isPollDue(long now) {
    return carriers.hasSources()
        && carriers.nanosSincePoll(now) > Carriers.FORK_POLL_NANOS
        && carriers.anyPending();
  }

  /** A spare goes on only as long as others are stuck. */
  private boolean isNeeded() {
    if (spare && works && carriers.standDown()) {
      works = false;
    }
    return works;
  }

  /** What may run here only is first, but not twice in a row: nobody else can take it. */
  private @Nullable Resumable nextOwn() {
    Resumable stays = stayed ? null : staying.poll();
    stayed = stays != null;
    Resumable next = stays == null ? nextShared() : stays;
    return next == null ? staying.poll() : next;
  }

  private @Nullable Resumable nextShared() {
    if (slotTurns < Carriers.SLOT_TURNS_MAX && slot != null) {
      Resumable next = takeSlot();
      if (next != null) {
        slotTurns++;
        return next;
      }
    }
    slotTurns = 0;
    Resumable next = queue.poll();
    return next == null && slot != null ? takeSlot() : next;
  }

  private @Nullable Resumable takeCommon() {
    Resumable taken = carriers.ready.take(queue, carriers.regulars);
    if (taken != null && carriers.workVisible()) {
      carriers.signal(); // a mover publishes what it does not keep
    }
    return taken;
  }

  @SuppressWarnings("CatchingUnchecked") // what a continuation throws must not end the carrier
  private void resume(Resumable next) {
    MOUNTED.setOpaque(this, next);
    ran = true;
    woke = false;
    if (hasWork()) {
      carriers.watch(); // who yielded, or what a poll made ready, was said to nobody
    }
    try {
      next.resume();
    } catch (Throwable thrown) {
      LOG.log(Level.ERROR, "'" + label + "': a continuation threw; the carrier goes on", thrown);
    }
    if (woke) {
      learn(next);
    }
    MOUNTED.setOpaque(this, null);
  }

  /** After a turn that woke another: see the class comment. */
  private void learn(Resumable ran) {
    boolean last = ++batch >= BATCH;
    if (!measures && !ran.goesOn && !last) {
      return;
    }
    clock = System.nanoTime();
    if (measures || ran.goesOn) {
      boolean longTurn = clock - wokeNanos > GOES_ON_NANOS;
      ran.goesOn = longTurn && ran.wentOn;
      ran.wentOn = longTurn;
    }
    if (last) {
      measures = clock - batchNanos > GOES_ON_NANOS;
      batch = 0;
      batchNanos = clock;
    }
  }

  // --- making ready: own thread
  // -------------------------------------------------------------------

  void ready(Resumable resumable) {
    if (looksAround) {
      carriers.ready.add(resumable); // and sees to it itself, or signals: see lookAround
      if (calls) {
        carriers.signal(); // or it may not come to that
      }
      return;
    }
    Resumable runs = mounted;
    if (resumable.isSameThread(runs)) {
      put(resumable); // it yielded, or was woken before it slept: others first
      return;
    }
    // swap: volatile, so that it is in the slot before the watcher is looked at
    Resumable before = (Resumable) SLOT.getAndSet(this, resumable);
    if (before != null) {
      put(before);
      carriers.signal();
      carriers.watch(); // the slot has no signal of its own
    } else if (runs != null || calls) {
      if (runs != null && runs.goesOn) {
        carriers.signal();
      }
      carriers.watch();
    }
    woke = true;
    if (measures || (runs != null && runs.goesOn)) {
      wokeNanos = System.nanoTime(); // last: what a signal takes is not the task's doing
    }
  }

  /** It may run here only. Any thread; never blocks. */
  void readyHere(Resumable resumable) {
    staying.add(resumable);
    carriers.signal(this);
  }

  private void put(Resumable resumable) {
    if (!queue.offer(resumable)) {
      carriers.inject(resumable);
    }
  }

  private @Nullable Resumable takeSlot() {
    return (Resumable) SLOT.getAndSet(this, null);
  }

  // --- taking from here: any thread
  // ---------------------------------------------------------------

  /**
   * As a thief: what a task that goes on has left in the victim's next slot, or what this has seen
   * there before and lies there still in the same turn.
   */
  @Nullable Resumable takeAgedSlot(Carrier victim) {
    return isSlotAged(victim) ? victim.takeSlot() : null;
  }

  @SuppressWarnings("ReferenceEquality") // a carrier is itself
  boolean isSlotAged(Carrier victim) {
    if (victim.slot == null) {
      return false;
    }
    Resumable runs = (Resumable) MOUNTED.getOpaque(victim);
    if (runs != null && runs.goesOn) {
      return true;
    }
    long turn = victim.turns();
    long now = System.nanoTime();
    if (agingAt == victim && agingTurn == turn) {
      return now - agingNanos > Carriers.SLOT_NANOS;
    }
    Carrier other = agingAt;
    if (other == null || other == victim || other.slot == null || other.turns() != agingTurn) {
      agingAt = victim;
      agingTurn = turn;
      agingNanos = now;
    }
    return false;
  }

  boolean hasWork() {
    return slot != null || !queue.isEmpty();
  }

  /** Gives everything to the common queue. By the watcher, and by a spare that stands down. */
  boolean handOver() {
    boolean any = false;
    Resumable next = slot == null ? null : takeSlot();
    if (next != null) {
      carriers.ready.add(next);
      any = true;
    }
    while ((next = queue.poll()) != null) {
      carriers.ready.add(next);
      any = true;
    }
    return any;
  }

  long turns() {
    return (long) TURNS.getOpaque(this);
  }

  private static @Nullable Path statusOfThisThread() {
    try {
      Path proc = Path.of("/proc");
      return proc.resolve(Files.readSymbolicLink(proc.resolve("thread-self"))).resolve("stat");
    } catch (IOException | UnsupportedOperationException notLinux) {
      return null;
    }
  }

  /**
   * By the watcher, of one that stands still: whether it is asleep, so that its processor is free.
   */
  boolean isBlocked(long now) {
    boolean news = turnsSeenNanos - lookedNanos > 0;
    if (news || now - lookedNanos > (looksBlocked == 1 ? BLOCKED_NANOS : BLOCKED_LOOK_NANOS)) {
      looksBlocked = !looksBlocked() ? 0 : news ? 1 : looksBlocked + 1;
      lookedNanos = now;
    }
    return looksBlocked > 1;
  }

  /**
   * By the watcher, of one that stands still: whether its task has come by a fork not long ago.
   * Then others have its processor most likely, and it looks around as soon as it has it back; a
   * spare would only take more from it.
   */
  boolean forksNow(long now) {
    return now - (long) PASSED.getOpaque(this) < FORKS_NANOS;
  }

  private boolean looksBlocked() {
    Path file = status;
    boolean waits = getState() != State.RUNNABLE;
    if (file == null || (waits && isMounted())) {
      return waits; // with nothing mounted it may have been woken, and have no processor yet
    }
    try {
      String text = Files.readString(file, StandardCharsets.ISO_8859_1);
      return text.charAt(text.lastIndexOf(')') + 2)
          != 'R'; // in native code it may sleep all the same
    } catch (IOException ended) {
      return false;
    }
  }

  boolean isMounted() {
    return MOUNTED.getOpaque(this) != null;
  }

  int nextVictim() {
    return victim++ & Integer.MAX_VALUE;
  }

  // --- searching and parking
  // ----------------------------------------------------------------------

  private @Nullable Resumable search() {
    if (!isNeeded()) {
      return null;
    }
    if (looked && System.nanoTime() - lookedUntil > PARKS_NANOS) {
      looked = false;
      ran = true;
    }
    Resumable found = look();
    if (found == null && (searches || begins())) {
      searches = true;
      found = lookForAWhile();
    }
    if (found != null) {
      TURNS.setOpaque(this, turns + 1); // it has not stood still all the time that it slept
    }
    ran = false;
    if (searches) {
      searches = false;
      if (found == null) {
        carriers.stopSearch();
      } else {
        carriers.foundWork();
      }
    }
    if (found != null && !attends) {
      carriers.watchPending();
    }
    return found;
  }

  /** Whether it is to search; it is counted then. Who has just gone idle takes over what pends. */
  private boolean begins() {
    if (ran && carriers.takeOver(this)) {
      attendFromNow();
      if (carriers.roomToSearch() || carriers.roomToLinger()) {
        carriers.startSearch(); // whoever it took over from goes to sleep in exchange
        return true;
      }
      return false;
    }
    return !slept && carriers.trySearch();
  }

  private void attendFromNow() {
    attends = true;
    attendedNanos = searchesSince();
  }

  /** Now, or since its task has looked already. */
  private long searchesSince() {
    return looked ? lookedSince : System.nanoTime();
  }

  private void leaveAttendance() {
    slept = false;
    if (attends) {
      attends = false;
      carriers.leave(this);
    }
  }

  /** For a short while, or, as the attendant, for a long one. */
  private @Nullable Resumable lookForAWhile() {
    if (!carriers.roomToSearch() && !carriers.roomToLinger()) {
      return look();
    }
    long start = searchesSince();
    long end = start + Carriers.SEARCH_NANOS;
    if (carriers.isAttendant(this)) {
      attendFromNow(); // went idle just now, or was rung
      end = start + Nap.SEARCH_NANOS;
    } else {
      attends = false;
    }
    Resumable found = null;
    int round = 0;
    for (long now = start; found == null && now - end < 0; now = System.nanoTime()) {
      found = look();
      if (found == null) {
        if (attends != carriers.attends(this)) {
          attends = !attends;
          attendedNanos = looked ? start : now;
          end = attends ? attendedNanos + Nap.SEARCH_NANOS : endWithoutAttendance(start, now);
        }
        makeRoom(++round);
      }
    }
    return found;
  }

  /** Another has taken over: it need not hinder those who work. */
  private long endWithoutAttendance(long start, long now) {
    return carriers.tooManySearch() ? now : start + Carriers.SEARCH_NANOS;
  }

  /**
   * Another thread that this one has woken last may have been put behind it, on the same processor.
   * An attendant does not yield, since where the machine is full it would come back milliseconds
   * late.
   */
  @SuppressWarnings("ThreadPriorityCheck") // as said
  private void makeRoom(int round) {
    if (yields(round)) {
      Thread.yield();
    } else {
      Thread.onSpinWait();
    }
  }

  private boolean yields(int round) {
    return carriers.regulars == 1 || (!attends && round % Carriers.SEARCHES_PER_YIELD == 0);
  }

  // --- the mounted task looks in this carrier's place: own thread; see Carriers
  // -------------------

  /**
   * Until the end is there, or something that this carrier would do, or time is over.
   *
   * @return whether the end is there; else the task has to park
   */
  boolean looksInItsPlace(Look look) {
    if (spare || !canMakeRoom() || hasToRun() || !beginLook(look.since())) {
      return false;
    }
    boolean found = false;
    try {
      found = looks(look);
    } finally {
      endLook(found);
    }
    return found;
  }

  private boolean beginLook(long since) {
    looker = mounted;
    MOUNTED.setOpaque(this, null); // for all others it is idle
    looked = true;
    lookedSince = since;
    if (begins()) {
      carriers.lookBegins(since);
      return true;
    }
    looked = false;
    MOUNTED.setOpaque(this, looker);
    looker = null;
    if (attends) {
      leaveLook(true);
    }
    return false;
  }

  private boolean looks(Look look) {
    long since = look.since();
    long end = endOfLook(since);
    int round = 0;
    for (; ; ) {
      if (look.isThere()) {
        return true;
      }
      long now = System.nanoTime();
      if (attends != carriers.attends(this)) {
        attends = !attends;
        end = attends ? endOfLook(since) : endWithoutAttendance(since, now);
      }
      if (now - end >= 0
          || look.mustStop(now)
          || hasToRun()
          || (attends && carriers.wantsPoll(now) && !Mutant.on("look.ignores-finds"))) {
        return look.isThere(); // a poll may have been wanted for just that
      }
      makeRoomBelow(++round);
    }
  }

  private long endOfLook(long since) {
    long nanos = carriers.lookNanos;
    return since + (attends ? nanos : Math.min(nanos, Carriers.SEARCH_NANOS));
  }

  /** Whether there is anything that this carrier would take if it looked itself. */
  private boolean hasToRun() {
    return !Mutant.on("look.ignores-work")
        && (slot != null
            || !staying.isEmpty()
            || carriers.workVisible()
            || carriers.anyAgedSlot(this)
            || isTurnWanted());
  }

  /** Whether others wait for the turn of what is mounted. */
  boolean isTurnWanted() {
    Strand turn = holds;
    return turn != null && turn.isWanted();
  }

  /**
   * The role of a searcher ends with the look, whatever becomes of the task: it may be pinned, and
   * then this carrier looks at nothing until it has ended.
   */
  private void endLook(boolean found) {
    boolean attended = attends;
    TURNS.setOpaque(this, turns + 1); // it has not stood still
    MOUNTED.setOpaque(this, looker);
    looker = null;
    if (found) {
      looked = false;
      carriers.foundWork();
    } else {
      if (!Mutant.on("look.stays-counted")) {
        carriers.stopSearch();
      }
      // else another has taken over, and this one sleeps in exchange
      ran &= attended || Mutant.on("look.takes-back");
      lookedUntil = System.nanoTime();
    }
    leaveLook(attended);
    if (hasWork() || (!found && carriers.workVisible())) {
      carriers.watch();
    }
  }

  private void leaveLook(boolean attended) {
    attends = false;
    if (attended) {
      carriers.leave(this);
    } else {
      carriers.watchPending(); // who rang may have relied on the search
    }
  }

  private boolean canMakeRoom() {
    return carriers.regulars > 1 || VirtualThreads.canYieldCarrier();
  }

  /** As {@link #makeRoom}; a yield of the task would be the switch that it saves. */
  private void makeRoomBelow(int round) {
    boolean yields = carriers.regulars == 1 || (!attends && round % Carriers.LOOKS_PER_YIELD == 0);
    if (yields && VirtualThreads.canYieldCarrier()) {
      VirtualThreads.yieldCarrier();
    } else {
      Thread.onSpinWait();
    }
  }

  // --- one look, and parking
  // ----------------------------------------------------------------------

  /** Once at everything, in the order in which it is wanted. */
  private @Nullable Resumable look() {
    Resumable found = nextOwn();
    if (found == null) {
      found = takeCommon();
    }
    if (found == null) {
      found = carriers.steal(this);
    }
    if (found == null && poll() > 0) {
      found = nextOwn();
    }
    return found;
  }

  /** At the sources. A searcher before is one afterwards. */
  private int poll() {
    boolean searched = searches;
    int found = carriers.poll();
    if (calls) {
      CALLS.setOpaque(this, false);
    }
    if (searched && !searches) {
      carriers.startSearch();
      searches = true;
    }
    return found;
  }

  /** By whoever is about to run a callback, or to wait for a lock, on any thread. */
  static void callsNow() {
    if (Thread.currentThread() instanceof Carrier carrier) {
      carrier.beginCalls();
    }
  }

  /** By the watcher: whether callbacks run within its poll. */
  boolean isCalling() {
    return (boolean) CALLS.getOpaque(this);
  }

  private void beginCalls() {
    CALLS.setOpaque(this, true);
    if (searches) {
      searches = false;
      carriers.foundWork();
    }
    if (attends) {
      attends = false;
      carriers.leave(this);
    }
    if (looksAround && !carriers.ready.isEmpty()) {
      carriers.signal();
    }
    if (hasWork()) {
      carriers.watch(); // what the poll has found before
    }
  }

  /** Parks. False if the thread has to end. */
  private boolean rest() {
    if (!works) {
      return restSpare();
    }
    boolean own = slot != null || !staying.isEmpty();
    if (carriers.isClosing() && !carriers.workVisible() && !own) {
      return false;
    }
    bell = PARKED; // volatile, before the last look: see Carriers
    VarHandle.fullFence();
    own = slot != null || !staying.isEmpty();
    long nanos = own ? 0 : sleepNanos();
    looked = false;
    if (nanos > 0) {
      doze(spare ? Math.min(nanos, SPARE_IDLE_NANOS) : nanos);
    }
    if (!takeBell()) {
      searches = true; // the waker counted it
    } else if (nanos == 0) {
      // A searcher again: who published more than one piece relied on its count, and only a
      // searcher that finds something wakes another for the rest.
      carriers.startSearch();
      searches = true;
    }
    return true;
  }

  private long sleepNanos() {
    long now = System.nanoTime();
    if (!attends) {
      attendedNanos = now;
    }
    long nanos = carriers.sleepNanos(this, now - attendedNanos);
    attends = carriers.isAttendant(this);
    return nanos;
  }

  private void doze(long nanos) {
    slept = true;
    if (nanos != Long.MAX_VALUE) {
      LockSupport.parkNanos(this, nanos);
    } else {
      while (bell == PARKED && !carriers.isClosing()) {
        LockSupport.park(this);
        Thread.interrupted(); // nobody else's business wakes it twice
      }
    }
    Thread.interrupted();
  }

  /** Whether it was asleep; then it is the caller's to wake, or the carrier's own again. */
  boolean takeBell() {
    return bell == PARKED && BELL.compareAndSet(this, PARKED, AWAKE);
  }

  boolean isParked() {
    return bell == PARKED;
  }

  /**
   * Whether it is between two tasks, awake. If it stands still there it may only search; if it is
   * blocked, or runs callbacks, something holds it up.
   */
  boolean mayBeHeldUp() {
    return bell == AWAKE && !isMounted();
  }

  private boolean restSpare() {
    if (searches) {
      searches = false;
      carriers.stopSearch();
      carriers.watch(); // what it was woken for, a source that rang, say, is nobody's now
    }
    leaveAttendance();
    handOver();
    if (carriers.workVisible()) {
      carriers.signal(); // also what it was woken for
    }
    bell = SPARE;
    long end = System.nanoTime() + SPARE_IDLE_NANOS;
    while (bell == SPARE && !carriers.isClosing()) {
      long left = end - System.nanoTime();
      if (left <= 0 && BELL.compareAndSet(this, SPARE, ENDED)) {
        carriers.dropSpare(this);
        return false;
      }
      LockSupport.parkNanos(this, Math.max(left, 1));
      Thread.interrupted();
    }
    works = bell == AWAKE;
    return works || !carriers.isClosing();
  }

  /** By the watcher: whether it was an idle spare, which now works again. */
  boolean wakeSpare() {
    if (spare && bell == SPARE && BELL.compareAndSet(this, SPARE, AWAKE)) {
      LockSupport.unpark(this);
      return true;
    }
    return false;
  }
}
