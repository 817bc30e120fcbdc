package io.fairlead.cli.join;

import io.fairlead.cli.Bytes;
import io.fairlead.cli.ExitCode;
import io.fairlead.cli.OptionChecks;
import io.fairlead.cli.Progress;
import io.fairlead.cli.ReportWriter;
import io.fairlead.cli.Version;
import io.fairlead.solver.BadInputException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;

/** {@code fairlead join LEFT RIGHT --on COLUMN}: joins two tables and groups them by the key. */
@Command(
    name = "join",
    description = {
      "Joins two tables on a column and groups them by it: for each key that both have, how many"
          + " pairs of rows, and the sums of the other columns over them.",
      "The tables are CSV files, or generated. They need not fit into the device's memory."
    },
    footer = {
      "",
      "Exit codes: 0 joined, 2 usage, 3 bad input or output, 4 device failure, too little memory or a"
          + " check that failed, 69 it could not be started.",
      "",
      "Environment: FAIRLEAD_JAVA_OPTS has options for the JVM, as -Xmx8g for 8 GiB of heap."
    },
    mixinStandardHelpOptions = true,
    sortOptions = false,
    versionProvider = Version.class)
public final class JoinCommand implements Callable<Integer> {
  private static final int ROWS = 2_000_000;
  private static final int TASKS_MAX = 100_000;
  private static final int STREAMS_MAX = 1024;
  private static final double SKEW_MAX = 10;

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(
      index = "0",
      arity = "0..1",
      paramLabel = "LEFT",
      description = "A CSV file, with the names of its columns in the first line.")
  private @Nullable Path left;

  @Parameters(
      index = "1",
      arity = "0..1",
      paramLabel = "RIGHT",
      description = "Another one. Without files, tables are generated.")
  private @Nullable Path right;

  @Option(
      names = "--on",
      paramLabel = "COLUMN",
      description = "The column with the keys, which both files have.")
  private @Nullable String on;

  @Option(
      names = "--sum",
      split = ",",
      paramLabel = "COLUMN",
      description =
          "Sum this column of whichever file has it (default: all that begin with a number). May be"
              + " repeated.")
  private List<String> sums = List.of();

  @Option(
      names = "--keys",
      paramLabel = "HOW",
      defaultValue = "auto",
      description =
          "Compare keys as integer or as text; auto: as the first key of LEFT is (default"
              + " ${DEFAULT-VALUE}).")
  private String keys = "auto";

  @Option(
      names = "--rows",
      paramLabel = "N",
      description = "Generate tables of so many rows each (default " + ROWS + ").")
  private @Nullable Integer rows;

  @Option(
      names = "--skew",
      paramLabel = "S",
      description =
          "Of generated tables: key k is about as frequent as 1 / k^S (default 0: all alike).")
  private @Nullable Double skew;

  @Option(
      names = "--seed",
      paramLabel = "N",
      description = "Of generated tables: another one, other rows (default 1).")
  private @Nullable Integer seed;

  @Option(
      names = "--tasks",
      paramLabel = "N",
      defaultValue = "8",
      description = "Join by so many tasks at once (default ${DEFAULT-VALUE}).")
  private int tasks;

  @Option(
      names = "--streams",
      paramLabel = "N",
      description = "Streams that they draw from (default: one for each task, up to 32).")
  private @Nullable Integer streams;

  @Option(
      names = "--partitions",
      paramLabel = "N",
      description = "Cut the tables so, a power of two up to 1024 (default: as suits the memory).")
  private @Nullable Integer partitions;

  @Option(
      names = "--device",
      paramLabel = "D",
      defaultValue = "auto",
      description = "auto, host or cuda (default ${DEFAULT-VALUE}).")
  private String device = "auto";

  @Option(
      names = "--device-memory",
      paramLabel = "SIZE",
      converter = Bytes.Converter.class,
      description =
          "Never use more device memory than this: 512M, 2G (default: a quarter of what the tables"
              + " take, at least 1 MiB).")
  private @Nullable Long deviceMemory;

  @Option(
      names = "--host-memory",
      paramLabel = "SIZE",
      converter = Bytes.Converter.class,
      description = "Spill no more than this to host memory.")
  private @Nullable Long hostMemory;

  @Option(
      names = "--spill-dir",
      paramLabel = "DIR",
      description = "Spill to files there what host memory has no room for.")
  private @Nullable Path spillFolder;

  @Option(
      names = "--check",
      description = "Join again with all in device memory, and in plain Java, and compare.")
  private boolean check;

  @Option(
      names = "--out",
      paramLabel = "FILE",
      description =
          "Write the groups there as CSV; it appears only when complete. - is standard output.")
  private @Nullable Path out;

  @Option(
      names = "--json",
      paramLabel = "FILE",
      description = "Write a report there as JSON; - is standard output.")
  private @Nullable String json;

  /** Made by the command line parser. */
  public JoinCommand() {}

  @Override
  public Integer call() {
    JoinRequest request = checked();
    CommandLine line = commandLine();
    Progress progress = Progress.to(line.getErr(), Progress.onTerminal());
    try {
      JoinOutcome outcome = new JoinRun(request, progress, line.getOut()).run();
      progress.clear();
      new ReportWriter(line.getOut(), line.getErr(), json)
          .write(request.groupsOnStandardOutput(), JoinSummary.of(outcome), outcome.toMap());
      return ExitCode.OK;
    } finally {
      progress.clear();
    }
  }

  // --- what was asked for -------------------------------------------------------------------

  private JoinRequest checked() {
    OptionChecks checks = new OptionChecks(commandLine());
    checks.requireSettings();
    requireNames();
    JoinRequest.Files files = files();
    requireNumbers();
    device = checks.device(device);
    JoinRequest request =
        new JoinRequest(
            files,
            rows == null ? ROWS : rows,
            skew == null ? 0 : skew,
            seed == null ? 1 : seed,
            tasks,
            streams == null ? Math.min(tasks, 32) : streams,
            partitions == null ? 0 : partitions,
            device,
            deviceMemory,
            hostMemory,
            spillFolder,
            check,
            out);
    checks.requireOutputs(out, json, Stream.of(left, right));
    requireSpillFolder();
    return request;
  }

  private void requireNames() {
    requireName("LEFT", left);
    requireName("RIGHT", right);
    requireName("--on", on);
    requireName("--spill-dir", spillFolder);
    requireName("--out", out);
    requireName("--json", json);
    sums.forEach(name -> requireName("--sum", name));
  }

  private void requireName(String what, @Nullable Object name) {
    require(name == null || !name.toString().isEmpty(), what + " is empty: give it a name");
  }

  private JoinRequest.@Nullable Files files() {
    if (left == null) {
      require(on == null, "--on names a column of two files: fairlead join LEFT RIGHT --on COLUMN");
      require(sums.isEmpty(), "--sum names a column of two files, and none are given");
      require(keysOf(keys) == JoinRequest.Keys.AUTO, "--keys is about files, and none are given");
      return null;
    }
    require(right != null, "Give two files, LEFT and RIGHT, or none");
    require(on != null, "Say which column to join on: --on COLUMN");
    require(rows == null, "--rows generates tables; leave it out, or the files");
    require(skew == null, "--skew is about generated tables; leave it out, or the files");
    require(seed == null, "--seed is about generated tables; leave it out, or the files");
    require(!sums.contains(on), "--sum " + on + ": the column that is joined on is not summed");
    return new JoinRequest.Files(
        Objects.requireNonNull(left),
        Objects.requireNonNull(right),
        Objects.requireNonNull(on),
        sums,
        keysOf(keys));
  }

  private JoinRequest.Keys keysOf(String word) {
    return Stream.of(JoinRequest.Keys.values())
        .filter(each -> each.name().equalsIgnoreCase(word))
        .findFirst()
        .orElseThrow(
            () ->
                new ParameterException(
                    commandLine(), "--keys takes auto, integer or text, not '" + word + "'"));
  }

  private void requireNumbers() {
    require(
        rows == null || (rows >= 1 && rows <= Table.ROWS_MAX),
        "--rows takes 1 to " + Table.ROWS_MAX + ", not " + rows);
    require(
        skew == null || (skew >= 0 && skew <= SKEW_MAX),
        "--skew takes 0 (all keys alike) to 10, not " + skew);
    require(tasks >= 1 && tasks <= TASKS_MAX, "--tasks takes 1 to " + TASKS_MAX + ", not " + tasks);
    require(
        streams == null || (streams >= 1 && streams <= STREAMS_MAX),
        "--streams takes 1 to " + STREAMS_MAX + ", not " + streams);
    require(
        partitions == null
            || (Integer.bitCount(partitions) == 1
                && partitions >= 1
                && partitions <= 1 << JoinKernels.PARTITION_BITS_MAX),
        "--partitions takes a power of two from 1 to 1024, not " + partitions);
  }

  private void requireSpillFolder() {
    Path folder = spillFolder;
    if (folder == null) {
      return;
    }
    if (!Files.isDirectory(folder)) {
      throw new BadInputException(
          folder,
          BadInputException.NO_LINE,
          Files.exists(folder)
              ? "it is no folder; --spill-dir takes one"
              : "no such folder; make it first, or name another one with --spill-dir");
    }
    if (!Files.isWritable(folder)) {
      throw new BadInputException(
          folder,
          BadInputException.NO_LINE,
          "nothing can be written there; name another folder with --spill-dir");
    }
  }

  private void require(boolean holds, String message) {
    new OptionChecks(commandLine()).require(holds, message);
  }

  private CommandLine commandLine() {
    return Objects.requireNonNull(spec).commandLine();
  }
}
