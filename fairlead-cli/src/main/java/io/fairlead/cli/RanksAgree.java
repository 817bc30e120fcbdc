package io.fairlead.cli;

import io.fairlead.comm.Comm;
import io.fairlead.comm.ReduceOp;
import org.jspecify.annotations.Nullable;

/**
 * Before ranks that are processes begin to work together: whether each has what it needs, and the
 * same as the others. If not, all of them end, with one exit code, and the first of those that know
 * why says so. No state; every rank of the world calls it, and waits for the others.
 */
final class RanksAgree {
  private RanksAgree() {}

  /** Another rank says why all of them end; this one only ends, with the same exit code. */
  static final class SaidElsewhereException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final int code;

    SaidElsewhereException(int rank, int code, @Nullable Throwable own) {
      super("rank " + rank + " says why", own);
      this.code = code;
    }

    int code() {
      return code;
    }
  }

  /**
   * Returns if no rank has failed so far.
   *
   * @param failure what ended this rank's preparations; null: nothing did
   */
  static void onGoing(Comm world, @Nullable RuntimeException failure) {
    int none = world.size();
    int[] first = {failure == null ? none : world.rank()};
    world.allReduce(first, ReduceOp.MIN).await();
    if (first[0] == none) {
      return;
    }
    boolean speaks = first[0] == world.rank();
    int[] code = {speaks && failure != null ? Failures.code(failure) : 0};
    world.allReduce(code, ReduceOp.MAX).await();
    if (speaks && failure != null) {
      throw failure;
    }
    throw new SaidElsewhereException(first[0], code[0], failure);
  }

  /**
   * Returns if all ranks have the same system.
   *
   * @param system in numbers that differ for different systems
   * @throws DifferentSystemsException on the first rank, else {@link SaidElsewhereException}
   */
  static void onSystem(Comm world, long... system) {
    long[] least = system.clone();
    long[] most = system.clone();
    world.allReduce(least, ReduceOp.MIN).await();
    world.allReduce(most, ReduceOp.MAX).await();
    for (int i = 0; i < system.length; i++) {
      if (least[i] != most[i]) {
        throw said(
            world.rank(),
            new DifferentSystemsException(
                "ranks have different systems to solve: give all of them the same files and"
                    + " options, and let a file be the same on every host"));
      }
    }
  }

  /** What every rank has found alike, only the first says. */
  static RuntimeException said(int rank, RuntimeException everywhere) {
    return rank == 0
        ? everywhere
        : new SaidElsewhereException(0, Failures.code(everywhere), everywhere);
  }

  /** Ranks were started with different command lines, or read different files. */
  static final class DifferentSystemsException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    DifferentSystemsException(String message) {
      super(message);
    }
  }
}
