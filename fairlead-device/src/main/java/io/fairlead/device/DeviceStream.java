package io.fairlead.device;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.concurrent.atomic.LongAdder;

/**
 * A queue of work on a device: operations end in the order in which they were enqueued.
 *
 * <p>Any thread may use any stream; each operation takes the stream's turn, so operations of
 * several tasks on one stream do not mix. A task gets a stream of its own from {@link
 * DeviceContext#stream()}, which goes back to the pool when the task ends: closing that one does
 * nothing. One from {@link DeviceContext#openStream} belongs to the caller.
 *
 * <p>What was enqueued stays enqueued: neither closing the stream nor cancelling a wait takes work
 * back.
 */
public final class DeviceStream implements AutoCloseable {
  static final Operand[] NO_OPERANDS = {};
  static final Access[] NO_ACCESSES = {};
  static final Access[] READS = {Access.READ};
  static final Access[] WRITES = {Access.WRITE};
  static final Access[] WRITES_AND_READS = {Access.WRITE, Access.READ};

  private final StreamCore core;
  private final boolean pooled;

  DeviceStream(StreamCore core, boolean pooled) {
    this.core = core;
    this.pooled = pooled;
  }

  // --- positions and waiting
  // ----------------------------------------------------------------------

  /**
   * The position after the last enqueued operation. Any thread; does not wait for the device, but
   * may take the stream's turn if a join has left work to come after. On an adopted stream: after
   * all that anybody has enqueued so far.
   */
  public Mark mark() {
    return new Mark(this, core.position());
  }

  /**
   * The position after everything that is on the stream now, also what code that Fairlead does not
   * know has enqueued on {@link #nativeHandle}. Work of joined tasks that this stream has yet to
   * come after is not included. Any thread; does not wait for the device.
   */
  public Mark foreignMark() {
    return new Mark(this, core.foreignPosition());
  }

  /**
   * As {@link #foreignMark}, for who has lent the stream to others: also of a stream that was
   * closed meanwhile, whose end it is, since the handle was theirs no longer than that; and of one
   * that is captured now, up to where that began. Any thread but the cleaner's; does not wait.
   */
  public Mark foreignEnd() {
    return new Mark(this, core.foreignEnd());
  }

  /**
   * Completes when everything enqueued so far has ended. Any thread; does not block. Waiting on the
   * result parks the task, or does what its wait mode says; deadline, interrupt and cancellation
   * end the wait and leave the work alone.
   *
   * <p>A wait that its deadline ended leaves the completion registered until the work ends: wait on
   * the same one again, or cancel it.
   *
   * <p>Fails with {@link DeviceLostException} if the context is lost first.
   */
  public Completion<Void> reached() {
    return core.completion(core.position());
  }

  /**
   * Completes when the position is reached; as {@link #reached()}. If it is already, there is no
   * driver call and nothing is allocated.
   *
   * @throws IllegalArgumentException if the mark is of another stream, or past its last operation
   */
  public Completion<Void> reached(Mark mark) {
    return core.completion(own(mark));
  }

  /**
   * Whether the position is known to be reached. Any thread; a memory read. It is known only as far
   * as somebody has asked: a false may be out of date until someone waits.
   */
  public boolean isReached(Mark mark) {
    return core.isReached(own(mark));
  }

  private long own(Mark mark) {
    if (mark.stream().core != core) {
      throw new IllegalArgumentException(
          "the mark is of " + mark + ", not of stream " + id() + "; ask mark.stream()");
    }
    requireEnqueued(mark);
    return mark.sequence();
  }

  /** What was not enqueued yet has no end to wait for: nobody was given that mark. */
  private static void requireEnqueued(Mark mark) {
    long last = mark.stream().core.enqueued();
    if (mark.sequence() > last) {
      throw new IllegalArgumentException(
          "the mark is of " + mark + ", but only " + last + " were enqueued; ask stream.mark()");
    }
  }

  /**
   * Orders later operations of this stream after a position of another stream, without anybody
   * waiting. Costs nothing if the position is reached or already comes before; else one wait in the
   * driver, and one event record unless a recent one will do. Any thread; may park while this
   * stream has too many unfinished operations.
   *
   * @throws IllegalArgumentException if the other stream belongs to another driver: wait for the
   *     mark's completion instead
   */
  public void after(Mark mark) {
    StreamCore source = mark.stream().core;
    if (!source.context.hasSameDriver(core.context)) {
      throw new IllegalArgumentException(
          "stream "
              + id()
              + " cannot come after "
              + mark
              + " of another driver; wait for mark.stream().reached(mark) instead");
    }
    requireEnqueued(mark);
    core.after(source, mark.sequence());
  }

  /**
   * Whether what is enqueued here next comes after the position anyway, so that {@link #after}
   * would make no edge. Any thread; a memory read. A true stays true.
   */
  public boolean comesAfter(Mark mark) {
    return core.comesAfter(mark.stream().core, mark.sequence());
  }

  /**
   * Records a position for later edges now. Call it just before enqueueing something that itself
   * waits for the outside (a collective, a host function, a persistent kernel): an edge to earlier
   * work then does not include it. Any thread; does not wait.
   */
  public void checkpoint() {
    core.requireUsable("checkpoint");
    core.checkpointNow();
  }

  // --- enqueueing
  // ---------------------------------------------------------------------------------

  /**
   * Enqueues one operation: takes the stream's turn, acquires all operands, makes the context
   * current if {@code call} needs it, runs {@code body}, and records the operation with its
   * operands. Any thread; parks the task, before the turn, while too many operations of this stream
   * are unfinished.
   *
   * <p>If an operand refuses or the body throws, nothing counts as enqueued, and the operands
   * acquired so far are told {@link Operand#abandoned}. If one is {@link Operand#AWAY}, the task
   * parks until all are on the device, and the operation is tried again.
   *
   * @param call which driver call the body makes
   * @param operation for errors, reports and launch sites: {@code copy to device}
   * @param accesses what the operation does with each operand
   * @return the sequence number of the operation; -1 for one that was captured, which has none
   * @throws DeviceException if the driver refuses
   * @throws DeviceLostException if the context is lost
   * @throws IllegalStateException if the stream or an operand was closed
   */
  public long enqueue(
      DriverCall call,
      String operation,
      Operand[] operands,
      Access[] accesses,
      StreamOperation body) {
    Objects.requireNonNull(operation, "operation");
    if (operands.length != accesses.length) {
      throw new IllegalArgumentException(
          operation + ": " + operands.length + " operands but " + accesses.length + " accesses");
    }
    return core.enqueue(this, call, operation, -1, operands, accesses, body);
  }

  /** As the other {@code enqueue}, for a body that makes any of the driver's enqueuing calls. */
  public long enqueue(
      String operation, Operand[] operands, Access[] accesses, StreamOperation body) {
    return enqueue(core.context.strictestCall(), operation, operands, accesses, body);
  }

  /** As the other {@code enqueue}, for an operation without operands. */
  public long enqueue(DriverCall call, String operation, StreamOperation body) {
    return enqueue(call, operation, NO_OPERANDS, NO_ACCESSES, body);
  }

  long launch(
      String operation, long items, Operand[] operands, Access[] accesses, StreamOperation body) {
    long sequence =
        core.enqueue(this, DriverCall.LAUNCH, operation, items, operands, accesses, body);
    if (sequence != StreamCore.NO_POSITION) {
      core.counters().launches.increment();
    }
    return sequence;
  }

  /**
   * Enqueues a copy to {@code target}, from {@code offset} on. As {@link #enqueue}. The source must
   * stay valid and unchanged until the returned position is reached.
   */
  public long copyToDevice(Operand target, long offset, MemorySegment source) {
    requireRange("copy to device", target, offset, source.byteSize());
    Driver driver = core.context.driver();
    long sequence =
        enqueue(
            DriverCall.COPY,
            "copy to device",
            new Operand[] {target},
            WRITES,
            (stream, addresses) -> driver.copyToDevice(stream, addresses[0] + offset, source));
    return counted(sequence, core.counters().bytesUp, source.byteSize());
  }

  /**
   * Enqueues a copy of {@code target.byteSize()} bytes from {@code source}, from {@code offset} on.
   * As {@link #enqueue}. The target must stay valid, and is undefined, until the returned position
   * is reached.
   */
  public long copyToHost(MemorySegment target, Operand source, long offset) {
    requireRange("copy to host", source, offset, target.byteSize());
    Driver driver = core.context.driver();
    long sequence =
        enqueue(
            DriverCall.COPY,
            "copy to host",
            new Operand[] {source},
            READS,
            (stream, addresses) -> driver.copyToHost(stream, target, addresses[0] + offset));
    return counted(sequence, core.counters().bytesDown, target.byteSize());
  }

  /** Enqueues a copy between device memories. As {@link #enqueue}. */
  public long copyOnDevice(
      Operand target, long targetOffset, Operand source, long sourceOffset, long bytes) {
    requireRange("copy on device, target", target, targetOffset, bytes);
    requireRange("copy on device, source", source, sourceOffset, bytes);
    Driver driver = core.context.driver();
    long sequence =
        enqueue(
            DriverCall.COPY,
            "copy on device",
            new Operand[] {target, source},
            WRITES_AND_READS,
            (stream, addresses) ->
                driver.copyOnDevice(
                    stream, addresses[0] + targetOffset, addresses[1] + sourceOffset, bytes));
    return counted(sequence);
  }

  /** Enqueues setting {@code bytes} bytes to {@code value}. As {@link #enqueue}. */
  public long fill(Operand target, long offset, long bytes, byte value) {
    requireRange("fill", target, offset, bytes);
    Driver driver = core.context.driver();
    long sequence =
        enqueue(
            DriverCall.FILL,
            "fill",
            new Operand[] {target},
            WRITES,
            (stream, addresses) -> driver.fill(stream, addresses[0] + offset, bytes, value));
    return counted(sequence);
  }

  /** Counts a copy and its bytes; not one that was captured, which nobody has made yet. */
  private long counted(long sequence, LongAdder bytesMoved, long bytes) {
    if (sequence != StreamCore.NO_POSITION) {
      bytesMoved.add(bytes);
    }
    return counted(sequence);
  }

  private long counted(long sequence) {
    if (sequence != StreamCore.NO_POSITION) {
      core.counters().copies.increment();
    }
    return sequence;
  }

  /**
   * Enqueues a copy from another device's memory to this stream's device. As {@link #enqueue}; the
   * first copy between two devices waits for the owner, which lets them reach each other.
   *
   * @param from the context of {@code source}
   * @param source lets itself be acquired by a stream of another context than its own
   * @throws IllegalArgumentException unless {@link DeviceContext#canCopyFrom}
   */
  public long copyFromPeer(
      Operand target,
      long targetOffset,
      DeviceContext from,
      Operand source,
      long sourceOffset,
      long bytes) {
    requireRange("copy between devices, target", target, targetOffset, bytes);
    requireRange("copy between devices, source", source, sourceOffset, bytes);
    DeviceContext to = core.context;
    if (!to.canCopyFrom(from)) {
      throw new IllegalArgumentException(
          to + " cannot copy from " + from + "; copy to host memory, and from there");
    }
    to.connect(from);
    Driver driver = to.driver();
    long sequence =
        enqueue(
            DriverCall.PEER_COPY,
            "copy from device " + from.ordinal(),
            new Operand[] {target, source},
            WRITES_AND_READS,
            (stream, addresses) ->
                driver.copyPeer(
                    stream,
                    addresses[0] + targetOffset,
                    to.nativeContext(),
                    addresses[1] + sourceOffset,
                    from.nativeContext(),
                    bytes));
    return counted(sequence);
  }

  /**
   * Enqueues filling {@code bytes} bytes with a pattern of 2 or 4 bytes, the low ones of {@code
   * pattern} in the machine's order. As {@link #enqueue}.
   *
   * @throws IllegalArgumentException if offset or length are no multiples of {@code width}
   */
  public long fillPattern(Operand target, long offset, long bytes, int width, int pattern) {
    requireRange("fill", target, offset, bytes);
    if ((width != Short.BYTES && width != Integer.BYTES)
        || offset % width != 0
        || bytes % width != 0) {
      throw new IllegalArgumentException(
          "a fill with "
              + width
              + " bytes, of "
              + bytes
              + " bytes from "
              + offset
              + " on: a pattern has 2 or 4 bytes, and fits in whole");
    }
    Driver driver = core.context.driver();
    long sequence =
        enqueue(
            DriverCall.FILL,
            "fill",
            new Operand[] {target},
            WRITES,
            (stream, addresses) ->
                driver.fillPattern(stream, addresses[0] + offset, bytes, width, pattern));
    return counted(sequence);
  }

  static void requireRange(String operation, Operand operand, long offset, long bytes) {
    if (offset < 0 || bytes < 0 || offset > operand.bytes() - bytes) {
      throw new IndexOutOfBoundsException(
          operation
              + ": bytes "
              + offset
              + " to "
              + (offset + bytes)
              + " of a buffer of "
              + operand.bytes());
    }
  }

  // --- graphs
  // -------------------------------------------------------------------------------------

  /**
   * Captures what the body enqueues on this stream, by this task, and makes a graph of it; as
   * {@link DeviceContext#capture}, for a stream from {@link DeviceContext#openStream}. Waiting for
   * positions from before goes on meanwhile, and other streams know nothing of it.
   *
   * @throws IllegalStateException if the stream is captured already, was adopted, or is a task's
   *     own, which others may share
   */
  public DeviceGraph capture(String name, Runnable body) {
    core.context.requireGraphs("capture");
    if (core.adopted) {
      throw new IllegalStateException(
          this + " was adopted and is captured by whoever made it; open a stream for a capture");
    }
    if (pooled) {
      throw new IllegalStateException(
          this
              + " is lent to this task, and maybe to others; use context.capture(name, body), or a"
              + " stream from openStream");
    }
    return captured(name, body);
  }

  /** Nobody else uses the stream meanwhile. */
  DeviceGraph captured(String name, Runnable body) {
    Capture capture = new Capture(Objects.requireNonNull(name, "name"));
    core.beginCapture(capture);
    long graph;
    try {
      body.run();
    } catch (RuntimeException | Error failure) {
      abandon(capture, failure);
      throw failure;
    }
    try {
      graph = core.endCapture();
    } catch (RuntimeException | Error failure) {
      capture.holdings.release();
      throw failure;
    }
    return DeviceGraph.of(core.context, capture, graph);
  }

  private void abandon(Capture capture, Throwable failure) {
    try {
      DeviceGraph.drop(core.context, core.endCapture());
    } catch (RuntimeException | Error second) {
      failure.addSuppressed(second);
    } finally {
      capture.holdings.release();
    }
  }

  /** Whether a task captures this stream now. Any thread; a memory read. */
  public boolean isCaptured() {
    return core.isCaptured();
  }

  // --- identity and life
  // --------------------------------------------------------------------------

  /** A number that no other stream of this process has had; 1 or more. */
  public long id() {
    return core.id;
  }

  /** The handle that the driver's interface takes; foreign code wants {@link #nativeHandle}. */
  public long handle() {
    core.lend();
    return core.handle();
  }

  /**
   * The stream as foreign code names it: for CUDA the {@code CUstream}, which is a {@code
   * cudaStream_t} too. Valid until the stream is closed, or its task has ended. Whoever enqueues on
   * it uses buffers under a lease on this stream, or marks its work with {@link #foreignMark}; else
   * nothing comes after it. Foreign code does not capture it, but a stream of its own: while it
   * does, everything here that would be written down instead of run is refused, waits for positions
   * that were not signalled before included (where the driver cannot tell, such a wait never ends),
   * and closing the stream ends that capture. Any thread; does not block.
   *
   * @throws IllegalStateException if the stream was closed
   */
  public long nativeHandle() {
    core.requireUsable("native handle");
    core.lend();
    return core.context.driver().streamNative(core.handle());
  }

  public DeviceContext context() {
    return core.context;
  }

  StreamCore core() {
    return core;
  }

  /**
   * Refuses further operations and gives the stream back once its work has ended. Any thread; does
   * not wait for the device; a second call does nothing. Does nothing at all on a task's own
   * stream, which goes back by itself. An adopted stream is let go, never destroyed.
   */
  @Override
  public void close() {
    if (!pooled) {
      core.close("close()");
    }
  }

  @Override
  public String toString() {
    return "stream " + core.id + " of device " + core.context.ordinal();
  }
}
