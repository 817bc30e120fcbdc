package io.fairlead.memory;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A disk that fails on purpose, so that programs can be tried on one: at some calls it is full, for
 * a while; at others it takes or gives a part of what was asked for, or breaks off once. What lies
 * on it stays as it is, and can be read.
 *
 * <p>Any thread, as {@link DiskFiles}.
 */
final class FailingFiles implements DiskFiles {
  /** Longer than the tier waits at first before it tries again, so that it meets that, too. */
  static final long FULL_NANOS = 200_000_000;

  private final DiskFiles inner;
  private final MemoryFailures failures;

  /** Calls so far that could fail. */
  private final AtomicLong calls = new AtomicLong();

  /** Until when it is full, of {@link System#nanoTime}; may lag behind for others. */
  private volatile long fullUntil = System.nanoTime();

  FailingFiles(DiskFiles inner, MemoryFailures failures) {
    this.inner = inner;
    this.failures = failures;
  }

  private enum Fault {
    NONE,
    PART,
    ONCE,
    FULL
  }

  private Fault next() {
    long call = calls.incrementAndGet();
    if (!failures.isDue(call)) {
      return Fault.NONE;
    }
    return switch ((int) (call % 4)) {
      case 0 -> Fault.FULL;
      case 1 -> Fault.ONCE;
      default -> Fault.PART;
    };
  }

  /** For what needs room. */
  private Fault nextOfWrite() throws IOException {
    Fault fault = next();
    if (fault == Fault.FULL) {
      fullUntil = System.nanoTime() + FULL_NANOS;
    }
    if (System.nanoTime() - fullUntil < 0) {
      throw new IOException("No space left on device (on purpose)");
    }
    if (fault == Fault.ONCE) {
      throw new IOException("Input/output error (on purpose)");
    }
    return fault;
  }

  @Override
  public int alignment() {
    return inner.alignment();
  }

  @Override
  public MemorySegment buffer(long bytes, long alignedTo) {
    return inner.buffer(bytes, alignedTo);
  }

  @Override
  public OpenFile create(Path file) throws IOException {
    nextOfWrite();
    return new Open(inner.create(file));
  }

  @Override
  public OpenFile reopen(Path file) throws IOException {
    nextOfWrite();
    return new Open(inner.reopen(file));
  }

  @Override
  public OpenFile open(Path file) throws IOException {
    return new Open(inner.open(file));
  }

  @Override
  public void rename(Path from, Path to) throws IOException {
    nextOfWrite();
    inner.rename(from, to);
  }

  @Override
  public long size(Path file) throws IOException {
    return inner.size(file);
  }

  @Override
  public boolean delete(Path file) throws IOException {
    return inner.delete(file);
  }

  @Override
  public long usableBytes(Path directory) throws IOException {
    return inner.usableBytes(directory);
  }

  /** One transfer, as {@link OpenFile} has them. */
  private interface Transfer {
    int move(ByteBuffer buffer, long position) throws IOException;
  }

  private final class Open implements OpenFile {
    private final OpenFile file;

    Open(OpenFile file) {
      this.file = file;
    }

    @Override
    public int write(ByteBuffer source, long position) throws IOException {
      Fault fault = nextOfWrite();
      return fault == Fault.PART
          ? half(file::write, source, position)
          : file.write(source, position);
    }

    @Override
    public int read(ByteBuffer target, long position) throws IOException {
      return next() == Fault.NONE
          ? file.read(target, position)
          : half(file::read, target, position);
    }

    /** All of it where the half is no whole number of what the file system takes. */
    private int half(Transfer transfer, ByteBuffer buffer, long position) throws IOException {
      int whole = buffer.limit();
      int half = buffer.remaining() / 2 / alignment() * alignment();
      if (half > 0) {
        buffer.limit(buffer.position() + half);
      }
      try {
        return transfer.move(buffer, position);
      } finally {
        buffer.limit(whole);
      }
    }

    @Override
    public void force() throws IOException {
      file.force();
    }

    @Override
    public void close() throws IOException {
      file.close();
    }
  }
}
