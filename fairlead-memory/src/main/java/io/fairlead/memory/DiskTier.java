package io.fairlead.memory;

import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.locks.Condition;
import java.util.random.RandomGenerator;
import org.jspecify.annotations.Nullable;

/**
 * The lowest tier: images of storages in files.
 *
 * <h2>An image</h2>
 *
 * {@link #begin} gives a {@link Writing}; that becomes a {@link DiskImage} or nothing. An image is
 * known only once its file is complete, closed, of the right size, and has its name; what is read
 * from it is compared with checksums that never left this process. After any error whoever spilled
 * still has what it had.
 *
 * <h2>Spares</h2>
 *
 * To make a large file and to remove it again costs a file system a good part of what writing it
 * does: it looks for blocks, and gives them back. So the file of an image that is gone is kept, up
 * to a limit, and the next image of the same size is written over it, under a temporary name like
 * any other. Spares count as what lies on the disk; they are removed as soon as somebody lacks
 * their room, at any error, and at the end.
 *
 * <h2>When the disk fails</h2>
 *
 * <pre>
 * USABLE --a write finds it full--------------------------> FULL
 *    |   --any other error, of a write or a read----------> UNUSABLE
 *    |                                                        |
 *    \&lt;--- a trial succeeds: the directory is as it was, ------/
 *          a file can be written, read back, removed
 * </pre>
 *
 * While it is not USABLE nothing begins, but what is there may still be read. Trials come by
 * themselves, after a time that doubles with every error until an image is published. A file that
 * cannot be removed still counts, and is tried again after each trial.
 *
 * <h2>Threads</h2>
 *
 * A few platform threads of its own do all that touches the disk, also for {@link #open} and {@link
 * #close}: an interrupt closes a file channel, and a task that waits for a disk would hold its
 * carrier. Nobody else has these threads, so nobody interrupts them. They settle completions, so
 * callbacks run there and must not wait; gates know them as device managers. A job is a chunk or
 * more of pinned memory, or the beginning or end of an image, so that the queue is bounded by what
 * the callers hold. Several chunks are under way at once: while one thread waits for the disk
 * another adds up a checksum.
 *
 * <p><b>Lock.</b> One lock, a leaf: no file is touched and no completion settled under it.
 *
 * <pre>
 * field           | guard
 * all that change, here and in Writing, DiskImage and Counts | the lock
 * closing         | written under the lock; volatile for those who only want not to begin
 * directory       | one job at a time: opening, then the trial, then the last thread
 * </pre>
 */
final class DiskTier implements AutoCloseable {
  /** Whether something may be written. */
  enum Health {
    USABLE,
    FULL,
    UNUSABLE
  }

  /** What a thread of the tier does. Runs under no lock, and does not throw. */
  interface Job {
    void run(DiskTransfer transfer);
  }

  private static final System.Logger LOG = System.getLogger(DiskTier.class.getName());

  /** Enough to see that a file can grow, and small enough not to be in the way of others. */
  private static final long TRIAL_MAX = 1 << 20;

  /** Not what fresh blocks hold. */
  private static final byte TRIAL_BYTE = 0x5a;

  /** Stands for those of the tier where memory is looked at. Never started. */
  private static final Thread ANOTHER_THREAD = Thread.ofPlatform().unstarted(() -> {});

  /** What glibc says in English; other languages are told by what is left on the file system. */
  private static final List<String> FULL_TEXTS =
      List.of("No space left on device", "Disk quota exceeded");

  final BriefLock lock = new BriefLock();
  final Counts counts = new Counts();
  final DiskFiles files;

  private final DiskOptions options;
  private final DiskDirectory directory;
  private final int unit;

  private final Condition changed = lock.newCondition();
  private final List<Job> queue = new ArrayList<>();
  private final Set<Writing> writings = new HashSet<>();
  private final Set<DiskImage> images = new HashSet<>();
  private final List<Undeleted> undeleted = new ArrayList<>();

  /** The one that was kept last is last. */
  private final ArrayDeque<Spare> spares = new ArrayDeque<>();

  private final Completion.Source<Void> closed = Completion.source();

  private volatile boolean closing;
  private boolean over;
  private int busy;
  private int threadsLeft;

  /** Those of spares, too, until they are removed. */
  private long bytes;

  private long spareBytes;

  /** Of spares that are about to be removed. */
  private long leavingBytes;

  private long made;

  private Health health = Health.USABLE;
  private @Nullable SpillException lastFailure;
  private boolean told;
  private boolean trying;
  private long backoffNanos;
  private long tryAt;

  private boolean refused;
  private boolean roomChanged;

  /** Where there are no threads, each of which has its own. */
  private final @Nullable DiskTransfer stepping;

  /** By all names that it may have. */
  private record Undeleted(List<Path> paths, long bytes) {}

  /** The file of an image that is gone. */
  private record Spare(Path path, long bytes) {}

  private DiskTier(DiskOptions options, DiskDirectory directory) {
    this.options = options;
    this.directory = directory;
    this.files = options.faults().apply(LocalFiles.in(directory.path(), options.chunkBytes()));
    this.unit = Math.max(DiskFormat.UNIT, files.alignment());
    this.backoffNanos = options.backoffNanosMin();
    this.threadsLeft = options.threads();
    this.stepping = options.threads() == 0 ? new DiskTransfer(files, unit) : null;
  }

  /**
   * Opens the tier in a directory of its own inside {@code directory}, and removes what processes
   * that have died left there. Parks the task; an interrupt waits.
   *
   * @param bytesMax most bytes that files may take together, with their headers
   * @param chunkBytes size of the pieces of an image; a multiple of 4096
   * @throws SpillException if the directory is not safe, or cannot be used; it says what to do
   */
  static DiskTier open(Path directory, long bytesMax, long chunkBytes) {
    return open(DiskOptions.of(directory, bytesMax, chunkBytes));
  }

  static DiskTier open(DiskOptions options) {
    Completion.Source<DiskTier> opened = Completion.source();
    thread(
            0,
            () -> {
              DiskTier tier;
              try {
                tier = opened(options, DiskDirectory.open(options.directory()));
              } catch (RuntimeException | Error failed) {
                opened.fail(failed);
                return;
              }
              tier.start(opened);
            })
        .start();
    return opened.completion().awaitUninterruptibly();
  }

  private static DiskTier opened(DiskOptions options, DiskDirectory directory) {
    boolean made = false;
    try {
      DiskTier tier = new DiskTier(options, directory);
      made = true;
      return tier;
    } finally {
      if (!made) {
        directory.close();
      }
    }
  }

  private void start(Completion.Source<DiskTier> opened) {
    startOthers();
    opened.complete(this);
    if (options.threads() > 0) {
      work();
    }
  }

  /** Fewer will do where the system has no more threads. */
  private void startOthers() {
    int started = 1;
    try {
      while (started < options.threads()) {
        thread(started, this::work).start();
        started++;
      }
    } catch (OutOfMemoryError noMore) {
      LOG.log(Level.WARNING, "the disk tier has " + started + " threads", noMore);
      lock.lock();
      try {
        threadsLeft -= options.threads() - started;
      } finally {
        lock.unlock();
      }
    }
  }

  private static Thread thread(int index, Runnable body) {
    return Role.DEVICE_MANAGER.newThread("disk-" + index, body);
  }

  /**
   * Begins an image. Any thread; never blocks.
   *
   * @param storageId whose it is
   * @param generation what it is a copy of
   * @param length its bytes, at least 1
   * @return null if there is no room for it, or the disk is not {@link Health#USABLE}; {@code
   *     roomAgain} is told when that may have changed
   */
  @Nullable Writing begin(long storageId, long generation, long length) {
    if (length < 1) {
      throw new IllegalArgumentException("an image of " + length + " bytes; at least 1");
    }
    DiskFormat format = new DiskFormat(storageId, generation, length, options.chunkBytes(), unit);
    lock.lock();
    try {
      boolean usable = !closing && health == Health.USABLE;
      Path spare = usable ? takeSpare(format.fileBytes()) : null;
      long lacks = format.fileBytes() - (options.bytesMax() - bytes);
      if (!usable || (spare == null && lacks > 0)) {
        refused = true;
        counts.refusals++;
        if (usable && lacks <= leavingBytes + spareBytes) {
          removeSpares(lacks - leavingBytes);
        }
        return null;
      }
      bytes += spare == null ? format.fileBytes() : 0;
      String name = "image-" + made++;
      Path own = directory.path();
      Path draft = own.resolve(name + ".draft");
      Writing writing = new Writing(this, format, draft, own.resolve(name), spare);
      writings.add(writing);
      return writing;
    } finally {
      lock.unlock();
    }
  }

  /** Whether something may begin, as far as is known. Any thread; never blocks. */
  Health health() {
    lock.lock();
    try {
      return health;
    } finally {
      lock.unlock();
    }
  }

  /** Why it is not usable, or null if it is. Any thread; never blocks. */
  @Nullable SpillException failure() {
    lock.lock();
    try {
      return health == Health.USABLE ? null : lastFailure;
    } finally {
      lock.unlock();
    }
  }

  DiskStats stats() {
    lock.lock();
    try {
      return new DiskStats(
          options.bytesMax(),
          bytes - spareBytes - leavingBytes,
          spareBytes + leavingBytes,
          images.size(),
          counts.written,
          counts.rewritten,
          counts.chunksWritten,
          counts.bytesWritten,
          counts.chunksRead,
          counts.bytesRead,
          counts.refusals,
          counts.full,
          counts.unusable,
          counts.unreadable,
          counts.damaged,
          counts.quarantines,
          counts.trials,
          directory.leftovers(),
          directory.leftoverBytes(),
          isDirect());
    } finally {
      lock.unlock();
    }
  }

  /** Where the files are. */
  Path path() {
    lock.lock();
    try {
      return directory.path();
    } finally {
      lock.unlock();
    }
  }

  /**
   * Fails what waits for its turn, lets end what is under way, removes all files, and ends the
   * threads. Any thread; never blocks; a second call answers with the same.
   *
   * @return settled when all that is done; no memory of a caller is used from then on
   */
  Completion<Void> shutDown() {
    lock.lock();
    try {
      if (!closing) {
        closing = true;
        List.copyOf(writings).forEach(Writing::close);
        List.copyOf(images).forEach(DiskImage::close);
        removeSpares(spareBytes);
        changed.signalAll();
      }
      return closed.completion();
    } finally {
      lock.unlock();
    }
  }

  /**
   * {@link #shutDown}, and parks the task until it is done; an interrupt waits. A call of the
   * system that is under way cannot be broken off: on a disk that hangs this waits as long. Not
   * from a callback on a thread of the tier, which would wait for itself.
   */
  @Override
  public void close() {
    shutDown().awaitUninterruptibly();
  }

  // --- jobs -----------------------------------------------------------------------------------

  /** Under the lock. */
  void enqueue(Job job) {
    queue.add(job);
    changed.signal();
  }

  private void work() {
    DiskTransfer transfer = new DiskTransfer(files, unit);
    for (Job job = next(); job != null; job = next()) {
      run(job, transfer);
    }
    if (isLastThread()) {
      finish();
    }
  }

  private boolean isLastThread() {
    lock.lock();
    try {
      return --threadsLeft == 0;
    } finally {
      lock.unlock();
    }
  }

  private @Nullable Job next() {
    lock.lock();
    try {
      while (true) {
        Job job = takeIfAny(0);
        if (job != null || isOver()) {
          return job;
        }
        await();
      }
    } finally {
      lock.unlock();
    }
  }

  @SuppressWarnings("WaitNotInLoop") // next() is the loop
  private void await() {
    try {
      if (health == Health.USABLE || trying || closing) {
        changed.await();
      } else {
        changed.awaitNanos(Math.max(1, tryAt - options.clock().getAsLong()));
      }
    } catch (InterruptedException nobodyHasThisThread) {
      LOG.log(Level.DEBUG, "interrupted", nobodyHasThisThread);
    }
  }

  private @Nullable Job takeIfAny(int index) {
    if (isTrialDue()) {
      trying = true;
      busy++;
      return this::trial;
    }
    if (queue.isEmpty()) {
      return null;
    }
    busy++;
    return queue.remove(index);
  }

  private void run(Job job, DiskTransfer transfer) {
    Thread.interrupted(); // a callback may have set it: the next channel would be closed by it
    guarded(() -> job.run(transfer));
    if (ended()) {
      guarded(options.roomAgain());
    }
  }

  /** After a job. Whether somebody who was refused is to be told of room. */
  private boolean ended() {
    lock.lock();
    try {
      busy--;
      if (isOver()) {
        changed.signalAll();
      }
      boolean tell = refused && roomChanged && health == Health.USABLE && !closing;
      if (tell) {
        refused = false;
        roomChanged = false;
      }
      return tell;
    } finally {
      lock.unlock();
    }
  }

  /** The thread has to go on whatever comes. */
  private static void guarded(Runnable body) {
    try {
      body.run();
    } catch (RuntimeException | Error slip) {
      LOG.log(Level.ERROR, "a job of the disk tier threw", slip);
    }
  }

  private boolean isOver() {
    return closing && queue.isEmpty() && busy == 0 && writings.isEmpty() && images.isEmpty();
  }

  /** Takes one job, any one, and does it; false if there is none. Where there are no threads. */
  boolean step(RandomGenerator random) {
    Job job;
    lock.lock();
    try {
      job = takeIfAny(queue.isEmpty() ? 0 : random.nextInt(queue.size()));
      if (job == null && (!isOver() || over)) {
        return false;
      }
      over = job == null;
    } finally {
      lock.unlock();
    }
    if (job == null) {
      finish();
    } else {
      run(job, Objects.requireNonNull(stepping, "it has threads: they take the steps"));
    }
    return true;
  }

  private void finish() {
    guarded(this::retryDeletes);
    guarded(directory::close);
    closed.complete(null);
  }

  static void settle(Completion.Source<Void> source, @Nullable SpillException failure) {
    if (failure == null) {
      source.complete(null);
    } else {
      source.fail(failure);
    }
  }

  boolean isClosing() {
    return closing;
  }

  /**
   * Refuses memory that the threads could not use.
   *
   * @throws IllegalArgumentException saying so
   */
  void requireUsable(MemorySegment memory) {
    Objects.requireNonNull(memory, "memory");
    if (!memory.isNative()) {
      throw new IllegalArgumentException("chunks are in native memory, not in a Java array");
    }
    if (!memory.isAccessibleBy(ANOTHER_THREAD)) {
      throw new IllegalArgumentException(
          "the memory is its thread's alone: allocate it from a shared arena");
    }
  }

  // --- ends of writings and images ------------------------------------------------------------

  /** Null if the tier has been closed meanwhile: then it is removed again. */
  @Nullable DiskImage published(Writing writing, DiskImage image, boolean rewritten) {
    lock.lock();
    try {
      writings.remove(writing);
      images.add(image);
      if (closing) {
        image.close();
        return null;
      }
      counts.written++;
      counts.rewritten += rewritten ? 1 : 0;
      backoffNanos = options.backoffNanosMin();
      told = false;
      return image;
    } finally {
      lock.unlock();
    }
  }

  void wasRead(int chunks, long moved) {
    lock.lock();
    try {
      counts.chunksRead += chunks;
      counts.bytesRead += moved;
    } finally {
      lock.unlock();
    }
  }

  /** Removes what there is of a writing, and gives its bytes back. */
  void discarded(Writing writing, List<Path> paths, long fileBytes) {
    boolean removed = remove(paths, fileBytes);
    lock.lock();
    try {
      writings.remove(writing);
      if (removed && !Mutant.on("disk.bytes-leaked")) {
        release(fileBytes);
      }
    } finally {
      lock.unlock();
    }
  }

  /** The image is closed and nobody reads it: its file is kept as a spare, or removed. */
  void gone(DiskImage image, Path path, long fileBytes, boolean sound) {
    boolean removed = !(sound && keepSpare(path, fileBytes)) && remove(List.of(path), fileBytes);
    lock.lock();
    try {
      images.remove(image);
      if (removed) {
        release(fileBytes);
      }
    } finally {
      lock.unlock();
    }
  }

  // --- spares ---------------------------------------------------------------------------------

  private boolean keepSpare(Path path, long fileBytes) {
    lock.lock();
    try {
      if (closing
          || health != Health.USABLE
          || fileBytes < options.spareMin()
          || fileBytes > options.spareBytesMax() - spareBytes) {
        return false;
      }
      spares.addLast(new Spare(path, fileBytes));
      spareBytes += fileBytes;
      roomChanged = true;
      return true;
    } finally {
      lock.unlock();
    }
  }

  /** One of that size, if there is any. Under the lock. */
  private @Nullable Path takeSpare(long fileBytes) {
    for (Spare spare : spares) {
      if (spare.bytes == fileBytes) {
        spares.remove(spare);
        spareBytes -= fileBytes;
        return spare.path;
      }
    }
    return null;
  }

  /** Those that were kept first, until so much is free. Under the lock. */
  private void removeSpares(long wanted) {
    for (long left = wanted; left > 0 && !spares.isEmpty(); ) {
      Spare spare = spares.removeFirst();
      spareBytes -= spare.bytes;
      leavingBytes += spare.bytes;
      left -= spare.bytes;
      enqueue(_ -> removeSpare(spare));
    }
  }

  private void removeSpare(Spare spare) {
    boolean removed = remove(List.of(spare.path), spare.bytes);
    lock.lock();
    try {
      leavingBytes -= spare.bytes;
      if (removed) {
        release(spare.bytes);
      }
    } finally {
      lock.unlock();
    }
  }

  // --- removing files -------------------------------------------------------------------------

  /** Whether it is gone; else it is kept to be tried again, and its bytes with it. */
  private boolean remove(List<Path> paths, long fileBytes) {
    try {
      for (Path path : paths) {
        files.delete(path);
      }
      return true;
    } catch (IOException | RuntimeException | Error cannot) {
      log("removing " + paths, cannot);
      lock.lock();
      try {
        undeleted.add(new Undeleted(paths, fileBytes));
      } finally {
        lock.unlock();
      }
      return false;
    }
  }

  private void retryDeletes() {
    List<Undeleted> again;
    lock.lock();
    try {
      again = List.copyOf(undeleted);
      undeleted.clear();
    } finally {
      lock.unlock();
    }
    for (Undeleted each : again) {
      if (remove(each.paths, each.bytes)) {
        lock.lock();
        try {
          release(each.bytes);
        } finally {
          lock.unlock();
        }
      }
    }
  }

  /** Under the lock. */
  private void release(long fileBytes) {
    bytes -= fileBytes;
    roomChanged = true;
    if (health == Health.FULL && !trying) {
      tryAt = options.clock().getAsLong(); // there is room now that was not
      changed.signal();
    }
  }

  // --- errors ---------------------------------------------------------------------------------

  /** Tells what kind of error it is, and begins nothing more if it is the disk's. */
  SpillException writeFailed(Path path, Throwable cause, long wanted) {
    boolean full = cause instanceof IOException && isFull(cause, wanted);
    String said = DiskDirectory.reason(cause);
    SpillException failure =
        full
            ? new SpillException(
                SpillException.Reason.FULL,
                path,
                said
                    + " while "
                    + wanted
                    + " bytes were written; they stay where they were. Free space there, or give"
                    + " a directory on another file system; it is tried again by itself",
                cause)
            : new SpillException(
                SpillException.Reason.UNUSABLE,
                path,
                said
                    + "; the bytes stay where they were. Check the directory and its disk, or"
                    + " give another directory; it is tried again by itself",
                cause);
    lock.lock();
    try {
      if (full) {
        counts.full++;
      } else {
        counts.unusable++;
      }
    } finally {
      lock.unlock();
    }
    if (cause instanceof IOException) {
      suspend(full ? Health.FULL : Health.UNUSABLE, failure);
    } else {
      LOG.log(Level.WARNING, "a slip in the program, not the disk's", cause);
    }
    return failure;
  }

  private boolean isFull(Throwable cause, long wanted) {
    String said = String.valueOf(cause.getMessage());
    if (FULL_TEXTS.stream().anyMatch(said::contains)) {
      return true;
    }
    if (cause instanceof NoSuchFileException || cause instanceof AccessDeniedException) {
      return false;
    }
    try {
      return files.usableBytes(path()) < Math.min(wanted, options.chunkBytes());
    } catch (IOException unknown) {
      return false;
    }
  }

  SpillException readFailed(Path path, Throwable cause) {
    return readFailed(
        new SpillException(
            SpillException.Reason.UNREADABLE,
            path,
            DiskDirectory.reason(cause)
                + "; what was spilled there cannot be read. Check the directory and its disk",
            cause));
  }

  SpillException readFailed(SpillException failure) {
    lock.lock();
    try {
      if (failure.reason() == SpillException.Reason.DAMAGED) {
        counts.damaged++;
      } else {
        counts.unreadable++;
      }
    } finally {
      lock.unlock();
    }
    if (failure.getCause() == null || failure.getCause() instanceof IOException) {
      suspend(Health.UNUSABLE, failure);
    }
    return failure;
  }

  SpillException closed(Path path) {
    return new SpillException(
        SpillException.Reason.CLOSED, path, "the device was closed meanwhile", null);
  }

  private void suspend(Health found, SpillException failure) {
    boolean tell;
    lock.lock();
    try {
      if (health == Health.USABLE) {
        counts.quarantines++;
        later();
      }
      health = found;
      lastFailure = failure;
      removeSpares(spareBytes); // what is full has room then, and what fails is not to be trusted
      tell = !told;
      told = true;
      changed.signal(); // whoever waits for a job now waits for the trial as well
    } finally {
      lock.unlock();
    }
    if (tell) {
      LOG.log(Level.WARNING, "nothing is spilled to disk for now: " + failure.getMessage());
    }
  }

  /** Under the lock. */
  private void later() {
    tryAt = options.clock().getAsLong() + backoffNanos;
    backoffNanos = Math.min(2 * backoffNanos, options.backoffNanosMax());
  }

  private boolean isTrialDue() {
    return health != Health.USABLE
        && !trying
        && !closing
        && options.clock().getAsLong() - tryAt >= 0;
  }

  private void trial(DiskTransfer transfer) {
    SpillException failed = null;
    try {
      directory.check();
      tryWrite(transfer);
      retryDeletes();
    } catch (SpillException refusedNow) {
      failed = refusedNow;
    } catch (IOException | RuntimeException | Error cause) {
      failed =
          new SpillException(
              SpillException.Reason.UNUSABLE,
              directory.path(),
              DiskDirectory.reason(cause) + "; it is tried again by itself",
              cause);
    }
    lock.lock();
    try {
      trying = false;
      counts.trials++;
      if (failed == null) {
        health = Health.USABLE;
        roomChanged = true;
      } else {
        lastFailure = failed;
        later();
        changed.signal(); // this thread may be busy when the next one is due
      }
    } finally {
      lock.unlock();
    }
  }

  private void tryWrite(DiskTransfer transfer) throws IOException {
    Path file = directory.path().resolve("trial");
    long length = Math.min(TRIAL_MAX, Math.max(unit, options.chunkBytes()));
    files.delete(file); // of a trial whose end failed
    try (Arena arena = Arena.ofShared()) {
      MemorySegment written = arena.allocate(length, unit);
      written.fill(TRIAL_BYTE);
      MemorySegment read = arena.allocate(length, unit);
      try (DiskFiles.OpenFile target = files.create(file)) {
        transfer.write(target, written, 0);
        if (!isDirect()) {
          target.force();
        }
      }
      try (DiskFiles.OpenFile source = files.open(file)) {
        transfer.read(source, read, 0);
      }
      if (read.mismatch(written) >= 0) {
        throw new IOException("what is read is not what was written");
      }
    } finally {
      files.delete(file);
    }
  }

  /** Whether files go past the page cache. */
  boolean isDirect() {
    return files.alignment() > 1;
  }

  /** A file of which nothing is wanted any more. */
  void closeQuietly(DiskFiles.OpenFile file, Path path) {
    try {
      file.close();
    } catch (IOException nothingToSave) {
      log("closing " + path, nothingToSave);
    }
  }

  /** Of what harms nobody, or is counted and tried again. */
  private void log(String what, Throwable failure) {
    LOG.log(Level.DEBUG, what, failure);
  }

  /** Guarded by the lock. */
  static final class Counts {
    private long written;
    private long rewritten;
    private long chunksWritten;
    private long bytesWritten;
    private long chunksRead;
    private long bytesRead;
    private long refusals;
    private long full;
    private long unusable;
    private long unreadable;
    private long damaged;
    private long quarantines;
    private long trials;

    void wrote(int chunks, long moved) {
      chunksWritten += chunks;
      bytesWritten += moved;
    }
  }
}
