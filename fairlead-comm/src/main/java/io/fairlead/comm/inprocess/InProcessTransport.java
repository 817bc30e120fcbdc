package io.fairlead.comm.inprocess;

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
import io.fairlead.comm.spi.Undelivered;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One rank of a {@link World}. Any thread may call at any time; nothing has to be polled, because
 * every call that can end a request does.
 *
 * <p>State of its own: whether it is closed ({@code over}, volatile).
 */
final class InProcessTransport implements Transport {
  private static final TransportCaps CAPS = new TransportCaps(false, true, Integer.MAX_VALUE);

  private final World world;
  private final int rank;
  private final TransportException closed;

  /** Volatile: set before all that is exposed is concealed. */
  private volatile boolean over;

  InProcessTransport(World world, int rank) {
    this.world = world;
    this.rank = rank;
    this.closed = TransportException.closed(rank);
  }

  @Override
  public String name() {
    return "in-process";
  }

  @Override
  public int rank() {
    return rank;
  }

  @Override
  public int size() {
    return world.size;
  }

  @Override
  public ThreadLevel threadLevel() {
    return ThreadLevel.MULTIPLE;
  }

  @Override
  public TransportCaps caps() {
    return CAPS;
  }

  @Override
  public int openChannel(int parent, int index) {
    return world.openChannel(parent, index);
  }

  @Override
  public void send(SendRequest request) {
    World.Channel channel = open(request);
    if (channel != null) {
      channel.mailboxes[request.target()].send(request, rank);
    }
  }

  @Override
  public void receive(ReceiveRequest request) {
    World.Channel channel = open(request);
    if (channel != null) {
      channel.mailboxes[rank].receive(request);
    }
  }

  @Override
  public void message(MessageRequest request) {
    World.Channel channel = open(request);
    if (channel == null) {
      return;
    }
    Inbox own = channel.inboxes[rank];
    TransportException cause = own.closed();
    if (cause != null) {
      request.failed(cause);
    } else {
      channel.inboxes[request.target()].take(request, rank, own);
    }
  }

  /** The request's channel; null, and the request failed, if this rank has closed it. */
  private World.@Nullable Channel open(Request request) {
    World.Channel channel = world.channel(request.channel());
    if (channel == null || channel.hasLeft(rank)) {
      request.failed(closed);
      return null;
    }
    return channel;
  }

  @Override
  public void listen(int channel, MessageListener listener) {
    World.Channel known = world.channel(channel);
    if (known != null) {
      known.inboxes[rank].listen(listener);
    }
  }

  @Override
  public long expose(MemorySegment segment) {
    long key = world.expose(rank, segment);
    // Looked at after it: either this thread sees the close, or the close conceals it.
    if (over) {
      world.conceal(key);
      throw closed;
    }
    return key;
  }

  @Override
  public void conceal(long key) {
    world.conceal(key);
  }

  @Override
  public void put(CopyRequest request) {
    copy(request, true);
  }

  @Override
  public void get(CopyRequest request) {
    copy(request, false);
  }

  private void copy(CopyRequest request, boolean put) {
    TransportException fault = world.fault();
    if (fault == null && open(request) == null) {
      return;
    }
    if (fault == null) {
      fault = copyExposed(request, put);
    }
    if (fault == null) {
      request.copied();
    } else {
      request.failed(fault);
    }
  }

  private @Nullable TransportException copyExposed(CopyRequest request, boolean put) {
    MemorySegment remote = world.exposed(request.peer(), request.key());
    MemorySegment local = request.local();
    if (remote == null) {
      return memory(
          "rank "
              + request.peer()
              + " exposes nothing as "
              + request.key()
              + ": send the key of a window of its that is open",
          null);
    }
    if (request.offset() < 0 || request.offset() > remote.byteSize() - local.byteSize()) {
      return memory(
          local.byteSize()
              + " bytes at offset "
              + request.offset()
              + " are not within the "
              + remote.byteSize()
              + " bytes that rank "
              + request.peer()
              + " exposed",
          null);
    }
    try {
      MemorySegment part = remote.asSlice(request.offset(), local.byteSize());
      if (put) {
        part.copyFrom(local);
      } else {
        local.copyFrom(part);
      }
      return null;
    } catch (RuntimeException e) {
      return memory("the copy failed: " + e.getMessage(), e);
    }
  }

  private static TransportException memory(String message, @Nullable Throwable cause) {
    return new TransportException(Reason.MEMORY, message, cause);
  }

  @Override
  public boolean cancel(Request request) {
    World.Channel channel = world.channel(request.channel());
    return switch (request) {
      case SendRequest send -> channel != null && channel.mailboxes[send.target()].cancel(send);
      case ReceiveRequest receive -> channel != null && channel.mailboxes[rank].cancel(receive);
      case MessageRequest message ->
          message.note() instanceof InProcessArrival arrival && arrival.cancel();
      default -> false;
    };
  }

  @Override
  public int poll() {
    return 0;
  }

  @Override
  public void abort(Throwable cause) {
    if (!over) {
      world.abort(rank, cause);
    }
  }

  @Override
  public List<Undelivered> closeChannel(int number) {
    return world.close(rank, number);
  }

  @Override
  public void close() {
    List<Undelivered> undelivered = new ArrayList<>();
    for (int number = 0; number < world.channelCount(); number++) {
      undelivered.addAll(closeChannel(number));
    }
    over = true;
    world.concealAll(rank);
    if (!undelivered.isEmpty()) {
      System.getLogger("io.fairlead.comm")
          .log(System.Logger.Level.WARNING, "closed with messages not received: " + undelivered);
    }
  }

  /** For tests: lanes, posted receives and messages of this rank on a channel. */
  int[] counts(int number) {
    World.Channel channel = world.channel(number);
    return channel == null ? new int[3] : channel.mailboxes[rank].counts();
  }

  /** For tests: bytes of messages kept for this rank. */
  long bytesKept() {
    return world.pool(rank).bytesUsed();
  }
}
