package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverException;

/**
 * A stream of ours, or one that others made and that we were lent; and how far it is: it writes its
 * signals to a word of page-locked memory, in order with its other work, and {@link #reached} reads
 * that word. No driver call, no lock.
 *
 * <pre>
 * field     | writer          | reader  | mode, guard
 * signalled | who signals     | any     | volatile, before the driver is told: a reader that finds a
 *           |                 |         | word and then reads this finds no less than the word
 * </pre>
 *
 * <p>Signals of one stream must not fall, so whoever signals does it one after the other; that is
 * the caller's to see to, a value that falls is refused.
 *
 * <p>An adopted stream is touched only by calls that name its handle: its maker may destroy it as
 * soon as the handle has ended, so the heartbeat and the end of the context leave it alone.
 */
final class CudaStream extends CudaObject {
  /** Never ordered against a legacy default stream. */
  static final int NON_BLOCKING = 0x1;

  /** The default stream of all threads, by a name that does not depend on who asks. */
  static final long LEGACY = 0x1;

  /** The default stream of the calling thread. */
  static final long PER_THREAD = 0x2;

  final long raw;

  /** Of an adopted stream: our event behind its last signal, which a fault shows on. Else 0. */
  private final long pulse;

  private final CudaContext context;
  private final Tickets.Slot slot;
  private volatile long signalled;

  CudaStream(CudaContext context, long raw, long pulse, Tickets.Slot slot) {
    this.context = context;
    this.raw = raw;
    this.pulse = pulse;
    this.slot = slot;
  }

  /** Enqueues the write of {@code value} behind all that is enqueued. */
  void signal(long value) {
    long before = signalled;
    if (value < before) {
      throw Status.invalidValue("signals of a stream must not fall: " + value + " after " + before);
    }
    signalled = value;
    int status = write(value);
    if (status != Status.SUCCESS) {
      signalled = before;
      throw failed(
          status, context.driver.wideSignals() ? "cuStreamWriteValue64" : "cuMemsetD32Async");
    }
    if (pulse != 0) {
      context.api.eventRecord(pulse, raw); // if it is refused, the heartbeat sees less, no more
    }
  }

  /** The default flags: all earlier writes of the stream are visible before this one is. */
  private int write(long value) {
    return context.driver.wideSignals()
        ? context.api.streamWriteValue64(raw, slot.device, value, 0)
        : context.api.memsetD32Async(slot.device, (int) value, 1, raw);
  }

  /**
   * The latest value that arrived. Any thread, also while the stream is being destroyed: the word
   * stays memory, but may be another stream's by the time the answer is used, so ask {@link
   * #isDisposed} afterwards.
   */
  long reached() {
    if (context.driver.wideSignals()) {
      return Memory.getLongAcquire(slot.host);
    }
    int arrived = Memory.getIntAcquire(slot.host);
    return Tickets.extend(arrived, signalled);
  }

  /** Whether a signal is on its way; such a stream is what a fault shows on. */
  boolean isOutstanding() {
    return reached() < signalled;
  }

  /** Whether it is somebody else's. */
  boolean isAdopted() {
    return pulse != 0;
  }

  /** What a fault of this stream's work shows on first. */
  int query() {
    return isAdopted() ? context.api.eventQuery(pulse) : context.api.streamQuery(raw);
  }

  /** What a refused call throws. That others have destroyed their stream loses no context. */
  DriverException failed(int status, String call) {
    boolean gone =
        status == DriverException.INVALID_HANDLE
            || status == DriverException.INVALID_CONTEXT
            || status == Status.CONTEXT_IS_DESTROYED;
    if (!isAdopted() || !gone) {
      return context.failed(status, call);
    }
    return Status.refused(
        DriverException.INVALID_HANDLE,
        call
            + ": the adopted stream "
            + Status.hex(raw)
            + " was destroyed by its maker, or its context was; close it here before that");
  }

  @Override
  Kind kind() {
    return Kind.STREAM;
  }

  @Override
  CudaContext context() {
    return context;
  }

  /** Work that is enqueued still ends; the driver keeps what it needs for that. */
  @Override
  void dispose() {
    context.forget(this);
    context.disposing("cuStreamDestroy", this::destroy);
    context.tickets.giveBack(slot, signalled);
  }

  private int destroy() {
    if (isAdopted()) {
      if (isOutstanding()) {
        context.noteUnfinished(); // the word is still to be written
      }
      return context.api.eventDestroy(pulse);
    }
    if (context.api.streamQuery(raw) == Status.NOT_READY) {
      context.noteUnfinished(); // or the end of the context would not know of it
    }
    return context.api.streamDestroy(raw);
  }
}
