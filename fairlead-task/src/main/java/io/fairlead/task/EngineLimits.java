package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * What an engine may use.
 *
 * @param instances how many instances at most; for OWNER_ONLY also the number of its threads.
 *     ANY_THREAD shares one instance among all calls, whatever this says
 * @param queue how many calls may wait, for memory or for an instance; one more is refused
 * @param admission asked for the bytes of each call, in the order in which they come; null: none.
 *     {@link Admission#upTo} is one
 * @param releaseGate asked when a call's instance is free again, if its body began; null: at once
 */
public record EngineLimits(
    int instances, int queue, @Nullable Admission admission, @Nullable ReleaseGate releaseGate) {

  /** Calls waiting for an instance, unless said otherwise: a task each, so memory is the limit. */
  public static final int QUEUE_DEFAULT = 1 << 20;

  public EngineLimits {
    if (instances < 1) {
      throw new IllegalArgumentException("instances " + instances + ": at least 1");
    }
    if (queue < 0) {
      throw new IllegalArgumentException("queue " + queue + ": at least 0");
    }
  }

  /** So many instances, the default queue, no admission, no release gate. */
  public static EngineLimits of(int instances) {
    return new EngineLimits(instances, QUEUE_DEFAULT, null, null);
  }

  /** A copy with this queue. */
  public EngineLimits queue(int value) {
    return new EngineLimits(instances, value, admission, releaseGate);
  }

  /** A copy with this admission. */
  public EngineLimits admission(@Nullable Admission value) {
    return new EngineLimits(instances, queue, value, releaseGate);
  }

  /** A copy with this release gate. */
  public EngineLimits releaseGate(@Nullable ReleaseGate value) {
    return new EngineLimits(instances, queue, admission, value);
  }
}
