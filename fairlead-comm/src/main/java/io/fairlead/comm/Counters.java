package io.fairlead.comm;

import io.fairlead.task.Owner;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.atomic.LongAdder;

/**
 * The counters behind {@link CommStats}; each is written by any thread and read by a snapshot.
 *
 * <p>Sends and receives are counted in two places, which a snapshot adds up. The fields with {@code
 * Turn} in their names are written only by who has the engine's turn, so that a short message costs
 * no atomic addition, and are opaque: a snapshot sees each of them whole, and perhaps late. The
 * others are for threads that have no turn.
 */
final class Counters {
  private static final VarHandle TURN_SENT;
  private static final VarHandle TURN_RECEIVED;
  private static final VarHandle TURN_BYTES_SENT;
  private static final VarHandle TURN_BYTES_RECEIVED;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      TURN_SENT = lookup.findVarHandle(Counters.class, "turnSent", long.class);
      TURN_RECEIVED = lookup.findVarHandle(Counters.class, "turnReceived", long.class);
      TURN_BYTES_SENT = lookup.findVarHandle(Counters.class, "turnBytesSent", long.class);
      TURN_BYTES_RECEIVED = lookup.findVarHandle(Counters.class, "turnBytesReceived", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** A few times what a thread loses where others want its processor, 3 to 4 ms on Linux. */
  static final long LONG_TURN_NANOS = 20_000_000;

  private static final int RECEIVES_BITS = 3;
  private static final int RECEIVES_PER_TIME = 1 << RECEIVES_BITS;

  private final LongAdder sent = new LongAdder();
  private final LongAdder received = new LongAdder();
  private final LongAdder bytesSent = new LongAdder();
  private final LongAdder bytesReceived = new LongAdder();

  @SuppressWarnings("unused") // these four through their handles
  private long turnSent;

  @SuppressWarnings("unused")
  private long turnReceived;

  @SuppressWarnings("unused")
  private long turnBytesSent;

  @SuppressWarnings("unused")
  private long turnBytesReceived;

  final LongAdder collectives = new LongAdder();
  final LongAdder waitNanos = new LongAdder();
  final LongAdder shifted = new LongAdder();
  final LongAdder refused = new LongAdder();
  final LongAdder discarded = new LongAdder();
  final LongAdder undelivered = new LongAdder();
  final LongAdder submitted = new LongAdder();
  final LongAdder handled = new LongAdder();

  /** Any thread. */
  void sent(long bytes) {
    sent.increment();
    bytesSent.add(bytes);
  }

  /** Any thread. */
  void received(long bytes) {
    received.increment();
    bytesReceived.add(bytes);
  }

  /** As {@link #sent}, by who has the engine's turn. */
  void sentInTurn(long bytes) {
    add(TURN_SENT, 1);
    add(TURN_BYTES_SENT, bytes);
  }

  /** As {@link #received}, by who has the engine's turn. */
  void receivedInTurn(long bytes) {
    add(TURN_RECEIVED, 1);
    add(TURN_BYTES_RECEIVED, bytes);
  }

  private void add(VarHandle counter, long amount) {
    counter.setOpaque(this, (long) counter.getOpaque(this) + amount);
  }

  /** Racy on purpose: nobody minds which receive is timed. */
  private int dice;

  /**
   * Whether to time this receive, which is one in {@link #RECEIVES_PER_TIME} and the first: two
   * looks at the clock would be a tenth of what a short message costs. Which ones, is left to
   * chance, as exchanges come in rounds of eight.
   */
  boolean isTimed() {
    int thrown = dice;
    // A linear congruential generator (Numerical Recipes, 7.1): its upper bits are good enough.
    dice = thrown * 1_664_525 + 1_013_904_223;
    return thrown >>> (Integer.SIZE - RECEIVES_BITS) == 0;
  }

  /** A timed receive waited so long; it stands for others. */
  void waited(long nanos) {
    waitNanos.add(RECEIVES_PER_TIME * nanos);
  }

  /** Of handlers on the loop; written there only. */
  private volatile long longHandlers;

  private volatile long longestHandlerNanos;

  /** A handler has held the loop up for so long. On the loop; whether it is worth a line. */
  @SuppressWarnings("NonAtomicVolatileUpdate") // one writer
  boolean handler(long nanos) {
    if (nanos > longestHandlerNanos) {
      longestHandlerNanos = nanos;
    }
    if (nanos < LONG_TURN_NANOS) {
      return false;
    }
    longHandlers++;
    return Long.bitCount(longHandlers) == 1;
  }

  CommStats snapshot(Owner.Turns tasks) {
    return new CommStats(
        sent.sum() + (long) TURN_SENT.getOpaque(this),
        received.sum() + (long) TURN_RECEIVED.getOpaque(this),
        bytesSent.sum() + (long) TURN_BYTES_SENT.getOpaque(this),
        bytesReceived.sum() + (long) TURN_BYTES_RECEIVED.getOpaque(this),
        collectives.sum(),
        waitNanos.sum(),
        shifted.sum(),
        refused.sum(),
        discarded.sum(),
        undelivered.sum(),
        submitted.sum(),
        handled.sum(),
        longHandlers + tasks.longCount(),
        Math.max(longestHandlerNanos, tasks.longestNanos()));
  }
}
