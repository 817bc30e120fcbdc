package io.fairlead.cli;

import io.fairlead.solver.Poisson;
import io.fairlead.solver.Preconditioner;
import io.fairlead.task.WaitMode;
import java.io.PrintWriter;
import java.io.Writer;
import java.nio.file.Path;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code fairlead solve FILE}: solves a sparse symmetric positive definite system. */
@Command(
    name = "solve",
    description = {
      "Solves A x = b for a sparse symmetric positive definite matrix.",
      "It is read from a Matrix Market file; the method is conjugate gradients with multigrid."
    },
    footer = {
      "",
      "Exit codes: 0 solved, 1 not converged, 2 usage, 3 bad input or output, 4 device or message"
          + " failure or too little memory, 69 it could not be started.",
      "",
      "Environment: FAIRLEAD_JAVA_OPTS has options for the JVM, as -Xmx8g for 8 GiB of heap."
    },
    mixinStandardHelpOptions = true,
    sortOptions = false,
    versionProvider = Version.class)
public final class SolveCommand implements Callable<Integer> {

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(arity = "0..1", paramLabel = "FILE", description = "The matrix: .mtx or .mtx.gz.")
  private @Nullable Path file;

  @Option(
      names = "--poisson",
      paramLabel = "N",
      description = "Instead of a file: the 7-point Laplacian on an N x N x N grid.")
  private @Nullable Integer poisson;

  @Option(
      names = "--rhs",
      paramLabel = "FILE",
      description = "Right-hand sides, a system for each column (default: b = A times ones).")
  private @Nullable Path rhs;

  @Option(
      names = "--x0",
      paramLabel = "FILE",
      description = "Where to start: one column, or one for each right-hand side (default: zero).")
  private @Nullable Path x0;

  @Option(
      names = "--out",
      paramLabel = "FILE",
      description =
          "Write x there, as Matrix Market; it appears only when complete. Packed if it ends in"
              + " .gz; - is standard output.")
  private @Nullable Path out;

  @Option(
      names = "--json",
      paramLabel = "FILE",
      description = "Write a report there as JSON; - is standard output.")
  private @Nullable String json;

  @Option(
      names = "--tol",
      paramLabel = "T",
      defaultValue = "1e-8",
      description = "Solved when |b - A x| <= T |b| (default ${DEFAULT-VALUE}).")
  private double tol;

  @Option(
      names = "--max-iterations",
      paramLabel = "N",
      defaultValue = "10000",
      description = "Give up after so many (default ${DEFAULT-VALUE}).")
  private int maxIterations;

  @Option(
      names = "--precond",
      paramLabel = "P",
      defaultValue = "amg",
      description = "amg, jacobi or none (default ${DEFAULT-VALUE}).")
  private Preconditioner precond = Preconditioner.AMG;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      defaultValue = "1",
      description =
          "Share the rows among so many ranks in this process (default ${DEFAULT-VALUE}); under mpirun"
              + " each process is a rank, and this is left out.")
  private int ranks;

  @Option(
      names = "--jobs",
      paramLabel = "N",
      defaultValue = "1",
      description = "Solve it so many times at once, as tasks on one device (default 1).")
  private int jobs;

  @Option(
      names = "--at-once",
      paramLabel = "N",
      description = "Solve no more jobs than so many at the same time (default: all of them).")
  private @Nullable Integer atOnce;

  @Option(
      names = "--device",
      paramLabel = "D",
      defaultValue = "auto",
      description = "auto, host or cuda (default ${DEFAULT-VALUE}).")
  private String device = "auto";

  @Option(
      names = "--device-memory",
      paramLabel = "SIZE",
      converter = Bytes.Converter.class,
      description = "Never use more device memory than this: 512M, 2G (default: what it has).")
  private @Nullable Long deviceMemory;

  @Option(
      names = "--sync",
      paramLabel = "MODE",
      defaultValue = "nonblocking",
      description = "How tasks wait: nonblocking, blocking or spin (default ${DEFAULT-VALUE}).")
  private WaitMode sync = WaitMode.NONBLOCKING;

  /** Made by the command line parser. */
  public SolveCommand() {}

  @Override
  public Integer call() throws Exception {
    check();
    CommandLine line = commandLine();
    SolveRequest request = request();
    Progress progress = progress(request);
    try {
      SolveOutcome outcome = new SolveRun(request, progress, line.getOut()).run();
      progress.clear();
      if (request.launched().isFirst()) {
        new ReportWriter(line.getOut(), line.getErr(), json)
            .write(request.columnsOnStandardOutput(), SolveSummary.of(outcome), outcome.toMap());
      }
      return outcome.converged() ? ExitCode.OK : ExitCode.NOT_CONVERGED;
    } finally {
      progress.clear();
    }
  }

  private Progress progress(SolveRequest request) {
    return request.launched().isFirst()
        ? Progress.to(commandLine().getErr(), Progress.onTerminal())
        : Progress.to(new PrintWriter(Writer.nullWriter()), false);
  }

  private SolveRequest request() {
    LaunchedRanks launched = LaunchedRanks.current();
    return new SolveRequest(
        file,
        poisson,
        rhs,
        x0,
        out,
        tol,
        maxIterations,
        precond,
        launched.areProcesses() ? launched.size() : ranks,
        jobs,
        atOnce == null ? jobs : Math.min(atOnce, jobs),
        device,
        deviceMemory,
        sync,
        launched);
  }

  private void check() {
    OptionChecks checks = new OptionChecks(commandLine());
    checks.requireSettings();
    require((file == null) != (poisson == null), "Give a FILE, or --poisson N, and not both.");
    require(
        poisson == null || (poisson >= 1 && poisson <= Poisson.GRID3D_MAX),
        "--poisson takes 1 to " + Poisson.GRID3D_MAX);
    require(tol > 0 && tol < 1, "--tol takes a number between 0 and 1, such as 1e-8");
    require(maxIterations >= 0, "--max-iterations takes 0 or more");
    require(ranks >= 1 && ranks <= 1024, "--ranks takes 1 to 1024");
    require(jobs >= 1 && jobs <= 100_000, "--jobs takes 1 to 100000");
    require(atOnce == null || atOnce >= 1, "--at-once takes 1 or more");
    checkLaunched(LaunchedRanks.current());
    device = checks.device(device);
    requireName("FILE", file);
    requireName("--rhs", rhs);
    requireName("--x0", x0);
    requireName("--out", out);
    requireName("--json", json);
    if (LaunchedRanks.current().isFirst()) { // who writes them
      checks.requireOutputs(out, json, Stream.of(file, rhs, x0));
    }
  }

  private void checkLaunched(LaunchedRanks launched) {
    require(
        !launched.areProcesses() || ranks == 1 || ranks == launched.size(),
        "The launcher started " + launched.size() + " ranks: leave --ranks out");
    require(
        launched.size() == 1 || jobs == 1 || (atOnce != null && atOnce == 1),
        "Ranks that are processes solve one job at a time: add --at-once 1");
  }

  private void requireName(String what, @Nullable Object name) {
    require(
        name == null || !name.toString().isEmpty(), what + " is empty: give the name of a file");
  }

  private void require(boolean holds, String message) {
    new OptionChecks(commandLine()).require(holds, message);
  }

  private CommandLine commandLine() {
    return Objects.requireNonNull(spec).commandLine();
  }
}
