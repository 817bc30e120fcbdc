package io.fairlead.cli;

import io.fairlead.solver.SetupReport.LevelSize;
import java.util.List;
import java.util.Locale;

/** How a solve ended, for a person. */
final class SolveSummary {
  private SolveSummary() {}

  static String of(SolveOutcome o) {
    SolveOutcome.Times s = o.seconds();
    return String.format(
        Locale.ROOT,
        """
        %s
        matrix      %,d rows, %,d entries
        levels      %s
        x           norm %.12e, sum %.12e
        device      %s, %s waits, %s%s
        memory      %s of device memory at the most
        time        read %.3f s, setup %.3f s, solve %.3f s
          of solve  kernels %s, waits %.3f s, messages %.3f s, host %.3f s
        """,
        verdict(o),
        o.rows(),
        o.entries(),
        levels(o.setup().levels(), o.setup().operatorComplexity()),
        o.xNorm2(),
        o.xSum(),
        o.deviceName(),
        o.request().waitMode().name().toLowerCase(Locale.ROOT),
        o.request().ranks() == 1 ? "1 rank" : o.request().ranks() + " ranks",
        jobs(o.request()),
        Bytes.text(o.peakBytes()),
        s.read(),
        s.setup(),
        s.solve(),
        s.kernels() < 0 ? "not measured" : String.format(Locale.ROOT, "%.3f s", s.kernels()),
        s.waits(),
        s.messages(),
        s.host());
  }

  private static String verdict(SolveOutcome o) {
    String what =
        o.converged()
            ? "solved in "
            : "NOT SOLVED: the tolerance " + o.request().tolerance() + " was not reached in ";
    String columns = o.columns().size() == 1 ? "" : ", " + o.columns().size() + " systems";
    return String.format(
        Locale.ROOT,
        "%s%d %s%s: relative residual %.3e, convergence factor %.3f",
        what,
        o.iterations(),
        o.iterations() == 1 ? "iteration" : "iterations",
        columns,
        o.relativeResidual(),
        o.convergenceFactor());
  }

  private static String levels(List<LevelSize> levels, double complexity) {
    List<String> rows =
        levels.stream().map(level -> String.format(Locale.ROOT, "%,d", level.rows())).toList();
    return levels.size()
        + " ("
        + String.join(" > ", rows)
        + String.format(Locale.ROOT, "), operator complexity %.2f", complexity);
  }

  private static String jobs(SolveRequest request) {
    if (request.jobs() == 1) {
      return "";
    }
    return request.atOnce() == request.jobs()
        ? ", " + request.jobs() + " jobs at once"
        : ", " + request.jobs() + " jobs, " + request.atOnce() + " at once";
  }
}
