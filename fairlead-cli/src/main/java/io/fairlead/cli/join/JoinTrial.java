package io.fairlead.cli.join;

import io.fairlead.cli.Progress;
import io.fairlead.memory.MemoryPool;
import java.io.PrintWriter;
import java.io.Writer;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The join of two generated tables, as often as somebody wants to measure it, in as much memory as
 * he says. Used by one thread; each run blocks until it is done.
 */
public final class JoinTrial {
  private final JoinInput input;
  private final JoinRequest request;
  private final Progress progress;

  /**
   * Of tables that are generated as they are loaded; nothing is kept of them.
   *
   * @param rows of each table
   * @param tasks that join at once
   * @param streams that they share
   * @param device host or cuda
   * @param hostBytes of pinned memory for what leaves the device; null for as many as are set
   */
  public JoinTrial(
      int rows,
      int tasks,
      int streams,
      String device,
      @Nullable Long hostBytes,
      Progress progress) {
    this.request =
        new JoinRequest(
            null, rows, 0, 1, tasks, streams, 0, device, null, hostBytes, null, false, null);
    this.progress = progress;
    this.input = JoinInput.of(request, progress);
  }

  /**
   * How a run ended.
   *
   * @param seconds of loading, partitioning and joining
   * @param result what came out, in a few digits: the same for the same tables
   * @param spilledBytes what left the device on the way
   */
  public record Result(double seconds, String result, long spilledBytes) {}

  /** What both tables take. */
  public long workingSetBytes() {
    return input.workingSetBytes();
  }

  /** With all the memory that there is, of which nothing is spilled. */
  public Result inCore() {
    return result(run().inCoreUnchecked(input));
  }

  /**
   * With so much device memory, and host memory for what leaves it.
   *
   * @param pool where device memory is taken from; null for the one that is set
   */
  public Result spilling(long deviceBytes, @Nullable MemoryPool pool) {
    return spilling(deviceBytes, pool, Map.of());
  }

  /**
   * The same.
   *
   * @param settings of the driver, beside those that are set
   */
  public Result spilling(
      long deviceBytes, @Nullable MemoryPool pool, Map<String, String> settings) {
    return result(run().spilling(input, deviceBytes, pool, settings));
  }

  private JoinRun run() {
    return new JoinRun(request, progress, new PrintWriter(Writer.nullWriter()));
  }

  private static Result result(JoinRun.Joined joined) {
    return new Result(
        joined.run().total(),
        JoinOutcome.digest(joined.totals()),
        joined.usage().moved().spilled());
  }
}
