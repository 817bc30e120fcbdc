package io.fairlead.device;

import io.fairlead.task.Task;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The last operations of one stream, for the message of a lost context: what was enqueued, how
 * large, by which task. Bounded, no allocation per operation.
 *
 * <p>Written under the stream's turn with plain stores; read by whoever finds the fault, without
 * the turn, since that may be a driver's thread which must not wait. A reader may therefore miss
 * the operation that is being enqueued at that moment, or see it half replaced. It is a diagnosis
 * and orders nothing.
 */
final class LaunchRing {
  private final int mask;
  private final long[] sequences;
  private final @Nullable String[] operations;
  private final long[] items;
  private final @Nullable String[] tasks;
  private final long[] taskIds;
  private long latest;

  /** A ring for at least {@code unfinishedMax} operations. */
  LaunchRing(int unfinishedMax) {
    int size = Integer.highestOneBit(Math.max(2, unfinishedMax) - 1) << 1;
    mask = size - 1;
    sequences = new long[size];
    operations = new @Nullable String[size];
    items = new long[size];
    tasks = new @Nullable String[size];
    taskIds = new long[size];
  }

  void record(long sequence, String operation, long itemCount) {
    int slot = (int) sequence & mask;
    Task task = Task.current();
    sequences[slot] = sequence;
    operations[slot] = operation;
    items[slot] = itemCount;
    tasks[slot] = task.name();
    taskIds[slot] = task.id();
    latest = sequence;
  }

  /**
   * Adds a line for each operation after {@code done} that was enqueued up to {@code enqueued}, or
   * is being enqueued: that may be the one that failed. At most {@code max}.
   */
  void describe(long stream, long done, long enqueued, int max, List<String> lines) {
    long last = Math.max(enqueued, latest);
    long from = Math.max(done + 1, last - mask);
    for (long sequence = from; sequence <= last && lines.size() < max; sequence++) {
      int slot = (int) sequence & mask;
      if (sequences[slot] == sequence) {
        lines.add(line(stream, sequence, slot));
      }
    }
  }

  private String line(long stream, long sequence, int slot) {
    String size = items[slot] < 0 ? "" : " (" + items[slot] + " items)";
    return operations[slot]
        + size
        + ", stream "
        + stream
        + " operation "
        + sequence
        + ", by task "
        + tasks[slot]
        + " #"
        + taskIds[slot];
  }
}
