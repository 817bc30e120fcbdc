package io.fairlead.comm.wire;

import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import org.jspecify.annotations.Nullable;

/**
 * What this rank sends: sends and active messages, until their memory is the caller's again.
 *
 * <ol>
 *   <li><b>whole</b>: fits a packet, and there is credit. A send is then over for its sender.
 *   <li><b>offered</b>: does not fit. An envelope goes, and costs credit too; the bytes follow when
 *       the receiver has a place for them.
 *   <li><b>held</b>: no credit, or no room on the way. Nothing of it leaves this rank, in order of
 *       channel, class and tag. If credit is what is missing, the peer is told that something of
 *       this channel and tag is held, once, and pulls it one by one as it has receives for it; so
 *       whatever is waited for comes, however much else lies in front of it.
 * </ol>
 */
final class Departures {
  private final Rank rank;
  private final Queue<Outbound> stagingWaiters = new ArrayDeque<>();

  Departures(Rank rank) {
    this.rank = rank;
  }

  // --- sending ----------------------------------------------------------------------------------

  void send(SendRequest request, Peer peer) {
    boolean collective = request.traffic() == Traffic.COLLECTIVE;
    int kind = collective ? Frame.COLLECTIVE : 0;
    HeldOps held = heldOps(peer, kind);
    long bytes = request.bytes();
    if (bytes <= rank.payloadMax && held.isEmpty() && peer.hasCredit(collective, (int) bytes)) {
      Packet packet = peer.takeForData();
      if (packet != null) {
        peer.useCredit((int) bytes);
        whole(request, peer, packet, kind);
        return;
      }
    }
    Op op =
        new Op(
            peer,
            request.channel(),
            kind,
            request.tag(),
            request,
            request.blobs(),
            new long[] {bytes});
    submit(op);
  }

  void message(MessageRequest request, Peer peer) {
    long front = Front.bytes(request);
    if (front > Front.BYTES_MAX) {
      request.failed(
          new TransportException(
              Reason.LIBRARY,
              "the header and the lengths of the blobs take "
                  + front
                  + " bytes, the most is "
                  + Front.BYTES_MAX
                  + ": send long data as a blob",
              null));
      return;
    }
    MemorySegment[] blobs = request.blobs();
    long[] runs = new long[blobs.length];
    for (int i = 0; i < runs.length; i++) {
      runs[i] = blobs[i].byteSize();
    }
    Op op = new Op(peer, request.channel(), Frame.MESSAGE, request.handler(), request, blobs, runs);
    submit(op);
  }

  private void submit(Op op) {
    Request request = op.request;
    if (request != null) {
      request.note(op);
    }
    if (!heldOps(op.peer, op.kind).isEmpty() || !tryGo(op, 0)) {
      hold(op);
      rank.dirty(op.peer);
    }
  }

  /** Sends the operation or its offer if there is room and credit; a pulled one needs none. */
  private boolean tryGo(Op op, int flags) {
    Peer peer = op.peer;
    int cost = cost(op);
    boolean pulled = (flags & Frame.PULLED) != 0;
    if (!peer.greeted || (!pulled && !peer.hasCredit(op.kind == Frame.COLLECTIVE, cost))) {
      return false;
    }
    Packet packet = pulled ? peer.takeForPulled() : peer.takeForData();
    if (packet == null) {
      return false;
    }
    if (!pulled) {
      peer.useCredit(cost);
    }
    int all = flags | unhold(op);
    if (op.request instanceof MessageRequest message) {
      goMessage(op, message, packet, all, pulled ? -1 : cost);
    } else if (op.request instanceof SendRequest send && send.bytes() <= rank.payloadMax) {
      op.state = Op.State.OVER;
      op.request = null;
      whole(send, peer, packet, all | op.kind);
    } else {
      offer(op, packet, all);
    }
    return true;
  }

  /** The bytes of credit: what the receiver must keep of it. */
  private int cost(Op op) {
    if (op.request instanceof MessageRequest message) {
      long front = Front.bytes(message);
      long all = front + Segments.bytes(message.blobs());
      return (int) (all <= rank.payloadMax ? all : front <= rank.payloadMax ? front : 0);
    }
    long bytes = op.runs[0];
    return bytes <= rank.payloadMax ? (int) bytes : 0;
  }

  private void whole(SendRequest request, Peer peer, Packet packet, int flags) {
    MemorySegment memory = packet.memory();
    long lane = Frame.lane(request.channel(), request.tag());
    int route = Routes.number(lane);
    boolean brief = flags == 0 && peer.spoken.has(route, lane) && !peer.isToTell();
    TransportException fault = null;
    int payload = (int) request.bytes();
    try {
      gather(request.blobs(), memory, brief ? Frame.SHORT_HEADER : Frame.HEADER);
    } catch (RuntimeException e) {
      fault = Faults.unreachable(rank.number, peer.rank, e);
      payload = Frame.putWords(memory, Faults.words(fault));
    }
    if (brief && fault == null) {
      peer.goShort(packet, route, payload);
    } else {
      goFull(request, peer, packet, fault == null ? flags : flags | Frame.FAULT, payload);
    }
    rank.ends++;
    if (fault == null) {
      request.sent();
    } else {
      request.failed(fault);
    }
  }

  private static void goFull(
      SendRequest request, Peer peer, Packet packet, int flags, int payload) {
    MemorySegment memory = packet.memory();
    Frame.lane(memory, request.channel(), request.tag());
    Frame.bytes(memory, request.bytes(), -1);
    if ((flags & Frame.COLLECTIVE) == 0) {
      peer.spoken.speak(Frame.lane(request.channel(), request.tag()));
    }
    peer.go(packet, Kind.EAGER, flags, payload);
  }

  private static void gather(MemorySegment[] blobs, MemorySegment into, long offset) {
    long at = offset;
    for (MemorySegment blob : blobs) {
      long bytes = blob.byteSize();
      MemorySegment.copy(blob, 0, into, at, bytes);
      at += bytes;
    }
  }

  private void offer(Op op, Packet packet, int flags) {
    op.id = rank.ops.add(op);
    op.state = Op.State.OFFERED;
    Frame.lane(packet.memory(), op.channel, op.tag);
    Frame.bytes(packet.memory(), op.runs[0], op.id);
    boolean staged = !Cursor.single(op.pieces) || !Cursor.allNative(op.pieces);
    op.peer.go(packet, Kind.OFFER, flags | op.kind | (staged ? Frame.STAGED : 0), 0);
  }

  private void goMessage(Op op, MessageRequest message, Packet packet, int flags, int credit) {
    MemorySegment memory = packet.memory();
    long front = Front.bytes(message);
    long blobs = Segments.bytes(message.blobs());
    boolean whole = front + blobs <= rank.payloadMax;
    boolean frontFits = front <= rank.payloadMax;
    op.id = rank.ops.add(op);
    op.state = whole ? Op.State.WAITING : Op.State.OFFERED;
    op.frontBytes = frontFits ? 0 : front;
    Frame.lane(memory, op.channel, op.tag);
    try {
      if (frontFits) {
        long end = Front.write(message, memory, Frame.HEADER);
        if (whole) {
          gather(message.blobs(), memory, end);
        }
      }
    } catch (RuntimeException e) {
      abandon(op, packet, credit, e);
      return;
    }
    Kind kind = whole ? Kind.MESSAGE : frontFits ? Kind.MESSAGE_OFFER : Kind.FRONT_OFFER;
    long payload = whole ? front + blobs : frontFits ? front : 0;
    Frame.bytes(memory, frontFits ? payload : front, op.id);
    boolean staged = !Cursor.allNative(message.blobs());
    op.peer.go(packet, kind, flags | (staged ? Frame.STAGED : 0), (int) payload);
  }

  /** A message that cannot be read is not sent, so the receiver need not know of it. */
  private void abandon(Op op, Packet packet, int credit, RuntimeException cause) {
    rank.wire.give(packet);
    if (credit >= 0) {
      op.peer.unuseCredit(credit);
    }
    // Pulled, or the last of its lane: the receiver still wants an answer to that.
    HeldLane.Key key = HeldLane.Key.of(op);
    say(op.peer, Kind.EMPTY, credit < 0 ? Frame.PULLED : 0, key);
    HeldLane lane = op.peer.heldLanes.get(key);
    if (lane != null && lane.announced) {
      say(op.peer, Kind.HELD, 0, key);
    }
    finish(op, Faults.unreachable(rank.number, op.peer.rank, cause));
  }

  // --- holding ----------------------------------------------------------------------------------

  private static void hold(Op op) {
    Peer peer = op.peer;
    HeldLane lane =
        peer.heldLanes.computeIfAbsent(
            HeldLane.Key.of(op),
            key -> {
              HeldLane made = new HeldLane(key);
              peer.unannounced.add(made);
              return made;
            });
    lane.ops.add(op);
    op.lane = lane;
    heldOps(peer, op.kind).add(op);
  }

  /** Takes the operation out of what is held; LAST if the receiver must know that it was it. */
  private static int unhold(Op op) {
    HeldLane lane = op.lane;
    if (lane == null) {
      return 0;
    }
    op.lane = null;
    lane.ops.remove(op);
    heldOps(op.peer, op.kind).remove(op);
    if (!lane.ops.isEmpty()) {
      return 0;
    }
    op.peer.heldLanes.remove(lane.key);
    if (!lane.announced) {
      op.peer.unannounced.remove(lane);
      return 0;
    }
    return Frame.LAST;
  }

  private static HeldOps heldOps(Peer peer, int kind) {
    return kind == Frame.COLLECTIVE ? peer.heldCollectives : peer.heldData;
  }

  /** Out of what is held, without going; the receiver is told if it would ask for it. */
  private static void takeBack(Op op) {
    if (unhold(op) == Frame.LAST) {
      say(op.peer, Kind.EMPTY, 0, HeldLane.Key.of(op));
    }
  }

  /**
   * Sends what is held, as far as room and credit allow.
   *
   * @return false: something is left that needs neither credit nor a pull
   */
  boolean flush(Peer peer) {
    boolean room = flushOwed(peer);
    room &= flushHeld(peer, peer.heldCollectives);
    room &= flushHeld(peer, peer.heldData);
    return room;
  }

  private boolean flushOwed(Peer peer) {
    HeldLane.Key key;
    while ((key = peer.owed.peek()) != null) {
      // Looked up now: what was held when the pull came may have gone, and other things be held.
      HeldLane lane = peer.heldLanes.get(key);
      Op op = lane == null ? null : lane.ops.peek();
      if (op == null) {
        peer.owed.remove();
        say(peer, Kind.EMPTY, Frame.PULLED, key);
      } else if (op.isWithdrawn()) {
        pass(op);
      } else if (tryGo(op, Frame.PULLED)) {
        peer.owed.remove();
      } else {
        return false;
      }
    }
    return true;
  }

  private boolean flushHeld(Peer peer, HeldOps held) {
    Op op;
    while ((op = held.first) != null) {
      if (op.isWithdrawn()) {
        pass(op);
      } else if (!tryGo(op, 0)) {
        boolean credit = peer.hasCredit(op.kind == Frame.COLLECTIVE, cost(op));
        if (peer.greeted && !credit) {
          announce(peer);
        }
        return !peer.greeted || !credit;
      }
    }
    return true;
  }

  private static void announce(Peer peer) {
    for (HeldLane lane : peer.unannounced) {
      lane.announced = true;
      say(peer, Kind.HELD, 0, lane.key);
    }
    peer.unannounced.clear();
  }

  /** Tells the peer something of what is held for it. */
  private static void say(Peer peer, Kind what, int flags, HeldLane.Key of) {
    peer.control(what, of.kind() | flags, of.channel(), of.tag(), 0, 0);
  }

  /** Withdrawn by somebody who has yet to say so: {@link #cancel} ends it. */
  private static void pass(Op op) {
    takeBack(op);
    op.state = Op.State.PASSED;
  }

  /** The peer has a place for something that is held. */
  void pull(Peer peer, int channel, int kind, int tag) {
    peer.owed.add(new HeldLane.Key(channel, kind, tag));
    rank.dirty(peer);
  }

  // --- answers ----------------------------------------------------------------------------------

  /** The peer takes what was offered. */
  void take(Peer peer, long id, Op.Take take) {
    int tag = take.tag();
    long piece = take.piece();
    Op op = rank.ops.find(id, peer);
    if (op == null && rank.ops.isPast(id)) {
      return;
    }
    boolean possible =
        op != null && (op.state == Op.State.OFFERED || (op.frontGoing && op.early == null));
    if (op == null || !possible) {
      rank.lie(peer, "it takes an offer that was not made");
      return;
    }
    if (piece < 1 || piece > rank.wire.bulkBytesMax() || tag < 0 || tag >= rank.wire.bulkTags()) {
      rank.lie(peer, "it takes " + piece + " bytes at a time under tag " + tag);
      return;
    }
    if (op.frontGoing) {
      op.early = take;
    } else {
      begin(op, take);
    }
  }

  private void begin(Op op, Op.Take take) {
    long[] runs = op.frontBytes > 0 ? new long[] {op.frontBytes} : op.runs;
    if (Plan.print(runs) != take.runs()) {
      rank.lie(op.peer, "it takes something of other lengths than were offered");
      return;
    }
    op.state = Op.State.SENDING;
    op.frontGoing = op.frontBytes > 0;
    Op what = op.frontGoing ? front(op) : op;
    what.state = Op.State.SENDING;
    new Outbound(rank, this, what, take.tag(), take.piece()).begin();
  }

  /** The front of a message, as an operation of its own. */
  private static Op front(Op op) {
    long[] runs = {op.frontBytes};
    Request asked = op.request;
    if (!(asked instanceof MessageRequest message)) {
      return new FrontOp(op, null, Segments.NONE, runs);
    }
    MemorySegment[] pieces = {Front.table(message), message.header()};
    return new FrontOp(op, message, pieces, runs);
  }

  /** A front on its way; when it is there, the rest of its message is on offer. */
  private static final class FrontOp extends Op {
    final Op whole;

    FrontOp(Op whole, @Nullable Request request, MemorySegment[] pieces, long[] runs) {
      super(whole.peer, whole.channel, Frame.MESSAGE, whole.tag, request, pieces, runs);
      this.whole = whole;
    }

    @Override
    boolean isOver() {
      return whole.isOver();
    }
  }

  /** All that can be sent of it was sent, and its memory is read no more. */
  void sent(Op op, @Nullable TransportException fault) {
    if (op instanceof FrontOp front) {
      sentFront(front.whole, front.dropped, fault);
    } else if (op.request instanceof CopyRequest && fault == null) {
      op.state = Op.State.WAITING;
      Op.Answer answer = op.answer;
      if (answer != null) {
        finish(op, answer.fault());
      }
    } else {
      finish(op, fault);
    }
  }

  /** The front is there, so the rest is on offer; the peer may have been quick to answer. */
  private void sentFront(Op op, boolean dropped, @Nullable TransportException fault) {
    op.frontBytes = 0;
    op.frontGoing = false;
    op.state = Op.State.OFFERED;
    // Asked too early, if it was.
    op.askedBack = false;
    Op.Answer answer = op.answer;
    Op.Take take = op.early;
    if (fault != null || dropped) {
      finish(op, fault);
    } else if (answer != null) {
      finish(op, answer.fault());
    } else if (take != null) {
      begin(op, take);
    }
  }

  /** The peer says that an operation is over. */
  void ended(Peer peer, long id, int number, String words) {
    Op op = rank.ops.find(id, peer);
    if (op == null && rank.ops.isPast(id)) {
      return;
    }
    if (op == null || !Answers.isKnown(number)) {
      rank.lie(peer, "an answer " + number + " to an operation that is not going on");
      return;
    }
    TransportException fault =
        number == Answers.WITHDRAWN
            ? Faults.closed(rank.number)
            : Answers.failure(peer.rank, number, words);
    if (op.state == Op.State.SENDING) {
      op.answer = new Op.Answer(fault);
    } else {
      finish(op, fault);
    }
  }

  /** The peer does not want the bytes of an offer, and has used it up. */
  void use(Peer peer, long id) {
    Op op = rank.ops.find(id, peer);
    if (op == null ? !rank.ops.isPast(id) : op.state != Op.State.OFFERED) {
      rank.lie(peer, "it uses an offer that was not made");
      return;
    }
    boolean withdrawn = op == null || op.isWithdrawn();
    peer.control(Kind.USED, 0, 0, withdrawn ? 1 : 0, 0, id);
    if (op != null) {
      if (withdrawn) {
        op.drop();
      }
      finish(op, null);
    }
  }

  void finish(Op op, @Nullable TransportException fault) {
    if (op.id >= 0) {
      rank.ops.remove(op.id);
      op.id = -1;
    }
    if (op.request != null) {
      rank.ends++;
    }
    op.tell(fault);
  }

  // --- withdrawing ------------------------------------------------------------------------------

  boolean cancel(Request request) {
    if (!(request.note() instanceof Op op)) {
      return false;
    }
    return switch (op.state) {
      case HELD -> {
        takeBack(op);
        end(op);
        yield true;
      }
      case PASSED -> {
        end(op);
        yield true;
      }
      case OFFERED -> {
        op.drop();
        withdraw(op);
        yield true;
      }
      case WAITING, SENDING, OVER -> op.dropped;
    };
  }

  private static void end(Op op) {
    op.drop();
    op.state = Op.State.OVER;
  }

  /** The same, once, for what nobody has taken or accepted yet; its request stays. */
  void askBack(Op op) {
    boolean unanswered =
        op.state == Op.State.OFFERED || (op.state == Op.State.WAITING && op.kind == Frame.MESSAGE);
    if (unanswered && !op.askedBack && !(op instanceof CopyOp)) {
      op.askedBack = true;
      withdraw(op);
    }
  }

  /** Asks the peer to let go of it; if it was quicker, it takes what was offered. */
  private static void withdraw(Op op) {
    op.peer.control(Kind.WITHDRAW, op.kind, op.channel, op.tag, 0, op.id);
  }

  // --- closing ----------------------------------------------------------------------------------

  /** Ends what is held for a channel, to one peer or to all. */
  void failHeld(int channel, @Nullable Peer only, TransportException cause) {
    for (Peer peer : rank.peers) {
      if (only == null || only == peer) {
        failHeld(peer.heldCollectives, channel, cause);
        failHeld(peer.heldData, channel, cause);
        failHeldCopies(peer.heldCopies, channel, cause);
      }
    }
  }

  /** Copies that were asked for here. What peers asked for is of no channel. */
  private void failHeldCopies(HeldOps held, int channel, TransportException cause) {
    for (Op op : held.of(channel)) {
      if (op.request != null) {
        held.remove(op);
        finish(op, cause);
      }
    }
  }

  private void failHeld(HeldOps held, int channel, TransportException cause) {
    for (Op op : held.of(channel)) {
      takeBack(op);
      finish(op, cause);
    }
  }

  /** Ends all that is held for a peer that is gone. */
  void failHeld(Peer peer, TransportException cause) {
    for (HeldOps held : List.of(peer.heldCollectives, peer.heldData)) {
      Op op;
      while ((op = held.first) != null) {
        unhold(op);
        finish(op, cause);
      }
    }
    peer.owed.clear();
    Op copy;
    while ((copy = peer.heldCopies.first) != null) {
      peer.heldCopies.remove(copy);
      finish(copy, cause);
    }
  }

  // --- memory of our own ------------------------------------------------------------------------

  /** Is told to go on when there is memory; asks once until then. */
  void awaitStaging(Outbound outbound) {
    if (!stagingWaiters.contains(outbound)) {
      stagingWaiters.add(outbound);
    }
  }

  void stagingGiven() {
    // As many as wait now: one that finds too little waits again, behind the others.
    for (int i = stagingWaiters.size(); i > 0; i--) {
      stagingWaiters.remove().resume();
    }
  }

  /** Room for tests to look at. */
  int held() {
    int sum = 0;
    for (Peer peer : rank.peers) {
      sum += peer.heldLanes.size();
    }
    return sum;
  }
}
