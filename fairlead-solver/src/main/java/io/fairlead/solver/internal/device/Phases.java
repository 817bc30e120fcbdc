package io.fairlead.solver.internal.device;

import io.fairlead.task.Completion;
import org.jspecify.annotations.Nullable;

/** What one rank waited for in one solve. Confined to the rank's task. */
public final class Phases {
  private long deviceNanos;
  private long messageNanos;
  private long deviceWaits;
  private long messageWaits;
  private long messagesSent;

  /** Waits for device work. */
  <T extends @Nullable Object> T device(Completion<T> completion) {
    long start = System.nanoTime();
    try {
      return completion.await();
    } finally {
      deviceNanos += System.nanoTime() - start;
      deviceWaits++;
    }
  }

  /** Waits for other ranks. */
  <T extends @Nullable Object> T message(Completion<T> completion) {
    long start = System.nanoTime();
    try {
      return completion.await();
    } finally {
      messageNanos += System.nanoTime() - start;
      messageWaits++;
    }
  }

  void sent() {
    messagesSent++;
  }

  /** These counts as values. */
  Spent spent() {
    return new Spent(deviceNanos, messageNanos, deviceWaits, messageWaits, messagesSent);
  }

  /** What was spent up to some moment. */
  public record Spent(
      long deviceNanos, long messageNanos, long deviceWaits, long messageWaits, long messages) {
    /** What was spent since. */
    Spent since(Spent earlier) {
      return new Spent(
          deviceNanos - earlier.deviceNanos,
          messageNanos - earlier.messageNanos,
          deviceWaits - earlier.deviceWaits,
          messageWaits - earlier.messageWaits,
          messages - earlier.messages);
    }
  }
}
