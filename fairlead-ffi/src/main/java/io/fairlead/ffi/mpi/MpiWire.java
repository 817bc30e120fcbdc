package io.fairlead.ffi.mpi;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.wire.Packet;
import io.fairlead.comm.wire.Transfer;
import io.fairlead.comm.wire.Wire;
import io.fairlead.device.spi.OsThreads;
import io.fairlead.fault.Mutant;
import io.fairlead.ffi.PosixOsThreads;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * Packets and bulk memory over one communicator of MPI, which is a duplicate that nobody else has.
 *
 * <p><b>Packets</b> have MPI's tag 0 and are received from anybody, into a ring of receives posted
 * ahead. MPI gives a message to the oldest receive that fits, so the ring's oldest is the next to
 * be done, and trying it alone is one call whatever the length of the ring; order between two ranks
 * is MPI's. A packet that is read is posted again when the next one is asked for: who waits for it
 * goes on first. For the same reason one packet ends a poll, as long as they come one by one. Those
 * that were sent are looked at only now and then: nobody waits for them.
 *
 * <p><b>Bulk</b> has tags from 1 on, and its requests lie side by side in an array for MPI, where
 * the last takes the place of one that is done. All of them are tried with one call.
 *
 * <p><b>The communicator</b> is not freed: it ends with MPI. Its number would go to the next one
 * that is made, and with it what is on its way still when a rank closes, such as the answer to its
 * last word, which nobody waits for: both families give that to whoever has the number then.
 *
 * <p><b>Sleep.</b> MPI cannot be waited for. Where all ranks are on one host, whoever sends wakes
 * who sleeps: see {@link Doorbell}. A rank with requests in flight does not sleep.
 *
 * <p><b>Threads</b>: one at a time, whoever keeps the engine's turn; so no field is guarded.
 * Entering while another thread is inside is a bug of the caller, is noticed most times, and
 * thrown.
 *
 * <pre>
 * OPEN → LOST     MPI failed, or a rank is gone: nothing is promised of requests with it
 *      → CLOSED   close()
 * </pre>
 */
final class MpiWire implements Wire {
  /**
   * With MPI's own header less than what both families send at once over shared memory, which is
   * 4,096 bytes in Open MPI and more in MPICH; a multiple of a cache line.
   */
  static final int PACKET_BYTES = 4032;

  /** What a flood of packets may take here, all peers together: 16 MiB. */
  private static final int FLOOD_BYTES_MAX = 16 << 20;

  private static final int PACKETS_PER_PEER_MOST = 128;

  /** Receives posted ahead; more packets than these wait inside MPI, up to the bound above. */
  private static final int RECEIVES_MAX = 256;

  /** Packets on their way out: twice what one peer takes. */
  private static final int SENDS = 2 * PACKETS_PER_PEER_MOST;

  /** Below this the sent ones are looked at in each poll. */
  private static final int SENDS_LOW = SENDS / 4;

  /** Polls after which the sent ones are looked at all the same, so that MPI lets go of them. */
  private static final int POLLS_PER_LOOK = 64;

  /**
   * Polls in vain after which the clock is asked whether to look for dead peers: it takes 25 ns.
   */
  private static final int POLLS_PER_WATCH = 16;

  /** Packets handed over in one poll. */
  private static final int BATCH = 32;

  private static final int TAG_PACKET = 0;
  private static final int TAG_BULK = 1;
  private static final int TAGS_MAX = 1 << 20;

  /** An int's worth of bytes, on a page. */
  private static final long BULK_BYTES_MAX = 1L << 30;

  private static final long PAUSE_NANOS = 50_000;
  private static final long CLOSE_NANOS = TimeUnit.SECONDS.toNanos(2);

  private static final System.Logger LOG = System.getLogger("io.fairlead.ffi.mpi");

  private final MpiProcess process;
  private final MpiLibrary library;
  private final MpiApi api;
  private final MpiFlavour flavour;
  private final long comm;
  private final int rank;
  private final int size;
  private final PeerWatch watch;

  /** Wakes ranks that sleep; null: all of them nap. */
  private final @Nullable Doorbell doorbell;

  private final int packetsPerPeer;
  private final Arena arena = Arena.ofShared();

  /** What a call answers: a flag or a count, and one status. */
  private final MemorySegment flag;

  private final MemorySegment status;

  // --- packets: receives, a ring whose oldest is at head ----------------------------------------

  private final Packet[] receives;
  private final MemorySegment receiveRequests;
  private int head;

  /** The one before {@link #head} is read and not posted again. */
  private boolean unposted;

  /** What the last poll found; and whether more than one packet is looked for in the next. */
  private int packetsFound;

  private boolean bursts;

  // --- packets: sends; free ones are a stack, live ones lie in a row -----------------------------

  private final Packet[] free = new Packet[SENDS];
  private int freeCount;
  private final Requests<Packet> sends;

  /** Where each packet went, by its index. */
  private final int[] targets = new int[SENDS];

  /** At the last look some had not gone. */
  private boolean keptBack;

  private int pollsUnlooked;
  private int pollsInVain;

  /** Who polls will sleep if the next poll finds nothing. */
  private boolean announced;

  // --- bulk -------------------------------------------------------------------------------------

  private final Requests<Bulk> bulks;

  // --- trouble ----------------------------------------------------------------------------------

  /** What went wrong in a post, to be said in the next poll. */
  private final Queue<Trouble> troubles = new ArrayDeque<>();

  private boolean lost;
  private boolean abandoned;

  /** Volatile: {@link #isResting} is asked from outside. */
  private volatile boolean closed;

  /** Null where any thread may enter. */
  private final @Nullable OsThreads osThreads;

  private final long ownThread;

  /** Racy on purpose: it finds bugs of callers, and most of them are enough. */
  private @Nullable Thread inside;

  private record Bulk(Transfer transfer, MemorySegment memory, int peer, boolean send) {}

  private record Trouble(int peer, @Nullable Transfer transfer, TransportException cause) {}

  private MpiWire(MpiProcess process, Introduction.Agreed agreed) {
    this.process = process;
    this.library = process.library;
    this.api = library.api;
    this.flavour = library.flavour;
    this.comm = agreed.comm();
    this.rank = agreed.rank();
    this.size = agreed.size();
    this.watch = new PeerWatch(agreed.processes(), rank);
    this.doorbell = agreed.doorbell();
    this.osThreads = process.level == ThreadLevel.FUNNELED ? new PosixOsThreads() : null;
    this.ownThread = osThreads == null ? 0 : osThreads.current();
    this.packetsPerPeer =
        Math.clamp(
            FLOOD_BYTES_MAX / PACKET_BYTES / size, PACKETS_PER_PEER_LEAST, PACKETS_PER_PEER_MOST);
    this.flag = arena.allocate(Long.BYTES, Long.BYTES);
    this.status = arena.allocate(64, Long.BYTES);
    this.receives = new Packet[(int) Math.min(RECEIVES_MAX, (long) packetsPerPeer * size)];
    this.receiveRequests = arena.allocate((long) receives.length * Long.BYTES, Long.BYTES);
    this.sends = new Requests<>(library, Packet[]::new);
    this.bulks = new Requests<>(library, Bulk[]::new);
    for (int i = 0; i < SENDS; i++) {
      free[freeCount++] = new Packet(arena.allocate(PACKET_BYTES, 64), i);
    }
    for (int i = 0; i < receives.length; i++) {
      receives[i] = new Packet(arena.allocate(PACKET_BYTES, 64), i);
      library.check("MPI_Irecv", postReceive(i));
    }
  }

  /**
   * Opens a wire over a duplicate of {@code parent}; all ranks of it do so together. Waits for
   * them. The wire owns its share of the process and leaves it when it closes.
   *
   * @throws TransportException LIBRARY: see {@link Introduction#meet}
   */
  static MpiWire open(MpiProcess process, long parent) {
    Introduction.Agreed agreed = Introduction.meet(process, parent);
    try {
      return new MpiWire(process, agreed);
    } catch (RuntimeException | Error failure) {
      if (agreed.doorbell() != null) {
        agreed.doorbell().close();
      }
      throw failure;
    }
  }

  @Override
  public String name() {
    return library.version;
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
    return process.level;
  }

  @Override
  public int packetBytes() {
    return PACKET_BYTES;
  }

  @Override
  public int packetsPerPeer() {
    return packetsPerPeer;
  }

  @Override
  public int bulkTags() {
    return Math.min(TAGS_MAX, process.tagMax);
  }

  @Override
  public long bulkBytesMax() {
    return BULK_BYTES_MAX;
  }

  // --- packets ----------------------------------------------------------------------------------

  @Override
  public @Nullable Packet take() {
    if (freeCount == 0) {
      lookAtSends();
    }
    return freeCount == 0 ? null : free[--freeCount];
  }

  @Override
  public void give(Packet packet) {
    free[freeCount++] = packet;
  }

  @Override
  public void send(int peer, Packet packet, int bytes) {
    Thread before = enter();
    int answer =
        api.isend(
            packet.memory().address(),
            bytes,
            library.bytes,
            peer,
            TAG_PACKET,
            comm,
            sends.nextAddress());
    if (answer == 0) {
      sends.add(packet);
      targets[packet.index()] = peer;
      ring(peer);
    } else {
      give(packet);
      troubles.add(new Trouble(peer, null, library.failure("MPI_Isend", answer)));
    }
    inside = before;
  }

  /** MPI has taken something for a peer: it may be asleep, and so may this rank's own loop. */
  private void ring(int peer) {
    Doorbell there = doorbell;
    if (there != null) {
      if (peer != rank) {
        there.sent(peer);
      }
      there.stir();
    }
  }

  private int postReceive(int index) {
    return api.irecv(
        receives[index].memory().address(),
        PACKET_BYTES,
        library.bytes,
        flavour.anySource,
        TAG_PACKET,
        comm,
        receiveRequests.address() + (long) index * flavour.handleBytes);
  }

  // --- bulk -------------------------------------------------------------------------------------

  @Override
  public void sendBulk(int peer, int tag, MemorySegment memory, Transfer transfer) {
    Thread before = enter();
    int answer =
        api.isend(
            memory.address(),
            (int) memory.byteSize(),
            library.bytes,
            peer,
            TAG_BULK + tag,
            comm,
            bulks.nextAddress());
    posted("MPI_Isend", answer, new Bulk(transfer, memory, peer, true));
    inside = before;
  }

  @Override
  public void receiveBulk(int peer, int tag, MemorySegment memory, Transfer transfer) {
    Thread before = enter();
    int answer =
        api.irecv(
            memory.address(),
            (int) memory.byteSize(),
            library.bytes,
            peer,
            TAG_BULK + tag,
            comm,
            bulks.nextAddress());
    posted("MPI_Irecv", answer, new Bulk(transfer, memory, peer, false));
    inside = before;
  }

  private void posted(String call, int answer, Bulk bulk) {
    if (answer == 0) {
      bulks.add(bulk);
      ring(bulk.send ? bulk.peer : rank);
    } else {
      troubles.add(new Trouble(bulk.peer, bulk.transfer, library.failure(call, answer)));
    }
  }

  // --- progress ---------------------------------------------------------------------------------

  @Override
  public int poll(Listener listener) {
    Thread before = enter();
    try {
      int found = troubles.isEmpty() ? 0 : tellTroubles(listener);
      if (!lost) {
        found += receivePackets(listener);
      }
      if (bulks.count() > 0) {
        found += endBulks(listener);
      }
      if (sends.count() > 0 && (freeCount < SENDS_LOW || ++pollsUnlooked >= POLLS_PER_LOOK)) {
        lookAtSends();
      }
      if (found == 0 && (++pollsInVain % POLLS_PER_WATCH == 0 || announced)) {
        lookAtPeers(listener);
      }
      announced = false;
      return found;
    } finally {
      inside = before;
    }
  }

  private int receivePackets(Listener listener) {
    int most = bursts ? BATCH : 1;
    int found = 0;
    while (found < most && postAgain(listener)) {
      int answer =
          api.test(
              receiveRequests.address() + (long) head * flavour.handleBytes,
              flag.address(),
              status.address());
      if (answer != 0) {
        failAll(listener, library.failure("MPI_Test of a packet", answer));
        break;
      }
      if (flag.get(JAVA_INT, 0) == 0) {
        break;
      }
      found++;
      MemorySegment packet = receives[head].memory();
      head = head + 1 == receives.length ? 0 : head + 1;
      unposted = true;
      listener.packet(flavour.source(status, 0), packet, (int) flavour.count(status, 0));
    }
    bursts = found > 1 || (found > 0 && packetsFound > 0);
    packetsFound = found;
    return found;
  }

  /** Posts what was read before; false: nothing is received any more. */
  private boolean postAgain(Listener listener) {
    if (unposted) {
      int again = postReceive((head == 0 ? receives.length : head) - 1);
      if (again != 0) {
        failAll(listener, library.failure("MPI_Irecv of a packet", again));
        return false;
      }
      unposted = false;
    }
    return true;
  }

  /** Packets can be received no more, so nothing can. */
  private void failAll(Listener listener, TransportException cause) {
    lost = true;
    listener.lost(-1, cause);
  }

  private int endBulks(Listener listener) {
    int ended = bulks.test();
    if (ended < 0) {
      failAll(listener, library.failure("MPI_Testsome", bulks.answer()));
      return 0;
    }
    // All are taken out before anybody is told, who may post new ones.
    for (int i = 0; i < ended; i++) {
      Bulk bulk = bulks.ended(i);
      int error = bulks.error(i);
      if (error != 0) {
        bulk.transfer.failed(library.failure(bulk.send ? "MPI_Isend" : "MPI_Irecv", error));
      } else {
        bulk.transfer.done(bulk.send ? bulk.memory.byteSize() : bulks.bytes(i));
      }
    }
    bulks.forget(ended);
    return ended;
  }

  /** Those that have gone are free again. */
  private void lookAtSends() {
    pollsUnlooked = 0;
    int ended = sends.test();
    for (int i = 0; i < ended; i++) {
      Packet gone = sends.ended(i);
      give(gone);
      if (keptBack) {
        ring(targets[gone.index()]); // it may have gone only now, long after it was posted
      }
      if (sends.error(i) != 0) {
        troubles.add(new Trouble(-1, null, library.failure("MPI_Isend", sends.error(i))));
      }
    }
    if (ended < 0) {
      troubles.add(new Trouble(-1, null, library.failure("MPI_Testsome", sends.answer())));
    } else {
      sends.forget(ended);
    }
    keptBack = sends.count() > 0;
  }

  private int tellTroubles(Listener listener) {
    int told = 0;
    for (Trouble each = troubles.poll(); each != null; each = troubles.poll()) {
      if (each.transfer == null) {
        lost = true;
        listener.lost(each.peer, each.cause);
      } else {
        each.transfer.failed(each.cause);
        told++;
      }
    }
    return told;
  }

  private void lookAtPeers(Listener listener) {
    int gone = watch.look(System.nanoTime());
    if (gone >= 0) {
      abandoned = true;
      listener.lost(
          gone,
          new TransportException(
              Reason.PEER_FAILED,
              "rank " + gone + " (" + watch.process(gone) + ") has ended without a word",
              null));
    }
  }

  @Override
  public boolean announceRest(Runnable bell) {
    announced = doorbell != null && !lost && doorbell.announce(bell);
    return announced;
  }

  /** Also MPI itself moves what was posted only in calls, so nothing may be posted. */
  @Override
  public boolean mayRest() {
    if (sends.count() > 0) {
      Thread before = enter();
      lookAtSends();
      inside = before;
    }
    boolean quiet = sends.count() == 0 && bulks.count() == 0 && troubles.isEmpty();
    return (quiet || Mutant.on("mpi.sleeps-over-requests")) && isResting();
  }

  @Override
  public boolean isResting() {
    return doorbell != null && !closed && doorbell.isAsleep();
  }

  @Override
  public void endRest() {
    if (doorbell != null) {
      doorbell.withdraw();
    }
  }

  @Override
  public void pause() {
    LockSupport.parkNanos(PAUSE_NANOS);
  }

  // --- the end ----------------------------------------------------------------------------------

  @Override
  public void abandon() {
    abandoned = true;
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    if (doorbell != null) {
      doorbell.close();
    }
    boolean clean = !lost && !abandoned && letGo() && !Mutant.on("mpi.gives-up");
    if (clean) {
      arena.close();
      process.leave(watch);
    } else {
      LOG.log(
          System.Logger.Level.WARNING,
          "MPI still holds memory of this rank ({0} packets sent, {1} transfers), which is kept"
              + " until the process ends",
          sends.count(),
          bulks.count());
      process.abandon();
    }
  }

  /** Takes back what was posted ahead, and waits for what was sent, for so long. */
  private boolean letGo() {
    long deadline = System.nanoTime() + CLOSE_NANOS;
    int live = unposted ? receives.length - 1 : receives.length;
    for (int each = 0; each < live; each++) {
      int i = (head + each) % receives.length;
      long request = receiveRequests.address() + (long) i * flavour.handleBytes;
      if (api.cancel(request) != 0 || !ends(request, deadline)) {
        return false;
      }
    }
    while (sends.count() > 0) {
      lookAtSends();
      if (!troubles.isEmpty() || System.nanoTime() - deadline > 0) {
        return false;
      }
    }
    return bulks.count() == 0;
  }

  private boolean ends(long request, long deadline) {
    while (api.test(request, flag.address(), flavour.statusIgnore) == 0) {
      if (flag.get(JAVA_INT, 0) != 0) {
        return true;
      }
      if (System.nanoTime() - deadline > 0) {
        return false;
      }
    }
    return false;
  }

  // --- the door ---------------------------------------------------------------------------------

  /** Who was inside before: this thread itself, when it is called back, or nobody. */
  private @Nullable Thread enter() {
    Thread self = Thread.currentThread();
    Thread before = inside;
    boolean others = before != null && before != self;
    if ((others || !onOwnThread()) && !Mutant.on("mpi.door")) {
      throw new IllegalStateException(
          self
              + " enters MPI "
              + (others ? "while " + before + " is inside" : "on another thread than opened it")
              + ": enter it through the engine, which lets in one at a time, by the thread level");
    }
    inside = self;
    return before;
  }

  /** At FUNNELED; a virtual thread counts as the thread that carries it. */
  private boolean onOwnThread() {
    return osThreads == null || osThreads.current() == ownThread;
  }
}
