package io.fairlead.cli;

import io.fairlead.cli.AtomicFile.UnwritableException;
import io.fairlead.cli.RanksAgree.DifferentSystemsException;
import io.fairlead.cli.RanksAgree.SaidElsewhereException;
import io.fairlead.comm.Launch;
import io.fairlead.comm.Launch.Family;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.FairleadException;
import io.fairlead.memory.SpillException;
import io.fairlead.solver.BadInputException;
import io.fairlead.solver.NotPositiveDefiniteException;
import java.io.PrintWriter;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/**
 * Turns what ended a command into an exit code and one message: no stack trace for what a user can
 * mend, a full one for a bug of ours.
 */
final class Failures {
  /** For the rank that speaks for all to start, and to say what is wrong. */
  private static final long OTHERS_SPEAK_NANOS = TimeUnit.SECONDS.toNanos(20);

  private Failures() {}

  /** As many causes as are looked at; more would be a circle. */
  private static final int CAUSES_MAX = 16;

  static int code(Throwable failure) {
    return switch (failure) {
      case BadInputException bad -> ExitCode.BAD_INPUT;
      case NotPositiveDefiniteException bad -> ExitCode.BAD_INPUT;
      case UnwritableException bad -> ExitCode.BAD_INPUT;
      case DifferentSystemsException bad -> ExitCode.BAD_INPUT;
      case SaidElsewhereException said -> said.code();
      case SpillException bad when bad.reason() == SpillException.Reason.REFUSED ->
          ExitCode.BAD_INPUT;
      default -> ExitCode.FAILURE;
    };
  }

  /**
   * Says what is wrong with the command line, and where more is said. Ranks that a launcher started
   * have the same command line, so the first says it for all; the others speak if it does not.
   */
  static int reportUsage(ParameterException wrong) {
    if (!isFirstOfLaunched() && !othersAreSilent()) {
      return ExitCode.USAGE;
    }
    CommandLine line = wrong.getCommandLine();
    PrintWriter err = line.getErr();
    err.println(wrong.getMessage());
    CommandLine.UnmatchedArgumentException.printSuggestions(wrong, err);
    err.println("See " + line.getCommandSpec().qualifiedName(" ") + " --help");
    err.flush();
    return ExitCode.USAGE;
  }

  private static boolean isFirstOfLaunched() {
    try {
      return Launch.current().map(Launch::rank).orElse(0) == 0;
    } catch (IllegalArgumentException impossible) {
      return true;
    }
  }

  /**
   * Lets the rank speak that says what is wrong for all. Most launchers end all ranks as soon as
   * one has ended with a failure, and the one that speaks may be slow: so this one waits to be
   * ended.
   *
   * @return true: nobody has ended it
   */
  private static boolean othersAreSilent() {
    if (Launch.current().map(Launch::family).orElse(Family.MPICH) == Family.MPICH) {
      return false; // it waits for all ranks to end by themselves
    }
    long begin = System.nanoTime();
    while (System.nanoTime() - begin < OTHERS_SPEAK_NANOS) {
      LockSupport.parkNanos(OTHERS_SPEAK_NANOS);
    }
    return true;
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
      case DifferentSystemsException bad -> err.println(bad.getMessage());
      case SaidElsewhereException said -> othersAreSilent(); // one message is enough
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
      err.println(
          "Give it more: a larger --device-memory, fewer --jobs (solve), or a larger --host-memory or"
              + " a --spill-dir (join).");
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
