package io.fairlead.cli.bench;

import io.fairlead.cli.AtomicFile;
import io.fairlead.cli.ExitCode;
import io.fairlead.cli.Json;
import io.fairlead.cli.Progress;
import io.fairlead.cli.Version;
import io.fairlead.runtime.FairleadConfig;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code fairlead bench SUITE}: measures, side by side in one run. */
@Command(
    name = "bench",
    description = "Measures Fairlead beside its alternatives, in one run.",
    mixinStandardHelpOptions = true,
    sortOptions = false,
    versionProvider = Version.class,
    subcommands = {
      VCycleWorker.class,
      TaskWorker.class,
      JobsWorker.class,
      CudaWorker.class,
      CudaVCycleWorker.class,
      CommWorker.class
    },
    synopsisSubcommandLabel = "",
    footer = {
      "",
      "Exit codes: 0 measured, whatever the figures; 2 usage; 3 an output that cannot be written;"
          + " 4 a failure, 69 it could not be started.",
      "",
      "Environment: FAIRLEAD_DATA names the folder with the dragon matrices (solve)."
    })
public final class BenchCommand implements Callable<Integer> {
  private static final List<Suite> SUITES =
      List.of(
          new VCycleSuite(),
          new HostSuite(),
          new SolveSuite(),
          new TaskSuite(),
          new CudaSuite(),
          new MemorySuite(),
          new SpillSuite(),
          new CommSuite());

  private static final int GRID = 64;

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(
      arity = "0..1",
      paramLabel = "SUITE",
      description = "One of: vcycle, host, solve, tasks, cuda, memory, spill, comm.")
  private @Nullable String suite;

  @Option(names = "--list", description = "Say what would be measured, and stop.")
  private boolean list;

  @Option(names = "--quick", description = "Under a minute: to see that it works, not to quote.")
  private boolean quick;

  @Option(
      names = "--grid",
      paramLabel = "N",
      description = "Points along one side of the generated problem (vcycle; default 64).")
  private @Nullable Integer grid;

  @Option(
      names = "--only",
      split = ",",
      paramLabel = "ROW",
      description =
          "Measure only these rows, by id or by what comes before a point in it (cuda, tasks, memory,"
              + " spill, comm; see --list). May be repeated.")
  private List<String> only = List.of();

  @Option(
      names = "--device",
      paramLabel = "NAME",
      description =
          "host, cuda, or auto: the best one there is (memory, spill, and the rows"
              + " comm.device; default auto).")
  private @Nullable String device;

  @Option(
      names = "--directory",
      paramLabel = "FOLDER",
      description = "On the disk to measure (spill; default: the temporary folder).")
  private @Nullable Path directory;

  @Option(
      names = "--json",
      paramLabel = "FILE",
      description = "Write the rows there as JSON; - is standard output.")
  private @Nullable String json;

  /** Made by the command line parser. */
  public BenchCommand() {}

  @Override
  public Integer call() throws Exception {
    CommandLine line = Objects.requireNonNull(spec).commandLine();
    requireGrid(line);
    if (json != null && !json.equals("-")) {
      if (json.isEmpty()) {
        throw new CommandLine.ParameterException(
            line, "--json is empty: give the name of a file, or -");
      }
      AtomicFile.requireWritable(Path.of(json)); // now, not after an hour of measuring
    }
    requireDevice(line);
    Suite.Options options =
        new Suite.Options(
            quick,
            grid == null ? GRID : grid,
            only,
            device == null ? FairleadConfig.AUTO : device,
            directory);
    requireRows(line, options);
    if (list) {
      list(line, options);
      return ExitCode.OK;
    }
    if (chosen(line).startsRanks()) {
      Optional<Integer> code = RankZero.measure(line.getParent().getParseResult().originalArgs());
      if (code.isPresent()) {
        return code.get();
      }
    }
    measure(line, options);
    return ExitCode.OK;
  }

  private void requireGrid(CommandLine line) {
    if (grid != null && (grid < 8 || grid > 512)) {
      throw new CommandLine.ParameterException(line, "--grid takes 8 to 512, not " + grid);
    }
    if (grid != null && suite != null && !chosen(line).takesGrid()) {
      throw new CommandLine.ParameterException(
          line, "--grid: the suite " + suite + " has problems of its own and takes none");
    }
  }

  private void requireDevice(CommandLine line) {
    if (device != null && !BenchDevice.NAMES.contains(device)) {
      throw new CommandLine.ParameterException(
          line,
          "--device takes one of " + String.join(", ", BenchDevice.NAMES) + ", not " + device);
    }
    boolean chooses = device != null || directory != null;
    if (chooses && suite != null && !chosen(line).takesDevice()) {
      throw new CommandLine.ParameterException(
          line,
          (device != null ? "--device" : "--directory")
              + ": the suite "
              + suite
              + " has a device of its own, and writes no files");
    }
    if (directory != null && !Files.isDirectory(directory)) {
      throw new CommandLine.ParameterException(
          line, "--directory: " + directory + " is no folder; make it first");
    }
  }

  private void requireRows(CommandLine line, Suite.Options options) {
    if (only.isEmpty() || suite == null) {
      return;
    }
    Suite chosen = chosen(line);
    if (!chosen.takesOnly()) {
      throw new CommandLine.ParameterException(
          line, "--only: the suite " + suite + " measures all of its rows or none");
    }
    List<String> ids = chosen.ids(options);
    for (String name : only) {
      if (ids.stream().noneMatch(id -> Suite.Options.names(name, id))) {
        throw new CommandLine.ParameterException(
            line,
            "--only: the suite "
                + suite
                + " has no row '"
                + name
                + "' here; 'fairlead bench "
                + suite
                + " --list' names them");
      }
    }
  }

  private void list(CommandLine line, Suite.Options options) {
    PrintWriter out = line.getOut();
    List<Suite> shown = suite == null ? SUITES : List.of(chosen(line));
    for (Suite each : shown) {
      out.println(each.name() + ": " + each.about());
      each.ids(options).stream().filter(options::wants).forEach(id -> out.println("  " + id));
    }
  }

  private Suite chosen(CommandLine line) {
    String names = String.join(", ", SUITES.stream().map(Suite::name).toList());
    return SUITES.stream()
        .filter(each -> each.name().equals(suite))
        .findFirst()
        .orElseThrow(
            () ->
                new CommandLine.ParameterException(
                    line,
                    (suite == null ? "Which suite?" : "There is no suite '" + suite + "'.")
                        + " The suites are: "
                        + names));
  }

  /** Shows and writes rows as they come: a run that is cut, or fails, leaves what it had. */
  private void measure(CommandLine line, Suite.Options options) throws Exception {
    Suite chosen = chosen(line);
    boolean jsonOnOut = "-".equals(json);
    PrintWriter shown = jsonOnOut ? line.getErr() : line.getOut();
    Table table = new Table(chosen.ids(options).stream().filter(options::wants).toList());
    List<Row> all = new ArrayList<>();
    Progress progress = Progress.to(line.getErr(), Progress.onTerminal());
    chosen.run(
        options,
        progress,
        rows -> {
          all.addAll(rows);
          progress.clear();
          line.getErr().flush();
          shown.print(table.add(rows));
          shown.flush();
          if (json != null && !jsonOnOut) {
            AtomicFile.write(json, text(all));
          }
        });
    if (jsonOnOut) {
      line.getOut().print(text(all));
      line.getOut().flush();
    }
  }

  private static String text(List<Row> rows) {
    return Json.text(rows.stream().map(Row::toMap).toList()) + "\n";
  }
}
