package io.fairlead.cli;

import io.fairlead.runtime.FairleadConfig;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/**
 * What commands that read files and write results check of their command line, before the work
 * begins. Confined to the thread that parses.
 */
public final class OptionChecks {
  private final CommandLine line;

  /** Checks for a command; errors name it. */
  public OptionChecks(CommandLine line) {
    this.line = line;
  }

  /**
   * Requires it.
   *
   * @throws ParameterException with the message, if it does not hold
   */
  public void require(boolean holds, String message) {
    if (!holds) {
      throw new ParameterException(line, message);
    }
  }

  /**
   * A system property is as good as an option, so it is checked as one.
   *
   * @throws ParameterException if one is wrong
   */
  public void requireSettings() {
    try {
      FairleadConfig.fromSystem();
    } catch (IllegalArgumentException wrong) {
      throw new ParameterException(line, wrong.getMessage(), wrong);
    }
  }

  /**
   * Returns what {@code --device} asks for, in lower case.
   *
   * @throws ParameterException if it is none of what there is
   */
  public String device(String word) {
    String device = word.toLowerCase(Locale.ROOT);
    require(
        device.equals("auto") || device.equals("host") || device.equals("cuda"),
        "--device takes auto, host or cuda, not " + device);
    return device;
  }

  /**
   * Finds now, not after an hour of work, that {@code --out} and {@code --json} cannot be written,
   * or would overwrite each other or an input. Blocks; any thread.
   *
   * @param inputs null where one is not given
   * @throws ParameterException if they would overwrite something
   * @throws AtomicFile.UnwritableException if one cannot be written
   */
  public void requireOutputs(
      @Nullable Path out, @Nullable String json, Stream<@Nullable Path> inputs) {
    boolean jsonOnOut = ReportWriter.isStandardOutput(json);
    boolean resultOnOut = ReportWriter.isStandardOutput(out);
    require(!(jsonOnOut && resultOnOut), "--out - and --json - both ask for the standard output");
    Path result = resultOnOut ? null : out;
    Path report = jsonOnOut || json == null ? null : Path.of(json);
    requireDifferent("--out", result, "--json", report);
    List<Path> given = inputs.filter(Objects::nonNull).toList();
    for (Path input : given) {
      requireDifferent("--out", result, "the input", input);
      requireDifferent("--json", report, "the input", input);
    }
    Stream.of(result, report).filter(Objects::nonNull).forEach(AtomicFile::requireWritable);
  }

  private void requireDifferent(
      String what, @Nullable Path output, String otherWhat, @Nullable Path other) {
    require(
        output == null || other == null || !AtomicFile.isSame(output, other),
        what + " " + output + " would overwrite " + otherWhat + " " + other);
  }
}
