package io.fairlead.cli;

import io.fairlead.cli.AtomicFile.UnwritableException;
import io.fairlead.fault.FairleadException;
import io.fairlead.solver.BadInputException;
import io.fairlead.solver.NotPositiveDefiniteException;
import java.io.PrintWriter;

/**
 * Turns what ended a command into an exit code and one message: no stack trace for what a user can
 * mend, a full one for a bug of ours.
 */
final class Failures {
  private Failures() {}

  static int code(Throwable failure) {
    return switch (failure) {
      case BadInputException bad -> ExitCode.BAD_INPUT;
      case NotPositiveDefiniteException bad -> ExitCode.BAD_INPUT;
      case UnwritableException bad -> ExitCode.BAD_INPUT;
      default -> ExitCode.FAILURE;
    };
  }

  static int report(Throwable failure, PrintWriter err) {
    switch (failure) {
      case BadInputException bad -> err.println(bad.getMessage());
      case NotPositiveDefiniteException bad -> err.println(bad.getMessage());
      case UnwritableException bad -> err.println(bad.getMessage());
      case FairleadException fault -> reportFault(fault, err);
      case OutOfMemoryError full -> err.println(heap(full));
      default -> {
        err.println("This is a bug in Fairlead; please report it with the lines that follow.");
        failure.printStackTrace(err);
      }
    }
    err.flush();
    return code(failure);
  }

  private static void reportFault(FairleadException fault, PrintWriter err) {
    err.println(fault.getMessage());
    Throwable cause = fault.getCause();
    for (int depth = 0; cause != null && depth < 4; depth++) {
      err.println("  because: " + cause.getMessage());
      cause = cause.getCause();
    }
  }

  private static String heap(OutOfMemoryError full) {
    return "Java ran out of memory ("
        + full.getMessage()
        + "); it may use "
        + Bytes.text(Runtime.getRuntime().maxMemory())
        + " of heap. Give it more: FAIRLEAD_JAVA_OPTS=-Xmx8g fairlead ...";
  }
}
