package io.fairlead.runtime;

import static io.fairlead.device.Param.F64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;

import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;

/** The example of the README: what stands between the markers is what the README shows. */
final class ReadmeExample {
  /** y += a x, as a kernel for the host device; a GPU would take PTX or CUDA C++ beside it. */
  private static final ModuleSource AXPY =
      new ModuleSource(
          "axpy",
          List.of(
              new ModuleImage.Java(
                  Map.of(
                      "axpy",
                      (arguments, begin, end) -> {
                        double a = arguments.f64(0);
                        MemorySegment x = arguments.buffer(1);
                        MemorySegment y = arguments.buffer(2);
                        for (long i = begin; i < end; i++) {
                          double sum =
                              y.getAtIndex(ValueLayout.JAVA_DOUBLE, i)
                                  + a * x.getAtIndex(ValueLayout.JAVA_DOUBLE, i);
                          y.setAtIndex(ValueLayout.JAVA_DOUBLE, i, sum);
                        }
                      }))));

  private ReadmeExample() {}

  static List<Double> sums(List<Batch> batches) {
    // snippet:readme
    try (Fairlead fairlead = Fairlead.open(); // CUDA, or the host device, and says so
        TaskScope<Double> scope = fairlead.scope()) { // children end before it closes
      Device device = fairlead.device();
      Kernel axpy = device.load(AXPY).kernel("axpy", F64, in(F64), inOut(F64));
      for (Batch b : batches) {
        scope.fork( // a task; on the device, a stream of its own
            () -> {
              try (DeviceBuffer x = device.allocate(b.bytes());
                  DeviceBuffer y = device.allocate(b.bytes())) {
                x.upload(b.x());
                y.upload(b.y());
                axpy.launch(Grid.of(b.size()), 2.0, x, y); // ordered by the data that it touches
                return y.download(HostSum::of).await(); // parks this task only
              }
            });
      }
      return scope.join(); // results in fork order
    }
    // end:readme
  }

  @SuppressWarnings("ArrayRecordComponent") // never compared
  record Batch(double[] x, double[] y) {
    long size() {
      return x.length;
    }

    long bytes() {
      return (long) Double.BYTES * x.length;
    }
  }

  static final class HostSum {
    private HostSum() {}

    static double of(MemorySegment doubles) {
      double sum = 0;
      for (long i = 0; i < doubles.byteSize() / Double.BYTES; i++) {
        sum += doubles.getAtIndex(ValueLayout.JAVA_DOUBLE, i);
      }
      return sum;
    }
  }
}
