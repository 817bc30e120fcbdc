package io.fairlead.comm.wire;

import static java.util.Objects.requireNonNull;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.MessageListener;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * The active messages to this rank, until they are accepted or refused.
 *
 * <p>A short one comes whole and is accepted out of the packet, if the listener does so at once. Of
 * others the front comes, the blobs stay with the sender. What nobody has accepted is bounded by
 * the sender's credit; beyond that, one message at a time of each source and channel.
 */
final class Arrivals {
  private final Rank rank;

  Arrivals(Rank rank) {
    this.rank = rank;
  }

  // --- coming -----------------------------------------------------------------------------------

  void message(Peer peer, Kind kind, MemorySegment packet, int flags, int payload) {
    long bytes = Frame.bytes(packet);
    boolean whole = kind == Kind.MESSAGE;
    boolean frontLater = kind == Kind.FRONT_OFFER;
    Front front = frontLater ? null : Front.read(packet, Frame.HEADER, payload);
    if (!isPossible(front, whole, bytes, payload)) {
      rank.lie(peer, "a message of " + bytes + " bytes whose lengths do not fit, in " + payload);
      return;
    }
    Channel channel = rank.channel(Frame.channel(packet));
    Flow flow = channel.flow(peer);
    int credit = (flags & Frame.PULLED) != 0 ? -1 : payload;
    if (!count(flow, flags, credit)) {
      return;
    }
    WireArrival arrival =
        new WireArrival(
            this,
            flow,
            Frame.tag(packet),
            Frame.id(packet),
            whole,
            (flags & Frame.STAGED) != 0,
            credit,
            front,
            frontLater ? bytes : 0,
            packet,
            Frame.HEADER);
    flow.add(arrival);
    MessageListener listener = channel.listener;
    if (channel.closed) {
      refuse(arrival, Faults.peerClosed(rank.number));
    } else if (listener != null && channel.arrived.isEmpty() && front != null) {
      hand(arrival, listener);
      keep(arrival, payload);
    } else {
      keep(arrival, payload);
      channel.arrive(arrival);
      advance(channel);
    }
    pullMore(flow);
  }

  private boolean isPossible(@Nullable Front front, boolean whole, long bytes, int payload) {
    if (front == null) {
      return payload == 0 && bytes > rank.payloadMax && bytes <= Front.BYTES_MAX;
    }
    long all = whole ? front.bytes() + front.blobBytes() : front.bytes();
    return bytes == payload && all == payload;
  }

  private boolean count(Flow flow, int flags, int credit) {
    if (credit >= 0) {
      if (!flow.peer.keep(credit)) {
        rank.lie(flow.peer, "more messages than it has credit for");
        return false;
      }
    } else if (flow.pulled > 0) {
      flow.pulled--;
    } else {
      rank.lie(flow.peer, "an answer to a pull that was not made");
      return false;
    }
    if ((flags & Frame.LAST) != 0) {
      flow.held = false;
    }
    return true;
  }

  /** The packet is the wire's again soon: takes what is needed of it. */
  private void keep(WireArrival arrival, int payload) {
    if (arrival.state == WireArrival.State.OVER
        || arrival.state == WireArrival.State.ACCEPTED
        || payload == 0) {
      return;
    }
    Blocks.Block block = rank.kept.take(payload);
    MemorySegment.copy(arrival.memory, arrival.offset, block.memory, 0, payload);
    arrival.block = block;
    arrival.memory = block.memory;
    arrival.offset = 0;
  }

  void listen(Channel channel, MessageListener listener) {
    if (channel.listener != null) {
      throw new IllegalStateException("the channel has a listener already; it takes one");
    }
    channel.listener = listener;
    advance(channel);
    for (Peer peer : rank.peers) {
      pullMore(channel.flow(peer));
    }
  }

  /** Hands over what has come, as far as it is here, in order. */
  private void advance(Channel channel) {
    MessageListener listener = channel.listener;
    if (listener == null) {
      return;
    }
    WireArrival arrival;
    while ((arrival = channel.arrived.peek()) != null) {
      if (arrival.state == WireArrival.State.OVER) {
        channel.arrived.remove();
      } else if (arrival.front == null) {
        landFront(arrival);
        return;
      } else {
        channel.arrived.remove();
        hand(arrival, listener);
      }
    }
  }

  private static void hand(WireArrival arrival, MessageListener listener) {
    arrival.state = WireArrival.State.HANDED;
    listener.arrived(arrival);
  }

  private void landFront(WireArrival arrival) {
    if (arrival.frontLanding) {
      return;
    }
    arrival.frontLanding = true;
    MemorySegment into = Segments.allocate(arrival.frontBytes);
    rank.landings().add(new FrontLanding(arrival, into));
  }

  // --- the listener's answer --------------------------------------------------------------------

  void accept(WireArrival arrival, MemorySegment[] into, Arrival.Landing landing) {
    TransportException fault = rank.fault;
    if (fault != null) {
      end(arrival);
      landing.failed(fault);
      return;
    }
    if (arrival.state != WireArrival.State.HANDED) {
      landing.failed(
          new TransportException(
              Reason.PEER_CLOSED, "rank " + arrival.source() + " withdrew its message", null));
      return;
    }
    boolean none = arrival.front().blobBytes() == 0;
    if (arrival.whole || none) {
      acceptHere(arrival, into, landing);
    } else if (!Cursor.reachable(into, true)) {
      TransportException cause = Faults.unreachable(arrival.source(), rank.number, null);
      refuse(arrival, cause);
      landing.failed(cause);
    } else {
      long[] runs = arrival.front().lengths;
      Flow flow = arrival.flow;
      long id = arrival.id();
      boolean staged = arrival.staged;
      end(arrival);
      rank.landings().add(new MessageLanding(flow, id, runs, into, staged, landing));
    }
    rank.leave();
  }

  private void acceptHere(WireArrival arrival, MemorySegment[] into, Arrival.Landing landing) {
    try {
      Front front = arrival.front();
      long at = arrival.offset + front.bytes();
      for (int i = 0; i < into.length; i++) {
        long bytes = front.lengths[i];
        MemorySegment.copy(arrival.memory, at, into[i], 0, bytes);
        at += bytes;
      }
    } catch (RuntimeException e) {
      TransportException cause = Faults.unreachable(arrival.source(), rank.number, e);
      refuse(arrival, cause);
      landing.failed(cause);
      return;
    }
    Peer peer = arrival.flow.peer;
    end(arrival);
    peer.done(arrival.id());
    landing.landed();
  }

  void refuse(WireArrival arrival, TransportException cause) {
    if (arrival.state == WireArrival.State.OVER) {
      return;
    }
    end(arrival);
    arrival.flow.peer.refuse(arrival.id(), cause);
    rank.leave();
  }

  /** Nothing is kept of it any more. */
  private void end(WireArrival arrival) {
    if (arrival.state == WireArrival.State.OVER) {
      return;
    }
    arrival.state = WireArrival.State.OVER;
    Flow flow = arrival.flow;
    flow.remove(arrival);
    Blocks.Block block = arrival.block;
    if (block != null) {
      arrival.block = null;
      rank.kept.give(block);
    }
    if (arrival.credit >= 0) {
      flow.peer.giveCredit(arrival.credit);
      if (flow.peer.isAckDue()) {
        rank.dirty(flow.peer);
      }
    }
    pullMore(flow);
  }

  // --- what is held at the sender ---------------------------------------------------------------

  void held(Peer peer, int channel) {
    Flow flow = rank.channel(channel).flow(peer);
    flow.held = true;
    pullMore(flow);
  }

  void empty(Peer peer, int number, boolean pulled) {
    Channel channel = rank.channel(number);
    Flow flow = channel.flow(peer);
    if (pulled && flow.pulled == 0) {
      rank.lie(peer, "nothing is held, which nobody asked");
      return;
    }
    flow.pulled -= pulled ? 1 : 0;
    flow.held = false;
  }

  /** One at a time: the others would only wait here. */
  private void pullMore(Flow flow) {
    Channel channel = flow.channel;
    boolean wanted = channel.listener != null && !channel.closed && flow.isEmpty();
    if (flow.held && wanted && flow.pulled == 0) {
      flow.pulled++;
      flow.peer.control(Kind.PULL, Frame.MESSAGE, channel.number, 0, 0, 0);
    }
  }

  // --- ends -------------------------------------------------------------------------------------

  /** The sender wants it back. */
  void withdraw(Peer peer, int channel, long id) {
    WireArrival arrival = rank.channel(channel).flow(peer).find(id);
    if (arrival == null || arrival.frontLanding) {
      return;
    }
    end(arrival);
    peer.control(Kind.ENDED, 0, 0, Answers.WITHDRAWN, 0, id);
  }

  /** Refuses what was not handed over; the listener refuses what was. */
  void close(Channel channel) {
    WireArrival arrival;
    while ((arrival = channel.arrived.poll()) != null) {
      if (!arrival.frontLanding) {
        refuse(arrival, Faults.peerClosed(rank.number));
      }
    }
  }

  /** The world is over: nobody answers any more. */
  void abort(Channel channel) {
    WireArrival arrival;
    while ((arrival = channel.arrived.poll()) != null) {
      end(arrival);
    }
  }

  // --- transfers --------------------------------------------------------------------------------

  private final class FrontLanding extends Inbound {
    private final WireArrival arrival;
    private final MemorySegment into;

    FrontLanding(WireArrival arrival, MemorySegment into) {
      super(
          Arrivals.this.rank,
          arrival.flow.peer,
          arrival.flow.channel,
          arrival.id(),
          new long[] {arrival.frontBytes},
          new MemorySegment[] {into},
          true);
      this.arrival = arrival;
      this.into = into;
    }

    @Override
    void landed() {
      Front front = Front.read(into, 0, into.byteSize());
      if (front == null || front.bytes() != into.byteSize()) {
        rank.lie(peer, "a message whose lengths do not fit its front of " + into.byteSize());
        return;
      }
      arrival.frontLanding = false;
      arrival.memory = into;
      arrival.offset = 0;
      arrival.front = front;
      if (channel.closed) {
        refuse(arrival, Faults.peerClosed(rank.number));
      } else {
        advance(channel);
      }
    }

    @Override
    void nothing() {
      end(arrival);
      advance(channel);
    }

    @Override
    void broken(TransportException cause) {
      nothing();
    }
  }

  private final class MessageLanding extends Inbound {
    private final Arrival.Landing landing;

    MessageLanding(
        Flow flow,
        long id,
        long[] runs,
        MemorySegment[] into,
        boolean staged,
        Arrival.Landing landing) {
      super(Arrivals.this.rank, flow.peer, flow.channel, id, runs, into, staged);
      this.landing = requireNonNull(landing);
    }

    @Override
    void landed() {
      landing.landed();
    }

    @Override
    void nothing() {
      landing.failed(
          new TransportException(
              Reason.PEER_CLOSED,
              "rank " + peer.rank + " withdrew its message, or its memory cannot be read",
              null));
    }

    @Override
    void broken(TransportException cause) {
      landing.failed(cause);
    }
  }
}
