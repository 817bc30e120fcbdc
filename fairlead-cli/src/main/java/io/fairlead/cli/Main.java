package io.fairlead.cli;

import io.fairlead.cli.bench.BenchCommand;
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
    subcommands = {SolveCommand.class, BenchCommand.class, DemoCommand.class},
    synopsisSubcommandLabel = "COMMAND")
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
    System.exit(run(out, err, args));
  }

  /** Runs the command in this process; what {@link #main} does without the exit. */
  static int run(PrintWriter out, PrintWriter err, String... args) {
    return new CommandLine(new Main())
        .setCaseInsensitiveEnumValuesAllowed(true)
        .setOut(out)
        .setErr(err)
        .setExecutionExceptionHandler((failure, line, parsed) -> Failures.report(failure, err))
        .execute(args);
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
