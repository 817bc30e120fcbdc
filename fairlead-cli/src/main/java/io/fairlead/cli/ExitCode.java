package io.fairlead.cli;

/** How the command ended, as the process's exit code. */
public final class ExitCode {
  /** The system was solved, the benchmark ran. */
  public static final int OK = 0;

  /** The iteration limit came before the tolerance. */
  public static final int NOT_CONVERGED = 1;

  /** The command line was wrong. */
  public static final int USAGE = 2;

  /** A file was wrong, input or output, or a matrix that the method cannot solve. */
  public static final int BAD_INPUT = 3;

  /** A device or a message failed, or there was not enough memory. */
  public static final int FAILURE = 4;

  private ExitCode() {}
}
