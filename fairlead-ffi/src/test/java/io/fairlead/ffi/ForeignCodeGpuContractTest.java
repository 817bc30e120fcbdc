package io.fairlead.ffi;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.ModuleImage;

/** Foreign code beside us on a GPU: the real cuBLAS and the real run-time API. */
class ForeignCodeGpuContractTest extends ForeignCodeContract {

  @Override
  Driver openDriver() {
    return CudaGpu.open();
  }

  @Override
  ModuleImage image() {
    return CudaKernels.PTX;
  }

  @Override
  String driverLibrary() {
    return "libcuda.so.1";
  }

  @Override
  String cublas() {
    return NvidiaLibraries.find("cublas", "cublasLt");
  }

  @Override
  String cudart() {
    return NvidiaLibraries.find("cudart");
  }
}
