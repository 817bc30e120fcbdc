package io.fairlead.sim.remote;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.spi.Undelivered;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.Socket;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * One rank's process: does with its transport what the suite says, and polls it in between, as a
 * communication thread does. Everything runs on the thread that calls {@link #serve}, so that it
 * does for transports of any thread level; a transport that needs no polling may end requests on
 * threads of its own.
 *
 * <p>What happens meanwhile is kept until the next call is answered, and told before its answer.
 */
public final class RankAgent {
  private static final long IDLE_NANOS = 20_000;

  private final Line line;
  private final Function<TransportSettings, @Nullable Transport> opener;
  private final Queue<Runnable> news = new ConcurrentLinkedQueue<>();
  private final Map<Integer, Request> requests = new HashMap<>();
  private final Map<Integer, Arrival> arrivals = new ConcurrentHashMap<>();
  private final Map<Long, MemorySegment> windows = new HashMap<>();
  private final Set<Integer> withdrawn = ConcurrentHashMap.newKeySet();
  private @Nullable Transport transport;

  /** The last one, which is closed; it answers so to what comes late. */
  private @Nullable Transport over;

  private final AtomicInteger arrivalCount = new AtomicInteger();

  private RankAgent(Line line, Function<TransportSettings, @Nullable Transport> opener) {
    this.line = line;
    this.opener = opener;
  }

  /**
   * Serves until the suite says that it is over, or is gone.
   *
   * @param port where the suite listens on this host
   * @param rank which rank this process is
   * @param opener opens a world of so many ranks as the settings say, together with the other
   *     processes; null if this process is none of them
   */
  public static void serve(
      int port, int rank, Function<TransportSettings, @Nullable Transport> opener)
      throws IOException {
    try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
      Line line = new Line(socket);
      line.number(rank).flush();
      new RankAgent(line, opener).run();
    }
  }

  private void run() {
    while (true) {
      Transport open = transport;
      if (line.hasInput() || open == null || !open.caps().progress()) {
        if (!answer()) {
          return;
        }
      } else if (open.poll() == 0) {
        LockSupport.parkNanos(IDLE_NANOS);
      }
    }
  }

  private Transport transport() {
    Transport open = transport == null ? over : transport;
    return Objects.requireNonNull(open, "this process is no rank of the world");
  }

  /** Answers one call; false: there will be no more. */
  private boolean answer() {
    for (int i = line.number(); i > 0; i--) {
      withdrawn.add(line.number());
    }
    Word word = line.word();
    if (word == Word.EXIT) {
      return false;
    }
    Runnable answer;
    try {
      answer = call(word);
    } catch (RuntimeException e) {
      String text = String.valueOf(e);
      answer = () -> line.say(Word.THROWN).text(text);
    }
    tellNews();
    answer.run();
    line.flush();
    return true;
  }

  private void tellNews() {
    windows.forEach((key, memory) -> line.say(Word.WINDOW).longNumber(key).memory(memory));
    for (Runnable each = news.poll(); each != null; each = news.poll()) {
      each.run();
    }
  }

  private Runnable call(Word word) {
    return switch (word) {
      case OPEN -> open();
      case OPEN_CHANNEL -> number(transport().openChannel(line.number(), line.number()));
      case SEND -> done(this::send);
      case RECEIVE -> done(this::receive);
      case MESSAGE -> done(this::message);
      case LISTEN -> done(this::listen);
      case READ_HEADER -> readHeader();
      case ACCEPT -> done(this::accept);
      case REFUSE -> done(this::refuse);
      case EXPOSE -> expose();
      case CONCEAL -> done(this::conceal);
      case PUT -> done(this::put);
      case GET -> done(this::get);
      case CANCEL -> cancel();
      case POLL -> number(transport().poll());
      case ABORT -> done(this::abort);
      case CLOSE_CHANNEL -> closeChannel();
      case CLOSE -> done(this::close);
      case EXIT,
          SENT,
          RECEIVED,
          COPIED,
          FAILED,
          ARRIVED,
          LANDED,
          LANDING_FAILED,
          WINDOW,
          ANSWER,
          THROWN ->
          throw new IllegalStateException(word + " is no call");
    };
  }

  // --- answers ----------------------------------------------------------------------------------

  private Runnable number(int number) {
    return () -> line.say(Word.ANSWER).number(number);
  }

  private Runnable flag(boolean flag) {
    return () -> line.say(Word.ANSWER).flag(flag);
  }

  /** Does it; there is nothing to say but that it is done. */
  private Runnable done(Runnable call) {
    call.run();
    return flag(true);
  }

  // --- calls ------------------------------------------------------------------------------------

  private Runnable open() {
    TransportSettings settings =
        new TransportSettings(line.number(), line.longNumber(), line.number());
    requests.clear();
    arrivals.clear();
    windows.clear();
    withdrawn.clear();
    Transport opened = opener.apply(settings);
    transport = opened;
    if (opened == null) {
      return flag(false);
    }
    return () ->
        line.say(Word.ANSWER)
            .flag(true)
            .text(opened.name())
            .number(opened.rank())
            .number(opened.size())
            .text(opened.threadLevel().name())
            .flag(opened.caps().oneSided())
            .number(opened.caps().tagMax());
  }

  private void send() {
    int id = line.number();
    int channel = line.number();
    Traffic traffic = Traffic.valueOf(line.text());
    int target = line.number();
    int tag = line.number();
    SendRequest send = new Send(id, channel, traffic, target, tag, line.memories());
    requests.put(id, send);
    transport().send(send);
  }

  private void receive() {
    int id = line.number();
    int channel = line.number();
    Traffic traffic = Traffic.valueOf(line.text());
    int source = line.number();
    int tag = line.number();
    MemorySegment[] into = line.flag() ? line.memories() : null;
    ReceiveRequest receive = new Receive(id, channel, traffic, source, tag, into);
    requests.put(id, receive);
    transport().receive(receive);
  }

  private void message() {
    int id = line.number();
    int channel = line.number();
    int target = line.number();
    int handler = line.number();
    MemorySegment header = line.memory();
    MessageRequest message = new Message(id, channel, target, handler, header, line.memories());
    requests.put(id, message);
    transport().message(message);
  }

  private void listen() {
    int channel = line.number();
    int listener = line.number();
    transport()
        .listen(
            channel,
            arrival -> {
              int id = arrivalCount.getAndIncrement();
              arrivals.put(id, arrival);
              news.add(() -> tellArrival(listener, id, arrival));
            });
  }

  private void tellArrival(int listener, int id, Arrival arrival) {
    line.say(Word.ARRIVED)
        .number(listener)
        .number(id)
        .number(arrival.source())
        .number(arrival.handler())
        .longNumber(arrival.headerBytes())
        .number(arrival.blobs());
    for (int blob = 0; blob < arrival.blobs(); blob++) {
      line.longNumber(arrival.bytes(blob));
    }
  }

  private Arrival arrival() {
    return Objects.requireNonNull(arrivals.get(line.number()));
  }

  private Runnable readHeader() {
    Arrival arrival = arrival();
    MemorySegment into = line.memory();
    boolean read = arrival.readHeader(into);
    return () -> line.say(Word.ANSWER).flag(read).memory(into);
  }

  private void accept() {
    Arrival arrival = arrival();
    int id = line.number();
    MemorySegment[] into = line.memories();
    arrival.accept(
        into,
        new Arrival.Landing() {
          @Override
          public void landed() {
            news.add(() -> line.say(Word.LANDED).number(id).memories(into));
          }

          @Override
          public void failed(TransportException cause) {
            news.add(() -> line.say(Word.LANDING_FAILED).number(id).failure(cause));
          }
        });
  }

  private void refuse() {
    arrival().refuse(line.failure());
  }

  private Runnable expose() {
    MemorySegment window = line.memory();
    long key = transport().expose(window);
    windows.put(key, window);
    return () -> line.say(Word.ANSWER).longNumber(key);
  }

  private void conceal() {
    long key = line.longNumber();
    transport().conceal(key);
    windows.remove(key);
  }

  private void put() {
    transport().put(copy());
  }

  private void get() {
    transport().get(copy());
  }

  private CopyRequest copy() {
    int id = line.number();
    int channel = line.number();
    int peer = line.number();
    long key = line.longNumber();
    long offset = line.longNumber();
    CopyRequest copy = new Copy(id, channel, peer, key, offset, line.memory());
    requests.put(id, copy);
    return copy;
  }

  private Runnable cancel() {
    Request request = Objects.requireNonNull(requests.get(line.number()));
    boolean gone = transport().cancel(request);
    MemorySegment[] into = request instanceof Receive receive ? receive.into() : null;
    return () -> line.say(Word.ANSWER).flag(gone).memories(into == null ? Segments.NONE : into);
  }

  private void abort() {
    transport().abort(Objects.requireNonNull(line.failure().getCause()));
  }

  private Runnable closeChannel() {
    List<Undelivered> left = transport().closeChannel(line.number());
    return () -> {
      line.say(Word.ANSWER).number(left.size());
      for (Undelivered each : left) {
        line.text(each.kind()).number(each.source()).number(each.target()).number(each.id());
        line.longNumber(each.bytes());
      }
    };
  }

  private void close() {
    over = transport();
    over.close();
    transport = null;
    windows.clear();
  }

  // --- requests ---------------------------------------------------------------------------------

  private void tell(int id, Word word) {
    news.add(() -> line.say(word).number(id));
  }

  private void tellFailure(int id, TransportException cause) {
    news.add(() -> line.say(Word.FAILED).number(id).failure(cause));
  }

  private final class Send extends SendRequest {
    private final int id;

    Send(int id, int channel, Traffic traffic, int target, int tag, MemorySegment[] blobs) {
      super(channel, traffic, target, tag, blobs);
      this.id = id;
    }

    @Override
    public void sent() {
      tell(id, Word.SENT);
    }

    @Override
    public void failed(TransportException cause) {
      tellFailure(id, cause);
    }

    @Override
    public boolean isWithdrawn() {
      return withdrawn.contains(id);
    }
  }

  private final class Receive extends ReceiveRequest {
    private final int id;

    Receive(
        int id,
        int channel,
        Traffic traffic,
        int source,
        int tag,
        MemorySegment @Nullable [] into) {
      super(channel, traffic, source, tag, into);
      this.id = id;
    }

    @Override
    public void received(int source, long bytes, @Nullable MemorySegment data) {
      MemorySegment[] into = into();
      MemorySegment[] filled =
          into != null
              ? into
              : new MemorySegment[] {Objects.requireNonNull(data, "no data of a receive without")};
      news.add(
          () ->
              line.say(Word.RECEIVED).number(id).number(source).longNumber(bytes).memories(filled));
    }

    @Override
    public void failed(TransportException cause) {
      tellFailure(id, cause);
    }

    @Override
    public boolean isWithdrawn() {
      return withdrawn.contains(id);
    }
  }

  private final class Message extends MessageRequest {
    private final int id;

    Message(
        int id, int channel, int target, int handler, MemorySegment header, MemorySegment[] blobs) {
      super(channel, target, handler, header, blobs);
      this.id = id;
    }

    @Override
    public void sent() {
      tell(id, Word.SENT);
    }

    @Override
    public void failed(TransportException cause) {
      tellFailure(id, cause);
    }

    @Override
    public boolean isWithdrawn() {
      return withdrawn.contains(id);
    }
  }

  private final class Copy extends CopyRequest {
    private final int id;

    Copy(int id, int channel, int peer, long key, long offset, MemorySegment local) {
      super(channel, peer, key, offset, local);
      this.id = id;
    }

    @Override
    public void copied() {
      news.add(() -> line.say(Word.COPIED).number(id).memory(local()));
    }

    @Override
    public void failed(TransportException cause) {
      tellFailure(id, cause);
    }

    @Override
    public boolean isWithdrawn() {
      return withdrawn.contains(id);
    }
  }
}
