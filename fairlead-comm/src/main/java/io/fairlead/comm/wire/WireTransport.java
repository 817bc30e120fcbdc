package io.fairlead.comm.wire;

import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.MessageListener;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportCaps;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.fault.Mutant;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * A transport over a {@link Wire}: one rank's end of the protocol.
 *
 * <h2>What goes over the wire</h2>
 *
 * Packets ({@link Frame}, {@link Kind}, {@link Routes}), and bulk where a packet is too short.
 * Between two ranks:
 *
 * <pre>
 * short send     EAGER →                            sent: when it went
 * long send      OFFER →  ← TAKE   bulk →           sent: when the bulk went
 * short message  MESSAGE →  ← DONE                  sent: when it was accepted
 * long message   MESSAGE_OFFER →  ← TAKE   bulk →   sent: when the bulk went
 * put            PUT →  ← DONE, or PUT_OFFER →  ← TAKE   bulk →  ← DONE
 * get            GET →  ← GOT, or GET →  ← GET_OFFER   TAKE →  ← bulk
 * wrong length   OFFER →  ← USE   USED →
 * no credit      HELD →  ← PULL   then as above
 * </pre>
 *
 * <h2>What bounds it</h2>
 *
 * Packets on their way, by the window; messages that nobody asked for, by credit; transfers, by
 * bulk tags and memory for staging. {@link Peer}, {@link Departures} and {@link Landings} say how.
 * What is needed for progress (answers, credits, pulls, collectives that are waited for, closing)
 * never waits for credit, and every packet is taken off the wire at once, so no flood can stand in
 * the way of what somebody waits for.
 *
 * <h2>Ends</h2>
 *
 * A channel is closed in order: the peers are told, and answer after everything that they have sent
 * there; what was offered to them is withdrawn, and they say whether they were quicker. So each
 * message is either delivered, or named, or failed. A peer that does not answer within {@link
 * #CLOSE_WAIT} is not waited for any longer, which is logged.
 *
 * <h2>State</h2>
 *
 * One thread at a time is inside, by the wire's thread level; so there is no lock and no volatile
 * field in this package.
 */
public final class WireTransport implements Transport {
  private static final System.Logger LOG = System.getLogger("io.fairlead.comm");

  /** A close answers within five seconds, whatever the peers do; both halves of it together. */
  private static final Duration CLOSE_WAIT = Duration.ofMillis(3_500);

  /** The words of an abort have so long to get to ranks that may be gone. */
  private static final long ABORT_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

  /** Channels of the root have the first numbers, those of others are spread over the rest. */
  private static final int DIRECT_CHANNELS = 1 << 24;

  private final Wire wire;
  private final Rank rank;
  private final Departures departures;
  private final Intake intake;
  private final Arrivals arrivals;
  private final Copies copies;
  private final TransportCaps caps;
  private final Incoming incoming = new Incoming();
  private final long closeNanos;
  private boolean closed;

  /**
   * The transport of the wire's rank, which owns the wire from now on. Greets the peers, which
   * needs no answer now. On a thread that may enter the wire.
   */
  public WireTransport(Wire wire, TransportSettings settings) {
    this(wire, settings, CLOSE_WAIT);
  }

  /**
   * The same with another patience.
   *
   * @param closeWait how long a close waits for peers that do not answer, and a cancel for the
   *     library
   */
  public WireTransport(Wire wire, TransportSettings settings, Duration closeWait) {
    check(wire);
    this.closeNanos = closeWait.toNanos();
    this.wire = wire;
    this.rank = new Rank(wire, settings);
    this.departures = rank.departures();
    this.intake = new Intake(rank);
    this.arrivals = new Arrivals(rank);
    this.copies = rank.copies();
    this.caps = new TransportCaps(true, true, Integer.MAX_VALUE);
    for (Peer peer : rank.peers) {
      peer.control(Kind.HELLO, 0, 0, 0, 0, 0);
    }
    rank.flush();
  }

  private static void check(Wire wire) {
    if (wire.packetBytes() < Wire.PACKET_BYTES_LEAST
        || wire.packetsPerPeer() < Wire.PACKETS_PER_PEER_LEAST
        || wire.bulkTags() < Wire.BULK_TAGS_LEAST
        || wire.bulkBytesMax() < Wire.PACKET_BYTES_LEAST) {
      throw new IllegalArgumentException(
          wire.name()
              + " has packets of "
              + wire.packetBytes()
              + " bytes, "
              + wire.packetsPerPeer()
              + " a peer, "
              + wire.bulkTags()
              + " bulk tags and at most "
              + wire.bulkBytesMax()
              + " bytes a bulk: see the least of each in Wire");
    }
  }

  @Override
  public String name() {
    return wire.name();
  }

  @Override
  public int rank() {
    return rank.number;
  }

  @Override
  public int size() {
    return rank.size;
  }

  @Override
  public ThreadLevel threadLevel() {
    return wire.threadLevel();
  }

  @Override
  public TransportCaps caps() {
    return caps;
  }

  // --- channels ---------------------------------------------------------------------------------

  /**
   * The number is made of the parent's and the index alone, so every rank finds the same. Two
   * children of one parent never share a number; should two parents' children do so, that is an
   * error here.
   */
  @Override
  public int openChannel(int parent, int index) {
    int number = channelNumber(parent, index);
    if (closed) {
      return number; // that of a channel which nobody knows: what comes to it fails
    }
    long name = (long) parent << Integer.SIZE | index;
    Channel channel = rank.channel(number);
    if (channel.opened && channel.name != name) {
      throw new IllegalStateException(
          "the children "
              + index
              + " of channel "
              + parent
              + " and "
              + (int) channel.name
              + " of channel "
              + (channel.name >>> Integer.SIZE)
              + " would have the same number: close one of them first, or duplicate the root");
    }
    if (!channel.opened) {
      channel.opened = true;
      channel.name = name;
      leaveWithParent(channel, rank.isForgotten(parent) ? null : rank.channel(parent));
    }
    return number;
  }

  /** Who has closed the parent, or all have, never comes to its children. */
  private void leaveWithParent(Channel channel, @Nullable Channel parent) {
    for (Peer peer : rank.peers) {
      boolean left = parent == null || parent.isGone(peer.rank);
      if (left && peer.rank != rank.number) {
        leave(channel, peer);
      }
    }
  }

  private static int channelNumber(int parent, int index) {
    if (index < 0) {
      throw new IllegalArgumentException("a child's index is not negative: " + index);
    }
    if (parent == ROOT_CHANNEL && index < DIRECT_CHANNELS) {
      return index + 1;
    }
    long rest = Integer.MAX_VALUE - DIRECT_CHANNELS - 1L;
    // The finaliser of splitmix64, so that the numbers of parents lie far apart.
    long mixed = (parent + 1L) * 0x9E37_79B9_7F4A_7C15L;
    mixed = (mixed ^ mixed >>> 30) * 0xBF58_476D_1CE4_E5B9L;
    mixed = (mixed ^ mixed >>> 27) * 0x94D0_49BB_1331_11EBL;
    mixed ^= mixed >>> 31;
    long base = Long.remainderUnsigned(mixed, rest);
    return (int) (DIRECT_CHANNELS + 1 + (base + index) % rest);
  }

  /** The request's channel; null, and the request failed, if nothing can be posted on it. */
  private @Nullable Channel enter(Request request, int peer) {
    Channel channel = rank.known(request.channel());
    if (channel == null && !closed && !rank.isForgotten(request.channel())) {
      throw new IllegalArgumentException("no channel " + request.channel() + " was opened");
    }
    TransportException fault = rank.fault;
    if (fault == null && (channel == null || channel.closed)) {
      fault = Faults.closed(rank.number);
    } else if (fault == null && request.isWithdrawn()) {
      fault = Faults.withdrawn();
    } else if (fault == null && peer != ANY && isGone(requireKnown(channel), peer)) {
      fault = Faults.peerClosed(peer);
    }
    if (fault != null) {
      request.failed(fault);
      return null;
    }
    return channel;
  }

  private static Channel requireKnown(@Nullable Channel channel) {
    if (channel == null) {
      throw new AssertionError("checked before");
    }
    return channel;
  }

  private boolean isGone(Channel channel, int peer) {
    return channel.isGone(peer) || rank.peers[peer].isGone();
  }

  // --- requests ---------------------------------------------------------------------------------

  @Override
  public void send(SendRequest request) {
    if (enter(request, request.target()) != null) {
      departures.send(request, rank.peers[request.target()]);
      rank.leave();
    }
  }

  @Override
  public void message(MessageRequest request) {
    if (enter(request, request.target()) != null) {
      departures.message(request, rank.peers[request.target()]);
      rank.leave();
    }
  }

  @Override
  public void receive(ReceiveRequest request) {
    // What a peer sent before it closed can still be received.
    Channel channel = enter(request, ANY);
    if (channel != null) {
      intake.receive(request, channel);
      rank.leave();
    }
  }

  @Override
  public void put(CopyRequest request) {
    if (enter(request, request.peer()) != null) {
      copies.put(request, rank.peers[request.peer()]);
      rank.leave();
    }
  }

  @Override
  public void get(CopyRequest request) {
    if (enter(request, request.peer()) != null) {
      copies.get(request, rank.peers[request.peer()]);
      rank.leave();
    }
  }

  @Override
  public void listen(int number, MessageListener listener) {
    Channel channel = rank.known(number);
    if (channel != null) {
      arrivals.listen(channel, listener);
      rank.leave();
    }
  }

  @Override
  public long expose(MemorySegment segment) {
    TransportException ended = closed ? Faults.closed(rank.number) : rank.fault;
    if (ended != null) {
      throw ended;
    }
    return copies.expose(segment);
  }

  @Override
  public void conceal(long key) {
    copies.conceal(key);
  }

  /**
   * As the contract says. A send that is taken back at the very moment at which a receive has taken
   * it leaves the receive to the next message that nobody has taken, even if a later receive has
   * got an older one by then. If the library itself is reading or writing the memory of the
   * request, the end of that is waited for: there is no other way to be sure that it is not touched
   * any more.
   */
  @Override
  public boolean cancel(Request request) {
    boolean gone =
        request instanceof ReceiveRequest receive
            ? intake.cancel(receive)
            : departures.cancel(request);
    rank.leave();
    if (!gone && !rank.polling && !await(() -> !isBulkGoingOn(request), closeNanos)) {
      LOG.log(
          System.Logger.Level.WARNING,
          "a peer does not go on with a transfer that rank {0} cancelled: its memory may still be"
              + " in use",
          rank.number);
    }
    return gone;
  }

  /** Whether the library itself still reads or writes the memory of a request. */
  private static boolean isBulkGoingOn(Request request) {
    if (request instanceof ReceiveRequest receive) {
      Inbound writing = Intake.writing(receive);
      return writing != null && writing.live && !writing.discard();
    }
    return request.note() instanceof Op op && op.state == Op.State.SENDING && !op.dropped;
  }

  // --- progress ---------------------------------------------------------------------------------

  @Override
  public int poll() {
    if (closed) {
      return 0;
    }
    boolean found = pollWire();
    int ends = rank.ends;
    rank.ends = 0;
    return Math.max(ends, found ? 1 : 0);
  }

  /** Answers whether something happened. */
  private boolean pollWire() {
    rank.polling = true;
    int found;
    try {
      found = wire.poll(incoming);
    } finally {
      rank.polling = false;
    }
    intake.polled();
    settle();
    rank.flush();
    return found > 0;
  }

  @Override
  public boolean announceRest(Runnable bell) {
    return !closed && wire.announceRest(bell);
  }

  /** What waits for room on the way, and what is counted in polls, needs some. */
  @Override
  public boolean mayRest() {
    return !closed && rank.isQuiet() && !intake.countsPolls() && wire.mayRest();
  }

  @Override
  public boolean isResting() {
    return wire.isResting();
  }

  @Override
  public void endRest() {
    wire.endRest();
  }

  /** Polls until something is so, the world is over, or the time is. */
  private boolean await(BooleanSupplier condition, long nanos) {
    long begin = System.nanoTime();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - begin > nanos) {
        return false;
      }
      if (!pollWire()) {
        wire.pause();
      }
    }
    return true;
  }

  /** What a wire hands over. */
  private final class Incoming implements Wire.Listener {

    @Override
    public void packet(int source, MemorySegment memory, int bytes) {
      Peer peer = rank.peers[source];
      if (peer.left) {
        return; // no more than an acknowledgement, of which nothing is expected any more
      }
      if (Frame.isShort(memory, bytes)) {
        shortSend(peer, memory, bytes);
        return;
      }
      int payload = bytes - Frame.HEADER;
      if (payload < 0 || bytes > wire.packetBytes()) {
        rank.lie(peer, "a packet of " + bytes + " bytes");
        return;
      }
      long word = Frame.word(memory);
      Kind kind = Kind.of(Frame.kind(word));
      if (kind == null) {
        rank.lie(peer, "a packet of kind " + Frame.kind(word));
        return;
      }
      long credits = Frame.credits(memory);
      if (!peer.heard(kind != Kind.ACK, Frame.high(word), (int) credits, (int) (credits >>> 32))) {
        rank.lie(peer, "counts of packets or credit that go back");
        return;
      }
      if (!peer.greeted && kind != Kind.HELLO && kind != Kind.ABORT) {
        rank.lie(peer, "a packet (" + kind + ") before its greeting");
        return;
      }
      if (peer.isAckDue() || peer.isWaiting()) {
        rank.dirty(peer);
      }
      if (!rank.isOver() || kind == Kind.BYE) {
        dispatch(peer, kind, memory, Frame.flags(word), payload);
      }
    }

    private void shortSend(Peer peer, MemorySegment memory, int bytes) {
      if (!peer.heardShort()) {
        rank.lie(peer, "more packets than there is room for on the way");
        return;
      }
      int route = Frame.route(memory);
      long lane = peer.heard.lane(route);
      if (lane == Routes.NONE) { // or it has not even greeted
        rank.lie(peer, "a short send by route " + route + ", which it never spoke");
        return;
      }
      if (peer.isAckDue() || peer.isWaiting()) {
        rank.dirty(peer);
      }
      if (!rank.isOver()) {
        intake.shortSend(peer, lane, memory, bytes - Frame.SHORT_HEADER);
      }
    }

    @Override
    public void lost(int peer, Throwable cause) {
      if (peer < 0 || !rank.peers[peer].isGone()) {
        rank.fail(Faults.lost(peer, cause));
      }
    }
  }

  private void dispatch(Peer peer, Kind kind, MemorySegment memory, int flags, int payload) {
    switch (kind) {
      case EAGER -> intake.eager(peer, memory, flags, payload);
      case ACK -> {
        // The header said it all.
      }
      case OFFER -> intake.offer(peer, memory, flags);
      case TAKE ->
          departures.take(
              peer,
              Frame.id(memory),
              new Op.Take(Frame.tag(memory), Frame.bytes(memory), Frame.channel(memory)));
      case DONE -> done(peer, memory, payload);
      case ENDED ->
          departures.ended(
              peer,
              Frame.id(memory),
              Frame.tag(memory),
              Frame.getWords(memory, Frame.HEADER + payload));
      case MESSAGE, MESSAGE_OFFER, FRONT_OFFER ->
          arrivals.message(peer, kind, memory, flags, payload);
      case USE -> departures.use(peer, Frame.id(memory));
      case USED -> intake.used(peer, Frame.id(memory), Frame.tag(memory) == 1);
      case PUT, PUT_OFFER, GET -> copies.asked(peer, kind, memory, flags, payload);
      case GOT -> copies.got(peer, memory, payload);
      case GET_OFFER -> copies.getOffer(peer, memory, flags, payload);
      case HELD, PULL, EMPTY, WITHDRAW -> lane(peer, kind, memory, flags);
      case HELLO -> hello(peer, memory, payload);
      case CLOSE -> peerClosed(peer, Frame.channel(memory));
      case SEEN -> seen(peer, Frame.channel(memory));
      case ABORT -> aborted(peer, Frame.getWords(memory, Frame.HEADER + payload));
      case BYE -> bye(peer);
    }
  }

  private void hello(Peer peer, MemorySegment memory, int payload) {
    String wrong = peer.greeted ? "a second greeting" : Hello.read(rank, peer, memory, payload);
    if (!wrong.isEmpty()) {
      rank.lie(peer, wrong);
    }
    rank.dirty(peer);
  }

  private void done(Peer peer, MemorySegment memory, int payload) {
    long count = Frame.bytes(memory);
    if (count < 0 || count > payload / Long.BYTES) {
      rank.lie(peer, count + " answers in " + payload + " bytes");
      return;
    }
    for (int i = 0; i < count; i++) {
      long id = Frame.getLong(memory, Frame.HEADER + (long) i * Long.BYTES);
      departures.ended(peer, id, Answers.WELL, "");
    }
  }

  /** What is said of what is held back. */
  private void lane(Peer peer, Kind kind, MemorySegment memory, int flags) {
    int channel = Frame.channel(memory);
    int tag = Frame.tag(memory);
    int laneKind = flags & (Frame.COLLECTIVE | Frame.MESSAGE);
    boolean pulled = (flags & Frame.PULLED) != 0;
    boolean message = (flags & Frame.MESSAGE) != 0;
    switch (kind) {
      case PULL -> departures.pull(peer, channel, laneKind, tag);
      case HELD -> {
        if (message) {
          arrivals.held(peer, channel);
        } else {
          intake.held(peer, channel, laneKind, tag);
        }
      }
      case EMPTY -> {
        if (message) {
          arrivals.empty(peer, channel, pulled);
        } else {
          intake.empty(peer, channel, laneKind, tag, pulled);
        }
      }
      default -> {
        if (message) {
          arrivals.withdraw(peer, channel, Frame.id(memory));
        } else {
          intake.withdraw(peer, channel, laneKind, tag, Frame.id(memory));
        }
      }
    }
  }

  // --- failures ---------------------------------------------------------------------------------

  @Override
  public void abort(Throwable cause) {
    if (closed) {
      return;
    }
    // Another rank may have failed first, and its word be here already.
    pollWire();
    rank.fail(
        new TransportException(
            Reason.PEER_FAILED, "rank " + rank.number + " failed: " + cause, cause));
    settle();
    rank.flush();
  }

  private void aborted(Peer peer, String words) {
    peer.knowsFault = true;
    rank.fail(Faults.said(peer.rank, words));
  }

  /** Tells everybody here what was found, and the peers. */
  private void settle() {
    TransportException cause = rank.takeFound();
    if (cause == null) {
      return;
    }
    rank.fault = cause;
    wire.abandon();
    for (Peer peer : rank.peers) {
      boolean other = peer.rank != rank.number && !Mutant.on("wire.keeps-fault");
      if (other && !peer.knowsFault) {
        peer.words(Kind.ABORT, 0, 0, Faults.words(cause));
      }
    }
    for (Peer peer : rank.peers) {
      departures.failHeld(peer, cause);
    }
    rank.ops.forEach(op -> departures.finish(op, cause));
    rank.landings().abort(cause);
    intake.abort(cause);
    for (Channel channel : rank.channels()) {
      intake.failWaiting(channel, cause);
      arrivals.abort(channel);
    }
  }

  // --- ends -------------------------------------------------------------------------------------

  private void peerClosed(Peer peer, int number) {
    if (!rank.isForgotten(number)) { // where it would come to life again
      leave(rank.channel(number), peer);
    }
    peer.control(Kind.SEEN, 0, number, 0, 0, 0);
  }

  /** The peer takes no part any more in a channel, nor in its children. */
  private void leave(Channel channel, Peer peer) {
    if (channel.leave(peer.rank) && peer.rank != rank.number) {
      TransportException cause = Faults.peerClosed(peer.rank);
      departures.failHeld(channel.number, peer, cause);
      intake.peerClosed(channel, peer.rank);
      for (Channel child : children(channel)) {
        leave(child, peer);
      }
    }
    if (channel.isForgettable(rank.number)) {
      rank.forget(channel);
    }
  }

  private List<Channel> children(Channel channel) {
    return rank.channels().stream().filter(each -> each.isChildOf(channel)).toList();
  }

  private void seen(Peer peer, int number) {
    if (!rank.isForgotten(number)) { // where it would come to life again
      rank.channel(number).seen(peer.rank);
    }
  }

  private void bye(Peer peer) {
    peer.leaving = true;
    peer.ackNow();
    rank.dirty(peer);
    TransportException cause = Faults.peerClosed(peer.rank);
    departures.failHeld(peer, cause);
    rank.ops.forEach(
        op -> {
          if (op.peer == peer && peer.rank != rank.number) {
            departures.finish(op, cause);
          }
        });
  }

  @Override
  public List<Undelivered> closeChannel(int number) {
    Channel channel = rank.known(number);
    if (closed || channel == null || channel.closed) {
      return List.of();
    }
    return closeChannel(channel, System.nanoTime() + closeNanos);
  }

  private List<Undelivered> closeChannel(Channel channel, long deadline) {
    List<Undelivered> all = new ArrayList<>();
    for (Channel child : children(channel)) {
      if (!child.closed) {
        all.addAll(closeChannel(child, deadline));
      }
    }
    all.addAll(closeOne(channel, deadline));
    return all;
  }

  private List<Undelivered> closeOne(Channel channel, long deadline) {
    channel.closed = true;
    TransportException cause = Faults.closed(rank.number);
    departures.failHeld(channel.number, null, cause);
    intake.failWaiting(channel, cause);
    arrivals.close(channel);
    for (Peer peer : rank.peers) {
      if (!peer.isGone()) {
        peer.control(Kind.CLOSE, 0, channel.number, 0, 0, 0);
      }
    }
    rank.flush();
    boolean quiet =
        await(() -> rank.fault != null || isQuiet(channel), deadline - System.nanoTime());
    if (!quiet) {
      giveUp(channel, cause);
    }
    List<Undelivered> undelivered = intake.close(channel);
    rank.flush();
    channel.finished = true;
    if (channel.isForgettable(rank.number)) {
      rank.forget(channel);
    }
    return undelivered;
  }

  /** Nothing of the channel is on its way any more; asks back what is not wanted yet. */
  private boolean isQuiet(Channel channel) {
    boolean quiet = channel.landing == 0;
    for (Peer peer : rank.peers) {
      quiet &= peer.isGone() || channel.isQuiet(peer.rank);
    }
    boolean[] none = {true};
    rank.ops.forEach(
        op -> {
          if (op.channel == channel.number && op.request != null) {
            none[0] = false;
            departures.askBack(op);
          }
        });
    rank.flush();
    return quiet && none[0];
  }

  private void giveUp(Channel channel, TransportException cause) {
    List<Integer> silent = new ArrayList<>();
    for (Peer peer : rank.peers) {
      if (!peer.isGone() && !channel.isQuiet(peer.rank)) {
        silent.add(peer.rank);
      }
    }
    LOG.log(
        System.Logger.Level.WARNING,
        "rank {0} closed channel {1} without an answer from ranks {2}: messages from them may be"
            + " lost",
        rank.number,
        channel.number,
        silent);
    rank.landings().giveUp(channel, cause);
    intake.giveUp(channel, cause);
    rank.ops.forEach(
        op -> {
          if (op.channel == channel.number && op.request != null) {
            departures.finish(op, cause);
          }
        });
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    long deadline = System.nanoTime() + closeNanos;
    List<Undelivered> undelivered = new ArrayList<>();
    for (Channel channel : rank.channels()) {
      if (channel.opened && !channel.closed) {
        undelivered.addAll(closeChannel(channel, deadline));
      }
    }
    copies.concealAll();
    sayGoodbye(deadline);
    closed = true;
    wire.close();
    if (!undelivered.isEmpty()) {
      LOG.log(System.Logger.Level.WARNING, "closed with messages not received: " + undelivered);
    }
  }

  /** Sees to it that everything has arrived, and that nobody waits for this rank. */
  private void sayGoodbye(long deadline) {
    for (Peer peer : rank.peers) {
      if (!peer.isGone() && peer.rank != rank.number) {
        peer.part();
      }
    }
    rank.flush();
    long left = deadline - System.nanoTime();
    if (!await(this::isAllGone, rank.fault == null ? left : Math.min(left, ABORT_NANOS))) {
      wire.abandon();
    }
  }

  private boolean isAllGone() {
    for (Peer peer : rank.peers) {
      boolean done = peer.left || (!peer.leaving && peer.isAllAcked());
      if (!done && peer.rank != rank.number) {
        return false;
      }
    }
    return true;
  }

  /** What is going on, for whoever looks for what hangs. */
  @Override
  public String toString() {
    StringBuilder text = new StringBuilder();
    text.append("WireTransport[rank ").append(rank.number).append(" of ").append(rank.size);
    text.append(", ").append(rank.ops.live()).append(" operations, ");
    text.append(rank.landings().live()).append(" transfers, ").append(intake);
    for (Peer peer : rank.peers) {
      text.append("; ").append(peer);
    }
    return text.append(']').toString();
  }

  // --- for tests --------------------------------------------------------------------------------

  /** Native memory that holds messages which nobody has received. */
  long bytesKept() {
    return rank.kept.bytesUsed();
  }

  /** Active messages that wait for a listener, also those that were taken back. */
  int arrived() {
    return rank.channels().stream().mapToInt(channel -> channel.arrived.size()).sum();
  }

  /** Messages to a peer whose credit has not come back. */
  int creditOut(int peer) {
    return rank.peers[peer].creditOut();
  }

  /** Lanes, operations that wait for an answer, transfers to this rank, lanes held back. */
  int[] counts() {
    return new int[] {intake.lanes(), rank.ops.live(), rank.landings().live(), departures.held()};
  }
}
