package io.fairlead.memory;

import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A copy of a storage on the disk, as it was in one generation. It never changes.
 *
 * <p>Any thread may call; no call blocks. Reads of several chunks may be under way at once. The
 * file is open while reads are, each of which has it for itself, and its header is looked at
 * whenever it is opened. All fields that change are guarded by the lock of the tier.
 */
final class DiskImage {
  private final DiskTier tier;
  private final DiskFormat format;
  private final Path path;
  private final int[] checksums;
  private final Completion.Source<Void> gone = Completion.source();

  /** Open, and used by no read just now. */
  private final List<DiskFiles.OpenFile> idle = new ArrayList<>();

  private int reads;

  /** Reads that have ended but for closing files. */
  private int closers;

  private boolean closed;
  private boolean deleting;

  /** Whether every read so far went well: else nobody is to trust its file again. */
  private boolean sound = true;

  DiskImage(DiskTier tier, DiskFormat format, Path path, int[] checksums) {
    this.tier = tier;
    this.format = format;
    this.path = path;
    this.checksums = checksums;
  }

  /** The bytes of the storage. */
  long bytes() {
    return format.bytes();
  }

  /** The generation that it is a copy of. */
  long generation() {
    return format.generation();
  }

  /** What its file takes. */
  long fileBytes() {
    return format.fileBytes();
  }

  Path path() {
    return path;
  }

  /**
   * Reads one or more whole chunks.
   *
   * @param offset of the first, from the beginning of the image
   * @param into native memory that any thread may write; nobody uses it until the result is
   *     settled, also if that is cancelled meanwhile. What is in it after a failure means nothing.
   * @return failed with {@link SpillException} if it is not what was written, or cannot be read
   * @throws IllegalArgumentException if these are not whole chunks, or no such memory
   * @throws IllegalStateException if this was closed
   */
  Completion<Void> read(long offset, MemorySegment into) {
    int first = format.indexOf(offset, into.byteSize());
    int count = format.chunksIn(into.byteSize());
    tier.requireUsable(into);
    if (into.isReadOnly()) {
      throw new IllegalArgumentException("the memory to read into is read-only");
    }
    Completion.Source<Void> source = Completion.source();
    tier.lock.lock();
    try {
      if (tier.isClosing()) {
        return Completion.failed(tier.closed(path));
      }
      if (closed) {
        throw new IllegalStateException("the image is closed: read before that");
      }
      reads++;
      tier.enqueue(transfer -> get(first, count, into, source, transfer));
      return source.completion();
    } finally {
      tier.lock.unlock();
    }
  }

  /**
   * Removes it, after the reads that are under way. Closing twice is harmless.
   *
   * @return settled, never failed, once its bytes are given back
   */
  Completion<Void> close() {
    tier.lock.lock();
    try {
      if (!closed) {
        closed = true;
        tryDelete();
      }
      return gone.completion();
    } finally {
      tier.lock.unlock();
    }
  }

  /** Under the lock. */
  private void tryDelete() {
    boolean unused = (reads == 0 && closers == 0) || Mutant.on("disk.deleted-while-read");
    if (closed && unused && !deleting) {
      deleting = true;
      tier.enqueue(transfer -> delete());
    }
  }

  // --- on the threads of the tier -------------------------------------------------------------

  private void get(
      int first,
      int count,
      MemorySegment into,
      Completion.Source<Void> source,
      DiskTransfer transfer) {
    DiskFiles.OpenFile file = null;
    SpillException failed = null;
    if (tier.isClosing()) {
      failed = tier.closed(path);
    } else {
      try {
        file = takeIdle();
        if (file == null) {
          file = open(transfer);
        }
        for (int done = 0; done < count; done += format.runChunks()) {
          get(first + done, format.run(into, done), file, transfer);
        }
      } catch (SpillException damaged) {
        failed = tier.readFailed(damaged);
      } catch (EOFException short_) {
        failed = tier.readFailed(damaged("it was cut short: " + short_.getMessage()));
      } catch (IOException | RuntimeException | Error cause) {
        failed = tier.readFailed(path, cause);
      }
    }
    if (failed == null) {
      tier.wasRead(count, into.byteSize());
    }
    DiskTier.settle(source, failed);
    ended(file, failed == null);
  }

  private void get(int first, MemorySegment run, DiskFiles.OpenFile file, DiskTransfer transfer)
      throws IOException {
    if (!transfer.read(file, run, format.chunkAt(first)) && !Mutant.on("disk.padding-unchecked")) {
      throw damaged("something was written behind chunk " + (format.chunks() - 1));
    }
    int[] sums = new int[format.chunksIn(run.byteSize())];
    format.putChecksums(run, sums, 0);
    for (int i = 0; i < sums.length; i++) {
      if (sums[i] != checksums[first + i] && !Mutant.on("disk.sum-unchecked")) {
        throw damaged("chunk " + (first + i) + " has another checksum than when it was written");
      }
    }
  }

  private DiskFiles.@Nullable OpenFile takeIdle() {
    tier.lock.lock();
    try {
      return idle.isEmpty() ? null : idle.removeLast();
    } finally {
      tier.lock.unlock();
    }
  }

  private DiskFiles.OpenFile open(DiskTransfer transfer) throws IOException {
    DiskFiles.OpenFile file = tier.files.open(path);
    boolean right = false;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment written = arena.allocate(format.dataAt());
      format.putHeader(checksums, written);
      MemorySegment read = arena.allocate(format.dataAt(), format.unit());
      transfer.read(file, read, 0);
      String wrong = format.wrongWith(read, written);
      if (wrong != null) {
        throw damaged(wrong);
      }
      right = true;
      return file;
    } finally {
      if (!right) {
        file.close();
      }
    }
  }

  private SpillException damaged(String why) {
    return new SpillException(
        SpillException.Reason.DAMAGED,
        path,
        why
            + "; what was spilled there is lost and is not handed out. Check the disk, and who"
            + " else writes to that directory",
        null);
  }

  /** Keeps the file for the next read, if there is one and all went well. */
  private void ended(DiskFiles.@Nullable OpenFile file, boolean right) {
    List<DiskFiles.OpenFile> superfluous = new ArrayList<>();
    tier.lock.lock();
    try {
      if (file != null) {
        idle.add(file);
      }
      reads--;
      closers++;
      sound &= right;
      if (reads == 0 || !right) {
        superfluous.addAll(idle);
        idle.clear();
      }
    } finally {
      tier.lock.unlock();
    }
    superfluous.forEach(each -> tier.closeQuietly(each, path));
    tier.lock.lock();
    try {
      closers--;
      tryDelete();
    } finally {
      tier.lock.unlock();
    }
  }

  private boolean isSound() {
    tier.lock.lock();
    try {
      return sound;
    } finally {
      tier.lock.unlock();
    }
  }

  private void delete() {
    tier.gone(this, path, format.fileBytes(), isSound());
    gone.complete(null);
  }
}
