package io.fairlead.sim;

import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/** Requests that remember how they ended. Written by whoever ends them, read after isDone. */
final class TransportRequests {
  private TransportRequests() {}

  /** What can be asked of each of them. */
  interface Probe {
    AtomicInteger counter();

    @Nullable TransportException failure();

    default boolean isDone() {
      return counter().get() > 0;
    }

    default int ends() {
      return counter().get();
    }
  }

  static final class Send extends SendRequest implements Probe {
    private final AtomicInteger ends = new AtomicInteger();
    private @Nullable TransportException failure;
    volatile boolean withdrawn;

    Send(int channel, Traffic traffic, int target, int tag, MemorySegment... blobs) {
      super(channel, traffic, target, tag, blobs);
    }

    @Override
    public void sent() {
      ends.incrementAndGet();
    }

    @Override
    public void failed(TransportException cause) {
      failure = cause;
      ends.incrementAndGet();
    }

    @Override
    public boolean isWithdrawn() {
      return withdrawn;
    }

    @Override
    public AtomicInteger counter() {
      return ends;
    }

    @Override
    public @Nullable TransportException failure() {
      return failure;
    }
  }

  static final class Receive extends ReceiveRequest implements Probe {
    private final AtomicInteger ends = new AtomicInteger();
    @Nullable TransportException failure;
    volatile boolean withdrawn;
    int from;
    long length;
    MemorySegment data = MemorySegment.NULL;

    Receive(int channel, Traffic traffic, int source, int tag, MemorySegment... into) {
      super(channel, traffic, source, tag, into.length == 0 ? null : into);
    }

    /** The first of the segments that it was made with. */
    MemorySegment place() {
      return Objects.requireNonNull(into())[0];
    }

    @Override
    public void received(int source, long bytes, @Nullable MemorySegment made) {
      from = source;
      length = bytes;
      if (made != null) {
        data = made;
      }
      ends.incrementAndGet();
    }

    @Override
    public void failed(TransportException cause) {
      failure = cause;
      ends.incrementAndGet();
    }

    @Override
    public boolean isWithdrawn() {
      return withdrawn;
    }

    @Override
    public AtomicInteger counter() {
      return ends;
    }

    @Override
    public @Nullable TransportException failure() {
      return failure;
    }
  }

  static final class Message extends MessageRequest implements Probe {
    private final AtomicInteger ends = new AtomicInteger();
    private @Nullable TransportException failure;
    volatile boolean withdrawn;

    Message(int channel, int target, int handler, MemorySegment header, MemorySegment... blobs) {
      super(channel, target, handler, header, blobs);
    }

    @Override
    public void sent() {
      ends.incrementAndGet();
    }

    @Override
    public void failed(TransportException cause) {
      failure = cause;
      ends.incrementAndGet();
    }

    @Override
    public boolean isWithdrawn() {
      return withdrawn;
    }

    @Override
    public AtomicInteger counter() {
      return ends;
    }

    @Override
    public @Nullable TransportException failure() {
      return failure;
    }
  }

  static final class Copy extends CopyRequest implements Probe {
    private final AtomicInteger ends = new AtomicInteger();
    private @Nullable TransportException failure;

    Copy(int channel, int peer, long key, long offset, MemorySegment local) {
      super(channel, peer, key, offset, local);
    }

    @Override
    public void copied() {
      ends.incrementAndGet();
    }

    @Override
    public void failed(TransportException cause) {
      failure = cause;
      ends.incrementAndGet();
    }

    @Override
    public boolean isWithdrawn() {
      return false;
    }

    @Override
    public AtomicInteger counter() {
      return ends;
    }

    @Override
    public @Nullable TransportException failure() {
      return failure;
    }
  }
}
