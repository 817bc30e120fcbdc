package io.fairlead.sim.remote;

import io.fairlead.comm.spi.Arrival;
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
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Supplier;

/**
 * The transport of a rank in another process, as the suite sees it. Each call goes there, waits for
 * its answer, and ends here the requests that have ended there meanwhile.
 *
 * <p>Threads: one, the suite's.
 */
final class RemoteTransport implements Transport {
  private final Line line;
  private final Map<Integer, Request> requests = new HashMap<>();
  private final IdentityHashMap<Request, Integer> ids = new IdentityHashMap<>();
  private final Set<Integer> saidWithdrawn = new HashSet<>();
  private final Map<Integer, MessageListener> listeners = new HashMap<>();
  private final Map<Integer, Pending> landings = new HashMap<>();
  private final Map<Long, MemorySegment> windows = new HashMap<>();
  private List<RemoteTransport> peers = List.of();
  private String name = "";
  private int rank;
  private int size;
  private ThreadLevel level = ThreadLevel.SINGLE;
  private TransportCaps caps = new TransportCaps(true, false, TransportCaps.TAG_MAX_LEAST);
  private int copies;
  private int nextId;
  private boolean closed;

  /** An accepted message whose blobs are on their way. */
  private static final class Pending {
    final MemorySegment[] into;
    final Arrival.Landing landing;

    Pending(MemorySegment[] into, Arrival.Landing landing) {
      this.into = into;
      this.landing = landing;
    }
  }

  RemoteTransport(Line line) {
    this.line = line;
  }

  /** The other ranks of the world: what is seen of one may be of their doing. */
  void world(List<RemoteTransport> all) {
    peers = all.stream().filter(each -> each != this).toList();
  }

  // --- calls ------------------------------------------------------------------------------------

  /**
   * Says which call comes. A rank that was told to withdraw something knows it before any rank does
   * anything more, as it would if the suite's requests were its own.
   */
  private Line call(Word word) {
    peers.forEach(RemoteTransport::tellWithdrawn);
    sayWithdrawn();
    return line.say(word);
  }

  private void tellWithdrawn() {
    if (!closed && requests.entrySet().stream().anyMatch(this::isFresh)) {
      sayWithdrawn();
      line.say(Word.POLL);
      int _ = answer(line::number);
    }
  }

  private boolean isFresh(Map.Entry<Integer, Request> each) {
    return each.getValue().isWithdrawn() && !saidWithdrawn.contains(each.getKey());
  }

  private void sayWithdrawn() {
    List<Integer> fresh =
        requests.entrySet().stream().filter(this::isFresh).map(Map.Entry::getKey).toList();
    saidWithdrawn.addAll(fresh);
    line.number(fresh.size());
    fresh.forEach(line::number);
  }

  /** Waits for the answer; what became of other calls is told on the way. */
  private <T> T answer(Supplier<T> read) {
    line.flush();
    List<Runnable> news = new ArrayList<>();
    T answer = null;
    String thrown = null;
    boolean open = true;
    while (open) {
      Word word = line.word();
      switch (word) {
        case ANSWER -> {
          answer = read.get();
          open = false;
        }
        case THROWN -> {
          thrown = line.text();
          open = false;
        }
        default -> news.add(read(word));
      }
    }
    news.forEach(Runnable::run);
    if (copies > 0) {
      copies = 0;
      peers.forEach(RemoteTransport::refreshWindows);
    }
    if (thrown != null) {
      throw new IllegalStateException("rank " + rank + " threw " + thrown);
    }
    return Objects.requireNonNull(answer);
  }

  private void done() {
    answer(line::flag);
  }

  private int register(Request request) {
    int id = nextId++;
    requests.put(id, request);
    ids.put(request, id);
    return id;
  }

  private Request ended(int id) {
    return Objects.requireNonNull(requests.remove(id), "an unknown request has ended");
  }

  // --- what became of them ----------------------------------------------------------------------

  private Runnable read(Word word) {
    return switch (word) {
      case SENT -> sent(ended(line.number()));
      case RECEIVED -> received((ReceiveRequest) ended(line.number()));
      case COPIED -> copied((CopyRequest) ended(line.number()));
      case FAILED -> failed(ended(line.number()));
      case ARRIVED -> arrived();
      case LANDED -> landed();
      case LANDING_FAILED -> landingFailed();
      case WINDOW -> window();
      default -> throw new IllegalStateException(word + " is nothing that becomes of a call");
    };
  }

  private static Runnable sent(Request request) {
    return switch (request) {
      case SendRequest send -> send::sent;
      case MessageRequest message -> message::sent;
      default -> throw new IllegalStateException("nothing to send: " + request);
    };
  }

  private Runnable received(ReceiveRequest receive) {
    int source = line.number();
    long bytes = line.longNumber();
    MemorySegment[] filled = line.memories();
    MemorySegment[] into = receive.into();
    if (into == null) {
      return () -> receive.received(source, bytes, filled[0]);
    }
    copy(filled, into);
    return () -> receive.received(source, bytes, null);
  }

  private Runnable copied(CopyRequest copy) {
    MemorySegment bytes = line.memory();
    if (!copy.local().isReadOnly()) {
      copy.local().copyFrom(bytes);
    }
    copies++;
    return copy::copied;
  }

  private Runnable failed(Request request) {
    TransportException cause = line.failure();
    return () -> request.failed(cause);
  }

  private Runnable arrived() {
    MessageListener listener = Objects.requireNonNull(listeners.get(line.number()));
    int id = line.number();
    int source = line.number();
    int handler = line.number();
    long headerBytes = line.longNumber();
    long[] blobs = new long[line.number()];
    for (int i = 0; i < blobs.length; i++) {
      blobs[i] = line.longNumber();
    }
    Arrival arrival = new RemoteArrival(id, source, handler, headerBytes, blobs);
    return () -> listener.arrived(arrival);
  }

  private Runnable landed() {
    Pending pending = Objects.requireNonNull(landings.remove(line.number()));
    copy(line.memories(), pending.into);
    return pending.landing::landed;
  }

  private Runnable landingFailed() {
    Pending pending = Objects.requireNonNull(landings.remove(line.number()));
    TransportException cause = line.failure();
    return () -> pending.landing.failed(cause);
  }

  private Runnable window() {
    MemorySegment window = windows.get(line.longNumber());
    MemorySegment bytes = line.memory();
    return () -> {
      if (window != null) {
        window.copyFrom(bytes);
      }
    };
  }

  /** A copy that is done somewhere may have changed what is exposed here. */
  private void refreshWindows() {
    if (!closed && !windows.isEmpty()) {
      int _ = poll();
    }
  }

  private static void copy(MemorySegment[] from, MemorySegment[] to) {
    for (int i = 0; i < from.length; i++) {
      to[i].copyFrom(from[i]);
    }
  }

  // --- opening ----------------------------------------------------------------------------------

  /** Asks the rank to open; all ranks are asked before one of them answers. */
  void beginOpen(int ranks, long eagerBytes, int eagerMessages) {
    call(Word.OPEN).number(ranks).longNumber(eagerBytes).number(eagerMessages).flush();
  }

  /** Whether it is a rank of that world. */
  boolean endOpen() {
    return answer(
        () -> {
          if (!line.flag()) {
            return false;
          }
          name = line.text();
          rank = line.number();
          size = line.number();
          level = ThreadLevel.valueOf(line.text());
          // Nothing is heard but in answers, and only the suite's one thread asks.
          caps = new TransportCaps(true, line.flag(), line.number());
          level = level == ThreadLevel.MULTIPLE ? ThreadLevel.SERIALIZED : level;
          return true;
        });
  }

  // --- the transport ----------------------------------------------------------------------------

  @Override
  public String name() {
    return name;
  }

  @Override
  public int rank() {
    return rank;
  }

  @Override
  public int size() {
    return size;
  }

  @Override
  public ThreadLevel threadLevel() {
    return level;
  }

  @Override
  public TransportCaps caps() {
    return caps;
  }

  @Override
  public int openChannel(int parent, int index) {
    call(Word.OPEN_CHANNEL).number(parent).number(index);
    return answer(line::number);
  }

  @Override
  public void send(SendRequest request) {
    int id = register(request);
    call(Word.SEND)
        .number(id)
        .number(request.channel())
        .text(request.traffic().name())
        .number(request.target())
        .number(request.tag())
        .memories(request.blobs());
    done();
  }

  @Override
  public void receive(ReceiveRequest request) {
    int id = register(request);
    call(Word.RECEIVE)
        .number(id)
        .number(request.channel())
        .text(request.traffic().name())
        .number(request.source())
        .number(request.tag());
    MemorySegment[] into = request.into();
    line.flag(into != null);
    if (into != null) {
      line.memories(into);
    }
    done();
  }

  @Override
  public void message(MessageRequest request) {
    int id = register(request);
    call(Word.MESSAGE)
        .number(id)
        .number(request.channel())
        .number(request.target())
        .number(request.handler())
        .memory(request.header())
        .memories(request.blobs());
    done();
  }

  @Override
  public void listen(int channel, MessageListener listener) {
    int id = nextId++;
    listeners.put(id, listener);
    call(Word.LISTEN).number(channel).number(id);
    done();
  }

  @Override
  public long expose(MemorySegment segment) {
    call(Word.EXPOSE).memory(segment);
    long key = answer(line::longNumber);
    windows.put(key, segment);
    return key;
  }

  @Override
  public void conceal(long key) {
    call(Word.CONCEAL).longNumber(key);
    done();
    windows.remove(key);
  }

  @Override
  public void put(CopyRequest request) {
    copy(Word.PUT, request);
  }

  @Override
  public void get(CopyRequest request) {
    copy(Word.GET, request);
  }

  private void copy(Word word, CopyRequest request) {
    int id = register(request);
    call(word)
        .number(id)
        .number(request.channel())
        .number(request.peer())
        .longNumber(request.key())
        .longNumber(request.offset())
        .memory(request.local());
    done();
  }

  @Override
  public boolean cancel(Request request) {
    call(Word.CANCEL).number(Objects.requireNonNull(ids.get(request)));
    return answer(
        () -> {
          boolean gone = line.flag();
          MemorySegment[] now = line.memories();
          if (request instanceof ReceiveRequest receive && receive.into() != null) {
            copy(now, Objects.requireNonNull(receive.into()));
          }
          return gone;
        });
  }

  @Override
  public int poll() {
    call(Word.POLL);
    return answer(line::number);
  }

  @Override
  public void abort(Throwable cause) {
    call(Word.ABORT).failure(new TransportException(Reason.PEER_FAILED, "abort", cause));
    done();
  }

  @Override
  public List<Undelivered> closeChannel(int channel) {
    call(Word.CLOSE_CHANNEL).number(channel);
    return answer(
        () -> {
          List<Undelivered> left = new ArrayList<>();
          for (int i = line.number(); i > 0; i--) {
            left.add(
                new Undelivered(
                    line.text(), line.number(), line.number(), line.number(), line.longNumber()));
          }
          return List.copyOf(left);
        });
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      call(Word.CLOSE);
      done();
    }
  }

  private final class RemoteArrival implements Arrival {
    private final int id;
    private final int source;
    private final int handler;
    private final long headerBytes;
    private final long[] blobs;

    /** Accepted or refused here: what happened there is not asked. */
    private boolean over;

    RemoteArrival(int id, int source, int handler, long headerBytes, long[] blobs) {
      this.id = id;
      this.source = source;
      this.handler = handler;
      this.headerBytes = headerBytes;
      this.blobs = blobs;
    }

    @Override
    public int source() {
      return source;
    }

    @Override
    public int handler() {
      return handler;
    }

    @Override
    public long headerBytes() {
      return headerBytes;
    }

    @Override
    public boolean readHeader(MemorySegment into) {
      call(Word.READ_HEADER).number(id).memory(into);
      return answer(
          () -> {
            boolean read = line.flag();
            into.copyFrom(line.memory());
            return read;
          });
    }

    @Override
    public int blobs() {
      return blobs.length;
    }

    @Override
    public long bytes(int blob) {
      return blobs[blob];
    }

    @Override
    public boolean isOver() {
      return over;
    }

    @Override
    public void accept(MemorySegment[] into, Landing landing) {
      over = true;
      int landingId = nextId++;
      landings.put(landingId, new Pending(into, landing));
      call(Word.ACCEPT).number(id).number(landingId).memories(into);
      done();
    }

    @Override
    public void refuse(TransportException cause) {
      over = true;
      call(Word.REFUSE).number(id).failure(cause);
      done();
    }
  }
}
