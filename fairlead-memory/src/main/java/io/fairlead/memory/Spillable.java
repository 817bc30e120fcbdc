package io.fairlead.memory;

/**
 * Something of others that has memory of a device and can give it back when it is needed: a cache
 * of results, the pool of a library, an index that can be built again. {@link Device#register}
 * makes it known; from then on it is asked when memory runs out, in one order with Fairlead's own
 * buffers: the lowest priority first, within it what nobody has used for longest. {@code
 * docs/guide/memory-runs-out.md} shows one.
 *
 * <p><b>Who calls, and when.</b> Fairlead, on a platform thread that is kept for that, in a task of
 * its own, one call at a time for each registration, and never while it holds a lock. So the
 * methods may block, call the driver, close buffers, and take locks of their own; but the task that
 * waits for memory may hold such a lock itself, so {@code tryLock} and the answer 0 are better than
 * waiting for it.
 *
 * <p><b>How long.</b> A call that has not returned after a second is left alone: others are asked,
 * buffers leave, tasks give way as if it were not there. What it frees later is as welcome. It is
 * not asked again before it has returned, and never interrupted.
 *
 * <p><b>What may go wrong.</b> Whatever it throws is logged and counted, and means that it has
 * freed nothing. Its answers are not relied upon: how much is missing is looked at after each call,
 * and one that said it freed something, which nobody finds, counts as if it had freed nothing. Who
 * has freed nothing is asked again after a pause, or as soon as it says that it was {@link
 * SpillRegistration#used() used}.
 *
 * <p><b>What it may ask for itself.</b> Memory that is there. Allocations, reservations, and uses
 * that would have to bring a buffer back, fail at once if they would have to wait: an {@link
 * io.fairlead.device.OutOfDeviceMemoryException} says so. Children that it forks are treated alike.
 */
public interface Spillable {

  /** Whether Fairlead's limit knows of the memory. */
  enum Memory {
    /**
     * It is {@link DeviceBuffer}s of that device, which take of its limit: closing them makes room
     * for whoever waits for a part of it.
     */
    TRACKED,
    /**
     * It was taken from the driver by others, outside of the limit. It is asked when the driver has
     * no room although the limit has, and when others {@link Device#makeRoom need room}.
     */
    UNTRACKED
  }

  /** How many bytes it could free now; 0 or less if none: then it is not asked for any. */
  long spillableBytes();

  /**
   * Frees about so many bytes, or what it can. Memory that work still uses may be freed in the
   * order of a stream: it counts from when the device has reached that.
   *
   * @param bytes what is missing, at least 1; more is allowed
   * @return how many bytes it has freed, or has enqueued the free of; 0 if none
   * @throws Exception if it cannot
   */
  long spill(long bytes) throws Exception;
}
