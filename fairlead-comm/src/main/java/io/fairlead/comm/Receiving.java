package io.fairlead.comm;

import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A receive of a task's.
 *
 * <p>{@code from}, {@code length}, {@code data} and {@code failure} are written by who ends it and
 * read by who tells, on the same thread or later in the order of a queue: plain.
 */
final class Receiving extends ReceiveRequest implements Ending, Runnable {
  private final CommEngine engine;
  private final Completion.Source<Received> source;

  /**
   * When it was found to wait; 0 until then, and for most: see {@link Counters#isTimed}. Racy on
   * purpose: an end before it counts no wait.
   */
  private long began;

  private int from;
  private long length;
  private @Nullable MemorySegment data;
  private @Nullable TransportException failure;

  Receiving(CommEngine engine, int channel, int source, int tag, MemorySegment @Nullable [] into) {
    super(channel, Traffic.DATA, source, tag, into);
    this.engine = engine;
    this.source = engine.source(this);
  }

  /** What the caller waits for. Once, by the posting thread, after the post. */
  Completion<Received> completion() {
    Completion<Received> completion = source.completion();
    if (!completion.isDone() && engine.counters.isTimed()) {
      began = System.nanoTime();
    }
    return completion;
  }

  /** The caller gives it up: takes it back. */
  @Override
  public void run() {
    engine.withdraw(this, () -> {});
  }

  @Override
  public boolean isWithdrawn() {
    return source.completion().state() == Completion.State.CANCELLED;
  }

  @Override
  public void received(int sender, long bytes, @Nullable MemorySegment made) {
    from = sender;
    length = bytes;
    data = made;
    engine.countReceived(bytes);
    engine.end(this);
  }

  @Override
  public void failed(TransportException cause) {
    failure = cause;
    engine.end(this);
  }

  @Override
  public boolean isAwaited() {
    return source.isAwaited();
  }

  @Override
  public void tell() {
    if (began != 0) {
      engine.counters.waited(System.nanoTime() - began);
    }
    TransportException cause = failure;
    if (cause != null) {
      source.fail(Failures.of(engine.rank(), source(), what(), cause));
      return;
    }
    MemorySegment made = data;
    Received received = new Received(from, tag(), length, made == null ? Received.NO_DATA : made);
    if (!source.complete(received)) {
      engine.counters.discarded.increment();
    }
  }

  private String what() {
    String sender = source() == Comm.ANY ? "any rank" : "rank " + source();
    String bytes = bytes() < 0 ? "" : " of " + bytes() + " bytes";
    return "receive" + bytes + " from " + sender + ", tag " + tag();
  }
}
