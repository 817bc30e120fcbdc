package io.fairlead.sim;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.wire.Packet;
import io.fairlead.comm.wire.Transfer;
import io.fairlead.comm.wire.Wire;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.IntConsumer;
import org.jspecify.annotations.Nullable;

/**
 * Wires between ranks of one process that do what a message library may do, as a seed decides:
 * packets and bulk take their time, completions come in any order, packets are all on their way,
 * ranks die, and words on the wire are changed. What only a wrong core would do is written down in
 * {@link #violations}.
 *
 * <p>Time is counted in polls, so that a run of one thread is the same each time. All state is
 * guarded by one lock; callbacks are made outside it.
 */
public final class SimNetwork {

  /**
   * How the network behaves.
   *
   * @param level who may call a wire; a breach is a violation
   * @param packets how many packets a rank has to send
   * @param delayMax the longest delay of anything, in polls; 0: none, and completions in order
   * @param copies false: bulk is not copied, so that it can be longer than there is memory
   */
  public record Settings(
      ThreadLevel level,
      int packetBytes,
      int packetsPerPeer,
      int packets,
      int bulkTags,
      long bulkBytesMax,
      int delayMax,
      boolean copies) {

    /** No delays, and no want of anything. */
    public static final Settings QUICK =
        new Settings(ThreadLevel.SERIALIZED, 4096, 64, 256, 1024, 1L << 30, 0, true);

    public Settings withLevel(ThreadLevel other) {
      return new Settings(
          other, packetBytes, packetsPerPeer, packets, bulkTags, bulkBytesMax, delayMax, copies);
    }

    /** Short packets, few of them, short bulk, and delays. */
    public Settings withWant(int newPacketBytes, int newPackets, long bulk, int delay) {
      return new Settings(
          level,
          newPacketBytes,
          Wire.PACKETS_PER_PEER_LEAST,
          newPackets,
          Wire.BULK_TAGS_LEAST,
          bulk,
          delay,
          copies);
    }

    public Settings withoutCopies(long bulk) {
      return new Settings(
          level, packetBytes, packetsPerPeer, packets, bulkTags, bulk, delayMax, false);
    }
  }

  /** Changes packets on their way. */
  public interface Tamper {
    /** {@code memory} holds the packet's {@code bytes}; answers how many arrive. */
    int change(int source, int target, MemorySegment memory, int bytes);
  }

  private record Lane(int source, int target, int tag) {}

  private record Flight(MemorySegment memory, int bytes, long due) {}

  private record Due(long due, Runnable event) {}

  private record Loss(long due, int rank) {}

  private record Resting(long due, Packet packet) {}

  private record Post(MemorySegment memory, Transfer transfer) {}

  private static final long PAUSE_NANOS = 20_000;

  private final ReentrantLock lock = new ReentrantLock();
  private final Random random;
  private final int size;
  private final Settings settings;
  private final SimWire[] wires;
  private final Map<Lane, Queue<Post>> sends = new HashMap<>();
  private final Map<Lane, Queue<Post>> receives = new HashMap<>();
  private final List<List<Due>> events = new ArrayList<>();
  private final List<Queue<Flight>> flights = new ArrayList<>();
  private final boolean[] dead;
  private final List<String> violations = new ArrayList<>();
  private final Queue<MemorySegment> spare = new ArrayDeque<>();
  private Tamper tamper = (source, target, memory, bytes) -> bytes;
  private IntConsumer pause = rank -> LockSupport.parkNanos(PAUSE_NANOS);
  private long now;
  private long mostInFlight;

  /** Wires for so many ranks. */
  public SimNetwork(long seed, int size, Settings settings) {
    this.random = new Random(seed);
    this.size = size;
    this.settings = settings;
    this.dead = new boolean[size];
    for (int i = 0; i < size * size; i++) {
      flights.add(new ArrayDeque<>());
    }
    this.wires = new SimWire[size];
    for (int rank = 0; rank < size; rank++) {
      events.add(new ArrayList<>());
      wires[rank] = new SimWire(rank);
    }
  }

  /** The wire of a rank. */
  public Wire wire(int rank) {
    return wires[rank];
  }

  /** What is done while a rank waits for others inside close; by default others get the core. */
  public void onPause(IntConsumer newPause) {
    pause = newPause;
  }

  public void tamper(Tamper newTamper) {
    tamper = newTamper;
  }

  /** The rank does nothing any more; the others are told in a while. */
  public void kill(int rank) {
    lock();
    try {
      dead[rank] = true;
      for (SimWire other : wires) {
        if (other.rank != rank) {
          other.losses.add(new Loss(now + delay(), rank));
        }
      }
    } finally {
      lock.unlock();
    }
  }

  /** What the cores did that a library need not bear. */
  public List<String> violations() {
    lock();
    try {
      return List.copyOf(violations);
    } finally {
      lock.unlock();
    }
  }

  /** Bulk sends and receives that nothing answered. */
  public int leftovers() {
    lock();
    try {
      int sum = 0;
      for (Queue<Post> posts : sends.values()) {
        sum += posts.size();
      }
      for (Queue<Post> posts : receives.values()) {
        sum += posts.size();
      }
      return sum;
    } finally {
      lock.unlock();
    }
  }

  /** The most packets that were on their way from one rank to another. */
  public long mostInFlight() {
    lock();
    try {
      return mostInFlight;
    } finally {
      lock.unlock();
    }
  }

  /** Spins, since a transport must not suspend a virtual thread; nobody holds the lock for long. */
  private void lock() {
    while (!lock.tryLock()) {
      Thread.onSpinWait();
    }
  }

  // --- under the lock ---------------------------------------------------------------------------

  private long delay() {
    return settings.delayMax == 0 ? 0 : random.nextInt(settings.delayMax + 1);
  }

  private void violation(String what) {
    violations.add(what);
  }

  private Queue<Flight> flights(int source, int target) {
    return flights.get(source * size + target);
  }

  private void fly(int source, int target, MemorySegment memory, int bytes) {
    Queue<Flight> queue = flights(source, target);
    if (dead[source] || dead[target]) {
      return;
    }
    MemorySegment copy = spare.isEmpty() ? allocate() : spare.remove();
    MemorySegment.copy(memory, 0, copy, 0, bytes);
    int arriving = tamper.change(source, target, copy, bytes);
    queue.add(new Flight(copy, arriving, now + delay()));
    mostInFlight = Math.max(mostInFlight, queue.size());
    if (queue.size() > settings.packetsPerPeer) {
      violation(queue.size() + " packets on their way from " + source + " to " + target);
    }
  }

  private MemorySegment allocate() {
    return Arena.ofAuto().allocate(settings.packetBytes, 64);
  }

  private void reuse(MemorySegment memory) {
    lock();
    try {
      spare.add(memory);
    } finally {
      lock.unlock();
    }
  }

  private void match(Lane lane) {
    Queue<Post> sent = sends.getOrDefault(lane, new ArrayDeque<>());
    Queue<Post> posted = receives.getOrDefault(lane, new ArrayDeque<>());
    while (!sent.isEmpty() && !posted.isEmpty()) {
      move(lane, sent.remove(), posted.remove());
    }
    if (sent.isEmpty()) {
      sends.remove(lane);
    }
    if (posted.isEmpty()) {
      receives.remove(lane);
    }
  }

  private void move(Lane lane, Post sent, Post posted) {
    long bytes = sent.memory.byteSize();
    if (bytes > posted.memory.byteSize()) {
      event(lane.target, () -> posted.transfer.failed(new IllegalStateException("truncated")));
    } else {
      if (settings.copies) {
        MemorySegment.copy(sent.memory, 0, posted.memory, 0, bytes);
      }
      event(lane.target, () -> posted.transfer.done(bytes));
    }
    event(lane.source, () -> sent.transfer.done(bytes));
  }

  private void event(int rank, Runnable event) {
    events.get(rank).add(new Due(now + delay(), event));
  }

  // --- one rank's end ---------------------------------------------------------------------------

  private final class SimWire implements Wire {
    private static final int BATCH = 32;
    private static final byte POISON = (byte) 0xA5;

    private final int rank;
    private final Queue<Packet> free = new ArrayDeque<>();
    private final List<Resting> resting = new ArrayList<>();
    private final List<Loss> losses = new ArrayList<>();
    private @Nullable Thread owner;
    private @Nullable Thread inside;
    private boolean closed;

    SimWire(int rank) {
      this.rank = rank;
      for (int i = 0; i < settings.packets; i++) {
        free.add(new Packet(allocate(), i));
      }
    }

    @Override
    public String name() {
      return "simulated";
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
      return settings.level;
    }

    @Override
    public int packetBytes() {
      return settings.packetBytes;
    }

    @Override
    public int packetsPerPeer() {
      return settings.packetsPerPeer;
    }

    @Override
    public int bulkTags() {
      return settings.bulkTags;
    }

    @Override
    public long bulkBytesMax() {
      return settings.bulkBytesMax;
    }

    private void enter() {
      lock();
      Thread here = Thread.currentThread();
      if (closed) {
        violation("rank " + rank + " is used after its close");
      }
      if (settings.level == ThreadLevel.FUNNELED) {
        owner = owner == null ? here : owner;
        if (owner != here) {
          violation("rank " + rank + " belongs to " + owner + ", entered by " + here);
        }
      } else if (inside != null && inside != here) {
        violation("rank " + rank + " is entered by " + here + " while " + inside + " polls");
      }
    }

    @Override
    public @Nullable Packet take() {
      enter();
      try {
        return free.poll();
      } finally {
        lock.unlock();
      }
    }

    @Override
    public void give(Packet packet) {
      enter();
      try {
        free.add(packet);
      } finally {
        lock.unlock();
      }
    }

    @Override
    public void send(int peer, Packet packet, int bytes) {
      enter();
      try {
        if (bytes > settings.packetBytes) {
          violation("a packet of " + bytes + " bytes");
        }
        fly(rank, peer, packet.memory(), bytes);
        resting.add(new Resting(now + delay(), packet));
      } finally {
        lock.unlock();
      }
    }

    @Override
    public void sendBulk(int peer, int tag, MemorySegment memory, Transfer transfer) {
      post(sends, new Lane(rank, peer, tag), memory, transfer);
    }

    @Override
    public void receiveBulk(int peer, int tag, MemorySegment memory, Transfer transfer) {
      post(receives, new Lane(peer, rank, tag), memory, transfer);
    }

    private void post(
        Map<Lane, Queue<Post>> posts, Lane lane, MemorySegment memory, Transfer transfer) {
      enter();
      try {
        if (lane.tag < 0
            || lane.tag >= settings.bulkTags
            || memory.byteSize() > settings.bulkBytesMax
            || !memory.isNative()) {
          violation("bulk of " + memory.byteSize() + " bytes, " + lane);
        }
        if (!dead[lane.source] && !dead[lane.target]) {
          posts.computeIfAbsent(lane, key -> new ArrayDeque<>()).add(new Post(memory, transfer));
          match(lane);
        }
      } finally {
        lock.unlock();
      }
    }

    @Override
    public int poll(Listener listener) {
      List<Runnable> found = new ArrayList<>();
      enter();
      try {
        if (inside != null) {
          violation("rank " + rank + " polls inside a poll");
        }
        inside = Thread.currentThread();
        now++;
        if (!dead[rank]) {
          collect(listener, found);
        }
      } finally {
        lock.unlock();
      }
      try {
        found.forEach(Runnable::run);
      } finally {
        leave();
      }
      return found.size();
    }

    private void leave() {
      lock();
      try {
        inside = null;
      } finally {
        lock.unlock();
      }
    }

    private void collect(Listener listener, List<Runnable> found) {
      resting.removeIf(rested -> rested.due <= now && free.add(rested.packet));
      List<Due> mine = events.get(rank);
      mine.removeIf(due -> due.due <= now && found.add(due.event));
      List<Integer> sources = new ArrayList<>();
      for (int source = 0; source < size; source++) {
        sources.add(source);
      }
      if (settings.delayMax > 0) {
        Collections.shuffle(found, random);
        Collections.shuffle(sources, random);
      }
      for (int source : sources) {
        land(source, listener, found);
      }
      losses.removeIf(
          loss ->
              loss.due <= now
                  && found.add(
                      () ->
                          listener.lost(
                              loss.rank, new IllegalStateException("the process ended"))));
    }

    private void land(int source, Listener listener, List<Runnable> found) {
      Queue<Flight> queue = flights(source, rank);
      for (int i = 0; i < BATCH; i++) {
        Flight flight = queue.peek();
        if (flight == null || flight.due > now) {
          return;
        }
        queue.remove();
        found.add(
            () -> {
              listener.packet(source, flight.memory, flight.bytes);
              // What is kept of a packet beyond the call would be seen to be wrong.
              flight.memory.fill(POISON);
              reuse(flight.memory);
            });
      }
    }

    @Override
    public void pause() {
      pause.accept(rank);
    }

    @Override
    public void close() {
      enter();
      try {
        closed = true;
      } finally {
        lock.unlock();
      }
    }
  }
}
