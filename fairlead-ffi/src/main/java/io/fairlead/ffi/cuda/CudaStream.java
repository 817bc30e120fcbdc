package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * A stream of ours, or one that others made and that we were lent; and how far it is. Its signals
 * are of two kinds, in any mixture:
 *
 * <ul>
 *   <li>a <b>ticket</b>: the stream writes the value to a word of page-locked memory, in order with
 *       its other work. While the context has a permit for it, see {@link Tickets};
 *   <li>an <b>event</b> that stands for the value, for all other signals. It occupies no hardware
 *       queue, but somebody has to {@link #ask} the driver for it.
 * </ul>
 *
 * {@link #reached} is the higher of the two: the word, and what was found by asking. No driver
 * call, no lock. Since a stream runs in order, whatever is found for one signal holds for all
 * before it, of both kinds.
 *
 * <pre>
 * field     | writer               | reader | mode, guard
 * signalled | who signals          | any    | volatile, before the driver is told: a reader that finds
 *           |                      |        | a value and then reads this finds no less
 * evented   | who signals          | any    | volatile, after the event is in the list
 * found     | who asked            | any    | CAS to a higher value
 * first,    | who signals, asker,  | same   | pending, which spins
 *   last    | dispose              |        |
 * capture   | who begins and who   | any    | CAS between NO, YES and ENDING
 *           | ends it              |        |
 * questions | who asks the driver  | who    | atomic; a capture begins after the last one that did not
 *           | about the stream     | begins | see it, since a question would end it
 * lent      | who hands out raw    | any    | volatile, before others have it; only ever set
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

  /**
   * Where words have 32 bits, a ticket follows the last one within so many values, permit or not:
   * the upper half is known only within 2^31.
   */
  private static final long NARROW_STEP_MAX = 1L << 30;

  private static final int RELAXED = 2;
  private static final int NO = 0;
  private static final int YES = 1;
  private static final int ENDING = 2;

  private static final VarHandle FOUND;
  private static final VarHandle CAPTURE;
  private static final VarHandle QUESTIONS;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      FOUND = lookup.findVarHandle(CudaStream.class, "found", long.class);
      CAPTURE = lookup.findVarHandle(CudaStream.class, "capture", int.class);
      QUESTIONS = lookup.findVarHandle(CudaStream.class, "questions", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  final long raw;

  /** Of an adopted stream: our event behind its last signal, which a fault shows on. Else 0. */
  private final long pulse;

  /** What it has freed; the guard is {@link FreedMemory}'s. */
  FreedMemory.@Nullable Freed freed;

  private final CudaContext context;
  private final Tickets.Slot slot;
  private final SpinLock pending = new SpinLock();
  private SignalEvents.@Nullable Node first;
  private SignalEvents.@Nullable Node last;
  private volatile boolean lent;
  private volatile int capture;
  private volatile int questions;
  private volatile long signalled;
  private volatile long evented;
  private volatile long found;

  CudaStream(CudaContext context, long raw, long pulse, Tickets.Slot slot) {
    this.context = context;
    this.raw = raw;
    this.pulse = pulse;
    this.slot = slot;
    this.lent = pulse != 0;
  }

  /** The stream as others name it, who may do with it whatever they like. */
  long lend() {
    if (!lent) {
      lent = true;
    }
    return raw;
  }

  /** Whether others have a name for it. */
  boolean isLent() {
    return lent;
  }

  /** Enqueues the signal of {@code value} behind all that is enqueued. */
  void signal(long value) {
    long before = signalled;
    if (value < before) {
      throw Status.invalidValue("signals of a stream must not fall: " + value + " after " + before);
    }
    signalled = value;
    boolean done = false;
    try {
      if (context.tickets.begin(slot)) {
        try {
          ticket(value);
        } finally {
          context.tickets.end(slot);
        }
      } else {
        ticketOrEvent(value);
      }
      done = true;
    } finally {
      if (!done) {
        signalled = before;
      }
    }
    if (pulse != 0) {
      context.api.eventRecord(pulse, raw); // if it is refused, the heartbeat sees less, no more
    }
  }

  /** Without a permit. */
  private void ticketOrEvent(long value) {
    boolean far = !context.driver.wideSignals() && value - slot.last >= NARROW_STEP_MAX;
    SignalEvents.Node node = far ? null : takeEvent();
    if (node == null) {
      ticket(value);
    } else {
      event(node, value);
    }
  }

  private SignalEvents.@Nullable Node takeEvent() {
    SignalEvents.Node node = context.events.take();
    if (node == null) {
      giveBackReached(); // of our own, at least
      node = context.events.take();
    }
    return node;
  }

  private void ticket(long value) {
    long before = slot.last;
    slot.last = value;
    int status = write(value);
    if (status != Status.SUCCESS) {
      slot.last = before;
      throw failed(
          status, context.driver.wideSignals() ? "cuStreamWriteValue64" : "cuMemsetD32Async");
    }
  }

  /** The default flags: all earlier writes of the stream are visible before this one is. */
  private int write(long value) {
    return context.driver.wideSignals()
        ? context.api.streamWriteValue64(raw, slot.device, value, 0)
        : context.api.memsetD32Async(slot.device, (int) value, 1, raw);
  }

  private void event(SignalEvents.Node node, long value) {
    int status = context.api.eventRecord(node.raw, raw);
    if (status != Status.SUCCESS) {
      context.events.giveBack(node);
      throw failed(status, "cuEventRecord of a signal");
    }
    node.value = value;
    pending.lock();
    try {
      dropReached();
      if (last == null) {
        first = node;
      } else {
        last.next = node;
      }
      last = node;
    } finally {
      pending.unlock();
    }
    evented = value;
  }

  /**
   * The latest value that is known to be reached. Any thread, also while the stream is being
   * destroyed: the word stays memory, but may be another stream's by the time the answer is used,
   * so ask {@link #isDisposed} afterwards.
   */
  long reached() {
    return Math.max(context.tickets.reached(slot), found);
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

  /** The last value that was signalled; read it before the call that finds all of it reached. */
  long signalled() {
    return signalled;
  }

  /** It was seen otherwise that the stream had come so far. Never suspends. */
  void saw(long value) {
    found(value);
    giveBackReached();
  }

  private void found(long value) {
    long seen;
    do {
      seen = found;
    } while (seen < value && !FOUND.compareAndSet(this, seen, value));
  }

  /** Whether an event is on its way, so that {@link #reached} may say too little. */
  boolean mustAsk() {
    return evented > reached();
  }

  /**
   * Asks for the oldest event that is on its way; if that has ended, for the newest as well, so
   * that a stream that has done much is up to date at once. One caller at a time in a context; the
   * stream is entered; never suspends.
   */
  void ask() {
    if (askFor(true)) {
      askFor(false);
      giveBackReached();
    }
  }

  private void giveBackReached() {
    pending.lock();
    try {
      dropReached();
    } finally {
      pending.unlock();
    }
  }

  /** True if what was asked for has ended. */
  private boolean askFor(boolean oldest) {
    SignalEvents.Node node;
    long value;
    pending.lock();
    try {
      dropReached();
      node = oldest ? first : last;
      if (node == null) {
        return false;
      }
      // now: once it is reached, who signals may give the event to another stream
      value = node.value;
    } finally {
      pending.unlock();
    }
    int status = context.api.eventQuery(node.raw);
    if (status == Status.SUCCESS) {
      found(value);
      return true;
    }
    context.seen(status, "cuEventQuery");
    return false;
  }

  /** Gives back what is known to have ended. Under pending. */
  private void dropReached() {
    long reached = reached();
    while (first != null && first.value <= reached) {
      SignalEvents.Node node = first;
      first = node.next;
      context.events.giveBack(node);
    }
    if (first == null) {
      last = null;
    }
  }

  // --- capture ----------------------------------------------------------------------------------

  /**
   * In relaxed mode: calls of other threads, our own polling and creating among them, are none of
   * its business, and it may end on another OS thread, as a task that moved does.
   */
  void beginCapture() {
    if (!CAPTURE.compareAndSet(this, NO, YES)) {
      throw Status.refused(
          DriverException.ILLEGAL_STATE,
          "stream " + Status.hex(handle()) + " is being captured already; end that capture first");
    }
    while (questions != 0) {
      Thread.onSpinWait(); // each is one short call
    }
    int status = context.api.graphs().streamBeginCapture(raw, RELAXED);
    if (status != Status.SUCCESS) {
      capture = NO;
      throw context.failed(status, "cuStreamBeginCapture");
    }
  }

  /** Gives the driver's graph. */
  long endCapture() {
    if (!CAPTURE.compareAndSet(this, YES, ENDING)) {
      throw Status.refused(
          DriverException.ILLEGAL_STATE,
          "stream " + Status.hex(handle()) + " is not being captured; begin first");
    }
    Scratch scratch = Scratch.take();
    try {
      int status = context.api.graphs().streamEndCapture(raw, scratch.answer());
      context.check(status, "cuStreamEndCapture");
      return scratch.longAnswer();
    } finally {
      capture = NO;
      scratch.giveBack();
    }
  }

  /** Lets go of what is being captured, whoever has begun it. Never throws. */
  void dropCapture() {
    boolean others = isCapturedByOthers();
    if (CAPTURE.compareAndSet(this, others ? NO : YES, ENDING)) {
      Scratch scratch = Scratch.take();
      try {
        GraphApi graphs = context.api.graphs();
        if (graphs.streamEndCapture(raw, scratch.answer()) == Status.SUCCESS) {
          graphs.destroy(scratch.longAnswer());
        }
      } finally {
        capture = NO;
        scratch.giveBack();
      }
    }
  }

  /** Refuses a call that would end the capture, or be captured and do harm at each launch. */
  void checkNotCaptured(DriverCall call) {
    if (capture != NO) {
      throw Status.refused(
          DriverException.CAPTURE_UNSUPPORTED,
          call
              + " is not possible on stream "
              + Status.hex(handle())
              + " while it is being captured; end the capture first");
    }
  }

  /**
   * Refuses a call on a stream that others capture: its maker, or whom it was lent to. It would be
   * written down instead of run: whoever waits for a signal would wait for ever, and each launch of
   * that graph would write the old value again, into a word that may be another stream's by then.
   * The caller has entered.
   */
  void checkNotCapturedByOthers(DriverCall call) {
    if (isCapturedByOthers()) {
      throw Status.refused(
          DriverException.CAPTURE_UNSUPPORTED,
          isAdopted()
              ? call
                  + " is not possible on the adopted stream "
                  + Status.hex(raw)
                  + " while it is captured by its maker; wait until that capture has ended"
              : call
                  + " is not possible on stream "
                  + Status.hex(handle())
                  + " while foreign code captures it, which was given "
                  + Status.hex(raw)
                  + "; wait until that capture has ended, and let it capture a stream of its own,"
                  + " or capture with context.capture");
    }
  }

  /**
   * Whether others capture it, as far as is known. An answer that is no success is left to the call
   * itself, which says what is wrong. Any thread; never suspends.
   */
  boolean isCapturedByOthers() {
    return lent && capture == NO && context.isCaptured(raw);
  }

  /** Whether the driver may be asked about this stream; if so, {@link #asked} afterwards. */
  boolean mayAsk() {
    QUESTIONS.getAndAdd(this, 1);
    if (capture == NO) {
      return true;
    }
    asked();
    return false;
  }

  void asked() {
    QUESTIONS.getAndAdd(this, -1);
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
    context.tickets.giveBack(slot);
    pending.lock();
    try {
      dropReached();
      context.events.orphan(first);
      first = null;
      last = null;
    } finally {
      pending.unlock();
    }
  }

  private int destroy() {
    if (isAdopted()) {
      if (isOutstanding()) {
        context.noteUnfinished(); // the word is still to be written
      }
      return context.api.eventDestroy(pulse);
    }
    dropCapture();
    if (context.api.streamQuery(raw) == Status.NOT_READY) {
      context.noteUnfinished(); // or the end of the context would not know of it
    }
    return context.api.streamDestroy(raw);
  }
}
