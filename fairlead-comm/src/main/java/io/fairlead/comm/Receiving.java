package io.fairlead.comm;

import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** A receive of a task's. */
final class Receiving extends ReceiveRequest {
  private final CommEngine engine;
  private final Completion.Source<Received> source = Completion.source();

  /** When it was found to wait; 0 until then. Racy on purpose: an end before it counts no wait. */
  private long began;

  Receiving(CommEngine engine, int channel, int source, int tag, MemorySegment @Nullable [] into) {
    super(channel, Traffic.DATA, source, tag, into);
    this.engine = engine;
  }

  /** What the caller waits for. Once, by the posting thread, after the post. */
  Completion<Received> completion() {
    Completion<Received> completion = source.completion();
    if (!completion.isDone()) {
      began = System.nanoTime();
      source.onCancel(() -> engine.withdraw(this, () -> {}));
    }
    return completion;
  }

  @Override
  public boolean isWithdrawn() {
    return source.completion().state() == Completion.State.CANCELLED;
  }

  @Override
  public void received(int from, long bytes, @Nullable MemorySegment data) {
    if (engine.endsAtOnce()) {
      done(from, bytes, data);
    } else {
      engine.end(() -> done(from, bytes, data));
    }
  }

  private void done(int from, long bytes, @Nullable MemorySegment data) {
    engine.counters.received(bytes);
    countWait();
    Received received = new Received(from, tag(), bytes, data == null ? Received.NO_DATA : data);
    if (!source.complete(received)) {
      engine.counters.discarded.increment();
    }
  }

  @Override
  public void failed(TransportException cause) {
    if (engine.endsAtOnce()) {
      fail(cause);
    } else {
      engine.end(() -> fail(cause));
    }
  }

  private void fail(TransportException cause) {
    countWait();
    String from = source() == Comm.ANY ? "any rank" : "rank " + source();
    String length = bytes() < 0 ? "" : " of " + bytes() + " bytes";
    source.fail(
        Failures.of(
            engine.rank(),
            source(),
            "receive" + length + " from " + from + ", tag " + tag(),
            cause));
  }

  private void countWait() {
    if (began != 0) {
      engine.counters.waitNanos.add(System.nanoTime() - began);
    }
  }
}
