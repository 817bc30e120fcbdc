package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.memory.MemoryPool;
import io.fairlead.memory.MemoryStats;
import io.fairlead.memory.SpillConfig;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.PrintWriter;
import java.io.Writer;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/** What memory costs on a device: the ledger, the pool, and how much of the limit can be had. */
final class MemorySuite implements PartwiseSuite {
  /** A request that finds no room while others hold all of it. */
  private static final Duration REFUSED_AFTER = Duration.ofSeconds(1);

  private static final int SEEDS = 3;
  private static final double PERCENT = 100;
  private static final double NANOS_PER_MILLI = 1e6;
  private static final int OOM_SEEDS = 20;
  private static final long OOM_BYTES = 16L << 20;

  /** Little, so that most of the time goes into waiting. */
  private static final long MANY_BYTES = 1L << 20;

  private final MemoryPeer c;

  MemorySuite() {
    this(new MemoryPeer());
  }

  /** Measures beside another baseline in C. */
  MemorySuite(MemoryPeer c) {
    this.c = c;
  }

  @Override
  public String name() {
    return "memory";
  }

  @Override
  public String about() {
    return "what the ledger and the pool cost, and how much of the device's memory can be had";
  }

  @Override
  public boolean takesOnly() {
    return true;
  }

  @Override
  public boolean takesDevice() {
    return true;
  }

  @Override
  public List<String> ids(Options options) {
    return Part.ids(
        parts(BenchDevice.of(options), Progress.to(new PrintWriter(Writer.nullWriter()), false)));
  }

  /**
   * Measures.
   *
   * @throws io.fairlead.runtime.DriverUnavailableException if the device is not there
   */
  @Override
  public void run(Options options, Progress progress, Consumer<List<Row>> measured)
      throws Exception {
    BenchDevice device = BenchDevice.of(options);
    try (Fairlead fairlead = device.open()) {
      progress.done(BenchDevice.describe(fairlead.device()));
    }
    Part.run(parts(device, progress), options, progress, measured);
  }

  private List<Part> parts(BenchDevice device, Progress progress) {
    return List.of(
        new Part(
            "the ledger",
            List.of(
                "memory.ledger.read",
                "memory.ledger.write",
                "memory.ledger.one",
                "memory.ledger.calls"),
            () -> ledger(device)),
        new Part(
            "allocations",
            List.of("memory.alloc", "memory.alloc.used"),
            () -> allocations(device, progress)),
        new Part(
            "allocations on a device that is nearly full",
            List.of("memory.alloc.full"),
            () -> allocationsOnFull(device)),
        new Part("how much can be had", List.of("memory.usable"), () -> usable(device, progress)),
        new Part(
            "work that has too little memory together",
            List.of("oom.false"),
            () -> needless(device, progress)),
        new Part("tasks that wait for each other", List.of("oom.found"), () -> found(device)),
        new Part(
            "very many tasks that wait for memory",
            List.of("oom.scale", "oom.scale.blocked"),
            () -> many(device, progress)));
  }

  private static List<Row> ledger(BenchDevice device) {
    try (Fairlead fairlead = device.open()) {
      MemoryProbes.Ledger ledger = new MemoryProbes(fairlead, device.scale()).ledger();
      Samples none = ledger.none();
      double each = 1.0 / MemoryProbes.OPERANDS;
      double plain = ledger.plain().times(each).median();
      return List.of(
          use("memory.ledger.read", ledger.reads().minus(none).times(each), plain),
          use("memory.ledger.write", ledger.writes().minus(none).times(each), plain),
          use("memory.ledger.one", ledger.one().minus(none), plain),
          Row.exact("memory.ledger.calls", "calls", "lower", ledger.calls()).bounds(0.0, null));
    }
  }

  /** Beside an operand that keeps no ledger. */
  private static Row use(String id, Samples nanos, double plain) {
    return Row.median(id, "ns", "lower", nanos).against(plain).bounds(25.0, 15.0);
  }

  private List<Row> allocations(BenchDevice device, Progress progress) throws Exception {
    Samples pairs;
    Samples used;
    try (Fairlead fairlead = device.open()) {
      MemoryProbes probes = new MemoryProbes(fairlead, device.scale());
      pairs = Samples.of(probes.pairs());
      used = Samples.of(probes.usedPairs());
    }
    @Nullable Samples theirs =
        device.isCuda() ? c.samples(device.scale(), progress).get("alloc") : ofDriver(device);
    Row row = Row.median("memory.alloc", "ns", "lower", pairs).bounds(200.0, 100.0);
    return List.of(
        theirs == null ? row : row.against(theirs.median()),
        Row.median("memory.alloc.used", "ns", "lower", used));
  }

  private static Samples ofDriver(BenchDevice device) {
    try (Fairlead fairlead = device.open(config -> withPool(config, MemoryPool.DRIVER))) {
      return Samples.of(new MemoryProbes(fairlead, device.scale()).pairs());
    }
  }

  private static FairleadConfig withPool(FairleadConfig config, MemoryPool pool) {
    return config.withMemory(config.memory().withPool(pool));
  }

  /** With nothing spilled: what does not fit is refused. */
  private static FairleadConfig inCore(FairleadConfig config) {
    return config.withMemory(config.memory().withSpill(SpillConfig.OFF));
  }

  private static List<Row> allocationsOnFull(BenchDevice device) {
    try (Fairlead fairlead = device.open(MemorySuite::inCore)) {
      double[][] medians = new MemoryProbes(fairlead, device.scale()).pairsEmptyAndFull();
      Row row =
          Row.ratio("memory.alloc.full", Samples.of(medians[1]), Samples.of(medians[0]))
              .bounds(4.0, 2.0);
      return List.of(row);
    }
  }

  private static List<Row> needless(BenchDevice device, Progress progress) {
    long rollbacks = 0;
    long needless = 0;
    for (int seed = 0; seed < (device.quick() ? 3 : OOM_SEEDS); seed++) {
      try (Fairlead fairlead = device.open(config -> scarce(config, OOM_BYTES))) {
        MemoryStats.Waits waits = new OomProbes(fairlead).pieces(seed);
        rollbacks += waits.rollbacks() + waits.splits();
        needless += waits.needless();
      }
    }
    progress.done(needless + " of " + rollbacks + " rollbacks without need");
    return List.of(needless("oom.false", needless, rollbacks));
  }

  /** None of none says nothing. */
  private static Row needless(String id, long needless, long rollbacks) {
    return rollbacks == 0
        ? Row.missing(id, "no rollback")
        : Row.exact(id, "rollbacks", "lower", (double) needless).bounds(0.0, 0.0);
  }

  private static List<Row> found(BenchDevice device) {
    int rounds = device.quick() ? 50 : 500;
    try (Fairlead fairlead = device.open(config -> scarce(config, OOM_BYTES))) {
      OomProbes probes = new OomProbes(fairlead);
      probes.found(rounds);
      Samples millis = Samples.of(probes.found(rounds)).times(1 / NANOS_PER_MILLI);
      return List.of(Row.late("oom.found", "ms", millis).bounds(10.0, 1.0));
    }
  }

  private static List<Row> many(BenchDevice device, Progress progress) {
    int tasks = device.quick() ? 10_000 : 100_000;
    try (Fairlead fairlead = device.open(config -> scarce(config, MANY_BYTES));
        CarrierWatch watch = CarrierWatch.begin()) {
      double seconds = new OomProbes(fairlead).many(tasks) / NANOS_PER_MILLI / 1000;
      MemoryStats.Waits waits = fairlead.device().memory().waits();
      int blocked = watch.blocked();
      progress.done(
          String.format(
              Locale.ROOT,
              "%d tasks in %.1f s, %d of %d rollbacks without need; %d looks at the carriers",
              tasks,
              seconds,
              waits.needless(),
              waits.rollbacks(),
              watch.looks()));
      return List.of(
          needless("oom.scale", waits.needless(), waits.rollbacks()),
          Row.exact("oom.scale.blocked", "carriers", "lower", blocked).bounds(0.0, 0.0));
    }
  }

  /**
   * So little of a device that has more, and room in host memory for what has to leave it; nobody
   * fails by time.
   */
  private static FairleadConfig scarce(FairleadConfig config, long bytes) {
    MemoryConfig memory =
        config
            .memory()
            .withLimit(bytes)
            .withWait(Duration.ofHours(1))
            .withGrace(Duration.ofHours(1))
            .withSpill(SpillConfig.TO_HOST.withHostBytesMax(8 * bytes));
    return config.withDeviceMemory(0).withMemory(memory);
  }

  /** The least of several traces, beside the driver's own pool. */
  private static List<Row> usable(BenchDevice device, Progress progress) {
    int seeds = device.quick() ? 1 : SEEDS;
    double[] ours = new double[seeds];
    double[] theirs = new double[seeds];
    for (int seed = 0; seed < seeds; seed++) {
      ours[seed] = usable(device, MemoryPool.FAIRLEAD, seed, progress);
      theirs[seed] = usable(device, MemoryPool.DRIVER, seed, progress);
      progress.done("seed " + seed + ": " + ours[seed] + " %");
    }
    Samples all = Samples.of(ours);
    double least = Samples.of(theirs).min();
    Row row =
        new Row(
            "memory.usable",
            all.min(),
            "%",
            "higher",
            least,
            all.min() / least,
            seeds,
            all.median(),
            all.p99(),
            95.0,
            98.0);
    return List.of(row);
  }

  private static double usable(BenchDevice device, MemoryPool pool, long seed, Progress progress) {
    try (Fairlead fairlead =
        device.open(
            config ->
                withPool(
                    inCore(config.withMemory(config.memory().withWait(REFUSED_AFTER))), pool))) {
      return PERCENT
          * new MemoryProbes(fairlead, device.scale())
              .usable(seed, why -> progress.done(pool + ", seed " + seed + ", " + start(why)));
    }
  }

  /** Without who holds what: there are thousands. */
  private static String start(String report) {
    return report
        .lines()
        .takeWhile(line -> !line.strip().startsWith("held:"))
        .map(String::strip)
        .collect(Collectors.joining("; "));
  }
}
