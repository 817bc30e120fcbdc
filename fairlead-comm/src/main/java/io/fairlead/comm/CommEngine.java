package io.fairlead.comm;

import io.fairlead.comm.Entry.Caller;
import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.Entry.Way;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.WaitHelp;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * One rank's engine: the only place that enters a transport. For every call it asks {@link Entry}
 * whether the caller may go in, and else hands the call to the communication thread.
 *
 * <p><b>Progress</b>, where a transport needs any, is made by the communication thread, and by
 * tasks that wait and may enter: a task whose carrier has nothing else to do looks itself, which
 * spares two hand-overs of some microseconds. While tasks look the loop stands back and naps; a
 * task that has looked in vain rings it before it parks, and so does one that finds what others
 * wait for, at once.
 *
 * <p><b>Shared state.</b>
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>loop</td><td>first who needs it, under start</td><td>any</td><td>volatile, set once</td></tr>
 *   <tr><td>over</td><td>who closes</td><td>who starts the loop</td><td>start</td></tr>
 *   <tr><td>looks</td><td>who has the turn</td><td>loop</td><td>opaque: a hint</td></tr>
 *   <tr><td>ends</td><td>who has the turn</td><td>who looks</td><td>opaque: a hint</td></tr>
 *   <tr><td>looksSeen</td><td>loop</td><td>loop</td><td>plain</td></tr>
 *   <tr><td>gates, shifts, lender</td><td>any</td><td>any</td><td>own locks, innermost</td></tr>
 * </table>
 *
 * <p><b>Lock order.</b> turn → what the transport locks. The ends of requests that come up while
 * the turn is held are put off until it is free, so no callback ever runs under a lock or inside a
 * transport that must not be re-entered; see {@link Turn}.
 */
final class CommEngine {
  /**
   * In one look of a task. To take the turn, to ask who looks and all that the task does between
   * two looks costs some 60 ns, about what one poll of a library takes that finds nothing.
   */
  private static final int POLLS_PER_LOOK = 8;

  private static final VarHandle LOOKS;
  private static final VarHandle ENDS;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      LOOKS = lookup.findVarHandle(CommEngine.class, "looks", int.class);
      ENDS = lookup.findVarHandle(CommEngine.class, "ends", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  final Transport transport;
  final CommConfig config;
  final Counters counters = new Counters();
  final Allowance gates;
  final Lender lender;
  private final Allowance shifts;
  final TaskRuntime tasks;
  private final ThreadLevel level;
  private final ReentrantLock start = new ReentrantLock();
  private final Turn turn;

  /** For waits; null where nothing is found by looking. */
  private final @Nullable Looking looking;

  @SuppressWarnings("unused") // through LOOKS
  private int looks;

  private int looksSeen;

  @SuppressWarnings("unused") // through ENDS
  private int ends;

  /** Volatile: whoever sees the loop sees it started. */
  private volatile @Nullable CommLoop loop;

  private boolean over;

  /** The thread that opened the transport, if that is to be the communication thread. */
  private final @Nullable Owner opener;

  CommEngine(TaskRuntime tasks, Transport transport, CommConfig config, @Nullable Owner opener) {
    this.tasks = tasks;
    this.opener = opener;
    this.transport = transport;
    this.config = config;
    this.level = transport.threadLevel();
    this.turn = new Turn(level);
    boolean tasksMayLook = level.compareTo(ThreadLevel.SERIALIZED) >= 0;
    this.looking = transport.caps().progress() && tasksMayLook ? new Looking() : null;
    this.gates = new Allowance(config.gatedSends());
    this.shifts = new Allowance(config.shiftedCalls());
    this.lender = new Lender(config.lentBytes());
    if (level.compareTo(ThreadLevel.SERIALIZED) < 0 || transport.caps().progress()) {
      loop();
    }
  }

  int rank() {
    return transport.rank();
  }

  int size() {
    return transport.size();
  }

  // --- the decision -------------------------------------------------------------------------

  /** Which way a call of the current thread goes. */
  Way way(Operation operation) {
    Caller caller = Caller.of(Role.current(), isOnLoop());
    Way way = Entry.way(level, caller, operation);
    if (way == Way.SHIFT && Mutant.on("comm.shift.skip")) {
      return Way.INLINE;
    }
    return way;
  }

  private boolean isOnLoop() {
    CommLoop started = loop;
    return started != null && started.isOwnThread();
  }

  /** The communication thread; started by whoever needs it first. */
  CommLoop loop() {
    CommLoop started = loop;
    if (started != null) {
      return started;
    }
    Owner.lock(start);
    try {
      started = loop;
      if (started == null) {
        started = over ? CommLoop.ended() : startLoop();
        loop = started;
      }
      return started;
    } finally {
      start.unlock();
    }
  }

  private CommLoop startLoop() {
    return CommLoop.start(
        opener != null ? opener : tasks.owner("comm-" + rank(), Role.COMM),
        transport.caps().progress() ? new LoopProgress() : null,
        this::abort);
  }

  /**
   * The transport is closed: no loop is started any more, one that runs ends. On the loop, or on
   * the closing thread if there is none.
   */
  void end() {
    CommLoop started;
    Owner.lock(start);
    try {
      over = true;
      started = loop;
    } finally {
      start.unlock();
    }
    if (started == null) {
      return;
    }
    if (started.isOwnThread()) {
      started.end();
    } else {
      started.push(
          new LoopNode() {
            @Override
            void run() {
              started.end();
            }
          });
    }
  }

  CommStats stats() {
    CommLoop started = loop;
    return counters.snapshot(started == null ? new Owner.Turns(0, 0) : started.turns());
  }

  @Nullable CommLoop startedLoop() {
    return loop;
  }

  // --- posting ------------------------------------------------------------------------------

  /** Posts the request where it may be posted: here and now, or on the communication thread. */
  void post(Request request, Operation operation) {
    switch (way(operation)) {
      case INLINE -> enter(request);
      case SHIFT -> shift(request);
      case REFUSE -> throw new AssertionError("only progress is refused, not " + operation);
    }
  }

  private void shift(Request request) {
    if (!takeShift()) {
      counters.refused.increment();
      request.failed(
          new TransportException(
              Reason.BACK_PRESSURE,
              "the queue to the communication thread is full ("
                  + config.shiftedCalls()
                  + " calls): reserve the place when the work is submitted (a send with 'after'),"
                  + " or raise CommConfig.shiftedCalls",
              null));
      return;
    }
    counters.shifted.increment();
    loop().push(new Shifted(this, request));
  }

  private boolean takeShift() {
    if (shifts.tryTake(1)) {
      return true;
    }
    if (!Role.current().mayWait()) {
      return false;
    }
    return shifts.take(1, () -> false); // the loop takes what is queued, to the very end
  }

  /** Enters the transport. Only where {@link #way} said so, or on the communication thread. */
  void enter(Request request) {
    turn.take();
    try {
      hand(request);
    } finally {
      turn.give();
    }
  }

  /** As the other, for a send that had to wait; it may be over. */
  void enter(Gated gated) {
    turn.take();
    try {
      gated.post(this);
    } finally {
      turn.give();
    }
  }

  /** With the turn. */
  void hand(Request request) {
    switch (request) {
      case SendRequest send -> transport.send(send);
      case ReceiveRequest receive -> transport.receive(receive);
      case MessageRequest message -> transport.message(message);
      case Copying copy -> copy.hand(transport);
      default -> throw new AssertionError("no way to post " + request);
    }
  }

  /** Does something inside the transport, on a thread that may enter, keeping the turn if any. */
  <T> T inside(Supplier<T> body) {
    turn.take();
    try {
      return body.get();
    } finally {
      turn.give();
    }
  }

  /**
   * Tells how a request ended: at once where that may re-enter the transport, else after the call.
   */
  void end(Ending ending) {
    if (level == ThreadLevel.MULTIPLE) {
      ending.tell();
    } else if (turn.isMine()) {
      if (ending.isAwaited()) {
        ENDS.setOpaque(this, (int) ENDS.getOpaque(this) + 1);
      }
      turn.keep(ending);
    } else {
      loop().push(new Callback(ending::tell));
    }
  }

  /** A message of so many bytes is sent. By who tells the engine, before that. */
  void countSent(long bytes) {
    if (turn.isMine()) {
      counters.sentInTurn(bytes);
    } else {
      counters.sent(bytes);
    }
  }

  /** A message of so many bytes is received. By who tells the engine, before that. */
  void countReceived(long bytes) {
    if (turn.isMine()) {
      counters.receivedInTurn(bytes);
    } else {
      counters.received(bytes);
    }
  }

  // --- progress -----------------------------------------------------------------------------

  /** What a task waits with for something that this transport ends. */
  <T extends @Nullable Object> Completion.Source<T> source() {
    return looking == null ? Completion.source() : Completion.source(looking);
  }

  /** The same, with what runs if the task gives it up. */
  <T extends @Nullable Object> Completion.Source<T> source(Runnable withdraws) {
    return Completion.source(looking, withdraws);
  }

  /** On the communication thread: looks, unless tasks have looked since it last came here. */
  private final class LoopProgress implements Rest.Progress {
    private final Runnable bell = CommEngine.this::ringLoop;

    @Override
    public int poll(boolean asked) {
      return othersLook() && !asked ? Rest.OTHERS_LOOK : look(0, 1);
    }

    @Override
    public int pollBeforeRest(boolean asked) {
      return othersLook() && !asked ? Rest.OTHERS_LOOK : lookBeforeRest(bell);
    }

    private boolean othersLook() {
      int others = (int) LOOKS.getOpaque(CommEngine.this);
      boolean look = others != looksSeen;
      looksSeen = others;
      return look;
    }

    @Override
    public boolean isResting() {
      return transport.isResting();
    }

    @Override
    public void endRest() {
      transport.endRest();
    }
  }

  private void ringLoop() {
    CommLoop started = loop;
    if (started != null) {
      started.ring();
    }
  }

  /** One look that decides whether the loop may sleep until {@code bell} runs. */
  private int lookBeforeRest(Runnable bell) {
    if (!turn.tryTake()) {
      return 0;
    }
    try {
      boolean late = Mutant.on("comm.polls-before-it-announces");
      boolean announced = !late && transport.announceRest(bell);
      int found = transport.poll();
      announced |= late && transport.announceRest(bell);
      return announced && found == 0 && transport.mayRest() ? Rest.MAY_REST : found;
    } finally {
      turn.give();
    }
  }

  /**
   * Looks, unless somebody is inside, who will look himself: again while nothing is found, up to
   * {@code polls} times. Where progress is allowed.
   */
  private int look(int counts, int polls) {
    if (!turn.tryTake()) {
      return 0;
    }
    try {
      LOOKS.setOpaque(this, (int) LOOKS.getOpaque(this) + counts);
      int found = transport.poll();
      for (int i = 1; i < polls && found == 0 && !turn.isWanted(); i++) {
        found = transport.poll();
      }
      return found;
    } finally {
      turn.give();
    }
  }

  /** How a waiting task makes progress by itself. One for all waits; any thread. */
  private final class Looking implements WaitHelp {

    @Override
    public boolean poll() {
      if (way(Operation.PROGRESS) == Way.INLINE) {
        look(1, POLLS_PER_LOOK);
      }
      return false; // which of all that waits has ended is not known
    }

    @Override
    public void pollFor(Completion<?> wanted) {
      int before = ends();
      poll();
      if (ends() != before && !wanted.isDone()) {
        parks(); // the loop naps as if nothing came, and this task may stop looking at any time
      }
    }

    /** May count what others found meanwhile: then the loop looks once in vain. */
    private int ends() {
      return (int) ENDS.getOpaque(CommEngine.this);
    }

    @Override
    public boolean isFoundByLooking() {
      return true;
    }

    @Override
    public long lookNanos() {
      return Long.MAX_VALUE; // as long as a task may: its carrier would do nothing else
    }

    @Override
    public void parks() {
      ringLoop();
    }

    @Override
    public boolean block(long nanos) {
      return false;
    }

    @Override
    public String what() {
      return "messages of rank " + rank();
    }
  }

  // --- memory for peers ---------------------------------------------------------------------

  /** Lets peers copy to and from the segment, and answers the key. */
  Completion<Long> expose(MemorySegment segment) {
    Completion.Source<Long> key = Completion.source();
    switch (way(Operation.EXPOSE)) {
      case INLINE -> exposeInside(segment, key);
      case SHIFT -> loop().push(new Exposing(this, segment, key));
      case REFUSE -> throw new AssertionError("only progress is refused");
    }
    return key.completion();
  }

  private void exposeInside(MemorySegment segment, Completion.Source<Long> key) {
    try {
      key.complete(inside(() -> transport.expose(segment)));
    } catch (TransportException refused) {
      key.fail(notExposed(segment.byteSize(), refused));
    }
  }

  CommException notExposed(long bytes, TransportException cause) {
    return Failures.of(rank(), rank(), "expose of " + bytes + " bytes", cause);
  }

  void conceal(long key) {
    switch (way(Operation.EXPOSE)) {
      case INLINE -> concealInside(key);
      case SHIFT -> loop().push(new Entering(() -> concealInside(key)));
      case REFUSE -> throw new AssertionError("only progress is refused");
    }
  }

  private void concealInside(long key) {
    inside(
        () -> {
          transport.conceal(key);
          return key;
        });
  }

  // --- withdrawing --------------------------------------------------------------------------

  /**
   * Somebody cancelled what he waited for: takes the request back. {@code withdrawn} runs if that
   * succeeds, and no callback of the request comes then.
   */
  void withdraw(Request request, Runnable withdrawn) {
    switch (way(Operation.CANCEL)) {
      case INLINE -> cancel(request, withdrawn);
      case SHIFT -> loop().push(new Entering(() -> cancel(request, withdrawn)));
      case REFUSE -> throw new AssertionError("only progress is refused");
    }
  }

  private void cancel(Request request, Runnable withdrawn) {
    if (inside(() -> transport.cancel(request))) {
      withdrawn.run();
    }
  }

  // --- the whole world --------------------------------------------------------------------------

  /** This rank cannot go on, and so none can. */
  void abort(Throwable cause) {
    switch (way(Operation.CLOSE)) {
      case INLINE ->
          inside(
              () -> {
                transport.abort(cause);
                return true;
              });
      case SHIFT -> loop().push(new Entering(() -> abort(cause)));
      case REFUSE -> throw new AssertionError("only progress is refused");
    }
  }

  // --- nodes --------------------------------------------------------------------------------

  /** A call on its way to the communication thread; gives its slot back when it gets there. */
  private static final class Shifted extends LoopNode {
    private final CommEngine engine;
    private @Nullable Request request;

    Shifted(CommEngine engine, Request request) {
      this.engine = engine;
      this.request = request;
    }

    @Override
    void run() {
      engine.shifts.give(1);
      engine.enter(take());
    }

    @Override
    void late() {
      engine.shifts.give(1);
      take().failed(over());
    }

    private Request take() {
      Request taken = Objects.requireNonNull(request);
      request = null;
      return taken;
    }
  }

  static TransportException over() {
    return new TransportException(Reason.CLOSED, "this rank closed the communicator", null);
  }

  private static final class Exposing extends LoopNode {
    private final CommEngine engine;
    private @Nullable MemorySegment segment;
    private final Completion.Source<Long> key;

    Exposing(CommEngine engine, MemorySegment segment, Completion.Source<Long> key) {
      this.engine = engine;
      this.segment = segment;
      this.key = key;
    }

    @Override
    void run() {
      engine.exposeInside(take(), key);
    }

    @Override
    void late() {
      key.fail(engine.notExposed(take().byteSize(), over()));
    }

    private MemorySegment take() {
      MemorySegment taken = Objects.requireNonNull(segment);
      segment = null;
      return taken;
    }
  }

  /** Something that must be run, on the communication thread while there is one. */
  static final class Callback extends LoopNode {
    private @Nullable Runnable body;

    Callback(Runnable body) {
      this.body = body;
    }

    @Override
    void run() {
      Runnable taken = Objects.requireNonNull(body);
      body = null;
      taken.run();
    }

    @Override
    void late() {
      run();
    }
  }

  /** Something that enters the transport; of no use once that is closed. */
  static final class Entering extends LoopNode {
    private @Nullable Runnable body;

    Entering(Runnable body) {
      this.body = body;
    }

    @Override
    void run() {
      Runnable taken = Objects.requireNonNull(body);
      body = null;
      taken.run();
    }

    @Override
    void late() {
      body = null;
    }
  }
}
