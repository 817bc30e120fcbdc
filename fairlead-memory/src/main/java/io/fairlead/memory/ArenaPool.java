package io.fairlead.memory;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * Takes the whole limit from the driver, once and in one piece, and cuts buffers from it; the
 * driver is not asked again.
 *
 * <h2>Pieces</h2>
 *
 * Pieces of any multiple of 256 bytes lie side by side ({@link Piece}). Of a closed buffer the
 * piece <i>rests</i> with its frontier until every use has ended; then it is <i>ready</i>, and one
 * with its ready neighbours at once. Resting pieces stay apart, so that nobody waits for uses that
 * were none of this memory's, until the alternative is to wait or to be refused: then neighbours
 * become one, whatever their state.
 *
 * <ul>
 *   <li>A piece that is cut leaves its frontier with both parts, and each part of its charge goes
 *       with its bytes.
 *   <li>Pieces that become one have the latest position of each stream ({@link Frontier#join}).
 * </ul>
 *
 * As with {@link FrontierPool}, which piece is taken decides how much is waited for, never what is
 * right: the next storage begins with the frontier.
 *
 * <h2>Who gets what</h2>
 *
 * <ol>
 *   <li>A resting piece of about the size whose uses the stream comes after anyway.
 *   <li>The tightest ready piece at hand, small ones from its low end and large ones from its high
 *       end, so that few long-lived small ones do not lie between large ones.
 *   <li>A larger resting piece, as in 1.
 *   <li>Where there is no room else: any resting piece, then any neighbours that suffice together.
 * </ol>
 *
 * The first three take a bounded number of steps; the last looks through the pieces. What is left
 * are pieces that are too small because buffers between them are in use. Then the request waits for
 * others to close theirs, in the time for that; where buffers can be spilled, it is refused at
 * once, and they leave for it.
 *
 * <h2>Threads</h2>
 *
 * Lock order: {@code lock}, then the budget's. Under {@code lock} nothing is waited for, nobody is
 * called who waits, and of the driver only how far its streams are, which is a memory read. The
 * owner returns the range to the driver, on a stream of its own.
 *
 * <pre>
 * field          | writer  | reader | mode
 * range,         | any     | any    | under lock, with all that is in it
 * changing,      |         |        |
 * waiting        |         |        |
 * closing        | close() | any    | volatile; who gives back looks again after its piece rests
 * exit           | owner   | owner  | {@link Exit}
 * </pre>
 */
final class ArenaPool implements Pool {
  /** Resting pieces that a request looks at. */
  private static final int LOOKS = 12;

  /** Granules of what lies at the low end: 64 KiB. */
  private static final long LOW_MAX = (64L << 10) / Sizes.GRANULE;

  private static final Completion<@Nullable Void> NOTHING = Completion.completed(null);

  private final DeviceContext context;
  private final Budget budget;
  private final Reclaimer reclaimer;
  private final DriverPool below;
  private final long waitNanos;
  private final long pieceNanos;
  private final LongAdder reused = new LongAdder();
  private final BriefLock lock = new BriefLock();

  private @Nullable Range range;

  /** Done once the range that is being asked for is there, or the one that leaves is gone. */
  private Completion.@Nullable Source<@Nullable Void> changing;

  /** Of those for whom no piece is large enough. */
  private final List<Completion.Source<@Nullable Void>> waiting = new ArrayList<>();

  private volatile boolean closing;
  private final Exit exit;

  /**
   * @param waitNanos how long a request waits for the range while that comes from the driver or
   *     leaves
   * @param pieceNanos how long it waits for a piece that is large enough
   */
  ArenaPool(
      DeviceContext context,
      Budget budget,
      Reclaimer reclaimer,
      DriverPool below,
      long waitNanos,
      long pieceNanos) {
    this.context = context;
    this.exit = new Exit(context);
    this.budget = budget;
    this.reclaimer = reclaimer;
    this.below = below;
    this.waitNanos = waitNanos;
    this.pieceNanos = pieceNanos;
  }

  /** What the driver has given. All under the pool's lock. */
  private static final class Range {
    final long address;
    final long granules;
    final PieceIndex ready = new PieceIndex();
    final PieceIndex resting = new PieceIndex();
    final Map<Long, Piece> used = new HashMap<>();

    /** Its allocation, until that is known to be reached. */
    Frontier made;

    Piece first;

    Range(long address, long bytes, Frontier made) {
      this.address = address;
      this.granules = bytes / Sizes.GRANULE;
      this.made = made;
      this.first = new Piece(0, granules);
      ready.insert(first);
    }

    long address(Piece piece) {
      return address + piece.start * Sizes.GRANULE;
    }

    /** It becomes one with its ready neighbours. */
    void makeReady(Piece piece) {
      Piece whole = piece;
      Piece after = whole.after;
      if (after != null && after.index == ready) {
        ready.remove(after);
        whole.absorb(after);
      }
      Piece before = whole.before;
      if (before != null && before.index == ready) {
        ready.remove(before);
        before.absorb(whole);
        whole = before;
      }
      ready.insert(whole);
    }

    /** What who gets memory of that past comes after: at least its allocation. */
    Frontier since(Frontier uses) {
      Frontier left = uses.left();
      if (left != Frontier.NONE || made == Frontier.NONE) {
        return left; // whatever has used it came after its allocation
      }
      made = made.left();
      return made;
    }
  }

  /** The past of a piece that nobody owns. */
  static final class Rest extends Reclaimer.Entry {
    private final ArenaPool pool;
    private final Range range;
    private final Piece piece;

    private Rest(ArenaPool pool, Range range, Piece piece, Frontier frontier, Charge charge) {
      super(frontier, charge);
      this.pool = pool;
      this.range = range;
      this.piece = piece;
    }

    /** Whether its piece may be had by a stream that comes after it, or by anybody. */
    boolean isFor(DeviceStream stream) {
      return !isUnreached() || frontier.isBefore(stream);
    }

    @Override
    void reached() {
      pool.becameReady(this);
    }
  }

  // --- handing out --------------------------------------------------------------------------

  @Override
  public @Nullable Block reuse(DeviceStream stream, Account account, long bytes) {
    if (stream.isCaptured()) {
      return null;
    }
    Taking taking = new Taking(bytes);
    return counted(
        taking.run(
            here -> taking.findOrdered(here, stream),
            olds ->
                olds.isEmpty()
                    ? budget.tryCharge(account, bytes, taking.untold)
                    : budget.renew(account, olds, bytes)));
  }

  @Override
  public @Nullable Block reuseUnfinished(DeviceStream stream, Account account, long bytes) {
    if (stream.isCaptured()) {
      return null;
    }
    Taking taking = new Taking(bytes);
    return counted(taking.run(taking::findAny, olds -> budget.renew(account, olds, bytes)));
  }

  private @Nullable Block counted(@Nullable Block block) {
    if (block != null) {
      reused.increment();
    }
    return block;
  }

  @Override
  public Block allocate(DeviceStream stream, long bytes, Charge charge) {
    if (stream.isCaptured()) {
      return below.allocateNow(stream, bytes, charge); // which says why not
    }
    long now = System.nanoTime();
    long deadline = now + waitNanos;
    long pieceDeadline = now + pieceNanos;
    boolean asked = open(stream, charge, deadline);
    while (true) {
      Taking taking = new Taking(charge.bytes);
      Completion.Source<@Nullable Void> change = Completion.source();
      taking.change = change;
      Block block =
          taking.run(
              here -> taking.findOrdered(here, stream) || taking.findAny(here),
              olds -> {
                taking.owed.addAll(olds); // they give way to the charge that was granted
                return charge;
              });
      if (block != null) {
        return asked ? block : Objects.requireNonNull(counted(block));
      }
      try {
        if (!taking.foundNone) {
          asked |= open(stream, charge, deadline); // it was returned meanwhile
        } else if (taking.isTooLarge
            || !mayFindRoom(charge)
            || !Waiting.hasCome(change.completion(), pieceDeadline)) {
          throw noPiece(charge.bytes);
        }
      } finally {
        forget(change);
      }
    }
  }

  /** Whether others may make room, and the caller may wait for that. */
  private boolean mayFindRoom(Charge charge) {
    return Role.current().mayWait() && !budget.heldOnlyBy(charge.account);
  }

  private void forget(Completion.Source<@Nullable Void> change) {
    lock.lock();
    try {
      waiting.remove(change);
    } finally {
      lock.unlock();
    }
  }

  private OutOfDeviceMemoryException noPiece(long bytes) {
    return new OutOfDeviceMemoryException(
        "no piece of the arena has "
            + Sizes.text(bytes)
            + ": "
            + free()
            + "; buffers that are in use lie between. Close them earlier, allocate what lives long"
            + " first, or set -D"
            + MemoryConfig.POOL_PROPERTY
            + "=fairlead",
        "allocate",
        context.ordinal(),
        null);
  }

  private String free() {
    lock.lock();
    try {
      Range here = range;
      if (here == null) {
        return "it was returned";
      }
      long free = here.ready.granules() + here.resting.granules();
      long largest = Math.max(here.ready.largest(), here.resting.largest());
      return Sizes.text(free * Sizes.GRANULE)
          + " are free, the largest piece has "
          + Sizes.text(largest * Sizes.GRANULE);
    } finally {
      lock.unlock();
    }
  }

  // --- the range ----------------------------------------------------------------------------

  /** Makes sure that there is a range; true if this call has asked the driver for it. */
  private boolean open(DeviceStream stream, Charge charge, long deadline) {
    while (true) {
      Completion.Source<@Nullable Void> mine = null;
      Completion<@Nullable Void> others = NOTHING;
      lock.lock();
      try {
        if (range != null) {
          return false;
        }
        if (changing == null) {
          mine = Completion.source();
          changing = mine;
        } else {
          others = changing.completion();
        }
      } finally {
        lock.unlock();
      }
      if (mine != null) {
        make(stream, charge, mine);
        return true;
      }
      if (!Role.current().mayWait() || !Waiting.hasCome(others, deadline)) {
        throw new OutOfDeviceMemoryException(
            "the arena is being taken from the driver or returned to it, and that has not ended",
            "allocate",
            context.ordinal(),
            null);
      }
    }
  }

  private void make(DeviceStream stream, Charge charge, Completion.Source<@Nullable Void> changed) {
    Range made = null;
    try {
      made = ask(stream, charge);
    } finally {
      become(made, changed);
    }
  }

  private void become(@Nullable Range next, Completion.Source<@Nullable Void> changed) {
    lock.lock();
    try {
      range = next;
      changing = null;
    } finally {
      lock.unlock();
    }
    changed.complete(null);
  }

  /** As much of the limit as there is; others may have taken a part of the device. */
  private Range ask(DeviceStream stream, Charge charge) {
    long bytes = budget.limit() & -Sizes.GRANULE;
    while (true) {
      try {
        Block all = below.allocateNow(stream, bytes, charge);
        return new Range(all.address(), bytes, all.frontier());
      } catch (OutOfDeviceMemoryException refused) {
        long less = (bytes - bytes / 8) & -Sizes.GRANULE;
        if (less < Math.max(charge.bytes, budget.limit() / 2)) {
          throw new OutOfDeviceMemoryException(
              "the driver has no "
                  + Sizes.text(bytes)
                  + " in one piece for the arena; set a smaller limit (fairlead.device.memory)",
              "allocate",
              context.ordinal(),
              refused);
        }
        bytes = less;
      }
    }
  }

  // --- one request --------------------------------------------------------------------------

  /** A piece that was found, and once it was claimed what it was used for. */
  private static final class Found {
    final Piece piece;
    Frontier frontier = Frontier.NONE;

    /** Of a piece that rested; null if it was ready. */
    @Nullable Charge charge;

    Found(Piece piece) {
      this.piece = piece;
    }

    void claim() {
      Objects.requireNonNull(piece.index, "a free piece is offered").remove(piece);
      Rest rest = piece.rest;
      piece.rest = null;
      if (rest != null && rest.takeUnreached()) { // else whoever saw its end gives the bytes back
        frontier = rest.frontier;
        charge = rest.charge;
      }
    }

    long bytes() {
      return piece.granules * Sizes.GRANULE;
    }
  }

  /** Finds, pays and cuts under the lock; what others are told of it comes after that. */
  private final class Taking {
    private final long granules;

    /** By address, side by side. */
    private final List<Found> found = new ArrayList<>(1);

    private final List<Rest> rested = new ArrayList<>(0);
    private final List<Charge> owed = new ArrayList<>(0);
    private final Budget.Untold untold = budget.new Untold();

    /** To be told of a piece, if none is found now. */
    private Completion.@Nullable Source<@Nullable Void> change;

    /** There is a range, and no such piece. */
    private boolean foundNone;

    /** Nor can there ever be one. */
    private boolean isTooLarge;

    Taking(long bytes) {
      this.granules = bytes / Sizes.GRANULE;
    }

    @Nullable Block run(Predicate<Range> search, Function<List<Charge>, @Nullable Charge> payer) {
      Block block = null;
      lock.lock();
      try {
        Range here = range;
        if (here != null) {
          block = search.test(here) ? take(here, payer) : null;
          foundNone = block == null;
          isTooLarge = granules > here.granules;
        }
        if (foundNone && change != null) {
          waiting.add(change);
        }
      } finally {
        lock.unlock();
      }
      untold.tell();
      rested.forEach(reclaimer::add);
      owed.forEach(budget::release);
      return block;
    }

    // --- finding, in the order of the class comment

    boolean findOrdered(Range here, DeviceStream stream) {
      int bin = PieceIndex.bin(granules);
      return isFound(restingFor(here, stream, bin, bin + 1))
          || isFound(here.ready.find(granules))
          || isFound(restingFor(here, stream, bin + 2, Integer.MAX_VALUE));
    }

    boolean findAny(Range here) {
      return isFound(here.resting.find(granules)) || findNeighbours(here);
    }

    private boolean isFound(@Nullable Piece piece) {
      if (piece == null) {
        return false;
      }
      found.add(new Found(piece));
      return true;
    }

    private @Nullable Piece restingFor(Range here, DeviceStream stream, int from, int to) {
      Piece each = here.resting.newestFrom(from);
      for (int looks = LOOKS; each != null && looks > 0; looks--) {
        if (PieceIndex.bin(each.granules) > to) {
          return null;
        }
        Rest rest = each.rest;
        if (each.granules >= granules && rest != null && rest.isFor(stream)) {
          return each;
        }
        each = here.resting.next(each);
      }
      return null;
    }

    private boolean findNeighbours(Range here) {
      if (here.ready.granules() + here.resting.granules() < granules) {
        return false;
      }
      long sum = 0;
      for (Piece each = here.first; each != null && sum < granules; each = each.after) {
        if (each.index == null) {
          sum = 0;
          found.clear();
        } else {
          sum += each.granules;
          found.add(new Found(each));
        }
      }
      if (sum < granules) {
        found.clear();
      }
      return sum >= granules;
    }

    // --- taking

    private @Nullable Block take(Range here, Function<List<Charge>, @Nullable Charge> payer) {
      long tail = -granules;
      for (Found each : found) {
        each.claim();
        tail += each.piece.granules;
      }
      Charge paid = payer.apply(oldCharges(tail));
      if (paid == null) {
        found.forEach(each -> layDown(here, each.piece, each.frontier, each.charge));
        return null;
      }
      Piece piece = becomeOne(here, tail);
      Frontier uses = found.getFirst().frontier;
      if (!Mutant.on("pool.merge.nofrontier")) {
        for (Found each : found.subList(1, found.size())) {
          uses = Frontier.join(uses, each.frontier);
        }
      }
      here.used.put(here.address(piece), piece);
      return new Block(here.address(piece), here.since(uses), paid);
    }

    /** Of what rested; not of the tail, which goes on resting. */
    private List<Charge> oldCharges(long tail) {
      List<Charge> olds = new ArrayList<>(found.size());
      Found last = found.getLast();
      for (Found each : found) {
        if (each.charge != null) {
          boolean isCut = each == last && tail > 0;
          olds.add(isCut ? each.charge.part(each.bytes() - tail * Sizes.GRANULE) : each.charge);
        }
      }
      return olds;
    }

    private Piece becomeOne(Range here, long tail) {
      Piece first = found.getFirst().piece;
      if (tail > 0) {
        Found last = found.getLast();
        if (found.size() == 1 && last.charge == null && granules > LOW_MAX) {
          Piece high = first.cut(tail);
          here.makeReady(first);
          return high;
        }
        Piece rest = last.piece.cut(last.piece.granules - tail);
        layDownTail(here, rest, last, tail * Sizes.GRANULE);
      }
      for (Found each : found.subList(1, found.size())) {
        first.absorb(each.piece);
      }
      return first;
    }

    private void layDownTail(Range here, Piece tail, Found of, long bytes) {
      Charge charge = of.charge == null ? null : of.charge.part(bytes);
      if (charge != null && Mutant.on("pool.split.nofrontier")) {
        owed.add(charge);
        charge = null;
      }
      layDown(here, tail, of.frontier, charge);
    }

    private void layDown(Range here, Piece piece, Frontier frontier, @Nullable Charge charge) {
      if (charge == null) {
        here.makeReady(piece);
      } else {
        rested.add(rest(here, piece, frontier, charge));
      }
    }
  }

  /** Under the lock; the result is given to the reclaimer after it. */
  private Rest rest(Range here, Piece piece, Frontier frontier, Charge charge) {
    Rest rest = new Rest(this, here, piece, frontier, charge);
    piece.rest = rest;
    here.resting.insert(piece);
    return rest;
  }

  // --- taking back --------------------------------------------------------------------------

  @Override
  public boolean giveBack(Storage storage, Charge charge) {
    if (context.isLost()) {
      budget.cancel(charge); // the memory ended with its context
      return true;
    }
    Frontier uses = Mutant.on("pool.frontier.skip") ? Frontier.NONE : storage.lastUses();
    if (uses == Frontier.NONE) {
      putBack(storage.address, uses, charge); // before its bytes are free: who gets them finds it
      budget.cancel(charge);
    } else {
      budget.closing(charge);
      Rest rest = putBack(storage.address, uses, charge);
      if (rest != null) {
        reclaimer.add(rest);
      } else {
        budget.release(charge); // it ended with the context, just now
      }
    }
    if (closing) {
      context.owner().retire(new Order(this::returnAllAndExit));
    } else if (context.isLost()) {
      abandon();
    }
    return true;
  }

  private @Nullable Rest putBack(long address, Frontier uses, Charge charge) {
    Rest rest = null;
    List<Completion.Source<@Nullable Void>> woken;
    lock.lock();
    try {
      Range here = range;
      Piece piece = here == null ? null : here.used.remove(address);
      if (here != null && piece != null) {
        if (uses == Frontier.NONE) {
          here.makeReady(piece);
        } else {
          rest = rest(here, piece, uses, charge);
        }
      }
      woken = takeWaiting();
    } finally {
      lock.unlock();
    }
    woken.forEach(each -> each.complete(null));
    return rest;
  }

  private void becameReady(Rest rest) {
    List<Completion.Source<@Nullable Void>> woken;
    lock.lock();
    try {
      Piece piece = rest.piece;
      if (piece.rest != rest || range != rest.range) {
        return; // it was taken, or left with its range
      }
      piece.rest = null;
      rest.range.resting.remove(piece);
      rest.range.makeReady(piece);
      woken = takeWaiting();
    } finally {
      lock.unlock();
    }
    woken.forEach(each -> each.complete(null));
  }

  private List<Completion.Source<@Nullable Void>> takeWaiting() {
    List<Completion.Source<@Nullable Void>> woken =
        waiting.isEmpty() ? List.of() : List.copyOf(waiting);
    waiting.clear();
    return woken;
  }

  // --- back to the driver -------------------------------------------------------------------

  /** All or nothing: the driver gets its one piece back only while nobody uses any of it. */
  @Override
  public Completion<@Nullable Void> trim(long bytes) {
    Completion.Source<@Nullable Void> gone = Completion.source();
    if (context.owner().isOwnerThread()) {
      returnRange(false, gone);
    } else if (!context.owner().retire(new Order(() -> returnRange(false, gone)))) {
      gone.complete(null); // it has ended with the context
    }
    return gone.completion();
  }

  /** Owner only. */
  private void returnRange(boolean alsoResting, Completion.Source<@Nullable Void> gone) {
    Leaving leaving = leave(alsoResting);
    if (leaving == null) {
      gone.complete(null);
      return;
    }
    try {
      DeviceStream stream = exit.stream();
      below.free(stream, leaving.range.address, leaving.uses);
      Frontier.endOf(stream.mark())
          .onDone(
              _ -> {
                become(null, leaving.changed);
                gone.complete(null);
              });
    } catch (RuntimeException refused) {
      become(alsoResting ? null : leaving.range, leaving.changed); // else it is as it was
      gone.fail(refused);
    } finally {
      leaving.owed.forEach(budget::release);
    }
  }

  /** A range that nobody may use any more, up to where it was used, and what it still took. */
  private record Leaving(
      Range range, Frontier uses, List<Charge> owed, Completion.Source<@Nullable Void> changed) {}

  private @Nullable Leaving leave(boolean alsoResting) {
    lock.lock();
    try {
      Range here = range;
      if (here == null || changing != null || !here.used.isEmpty()) {
        return null;
      }
      boolean isReady = here.resting.count() == 0 || Mutant.on("pool.trim.early");
      if (!isReady && !alsoResting) {
        return null; // not before the host has seen the end of every use
      }
      Frontier uses = here.made;
      List<Charge> owed = new ArrayList<>();
      for (Piece each = alsoResting ? here.first : null; each != null; each = each.after) {
        Rest rest = each.rest;
        if (rest != null && rest.takeUnreached()) {
          uses = Frontier.join(uses, rest.frontier);
          owed.add(rest.charge);
        }
      }
      range = null;
      changing = Completion.source();
      return new Leaving(here, uses.left(), owed, changing);
    } finally {
      lock.unlock();
    }
  }

  @Override
  public long cached() {
    lock.lock();
    try {
      return range == null ? 0 : range.ready.granules() * Sizes.GRANULE;
    } finally {
      lock.unlock();
    }
  }

  @Override
  public long reused() {
    return reused.sum();
  }

  @Override
  public void abandon() {
    List<Completion.Source<@Nullable Void>> woken;
    lock.lock();
    try {
      range = null;
      woken = takeWaiting();
    } finally {
      lock.unlock();
    }
    reclaimer.abandon();
    woken.forEach(each -> each.complete(null)); // they are told by the driver
  }

  @Override
  public void close() {
    closing = true;
    if (context.isLost()) {
      abandon();
    }
    context.owner().call(this::returnAllAndExit).awaitUninterruptibly();
  }

  private @Nullable Void returnAllAndExit() {
    returnRange(true, Completion.source()); // or it ends with the context
    exit.close();
    return null;
  }

  // --- for tests ----------------------------------------------------------------------------

  boolean isLockedHere() {
    return lock.isHeldByCurrentThread();
  }

  /** Fails unless the pieces tile the range, and each is where its state says. */
  void check() {
    lock.lock();
    try {
      Range here = range;
      if (here != null) {
        check(here);
      }
    } finally {
      lock.unlock();
    }
  }

  private static void check(Range here) {
    long next = 0;
    long ready = 0;
    long resting = 0;
    int used = 0;
    Piece previous = null;
    for (Piece each = here.first; each != null; each = each.after) {
      require(each.start == next && each.before == previous, "pieces lie side by side");
      require(each.granules > 0, "no piece is empty");
      require((each.rest != null) == (each.index == here.resting), "what rests has a past");
      boolean twoReady =
          previous != null && previous.index == here.ready && each.index == here.ready;
      require(!twoReady, "ready neighbours are one");
      ready += each.index == here.ready ? each.granules : 0;
      resting += each.index == here.resting ? each.granules : 0;
      if (each.index == null) {
        used++;
        require(here.used.get(here.address(each)) == each, "what is used is known");
      }
      next += each.granules;
      previous = each;
    }
    require(next == here.granules, "all of the range is in a piece");
    require(ready == here.ready.granules(), "what is ready is offered");
    require(resting == here.resting.granules(), "what rests is offered");
    require(used == here.used.size(), "nothing else is used");
  }

  private static void require(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("not so: " + what);
    }
  }
}
