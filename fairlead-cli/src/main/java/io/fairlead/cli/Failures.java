package io.fairlead.cli;

import io.fairlead.cli.AtomicFile.UnwritableException;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.FairleadException;
import io.fairlead.solver.BadInputException;
import io.fairlead.solver.NotPositiveDefiniteException;
import java.io.PrintWriter;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/**
 * Turns what ended a command into an exit code and one message: no stack trace for what a user can
 * mend, a full one for a bug of ours.
 */
final class Failures {
  private Failures() {}

  /** As many causes as are looked at; more would be a circle. */
  private static final int CAUSES_MAX = 16;

  static int code(Throwable failure) {
    return switch (failure) {
      case BadInputException bad -> ExitCode.BAD_INPUT;
      case NotPositiveDefiniteException bad -> ExitCode.BAD_INPUT;
      case UnwritableException bad -> ExitCode.BAD_INPUT;
      default -> ExitCode.FAILURE;
    };
  }

  /** Says what is wrong with the command line, and where more is said. */
  static int reportUsage(ParameterException wrong) {
    CommandLine line = wrong.getCommandLine();
    PrintWriter err = line.getErr();
    err.println(wrong.getMessage());
    CommandLine.UnmatchedArgumentException.printSuggestions(wrong, err);
    err.println("See " + line.getCommandSpec().qualifiedName(" ") + " --help");
    err.flush();
    return ExitCode.USAGE;
  }

  /** What stood on standard output did not arrive: a full disk, a reader that left. */
  static int reportLostOutput(int code, PrintWriter err) {
    err.println("standard output: cannot be written");
    err.flush();
    return code == ExitCode.OK ? ExitCode.BAD_INPUT : code;
  }

  static int report(Throwable failure, PrintWriter err) {
    OutOfMemoryError full = causeOf(failure, OutOfMemoryError.class);
    if (full != null) {
      err.println(heap(full));
    } else {
      explain(failure, err);
    }
    err.flush();
    return full == null ? code(failure) : ExitCode.FAILURE;
  }

  private static void explain(Throwable failure, PrintWriter err) {
    switch (failure) {
      case BadInputException bad -> err.println(bad.getMessage());
      case NotPositiveDefiniteException bad -> err.println(bad.getMessage());
      case UnwritableException bad -> err.println(bad.getMessage());
      case FairleadException fault -> reportFault(fault, err);
      default -> {
        err.println("This is a bug in Fairlead; please report it with the lines that follow.");
        failure.printStackTrace(err);
      }
    }
  }

  static boolean isOutOfMemory(Throwable failure) {
    return causeOf(failure, OutOfMemoryError.class) != null;
  }

  /** Returns the failure or the nearest of its causes that is of this kind. */
  private static <T extends Throwable> @Nullable T causeOf(Throwable failure, Class<T> kind) {
    Throwable cause = failure;
    for (int depth = 0; cause != null && depth < CAUSES_MAX; depth++) {
      if (kind.isInstance(cause)) {
        return kind.cast(cause);
      }
      cause = cause.getCause();
    }
    return null;
  }

  private static void reportFault(FairleadException fault, PrintWriter err) {
    err.println(fault.getMessage());
    Throwable cause = fault.getCause();
    for (int depth = 0; cause != null && depth < 4; depth++) {
      err.println("  because: " + cause.getMessage());
      cause = cause.getCause();
    }
    if (causeOf(fault, OutOfDeviceMemoryException.class) != null) {
      err.println("Give it more: a larger --device-memory, or fewer --jobs.");
    }
  }

  private static String heap(OutOfMemoryError full) {
    if (String.valueOf(full.getMessage()).contains("native thread")) {
      return "Java got no more threads from the system ("
          + full.getMessage()
          + "). Raise the limit of processes (ulimit -u), or use fewer --jobs and --ranks.";
    }
    return "Java ran out of memory ("
        + full.getMessage()
        + "); it may use "
        + Bytes.text(Runtime.getRuntime().maxMemory())
        + " of heap. Give it more: FAIRLEAD_JAVA_OPTS=-Xmx8g fairlead ...";
  }
}
