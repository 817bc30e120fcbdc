package io.fairlead.cli.bench;

import io.fairlead.cli.HangWatch;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.runtime.CloseFailure;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The process in which {@link CudaSuite} measures one group of rows; not for users. */
@Command(name = "cuda-worker", hidden = true)
public final class CudaWorker implements Callable<Integer> {
  private static final String KERNELS = "kernels.ptx";

  /** What a process with a fault does one after the other, and says how long each took. */
  static final List<String> PHASES = List.of("start", "open", "fault", "close");

  /** What is measured together. */
  enum Group {
    /** Launches and waits; one process for each number of carriers, and for the JDK's. */
    WAITS(60),
    /** Launches, finished waits, the context guard, interrupts. */
    COSTS(60),
    /** Waits beside tasks that keep all carriers busy. */
    BUSY(90),
    /** Allocations, pinned copies. */
    MEMORY(60),
    /** What other libraries measure too. */
    LIKE_LIBRARIES(60),
    /** Short waits beside long ones. */
    BESIDE_LONG(60),
    /** Long waits. */
    LONG(60),
    /** A hundred thousand waiters. */
    MANY(60),
    /** A fault, whose context is lost: the last thing that a process does. */
    FAULT(30);

    private final int seconds;

    Group(int seconds) {
      this.seconds = seconds;
    }

    /** Longer than it takes where nothing hangs. */
    Duration limit() {
      return Duration.ofSeconds(seconds);
    }
  }

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(index = "0")
  private Group group = Group.WAITS;

  @Option(names = "--scale", description = "Divides the numbers of rounds.")
  private int scale = 1;

  @Option(names = "--image", description = "A module with the kernels, in place of this program's.")
  private @Nullable Path image;

  @Option(names = "--limit", description = "Seconds after which it hangs (default: its group's).")
  private @Nullable Integer limit;

  /** Made by the command line parser. */
  public CudaWorker() {}

  /** The kernels, as PTX. */
  static String kernels() throws IOException {
    try (InputStream stream = CudaWorker.class.getResourceAsStream(KERNELS)) {
      return new String(
          Objects.requireNonNull(stream, KERNELS).readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  @Override
  public Integer call() throws IOException {
    String code = image == null ? kernels() : Files.readString(image);
    Duration most = limit == null ? group.limit() : Duration.ofSeconds(limit);
    try (HangWatch _ = HangWatch.start(group.name(), most, line().getErr())) {
      openAndMeasure(new ModuleImage.Ptx(code));
    }
    return 0;
  }

  private void openAndMeasure(ModuleImage code) {
    List<Long> times = new ArrayList<>();
    times.add(ManagementFactory.getRuntimeMXBean().getStartTime());
    times.add(System.currentTimeMillis());
    Fairlead fairlead = Fairlead.open(FairleadConfig.fromSystem().withDevice("cuda"));
    try {
      times.add(System.currentTimeMillis());
      measure(fairlead, code);
    } finally {
      times.add(System.currentTimeMillis());
      close(fairlead);
    }
    times.add(System.currentTimeMillis());
    if (group == Group.FAULT) {
      for (int i = 0; i < PHASES.size(); i++) {
        print("phase." + PHASES.get(i), 1e-3 * (times.get(i + 1) - times.get(i)));
      }
    }
  }

  /** A lost context may refuse its end. What was measured stands. */
  private void close(Fairlead fairlead) {
    try {
      fairlead.close();
    } catch (CloseFailure refused) {
      if (group != Group.FAULT) {
        throw refused;
      }
      line().getErr().println("after the fault, closing failed: " + refused.getMessage());
    }
  }

  private void measure(Fairlead fairlead, ModuleImage code) {
    if (group == Group.BESIDE_LONG || group == Group.LONG) {
      try (WaitProbes probes = new WaitProbes(fairlead, code, scale)) {
        longWaits(probes);
      }
      return;
    }
    CudaProbes probes = new CudaProbes(fairlead, code, scale);
    switch (group) {
      case WAITS -> waits(probes);
      case COSTS -> costs(probes);
      case BUSY -> busy(probes, new ForkProbes(fairlead, scale > 1));
      case MEMORY -> memory(new CudaMemoryProbes(fairlead, scale));
      case LIKE_LIBRARIES -> likeLibraries(probes, new CudaMemoryProbes(fairlead, scale));
      case BESIDE_LONG, LONG -> throw new AssertionError("measured with kernels of their own");
      case MANY -> many(probes);
      case FAULT -> fault(probes);
    }
  }

  private void waits(CudaProbes probes) {
    print("wait.0", probes.waits(0, 4_000));
    print("wait.20", probes.waits(20_000, 3_000));
    print("wait.200", probes.waits(200_000, 800));
  }

  private void costs(CudaProbes probes) {
    print("launch", probes.launches());
    double[][] finished = probes.finishedWaits();
    print("done.nanos", finished[0]);
    print("done.bytes", finished[1]);
    double[][] guards = probes.guards();
    print("guard.bound", guards[0]);
    print("guard.unbound", guards[1]);
    print("guard.none", guards[2]);
    double[][] inTask = probes.guardsInTask();
    print("guard.task.bound", inTask[0]);
    print("guard.task.unbound", inTask[1]);
    print("guard.task.none", inTask[2]);
    print("interrupt", probes.interrupts());
  }

  private void busy(CudaProbes probes, ForkProbes forks) {
    print("busy.forking", probes.waitsBeside(forks::compute, 20_000));
    print("busy.loops", probes.waitsBeside(() -> WakeProbes.compute(1_000_000), 20_000));
  }

  private void memory(CudaMemoryProbes probes) {
    print("alloc", probes.allocations());
    double[][] copies = probes.copies();
    print("copy.up", copies[0]);
    print("copy.down", copies[1]);
  }

  private void likeLibraries(CudaProbes probes, CudaMemoryProbes memory) {
    print("wait.0", probes.waits(0, 4_000));
    print("wait.20", probes.waits(20_000, 3_000));
    print("alloc", memory.allocations());
  }

  private void longWaits(WaitProbes probes) {
    if (group == Group.BESIDE_LONG) {
      double[][] beside = probes.besideLong(3);
      print("hol.waited", beside[0]);
      print("hol.alone", beside[1]);
    } else {
      double[][] core = probes.coreOfLongWaits(5);
      print("core.share", core[0]);
      print("core.late", core[1]);
    }
  }

  private void many(CudaProbes probes) {
    int streams = Math.max(2, CudaSuite.STREAMS / scale);
    probes.manyWaiters(CudaSuite.WAITERS / scale / 5, Math.max(2, streams / 4)); // warms up
    double[][] wakes = probes.manyWaiters(CudaSuite.WAITERS / scale, streams);
    print("many.wake", wakes[0]);
    print("many.lost", wakes[1]);
    print("many.first", wakes[2]);
    print("many.last", wakes[3]);
  }

  private void fault(CudaProbes probes) {
    double[][] failed = probes.fault(CudaSuite.FAULT_WAITERS);
    print("fault.nanos", failed[0]);
    print("fault.causes", failed[1]);
    print("fault.passed", failed[2]);
    print("fault.named", failed[3]);
    print("fault.told", failed[4]);
  }

  private CommandLine line() {
    return Objects.requireNonNull(spec).commandLine();
  }

  private void print(String name, double... samples) {
    PrintWriter out = line().getOut();
    out.println(SampleLine.text(name, samples));
    out.flush();
  }
}
