package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.cli.bench.ChildProcess.Place;
import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import java.util.function.ToDoubleFunction;
import org.jspecify.annotations.Nullable;

/**
 * Launches and waits on a GPU beside C (rows 000 and 001).
 *
 * <p>Each group of rows has a process of its own. What is compared with C is measured in turn with
 * it, bound to the same cores; waits as {@link CudaWaits} says. A row whose process failed or did
 * not end has no figure and says so; the others go on. Processes are counted in a row of their own
 * if they failed.
 */
final class CudaSuite implements PartwiseSuite {
  static final String LIBRARY_PROPERTY = "fairlead.cuda.library";
  static final int WAITERS = 100_000;
  static final int STREAMS = 256;
  static final int FAULT_WAITERS = 1_000;

  /** As the row has it. */
  private static final int FAULT_PROCESSES = 100;

  /** They share the GPU; more at once would mostly wait for its driver. */
  private static final int FAULTS_AT_ONCE = 8;

  /** None is begun after that; what the others have shown by then stands. */
  private static final Duration FAULTS_LIMIT = Duration.ofMinutes(3);

  private static final double MICROS = 1e-3;
  private static final double MILLIS = 1e-6;
  private static final int QUICK_SCALE = 4;
  private static final String FAILED = "cuda.failed_groups";

  private static final List<String> COSTS_OVER_C =
      List.of(
          "cuda.launch",
          "cuda.guard.current",
          "cuda.guard.c.push_pop",
          "cuda.guard.c.get_set_set",
          "cuda.guard.c.get");

  private final CudaPeer c;
  private final @Nullable Path image;
  private final List<Row> rows = new ArrayList<>();

  CudaSuite() {
    this(new CudaPeer(), null);
  }

  /**
   * Measures with another baseline and other kernels.
   *
   * @param image kernels in place of this program's own, for a driver that takes no PTX
   */
  CudaSuite(CudaPeer c, @Nullable Path image) {
    this.c = c;
    this.image = image;
  }

  @Override
  public String name() {
    return "cuda";
  }

  @Override
  public String about() {
    return "launches and waits on a GPU beside C, many waiters, interrupts, faults";
  }

  @Override
  public boolean takesOnly() {
    return true;
  }

  @Override
  public List<String> ids(Options options) {
    List<String> ids = new ArrayList<>();
    parts(options).forEach(part -> ids.addAll(part.ids()));
    ids.add(FAILED);
    return ids;
  }

  /**
   * What is measured together.
   *
   * @param ids the rows that it gives
   * @param measure measures and adds the rows
   */
  private record Part(String what, List<String> ids, Measure measure) {}

  private interface Measure {
    void run(CudaRuns runs) throws Exception;
  }

  /** In the order in which they are measured and shown. */
  private List<Part> parts(Options options) {
    int scale = options.quick() ? QUICK_SCALE : 1;
    List<Part> parts = new ArrayList<>();
    CudaWaits.all().forEach(waiters -> parts.add(waits(waiters, options, scale)));
    parts.addAll(
        List.of(
            new Part(
                "launches, finished waits, the context guard, interrupts",
                List.of(
                    "cuda.wait.done",
                    "cuda.wait.done.bytes",
                    "cuda.launch",
                    "cuda.guard.current",
                    "cuda.guard.free",
                    "cuda.guard.c.push_pop",
                    "cuda.guard.c.get_set_set",
                    "cuda.guard.c.get",
                    "cuda.interrupt.p99"),
                runs -> {
                  besideC(
                      options.wantsAny(COSTS_OVER_C), "costs", CudaWorker.Group.COSTS, scale, runs);
                  addCosts(runs);
                }),
            new Part(
                "waits beside busy carriers",
                List.of("cuda.wait.busy.forking", "cuda.wait.busy.loops"),
                runs -> {
                  runs.measure("busy", CudaWorker.Group.BUSY, scale, Place.all(), "own");
                  addBusy(runs);
                }),
            new Part(
                "allocations, pinned copies",
                List.of("cuda.alloc", "cuda.copy.up", "cuda.copy.down"),
                runs -> {
                  besideC(true, "memory", CudaWorker.Group.MEMORY, scale, runs);
                  addMemory(runs);
                }),
            new Part(
                "other libraries",
                CudaLibraries.ids(),
                runs -> rows.addAll(CudaLibraries.measure(options, scale, CudaWaits.most(), runs))),
            new Part(
                "V-cycles in each waiting mode",
                CudaVCycles.ids(),
                runs -> {
                  CudaVCycles.measure(options, runs);
                  rows.addAll(CudaVCycles.rows(runs));
                }),
            waits(CudaWaits.events(), options, scale),
            new Part(
                "long waits",
                CudaLongWaits.ids(),
                runs -> {
                  CudaLongWaits.measure(options, scale, runs);
                  rows.addAll(CudaLongWaits.rows(runs));
                }),
            new Part(
                String.format(
                    Locale.ROOT, "%d waiters, %d streams", WAITERS / scale, STREAMS / scale),
                List.of(
                    "cuda.wait.many.lost",
                    "cuda.wait.many.p99",
                    "cuda.wait.many.first",
                    "cuda.wait.many.last"),
                runs -> {
                  runs.measure("many", CudaWorker.Group.MANY, scale, Place.all(), "own");
                  addMany(runs);
                }),
            new Part(
                "faults",
                List.of(
                    "cuda.fault.last",
                    "cuda.fault.told",
                    "cuda.fault.causes",
                    "cuda.fault.site_unnamed"),
                runs -> {
                  for (int i = 0; i < (options.quick() ? 1 : 5); i++) {
                    runs.measure("fault", CudaWorker.Group.FAULT, scale, Place.all(), "own");
                  }
                  addFaults(runs);
                }),
            new Part(
                "faults in many processes",
                List.of("cuda.faults.hung", "cuda.faults.wrong"),
                runs -> addFaultCrowd(runs, scale, options.quick()))));
    return parts;
  }

  private Part waits(CudaWaits.Waiters waiters, Options options, int scale) {
    return new Part(
        waiters.what(),
        waiters.ids(),
        runs -> {
          waiters.measure(options, scale, runs);
          rows.addAll(waiters.rows(runs));
        });
  }

  /**
   * Measures.
   *
   * @throws io.fairlead.runtime.DriverUnavailableException if there is no GPU, with the reason
   */
  @Override
  public void run(Options options, Progress progress, Consumer<List<Row>> measured)
      throws Exception {
    requireDevice();
    rows.clear();
    CudaRuns runs = new CudaRuns(c, image, progress);
    for (Part part : parts(options)) {
      if (options.wantsAny(part.ids())) {
        runs.begin(part.what());
        part.measure().run(runs);
        measured.accept(
            part.ids().stream()
                .filter(options::wants)
                .map(id -> measured(id, runs.why()))
                .toList());
      }
    }
    measured.accept(List.of(Row.exact(FAILED, "groups", "lower", runs.failed()).bounds(0.0, null)));
  }

  private Row measured(String id, String why) {
    return rows.stream()
        .filter(row -> row.id().equals(id))
        .findFirst()
        .orElseGet(() -> Row.missing(id, why));
  }

  private static void requireDevice() {
    boolean there =
        Fairlead.drivers().stream()
            .filter(driver -> driver.name().equals("cuda"))
            .anyMatch(DriverReport::available);
    if (!there) {
      // refuses, and says why
      Fairlead.open(FairleadConfig.fromSystem().withDevice("cuda")).close();
    }
  }

  // --- measuring --------------------------------------------------------------------------------

  /** A worker, and before and after it C, on the same cores: all of them. */
  private static void besideC(
      boolean withC, String part, CudaWorker.Group group, int scale, CudaRuns runs)
      throws Exception {
    if (withC) {
      runs.measureC("c." + part, part, scale, Place.all());
    }
    runs.measure(part, group, scale, Place.all(), "own");
    if (withC) {
      runs.measureC("c." + part, part, scale, Place.all());
    }
  }

  // --- rows -------------------------------------------------------------------------------------

  private void addCosts(CudaRuns runs) {
    for (Samples done : runs.of("costs done.nanos")) {
      rows.add(Row.median("cuda.wait.done", "ns", "lower", done).bounds(50.0, 25.0));
    }
    for (Samples bytes : runs.of("costs done.bytes")) {
      rows.add(Row.exact("cuda.wait.done.bytes", "B", "lower", bytes.median()).bounds(0.0, null));
    }
    for (Samples launch : runs.of("costs launch")) {
      addLaunch(launch, runs);
    }
    for (Samples none : runs.of("costs guard.none")) {
      // what the guard alone costs is over the same call without it
      Samples call =
          runs.of("costs guard.unbound").isEmpty()
              ? none
              : runs.of("costs guard.unbound").getFirst();
      addGuard("cuda.guard.current", runs.of("costs guard.bound"), call, 60.0, 30.0, runs);
      addGuard("cuda.guard.free", runs.of("costs guard.unbound"), none, 5.0, 0.0, runs);
    }
    addGuardsInC(runs);
    for (Samples interrupt : runs.of("costs interrupt")) {
      rows.add(late("cuda.interrupt.p99", interrupt, MICROS, "us").bounds(200.0, 100.0));
    }
  }

  private void addLaunch(Samples ours, CudaRuns runs) {
    List<Samples> launches = runs.of("c.costs launch");
    if (launches.isEmpty()) {
      return;
    }
    double theirs = Samples.of(launches.stream().map(Samples::median).toList()).median();
    double ratio = ours.median() / theirs;
    rows.add(
        new Row(
            "cuda.launch",
            ratio,
            "x",
            "lower",
            theirs,
            ratio,
            ours.count(),
            ratio,
            ours.p99() / theirs,
            1.15,
            1.05));
  }

  /** Where a context is made current, beside what C takes for a push and a pop. */
  private void addGuard(
      String id, List<Samples> guarded, Samples none, double must, double goal, CudaRuns runs) {
    for (Samples each : guarded) {
      Row row = Row.median(id, "ns", "lower", each.minus(none)).bounds(must, goal);
      rows.add(
          id.endsWith(".current")
              ? besideC(row, "costs", "guard.push", runs, Samples::median)
              : row);
    }
  }

  /** What the calls themselves take, so that our share of a guard is seen. */
  private void addGuardsInC(CudaRuns runs) {
    addGuardInC("cuda.guard.c.push_pop", "guard.push", runs);
    addGuardInC("cuda.guard.c.get_set_set", "guard.set", runs);
    addGuardInC("cuda.guard.c.get", "guard.get", runs);
  }

  private void addGuardInC(String id, String name, CudaRuns runs) {
    List<Double> all = runs.of("c.costs " + name).stream().map(Samples::median).toList();
    if (!all.isEmpty()) {
      rows.add(Row.median(id, "ns", "lower", Samples.of(all)));
    }
  }

  private void addBusy(CudaRuns runs) {
    for (Samples forking : runs.of("busy busy.forking")) {
      rows.add(late("cuda.wait.busy.forking", forking, MICROS, "us").bounds(100.0, 50.0));
    }
    for (Samples loops : runs.of("busy busy.loops")) {
      rows.add(late("cuda.wait.busy.loops", loops, MICROS, "us").bounds(1000.0, 300.0));
    }
  }

  /** Beside C; bandwidths are in bytes for each nanosecond, which are gigabytes for each second. */
  private void addMemory(CudaRuns runs) {
    for (Samples pair : runs.of("memory alloc")) {
      Row row = Row.median("cuda.alloc", "ns", "lower", pair);
      rows.add(besideC(row, "memory", "alloc", runs, Samples::median));
    }
    for (String way : List.of("copy.up", "copy.down")) {
      for (Samples nanos : runs.of("memory " + way)) {
        Row row = Row.median("cuda." + way, "GB/s", "higher", nanos.map(CudaSuite::bandwidth));
        rows.add(
            besideC(row, "memory", way, runs, each -> each.map(CudaSuite::bandwidth).median()));
      }
    }
  }

  private static double bandwidth(double nanos) {
    return CudaMemoryProbes.COPIED_BYTES / nanos;
  }

  private static Row besideC(
      Row row, String part, String name, CudaRuns runs, ToDoubleFunction<Samples> figure) {
    double[] theirs = runs.of("c." + part + " " + name).stream().mapToDouble(figure).toArray();
    return theirs.length == 0 ? row : row.against(Samples.of(theirs).median());
  }

  private void addMany(CudaRuns runs) {
    for (Samples lost : runs.of("many many.lost")) {
      rows.add(
          Row.exact("cuda.wait.many.lost", "waiters", "lower", lost.median()).bounds(0.0, null));
    }
    for (Samples wakes : runs.of("many many.wake")) {
      rows.add(late("cuda.wait.many.p99", wakes, MICROS, "us").bounds(100.0, 50.0));
    }
    // at the median over the streams, the first that ran of each, and the last one
    for (String end : List.of("first", "last")) {
      for (Samples ofStreams : runs.of("many many." + end)) {
        rows.add(Row.median("cuda.wait.many." + end, "us", "lower", ofStreams.times(MICROS)));
      }
    }
  }

  /** The worst of all processes. */
  private void addFaults(CudaRuns runs) {
    if (runs.of("fault fault.nanos").isEmpty()) {
      return;
    }
    rows.add(worst("cuda.fault.last", runs.of("fault fault.nanos")));
    // without what the driver takes to say it
    rows.add(worst("cuda.fault.told", runs.of("fault fault.told")));
    double passed =
        Samples.of(runs.of("fault fault.passed").stream().map(Samples::max).toList()).max();
    double causes =
        Samples.of(runs.of("fault fault.causes").stream().map(Samples::max).toList()).max();
    double named =
        Samples.of(runs.of("fault fault.named").stream().map(Samples::min).toList()).min();
    // a waiter that did not fail has a cause of its own: none
    rows.add(Row.exact("cuda.fault.causes", "causes", "lower", causes + passed).bounds(1.0, null));
    rows.add(Row.exact("cuda.fault.site_unnamed", "faults", "lower", 1 - named).bounds(0.0, null));
  }

  /** The slowest waiter of all processes, in milliseconds; the samples are each process's. */
  private static Row worst(String id, List<Samples> processes) {
    Samples last = Samples.of(processes.stream().map(Samples::max).toList()).times(MILLIS);
    return new Row(
        id,
        last.max(),
        "ms",
        "lower",
        null,
        null,
        last.count(),
        last.median(),
        last.p99(),
        20.0,
        5.0);
  }

  /** Whether each of many processes ends after its fault, and has told it as it should. */
  private void addFaultCrowd(CudaRuns runs, int scale, boolean quick) throws Exception {
    int processes = quick ? 2 : FAULT_PROCESSES;
    int atOnce = Math.clamp(ChildProcess.cores(Integer.MAX_VALUE) / 2, 1, FAULTS_AT_ONCE);
    CudaRuns.Crowd crowd =
        runs.measureCrowd("crowd", CudaWorker.Group.FAULT, scale, processes, atOnce, FAULTS_LIMIT);
    sayPhases(runs);
    List<Samples> causes = runs.of("crowd fault.causes");
    List<Samples> passed = runs.of("crowd fault.passed");
    List<Samples> named = runs.of("crowd fault.named");
    int wrong = crowd.failed();
    for (int i = 0; i < named.size(); i++) {
      boolean right =
          causes.get(i).max() == 1 && passed.get(i).max() == 0 && named.get(i).min() == 1;
      wrong += right ? 0 : 1;
    }
    int ended = crowd.ended();
    rows.add(of(ended, Row.exact("cuda.faults.hung", "processes", "lower", crowd.hung())));
    rows.add(of(ended, Row.exact("cuda.faults.wrong", "processes", "lower", wrong)));
  }

  /** Where the time of a process goes. */
  private static void sayPhases(CudaRuns runs) {
    List<String> phases = new ArrayList<>();
    for (String phase : CudaWorker.PHASES) {
      List<Double> all = runs.of("crowd phase." + phase).stream().map(Samples::max).toList();
      if (!all.isEmpty()) {
        Samples seconds = Samples.of(all);
        phases.add(
            String.format(
                Locale.ROOT, "%.1f s %s (at most %.1f)", seconds.median(), phase, seconds.max()));
      }
    }
    runs.say("one of them: " + String.join(", ", phases) + ", then its exit");
  }

  /** One of so many, and none is allowed. */
  private static Row of(int all, Row row) {
    return new Row(
        row.id(),
        row.value(),
        row.unit(),
        row.better(),
        null,
        null,
        all,
        row.p50(),
        row.p99(),
        0.0,
        null);
  }

  /** A row whose value is the 99th percentile. */
  private static Row late(String id, Samples nanos, double factor, String unit) {
    Samples scaled = nanos.times(factor);
    return new Row(
        id,
        scaled.p99(),
        unit,
        "lower",
        null,
        null,
        scaled.count(),
        scaled.median(),
        scaled.p99(),
        null,
        null);
  }
}
