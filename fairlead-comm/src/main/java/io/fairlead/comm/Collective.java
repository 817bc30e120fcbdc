package io.fairlead.comm;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.Entry.Way;
import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * One rank's part in a collective: rounds of sends and receives, each begun by whoever ended the
 * one before, so that nobody waits in between.
 *
 * <pre>
 * begin → round 0 → all parts ended → round 1 → … → done
 *       → the first part that failed → failed, and the world of ranks with it
 * </pre>
 *
 * <p>A collective that fails on one rank can never end on all of them, and a rank in the middle of
 * a tree would leave those below it waiting; so the failure is made every rank's, with its cause.
 * Only the rank that closed its own communicator does not do so: its peers see it close. Who begins
 * one {@link #beginApart apart} tells the others itself where a peer has closed.
 *
 * <p>One that is begun where nobody may wait begins on the communication thread: a place in the
 * queue for each part could be refused there.
 *
 * <p>{@code pending} counts the parts of the round; whoever takes it to zero owns the fields of the
 * subclass until the parts of the next round are posted. {@code failed} moves once.
 */
abstract class Collective {
  final CommEngine engine;
  final int rank;
  final int size;
  private final int channel;
  private final int tag;
  private final String name;
  private final Completion.Source<@Nullable Void> source;
  private final AtomicInteger pending = new AtomicInteger();
  private final List<Part> round = new ArrayList<>();
  private volatile boolean failed;

  /** Before the first part is posted. */
  private boolean apart;

  /** When it was found to wait; racy on purpose: an end before that counts no wait. */
  private long began;

  Collective(CommEngine engine, int channel, int sequence, String name) {
    this.engine = engine;
    this.source = engine.source();
    this.rank = engine.rank();
    this.size = engine.size();
    this.channel = channel;
    // Sequences wrap; a tag is used again only after 2³¹ collectives on one communicator.
    this.tag = sequence & Integer.MAX_VALUE;
    this.name = name;
  }

  /** Begins, and answers what the caller waits for. */
  final Completion<@Nullable Void> begin() {
    engine.counters.collectives.increment();
    if (engine.way(Operation.SEND) == Way.SHIFT && !Role.current().mayWait()) {
      // Its parts could find the queue full, and half a collective fails all ranks: as one node
      engine.loop().push(new CommEngine.Callback(this::next));
    } else {
      next();
    }
    Completion<@Nullable Void> completion = source.completion();
    if (!completion.isDone()) {
      began = System.nanoTime();
    }
    return completion;
  }

  /** The same, where the world need not end because a peer closed the communicator. */
  final Completion<@Nullable Void> beginApart() {
    apart = true;
    return begin();
  }

  /** The parts of the last round have ended: names those of the next one, or says {@link #done}. */
  abstract void round();

  // --- for subclasses, inside round() -----------------------------------------------------------

  final void receive(int peer, MemorySegment into) {
    round.add(new Incoming(peer, into));
  }

  final void send(int peer, MemorySegment data) {
    round.add(new Sent(peer, data));
  }

  final void done() {
    if (began != 0) {
      engine.counters.waitNanos.add(System.nanoTime() - began);
    }
    source.complete(null);
  }

  // --- the rounds -------------------------------------------------------------------------------

  private void next() {
    round.clear();
    round();
    int parts = round.size();
    if (parts == 0) {
      return;
    }
    pending.set(parts);
    // A copy: the last part to end, perhaps the last one posted here, starts the next round.
    for (Part part : round.toArray(new Part[0])) {
      part.post();
    }
  }

  private void ended() {
    if (pending.decrementAndGet() == 0 && !failed) {
      next();
    }
  }

  private void failed(int peer, TransportException cause) {
    if (!failed) {
      failed = true;
      CommException failure = Failures.of(rank, peer, name, cause);
      source.fail(failure);
      if (endsAll(cause.reason())) {
        engine.abort(failure);
      }
    }
    pending.decrementAndGet();
  }

  private boolean endsAll(Reason reason) {
    return switch (reason) {
      case CLOSED, PEER_FAILED -> false;
      case PEER_CLOSED -> !apart;
      case SIZE_MISMATCH, MEMORY, GATE, WITHDRAWN, BACK_PRESSURE, LIBRARY, INCOMPLETE -> true;
    };
  }

  private interface Part extends Ending {
    void post();
  }

  private final class Incoming extends ReceiveRequest implements Part {
    private long received;
    private @Nullable TransportException failure;

    Incoming(int peer, MemorySegment into) {
      super(channel, Traffic.COLLECTIVE, peer, tag, new MemorySegment[] {into});
    }

    @Override
    public void post() {
      engine.post(this, Operation.RECEIVE);
    }

    @Override
    public boolean isWithdrawn() {
      return false;
    }

    /** What the rule is for parts: the words of a receive would not help. */
    private TransportException agreed(TransportException cause) {
      if (cause.reason() != Reason.SIZE_MISMATCH) {
        return cause;
      }
      return new TransportException(
          Reason.SIZE_MISMATCH,
          "the part of rank "
              + source()
              + " has another length than the "
              + bytes()
              + " bytes that are due here: every rank calls the same collectives of a communicator,"
              + " in the same order, of the same lengths",
          cause);
    }

    @Override
    public void received(int from, long bytes, @Nullable MemorySegment data) {
      received = bytes;
      engine.end(this);
    }

    @Override
    public void failed(TransportException cause) {
      failure = cause;
      engine.end(this);
    }

    @Override
    public void tell() {
      TransportException cause = failure;
      if (cause == null) {
        engine.counters.received(received);
        ended();
      } else {
        Collective.this.failed(source(), agreed(cause));
      }
    }
  }

  private final class Sent extends SendRequest implements Part {
    private @Nullable TransportException failure;

    Sent(int peer, MemorySegment data) {
      super(channel, Traffic.COLLECTIVE, peer, tag, new MemorySegment[] {data});
    }

    @Override
    public void post() {
      engine.post(this, Operation.SEND);
    }

    @Override
    public boolean isWithdrawn() {
      return false;
    }

    @Override
    public void sent() {
      engine.end(this);
    }

    @Override
    public void failed(TransportException cause) {
      failure = cause;
      engine.end(this);
    }

    @Override
    public void tell() {
      TransportException cause = failure;
      if (cause == null) {
        engine.counters.sent(bytes());
        ended();
      } else {
        Collective.this.failed(target(), cause);
      }
    }
  }
}
