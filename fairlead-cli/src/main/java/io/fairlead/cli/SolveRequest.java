package io.fairlead.cli;

import io.fairlead.solver.Preconditioner;
import io.fairlead.task.WaitMode;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/**
 * What the command line of {@code fairlead solve} asks for; exactly one of file and poisson.
 *
 * @param ranks of all processes together
 */
record SolveRequest(
    @Nullable Path file,
    @Nullable Integer poisson,
    @Nullable Path rhs,
    @Nullable Path x0,
    @Nullable Path out,
    double tolerance,
    int maxIterations,
    Preconditioner preconditioner,
    int ranks,
    int jobs,
    int atOnce,
    String device,
    @Nullable Long deviceMemory,
    WaitMode waitMode,
    LaunchedRanks launched) {

  boolean columnsOnStandardOutput() {
    return ReportWriter.isStandardOutput(out);
  }
}
