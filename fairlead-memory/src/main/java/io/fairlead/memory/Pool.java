package io.fairlead.memory;

import io.fairlead.device.DeviceStream;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.task.Completion;
import org.jspecify.annotations.Nullable;

/**
 * Where the memory of buffers comes from and goes back to, in stream order: the driver's own pool
 * ({@link DriverPool}), or one on top of it that keeps memory for the next request: in blocks
 * ({@link FrontierPool}), or in one range ({@link ArenaPool}).
 *
 * <p>What is reused is asked for in multiples of {@link Sizes#GRANULE}, as it is charged. Any
 * thread but the cleaner's, for every method.
 */
interface Pool {
  /**
   * Memory that is at hand for {@code stream}: without waiting, and without a driver call. Takes
   * its charge from the budget. Null if there is none, or others wait for memory, or the stream is
   * being captured: what a graph uses was there before.
   */
  @Nullable Block reuse(DeviceStream stream, Account account, long bytes);

  /**
   * As {@link #reuse}, also what other streams have not finished with: better than waiting for
   * them.
   */
  @Nullable Block reuseUnfinished(DeviceStream stream, Account account, long bytes);

  /**
   * Memory of at least {@code bytes} for a charge that was granted; asks the driver if it must, and
   * parks while only memory that is on its way back is in the way.
   *
   * @throws OutOfDeviceMemoryException if the driver has no room although the budget has
   */
  Block allocate(DeviceStream stream, long bytes, Charge charge);

  /**
   * Takes back the memory of a storage that is {@code FREEING}, after all of its uses.
   *
   * @return false if the owner has to do that, since the task captures its stream
   */
  boolean giveBack(Storage storage, Charge charge);

  /**
   * Returns at least so many bytes of what it keeps to the driver, or all. Does not wait; done when
   * the device has let them go.
   */
  Completion<@Nullable Void> trim(long bytes);

  /** Bytes that it keeps for later requests, which are no longer in use. */
  long cached();

  /** How many requests were served without the driver. */
  long reused();

  /** The context is lost, and all memory with it. Any thread; never blocks. */
  void abandon();

  /**
   * Returns everything to the driver, in order, for good. Waits for the owner, not for the work.
   */
  void close();
}
