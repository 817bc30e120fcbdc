package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Launches and waits on a GPU beside C (rows 000 and 001).
 *
 * <p>Each group of rows has a process of its own. Waits are measured in rounds, in which C, each
 * number of carriers and the JDK's carriers take turns; a figure over C's is the median over the
 * rounds. What a group that failed would have given is left out, which is said, and counted in a
 * row of its own.
 */
final class CudaSuite implements Suite {
  static final String LIBRARY_PROPERTY = "fairlead.cuda.library";
  static final int WAITERS = 100_000;
  static final int STREAMS = 256;
  static final int FAULT_WAITERS = 1_000;

  private static final double MICROS = 1e-3;
  private static final double MILLIS = 1e-6;
  private static final List<Integer> CARRIERS = List.of(1, 2, 8);
  private static final List<Integer> KERNEL_MICROS = List.of(0, 20, 200);
  private static final int QUICK_SCALE = 4;

  private final CudaPeer peer;

  /** Kernels in place of this program's own, for a driver that takes no PTX. */
  private final @Nullable Path image;

  private final List<Row> rows = new ArrayList<>();

  /** By who measured and what: {@code c wait.20}; one entry for each round. */
  private final Map<String, List<Samples>> samples = new HashMap<>();

  private int failed;

  CudaSuite() {
    this(new CudaPeer(), null);
  }

  CudaSuite(CudaPeer peer, @Nullable Path image) {
    this.peer = peer;
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
  public List<String> ids(Options options) {
    List<String> ids = new ArrayList<>();
    for (int carriers : carriers()) {
      KERNEL_MICROS.forEach(micros -> ids.add(wait("own", own(carriers), micros)));
    }
    KERNEL_MICROS.forEach(micros -> ids.add(wait("jdk", "", micros)));
    for (int carriers : carriers()) {
      KERNEL_MICROS.forEach(micros -> ids.add(tail(own(carriers), micros)));
    }
    ids.addAll(
        List.of(
            "cuda.wait.done",
            "cuda.wait.done.bytes",
            "cuda.launch",
            "cuda.guard.current",
            "cuda.guard.free",
            "cuda.interrupt.p99",
            "cuda.wait.many.lost",
            "cuda.wait.many.p99",
            "cuda.fault.last",
            "cuda.fault.causes",
            "cuda.fault.site_unnamed",
            "cuda.failed_groups"));
    return ids;
  }

  private static List<Integer> carriers() {
    int cores = ChildProcess.cores(Integer.MAX_VALUE);
    return CARRIERS.stream().filter(each -> each <= cores).toList();
  }

  private static String own(int carriers) {
    return "." + carriers + (carriers == 1 ? "carrier" : "carriers");
  }

  private static String wait(String carriers, String more, int micros) {
    return "cuda.wait.parked." + carriers + more + "." + micros + "us";
  }

  private static String tail(String more, int micros) {
    return "cuda.wait.p99" + more + "." + micros + "us";
  }

  /**
   * @throws io.fairlead.runtime.DriverUnavailableException if there is no GPU, with the reason
   */
  @Override
  public List<Row> run(Options options, Progress progress) throws Exception {
    requireDevice();
    int scale = options.quick() ? QUICK_SCALE : 1;
    measureWaits(options.quick() ? 1 : 3, scale, progress);
    addWaits();
    progress.done("launches, finished waits, the context guard, interrupts");
    measure("costs", CudaWorker.Group.COSTS, scale, 0, "own", progress);
    addCosts();
    progress.done(
        String.format(Locale.ROOT, "%d waiters on %d streams", WAITERS / scale, STREAMS / scale));
    measure("many", CudaWorker.Group.MANY, scale, 0, "own", progress);
    addMany();
    int faults = options.quick() ? 1 : 5;
    for (int i = 0; i < faults; i++) {
      progress.done(String.format(Locale.ROOT, "a fault, %d of %d", i + 1, faults));
      measure("fault", CudaWorker.Group.FAULT, scale, 0, "own", progress);
    }
    addFaults();
    rows.add(Row.exact("cuda.failed_groups", "groups", "lower", failed).bounds(0.0, null));
    return rows;
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

  private void measureWaits(int rounds, int scale, Progress progress) throws Exception {
    boolean hasPeer = true;
    for (int round = 0; round < rounds; round++) {
      progress.done(
          String.format(
              Locale.ROOT, "waits: C, own carriers, the JDK's, %d of %d", round + 1, rounds));
      hasPeer = hasPeer && measurePeer(scale, progress);
      for (int carriers : carriers()) {
        measure(own(carriers), CudaWorker.Group.WAITS, scale, carriers, "own", progress);
      }
      measure("jdk", CudaWorker.Group.WAITS, scale, 0, "jdk", progress);
    }
  }

  private boolean measurePeer(int scale, Progress progress)
      throws IOException, InterruptedException {
    Path kernels = image == null ? Files.createTempFile("fairlead-kernels", ".ptx") : image;
    try {
      if (image == null) {
        Files.writeString(kernels, CudaWorker.kernels());
      }
      take("c", peer.samples(kernels, scale));
      return true;
    } catch (CudaPeer.MissingException none) {
      failed++;
      progress.done("no baseline in C: " + none.getMessage() + "; rows over it are left out");
      return false;
    } finally {
      if (image == null) {
        Files.delete(kernels);
      }
    }
  }

  /**
   * Runs a worker.
   *
   * @param cores 0: all there are
   */
  private void measure(
      String who, CudaWorker.Group group, int scale, int cores, String carriers, Progress progress)
      throws Exception {
    List<String> args = new ArrayList<>(List.of("bench", "cuda-worker", group.name()));
    args.addAll(List.of("--scale", "" + scale));
    if (image != null) {
      args.addAll(List.of("--image", image.toString()));
    }
    List<String> properties = new ArrayList<>(List.of("-Dfairlead.carriers=" + carriers));
    String library = System.getProperty(LIBRARY_PROPERTY);
    if (library != null) {
      properties.add("-D" + LIBRARY_PROPERTY + "=" + library);
    }
    int wanted = cores == 0 ? ChildProcess.cores(Integer.MAX_VALUE) : cores;
    try {
      take(who, ChildProcess.onCores(wanted, properties, args).lines("samples "));
    } catch (ChildProcess.ChildFailedException hungOrFailed) {
      failed++;
      progress.done(String.valueOf(hungOrFailed.getMessage()));
    }
  }

  /** Takes lines as C and the workers print them. */
  void take(String who, List<String> lines) {
    for (String line : lines) {
      List<String> words = List.of(line.strip().split(" +", -1));
      if (words.size() > 2) {
        double[] values =
            words.subList(2, words.size()).stream().mapToDouble(Double::parseDouble).toArray();
        samples
            .computeIfAbsent(who + " " + words.get(1), key -> new ArrayList<>())
            .add(Samples.of(values));
      }
    }
  }

  // --- rows -------------------------------------------------------------------------------------

  private List<Samples> of(String name) {
    return samples.getOrDefault(name, List.of());
  }

  private void addWaits() {
    for (int carriers : carriers()) {
      for (int micros : KERNEL_MICROS) {
        addOverC(wait("own", own(carriers), micros), own(carriers), micros, false, 2.0, 0.5);
      }
    }
    for (int micros : KERNEL_MICROS) {
      addOverC(wait("jdk", "", micros), "jdk", micros, false, 15.0, 5.0);
    }
    for (int carriers : carriers()) {
      for (int micros : KERNEL_MICROS) {
        addOverC(tail(own(carriers), micros), own(carriers), micros, true, 10.0, 3.0);
      }
    }
  }

  /** What we take more than C: at the median, or at the 99th percentile. */
  private void addOverC(
      String id, String who, int micros, boolean atTail, double must, double goal) {
    List<Samples> ours = of(who + " wait." + micros);
    List<Samples> theirs = of("c wait." + micros);
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
      double must,
      double goal) {
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

  private void addCosts() {
    for (Samples done : of("costs done.nanos")) {
      rows.add(Row.median("cuda.wait.done", "ns", "lower", done).bounds(50.0, 25.0));
    }
    for (Samples bytes : of("costs done.bytes")) {
      rows.add(Row.exact("cuda.wait.done.bytes", "B", "lower", bytes.median()).bounds(0.0, null));
    }
    for (Samples launch : of("costs launch")) {
      addLaunch(launch);
    }
    for (Samples none : of("costs guard.none")) {
      // what the guard alone costs is over the same call without it
      Samples call =
          of("costs guard.unbound").isEmpty() ? none : of("costs guard.unbound").getFirst();
      addGuard("cuda.guard.current", of("costs guard.bound"), call, 60.0, 30.0);
      addGuard("cuda.guard.free", of("costs guard.unbound"), none, 5.0, 0.0);
    }
    for (Samples interrupt : of("costs interrupt")) {
      rows.add(late("cuda.interrupt.p99", interrupt, MICROS, "us").bounds(200.0, 100.0));
    }
  }

  private void addLaunch(Samples ours) {
    if (of("c launch").isEmpty()) {
      return;
    }
    double theirs = Samples.of(of("c launch").stream().map(Samples::median).toList()).median();
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

  private void addMany() {
    for (Samples lost : of("many many.lost")) {
      rows.add(
          Row.exact("cuda.wait.many.lost", "waiters", "lower", lost.median()).bounds(0.0, null));
    }
    for (Samples wakes : of("many many.wake")) {
      rows.add(late("cuda.wait.many.p99", wakes, MICROS, "us").bounds(100.0, 50.0));
    }
  }

  /** The worst of all processes. */
  private void addFaults() {
    if (of("fault fault.nanos").isEmpty()) {
      return;
    }
    Samples last =
        Samples.of(of("fault fault.nanos").stream().map(Samples::max).toList()).times(MILLIS);
    rows.add(
        new Row(
            "cuda.fault.last",
            last.max(),
            "ms",
            "lower",
            null,
            null,
            last.count(),
            last.median(),
            last.p99(),
            20.0,
            5.0));
    double passed = Samples.of(of("fault fault.passed").stream().map(Samples::max).toList()).max();
    double causes = Samples.of(of("fault fault.causes").stream().map(Samples::max).toList()).max();
    double named = Samples.of(of("fault fault.named").stream().map(Samples::min).toList()).min();
    // a waiter that did not fail has a cause of its own: none
    rows.add(Row.exact("cuda.fault.causes", "causes", "lower", causes + passed).bounds(1.0, null));
    rows.add(Row.exact("cuda.fault.site_unnamed", "faults", "lower", 1 - named).bounds(0.0, null));
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
