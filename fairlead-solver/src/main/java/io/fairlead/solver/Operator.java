package io.fairlead.solver;

import io.fairlead.memory.DeviceBuffer;

/**
 * A symmetric positive definite operator that is not stored as a matrix: a user's own kernel, or
 * code on the host.
 *
 * <p>Solves that run at the same time call it at the same time, each from its own task.
 */
public interface Operator {
  /** Returns the number of rows, which is also that of columns. */
  int rows();

  /**
   * Enqueues {@code y = A x} on the calling task's stream: launch kernels there and return, without
   * waiting.
   *
   * @param x {@code rows} doubles, to be read only
   * @param y {@code rows} doubles, to be overwritten
   */
  void apply(DeviceBuffer x, DeviceBuffer y);

  /** Wraps a product that is computed on the host: x comes down and y goes up, each time. */
  static Operator onHost(int rows, HostProduct product) {
    return new Operator() {
      @Override
      public int rows() {
        return rows;
      }

      @Override
      public void apply(DeviceBuffer x, DeviceBuffer y) {
        double[] in = x.toDoubles();
        double[] out = new double[in.length];
        product.apply(in, out);
        y.upload(out);
      }
    };
  }

  /** {@code y = A x} in host arrays. */
  @FunctionalInterface
  interface HostProduct {
    /** Overwrites every entry of {@code y}, which comes as zeros. */
    void apply(double[] x, double[] y);
  }
}
