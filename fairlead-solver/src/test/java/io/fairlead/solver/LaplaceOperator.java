package io.fairlead.solver;

import static io.fairlead.device.Param.F64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.out;

import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.KernelArguments;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;

/** A user's own operator: the 1-D Laplacian as a kernel, without a matrix. */
final class LaplaceOperator implements Operator, AutoCloseable {
  private final int rows;
  private final KernelModule module;
  private final Kernel kernel;

  LaplaceOperator(Device device, int rows) {
    this.rows = rows;
    this.module =
        device.load(ModuleSource.java("laplace", Map.of("laplace", LaplaceOperator::run)));
    this.kernel = module.kernel("laplace", in(F64), out(F64));
  }

  private static void run(KernelArguments a, long begin, long end) {
    MemorySegment x = a.buffer(0);
    MemorySegment y = a.buffer(1);
    long last = a.bytes(0) / Double.BYTES - 1;
    for (long i = begin; i < end; i++) {
      double left = i > 0 ? x.getAtIndex(ValueLayout.JAVA_DOUBLE, i - 1) : 0.0;
      double right = i < last ? x.getAtIndex(ValueLayout.JAVA_DOUBLE, i + 1) : 0.0;
      double here = x.getAtIndex(ValueLayout.JAVA_DOUBLE, i);
      y.setAtIndex(ValueLayout.JAVA_DOUBLE, i, 2.0 * here - left - right);
    }
  }

  static CsrMatrix matrix(int rows) {
    int[] ptr = new int[rows + 1];
    int[] col = new int[3 * rows];
    double[] val = new double[3 * rows];
    int length = 0;
    for (int i = 0; i < rows; i++) {
      for (int j = Math.max(0, i - 1); j <= Math.min(rows - 1, i + 1); j++) {
        col[length] = j;
        val[length++] = i == j ? 2.0 : -1.0;
      }
      ptr[i + 1] = length;
    }
    return new CsrMatrix(rows, rows, ptr, col, val);
  }

  @Override
  public int rows() {
    return rows;
  }

  @Override
  public void apply(DeviceBuffer x, DeviceBuffer y) {
    kernel.launch(Grid.of(rows), x, y);
  }

  @Override
  public void close() {
    module.close();
  }
}
