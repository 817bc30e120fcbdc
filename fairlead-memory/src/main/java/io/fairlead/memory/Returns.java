package io.fairlead.memory;

import static java.lang.Boolean.TRUE;

import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Mark;
import io.fairlead.device.Operand;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskFailedException;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import io.fairlead.task.StuckTasks;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Brings what an operation needs back to a device, all of it together.
 *
 * <h2>The turn</h2>
 *
 * Whoever keeps storages where they are and waits for memory for others has the device's turn, and
 * nobody else has it: so no two operations each keep what the other one waits for. It is a place in
 * a queue, in which tasks park. An operation with memory of several devices takes their turns in
 * the order in which those were opened. Once memory is granted the turn goes on: what is waited for
 * from there on is the device, or one who waits for the device.
 *
 * <p>Where the driver has no block for what was granted, others have to leave for that, too: the
 * operation gives everything up and comes again, and this time it has the turn until its blocks are
 * there. An allocation that meets the same takes the turn for it.
 *
 * <pre>
 * FREE --take--> TAKEN --leave, nobody waits--> FREE
 *                TAKEN --leave--> TAKEN by the next who waits
 *
 * field   | writer | reader | mode, guard
 * goOn, begin, passed, holder, {@link Place#hasTurn} | any | any | lock
 * refusal | close  | any    | lock; once
 * </pre>
 *
 * <p><b>Who is next.</b> As in the {@link Budget}: whose task goes on with work that has memory
 * comes before who begins, since his end gives back what the others lack. Where the driver has less
 * than the limit says, everybody who begins ends up here, and there may be very many: behind all of
 * them nobody who has something would ever end. But after {@link Budget#OVERTAKEN_MAX} in a row one
 * who begins has the turn, since what is brought back has no end.
 *
 * <p>The lock is a leaf; whoever is next is told after it was released.
 */
final class Returns {
  private static final AtomicLong NUMBERS = new AtomicLong();

  /** In which order the turns of several devices are taken. */
  private final long number = NUMBERS.incrementAndGet();

  private final Device device;
  private final BriefLock lock = new BriefLock();

  /** Who goes on with work that has memory. */
  private final LinkedHashSet<Place> goOn = new LinkedHashSet<>();

  private final LinkedHashSet<Place> begin = new LinkedHashSet<>();

  /** How many of {@code goOn} had the turn since one of {@code begin} had, or none waits. */
  private int passed;

  /** Whose the turn is; null while it is free. */
  private @Nullable Account holder;

  private @Nullable RuntimeException refusal;

  Returns(Device device) {
    this.device = device;
  }

  /**
   * Brings the storages of all buffers among {@code operands} to their devices, and keeps them
   * there. Parks. See {@link Operand#bringBack}.
   */
  static Operand.Stay bringBack(DeviceStream stream, Operand[] operands) {
    Map<Long, Group> groups = new TreeMap<>();
    for (Operand operand : operands) {
      DeviceBuffer buffer = DeviceBuffer.behind(operand);
      if (buffer != null) {
        Returns returns = buffer.device().returns();
        groups
            .computeIfAbsent(returns.number, _ -> new Group(returns))
            .storages
            .add(buffer.storage());
      }
    }
    boolean untilAllocated = false;
    while (true) {
      Attempt attempt = new Attempt(stream, List.copyOf(groups.values()), untilAllocated);
      if (attempt.run()) {
        return attempt;
      }
      // what somebody else was bringing back has not come, so the next attempt does it itself; or
      // there was no block
      untilAllocated |= attempt.refused;
    }
  }

  // --- the turn -----------------------------------------------------------------------------

  /** A place in the queue for the turn. */
  static final class Place {
    final Completion.Source<Boolean> source = Completion.source(OwnWait.TURN);
    final Account account;
    final Suspicion suspicion = new Suspicion();
    final StuckTasks.Place where = StuckTasks.Place.here();

    /** What its operation needs to be on the device. */
    final long bytes;

    /** Whether it is for work that others may wait for, since it keeps something. */
    final boolean goesOn;

    /** Whether it is whose turn it is. Under the lock. */
    boolean hasTurn;

    Place(Account account, long bytes, boolean goesOn) {
      this.account = account;
      this.bytes = bytes;
      this.goesOn = goesOn;
    }
  }

  /**
   * Waits for the turn.
   *
   * @param bytes what it is for, as reports tell it
   * @param goesOn whether it is for work that others may wait for, since it keeps something
   */
  void takeTurn(long bytes, boolean goesOn) {
    Place place = new Place(device.account(), bytes, goesOn);
    boolean inside;
    lock.lock();
    try {
      if (refusal != null) {
        throw new IllegalStateException(refusal.getMessage(), refusal);
      }
      if (holder == null) {
        holder = place.account;
        return;
      }
      inside = Spillables.isInside();
      if (!inside) {
        var _ = (goesOn || Mutant.on("returns.turn.in-order") ? goOn : begin).add(place);
      }
    } finally {
      lock.unlock();
    }
    if (inside) {
      throw device.insideOfSpillable(bytes);
    }
    try {
      device.ladder().blocked();
      place.source.completion().await();
    } catch (TaskFailedException refused) {
      Throwable cause = Objects.requireNonNull(refused.getCause(), "why nobody may wait");
      if (cause instanceof Verdict verdict) {
        throw device.ladder().toThrow(verdict, bytes, device.site());
      }
      throw new IllegalStateException(cause.getMessage(), cause);
    } catch (RuntimeException | Error stop) {
      if (withdraw(place)) {
        leaveTurn(); // it had come
      }
      throw stop;
    }
  }

  /** Takes it out of the queue; false if its turn has come, or nobody waits there any more. */
  boolean takeOut(Place place) {
    lock.lock();
    try {
      return remove(place);
    } finally {
      lock.unlock();
    }
  }

  /** Under the lock. */
  private boolean remove(Place place) {
    return goOn.remove(place) || begin.remove(place);
  }

  /** Who waits for the turn now: first those who go on. */
  List<Place> waiting() {
    lock.lock();
    try {
      List<Place> all = new ArrayList<>(goOn.size() + begin.size());
      all.addAll(goOn);
      all.addAll(begin);
      return all;
    } finally {
      lock.unlock();
    }
  }

  /** Who has the turn; null if nobody. */
  @Nullable Account holder() {
    lock.lock();
    try {
      return holder;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Takes it out of the queue, if it is there: who was taken out before, to be told why, has not
   * got the turn by that.
   *
   * @return whether its turn had come
   */
  private boolean withdraw(Place place) {
    lock.lock();
    try {
      var _ = remove(place);
      return place.hasTurn;
    } finally {
      lock.unlock();
    }
  }

  void leaveTurn() {
    Place next;
    lock.lock();
    try {
      next = next();
      holder = next == null ? null : next.account;
      if (next != null) {
        next.hasTurn = true;
      }
    } finally {
      lock.unlock();
    }
    if (next != null) {
      next.source.complete(TRUE);
    }
  }

  /** Under the lock. */
  private @Nullable Place next() {
    boolean begins = !begin.isEmpty() && (goOn.isEmpty() || passed >= Budget.OVERTAKEN_MAX);
    passed = begins || begin.isEmpty() ? 0 : passed + 1;
    return begins ? begin.removeFirst() : goOn.isEmpty() ? null : goOn.removeFirst();
  }

  /** For tests. */
  boolean isTaken() {
    return holder() != null;
  }

  /** For tests. */
  boolean isWaitedFor() {
    lock.lock();
    try {
      return !goOn.isEmpty() || !begin.isEmpty();
    } finally {
      lock.unlock();
    }
  }

  /** The device closes: whoever waits for the turn, or will, fails. */
  void refuse(RuntimeException cause) {
    List<Place> refused;
    lock.lock();
    try {
      refusal = cause;
      refused = new ArrayList<>(goOn);
      refused.addAll(begin);
      goOn.clear();
      begin.clear();
    } finally {
      lock.unlock();
    }
    refused.forEach(place -> place.source.fail(cause));
  }

  // --- one operation ------------------------------------------------------------------------

  /** What an operation needs of one device. */
  private static final class Group {
    final Returns returns;

    /** In the order of mention; each once. */
    final Set<Storage> storages = new LinkedHashSet<>();

    Group(Returns returns) {
      this.returns = returns;
    }

    Device device() {
      return returns.device;
    }

    long bytes() {
      return storages.stream().mapToLong(each -> Sizes.rounded(each.bytes)).sum();
    }
  }

  /** A storage that stays where it is for this attempt. */
  private record Stays(Storage storage, Keeper keeper) {
    void end() {
      storage.unkeep(keeper);
      keeper.end();
    }
  }

  /** A storage that this attempt brings back, with its charge. */
  private record Mine(Device device, Storage storage, Charge charge) {}

  /** Used by one task. */
  private static final class Attempt implements Operand.Stay {
    private final DeviceStream stream;
    private final List<Group> groups;
    private final ArrayDeque<Mine> mine = new ArrayDeque<>();
    private final ArrayDeque<Landing> landings = new ArrayDeque<>();
    private final List<Stays> kept = new ArrayList<>();

    /**
     * Returns of others that were going on when this one had the turn. So none of them has it, or
     * waits for memory: who is refused gives up, and what he comes back with later is not waited
     * for, since he may need what is kept here.
     */
    private final List<Completion<Boolean>> others = new ArrayList<>();

    /** In the reverse order of taking. */
    private final ArrayDeque<Returns> turns = new ArrayDeque<>();

    /** Whether the turns are kept until there are blocks for all of it. */
    private final boolean untilAllocated;

    /** Whether there was no block for what was granted. */
    private boolean refused;

    Attempt(DeviceStream stream, List<Group> groups, boolean untilAllocated) {
      this.stream = stream;
      this.groups = groups;
      this.untilAllocated = untilAllocated;
    }

    /**
     * Whether everything is there, and stays.
     *
     * <p>First all of it gets its memory, so that the disk need not stand still between two. If
     * there is no block for one, what has been allocated by then comes back before this waits for
     * others, or gives up: they may wait for it.
     */
    boolean run() {
      boolean stays = false;
      try {
        allocate();
        bring();
        if (!refused) {
          others.forEach(Completion::await);
          stays = isAllOnDevice();
        }
        return stays;
      } finally {
        if (!stays) {
          giveUp();
        }
      }
    }

    private boolean isAllOnDevice() {
      for (Stays each : kept) {
        if (!each.storage.isOnDevice()) {
          return false;
        }
      }
      return true;
    }

    /** All of it, unless one is refused: then this will come again. */
    private void allocate() {
      try {
        charge();
        if (!untilAllocated) {
          leaveTurns();
        }
        while (!mine.isEmpty() && !refused) {
          refused = !allocate(mine.removeFirst());
        }
      } finally {
        leaveTurns();
      }
      if (refused) {
        giveUpMine();
      }
    }

    private void leaveTurns() {
      turns.forEach(Returns::leaveTurn);
      turns.clear();
    }

    /** Under the turns of all its devices, and with everything kept, waits for the memory. */
    private void charge() {
      for (Group group : groups) {
        group.returns.takeTurn(group.bytes(), true);
        turns.addFirst(group.returns);
      }
      for (Group group : groups) {
        Account account = group.device().account();
        group.storages.forEach(storage -> keep(storage, Keeper.begin(account)));
      }
      for (Group group : groups) {
        charge(group);
      }
    }

    private void keep(Storage storage, Keeper by) {
      try {
        for (Completion<Boolean> first = storage.keep(by);
            first != null;
            first = storage.keep(by)) {
          first.await(); // a copy that nobody may be in the way of
        }
      } catch (RuntimeException | Error failure) {
        by.end();
        throw failure;
      }
      kept.add(new Stays(storage, by));
    }

    private void charge(Group group) {
      List<Storage> missing = new ArrayList<>();
      List<Charge> before = new ArrayList<>();
      for (Storage storage : group.storages) {
        Charge left = storage.missing(others);
        if (left != null) {
          missing.add(storage);
          before.add(left);
        }
      }
      if (missing.isEmpty()) {
        return;
      }
      List<Charge> charges = group.device().chargeAgain(group.bytes(), before, paid());
      for (int i = 0; i < charges.size(); i++) {
        Charge charge = charges.get(i);
        if (missing.get(i).beginReturn()) {
          mine.addLast(new Mine(group.device(), missing.get(i), charge));
        } else {
          group.device().budget().cancel(charge); // closed meanwhile
        }
      }
    }

    /** Whether there was a block for it. */
    private boolean allocate(Mine each) {
      Landing landing = new Landing(each, stream);
      boolean allocated = false;
      try {
        allocated = landing.allocate(untilAllocated ? () -> bringBefore(each) : null);
        if (allocated) {
          landings.addLast(landing);
        }
        return allocated;
      } finally {
        if (!allocated) {
          landing.end();
        }
      }
    }

    /** As {@link #bring}; answers what else it keeps, with its charge. */
    private List<Charge> bringBefore(Mine next) {
      bring();
      List<Charge> paid = paid();
      paid.add(next.charge);
      return paid;
    }

    /** What was granted to it, on whatever device, and no storage has yet. */
    private List<Charge> paid() {
      List<Charge> paid = new ArrayList<>();
      mine.forEach(each -> paid.add(each.charge));
      return paid;
    }

    /** What has its memory comes back: while one is copied, the next ones are read. */
    private void bring() {
      bringTogether();
      try (ReadAhead ahead = new ReadAhead()) {
        landings.forEach(each -> each.prepare(ahead));
        ahead.begin();
        while (!landings.isEmpty()) {
          landings.getFirst().copy(ahead);
          landings.removeFirst().end();
        }
      }
    }

    /** Small ones in host memory, by one operation where there are several of a device. */
    private void bringTogether() {
      Map<Device, List<Landing>> small = new LinkedHashMap<>();
      for (Landing each : landings) {
        if (each.isSmall()) {
          small.computeIfAbsent(each.device, _ -> new ArrayList<>()).add(each);
        }
      }
      for (List<Landing> all : small.values()) {
        for (int from = 0; from < all.size(); from += Packing.IMAGES_MAX) {
          Landing.copyTogether(all.subList(from, Math.min(all.size(), from + Packing.IMAGES_MAX)));
        }
      }
    }

    private void giveUp() {
      try {
        endLandings();
      } finally {
        giveUpMine();
        close();
      }
    }

    /** What has no block yet stays below. */
    private void giveUpMine() {
      for (Mine each : mine) {
        each.device.budget().cancel(each.charge);
        if (each.storage.endReturn()) {
          each.device.free(each.storage);
        }
      }
      mine.clear();
    }

    /** All of them, also if the driver refuses to take back the memory of one. */
    private void endLandings() {
      Landing next = landings.pollFirst();
      if (next != null) {
        try {
          next.end();
        } finally {
          endLandings();
        }
      }
    }

    @Override
    public void close() {
      kept.forEach(Stays::end);
      kept.clear();
      for (Group group : groups) {
        group.device().spiller().mayPick();
      }
    }
  }

  /** The way back of one storage: a block, its copies, and whatever becomes of them. */
  private static final class Landing {
    private final Device device;
    private final Storage storage;
    private final Charge charge;
    private final DeviceStream up;
    private @Nullable Image image;
    private @Nullable Block block;
    private @Nullable Mark last;
    private boolean complete;

    Landing(Mine mine, DeviceStream stream) {
      this.device = mine.device;
      this.storage = mine.storage;
      this.charge = mine.charge;
      this.up = mine.device.spiller().streamUp(stream);
    }

    /**
     * Whether there was a block for it.
     *
     * @param beforeOthers null if nobody is to leave for one
     */
    boolean allocate(@Nullable Supplier<List<Charge>> beforeOthers) {
      Image source = storage.imageToRead();
      image = source;
      Block target = device.allocateAgain(up, storage, charge, beforeOthers);
      if (target == null) {
        return false;
      }
      block = target;
      if (source == null) {
        throw device.lostImage(storage);
      }
      for (int i = 0; i < target.frontier().size(); i++) {
        up.after(target.frontier().mark(i));
      }
      return true;
    }

    boolean isSmall() {
      return Packing.fits(image);
    }

    /** Of one device. Parks for room on the stream; where there is no table, they are as before. */
    static void copyTogether(List<Landing> landings) {
      DeviceStream stream = landings.getFirst().up;
      HostBlock table = landings.size() > 1 ? Packing.table(stream.context()) : null;
      if (table == null) {
        return;
      }
      List<HostImage> images = new ArrayList<>(landings.size());
      long[] addresses = new long[landings.size()];
      for (Landing each : landings) {
        addresses[images.size()] = each.target().address();
        images.add((HostImage) each.source());
      }
      Mark arrived = null;
      try {
        arrived = Packing.up(stream, images, addresses, table);
      } finally {
        boolean all = arrived != null;
        Mark end = all ? arrived : Packing.whereItIs(stream); // their memory is used up to there
        for (Landing each : landings) {
          each.last = end;
          each.complete = all;
        }
      }
    }

    void prepare(ReadAhead ahead) {
      if (!complete) {
        source().prepare(up, ahead);
      }
    }

    void copy(ReadAhead ahead) {
      if (!complete) {
        source().copyUp(up, target().address(), ahead, mark -> last = mark);
        complete = true;
      }
    }

    private Block target() {
      return Objects.requireNonNull(block, "allocated before it is copied");
    }

    private Image source() {
      return Objects.requireNonNull(image, "there is one, or it was not allocated");
    }

    void end() {
      Block target = block;
      Mark arrived = last;
      if (complete && target != null && arrived != null) {
        boolean mustFree = storage.install(target, arrived);
        device.budget().leftBelow(charge);
        device.spiller().returned(charge.bytes);
        left(mustFree);
        return;
      }
      try {
        if (target == null) {
          device.budget().cancel(charge);
        } else {
          device.end(Storage.residence(target, storage, up, arrived), charge);
        }
      } finally {
        left(storage.endReturn()); // whatever becomes of the memory: others may try
      }
    }

    private void left(boolean mustFree) {
      if (image != null) {
        image.release();
      }
      if (mustFree) {
        device.free(storage);
      }
    }
  }
}
