package io.fairlead.comm;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.Entry.Way;
import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The sends of one communicator that are not posted yet: those whose gates have not opened, and
 * those behind them in their {@link Line}. Known, so that closing can fail them.
 *
 * <p>{@code waiting} is concurrent; {@code closed} is volatile and set before the sweep, so that a
 * send which comes meanwhile is found by the sweep or finds the communicator closed.
 *
 * <p>{@code lines}, and the queues in them, are guarded by {@code lock}, an innermost lock; {@code
 * lined} is written under it and read without. A line is there until the last send in it was handed
 * to the transport: so whoever finds none knows that all he sent there before is in the transport.
 */
final class GatedSends {
  private final CommEngine engine;
  private final Set<Gated> waiting = ConcurrentHashMap.newKeySet();
  private final ReentrantLock lock = new ReentrantLock();
  private final Map<Line.Key, Line> lines = new HashMap<>();

  /** How many lines there are. Volatile: zero says what the class comment says of no line. */
  private volatile int lined;

  private volatile @Nullable TransportException closed;

  GatedSends(CommEngine engine) {
    this.engine = engine;
  }

  /**
   * Reserves the place of one send.
   *
   * @return why not: the caller must not wait for one, or the communicator has closed meanwhile
   */
  @Nullable TransportException reserve() {
    if (engine.gates.tryTake(1)) {
      return null;
    }
    if (!Role.current().mayWait()) {
      engine.counters.refused.increment();
      return new TransportException(
          Reason.BACK_PRESSURE,
          "all "
              + engine.config.gatedSends()
              + " places for sends that wait are taken and this thread must not wait for one:"
              + " submit from a task, or raise CommConfig.gatedSends",
          null);
    }
    return engine.gates.take(1, () -> closed != null) ? null : closed;
  }

  /** The send has ended, however it did. */
  void release() {
    engine.gates.give(1);
  }

  /** Whether a send would overtake one that was sent before it. */
  boolean holdsBack(Request request) {
    if (lined == 0) {
      return false; // so it is almost always, and nothing is made to find it out
    }
    Line.Key key = key(request);
    if (key == null) {
      return false;
    }
    Owner.lock(lock);
    try {
      return lines.containsKey(key);
    } finally {
      lock.unlock();
    }
  }

  private static Line.@Nullable Key key(Request request) {
    if (Mutant.on("comm.gated.overtaken")) {
      return null;
    }
    return switch (request) {
      case SendRequest send -> new Line.Key(Operation.SEND, send.target(), send.tag());
      case MessageRequest message ->
          new Line.Key(Operation.MESSAGE, message.target(), message.handler());
      case CopyRequest copy -> null; // copies keep no order
      default -> throw new AssertionError("nothing that waits: " + request);
    };
  }

  /** Takes in a send that has its place. Without a gate it only waits for its turn. */
  Gated add(Request request, Operation operation, @Nullable Completion<?> gate) {
    // Started here, where a thread may be started, and not where the gate opens.
    engine.loop();
    boolean queues =
        engine.way(operation) != Way.INLINE && !Mutant.on("comm.gated.passes-the-queue");
    Line.Key key = key(request);
    Gated gated;
    boolean first;
    Owner.lock(lock);
    try {
      Line line = key == null ? new Line(engine, this, null) : line(key);
      gated = new Gated(request, operation, this, line, queues, gate == null);
      waiting.add(gated); // before whoever posts could take it out again
      first = line.add(gated);
    } finally {
      lock.unlock();
    }
    // Looked at after the add: either the sweep of the close sees the send, or this thread the
    // close.
    TransportException cause = closed;
    if (cause != null) {
      close(cause);
    }
    if (gate != null) {
      gated.waitFor(gate);
    } else if (first) {
      gated.call(); // who was in front of it has gone meanwhile
    }
    return gated;
  }

  /** Under the lock. */
  private Line line(Line.Key key) {
    Line line = lines.computeIfAbsent(key, made -> new Line(engine, this, made));
    lined = lines.size();
    return line;
  }

  /** The first of a line. By who posts. */
  @Nullable Gated first(Line line) {
    Owner.lock(lock);
    try {
      return line.first;
    } finally {
      lock.unlock();
    }
  }

  /** The first of a line was handed over, or is over: the next one. By who posts. */
  @Nullable Gated advance(Line line) {
    Owner.lock(lock);
    try {
      Gated next = line.advance();
      if (next == null && line.key != null) {
        lines.remove(line.key);
        lined = lines.size();
      }
      return next;
    } finally {
      lock.unlock();
    }
  }

  /** Takes one that is over out of its line; false: it is the first, and has to be gone past. */
  boolean passes(Gated over) {
    Owner.lock(lock);
    try {
      return over.line().remove(over);
    } finally {
      lock.unlock();
    }
  }

  void opened(Gated gated) {
    waiting.remove(gated);
  }

  void gateFailed(Gated gated, Request request, Throwable cause) {
    waiting.remove(gated);
    request.failed(
        new TransportException(
            Reason.GATE, "not sent: what it waited for failed: " + cause.getMessage(), cause));
  }

  /** Fails every send that is not posted. */
  void close(TransportException cause) {
    closed = cause;
    engine.gates.look();
    List<Gated> revoked = new ArrayList<>();
    waiting.removeIf(gated -> gated.revoke() && revoked.add(gated));
    revoked.forEach(gated -> gated.take().failed(cause));
  }

  int count() {
    return waiting.size();
  }

  /** For tests: how many stand in lines with others, over or not. */
  int lined() {
    Owner.lock(lock);
    try {
      return lines.values().stream().mapToInt(Line::length).sum();
    } finally {
      lock.unlock();
    }
  }
}
