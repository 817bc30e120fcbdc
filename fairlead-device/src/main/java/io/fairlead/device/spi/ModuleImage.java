package io.fairlead.device.spi;

import java.util.Map;

/** Code in a form that some driver loads. */
public sealed interface ModuleImage {
  /** Kernels that are Java code, by name. */
  record Java(Map<String, JavaKernel> kernels) implements ModuleImage {
    public Java {
      kernels = Map.copyOf(kernels);
    }
  }

  /** CUDA C++ source, compiled at load. */
  record CudaSource(String fileName, String text) implements ModuleImage {}

  /** PTX text. */
  record Ptx(String text) implements ModuleImage {}

  /** A cubin or fatbin. Compared by identity of its bytes; nobody changes them. */
  @SuppressWarnings("ArrayRecordComponent") // an image is handed on, never compared
  record Binary(byte[] bytes) implements ModuleImage {}
}
