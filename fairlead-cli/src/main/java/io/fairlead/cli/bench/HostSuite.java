package io.fairlead.cli.bench;

import static io.fairlead.device.ElementType.F64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;

import io.fairlead.cli.Progress;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Param;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.KernelArguments;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** The embedded device beside plain Java: a large kernel, and what a launch costs. */
final class HostSuite implements Suite {
  private static final ValueLayout.OfDouble DOUBLE = ValueLayout.JAVA_DOUBLE;

  @Override
  public String name() {
    return "host";
  }

  @Override
  public String about() {
    return "the embedded device beside a plain parallel loop, and its cost per launch";
  }

  @Override
  public List<String> ids(Options options) {
    return List.of("host.axpy.over_loop", "host.launch_and_wait", "host.launch_rate");
  }

  @Override
  public List<Row> run(Options options, Progress progress) {
    FairleadConfig config =
        FairleadConfig.fromSystem().withDevice("host").withWaitMode(WaitMode.SPIN);
    try (Fairlead fairlead = Fairlead.open(config)) {
      Device device = fairlead.device();
      Kernel axpy =
          device
              .load(
                  new ModuleSource(
                      "bench", List.of(new ModuleImage.Java(Map.of("axpy", HostSuite::axpy)))))
              .kernel("axpy", Param.F64, in(F64), inOut(F64));
      progress.done("a large kernel beside a parallel loop");
      Row large = large(device, axpy, options.quick() ? 1_000_000 : 10_000_000, options);
      progress.done("small launches");
      return List.of(large, latency(device, axpy, options), rate(device, axpy, options));
    }
  }

  private static void axpy(KernelArguments arguments, long begin, long end) {
    double a = arguments.f64(0);
    MemorySegment x = arguments.buffer(1);
    MemorySegment y = arguments.buffer(2);
    for (long i = begin; i < end; i++) {
      y.setAtIndex(DOUBLE, i, y.getAtIndex(DOUBLE, i) + a * x.getAtIndex(DOUBLE, i));
    }
  }

  private static Row large(Device device, Kernel axpy, int n, Options options) {
    int rounds = options.quick() ? 10 : 40;
    double[] ours = new double[rounds];
    double[] theirs = new double[rounds];
    double[] plainX = new double[n];
    double[] plainY = new double[n];
    Arrays.fill(plainX, 1.0);
    int workers = device.info().workers();
    try (DeviceBuffer x = device.allocate(8L * n);
        DeviceBuffer y = device.allocate(8L * n)) {
      x.upload(plainX);
      y.fill((byte) 0);
      for (int round = -10; round < rounds; round++) {
        long start = System.nanoTime();
        axpy.launch(Grid.of(n), 1e-9, x, y);
        device.stream().reached().await();
        long middle = System.nanoTime();
        loop(plainX, plainY, workers);
        long end = System.nanoTime();
        if (round >= 0) {
          ours[round] = middle - start;
          theirs[round] = end - middle;
        }
      }
    }
    return Row.ratio("host.axpy.over_loop", Samples.of(ours), Samples.of(theirs)).bounds(1.3, 1.0);
  }

  /** The alternative: a parallel loop of the JDK over arrays, in as many pieces as workers. */
  private static void loop(double[] x, double[] y, int workers) {
    int piece = (x.length + workers - 1) / workers;
    IntStream.range(0, workers)
        .parallel()
        .forEach(w -> loop(x, y, w * piece, Math.min(x.length, (w + 1) * piece)));
  }

  private static void loop(double[] x, double[] y, int from, int to) {
    for (int i = from; i < to; i++) {
      y[i] += 1e-9 * x[i];
    }
  }

  private static Row latency(Device device, Kernel axpy, Options options) {
    int rounds = options.quick() ? 20_000 : 200_000;
    double[] micros = new double[rounds];
    try (DeviceBuffer x = device.allocate(8);
        DeviceBuffer y = device.allocate(8)) {
      x.upload(new double[] {1});
      y.upload(new double[] {0});
      for (int round = -rounds / 4; round < rounds; round++) {
        long start = System.nanoTime();
        axpy.launch(Grid.of(1), 1.0, x, y);
        device.stream().reached().await();
        if (round >= 0) {
          micros[round] = (System.nanoTime() - start) * 1e-3;
        }
      }
    }
    return Row.median("host.launch_and_wait", "us", "lower", Samples.of(micros)).bounds(5.0, 2.0);
  }

  private static Row rate(Device device, Kernel axpy, Options options) {
    int batches = options.quick() ? 20 : 100;
    int batch = 10_000;
    double[] rates = new double[batches];
    try (DeviceBuffer x = device.allocate(8);
        DeviceBuffer y = device.allocate(8)) {
      x.upload(new double[] {1});
      y.upload(new double[] {0});
      for (int round = -10; round < batches; round++) {
        long start = System.nanoTime();
        for (int i = 0; i < batch; i++) {
          axpy.launch(Grid.of(1), 1.0, x, y);
        }
        device.stream().reached().await();
        if (round >= 0) {
          rates[round] = batch / ((System.nanoTime() - start) * 1e-9);
        }
      }
    }
    return Row.median("host.launch_rate", "launches/s", "higher", Samples.of(rates));
  }
}
