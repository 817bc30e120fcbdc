package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A raw device address, lent to code that Fairlead does not know: until it is closed, that code may
 * enqueue work that uses the address on the lease's stream, and on no other.
 *
 * <p>Closing it records the use up to where the stream is then, so that later users and the free
 * come after it. While it is open the memory is not freed: a buffer that is closed meanwhile is
 * freed when its last lease ends.
 *
 * <p>Threads: any. Closing does not block, and may happen several times. Close it before its
 * stream.
 */
public final class Lease implements AutoCloseable {
  private final DeviceBuffer buffer;
  private final DeviceStream stream;
  private final Access access;
  private final long address;

  /** Where the stream was when the lease began. */
  private final Mark begin;

  private final AtomicBoolean open = new AtomicBoolean(true);

  Lease(DeviceBuffer buffer, Access access, long address, Mark begin) {
    this.buffer = buffer;
    this.stream = begin.stream();
    this.access = access;
    this.address = address;
    this.begin = begin;
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
   * Ends the lease.
   *
   * @throws IllegalStateException if the stream was closed before the lease, so that nobody can
   *     tell where the foreign work ends; the lease has ended even so
   */
  @Override
  public void close() {
    if (!open.compareAndSet(true, false)) {
      return;
    }
    Mark end = begin;
    try {
      end = stream.foreignMark();
    } catch (DeviceLostException lost) {
      // The memory ended with its context; whoever uses it is told.
    } finally {
      // Whatever happens: a lease that stays open would keep the memory for good.
      buffer.endLease(end, access);
    }
  }
}
