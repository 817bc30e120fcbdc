package io.fairlead.cli.bench;

import io.fairlead.device.spi.ModuleImage;
import io.fairlead.runtime.CloseFailure;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
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

  /** Longer than any group takes. No interrupt reaches a call that hangs in a driver. */
  private static final Duration HANGS = Duration.ofSeconds(45);

  private static final int HUNG = 70;

  /** What is measured together. */
  enum Group {
    /** Launches and waits; one process for each number of carriers, and for the JDK's. */
    WAITS,
    /** Launches, finished waits, the context guard, interrupts. */
    COSTS,
    /** A hundred thousand waiters. */
    MANY,
    /** A fault, whose context is lost: the last thing that a process does. */
    FAULT
  }

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(index = "0")
  private Group group = Group.WAITS;

  @Option(names = "--scale", description = "Divides the numbers of rounds.")
  private int scale = 1;

  @Option(names = "--image", description = "A module with the kernels, in place of this program's.")
  private @Nullable Path image;

  private final CountDownLatch ended = new CountDownLatch(1);

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
    Thread.ofPlatform().daemon().name("hang-watch").start(this::haltIfItHangs);
    try {
      openAndMeasure(new ModuleImage.Ptx(code));
    } finally {
      ended.countDown();
    }
    return 0;
  }

  private void openAndMeasure(ModuleImage code) {
    Fairlead fairlead = Fairlead.open(FairleadConfig.fromSystem().withDevice("cuda"));
    try {
      measure(new CudaProbes(fairlead, code, scale));
    } finally {
      close(fairlead);
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

  private void haltIfItHangs() {
    try {
      if (ended.await(HANGS.toSeconds(), TimeUnit.SECONDS)) {
        return;
      }
    } catch (InterruptedException e) {
      return;
    }
    line().getErr().println(group + " has not ended after " + HANGS.toSeconds() + " s:");
    Thread.getAllStackTraces()
        .forEach((thread, frames) -> line().getErr().println(thread + " " + Arrays.asList(frames)));
    line().getErr().flush();
    Runtime.getRuntime().halt(HUNG);
  }

  private void measure(CudaProbes probes) {
    switch (group) {
      case WAITS -> waits(probes);
      case COSTS -> costs(probes);
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
    print("interrupt", probes.interrupts());
  }

  private void many(CudaProbes probes) {
    int streams = Math.max(2, CudaSuite.STREAMS / scale);
    double[][] wakes = probes.manyWaiters(CudaSuite.WAITERS / scale, streams);
    print("many.wake", wakes[0]);
    print("many.lost", wakes[1]);
  }

  private void fault(CudaProbes probes) {
    double[][] failed = probes.fault(CudaSuite.FAULT_WAITERS);
    print("fault.nanos", failed[0]);
    print("fault.causes", failed[1]);
    print("fault.passed", failed[2]);
    print("fault.named", failed[3]);
  }

  private CommandLine line() {
    return Objects.requireNonNull(spec).commandLine();
  }

  private void print(String name, double... samples) {
    PrintWriter out = line().getOut();
    String values =
        Arrays.stream(samples)
            .mapToObj(value -> String.format(Locale.ROOT, "%.6g", value))
            .collect(Collectors.joining(" "));
    out.println("samples " + name + " " + values);
    out.flush();
  }
}
