package io.fairlead.memory;

import static java.lang.Boolean.TRUE;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Mark;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Copies and fills. Everything between Java memory and the device passes through pinned blocks of
 * at most a chunk, of which the context's pool has a bounded number; sizes were checked by the
 * caller.
 *
 * <p>A block is written by the host before it is enqueued and goes back only after the copy that
 * reads it has ended (uploads), or is read by the host only after the copy that writes it has ended
 * (downloads).
 *
 * <p>Nobody waits for a block while holding one that only he can give back: so however many large
 * copies run at once, they cannot wait for each other.
 */
final class Transfers {
  /**
   * Up to this size a reader runs right where the completion is found: handing it to another thread
   * would cost more than reading. Above, it could hold up the completions behind it.
   */
  private static final long READ_INLINE = 64 << 10;

  private final DeviceContext context;
  private final long chunkBytes;

  Transfers(DeviceContext context, long chunkBytes) {
    this.context = context;
    this.chunkBytes = chunkBytes;
  }

  /** The task's stream. What it stages in pinned memory is copied once, and never by a graph. */
  private DeviceStream uncaptured(String operation) {
    DeviceStream stream = context.stream();
    if (stream.isCaptured()) {
      throw new IllegalStateException(
          operation
              + ": "
              + stream
              + " is being captured, and staging memory goes back after one copy; do it before the"
              + " capture, or capture stream.copyToDevice and copyToHost of memory of your own");
    }
    return stream;
  }

  // --- up -----------------------------------------------------------------------------------

  /** Returns where the stream is once the last byte has arrived. */
  Mark upload(DeviceBuffer target, long offset, MemorySegment source) {
    DeviceStream stream = uncaptured("upload");
    long size = source.byteSize();
    Mark last = stream.mark();
    for (long done = 0; done < size; ) {
      long bytes = Math.min(chunkBytes, size - done);
      last = uploadChunk(stream, target, offset + done, source.asSlice(done, bytes));
      done += bytes;
    }
    return last;
  }

  private Mark uploadChunk(
      DeviceStream stream, DeviceBuffer target, long offset, MemorySegment source) {
    HostBlock block = context.hostBlocks().take(source.byteSize());
    Mark mark;
    try {
      block.segment().copyFrom(source);
      mark = new Mark(stream, stream.copyToDevice(target, offset, block.segment()));
    } catch (RuntimeException | Error failure) {
      block.close();
      throw failure;
    }
    giveBack(block, mark);
    return mark;
  }

  private static void giveBack(HostBlock block, Mark mark) {
    if (Mutant.on("staging.recycle.early")) {
      block.close();
    } else {
      block.closeAfter(mark);
    }
  }

  Completion<Void> uploadPinned(DeviceBuffer target, HostBlock block, long bytes) {
    MemorySegment source = block.segment().asSlice(0, bytes);
    if (bytes == 0) {
      return Completion.completed(null);
    }
    DeviceStream stream = uncaptured("upload");
    return reached(block, new Mark(stream, stream.copyToDevice(target, 0, source)));
  }

  /** Whoever gives the wait up may close the block, which is being copied all the same. */
  private static Completion<Void> reached(HostBlock block, Mark mark) {
    block.usedUntil(mark);
    return mark.stream().reached(mark);
  }

  // --- down ---------------------------------------------------------------------------------

  <R extends @Nullable Object> Completion<R> download(
      DeviceBuffer source, Function<MemorySegment, R> reader) {
    if (source.bytes() <= chunkBytes) {
      return fetch(uncaptured("download"), source, 0, source.bytes()).whenReached(reader);
    }
    // One segment for the reader, collected with it: closing shared memory stops all threads.
    MemorySegment whole = Arena.ofAuto().allocate(source.bytes());
    return downloadTo(source, whole, reader);
  }

  @SuppressWarnings("NullAway") // null is the one value of Void
  Completion<Void> downloadTo(DeviceBuffer source, MemorySegment target) {
    return downloadTo(source, target, whole -> TRUE).thenApply(arrived -> null);
  }

  /** Parks for all chunks but the last, and runs {@code then} after that one arrived. */
  private <R extends @Nullable Object> Completion<R> downloadTo(
      DeviceBuffer source, MemorySegment target, Function<MemorySegment, R> then) {
    Fetched last = fetchAllButLast(source, target);
    return last.whenReached(
        segment -> {
          last.copyOut(segment, target);
          return then.apply(target);
        });
  }

  void downloadInto(DeviceBuffer source, MemorySegment target) {
    fetchAllButLast(source, target).awaitInto(target);
  }

  private Fetched fetchAllButLast(DeviceBuffer source, MemorySegment target) {
    DeviceStream stream = uncaptured("download");
    long size = source.bytes();
    long done = 0;
    for (; size - done > chunkBytes; done += chunkBytes) {
      fetch(stream, source, done, chunkBytes).awaitInto(target);
    }
    return fetch(stream, source, done, size - done);
  }

  private Fetched fetch(DeviceStream stream, DeviceBuffer source, long offset, long bytes) {
    HostBlock block = context.hostBlocks().take(bytes);
    try {
      MemorySegment segment = block.segment();
      Mark mark =
          bytes == 0 ? stream.mark() : new Mark(stream, stream.copyToHost(segment, source, offset));
      return new Fetched(mark, offset, block, segment);
    } catch (RuntimeException | Error failure) {
      block.close();
      throw failure;
    }
  }

  Completion<Void> downloadPinned(DeviceBuffer source, HostBlock block) {
    MemorySegment target = block.segment().asSlice(0, source.bytes());
    if (source.bytes() == 0) {
      return Completion.completed(null);
    }
    DeviceStream stream = uncaptured("download");
    return reached(block, new Mark(stream, stream.copyToHost(target, source, 0)));
  }

  // --- across and in place ------------------------------------------------------------------

  void copy(DeviceBuffer target, long offset, DeviceBuffer source, long sourceOffset, long bytes) {
    if (bytes == 0) {
      return;
    }
    if (source.device() == target.device()) {
      context.stream().copyOnDevice(target, offset, source, sourceOffset, bytes);
    } else if (context.canCopyFrom(source.device().context())) {
      context.stream()
          .copyFromPeer(
              target, offset, source.device().context(), source.forPeers(), sourceOffset, bytes);
    } else {
      copyAcross(target, offset, source, sourceOffset, bytes);
    }
  }

  /** The host carries the order with the bytes: the block is read once the source is through. */
  private void copyAcross(
      DeviceBuffer target, long offset, DeviceBuffer source, long sourceOffset, long bytes) {
    Transfers other = source.device().transfers();
    DeviceStream down = other.uncaptured("copy across");
    DeviceStream up = uncaptured("copy across");
    for (long done = 0; done < bytes; ) {
      long chunk = Math.min(other.chunkBytes, bytes - done);
      Fetched fetched = other.fetch(down, source, sourceOffset + done, chunk);
      fetched.await();
      long sequence;
      try {
        sequence = up.copyToDevice(target, offset + done, fetched.segment);
      } catch (RuntimeException | Error failure) {
        fetched.abandon();
        throw failure;
      }
      fetched.giveBackAfter(new Mark(up, sequence));
      done += chunk;
    }
  }

  void fill(DeviceBuffer target, byte value) {
    if (target.bytes() > 0) {
      context.stream().fill(target, 0, target.bytes(), value);
    }
  }

  void fill(DeviceBuffer target, int width, int pattern) {
    if (target.bytes() > 0) {
      context.stream().fillPattern(target, 0, target.bytes(), width, pattern);
    }
  }

  /**
   * A block that the device writes until its stream has passed {@code mark}. It goes back once: by
   * who reads it, or, if nobody will, once the copy into it has ended.
   */
  private static final class Fetched {
    private final Mark mark;
    private final long offset;
    private final HostBlock block;
    private final MemorySegment segment;

    /** Set by whoever is to give the block back: a cancelled wait and its reader may both try. */
    private final AtomicBoolean taken = new AtomicBoolean();

    Fetched(Mark mark, long offset, HostBlock block, MemorySegment segment) {
      this.mark = mark;
      this.offset = offset;
      this.block = block;
      this.segment = segment;
    }

    private Completion<Void> reached() {
      return Mutant.on("download.early") ? Completion.completed(null) : mark.stream().reached(mark);
    }

    void abandon() {
      giveBackAfter(mark);
    }

    void giveBackAfter(Mark lastUse) {
      if (taken.compareAndSet(false, true)) {
        block.closeAfter(lastUse);
      }
    }

    void await() {
      try {
        reached().await();
      } catch (RuntimeException | Error failure) {
        abandon();
        throw failure;
      }
    }

    void awaitInto(MemorySegment target) {
      await();
      read(
          arrived -> {
            copyOut(arrived, target);
            return TRUE;
          });
    }

    void copyOut(MemorySegment arrived, MemorySegment target) {
      MemorySegment.copy(arrived, 0, target, offset, arrived.byteSize());
    }

    /** After the copy ended. */
    private <R extends @Nullable Object> R read(Function<MemorySegment, R> reader) {
      if (!taken.compareAndSet(false, true)) {
        throw new IllegalStateException("the download was given up before its data was read");
      }
      try {
        return reader.apply(segment);
      } finally {
        block.close();
      }
    }

    <R extends @Nullable Object> Completion<R> whenReached(Function<MemorySegment, R> reader) {
      Completion<R> result =
          segment.byteSize() <= READ_INLINE
              ? reached().thenApply(reached -> read(reader))
              : readElsewhere(reader);
      // Cancelled or failed before it was read: the copy may still be writing.
      result.onDone(done -> abandon());
      return result;
    }

    private <R extends @Nullable Object> Completion<R> readElsewhere(
        Function<MemorySegment, R> reader) {
      Completion.Source<R> result = Completion.source();
      reached().onDone(done -> Thread.startVirtualThread(() -> settle(result, done, reader)));
      return result.completion();
    }

    @SuppressWarnings("CatchingUnchecked") // whatever the reader throws is the outcome
    private <R extends @Nullable Object> void settle(
        Completion.Source<R> result, Completion<Void> reached, Function<MemorySegment, R> reader) {
      Throwable cause = reached.cause();
      if (cause != null) {
        result.fail(cause);
        return;
      }
      try {
        result.complete(read(reader));
      } catch (Throwable failure) {
        result.fail(failure);
      }
    }
  }
}
