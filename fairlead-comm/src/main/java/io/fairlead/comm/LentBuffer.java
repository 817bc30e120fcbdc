package io.fairlead.comm;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory of the engine's, lent to be filled and sent. From the moment it is sent it is the engine's
 * again, and every access through this view throws; the memory goes back to the pool when the send
 * has ended. A buffer that is not sent is given back by {@link #close}.
 *
 * <pre>
 * LENT → SENT      given to a send: the view is closed        by the sending task
 * SENT → RETURNED  the send has ended                         by whoever ends it
 * LENT → RETURNED  close()
 * </pre>
 *
 * <p>The state is the only shared field. Filled by one thread at a time; the view never hands out
 * its segment, so that no copy of it can outlive the state.
 */
public final class LentBuffer implements Blob, AutoCloseable {
  private static final int LENT = 0;
  private static final int SENT = 1;
  private static final int RETURNED = 2;

  private final Lender lender;
  private final Lender.Block block;
  private final MemorySegment memory;

  /** Volatile: who finds it LENT may use the memory; who moves it on may not any more. */
  private final AtomicInteger state = new AtomicInteger(LENT);

  LentBuffer(Lender lender, Lender.Block block, long bytes) {
    this.lender = lender;
    this.block = block;
    this.memory = block.memory.asSlice(0, bytes);
  }

  @Override
  public long bytes() {
    return memory.byteSize();
  }

  /** Copies all of {@code source} to {@code offset}. */
  public void write(long offset, MemorySegment source) {
    MemorySegment.copy(source, 0, lent(), offset, source.byteSize());
  }

  /** Copies all of {@code source} to {@code offset}, in native byte order. */
  public void write(long offset, double[] source) {
    MemorySegment.copy(source, 0, lent(), ValueLayout.JAVA_DOUBLE_UNALIGNED, offset, source.length);
  }

  /** Copies the bytes from {@code offset} on, as many as {@code target} has. */
  public void read(long offset, MemorySegment target) {
    MemorySegment.copy(lent(), offset, target, 0, target.byteSize());
  }

  public void setLong(long offset, long value) {
    lent().set(ValueLayout.JAVA_LONG_UNALIGNED, offset, value);
  }

  public long getLong(long offset) {
    return lent().get(ValueLayout.JAVA_LONG_UNALIGNED, offset);
  }

  public void setDouble(long offset, double value) {
    lent().set(ValueLayout.JAVA_DOUBLE_UNALIGNED, offset, value);
  }

  public double getDouble(long offset) {
    return lent().get(ValueLayout.JAVA_DOUBLE_UNALIGNED, offset);
  }

  /** Gives back a buffer that was not sent; otherwise does nothing. Any thread; never blocks. */
  @Override
  public void close() {
    if (state.compareAndSet(LENT, RETURNED)) {
      lender.give(block);
    }
  }

  private MemorySegment lent() {
    if (state.get() != LENT) {
      throw new IllegalStateException(
          "the buffer was sent or closed and belongs to the engine: lend another one");
    }
    return memory;
  }

  /** The engine takes it over; from here on only the engine sees the memory. */
  MemorySegment send(Lender engine) {
    if (Objects.requireNonNull(engine) != lender) {
      throw new IllegalArgumentException(
          "the buffer was lent by another rank: lend one from the communicator that sends it");
    }
    if (!state.compareAndSet(LENT, SENT)) {
      throw new IllegalStateException("the buffer was sent or closed before: lend another one");
    }
    return memory;
  }

  /** The send has ended. */
  void ended() {
    if (state.compareAndSet(SENT, RETURNED)) {
      lender.give(block);
    }
  }
}
