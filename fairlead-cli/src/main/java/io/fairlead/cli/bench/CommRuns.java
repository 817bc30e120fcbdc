package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.cli.bench.CommWorker.Group;
import io.fairlead.cli.bench.InstalledMpi.Binding;
import io.fairlead.cli.bench.InstalledMpi.Flavour;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The processes that {@link CommSuite} measures in: ours in one process, ours as two ranks of a
 * launcher, and the twin in C. One that fails, or does not end in time, is told to the person who
 * waits and gives no samples.
 *
 * <p>Confined to the thread that measures. Closing it deletes what was built.
 */
final class CommRuns implements AutoCloseable {
  /** For processes to start, to say where they hang, and to end. */
  private static final Duration STARTS_AND_ENDS = Duration.ofSeconds(30);

  private static final Duration TWIN_LIMIT = Duration.ofMinutes(2);
  private static final Duration BUILD_LIMIT = Duration.ofMinutes(1);
  private static final int RANKS = 2;

  private final List<InstalledMpi> launchers;

  /** Of our processes that a launcher started. */
  private final String transport;

  private final Path script;
  private final Progress progress;
  private final Path folder;
  private final Map<Flavour, Path> twins = new EnumMap<>(Flavour.class);
  private final @Nullable String hpgmg;
  private final Map<Flavour, Path> hpgmgs = new EnumMap<>(Flavour.class);
  private @Nullable String why;

  /**
   * Builds nothing yet.
   *
   * @param script builds the twin: {@code twin.sh}
   * @param transport what ranks of a launcher send by
   * @param hpgmg where HPGMG's sources are; null: nowhere
   */
  CommRuns(
      List<InstalledMpi> launchers,
      Path script,
      String transport,
      @Nullable String hpgmg,
      Progress progress)
      throws IOException {
    this.hpgmg = hpgmg;
    this.launchers = launchers;
    this.script = script;
    this.transport = transport;
    this.progress = progress;
    this.folder = Files.createTempDirectory("fairlead-twins");
  }

  /** Says something that was found. */
  void say(String what) {
    progress.done(what);
  }

  /** Forgets why something gave no samples. */
  void begin() {
    why = null;
  }

  /** Why the first process since {@link #begin} that gave no samples gave none, in a few words. */
  String why() {
    return why == null ? "not measured" : why;
  }

  private void failed(String inAWord, String text) {
    why = why == null ? inAWord : why;
    progress.done(text);
  }

  /** The MPI of that flavour, if it is here; told to who waits if not. */
  Optional<InstalledMpi> launcher(Flavour flavour) {
    Optional<InstalledMpi> found =
        launchers.stream().filter(each -> each.flavour() == flavour).findFirst();
    if (found.isEmpty()) {
      failed(
          "not here",
          "no " + flavour.word() + " here: its rows have no figures (scripts/install-peers)");
    }
    return found;
  }

  // --- ours
  // ---------------------------------------------------------------------------------------

  /** Measures in one process. */
  Map<String, Samples> inProcess(ChildProcess.Place place, Job job) throws Exception {
    return samples(() -> ChildProcess.onCores(place, job.properties(), job.args(), job.limit()));
  }

  /** Measures as two ranks; their samples together, rank 0's first. */
  Map<String, Samples> launched(InstalledMpi launcher, Binding binding, Job job) throws Exception {
    List<String> launch = launcher.command(RANKS, binding);
    List<String> args = new ArrayList<>(job.args());
    args.addAll(List.of("--transport", transport));
    List<String> command = new ArrayList<>(launch);
    command.addAll(ChildProcess.command(job.properties(), args));
    String what = String.join(" ", launch) + " fairlead " + String.join(" ", args);
    return samples(() -> ChildProcess.run(what, command, InstalledMpi::prepare, job.limit()));
  }

  /**
   * What our processes are to do.
   *
   * @param properties more options for their JVMs
   * @param ranks of V-cycles, where all live in one process
   * @param device whose memory they use
   */
  record Job(
      Set<Group> groups, int scale, int seed, List<String> properties, int ranks, String device) {
    Job(Set<Group> groups, int scale, int seed, List<String> properties) {
      this(groups, scale, seed, properties, RANKS);
    }

    Job(Set<Group> groups, int scale, int seed, List<String> properties, int ranks) {
      this(groups, scale, seed, properties, ranks, "host");
    }

    Job on(String other) {
      return new Job(groups, scale, seed, properties, ranks, other);
    }

    static Job of(Set<Group> groups, int scale) {
      return new Job(groups, scale, 0, List.of());
    }

    private List<String> args() {
      List<String> args = new ArrayList<>(List.of("bench", "comm-worker"));
      groups.forEach(group -> args.add(group.name()));
      args.addAll(List.of("--scale", "" + scale, "--seed", "" + seed, "--device", device));
      if (ranks != RANKS) {
        args.addAll(List.of("--ranks", "" + ranks));
      }
      return args;
    }

    private Duration limit() {
      return Group.limit(groups).plus(STARTS_AND_ENDS);
    }
  }

  // --- C
  // ------------------------------------------------------------------------------------------

  /** Runs parts of the twin. */
  Map<String, Samples> twin(InstalledMpi launcher, Binding binding, int scale, List<String> parts)
      throws Exception {
    Optional<Path> twin = built(launcher);
    if (twin.isEmpty()) {
      return Map.of();
    }
    List<String> command = new ArrayList<>(launcher.command(RANKS, binding));
    command.addAll(List.of(twin.get().toString(), "" + scale));
    command.addAll(parts);
    String what = String.join(" ", command);
    return samples(() -> ChildProcess.run(what, command, InstalledMpi::prepare, TWIN_LIMIT));
  }

  private Optional<Path> built(InstalledMpi launcher) throws Exception {
    return built("twin", script, launcher, twins);
  }

  /** Built once for each flavour. */
  private Optional<Path> built(
      String name, Path builder, InstalledMpi launcher, Map<Flavour, Path> before)
      throws Exception {
    Path known = before.get(launcher.flavour());
    if (known != null) {
      return Optional.of(known);
    }
    Path compiler = launcher.compiler();
    if (compiler == null || !Files.exists(builder)) {
      failed("no baseline", "no baseline in C: no compiler for " + launcher.describe());
      return Optional.empty();
    }
    Path file = folder.resolve(name + "." + launcher.flavour().word());
    List<String> command =
        List.of("bash", builder.toString(), compiler.toString(), file.toString());
    try {
      ChildProcess.run(String.join(" ", command), command, this::nameHpgmg, BUILD_LIMIT);
    } catch (ChildProcess.ChildFailedException bad) {
      failed("no baseline", "no baseline in C: " + bad.getMessage());
      return Optional.empty();
    }
    before.put(launcher.flavour(), file);
    return Optional.of(file);
  }

  private void nameHpgmg(Map<String, String> environment) {
    if (hpgmg != null) {
      environment.put("HPGMG", hpgmg);
    }
  }

  /** Whether nobody has said where HPGMG is. */
  boolean knowsNoHpgmg() {
    return hpgmg == null || hpgmg.isEmpty();
  }

  /** What HPGMG-FV prints on so many ranks, a core for each; nothing if it could not be run. */
  List<String> hpgmg(InstalledMpi launcher, int ranks, int logOfBox, int boxesPerRank)
      throws Exception {
    Optional<Path> program = built("hpgmg", script.resolveSibling("hpgmg.sh"), launcher, hpgmgs);
    if (program.isEmpty()) {
      return List.of();
    }
    List<String> command = new ArrayList<>(launcher.command(ranks, Binding.BOUND));
    command.addAll(List.of(program.get().toString(), "" + logOfBox, "" + boxesPerRank));
    String what = String.join(" ", command);
    try {
      return ChildProcess.run(what, command, InstalledMpi::prepare, TWIN_LIMIT).output();
    } catch (ChildProcess.ChildFailedException bad) {
      failed(bad.hung() ? "did not end" : "failed", String.valueOf(bad.getMessage()));
      return List.of();
    }
  }

  // --- both
  // ---------------------------------------------------------------------------------------

  private interface Run {
    ChildProcess.Result result() throws Exception;
  }

  /** By name; a name that several ranks print has all their samples. */
  private Map<String, Samples> samples(Run run) throws Exception {
    List<SampleLine> measured;
    try {
      measured = run.result().samples();
    } catch (ChildProcess.ChildFailedException bad) {
      failed(bad.hung() ? "did not end" : "failed", String.valueOf(bad.getMessage()));
      return Map.of();
    }
    Map<String, Samples> samples = new HashMap<>();
    measured.forEach(line -> samples.merge(line.name(), line.samples(), Samples::and));
    return samples;
  }

  /** In words: the medians of rounds, and how far they lie apart. */
  static String spread(Samples medians) {
    return String.format(
        Locale.ROOT, "%.4g [%.4g..%.4g]", medians.median(), medians.min(), medians.max());
  }

  @Override
  public void close() throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      for (Path file : files.toList()) {
        Files.delete(file);
      }
    }
    Files.delete(folder);
  }
}
