package io.fairlead.ffi;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.ModuleImage;

/** Both pools on a GPU. */
class MemoryPoolGpuContractTest extends MemoryPoolContract {
  @Override
  Driver openDriver() {
    return CudaGpu.open();
  }

  @Override
  ModuleImage image() {
    return CudaKernels.PTX;
  }
}
