package io.fairlead.memory;

import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * An image that is being written, under a temporary name.
 *
 * <pre>
 * OPEN --publish--> PUBLISHING --all written, header, closed, size as it should be, renamed--> an image
 *   | \--abandon--> ABANDONED                      \
 *   \----- any error, or the tier is closed --------+--> no image, no file, its bytes given back
 * </pre>
 *
 * After an error every call that comes answers with it, and the file goes as soon as nothing of it
 * is under way; nobody need abandon it.
 *
 * <p>Any thread may call; no call blocks. Writes of several chunks may be under way at once, in any
 * order. All fields that change are guarded by the lock of the tier.
 */
final class Writing {
  private enum Stage {
    OPEN,
    PUBLISHING,
    ABANDONED
  }

  private final DiskTier tier;
  private final DiskFormat format;
  private final Path draft;
  private final Path target;

  /** A file of the right size that is written over; null for a new one. */
  private final @Nullable Path spare;

  private final int[] checksums;
  private final BitSet claimed;
  private final List<DiskTier.Job> waiting = new ArrayList<>();
  private final Completion.Source<DiskImage> published = Completion.source();
  private final Completion.Source<Void> ended = Completion.source();

  private Stage stage = Stage.OPEN;
  private boolean creating = true;
  private boolean ending;
  private int pending;
  private DiskFiles.@Nullable OpenFile file;
  private @Nullable SpillException failure;

  /** Under the lock of the tier. */
  Writing(DiskTier tier, DiskFormat format, Path draft, Path target, @Nullable Path spare) {
    this.tier = tier;
    this.format = format;
    this.draft = draft;
    this.target = target;
    this.spare = spare;
    this.checksums = new int[format.chunks()];
    this.claimed = new BitSet(checksums.length);
    tier.enqueue(this::create);
  }

  /**
   * Writes one or more whole chunks.
   *
   * @param offset of the first, from the beginning of the image
   * @param chunks native memory that any thread may read; nobody changes it until the result is
   *     settled, also if that is cancelled meanwhile, and then it may be used again
   * @return failed with {@link SpillException} if there will be no image
   * @throws IllegalArgumentException if these are not whole chunks, or no such memory
   * @throws IllegalStateException if one was written before, or this is published or abandoned
   */
  Completion<Void> write(long offset, MemorySegment chunks) {
    int first = format.indexOf(offset, chunks.byteSize());
    int count = format.chunksIn(chunks.byteSize());
    tier.requireUsable(chunks);
    Completion.Source<Void> source = Completion.source();
    tier.lock.lock();
    try {
      requireOpen("write");
      if (failure != null) {
        return Completion.failed(failure);
      }
      if (claimed.get(first, first + count).cardinality() > 0) {
        throw new IllegalStateException("the chunk at " + offset + " was written before");
      }
      claimed.set(first, first + count);
      pending++;
      DiskTier.Job job = transfer -> put(first, count, chunks, source, transfer);
      if (creating) {
        waiting.add(job);
      } else {
        tier.enqueue(job);
      }
      return source.completion();
    } finally {
      tier.lock.unlock();
    }
  }

  /**
   * Makes an image of it, once every write has ended.
   *
   * @return failed with {@link SpillException} if there is none
   * @throws IllegalStateException if a chunk was never written, or this is published or abandoned
   */
  Completion<DiskImage> publish() {
    tier.lock.lock();
    try {
      requireOpen("publish");
      if (failure == null && claimed.cardinality() < checksums.length) {
        throw new IllegalStateException(
            "chunk " + claimed.nextClearBit(0) + " was not written; write all, then publish");
      }
      stage = Stage.PUBLISHING;
      if (failure != null) {
        return Completion.failed(failure);
      }
      tryEnd();
      return published.completion();
    } finally {
      tier.lock.unlock();
    }
  }

  /**
   * Gives it up; a publication that was asked for goes on.
   *
   * @return settled, never failed, once nothing of it is under way
   */
  Completion<Void> abandon() {
    tier.lock.lock();
    try {
      if (stage == Stage.OPEN) {
        stage = Stage.ABANDONED;
      }
      tryEnd();
      return ended.completion();
    } finally {
      tier.lock.unlock();
    }
  }

  /** The tier closes. Under its lock. */
  void close() {
    if (failure == null) {
      failure = tier.closed(target);
    }
    tryEnd();
  }

  private void requireOpen(String what) {
    if (stage != Stage.OPEN) {
      throw new IllegalStateException(
          what + " after " + (stage == Stage.PUBLISHING ? "publish" : "abandon"));
    }
  }

  /** Under the lock. */
  private void tryEnd() {
    if (!creating && pending == 0 && !ending && (failure != null || stage != Stage.OPEN)) {
      ending = true;
      tier.enqueue(this::end);
    }
  }

  // --- on the threads of the tier -------------------------------------------------------------

  private void create(DiskTransfer transfer) {
    DiskFiles.OpenFile made = null;
    SpillException failed = failure();
    if (failed == null) {
      try {
        made = create();
      } catch (IOException | RuntimeException | Error cause) {
        failed = tier.writeFailed(draft, cause, format.fileBytes());
      }
    }
    tier.lock.lock();
    try {
      creating = false;
      file = made;
      failure = failure == null ? failed : failure;
      waiting.forEach(tier::enqueue);
      waiting.clear();
      tryEnd();
    } finally {
      tier.lock.unlock();
    }
  }

  private void put(
      int first,
      int count,
      MemorySegment chunks,
      Completion.Source<Void> source,
      DiskTransfer transfer) {
    SpillException failed = failure();
    int[] sums = new int[count];
    if (failed == null) {
      try {
        for (int done = 0; done < count; done += format.runChunks()) {
          MemorySegment run = format.run(chunks, done);
          format.putChecksums(run, sums, done);
          transfer.write(openFile(), run, format.chunkAt(first + done));
        }
      } catch (IOException | RuntimeException | Error cause) {
        failed = tier.writeFailed(draft, cause, chunks.byteSize());
      }
    }
    tier.lock.lock();
    try {
      if (failed == null) {
        System.arraycopy(sums, 0, checksums, first, count);
        tier.counts.wrote(count, chunks.byteSize());
      } else if (failure == null && !Mutant.on("disk.error-forgotten")) {
        failure = failed;
      }
    } finally {
      tier.lock.unlock();
    }
    // Before this no longer counts as under way: what has ended leaves nothing unsettled.
    DiskTier.settle(source, failed);
    tier.lock.lock();
    try {
      pending--;
      tryEnd();
    } finally {
      tier.lock.unlock();
    }
  }

  private @Nullable SpillException failure() {
    tier.lock.lock();
    try {
      return failure;
    } finally {
      tier.lock.unlock();
    }
  }

  private DiskFiles.OpenFile openFile() {
    // Plain: set by the job that enqueued this one.
    return Objects.requireNonNull(file, "created before anything is written");
  }

  private void end(DiskTransfer transfer) {
    SpillException failed = failure();
    if (failed == null && stage == Stage.PUBLISHING) {
      try {
        makeImage(transfer);
      } catch (IOException | RuntimeException | Error cause) {
        failed = tier.writeFailed(draft, cause, format.fileBytes());
      }
    }
    DiskImage image = null;
    if (failed == null && stage == Stage.PUBLISHING) {
      image = tier.published(this, new DiskImage(tier, format, target, checksums), spare != null);
      failed = image == null ? tier.closed(target) : null;
    } else {
      discard();
    }
    if (image != null) {
      published.complete(image);
    } else if (failed != null) {
      published.fail(failed);
    }
    ended.complete(null);
  }

  private void makeImage(DiskTransfer transfer) throws IOException {
    DiskFiles.OpenFile open = openFile();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment header = arena.allocate(format.dataAt(), format.unit());
      format.putHeader(checksums, header);
      transfer.write(open, header, 0);
    }
    if (!tier.isDirect()) {
      // An error that the system would find later must be found while the bytes are elsewhere, too.
      open.force();
    }
    open.close();
    long size = tier.files.size(draft);
    if (size != format.fileBytes() && !Mutant.on("disk.size-unchecked")) {
      throw new IOException("it has " + size + " bytes instead of " + format.fileBytes());
    }
    tier.files.rename(draft, target);
  }

  private DiskFiles.OpenFile create() throws IOException {
    if (spare == null) {
      return tier.files.create(draft);
    }
    tier.files.rename(spare, draft);
    return tier.files.reopen(draft);
  }

  private void discard() {
    if (file != null) {
      tier.closeQuietly(file, draft);
    }
    // By all names: a rename may have failed after it was done.
    List<Path> names = spare == null ? List.of(draft, target) : List.of(spare, draft, target);
    tier.discarded(this, names, format.fileBytes());
  }
}
