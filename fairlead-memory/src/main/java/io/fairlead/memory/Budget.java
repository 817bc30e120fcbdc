package io.fairlead.memory;

import static java.lang.Boolean.TRUE;

import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * Who may have how many bytes, and who waits.
 *
 * <pre>
 * invariant, whenever the lock is free:  inUse + reserved &lt;= limit
 *
 *   free --charge--> inUse --closing--> inUse, pendingFree --release--> free
 *   free --admit--> reserved --charge--> inUse ... --release--> reserved (room open) or free
 * </pre>
 *
 * <p><b>Who is next.</b> Requests of tasks that already hold memory, or that draw on a reservation,
 * <i>continue</i>; all others are <i>fresh</i>. Continuing requests are looked at first and granted
 * as soon as they fit, oldest first; fresh ones wait in strict order behind every continuing one.
 * So nobody new begins while somebody who began lacks memory, a large fresh request is never
 * overtaken by a small fresh one, and a request that fits is never stuck behind one whose memory it
 * holds itself. A continuing request can be overtaken only by others that continue, which end.
 *
 * <p><b>Locks.</b> One lock, a leaf: nothing is called while it is held. Waiters are completed
 * after it was released. All non-final fields here and in {@link Room}, and {@code held} and {@code
 * room} of {@link Account}, belong to it; {@code waiting} is also read without it.
 */
final class Budget {
  private final long limit;
  private final ReentrantLock lock = new ReentrantLock();
  private final ArrayDeque<Request> continuing = new ArrayDeque<>();
  private final ArrayDeque<Request> fresh = new ArrayDeque<>();
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

  /** As {@link #charge}, if it is granted at once; else null, and nothing is left of it. */
  @Nullable Charge tryCharge(Account account, long bytes) {
    lock.lock();
    try {
      return mayPass(account) ? grantCharge(account, bytes) : null;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Gives the bytes of a buffer that was {@link #closing} to the next one, without the device
   * having reached that. Null, and nothing has changed, if others wait for memory, or the bytes
   * belong to a reservation that is not the account's.
   */
  @Nullable Charge renew(Account account, Charge old) {
    lock.lock();
    try {
      Room owner = openRoom(old.room);
      if (waiting > 0 || (owner != null && owner != account.openRoom())) {
        return null;
      }
      giveBackBytes(old);
      Charge renewed = grantCharge(account, old.bytes);
      return Objects.requireNonNull(renewed, "what was given back is there");
    } finally {
      lock.unlock();
    }
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

  private Request enter(Request request) {
    Completion.Source<Boolean> source;
    RuntimeException refused;
    lock.lock();
    try {
      boolean goesOn = request.account.continues(request.reserves);
      request.continues = goesOn;
      if ((goesOn || waiting == 0) && grant(request)) {
        return request;
      }
      source = Completion.source();
      request.source = source;
      refused = refusal;
      if (refused == null) {
        (goesOn ? continuing : fresh).addLast(request);
        waiting = continuing.size() + fresh.size();
      }
    } finally {
      lock.unlock();
    }
    if (refused != null) {
      source.fail(refused);
    }
    return request;
  }

  /**
   * The device closes or is lost: whoever waits, or would have to from now on, fails with {@code
   * cause}.
   */
  void refuseWaiting(RuntimeException cause) {
    List<Request> refused;
    lock.lock();
    try {
      refusal = cause;
      refused = new ArrayList<>(continuing);
      refused.addAll(fresh);
      continuing.clear();
      fresh.clear();
      waiting = 0;
    } finally {
      lock.unlock();
    }
    for (Request request : refused) {
      Objects.requireNonNull(request.source, "a request that waits").fail(cause);
    }
  }

  /** Takes the request out of its queue; false if it was granted before. */
  boolean withdraw(Request request) {
    List<Request> granted;
    lock.lock();
    try {
      if (request.isGranted()) {
        return false;
      }
      continuing.remove(request);
      fresh.remove(request);
      // Whoever stood behind it may be next now.
      granted = grantWaiting();
    } finally {
      lock.unlock();
    }
    tell(granted);
    return true;
  }

  private List<Request> grantWaiting() {
    List<Request> granted = List.of();
    if (!continuing.isEmpty() || !fresh.isEmpty()) {
      granted = new ArrayList<>();
      for (Iterator<Request> each = continuing.iterator(); each.hasNext(); ) {
        Request request = each.next();
        if (grant(request)) {
          each.remove();
          granted.add(request);
        }
      }
      while (continuing.isEmpty() && !fresh.isEmpty() && grant(fresh.getFirst())) {
        granted.add(fresh.removeFirst());
      }
    }
    waiting = continuing.size() + fresh.size();
    return granted;
  }

  private boolean grant(Request request) {
    return request.reserves ? grantRoom(request) : grantCharge(request);
  }

  private boolean grantCharge(Request request) {
    request.charge = grantCharge(request.account, request.bytes);
    return request.charge != null;
  }

  private @Nullable Charge grantCharge(Account account, long bytes) {
    Room room = roomWith(account.openRoom(), bytes);
    if (room == null && !fits(bytes)) {
      return null;
    }
    if (room != null) {
      room.used += bytes;
      reserved -= bytes;
    }
    inUse += bytes;
    peak = Math.max(peak, inUse);
    allocations++;
    account.held += bytes;
    return new Charge(bytes, room, account);
  }

  private boolean mayPass(Account account) {
    return waiting == 0 || account.continues(false);
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
    request.room = new Room(request.bytes, parent, outer);
    if (request.attach) {
      request.account.room = request.room;
    }
    return true;
  }

  private boolean fits(long bytes) {
    return Mutant.on("memory.limit.skip") || bytes <= limit - inUse - reserved;
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
      pendingFree += charge.bytes;
      charge.account.held -= charge.bytes;
    }
  }

  /** The device has reached the free of a buffer that was {@link #closing}. */
  void release(Charge charge) {
    List<Request> granted;
    lock.lock();
    try {
      giveBackBytes(charge);
      granted = grantWaiting();
    } finally {
      lock.unlock();
    }
    tell(granted);
  }

  /** Both at once: of a buffer that nobody uses any more, or that a charge never became. */
  void cancel(Charge charge) {
    List<Request> granted;
    lock.lock();
    try {
      noteClosing(charge);
      giveBackBytes(charge);
      granted = grantWaiting();
    } finally {
      lock.unlock();
    }
    tell(granted);
  }

  private void giveBackBytes(Charge charge) {
    pendingFree -= charge.bytes;
    inUse -= charge.bytes;
    giveBack(charge.room, charge.bytes);
  }

  /** Ends a reservation; its live buffers stay counted. */
  void close(Room room) {
    List<Request> granted;
    lock.lock();
    try {
      if (!room.open) {
        return;
      }
      long unused = room.free();
      room.open = false;
      reserved -= unused;
      giveBack(room.parent, unused);
      granted = grantWaiting();
    } finally {
      lock.unlock();
    }
    tell(granted);
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

  // --- looking ------------------------------------------------------------------------------

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
      return new MemoryStats(limit, inUse, reserved, peak, allocations, pendingFree, 0, 0);
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

    /** For a reservation; set before it is entered. */
    boolean attach;

    /**
     * Null if the request was granted at once; else completed when it is, or failed when the device
     * closes or is lost. Set before it waits.
     */
    Completion.@Nullable Source<Boolean> source;

    /** Written once under the lock; read there, or by its owner once it knows of the grant. */
    @Nullable Charge charge;

    /** As {@code charge}, for a reservation. */
    @Nullable Room room;

    Request(Account account, long bytes, boolean reserves) {
      this.account = account;
      this.bytes = bytes;
      this.reserves = reserves;
    }

    /** Under the lock. */
    boolean isGranted() {
      return charge != null || room != null;
    }
  }
}
