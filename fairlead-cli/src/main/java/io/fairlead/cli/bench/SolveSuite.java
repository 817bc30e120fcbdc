package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * The solver as a command, each run in a process of its own, so that the JVM's start and warm-up
 * are part of every figure: beside Jacobi, beside hypre where it is built, on several ranks, in
 * many jobs at once, and on a million unknowns.
 *
 * <p>The matrices of the dragon are not part of this repository; {@code FAIRLEAD_DATA} names the
 * folder that has them. Without it the rows that need them are left out, which is said.
 */
final class SolveSuite implements Suite {
  private static final List<String> DRAGONS = List.of("res4", "res3", "res2");
  private static final double[] ITERATIONS_MAX = {25, 30, 40};
  private static final int JOBS = 64;

  @Override
  public String name() {
    return "solve";
  }

  @Override
  public String about() {
    return "cold solves: beside Jacobi and hypre, on ranks, in 64 jobs at once, a million unknowns";
  }

  @Override
  public List<String> ids(Options options) {
    List<String> ids = new ArrayList<>();
    DRAGONS.forEach(name -> ids.add("solve." + name + ".iterations"));
    ids.add("solve.res2.ranks2_iterations");
    ids.add("solve.res2.ranks4_iterations");
    if (!options.quick()) {
      ids.add("solve.res2.seconds");
      ids.add("solve.res2.jacobi_over_amg");
      ids.add("solve.res2.over_hypre");
    }
    ids.add("solve.jobs64.seconds_over_one_by_one");
    ids.add("solve.jobs64.peak_over_limit");
    ids.add("solve.jobs64.cold_over_one_by_one");
    ids.add(poissonId(options));
    return ids;
  }

  private static String poissonId(Options options) {
    return "solve.poisson" + poissonGrid(options) + ".peak_memory";
  }

  private static int poissonGrid(Options options) {
    return options.quick() ? 40 : 100;
  }

  @Override
  public List<Row> run(Options options, Progress progress) throws Exception {
    List<Row> rows = new ArrayList<>();
    Path data = dragons();
    if (data == null) {
      progress.done(
          "no dragon matrices: FAIRLEAD_DATA is to name a folder that holds dragon_res4.mtx and the"
              + " others; their rows are left out");
    } else {
      addIterations(rows, data, progress);
      if (!options.quick()) {
        addTimes(rows, data, progress);
      }
    }
    progress.done(String.format(Locale.ROOT, "%d jobs at once, and one by one", JOBS));
    addJobs(rows, options, data);
    addMillion(rows, options, progress);
    return rows;
  }

  private static @Nullable Path dragons() {
    String named = System.getenv("FAIRLEAD_DATA");
    Path folder = Path.of(named == null ? "../shared/data" : named);
    return Files.exists(folder.resolve("dragon_res4.mtx")) ? folder : null;
  }

  private static Path matrix(Path data, String name) {
    Path packed = data.resolve("dragon_" + name + ".mtx.gz");
    return Files.exists(packed) ? packed : data.resolve("dragon_" + name + ".mtx");
  }

  private static List<String> solve(Path data, String name, String... more) {
    String file = matrix(data, name).toString();
    List<String> args = new ArrayList<>(List.of("solve", file, "--rhs"));
    args.add(file.replace(".mtx", "_b.mtx"));
    args.addAll(List.of("--device", "host", "--json", "-"));
    args.addAll(List.of(more));
    return args;
  }

  private static Report solved(List<String> args) throws Exception {
    return new Report(ChildProcess.run(args));
  }

  private static void addIterations(List<Row> rows, Path data, Progress progress) throws Exception {
    double one = 0;
    for (int i = 0; i < DRAGONS.size(); i++) {
      String name = DRAGONS.get(i);
      progress.done(String.format(Locale.ROOT, "iterations on %s", name));
      one = solved(solve(data, name)).number("iterations");
      rows.add(
          Row.exact("solve." + name + ".iterations", "iterations", "lower", one)
              .bounds(ITERATIONS_MAX[i], null));
    }
    for (String ranks : List.of("2", "4")) {
      double count = solved(solve(data, "res2", "--ranks", ranks)).number("iterations");
      rows.add(
          Row.exact("solve.res2.ranks" + ranks + "_iterations", "iterations", "lower", count)
              .against(one)
              .bounds(1.25 * one, null));
    }
  }

  private static void addTimes(List<Row> rows, Path data, Progress progress) throws Exception {
    int runs = 7;
    List<Double> amg = new ArrayList<>();
    List<Double> jacobi = new ArrayList<>();
    List<Double> hypre = new ArrayList<>();
    for (int run = 0; run < runs; run++) {
      progress.done(
          String.format(
              Locale.ROOT, "res2: multigrid, Jacobi and hypre in turn, %d of %d", run + 1, runs));
      amg.add(solved(solve(data, "res2")).setupAndSolve());
      jacobi.add(solved(solve(data, "res2", "--precond", "jacobi")).setupAndSolve());
      Hypre.seconds(matrix(data, "res2")).ifPresent(hypre::add);
    }
    Samples ours = Samples.of(amg);
    rows.add(Row.median("solve.res2.seconds", "s", "lower", ours));
    Samples over = Samples.of(jacobi).over(ours);
    rows.add(
        new Row(
            "solve.res2.jacobi_over_amg",
            over.median(),
            "x",
            "higher",
            ours.median(),
            over.median(),
            runs,
            over.median(),
            over.p99(),
            3.0,
            null));
    if (hypre.size() == runs) {
      rows.add(Row.ratio("solve.res2.over_hypre", ours, Samples.of(hypre)).bounds(3.0, 1.0));
    } else {
      progress.done(
          String.format(Locale.ROOT, "no hypre here (%s): its row is left out", Hypre.HOW));
    }
  }

  /**
   * One system in 64 jobs at once in memory for 16 of them, beside the same jobs one by one: warm
   * in one process, and as two cold commands. On the smallest dragon where it is there, else on a
   * Poisson problem of about that size.
   */
  private static void addJobs(List<Row> rows, Options options, @Nullable Path data)
      throws Exception {
    List<String> system =
        data == null
            ? List.of("solve", "--poisson", "17")
            : List.of("solve", matrix(data, "res4").toString());
    long limit = memoryForAQuarter(system);
    ChildProcess.Result child =
        ChildProcess.run(
            List.of(
                "bench",
                "jobs-worker",
                data == null ? "-" : matrix(data, "res4").toString(),
                "" + JOBS,
                "" + limit,
                options.quick() ? "3" : "15"));
    List<String> lines = child.lines("sample ");
    rows.add(
        Row.ratio("solve.jobs64.seconds_over_one_by_one", column(lines, 1), column(lines, 2))
            .bounds(1.0, null));
    double peak = column(child.lines("peak "), 1).max();
    rows.add(
        Row.exact("solve.jobs64.peak_over_limit", "x", "lower", peak / limit).bounds(1.0, null));
    rows.add(coldJobs(system, limit, options.quick() ? 3 : 9));
  }

  private static Samples column(List<String> lines, int index) {
    return Samples.of(
        lines.stream()
            .map(line -> List.of(line.split(" ", -1)).get(index))
            .mapToDouble(Double::parseDouble)
            .toArray());
  }

  private static Row coldJobs(List<String> system, long limit, int runs) throws Exception {
    List<Double> together = new ArrayList<>();
    List<Double> alone = new ArrayList<>();
    for (int run = 0; run < runs; run++) {
      together.add(solved(jobs(system, limit, JOBS)).number("solve"));
      alone.add(solved(jobs(system, limit, 1)).number("solve"));
    }
    return Row.ratio("solve.jobs64.cold_over_one_by_one", Samples.of(together), Samples.of(alone));
  }

  private static List<String> jobs(List<String> system, long limit, int atOnce) {
    return args(
        system,
        "--jobs",
        "" + JOBS,
        "--at-once",
        "" + atOnce,
        "--device-memory",
        "" + limit,
        "--json",
        "-");
  }

  private static List<String> args(List<String> system, String... more) {
    List<String> args = new ArrayList<>(system);
    args.addAll(List.of("--device", "host"));
    args.addAll(List.of(more));
    return args;
  }

  /**
   * What the matrix takes, and a quarter of what all jobs take: from one job's and two jobs' peak.
   */
  private static long memoryForAQuarter(List<String> system) throws Exception {
    double one = solved(args(system, "--json", "-")).number("peakBytes");
    double perSolve = solved(args(system, "--json", "-")).number("solveBytes");
    return (long) (one + (JOBS / 4 - 1) * perSolve);
  }

  private static void addMillion(List<Row> rows, Options options, Progress progress)
      throws Exception {
    int grid = poissonGrid(options);
    progress.done(String.format(Locale.ROOT, "%d^3 unknowns", grid));
    ChildProcess.Result child =
        ChildProcess.run(
            List.of("solve", "--poisson", "" + grid, "--device", "host", "--json", "-"));
    if (child.peakBytes() < 0) {
      progress.done("no time(1) here to tell a process's peak memory: that row is left out");
      return;
    }
    double gib = child.peakBytes() / (double) (1L << 30);
    rows.add(Row.exact(poissonId(options), "GiB", "lower", gib).bounds(4.0, null));
  }

  /** The figures in a solve's JSON report. */
  private record Report(ChildProcess.Result child) {
    double number(String key) {
      for (String line : child.output()) {
        String[] parts = line.strip().split("\": ", 2);
        if (parts.length == 2 && parts[0].equals("\"" + key)) {
          return Double.parseDouble(parts[1].replace(",", ""));
        }
      }
      throw new IllegalStateException("no figure '" + key + "' in " + child.output());
    }

    double setupAndSolve() {
      return number("setup") + number("solve");
    }
  }

  /** hypre's BoomerAMG-PCG, built and run by the script beside its source. */
  private static final class Hypre {
    static final String HOW = "see fairlead-lab/peers/hypre.sh for what it needs";

    private Hypre() {}

    /**
     * Its setup and solve on this matrix, by its own clock, on as many ranks as there are cores.
     */
    static Optional<Double> seconds(Path matrix) throws Exception {
      Path script =
          Path.of(System.getProperty("fairlead.root", "."), "fairlead-lab/peers/hypre.sh");
      if (!Files.isExecutable(script)) {
        return Optional.empty();
      }
      String file = matrix.toString();
      ProcessBuilder builder =
          new ProcessBuilder("bash", script.toString(), file, file.replace(".mtx", "_b.mtx"));
      builder.environment().put("RUNS", "1");
      builder.environment().put("RANKS", "" + Math.min(2, ChildProcess.cores(2)));
      Process process = builder.redirectError(ProcessBuilder.Redirect.DISCARD).start();
      String out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      boolean ended = process.waitFor(5, TimeUnit.MINUTES) && process.exitValue() == 0;
      return ended ? Optional.of(figure(out, "total")) : Optional.empty();
    }

    private static double figure(String json, String key) {
      int at = json.indexOf("\"" + key + "\": ");
      if (at < 0) {
        throw new IllegalStateException("no figure '" + key + "' in " + json);
      }
      return Double.parseDouble(json.substring(at + key.length() + 4).split("[,}]", 2)[0].strip());
    }
  }
}
