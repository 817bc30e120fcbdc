package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import org.jspecify.annotations.Nullable;

/**
 * Launches and waits on a GPU beside C (rows 000 and 001).
 *
 * <p>Each group of rows has a process of its own. Waits are measured in rounds, in which C, each
 * number of carriers and the JDK's carriers take turns; a figure over C's is the median over the
 * rounds. A row whose process failed or did not end has no figure and says so; the others go on.
 * Processes are counted in a row of their own if they failed.
 */
final class CudaSuite implements Suite {
  static final String LIBRARY_PROPERTY = "fairlead.cuda.library";
  static final int WAITERS = 100_000;
  static final int STREAMS = 256;
  static final int FAULT_WAITERS = 1_000;

  /** As the row has it. */
  private static final int FAULT_PROCESSES = 100;

  /** They share the GPU; more at once would mostly wait for its driver. */
  private static final int FAULTS_AT_ONCE = 8;

  private static final double MICROS = 1e-3;
  private static final double MILLIS = 1e-6;
  private static final List<Integer> CARRIERS = List.of(1, 2, 8);
  private static final List<Integer> KERNEL_MICROS = List.of(0, 20, 200);
  private static final int QUICK_SCALE = 4;
  private static final String FAILED = "cuda.failed_groups";

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
    return List.of(
        new Part(
            "waits",
            waitIds(),
            runs -> {
              measureWaits(options, scale, runs);
              addWaits(runs);
            }),
        new Part(
            "launches, finished waits, the context guard, interrupts",
            List.of(
                "cuda.wait.done",
                "cuda.wait.done.bytes",
                "cuda.launch",
                "cuda.guard.current",
                "cuda.guard.free",
                "cuda.interrupt.p99"),
            runs -> {
              if (options.wants("cuda.launch")) {
                requireC(scale, runs);
              }
              runs.measure("costs", CudaWorker.Group.COSTS, scale, 0, "own");
              addCosts(runs);
            }),
        new Part(
            "waits beside busy carriers",
            List.of("cuda.wait.busy.forking", "cuda.wait.busy.loops"),
            runs -> {
              runs.measure("busy", CudaWorker.Group.BUSY, scale, 0, "own");
              addBusy(runs);
            }),
        new Part(
            "allocations, pinned copies",
            List.of("cuda.alloc", "cuda.copy.up", "cuda.copy.down"),
            runs -> {
              requireC(scale, runs);
              runs.measure("memory", CudaWorker.Group.MEMORY, scale, 0, "own");
              addMemory(runs);
            }),
        new Part(
            "other libraries",
            CudaLibraries.ids(),
            runs -> rows.addAll(CudaLibraries.measure(options, scale, runs))),
        new Part(
            "V-cycles in each waiting mode",
            CudaVCycles.ids(),
            runs -> {
              CudaVCycles.measure(options, runs);
              rows.addAll(CudaVCycles.rows(runs));
            }),
        new Part(
            "waits with events in place of tickets",
            KERNEL_MICROS.stream().map(CudaLongWaits::events).toList(),
            runs -> {
              requireC(scale, runs);
              CudaLongWaits.measureEvents(scale, carriers().getLast(), runs);
              for (int micros : KERNEL_MICROS) {
                String id = CudaLongWaits.events(micros);
                addOverC(runs, id, CudaLongWaits.events(), micros, false, 5.0, 2.0);
              }
            }),
        new Part(
            "long waits",
            CudaLongWaits.ids(),
            runs -> {
              CudaLongWaits.measure(options, scale, runs);
              rows.addAll(CudaLongWaits.rows(runs));
            }),
        new Part(
            String.format(Locale.ROOT, "%d waiters, %d streams", WAITERS / scale, STREAMS / scale),
            List.of("cuda.wait.many.lost", "cuda.wait.many.p99"),
            runs -> {
              runs.measure("many", CudaWorker.Group.MANY, scale, 0, "own");
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
                runs.measure("fault", CudaWorker.Group.FAULT, scale, 0, "own");
              }
              addFaults(runs);
            }),
        new Part(
            "faults in many processes",
            List.of("cuda.faults.hung", "cuda.faults.wrong"),
            runs -> addFaultCrowd(runs, scale, options.quick())));
  }

  private static List<String> waitIds() {
    List<String> ids = new ArrayList<>();
    for (String who : waiters()) {
      KERNEL_MICROS.forEach(micros -> ids.add(wait(who, micros)));
    }
    for (String who : waiters()) {
      KERNEL_MICROS.forEach(micros -> ids.add(tail(who, micros)));
    }
    return ids;
  }

  /** Who waits: our carriers in each number, and the JDK's. */
  private static List<String> waiters() {
    List<String> who = new ArrayList<>(carriers().stream().map(CudaSuite::own).toList());
    who.add("jdk");
    return who;
  }

  private static List<Integer> carriers() {
    int cores = ChildProcess.cores(Integer.MAX_VALUE);
    return CARRIERS.stream().filter(each -> each <= cores).toList();
  }

  private static String own(int carriers) {
    return "own." + carriers + (carriers == 1 ? "carrier" : "carriers");
  }

  private static String wait(String who, int micros) {
    return "cuda.wait.parked." + who + "." + micros + "us";
  }

  private static String tail(String who, int micros) {
    return "cuda.wait.p99." + who + "." + micros + "us";
  }

  /**
   * Measures.
   *
   * @throws io.fairlead.runtime.DriverUnavailableException if there is no GPU, with the reason
   */
  @Override
  public List<Row> run(Options options, Progress progress) throws Exception {
    requireDevice();
    CudaRuns runs = new CudaRuns(c, image, progress);
    Map<String, Row> wanted = new LinkedHashMap<>();
    for (Part part : parts(options)) {
      if (options.wantsAny(part.ids())) {
        runs.begin(part.what());
        part.measure().run(runs);
        part.ids().stream()
            .filter(options::wants)
            .forEach(id -> wanted.put(id, measured(id, runs.why())));
      }
    }
    wanted.put(FAILED, Row.exact(FAILED, "groups", "lower", runs.failed()).bounds(0.0, null));
    return List.copyOf(wanted.values());
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

  private static void measureWaits(Options options, int scale, CudaRuns runs) throws Exception {
    boolean hasC = true;
    for (int round = 0; round < (options.quick() ? 1 : 3); round++) {
      hasC = hasC && runs.measureC(scale);
      for (int carriers : carriers()) {
        measureWaits(options, own(carriers), scale, carriers, "own", runs);
      }
      measureWaits(options, "jdk", scale, 0, "jdk", runs);
    }
  }

  private static void measureWaits(
      Options options, String who, int scale, int cores, String carriers, CudaRuns runs)
      throws Exception {
    if (KERNEL_MICROS.stream()
        .anyMatch(micros -> options.wants(wait(who, micros)) || options.wants(tail(who, micros)))) {
      runs.measure(who, CudaWorker.Group.WAITS, scale, cores, carriers);
    }
  }

  /** C's figures, unless some rows before needed them. */
  private static void requireC(int scale, CudaRuns runs) throws Exception {
    if (runs.of("c launch").isEmpty()) {
      runs.measureC(scale);
    }
  }

  // --- rows -------------------------------------------------------------------------------------

  private void addWaits(CudaRuns runs) {
    for (String who : waiters()) {
      boolean own = !who.equals("jdk");
      for (int micros : KERNEL_MICROS) {
        addOverC(runs, wait(who, micros), who, micros, false, own ? 2.0 : 15.0, own ? 0.5 : 5.0);
        addOverC(runs, tail(who, micros), who, micros, true, own ? 10.0 : null, own ? 3.0 : null);
      }
    }
  }

  /** What we take more than C: at the median, or at the 99th percentile. */
  private void addOverC(
      CudaRuns runs,
      String id,
      String who,
      int micros,
      boolean atTail,
      @Nullable Double must,
      @Nullable Double goal) {
    List<Samples> ours = runs.of(who + " wait." + micros);
    List<Samples> theirs = runs.of("c wait." + micros);
    int rounds = Math.min(ours.size(), theirs.size());
    if (rounds > 0) {
      rows.add(over(id, ours.subList(0, rounds), theirs.subList(0, rounds), atTail, must, goal));
    }
  }

  static Row over(
      String id,
      List<Samples> ours,
      List<Samples> theirs,
      boolean atTail,
      @Nullable Double must,
      @Nullable Double goal) {
    Samples mine = figures(ours, atTail);
    Samples baseline = figures(theirs, atTail);
    return new Row(
        id,
        mine.minus(baseline).median(),
        "us",
        "lower",
        baseline.median(),
        mine.over(baseline).median(),
        ours.stream().mapToInt(Samples::count).sum(),
        figures(ours, false).median(),
        figures(ours, true).median(),
        must,
        goal);
  }

  /** One for each round, in microseconds. */
  private static Samples figures(List<Samples> rounds, boolean atTail) {
    return Samples.of(
            rounds.stream().mapToDouble(each -> atTail ? each.p99() : each.median()).toArray())
        .times(MICROS);
  }

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
      addGuard("cuda.guard.current", runs.of("costs guard.bound"), call, 60.0, 30.0);
      addGuard("cuda.guard.free", runs.of("costs guard.unbound"), none, 5.0, 0.0);
    }
    for (Samples interrupt : runs.of("costs interrupt")) {
      rows.add(late("cuda.interrupt.p99", interrupt, MICROS, "us").bounds(200.0, 100.0));
    }
  }

  private void addLaunch(Samples ours, CudaRuns runs) {
    if (runs.of("c launch").isEmpty()) {
      return;
    }
    double theirs = Samples.of(runs.of("c launch").stream().map(Samples::median).toList()).median();
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

  private void addGuard(String id, List<Samples> guarded, Samples none, double must, double goal) {
    for (Samples each : guarded) {
      rows.add(Row.median(id, "ns", "lower", each.minus(none)).bounds(must, goal));
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
      rows.add(besideC(row, "alloc", runs, Samples::median));
    }
    for (String way : List.of("copy.up", "copy.down")) {
      for (Samples nanos : runs.of("memory " + way)) {
        Row row = Row.median("cuda." + way, "GB/s", "higher", nanos.map(CudaSuite::bandwidth));
        rows.add(besideC(row, way, runs, each -> each.map(CudaSuite::bandwidth).median()));
      }
    }
  }

  private static double bandwidth(double nanos) {
    return CudaMemoryProbes.COPIED_BYTES / nanos;
  }

  private static Row besideC(
      Row row, String name, CudaRuns runs, ToDoubleFunction<Samples> figure) {
    double[] theirs = runs.of("c " + name).stream().mapToDouble(figure).toArray();
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
    CudaRuns.Lost lost =
        runs.measureCrowd("crowd", CudaWorker.Group.FAULT, scale, processes, atOnce);
    List<Samples> causes = runs.of("crowd fault.causes");
    List<Samples> passed = runs.of("crowd fault.passed");
    List<Samples> named = runs.of("crowd fault.named");
    int wrong = lost.failed();
    for (int i = 0; i < named.size(); i++) {
      boolean right =
          causes.get(i).max() == 1 && passed.get(i).max() == 0 && named.get(i).min() == 1;
      wrong += right ? 0 : 1;
    }
    rows.add(of(processes, Row.exact("cuda.faults.hung", "processes", "lower", lost.hung())));
    rows.add(of(processes, Row.exact("cuda.faults.wrong", "processes", "lower", wrong)));
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
