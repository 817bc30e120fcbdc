package io.fairlead.solver.internal.device;

import java.util.ArrayList;
import java.util.List;
import java.util.function.LongFunction;
import org.jspecify.annotations.Nullable;

/**
 * The vectors of one solve on one rank, as buffers or, to add them up, as sizes. Vectors that are
 * multiplied with a matrix have room for ghosts after their own entries.
 *
 * @param b the right-hand side
 * @param x the solution
 * @param r its residual
 * @param p the direction
 * @param q the product with p
 * @param partials the chunks of up to three dot products
 * @param scalars see {@link Slots}
 * @param pack what is about to be sent
 * @param gatherPart this rank's part of what is gathered
 * @param gathered all of it, where no level's right-hand side takes it
 */
record Vectors<T>(
    T b,
    T x,
    T r,
    T p,
    T q,
    T partials,
    T scalars,
    T pack,
    T gatherPart,
    T gathered,
    List<OfLevel<T>> levels) {

  /**
   * The vectors of one level. Smoothing goes back and forth between the first two; the residual of
   * the finest level's right-hand side is r above.
   */
  record OfLevel<T>(T first, T second, T residual, T rightHandSide) {}

  /** Makes all vectors of a part; {@code take} gets each one's length in doubles, in this order. */
  static <T> Vectors<T> make(RankPart part, LongFunction<T> take) {
    int rows = part.owned();
    int withGhosts = rows + part.finest().ghostsOfA();
    boolean gathersBlock = part.gathered() != null;
    boolean gathersFinest = gathersBlock && part.distributed() == part.levels().size();
    return new Vectors<>(
        take.apply(rows),
        take.apply(withGhosts),
        take.apply(rows),
        take.apply(withGhosts),
        take.apply(rows),
        take.apply(3L * SolverKernels.chunks(rows)),
        take.apply(Slots.COUNT),
        take.apply(mostSends(part)),
        take.apply(part.gathered() == null ? 0 : part.gathered().size(part.rank())),
        take.apply(gathersFinest ? part.rows().rows() : 0),
        levels(part, take));
  }

  private static <T> List<OfLevel<T>> levels(RankPart part, LongFunction<T> take) {
    List<OfLevel<T>> levels = new ArrayList<>();
    for (int l = 0; l < part.levels().size(); l++) {
      RankLevel level = part.levels().get(l);
      long solution = (long) level.rows() + ghosts(part, l);
      MatrixPart restrict = level.restrict();
      levels.add(
          new OfLevel<>(
              take.apply(solution),
              take.apply(part.multigrid() ? solution : 0),
              take.apply(restrict == null ? 0 : (long) level.rows() + restrict.halo().ghosts()),
              take.apply(l == 0 ? 0 : level.rows())));
    }
    return levels;
  }

  /**
   * A level's solution is multiplied with its own matrix, and with the prolongator to the finer.
   */
  private static int ghosts(RankPart part, int l) {
    MatrixPart prolong = l == 0 ? null : part.levels().get(l - 1).prolong();
    int ofProlong = prolong == null ? 0 : prolong.halo().ghosts();
    return Math.max(part.levels().get(l).ghostsOfA(), ofProlong);
  }

  static int mostSends(RankPart part) {
    return Halos.of(part).stream().mapToInt(Halo::sends).max().orElse(0);
  }

  static int mostGhosts(RankPart part) {
    return Halos.of(part).stream().mapToInt(Halo::ghosts).max().orElse(0);
  }

  /** All halos of a part. */
  private static final class Halos {
    private Halos() {}

    static List<Halo> of(RankPart part) {
      List<Halo> halos = new ArrayList<>();
      for (RankLevel level : part.levels()) {
        add(level.a(), halos);
        add(level.prolong(), halos);
        add(level.restrict(), halos);
      }
      return halos;
    }

    private static void add(@Nullable MatrixPart matrix, List<Halo> to) {
      if (matrix != null) {
        to.add(matrix.halo());
      }
    }
  }
}
