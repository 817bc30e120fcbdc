package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.task.Owner;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * What the ranks of one process share: the channels, the memory bounds, what was exposed, and the
 * failure that ended them all.
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>channels</td><td>who opens or closes one, under lock</td><td>every call</td><td>volatile, copied on write</td></tr>
 *   <tr><td>names</td><td>who opens one</td><td>same</td><td>lock</td></tr>
 *   <tr><td>fault</td><td>who aborts first, under lock</td><td>who opens a channel</td><td>volatile</td></tr>
 * </table>
 *
 * <p><b>Lock order.</b> The lock is outermost and is held for no call into a mailbox or inbox.
 */
final class World {
  final int size;
  private final EagerPool[] pools;
  private final ReentrantLock lock = new ReentrantLock();
  private final Map<Long, Integer> names = new HashMap<>();
  private final Map<Long, MemorySegment> exposed = new ConcurrentHashMap<>();
  private final AtomicLong keys = new AtomicLong();

  /** By channel number. Volatile: whoever sees the array sees the channels in it. */
  private volatile @Nullable Channel[] channels;

  /** Volatile: set before any mailbox is ended for it. */
  private volatile @Nullable TransportException fault;

  World(TransportSettings settings) {
    this.size = settings.ranks();
    this.pools = new EagerPool[size];
    for (int i = 0; i < size; i++) {
      pools[i] = new EagerPool(settings.eagerBytes(), settings.eagerMessages());
    }
    this.channels = new @Nullable Channel[] {new Channel(pools)};
  }

  /** The channel, or null once every rank has closed it. */
  @Nullable Channel channel(int number) {
    @Nullable Channel[] known = channels;
    if (number < 0 || number >= known.length) {
      throw new IllegalArgumentException("no channel " + number + " was opened");
    }
    return known[number];
  }

  int openChannel(int parent, int index) {
    long name = (long) parent << Integer.SIZE | index;
    Channel opened;
    Channel above;
    int number;
    Owner.lock(lock);
    try {
      Integer known = names.get(name);
      if (known != null) {
        return known;
      }
      above = channel(parent);
      @Nullable Channel[] before = channels;
      number = before.length;
      @Nullable Channel[] after = Arrays.copyOf(before, number + 1);
      opened = new Channel(pools);
      after[number] = opened;
      channels = after;
      names.put(name, number);
    } finally {
      lock.unlock();
    }
    TransportException ended = fault;
    // Looked at after the publication: either this thread sees the fault, or abort the channel.
    if (ended != null) {
      opened.abort(ended);
    }
    // Likewise: who closes the parent marks it first, and then looks for children.
    for (int rank = 0; rank < size; rank++) {
      if (above == null || above.hasLeft(rank)) {
        leave(rank, number, opened);
      }
    }
    return number;
  }

  /** As {@link io.fairlead.comm.spi.Transport#closeChannel}, for this rank. */
  List<Undelivered> close(int rank, int number) {
    Channel channel = channel(number);
    if (channel == null || channel.hasLeft(rank)) {
      return List.of();
    }
    channel.left(rank);
    List<Undelivered> undelivered = new ArrayList<>();
    for (int child : children(number)) {
      undelivered.addAll(close(rank, child));
    }
    undelivered.addAll(leave(rank, number, channel));
    return undelivered;
  }

  private List<Integer> children(int number) {
    Owner.lock(lock);
    try {
      return names.entrySet().stream()
          .filter(named -> named.getKey() >>> Integer.SIZE == number)
          .map(Map.Entry::getValue)
          .toList();
    } finally {
      lock.unlock();
    }
  }

  /** Once for each rank; after the last the channel is forgotten. */
  private List<Undelivered> leave(int rank, int number, Channel channel) {
    if (!channel.leave(rank)) {
      return List.of();
    }
    TransportException closed = TransportException.closed(rank);
    TransportException peerClosed = TransportException.peerClosed(rank);
    List<Undelivered> undelivered = channel.mailboxes[rank].close(closed, peerClosed);
    channel.inboxes[rank].close(closed, peerClosed);
    for (int peer = 0; peer < size; peer++) {
      if (peer != rank) {
        channel.mailboxes[peer].sourceClosed(rank, peerClosed, closed);
      }
    }
    if (channel.isLeftByAll()) {
      forget(number);
    }
    return undelivered;
  }

  private void forget(int number) {
    Owner.lock(lock);
    try {
      @Nullable Channel[] after = channels.clone();
      after[number] = null;
      channels = after;
      names.values().removeIf(known -> known == number);
    } finally {
      lock.unlock();
    }
  }

  int channelCount() {
    return channels.length;
  }

  void abort(int rank, Throwable cause) {
    TransportException first =
        new TransportException(Reason.PEER_FAILED, "rank " + rank + " failed: " + cause, cause);
    Owner.lock(lock);
    try {
      if (fault != null) {
        return;
      }
      fault = first;
    } finally {
      lock.unlock();
    }
    for (Channel channel : channels) {
      if (channel != null) {
        channel.abort(first);
      }
    }
  }

  @Nullable TransportException fault() {
    return fault;
  }

  EagerPool pool(int rank) {
    return pools[rank];
  }

  // --- exposed memory -----------------------------------------------------------------------

  long expose(int rank, MemorySegment segment) {
    TransportException ended = fault;
    if (ended != null) {
      throw ended;
    }
    long key = keys.incrementAndGet() * size + rank;
    exposed.put(key, segment);
    return key;
  }

  void conceal(long key) {
    exposed.remove(key);
  }

  void concealAll(int rank) {
    exposed.keySet().removeIf(key -> key % size == rank);
  }

  @Nullable MemorySegment exposed(int rank, long key) {
    return key % size == rank ? exposed.get(key) : null;
  }

  /** The places of one channel, by rank. */
  static final class Channel {
    private static final int HERE = 0;
    private static final int CLOSES = 1;
    private static final int GONE = 2;

    final Mailbox[] mailboxes;
    final Inbox[] inboxes;

    /** By rank: closes it, then takes part no more. Only grow. */
    private final AtomicIntegerArray left;

    private final AtomicInteger gone = new AtomicInteger();

    private Channel(EagerPool[] pools) {
      left = new AtomicIntegerArray(pools.length);
      mailboxes = new Mailbox[pools.length];
      inboxes = new Inbox[pools.length];
      for (int rank = 0; rank < pools.length; rank++) {
        mailboxes[rank] = new Mailbox(rank, pools.length, pools[rank]);
        inboxes[rank] = new Inbox();
      }
    }

    private void abort(TransportException cause) {
      for (Mailbox mailbox : mailboxes) {
        mailbox.abort(cause);
      }
      for (Inbox inbox : inboxes) {
        inbox.close(cause, cause);
      }
    }

    /** Whether the rank has begun to close it. */
    boolean hasLeft(int rank) {
      return left.get(rank) != HERE;
    }

    private void left(int rank) {
      left.compareAndSet(rank, HERE, CLOSES);
    }

    /** False: it did so before. */
    private boolean leave(int rank) {
      return left.getAndSet(rank, GONE) != GONE;
    }

    private boolean isLeftByAll() {
      return gone.incrementAndGet() == mailboxes.length;
    }
  }
}
