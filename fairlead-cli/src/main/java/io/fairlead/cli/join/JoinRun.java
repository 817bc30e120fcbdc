package io.fairlead.cli.join;

import io.fairlead.cli.AtomicFile;
import io.fairlead.cli.Bytes;
import io.fairlead.cli.Progress;
import io.fairlead.device.DeviceStats;
import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import io.fairlead.memory.Device;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.memory.MemoryPool;
import io.fairlead.memory.MemoryStats;
import io.fairlead.memory.SpillConfig;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** One run of {@code fairlead join}: read, join, check, write. Blocks until it is done. */
final class JoinRun {
  /** Without a word from the user, the device has room for a quarter of the tables. */
  private static final int SHARE = 4;

  /** … but not for less than this, where tables are tiny. */
  private static final long DEVICE_BYTES_MIN = 1L << 20;

  /** A folder takes whatever the join may spill there: tables, their pieces, hash tables. */
  private static final int DISK_TABLES = 8;

  private static final long DISK_BYTES_MIN = 1L << 30;

  private final JoinRequest request;
  private final Progress progress;
  private final PrintWriter standardOutput;

  JoinRun(JoinRequest request, Progress progress, PrintWriter standardOutput) {
    this.request = request;
    this.progress = progress;
    this.standardOutput = standardOutput;
  }

  JoinOutcome run() {
    long start = System.nanoTime();
    JoinInput input = JoinInput.of(request, progress);
    double readSeconds = (System.nanoTime() - start) * 1e-9;
    boolean keeps = request.check() || request.out() != null;
    Joined joined = join(input, outOfCore(input), keeps);
    progress.done(String.format(Locale.ROOT, "joined: %,d groups", joined.totals.groups()));
    Map<String, String> checks = request.check() ? check(input, joined.groups()) : Map.of();
    if (request.out() != null) {
      write(request.out(), new GroupsFile(input, joined.groups()));
    }
    return new JoinOutcome(
        request, input, joined.plan, joined.totals, readSeconds, joined.run, joined.usage, checks);
  }

  // --- how devices are opened ---------------------------------------------------------------

  /** With as little memory as was asked for; what has no room is spilled as was asked for. */
  private FairleadConfig outOfCore(JoinInput input) {
    FairleadConfig config = config();
    SpillConfig spill = config.memory().spill();
    if (spill.hostBytesMax() == 0) {
      spill = SpillConfig.TO_HOST; // it is what a join is for
    }
    if (request.hostMemory() != null) {
      spill = spill.withHostBytesMax(Objects.requireNonNull(request.hostMemory()));
    }
    if (request.spillFolder() != null) {
      long most = Math.max(DISK_BYTES_MIN, DISK_TABLES * input.workingSetBytes());
      spill = spill.withDisk(Objects.requireNonNull(request.spillFolder()), most);
    }
    return config.withMemory(config.memory().withSpill(spill).withLimit(deviceMemory(input)));
  }

  /**
   * As a run is out of core, in as much memory as somebody who measures says.
   *
   * @param settings of the driver
   */
  Joined spilling(
      JoinInput input, long deviceBytes, @Nullable MemoryPool pool, Map<String, String> settings) {
    FairleadConfig config = outOfCore(input);
    for (Map.Entry<String, String> each : settings.entrySet()) {
      config = config.withDriverSetting(each.getKey(), each.getValue());
    }
    MemoryConfig memory = config.memory().withLimit(deviceBytes);
    return join(input, config.withMemory(pool == null ? memory : memory.withPool(pool)), false);
  }

  /** As a run is in core, whether it has been seen to fit or not. */
  Joined inCoreUnchecked(JoinInput input) {
    return join(input, inCore(), false);
  }

  private long deviceMemory(JoinInput input) {
    Long asked = request.deviceMemory();
    return asked == null ? Math.max(input.workingSetBytes() / SHARE, DEVICE_BYTES_MIN) : asked;
  }

  /** With all the memory that there is, of which nothing is spilled. */
  private FairleadConfig inCore() {
    FairleadConfig config = config();
    return config.withMemory(config.memory().withSpill(SpillConfig.OFF));
  }

  /** The limit is not the embedded device's size: as on a GPU, there is more than may be used. */
  private FairleadConfig config() {
    FairleadConfig config =
        FairleadConfig.fromSystem().withDevice(request.device()).withDeviceMemory(0);
    return config.withContext(config.context().withStreamsMax(request.streams()));
  }

  private static Fairlead open(FairleadConfig config) {
    try {
      return Fairlead.open(config);
    } catch (IllegalArgumentException limit) {
      throw new DeviceTooSmallException("--device-memory: " + limit.getMessage(), limit);
    }
  }

  // --- joining ------------------------------------------------------------------------------

  /** One join of the input; the groups only where somebody wants them. */
  record Joined(
      JoinPlan plan,
      Totals totals,
      List<long[]> parts,
      int stride,
      DeviceJoin.Run run,
      JoinOutcome.Usage usage) {
    Groups groups() {
      return Groups.merged(parts, stride);
    }
  }

  private Joined join(JoinInput input, FairleadConfig config, boolean keeps) {
    try (Fairlead fairlead = open(config)) {
      long limit = fairlead.device().memory().limit();
      JoinPlan plan =
          plan(input, fairlead.device(), request.partitionBits())
              .leavingBy(config.memory().spill().hostBytesMax());
      progress.done(
          String.format(
              Locale.ROOT,
              "%s of tables on %s with %s: %d tasks at once, %d partitions, chunks of %s, pieces of %s",
              Bytes.text(input.workingSetBytes()),
              fairlead.device().info().name(),
              Bytes.text(limit),
              plan.tasks(),
              plan.partitions(),
              Bytes.text(plan.chunkBytes()),
              Bytes.text(plan.pieceBytes())));
      return join(input, fairlead, plan, keeps);
    }
  }

  private JoinPlan plan(JoinInput input, Device device, int partitionBits) {
    return JoinPlan.of(
        input.left(),
        input.right(),
        device.memory().limit(),
        request.tasks(),
        partitionBits,
        JoinKernels.runInJava(device)
            ? JoinPlan.COPY_BYTES_MIN_OF_HOST
            : JoinPlan.COPY_BYTES_MIN_OF_GPU);
  }

  private Joined join(JoinInput input, Fairlead fairlead, JoinPlan plan, boolean keeps) {
    Totals totals = new Totals(input.left(), input.right());
    List<long[]> parts = Collections.synchronizedList(new ArrayList<>());
    Consumer<long[]> sink =
        entries -> {
          totals.add(entries);
          if (keeps) {
            parts.add(entries);
          }
        };
    DeviceJoin.Run run =
        new DeviceJoin(fairlead, plan, input.left(), input.right(), progress).run(sink);
    return new Joined(
        plan,
        totals,
        parts,
        Groups.stride(input.left(), input.right()),
        run,
        usage(fairlead.device()));
  }

  private static JoinOutcome.Usage usage(Device device) {
    DeviceStats stats = device.context().stats();
    MemoryStats memory = device.memory();
    return new JoinOutcome.Usage(
        device.info().name(),
        memory.limit(),
        memory.peak(),
        memory.spills(),
        memory.returns(),
        memory.moved(),
        stats.launches(),
        stats.copies(),
        stats.bytesUp(),
        stats.bytesDown(),
        stats.waits(),
        stats.waitNanos());
  }

  // --- checking -----------------------------------------------------------------------------

  private Map<String, String> check(JoinInput input, Groups found) {
    Map<String, String> checks = new LinkedHashMap<>();
    progress.done("checking by a run in core");
    checks.put("in core", checkInCore(input, found));
    progress.done("checking by plain Java");
    requireSame("plain Java", PlainJoin.of(input.left(), input.right()), found);
    checks.put("plain Java", "the same");
    return checks;
  }

  private String checkInCore(JoinInput input, Groups found) {
    try (Fairlead fairlead = open(inCore())) {
      long limit = fairlead.device().memory().limit();
      JoinPlan plan = plan(input, fairlead.device(), -1);
      long needed = plan.inCoreBytes(input.left(), input.right());
      if (needed > limit) {
        return "not done, it needs " + Bytes.text(needed) + " of device memory";
      }
      Groups inCore = join(input, fairlead, plan, true).groups();
      requireSame("a run in core", inCore, found);
      return "the same";
    }
  }

  private static void requireSame(String what, Groups expected, Groups found) {
    if (!expected.equals(found)) {
      throw new GroupsDifferException(what, found.difference(expected));
    }
  }

  /** The same join gave different groups. */
  static final class GroupsDifferException extends FairleadException {
    private static final long serialVersionUID = 1L;

    GroupsDifferException(String other, String difference) {
      super(
          Severity.PROCESS,
          "the groups are not those of "
              + other
              + ", although sums are exact: "
              + difference
              + "; please report it",
          null);
    }
  }

  // --- writing ------------------------------------------------------------------------------

  private void write(@Nullable Path file, GroupsFile groups) {
    Path target = Objects.requireNonNull(file);
    if (request.groupsOnStandardOutput()) {
      progress.clear();
      writeTo(standardOutput, groups);
      return;
    }
    AtomicFile.write(
        target,
        out -> {
          Writer writer = new BufferedWriter(new OutputStreamWriter(out, StandardCharsets.UTF_8));
          groups.writeTo(writer);
          writer.flush();
        });
    progress.done("wrote " + target);
  }

  private static void writeTo(PrintWriter out, GroupsFile groups) {
    try {
      groups.writeTo(out);
    } catch (IOException never) {
      throw new UncheckedIOException("a print writer throws none", never);
    }
    out.flush();
  }
}
