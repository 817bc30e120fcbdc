package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Mark;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Retired;
import io.fairlead.task.Role;
import io.fairlead.task.TaskRuntime;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/**
 * Makes room on a device: moves buffers below for those who wait for memory, or at their users'
 * wish.
 *
 * <p>One loop on a thread of its own, an owner that is started with the first need. Everybody
 * posts: who waits for memory, who asks for a buffer to be spilled, a copy that has ended. It never
 * waits for the device, except for room in its own streams.
 *
 * <h2>A look</h2>
 *
 * <ol>
 *   <li>Copies that were seen to have ended are committed.
 *   <li>Images that have landed on disk make room in host memory.
 *   <li>Buffers that their users want below begin to go there.
 *   <li>While more is missing than is under way, further victims begin, small ones together: lowest
 *       priority first, within it those with a valid image, which cost nothing, then idle ones,
 *       then by last use. Among them are the {@link Spillable}s of others, which are asked on a
 *       thread of theirs: what comes after one waits for its answer, for a time. Where the host has
 *       no room, images of what is on the device go first, then the oldest images move to disk,
 *       then those that are just being copied, piece by piece; and the victims wait for that.
 *   <li>For those who wait to reserve, and have done so for a time of grace, only what nobody has
 *       used for as long ({@link Idleness}): what was promised begins when there is room for it,
 *       and not at the cost of those who are at work.
 *   <li>If nothing can leave, and nothing is on its way, buffers that come back may have what is
 *       promised and not in use ({@link Budget#lend}), and all reservations' buffers may leave for
 *       them.
 *   <li>If it is not enough even so, it looks again after a moment: what is in use now need not be
 *       then.
 * </ol>
 *
 * <pre>
 * field           | writer       | reader | mode, guard
 * underWay, lanes,| its thread   | same   | plain; of who closes, once that has ended
 * onTheirWay, pack|              |        |
 * postponed, idle,|              |        |
 * full, pauseNanos|              |        |
 * comesSince,     |              |        |
 * askedForStream  |              |        |
 * refused,        |              |        |
 * refusals        |              |        |
 * asked           | its thread   | any    | volatile: others only see whether there is one
 * pausing,        | its thread,  | its    | volatile; the timer takes it back before it posts, so
 * watching        | the timer    | thread | that the look which it brings can ask for the next one
 * timers          | same         | tests  | atomic; lowered after it has posted
 * looks           | its thread   | any    | atomic
 * looksOver       | its thread   | any    | volatile; read before looks
 * exhausted       | its thread   | any    | volatile; what is posted since makes it worth nothing
 * copying,        | its thread   | any    | atomic: bytes under way
 * descending      |              |        |
 * posted          | any          | any    | compare-and-set; taken back before a look begins
 * ended, landed,  | any          | its    | concurrent queues, filled before posting
 * wishes          |              | thread |
 * owner, stopped  | any          | any    | lock (a leaf), and volatile for a first look
 * up              | its thread   | any    | volatile; set before anything is spilled
 * </pre>
 */
final class Spiller {
  /** So that a copy behind a long kernel does not hold up the others. */
  private static final int LANES = 4;

  /** A copy takes long enough for others to be in its way. */
  private static final long LARGE_BYTES = 1L << 20;

  /** First and longest pause before it looks again for victims. */
  private static final long PAUSE_MIN_NANOS = 200_000;

  private static final long PAUSE_MAX_NANOS = 10_000_000;

  /**
   * How long who wants to reserve waits for others to end, before what they do not use leaves for
   * him. Longer than the time between two uses of what is at work, and short beside the work that
   * is worth a reservation.
   */
  private static final long RESERVE_GRACE_NANOS = 200_000_000;

  /** The same; tests choose it. */
  static volatile long reserveGraceNanos = RESERVE_GRACE_NANOS;

  private final Device device;
  private final DeviceContext context;
  private final Budget budget;
  private final Reclaimer reclaimer;
  private final TaskRuntime tasks;
  private final Iterable<Storage> live;
  private final Spillables others;
  private final @Nullable HostTier host;
  private final @Nullable DiskTier disk;
  private final int operationsMax;

  private final AtomicBoolean posted = new AtomicBoolean();
  private final ConcurrentLinkedQueue<List<Copy>> ended = new ConcurrentLinkedQueue<>();
  private final ConcurrentLinkedQueue<Descent> landed = new ConcurrentLinkedQueue<>();
  private final ConcurrentLinkedQueue<Wish> wishes = new ConcurrentLinkedQueue<>();
  private final LongAdder spills = new LongAdder();
  private final LongAdder returns = new LongAdder();
  private final LongAdder spilledBytes = new LongAdder();
  private final LongAdder returnedBytes = new LongAdder();
  private final BriefLock lock = new BriefLock();
  private volatile @Nullable Owner owner;
  private volatile boolean stopped;
  private final AtomicLong copying = new AtomicLong();
  private final AtomicLong descending = new AtomicLong();

  /** Whether at the last look something was missing and there was no room below for it. */
  private volatile boolean exhausted;

  private volatile @Nullable DeviceStream up;

  private final Map<Storage, Copy> underWay = new HashMap<>();
  private final Set<Storage> onTheirWay = new HashSet<>();
  private final List<Lane> lanes = new ArrayList<>();

  /** Copies of small storages that begin together, at the latest at the end of a look. */
  private final List<Copy> pack = new ArrayList<>();

  /** Wishes for whose copies there is no room before something has landed. */
  private final List<Wish> postponed = new ArrayList<>();

  private long pauseNanos = PAUSE_MIN_NANOS;
  private volatile boolean pausing;
  private volatile boolean watching;

  /** Whether this look has met something that had no room below. */
  private boolean full;

  /** Since when each look that met that has seen room coming; 0: the last one has not. */
  private long comesSince;

  /** When it last asked for a stream. */
  private long askedForStream;

  /** Whether the machine has refused to pin for the last image, or the driver a stream for it. */
  private boolean refused;

  /** How often in a row it has. */
  private int refusals;

  private final Idleness idle;

  /** Whom of others it has asked, and has no answer from yet. */
  private volatile @Nullable Asked asked;

  private volatile boolean awaitingAnswer;

  /** Timers that have not posted yet. */
  private final AtomicInteger timers = new AtomicInteger();

  private final AtomicLong looks = new AtomicLong();

  /** How many of them are over. */
  private volatile long looksOver;

  Spiller(
      Device device,
      TaskRuntime tasks,
      Budget budget,
      Reclaimer reclaimer,
      Iterable<Storage> live,
      Spillables others,
      Ticks ticks,
      MemoryConfig config) {
    this.device = device;
    this.context = device.context();
    this.idle = new Idleness(ticks, this::mayPick);
    this.tasks = tasks;
    this.budget = budget;
    this.reclaimer = reclaimer;
    this.live = live;
    this.others = others;
    this.host = config.spill().isOn() ? hostTier(config) : null;
    this.disk = host == null ? null : diskTier(config.spill(), host);
    // half of what fits, since edges take room too
    this.operationsMax = Math.max(1, context.config().unfinishedMax() / 2);
  }

  private HostTier hostTier(MemoryConfig config) {
    long max = config.spill().hostBytesMax();
    long bytes = max == SpillConfig.QUARTER ? HostMemory.bytes() / 4 : max;
    return new HostTier(
        context.openHostBlocks(bytes), bytes, config.chunkBytes(), config.spill().failures());
  }

  private @Nullable DiskTier diskTier(SpillConfig config, HostTier above) {
    if (config.directory().isEmpty()) {
      return null;
    }
    Path directory = config.directory().get();
    return DiskTier.open(
        DiskOptions.of(directory, config.diskBytesMax(), above.unitBytes())
            .withFaults(
                files ->
                    config.failures().isAny() ? new FailingFiles(files, config.failures()) : files)
            .withRoomAgain(this::needed));
  }

  // --- posting: any thread, never blocks ----------------------------------------------------

  boolean isOn() {
    return host != null;
  }

  /** Whether anything can leave the device: buffers, or what others have of the limit. */
  boolean canHelp() {
    return isOn() || others.hasAny(Spillable.Memory.TRACKED);
  }

  /** One of others' has answered. */
  void answered() {
    if (asked != null) {
      post();
    }
  }

  /** Whether one of others' may give something that was not asked for it yet. */
  boolean othersMayGive() {
    return others.mayGive();
  }

  /** Somebody waits for memory. */
  void needed() {
    if (canHelp()) {
      post();
    }
  }

  /** Something may leave the device that could not before. */
  void mayPick() {
    if (budget.hasWaiting() && canHelp()) {
      post();
    }
  }

  /** The context is lost. */
  void lost() {
    if (owner != null) {
      post();
    }
  }

  /** Whether nothing that could leave the device has anywhere to go. */
  boolean isExhausted() {
    // in this order: a look that is under way has said so before it was no longer posted
    return !isOn() || (!isBusy() && exhausted);
  }

  /** Whether memory is on its way from here. */
  boolean isBusy() {
    return copying.get() > 0 || descending.get() > 0 || asked != null || posted.get();
  }

  /**
   * Whether a look has found nothing that can leave for those who have waited since before this was
   * {@link #needed}: nothing is on its way, and no look is going on, or to come at once.
   */
  boolean standsStill() {
    long over = looksOver;
    return !isBusy() && looks.get() == over;
  }

  /** How long what is idle may take before it begins to leave for it. */
  long hopeNanos(Budget.Request request) {
    // two marks, and the look after them
    return isOn() && request.isPatient() ? 3 * Math.max(reserveGraceNanos, PAUSE_MIN_NANOS) : 0;
  }

  /** Brings where it is in the end; at once if it cannot leave. */
  Completion<Tier> spill(Storage storage) {
    Completion.Source<Tier> source = Completion.source();
    wishes.add(new Wish(storage, source));
    if (isOn()) {
      post();
    }
    if (!isOn() || stopped) {
      answerAll();
    }
    return source.completion();
  }

  private void answerAll() {
    for (Wish wish = wishes.poll(); wish != null; wish = wishes.poll()) {
      wish.answer();
    }
  }

  private void post() {
    if (!stopped && posted.compareAndSet(false, true)) {
      Owner loop = owner();
      if (loop != null) {
        loop.retire(new Look(this));
      }
    }
  }

  private @Nullable Owner owner() {
    Owner known = owner;
    if (known != null) {
      return known;
    }
    lock.lock();
    try {
      if (owner == null && !stopped) {
        owner = tasks.owner("spiller-" + context.ordinal(), Role.OWNER);
      }
      return owner;
    } finally {
      lock.unlock();
    }
  }

  // --- for those who bring back -------------------------------------------------------------

  /** Where the copies up go: to the stream that needs them, unless it cannot take them. */
  DeviceStream streamUp(DeviceStream needs) {
    DeviceStream own = up;
    boolean fits = needs.context() == context && !needs.isCaptured();
    return fits || own == null ? needs : own;
  }

  void returned(long bytes) {
    returns.increment();
    returnedBytes.add(bytes);
  }

  // --- looking: its thread ------------------------------------------------------------------

  private void look() {
    exhausted = false; // first: who sees that nothing is posted sees this, too
    posted.set(false);
    looks.incrementAndGet();
    if (stopped) {
      return;
    }
    if (context.isLost()) {
      abandon();
      return;
    }
    commitEnded();
    for (Descent descent = landed.poll(); descent != null; descent = landed.poll()) {
      land(descent);
    }
    grantWishes();
    hear();
    sendPack();
    makeRoomForPostponed();
    if (missing() > 0) {
      reclaimer.sweep();
      makeRoom();
    }
  }

  /**
   * What has ended by now. Asked for while others begin, too: a new image may take its time, and
   * those who wait get theirs meanwhile.
   */
  private void commitEnded() {
    for (List<Copy> copies = ended.poll(); copies != null; copies = ended.poll()) {
      commit(copies);
    }
  }

  /** Those that are there now: who wishes again and again must not keep this from the rest. */
  private void grantWishes() {
    int now = wishes.size();
    for (int i = 0; i < now || Mutant.on("spill.wishes.all"); i++) {
      Wish wish = wishes.poll();
      if (wish == null) {
        return;
      }
      grant(wish);
      commitEnded();
    }
    if (!wishes.isEmpty()) {
      post();
    }
  }

  private long missing() {
    return budget.missing() - copying.get();
  }

  /** Bytes that have to leave: all of them, and those for which that must not wait. */
  private record Need(long all, long atOnce) {
    Need without(long bytes) {
      return new Need(all - bytes, atOnce - bytes);
    }
  }

  private void makeRoom() {
    long now = System.nanoTime();
    long grace = Mutant.on("spill.reserve.eager") ? 0 : reserveGraceNanos;
    idle.look(now, grace);
    if (asked != null) {
      return; // looks again when that has answered, or for too long has not
    }
    long coming = copying.get();
    Need need = new Need(budget.missingSince(now - grace), budget.missingAtOnce()).without(coming);
    full = false;
    Need left = pick(need, victims(budget.helped()));
    long lacking = left.atOnce > 0 && isOn() && isStill() ? budget.lend() : 0;
    if (lacking > 0) {
      pick(new Need(lacking, lacking), victims(null));
    }
    exhausted = full && isStill(); // without disk nothing waits to go there
    if (exhausted) {
      device.ladder().changed();
    }
    // asked again: what has left may have gone back to a reservation, and be too little there
    if (isStill() && budget.missingAtOnce() - copying.get() > 0) {
      lookLater();
    }
    if (budget.missing() > budget.missingAtOnce()) {
      watch(grace);
    }
  }

  /** Whether nothing is under way. */
  private boolean isStill() {
    return underWay.isEmpty() && onTheirWay.isEmpty() && asked == null;
  }

  private void lookLater() {
    if (!pausing) {
      pausing = true;
      timers.incrementAndGet();
      // The JDK's own timer, as for requests that nobody waits in.
      var _ = ForkJoinPool.commonPool().schedule(this::endPause, pauseNanos, TimeUnit.NANOSECONDS);
      pauseNanos = Math.min(2 * pauseNanos, PAUSE_MAX_NANOS);
    }
  }

  /** Looks again in a while for who waits to reserve: by then he has for long enough. */
  private void watch(long nanos) {
    if (!watching) {
      watching = true;
      timers.incrementAndGet();
      long delay = Math.max(nanos, PAUSE_MIN_NANOS);
      var _ = ForkJoinPool.commonPool().schedule(this::endWatch, delay, TimeUnit.NANOSECONDS);
    }
  }

  private void endWatch() {
    watching = false;
    post();
    timers.decrementAndGet();
  }

  /** Of the timer. The look may be over before this is. */
  private void endPause() {
    boolean late = Mutant.on("spill.pause.late");
    if (!late) {
      pausing = false;
    }
    post();
    if (late) {
      awaitLook();
      pausing = false;
    }
    timers.decrementAndGet();
  }

  /** What is missing after that. */
  private Need pick(Need need, List<Ranked> victims) {
    Need left = need;
    long without = 0; // bytes of victims that have nowhere to go yet
    long tooLarge = Long.MAX_VALUE; // what is smaller may have
    for (Ranked ranked : victims) {
      if (left.all - without <= 0) {
        break;
      }
      Storage.Candidate victim = ranked.candidate;
      if (victim == null) {
        if (mayAsk(ranked, left.atOnce - without) && ask(ranked.other(), left.all - without)) {
          break; // who comes after it is picked if that is not enough
        }
        continue;
      }
      if (left.atOnce - without <= 0 && !isIdle(victim)) {
        continue;
      }
      Storage storage = victim.storage();
      Begun begun;
      if (victim.valid()) {
        begun = leave(storage) ? Begun.YES : Begun.NOT_NOW;
      } else {
        begun = storage.bytes >= tooLarge ? Begun.FULL : beginCopy(storage, null);
      }
      switch (begun) {
        case YES -> {
          left = left.without(victim.charge().bytes);
          pauseNanos = PAUSE_MIN_NANOS;
          commitEnded();
        }
        case FULL -> {
          tooLarge = Math.min(tooLarge, Mutant.on("spill.full.all") ? 0 : storage.bytes);
          without += disk == null ? 0 : storage.bytes; // to where nothing goes nobody waits to go
        }
        case NOT_NOW -> {}
      }
    }
    left = left.without(-sendPack());
    descend(without);
    full |= tooLarge < Long.MAX_VALUE && !comesBelow(tooLarge);
    return left;
  }

  /**
   * Whether there is room below soon, without anybody's help: then this looks again. Not for ever:
   * what the device still reads may be behind a long kernel.
   */
  private boolean comesBelow(long bytes) {
    boolean comes = host != null && !refused && host.comes(bytes) && !Mutant.on("spill.full.hasty");
    long now = System.nanoTime();
    if (!comes) {
      comesSince = 0;
    } else if (comesSince == 0) {
      comesSince = now | 1;
    }
    return comes && now - comesSince < Ladder.graceNanos;
  }

  /** Nobody has used it for a grace, nor uses it. */
  private boolean isIdle(Storage.Candidate victim) {
    return Mutant.on("spill.reserve.eager") || idle.isIdle(victim.lastUse(), victim.uses());
  }

  private enum Begun {
    YES,
    /** It is in use, or the lanes are. */
    NOT_NOW,
    /** There is no room below. */
    FULL
  }

  /**
   * @param helped whom it should help; null if any bytes do
   */
  private List<Ranked> victims(Budget.@Nullable Helped helped) {
    List<Ranked> ranked = new ArrayList<>();
    for (Storage storage : isOn() ? live : List.<Storage>of()) {
      Storage.Candidate candidate = storage.candidate();
      if (candidate != null && (helped == null || budget.wouldHelp(candidate.charge(), helped))) {
        ranked.add(Ranked.of(candidate));
      }
    }
    long now = System.nanoTime();
    for (SpillRegistration other : others.open(Spillable.Memory.TRACKED)) {
      if (other.isReady() && !other.isResting(now)) {
        ranked.add(Ranked.of(other));
      }
    }
    ranked.sort(Ranked.ORDER);
    return ranked;
  }

  /** A buffer of ours, or something of others', and when it goes. */
  private record Ranked(
      Storage.@Nullable Candidate candidate,
      @Nullable SpillRegistration others,
      int priority,
      boolean valid,
      boolean idle,
      long lastUse) {
    static final Comparator<Ranked> ORDER =
        Comparator.comparingInt(Ranked::priority)
            .thenComparing(each -> !each.valid)
            .thenComparing(each -> !each.idle)
            .thenComparingLong(Ranked::lastUse);

    static Ranked of(Storage.Candidate each) {
      boolean idle = each.valid() || isIdle(each.uses());
      return new Ranked(each, null, each.priority(), each.valid(), idle, each.lastUse());
    }

    static Ranked of(SpillRegistration each) {
      return new Ranked(null, each, each.rank(), false, true, each.lastUse());
    }

    SpillRegistration other() {
      return Objects.requireNonNull(others, "it is no buffer");
    }
  }

  /** Whether what others have comes before every buffer that could leave the device now. */
  boolean isBeforeBuffers(SpillRegistration other) {
    Ranked its = Ranked.of(other);
    for (Storage storage : isOn() ? live : List.<Storage>of()) {
      Storage.Candidate candidate = storage.candidate();
      if (candidate != null && Ranked.ORDER.compare(Ranked.of(candidate), its) < 0) {
        return false;
      }
    }
    return true;
  }

  // --- what others have ---------------------------------------------------------------------

  /**
   * A call that is going on.
   *
   * @param missing bytes, when it began
   */
  private record Asked(SpillRegistration who, Completion<Long> answer, long missing) {}

  /** For those who wait to reserve only what nobody has used for a grace. */
  private boolean mayAsk(Ranked ranked, long atOnce) {
    return atOnce > 0 || idle.isIdle(ranked.lastUse, List.of()) || Mutant.on("spill.reserve.eager");
  }

  private boolean ask(SpillRegistration who, long bytes) {
    long missing = budget.missing();
    Completion<Long> answer = others.ask(who, bytes);
    if (answer == null) {
      return false;
    }
    asked = new Asked(who, answer, missing);
    if (answer.isDone()) {
      post(); // it may have come before anybody was there to be told
    }
    awaitAnswer();
    return true;
  }

  /** Looks again once an answer would be late. */
  private void awaitAnswer() {
    if (!awaitingAnswer) {
      awaitingAnswer = true;
      timers.incrementAndGet();
      var _ =
          ForkJoinPool.commonPool()
              .schedule(
                  this::endAwaitingAnswer, Spillables.patienceNanos + 1, TimeUnit.NANOSECONDS);
    }
  }

  private void endAwaitingAnswer() {
    awaitingAnswer = false;
    answered();
    timers.decrementAndGet();
  }

  /** What has become of the call that is going on. What it says is not relied upon. */
  private void hear() {
    Asked now = asked;
    if (now == null) {
      return;
    }
    if (now.answer.isDone()) {
      asked = null;
      boolean helped =
          now.answer.getNow() > 0
              && (budget.missing() < now.missing || Mutant.on("spillable.believe"));
      if (!helped) {
        now.who.spend(System.nanoTime());
        device.ladder().changed();
      }
    } else if (!now.who.isAnswering(System.nanoTime())) {
      asked = null;
      now.who.isLate();
      device.ladder().changed();
    } else {
      awaitAnswer();
    }
  }

  private static boolean isIdle(List<Mark> uses) {
    return uses.stream().allMatch(Frontier::isReachedIfKnown);
  }

  private boolean leave(Storage storage) {
    Storage residence = storage.leave();
    if (residence != null) {
      giveBack(residence);
    }
    return residence != null;
  }

  /** As a closed buffer's memory. */
  private void giveBack(Storage residence) {
    Charge charge = residence.charge;
    if (charge != null) {
      budget.wentBelow(charge);
      spills.increment();
      spilledBytes.add(charge.bytes);
      try {
        device.end(residence, charge);
      } catch (DeviceException refused) {
        // it still counts as in use; the device tries again
      }
    }
  }

  private void grant(Wish wish) {
    boolean comes = false;
    try {
      comes = begin(wish);
    } finally {
      if (!comes) {
        wish.answer(); // also where it was refused: nobody comes back to it
      }
    }
  }

  /** Whether somebody answers it later. */
  private boolean begin(Wish wish) {
    Copy copy = underWay.get(wish.storage);
    if (copy != null && !Mutant.on("spill.twice")) {
      copy.add(wish);
      return true;
    }
    Storage.Start start = wish.storage.leaveOrTakeSpare();
    Storage residence = start.left();
    if (residence != null) {
      giveBack(residence);
      return false;
    }
    return switch (beginCopy(wish.storage, start.spare(), wish)) {
      case YES -> true;
      case NOT_NOW -> false;
      case FULL -> disk != null && postponed.add(wish);
    };
  }

  /**
   * For all of them together: while one image is written the next victim is copied. What is being
   * copied now can go to disk as soon as it has arrived. If nothing makes room, they stay.
   */
  private void makeRoomForPostponed() {
    if (postponed.isEmpty()) {
      return;
    }
    descend(postponed.stream().mapToLong(wish -> wish.storage.bytes).sum());
    if (onTheirWay.isEmpty() && underWay.isEmpty()) {
      postponed.forEach(Wish::answer);
      postponed.clear();
    }
  }

  // --- copies -------------------------------------------------------------------------------

  private Begun beginCopy(Storage storage, @Nullable Wish wish) {
    return beginCopy(storage, storage.takeSpareImage(true), wish);
  }

  /**
   * @param before its image so far, which is worth nothing any more: the next one is made in its
   *     place, or it is given back
   */
  private Begun beginCopy(Storage storage, @Nullable Image before, @Nullable Wish wish) {
    refused = false;
    Lane lane = lane(storage);
    HostImage again = lane == null ? null : again(before);
    if (before != null && again == null) {
      before.release();
    }
    if (lane == null) {
      return !refused || (wish == null && isRefusedForOnce()) ? Begun.NOT_NOW : Begun.FULL;
    }
    HostImage image = again == null ? begin(storage.bytes) : again;
    if (image == null) {
      return wish == null && isRefusedForOnce() ? Begun.NOT_NOW : Begun.FULL;
    }
    refusals = 0;
    if (!storage.beginCopy()) {
      image.release();
      return Begun.NOT_NOW;
    }
    boolean small = Packing.fits(image);
    Copy copy = new Copy(storage, image, small && !pack.isEmpty() ? pack.getFirst().lane : lane);
    if (wish != null) {
      copy.add(wish);
    }
    if (small) {
      addToPack(copy);
      return Begun.YES;
    }
    boolean begun = false;
    try {
      begun = enqueue(copy);
    } finally {
      if (!begun) {
        copy.wishes = List.of(); // answered by who asks
        storage.endCopy();
        image.release();
      }
    }
    if (!begun) {
      return Begun.NOT_NOW;
    }
    isUnderWay(copy);
    begun(List.of(copy), image.pieces());
    return Begun.YES;
  }

  private void isUnderWay(Copy copy) {
    underWay.put(copy.storage, copy);
    copying.addAndGet(charged(copy.storage));
  }

  /**
   * Their copies are enqueued, and end with the last of that.
   *
   * @param operations of the lane, for all of them
   */
  private void begun(List<Copy> copies, int operations) {
    Copy first = copies.getFirst();
    first.operations = operations;
    first.lane.operations += operations;
    Mark last = first.last;
    if (Mutant.on("spill.commit.early") || last == null) {
      seen(copies);
    } else {
      last.stream().reached(last).onDone(_ -> seen(copies));
    }
  }

  // --- packs --------------------------------------------------------------------------------

  private void addToPack(Copy copy) {
    isUnderWay(copy);
    pack.add(copy);
    if (pack.size() == Packing.IMAGES_MAX) {
      sendPack();
    }
  }

  /** As one operation, if it can be. Answers of how many bytes no copy has begun. */
  private long sendPack() {
    if (pack.isEmpty()) {
      return 0;
    }
    List<Copy> copies = new ArrayList<>(pack);
    copies.sort(Copy.BY_STORAGE);
    pack.clear();
    long lacking = 0;
    try {
      send(copies);
    } finally {
      for (Copy copy : copies) {
        if (copy.last == null) {
          giveUp(copy);
          lacking += charged(copy.storage);
        }
      }
    }
    return lacking;
  }

  private void send(List<Copy> copies) {
    HostBlock table = copies.size() > 1 ? Packing.table(context) : null;
    if (table != null) {
      List<Copy> sent = enqueueTogether(copies, table);
      if (!sent.isEmpty()) {
        begun(sent, 1);
      }
      return;
    }
    for (Copy copy : copies) {
      if (enqueue(copy)) {
        begun(List.of(copy), copy.image.pieces());
      }
    }
  }

  /** Those whose copies have begun. */
  private List<Copy> enqueueTogether(List<Copy> copies, HostBlock table) {
    for (Copy copy : copies) {
      copy.together = true;
    }
    Mark mark;
    try {
      mark = Packing.down(copies.getFirst().lane.stream, copies, table);
    } catch (IllegalStateException | DeviceException refused) {
      return List.of(); // as for a single one
    }
    Completion<Void> arrived = disk == null ? null : mark.stream().reached(mark);
    List<Copy> taken = new ArrayList<>(copies.size());
    for (Copy copy : copies) {
      if (copy.isTaken()) {
        copy.last = mark;
        copy.image.generation = copy.generation;
        if (arrived != null) {
          copy.arrivals.add(arrived);
        }
        taken.add(copy);
      }
    }
    return taken;
  }

  /** It stays where it is. */
  private void giveUp(Copy copy) {
    forget(copy);
    copy.endDescent(false);
    copy.storage.endCopy();
    copy.image.release();
    copy.wishes.forEach(Wish::answer);
  }

  // --- what becomes of copies ---------------------------------------------------------------

  private boolean enqueue(Copy copy) {
    HostImage image = copy.image;
    try {
      for (int i = 0; i < image.pieces(); i++) {
        Mark mark = new Mark(copy.lane.stream, image.copyDown(i, copy.lane.stream, copy));
        copy.last = mark;
        if (disk != null) {
          // Asked for now: asked for later it would be known only with all that follows.
          copy.arrivals.add(mark.stream().reached(mark));
        }
      }
      image.generation = copy.generation;
      return true;
    } catch (Torn | IllegalStateException inUse) {
      return false; // closed, lent or written meanwhile
    } catch (DeviceException refused) {
      return false; // whoever needs the device is told
    }
  }

  private void seen(List<Copy> copies) {
    ended.add(copies);
    post();
  }

  private void commit(List<Copy> copies) {
    int next = 0;
    try {
      while (next < copies.size()) {
        commit(copies.get(next++));
      }
    } finally {
      if (next < copies.size()) {
        ended.add(copies.subList(next, copies.size())); // the next look goes on with them
      }
    }
  }

  private void commit(Copy copy) {
    forget(copy);
    try {
      commitNow(copy);
    } finally {
      copy.wishes.forEach(Wish::answer); // whatever becomes of its memory
    }
  }

  private void commitNow(Copy copy) {
    Mark last = copy.last;
    if (last != null && !isOver(last)) {
      copy.endDescent(false);
      copy.storage.endCopy();
      copy.image.release();
      return;
    }
    Storage.Commit commit = copy.storage.commit(copy.image);
    copy.endDescent(commit.outcome() == Storage.Outcome.LEFT);
    switch (commit.outcome()) {
      case LEFT -> {
        Storage residence = commit.left();
        if (residence != null) {
          giveBack(residence);
        }
      }
      case KEPT -> retryPostponed(); // where there is no other room, such an image goes
      case DROPPED -> {
        copy.image.release();
        retryPostponed();
      }
    }
  }

  /** It may have ended with its context, or by a refusal, instead. */
  private static boolean isOver(Mark last) {
    return Mutant.on("spill.commit.early") || Frontier.isReachedIfKnown(last);
  }

  private void forget(Copy copy) {
    underWay.remove(copy.storage, copy);
    copying.addAndGet(-charged(copy.storage));
    copy.lane.operations -= copy.operations;
  }

  /** What it takes of the limit, and so brings. */
  private static long charged(Storage storage) {
    return Mutant.on("spill.rounding.skip") ? storage.bytes : Sizes.rounded(storage.bytes);
  }

  /** The place of an image that is worth nothing any more, for the next one of its storage. */
  private static @Nullable HostImage again(@Nullable Image before) {
    if (before instanceof HostImage image && image.mayBeMadeAnew()) {
      image.generation = -1;
      return image;
    }
    return null;
  }

  /** Room below; images of what is on the device, too, go for it. */
  private @Nullable HostImage begin(long bytes) {
    HostImage image = take(bytes);
    for (Storage storage : image == null ? live : List.<Storage>of()) {
      if (image == null && dropSpareImage(storage)) {
        image = take(bytes);
      }
    }
    return image;
  }

  /** As if it were full, where the machine lets us pin no more. */
  private @Nullable HostImage take(long bytes) {
    try {
      return host == null ? null : host.begin(bytes);
    } catch (DeviceException failure) {
      refused = true;
      return null;
    }
  }

  /** Then it says nothing of those that come after it, and only the second one in a row does. */
  private boolean isRefusedForOnce() {
    refusals += refused ? 1 : 0;
    return refused && refusals == 1 && !Mutant.on("spill.refused.once");
  }

  // --- further down -------------------------------------------------------------------------

  /**
   * Lets images go to disk, the oldest of those that matter least first, and after them those that
   * are just being made.
   */
  private void descend(long bytes) {
    long left = bytes - descending.get();
    if (left <= 0 || disk == null) {
      return;
    }
    left -= descendFromHost(left, disk);
    for (Copy copy : left > 0 ? List.copyOf(underWay.values()) : List.<Copy>of()) {
      if (left > 0 && !onTheirWay.contains(copy.storage)) {
        if (!descendWhileCopied(copy, disk)) {
          return;
        }
        left -= copy.storage.bytes;
      }
    }
  }

  /** Of how many bytes it has begun; as if of all, if the disk has no room or does not work. */
  private long descendFromHost(long bytes, DiskTier to) {
    long left = bytes;
    List<Storage> below = new ArrayList<>();
    for (Storage storage : live) {
      if (storage.tier() == Tier.HOST && !onTheirWay.contains(storage)) {
        below.add(storage);
      }
    }
    for (Storage storage : leastFirst(below)) {
      HostImage image = left <= 0 ? null : storage.imageToDescend();
      if (image != null) {
        Descent descent = beginDescent(storage, image, to);
        if (descent == null) {
          return bytes;
        }
        descent.complete();
        left -= storage.bytes;
      }
    }
    return bytes - left;
  }

  /**
   * Those that matter least first, and of these the oldest; by what each was at one look, since
   * both may change while they are put in order.
   */
  static List<Storage> leastFirst(List<Storage> some) {
    record Seen(Storage storage, int priority, long lastUse) {}
    return some.stream()
        .map(each -> new Seen(each, each.priority, each.lastUse()))
        .sorted(Comparator.comparingInt(Seen::priority).thenComparingLong(Seen::lastUse))
        .map(Seen::storage)
        .toList();
  }

  /** Each piece is written as soon as it has come down. */
  private boolean descendWhileCopied(Copy copy, DiskTier to) {
    copy.image.retain();
    Descent descent = beginDescent(copy.storage, copy.image, to);
    copy.descent = descent;
    if (descent == null) {
      return false;
    }
    for (int i = 0; i < copy.arrivals.size(); i++) {
      int piece = i;
      copy.arrivals
          .get(i)
          .onDone(
              arrived -> {
                if (arrived.cause() == null) {
                  descent.arrived(piece);
                }
              });
    }
    return true;
  }

  /** Null if there is no room on the disk, or it does not work: then the image is given back. */
  private @Nullable Descent beginDescent(Storage storage, HostImage image, DiskTier to) {
    Writing writing = to.begin(storage.id, image.generation, image.bytes);
    if (writing == null) {
      image.release();
      return null;
    }
    onTheirWay.add(storage);
    descending.addAndGet(storage.bytes);
    return new Descent(storage, image, writing, this::hasLanded);
  }

  private void hasLanded(Descent descent) {
    landed.add(descent);
    post();
  }

  private void land(Descent descent) {
    onTheirWay.remove(descent.storage);
    descending.addAndGet(-descent.storage.bytes);
    descent.end(chunkBytes());
    retryPostponed();
  }

  private void retryPostponed() {
    wishes.addAll(postponed);
    postponed.clear();
  }

  private long chunkBytes() {
    return host == null ? 0 : host.chunkBytes();
  }

  private static boolean dropSpareImage(Storage storage) {
    Image spare = storage.takeSpareImage(false);
    if (spare != null) {
      spare.release();
    }
    return spare != null;
  }

  /**
   * The first one for large storages that nothing uses now: so the link has one copy after the
   * other, which is faster than several at once, and the first of them is there soonest. Others,
   * which may stand behind a long kernel, leave that one alone, and take the one with the least to
   * do. Null while all have enough.
   */
  private @Nullable Lane lane(Storage storage) {
    if (lanes.size() < LANES) {
      openStreams();
    }
    if (lanes.isEmpty()) {
      refused = true;
      return null;
    }
    Lane first = lanes.getFirst();
    boolean goesFirst = storage.bytes >= LARGE_BYTES && isIdle(storage.frontier());
    if (goesFirst && first.operations < operationsMax) {
      return first;
    }
    Lane idlest = lanes.getLast();
    for (Lane lane : lanes) {
      if (lane != first && lane.operations < idlest.operations) {
        idlest = lane;
      }
    }
    return idlest.operations < operationsMax ? idlest : null;
  }

  /**
   * As many as the driver has memory for, which it may not have just when something has to leave;
   * from time to time for what is lacking. Until there are two, the only one is the way up as well.
   */
  private void openStreams() {
    long now = System.nanoTime();
    boolean begins = up == null;
    if (!begins && now - askedForStream < PAUSE_MAX_NANOS) {
      return;
    }
    askedForStream = now;
    try {
      while (lanes.size() < LANES) {
        add(context.openStream(0));
      }
    } catch (OutOfDeviceMemoryException refusal) {
      // fewer will do
    }
    if (begins && up != null) {
      preparePieces();
    }
  }

  private void add(DeviceStream stream) {
    DeviceStream before = up;
    if (before == null) {
      up = stream;
      lanes.add(new Lane(stream));
    } else if (before == lanes.getFirst().stream) {
      up = stream;
    } else {
      lanes.add(new Lane(stream));
    }
  }

  /** Without that small storages are copied one by one, and as well. */
  private void preparePieces() {
    try {
      context.preparePieces();
    } catch (DeviceException refused) {
      // whoever needs the device is told
    }
  }

  // --- its end ------------------------------------------------------------------------------

  /** The device closes: nothing more is spilled. Waits for a look that is going on. */
  void stop() {
    Owner loop;
    lock.lock();
    try {
      stopped = true;
      loop = owner;
    } finally {
      lock.unlock();
    }
    if (loop != null) {
      loop.call(this::end).awaitUninterruptibly();
      loop.close();
    }
    answerAll();
  }

  /** Nothing is below any more, except what is on its way there. Waits for the disk. */
  void close() {
    if (disk != null) {
      disk.close();
    }
    for (Descent descent = landed.poll(); descent != null; descent = landed.poll()) {
      land(descent);
    }
  }

  private @Nullable Void end() {
    giveUpCopies();
    lanes.forEach(lane -> lane.stream.close());
    DeviceStream own = up;
    if (own != null) {
      own.close();
    }
    return null;
  }

  /** The context is lost, and what is below cannot come back. */
  private void abandon() {
    giveUpCopies();
    for (Storage storage : live) {
      Image image = storage.dropImage();
      if (image != null) {
        image.release();
      }
    }
    answerAll();
  }

  private void giveUpCopies() {
    List.copyOf(underWay.values()).forEach(this::giveUp);
    pack.clear();
    ended.clear();
    postponed.forEach(Wish::answer);
    postponed.clear();
  }

  // --- asking -------------------------------------------------------------------------------

  /** For reports: where buffers can go, and how full that is. */
  String tiers() {
    HostTier tier = host;
    if (tier == null) {
      return "spilling is off (" + MemoryConfig.SPILL_PROPERTY + ")";
    }
    String below =
        "spilled to host " + Sizes.text(tier.bytes()) + " of at most " + Sizes.text(tier.max());
    DiskTier files = disk;
    if (files == null) {
      return below + ", to disk nothing (no " + MemoryConfig.SPILL_DIRECTORY_PROPERTY + ")";
    }
    DiskStats stats = files.stats();
    SpillException failure = files.failure();
    return below
        + ", to disk "
        + Sizes.text(stats.bytes())
        + " of at most "
        + Sizes.text(stats.bytesMax())
        + (failure == null ? "" : ", which fails: " + failure.getMessage());
  }

  MemoryStats with(MemoryStats stats) {
    HostTier tier = host;
    DiskStats files = disk == null ? null : disk.stats();
    return stats.with(
        tier == null ? 0 : tier.bytes(),
        files == null ? 0 : files.bytes(),
        spills.sum(),
        returns.sum(),
        new MemoryStats.Moved(
            spilledBytes.sum(),
            returnedBytes.sum(),
            files == null ? 0 : files.bytesWritten(),
            files == null ? 0 : files.bytesRead()));
  }

  /** For tests: how many images were written to disk. */
  long toDisk() {
    return disk == null ? 0 : disk.stats().written();
  }

  /** For tests: done once everything that was posted before has been looked at. */
  void awaitLook() {
    Owner loop = owner;
    while (loop != null && !stopped) {
      Completion.Source<Boolean> passed = Completion.source();
      loop.retire(new Passing(passed));
      passed.completion().await();
      if (!posted.get()) {
        return;
      }
    }
  }

  /**
   * For tests: whether somebody lacks memory for whom nothing is under way, and it will not look
   * again by itself.
   */
  boolean isAsleep() {
    Owner loop = owner;
    // between two looks; in this order, since a timer posts before it is not counted any more
    boolean now = loop == null ? !posted.get() : loop.call(this::isAsleepNow).await();
    return isOn() && budget.hasWaiting() && now;
  }

  private boolean isAsleepNow() {
    boolean willLook = timers.get() > 0 || posted.get();
    return !willLook && missing() > 0 && underWay.isEmpty() && onTheirWay.isEmpty();
  }

  /** For tests: how often it has looked. */
  long looks() {
    return looks.get();
  }

  // --- parts --------------------------------------------------------------------------------

  /** One of the streams that copies go down on. */
  private static final class Lane {
    final DeviceStream stream;

    /** Pieces that were not seen to have arrived. */
    int operations;

    Lane(DeviceStream stream) {
      this.stream = stream;
    }
  }

  /** What somebody wants below. */
  private record Wish(Storage storage, Completion.Source<Tier> source) {
    void answer() {
      source.complete(storage.tier());
    }
  }

  /** A copy that is under way, as the reader of its storage. */
  private static final class Copy implements StorageUse, Packing.Part {
    /** In which operands are acquired. */
    static final Comparator<Copy> BY_STORAGE = Comparator.comparingLong(copy -> copy.storage.id);

    private final Storage storage;
    final HostImage image;
    final Lane lane;
    List<Wish> wishes = List.of();
    long generation = -1;

    @Nullable Mark last;

    /** Of the lane; a pack's are those of its first. */
    int operations;

    /** Whether others are copied by the same operation, which go on if this one cannot. */
    boolean together;

    private boolean taken;

    /** Of each piece, where there is a disk. */
    final List<Completion<Void>> arrivals = new ArrayList<>(0);

    /** Its way further down, if that has begun. */
    @Nullable Descent descent;

    Copy(Storage storage, HostImage image, Lane lane) {
      this.storage = storage;
      this.image = image;
      this.lane = lane;
    }

    /** Hardly ever more than one. */
    void add(Wish wish) {
      if (wishes.isEmpty()) {
        wishes = List.of(wish);
        return;
      }
      List<Wish> all = new ArrayList<>(wishes);
      all.add(wish);
      wishes = all;
    }

    /** Whether the storage has left the device is known now. */
    void endDescent(boolean left) {
      Descent way = descent;
      if (way != null && left) {
        way.complete();
      } else if (way != null) {
        way.giveUp();
      }
    }

    @Override
    public Storage storage() {
      return storage;
    }

    @Override
    public long bytes() {
      return storage.bytes;
    }

    @Override
    public HostImage image() {
      return image;
    }

    @Override
    public boolean isTaken() {
      return taken;
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      taken = take(stream);
      if (!taken && !together) {
        throw new Torn();
      }
      return storage.address;
    }

    private boolean take(DeviceStream stream) {
      try {
        long now = storage.acquireToCopy(stream, generation);
        generation = Math.max(now, generation);
        return now >= 0;
      } catch (IllegalStateException inUse) {
        if (together) {
          return false; // closed or lent meanwhile
        }
        throw inUse;
      }
    }

    @Override
    public void recorded(DeviceStream stream, long sequence, Access access) {
      if (taken) {
        storage.recordedCopy(stream, sequence);
      }
    }

    @Override
    public void abandoned(DeviceStream stream, Access access) {
      if (taken) {
        storage.abandoned(stream, access);
      }
    }
  }

  /** What is being copied was written meanwhile. */
  private static final class Torn extends RuntimeException {
    private static final long serialVersionUID = 1;

    Torn() {
      super("written while it was copied", null, false, false);
    }
  }

  private static final class Passing extends Retired {
    private final Completion.Source<Boolean> passed;

    Passing(Completion.Source<Boolean> passed) {
      this.passed = passed;
    }

    @Override
    protected void release() {
      passed.complete(true);
    }
  }

  private static final class Look extends Retired {
    private final Spiller spiller;

    Look(Spiller spiller) {
      this.spiller = spiller;
    }

    @Override
    protected void release() {
      boolean looked = false;
      try {
        spiller.look();
        looked = true;
      } finally {
        spiller.looksOver = spiller.looks.get(); // nobody else counts them
        if (!looked) {
          spiller.lookLater(); // those who wait must not pay for it
        }
      }
    }
  }
}
