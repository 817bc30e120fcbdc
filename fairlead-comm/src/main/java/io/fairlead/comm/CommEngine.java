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
import io.fairlead.task.Role;
import io.fairlead.task.TaskRuntime;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * One rank's engine: the only place that enters a transport. For every call it asks {@link Entry}
 * whether the caller may go in, and else hands the call to the communication thread.
 *
 * <p><b>Shared state.</b>
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>loop</td><td>first who needs it, under start</td><td>any</td><td>volatile, set once</td></tr>
 *   <tr><td>over</td><td>who closes</td><td>who starts the loop</td><td>start</td></tr>
 *   <tr><td>ended</td><td>holder of the turn</td><td>same</td><td>turn</td></tr>
 *   <tr><td>gates, shifts, lender</td><td>any</td><td>any</td><td>own locks, innermost</td></tr>
 * </table>
 *
 * <p><b>Lock order.</b> turn → what the transport locks. {@code turn} exists for SERIALIZED only;
 * the ends of requests that come up while it is held are put off until it is free, so no callback
 * ever runs under a lock or inside a transport that must not be re-entered.
 */
final class CommEngine {
  final Transport transport;
  final CommConfig config;
  final Counters counters = new Counters();
  final Allowance gates;
  final Lender lender;
  private final Allowance shifts;
  final TaskRuntime tasks;
  private final ThreadLevel level;
  private final ReentrantLock start = new ReentrantLock();
  private final ReentrantLock turn = new ReentrantLock();
  private final Queue<Runnable> ended = new ArrayDeque<>();

  /** Volatile: whoever sees the loop sees it started. */
  private volatile @Nullable CommLoop loop;

  private boolean over;

  CommEngine(TaskRuntime tasks, Transport transport, CommConfig config) {
    this.tasks = tasks;
    this.transport = transport;
    this.config = config;
    this.level = transport.threadLevel();
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
    CommLoop started = loop;
    Caller caller = Caller.of(Role.current(), started != null && started.isOwnThread());
    Way way = Entry.way(level, caller, operation);
    if (way == Way.SHIFT && Mutant.on("comm.shift.skip")) {
      return Way.INLINE;
    }
    return way;
  }

  /** The communication thread; started by whoever needs it first. */
  CommLoop loop() {
    CommLoop started = loop;
    if (started != null) {
      return started;
    }
    start.lock();
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
        tasks.owner("comm-" + rank(), Role.COMM),
        transport.caps().progress(),
        this::progress,
        this::abort);
  }

  /**
   * The transport is closed: no loop is started any more, one that runs ends. On the loop, or on
   * the closing thread if there is none.
   */
  void end() {
    CommLoop started;
    start.lock();
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
    shifts.take(1);
    return true;
  }

  /** Enters the transport. Only where {@link #way} said so, or on the communication thread. */
  void enter(Request request) {
    if (level != ThreadLevel.SERIALIZED) {
      hand(request);
      return;
    }
    turn(
        () -> {
          hand(request);
          return true;
        });
  }

  private void hand(Request request) {
    switch (request) {
      case SendRequest send -> transport.send(send);
      case ReceiveRequest receive -> transport.receive(receive);
      case MessageRequest message -> transport.message(message);
      default -> throw new AssertionError("no way to post " + request);
    }
  }

  /** Does something inside the transport, on a thread that may enter, keeping the turn if any. */
  <T> T inside(Supplier<T> body) {
    return level == ThreadLevel.SERIALIZED ? turn(body) : body.get();
  }

  private <T> T turn(Supplier<T> body) {
    try {
      turn.lock();
      try {
        return body.get();
      } finally {
        turn.unlock();
      }
    } finally {
      runEnded();
    }
  }

  private void runEnded() {
    while (true) {
      Runnable end;
      turn.lock();
      try {
        end = ended.poll();
      } finally {
        turn.unlock();
      }
      if (end == null) {
        return;
      }
      end.run();
    }
  }

  /** Ends a request: at once where callbacks may re-enter the transport, else after the call. */
  void end(Runnable callback) {
    if (level == ThreadLevel.MULTIPLE) {
      callback.run();
    } else if (turn.isHeldByCurrentThread()) {
      ended.add(callback);
    } else {
      loop().push(new Callback(callback));
    }
  }

  /** Whether {@link #end} may be left out: the caller need not allocate for nothing. */
  boolean endsAtOnce() {
    return level == ThreadLevel.MULTIPLE;
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

  /** On the communication thread. */
  private int progress() {
    return inside(transport::poll);
  }

  // --- nodes --------------------------------------------------------------------------------

  /** A call on its way to the communication thread; gives its slot back when it gets there. */
  private static final class Shifted extends LoopNode {
    private final CommEngine engine;
    private final Request request;

    Shifted(CommEngine engine, Request request) {
      this.engine = engine;
      this.request = request;
    }

    @Override
    void run() {
      engine.shifts.give(1);
      engine.enter(request);
    }

    @Override
    void late() {
      engine.shifts.give(1);
      request.failed(over());
    }
  }

  static TransportException over() {
    return new TransportException(Reason.CLOSED, "this rank closed the communicator", null);
  }

  /** Something that must be run, on the communication thread while there is one. */
  static final class Callback extends LoopNode {
    private final Runnable body;

    Callback(Runnable body) {
      this.body = body;
    }

    @Override
    void run() {
      body.run();
    }

    @Override
    void late() {
      body.run();
    }
  }

  /** Something that enters the transport; of no use once that is closed. */
  static final class Entering extends LoopNode {
    private final Runnable body;

    Entering(Runnable body) {
      this.body = body;
    }

    @Override
    void run() {
      body.run();
    }
  }
}
