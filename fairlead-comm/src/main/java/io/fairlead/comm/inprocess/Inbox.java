package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.MessageListener;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.task.Owner;
import java.lang.invoke.VarHandle;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The active messages of one rank on one channel: those that come to it go straight to its
 * listener; those that it sent and that nobody accepted yet are remembered, to be withdrawn when it
 * closes.
 *
 * <p>{@code listener}, {@code early}, {@code sweepAt} and {@code closed} are guarded by {@code
 * lock}; {@code outgoing} is concurrent, its races with closing are settled by the arrival's own
 * state. The listener is never called under the lock.
 */
final class Inbox {
  /** From so many on, early messages that were taken back are swept out when others come. */
  private static final int SWEEP_MIN = 64;

  private final ReentrantLock lock = new ReentrantLock();

  /** Messages that came before the listener: held by their senders, so they cost one entry each. */
  private final Queue<InProcessArrival> early = new ArrayDeque<>();

  /** So many may be early before the next sweep: twice what the last one left. */
  private int sweepAt = SWEEP_MIN;

  private final Set<InProcessArrival> outgoing = ConcurrentHashMap.newKeySet();
  private @Nullable MessageListener listener;
  private @Nullable TransportException closed;
  private @Nullable TransportException closedForSenders;

  /** Takes a message that {@code sender}'s rank sent. */
  void take(MessageRequest request, int source, Inbox sender) {
    InProcessArrival arrival = new InProcessArrival(request, source, sender);
    request.note(arrival);
    // Full fence: either who withdraws sees the note, or this thread sees the withdrawal.
    VarHandle.fullFence();
    if (request.isWithdrawn()) {
      arrival.refuse(Delivery.withdrawn());
      return;
    }
    TransportException refusal;
    MessageListener known = null;
    Owner.lock(lock);
    try {
      refusal = closedForSenders;
      if (refusal == null) {
        known = listener;
        if (known == null) {
          sweep();
          early.add(arrival);
        }
      }
    } finally {
      lock.unlock();
    }
    if (refusal != null) {
      arrival.refuse(refusal);
      return;
    }
    if (known != null) {
      known.arrived(arrival);
    }
    if (!arrival.isOver()) {
      sender.remember(arrival);
    }
  }

  /** Under the lock. */
  private void sweep() {
    if (early.size() >= sweepAt) {
      early.removeIf(InProcessArrival::isOver);
      sweepAt = Math.max(SWEEP_MIN, 2 * early.size());
    }
  }

  /** For tests: messages that came before the listener, also those that were taken back. */
  int early() {
    Owner.lock(lock);
    try {
      return early.size();
    } finally {
      lock.unlock();
    }
  }

  /** Hands over what came early, in order; only then do senders see the listener. */
  void listen(MessageListener newListener) {
    while (true) {
      InProcessArrival arrival;
      Owner.lock(lock);
      try {
        if (listener != null) {
          throw new IllegalStateException("the channel has a listener already; it takes one");
        }
        arrival = early.poll();
        if (arrival == null) {
          listener = newListener;
          return;
        }
      } finally {
        lock.unlock();
      }
      newListener.arrived(arrival);
    }
  }

  @Nullable TransportException closed() {
    Owner.lock(lock);
    try {
      return closed;
    } finally {
      lock.unlock();
    }
  }

  /** Refuses what came and nobody took, and withdraws what this rank sent and nobody took. */
  void close(TransportException cause, TransportException forSenders) {
    List<InProcessArrival> refused;
    Owner.lock(lock);
    try {
      if (closed != null) {
        return;
      }
      closed = cause;
      closedForSenders = forSenders;
      refused = new ArrayList<>(early);
      early.clear();
    } finally {
      lock.unlock();
    }
    refused.forEach(arrival -> arrival.refuse(forSenders));
    outgoing.forEach(arrival -> arrival.withdraw(cause));
  }

  private void remember(InProcessArrival arrival) {
    outgoing.add(arrival);
    TransportException cause = closed();
    // Looked at after the add: either this thread sees the close, or the close sees the arrival.
    if (cause != null) {
      arrival.withdraw(cause);
    }
    if (arrival.isOver()) {
      outgoing.remove(arrival);
    }
  }

  void forget(InProcessArrival arrival) {
    outgoing.remove(arrival);
  }
}
