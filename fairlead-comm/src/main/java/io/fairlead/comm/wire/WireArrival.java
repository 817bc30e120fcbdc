package io.fairlead.comm.wire;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.TransportException;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * An active message that came.
 *
 * <pre>
 * QUEUED   → HANDED    to the listener; its front is here
 * HANDED   → ACCEPTED  its blobs may come, or were here
 * QUEUED   → OVER      the channel closed, or the sender took it back
 * HANDED   → OVER      refused, or the sender took it back
 * ACCEPTED → OVER      landed or not
 * </pre>
 *
 * <p>What is here of it lies in the packet while the listener is called, and in a block of ours
 * from then on.
 */
final class WireArrival implements Arrival {
  enum State {
    QUEUED,
    HANDED,
    ACCEPTED,
    OVER
  }

  final Flow flow;
  private final Arrivals arrivals;
  private final int handler;
  private final long id;

  /** The blobs are here too. */
  final boolean whole;

  /** The sender must copy the blobs through memory of its own. */
  final boolean staged;

  /** The bytes of credit to give back; negative: it was pulled and used none. */
  final int credit;

  State state = State.QUEUED;

  /** Null until a front that was longer than a packet is here. */
  @Nullable Front front;

  /** The length of such a front; else 0. */
  final long frontBytes;

  /** Such a front is on its way. */
  boolean frontLanding;

  MemorySegment memory;
  long offset;
  Blocks.@Nullable Block block;

  /** For {@link Flow}. */
  @Nullable WireArrival previous;

  @Nullable WireArrival next;

  WireArrival(
      Arrivals arrivals,
      Flow flow,
      int handler,
      long id,
      boolean whole,
      boolean staged,
      int credit,
      @Nullable Front front,
      long frontBytes,
      MemorySegment memory,
      long offset) {
    this.arrivals = arrivals;
    this.flow = flow;
    this.handler = handler;
    this.id = id;
    this.whole = whole;
    this.staged = staged;
    this.credit = credit;
    this.front = front;
    this.frontBytes = frontBytes;
    this.memory = memory;
    this.offset = offset;
  }

  /** Its front; it is here. */
  Front front() {
    return Objects.requireNonNull(front);
  }

  long id() {
    return id;
  }

  @Override
  public int source() {
    return flow.peer.rank;
  }

  @Override
  public int handler() {
    return handler;
  }

  @Override
  public long headerBytes() {
    return front().headerBytes;
  }

  @Override
  public boolean readHeader(MemorySegment into) {
    if (state != State.HANDED) {
      return false;
    }
    Front known = front();
    MemorySegment.copy(memory, offset + known.headerOffset, into, 0, known.headerBytes);
    return true;
  }

  @Override
  public int blobs() {
    return front().lengths.length;
  }

  @Override
  public long bytes(int blob) {
    return front().lengths[blob];
  }

  @Override
  public boolean isOver() {
    return state == State.OVER || state == State.ACCEPTED;
  }

  @Override
  public void accept(MemorySegment[] into, Landing landing) {
    arrivals.accept(this, into, landing);
  }

  @Override
  public void refuse(TransportException cause) {
    arrivals.refuse(this, cause);
  }
}
