package io.fairlead.memory;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.StuckTasks;
import io.fairlead.task.Task;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * What becomes of tasks that wait for a device's memory when nothing can come back.
 *
 * <h2>The ladder</h2>
 *
 * <ol>
 *   <li>What the pool keeps for reuse is taken, or returned to the driver.
 *   <li>Frees that the device has not reached are waited for.
 *   <li>Buffers that nobody keeps are spilled, and what others have registered is asked, in one
 *       order.
 *   <li>Others are waited for: they close buffers, or end leases, holds and reservations.
 *   <li>A try of {@link Oom} is rolled back: of the tasks that wait for each other the one of the
 *       lowest priority, and among these the youngest.
 *   <li>It is split, where all that is in its way is its own.
 *   <li>Who cannot give way fails, with the report.
 * </ol>
 *
 * The first four go on by themselves, as events of budget, reclaimer and spiller. This class sees
 * when they lead nowhere, and does the rest.
 *
 * <h2>When nothing can come back</h2>
 *
 * Let some of those who wait be stuck, and with them every task that waits for them by structure
 * ({@link StuckTasks}: joins, engines, owners, the turn of {@link Returns}). A byte is stuck that
 * one of them has to act for first: by a lease, a hold, a reservation, or an operation's keep. A
 * request cannot be granted while what is not stuck, all of it, is less than it wants. (For what
 * comes back no reservation is in the way: what that does not use is lent, {@link Budget#lend}; and
 * who draws on one may have to wait for what keeps the device all the same.) The largest set of
 * requests of which none can be granted while the others are stuck is a deadlock. That is exact in
 * one direction: what is running, or pending, or could be spilled, counts as if it came back, so
 * nobody is told without need. For what a {@link Spillable} might give back nobody is told before
 * it was asked, and has answered or not done so in its time.
 *
 * <pre>
 * level     | stuck, too                                                | acts
 * CERTAIN   | -                                                         | at once
 * OWNED     | buffers that cannot leave the device (spilling is off, or | rolls back at once; fails
 *           | full), by who allocated them: he may have handed them on; | after the time of grace
 *           | graphs, and leases and holds that were handed on          |
 * SUSPECTED | what is kept by tasks that wait for locks, messages, or   | rolls back after GRACE; never
 *           | anything else of others', and by who is in no task        | fails: the time limit does
 * </pre>
 *
 * All devices are looked at together: the leases of one may be in the way of another's requests.
 *
 * <h2>Who looks, and when</h2>
 *
 * A deadlock comes up when somebody begins to wait, here or in a join; so these post, and one look
 * at a time is made for all that was posted, on the JDK's common pool. Giving back never makes one:
 * frees post nothing. After a look comes a pause of some times its length, or that of the one
 * before if that was shorter, so that 100,000 who wait cost a part of one processor; and while
 * somebody waits there is one in each GRACE: for what nobody posts (a thread that parks elsewhere,
 * a task that ended with a lease). What was found is looked at once more before anybody is told:
 * who was stuck all the while had no way to change anything. What is not certain others may change
 * at any time; so at last somebody only adds up what there is, and while that is enough, or does
 * not stand still, nobody is told for up to GRACE.
 *
 * <h2>Why it ends</h2>
 *
 * Each verdict takes one task out of the deadlock, and what it kept becomes free. A try that was
 * rolled back begins again with a reservation of all that it is known to need, more than the last
 * time by at least the request that failed; it keeps nothing while it waits for that. So it is
 * rolled back at most as often as it allocates; at last it has all that the device can give, and if
 * that is too little it is alone in the way, and is split. The oldest of the highest priority is
 * only chosen where nobody else could give way.
 *
 * <pre>
 * field       | writer           | reader | mode
 * ACTIVE      | any              | look   | concurrent set: devices on which somebody waits
 * POSTED      | any              | look   | atomic: posts since the look began; 0: nobody is looking
 * TIMER       | look; the timer  | look   | compare-and-set
 * lastNanos   | look             | look   | volatile: one look at a time
 * beforeTold  | tests            | look   | volatile
 * doubtedSince| look             | look   | plain: one look at a time, ordered by POSTED
 * </pre>
 *
 * <p>Locks: budget's, storages', the turn's, and those of the graph of waits, one after the other.
 */
final class Ladder {
  /** How long a task may wait elsewhere before those whose memory it keeps are rolled back. */
  private static final long GRACE_NANOS = 100_000_000;

  /** The same; tests that cannot wait say 0. */
  static volatile long graceNanos = GRACE_NANOS;

  /** For tests: what happens between the last look and the verdict. */
  static volatile Runnable beforeTold = () -> {};

  /** A look may take this part of one processor. */
  private static final int PAUSE_FACTOR = 4;

  private static final long PAUSE_NANOS_MAX = 50_000_000;
  private static final int WAITERS_MAX = 8;
  private static final int SUMS_MAX = 16;

  private static final Set<Ladder> ACTIVE = ConcurrentHashMap.newKeySet();
  private static final AtomicInteger POSTED = new AtomicInteger();
  private static final AtomicBoolean TIMER = new AtomicBoolean();
  private static final AtomicLong LOOKS = new AtomicLong();

  /** How long the last look took. */
  private static volatile long lastNanos;

  static {
    StuckTasks.watch(Ladder::taskParks);
  }

  private enum Level {
    CERTAIN,
    OWNED,
    SUSPECTED
  }

  private final Device device;
  private final Budget budget;
  private final Returns returns;
  private final Spiller spiller;
  private final Iterable<Storage> live;
  private final long ownedGraceNanos;

  /** Since when a second look has said otherwise; 0 while nobody is in anybody's way. */
  private long doubtedSince;

  private final LongAdder rollbacks = new LongAdder();
  private final LongAdder splits = new LongAdder();
  private final LongAdder failures = new LongAdder();
  private final LongAdder needless = new LongAdder();

  Ladder(
      Device device,
      Budget budget,
      Returns returns,
      Spiller spiller,
      Iterable<Storage> live,
      MemoryConfig config) {
    this.device = device;
    this.budget = budget;
    this.returns = returns;
    this.spiller = spiller;
    this.live = live;
    this.ownedGraceNanos = config.graceNanos();
  }

  // --- posting: any thread, never blocks ----------------------------------------------------

  /** Somebody waits for memory, or for the turn, from now on. */
  void blocked() {
    ACTIVE.add(this);
    post();
  }

  /** Something has become impossible. */
  void changed() {
    if (budget.hasWaiting()) {
      blocked();
    }
  }

  private static void taskParks() {
    if (!ACTIVE.isEmpty()) {
      post();
    }
  }

  private static void post() {
    if (POSTED.getAndIncrement() == 0) {
      ForkJoinPool.commonPool().execute(Ladder::run);
    }
  }

  private static void run() {
    int seen = POSTED.get();
    long begin = System.nanoTime();
    try {
      look();
    } finally {
      LOOKS.incrementAndGet();
      long length = System.nanoTime() - begin;
      long pause = pauseNanos(length, lastNanos);
      lastNanos = length;
      if (POSTED.addAndGet(-seen) != 0) {
        later(Ladder::run, pause);
      }
    }
  }

  /** One look that was held up, since the machine is busy, is no long one. */
  static long pauseNanos(long length, long before) {
    return Math.min(PAUSE_FACTOR * Math.min(length, before), PAUSE_NANOS_MAX);
  }

  private static void later(Runnable what, long nanos) {
    CompletableFuture.delayedExecutor(nanos, TimeUnit.NANOSECONDS, ForkJoinPool.commonPool())
        .execute(what);
  }

  private static void lookAgainInAWhile() {
    if (TIMER.compareAndSet(false, true)) {
      later(
          () -> {
            TIMER.set(false);
            post();
          },
          GRACE_NANOS);
    }
  }

  /** For tests: done once everything that was posted before has been looked at. */
  static void awaitLook() {
    long before = LOOKS.get();
    post();
    while (LOOKS.get() < before + 2) { // one may have begun before
      Thread.onSpinWait();
      post();
    }
  }

  // --- who waits ----------------------------------------------------------------------------

  /** A request, or a place in the queue for the turn. */
  private static final class Blocked {
    final Ladder ladder;
    final Account account;
    final StuckTasks.Place place;
    final Budget.@Nullable Request request;
    final Returns.@Nullable Place turn;
    final Suspicion suspicion;

    Blocked(Ladder ladder, Budget.Request request, StuckTasks.Place place) {
      this.ladder = ladder;
      this.account = request.account;
      this.place = place;
      this.request = request;
      this.turn = null;
      this.suspicion = request.suspicion;
    }

    Blocked(Ladder ladder, Returns.Place turn) {
      this.ladder = ladder;
      this.account = turn.account;
      this.place = turn.where;
      this.request = null;
      this.turn = turn;
      this.suspicion = turn.suspicion;
    }

    long bytes() {
      return request != null ? request.bytes : turn != null ? turn.bytes : 0;
    }

    /** What it needs to go on, of this device. */
    long wanted() {
      return bytes()
          + paid().stream()
              .filter(each -> each.account.budget == ladder.budget)
              .mapToLong(each -> each.bytes)
              .sum();
    }

    List<Charge> paid() {
      return request == null ? List.of() : request.paid;
    }

    /**
     * Whether it was still waiting, so that the verdict is its end.
     *
     * @param counts run before it is told: who has heard of it finds it counted
     */
    boolean fail(Verdict verdict, @Nullable Try attempt, Runnable counts) {
      Completion.Source<Boolean> source;
      if (request != null) {
        if (!ladder.budget.withdraw(request)) {
          return false;
        }
        source = request.source;
      } else {
        if (turn == null || !ladder.returns.takeOut(turn)) {
          return false;
        }
        source = turn.source;
      }
      counts.run();
      if (attempt != null) {
        attempt.rollBack(verdict);
      }
      if (source != null) {
        source.fail(verdict);
      }
      return true;
    }

    @Override
    public String toString() {
      return "task '"
          + account.task
          + "' waits for "
          + (request == null ? "its turn to bring back " : "")
          + Sizes.text(bytes())
          + " on device "
          + ladder.device.info().ordinal();
    }
  }

  /** One device, as a look finds it. */
  private static final class View {
    final Ladder ladder;
    final Budget.Picture picture;
    final List<Blocked> continuing = new ArrayList<>();
    final List<Blocked> fresh = new ArrayList<>();
    final List<Blocked> turns = new ArrayList<>();
    final @Nullable Account turnHolder;
    final boolean nowhereToGo;
    final List<Storage.Kept> kept = new ArrayList<>();

    /** In this order: who is seen to wait has no way to change what is seen after it. */
    View(Ladder ladder, Set<Task> keeping) {
      this.ladder = ladder;
      this.picture = ladder.budget.picture(keeping);
      add(picture.continuing(), continuing);
      add(picture.fresh(), fresh);
      this.turnHolder = ladder.returns.holder();
      addTurns(ladder.returns.waiting(), keeping);
      this.nowhereToGo = ladder.spiller.isExhausted();
      boolean firmOnly = !nowhereToGo && !isForgetful();
      for (Storage storage : ladder.live) {
        Storage.Kept found = storage.kept(firmOnly);
        if (found != null) {
          kept.add(found);
        }
      }
    }

    /** Of those who begin, the first, and whom others may wait for: very many may wait here. */
    private void addTurns(List<Returns.Place> waiting, Set<Task> keeping) {
      List<Returns.Place> begin = new ArrayList<>();
      for (Returns.Place place : waiting) {
        if (place.goesOn || turns.isEmpty()) {
          turns.add(new Blocked(ladder, place));
        } else {
          begin.add(place);
        }
      }
      ladder
          .budget
          .inTheWay(begin, keeping)
          .forEach(place -> turns.add(new Blocked(ladder, place)));
    }

    private void add(List<Budget.Request> requests, List<Blocked> to) {
      for (Budget.Request request : requests) {
        StuckTasks.Place place = request.place;
        if (place != null) { // else it posts when it has one
          to.add(new Blocked(ladder, request, place));
        }
      }
    }

    boolean isEmpty() {
      return continuing.isEmpty() && fresh.isEmpty() && turns.isEmpty();
    }

    void addTo(Collection<Blocked> all) {
      all.addAll(continuing);
      all.addAll(fresh);
      all.addAll(turns);
    }

    /** What can be had while these are stuck. */
    private final class Left {
      /** Of the device, promised or not. */
      long there = ladder.budget.limit();

      /** Of what is not promised. */
      long free = ladder.budget.limit();

      final Map<Room, Long> stuckIn = new HashMap<>();

      Left(Set<Blocked> rest, Stuck stuck) {
        for (Storage.Kept each : kept) {
          if (stuck.isStuck(each)) {
            take(each.charge(), stuck);
          }
        }
        for (Blocked each : rest) {
          for (Charge charge : each.paid()) {
            if (charge.account.budget == ladder.budget) {
              take(charge, stuck);
            }
          }
        }
        // a room is its owner's and of those who draw on it, whether or not they use it
        for (Map.Entry<Room, Budget.RoomNow> each : picture.rooms().entrySet()) {
          Room room = each.getKey();
          if (stuck.isStuck(room.keeper)) {
            free -= add(room.parent, each.getValue().size(), stuck, stuckIn);
          }
        }
      }

      private void take(Charge charge, Stuck stuck) {
        there -= charge.bytes;
        free -= add(charge.room, charge.bytes, stuck, stuckIn);
      }
    }

    /**
     * One who stands behind the first who waits to begin, who in turn waits for what he, or who
     * waits for him, keeps; null if there is none.
     */
    Budget.@Nullable Request behindWhoWaitsForIt(List<Blocked> all) {
      Budget.Request head = picture.head();
      if (picture.heldBack() && !fresh.isEmpty() && !Mutant.on("oom.held-back.skip")) {
        return fresh.getFirst().request; // else who makes room may wait for who waits for it
      }
      List<Blocked> behind = fresh.stream().filter(each -> each.request != head).toList();
      if (head == null || behind.isEmpty()) {
        return null;
      }
      Set<Blocked> some = Collections.newSetFromMap(new IdentityHashMap<>());
      some.addAll(behind);
      Left left = new Left(some, new Stuck(some, all, Level.CERTAIN));
      return head.bytes > left.free ? behind.getFirst().request : null;
    }

    /** Those of {@code rest} that can go on even if all of it is stuck. */
    void addFree(Set<Blocked> rest, Stuck stuck, Collection<Blocked> free) {
      Left had = new Left(rest, stuck);
      long left = had.free;
      long there = had.there;
      Map<Room, Long> stuckIn = had.stuckIn;
      boolean allContinue = true;
      for (Blocked each : continuing) {
        boolean fits = fits(each, left, there, stuckIn);
        allContinue &= fits || !rest.contains(each);
        addIf(fits, each, rest, free);
      }
      for (Blocked each : fresh) {
        allContinue &= fits(each, left, there, stuckIn);
        addIf(allContinue, each, rest, free);
      }
      boolean moves =
          turnHolder == null || !stuck.isStuck(turnHolder) || Mutant.on("oom.turn.skip");
      for (Blocked each : turns) {
        addIf(moves, each, rest, free);
      }
    }

    /** What is stuck of the device by that; not what is in a room that is stuck as a whole. */
    private long add(@Nullable Room start, long bytes, Stuck stuck, Map<Room, Long> stuckIn) {
      Room room = picture.openRoom(start);
      if (room == null) {
        return bytes;
      }
      stuckIn.merge(room, bytes, Long::sum);
      return stuck.isStuck(room.keeper) ? 0 : bytes;
    }

    private static void addIf(
        boolean fits, Blocked each, Set<Blocked> rest, Collection<Blocked> free) {
      if (fits && rest.contains(each)) {
        free.add(each);
      }
    }

    private boolean fits(Blocked each, long left, long there, Map<Room, Long> stuckIn) {
      Budget.Request request = each.request;
      boolean borrows = request != null && request.mayBorrow();
      if (each.bytes() <= left || (borrows && each.bytes() <= there)) {
        return true; // it may have what is promised to others, too
      }
      for (Room room : picture.drawnOn().getOrDefault(each.request, List.of())) {
        Budget.RoomNow now = picture.rooms().get(room);
        long inRoom = now == null ? 0 : now.size() - stuckIn.getOrDefault(room, 0L);
        long has = room.grows ? left + inRoom : inRoom;
        // what a reservation carves from another one is a promise only
        boolean isThere = each.bytes() <= there || (request != null && request.reserves);
        if (each.bytes() <= has && isThere) {
          return true;
        }
      }
      return false;
    }
  }

  /** The bug of others: what could be spilled counts as if it could not. */
  private static boolean isForgetful() {
    return Mutant.on("oom.spillable.stuck");
  }

  /** Who cannot go on if all of these wait, at a level. */
  private static final class Stuck {
    private final StuckTasks tasks;
    private final Level level;
    private final Set<Task> goOn;

    Stuck(Set<Blocked> rest, Collection<Blocked> all, Level level) {
      this.tasks = StuckTasks.by(rest.stream().map(each -> each.place).toList());
      this.level = level;
      this.goOn =
          level == Level.SUSPECTED
              ? all.stream()
                  .filter(each -> !rest.contains(each))
                  .map(each -> each.place.task())
                  .collect(
                      Collectors.toCollection(
                          () -> Collections.newSetFromMap(new IdentityHashMap<>())))
              : Set.of();
    }

    boolean isStuck(Storage.Kept kept) {
      if (!kept.firm() && level == Level.CERTAIN && !isForgetful()) {
        return false;
      }
      for (Keeper each : kept.by()) {
        if (isStuck(each)) {
          return true;
        }
      }
      return false;
    }

    /** What somebody else may end is not certainly stuck with who took it. */
    boolean isStuck(Keeper keeper) {
      boolean maybeOthers = level == Level.CERTAIN && keeper.isHandedOn();
      return !maybeOthers && !keeper.isLeaving() && isStuck(keeper.account());
    }

    boolean isStuck(Account account) {
      Task task = account.owner;
      while (task != null && StuckTasks.doing(task) == StuckTasks.Doing.ENDED) {
        task = task.parent(); // whoever comes next closes what it has left
      }
      if (task == null || task.isRoot()) {
        return level == Level.SUSPECTED;
      }
      return tasks.contains(task)
          || (level == Level.SUSPECTED
              && StuckTasks.doing(task) == StuckTasks.Doing.WAITS_ELSEWHERE
              && !goOn.contains(task));
    }
  }

  // --- looking ------------------------------------------------------------------------------

  private static void look() {
    List<View> views = new ArrayList<>();
    List<Ladder> ladders = List.copyOf(ACTIVE);
    Set<Task> keeping = ladders.size() > 1 ? keeping(ladders) : Set.of();
    for (Ladder ladder : ladders) {
      View view = new View(ladder, keeping);
      if (view.isEmpty() && !ladder.budget.hasWaiting()) {
        ACTIVE.remove(ladder);
        if (ladder.budget.hasWaiting() || !ladder.returns.waiting().isEmpty()) {
          ACTIVE.add(ladder); // it came while this one went
        }
      } else {
        views.add(view);
      }
    }
    if (views.isEmpty()) {
      return;
    }
    lookAgainInAWhile();
    if (letPass(views)) {
      post();
      return;
    }
    boolean anyRest = false;
    for (Level level : Level.values()) {
      Set<Blocked> rest = deadlock(views, level);
      anyRest |= !rest.isEmpty();
      boolean acts = !rest.isEmpty() && !othersMayGive(rest) && act(level, rest, views, keeping);
      if (level == Level.SUSPECTED) {
        forgetOthers(views, rest);
      }
      if (acts) {
        post(); // there may be another one
        return;
      }
    }
    if (!anyRest) {
      views.forEach(view -> view.ladder.doubtedSince = 0);
    }
  }

  /**
   * Whether a {@link Spillable} has not been asked for it, or has not answered. Not for longer than
   * one may take for that: it may never be idle, or say all the time that it is used.
   */
  private static boolean othersMayGive(Set<Blocked> rest) {
    long now = System.nanoTime();
    for (Blocked each : rest) {
      Budget.Request request = each.request;
      if (request != null
          && now - request.since < Spillables.patienceNanos
          && each.ladder.spiller.othersMayGive()) {
        return true;
      }
    }
    return false;
  }

  /** Who keeps something where others wait: he may wait on another device, where he has nothing. */
  private static Set<Task> keeping(List<Ladder> ladders) {
    Set<Task> found = Collections.newSetFromMap(new IdentityHashMap<>());
    for (Ladder ladder : ladders) {
      if (!Mutant.on("oom.reserved.kept-by-nobody")) {
        found.addAll(ladder.budget.reserving());
      }
      for (Storage storage : ladder.live) {
        Storage.Kept kept = storage.kept(false);
        for (Keeper each : kept == null ? List.<Keeper>of() : kept.by()) {
          Task task = each.account().owner;
          if (task != null) {
            found.add(task);
          }
        }
      }
    }
    return found;
  }

  /** Who begins does so in order, but for who is behind one that waits for him. */
  private static boolean letPass(List<View> views) {
    List<Blocked> all = all(views);
    for (View view : views) {
      Budget.Request behind = view.behindWhoWaitsForIt(all);
      if (behind != null && view.ladder.budget.letPass(behind)) {
        return true;
      }
    }
    return false;
  }

  /** The largest set of those who wait of which each waits for the others. */
  private static Set<Blocked> deadlock(List<View> views, Level level) {
    List<Blocked> all = all(views);
    Set<Blocked> rest = Collections.newSetFromMap(new IdentityHashMap<>());
    for (Blocked each : all) {
      if (!each.place.mayBeCancelled()) {
        rest.add(each);
      }
    }
    shrink(views, all, rest, level);
    return rest;
  }

  private static Stuck shrink(
      List<View> views, Collection<Blocked> all, Set<Blocked> rest, Level level) {
    while (true) {
      Stuck stuck = new Stuck(rest, all, level);
      List<Blocked> free = new ArrayList<>();
      views.forEach(view -> view.addFree(rest, stuck, free));
      if (free.isEmpty()) {
        return stuck;
      }
      free.forEach(rest::remove);
    }
  }

  /** Everybody who waits, on all devices. */
  private static List<Blocked> all(List<View> views) {
    List<Blocked> all = new ArrayList<>();
    views.forEach(view -> view.addTo(all));
    return all;
  }

  /** Whether it is as it was: they still wait, and what they keep is the same. */
  private static boolean isStillSo(
      Set<Blocked> rest, List<View> before, Level level, Set<Task> keeping) {
    List<View> now = new ArrayList<>();
    for (View view : before) {
      now.add(new View(view.ladder, keeping));
    }
    Map<Object, Blocked> waiting = new HashMap<>();
    List<Blocked> all = all(now);
    all.forEach(each -> waiting.put(key(each), each));
    Set<Blocked> same = Collections.newSetFromMap(new IdentityHashMap<>());
    for (Blocked each : rest) {
      Blocked still = waiting.get(key(each));
      if (still == null || still.place.mayBeCancelled()) {
        return false;
      }
      same.add(still);
    }
    shrink(now, all, same, level);
    return same.size() == rest.size() && rest.stream().allMatch(Ladder::waits);
  }

  private static Object key(Blocked each) {
    return each.request != null ? each.request : each.turn != null ? each.turn : each;
  }

  private static boolean waits(Blocked each) {
    return each.request == null || each.ladder.budget.allWait(List.of(each.request));
  }

  // --- acting -------------------------------------------------------------------------------

  /** Whether to look again: somebody was told, or what was found is not so any more. */
  private static boolean act(Level level, Set<Blocked> rest, List<View> views, Set<Task> keeping) {
    if (!isLongEnough(level, rest, views)) {
      return false;
    }
    List<Blocked> all = all(views);
    Stuck stuck = new Stuck(rest, all, level);
    List<Keeper> involved = new ArrayList<>();
    for (View view : views) {
      for (Storage.Kept kept : view.kept) {
        if (stuck.isStuck(kept)) {
          involved.addAll(kept.by());
        }
      }
      for (Room room : view.picture.rooms().keySet()) {
        if (stuck.isStuck(room.keeper)) {
          involved.add(room.keeper);
        }
      }
      addTurn(view, rest, stuck, involved);
    }
    addPaid(rest, involved);
    Victim victim = victim(rest, involved);
    boolean mayBeOthers = victim != null && isSplitForOthers(victim, involved, level);
    if ((victim == null || mayBeOthers) && !mayFail(level, rest)) {
      return false;
    }
    if (!isStillSo(rest, views, level, keeping)) {
      return true; // it has moved: look again
    }
    String graph = describe(rest, views, stuck);
    if (victim != null) {
      rollBack(victim, involved, rest, views, level, graph);
    } else {
      failOne(rest, involved, level, graph);
    }
    return true;
  }

  /** Who has the turn keeps that, if nothing else: his end gives it to those who wait for it. */
  private static void addTurn(
      View view, Set<Blocked> rest, Stuck stuck, Collection<Keeper> involved) {
    Account holder = view.turnHolder;
    if (holder != null
        && stuck.isStuck(holder)
        && view.turns.stream().anyMatch(rest::contains)
        && !Mutant.on("oom.turn.kept-by-nobody")) {
      involved.add(Keeper.of(holder));
    }
  }

  /**
   * Who was granted bytes and has no block for them, or waits for other operands: his end gives
   * them back.
   */
  private static void addPaid(Set<Blocked> rest, Collection<Keeper> involved) {
    for (Blocked each : rest) {
      if (!each.paid().isEmpty() && !Mutant.on("oom.paid.kept-by-nobody")) {
        involved.add(Keeper.of(each.account));
      }
    }
  }

  /**
   * Whether it would be split for what somebody else may end: a lease or a hold of its that was
   * handed on. It gets no smaller by giving way, so that waits as long as a failure does.
   */
  private static boolean isSplitForOthers(Victim victim, List<Keeper> involved, Level level) {
    return level != Level.CERTAIN
        && isAlone(victim, involved)
        && involved.stream().anyMatch(each -> each.isHandedOn() && each.graph == null)
        && !Mutant.on("oom.split.hasty");
  }

  /** Whether all that is in its way is its own. */
  private static boolean isAlone(Victim victim, List<Keeper> involved) {
    // who waits for the turn has somebody else in the way: whoever has it
    return victim.waits.request != null
        && involved.stream().allMatch(keeper -> isOwn(victim.attempt, keeper));
  }

  /** What is not certain has to last. */
  private static boolean isLongEnough(Level level, Set<Blocked> rest, List<View> views) {
    if (level == Level.CERTAIN) {
      return true;
    }
    long now = System.nanoTime();
    boolean longEnough = true;
    for (View view : views) {
      for (Blocked each : rest) {
        if (each.ladder == view.ladder) {
          each.suspicion.note(now, view.picture.changes());
          longEnough &= each.suspicion.lasts(now, graceNanos);
        }
      }
    }
    return level == Level.OWNED || longEnough;
  }

  private static void forgetOthers(List<View> views, Set<Blocked> rest) {
    List<Blocked> all = all(views);
    for (Blocked each : all) {
      if (!rest.contains(each)) {
        each.suspicion.end();
      }
    }
  }

  private static boolean mayFail(Level level, Set<Blocked> rest) {
    long now = System.nanoTime();
    return switch (level) {
      case CERTAIN -> true;
      case OWNED ->
          rest.stream().allMatch(each -> each.suspicion.lasts(now, each.ladder.ownedGraceNanos));
      case SUSPECTED -> false;
    };
  }

  /** A try whose end gives something back, and who waits in it. */
  private record Victim(Try attempt, Blocked waits) {
    long age() {
      return attempt.number;
    }
  }

  private static @Nullable Victim victim(Set<Blocked> rest, List<Keeper> involved) {
    Set<Try> keeping = Collections.newSetFromMap(new IdentityHashMap<>());
    for (Keeper each : involved) {
      for (Try one = each.attempt(); one != null; one = one.outer) {
        keeping.add(one);
      }
    }
    List<Victim> possible = new ArrayList<>();
    for (Blocked each : rest) {
      Try attempt = each.account.attempt;
      while (attempt != null && !keeping.contains(attempt) && !isSetAside(attempt, involved)) {
        attempt = attempt.outer;
      }
      if (attempt != null) {
        possible.add(new Victim(attempt, each));
      }
    }
    return possible.stream()
        .min(
            Comparator.comparingInt((Victim each) -> priority(each.waits))
                .thenComparingLong(
                    each -> Mutant.on("oom.victim.oldest") ? each.age() : -each.age()))
        .orElse(null);
  }

  /** Whether what was set aside for it is among what they keep: that ends with it, too. */
  private static boolean isSetAside(Try attempt, List<Keeper> involved) {
    return attempt.reserved > 0
        && involved.stream()
            .anyMatch(each -> each.account() == attempt.account && each.attempt() == attempt.outer);
  }

  private static int priority(Blocked each) {
    return each.place.task().priority();
  }

  /** Whether it is no other's: of the try, or of its task and those that wait for that. */
  private static boolean isOwn(Try attempt, Keeper keeper) {
    return attempt.isAround(keeper.attempt()) || attempt.account.isBelow(keeper.account());
  }

  private static void rollBack(
      Victim victim,
      List<Keeper> involved,
      Set<Blocked> rest,
      List<View> views,
      Level level,
      String graph) {
    Try attempt = victim.attempt;
    boolean alone = isAlone(victim, involved);
    Verdict.Kind kind = alone ? Verdict.Kind.SPLIT : Verdict.Kind.ROLL_BACK;
    Blocked waits = victim.waits;
    long outside = 0;
    for (View view : views) {
      for (Storage.Kept kept : view.ladder == waits.ladder ? view.kept : List.<Storage.Kept>of()) {
        boolean own =
            kept.by().stream()
                .anyMatch(by -> isOwn(attempt, by) && !attempt.isAround(by.attempt()));
        outside += own ? kept.charge().bytes : 0;
      }
    }
    Verdict verdict =
        new Verdict(
            kind,
            waits.bytes(),
            Math.max(attempt.reserved, attempt.bytes()) + waits.wanted(),
            waits.ladder.budget.limit() - outside,
            alone ? "all that is in its way is its own" : why(level, attempt.account.task),
            graph);
    beforeTold.run();
    Sum sum = waits.ladder.sum(attempt, firstInTheWay(waits, rest));
    if (waits.ladder.doubts(level, sum)) {
      return; // what is not certain may have changed by who was not looked at: look again
    }
    boolean isNeedless = sum == Sum.ENOUGH;
    LongAdder kinds = alone ? waits.ladder.splits : waits.ladder.rollbacks;
    if (!waits.fail(verdict, attempt, () -> waits.ladder.count(kinds, isNeedless))) {
      return; // it was granted just now
    }
    // whoever else waits in it has to unwind, too
    for (Blocked each : rest) {
      if (each != waits && attempt.isAround(each.account.attempt)) {
        each.fail(verdict, null, () -> {});
      }
    }
  }

  /**
   * Whether it is better to look once more than to tell somebody. Not for ever: where the driver
   * has less than the limit, a sum says little; and once for all who are in the way of each other.
   */
  private boolean doubts(Level level, Sum sum) {
    if (level == Level.CERTAIN || sum == Sum.TOO_LITTLE || Mutant.on("oom.second-look.skip")) {
      return false;
    }
    long now = System.nanoTime();
    if (doubtedSince == 0) {
      doubtedSince = now | 1;
    }
    return now - doubtedSince < graceNanos;
  }

  private void count(LongAdder kind, boolean isNeedless) {
    kind.increment();
    if (isNeedless) {
      needless.increment();
    }
  }

  /**
   * Whether the bytes are there, or come without anybody's help, as one sees who only adds up: a
   * second look at each rollback, which has nothing in common with the first. What was set aside
   * for somebody is not counted, and who has set something aside is not looked at.
   */
  private Sum sum(@Nullable Try attempt, long bytes) {
    if ((attempt != null && attempt.reserved > 0) || spiller.isExhausted()) {
      return Sum.TOO_LITTLE;
    }
    for (int i = 0; i < SUMS_MAX; i++) {
      long changes = budget.changes();
      long comes = comes();
      if (changes == budget.changes()) { // else something may be counted twice, or not at all
        return bytes <= comes ? Sum.ENOUGH : Sum.TOO_LITTLE;
      }
    }
    return Sum.UNKNOWN;
  }

  private enum Sum {
    ENOUGH,
    TOO_LITTLE,
    /** It did not stand still for long enough. */
    UNKNOWN
  }

  private long comes() {
    MemoryStats stats = budget.stats();
    long comes = stats.limit() - stats.inUse() - stats.reserved() + stats.pendingFree();
    for (Storage storage : live) {
      comes += storage.spillableBytes(); // also of one that is being copied
    }
    return comes;
  }

  /** What it asks for, or who has the turn that it waits for. */
  private static long firstInTheWay(Blocked waits, Set<Blocked> rest) {
    Account holder = waits.request == null ? waits.ladder.returns.holder() : null;
    return rest.stream()
        .filter(each -> each.request != null && each.account == holder)
        .mapToLong(Blocked::bytes)
        .findFirst()
        .orElse(waits.bytes());
  }

  private static void failOne(Set<Blocked> rest, List<Keeper> involved, Level level, String graph) {
    Set<Account> keeping = accounts(involved.stream().map(Keeper::account));
    List<Blocked> order = new ArrayList<>(rest);
    order.sort(
        Comparator.comparing((Blocked each) -> !each.account.isBelowAny(keeping))
            .thenComparingInt(Ladder::priority)
            .thenComparing(each -> each.account.taskId, Comparator.reverseOrder()));
    for (Blocked each : order) {
      if (level != Level.CERTAIN
          && each.ladder.doubts(
              level, each.ladder.sum(each.account.attempt, firstInTheWay(each, rest)))) {
        return;
      }
      String why = why(level, each.account.task);
      Verdict verdict = new Verdict(Verdict.Kind.FAIL, each.bytes(), 0, 0, why, graph);
      if (each.fail(verdict, null, each.ladder.failures::increment)) {
        return;
      }
    }
  }

  private static Set<Account> accounts(Stream<Account> some) {
    Set<Account> all = Collections.newSetFromMap(new IdentityHashMap<>());
    some.forEach(all::add);
    return all;
  }

  private static String why(Level level, String task) {
    return switch (level) {
      case CERTAIN ->
          "those who keep the memory wait for memory themselves, and task '"
              + task
              + "' is the one that gives way";
      case OWNED ->
          "those who hold the memory wait for memory themselves, and nothing else can be spilled";
      case SUSPECTED ->
          "it is suspected that nothing comes back: those who keep the memory have waited for more"
              + " of it, or for something of others', for "
              + graceNanos / 1_000_000
              + " ms";
    };
  }

  // --- words --------------------------------------------------------------------------------

  private static String describe(Set<Blocked> rest, List<View> views, Stuck stuck) {
    StringBuilder text = new StringBuilder();
    addWaiting(rest, views, text);
    if (rest.size() > WAITERS_MAX) {
      text.append("\n  and ").append(rest.size() - WAITERS_MAX).append(" other tasks wait");
    }
    Stream<Storage.Kept> kept = views.stream().flatMap(view -> view.kept.stream());
    addKeepers("waits", kept.filter(stuck::isStuck), rest, text);
    return text.toString();
  }

  private static void addWaiting(
      Collection<Blocked> waiting, List<View> views, StringBuilder text) {
    waiting.stream()
        .sorted(Comparator.comparing((Blocked each) -> each.request == null)) // it is their cause
        .limit(WAITERS_MAX)
        .forEach(
            each ->
                text.append("\n  waits: ")
                    .append(each)
                    .append(hasTurn(each, views))
                    .append(keeps(each, views)));
  }

  /** Whether those who wait for the turn wait for this one. */
  private static String hasTurn(Blocked each, List<View> views) {
    boolean has = views.stream().anyMatch(view -> view.turnHolder == each.account);
    return has && each.request != null ? ", and has the turn that others wait for" : "";
  }

  /** Those of whom it is not said already that they wait. */
  private static void addKeepers(
      String verb, Stream<Storage.Kept> kept, Collection<Blocked> waiting, StringBuilder text) {
    Set<Account> known = accounts(waiting.stream().map(each -> each.account));
    kept.flatMap(each -> each.by().stream())
        .map(Keeper::account)
        .distinct()
        .filter(account -> !known.contains(account))
        .limit(WAITERS_MAX)
        .forEach(account -> text.append("\n  ").append(verb).append(": ").append(of(account)));
  }

  private static String of(Account account) {
    Task task = account.owner;
    return task == null
        ? "somebody in no task keeps memory"
        : "task '" + account.task + "' " + StuckTasks.describe(task);
  }

  private static String keeps(Blocked blocked, List<View> views) {
    long bytes = 0;
    for (View view : views) {
      for (Storage.Kept kept : view.kept) {
        boolean its = kept.by().stream().anyMatch(keeper -> keeper.account() == blocked.account);
        bytes += its ? kept.charge().bytes : 0;
      }
      for (Map.Entry<Room, Budget.RoomNow> each : view.picture.rooms().entrySet()) {
        bytes += each.getKey().keeper.account() == blocked.account ? each.getValue().free() : 0;
      }
    }
    for (Charge charge : blocked.paid()) {
      bytes += charge.bytes;
    }
    return bytes == 0 ? "" : ", and keeps " + Sizes.text(bytes) + " on devices";
  }

  /** For reports of requests that have waited for too long: who waits, and who keeps what. */
  String describe() {
    View view = new View(this, Set.of());
    List<Blocked> all = all(List.of(view));
    StringBuilder text = new StringBuilder();
    addWaiting(all, List.of(view), text);
    addKeepers("keeps", view.kept.stream(), all, text);
    return text.toString();
  }

  /** Who has lacked memory so far. */
  MemoryStats.Waits waits() {
    return new MemoryStats.Waits(
        budget.waitingCount(), rollbacks.sum(), splits.sum(), failures.sum(), needless.sum());
  }

  /** What a task throws that was told this where it waited for so many bytes. */
  RuntimeException toThrow(Verdict verdict, long bytes, Site site) {
    return verdict.kind == Verdict.Kind.FAIL
        ? outOfMemory(verdict, bytes, site)
        : new MemoryRollbackException(verdict);
  }

  OutOfDeviceMemoryException outOfMemory(Verdict verdict, long bytes, Site site) {
    return device.outOfMemory(bytes, site, verdict.why(), verdict.graph, null);
  }
}
