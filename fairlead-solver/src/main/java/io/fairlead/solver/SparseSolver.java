package io.fairlead.solver;

import io.fairlead.comm.Comm;
import io.fairlead.memory.Device;
import io.fairlead.runtime.Fairlead;
import io.fairlead.solver.internal.Hierarchy;
import io.fairlead.solver.internal.Multigrid;
import io.fairlead.solver.internal.Parallel;
import io.fairlead.solver.internal.WarmUp;
import io.fairlead.solver.internal.device.ConjugateGradients.Goal;
import io.fairlead.solver.internal.device.ConjugateGradients.Outcome;
import io.fairlead.solver.internal.device.Distribution;
import io.fairlead.solver.internal.device.Levels;
import io.fairlead.solver.internal.device.RankParts;
import io.fairlead.solver.internal.device.TaskParallel;
import io.fairlead.task.WaitMode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * Solves {@code A x = b} for a large sparse symmetric positive definite A, by preconditioned
 * conjugate gradients on the devices and ranks at hand. Set up once, solve often:
 *
 * <pre>{@code
 * try (Fairlead fairlead = Fairlead.open();
 *     SparseSolver solver = SparseSolver.setup(fairlead, matrix, SolverOptions.DEFAULT)) {
 *   Solution solution = solver.solve(b);
 * }
 * }</pre>
 *
 * <p>The setup runs on the CPU: with multigrid it builds the levels there, cuts them into blocks of
 * rows for the ranks, and puts those on the ranks' devices. Afterwards neither it nor the solver
 * needs the matrix any more. Every vector and matrix operation of a solve runs on the devices.
 *
 * <p><b>Results</b> are the same bit for bit for the same device kind, matrix, options and number
 * of ranks: in every waiting mode, with any number of workers, and whatever else runs meanwhile.
 *
 * <p><b>Threads.</b> Any thread may call, any number at once: a solve runs in tasks of its own, and
 * the caller waits for it as its own task does. Each solve first reserves its device memory, {@link
 * #requiredBytes()}, and waits in turn until it is there, so solves that do not fit at once run one
 * after the other and the device's limit holds.
 *
 * <p><b>Ownership.</b> {@link #close} frees what the solver holds on the devices; end your solves
 * before, since one that is under way fails then.
 */
public final class SparseSolver implements AutoCloseable {
  private static final double NANOS = 1e-9;

  /** 4,096 rows on two levels. */
  private static final int PREPARE_GRID = 16;

  /** For each setup on the device this many on the CPU alone, whose loops are the longer ones. */
  private static final int PREPARE_SETUPS = 1;

  private static final int PREPARE_SOLVES = 2;

  /** By then all hot loops have passed the compiler's thresholds. */
  private static final int PREPARE_ROUNDS = 10;

  private final SolverOptions options;
  private final RankParts parts;
  private final int rows;
  private final SetupReport setupReport;
  private final AtomicBoolean closed = new AtomicBoolean();

  private SparseSolver(SolverOptions options, RankParts parts, int rows, SetupReport setupReport) {
    this.options = options;
    this.parts = parts;
    this.rows = rows;
    this.setupReport = setupReport;
  }

  /**
   * Sets up for a matrix. Waits until it is done; the uploads may still run. The matrix must be
   * symmetric, with ascending columns; {@link SpdCheck} checks that, this does not.
   *
   * @throws NotPositiveDefiniteException if a diagonal entry, or a pivot of the coarsest level, is
   *     not positive
   * @throws IllegalArgumentException if the matrix is empty or not square, or the near-null space
   *     does not fit it
   * @throws MatrixTooLargeException if what the setup makes of it exceeds an array
   * @throws io.fairlead.device.OutOfDeviceMemoryException if the devices have no room for it
   */
  public static SparseSolver setup(Fairlead fairlead, CsrMatrix matrix, SolverOptions options) {
    Objects.requireNonNull(matrix, "matrix");
    return new Setup(fairlead, options, null).ofMatrix(matrix);
  }

  /**
   * As the other, on ranks that are processes: every rank of {@code world} calls it with the same
   * matrix and options, and keeps its own part on its own device. Solves then are calls of all
   * ranks too, in the same order and one at a time; each gets the whole solution, the same bit for
   * bit as on so many ranks in one process. What is said of memory is of this process alone. A rank
   * whose device fails, in the setup or in a solve, fails {@code world}.
   *
   * @param world such as {@link Fairlead#world}
   * @param options with as many ranks as {@code world} has, or 1, which means the same
   */
  public static SparseSolver setup(
      Fairlead fairlead, Comm world, CsrMatrix matrix, SolverOptions options) {
    Objects.requireNonNull(matrix, "matrix");
    if (options.ranks() != 1 && options.ranks() != world.size()) {
      throw new IllegalArgumentException(
          options.ranks()
              + " ranks were asked for, and the communicator has "
              + world.size()
              + ": leave the option out");
    }
    return new Setup(fairlead, options.withRanks(world.size()), world).ofMatrix(matrix);
  }

  /** The same matrix on several numbers of ranks; its levels are made once. */
  static List<SparseSolver> setup(Fairlead fairlead, CsrMatrix matrix, List<Integer> ranks) {
    return new Setup(fairlead, SolverOptions.DEFAULT, null).ofMatrix(matrix, ranks);
  }

  /**
   * Sets up for an operator that is not a matrix, on one rank.
   *
   * @param preconditionerMatrix a matrix near the operator, for the preconditioner: multigrid takes
   *     all of it, Jacobi its diagonal; may be null only without preconditioner
   * @throws IllegalArgumentException as {@link #setup(Fairlead, CsrMatrix, SolverOptions)}; and if
   *     the sizes differ, the preconditioner lacks its matrix, or the options ask for several
   *     ranks, for which an operator would have to be cut
   */
  public static SparseSolver setup(
      Fairlead fairlead,
      Operator operator,
      @Nullable CsrMatrix preconditionerMatrix,
      SolverOptions options) {
    Objects.requireNonNull(operator, "operator");
    return new Setup(fairlead, options, null).ofOperator(operator, preconditionerMatrix);
  }

  /**
   * In which form this device takes the solver's kernels: {@code in Java} on the host device; on a
   * GPU machine code that was built before, the source compiled there, or PTX, whichever of these
   * fits first. Loads them to find out. Blocks its task.
   *
   * @throws io.fairlead.device.DeviceException if the device takes none of them
   */
  public static String kernels(Device device) {
    return RankParts.kernelForm(device);
  }

  /**
   * Sets up and solves small problems until told to stop, so that a process that has just started
   * meets its own with compiled code. Pays on a spare thread while something else does not need all
   * processors: while a file is read, say. Blocks its thread; takes about a megabyte of device
   * memory meanwhile, and has given it back when it returns.
   *
   * @param stop asked every few milliseconds; where it never says so, this returns when there is
   *     nothing more to gain
   * @throws io.fairlead.device.OutOfDeviceMemoryException if the device has no room for it
   */
  public static void prepare(Fairlead fairlead, BooleanSupplier stop) {
    CsrMatrix sample = Poisson.grid3d(PREPARE_GRID);
    double[] b = new double[sample.rows()];
    Arrays.fill(b, 1.0);
    for (int round = 0; round < PREPARE_ROUNDS && !stop.getAsBoolean(); round++) {
      WarmUp.setUp(PREPARE_SETUPS, stop);
      if (stop.getAsBoolean()) {
        return;
      }
      try (SparseSolver solver = setup(fairlead, sample, SolverOptions.DEFAULT)) {
        for (int k = 0; k < PREPARE_SOLVES && !stop.getAsBoolean(); k++) {
          solver.solve(b);
        }
      }
    }
  }

  /** Solves from a zero guess; see {@link #solve(double[], double[], SolveListener)}. */
  public Solution solve(double[] b) {
    return solve(b, null, options.listener());
  }

  /** Solves from a guess; see {@link #solve(double[], double[], SolveListener)}. */
  public Solution solve(double[] b, double @Nullable [] x0) {
    return solve(b, x0, options.listener());
  }

  /**
   * Solves for one right-hand side, and waits for it. A solve that does not converge returns too;
   * its report says so.
   *
   * @param b the right-hand side; only read
   * @param x0 where to start; only read; null for zero
   * @param listener hears of every iteration, on a task of the solve
   * @throws NotPositiveDefiniteException with the iteration and the value that shows it
   * @throws IllegalArgumentException if a length is wrong, or an entry is not finite
   * @throws IllegalStateException after close
   * @throws io.fairlead.device.DeviceException if the device fails
   * @throws io.fairlead.comm.CommException if the messages between ranks fail
   */
  public Solution solve(double[] b, double @Nullable [] x0, SolveListener listener) {
    requireOpen();
    Scaling scaling = Scaling.of(b, rows);
    double[] x = x0 == null ? new double[rows] : scaling.guess(x0, rows);
    long kernelsBefore = parts.kernelNanos();
    long start = System.nanoTime();
    List<RankParts.Done<Outcome>> done =
        parts.solve(
            scaling.apply(b),
            x,
            x0 == null,
            new Goal(options.tolerance(), options.maxIterations(), listener));
    long nanos = System.nanoTime() - start;
    scaling.undo(x);
    long kernels = kernelsBefore < 0 ? -1 : parts.kernelNanos() - kernelsBefore;
    return new Solution(x, report(done, nanos, kernels));
  }

  private SolveReport report(List<RankParts.Done<Outcome>> done, long nanos, long kernelNanos) {
    RankParts.Done<Outcome> first = done.getFirst();
    Outcome outcome = first.result();
    long waiting = first.spent().deviceNanos() + first.spent().messageNanos();
    return new SolveReport(
        outcome.converged(),
        outcome.iterations(),
        outcome.relativeResidual(),
        parts.levels(),
        convergenceFactor(outcome),
        new SolveReport.Seconds(
            setupReport.seconds(),
            nanos * NANOS,
            kernelNanos < 0 ? -1 : kernelNanos * NANOS,
            first.spent().deviceNanos() * NANOS,
            first.spent().messageNanos() * NANOS,
            (nanos - waiting) * NANOS),
        parts.overRanks(done.stream().mapToLong(each -> each.spent().messages()).sum()),
        first.spent().deviceWaits());
  }

  private static double convergenceFactor(Outcome outcome) {
    if (outcome.iterations() == 0 || outcome.initialResidual() == 0.0) {
      return 0.0;
    }
    double reduction = outcome.relativeResidual() / outcome.initialResidual();
    return Math.pow(reduction, 1.0 / outcome.iterations());
  }

  /** Runs V-cycles alone; see {@link VCycleBenchmark}. */
  VCycleBenchmark.Result cycles(int count, WaitMode mode) {
    requireOpen();
    double[] ones = new double[rows];
    Arrays.fill(ones, 1.0);
    return VCycleBenchmark.result(parts.cycles(ones, count, mode));
  }

  /** Returns the device memory that one solve takes, all ranks together, to admit work by. */
  public long requiredBytes() {
    return parts.solveBytes();
  }

  /** Returns the number of rows. */
  public int rows() {
    return rows;
  }

  /** Returns what the setup made. */
  public SetupReport setupReport() {
    return setupReport;
  }

  private void requireOpen() {
    if (closed.get()) {
      throw new IllegalStateException("this solver was closed; set up another one");
    }
  }

  /** Frees the device memory in stream order. Does not wait. A second close does nothing. */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      parts.close();
    }
  }

  /**
   * A power of two that brings b near 1, so that squares neither overflow nor vanish. It changes no
   * digit of any result.
   */
  private record Scaling(double factor) {
    /** Squares of numbers within these bounds, added up, stay well inside the range of a double. */
    private static final double SMALL = 1e-100;

    private static final double LARGE = 1e100;

    static Scaling of(double[] b, int rows) {
      double most = largest(b, rows, "right-hand side");
      boolean harmless = most == 0.0 || (most > SMALL && most < LARGE);
      return new Scaling(harmless ? 1.0 : Math.scalb(1.0, -Math.getExponent(most)));
    }

    private static double largest(double[] vector, int rows, String what) {
      if (vector.length != rows) {
        throw new IllegalArgumentException(
            "the " + what + " has " + vector.length + " entries; expected " + rows);
      }
      double most = 0.0;
      for (int i = 0; i < rows; i++) {
        double size = Math.abs(vector[i]);
        if (!(size <= Double.MAX_VALUE)) {
          throw new IllegalArgumentException(
              "entry "
                  + (i + 1)
                  + " of the "
                  + what
                  + " is "
                  + vector[i]
                  + "; expected a finite number");
        }
        most = Math.max(most, size);
      }
      return most;
    }

    double[] guess(double[] x0, int rows) {
      largest(x0, rows, "initial guess");
      return scaled(x0, factor);
    }

    double[] apply(double[] b) {
      return factor == 1.0 ? b : scaled(b, factor);
    }

    void undo(double[] x) {
      for (int i = 0; factor != 1.0 && i < x.length; i++) {
        x[i] /= factor;
      }
    }

    private static double[] scaled(double[] vector, double factor) {
      double[] scaled = vector.clone();
      for (int i = 0; factor != 1.0 && i < scaled.length; i++) {
        scaled[i] *= factor;
      }
      return scaled;
    }
  }

  /** One setup under way. */
  private static final class Setup {
    private final Fairlead fairlead;
    private final SolverOptions options;
    private final Parallel parallel;
    private final long start = System.nanoTime();
    private final @Nullable Comm world;
    private double hierarchySeconds;

    Setup(Fairlead fairlead, SolverOptions options, @Nullable Comm world) {
      this.world = world;
      this.fairlead = Objects.requireNonNull(fairlead, "fairlead");
      this.options = Objects.requireNonNull(options, "options");
      this.parallel = new TaskParallel(fairlead);
    }

    SparseSolver ofMatrix(CsrMatrix matrix) {
      requireSquare(matrix);
      return finish(levels(matrix, matrix), options, null);
    }

    List<SparseSolver> ofMatrix(CsrMatrix matrix, List<Integer> ranks) {
      requireSquare(matrix);
      Levels levels = levels(matrix, matrix);
      List<SparseSolver> solvers = new ArrayList<>();
      try {
        for (int each : ranks) {
          solvers.add(finish(levels, options.withRanks(each), null));
        }
        return List.copyOf(solvers);
      } catch (RuntimeException | Error failure) {
        solvers.forEach(SparseSolver::close);
        throw failure;
      }
    }

    SparseSolver ofOperator(Operator operator, @Nullable CsrMatrix near) {
      if (options.ranks() > 1) {
        throw new IllegalArgumentException(
            "an operator runs on 1 rank, not " + options.ranks() + "; give a matrix for more");
      }
      if (near == null) {
        requireNoPreconditioner();
        return finish(Levels.none(null, operator.rows()), options, operator);
      }
      requireSquare(near);
      if (near.rows() != operator.rows()) {
        throw new IllegalArgumentException(
            "the operator has "
                + operator.rows()
                + " rows, the preconditioner's matrix "
                + near.rows());
      }
      return finish(levels(near, null), options, operator);
    }

    private void requireNoPreconditioner() {
      if (options.preconditioner() != Preconditioner.NONE) {
        throw new IllegalArgumentException(
            "preconditioner "
                + options.preconditioner()
                + " needs a matrix near the operator; give one, or take NONE");
      }
    }

    private static void requireSquare(CsrMatrix matrix) {
      if (matrix.rows() != matrix.cols() || matrix.rows() == 0) {
        throw new IllegalArgumentException(
            matrix + ": expected as many rows as columns, and at least one");
      }
    }

    /**
     * The levels of the preconditioner.
     *
     * @param finest the matrix of the iteration; null where an operator stands for it
     */
    private Levels levels(CsrMatrix near, @Nullable CsrMatrix finest) {
      return switch (options.preconditioner()) {
        case AMG -> Levels.of(hierarchy(near));
        case JACOBI -> Levels.jacobi(finest, inverseDiagonal(near));
        case NONE -> Levels.none(finest, near.rows());
      };
    }

    private Hierarchy hierarchy(CsrMatrix matrix) {
      long before = System.nanoTime();
      Multigrid.Options multigrid =
          Multigrid.Options.DEFAULT.withNearNullSpace(
              options.nearNullSpace(), options.rowsPerPoint());
      Hierarchy hierarchy = Multigrid.setUp(matrix, multigrid, parallel);
      hierarchySeconds = (System.nanoTime() - before) * NANOS;
      return hierarchy;
    }

    private static double[] inverseDiagonal(CsrMatrix matrix) {
      double[] inverse = matrix.diagonal();
      for (int i = 0; i < inverse.length; i++) {
        if (!(inverse[i] > 0)) {
          throw new NotPositiveDefiniteException(
              "the matrix is not positive definite: diagonal entry "
                  + (i + 1)
                  + " is "
                  + inverse[i]
                  + "; expected all to be positive");
        }
        inverse[i] = 1.0 / inverse[i];
      }
      return inverse;
    }

    private SparseSolver finish(Levels levels, SolverOptions options, @Nullable Operator operator) {
      Distribution distribution = new Distribution(levels, options.ranks(), operator, parallel);
      RankParts parts =
          world == null
              ? RankParts.make(fairlead, distribution, options.ranks())
              : RankParts.make(fairlead, distribution, world);
      List<SetupReport.LevelSize> sizes = new ArrayList<>();
      for (Levels.OfLevel level : levels.levels()) {
        options.listener().level(sizes.size(), level.rows(), level.entries());
        sizes.add(new SetupReport.LevelSize(level.rows(), level.entries()));
      }
      return new SparseSolver(options, parts, sizes.getFirst().rows(), report(parts, sizes));
    }

    private SetupReport report(RankParts parts, List<SetupReport.LevelSize> sizes) {
      double all = sizes.stream().mapToLong(SetupReport.LevelSize::entries).sum();
      return new SetupReport(
          sizes,
          all / Math.max(1, sizes.getFirst().entries()),
          parts.residentBytes(),
          parts.solveBytes(),
          (System.nanoTime() - start) * NANOS,
          hierarchySeconds,
          parts.kernelForms());
    }
  }
}
