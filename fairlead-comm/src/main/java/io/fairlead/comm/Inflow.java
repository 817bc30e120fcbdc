package io.fairlead.comm;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.MessageListener;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.task.Owner;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The active messages to one communicator, from their headers to their handlers, in the order in
 * which they came.
 *
 * <pre>
 * HELD    → LANDING   there is room, or it is the next one to be handled: its blobs may come. With
 *                     places of the handler's owner: the latter only, and those are chosen then
 * LANDING → LANDED    they are here; the sender was told
 * LANDING → LOST      they will not come; the sender was told
 * LANDED  → handled   on the communication thread, in order
 * HELD    → refused   the communicator closed; the sender was told
 * </pre>
 *
 * <p>Room is bounded by {@link CommConfig#messageBytes}; without room a message stays with its
 * sender, whose completion waits. The message at the head is let in even so, so that one longer
 * than the bound gets through. A message for a handler that is not set yet holds those behind it
 * back.
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>queue, sweepAt, bytes, closed, Item.state</td><td>senders, loop, closer</td><td>same</td><td>lock</td></tr>
 *   <tr><td>handlers</td><td>any</td><td>loop</td><td>concurrent</td></tr>
 *   <tr><td>paused</td><td>any</td><td>loop</td><td>volatile</td></tr>
 *   <tr><td>scheduled</td><td>any</td><td>any</td><td>compareAndSet; at most one drain is queued</td></tr>
 * </table>
 *
 * <p><b>Lock order.</b> {@code lock} is innermost; arrivals are accepted and refused, and handlers
 * run, outside it.
 */
final class Inflow implements MessageListener {
  private static final System.Logger LOG = System.getLogger("io.fairlead.comm");

  /** Handlers run in a row before others get the communication thread. */
  private static final int QUANTUM = 64;

  /** From so many on, messages that their senders took back are swept out when others come. */
  private static final int SWEEP_MIN = 64;

  /** Between two looks whether a copy in progress has ended. */
  private static final long PAUSE_NANOS = 1_000;

  private final CommEngine engine;
  private final Map<Integer, Handling> handlers = new ConcurrentHashMap<>();
  private final ReentrantLock lock = new ReentrantLock();
  private final Queue<Item> queue = new ArrayDeque<>();
  private final AtomicBoolean scheduled = new AtomicBoolean();
  private long bytes;

  /** So long may the queue become before the next sweep: twice what the last one left. */
  private int sweepAt = SWEEP_MIN;

  private @Nullable TransportException closed;

  /** Volatile: whoever ends a pause schedules a drain after that. */
  private volatile boolean paused;

  /**
   * What is done with the messages of one handler.
   *
   * @param places null: the blobs come in memory made for them
   */
  private record Handling(@Nullable MessagePlaces places, MessageHandler handler) {}

  Inflow(CommEngine engine) {
    this.engine = engine;
  }

  void handle(int id, @Nullable MessagePlaces places, MessageHandler handler) {
    if (handlers.putIfAbsent(id, new Handling(places, handler)) != null) {
      throw new IllegalStateException("handler " + id + " is set already: choose another id");
    }
    engine.loop();
    schedule();
  }

  /**
   * While it is paused, messages come and wait, as they do for a handler that is not set. Any
   * thread.
   */
  void pause(boolean pause) {
    paused = pause;
    if (!pause) {
      schedule();
    }
  }

  private @Nullable MessageHandler handler(Item item) {
    Handling handling = paused ? null : handlers.get(item.handler);
    return handling == null ? null : handling.handler;
  }

  /** Who chooses the places of its blobs; null: nobody. */
  private @Nullable MessagePlaces places(Item item) {
    Handling handling = item.lengths.length == 0 ? null : handlers.get(item.handler);
    return handling == null ? null : handling.places;
  }

  // --- arriving: on the sender's thread or in the transport's progress -------------------------

  @Override
  public void arrived(Arrival arrival) {
    Item item = new Item(arrival);
    boolean chosen = places(item) != null;
    TransportException refusal;
    boolean room;
    Owner.lock(lock);
    try {
      refusal = closed;
      room = refusal == null && !chosen && bytes + item.bytes <= engine.config.messageBytes();
      if (refusal == null) {
        sweep();
        queue.add(item);
      }
      if (room) {
        take(item);
      }
    } finally {
      lock.unlock();
    }
    if (refusal != null) {
      arrival.refuse(refusal);
      return;
    }
    if (room) {
      accept(item);
    }
    schedule();
  }

  /**
   * Under the lock, inside the transport: those that were taken back need not wait here until all
   * before them are handled, which may never be.
   */
  private void sweep() {
    if (queue.size() >= sweepAt) {
      queue.removeIf(item -> item.state == Item.HELD && item.arrival.isOver());
      sweepAt = Math.max(SWEEP_MIN, 2 * queue.size());
    }
  }

  /** Under the lock. */
  private void take(Item item) {
    item.state = Item.LANDING;
    bytes += item.bytes;
  }

  private void accept(Item item) {
    if (item.makePlaces() && item.takeHeader()) {
      land(item);
    } else {
      end(item, Item.LOST);
    }
  }

  private void land(Item item) {
    item.arrival.accept(
        item.blobs,
        new Arrival.Landing() {
          @Override
          public void landed() {
            end(item, Item.LANDED);
          }

          @Override
          public void failed(TransportException cause) {
            end(item, Item.LOST);
          }
        });
  }

  private void end(Item item, int state) {
    Owner.lock(lock);
    try {
      item.state = state;
    } finally {
      lock.unlock();
    }
    schedule();
  }

  private void schedule() {
    if (scheduled.compareAndSet(false, true)) {
      engine.loop().push(new CommEngine.Entering(this::drain));
    }
  }

  // --- handling: on the communication thread ----------------------------------------------------

  private void drain() {
    scheduled.set(false);
    for (int i = 0; i < QUANTUM; i++) {
      if (!step()) {
        return;
      }
    }
    schedule();
  }

  /** Moves the head of the queue on; false if it has to wait. */
  private boolean step() {
    Item head;
    MessageHandler handler = null;
    boolean accept = false;
    Owner.lock(lock);
    try {
      head = queue.peek();
      if (head == null || head.state == Item.LANDING) {
        return false;
      }
      if (head.state == Item.HELD) {
        if (paused && places(head) != null) {
          return false;
        }
        take(head);
        accept = true;
      } else if (head.state == Item.LANDED) {
        handler = handler(head);
        if (handler == null) {
          return false;
        }
      }
      if (!accept) {
        queue.remove();
      }
    } finally {
      lock.unlock();
    }
    if (accept) {
      letIn(head);
    } else if (handler != null) {
      run(handler, head);
    } else {
      release(head);
    }
    return true;
  }

  private void letIn(Item head) {
    MessagePlaces places = places(head);
    if (places == null) {
      inside(() -> accept(head));
    } else if (!engine.inside(head::takeHeader)) {
      end(head, Item.LOST);
    } else if (choose(head, places)) {
      inside(() -> land(head));
    } else {
      inside(() -> head.arrival.refuse(unplaced()));
      end(head, Item.LOST);
    }
  }

  private void inside(Runnable body) {
    engine.inside(
        () -> {
          body.run();
          return true;
        });
  }

  /** Outside the transport, since it is the user's code; false: the world is over for it. */
  private boolean choose(Item item, MessagePlaces places) {
    try {
      item.place(places.choose(item.source, item.header, item.lengths.clone()));
      return true;
    } catch (RuntimeException | Error e) {
      engine.abort(
          new IllegalStateException(
              "the choice of places for handler "
                  + item.handler
                  + " of rank "
                  + engine.rank()
                  + " failed on a message from rank "
                  + item.source,
              e));
      return false;
    }
  }

  private TransportException unplaced() {
    return new TransportException(
        Reason.PEER_FAILED, "rank " + engine.rank() + " has no place for the message", null);
  }

  private void run(MessageHandler handler, Item item) {
    long began = System.nanoTime();
    try {
      handler.handle(item.source, item.header, List.of(item.blobs));
    } catch (RuntimeException | Error e) {
      engine.abort(
          new IllegalStateException(
              "handler "
                  + item.handler
                  + " of rank "
                  + engine.rank()
                  + " threw on a message from rank "
                  + item.source,
              e));
    } finally {
      engine.counters.received(item.bytes);
      engine.counters.handled.increment();
      release(item);
      meter(item, System.nanoTime() - began);
    }
  }

  private void meter(Item item, long nanos) {
    if (engine.counters.handler(nanos)) {
      LOG.log(
          System.Logger.Level.WARNING,
          "handler "
              + item.handler
              + " of rank "
              + engine.rank()
              + " held up the communication thread for "
              + nanos / 1_000_000
              + " ms: fork what takes long, and let the handler only start it");
    }
  }

  private void release(Item item) {
    Owner.lock(lock);
    try {
      bytes -= item.bytes;
    } finally {
      lock.unlock();
    }
  }

  // --- closing ----------------------------------------------------------------------------------

  /**
   * Takes no more messages, and runs the handlers of those whose senders were told they are sent,
   * up to the first that is still landing. On the communication thread, or where none was ever
   * started.
   *
   * @return the messages that were sent and have no handler
   */
  List<Undelivered> close(TransportException cause) {
    Owner.lock(lock);
    try {
      closed = cause;
    } finally {
      lock.unlock();
    }
    List<Undelivered> undelivered = new ArrayList<>();
    for (Item item = nextNotLanding(); item != null; item = nextNotLanding()) {
      finish(item, cause, undelivered);
    }
    return undelivered;
  }

  /**
   * The same for the rest, after the transport has closed the channel: whatever still lands then is
   * being copied at this moment.
   */
  List<Undelivered> finish(TransportException cause) {
    List<Undelivered> undelivered = new ArrayList<>();
    for (Item item = peek(); item != null; item = peek()) {
      while (isLanding(item)) {
        LockSupport.parkNanos(PAUSE_NANOS);
      }
      remove();
      finish(item, cause, undelivered);
    }
    return undelivered;
  }

  private void finish(Item item, TransportException cause, List<Undelivered> undelivered) {
    switch (item.state) {
      case Item.HELD ->
          engine.inside(
              () -> {
                item.arrival.refuse(cause);
                return true;
              });
      case Item.LANDED -> {
        MessageHandler handler = handler(item);
        if (handler == null) {
          undelivered.add(
              new Undelivered("message", item.source, engine.rank(), item.handler, item.bytes));
        } else {
          run(handler, item);
        }
      }
      default -> {
        // LOST: its sender was told.
      }
    }
  }

  private @Nullable Item nextNotLanding() {
    Owner.lock(lock);
    try {
      Item head = queue.peek();
      return head == null || head.state == Item.LANDING ? null : queue.remove();
    } finally {
      lock.unlock();
    }
  }

  private @Nullable Item peek() {
    Owner.lock(lock);
    try {
      return queue.peek();
    } finally {
      lock.unlock();
    }
  }

  private boolean isLanding(Item item) {
    Owner.lock(lock);
    try {
      return item.state == Item.LANDING;
    } finally {
      lock.unlock();
    }
  }

  private void remove() {
    Owner.lock(lock);
    try {
      queue.remove();
    } finally {
      lock.unlock();
    }
  }

  /** For tests: the messages that are here, also those that were taken back. */
  int length() {
    Owner.lock(lock);
    try {
      return queue.size();
    } finally {
      lock.unlock();
    }
  }

  /** For tests. */
  long bytesKept() {
    Owner.lock(lock);
    try {
      return bytes;
    } finally {
      lock.unlock();
    }
  }

  /** One message. {@code state} is guarded by the lock; the rest is set before it is shared. */
  private static final class Item {
    static final int HELD = 0;
    static final int LANDING = 1;
    static final int LANDED = 2;
    static final int LOST = 3;

    final Arrival arrival;
    final int source;
    final int handler;
    final long[] lengths;
    final long bytes;
    int state = HELD;
    MemorySegment header = Received.NO_DATA;
    MemorySegment[] blobs = {};

    Item(Arrival arrival) {
      this.arrival = arrival;
      this.source = arrival.source();
      this.handler = arrival.handler();
      this.lengths = new long[arrival.blobs()];
      long sum = arrival.headerBytes();
      for (int i = 0; i < lengths.length; i++) {
        lengths[i] = arrival.bytes(i);
        sum = Math.addExact(sum, lengths[i]);
      }
      this.bytes = sum;
    }

    /** Makes the places of the blobs; false if nothing will come. Inside the transport. */
    boolean makePlaces() {
      try {
        blobs = new MemorySegment[lengths.length];
        for (int i = 0; i < blobs.length; i++) {
          blobs[i] = Segments.allocate(lengths[i]);
        }
        return true;
      } catch (OutOfMemoryError e) {
        return refuse(e);
      }
    }

    /** Makes the header and reads it; false if nothing will come. Inside the transport. */
    boolean takeHeader() {
      try {
        header = Segments.allocate(arrival.headerBytes());
      } catch (OutOfMemoryError e) {
        return refuse(e);
      }
      return arrival.readHeader(header);
    }

    private boolean refuse(OutOfMemoryError cause) {
      arrival.refuse(new TransportException(Reason.MEMORY, "no memory at the receiver", cause));
      return false;
    }

    /**
     * Takes the places that were chosen.
     *
     * @throws IllegalArgumentException if they do not fit
     */
    void place(MemorySegment[] chosen) {
      if (chosen.length != lengths.length) {
        throw new IllegalArgumentException(
            lengths.length + " blobs need a place each, not " + chosen.length + " in all");
      }
      for (int i = 0; i < chosen.length; i++) {
        if (HostBlob.writable(chosen[i]).byteSize() != lengths[i]) {
          throw new IllegalArgumentException(
              "blob "
                  + i
                  + " has "
                  + lengths[i]
                  + " bytes, its place "
                  + chosen[i].byteSize()
                  + ": slice it");
        }
      }
      blobs = chosen.clone();
    }
  }
}
