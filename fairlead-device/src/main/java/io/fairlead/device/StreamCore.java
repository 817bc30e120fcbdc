package io.fairlead.device;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.StreamListener;
import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import io.fairlead.task.Role;
import io.fairlead.task.Task;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * What a {@link DeviceStream} is made of. Kept apart from it, so that the context's tables, clocks
 * and waiters do not keep a dropped stream from being found by the collector.
 *
 * <h2>States</h2>
 *
 * <pre>
 * from    | to      | by                                        | what it means
 * --------|---------|-------------------------------------------|-----------------------------------
 * OPEN    | CLOSING | close() under the turn, or the cleaner,   | nothing more is enqueued
 *         |         | or the closing context                    |
 * CLOSING | CLOSED  | the owner, once all work has ended (or    | the handle is gone, and how
 *         |         | the context is lost or is closing)        | far it came does not change any more
 * </pre>
 *
 * <h2>Sequence numbers</h2>
 *
 * Every enqueued operation, edges included, gets the next number; a launch of a graph takes as many
 * as it has operations, of which its own is the last. {@code enqueued} is bumped after the driver
 * took the operation, so an event or a signal that is enqueued after reading n covers operation n
 * without any lock. Signals carry sequence numbers: {@code Driver.reached} is the highest one known
 * to have ended. They are lazy: one is enqueued when somebody waits for a position past the last
 * one, and every {@code signalEvery} operations for the limit of unfinished ones.
 *
 * <h2>Edges</h2>
 *
 * An edge from a position of another stream is made only if that position is not known to be
 * reached and not covered by {@code clock}, what this stream already comes after. It uses a
 * checkpoint of the other stream, and records one now if none is late enough: a late event orders
 * too much, never too little. Edges always point back in real time, so late recording makes no
 * cycle. What must not be jumped over (an operation that itself waits for something outside the
 * device) gets {@link #checkpoint} before it.
 *
 * <h2>Capture</h2>
 *
 * While a task captures the stream, its operations are written down by the driver instead of run:
 * they get no numbers, make no edges, and hold their operands. Before it begins, everything so far
 * is signalled and has a checkpoint, so that whoever waits for it or has to come after it needs
 * nothing from the stream meanwhile; the right to signal and the {@link StreamDoor} are kept until
 * it ends, since a signal or an event would become part of the graph.
 *
 * <h2>Lock order</h2>
 *
 * The turn comes first; operands may take their own short locks under it. Nothing is parked on
 * while the turn is held, no turn of another stream is taken under it (edges need none), and it is
 * taken before the context is bound, so nothing can suspend between bind and restore. Waiting,
 * signalling, recording checkpoints and draining take no turn.
 *
 * <pre>
 * field       | writer                   | reader             | mode, guard
 * handle,     | the owner, before it is  | any                | plain, published by the table of streams
 * adoptedFrom | published                |                    |
 * enqueued    | turn                     | any                | volatile: see "Sequence numbers"
 * done        | any                      | any                | CAS to a higher value: a cache of Driver.reached
 * wanted      | any                      | any                | CAS to a higher value
 * signalled   | holder of signalling     | any                | volatile
 * signalling  | any                      | any                | CAS false to true; a failed try leaves the work
 *             |                          |                    | to the holder, who looks at wanted afterwards
 * clock       | turn                     | any                | volatile, after the driver call that made it true
 * edged       | turn                     | any                | volatile, before clock: who finds an edge there
 *             |                          |                    | finds the number of its operation, or a later one
 * checkpoints | any                      | any                | slots that only go to later positions, stored after
 *             |                          |                    | the event was recorded
 * deferred    | any (CAS to a later one) | turn               | volatile; emptied only after its edges were made
 * state       | see above                | any                | CAS
 * ring        | turn                     | who finds a fault  | plain, a diagnosis
 * addresses   | turn                     | turn               | plain
 * lent        | any, only to true        | turn               | volatile, before the handle is handed out
 * capture     | turn                     | any                | volatile; while it is set, signalling is
 *             |                          |                    | its, and the door is shut
 * late        | turn                     | any                | volatile: foreign work that what comes
 *             |                          |                    | next has to come after; see LateOrder
 * lostSource  | turn                     | turn               | plain: the context of another stream,
 *             |                          |                    | whose waiters are told after the turn
 * </pre>
 */
final class StreamCore {
  /** Events of a stream: enough that an old position is found, few enough to create them ahead. */
  static final int CHECKPOINTS = 4;

  /** Operations between two checkpoints made ahead; bounds how much a late edge orders too much. */
  private static final int CHECKPOINT_EVERY = 64;

  /** Operations between two signals nobody asked for, unless the limit of unfinished is small. */
  private static final int SIGNAL_EVERY = 64;

  /** In place of a sequence number: what is captured has no position. */
  static final long NO_POSITION = -1;

  /** In place of a sequence number: an operand is not on the device, and nothing was enqueued. */
  private static final long AWAY = -2;

  /** While somebody waits inside the driver, a capture looks this often whether he is back. */
  private static final long LOOK_NANOS = 50_000;

  /** Where nobody wants to know who was away. */
  private static final @Nullable Operand[] NO_OPERAND = {};

  /** In place of the address array while an operation uses it. */
  private static final long[] NONE_FREE = {};

  private static final VarHandle DONE;
  private static final VarHandle WANTED;
  private static final VarHandle SIGNALLING;
  private static final VarHandle DEFERRED;
  private static final VarHandle STATE;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      DONE = lookup.findVarHandle(StreamCore.class, "done", long.class);
      WANTED = lookup.findVarHandle(StreamCore.class, "wanted", long.class);
      SIGNALLING = lookup.findVarHandle(StreamCore.class, "signalling", boolean.class);
      DEFERRED = lookup.findVarHandle(StreamCore.class, "deferred", Clock.class);
      STATE = lookup.findVarHandle(StreamCore.class, "state", State.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  enum State {
    OPEN,
    CLOSING,
    CLOSED
  }

  final DeviceContext context;
  final long id;
  final boolean adopted;
  private final Driver driver;
  private final DriverGate gate;
  private final Counters counters;
  private final boolean profiled;
  private final int unfinishedMax;
  private final int signalEvery;
  private final BriefLock turn = new BriefLock();
  private final Waiters waiters = new Waiters(this);
  private final LaunchRing ring;
  private final StreamDoor door = new StreamDoor();
  private final AtomicReferenceArray<Checkpoint> checkpoints =
      new AtomicReferenceArray<>(CHECKPOINTS);
  private final AtomicInteger nextCheckpoint = new AtomicInteger();
  private final Asks.Asked asked = new Asks.Asked();

  private long handle;
  private long adoptedFrom;
  private long[] addresses = new long[8];
  private @Nullable String madeAt;
  private @Nullable String closedBy;
  private @Nullable DeviceContext lostSource;
  private volatile long enqueued;
  private volatile long done;
  private volatile long wanted;
  private volatile long signalled;
  private volatile long edged;
  private volatile Clock clock = Clock.NONE;
  private volatile Clock deferred = Clock.NONE;
  private volatile State state = State.OPEN;
  private volatile @Nullable Capture capture;
  private volatile @Nullable LateOrder late;

  @SuppressWarnings("unused") // through SIGNALLING
  private volatile boolean signalling;

  /** Whether others have its handle. */
  private volatile boolean lent;

  StreamCore(DeviceContext context, long id, boolean adopted) {
    this.context = context;
    this.id = id;
    this.adopted = adopted;
    this.lent = adopted;
    this.driver = context.driver();
    this.gate = context.gate();
    this.counters = context.counters();
    this.profiled = driver.isProfiled();
    this.unfinishedMax = context.config().unfinishedMax();
    this.signalEvery = Math.clamp(unfinishedMax / 4, 1, SIGNAL_EVERY);
    this.ring = new LaunchRing(unfinishedMax);
  }

  // --- life: the owner's thread, except close
  // -----------------------------------------------------

  /** Creates the driver's stream and its events. Owner only. */
  void create(int priority) {
    handle =
        driverCall(
            DriverCall.STREAM_CREATE,
            "create stream",
            () -> driver.streamCreate(context.nativeContext(), priority, new Listener(this)));
    createEvents();
  }

  /** Takes a stream that somebody else made. Owner only. */
  void adopt(long nativeStream) {
    adoptedFrom = nativeStream;
    handle =
        driverCall(
            DriverCall.STREAM_CREATE,
            "adopt stream",
            () -> driver.streamAdopt(context.nativeContext(), nativeStream));
    long reached = driverCall(DriverCall.SIGNAL, "adopt stream", () -> driver.reached(handle));
    // where the handle is that of an earlier adoption, numbers go on where that one left off: the
    // values of a stream must not fall, and a signal of that one must not be taken for one of ours
    long last = Math.max(reached, context.lastNumberOf(handle));
    enqueued = last;
    done = reached;
    wanted = last;
    signalled = last;
    createEvents();
  }

  /** All events that this stream will ever need: none is created on a wait path. */
  private void createEvents() {
    for (int slot = 0; slot < CHECKPOINTS; slot++) {
      long event =
          driverCall(
              DriverCall.EVENT_CREATE,
              "create event",
              () -> driver.eventCreate(context.nativeContext()));
      checkpoints.set(slot, new Checkpoint(event, 0, Clock.NONE));
    }
  }

  /** Refuses further work and retires the stream to the owner. Any thread; idempotent. */
  void close(String by) {
    turn.lock(); // an operation that is being enqueued ends first
    try {
      if (isOpen()) {
        keepForeignEnd();
        if (adopted) {
          settle();
        }
      }
      if (STATE.compareAndSet(this, State.OPEN, State.CLOSING)) {
        closedBy = by;
        context.owner().retire(new Release(this, null));
      }
    } finally {
      leaveTurn();
    }
  }

  /**
   * Enqueues all that waits and edges will want of an adopted stream: its maker may destroy it as
   * soon as it is closed here, so nothing is enqueued on it later. Turn held.
   */
  private void settle() {
    if (context.failure() != null) {
      return;
    }
    long last = enqueued;
    // whoever signals just now does it for us, or fails and says so
    while (last > signalled && !waiters.isRefused() && context.failure() == null) {
      requestSignal(last);
    }
    if (last > done) {
      checkpointAhead();
    }
  }

  /** As {@link #close}, for a stream that nobody can use any more. The cleaner; no lock. */
  void dropped() {
    if (STATE.compareAndSet(this, State.OPEN, State.CLOSING)) {
      context.owner().retire(new Release(this, madeAt));
    }
  }

  /** The context closes before this stream. Owner only. */
  void reportIfOpen() {
    String site = madeAt;
    if (site != null && isOpen()) {
      context.reportLeak("stream " + id, site);
    }
  }

  /** Destroys the stream if its work has ended; else comes back when it has. Owner only. */
  private void release() {
    if (capture != null) {
      return; // its end comes back
    }
    long last = enqueued;
    if (isDue(last)) { // also if the maker of an adopted one has destroyed it by now
      destroy();
      return;
    }
    if (lent && !adopted) {
      // nothing is enqueued while others capture it, so nobody would learn of its end
      context.quietly(
          DriverCall.STREAM_DESTROY,
          "end a capture by others of stream " + id,
          () -> driver.streamDropCapture(handle));
    }
    new AfterWork(context, List.of(new AfterWork.Work(this, last)), true, this::destroy).begin();
  }

  /**
   * Destroys events and stream, whether or not the work has ended. Owner only; idempotent. Failures
   * are logged: the driver may be in any state by now, and there is nobody to tell.
   */
  void destroy() {
    if (state == State.CLOSED) {
      return;
    }
    if (!isDue(enqueued)) {
      waiters.end(context.closedBeforeEnd());
    }
    // before the handle goes: who finds the stream unknown to the driver then sees why
    state = State.CLOSED;
    for (int slot = 0; slot < CHECKPOINTS; slot++) {
      Checkpoint checkpoint = checkpoints.get(slot);
      if (checkpoint != null) {
        context.quietly(
            DriverCall.EVENT_DESTROY,
            "destroy event of stream " + id,
            () -> driver.eventDestroy(checkpoint.event()));
      }
    }
    if (handle != 0) {
      endHandle();
    }
    context.forget(this);
    drain();
  }

  private void endHandle() {
    if (adopted) {
      context.quietly(
          DriverCall.STREAM_DESTROY, "let go of stream " + id, () -> driver.streamLetGo(handle));
    } else {
      context.quietly(
          DriverCall.STREAM_DESTROY, "destroy stream " + id, () -> driver.streamDestroy(handle));
    }
  }

  // --- positions
  // ----------------------------------------------------------------------------------

  long handle() {
    return handle;
  }

  /** The name that its maker knows an adopted stream by. */
  long adoptedFrom() {
    return adoptedFrom;
  }

  long enqueued() {
    return enqueued;
  }

  /** What everybody who waits for the whole stream waits for; also while the context closes. */
  long last() {
    if (!adopted) {
      return enqueued;
    }
    turn.lock();
    try {
      return isOpen() ? advance() : enqueued;
    } finally {
      turn.unlock();
    }
  }

  /** The last position that a signal was enqueued for. */
  long signalled() {
    return signalled;
  }

  boolean isOpen() {
    return state == State.OPEN;
  }

  /** Says where an explicit stream was made. Before it is handed out. */
  void madeAt(String site) {
    madeAt = site;
  }

  Counters counters() {
    return counters;
  }

  /** The position after everything so far, with the edges that joins have left behind. */
  long position() {
    requireNotCaptured("mark");
    if (!adopted && deferred.isEmpty() && late == null) {
      return enqueued;
    }
    beginTurn("mark");
    try {
      applyDeferred();
      comeAfterLate("mark");
      return adopted ? advance() : enqueued;
    } finally {
      leaveTurn();
    }
  }

  /**
   * The position after all that anybody has enqueued so far, with a number of its own: a signal or
   * an event for an earlier number may stand before what others enqueued since.
   */
  long foreignPosition() {
    beginTurn("mark");
    try {
      requireNotCaptured("mark");
      return advance();
    } finally {
      leaveTurn();
    }
  }

  /**
   * As {@link #foreignPosition}, also once others can enqueue nothing any more: the end of a stream
   * that was closed, and where one that is captured stood when that began.
   */
  long foreignEnd() {
    if (state == State.CLOSED) {
      return enqueued;
    }
    DeviceContext.requireMayEnter("mark");
    turn.lock();
    try {
      keepForeignEnd();
      return enqueued;
    } finally {
      leaveTurn();
    }
  }

  /**
   * Gives what others have enqueued so far a number of its own, so that who waits for {@code
   * enqueued} waits for that. Turn held.
   */
  private void keepForeignEnd() {
    if (lent && isOpen() && capture == null && !Mutant.on("device.foreignend.skip")) {
      advance();
    }
  }

  /** Its handle goes to others, who may enqueue what is not counted here. */
  void lend() {
    if (!lent) {
      lent = true;
    }
  }

  /** Whether the position is reached as far as was seen; asks nobody. */
  boolean isKnownReached(long sequence) {
    return sequence <= done;
  }

  boolean isReached(long sequence) {
    return sequence <= done || sequence <= refreshDone();
  }

  /** As {@link #isReached}, and true for a stream that the driver no longer knows. */
  boolean isDue(long sequence) {
    try {
      return isReached(sequence);
    } catch (DeviceException e) {
      return true; // whoever drains now learns why
    }
  }

  /** As {@link #isReached}, and false for a stream that the driver no longer knows. */
  boolean isReachedIfKnown(long sequence) {
    try {
      return isReached(sequence);
    } catch (DeviceException e) {
      return false; // whoever waits is told why
    }
  }

  /** As {@link #isDue}; also asks the device, where the driver does not hear of it otherwise. */
  boolean isDueIfAsked(long sequence) {
    if (isDue(sequence)) {
      return true;
    }
    if (!mustAsk()) {
      return false;
    }
    driver.ask(context.nativeContext(), new long[] {handle}, 1, 0);
    return isDue(sequence);
  }

  /** Whether a memory read finds the end, of which nobody is told. */
  boolean isFoundByLooking() {
    return !context.isNotified(this) && !mustAsk();
  }

  /** Whether {@link #refreshDone} may know too little. A memory read. */
  boolean mustAsk() {
    return driver.mustAsk(handle);
  }

  /** Asks the driver (a memory read) how far the stream is. */
  long refreshDone() {
    if (state == State.CLOSED) {
      return done;
    }
    long reached;
    try {
      reached = driver.reached(handle);
    } catch (DriverException e) {
      if (state == State.CLOSED || context.failure() != null) {
        return done;
      }
      throw context.translate(e, "ask how far the stream is", id);
    }
    return raise(DONE, reached);
  }

  /** Raises a field that only grows, and answers its value. */
  private long raise(VarHandle field, long value) {
    long seen;
    do {
      seen = (long) field.getVolatile(this);
      if (seen >= value) {
        return seen;
      }
    } while (!field.compareAndSet(this, seen, value));
    return value;
  }

  // --- waiting
  // ------------------------------------------------------------------------------------

  /** A completion of the position. Any thread; never parks. */
  Completion<Void> completion(long sequence) {
    if (isReached(sequence)) {
      return DeviceContext.REACHED;
    }
    DeviceException lost = context.failure();
    if (lost != null) {
      return Completion.failed(lost);
    }
    counters.waits.increment();
    Waiters.Waiter waiter = new Waiters.Waiter(this, sequence);
    waiters.add(waiter);
    context.waitingBegan(this);
    requestSignal(sequence);
    // what was reached or lost before the waiter was visible has told others, not us
    drain();
    return waiter.completion();
  }

  /** Makes the end of everything so far visible to {@link #isReached}. Never parks. */
  void announceEnd() {
    long last = enqueued;
    if (last > signalled && context.failure() == null) {
      requestSignal(last);
    }
  }

  /**
   * Makes sure that a signal at or past {@code sequence} is enqueued. Never parks: whoever finds
   * another thread signalling leaves the wish with it.
   */
  private void requestSignal(long sequence) {
    raise(WANTED, sequence);
    while (wanted > signalled && SIGNALLING.compareAndSet(this, false, true)) {
      DriverException refused;
      try {
        refused = signalNow();
      } finally {
        signalling = false;
      }
      if (refused != null) {
        refuseWaiters(refused);
        return;
      }
    }
  }

  private void refuseWaiters(DriverException refused) {
    if (turn.isHeldByCurrentThread()) {
      waiters.noteRefusal(context.translateUnderTurn(refused, "signal", id)); // see leaveTurn
    } else {
      waiters.noteRefusal(context.translate(refused, "signal", id));
      drain();
    }
  }

  private @Nullable DriverException signalNow() {
    // before the signal: the driver has taken every operation up to this one
    long value = enqueued;
    if (value <= signalled) {
      return null;
    }
    try {
      long previous = gate.enter(DriverCall.SIGNAL);
      try {
        driver.signal(handle, value);
      } finally {
        gate.leave(previous);
      }
    } catch (DriverException e) {
      return e;
    }
    signalled = value;
    counters.signals.increment();
    return null;
  }

  void noteCancelled() {
    waiters.noteCancelled();
  }

  int drain() {
    return waiters.drain();
  }

  /** Whether the poller might find something here just now; changes nothing, asks nobody. */
  boolean mayFind() {
    return mustAsk() || waiters.mayDrain();
  }

  /** As {@link #drain}, for who looks again and again: does nothing if nothing can be due. */
  int drainIfDue() {
    return waiters.mayDrain() ? waiters.drain() : 0;
  }

  /** For the poller, which writes it: what {@link Asks} knows of this stream. */
  Asks.Asked asked() {
    return asked;
  }

  /** Since when the first waiter waits. A hint. */
  long waitedSince() {
    return waiters.oldestNanos();
  }

  /** Since when the newest waiter waits. A hint. */
  long newestSince() {
    return waiters.newestNanos();
  }

  /**
   * Whether what the first waiter waits for comes after what somebody waits for on another stream
   * of this context, so that it cannot have ended before that is found. What is waited for first,
   * in this order, is never behind another; an edge that came later than the waiter says nothing.
   */
  boolean isBehindAnotherWait() {
    Clock before = clock; // before edged, see the table
    if (before.isEmpty() || waiters.first() < edged) {
      return false;
    }
    for (int i = 0; i < before.size(); i++) {
      StreamCore other = before.stream(i);
      if (other.context == context && other.isWaitedForUpTo(before.sequence(i))) {
        return true;
      }
    }
    return false;
  }

  private boolean isWaitedForUpTo(long sequence) {
    long first = waiters.first();
    return first <= sequence && hasWaiters() && !isKnownReached(first);
  }

  /** How far the stream is known to be; asks nobody. */
  long done() {
    return done;
  }

  int waiting() {
    return waiters.size();
  }

  boolean hasWaiters() {
    return !waiters.isEmpty();
  }

  /**
   * BLOCKING: waits inside the driver, if that is the only way to hear of the end at once. A driver
   * that notifies needs no help: the thread parks, which blocks it as well and keeps deadlines. A
   * platform thread only: a carrier is never blocked, and what the driver locks could suspend a
   * virtual thread while the context is bound.
   */
  boolean block(long sequence) {
    if (context.isNotified(this) || Thread.currentThread().isVirtual() || !door.enterToWait()) {
      return false;
    }
    try {
      long previous = gate.enter(DriverCall.STREAM_SYNCHRONIZE);
      try {
        driver.streamSynchronize(handle);
      } finally {
        gate.leave(previous);
      }
    } catch (DriverException e) {
      if (state != State.CLOSED) {
        // if it is fatal, everybody is told; else whoever waits parks, and is told in the usual way
        context.translate(e, "synchronize", id);
      }
    } finally {
      door.leaveAwake();
    }
    drain();
    return isDue(sequence);
  }

  // --- enqueueing
  // ---------------------------------------------------------------------------------

  /** The one path of every operation. See {@link DeviceStream#enqueue}. */
  long enqueue(
      DeviceStream self,
      DriverCall call,
      String operation,
      long items,
      Operand[] operands,
      Access[] accesses,
      StreamOperation body) {
    return enqueue(self, call, operation, items, 1, operands, accesses, body);
  }

  /**
   * As the other {@code enqueue}.
   *
   * @param numbers how many numbers the operation takes, of which its own is the last: as many as
   *     the operations it stands for, so that the driver has room for them
   */
  long enqueue(
      DeviceStream self,
      DriverCall call,
      String operation,
      long items,
      int numbers,
      Operand[] operands,
      Access[] accesses,
      StreamOperation body) {
    long sequence =
        attempt(self, call, operation, items, numbers, operands, accesses, body, NO_OPERAND);
    return sequence == AWAY
        ? enqueueAway(self, call, operation, items, numbers, operands, accesses, body)
        : sequence;
  }

  /**
   * As {@code enqueue}, for operands that are not all on the device: brings them back, and tries
   * again. A way of its own, so that the usual one stays short.
   */
  private long enqueueAway(
      DeviceStream self,
      DriverCall call,
      String operation,
      long items,
      int numbers,
      Operand[] operands,
      Access[] accesses,
      StreamOperation body) {
    List<Operand.Stay> stays = new ArrayList<>(1);
    @Nullable Operand[] away = new @Nullable Operand[1];
    try {
      while (true) {
        long sequence =
            attempt(self, call, operation, items, numbers, operands, accesses, body, away);
        if (sequence != AWAY) {
          return sequence;
        }
        requireMayBringBack(operation);
        // each keeps what it has brought, so the next one that is found away is another's
        stays.add(Objects.requireNonNull(away[0], "who was away").bringBack(self, operands));
      }
    } finally {
      stays.forEach(Operand.Stay::close);
    }
  }

  private void requireMayBringBack(String operation) {
    if (turn.isHeldByCurrentThread()) {
      throw new IllegalStateException(
          operation
              + ": an operand is not on the device, and cannot be brought back inside another"
              + " operation of stream "
              + id
              + "; hold it before that one");
    }
    if (DeviceContext.mustNotPark()) {
      throw new IllegalStateException(
          operation
              + ": an operand is not on the device, and a "
              + Role.current()
              + " thread must not wait for it; hold it before, or enqueue from a task");
    }
  }

  /**
   * One try, under the turn.
   *
   * @param away where to leave who was away, if there is room
   * @return {@link #AWAY} if an operand was
   */
  private long attempt(
      DeviceStream self,
      DriverCall call,
      String operation,
      long items,
      int numbers,
      Operand[] operands,
      Access[] accesses,
      StreamOperation body,
      @Nullable Operand[] away) {
    // what is given back must be, also by a task that was cancelled meanwhile
    takeTurn(operation, call == DriverCall.FREE_ASYNC);
    try {
      Capture writing = capture;
      if (writing != null) {
        return capture(writing, call, operation, operands, accesses, body, away);
      }
      applyDeferred();
      if (call != DriverCall.FREE_ASYNC) { // what is freed is lent to nobody any more
        comeAfterLate(operation);
      }
      if (!submit(self, call, operation, items, numbers, operands, accesses, body, away)) {
        return AWAY;
      }
      long sequence = advance(numbers);
      for (int i = 0; i < operands.length; i++) {
        operands[i].recorded(self, sequence, accesses[i]);
      }
      counters.operations.increment();
      keepUp(sequence, numbers);
      return sequence;
    } finally {
      leaveTurn();
      // the cleaner must not find the stream dropped while its operation is being enqueued
      Reference.reachabilityFence(self);
    }
  }

  /** Whether it was enqueued; if not, an operand is not on the device. */
  private boolean submit(
      DeviceStream self,
      DriverCall call,
      String operation,
      long items,
      int numbers,
      Operand[] operands,
      Access[] accesses,
      StreamOperation body,
      @Nullable Operand[] away) {
    long[] found = borrowAddresses(operands.length);
    int[] order = inOrder(operands, accesses);
    int acquired = 0;
    boolean accepted = false;
    try {
      for (; acquired < operands.length; acquired++) {
        int next = order[acquired];
        found[next] = operands[next].acquire(self, accesses[next]);
        if (found[next] == Operand.AWAY) {
          leave(operands[next], away);
          return false;
        }
      }
      // after the operands, whose edges have numbers of their own
      ring.record(enqueued + numbers, operation, items);
      run(call, operation, found, body);
      accepted = true;
      return true;
    } finally {
      addresses = found;
      if (!accepted) {
        while (acquired-- > 0) {
          int last = order[acquired];
          operands[last].abandoned(self, accesses[last]);
        }
      }
    }
  }

  private static void leave(Operand operand, @Nullable Operand[] away) {
    if (away.length > 0) {
      away[0] = operand;
    }
  }

  /** The order of acquiring; see {@link Operand#order}. Few operands, so an insertion sort. */
  private static int[] inOrder(Operand[] operands, Access[] accesses) {
    int[] order = new int[operands.length];
    for (int i = 0; i < order.length; i++) {
      int slot = i;
      while (slot > 0 && isBefore(operands, accesses, i, order[slot - 1])) {
        order[slot] = order[slot - 1];
        slot--;
      }
      order[slot] = i;
    }
    return order;
  }

  private static boolean isBefore(Operand[] operands, Access[] accesses, int one, int other) {
    long mine = operands[one].order();
    long others = operands[other].order();
    boolean writesFirst = accesses[one] != Access.READ && accesses[other] == Access.READ;
    return mine < others || (mine == others && writesFirst);
  }

  private void run(DriverCall call, String operation, long[] found, StreamOperation body) {
    try {
      long previous = gate.enter(call);
      try {
        if (profiled) {
          runInRange(body, found);
        } else {
          body.run(handle, found);
        }
      } finally {
        gate.leave(previous);
      }
    } catch (DriverException e) {
      throw context.translateUnderTurn(e, operation, id); // see leaveTurn
    }
  }

  /** What the body enqueues is shown by a profiler under the name of the task. */
  private void runInRange(StreamOperation body, long[] found) {
    driver.rangeBegin(Task.current().name());
    try {
      body.run(handle, found);
    } finally {
      driver.rangeEnd();
    }
  }

  /** The stream's own array, or a new one while an operation inside acquire uses that. */
  private long[] borrowAddresses(int count) {
    long[] own = addresses;
    addresses = NONE_FREE;
    return own.length >= count ? own : new long[Math.max(count, 8)];
  }

  private long advance() {
    return advance(1);
  }

  private long advance(int numbers) {
    long next = enqueued + numbers; // the turn is held: nobody else writes it
    enqueued = next;
    return next;
  }

  /** What is done ahead every few operations, so that nobody has to do it when it is needed. */
  private void keepUp(long sequence, int numbers) {
    if (sequence - signalled >= signalEvery) {
      requestSignal(sequence);
    }
    if (sequence / CHECKPOINT_EVERY > (sequence - numbers) / CHECKPOINT_EVERY) {
      checkpointAhead();
    }
  }

  /** The operation stands, whatever becomes of this. */
  private void checkpointAhead() {
    try {
      checkpoint();
    } catch (DeviceException e) {
      // whoever needs a checkpoint records one then, and is told if that is refused as well
    }
  }

  /** Takes the turn, with room for one more operation. Parks before the turn, never under it. */
  private void takeTurn(String operation, boolean uninterruptibly) {
    while (true) {
      beginTurn(operation);
      if (turn.getHoldCount() > 1 || capture != null || !isFull() || DeviceContext.mustNotPark()) {
        return;
      }
      turn.unlock();
      Completion<Void> room = completion(enqueued - unfinishedMax + 1);
      if (uninterruptibly) {
        room.awaitUninterruptibly();
      } else {
        room.await();
      }
    }
  }

  /**
   * Takes the turn, however full the stream is: a position alone is no work, and asking for one
   * must not wait for the device.
   */
  private void beginTurn(String operation) {
    DeviceContext.requireMayEnter(operation);
    turn.lock();
    try {
      requireUsable(operation);
    } catch (RuntimeException e) {
      turn.unlock();
      throw e;
    }
  }

  /**
   * Gives the turn up, then tells the waiters of what went wrong under it: their callbacks may take
   * turns themselves.
   */
  private void leaveTurn() {
    boolean nested = turn.getHoldCount() > 1;
    DeviceContext source = lostSource;
    lostSource = nested ? source : null;
    turn.unlock();
    if (nested) {
      return;
    }
    if (context.failure() != null) {
      context.failWaiters();
    } else if (waiters.isRefused()) {
      drain();
    }
    if (source != null) {
      source.failWaiters();
    }
  }

  private boolean isFull() {
    long last = enqueued;
    return last - done >= unfinishedMax && last - refreshDone() >= unfinishedMax;
  }

  void requireUsable(String operation) {
    context.requireSound(operation, id);
    if (state != State.OPEN) {
      throw new IllegalStateException(
          operation + ": stream " + id + " was closed by " + closedBy + "; open another one");
    }
  }

  // --- edges
  // --------------------------------------------------------------------------------------

  /** Orders the next operation after a position of another stream. */
  void after(StreamCore source, long sequence) {
    if (isOrderedAfter(source, sequence)) {
      counters.edgesElided.increment();
      return;
    }
    takeTurn("wait for stream " + source.id, false);
    try {
      Capture writing = capture;
      if (writing != null) {
        writing.require(this, DriverCall.STREAM_WAIT_EVENT, "wait for stream " + source.id);
      }
      edge(source, sequence);
    } finally {
      leaveTurn();
    }
  }

  /** Orders the next operation, whenever it comes, after what the clock says. Never parks. */
  void defer(Clock positions) {
    Clock seen;
    do {
      seen = deferred;
    } while (!DEFERRED.compareAndSet(this, seen, seen.join(positions)));
  }

  /**
   * What comes after this stream's work must come after: its position, if anything was enqueued
   * past {@code since}, and the edges that are still deferred.
   */
  Clock frontier(long since) {
    // deferred first: an edge leaves it only after it has become an operation before `enqueued`
    Clock pending = deferred;
    long last = enqueued;
    return last > since && !isReached(last) ? pending.with(this, last) : pending;
  }

  private boolean isOrderedAfter(StreamCore source, long sequence) {
    return source == this || source.isReached(sequence) || clock.covers(source, sequence);
  }

  /** Also what the next operation will be ordered after before it is enqueued. */
  boolean comesAfter(StreamCore source, long sequence) {
    return isOrderedAfter(source, sequence) || deferred.covers(source, sequence);
  }

  private void applyDeferred() {
    for (Clock positions = deferred; !positions.isEmpty(); positions = deferred) {
      for (int i = 0; i < positions.size(); i++) {
        edge(positions.stream(i), positions.sequence(i));
      }
      // only now: see frontier. What was added meanwhile makes this fail and comes next round
      DEFERRED.compareAndSet(this, positions, Clock.NONE);
    }
  }

  /** Makes the edge unless it is not needed. Turn held. */
  private void edge(StreamCore source, long sequence) {
    if (isOrderedAfter(source, sequence)) {
      counters.edgesElided.increment();
      return;
    }
    try {
      Checkpoint checkpoint = source.checkpointFor(sequence);
      if (checkpoint == null) {
        counters.edgesElided.increment();
      } else {
        waitFor(source, checkpoint);
      }
    } catch (DeviceException e) {
      if (source.context.failure() != null) {
        lostSource = source.context;
        throw e;
      }
      if (!source.isReachedIfKnown(sequence)) {
        throw e;
      }
      // the source ended and was destroyed under us, events and all: nothing to wait for
      counters.edgesElided.increment();
    }
  }

  private void waitFor(StreamCore source, Checkpoint checkpoint) {
    String operation = "wait for stream " + source.id;
    ring.record(enqueued + 1, operation, -1);
    run(
        DriverCall.STREAM_WAIT_EVENT,
        operation,
        addresses,
        (stream, _) -> {
          if (!Mutant.on("device.edge.skip")) {
            driver.streamWaitEvent(stream, checkpoint.event());
          }
        });
    edged = enqueued + 1;
    // after the driver took the wait: a checkpoint recorded from here on may promise it
    clock = clock.join(checkpoint.clock()).with(source, checkpoint.sequence());
    advance();
    counters.edges.increment();
  }

  /**
   * The earliest checkpoint at or past the position; recorded now if there is none.
   *
   * @return null: all up to there has ended
   */
  private @Nullable Checkpoint checkpointFor(long sequence) {
    context.requireSound("wait for stream", id);
    Checkpoint kept = keptFor(sequence);
    if (kept != null) {
      return kept;
    }
    if (door.enter()) {
      try {
        return recordCheckpoint();
      } finally {
        door.leave();
      }
    }
    // a capture that began since then has left one before, unless all had ended
    kept = keptFor(sequence);
    if (kept == null && !isReached(sequence)) {
      throw captured("checkpoint");
    }
    return kept;
  }

  private @Nullable Checkpoint keptFor(long sequence) {
    Checkpoint best = null;
    for (int slot = 0; slot < CHECKPOINTS; slot++) {
      Checkpoint each = checkpoints.get(slot);
      if (each.sequence() >= sequence && (best == null || each.sequence() < best.sequence())) {
        best = each;
      }
    }
    return best;
  }

  /** As {@link #checkpoint}, for a caller that holds no turn. */
  void checkpointNow() {
    try {
      checkpoint();
    } finally {
      if (context.failure() != null) {
        context.failWaiters();
      }
    }
  }

  /**
   * Records a checkpoint after everything enqueued so far. Any thread, without the turn: it may
   * land later than what it promises, and that is allowed.
   */
  Checkpoint checkpoint() {
    if (!door.enter()) {
      throw captured("checkpoint");
    }
    try {
      return recordCheckpoint();
    } finally {
      door.leave();
    }
  }

  private Checkpoint recordCheckpoint() {
    // both before the record: the driver had taken all that they promise when they were stored
    long sequence = enqueued;
    Clock ordered = clock;
    int slot = Math.floorMod(nextCheckpoint.getAndIncrement(), CHECKPOINTS);
    long event = checkpoints.get(slot).event();
    run(
        DriverCall.EVENT_RECORD,
        "record event",
        NONE_FREE,
        (stream, _) -> driver.eventRecord(event, stream));
    Checkpoint recorded = new Checkpoint(event, sequence, ordered);
    // after the record: whoever finds it may wait for the event at once. If all slots were used
    // meanwhile, a later position stands there, which the event covers, whoever recorded it last
    checkpoints.accumulateAndGet(slot, recorded, StreamCore::later);
    counters.events.increment();
    return recorded;
  }

  private static Checkpoint later(Checkpoint known, Checkpoint recorded) {
    return recorded.sequence() >= known.sequence() ? recorded : known;
  }

  // --- foreign code that names no stream
  // --------------------------------------------------------

  /** The default stream comes after all that is on this one. The context is current. */
  void beforeDefaultStream() {
    position(); // with what joins have left behind
    try {
      long event = checkpoint().event();
      run(
          DriverCall.STREAM_WAIT_EVENT,
          "foreign work after stream " + id,
          NONE_FREE,
          (_, _) -> driver.defaultStreamWait(context.nativeContext(), event));
    } finally {
      if (context.failure() != null) {
        context.failWaiters();
      }
    }
  }

  /**
   * What this stream is given next comes after all that is on the default stream, which {@code
   * event} is recorded for. The context is current. Also in a task that was cancelled meanwhile:
   * whatever the foreign code has enqueued has to be waited for before its memory is used again.
   */
  void afterDefaultStream(long event) {
    String operation = "foreign work";
    takeTurn(operation, true);
    try {
      requireNotCaptured(operation);
      applyDeferred();
      putBehindDefaultStream(operation, event);
      settleLate();
    } finally {
      leaveTurn();
    }
  }

  /**
   * The default stream is that of the current context, so it is bound whatever the driver needs
   * otherwise. Turn held.
   */
  private void putBehindDefaultStream(String operation, long event) {
    ring.record(enqueued + 1, operation, -1);
    run(
        DriverCall.STREAM_WAIT_EVENT,
        operation,
        NONE_FREE,
        (stream, _) -> {
          long previous = gate.bind();
          try {
            driver.defaultStreamRecord(context.nativeContext(), event);
            driver.streamWaitEvent(stream, event);
          } finally {
            gate.restore(previous);
          }
        });
    advance();
    counters.operations.increment();
  }

  /** Before this stream takes anything else, it comes after that. Any thread; does not wait. */
  void owe(LateOrder order) {
    turn.lock();
    try {
      order.next = late;
      late = order;
    } finally {
      leaveTurn();
    }
  }

  /** Whether this stream comes after all foreign work, after one more try. Owner only. */
  boolean triesLate() {
    turn.lock();
    try {
      return takesOrders() && tryLate() == null;
    } finally {
      leaveTurn();
    }
  }

  /** Whether it may still be put behind something. Turn held, or as a hint. */
  boolean takesOrders() {
    return state == State.OPEN && capture == null;
  }

  /** Null once this stream comes after all foreign work; else why it cannot. Turn held. */
  private @Nullable DeviceException tryLate() {
    LateOrder last = late;
    if (last != null) {
      try {
        putBehindDefaultStream("foreign work", last.event);
      } catch (DeviceException e) {
        return e;
      }
      settleLate();
    }
    return null;
  }

  /** Turn held; this stream has just been put behind all that is on the default stream. */
  private void settleLate() {
    for (LateOrder order = late; order != null; order = order.next) {
      context.foreignThreads().settle(order);
    }
    late = null;
  }

  /** Refuses work on this stream as long as it would not come after foreign work. Turn held. */
  private void comeAfterLate(String operation) {
    DeviceException refused = tryLate();
    if (refused != null) {
      throw refused instanceof DeviceLostException
          ? refused
          : context.because(
              refused,
              operation,
              id,
              " comes after foreign work, and nobody can say now where that ends: ");
    }
  }

  // --- capture
  // ------------------------------------------------------------------------------------

  boolean isCaptured() {
    return capture != null;
  }

  /** The capture that is under way here, whoever has begun it; null if none is. */
  @Nullable Capture capture() {
    return capture;
  }

  private void requireNotCaptured(String operation) {
    if (capture != null) {
      throw captured(operation);
    }
  }

  private IllegalStateException captured(String operation) {
    Capture writing = capture;
    return writing == null
        ? new IllegalStateException(operation + ": stream " + id + " is being captured")
        : writing.refusal(
            this,
            operation,
            "what is captured has no position and no end: launch the graph, and wait for that");
  }

  /** Begins a capture. Parks while others wait for this stream inside the driver. */
  void beginCapture(Capture mine) {
    while (!tryCapture(mine)) {
      completion(enqueued).await();
      LockSupport.parkNanos(LOOK_NANOS);
    }
  }

  private boolean tryCapture(Capture mine) {
    beginTurn("capture");
    try {
      requireNotCaptured("capture");
      applyDeferred();
      comeAfterLate("capture");
      keepForeignEnd();
      keepWhatCameBefore();
      if (!door.close()) {
        return false;
      }
      boolean begun = false;
      seizeSignals();
      try {
        signalAll();
        run(
            DriverCall.CAPTURE,
            "capture",
            NONE_FREE,
            (stream, _) -> driver.graphs().beginCapture(stream));
        capture = mine;
        begun = true;
      } finally {
        if (!begun) {
          signalling = false;
          door.open();
        }
      }
      return true;
    } finally {
      leaveTurn();
    }
  }

  /**
   * A checkpoint for whoever has to come after what is enqueued. Before the door is shut: whoever
   * finds it shut looks for one. It stays, since the turn is held, and no earlier one takes its
   * place.
   */
  private void keepWhatCameBefore() {
    if (!isReached(enqueued)) {
      var _ = checkpointFor(enqueued);
    }
  }

  /** Whoever has them makes one short call, and takes no turn meanwhile. */
  private void seizeSignals() {
    while (!SIGNALLING.compareAndSet(this, false, true)) {
      Thread.onSpinWait();
    }
  }

  private void signalAll() {
    DriverException refused = signalNow();
    if (refused != null) {
      throw context.translateUnderTurn(refused, "signal", id);
    }
  }

  /** One operation, to be written down. Turn held. */
  private long capture(
      Capture writing,
      DriverCall call,
      String operation,
      Operand[] operands,
      Access[] accesses,
      StreamOperation body,
      @Nullable Operand[] away) {
    writing.require(this, call, operation);
    long[] found = borrowAddresses(operands.length);
    try {
      for (int i = 0; i < operands.length; i++) {
        found[i] = writing.holdings.hold(context, operands[i], accesses[i]);
        if (found[i] == Operand.AWAY) {
          leave(operands[i], away);
          return AWAY;
        }
      }
      writing.holdings.keep(body); // and with it the host memory that it copies from or to
      run(call, operation, found, body);
      writing.operations++;
    } finally {
      addresses = found;
    }
    return NO_POSITION;
  }

  /** Ends the capture, whatever has become of the stream; gives the driver's graph. */
  long endCapture() {
    turn.lock();
    try {
      long[] graph = new long[1];
      run(
          DriverCall.CAPTURE,
          "end the capture",
          NONE_FREE,
          (stream, _) -> graph[0] = driver.graphs().endCapture(stream));
      return graph[0];
    } finally {
      capture = null;
      door.open();
      signalling = false;
      if (state != State.OPEN) {
        context.owner().retire(new Release(this, null));
      }
      leaveTurn();
      requestSignal(wanted); // what was wished for meanwhile
    }
  }

  // --- faults
  // -------------------------------------------------------------------------------------

  /** Adds what is enqueued and not known to have ended. Any thread; never blocks. */
  void describeInFlight(int max, List<String> lines) {
    ring.describe(id, done, enqueued, max, lines);
  }

  private <T> T driverCall(DriverCall call, String operation, Supplier<T> body) {
    try {
      long previous = gate.enter(call);
      try {
        return body.get();
      } finally {
        gate.leave(previous);
      }
    } catch (DriverException e) {
      throw context.translate(e, operation, id);
    }
  }

  /** What the driver tells us; on its threads, so nothing here waits or calls it back. */
  private record Listener(StreamCore core) implements StreamListener {
    @Override
    public void reached(long value) {
      core.raise(DONE, value);
      core.drain();
    }

    @Override
    public void lost() {
      core.context.reportedLost();
    }
  }

  /** A stream on its way out. */
  private static final class Release extends Retired {
    private final StreamCore core;
    private final @Nullable String leakedFrom;

    Release(StreamCore core, @Nullable String leakedFrom) {
      this.core = core;
      this.leakedFrom = leakedFrom;
    }

    @Override
    protected void release() {
      if (leakedFrom != null) {
        core.context.reportLeak("stream " + core.id, leakedFrom);
      }
      core.release();
    }
  }
}
