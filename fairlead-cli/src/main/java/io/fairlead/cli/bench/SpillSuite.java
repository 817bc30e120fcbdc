package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.cli.join.JoinTrial;
import io.fairlead.memory.MemoryPool;
import io.fairlead.runtime.Fairlead;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Buffers that leave the device and come back, beside copies that only copy. */
final class SpillSuite implements PartwiseSuite {
  /** A row of the large join. */
  private record LargeJoin(String id, MemoryPool pool, Map<String, String> settings) {
    static LargeJoin driver(String id, String reuse) {
      return new LargeJoin(id, MemoryPool.DRIVER, Map.of("reuse", reuse));
    }
  }

  /** With our pool, and with the driver's: as it is, and with each reuse that it may. */
  private static final List<LargeJoin> LARGE_JOINS =
      List.of(
          new LargeJoin("spill.join.h200", MemoryPool.FAIRLEAD, Map.of()),
          LargeJoin.driver("spill.join.h200.driver", "auto"),
          LargeJoin.driver("spill.join.h200.driver.none", "none"),
          LargeJoin.driver("spill.join.h200.driver.events", "events"),
          LargeJoin.driver("spill.join.h200.driver.opportunistic", "opportunistic"),
          LargeJoin.driver("spill.join.h200.driver.internal", "internal"),
          LargeJoin.driver("spill.join.h200.driver.all", "events,opportunistic,internal"));

  private static final double PERCENT = 100;

  /** Buffers of the large kind that go to the disk, and one more that stays above it. */
  private static final int ON_DISK = 4;

  /** Room for all that is measured, on a device that has what it is given. */
  private static final long DEVICE_BYTES = 640L << 20;

  /** Rows of each table, of 16 bytes: 61 MiB together, and 1.2 GiB. */
  private static final int HOST_ROWS = 2_000_000;

  private static final int GPU_ROWS = 40_000_000;
  private static final int JOIN_TASKS = 16;

  /** Of its tables' memory the device has this part. */
  private static final int SHARE = 4;

  /** The shape of the report that asked for spilling: 40 GB in 20, on 64 streams. */
  private static final int LARGE_ROWS = 1_250_000_000;

  private static final int LARGE_STREAMS = 64;
  private static final long LARGE_DEVICE_BYTES = 20_000_000_000L;

  /** Tables, what is scattered of them, and hash tables: more than a quarter of some machines. */
  private static final long LARGE_HOST_BYTES = 60L << 30;

  private static final long LARGE_DEVICE_NEEDED = 100L << 30;

  private final MemoryPeer c;

  SpillSuite() {
    this(new MemoryPeer());
  }

  /** Measures beside another baseline in C. */
  SpillSuite(MemoryPeer c) {
    this.c = c;
  }

  @Override
  public String name() {
    return "spill";
  }

  @Override
  public String about() {
    return "buffers that are spilled and brought back, beside raw copies and a raw file";
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
    PrintWriter nowhere = new PrintWriter(Writer.nullWriter());
    return Part.ids(parts(options, Progress.to(nowhere, false)));
  }

  /**
   * Measures.
   *
   * @throws io.fairlead.runtime.DriverUnavailableException if the device is not there
   */
  @Override
  public void run(Options options, Progress progress, Consumer<List<Row>> measured)
      throws Exception {
    try (Fairlead fairlead = BenchDevice.of(options).open()) {
      progress.done(BenchDevice.describe(fairlead.device()));
    }
    Part.run(parts(options, progress), options, progress, measured);
  }

  private List<Part> parts(Options options, Progress progress) {
    BenchDevice device = BenchDevice.of(options);
    return List.of(
        new Part(
            "buffers of 64 MiB",
            List.of("spill.bandwidth.down", "spill.bandwidth.up"),
            () ->
                bandwidth(
                    device, progress, "", MemoryPeer.LARGE, MemoryPeer.LARGE_BYTES, 90.0, 97.0)),
        new Part(
            "buffers of 4 KiB",
            List.of("spill.bandwidth.down.4k", "spill.bandwidth.up.4k"),
            () ->
                bandwidth(
                    device, progress, ".4k", MemoryPeer.SMALL, MemoryPeer.SMALL_BYTES, 40.0, 60.0)),
        new Part(
            "operations for buffers of 4 KiB",
            List.of("spill.calls.down.4k", "spill.calls.up.4k"),
            () -> calls(device)),
        new Part(
            "buffers on the disk",
            List.of("spill.disk.write", "spill.disk.read"),
            () -> disk(device, options.directory())),
        new Part(
            "a task that does not spill",
            List.of("spill.bystander"),
            () -> beside(device, progress)),
        new Part(
            "a join in a quarter of its memory",
            List.of("spill.join"),
            () -> join(device, progress)),
        new Part(
            "a join of 40 GB in 20 GB",
            LARGE_JOINS.stream().map(LargeJoin::id).toList(),
            () -> largeJoin(device, progress)));
  }

  private static Fairlead open(BenchDevice device, long hostBytes, @Nullable Path directory) {
    return device.open(
        config ->
            Spills.config(
                device.isCuda() || config.deviceMemory() >= DEVICE_BYTES
                    ? config
                    : config.withDeviceMemory(DEVICE_BYTES),
                hostBytes,
                directory));
  }

  private List<Row> bandwidth(
      BenchDevice device,
      Progress progress,
      String size,
      int count,
      long bytes,
      double must,
      double goal)
      throws Exception {
    int rounds = device.quick() ? 5 : 30;
    double[][] raw = new double[2][rounds];
    double[][] ours;
    try (Fairlead fairlead = open(device, 2L * count * bytes, null);
        RawCopies copies = new RawCopies(count, bytes)) {
      Consumer<Integer> between =
          i -> {
            raw[0][i] = copies.down();
            raw[1][i] = copies.up();
          };
      ours = new SpillProbes(fairlead, Spills::spill).passes(count, bytes, rounds, between);
    }
    Samples[] theirs = {Samples.of(raw[0]), Samples.of(raw[1])};
    if (device.isCuda()) {
      Map<String, Samples> known = c.samples(device.scale(), progress);
      String kind = bytes == MemoryPeer.LARGE_BYTES ? "large" : "small";
      Samples down = known.get(kind + ".down");
      Samples up = known.get(kind + ".up");
      if (down == null || up == null) {
        return List.of();
      }
      theirs = new Samples[] {down, up};
    }
    return List.of(
        share("spill.bandwidth.down" + size, Samples.of(ours[0]), theirs[0].median(), must, goal),
        share("spill.bandwidth.up" + size, Samples.of(ours[1]), theirs[1].median(), must, goal));
  }

  private static List<Row> calls(BenchDevice device) throws Exception {
    int count = MemoryPeer.SMALL;
    long bytes = MemoryPeer.SMALL_BYTES;
    try (Fairlead fairlead = open(device, 2L * count * bytes, null)) {
      double[][] calls =
          new SpillProbes(fairlead, Spills::spill).calls(count, bytes, device.quick() ? 3 : 10);
      return List.of(
          Row.median("spill.calls.down.4k", "calls", "lower", Samples.of(calls[0])),
          Row.median("spill.calls.up.4k", "calls", "lower", Samples.of(calls[1])));
    }
  }

  /** Percent of what a raw one reaches, which took so many nanoseconds. */
  static Row share(String id, Samples ours, double raw, double must, double goal) {
    Samples shares = ours.map(nanos -> PERCENT * raw / nanos);
    return Row.median(id, "%", "higher", shares).bounds(must, goal);
  }

  private static List<Row> disk(BenchDevice device, @Nullable Path chosen) throws Exception {
    Path directory = chosen == null ? Path.of(System.getProperty("java.io.tmpdir")) : chosen;
    int rounds = device.quick() ? 3 : 10;
    long bytes = MemoryPeer.LARGE_BYTES;
    double[][] raw = new double[2][rounds];
    double[][] ours;
    try (RawFile file = new RawFile(directory, ON_DISK * bytes);
        Fairlead fairlead = open(device, bytes, directory)) {
      Consumer<Integer> between =
          i -> {
            try {
              raw[0][i] = file.write();
              raw[1][i] = file.read();
            } catch (IOException failed) {
              throw new UncheckedIOException(failed);
            }
          };
      ours = new SpillProbes(fairlead, Spills::spill).passes(ON_DISK + 1, bytes, rounds, between);
    }
    return List.of(
        share("spill.disk.write", Samples.of(ours[0]), Samples.of(raw[0]).median(), 80.0, 95.0),
        share("spill.disk.read", Samples.of(ours[1]), Samples.of(raw[1]).median(), 80.0, 95.0));
  }

  /** Beside the same done in C on a GPU: a device and a link that copies fill are slower to all. */
  private List<Row> beside(BenchDevice device, Progress progress) throws Exception {
    int count = MemoryPeer.LARGE;
    long bytes = MemoryPeer.LARGE_BYTES;
    double[][] medians;
    try (Fairlead fairlead = open(device, 2L * count * bytes, null)) {
      medians =
          new SpillProbes(fairlead, Spills::spill).bystander(count, bytes, device.quick() ? 3 : 15);
    }
    Samples slower = slower(Samples.of(medians[0]), Samples.of(medians[1]));
    Row row = Row.median("spill.bystander", "%", "lower", slower).bounds(5.0, 1.0);
    Map<String, Samples> known =
        device.isCuda() ? c.samples(device.scale(), progress) : Map.<String, Samples>of();
    Samples alone = known.get("fill.alone");
    Samples beside = known.get("fill.beside");
    return List.of(
        alone == null || beside == null ? row : row.against(slower(alone, beside).median()));
  }

  private static Samples slower(Samples alone, Samples beside) {
    return beside.over(alone).map(ratio -> PERCENT * (ratio - 1));
  }

  // --- the workload -----------------------------------------------------------------------------

  private static List<Row> join(BenchDevice device, Progress progress) {
    int rows = device.isCuda() ? GPU_ROWS : HOST_ROWS;
    JoinTrial trial =
        new JoinTrial(
            device.quick() ? rows / 10 : rows,
            JOIN_TASKS,
            JOIN_TASKS,
            device.driver(),
            null,
            progress);
    int rounds = device.quick() ? 2 : 7;
    double[] inCore = new double[rounds];
    double[] spilling = new double[rounds];
    String expected = trial.inCore().result(); // and warms up
    trial.spilling(trial.workingSetBytes() / SHARE, null);
    for (int i = 0; i < rounds; i++) {
      inCore[i] = checked(trial.inCore(), expected, false);
      spilling[i] = checked(trial.spilling(trial.workingSetBytes() / SHARE, null), expected, true);
    }
    return List.of(
        Row.ratio("spill.join", Samples.of(spilling), Samples.of(inCore)).bounds(2.5, 1.5));
  }

  private static List<Row> largeJoin(BenchDevice device, Progress progress) {
    String why = device.quick() ? "not with --quick" : whyNotLarge(device);
    if (why != null) {
      return LARGE_JOINS.stream().map(each -> Row.missing(each.id, why)).toList();
    }
    JoinTrial trial =
        new JoinTrial(
            LARGE_ROWS, LARGE_STREAMS, LARGE_STREAMS, device.driver(), LARGE_HOST_BYTES, progress);
    JoinTrial.Result inCore = trial.inCore();
    List<Row> rows = new ArrayList<>();
    for (LargeJoin each : LARGE_JOINS) {
      double seconds =
          checked(
              trial.spilling(LARGE_DEVICE_BYTES, each.pool, each.settings), inCore.result(), true);
      progress.done(each.id + ": " + seconds + " s over " + inCore.seconds());
      rows.add(
          Row.ratio(
                  each.id,
                  Samples.of(new double[] {seconds}),
                  Samples.of(new double[] {inCore.seconds()}))
              .bounds(2.5, 1.5));
    }
    return rows;
  }

  private static @Nullable String whyNotLarge(BenchDevice device) {
    if (!device.isCuda()) {
      return "needs a GPU of 100 GiB";
    }
    try (Fairlead fairlead = device.open()) {
      long limit = fairlead.device().memory().limit();
      return limit >= LARGE_DEVICE_NEEDED
          ? null
          : "needs 100 GiB of device memory; here are " + (limit >> 30);
    }
  }

  /** Seconds, if it came to the same result and spilled if it had to. */
  private static double checked(JoinTrial.Result run, String expected, boolean spills) {
    if (!run.result().equals(expected)) {
      throw new IllegalStateException(
          "the join gave " + run.result() + " in place of " + expected + "; please report it");
    }
    if (spills && run.spilledBytes() == 0) {
      throw new IllegalStateException("the join spilled nothing, so nothing was measured");
    }
    return run.seconds();
  }
}
