package io.fairlead.memory;

import static java.lang.Boolean.TRUE;

import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import io.fairlead.task.StuckTasks;
import io.fairlead.task.Task;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * Who may have how many bytes, and who waits.
 *
 * <pre>
 * invariants, whenever the lock is free:  inUse &lt;= limit
 *                                         inUse + reserved &lt;= limit, but for what is lent
 *
 *   free --charge--> inUse --closing--> inUse, pendingFree --release--> free
 *   free --admit--> reserved --charge--> inUse ... --release--> reserved (room open) or free
 * </pre>
 *
 * <p><b>Lending.</b> What is promised to reservations and not in use yet is memory that lies idle.
 * Buffers that come back may have it, once nothing can leave the device for them ({@link #lend}):
 * else those for whom it was promised could wait for a buffer that waits for them. So may a new one
 * for which its task has taken the turn of {@link Returns}, which those may wait for. Nobody else:
 * whatever comes back can leave again, and who needs it for no longer than a moment. So {@code
 * inUse + reserved - limit}, if it is positive, is <i>lent</i>. While something is, nothing more is
 * promised, and who draws on a reservation gets what the device has, or waits until others have
 * left for him: for buffers that are kept or leased just then, never for the end of a reservation.
 *
 * <p><b>Who is next.</b> Requests of tasks that already hold memory, that draw on a reservation, or
 * that have the turn of {@link Returns}, <i>continue</i>; all others are <i>fresh</i>. Continuing
 * requests are looked at first and granted as soon as they fit, oldest first, but for the
 * <i>heirs</i>, who have nothing yet and continue for a parent that has: these come after those who
 * have some themselves, else each byte that comes back would go to one more who keeps it and wants
 * more. Fresh ones wait in strict order behind every continuing one. So nobody new begins while
 * somebody who began lacks memory, a large fresh request is never overtaken by a small fresh one,
 * and a request that fits is never stuck behind one whose memory it holds itself. A continuing
 * request can be overtaken only by others that continue, which end. What comes back does not: the
 * same bytes go back and forth as long as the device is full. So who begins, other than by a
 * reservation, continues once {@link #OVERTAKEN_MAX} of them have passed him; one after the other.
 * While the driver has less than the limit says, nobody begins until who met that has his block
 * ({@link #holdBack}).
 *
 * <p>One that begins may have to be waited for, too: by who joins its task, or wants the engine
 * that it is in. If the first of the queue waits for one of those, the ladder lets it pass ({@link
 * #letPass}).
 *
 * <p><b>Locks.</b> One lock, a leaf: nothing is called while it is held. Waiters are completed
 * after it was released. All non-final fields here and in {@link Room}, and {@code held} and {@code
 * room} of {@link Account}, belong to it; {@code waiting} is also read without it. Under it nobody
 * looks at all who wait, of whom there may be very many: there are sums of what they want, and
 * {@link Line}s that find who fits. Only those who are {@code special} are looked at each time.
 */
final class Budget {
  /** Of the limit: so much at most is made free at once for those who begin, but for the first. */
  private static final int TOGETHER_PART = 16;

  private static final int TOGETHER_MAX = 64;

  /** So many are looked at at a time for who does not ask for anything himself. */
  private static final int PIECE = 256;

  /** So often others bring back ahead of one who begins. */
  static final int OVERTAKEN_MAX = 16;

  private final long limit;
  private final BriefLock lock = new BriefLock();

  /** Of those who have memory themselves. */
  private final Line continuing = new Line();

  /** Of those who continue since a parent has memory. */
  private final Line heirs = new Line();

  private final Line fresh = new Line();

  /**
   * Of those who continue, who draws on a reservation, brings back or may borrow: what he lacks is
   * more than a sum, so he is looked at each time. For all others there are the sums below.
   */
  private final Set<Request> special = new LinkedHashSet<>();

  /** Of the others who continue, those that wait to reserve, in the order of coming. */
  private final Set<Request> patient = new LinkedHashSet<>();

  private long patientBytes;

  /** Wanted by all others who continue. */
  private long plainBytes;

  /** The open ones, in the order of making. */
  private final Set<Room> rooms = new LinkedHashSet<>();

  /** How often somebody got what he brings back. */
  private long returns;

  /** How often that was when it was last too often for who begins. */
  private long overtakenAt;

  /** Requests that were looked at; for tests. */
  private long steps;

  /** How many have met that the driver has less than the limit says, and wait for that. */
  private int refused;

  /** How often somebody got or gave back something. */
  private long changes;

  private long inUse;
  private long reserved;
  private long pendingFree;
  private long peak;
  private long allocations;

  /**
   * Written under the lock. Volatile: a request raises it before it looks at pending frees, and a
   * free is listed before it reads it, so at least one of the two sees the other.
   */
  private volatile int waiting;

  /** Set before the first request. */
  private volatile Runnable onMissing = () -> {};

  /** Why nobody may wait any more; null while the device is open and sound. */
  private @Nullable RuntimeException refusal;

  Budget(long limit) {
    this.limit = limit;
  }

  long limit() {
    return limit;
  }

  // --- requests -----------------------------------------------------------------------------

  /** Asks for bytes for a buffer. Granted at once if possible; else it waits in its place. */
  Request charge(Account account, long bytes) {
    return enter(new Request(account, bytes, false));
  }

  /**
   * As {@link #charge}, for who has the turn of {@link Returns}: it always continues. Those who
   * wait for the turn may keep what the fresh ones before it wait for; and they may have
   * reservations, whose end this must not wait for: so it may be lent, too.
   */
  Request chargeInTurn(Account account, long bytes) {
    Request request = new Request(account, bytes, false);
    request.hasTurn = true;
    return enter(request);
  }

  /** As {@link #charge}, if it is granted at once; else null, and nothing is left of it. */
  @Nullable Charge tryCharge(Account account, long bytes) {
    Untold untold = new Untold();
    Charge charge = tryCharge(account, bytes, untold);
    untold.tell();
    return charge;
  }

  /**
   * The same for who has a lock, under which nobody is to be told anything: he tells it afterwards.
   */
  @Nullable Charge tryCharge(Account account, long bytes, Untold untold) {
    lock.lock();
    try {
      long before = missingBefore();
      Charge charge = mayPass(account) ? grantCharge(account, bytes) : null;
      untold.more |= isMoreMissing(before);
      return charge;
    } finally {
      lock.unlock();
    }
  }

  /** What {@link #onMissing} has not been told yet. One thread's. */
  final class Untold {
    private boolean more;

    void tell() {
      tellMissing(more);
    }
  }

  /**
   * Has that told, from now on, whenever more is {@link #missing} for those who wait, unless one of
   * them has just begun to: who makes room for them may have done with it. Bytes go ahead of them
   * to somebody who did not wait; or those that were on their way have come, and gone to a
   * reservation that nobody waits for; or another one is the first now of those who begin.
   *
   * @param told by any thread, without the lock; must not wait
   */
  void onMissing(Runnable told) {
    onMissing = told;
  }

  private void tellMissing(boolean more) {
    if (more && !Mutant.on("budget.missing.untold")) {
      onMissing.run();
    }
  }

  /** Under the lock. Nobody is looked for as long as nobody waits. */
  private long missingBefore() {
    return waiting == 0 ? Long.MAX_VALUE : missingNow();
  }

  /** Under the lock. */
  private boolean isMoreMissing(long before) {
    return waiting > 0 && missingNow() > before;
  }

  /**
   * Gives the bytes of a buffer that was {@link #closing} to the next one, without the device
   * having reached that. Null, and nothing has changed, if others wait for memory, or the bytes
   * belong to a reservation that is not the account's, or were lent.
   */
  @Nullable Charge renew(Account account, Charge old) {
    lock.lock();
    try {
      if (waiting > 0 || isOfAnother(account, old)) {
        return null;
      }
      giveBackBytes(old);
      Charge renewed = grantCharge(account, old.bytes);
      if (renewed == null) {
        takeBytesAgain(old); // it was lent, and has come back now
      }
      return renewed;
    } finally {
      lock.unlock();
    }
  }

  /**
   * As the other {@code renew}, for a buffer that gets what several closed ones had, and maybe more
   * than that.
   */
  @Nullable Charge renew(Account account, List<Charge> old, long bytes) {
    lock.lock();
    try {
      if (waiting > 0 || old.stream().anyMatch(each -> isOfAnother(account, each))) {
        return null;
      }
      old.forEach(this::giveBackBytes);
      Charge renewed = grantCharge(account, bytes);
      if (renewed == null) {
        old.forEach(this::takeBytesAgain);
      }
      return renewed;
    } finally {
      lock.unlock();
    }
  }

  private static boolean isOfAnother(Account account, Charge old) {
    Room owner = openRoom(old.room);
    return owner != null && owner != account.openRoom();
  }

  /**
   * Asks for a reservation. As {@link #charge}.
   *
   * @param attach whether the account's buffers draw on it
   */
  Request admit(Account account, long bytes, boolean attach) {
    Request request = new Request(account, bytes, true);
    request.attach = attach;
    return enter(request);
  }

  /**
   * Asks for all the bytes that buffers took before they left the device, to be granted together:
   * each to its own account, from its own reservation if that is still open, else from the device,
   * else from a reservation of {@code account}, who needs them. As {@link #charge}; it always
   * continues.
   *
   * @param paid what it keeps meanwhile, of other devices
   */
  Request chargeAgain(Account account, List<Charge> before, List<Charge> paid) {
    long bytes = before.stream().mapToLong(each -> each.bytes).sum();
    Request request = new Request(account, bytes, false);
    request.before = before;
    request.paid = paid;
    return enter(request);
  }

  /**
   * Asks for bytes that nobody is to have for the moment, so that others leave and a block can be
   * made where they were. They may be lent, wherever they come from. As {@link #charge}; it always
   * continues, since it keeps what others wait for.
   *
   * @param paid what it keeps meanwhile, for which there is no block yet
   */
  Request chargeBesides(Account account, long bytes, List<Charge> paid) {
    Request request = new Request(account, bytes, false);
    request.besides = true;
    request.paid = paid;
    return enter(request);
  }

  /**
   * As {@link #chargeBesides}, for others who use the device without Fairlead, and wait for a time
   * only: so nobody of ours goes before them.
   */
  Request chargeForOthers(Account account, long bytes) {
    Request request = new Request(account, bytes, false);
    request.besides = true;
    request.hasTurn = true;
    return enter(request);
  }

  /** As {@link #admit}, for a try that begins again, and may turn out to need more. */
  Request admitTry(Account account, long bytes) {
    Request request = new Request(account, bytes, true);
    request.attach = true;
    request.grows = true;
    return enter(request);
  }

  private Request enter(Request request) {
    Completion.@Nullable Source<Boolean> source;
    @Nullable RuntimeException failure;
    boolean more;
    lock.lock();
    try {
      long before = missingBefore();
      boolean goesOn = request.isForWhatIsKept() || request.account.continues(request.reserves);
      request.continues = goesOn;
      boolean granted = (goesOn || (waiting == 0 && !isHeldBack())) && grant(request);
      more = granted && isMoreMissing(before);
      source = granted ? null : Completion.source(OwnWait.ROOM);
      request.source = source;
      failure = granted ? null : refusal;
      if (!granted && failure == null) {
        request.since = System.nanoTime();
        request.returnsBefore = returns;
        stand(request, lineOf(request));
        waiting = queued();
      }
    } finally {
      lock.unlock();
    }
    tellMissing(more);
    if (failure != null && source != null) {
      source.fail(failure);
    }
    return request;
  }

  /** Under the lock. */
  private Line lineOf(Request request) {
    if (!request.continues) {
      return fresh;
    }
    boolean own =
        request.isForWhatIsKept() || request.account.hasItsOwn() || Mutant.on("budget.heirs.first");
    return own ? continuing : heirs;
  }

  /** Under the lock. */
  private void stand(Request request, Line line) {
    boolean isSum = line == fresh || isPlain(request);
    line.add(request, isSum ? request.bytes : 0);
    request.account.waits++;
    if (line != fresh) {
      if (isSum) {
        count(request);
      } else {
        special.add(request);
      }
    }
  }

  /** Under the lock; false if it stands nowhere. */
  private boolean leave(Request request) {
    Line line = request.line;
    if (line == null || !line.remove(request)) {
      return false;
    }
    request.account.waits--;
    if (line != fresh && !special.remove(request)) {
      discount(request);
    }
    return true;
  }

  /** Whether what it wants is of what is neither in use nor promised, and nothing else. */
  private static boolean isPlain(Request request) {
    return request.before == null && !request.mayBorrow() && request.account.openRoom() == null;
  }

  private void count(Request request) {
    if (request.isPatient()) {
      patient.add(request);
      patientBytes += request.bytes;
    } else {
      plainBytes += request.bytes;
    }
  }

  private void discount(Request request) {
    if (patient.remove(request)) {
      patientBytes -= request.bytes;
    } else {
      plainBytes -= request.bytes;
    }
  }

  /** The account draws on a reservation from now on, and so do its requests that wait. */
  private void draws(Account account) {
    for (Line line : List.of(continuing, heirs)) {
      line.forEach(
          request -> {
            if (request.account == account && special.add(request)) {
              discount(request);
              line.change(request, 0);
            }
          });
    }
  }

  /** A reservation has ended, and who drew on it may wait for the device now. */
  private void drawsNoMore() {
    for (Iterator<Request> each = special.iterator(); each.hasNext(); ) {
      Request request = each.next();
      Line line = request.line;
      if (line != null && isPlain(request)) {
        each.remove();
        count(request);
        line.change(request, request.bytes);
      }
    }
  }

  private int queued() {
    return continuing.size() + heirs.size() + fresh.size();
  }

  /**
   * The device closes or is lost: whoever waits, or would have to from now on, fails with {@code
   * cause}.
   */
  void refuseWaiting(RuntimeException cause) {
    List<Request> all;
    lock.lock();
    try {
      refusal = cause;
      all = continuing.clear();
      all.addAll(heirs.clear());
      all.addAll(fresh.clear());
      all.forEach(request -> request.account.waits--);
      special.clear();
      patient.clear();
      patientBytes = 0;
      plainBytes = 0;
      waiting = 0;
    } finally {
      lock.unlock();
    }
    for (Request request : all) {
      Objects.requireNonNull(request.source, "a request that waits").fail(cause);
    }
  }

  /** Takes the request out of its queue; false if it was granted, or taken out, before. */
  boolean withdraw(Request request) {
    List<Request> granted;
    boolean more;
    lock.lock();
    try {
      if (request.isGranted() || request.gone) {
        return false;
      }
      long before = missingBefore();
      request.gone = true;
      leave(request);
      // Whoever stood behind it may be next now.
      granted = grantWaiting();
      more = isMoreMissing(before);
    } finally {
      lock.unlock();
    }
    tell(granted);
    tellMissing(more);
    return true;
  }

  /** Whether what was granted to it is to be given back by the caller: true once. */
  boolean forget(Request request) {
    lock.lock();
    try {
      boolean first = !request.forgotten;
      request.forgotten = true;
      return first;
    } finally {
      lock.unlock();
    }
  }

  /**
   * The first of those who wait to begin waits for this one, who stands behind him, or for somebody
   * who waits for this one: from now on it counts as one that continues.
   *
   * @return false if it does not wait to begin any more
   */
  boolean letPass(Request request) {
    List<Request> granted;
    lock.lock();
    try {
      if (request.line != fresh) {
        return false;
      }
      leave(request);
      stand(request, heirs);
      granted = grantWaiting();
    } finally {
      lock.unlock();
    }
    tell(granted);
    tellMissing(true); // others leave for it now
    return true;
  }

  /**
   * What comes back goes ahead of who begins, and while a device is full something does at any
   * time. That has no end as work that was begun has: so after some of them he continues. So do
   * those behind him only if it is little: a crowd that was passed together would stand before
   * those who have begun, who alone give something back, and each byte would go to one more who
   * keeps it.
   */
  private void countOvertaken() {
    Request head = fresh.peek();
    if (head == null || head.isPatient() || !isOvertaken(head)) {
      return;
    }
    List<Request> together =
        Mutant.on("budget.overtaken.all")
            ? fresh.toList()
            : firstOnes().stream().filter(this::isOvertaken).toList();
    overtakenAt = returns;
    for (Request request : together) {
      leave(request);
      stand(request, continuing);
    }
  }

  private boolean isOvertaken(Request request) {
    return returns - Math.max(request.returnsBefore, overtakenAt) >= OVERTAKEN_MAX
        && !Mutant.on("budget.overtaken.ever");
  }

  private List<Request> grantWaiting() {
    List<Request> granted = List.of();
    int left = queued();
    if (left > 0) {
      countOvertaken();
      granted = new ArrayList<>();
      grantWhatFits(continuing, granted);
      grantWhatFits(heirs, granted);
      Request head = fresh.peek();
      while (head != null && queued() == fresh.size() && !isHeldBack() && grant(head)) {
        leave(head);
        granted.add(head);
        head = fresh.peek();
      }
      left = queued();
    }
    if (left != waiting) { // a volatile store costs as much as a lock, and hardly anybody waits
      waiting = left;
    }
    return granted;
  }

  private void grantWhatFits(Line line, List<Request> granted) {
    Request request = line.firstUpTo(toGrant(), 0);
    while (request != null) {
      int slot = request.slot;
      if (grant(request)) {
        leave(request);
        granted.add(request);
      }
      request = line.firstUpTo(toGrant(), slot + 1);
    }
  }

  /** What is neither in use nor promised. */
  private long toGrant() {
    return Mutant.on("memory.limit.skip") ? Long.MAX_VALUE : Math.max(0, limit - inUse - reserved);
  }

  private boolean grant(Request request) {
    steps++;
    List<Charge> before = request.before;
    if (before != null) {
      return grantAgain(request, before);
    }
    return request.reserves ? grantRoom(request) : grantCharge(request);
  }

  private boolean grantAgain(Request request, List<Charge> before) {
    List<Charge> granted = new ArrayList<>(before.size());
    long peakBefore = peak;
    for (Charge each : before) {
      Charge charge = grantAgain(request, each);
      if (charge == null) {
        for (Charge taken : granted) {
          taken.account.held -= taken.bytes;
          inUse -= taken.bytes;
          giveBack(taken.room, taken.bytes);
        }
        peak = peakBefore;
        return false;
      }
      granted.add(charge);
    }
    request.charges = granted;
    returns++;
    return true;
  }

  private @Nullable Charge grantAgain(Request request, Charge before) {
    if (!isThere(before.bytes)) {
      return null;
    }
    Room own = openRoom(before.room);
    boolean fromOwn = own != null && own.free() >= before.bytes;
    Room room = fromOwn ? own : null;
    if (!fromOwn && !fits(before.bytes)) {
      Account needs = request.account;
      room = roomWith(needs.openRoom(), before.bytes);
      room = room == null ? grown(needs, before.bytes) : room;
      if (room == null && !request.borrows) {
        return null;
      }
    }
    return take(before.account, room, before.bytes);
  }

  private boolean grantCharge(Request request) {
    request.charge =
        request.besides ? grantBesides(request) : grantCharge(request.account, request.bytes);
    if (request.charge == null && request.hasTurn) {
      request.charge = grantLent(request);
    }
    return request.charge != null;
  }

  /** A new buffer for who has the turn: it can leave again, as what comes back can. */
  private @Nullable Charge grantLent(Request request) {
    if (!request.borrows || !isThere(request.bytes)) {
      return null;
    }
    allocations++;
    return take(request.account, null, request.bytes);
  }

  private @Nullable Charge grantBesides(Request request) {
    boolean may = fits(request.bytes) || (request.borrows && isThere(request.bytes));
    return may ? take(request.account, null, request.bytes) : null;
  }

  private @Nullable Charge grantCharge(Account account, long bytes) {
    if (!isThere(bytes)) {
      return null;
    }
    Room room = roomWith(account.openRoom(), bytes);
    if (room == null && !fits(bytes)) {
      room = grown(account, bytes);
      if (room == null) {
        return null;
      }
    }
    allocations++;
    return take(account, room, bytes);
  }

  /** The innermost room of a try, with room for the bytes now; null if that could not be had. */
  private @Nullable Room grown(Account account, long bytes) {
    Room room = account.openRoom();
    if (room == null || !room.grows) {
      return null;
    }
    long more = bytes - room.free();
    Room parent = room.parent;
    if (parent == null) {
      if (!fits(more)) {
        return null;
      }
      reserved += more;
    } else {
      if (parent.free() < more) {
        return null;
      }
      parent.used += more;
    }
    room.size += more;
    return room;
  }

  private Charge take(Account account, @Nullable Room room, long bytes) {
    if (room != null) {
      room.used += bytes;
      reserved -= bytes;
    }
    changes++;
    inUse += bytes;
    peak = Math.max(peak, inUse);
    account.held += bytes;
    return new Charge(bytes, room, account);
  }

  /**
   * The driver has no room although the limit has: until as many have {@link #goOn}, nobody begins.
   * He would only meet the same, or get what has just left for those who do.
   */
  void holdBack() {
    lock.lock();
    try {
      refused++;
    } finally {
      lock.unlock();
    }
  }

  void goOn() {
    List<Request> granted;
    boolean more;
    lock.lock();
    try {
      long before = missingBefore();
      refused--;
      granted = refused == 0 ? grantWaiting() : List.of();
      more = isMoreMissing(before);
    } finally {
      lock.unlock();
    }
    tell(granted);
    tellMissing(more);
  }

  /** Under the lock. */
  private boolean isHeldBack() {
    return refused > 0 && !Mutant.on("budget.refused.begins");
  }

  /** Whether what it asks for is for work that has memory. */
  boolean goesOn(Account account) {
    lock.lock();
    try {
      return account.continues(false);
    } finally {
      lock.unlock();
    }
  }

  private boolean mayPass(Account account) {
    return (waiting == 0 && !isHeldBack()) || account.continues(false);
  }

  private boolean grantRoom(Request request) {
    Room outer = request.account.openRoom();
    Room parent = roomWith(outer, request.bytes);
    if (parent == null && !fits(request.bytes)) {
      return false;
    }
    if (parent == null) {
      reserved += request.bytes;
    } else {
      parent.used += request.bytes;
    }
    changes++;
    request.room = new Room(request.bytes, parent, outer, Keeper.of(request.account));
    request.room.grows = request.grows;
    rooms.add(request.room);
    if (request.attach) {
      request.account.room = request.room;
      if (request.account.waits > (request.line == null ? 0 : 1)) {
        draws(request.account);
      }
    }
    return true;
  }

  /** Of what is neither in use nor promised. */
  private boolean fits(long bytes) {
    return bytes <= toGrant();
  }

  /** Of what is not in use. So it always is for who draws on a room, while nothing is lent. */
  private boolean isThere(long bytes) {
    return Mutant.on("memory.limit.skip") || bytes <= limit - inUse;
  }

  private static @Nullable Room roomWith(@Nullable Room innermost, long bytes) {
    Room room = innermost;
    while (room != null && room.free() < bytes) {
      room = room.outer;
    }
    return room;
  }

  private static void tell(List<Request> granted) {
    for (Request request : granted) {
      Objects.requireNonNull(request.source, "a granted request that waited").complete(TRUE);
    }
  }

  // --- giving back --------------------------------------------------------------------------

  /**
   * The buffer was closed: nobody has to act any more for its bytes to come back. A second time
   * does nothing.
   */
  void closing(Charge charge) {
    lock.lock();
    try {
      noteClosing(charge);
    } finally {
      lock.unlock();
    }
  }

  private void noteClosing(Charge charge) {
    if (!charge.closing) {
      charge.closing = true;
      changes++; // pending, and no longer spillable
      pendingFree += charge.bytes;
      charge.account.held -= charge.bytes;
    }
  }

  /** The device has reached the free of a buffer that was {@link #closing}. */
  void release(Charge charge) {
    List<Request> granted;
    boolean more;
    lock.lock();
    try {
      long before = missingBefore();
      giveBackBytes(charge);
      granted = grantWaiting();
      more = isMoreMissing(before);
    } finally {
      lock.unlock();
    }
    tell(granted);
    tellMissing(more);
  }

  /** Both at once: of a buffer that nobody uses any more, or that a charge never became. */
  void cancel(Charge charge) {
    List<Request> granted;
    boolean more;
    lock.lock();
    try {
      long before = missingBefore();
      noteClosing(charge);
      giveBackBytes(charge);
      granted = grantWaiting();
      more = isMoreMissing(before);
    } finally {
      lock.unlock();
    }
    tell(granted);
    tellMissing(more);
  }

  private void giveBackBytes(Charge charge) {
    changes++;
    pendingFree -= charge.bytes;
    inUse -= charge.bytes;
    giveBack(charge.room, charge.bytes);
  }

  /** Takes {@link #giveBackBytes} back. */
  private void takeBytesAgain(Charge charge) {
    pendingFree += charge.bytes;
    inUse += charge.bytes;
    for (Room room = charge.room; room != null; room = room.parent) {
      room.used += charge.bytes;
      if (room.open) {
        reserved -= charge.bytes;
        return;
      }
    }
  }

  /** Ends a reservation; its live buffers stay counted. */
  void close(Room room) {
    List<Request> granted;
    boolean more;
    lock.lock();
    try {
      if (!room.open) {
        return;
      }
      long before = missingBefore();
      long unused = room.free();
      room.open = false;
      rooms.remove(room);
      drawsNoMore();
      changes++;
      reserved -= unused;
      giveBack(room.parent, unused);
      granted = grantWaiting();
      more = isMoreMissing(before);
    } finally {
      lock.unlock();
    }
    tell(granted);
    tellMissing(more);
  }

  private static @Nullable Room openRoom(@Nullable Room start) {
    Room room = start;
    while (room != null && !room.open) {
      room = room.parent;
    }
    return room;
  }

  /** Bytes flow to the nearest room that is open, or to the device. */
  private void giveBack(@Nullable Room start, long bytes) {
    for (Room room = start; room != null; room = room.parent) {
      room.used -= bytes;
      if (room.open) {
        reserved += bytes;
        return;
      }
    }
  }

  // --- what is below ------------------------------------------------------------------------

  /** A buffer leaves the device, and its task goes on with work that took memory all the same. */
  void wentBelow(Charge charge) {
    lock.lock();
    try {
      charge.account.below += charge.bytes;
    } finally {
      lock.unlock();
    }
  }

  /** It has come back, or was closed. */
  void leftBelow(Charge charge) {
    lock.lock();
    try {
      charge.account.below -= charge.bytes;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Bytes that buffers would have to leave to others: what those who wait want, besides what is
   * free or on its way; of those who begin, only the first ones, since the others wait for them.
   */
  long missing() {
    lock.lock();
    try {
      return missingNow();
    } finally {
      lock.unlock();
    }
  }

  /**
   * The same for those who have memory and lack more of it, and for those who wait to reserve and
   * have done so since {@code moment} or longer: only for these is there less hurry than that.
   *
   * @param moment of {@link System#nanoTime}
   */
  long missingSince(long moment) {
    lock.lock();
    try {
      return missing(
          request -> !request.isPatient() || request.since - moment <= 0,
          plainBytes + patientSince(moment));
    } finally {
      lock.unlock();
    }
  }

  /** The same without those who wait to reserve. */
  long missingAtOnce() {
    lock.lock();
    try {
      return missing(request -> !request.isPatient(), plainBytes);
    } finally {
      lock.unlock();
    }
  }

  private long patientSince(long moment) {
    long bytes = 0;
    for (Request request : patient) {
      steps++;
      if (request.since - moment > 0) {
        break; // and so have those behind it
      }
      bytes += request.bytes;
    }
    return bytes;
  }

  private long missingNow() {
    return missing(_ -> true, plainBytes + patientBytes);
  }

  /**
   * @param counts of those who are looked at
   * @param plain what the others who continue want
   */
  private long missing(Predicate<Request> counts, long plain) {
    Wanted wanted = new Wanted();
    wanted.free = plain;
    special.forEach(request -> add(request, counts, wanted));
    firstOnes().forEach(request -> add(request, counts, wanted));
    return missing(wanted.free, wanted.lent, wanted.drawn);
  }

  /** Bytes, by where they may come from. */
  private static final class Wanted {
    /** Of what is not promised. */
    long free;

    /** By who may borrow. */
    long lent;

    /** By those to whom it was promised. */
    long drawn;
  }

  private void add(Request request, Predicate<Request> counts, Wanted to) {
    steps++;
    if (counts.test(request)) {
      if (request.borrows) {
        to.lent += request.bytes;
      } else if (draws(request)) {
        to.drawn += request.bytes;
      } else {
        to.free += request.bytes;
      }
    }
  }

  private long missing(long free, long lent, long drawn) {
    long unused = limit - inUse + pendingFree;
    long fromDevice = lent + drawn == 0 ? 0 : lent + drawn - unused;
    if (free == 0) {
      return fromDevice;
    }
    long fromFree = free + lent - (unused - reserved);
    return lent + drawn == 0 ? fromFree : Math.max(fromFree, fromDevice);
  }

  /**
   * The first of those who begin; with the small ones right behind him, for whom room is made on
   * the same way: else each of many would wait for as many ways as are before him.
   */
  private List<Request> firstOnes() {
    List<Request> next = new ArrayList<>();
    long bytes = 0;
    for (Request request = fresh.peek(); request != null; request = fresh.after(request)) {
      bytes += request.bytes;
      boolean together = bytes <= limit / TOGETHER_PART && next.size() < TOGETHER_MAX;
      if (!next.isEmpty() && (!together || request.isPatient())) {
        break;
      }
      next.add(request);
      if (request.isPatient() || Mutant.on("budget.fresh.one-by-one")) {
        break;
      }
    }
    return next;
  }

  /** Whether it was promised what it waits for: then what it lacks is lent. */
  private static boolean draws(Request request) {
    return !request.reserves
        && (!request.mayBorrow() || request.hasTurn)
        && roomWith(request.account.openRoom(), request.bytes) != null;
  }

  /**
   * Nothing can leave the device for those who wait, and nothing is on its way: from now on buffers
   * that come back for them may have what is promised to others and not in use.
   *
   * @return what is missing even so for those, and for who draws on what is lent: it helps whatever
   *     leaves, wherever the bytes go back to
   */
  long lend() {
    List<Request> granted;
    long missing;
    lock.lock();
    try {
      for (Request request : special) {
        request.borrows |=
            request.line == continuing && request.mayBorrow() && !Mutant.on("memory.lend.skip");
      }
      granted = grantWaiting();
      missing = missing(request -> request.borrows || draws(request), 0);
    } finally {
      lock.unlock();
    }
    tell(granted);
    return missing;
  }

  /**
   * Whom it would help if buffers left: of those in an open reservation the bytes go back to that.
   * A picture of a moment.
   *
   * @param rooms those that somebody draws on who waits
   */
  record Helped(Set<Room> rooms) {}

  Helped helped() {
    lock.lock();
    try {
      Set<Room> found = Collections.newSetFromMap(new IdentityHashMap<>());
      steps += special.size();
      special.forEach(request -> found.addAll(roomsOf(request)));
      firstOnes().forEach(request -> found.addAll(roomsOf(request)));
      return new Helped(found);
    } finally {
      lock.unlock();
    }
  }

  /** Whether the bytes would go to one of them. */
  boolean wouldHelp(Charge charge, Helped helped) {
    lock.lock();
    try {
      Room owner = openRoom(charge.room);
      return owner == null || helped.rooms.contains(owner);
    } finally {
      lock.unlock();
    }
  }

  // --- for the ladder -----------------------------------------------------------------------

  /**
   * Who waits, and what is promised, at one moment.
   *
   * @param continuing in their order
   * @param fresh those that others may wait for, in their order: who keeps nothing, and has begun
   *     nothing, is in nobody's way, and may be one of very many
   * @param rooms the open ones
   * @param drawnOn of each request the rooms that it may be granted from, but for the device itself
   * @param head the first of all who wait to begin, in whose way others may be or not; null if none
   *     does
   * @param heldBack whether nobody begins, whatever there is
   */
  record Picture(
      List<Request> continuing,
      List<Request> fresh,
      Map<Room, RoomNow> rooms,
      Map<Request, List<Room>> drawnOn,
      long changes,
      @Nullable Request head,
      boolean heldBack) {

    /** The nearest one that is open; null for the device itself. */
    @Nullable Room openRoom(@Nullable Room start) {
      Room room = start;
      while (room != null && !rooms.containsKey(room)) {
        room = room.parent;
      }
      return room;
    }
  }

  /** How large a room is, and how much of it nobody uses. */
  record RoomNow(long size, long free) {}

  /**
   * @param keeping tasks that keep memory of other devices, in whose way others may be, too
   */
  Picture picture(Set<Task> keeping) {
    Map<Room, RoomNow> now = new LinkedHashMap<>();
    Map<Request, List<Room>> drawnOn = new HashMap<>();
    List<Request> goOn;
    List<Request> all;
    long changesNow;
    boolean heldBack;
    lock.lock();
    try {
      rooms.forEach(room -> now.put(room, new RoomNow(room.size, room.free())));
      goOn = continuing.toList();
      goOn.addAll(heirs.toList());
      special.forEach(request -> drawnOn.put(request, roomsOf(request)));
      all = fresh.toList();
      changesNow = changes;
      heldBack = isHeldBack();
    } finally {
      lock.unlock();
    }
    List<Request> begun = new ArrayList<>();
    inPieces(
        all,
        request -> {
          if (isInTheWay(request.account, request.place, keeping)) {
            begun.add(request);
            drawnOn.put(request, roomsOf(request));
          }
        });
    return new Picture(
        goOn, begun, now, drawnOn, changesNow, all.isEmpty() ? null : all.getFirst(), heldBack);
  }

  /** Who has a reservation, whether or not he uses it. */
  List<Task> reserving() {
    lock.lock();
    try {
      return rooms.stream()
          .map(room -> room.keeper.account().owner)
          .filter(Objects::nonNull)
          .toList();
    } finally {
      lock.unlock();
    }
  }

  /** Of those who wait for the turn of {@link Returns} the ones that others may wait for. */
  List<Returns.Place> inTheWay(List<Returns.Place> turns, Set<Task> keeping) {
    List<Returns.Place> found = new ArrayList<>();
    inPieces(
        turns,
        place -> {
          if (isInTheWay(place.account, place.where, keeping)) {
            found.add(place);
          }
        });
    return found;
  }

  /** Of very many, who are looked at for others: these come to the lock in between. */
  private <T> void inPieces(List<T> some, Consumer<T> action) {
    for (int from = 0; from < some.size(); from += PIECE) {
      List<T> piece = some.subList(from, Math.min(some.size(), from + PIECE));
      lock.lock();
      try {
        piece.forEach(action);
      } finally {
        lock.unlock();
      }
    }
  }

  private static boolean isInTheWay(
      Account account, StuckTasks.@Nullable Place place, Set<Task> keeping) {
    return place != null
        && (place.isInCall() || account.keepsAny() || isBelowAny(place.task(), keeping));
  }

  private static boolean isBelowAny(Task task, Set<Task> some) {
    Task each = some.isEmpty() ? null : task;
    while (each != null && !some.contains(each)) {
      each = each.parent();
    }
    return each != null;
  }

  private static List<Room> roomsOf(Request request) {
    List<Room> found = new ArrayList<>();
    for (Room room = request.account.openRoom(); room != null; room = room.outer) {
      if (room.open) {
        found.add(room);
      }
    }
    List<Charge> before = request.before == null ? List.of() : request.before;
    for (Charge each : before) {
      Room own = openRoom(each.room);
      if (own != null && !found.contains(own)) {
        found.add(own);
      }
    }
    return found;
  }

  boolean isGranted(Request request) {
    lock.lock();
    try {
      return request.isGranted();
    } finally {
      lock.unlock();
    }
  }

  /** Whether all of them still wait. */
  boolean allWait(Collection<Request> requests) {
    lock.lock();
    try {
      return requests.stream().noneMatch(request -> request.gone || request.isGranted());
    } finally {
      lock.unlock();
    }
  }

  /** How often somebody has got or given back something. */
  long changes() {
    lock.lock();
    try {
      return changes;
    } finally {
      lock.unlock();
    }
  }

  /** Bytes that are neither in use nor promised. */
  long freeBytes() {
    lock.lock();
    try {
      return limit - inUse - reserved;
    } finally {
      lock.unlock();
    }
  }

  // --- looking ------------------------------------------------------------------------------

  /** How many requests have been looked at under the lock; for tests. */
  long steps() {
    lock.lock();
    try {
      return steps + continuing.steps() + heirs.steps() + fresh.steps();
    } finally {
      lock.unlock();
    }
  }

  boolean hasWaiting() {
    return waiting > 0;
  }

  /** How many requests wait now. */
  int waitingCount() {
    return waiting;
  }

  /**
   * Whether every byte in the way of a request is held by the account that asks. Not so for the
   * root task: another of its threads may give back.
   */
  boolean heldOnlyBy(Account account) {
    lock.lock();
    try {
      return !account.shared && pendingFree == 0 && reserved == 0 && inUse == account.held;
    } finally {
      lock.unlock();
    }
  }

  long pendingFree() {
    lock.lock();
    try {
      return pendingFree;
    } finally {
      lock.unlock();
    }
  }

  /** Free bytes of a room, for its reservation. */
  long free(Room room) {
    lock.lock();
    try {
      return room.free();
    } finally {
      lock.unlock();
    }
  }

  MemoryStats stats() {
    lock.lock();
    try {
      return new MemoryStats(limit, inUse, reserved, peak, allocations, pendingFree);
    } finally {
      lock.unlock();
    }
  }

  /** The account of a child that is being forked. */
  Account inherit(Account parent, boolean parentIsRoot, String task, long taskId) {
    Account child = new Account(task, taskId, parentIsRoot ? null : parent);
    lock.lock();
    try {
      child.room = parent.openRoom();
    } finally {
      lock.unlock();
    }
    return child;
  }

  /** One wish for bytes, granted or waiting. */
  static final class Request {
    final Account account;
    final long bytes;
    final boolean reserves;

    /** Whether its task holds memory, so that others may be waiting for it. Set before it waits. */
    boolean continues;

    /** When it began to wait, of {@link System#nanoTime}; set before it waits. */
    long since;

    /** How many had brought back by then; set before it waits. */
    long returnsBefore;

    /** Where it stands, and at which slot there; null while it does not wait. Under the lock. */
    @Nullable Line line;

    int slot;

    /** Whether it is now. Under the lock. */
    boolean borrows;

    /** Whether it is for a moment only; set before it is entered. */
    boolean besides;

    /**
     * Whether its task has the turn of {@link Returns}, or it goes before others for another
     * reason; set before it is entered.
     */
    boolean hasTurn;

    /** Charges, of any device, that its task keeps and no storage has; set before it is entered. */
    List<Charge> paid = List.of();

    /** For a reservation; set before it is entered. */
    boolean attach;

    /** As {@code attach}: see {@link Room}. */
    boolean grows;

    /**
     * Null if the request was granted at once; else completed when it is, or failed when the device
     * closes or is lost. Set before it waits.
     */
    Completion.@Nullable Source<Boolean> source;

    /** Written once under the lock; read there, or by its owner once it knows of the grant. */
    @Nullable Charge charge;

    /** Whether it was taken back. Under the lock. */
    boolean gone;

    /** Whether what it was granted has been given back. Under the lock. */
    boolean forgotten;

    /** Where its task waits; set by that, once it does. */
    volatile StuckTasks.@Nullable Place place;

    /** Whether it looks as if nothing came back. */
    final Suspicion suspicion = new Suspicion();

    /** As {@code charge}, for a reservation. */
    @Nullable Room room;

    /** What buffers took before they left the device; set before it is entered. */
    @Nullable List<Charge> before;

    /** As {@code charge}, for those; in their order. */
    @Nullable List<Charge> charges;

    Request(Account account, long bytes, boolean reserves) {
      this.account = account;
      this.bytes = bytes;
      this.reserves = reserves;
    }

    /** Whether what is promised to others may be lent to it, if nothing else helps. */
    boolean mayBorrow() {
      return before != null || besides || (hasTurn && !Mutant.on("memory.turn.waits"));
    }

    /** Whether others may wait for what its task keeps, whatever the account has. */
    boolean isForWhatIsKept() {
      return before != null || hasTurn || besides;
    }

    /**
     * Whether it begins something for which nobody has to leave who is in use. Not a try that
     * begins again: it has given up what it had.
     */
    boolean isPatient() {
      return reserves && !grows;
    }

    /** Under the lock. */
    boolean isGranted() {
      return charge != null || room != null || charges != null;
    }
  }
}
