package io.fairlead.cli;

import io.fairlead.solver.SetupReport;
import io.fairlead.solver.SolveReport;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * How a solve ended. With several right-hand sides the figures are of all together: the most
 * iterations, the largest residual, the norm and the sum over all columns.
 */
record SolveOutcome(
    SolveRequest request,
    String deviceName,
    int rows,
    long entries,
    SetupReport setup,
    List<SolveReport> columns,
    double xNorm2,
    double xSum,
    long peakBytes,
    Times seconds) {

  /** Where the time went, in seconds; kernels overlap the rest, -1 where nobody measured them. */
  record Times(
      double read,
      double setup,
      double solve,
      double kernels,
      double waits,
      double messages,
      double host) {}

  boolean converged() {
    return columns.stream().allMatch(SolveReport::converged);
  }

  int iterations() {
    return columns.stream().mapToInt(SolveReport::iterations).max().orElse(0);
  }

  double relativeResidual() {
    return columns.stream().mapToDouble(SolveReport::relativeResidual).max().orElse(0);
  }

  double convergenceFactor() {
    return columns.stream().mapToDouble(SolveReport::convergenceFactor).max().orElse(0);
  }

  Map<String, @Nullable Object> toMap() {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("converged", converged());
    map.put("iterations", iterations());
    map.put("relativeResidual", relativeResidual());
    map.put("xNorm2", xNorm2);
    map.put("xSum", xSum);
    map.put("rows", rows);
    map.put("entries", entries);
    map.put("levels", setup.levels().size());
    map.put("ranks", request.ranks());
    map.put("device", deviceName);
    map.put("kernels", setup.kernels());
    map.put("sync", request.waitMode().name().toLowerCase(java.util.Locale.ROOT));
    map.put("columns", columns.size());
    map.put("jobs", request.jobs());
    map.put("convergenceFactor", convergenceFactor());
    map.put("peakBytes", peakBytes);
    map.put("solveBytes", setup.solveBytes());
    map.put("seconds", secondsMap());
    return map;
  }

  private Map<String, @Nullable Object> secondsMap() {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("read", seconds.read());
    map.put("setup", seconds.setup());
    map.put("solve", seconds.solve());
    map.put("kernels", seconds.kernels() < 0 ? null : seconds.kernels());
    map.put("waits", seconds.waits());
    map.put("messages", seconds.messages());
    map.put("host", seconds.host());
    return map;
  }
}
