package io.fairlead.solver.internal;

import io.fairlead.solver.Poisson;
import java.util.function.BooleanSupplier;

/**
 * Lets the JIT compiler see the setup before a matrix is there: run on a spare thread while the
 * file is read, it moves compilation out of the time that a first setup would otherwise spend in
 * the interpreter.
 */
public final class WarmUp {
  /** Points a side: rows enough for three levels, few enough for a setup in a few milliseconds. */
  private static final int SIDE = 56;

  private WarmUp() {}

  /**
   * Sets up a small grid again and again.
   *
   * @param roundsMax how often at the most
   * @param stop asked before each round
   * @return how many rounds were run
   */
  public static int setUp(int roundsMax, BooleanSupplier stop) {
    var grid = Poisson.grid2d(SIDE);
    int rounds = 0;
    while (rounds < roundsMax && !stop.getAsBoolean()) {
      Multigrid.setUp(grid, Multigrid.Options.DEFAULT, Parallel.SEQUENTIAL);
      rounds++;
    }
    return rounds;
  }
}
