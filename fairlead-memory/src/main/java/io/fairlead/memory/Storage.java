package io.fairlead.memory;

import static java.lang.Boolean.TRUE;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Condition;
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
 * <h2>Where its bytes are</h2>
 *
 * On the device (the <i>residence</i>: address and charge), below it (the {@link Image}), or both.
 *
 * <pre>
 * from      | to        | by                                | if
 * ----------|-----------|-----------------------------------|------------------------------------
 * RESIDENT  | COPYING   | spiller                           | open; not leased, held or kept
 * COPYING   | LOWER     | spiller, once the copy has ended  | as above, no use is pending, and
 *           |           |                                   | nothing was written since it began
 * COPYING   | RESIDENT  | spiller                           | else; the image stays if it is valid
 * RESIDENT  | LOWER     | spiller                           | as for COPYING to LOWER, with an image
 *           |           |                                   | that is valid still
 * LOWER     | RETURNING | who needs it, with a charge for it | open
 * RETURNING | RESIDENT  | same                              | the last copy up was enqueued
 * RETURNING | LOWER     | same                              | that failed
 * </pre>
 *
 * While it is RETURNING a close waits for the end of that. While it is copied <i>firmly</i>, since
 * it was in use at the end of its last copy, nobody begins to use it: {@link #acquire} answers as
 * for one that is LOWER. A <i>keep</i> is a hold for a moment: of an operation that is about to use
 * it.
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
 * <h2>The owner</h2>
 *
 * Most storages are used on one stream, again and again. Such a one has that stream as its
 * <i>owner</i>, whose uses take no lock: {@code owner} is a word of the stream's id and of what it
 * is doing.
 *
 * <pre>
 * from             | to               | by                      | if
 * -----------------|------------------|-------------------------|-------------------------------
 * NOBODY           | OWNED            | who makes it for a      | none of its past uses is
 *                  |                  | stream                  | another stream's
 * NOBODY           | OWNED            | a stream's use that is  | as {@link #mayOwn} says
 *                  |                  | recorded, with the lock |
 * OWNED            | READING, WRITING | the owner: acquire      |
 * READING, WRITING | OWNED            | the owner: recorded,    |
 *                  |                  | abandoned               |
 * any              | NOBODY           | anybody, with the lock: | anybody else is about to look
 *                  |                  | {@link #revoke}         | at the ledger, or to change
 *                  |                  |                         | what an owner relies on
 * </pre>
 *
 * <b>What an owner relies on</b>, from OWNED until somebody revokes: the storage is OPEN, RESIDENT
 * and not leased; no use of others is pending; whatever is in the ledger is the owner's, or the
 * owner comes after it anyway (a stream that comes after a use once does so for good). So its own
 * uses need neither look nor edge. Whoever changes any of that revokes first, under the same hold
 * of the lock.
 *
 * <p><b>Nobody waits to revoke.</b> A window that is open then becomes one of the pending uses that
 * are under the lock; the owner finds its word gone, and closes it there. What it has used since it
 * became the owner is in {@code ownWrite} and {@code ownRead}; revoking moves that to the ledger.
 *
 * <p><b>Why it is right.</b> Every change of the word is a compare-and-set, so they have one order,
 * and of an owner who opens a window and somebody who revokes one comes first. If it is the owner,
 * the window is found and becomes pending. If it is the other, the owner's attempt fails and it
 * goes the way of everybody. The owner writes {@code ownWrite} and {@code ownRead} before its word
 * goes back to OWNED (release), and who revokes reads them after it has taken the word away
 * (acquire): so it sees every use that was recorded. Of a window that is just being closed it may
 * find the number already; the owner, who finds the word gone, then records the same use again, and
 * until then the window is pending. All of one owner's uses come one after the other, by the turn
 * of its stream.
 *
 * <h2>Locks and fields</h2>
 *
 * Lock order: a stream's turn, then {@code lock}; nothing is called while {@code lock} is held.
 *
 * <pre>
 * field            | writer              | reader         | mode, guard
 * -----------------|---------------------|----------------|-------------------------------------
 * the ledger,      | who has revoked;    | same           | lock; {@link #lockLedger}
 * pending uses,    | nobody while there  |                |
 * generation       | is an owner         |                |
 * owner            | see above           | any            | compare-and-set, acquire to take a
 *                  |                     |                | window or the word, release to close
 *                  |                     |                | one; opaque reads only guess
 * ownWrite,        | the owner; who      | who revokes    | opaque, so that none is torn; ordered
 * ownRead          | makes it one (lock) |                | by the word
 * lastUse          | the owner; else     | spiller        | plain; as ownRead. A hint: one that is
 *                  | under the lock      |                | missed makes an older age
 * state            | under the lock; FREED| any           | release and acquire without the lock: it
 *                  | by who frees it     |                | only moves forward, and {@link #acquire}
 *                  |                     |                | looks again
 * closedAt         | under the lock      | any            | plain, before the state
 * address, charge  | under the lock      | any            | lock; they stay as they are while a
 *                  |                     |                | window is open, and once FREEING
 * image, left      | under the lock      | any            | lock; none comes once FREEING, so who
 *                  |                     |                | frees it need not lock to find none
 * priority         | any                 | spiller        | volatile: late is right too
 * where            | under the lock      | under the lock | lock; the spiller guesses without
 * all others       | under the lock      | under the lock | lock
 * </pre>
 */
final class Storage {
  /** Most buffers are read on one or two streams between writes. */
  private static final int READERS_INLINE = 3;

  /** Uses by one stream after which it is looked whether those of others have ended. */
  private static final int LOOK_EVERY = 16;

  /** In the low bits of {@code owner}; the rest is the id of the stream. */
  private static final long NOBODY = 0;

  private static final long OWNED = 1;
  private static final long READING = 2;
  private static final long WRITING = 3;
  private static final int ID_SHIFT = 2;
  private static final long DOING = (1 << ID_SHIFT) - 1;

  /** In {@code ownWrite} and {@code ownRead}: none since it became the owner. */
  private static final long NO_USE = -1;

  private static final VarHandle STATE;
  private static final VarHandle OWNER;
  private static final VarHandle OWN_WRITE;
  private static final VarHandle OWN_READ;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      STATE = lookup.findVarHandle(Storage.class, "state", State.class);
      OWNER = lookup.findVarHandle(Storage.class, "owner", long.class);
      OWN_WRITE = lookup.findVarHandle(Storage.class, "ownWrite", long.class);
      OWN_READ = lookup.findVarHandle(Storage.class, "ownRead", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private static final @Nullable DeviceStream[] NO_READERS = {};
  private static final long[] NO_READS = {};
  private static final AtomicLong IDS = new AtomicLong(1);

  /** What a task takes of them at once, for those that it allocates. */
  private static final long IDS_AT_ONCE = 64;

  enum State {
    OPEN,
    CLOSED,
    FREEING,
    FREED
  }

  enum Where {
    RESIDENT,
    COPYING,
    LOWER,
    RETURNING
  }

  /** Of no other storage of this process. */
  final long id;

  /** Of its residence; 0 while there is none. */
  long address;

  final long bytes;

  /** Of its residence; null for what takes nothing of the limit. */
  @Nullable Charge charge;

  final String task;
  final Site site;

  /** Of others' memory, which is not ours to free; set before anybody sees the storage. */
  @Nullable Adoption adoption;

  /** Where {@link Live} has it; set before anybody sees the storage. */
  Live.@Nullable Entry listed;

  private final BriefLock lock = new BriefLock();
  private @Nullable Condition windowClosed;

  /** How many wait for that: whoever goes on meanwhile without the lock would keep them waiting. */
  private int awaited;

  private State state = State.OPEN;
  private Site closedAt = Site.NOT_KEPT;

  /** Whether it was FREEING with no use pending: then nobody changes the ledger any more. */
  private boolean settled;

  private List<Lent> leases = List.of();
  private int holds;
  private int keeps;

  /** Of the holds and keeps. */
  private List<Keeper> keepers = List.of();

  /** What it was allocated in; set before anybody sees the storage. */
  @Nullable Try attempt;

  private long generation;

  private Where where = Where.RESIDENT;

  /** Whether it is COPYING, and nobody uses it meanwhile. */
  private boolean firm;

  /** Whether it was in use when its last copy had ended. */
  private boolean tried;

  private @Nullable Image image;

  /** The charge of the residence that it left last: what it takes when it comes back. */
  private @Nullable Charge left;

  /** Told when a firm copy or a return ends; made for the first who waits. */
  private Completion.@Nullable Source<Boolean> moved;

  /** Told when this is used, for {@code lastUse}; set before anybody sees the storage. */
  private @Nullable Ticks ticks;

  /** At first the tick at which it was allocated. */
  private long lastUse;

  volatile int priority;

  // The ledger.
  private @Nullable DeviceStream writer;
  private long written;
  private @Nullable DeviceStream[] readers = NO_READERS;
  private long[] read = NO_READS;
  private int readerCount;

  /**
   * The stream of the latest recorded use on this memory's device, which is the owner if there is
   * one: where a free has the fewest others to wait for.
   */
  private @Nullable DeviceStream newest;

  // The owner's; see there.
  private long owner = NOBODY;
  private long ownWrite = NO_USE;
  private long ownRead = NO_USE;

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
    this.id = IDS.getAndIncrement();
    this.address = address;
    this.bytes = bytes;
    this.charge = charge;
    this.task = task;
    this.site = site;
    this.writer = stream;
    this.written = sequence;
    this.newest = stream;
  }

  /**
   * A range that {@code stream} got from a pool, whose uses so far count as its own: the stream is
   * the owner, if nobody else has used it.
   */
  static Storage of(Block block, long bytes, Site site, DeviceStream stream) {
    Storage storage = new Storage(nextId(block.charge().account), block, bytes, site, stream);
    if (storage.isUsedOnlyBy(stream)) {
      storage.owner = word(stream, OWNED); // plain: nobody else knows it yet
    }
    return storage;
  }

  /** A task's own are counted by itself: one count for all would be the slowest part of it. */
  private static long nextId(Account account) {
    if (account.shared) {
      return IDS.getAndIncrement();
    }
    if (account.storageIdsEnd == account.nextStorageId) {
      account.nextStorageId = IDS.getAndAdd(IDS_AT_ONCE);
      account.storageIdsEnd = account.nextStorageId + IDS_AT_ONCE;
    }
    return account.nextStorageId++;
  }

  /** Of whoever may use it: none of them is the owner yet. */
  private Storage(long id, Block block, long bytes, Site site, DeviceStream stream) {
    this.id = id;
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
      addRead(mark.stream(), mark.sequence());
    }
  }

  /**
   * What was to become a residence of {@code storage}, to be freed: {@code stream} got it, and used
   * it up to {@code last}.
   */
  static Storage residence(Block block, Storage storage, DeviceStream stream, @Nullable Mark last) {
    Storage residence =
        new Storage(IDS.getAndIncrement(), block, storage.bytes, storage.site, stream);
    if (last != null) {
      residence.record(stream, last.sequence(), Access.WRITE);
    }
    residence.state = State.FREEING; // plain: nobody else knows it yet
    residence.settled = true; // nobody can use it any more
    return residence;
  }

  /** Before anybody sees it: counts as used now, and whenever it is. */
  void born(Ticks clock) {
    ticks = clock;
    lastUse = clock.now;
  }

  // --- using it, as the owner ---------------------------------------------------------------

  private static long word(DeviceStream stream, long doing) {
    return stream.id() << ID_SHIFT | doing;
  }

  private static long doing(Access access) {
    return access == Access.READ ? READING : WRITING;
  }

  /**
   * As {@link #acquire}, if the stream is the owner: then it is open, on the device, and there is
   * nothing to come after. Called with the stream's turn; takes no lock.
   */
  boolean acquireOwn(DeviceStream stream, Access access) {
    long owned = word(stream, OWNED);
    // acquire: what the one before did to the ledger, and where the bytes are, are seen from here
    return (long) OWNER.getOpaque(this) == owned
        && (long) OWNER.compareAndExchangeAcquire(this, owned, word(stream, doing(access)))
            == owned;
  }

  /** As {@link #recorded}, if the window is the owner's still. */
  private boolean recordedOwn(DeviceStream stream, long sequence, Access access) {
    if ((long) OWNER.getOpaque(this) != word(stream, doing(access))) {
      return false;
    }
    (access == Access.READ ? OWN_READ : OWN_WRITE).setOpaque(this, sequence);
    Ticks clock = ticks;
    if (clock != null) {
      lastUse = clock.now;
    }
    return closeOwn(stream, access);
  }

  /** Whether the window was the owner's still. */
  private boolean closeOwn(DeviceStream stream, Access access) {
    long open = word(stream, doing(access));
    // release: who takes the word away from here on sees what was recorded
    return (long) OWNER.getOpaque(this) == open
        && (long) OWNER.compareAndExchangeRelease(this, open, word(stream, OWNED)) == open;
  }

  /** As {@link #lock}, and nobody is the owner until it is let go of. */
  private void lockLedger() {
    lock.lock();
    revoke();
  }

  /** Under the lock, which is what makes somebody the owner. */
  private void revoke() {
    long seen = (long) OWNER.getOpaque(this);
    while (seen != NOBODY) {
      // acquire: whatever the owner has recorded is seen from here on
      long found = (long) OWNER.compareAndExchangeAcquire(this, seen, NOBODY);
      if (found == seen) {
        endOwning(seen & DOING);
        return;
      }
      seen = found; // by the owner: one use in the time of one look
    }
  }

  /** What the owner has used goes to the ledger, and its open window to those that are pending. */
  private void endOwning(long doing) {
    DeviceStream stream = Objects.requireNonNull(newest, "the owner's use is the newest");
    long write = (long) OWN_WRITE.getOpaque(this);
    long read = (long) OWN_READ.getOpaque(this);
    boolean lose = Mutant.on("ledger.owner.lose");
    if (write != NO_USE && !lose) {
      recordWrite(stream, write);
    }
    if (read > write && !lose) {
      recordRead(stream, read);
    }
    if (doing == READING) {
      addPendingRead(stream);
    } else if (doing == WRITING && !Mutant.on("ledger.owner.forget")) {
      pendingWriter = stream;
      pendingWrites = 1;
    }
  }

  /**
   * Whether the stream, whose use was just recorded under the lock, is the owner from now on: if
   * its use before was the newest, too, and all that an owner relies on is so. A READ says that it
   * comes after the last write, a WRITE that it is the only one in the ledger.
   */
  private boolean mayOwn(DeviceStream stream, boolean again) {
    return again
        && state == State.OPEN
        && where == Where.RESIDENT
        && leases.isEmpty()
        && awaited == 0
        && pendingWrites == 0
        && pendingReads.isEmpty()
        && (readerCount == 0 || (readerCount == 1 && readers[0] == stream));
  }

  /** Under the lock. */
  private void own(DeviceStream stream) {
    OWN_WRITE.setOpaque(this, NO_USE);
    OWN_READ.setOpaque(this, NO_USE);
    // release: who opens a window as the owner sees all of this
    OWNER.setRelease(this, word(stream, OWNED));
  }

  /** Before anybody else knows this. */
  private boolean isUsedOnlyBy(DeviceStream stream) {
    return (writer == null || writer == stream)
        && (readerCount == 0 || (readerCount == 1 && readers[0] == stream));
  }

  /** For tests: whether the stream is the owner, and has no window open. */
  boolean isOwnedBy(DeviceStream stream) {
    return (long) OWNER.getOpaque(this) == word(stream, OWNED);
  }

  /** For tests: how many wait until somebody's operation is enqueued. */
  int awaited() {
    lock.lock();
    try {
      return awaited;
    } finally {
      lock.unlock();
    }
  }

  // --- using it, as anybody -----------------------------------------------------------------

  /**
   * Opens a window and orders {@code stream} after every use that {@code access} conflicts with.
   * Called with the stream's turn; may park for the length of somebody else's driver call.
   *
   * @return false if it is not on the device, or about to leave it: then no window is open
   * @throws IllegalStateException if the storage was closed
   */
  boolean acquire(DeviceStream stream, Access access) {
    if (acquireOwn(stream, access)) {
      return true;
    }
    List<Mark> before;
    lockLedger();
    try {
      awaitNoConflict(stream, access, State.OPEN);
      if (where != Where.RESIDENT && isAway()) {
        return false;
      }
      before = open(stream, access);
    } finally {
      lock.unlock();
    }
    order(stream, access, before);
    return true;
  }

  private boolean isAway() {
    return where != Where.COPYING || (firm && !Mutant.on("spill.firm.skip"));
  }

  /** As {@link #acquire} for the WRITE that is the free: the one use of a closed storage. */
  void acquireToFree(DeviceStream stream) {
    List<Mark> before;
    lockLedger();
    try {
      awaitNoConflict(stream, Access.WRITE, State.FREEING);
      before = open(stream, Access.WRITE);
    } finally {
      lock.unlock();
    }
    order(stream, Access.WRITE, Mutant.on("ledger.free.skip") ? List.of() : before);
  }

  private void awaitNoConflict(DeviceStream stream, Access access, State expected) {
    requireState(expected);
    if (!leases.isEmpty()) {
      requireNotLent(stream, access);
    }
    if (conflicts(stream, access)) {
      awaitWindows(stream, access);
    }
    requireState(expected);
  }

  private List<Mark> open(DeviceStream stream, Access access) {
    if (access == Access.READ) {
      addPendingRead(stream);
    } else {
      pendingWriter = stream;
      pendingWrites++;
    }
    return usesBefore(stream, access);
  }

  private void addPendingRead(DeviceStream stream) {
    if (pendingReads.isEmpty()) {
      pendingReads = new ArrayList<>(2);
    }
    pendingReads.add(stream);
  }

  /**
   * Under the lock: until no pending use conflicts with that of {@code stream}; of anybody, if
   * there is none.
   */
  private void awaitWindows(@Nullable DeviceStream stream, Access access) {
    Condition closed = windowClosed; // made for the first who waits; hardly anybody does
    if (closed == null) {
      closed = lock.newCondition();
      windowClosed = closed;
    }
    awaited++;
    try {
      while (conflicts(stream, access)) {
        closed.awaitUninterruptibly();
        revoke(); // the lock was away meanwhile
      }
    } finally {
      awaited--;
    }
  }

  /** A stream never conflicts with itself: its turn makes all pending uses one operation. */
  private boolean conflicts(@Nullable DeviceStream stream, Access access) {
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
      return List.of();
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
    if (recordedOwn(stream, sequence, access)) {
      return;
    }
    List<Mark> crowd;
    lockLedger();
    try {
      boolean again = newest == stream;
      record(stream, sequence, access);
      closeWindow(stream, access);
      crowd = access == Access.READ && isCrowded(sequence, again) ? reads() : List.of();
      if (mayOwn(stream, again)) {
        own(stream);
      }
    } finally {
      lock.unlock();
    }
    dropReached(crowd);
  }

  /** Whether it is time to look which reads have ended. */
  private boolean isCrowded(long sequence, boolean again) {
    return readerCount > 0
        && (readerCount == readers.length
            || (again && readerCount > 1 && sequence % LOOK_EVERY == 0));
  }

  /** The operation was not enqueued: closes the window and leaves the ledger as it was. */
  void abandoned(DeviceStream stream, Access access) {
    if (closeOwn(stream, access)) {
      return;
    }
    lockLedger();
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
    Ticks clock = ticks;
    if (clock != null) {
      lastUse = clock.now;
    }
    if (access == Access.READ) {
      recordRead(stream, sequence);
    } else {
      recordWrite(stream, sequence);
    }
  }

  private void recordWrite(DeviceStream stream, long sequence) {
    generation++;
    if (!Mutant.on("ledger.write.skip")) {
      writer = stream;
      written = sequence;
      Arrays.fill(readers, 0, readerCount, null);
      readerCount = 0;
    }
  }

  private void recordRead(DeviceStream stream, long sequence) {
    if (!Mutant.on("ledger.read.skip")) {
      addRead(stream, sequence);
    }
  }

  private void addRead(DeviceStream stream, long sequence) {
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
      if (Frontier.isReachedIfKnown(read)) {
        dropRead(read);
      }
    }
  }

  private void dropRead(Mark reached) {
    lockLedger();
    try {
      for (int i = 0; state == State.OPEN && i < readerCount; i++) {
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
  void lend(DeviceStream stream, Access access, Keeper by) {
    lockLedger();
    try {
      requireState(State.OPEN);
      requireNotLent(stream, access);
      if (leases.isEmpty()) {
        leases = new ArrayList<>(2);
      }
      leases.add(new Lent(stream, access, by));
    } finally {
      lock.unlock();
    }
  }

  /** Writes what foreign code did up to {@code sequence} into the ledger. */
  void recordLease(DeviceStream stream, long sequence, Access access) {
    lockLedger();
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
  boolean takeBack(DeviceStream stream, Access access, Keeper by) {
    lock.lock();
    try {
      leases.remove(new Lent(stream, access, by));
      return startFreeing();
    } finally {
      lock.unlock();
    }
  }

  /**
   * A graph, or its user, keeps it from now on, until {@link #letGo}.
   *
   * @param by whose hold it is
   * @return whether it is on the device; if not, nothing has changed
   */
  boolean hold(Keeper by) {
    lock.lock();
    try {
      requireState(State.OPEN);
      if (where != Where.RESIDENT && isAway()) {
        return false;
      }
      holds++;
      addKeeper(by);
      return true;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Ends a hold.
   *
   * @return whether the storage was closed meanwhile, so that the caller has to free it now
   */
  boolean letGo(Keeper by) {
    lock.lock();
    try {
      return letGoNow(by);
    } finally {
      lock.unlock();
    }
  }

  /** The graph was closed. */
  void leaving(Object graph) {
    lock.lock();
    try {
      for (Keeper each : keepers) {
        if (graph.equals(each.graph)) {
          each.leaves();
        }
      }
    } finally {
      lock.unlock();
    }
  }

  /** The same for a graph, of one of its holds. */
  boolean letGoOf(Object graph) {
    lock.lock();
    try {
      for (Keeper each : keepers) {
        if (graph.equals(each.graph)) {
          each.end();
          return letGoNow(each);
        }
      }
      return false;
    } finally {
      lock.unlock();
    }
  }

  /** Under the lock. */
  private boolean letGoNow(Keeper by) {
    holds--;
    keepers.remove(by);
    return startFreeing();
  }

  /** Under the lock. */
  private void addKeeper(Keeper by) {
    if (keepers.isEmpty()) {
      keepers = new ArrayList<>(2);
    }
    keepers.add(by);
  }

  /**
   * What keeps its bytes on the device.
   *
   * @param by each of whom has to act first
   * @param firm whether they alone can; else it is the allocator, or whoever has the buffer now,
   *     and it may leave the device if there is anywhere to go
   */
  record Kept(Storage storage, Charge charge, List<Keeper> by, boolean firm) {}

  /**
   * Null if it takes nothing of the device, or nobody has to act for it to leave.
   *
   * @param firmOnly whether what is not kept firmly does not count: mostly that is all there is
   */
  @Nullable Kept kept(boolean firmOnly) {
    lock.lock();
    try {
      Charge paid = charge;
      boolean loose = keepers.isEmpty() && leases.isEmpty();
      if (paid == null || state == State.FREEING || state == State.FREED || (firmOnly && loose)) {
        return null;
      }
      List<Keeper> by = new ArrayList<>(keepers);
      leases.forEach(lent -> by.add(lent.by));
      if (!by.isEmpty()) {
        return new Kept(this, paid, by, true);
      }
      return new Kept(this, paid, List.of(Keeper.of(paid.account, attempt)), false);
    } finally {
      lock.unlock();
    }
  }

  /**
   * What leaves the device with it, if nothing but the lack of room below keeps it there; 0 for
   * what would go to a reservation.
   */
  long spillableBytes() {
    lock.lock();
    try {
      Charge paid = charge;
      return paid != null && paid.room == null && mayLeave() ? paid.bytes : 0;
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

  private record Lent(DeviceStream stream, Access access, Keeper by) {}

  // --- down, by the spiller -----------------------------------------------------------------

  /** What the spiller chooses by. */
  record Candidate(
      Storage storage, Charge charge, int priority, boolean valid, long lastUse, List<Mark> uses) {}

  /** Null if it cannot leave the device now. */
  @Nullable Candidate candidate() {
    // without the lock, since most are below: what has just come back is the last to leave again
    if (where == Where.LOWER || where == Where.RETURNING) {
      return null;
    }
    lockLedger();
    try {
      Charge paid = charge;
      if (paid == null || where != Where.RESIDENT || !mayLeave()) {
        return null;
      }
      return new Candidate(this, paid, priority, hasValidImage(), lastUse, uses());
    } finally {
      lock.unlock();
    }
  }

  /** Under the lock. */
  private boolean mayLeave() {
    return state == State.OPEN
        && adoption == null
        && (leases.isEmpty() || Mutant.on("spill.lease.skip"))
        && (holds == 0 || Mutant.on("spill.hold.skip"))
        && (keeps == 0 || Mutant.on("spill.keep.skip"));
  }

  /** Under the lock. */
  private boolean isPending() {
    return (pendingWrites > 0 || !pendingReads.isEmpty()) && !Mutant.on("spill.pending.skip");
  }

  /** Under the lock. */
  private boolean hasValidImage() {
    return image != null && isValid(image);
  }

  private boolean isValid(Image copy) {
    return copy.generation == generation || Mutant.on("spill.generation.skip");
  }

  /** Leaves the device at once, if the image is still valid: what is left has to be freed. */
  @Nullable Storage leave() {
    lockLedger();
    try {
      return leaveNow();
    } finally {
      lock.unlock();
    }
  }

  private @Nullable Storage leaveNow() {
    if (where != Where.RESIDENT || !mayLeave() || isPending() || !hasValidImage()) {
      return null;
    }
    where = Where.LOWER;
    return detach();
  }

  /**
   * How it may begin to leave.
   *
   * @param left of {@link #leave}; null if it has to be copied first
   * @param spare an image that is worth nothing any more, which is the caller's
   */
  record Start(@Nullable Storage left, @Nullable Image spare) {
    private static final Start NOTHING = new Start(null, null);
  }

  /** {@link #leave}, or else {@link #takeSpareImage}: of one that is invalid. */
  Start leaveOrTakeSpare() {
    lockLedger();
    try {
      if (where != Where.RESIDENT || image == null) {
        return Start.NOTHING;
      }
      return hasValidImage() ? new Start(leaveNow(), null) : new Start(null, takeImage());
    } finally {
      lock.unlock();
    }
  }

  /** A copy begins, for which each piece is {@link #acquireToCopy acquired}. */
  boolean beginCopy() {
    lockLedger();
    try {
      boolean mayBegin = where == Where.RESIDENT || Mutant.on("spill.twice");
      if (!mayBegin || charge == null || image != null || !mayLeave()) {
        return false;
      }
      where = Where.COPYING;
      firm = tried;
      return true;
    } finally {
      lock.unlock();
    }
  }

  /**
   * As {@link #acquire}, for a piece of the copy.
   *
   * @param since the generation of the pieces before; -1 for the first
   * @return the generation; -1 if there is nothing to be had from this copy any more
   * @throws IllegalStateException if the storage was closed or lent meanwhile
   */
  long acquireToCopy(DeviceStream stream, long since) {
    List<Mark> before;
    long now;
    lockLedger();
    try {
      awaitNoConflict(stream, Access.READ, State.OPEN);
      now = generation;
      boolean torn = since >= 0 && since != now && !Mutant.on("spill.generation.skip");
      if (where != Where.COPYING || torn) {
        return -1;
      }
      before = open(stream, Access.READ);
    } finally {
      lock.unlock();
    }
    order(stream, Access.READ, before);
    return now;
  }

  /** As {@link #recorded}, for a piece of the copy, which is no use that counts. */
  void recordedCopy(DeviceStream stream, long sequence) {
    lockLedger();
    try {
      recordRead(stream, sequence);
      closeWindow(stream, Access.READ);
    } finally {
      lock.unlock();
    }
  }

  /** What has become of a copy. */
  enum Outcome {
    /** The storage has left the device, and the copy is its image. */
    LEFT,
    /** It was in use, and stays; the copy is its image. */
    KEPT,
    /** It was changed or closed; the copy is worth nothing. */
    DROPPED
  }

  record Commit(Outcome outcome, @Nullable Storage left) {
    private static final Commit KEPT = new Commit(Outcome.KEPT, null);
    private static final Commit DROPPED = new Commit(Outcome.DROPPED, null);
  }

  /** The copy is known to have ended. */
  Commit commit(Image copy) {
    Commit commit;
    Completion.Source<Boolean> wake;
    lockLedger();
    try {
      wake = endMove(Where.RESIDENT);
      commit = commitNow(copy);
    } finally {
      lock.unlock();
    }
    tell(wake);
    return commit;
  }

  private Commit commitNow(Image copy) {
    tried = true;
    if (state != State.OPEN || !isValid(copy)) {
      return Commit.DROPPED;
    }
    image = copy;
    if (!mayLeave() || isPending()) {
      return Commit.KEPT;
    }
    tried = false;
    where = Where.LOWER;
    return new Commit(Outcome.LEFT, detach());
  }

  /** The copy was given up. */
  void endCopy() {
    Completion.Source<Boolean> wake;
    lock.lock();
    try {
      wake = endMove(Where.RESIDENT);
      tried = true;
    } finally {
      lock.unlock();
    }
    tell(wake);
  }

  /** Under the lock; whom to {@link #tell} after it. */
  private Completion.@Nullable Source<Boolean> endMove(Where now) {
    where = now;
    firm = false;
    Completion.Source<Boolean> waiting = moved;
    moved = null;
    return waiting;
  }

  private static void tell(Completion.@Nullable Source<Boolean> waiting) {
    if (waiting != null) {
      waiting.complete(TRUE);
    }
  }

  /**
   * Takes the residence out, as a closed storage with everything that used it; the ledger of this
   * one begins anew with the next residence. Under the lock.
   */
  private Storage detach() {
    Storage residence = new Storage(address, bytes, charge, task, site, writer, written);
    if (!Mutant.on("spill.frontier.skip")) {
      residence.readers = readers;
      residence.read = read;
      residence.readerCount = readerCount;
    }
    residence.newest = newest;
    residence.state = State.FREEING; // plain: nobody else knows it yet
    left = charge;
    address = 0;
    charge = null;
    writer = null;
    written = 0;
    readers = NO_READERS;
    read = NO_READS;
    readerCount = 0;
    return residence;
  }

  /** Takes the image if the device has the bytes, too; all that is left of it is the caller's. */
  @Nullable Image takeSpareImage(boolean onlyInvalid) {
    lockLedger();
    try {
      if (where != Where.RESIDENT || (onlyInvalid && hasValidImage())) {
        return null;
      }
      return takeImage();
    } finally {
      lock.unlock();
    }
  }

  /** Takes the image, whatever is lost with it. */
  @Nullable Image dropImage() {
    if (seenState() != State.OPEN && image == null) {
      return null; // for good: see the table
    }
    lock.lock();
    try {
      return takeImage();
    } finally {
      lock.unlock();
    }
  }

  private @Nullable Image takeImage() {
    Image taken = image;
    image = null;
    return taken;
  }

  /** Its image if that can go to disk, with a reference for the caller. */
  @Nullable HostImage imageToDescend() {
    lock.lock();
    try {
      if (state == State.OPEN && where == Where.LOWER && image instanceof HostImage pinned) {
        pinned.retain();
        return pinned;
      }
      return null;
    } finally {
      lock.unlock();
    }
  }

  /** Whether {@code to} is its image from now on; else it is used, or was closed, meanwhile. */
  @SuppressWarnings("ReferenceEquality") // this very image is meant
  boolean replaceImage(Image from, Image to) {
    lock.lock();
    try {
      if (state != State.OPEN || where != Where.LOWER || image != from) {
        return false;
      }
      image = to;
      return true;
    } finally {
      lock.unlock();
    }
  }

  long lastUse() {
    lock.lock();
    try {
      return lastUse;
    } finally {
      lock.unlock();
    }
  }

  // --- up, by who needs it ------------------------------------------------------------------

  /**
   * It does not leave the device, or once it is there, until {@link #unkeep}.
   *
   * @return null if so; else what has to be waited for first
   * @throws IllegalStateException if the storage was closed
   */
  @Nullable Completion<Boolean> keep(Keeper by) {
    lock.lock();
    try {
      requireState(State.OPEN);
      if (where == Where.COPYING && firm) {
        return moved();
      }
      keeps++;
      addKeeper(by);
      return null;
    } finally {
      lock.unlock();
    }
  }

  void unkeep(Keeper by) {
    lock.lock();
    try {
      keeps--;
      keepers.remove(by);
    } finally {
      lock.unlock();
    }
  }

  /** Under the lock. */
  private Completion<Boolean> moved() {
    Completion.Source<Boolean> known = moved;
    if (known == null) {
      known = Completion.source(OwnWait.MOVE);
      moved = known;
    }
    return known.completion();
  }

  /** Whether its bytes are there, or on their way in the order of its uses. */
  boolean isOnDevice() {
    lock.lock();
    try {
      return where == Where.RESIDENT || where == Where.COPYING;
    } finally {
      lock.unlock();
    }
  }

  /**
   * What it took of the limit, if it is below and nobody is bringing it back.
   *
   * @param others gets the end of that, if somebody is
   */
  @Nullable Charge missing(Collection<? super Completion<Boolean>> others) {
    lock.lock();
    try {
      if (where == Where.RETURNING) {
        others.add(moved());
      }
      return where == Where.LOWER && state == State.OPEN ? left : null;
    } finally {
      lock.unlock();
    }
  }

  /** Whether the caller brings it back from now on; not if it was closed. */
  boolean beginReturn() {
    lock.lock();
    try {
      if (where != Where.LOWER || state != State.OPEN) {
        return false;
      }
      where = Where.RETURNING;
      return true;
    } finally {
      lock.unlock();
    }
  }

  /** Of who brings it back: the image, which is read until it is released. */
  @Nullable Image imageToRead() {
    lock.lock();
    try {
      if (image != null) {
        image.retain();
      }
      return image;
    } finally {
      lock.unlock();
    }
  }

  /**
   * It has come back.
   *
   * @param last after which all of it is there, and after which comes whoever uses it
   * @return whether it was closed meanwhile, so that the caller has to free it now
   */
  boolean install(Block block, Mark last) {
    Completion.Source<Boolean> wake;
    boolean mustFree;
    lockLedger();
    try {
      address = block.address();
      charge = block.charge();
      left = null;
      newest = last.stream();
      if (!Mutant.on("spill.return.skip")) {
        writer = last.stream();
        written = last.sequence();
      }
      Ticks clock = ticks;
      lastUse = clock == null ? 0 : clock.now;
      wake = endMove(Where.RESIDENT);
      mustFree = startFreeing();
    } finally {
      lock.unlock();
    }
    tell(wake);
    return mustFree;
  }

  /**
   * It has not come back.
   *
   * @return as for {@link #install}
   */
  boolean endReturn() {
    Completion.Source<Boolean> wake;
    boolean mustFree;
    lock.lock();
    try {
      wake = endMove(Where.LOWER);
      mustFree = startFreeing();
    } finally {
      lock.unlock();
    }
    tell(wake);
    return mustFree;
  }

  /** Where it can be read. */
  Tier tier() {
    lock.lock();
    try {
      boolean below = where == Where.LOWER || where == Where.RETURNING;
      return below && image != null ? image.tier() : Tier.DEVICE;
    } finally {
      lock.unlock();
    }
  }

  /** Of one that is FREEING: what it took before it went below; null if it is not there. */
  @Nullable Charge chargeBelow() {
    return left;
  }

  // --- its end ------------------------------------------------------------------------------

  /**
   * Closes it to all further use.
   *
   * @return whether the caller has to free it now; false if it was closed before, or if a lease is
   *     open, a graph holds it, or somebody brings it back: the end of that frees it
   */
  boolean close(Site site) {
    lockLedger();
    try {
      if (state != State.OPEN) {
        return false;
      }
      closedAt = site; // Before the state: who sees that it is closed also sees where.
      STATE.setRelease(this, State.CLOSED);
      return startFreeing();
    } finally {
      lock.unlock();
    }
  }

  private boolean startFreeing() {
    if (state != State.CLOSED || !leases.isEmpty() || holds > 0 || where == Where.RETURNING) {
      return false;
    }
    settled = pendingWrites == 0 && pendingReads.isEmpty();
    STATE.setRelease(this, State.FREEING);
    return true;
  }

  void freed() {
    STATE.setRelease(this, State.FREED); // from FREEING, by the one who frees it
  }

  boolean isOpen() {
    return seenState() == State.OPEN;
  }

  /** Without the lock. */
  private State seenState() {
    return (State) STATE.getAcquire(this);
  }

  void requireOpen() {
    requireState(State.OPEN);
  }

  private void requireState(State expected) {
    if (seenState() != expected) {
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
    if (settled) {
      return unreached(); // without the lock: who frees it comes after who closed it
    }
    lockLedger();
    try {
      awaitWindows(null, Access.WRITE);
      settled = true;
    } finally {
      lock.unlock();
    }
    return unreached();
  }

  private Frontier unreached() {
    Mark write = writer == null ? null : new Mark(writer, written);
    List<Mark> reads = readerCount == 0 ? List.of() : reads();
    return write == null && reads.isEmpty()
        ? Frontier.NONE
        : new Frontier(write, reads).unreached();
  }

  /**
   * Where everybody who used it is with it: what a wait for its memory waits for, once it is
   * closed. Waits as {@link #lastUses} does.
   */
  List<Mark> frontier() {
    lockLedger();
    try {
      awaitWindows(null, Access.WRITE);
      return uses();
    } finally {
      lock.unlock();
    }
  }

  private List<Mark> uses() {
    List<Mark> marks = new ArrayList<>();
    if (writer != null) {
      marks.add(new Mark(writer, written));
    }
    marks.addAll(reads());
    return marks;
  }

  long generation() {
    lockLedger();
    try {
      return generation;
    } finally {
      lock.unlock();
    }
  }

  boolean overlaps(long otherAddress, long otherBytes) {
    lock.lock();
    try {
      long begin = address;
      return begin != 0 && otherAddress < begin + bytes && begin < otherAddress + otherBytes;
    } finally {
      lock.unlock();
    }
  }

  /** Whether somebody has to close it: not a range of no bytes. */
  boolean isHeld() {
    return bytes > 0;
  }

  /** The same memory with a ledger of its own: the bug {@code ledger.slice.own}. */
  Storage twin() {
    return new Storage(address, bytes, charge, task, site, null, 0);
  }

  /** For reports: what keeps it from leaving the device; empty if nothing does. */
  String whyItStays() {
    lock.lock();
    try {
      return !leases.isEmpty() ? ", leased" : holds > 0 ? ", held or in a graph" : "";
    } finally {
      lock.unlock();
    }
  }

  String describe() {
    return "buffer of " + Sizes.text(bytes) + " (task '" + task + "', allocated at " + site + ")";
  }
}
