package io.fairlead.solver.internal;

import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * The multigrid levels of one matrix, finest first. Immutable; any thread may read.
 *
 * @param levels at least one; each but the last has a {@link Level.Transfer}
 * @param coarse the inverse on the last level; null where that level is too large to invert because
 *     coarsening found nothing more to do (a matrix that is diagonal, or nearly): there its
 *     smoother stands for the solve
 * @param chebyshev the smoother that the levels' estimates are meant for
 */
public record Hierarchy(List<Level> levels, @Nullable DenseInverse coarse, Chebyshev chebyshev) {

  /** Copies the list. */
  public Hierarchy {
    levels = List.copyOf(levels);
  }

  /** Returns the stored entries of all levels' operators, over those of the finest. */
  public double operatorComplexity() {
    return (double) levels.stream().mapToLong(l -> l.a().entries()).sum()
        / Math.max(1, levels.get(0).a().entries());
  }

  /** Returns the rows of all levels, over those of the finest. */
  public double gridComplexity() {
    return (double) levels.stream().mapToLong(Level::rows).sum()
        / Math.max(1, levels.get(0).rows());
  }

  /** Returns a short table: level, rows, entries. */
  public String describe() {
    StringBuilder text = new StringBuilder();
    for (int l = 0; l < levels.size(); l++) {
      Level level = levels.get(l);
      text.append(
          String.format(
              Locale.ROOT,
              "level %d: %,d rows, %,d entries, lambda %.3f%n",
              l,
              level.rows(),
              level.a().entries(),
              level.lambdaMax()));
    }
    return text.append(
            String.format(
                Locale.ROOT,
                "operator complexity %.3f, grid complexity %.3f",
                operatorComplexity(),
                gridComplexity()))
        .toString();
  }
}
