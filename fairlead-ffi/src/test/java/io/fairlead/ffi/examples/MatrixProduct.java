package io.fairlead.ffi.examples;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceStream;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Lease;
import io.fairlead.task.Engine;
import io.fairlead.task.EngineFactory;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.ThreadRule;

/** The example of docs/guide/foreign-code.md: cuBLAS as an engine, on streams of tasks. */
public final class MatrixProduct implements AutoCloseable {
  private final Device device;
  private final Cublas cublas;
  private final Engine<Long> blas;

  /**
   * Declares the engine.
   *
   * @param library of cuBLAS, by its name or path
   */
  public MatrixProduct(TaskRuntime tasks, Device device, String library, int instances) {
    this.device = device;
    this.cublas = new Cublas(library);
    // snippet:declare
    EngineLimits limits = EngineLimits.of(instances).releaseGate(task -> device.stream().reached());
    blas = tasks.engine("cublas", ThreadRule.OWNER_ONLY, new Handles(cublas, device), limits);
    // end:declare
  }

  // snippet:factory
  /** Makes and destroys handles of cuBLAS, each on the thread that it is used on. */
  private record Handles(Cublas cublas, Device device) implements EngineFactory<Long> {
    @Override
    public Long create() {
      device.context().binding().bind(); // the thread is the handle's own: bound for good
      return cublas.create();
    }

    @Override
    public void destroy(Long handle) {
      cublas.destroy(handle);
    }
  }

  // end:factory

  // snippet:multiply
  /** c = a b, of n by n, in the order of the calling task's stream; waits for nothing. */
  public void multiply(int n, DeviceBuffer a, DeviceBuffer b, DeviceBuffer c) {
    DeviceStream stream = device.stream();
    try (Lease left = a.lease(stream, Access.READ);
        Lease right = b.lease(stream, Access.READ);
        Lease product = c.lease(stream, Access.WRITE)) {
      blas.call(
          0,
          handle -> {
            cublas.setStream(handle, stream.nativeHandle());
            cublas.dgemm(handle, n, left.address(), right.address(), product.address());
            return null;
          });
    }
  }

  // end:multiply

  @Override
  public void close() {
    blas.close();
  }
}
