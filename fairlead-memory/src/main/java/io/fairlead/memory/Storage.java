package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.fault.Mutant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * One physical range of device memory, and the ledger of who used it. Views share it.
 *
 * <pre>
 * OPEN --close--> CLOSED --last lease or hold ends--> FREEING --free enqueued--> FREED
 *         \------------ there is none ---------------^
 * </pre>
 *
 * A hold keeps the memory for a graph that was made with its address; unlike a lease it keeps
 * nobody from using it.
 *
 * <h2>The ledger</h2>
 *
 * Every use is a READ or a WRITE by a stream, up to a sequence number. A READ comes after the last
 * write. A WRITE comes after the last write and after every read since, and clears them: whoever
 * comes after it comes after them too. Allocating is the first WRITE; freeing is the last. An edge
 * to another stream is asked for with {@link DeviceStream#after}, which makes none that is not
 * needed; uses on one stream only cost a few stores.
 *
 * <p>{@code generation} counts writes: a copy of the bytes is current while it has not moved.
 *
 * <h2>The window</h2>
 *
 * Between {@link #acquire} and {@link #recorded} the use is <i>pending</i>: ordered after the past,
 * but with no sequence number yet that others could be ordered after. A conflicting use therefore
 * waits until it is recorded or abandoned; that is the time of one driver call. Reads do not
 * conflict. Windows are opened in ascending {@link #id}, writes first, by {@link
 * DeviceStream#enqueue}; so two launches that share several storages cannot wait for each other.
 *
 * <h2>Locks and fields</h2>
 *
 * Lock order: a stream's turn, then {@code lock}; nothing is called while {@code lock} is held.
 * Every non-final field is read and written under it, except {@code state} and {@code closedAt},
 * which are also read without: the state only moves forward, and {@link #acquire} looks again.
 */
final class Storage {
  /** Most buffers are read on one or two streams between writes. */
  private static final int READERS_INLINE = 3;

  private static final @Nullable DeviceStream[] NO_READERS = {};
  private static final long[] NO_READS = {};
  private static final AtomicLong IDS = new AtomicLong();

  enum State {
    OPEN,
    CLOSED,
    FREEING,
    FREED
  }

  final long id = IDS.incrementAndGet();
  final long address;
  final long bytes;
  final @Nullable Charge charge;
  final String task;
  final Site site;

  /** Of others' memory, which is not ours to free; set before anybody sees the storage. */
  @Nullable Adoption adoption;

  private final ReentrantLock lock = new ReentrantLock();
  private @Nullable Condition windowClosed;
  private volatile State state = State.OPEN;
  private volatile Site closedAt = Site.NOT_KEPT;
  private List<Lent> leases = List.of();
  private int holds;
  private long generation;

  // The ledger.
  private @Nullable DeviceStream writer;
  private long written;
  private @Nullable DeviceStream[] readers = NO_READERS;
  private long[] read = NO_READS;
  private int readerCount;

  /**
   * The stream of the latest recorded use on this memory's device: where a free has the fewest
   * others to wait for.
   */
  private @Nullable DeviceStream newest;

  // Pending uses: at most one stream writes; each entry of the list is one pending read.
  private @Nullable DeviceStream pendingWriter;
  private int pendingWrites;
  private List<DeviceStream> pendingReads = List.of();

  /**
   * A range that {@code stream} has just allocated, as its operation {@code sequence}, or that was
   * last used by others up to there.
   *
   * @param stream null only for a range of no bytes, which nobody allocates
   */
  Storage(
      long address,
      long bytes,
      @Nullable Charge charge,
      String task,
      Site site,
      @Nullable DeviceStream stream,
      long sequence) {
    this.address = address;
    this.bytes = bytes;
    this.charge = charge;
    this.task = task;
    this.site = site;
    this.writer = stream;
    this.written = sequence;
    this.newest = stream;
  }

  /** A range that {@code stream} got from a pool, whose uses so far count as its own. */
  Storage(Block block, long bytes, Site site, DeviceStream stream) {
    this.address = block.address();
    this.bytes = bytes;
    this.charge = block.charge();
    this.task = charge.account.task;
    this.site = site;
    this.newest = stream;
    Frontier before = block.frontier();
    if (before.write != null) {
      this.writer = before.write.stream();
      this.written = before.write.sequence();
    }
    for (Mark mark : before.reads) {
      recordRead(mark.stream(), mark.sequence());
    }
  }

  // --- using it -----------------------------------------------------------------------------

  /**
   * Opens a window and orders {@code stream} after every use that {@code access} conflicts with.
   * Called with the stream's turn; may park for the length of somebody else's driver call.
   *
   * @throws IllegalStateException if the storage was closed
   */
  void acquire(DeviceStream stream, Access access) {
    List<Mark> before;
    lock.lock();
    try {
      before = open(stream, access, State.OPEN);
    } finally {
      lock.unlock();
    }
    order(stream, access, before);
  }

  /** As {@link #acquire} for the WRITE that is the free: the one use of a closed storage. */
  void acquireToFree(DeviceStream stream) {
    List<Mark> before;
    lock.lock();
    try {
      before = open(stream, Access.WRITE, State.FREEING);
    } finally {
      lock.unlock();
    }
    order(stream, Access.WRITE, Mutant.on("ledger.free.skip") ? List.of() : before);
  }

  private List<Mark> open(DeviceStream stream, Access access, State expected) {
    requireState(expected);
    if (!leases.isEmpty()) {
      requireNotLent(stream, access);
    }
    while (conflicts(stream, access)) {
      windowClosed().awaitUninterruptibly();
    }
    requireState(expected);
    if (access == Access.READ) {
      if (pendingReads.isEmpty()) {
        pendingReads = new ArrayList<>(2);
      }
      pendingReads.add(stream);
    } else {
      pendingWriter = stream;
      pendingWrites++;
    }
    return usesBefore(stream, access);
  }

  /** Under the lock. Made for the first who waits; hardly anybody does. */
  private Condition windowClosed() {
    Condition known = windowClosed;
    if (known == null) {
      known = lock.newCondition();
      windowClosed = known;
    }
    return known;
  }

  /** A stream never conflicts with itself: its turn makes all pending uses one operation. */
  private boolean conflicts(DeviceStream stream, Access access) {
    if (pendingWrites > 0 && pendingWriter != stream) {
      return true;
    }
    if (access != Access.READ) {
      for (DeviceStream reader : pendingReads) {
        if (reader != stream) {
          return true;
        }
      }
    }
    return false;
  }

  private List<Mark> usesBefore(DeviceStream stream, Access access) {
    boolean writes = access != Access.READ;
    boolean afterWriter = writer != null && writer != stream;
    if (!afterWriter && (!writes || readerCount == 0)) {
      return List.of(); // The hot path: one stream, no allocation, no driver call.
    }
    List<Mark> marks = new ArrayList<>();
    if (writer != null && afterWriter) {
      marks.add(new Mark(writer, written));
    }
    for (int i = 0; writes && i < readerCount; i++) {
      DeviceStream reader = readers[i];
      if (reader != null && reader != stream) {
        Mark mark = new Mark(reader, read[i]);
        if (!Frontier.isOver(mark)) {
          marks.add(mark);
        }
      }
    }
    return marks;
  }

  /** Outside the lock: the pending use keeps the ledger from moving under the marks. */
  private void order(DeviceStream stream, Access access, List<Mark> before) {
    try {
      for (Mark mark : before) {
        stream.after(mark);
      }
    } catch (RuntimeException | Error failure) {
      abandoned(stream, access);
      throw failure;
    }
  }

  /** The operation was enqueued: closes the window and writes the use into the ledger. */
  void recorded(DeviceStream stream, long sequence, Access access) {
    List<Mark> crowd;
    lock.lock();
    try {
      record(stream, sequence, access);
      closeWindow(stream, access);
      crowd =
          access == Access.READ && readerCount > 0 && readerCount == readers.length
              ? reads()
              : List.of();
    } finally {
      lock.unlock();
    }
    dropReached(crowd);
  }

  /** The operation was not enqueued: closes the window and leaves the ledger as it was. */
  void abandoned(DeviceStream stream, Access access) {
    lock.lock();
    try {
      closeWindow(stream, access);
    } finally {
      lock.unlock();
    }
  }

  private void closeWindow(DeviceStream stream, Access access) {
    if (access == Access.READ) {
      pendingReads.remove(stream);
    } else if (--pendingWrites == 0) {
      pendingWriter = null;
    }
    if (windowClosed != null) {
      windowClosed.signalAll();
    }
  }

  private void record(DeviceStream stream, long sequence, Access access) {
    if (newest == null || newest.context() == stream.context()) {
      newest = stream; // not one of a device that copied from here: it cannot free this memory
    }
    if (access == Access.READ) {
      if (!Mutant.on("ledger.read.skip")) {
        recordRead(stream, sequence);
      }
      return;
    }
    generation++;
    if (!Mutant.on("ledger.write.skip")) {
      writer = stream;
      written = sequence;
      Arrays.fill(readers, 0, readerCount, null);
      readerCount = 0;
    }
  }

  private void recordRead(DeviceStream stream, long sequence) {
    for (int i = 0; i < readerCount; i++) {
      if (readers[i] == stream) {
        read[i] = Math.max(read[i], sequence);
        return;
      }
    }
    if (readerCount == readers.length) {
      int room = Math.max(READERS_INLINE, 2 * readerCount);
      readers = Arrays.copyOf(readers, room);
      read = Arrays.copyOf(read, room);
    }
    readers[readerCount] = stream;
    read[readerCount++] = sequence;
  }

  /**
   * Reads that have ended order nobody any more; looked for when the next one would need more room.
   * Not under the lock, and nothing comes of a driver that does not answer: the operation that was
   * recorded is enqueued, whatever becomes of this.
   */
  private void dropReached(List<Mark> reads) {
    for (Mark read : reads) {
      if (isReached(read)) {
        dropRead(read);
      }
    }
  }

  private static boolean isReached(Mark read) {
    try {
      return read.stream().isReached(read);
    } catch (DeviceException e) {
      return false; // whoever has to come after it is told why
    }
  }

  private void dropRead(Mark reached) {
    lock.lock();
    try {
      for (int i = 0; i < readerCount; i++) {
        if (readers[i] == reached.stream() && read[i] == reached.sequence()) {
          readerCount--;
          readers[i] = readers[readerCount];
          read[i] = read[readerCount];
          readers[readerCount] = null;
          return;
        }
      }
    } finally {
      lock.unlock();
    }
  }

  /** Under the lock. */
  private List<Mark> reads() {
    List<Mark> marks = new ArrayList<>(readerCount);
    for (int i = 0; i < readerCount; i++) {
      DeviceStream reader = readers[i];
      if (reader != null) {
        marks.add(new Mark(reader, read[i]));
      }
    }
    return marks;
  }

  // --- leases -------------------------------------------------------------------------------

  /** A lease begins: until {@link #takeBack}, only uses that do not conflict, or on its stream. */
  void lend(DeviceStream stream, Access access) {
    lock.lock();
    try {
      requireState(State.OPEN);
      requireNotLent(stream, access);
      if (leases.isEmpty()) {
        leases = new ArrayList<>(2);
      }
      leases.add(new Lent(stream, access));
    } finally {
      lock.unlock();
    }
  }

  /** Writes what foreign code did up to {@code sequence} into the ledger. */
  void recordLease(DeviceStream stream, long sequence, Access access) {
    lock.lock();
    try {
      record(stream, sequence, access);
    } finally {
      lock.unlock();
    }
  }

  /**
   * Ends a lease.
   *
   * @return whether the storage was closed meanwhile, so that the caller has to free it now
   */
  boolean takeBack(DeviceStream stream, Access access) {
    lock.lock();
    try {
      leases.remove(new Lent(stream, access));
      return startFreeing();
    } finally {
      lock.unlock();
    }
  }

  /** A graph keeps it from now on, until {@link #letGo}. */
  void hold() {
    lock.lock();
    try {
      requireState(State.OPEN);
      holds++;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Ends a hold.
   *
   * @return whether the storage was closed meanwhile, so that the caller has to free it now
   */
  boolean letGo() {
    lock.lock();
    try {
      holds--;
      return startFreeing();
    } finally {
      lock.unlock();
    }
  }

  private void requireNotLent(DeviceStream stream, Access access) {
    for (Lent lent : leases) {
      boolean conflict = access != Access.READ || lent.access != Access.READ;
      if (conflict && lent.stream != stream) {
        throw new IllegalStateException(
            describe()
                + " is leased to foreign code on stream "
                + lent.stream.id()
                + " and cannot be used on stream "
                + stream.id()
                + "; close the lease once that code has enqueued its work");
      }
    }
  }

  private record Lent(DeviceStream stream, Access access) {}

  // --- its end ------------------------------------------------------------------------------

  /**
   * Closes it to all further use.
   *
   * @return whether the caller has to free it now; false if it was closed before, or if a lease is
   *     open or a graph holds it, whose end then frees it
   */
  boolean close(Site site) {
    lock.lock();
    try {
      if (state != State.OPEN) {
        return false;
      }
      closedAt = site; // Before the state: who sees that it is closed also sees where.
      state = State.CLOSED;
      return startFreeing();
    } finally {
      lock.unlock();
    }
  }

  private boolean startFreeing() {
    if (state != State.CLOSED || !leases.isEmpty() || holds > 0) {
      return false;
    }
    state = State.FREEING;
    return true;
  }

  void freed() {
    lock.lock();
    try {
      state = State.FREED;
    } finally {
      lock.unlock();
    }
  }

  boolean isOpen() {
    return state == State.OPEN;
  }

  void requireOpen() {
    requireState(State.OPEN);
  }

  private void requireState(State expected) {
    if (state != expected) {
      throw new IllegalStateException(describe() + " was closed at " + closedAt);
    }
  }

  /** The stream of the latest use; null for a range of no bytes that was never used. */
  @Nullable DeviceStream newest() {
    lock.lock();
    try {
      return newest;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Every use of a storage that is {@code FREEING}, except those that are known to have ended.
   * Waits until none is being enqueued any more, which is the time of one driver call.
   *
   * @throws DeviceException if the driver no longer knows a stream that used it
   */
  Frontier lastUses() {
    Mark write;
    List<Mark> reads;
    lock.lock();
    try {
      while (pendingWrites > 0 || !pendingReads.isEmpty()) {
        windowClosed().awaitUninterruptibly();
      }
      write = writer == null ? null : new Mark(writer, written);
      reads = readerCount == 0 ? List.of() : reads();
    } finally {
      lock.unlock();
    }
    return write == null && reads.isEmpty()
        ? Frontier.NONE
        : new Frontier(write, reads).unreached();
  }

  /** Where everybody who used it is with it: what a wait for its memory waits for. */
  List<Mark> frontier() {
    lock.lock();
    try {
      List<Mark> marks = new ArrayList<>();
      if (writer != null) {
        marks.add(new Mark(writer, written));
      }
      marks.addAll(reads());
      return marks;
    } finally {
      lock.unlock();
    }
  }

  long generation() {
    lock.lock();
    try {
      return generation;
    } finally {
      lock.unlock();
    }
  }

  boolean overlaps(long otherAddress, long otherBytes) {
    return otherAddress < address + bytes && address < otherAddress + otherBytes;
  }

  /** Whether somebody has to close it: not a range of no bytes. */
  boolean isHeld() {
    return charge != null || adoption != null;
  }

  /** The same memory with a ledger of its own: the bug {@code ledger.slice.own}. */
  Storage twin() {
    return new Storage(address, bytes, charge, task, site, null, 0);
  }

  String describe() {
    return "buffer of " + Sizes.text(bytes) + " (task '" + task + "', allocated at " + site + ")";
  }
}
