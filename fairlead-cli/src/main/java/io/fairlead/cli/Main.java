package io.fairlead.cli;

import io.fairlead.cli.bench.BenchCommand;
import io.fairlead.cli.join.JoinCommand;
import io.fairlead.cli.torture.TortureCommand;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;

/**
 * The {@code fairlead} command. Results go to standard output, progress and messages to standard
 * error, and the exit code says how it ended ({@link ExitCode}).
 */
@Command(
    name = "fairlead",
    description = "Drives GPUs and message libraries from any number of Java tasks.",
    mixinStandardHelpOptions = true,
    versionProvider = Version.class,
    subcommands = {
      SolveCommand.class,
      JoinCommand.class,
      BenchCommand.class,
      DemoCommand.class,
      DoctorCommand.class,
      TortureCommand.class
    },
    synopsisSubcommandLabel = "COMMAND",
    footer = {
      "",
      "Exit codes: 0 done, 1 not converged, 2 usage, 3 bad input or output, 4 device or message"
          + " failure or too little memory, 69 it could not be started.",
      "",
      "Environment:",
      "  FAIRLEAD_JAVA_OPTS   options for the JVM, as -Xmx8g for 8 GiB of heap",
      "  FAIRLEAD_DATA        the folder with the dragon matrices, for bench solve"
    })
public final class Main implements Runnable {

  @CommandLine.Spec private @Nullable CommandSpec spec;

  Main() {}

  /** Runs the command and ends the process with its exit code. */
  public static void main(String[] args) {
    if (args.length == 1 && args[0].equals("--version")) {
      System.out.println(new Version().getVersion()[0]); // at once, without a parser of options
      return;
    }
    plainLogLines();
    PrintWriter out = new PrintWriter(System.out, true, StandardCharsets.UTF_8);
    PrintWriter err = new PrintWriter(System.err, true, StandardCharsets.UTF_8);
    Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> uncaught(failure, err));
    int code = run(out, err, args);
    if (!isEnding()) { // else an exit is under way, and a second one would only complain
      System.exit(code);
    }
  }

  /** Runs the command in this process; what {@link #main} does without the exit. */
  static int run(PrintWriter out, PrintWriter err, String... args) {
    try {
      int code = commandLine(out, err).execute(args);
      return out.checkError() ? Failures.reportLostOutput(code, err) : code;
    } catch (Error failure) { // the parser lets those pass
      return Failures.report(failure, err);
    }
  }

  private static CommandLine commandLine(PrintWriter out, PrintWriter err) {
    CommandLine line = new CommandLine(new Main());
    Words.register(line);
    return line.setOut(out)
        .setErr(err)
        .setParameterExceptionHandler((wrong, words) -> Failures.reportUsage(wrong))
        .setExecutionExceptionHandler(
            (failure, at, parsed) -> isEnding() ? ExitCode.FAILURE : Failures.report(failure, err));
  }

  /** A thread that ends for want of memory may leave others waiting for it. */
  private static void uncaught(Throwable failure, PrintWriter err) {
    if (isEnding()) {
      return;
    }
    int code = Failures.report(failure, err);
    if (Failures.isOutOfMemory(failure)) {
      System.exit(code);
    }
  }

  /** Whether the process was told to end, by a signal, say. */
  private static boolean isEnding() {
    Thread none = Thread.ofPlatform().unstarted(() -> {});
    try {
      Runtime.getRuntime().addShutdownHook(none);
      Runtime.getRuntime().removeShutdownHook(none);
      return false;
    } catch (IllegalStateException ending) {
      return true;
    }
  }

  /** A person reads the log of a command: one line each, no class names, no dates. */
  private static void plainLogLines() {
    String format = "java.util.logging.SimpleFormatter.format";
    if (System.getProperty(format) == null) {
      System.setProperty(format, "fairlead: %5$s%6$s%n");
    }
  }

  /** Without a subcommand: the usage, as a usage error. */
  @Override
  public void run() {
    CommandSpec known = Objects.requireNonNull(spec);
    throw new ParameterException(known.commandLine(), "Which command? Try: fairlead solve FILE");
  }
}
