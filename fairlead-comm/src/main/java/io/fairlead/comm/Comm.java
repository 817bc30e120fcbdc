package io.fairlead.comm;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.Entry.Way;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import io.fairlead.task.TaskBody;
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
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * One rank's communicator: messages to and from the other ranks.
 *
 * <p><b>Threads.</b> Any thread may call any method at any time. Whether it enters the transport
 * itself or hands the call to the communication thread is decided for every call, by who calls;
 * device managers and cleaners never enter. Nothing blocks; what takes time answers a {@link
 * Completion}. Three things park a task (and block another thread) instead of refusing: a send that
 * has to wait while all places for such are taken, {@link #lend}, and a shifted call while the
 * queue is full. Threads that must not wait are refused there: the completion fails.
 *
 * <p><b>Memory.</b> Segments belong to the operation from the call until its completion is settled.
 * They are read and written by whichever thread ends the operation, so confined arenas are refused.
 * Cancelling a completion withdraws its send or receive: once {@code cancel} has returned on a
 * thread that may enter the transport, its memory is not touched any more. Where bytes are on their
 * way just then, that takes until they are there; 3.5 s at most, after which the log says so if a
 * peer does not go on. A wait that ends early (a deadline, a cancelled task) withdraws nothing.
 *
 * <p><b>Order.</b> Messages from one rank with one tag are received in the order in which they were
 * sent. Active messages of one rank are handled in the order in which they were sent. A send that
 * has to wait, for its {@code after} or for its device buffers, holds those up that come after it
 * with the same tag to the same peer, and no others; such an active message holds up those for the
 * same handler, and those for others go past it. So {@code after} must not be something that only a
 * later send of that kind brings about. Calls of several threads are in no order but the one that
 * those give them. Puts and gets are in no order: wait for the one before the other.
 *
 * <p><b>Errors.</b> Wrong arguments are thrown at once. Everything else fails the completion, with
 * a {@link CommException} that names the operation. When one rank fails ({@link #fail}), every
 * pending and later operation of every rank fails with its cause.
 *
 * <p><b>Once it is closed</b>, what answers a completion fails as {@code CLOSED}; what would have
 * to be kept (a handler, a duplicate, a lent buffer, a task) is refused with an {@link
 * IllegalStateException}; the rest answers what it did before, or does nothing.
 *
 * <p><b>State</b>: {@code closing} moves once, by compare-and-set; {@code closed} settles after it.
 * {@code sequence} and {@code children} only grow. {@code undelivered} and {@code duplicates}, of
 * which one that is closed leaves, are copied on write. {@code spare} is exchanged. No locks.
 */
public final class Comm implements AutoCloseable {

  /** The peer of a receive that takes a message from any rank. */
  public static final int ANY = Transport.ANY;

  private static final System.Logger LOG = System.getLogger("io.fairlead.comm");

  private static final String NOTHING_LENT =
      "nothing can be sent by it any more, so nothing is lent";

  private static final String NOT_DUPLICATED = "duplicate it before, or another one";

  /** No number of a channel: those are 0 or more. */
  private static final int NO_CHANNEL = -1;

  private final CommEngine engine;
  private final int channel;

  /** Whose duplicate it is; null: of the communicator that owns the transport. */
  private final @Nullable Comm parent;

  private final Inflow inflow;
  private final GatedSends gatedSends;
  private final List<Comm> duplicates = new CopyOnWriteArrayList<>();
  private final List<Undelivered> undelivered = new CopyOnWriteArrayList<>();
  private final AtomicInteger sequence = new AtomicInteger();
  private final AtomicInteger children = new AtomicInteger();
  private final AtomicReference<Object> spare = new AtomicReference<>(Elements.NONE);
  private final AtomicBoolean closing = new AtomicBoolean();
  private final Completion.Source<@Nullable Void> closed = Completion.source();

  private Comm(CommEngine engine, int channel, @Nullable Comm parent) {
    this.engine = engine;
    this.channel = channel;
    this.parent = parent;
    this.inflow = new Inflow(engine);
    this.gatedSends = new GatedSends(engine);
  }

  /**
   * The communicator over a transport, which it owns and closes. Called by the thread that opened
   * the transport; never blocks.
   */
  public static Comm over(TaskRuntime tasks, Transport transport, CommConfig config) {
    return over(tasks, transport, config, null);
  }

  /**
   * The communicator over a transport that is opened, used and closed by its communication thread:
   * what a library wants that takes calls of one thread only. Waits for the opening.
   *
   * @param transport opens it, and may block
   */
  public static Comm open(TaskRuntime tasks, Supplier<Transport> transport, CommConfig config) {
    Owner opener = tasks.owner("comm", Role.COMM);
    try {
      return over(tasks, opener.call(transport::get).await(), config, opener);
    } catch (RuntimeException | Error failure) {
      opener.close();
      throw failure;
    }
  }

  private static Comm over(
      TaskRuntime tasks, Transport transport, CommConfig config, @Nullable Owner opener) {
    CommEngine engine = new CommEngine(tasks, transport, config, opener);
    Comm comm = new Comm(engine, Transport.ROOT_CHANNEL, null);
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
   *     has room (a long message waits some 50 µs for its receive before it takes that), else when
   *     the message is received. Null as its value
   * @throws IllegalArgumentException for a wrong peer or tag, or confined memory
   */
  public Completion<@Nullable Void> send(int peer, int tag, MemorySegment... blobs) {
    checkPeer(peer);
    checkTag(tag);
    Sending sending = new Sending(engine, channel, peer, tag, HostBlob.shared(blobs));
    if (gatedSends.holdsBack(sending)) {
      gate(sending, sending.outgoing, Operation.SEND, null, null);
    } else {
      engine.post(sending, Operation.SEND);
    }
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
      checkPeer(peer, ", or Comm.ANY");
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
      switch (Objects.requireNonNull(into[i], "into")) {
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
    boolean open = after == null || after.state() == Completion.State.DONE;
    if (open && !gatedSends.holdsBack(request)) {
      outgoing.keep(parcel, null);
      engine.post(request, operation);
    } else {
      gate(request, outgoing, operation, open ? null : after, parcel);
    }
  }

  /** Puts a send that has to wait into a place of its own. */
  private void gate(
      Request request,
      Outgoing outgoing,
      Operation operation,
      @Nullable Completion<?> after,
      @Nullable Parcel parcel) {
    TransportException refusal = gatedSends.reserve();
    if (refusal == null) {
      outgoing.keep(parcel, gatedSends);
      outgoing.gated(gatedSends.add(request, operation, after));
    } else {
      outgoing.keep(parcel, null);
      request.failed(refusal);
    }
  }

  // --- active messages --------------------------------------------------------------------------

  /**
   * Sets what is done with messages for {@code handlerId}; once for each id. Messages that came
   * before wait for it, and so do those behind them.
   */
  public void handle(int handlerId, MessageHandler handler) {
    checkOpen("no message comes to a handler any more: set handlers before");
    inflow.handle(handlerId, null, Objects.requireNonNull(handler, "handler"));
  }

  /**
   * The same, in two steps: a message's header comes first, then its blobs, to where {@code places}
   * says. That spares making memory for each message and copying it there, and costs that the next
   * message for such a handler stays with its sender until this one is handled. Blobs of messages
   * that came before this call come in memory made for them.
   */
  public void handle(int handlerId, MessagePlaces places, MessageHandler handler) {
    Objects.requireNonNull(places, "places");
    checkOpen("no message comes to a handler any more: set handlers before");
    inflow.handle(handlerId, places, Objects.requireNonNull(handler, "handler"));
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
    return message(null, peer, handlerId, after, header, blobs);
  }

  /** As the other; {@code listener} hears what became of the message. */
  Completion<@Nullable Void> message(
      Outgoing.@Nullable Listener listener,
      int peer,
      int handlerId,
      @Nullable Completion<?> after,
      MemorySegment header,
      Blob... blobs) {
    checkPeer(peer);
    Objects.requireNonNull(header, "header");
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
        new Messaging(engine, channel, peer, handlerId, header, parcel.segments(), listener);
    engine.counters.submitted.increment();
    dispatch(messaging, messaging.outgoing, Operation.MESSAGE, after, parcel);
    return messaging.outgoing.completion();
  }

  /**
   * What finds that work which spreads by messages is done on all ranks; see {@link Termination}.
   * Every rank calls it, in the same order as {@link #duplicate}; nobody waits for the others.
   */
  public Termination termination() {
    return new Termination(engine, duplicate(), duplicate());
  }

  // --- one-sided --------------------------------------------------------------------------------

  /**
   * Lets peers put into and get from this memory until the window is closed. It is the window's
   * until then: kept open, and used here only in agreement with the peers. Any thread; never
   * blocks. A window outlives this communicator, and ends with the one that owns the transport.
   *
   * @return the window; fails if the communicator is closed, or a rank has failed
   * @throws IllegalArgumentException for confined memory
   */
  public Completion<Window> expose(MemorySegment segment) {
    long bytes = HostBlob.shared(segment).byteSize();
    checkOneSided();
    if (isClosed()) {
      return Completion.failed(engine.notExposed(bytes, TransportException.closed(rank())));
    }
    return engine.expose(segment).thenApply(key -> new Window(engine, key, bytes));
  }

  /**
   * Copies {@code source} to a window of a peer, whose task takes no part in it.
   *
   * @param key what {@link Window#key} said there
   * @param offset where in the window, in bytes
   * @return done when the bytes lie there, and {@code source} may be reused; fails if there is no
   *     such window, or the bytes do not fit into it at {@code offset}: nothing is copied then
   * @throws IllegalArgumentException for a wrong peer, a negative offset, or confined memory
   */
  public Completion<@Nullable Void> put(int peer, long key, long offset, MemorySegment source) {
    return put(peer, key, offset, null, Blob.of(source));
  }

  /**
   * As the other, once {@code after} is done, from host memory, a lent buffer or a device buffer.
   * See {@link #send(int, int, Completion, Blob...)} for what happens to these.
   */
  public Completion<@Nullable Void> put(
      int peer, long key, long offset, @Nullable Completion<?> after, Blob source) {
    checkCopy(peer, offset);
    Parcel parcel = Parcel.of(engine, new Blob[] {source});
    Copying copying = new Copying(engine, true, channel, peer, key, offset, parcel.segments()[0]);
    dispatch(copying, copying.outgoing, Operation.COPY, after, parcel);
    return copying.outgoing.completion();
  }

  /**
   * Copies from a window of a peer, whose task takes no part in it; as {@link #put(int, long, long,
   * MemorySegment)} otherwise.
   *
   * @param target where the bytes go, as many as it has; written until the completion is settled
   */
  public Completion<@Nullable Void> get(int peer, long key, long offset, MemorySegment target) {
    checkCopy(peer, offset);
    HostBlob.writable(target);
    Copying copying = new Copying(engine, false, channel, peer, key, offset, target);
    engine.post(copying, Operation.COPY);
    return copying.outgoing.completion();
  }

  /**
   * As the other, into a device buffer or host memory. The data is on the device when the
   * completion is done; work enqueued after that is ordered after it.
   *
   * @throws IllegalArgumentException also for a lent buffer: those are for sending
   */
  public Completion<@Nullable Void> getInto(int peer, long key, long offset, Blob target) {
    return switch (target) {
      case HostBlob host -> get(peer, key, offset, host.segment());
      case DeviceBlob device -> {
        MemorySegment data = Segments.allocate(device.bytes());
        Completion<Received> arrival =
            get(peer, key, offset, data)
                .thenApply(done -> new Received(peer, 0, data.byteSize(), data));
        yield new Landed(engine, new Blob[] {device})
            .after(arrival)
            .<@Nullable Void>thenApply(landed -> null);
      }
      case LentBuffer lent ->
          throw new IllegalArgumentException("a lent buffer is for sending: get into another one");
    };
  }

  private void checkCopy(int peer, long offset) {
    checkPeer(peer);
    checkOneSided();
    if (offset < 0) {
      throw new IllegalArgumentException("an offset into a window is 0 or more, not " + offset);
    }
  }

  private void checkOneSided() {
    if (!engine.transport.caps().oneSided()) {
      throw new UnsupportedOperationException(
          "transport '" + engine.transport.name() + "' has no puts and gets: send messages");
    }
  }

  // --- tasks on the communication thread ---------------------------------------------------------

  /**
   * Runs the body as a task on this rank's communication thread: where the transport may be entered
   * by its owner only, every call that the body makes goes straight in, and what it waits for is
   * found by the very thread that it runs on. A hand-over to that thread and back takes several
   * microseconds; this takes less than one.
   *
   * <p>The body may wait anywhere, and the thread goes on with other work meanwhile. While it
   * computes, nothing else moves on this rank: let it compute in other tasks. Turns of 20 ms and
   * more are logged and counted in {@link CommStats#longTurns}.
   *
   * <p>Any thread; parks a task while the thread's queue is full. Cancelling the completion cancels
   * the task. {@link #close} on the communicator that owns the transport waits for its end, which
   * comes soon, since whatever it waits for from this rank fails then.
   *
   * @throws IllegalStateException if this communicator is closed; or if the runtime's tasks run on
   *     the JDK's carriers, which lend no thread of ours: the message says the flag to pass
   */
  public <T extends @Nullable Object> Completion<T> affine(TaskBody<T> body) {
    checkOpen("its thread takes no more tasks for it: run them before");
    return engine.loop().affine(Objects.requireNonNull(body, "body"));
  }

  // --- lent buffers -----------------------------------------------------------------------------

  /**
   * Lends a buffer to be filled and sent; its content is undefined. Parks a task (blocks another
   * thread) while others hold all that may be lent, first come first served.
   *
   * @throws IllegalArgumentException if so much can never be lent
   * @throws IllegalStateException on a thread that must not wait: use {@link #tryLend}; or if this
   *     communicator is closed, also while it waits
   */
  public LentBuffer lend(long bytes) {
    checkOpen(NOTHING_LENT);
    LentBuffer lent = engine.lender.lend(bytes, this::isClosed);
    if (lent == null) {
      throw closedHere(NOTHING_LENT);
    }
    return lent;
  }

  /** As {@link #lend}, or empty if that would have to wait. Never blocks. */
  public Optional<LentBuffer> tryLend(long bytes) {
    checkOpen(NOTHING_LENT);
    return engine.lender.tryLend(bytes);
  }

  // --- collectives ------------------------------------------------------------------------------
  //
  // Every rank calls the same collectives of a communicator in the same order, one task at a time.
  // Cancelling one only ends the wait: its memory stays in use until it has ended or the
  // communicator is closed.

  /** Done when every rank has called it. */
  public Completion<@Nullable Void> barrier() {
    return reduce(Elements.DOUBLES, Elements.NONE, ReduceOp.SUM, "barrier");
  }

  /**
   * Combines the values of all ranks, element by element, in rank order; the result is the same on
   * every rank, bit for bit, whatever the number of values and whoever comes first.
   *
   * @param inOut this rank's values, then the result; as many on every rank
   */
  public Completion<@Nullable Void> allReduce(double[] inOut, ReduceOp op) {
    return reduce(Elements.DOUBLES, inOut, op, "all-reduce of " + inOut.length + " values");
  }

  /** As {@link #allReduce(double[], ReduceOp)}. */
  public Completion<@Nullable Void> allReduce(float[] inOut, ReduceOp op) {
    return reduce(Elements.FLOATS, inOut, op, "all-reduce of " + inOut.length + " floats");
  }

  /** As {@link #allReduce(double[], ReduceOp)}; sums wrap around. */
  public Completion<@Nullable Void> allReduce(long[] inOut, ReduceOp op) {
    return reduce(Elements.LONGS, inOut, op, "all-reduce of " + inOut.length + " longs");
  }

  /** As {@link #allReduce(double[], ReduceOp)}; sums wrap around. */
  public Completion<@Nullable Void> allReduce(int[] inOut, ReduceOp op) {
    return reduce(Elements.INTS, inOut, op, "all-reduce of " + inOut.length + " ints");
  }

  private <A> Completion<@Nullable Void> reduce(
      Elements<A> elements, A inOut, ReduceOp op, String name) {
    return reduction(elements, inOut, op, name).begin();
  }

  /** An all-reduce that does not end the world where a peer has closed this communicator. */
  Completion<@Nullable Void> reduceApart(long[] inOut, String name) {
    return reduction(Elements.LONGS, inOut, ReduceOp.SUM, name).beginApart();
  }

  private <A> Reduction<A> reduction(Elements<A> elements, A inOut, ReduceOp op, String name) {
    Objects.requireNonNull(op, "op");
    int number = sequence.getAndIncrement();
    return new Reduction<>(engine, channel, number, name, elements, inOut, op, spare);
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
      if (all == null) {
        throw new IllegalArgumentException(
            "rank "
                + root
                + " gathers: name the room for all blocks, "
                + blocksOf(mine)
                + " bytes");
      }
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

  /**
   * Sends a block of {@code mine} to each rank, in rank order, and collects what they send here in
   * {@code all}, in rank order. Both have one length, on every rank, which is a multiple of {@link
   * #size}.
   */
  public Completion<@Nullable Void> allToAll(MemorySegment mine, MemorySegment all) {
    long block = mine.byteSize() / size();
    if (mine.byteSize() != all.byteSize() || block * size() != mine.byteSize()) {
      throw new IllegalArgumentException(
          "an all-to-all of "
              + size()
              + " ranks takes two segments of one length, a multiple of that, not "
              + mine.byteSize()
              + " and "
              + all.byteSize()
              + " bytes");
    }
    return allToAll(blocks(mine, block), blocks(all, block));
  }

  /**
   * As the other, with blocks of any lengths, also none: {@code to[r]} goes to rank r, {@code
   * from[r]} takes what comes from there, of just that length.
   */
  public Completion<@Nullable Void> allToAll(MemorySegment[] to, MemorySegment[] from) {
    if (to.length != size() || from.length != size()) {
      throw new IllegalArgumentException(
          "an all-to-all takes a block for each of the "
              + size()
              + " ranks, not "
              + to.length
              + " and "
              + from.length);
    }
    MemorySegment[] sent = HostBlob.shared(to.clone());
    MemorySegment[] received = HostBlob.writable(from.clone());
    if (sent[rank()].byteSize() != received[rank()].byteSize()) {
      throw new IllegalArgumentException(
          "the blocks of rank "
              + rank()
              + " for itself differ: "
              + sent[rank()].byteSize()
              + " and "
              + received[rank()].byteSize()
              + " bytes");
    }
    int number = sequence.getAndIncrement();
    return new Exchanges.AllToAll(engine, channel, number, sent, received).begin();
  }

  private MemorySegment[] blocks(MemorySegment whole, long block) {
    MemorySegment[] blocks = new MemorySegment[size()];
    for (int rank = 0; rank < blocks.length; rank++) {
      blocks[rank] = whole.asSlice(rank * block, block);
    }
    return blocks;
  }

  /** The bytes of as many for all ranks. */
  private long blocksOf(MemorySegment mine) {
    return Math.multiplyExact(mine.byteSize(), (long) size());
  }

  private void checkRoom(MemorySegment mine, MemorySegment all) {
    HostBlob.writable(all);
    if (all.byteSize() != blocksOf(mine)) {
      throw new IllegalArgumentException(
          "the blocks of "
              + size()
              + " ranks of "
              + mine.byteSize()
              + " bytes need "
              + blocksOf(mine)
              + " bytes, 'all' has "
              + all.byteSize());
    }
  }

  // --- more communicators -----------------------------------------------------------------------

  /**
   * A communicator of the same ranks whose messages and collectives never meet those of this one.
   * Every rank calls it in the same order; nobody waits for the others. One that is made while this
   * one closes is closed, and for others a rank that has closed this one has closed it.
   *
   * @throws IllegalStateException if this communicator is closed
   */
  public Comm duplicate() {
    checkOpen(NOT_DUPLICATED);
    int index = children.getAndIncrement();
    int number = open(index);
    if (number == NO_CHANNEL) {
      throw closedHere(NOT_DUPLICATED);
    }
    Comm duplicate = new Comm(engine, number, this);
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
                opened.complete(NO_CHANNEL);
              }
            });
    return opened.completion().await();
  }

  private int openInside(int index) {
    return engine.inside(() -> engine.transport.openChannel(channel, index));
  }

  /** What this rank has done so far, over all its communicators. Any thread; never blocks. */
  public CommStats stats() {
    return engine.stats();
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
   * stands. Once the one that owns the transport is closed here, it does nothing: the others know
   * that this rank has gone. Any thread; never blocks.
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
    if (parent == null && loop != null) {
      loop.awaitEnd();
    }
  }

  /** Whether somebody has called {@link #close} here; before any other rank is told. */
  boolean isClosing() {
    return closing.get();
  }

  /** On the communication thread; on the closing thread if there is none. */
  private void closeInside() {
    try {
      TransportException peers = TransportException.peerClosed(rank());
      duplicates.forEach(Comm::close);
      gatedSends.close(CommEngine.over());
      List<Undelivered> left = new ArrayList<>(inflow.close(peers));
      left.addAll(engine.inside(() -> engine.transport.closeChannel(channel)));
      left.addAll(inflow.finish(peers));
      if (parent == null) {
        engine.inside(this::closeTransport);
      }
      report(left);
    } finally {
      if (parent == null) {
        engine.end();
      } else {
        parent.duplicates.remove(this);
      }
      closed.complete(null);
      engine.lender.look();
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

  /**
   * Whether the close is over: while it goes on, handlers still run, and may call what they like.
   */
  boolean isClosed() {
    return closed.completion().isDone();
  }

  private void checkOpen(String advice) {
    if (isClosed()) {
      throw closedHere(advice);
    }
  }

  private IllegalStateException closedHere(String advice) {
    return new IllegalStateException("rank " + rank() + " closed the communicator: " + advice);
  }

  // --- arguments --------------------------------------------------------------------------------

  void checkPeer(int peer) {
    checkPeer(peer, "");
  }

  private void checkPeer(int peer, String besides) {
    if (peer < 0 || peer >= size()) {
      String last = String.valueOf(size() - 1);
      throw new IllegalArgumentException(
          peer == ANY
              ? "Comm.ANY is for receives: name a rank, 0 to " + last
              : "there is no rank " + peer + ": ranks are 0 to " + last + besides);
    }
  }

  private void checkTag(int tag) {
    if (tag < 0 || tag > engine.transport.caps().tagMax()) {
      throw new IllegalArgumentException(
          "tag "
              + tag
              + " is not within 0 to "
              + engine.transport.caps().tagMax()
              + ": choose one that is");
    }
  }

  /** For tests: bytes of active messages that wait here. */
  long messageBytesKept() {
    return inflow.bytesKept();
  }

  int channel() {
    return channel;
  }

  /** For tests: duplicates that are not closed. */
  int duplicatesOpen() {
    return duplicates.size();
  }

  Inflow inflow() {
    return inflow;
  }

  /** For tests. */
  GatedSends gatedSends() {
    return gatedSends;
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
