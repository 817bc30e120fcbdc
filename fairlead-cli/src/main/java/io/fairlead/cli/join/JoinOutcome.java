package io.fairlead.cli.join;

import io.fairlead.memory.MemoryStats;
import java.math.BigInteger;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * How a join ended.
 *
 * @param readSeconds how long the files took to read
 * @param checks what the result was compared with, and what came out; empty if nobody asked
 */
record JoinOutcome(
    JoinRequest request,
    JoinInput input,
    JoinPlan plan,
    Totals totals,
    double readSeconds,
    DeviceJoin.Run run,
    Usage usage,
    Map<String, String> checks) {

  /**
   * What it used of the device.
   *
   * @param limitBytes the most that buffers could take
   * @param peakBytes the most that they took
   * @param spills how many times a buffer left the device
   * @param returns how many times one came back
   * @param moved bytes of all that, and of files
   * @param waits waits of tasks for work of the device
   * @param waitNanos how long all of those took together
   */
  record Usage(
      String deviceName,
      long limitBytes,
      long peakBytes,
      long spills,
      long returns,
      MemoryStats.Moved moved,
      long launches,
      long copies,
      long bytesUp,
      long bytesDown,
      long waits,
      long waitNanos) {}

  double rowsPerSecond() {
    return input.rows() / Math.max(run.total(), 1e-9);
  }

  String digest() {
    return digest(totals);
  }

  static String digest(Totals totals) {
    return String.format("%016x", totals.digest());
  }

  List<Sum> sums() {
    return Sum.of(input);
  }

  Map<String, @Nullable Object> toMap() {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("groups", totals.groups());
    map.put("joinedRows", totals.joinedRows());
    map.put("digest", digest());
    Map<String, String> sums = new LinkedHashMap<>();
    sums().forEach(sum -> sums.put(sum.name(), sum.text(totals)));
    map.put("sums", sums);
    map.put("leftRows", input.left().rows());
    map.put("rightRows", input.right().rows());
    map.put("workingSetBytes", input.workingSetBytes());
    map.put("device", usage.deviceName());
    map.put("kernels", run.kernels());
    map.put("tasks", request.tasks());
    map.put("tasksAtOnce", plan.tasks());
    map.put("streams", request.streams());
    map.put("partitions", plan.partitions());
    map.put("chunkBytes", plan.chunkBytes());
    map.put("pieceBytes", plan.pieceBytes());
    map.put("tablesRebuilt", run.rebuilt());
    map.put("deviceMemoryBytes", usage.limitBytes());
    map.put("peakBytes", usage.peakBytes());
    map.put("spills", usage.spills());
    map.put("returns", usage.returns());
    map.put("spilledBytes", usage.moved().spilled());
    map.put("returnedBytes", usage.moved().returned());
    map.put("toDiskBytes", usage.moved().toDisk());
    map.put("fromDiskBytes", usage.moved().fromDisk());
    map.put("onHostBytesMax", run.onHostMax());
    map.put("onDiskBytesMax", run.onDiskMax());
    map.put("launches", usage.launches());
    map.put("copies", usage.copies());
    map.put("bytesUp", usage.bytesUp());
    map.put("bytesDown", usage.bytesDown());
    map.put("waits", usage.waits());
    map.put("waitSeconds", usage.waitNanos() * 1e-9);
    map.put("rowsPerSecond", rowsPerSecond());
    Map<String, Double> seconds = new LinkedHashMap<>();
    seconds.put("read", readSeconds);
    seconds.put("load", run.load());
    seconds.put("partition", run.partition());
    seconds.put("join", run.join());
    map.put("seconds", seconds);
    map.put("checks", checks);
    return map;
  }

  BigInteger joinedRows() {
    return totals.joinedRows();
  }
}
