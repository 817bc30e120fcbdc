package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Role;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A raw device address, lent to code that Fairlead does not know: until it is closed, that code may
 * enqueue work that uses the address on the lease's stream, and on no other.
 *
 * <p>Closing it records the use up to where the stream is then, so that later users and the free
 * come after it; where the stream was closed first, up to its end, since nobody could enqueue
 * anything on it later. While it is open the memory is not freed: a buffer that is closed meanwhile
 * is freed when its last lease ends.
 *
 * <p>Threads: any. Closing does not block, and may happen several times.
 */
public final class Lease implements AutoCloseable {
  private final DeviceBuffer buffer;
  private final DeviceStream stream;
  private final Access access;
  private final long address;

  private final Keeper keeper;

  /** Where the stream was when the lease began. */
  private final Mark begin;

  private final AtomicBoolean open = new AtomicBoolean(true);

  Lease(DeviceBuffer buffer, Access access, long address, Mark begin, Keeper keeper) {
    this.buffer = buffer;
    this.stream = begin.stream();
    this.access = access;
    this.address = address;
    this.begin = begin;
    this.keeper = keeper;
  }

  /**
   * The device address.
   *
   * @throws IllegalStateException if the lease was closed: the memory may be somebody else's
   */
  public long address() {
    if (!open.get()) {
      throw new IllegalStateException("the lease of " + buffer + " has ended; take a new one");
    }
    return address;
  }

  /** The size of what was lent, in bytes. */
  public long bytes() {
    return buffer.bytes();
  }

  /** The only stream on which the address may be used. */
  public DeviceStream stream() {
    return stream;
  }

  /**
   * Says that another task than the one that took it will close it. Else, while that one waits for
   * memory itself, nobody is thought to end this, and somebody is told at once that he waits in
   * vain; now only after a time of grace. Any thread; does not block.
   */
  public void handOn() {
    keeper.handOn();
  }

  /**
   * Ends the lease. On the cleaner's thread it is left to the device's owner.
   *
   * @throws IllegalStateException if the stream is being captured: what foreign code has enqueued
   *     into the graph would use memory that the graph does not hold; the lease has ended even so
   */
  @Override
  public void close() {
    if (!open.compareAndSet(true, false)) {
      return;
    }
    if (Role.current() == Role.CLEANER) {
      buffer.device().leave(this::end);
    } else {
      end();
      requireNotCaptured();
    }
  }

  private void end() {
    Mark end = begin;
    try {
      end = Mutant.on("ledger.lease.begin") ? begin : stream.foreignEnd();
    } finally {
      // Whatever happens: a lease that stays open would keep the memory for good.
      buffer.endLease(end, access, keeper);
    }
  }

  private void requireNotCaptured() {
    if (stream.isCaptured()) {
      throw new IllegalStateException(
          "the lease of "
              + buffer
              + " ended while "
              + stream
              + " is being captured: close it before, and let foreign code enqueue in the body of"
              + " stream.enqueue(operation, operands, accesses, body)");
    }
  }
}
