package io.fairlead.comm.inprocess;

import static java.util.Objects.requireNonNull;

import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.task.Owner;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * Where the messages to one rank on one channel meet its receives.
 *
 * <p>A message goes one of three ways, decided once, under the lock:
 *
 * <ol>
 *   <li><b>matched</b>: a receive waits. The sending thread copies from blobs to segments: one
 *       copy.
 *   <li><b>buffered</b>: no receive waits and the rank's {@link EagerPool} has room. The sending
 *       thread copies to a block and is told it is sent; the receiving thread copies from there.
 *   <li><b>stalled</b>: no room. The message keeps its place but stays in the sender's blobs, and
 *       the sender is not told; the receiving thread copies from blobs to segments.
 * </ol>
 *
 * <p><b>Shared state.</b>
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>lanes, oldest, newest, orders, anyPosted</td><td>senders, receivers</td><td>same</td><td>lock</td></tr>
 *   <tr><td>closed, closedForSenders, undelivered, gone, goneCount</td><td>who closes or aborts</td><td>senders, receivers</td><td>lock</td></tr>
 *   <tr><td>Posted.state, Envelope.state</td><td>see there</td><td>who withdraws</td><td>volatile</td></tr>
 * </table>
 *
 * <p><b>Lock order.</b> mailbox lock → pool lock; never two mailboxes. No request is ended, and
 * nothing longer than {@link #COPY_LOCKED} bytes copied, while a lock is held: callbacks run user
 * code.
 */
final class Mailbox {
  /** Copied under the lock: less time than giving the lock up and taking it again would cost. */
  static final long COPY_LOCKED = 2048;

  private final int rank;
  private final EagerPool pool;
  private final ReentrantLock lock = new ReentrantLock();
  private final Lanes lanes = new Lanes();
  private final @Nullable TransportException[] gone;
  private int goneCount;
  private @Nullable TransportException closed;
  private @Nullable TransportException closedForSenders;

  /** What was told to be sent and found here at the end, until the rank itself closes. */
  private final List<Undelivered> undelivered = new ArrayList<>();

  private @Nullable Envelope oldest;
  private @Nullable Envelope newest;
  private long orders;
  private int anyPosted;

  Mailbox(int rank, int size, EagerPool pool) {
    this.rank = rank;
    this.pool = pool;
    this.gone = new @Nullable TransportException[size];
  }

  // --- sending ------------------------------------------------------------------------------

  /** Takes a message from {@code source}: matched, buffered, stalled or refused. */
  void send(SendRequest request, int source) {
    TransportException refusal;
    Posted posted = null;
    Envelope filling = null;
    boolean buffered = false;
    Owner.lock(lock);
    try {
      refusal = request.isWithdrawn() ? Delivery.withdrawn() : refuseSend(source);
      if (refusal == null) {
        posted = takePosted(request.traffic(), source, request.tag());
        if (posted != null) {
          request.note(posted);
        } else {
          Envelope envelope = keep(request, source);
          // Looked at here: once the lock is free the envelope may be another thread's.
          filling = envelope.state == Envelope.COPYING ? envelope : null;
          buffered = envelope.state == Envelope.READY;
        }
      }
    } catch (RuntimeException e) {
      refusal = Delivery.unreachable(request.bytes(), source, request.tag(), e);
    } finally {
      lock.unlock();
    }
    if (refusal != null) {
      request.failed(refusal);
    } else if (posted != null) {
      end(
          request,
          Delivery.deliver(request.blobs(), request.bytes(), source, request.tag(), posted));
    } else if (filling != null) {
      fill(filling, request);
    } else if (buffered) {
      request.sent();
    }
  }

  private @Nullable TransportException refuseSend(int source) {
    return closedForSenders != null ? closedForSenders : gone[source];
  }

  private @Nullable Posted takePosted(Traffic traffic, int source, int tag) {
    Posted posted = firstPosted(traffic, source, tag);
    if (posted != null) {
      unlink(posted);
      posted.state = Posted.TAKEN;
    }
    return posted;
  }

  private @Nullable Posted firstPosted(Traffic traffic, int source, int tag) {
    Posted named = firstWanted(lanes.find(traffic, source, tag));
    if (anyPosted == 0) {
      return named;
    }
    Posted any = firstWanted(lanes.find(traffic, Transport.ANY, tag));
    if (named == null || any == null) {
      return named == null ? any : named;
    }
    return named.order < any.order ? named : any;
  }

  /**
   * The oldest receive of a lane that was not withdrawn; who withdraws one takes it out himself.
   */
  private static @Nullable Posted firstWanted(@Nullable Lane lane) {
    Posted posted = lane == null ? null : lane.firstPosted;
    while (posted != null && posted.request.isWithdrawn()) {
      posted = posted.next;
    }
    return posted;
  }

  /** Keeps a message that nobody waits for. The request's note says it is stalled or copying. */
  private Envelope keep(SendRequest request, int source) {
    EagerPool.Block block = pool.take(request.bytes());
    Envelope envelope;
    if (block == null) {
      envelope = new Envelope(request, source, null, Envelope.STALLED);
      request.note(envelope);
    } else if (request.bytes() > COPY_LOCKED) {
      envelope = new Envelope(request, source, block, Envelope.COPYING);
      request.note(envelope);
    } else {
      copyOrGive(request, block);
      envelope = new Envelope(request, source, block, Envelope.READY);
      envelope.send = null;
    }
    link(envelope);
    return envelope;
  }

  private void copyOrGive(SendRequest request, EagerPool.Block block) {
    boolean copied = false;
    try {
      Segments.copy(request.blobs(), slice(block, request.bytes()));
      copied = true;
    } finally {
      if (!copied) {
        pool.give(block);
      }
    }
  }

  /** Fills the block of a message in COPYING, outside the lock, then hands it on. */
  private void fill(Envelope envelope, SendRequest request) {
    EagerPool.Block block = requireNonNull(envelope.block);
    TransportException fault = null;
    try {
      Segments.copy(request.blobs(), slice(block, envelope.bytes));
    } catch (RuntimeException e) {
      fault = Delivery.unreachable(envelope.bytes, envelope.source, envelope.tag, e);
    }
    Posted claimant;
    boolean kept = false;
    Owner.lock(lock);
    try {
      claimant = envelope.claimant;
      if (envelope.state == Envelope.ENDED) {
        fault = closedForSenders;
      } else if (claimant == null && fault == null) {
        envelope.state = Envelope.READY;
        envelope.send = null;
        kept = true;
      } else if (claimant == null) {
        endKept(envelope);
      }
    } finally {
      lock.unlock();
    }
    if (claimant != null) {
      // The blobs were read: what the receive sets off may cancel the send and must not wait.
      envelope.state = Envelope.ENDED;
      handOver(block, envelope, claimant, fault);
    }
    if (!kept) {
      pool.give(block);
    }
    end(request, fault);
  }

  private static void handOver(
      EagerPool.Block block,
      Envelope envelope,
      Posted claimant,
      @Nullable TransportException fault) {
    if (fault != null) {
      claimant.state = Posted.ENDED;
      claimant.request.failed(fault);
      return;
    }
    Delivery.deliver(
        slice(block, envelope.bytes), envelope.bytes, envelope.source, envelope.tag, claimant);
  }

  private static void end(SendRequest request, @Nullable TransportException fault) {
    if (fault == null) {
      request.sent();
    } else {
      request.failed(fault);
    }
  }

  // --- receiving ----------------------------------------------------------------------------

  /** Takes a receive: it ends at once if a message waits, else it waits for one. */
  void receive(ReceiveRequest request) {
    TransportException refusal = null;
    Posted posted;
    Envelope envelope;
    EagerPool.Block block = null;
    SendRequest stalled = null;
    Owner.lock(lock);
    try {
      posted = new Posted(request, orders++);
      request.note(posted);
      boolean wanted = !request.isWithdrawn();
      envelope = wanted ? takeEnvelope(request) : null;
      if (envelope == null) {
        refusal = wanted ? refuseReceive(request) : Delivery.withdrawn();
        if (refusal == null) {
          wait(posted);
        }
      } else {
        posted.state = Posted.TAKEN;
        if (envelope.state == Envelope.COPYING) {
          envelope.claimant = posted;
        } else {
          block = envelope.block;
          stalled = envelope.send;
          envelope.state = stalled == null ? Envelope.ENDED : Envelope.TAKEN;
        }
      }
    } finally {
      lock.unlock();
    }
    if (refusal != null) {
      request.failed(refusal);
    } else if (envelope != null && block != null) {
      Delivery.deliver(
          slice(block, envelope.bytes), envelope.bytes, envelope.source, envelope.tag, posted);
      pool.give(block);
    } else if (envelope != null && stalled != null) {
      takeStalled(stalled, envelope, posted);
    }
  }

  private static void takeStalled(SendRequest stalled, Envelope envelope, Posted posted) {
    TransportException fault =
        Delivery.deliver(
            stalled.blobs(), stalled.bytes(), envelope.source, envelope.tag, posted, envelope);
    end(stalled, fault);
  }

  private @Nullable TransportException refuseReceive(ReceiveRequest request) {
    if (closed != null) {
      return closed;
    }
    return refuseReceive(request.source());
  }

  private @Nullable TransportException refuseReceive(int source) {
    if (source != Transport.ANY) {
      return gone[source];
    }
    boolean alone = goneCount > 0 && goneCount >= gone.length - 1;
    return alone
        ? new TransportException(Reason.PEER_CLOSED, "every other rank closed", null)
        : null;
  }

  private void wait(Posted posted) {
    ReceiveRequest request = posted.request;
    posted.state = Posted.QUEUED;
    lanes.findOrAdd(request.traffic(), request.source(), request.tag()).add(posted);
    if (request.source() == Transport.ANY) {
      anyPosted++;
    }
  }

  /** Takes out the oldest message that the receive may have. */
  private @Nullable Envelope takeEnvelope(ReceiveRequest request) {
    Envelope envelope = firstEnvelope(request);
    if (envelope != null) {
      unlink(envelope);
    }
    return envelope;
  }

  private @Nullable Envelope firstEnvelope(ReceiveRequest request) {
    if (request.source() != Transport.ANY) {
      Lane lane = lanes.find(request.traffic(), request.source(), request.tag());
      Envelope envelope = lane == null ? null : lane.firstEnvelope;
      while (envelope != null && isWithdrawn(envelope)) {
        envelope = envelope.next;
      }
      return envelope;
    }
    Envelope envelope = oldest;
    while (envelope != null && !fits(envelope, request)) {
      envelope = envelope.newer;
    }
    return envelope;
  }

  private static boolean fits(Envelope envelope, ReceiveRequest request) {
    return envelope.tag == request.tag()
        && envelope.traffic == request.traffic()
        && !isWithdrawn(envelope);
  }

  /** Stalled and given up: its memory must not be read; who withdraws it takes it out himself. */
  private static boolean isWithdrawn(Envelope envelope) {
    return envelope.state == Envelope.STALLED && requireNonNull(envelope.send).isWithdrawn();
  }

  // --- withdrawing --------------------------------------------------------------------------

  /**
   * As {@link Transport#cancel}, for a receive posted here or a send to here. The note is read
   * under the lock: a request that comes later finds itself withdrawn, one that came before has its
   * note.
   */
  boolean cancel(Request request) {
    Object note;
    Owner.lock(lock);
    try {
      note = request.note();
      if (note instanceof Posted posted && posted.state == Posted.QUEUED) {
        unlink(posted);
        posted.state = Posted.ENDED;
        return true;
      }
      if (note instanceof Envelope envelope && envelope.state == Envelope.STALLED) {
        endKept(envelope);
        return true;
      }
    } finally {
      lock.unlock();
    }
    while (isCopied(note)) {
      Delivery.pause();
    }
    return false;
  }

  private static boolean isCopied(@Nullable Object note) {
    return switch (note) {
      case Posted posted -> posted.state == Posted.TAKEN;
      case Envelope envelope ->
          envelope.state == Envelope.TAKEN || envelope.state == Envelope.COPYING;
      case null, default -> false;
    };
  }

  // --- closing ------------------------------------------------------------------------------

  /**
   * Ends this mailbox: its receives fail with {@code cause}, stalled senders with {@code
   * forSenders}.
   *
   * @return the messages whose senders were told they are sent, also if an abort came first
   */
  List<Undelivered> close(TransportException cause, TransportException forSenders) {
    end(cause, forSenders);
    Owner.lock(lock);
    try {
      List<Undelivered> found = List.copyOf(undelivered);
      undelivered.clear();
      return found;
    } finally {
      lock.unlock();
    }
  }

  /** As {@link #close}, for all ranks at once: the rank is told what was left when it closes. */
  void abort(TransportException cause) {
    end(cause, cause);
  }

  private void end(TransportException cause, TransportException forSenders) {
    List<Request> receives = new ArrayList<>();
    List<Request> sends = new ArrayList<>();
    Owner.lock(lock);
    try {
      if (closed != null) {
        return;
      }
      closed = cause;
      closedForSenders = forSenders;
      lanes.forEach(lane -> collectPosted(lane, receives));
      for (Envelope at = oldest; at != null; at = at.newer) {
        closeEnvelope(at, sends);
      }
      receives.forEach(request -> unlink(posted(request)));
      while (oldest != null) {
        unlink(oldest);
      }
    } finally {
      lock.unlock();
    }
    receives.forEach(request -> request.failed(cause));
    sends.forEach(request -> request.failed(forSenders));
  }

  private void closeEnvelope(Envelope envelope, List<Request> sends) {
    switch (envelope.state) {
      case Envelope.READY -> {
        pool.give(requireNonNull(envelope.block));
        undelivered.add(
            new Undelivered(kind(envelope), envelope.source, rank, envelope.tag, envelope.bytes));
      }
      case Envelope.STALLED -> sends.add(requireNonNull(envelope.send));
      default -> {
        // COPYING: the sender's thread sees ENDED when it is through, and fails its request.
      }
    }
    envelope.state = Envelope.ENDED;
  }

  private static String kind(Envelope envelope) {
    return envelope.traffic == Traffic.COLLECTIVE ? "collective" : "send";
  }

  /** Another rank closed: what only it could send will not come; what it holds stalled is over. */
  void sourceClosed(int source, TransportException forReceives, TransportException forSends) {
    List<Request> receives = new ArrayList<>();
    List<Request> sends = new ArrayList<>();
    TransportException forAny = null;
    Owner.lock(lock);
    try {
      if (closed != null || gone[source] != null) {
        return;
      }
      gone[source] = forReceives;
      goneCount++;
      forAny = refuseReceive(Transport.ANY);
      boolean any = forAny != null;
      lanes.forEach(
          lane -> {
            if (lane.source == source || (any && lane.source == Transport.ANY)) {
              collectPosted(lane, receives);
            }
          });
      for (Envelope at = oldest; at != null; at = at.newer) {
        if (at.source == source && at.state == Envelope.STALLED) {
          sends.add(requireNonNull(at.send));
        }
      }
      receives.forEach(request -> unlink(posted(request)));
      sends.forEach(request -> endKept((Envelope) requireNonNull(request.note())));
    } finally {
      lock.unlock();
    }
    for (Request request : receives) {
      boolean any = ((ReceiveRequest) request).source() == Transport.ANY;
      request.failed(any && forAny != null ? forAny : forReceives);
    }
    sends.forEach(request -> request.failed(forSends));
  }

  private static Posted posted(Request request) {
    return (Posted) requireNonNull(request.note());
  }

  private void endKept(Envelope envelope) {
    unlink(envelope);
    envelope.state = Envelope.ENDED;
  }

  private static void collectPosted(Lane lane, List<Request> receives) {
    for (Posted at = lane.firstPosted; at != null; at = at.next) {
      at.state = Posted.ENDED;
      receives.add(at.request);
    }
  }

  static TransportException peerClosed(int peer) {
    return TransportException.peerClosed(peer);
  }

  // --- lists, under the lock ----------------------------------------------------------------

  private void link(Envelope envelope) {
    lanes.findOrAdd(envelope.traffic, envelope.source, envelope.tag).add(envelope);
    envelope.older = newest;
    if (newest == null) {
      oldest = envelope;
    } else {
      newest.newer = envelope;
    }
    newest = envelope;
  }

  private void unlink(Envelope envelope) {
    Lane lane = requireNonNull(envelope.lane);
    lane.remove(envelope);
    lanes.tidy(lane);
    Envelope before = envelope.older;
    Envelope after = envelope.newer;
    if (before == null) {
      oldest = after;
    } else {
      before.newer = after;
    }
    if (after == null) {
      newest = before;
    } else {
      after.older = before;
    }
    envelope.older = null;
    envelope.newer = null;
  }

  private void unlink(Posted posted) {
    Lane lane = requireNonNull(posted.lane);
    lane.remove(posted);
    lanes.tidy(lane);
    if (posted.request.source() == Transport.ANY) {
      anyPosted--;
    }
  }

  private static MemorySegment[] slice(EagerPool.Block block, long bytes) {
    return new MemorySegment[] {block.memory.asSlice(0, bytes)};
  }

  /** For tests: lanes, posted receives and messages that lie here. */
  int[] counts() {
    Owner.lock(lock);
    try {
      int[] counts = {lanes.count(), 0, 0};
      lanes.forEach(
          lane -> {
            for (Posted at = lane.firstPosted; at != null; at = at.next) {
              counts[1]++;
            }
            for (Envelope at = lane.firstEnvelope; at != null; at = at.next) {
              counts[2]++;
            }
          });
      return counts;
    } finally {
      lock.unlock();
    }
  }
}
