package io.fairlead.comm.wire;

import static java.util.Objects.requireNonNull;

import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.fault.Mutant;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import org.jspecify.annotations.Nullable;

/**
 * Where sends of peers meet the receives of this rank.
 *
 * <p>A whole message goes from the packet to its receive; without one, to a block, and its credit
 * comes back when it is received. An offered message is taken into its receive's segments; without
 * a receive it stays with its sender for {@link #POLLS_BEFORE_EARLY} polls, since whoever answers
 * each message with the next receive is a moment late and would have it copied twice; then it is
 * taken into a block, if it is short enough for what may be kept so.
 */
final class Intake {
  /** What is kept of receives and of messages that are over, each. */
  private static final int UNUSED_MAX = 1024;

  /**
   * As many as a loop makes while a task is told of one message and hands it the receive of the
   * next, some 20 to 50 µs; fewer than it makes before it naps.
   */
  static final int POLLS_BEFORE_EARLY = 256;

  /** An offer, as its sender numbers it. */
  private record Offer(int source, long id) {}

  /** A receive whose message has another length. */
  private record Asking(Waiting waiting, long bytes) {}

  private final Rank rank;
  private final Map<Offer, Asking> asking = new HashMap<>();
  private final Lanes lanes = new Lanes();
  private @Nullable Waiting unused;
  private int unusedCount;
  private @Nullable Kept unusedKept;
  private int unusedKeptCount;
  private long orders;
  private int anyWaiting;

  /** Lanes of which something is held at a peer. */
  private int heldLanes;

  private long landedBytes;

  /** Offers without a receive that may be taken later, the oldest first; some are gone by now. */
  private final Queue<Kept> early = new ArrayDeque<>();

  private long polls;

  /** Some answers are not waited for any more, and may come all the same. */
  private boolean gaveUp;

  Intake(Rank rank) {
    this.rank = rank;
  }

  private static int kind(Traffic traffic) {
    return traffic == Traffic.COLLECTIVE ? Frame.COLLECTIVE : 0;
  }

  // --- receives ---------------------------------------------------------------------------------

  void receive(ReceiveRequest request, Channel channel) {
    Waiting waiting = waiting(request);
    waiting.order = orders++;
    match(waiting, channel);
  }

  /** Gives a receive the message it may have, or lets it wait. */
  private void match(Waiting waiting, Channel channel) {
    ReceiveRequest request = waiting.wanted();
    int kind = kind(request.traffic());
    Lane lane = lanes.find(channel.number, kind, request.source(), request.tag());
    Kept kept = lane == null ? null : lane.firstKept;
    if (kept != null) {
      unlink(kept);
      take(kept, waiting);
      return;
    }
    TransportException refusal = refusal(request, channel);
    if (refusal != null) {
      fail(waiting, refusal);
      return;
    }
    wait(waiting, lane, kind, channel);
  }

  private @Nullable TransportException refusal(ReceiveRequest request, Channel channel) {
    if (request.source() != Transport.ANY) {
      return channel.isGone(request.source()) ? Faults.peerClosed(request.source()) : null;
    }
    return channel.isAlone(rank.number) ? Faults.allClosed() : null;
  }

  private void wait(Waiting waiting, @Nullable Lane known, int kind, Channel channel) {
    ReceiveRequest request = waiting.wanted();
    int tag = request.tag();
    Lane lane =
        known != null ? known : lanes.findOrAdd(channel.number, kind, request.source(), tag);
    waiting.state = Waiting.State.QUEUED;
    request.note(waiting);
    lane.add(waiting);
    if (request.source() == Transport.ANY) {
      anyWaiting++;
    }
    if (heldLanes > 0) {
      pullFor(request, lane, kind, channel);
    }
  }

  private void take(Kept kept, Waiting waiting) {
    switch (kept.state) {
      case WHOLE -> {
        Blocks.Block block = requireNonNull(kept.block);
        deliver(block.memory, 0, kept.bytes, kept.peer.rank, waiting);
        drop(kept);
        if (kept.id < 0) {
          recycle(kept);
        }
      }
      case FAULTY -> {
        TransportException fault = Faults.unreachable(kept.peer.rank, rank.number, null);
        drop(kept);
        fail(waiting, fault);
      }
      case OFFERED -> {
        giveCredit(kept.peer, kept.credit);
        land(kept.peer, kept.id, kept.bytes, kept.staged, waiting);
      }
      case LANDING -> {
        waiting.state = Waiting.State.CLAIMING;
        waiting.claimed = kept;
        waiting.wanted().note(waiting);
        kept.claimant = waiting;
      }
    }
  }

  /** Copies a message to its receive and ends that. */
  private void deliver(MemorySegment from, long offset, long bytes, int source, Waiting waiting) {
    ReceiveRequest request = waiting.wanted();
    long expected = request.bytes();
    recycle(waiting);
    rank.ends++;
    if (expected >= 0 && expected != bytes) {
      request.failed(Faults.mismatch(source, request.tag(), bytes, expected));
      return;
    }
    MemorySegment made = null;
    MemorySegment[] into = request.into();
    try {
      if (into == null) {
        made = Segments.allocate(bytes);
        MemorySegment.copy(from, offset, made, 0, bytes);
      } else if (into.length == 1) {
        MemorySegment.copy(from, offset, into[0], 0, bytes);
      } else {
        scatter(from, offset, into);
      }
    } catch (RuntimeException | OutOfMemoryError e) {
      request.failed(Faults.unreachable(source, rank.number, e));
      return;
    }
    request.received(source, bytes, made);
  }

  private static void scatter(MemorySegment from, long offset, MemorySegment[] into) {
    long at = offset;
    for (MemorySegment segment : into) {
      MemorySegment.copy(from, at, segment, 0, segment.byteSize());
      at += segment.byteSize();
    }
  }

  /** Lets the bytes of an offer come to their receive. */
  private void land(Peer peer, long id, long bytes, boolean staged, Waiting waiting) {
    ReceiveRequest request = waiting.wanted();
    long expected = request.bytes();
    TransportException fault = null;
    MemorySegment[] into = request.into();
    MemorySegment made = null;
    if (expected >= 0 && expected != bytes) {
      use(peer, id, bytes, waiting);
      return;
    }
    try {
      if (into == null) {
        made = Segments.allocate(bytes);
        into = new MemorySegment[] {made};
      } else if (!Cursor.reachable(into, true)) {
        fault = Faults.unreachable(peer.rank, rank.number, null);
      }
    } catch (OutOfMemoryError e) {
      fault = Faults.noMemory(peer.rank, bytes, e);
    }
    if (fault != null || into == null) {
      TransportException cause = requireNonNull(fault);
      peer.refuse(id, cause);
      fail(waiting, cause);
      return;
    }
    Landing landing = new Landing(peer, id, into, staged, waiting, made);
    waiting.state = Waiting.State.LANDING;
    waiting.inbound = landing;
    request.note(waiting);
    rank.landings().add(landing);
  }

  /**
   * The message has another length than its receive and is used up, which is no failure of its
   * sender; unless that has taken it back by now, and so it was never there.
   */
  private void use(Peer peer, long id, long bytes, Waiting waiting) {
    Channel channel = rank.channel(waiting.wanted().channel());
    channel.landing++;
    waiting.state = Waiting.State.ASKING;
    waiting.wanted().note(waiting);
    asking.put(new Offer(peer.rank, id), new Asking(waiting, bytes));
    peer.control(Kind.USE, 0, 0, 0, 0, id);
  }

  /** The sender's answer to that. */
  void used(Peer peer, long id, boolean withdrawn) {
    Asking asked = asking.remove(new Offer(peer.rank, id));
    if (asked == null) {
      if (!gaveUp) {
        rank.lie(peer, "an answer to what was not asked");
      }
      return;
    }
    Waiting waiting = asked.waiting;
    ReceiveRequest request = waiting.wanted();
    rank.channel(request.channel()).landing--;
    if (withdrawn) {
      waitOn(waiting);
    } else {
      fail(waiting, Faults.mismatch(peer.rank, request.tag(), asked.bytes, request.bytes()));
    }
  }

  // --- messages ---------------------------------------------------------------------------------

  /** A whole message came, in a packet. */
  void eager(Peer peer, MemorySegment packet, int flags, int payload) {
    int channel = Frame.channel(packet);
    int tag = Frame.tag(packet);
    long bytes = Frame.bytes(packet);
    boolean faulty = (flags & Frame.FAULT) != 0;
    boolean fits = faulty || bytes == payload || Mutant.on("wire.believes-length");
    if (tag < 0 || bytes < 0 || bytes > rank.payloadMax || !fits) {
      rank.lie(peer, "a message of " + bytes + " bytes, tag " + tag + ", in " + payload);
      return;
    }
    int kind = flags & Frame.COLLECTIVE;
    if (kind == 0 && !Mutant.on("wire.forgets-route")) {
      peer.heard.speak(Frame.lane(channel, tag));
    }
    whole(peer, channel, tag, flags, packet, Frame.HEADER, bytes);
  }

  /** The same, by a route that it came by before. */
  void shortSend(Peer peer, long route, MemorySegment packet, int bytes) {
    if (bytes > rank.payloadMax) {
      rank.lie(peer, "a short send of " + bytes + " bytes");
      return;
    }
    whole(peer, (int) route, Frame.high(route), 0, packet, Frame.SHORT_HEADER, bytes);
  }

  private void whole(
      Peer peer, int channel, int tag, int flags, MemorySegment packet, int offset, long bytes) {
    int kind = flags & Frame.COLLECTIVE;
    boolean faulty = (flags & Frame.FAULT) != 0;
    int credit = (flags & Frame.PULLED) != 0 ? -1 : (int) bytes;
    Lane lane = lanes.find(channel, kind, peer.rank, tag);
    if (!arrive(peer, channel, lane, flags, credit)) {
      return;
    }
    Waiting waiting = takeWaiting(lane, channel, kind, tag);
    if (waiting == null) {
      Kept.State state = faulty ? Kept.State.FAULTY : Kept.State.WHOLE;
      Kept kept = kept(peer, channel, kind, tag, bytes, credit);
      kept.state = state;
      if (!faulty) {
        Blocks.Block block = rank.kept.take(bytes);
        MemorySegment.copy(packet, offset, block.memory, 0, bytes);
        kept.block = block;
      }
      link(kept);
    } else {
      giveCredit(peer, credit);
      if (faulty) {
        fail(waiting, Faults.unreachable(peer.rank, rank.number, null));
      } else {
        deliver(packet, offset, bytes, peer.rank, waiting);
      }
    }
    pullMore(lane);
  }

  /** An envelope came; its bytes are with the sender. */
  void offer(Peer peer, MemorySegment packet, int flags) {
    int channel = Frame.channel(packet);
    int tag = Frame.tag(packet);
    long bytes = Frame.bytes(packet);
    long id = Frame.id(packet);
    if (tag < 0 || bytes <= rank.payloadMax) {
      rank.lie(peer, "an offer of " + bytes + " bytes, tag " + tag);
      return;
    }
    int kind = flags & Frame.COLLECTIVE;
    int credit = (flags & Frame.PULLED) != 0 ? -1 : 0;
    boolean staged = (flags & Frame.STAGED) != 0;
    Lane lane = lanes.find(channel, kind, peer.rank, tag);
    if (!arrive(peer, channel, lane, flags, credit)) {
      return;
    }
    Waiting waiting = takeWaiting(lane, channel, kind, tag);
    if (waiting != null) {
      giveCredit(peer, credit);
      land(peer, id, bytes, staged, waiting);
    } else if (rank.channel(channel).closed) {
      giveCredit(peer, credit);
      refuse(peer, id);
    } else {
      Kept kept = kept(peer, channel, kind, tag, bytes, credit);
      kept.id = id;
      kept.staged = staged;
      link(kept);
      kept.earlyAt = polls + POLLS_BEFORE_EARLY;
      early.add(kept);
    }
    pullMore(lane);
  }

  /** Whether something happens after so many polls. */
  boolean countsPolls() {
    return !early.isEmpty();
  }

  /** The wire was polled once more. */
  void polled() {
    polls++;
    if (!early.isEmpty()) {
      landSomeEarly();
    }
  }

  private void landSomeEarly() {
    Kept kept;
    while ((kept = early.peek()) != null) {
      boolean here = kept.lane != null && kept.state == Kept.State.OFFERED;
      if (here && kept.earlyAt > polls) {
        return;
      }
      early.remove();
      if (here && !rank.isOver()) {
        landEarly(kept);
      }
    }
  }

  private void refuse(Peer peer, long id) {
    peer.refuse(id, Faults.peerClosed(rank.number));
  }

  /** Counts the message and what it says of its lane; false: it lied. */
  private boolean arrive(Peer peer, int channel, @Nullable Lane lane, int flags, int credit) {
    if (credit >= 0) {
      if (!peer.keep(credit)) {
        rank.lie(peer, "more messages than it has credit for");
        return false;
      }
    } else if (lane != null && lane.pulled > 0) {
      lane.pulled--;
    } else if (!isOver(channel, peer)) {
      rank.lie(peer, "an answer to a pull that was not made");
      return false;
    }
    if ((flags & Frame.LAST) != 0 && lane != null) {
      setHeld(lane, false);
    }
    return true;
  }

  private void giveCredit(Peer peer, int credit) {
    if (credit >= 0) {
      peer.giveCredit(credit);
      if (peer.isAckDue()) {
        rank.dirty(peer);
      }
    }
  }

  /** The oldest receive that wants a message of this lane, taken out. */
  private @Nullable Waiting takeWaiting(@Nullable Lane lane, int channel, int kind, int tag) {
    Waiting named = lane == null ? null : firstWanted(lane);
    Waiting any = null;
    if (anyWaiting > 0) {
      Lane ofAny = lanes.find(channel, kind, Transport.ANY, tag);
      any = ofAny == null ? null : firstWanted(ofAny);
    }
    Waiting found = named;
    if (any != null && (named == null || any.order < named.order)) {
      found = any;
    }
    if (found != null) {
      unlink(found);
    }
    return found;
  }

  /** Withdrawn ones are passed over; who withdraws one takes it out himself. */
  private static @Nullable Waiting firstWanted(Lane lane) {
    Waiting waiting = lane.firstWaiting;
    while (waiting != null && waiting.wanted().isWithdrawn()) {
      waiting = waiting.next;
    }
    return waiting;
  }

  // --- messages without a receive ---------------------------------------------------------------

  private Kept kept(Peer peer, int channel, int kind, int tag, long bytes, int credit) {
    Kept kept = unusedKept;
    if (kept == null) {
      kept = new Kept(peer);
    } else {
      unusedKept = kept.next;
      kept.next = null;
      unusedKeptCount--;
    }
    kept.peer = peer;
    kept.channel = channel;
    kept.kind = kind;
    kept.tag = tag;
    kept.bytes = bytes;
    kept.credit = credit;
    kept.order = orders++;
    kept.state = Kept.State.OFFERED;
    kept.id = -1;
    kept.staged = false;
    return kept;
  }

  /** Of a message that came whole: nothing else knows it. */
  private void recycle(Kept kept) {
    if (unusedKeptCount < UNUSED_MAX) {
      kept.next = unusedKept;
      unusedKept = kept;
      unusedKeptCount++;
    }
  }

  private void link(Kept kept) {
    lanes.findOrAdd(kept.channel, kept.kind, kept.peer.rank, kept.tag).addOfSource(kept);
    lanes.findOrAdd(kept.channel, kept.kind, Transport.ANY, kept.tag).addOfAny(kept);
  }

  private void unlink(Kept kept) {
    Lane lane = requireNonNull(kept.lane);
    lane.removeOfSource(kept);
    lanes.tidy(lane);
    Lane any = requireNonNull(kept.anyLane);
    any.removeOfAny(kept);
    lanes.tidy(any);
  }

  /** Unlinked already: gives back what it holds. */
  private void drop(Kept kept) {
    Blocks.Block block = kept.block;
    if (block != null) {
      kept.block = null;
      rank.kept.give(block);
      if (kept.id >= 0) {
        landedBytes -= kept.bytes;
      }
    }
    giveCredit(kept.peer, kept.credit);
  }

  /** Takes an offer for which there is no receive, if there is room. */
  private void landEarly(Kept kept) {
    if (kept.bytes > Blocks.LARGEST || kept.bytes > rank.landedBytesMax - landedBytes) {
      return;
    }
    Blocks.Block block = rank.kept.take(kept.bytes);
    landedBytes += kept.bytes;
    kept.block = block;
    kept.state = Kept.State.LANDING;
    rank.landings().add(new EarlyLanding(kept, block.memory.asSlice(0, kept.bytes)));
  }

  /** The sender wants it back. */
  void withdraw(Peer peer, int channel, int kind, int tag, long id) {
    Lane lane = lanes.find(channel, kind, peer.rank, tag);
    Kept kept = lane == null ? null : lane.firstKept;
    while (kept != null && kept.id != id) {
      kept = kept.next;
    }
    if (kept == null || kept.state != Kept.State.OFFERED) {
      return;
    }
    unlink(kept);
    drop(kept);
    peer.control(Kind.ENDED, 0, 0, Answers.WITHDRAWN, 0, id);
  }

  // --- what is held at the sender ---------------------------------------------------------------

  void held(Peer peer, int channel, int kind, int tag) {
    Lane lane = lanes.findOrAdd(channel, kind, peer.rank, tag);
    setHeld(lane, true);
    pullMore(lane);
  }

  void empty(Peer peer, int channel, int kind, int tag, boolean pulled) {
    Lane lane = lanes.find(channel, kind, peer.rank, tag);
    boolean asked = lane != null && lane.pulled > 0;
    if (pulled && !asked && !isOver(channel, peer)) {
      rank.lie(peer, "nothing is held, which nobody asked");
      return;
    }
    if (lane == null) {
      return;
    }
    if (pulled && asked) {
      lane.pulled--;
    }
    setHeld(lane, false);
    lanes.tidy(lane);
  }

  /** What was asked before the end is answered after it. */
  private boolean isOver(int number, Peer peer) {
    Channel channel = rank.channel(number);
    return channel.closed || channel.isGone(peer.rank);
  }

  private void setHeld(Lane lane, boolean held) {
    if (lane.held != held) {
      lane.held = held;
      heldLanes += held ? 1 : -1;
    }
  }

  /** A receive waits: whoever holds something for it is to send it. */
  private void pullFor(ReceiveRequest request, Lane lane, int kind, Channel channel) {
    if (request.source() != Transport.ANY) {
      pullMore(lane);
      return;
    }
    for (Peer peer : rank.peers) {
      pullMore(lanes.find(channel.number, kind, peer.rank, request.tag()));
    }
  }

  /** Pulls as many as receives wait, if the source holds some. */
  private void pullMore(@Nullable Lane lane) {
    if (lane == null) {
      return;
    }
    if (lane.held && lane.pulled < lane.waiting + anyWaiting(lane)) {
      Peer peer = rank.peers[lane.source];
      while (lane.pulled < lane.waiting + anyWaiting(lane)) {
        lane.pulled++;
        peer.control(Kind.PULL, lane.kind, lane.channel, lane.tag, 0, 0);
      }
    }
    lanes.tidy(lane);
  }

  private int anyWaiting(Lane lane) {
    if (anyWaiting == 0) {
      return 0;
    }
    Lane any = lanes.find(lane.channel, lane.kind, Transport.ANY, lane.tag);
    return any == null ? 0 : any.waiting;
  }

  // --- withdrawing ------------------------------------------------------------------------------

  /** As {@link Transport#cancel}, but for a transfer that still writes: {@link #writing}. */
  boolean cancel(ReceiveRequest request) {
    if (!(request.note() instanceof Waiting waiting) || !waiting.isOf(request)) {
      return false;
    }
    return switch (waiting.state) {
      case QUEUED -> {
        Lane lane = requireNonNull(waiting.lane);
        unlink(waiting);
        recycle(waiting);
        lanes.tidy(lane);
        yield true;
      }
      case CLAIMING -> {
        Kept kept = requireNonNull(waiting.claimed);
        kept.claimant = null;
        recycle(waiting);
        relink(kept);
        yield true;
      }
      case ASKING, LANDING, OVER -> false;
    };
  }

  /** The transfer that still writes to the segments of a receive; null: none does. */
  static @Nullable Inbound writing(ReceiveRequest request) {
    return request.note() instanceof Waiting waiting && waiting.isOf(request)
        ? waiting.inbound
        : null;
  }

  /** Back to where it came from: it was the oldest of its lane, and is again. */
  private void relink(Kept kept) {
    Lane lane = lanes.findOrAdd(kept.channel, kept.kind, kept.peer.rank, kept.tag);
    Lane any = lanes.findOrAdd(kept.channel, kept.kind, Transport.ANY, kept.tag);
    lane.addOfSource(kept);
    any.addOfAny(kept);
    Waiting waiting = takeWaiting(lane, kept.channel, kept.kind, kept.tag);
    if (waiting != null) {
      unlink(kept);
      take(kept, waiting);
    }
  }

  // --- closing ----------------------------------------------------------------------------------

  /** Ends the receives of a channel that still wait for a message. */
  void failWaiting(Channel channel, TransportException cause) {
    for (Lane lane : lanes.of(channel.number)) {
      failWaiting(lane, cause);
    }
  }

  /** The peers of a channel do not answer: ends the receives that wait for that. */
  void giveUp(Channel channel, TransportException cause) {
    gaveUp = true;
    List<Asking> asked = new ArrayList<>(asking.values());
    asking.values().removeIf(one -> one.waiting.wanted().channel() == channel.number);
    asked.removeAll(asking.values());
    for (Asking one : asked) {
      channel.landing--;
      fail(one.waiting, cause);
    }
  }

  /** The world is over: nobody answers any more. */
  void abort(TransportException cause) {
    List<Asking> asked = new ArrayList<>(asking.values());
    asking.clear();
    asked.forEach(one -> fail(one.waiting, cause));
  }

  /** A peer's part in a channel is over: ends the receives that only it could serve. */
  void peerClosed(Channel channel, int peer) {
    boolean alone = channel.isAlone(rank.number);
    for (Lane lane : lanes.of(channel.number)) {
      if (lane.source == peer) {
        setHeld(lane, false);
        lane.pulled = 0;
        failWaiting(lane, Faults.peerClosed(peer));
      } else if (alone && lane.source == Transport.ANY) {
        failWaiting(lane, Faults.allClosed());
      }
    }
  }

  private void failWaiting(Lane lane, TransportException cause) {
    Waiting waiting;
    while ((waiting = lane.firstWaiting) != null) {
      unlink(waiting);
      fail(waiting, cause);
    }
    lanes.tidy(lane);
  }

  /** What is left of a channel after its end: whole messages are named, offers are refused. */
  List<Undelivered> close(Channel channel) {
    List<Kept> left = new ArrayList<>();
    for (Lane lane : lanes.of(channel.number)) {
      for (Kept kept = lane.firstKept; kept != null && lane.source != Transport.ANY; ) {
        left.add(kept);
        kept = kept.next;
      }
      setHeld(lane, false);
      lane.pulled = 0;
      lanes.tidy(lane);
    }
    left.sort(Comparator.comparingLong(kept -> kept.order));
    List<Undelivered> undelivered = new ArrayList<>();
    for (Kept kept : left) {
      unlink(kept);
      close(kept, undelivered);
    }
    return undelivered;
  }

  private void close(Kept kept, List<Undelivered> undelivered) {
    switch (kept.state) {
      case WHOLE -> {
        String name = kept.kind == Frame.COLLECTIVE ? "collective" : "send";
        undelivered.add(new Undelivered(name, kept.peer.rank, rank.number, kept.tag, kept.bytes));
        drop(kept);
      }
      case OFFERED -> {
        drop(kept);
        refuse(kept.peer, kept.id);
      }
      case FAULTY -> drop(kept);
      case LANDING -> {
        // The close gave up waiting for it; what comes is dropped then.
      }
    }
  }

  // --- receives that are over -------------------------------------------------------------------

  private Waiting waiting(ReceiveRequest request) {
    Waiting waiting = unused;
    if (waiting == null) {
      waiting = new Waiting();
    } else {
      unused = waiting.next;
      unusedCount--;
      waiting.next = null;
    }
    waiting.request = request;
    return waiting;
  }

  private void recycle(Waiting waiting) {
    waiting.request = null;
    waiting.claimed = null;
    waiting.inbound = null;
    waiting.state = Waiting.State.OVER;
    if (unusedCount < UNUSED_MAX) {
      waiting.next = unused;
      unused = waiting;
      unusedCount++;
    }
  }

  private void unlink(Waiting waiting) {
    Lane lane = requireNonNull(waiting.lane);
    lane.remove(waiting);
    if (waiting.wanted().source() == Transport.ANY) {
      anyWaiting--;
      lanes.tidy(lane);
    }
  }

  private void fail(Waiting waiting, TransportException cause) {
    Request request = waiting.wanted();
    recycle(waiting);
    rank.ends++;
    request.failed(cause);
  }

  /** The sender took its message back: the receive waits on, where it stood. */
  private void waitOn(Waiting waiting) {
    Channel channel = rank.channel(waiting.wanted().channel());
    waiting.claimed = null;
    waiting.inbound = null;
    if (channel.closed) {
      fail(waiting, Faults.closed(rank.number));
    } else if (waiting.wanted().isWithdrawn()) {
      // Who withdrew it was told that it would end.
      fail(waiting, Faults.withdrawn());
    } else {
      match(waiting, channel);
    }
  }

  // --- transfers --------------------------------------------------------------------------------

  /** The bytes of an offer on their way to its receive. */
  private final class Landing extends Inbound {
    private final Waiting waiting;
    private final long bytes;
    private final @Nullable MemorySegment made;

    Landing(
        Peer peer,
        long id,
        MemorySegment[] into,
        boolean staged,
        Waiting waiting,
        @Nullable MemorySegment made) {
      super(
          Intake.this.rank,
          peer,
          Intake.this.rank.channel(waiting.wanted().channel()),
          id,
          new long[] {Segments.bytes(into)},
          into,
          staged);
      this.waiting = waiting;
      this.bytes = Segments.bytes(into);
      this.made = made;
    }

    @Override
    void landed() {
      ReceiveRequest request = waiting.wanted();
      recycle(waiting);
      rank.ends++;
      request.received(peer.rank, bytes, made);
    }

    @Override
    void nothing() {
      waitOn(waiting);
    }

    @Override
    void broken(TransportException cause) {
      fail(waiting, cause);
    }
  }

  /** The bytes of an offer on their way to memory of ours. */
  private final class EarlyLanding extends Inbound {
    private final Kept kept;

    EarlyLanding(Kept kept, MemorySegment block) {
      super(
          Intake.this.rank,
          kept.peer,
          Intake.this.rank.channel(kept.channel),
          kept.id,
          new long[] {kept.bytes},
          new MemorySegment[] {block},
          kept.staged);
      this.kept = kept;
    }

    @Override
    void landed() {
      kept.state = Kept.State.WHOLE;
      Waiting claimant = kept.claimant;
      if (claimant != null) {
        kept.claimant = null;
        take(kept, claimant);
      } else if (kept.lane == null) {
        drop(kept);
      }
    }

    @Override
    void nothing() {
      Waiting claimant = forget();
      if (claimant != null) {
        waitOn(claimant);
      }
    }

    @Override
    void broken(TransportException cause) {
      Waiting claimant = forget();
      if (claimant != null) {
        fail(claimant, cause);
      }
    }

    private @Nullable Waiting forget() {
      Waiting claimant = kept.claimant;
      kept.claimant = null;
      if (claimant == null && kept.lane != null) {
        unlink(kept);
      }
      drop(kept);
      return claimant;
    }
  }

  @Override
  public String toString() {
    return lanes.count() + " lanes, " + heldLanes + " held by peers";
  }

  // --- for tests --------------------------------------------------------------------------------

  int lanes() {
    return lanes.count();
  }
}
