package io.fairlead.comm;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * The sends of one communicator whose gates have not opened: known, so that closing can fail them.
 *
 * <p>{@code waiting} is concurrent; {@code closed} is volatile and set before the sweep, so that a
 * send which comes meanwhile is found by the sweep or finds the communicator closed.
 */
final class GatedSends {
  private final CommEngine engine;
  private final Set<Gated> waiting = ConcurrentHashMap.newKeySet();
  private volatile @Nullable TransportException closed;

  GatedSends(CommEngine engine) {
    this.engine = engine;
  }

  /** Reserves the place of one send; false if the caller must not wait for one. */
  boolean reserve() {
    if (engine.gates.tryTake(1)) {
      return true;
    }
    if (!Role.current().mayWait()) {
      return false;
    }
    engine.gates.take(1);
    return true;
  }

  /** The send has ended, however it did. */
  void release() {
    engine.gates.give(1);
  }

  Gated add(Request request, Operation operation, Completion<?> gate) {
    // Started here, where a thread may be started, and not where the gate opens.
    engine.loop();
    Gated gated = new Gated(engine, request, operation, this);
    waiting.add(gated);
    // Looked at after the add: either the sweep of the close sees the send, or this thread the
    // close.
    TransportException cause = closed;
    if (cause != null) {
      close(cause);
    }
    gate.onDone(gated::fire);
    return gated;
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

  /** Fails every send whose gate has not opened. */
  void close(TransportException cause) {
    closed = cause;
    List<Gated> revoked = new ArrayList<>();
    waiting.removeIf(gated -> gated.revoke() && revoked.add(gated));
    revoked.forEach(gated -> gated.request().failed(cause));
  }

  int count() {
    return waiting.size();
  }
}
