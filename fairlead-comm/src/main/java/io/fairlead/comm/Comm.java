package io.fairlead.comm;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.Entry.Way;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import io.fairlead.task.TaskRuntime;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * One rank's communicator: messages to and from the other ranks.
 *
 * <p><b>Threads.</b> Any thread may call any method at any time. Whether it enters the transport
 * itself or hands the call to the communication thread is decided for every call, by who calls;
 * device managers and cleaners never enter. Nothing blocks; what takes time answers a {@link
 * Completion}. Three things park a task (and block another thread) instead of refusing: a send with
 * {@code after} while all its places are taken, {@link #lend}, and a shifted call while the queue
 * is full. Threads that must not wait are refused there: the completion fails.
 *
 * <p><b>Memory.</b> Segments belong to the operation from the call until its completion is settled.
 * They are read and written by whichever thread ends the operation, so confined arenas are refused.
 * Cancelling a completion withdraws its send or receive: once {@code cancel} has returned on a
 * thread that may enter the transport, its memory is not touched any more. A wait that ends early
 * (a deadline, a cancelled task) withdraws nothing.
 *
 * <p><b>Order.</b> Messages from one rank with one tag are received in the order in which they were
 * sent. Active messages of one rank are handled in the order in which they were sent.
 *
 * <p><b>Errors.</b> Wrong arguments are thrown at once. Everything else fails the completion, with
 * a {@link CommException} that names the operation. When one rank fails ({@link #fail}), every
 * pending and later operation of every rank fails with its cause.
 *
 * <p><b>State</b>: {@code closing} moves once, by compare-and-set; {@code closed} settles after it.
 * {@code sequence} and {@code children} only grow. {@code undelivered} and {@code duplicates} are
 * copied on write. {@code spare} is exchanged. No locks.
 */
public final class Comm implements AutoCloseable {

  /** The peer of a receive that takes a message from any rank. */
  public static final int ANY = Transport.ANY;

  private static final System.Logger LOG = System.getLogger("io.fairlead.comm");

  private final CommEngine engine;
  private final int channel;
  private final boolean root;
  private final Inflow inflow;
  private final GatedSends gatedSends;
  private final List<Comm> duplicates = new CopyOnWriteArrayList<>();
  private final List<Undelivered> undelivered = new CopyOnWriteArrayList<>();
  private final AtomicInteger sequence = new AtomicInteger();
  private final AtomicInteger children = new AtomicInteger();
  private final AtomicReference<double[]> spare = new AtomicReference<>(Reduction.NONE);
  private final AtomicBoolean closing = new AtomicBoolean();
  private final Completion.Source<@Nullable Void> closed = Completion.source();

  private Comm(CommEngine engine, int channel, boolean root) {
    this.engine = engine;
    this.channel = channel;
    this.root = root;
    this.inflow = new Inflow(engine);
    this.gatedSends = new GatedSends(engine);
  }

  /**
   * The communicator over a transport, which it owns and closes. Called by the thread that opened
   * the transport; never blocks.
   */
  public static Comm over(TaskRuntime tasks, Transport transport, CommConfig config) {
    Comm comm = new Comm(new CommEngine(tasks, transport, config), Transport.ROOT_CHANNEL, true);
    comm.listen();
    return comm;
  }

  private void listen() {
    switch (engine.way(Operation.OPEN)) {
      case INLINE -> engine.inside(this::listenInside);
      case SHIFT -> engine.loop().push(new CommEngine.Entering(this::listenShifted));
      case REFUSE -> throw new AssertionError("only progress is refused");
    }
  }

  private boolean listenInside() {
    engine.transport.listen(channel, inflow);
    return true;
  }

  private void listenShifted() {
    engine.inside(this::listenInside);
  }

  /** This rank, 0 … {@link #size()} − 1. */
  public int rank() {
    return engine.rank();
  }

  /** The number of ranks. */
  public int size() {
    return engine.size();
  }

  // --- send and receive -------------------------------------------------------------------------

  /**
   * Sends the blobs, as one run of bytes, to a receive with the same tag.
   *
   * @return done when the blobs may be reused: at once if the receive was posted or the receiver
   *     has room, else when the message is received. Null as its value
   * @throws IllegalArgumentException for a wrong peer or tag, or confined memory
   */
  public Completion<@Nullable Void> send(int peer, int tag, MemorySegment... blobs) {
    checkPeer(peer);
    checkTag(tag);
    Sending sending = new Sending(engine, channel, peer, tag, HostBlob.shared(blobs));
    engine.post(sending, Operation.SEND);
    return sending.completion();
  }

  /**
   * As {@link #send(int, int, MemorySegment...)}, once {@code after} is done; nobody blocks for it.
   * The place of the send is taken now, so that whoever settles {@code after}, a device manager
   * too, can start the send without waiting and without being refused. If {@code after} fails or is
   * cancelled, so does the send, with that cause, and nothing is sent.
   *
   * @param after what must be done first; null: nothing
   * @param blobs the pieces; lent buffers become the engine's now, and device buffers are copied
   *     out now, in the order of the task's stream: {@code after} holds back only the message
   */
  public Completion<@Nullable Void> send(
      int peer, int tag, @Nullable Completion<?> after, Blob... blobs) {
    checkPeer(peer);
    checkTag(tag);
    Parcel parcel = Parcel.of(engine, blobs);
    Sending sending = new Sending(engine, channel, peer, tag, parcel.segments());
    dispatch(sending, sending.outgoing, Operation.SEND, after, parcel);
    return sending.completion();
  }

  /**
   * Receives one message with this tag.
   *
   * @param peer the sender, or {@link #ANY}
   * @param into where the bytes go, scattered in order; all of them together must have the length
   *     of the message. None: the message comes, whatever its length, as {@link Received#data()}
   * @return the message; fails with a {@link CommException} if its length is another (the message
   *     is used up, and its sender is told it was sent)
   * @throws IllegalArgumentException for a wrong peer or tag, or confined or read-only memory
   */
  public Completion<Received> receive(int peer, int tag, MemorySegment... into) {
    if (peer != ANY) {
      checkPeer(peer);
    }
    checkTag(tag);
    MemorySegment[] places = into.length == 0 ? null : HostBlob.writable(into);
    Receiving receiving = new Receiving(engine, channel, peer, tag, places);
    engine.post(receiving, Operation.RECEIVE);
    return receiving.completion();
  }

  /**
   * As {@link #receive}, into device buffers, host memory, or both, in order. The data is on the
   * device when the completion is done; work enqueued after that is ordered after it.
   *
   * @param into the places, at least one; all of them together must have the length of the message
   * @throws IllegalArgumentException also for a lent buffer: those are for sending
   */
  public Completion<Received> receiveInto(int peer, int tag, Blob... into) {
    MemorySegment[] segments = new MemorySegment[into.length];
    boolean hostOnly = true;
    for (int i = 0; i < into.length; i++) {
      switch (into[i]) {
        case HostBlob host -> segments[i] = HostBlob.writable(host.segment());
        case DeviceBlob device -> hostOnly = false;
        case LentBuffer lent ->
            throw new IllegalArgumentException("a lent buffer is for sending: receive elsewhere");
      }
    }
    if (into.length == 0) {
      throw new IllegalArgumentException(
          "nowhere to receive into: name the places, or call receive(peer, tag)");
    }
    return hostOnly
        ? receive(peer, tag, segments)
        : new Landed(engine, into).after(receive(peer, tag));
  }

  private void dispatch(
      Request request,
      Outgoing outgoing,
      Operation operation,
      @Nullable Completion<?> other,
      Parcel parcel) {
    Completion<?> after = parcel.gate(other);
    if (after == null || after.state() == Completion.State.DONE) {
      outgoing.keep(parcel, null);
      engine.post(request, operation);
    } else if (gatedSends.reserve()) {
      outgoing.keep(parcel, gatedSends);
      outgoing.gated(gatedSends.add(request, operation, after));
    } else {
      outgoing.keep(parcel, null);
      engine.counters.refused.increment();
      request.failed(
          new TransportException(
              Reason.BACK_PRESSURE,
              "all "
                  + engine.config.gatedSends()
                  + " places for sends that wait are taken and this thread must not wait for one:"
                  + " submit from a task, or raise CommConfig.gatedSends",
              null));
    }
  }

  // --- active messages --------------------------------------------------------------------------

  /**
   * Sets what is done with messages for {@code handlerId}; once for each id. Messages that came
   * before wait for it, and so do those behind them.
   */
  public void handle(int handlerId, MessageHandler handler) {
    inflow.handle(handlerId, Objects.requireNonNull(handler, "handler"));
  }

  /**
   * Sends a header and any number of blobs to a handler of a peer.
   *
   * @return done when the header and the blobs may be reused; the handler may not have run yet
   */
  public Completion<@Nullable Void> message(
      int peer, int handlerId, MemorySegment header, Blob... blobs) {
    return message(peer, handlerId, null, header, blobs);
  }

  /** As {@link #message(int, int, MemorySegment, Blob...)}, once {@code after} is done. */
  public Completion<@Nullable Void> message(
      int peer, int handlerId, @Nullable Completion<?> after, MemorySegment header, Blob... blobs) {
    checkPeer(peer);
    if (header.byteSize() > engine.config.headerBytesMax()) {
      throw new IllegalArgumentException(
          "a header of "
              + header.byteSize()
              + " bytes is longer than "
              + engine.config.headerBytesMax()
              + ": send it as a blob, or raise CommConfig.headerBytesMax");
    }
    HostBlob.shared(header);
    Parcel parcel = Parcel.of(engine, blobs);
    Messaging messaging =
        new Messaging(engine, channel, peer, handlerId, header, parcel.segments());
    engine.counters.submitted.increment();
    dispatch(messaging, messaging.outgoing, Operation.MESSAGE, after, parcel);
    return messaging.outgoing.completion();
  }

  // --- lent buffers -----------------------------------------------------------------------------

  /**
   * Lends a buffer to be filled and sent; its content is undefined. Parks a task (blocks another
   * thread) while others hold all that may be lent, first come first served.
   *
   * @throws IllegalArgumentException if so much can never be lent
   * @throws IllegalStateException on a thread that must not wait: use {@link #tryLend}
   */
  public LentBuffer lend(long bytes) {
    return engine.lender.lend(bytes);
  }

  /** As {@link #lend}, or empty if that would have to wait. Never blocks. */
  public Optional<LentBuffer> tryLend(long bytes) {
    return engine.lender.tryLend(bytes);
  }

  // --- collectives ------------------------------------------------------------------------------
  //
  // Every rank calls the same collectives of a communicator in the same order, one task at a time.
  // Cancelling one only ends the wait: its memory stays in use until it has ended or the
  // communicator is closed.

  /** Done when every rank has called it. */
  public Completion<@Nullable Void> barrier() {
    return reduce(Reduction.NONE, ReduceOp.SUM, "barrier");
  }

  /**
   * Combines the values of all ranks, element by element, in rank order; the result is the same on
   * every rank, bit for bit, whatever the number of values and whoever comes first.
   *
   * @param inOut this rank's values, then the result; as many on every rank
   */
  public Completion<@Nullable Void> allReduce(double[] inOut, ReduceOp op) {
    return reduce(inOut, op, "all-reduce of " + inOut.length + " values");
  }

  private Completion<@Nullable Void> reduce(double[] inOut, ReduceOp op, String name) {
    Objects.requireNonNull(op, "op");
    return new Reduction(engine, channel, sequence.getAndIncrement(), name, inOut, op, spare)
        .begin();
  }

  /** Copies {@code data} of the root to {@code data}, of the same size, of every other rank. */
  public Completion<@Nullable Void> broadcast(int root, MemorySegment data) {
    checkPeer(root);
    HostBlob.shared(data);
    if (rank() != root) {
      HostBlob.writable(data);
    }
    return new Exchanges.Broadcast(engine, channel, sequence.getAndIncrement(), root, data).begin();
  }

  /**
   * Collects {@code mine}, of the same size on every rank, at the root.
   *
   * @param all at the root: room for the blocks of all ranks, side by side in rank order; else null
   */
  public Completion<@Nullable Void> gather(
      int root, MemorySegment mine, @Nullable MemorySegment all) {
    checkPeer(root);
    HostBlob.shared(mine);
    MemorySegment room = all == null ? Received.NO_DATA : all;
    if (rank() == root) {
      checkRoom(mine, room);
    }
    return new Exchanges.Gather(engine, channel, sequence.getAndIncrement(), root, mine, room)
        .begin();
  }

  /** Collects {@code mine}, of the same size on every rank, at every rank, in rank order. */
  public Completion<@Nullable Void> allGather(MemorySegment mine, MemorySegment all) {
    HostBlob.shared(mine);
    checkRoom(mine, all);
    return new Exchanges.AllGather(engine, channel, sequence.getAndIncrement(), mine, all).begin();
  }

  private void checkRoom(MemorySegment mine, MemorySegment all) {
    HostBlob.writable(all);
    if (all.byteSize() != Math.multiplyExact(mine.byteSize(), (long) size())) {
      throw new IllegalArgumentException(
          "the blocks of "
              + size()
              + " ranks of "
              + mine.byteSize()
              + " bytes need "
              + mine.byteSize() * size()
              + " bytes, 'all' has "
              + all.byteSize());
    }
  }

  // --- more communicators -----------------------------------------------------------------------

  /**
   * A communicator of the same ranks whose messages and collectives never meet those of this one.
   * Every rank calls it in the same order; nobody waits for the others.
   */
  public Comm duplicate() {
    int index = children.getAndIncrement();
    int number = open(index);
    Comm duplicate = new Comm(engine, number, false);
    duplicates.add(duplicate);
    duplicate.listen();
    if (closing.get()) {
      duplicate.close();
    }
    return duplicate;
  }

  private int open(int index) {
    if (engine.way(Operation.OPEN) == Way.INLINE) {
      return openInside(index);
    }
    Completion.Source<Integer> opened = Completion.source();
    engine
        .loop()
        .push(
            new LoopNode() {
              @Override
              void run() {
                opened.complete(openInside(index));
              }

              @Override
              void late() {
                opened.fail(CommEngine.over());
              }
            });
    return opened.completion().await();
  }

  private int openInside(int index) {
    return engine.inside(() -> engine.transport.openChannel(channel, index));
  }

  /** What this rank has done so far, over all its communicators. Any thread; never blocks. */
  public CommStats stats() {
    return engine.counters.snapshot();
  }

  /**
   * The messages to this rank that their senders were told are sent, and that nobody received
   * before this communicator closed. Empty while it is open.
   */
  public List<Undelivered> undelivered() {
    return List.copyOf(undelivered);
  }

  // --- the end ----------------------------------------------------------------------------------

  /**
   * Says that this rank cannot go on. Every pending and later operation of every rank, on this
   * communicator and its relatives, fails with {@code cause}. The first failure of all ranks
   * stands. Any thread; never blocks.
   */
  public void fail(Throwable cause) {
    Objects.requireNonNull(cause, "cause");
    engine.abort(cause);
    gatedSends.close(
        new TransportException(Reason.PEER_FAILED, "rank " + rank() + " failed: " + cause, cause));
  }

  /**
   * Ends this rank's part. Handlers run for the active messages that have arrived; then every
   * pending operation of this rank fails and says which it was, and so do operations of peers that
   * only this rank could complete. What this rank sent before, and was told is sent, stays to be
   * received. What was sent to it and not received is logged and kept as {@link #undelivered}.
   *
   * <p>Closing the communicator that {@link InProcess} or {@link #over} made closes its duplicates
   * and the transport too. Waits for running handlers, even if the task is cancelled; on a thread
   * that must not wait, or in a handler, the rest is done later. Twice is harmless. Close
   * communicators before the runtime.
   */
  @Override
  public void close() {
    boolean first = closing.compareAndSet(false, true);
    CommLoop loop = engine.startedLoop();
    if (loop != null && Role.current().mayWait()) {
      loop.noticeEnd();
    }
    boolean here = loop == null ? engine.way(Operation.CLOSE) == Way.INLINE : loop.isOwnThread();
    if (first && here) {
      closeInside();
    } else if (first) {
      engine.loop().push(new CommEngine.Callback(this::closeInside));
    }
    if (Role.current().mayWait()) {
      closed.completion().awaitUninterruptibly();
      awaitLoop();
    }
  }

  private void awaitLoop() {
    CommLoop loop = engine.startedLoop();
    if (root && loop != null) {
      loop.awaitEnd();
    }
  }

  /** On the communication thread; on the closing thread if there is none. */
  private void closeInside() {
    try {
      TransportException peers =
          new TransportException(Reason.PEER_CLOSED, "rank " + rank() + " closed", null);
      duplicates.forEach(Comm::close);
      gatedSends.close(CommEngine.over());
      List<Undelivered> left = new ArrayList<>(inflow.close(peers));
      left.addAll(engine.inside(() -> engine.transport.closeChannel(channel)));
      left.addAll(inflow.finish(peers));
      if (root) {
        engine.inside(this::closeTransport);
      }
      report(left);
    } finally {
      if (root) {
        engine.end();
      }
      closed.complete(null);
    }
  }

  private boolean closeTransport() {
    engine.transport.close();
    return true;
  }

  private void report(List<Undelivered> left) {
    if (left.isEmpty()) {
      return;
    }
    undelivered.addAll(left);
    engine.counters.undelivered.add(left.size());
    LOG.log(
        System.Logger.Level.WARNING,
        "rank "
            + rank()
            + " closed with "
            + left.size()
            + " messages not received, the first: "
            + left.getFirst());
  }

  // --- arguments --------------------------------------------------------------------------------

  private void checkPeer(int peer) {
    if (peer < 0 || peer >= size()) {
      throw new IllegalArgumentException(
          "there is no rank " + peer + ": ranks are 0 to " + (size() - 1));
    }
  }

  private void checkTag(int tag) {
    if (tag < 0 || tag > engine.transport.caps().tagMax()) {
      throw new IllegalArgumentException(
          "tag " + tag + " is not within 0 to " + engine.transport.caps().tagMax());
    }
  }

  /** For tests: bytes of active messages that wait here. */
  long messageBytesKept() {
    return inflow.bytesKept();
  }

  /** For tests. */
  CommEngine engine() {
    return engine;
  }

  @Override
  public String toString() {
    return "Comm[rank " + rank() + " of " + size() + ", channel " + channel + "]";
  }
}
