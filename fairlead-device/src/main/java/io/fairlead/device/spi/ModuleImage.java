package io.fairlead.device.spi;

import java.util.Map;

/**
 * Code in a form that some driver loads.
 *
 * <p><b>Kernels for CUDA</b>, in any of its forms, take the declared parameters in order, buffers
 * as device pointers and scalars by value, and after them, if they want it, the number of work
 * items of the {@link Grid} as a 64-bit integer. The grid has ceil(items / block) blocks along x,
 * so the last block may have threads without an item:
 *
 * {@snippet :
 * // declared as kernel("axpy", F64, in(F64), inOut(F64))
 * extern "C" __global__ void axpy(double a, const double* x, double* y, long long items) {
 *   long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
 *   if (i < items) y[i] += a * x[i];
 * }
 * }
 *
 * <p>{@code extern "C"} keeps the name as it is written. A kernel of a {@link Java} image gets the
 * same arguments, and its items as a range: see {@link JavaKernel}.
 */
public sealed interface ModuleImage {
  /** Kernels that are Java code, by name. */
  record Java(Map<String, JavaKernel> kernels) implements ModuleImage {
    public Java {
      kernels = Map.copyOf(kernels);
    }
  }

  /** CUDA C++ source, compiled at load for the device that it is loaded on. */
  record CudaSource(String fileName, String text) implements ModuleImage {}

  /** PTX text. */
  record Ptx(String text) implements ModuleImage {}

  /** A cubin or fatbin. Compared by identity of its bytes; nobody changes them. */
  @SuppressWarnings("ArrayRecordComponent") // an image is handed on, never compared
  record Binary(byte[] bytes) implements ModuleImage {}
}
