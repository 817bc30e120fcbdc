import static jcuda.driver.JCudaDriver.cuCtxSetCurrent;
import static jcuda.driver.JCudaDriver.cuDeviceGet;
import static jcuda.driver.JCudaDriver.cuDevicePrimaryCtxRetain;
import static jcuda.driver.JCudaDriver.cuInit;
import static jcuda.driver.JCudaDriver.cuLaunchKernel;
import static jcuda.driver.JCudaDriver.cuMemAllocAsync;
import static jcuda.driver.JCudaDriver.cuMemFreeAsync;
import static jcuda.driver.JCudaDriver.cuModuleGetFunction;
import static jcuda.driver.JCudaDriver.cuModuleLoadData;
import static jcuda.driver.JCudaDriver.cuStreamCreate;
import static jcuda.driver.JCudaDriver.cuStreamSynchronize;

import jcuda.Pointer;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUfunction;
import jcuda.driver.CUmodule;
import jcuda.driver.CUstream;

/**
 * {@code JCudaPeer IMAGE SCALE}: JCuda's binding of the driver API. It cannot tell the driver's pool
 * to keep what is freed, so the first allocation after each wait may go to the system.
 */
final class JCudaPeer extends JvmPeer {
  private final CUstream stream = new CUstream();
  private final CUfunction nop = new CUfunction();
  private final CUfunction spin = new CUfunction();
  private final long[] nanosArgument = new long[1];
  private final Pointer arguments = Pointer.to(Pointer.to(nanosArgument));

  private JCudaPeer(byte[] image) {
    CUdevice device = new CUdevice();
    CUcontext context = new CUcontext();
    CUmodule module = new CUmodule();
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(module, image), "cuModuleLoadData");
    check(cuModuleGetFunction(nop, module, "nop"), "cuModuleGetFunction");
    check(cuModuleGetFunction(spin, module, "spin"), "cuModuleGetFunction");
    check(cuStreamCreate(stream, NON_BLOCKING), "cuStreamCreate");
  }

  @Override
  void launch(long nanos) {
    nanosArgument[0] = nanos;
    check(
        nanos == 0
            ? cuLaunchKernel(nop, 1, 1, 1, 1, 1, 1, 0, stream, null, null)
            : cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, null),
        "cuLaunchKernel");
  }

  @Override
  void synchronize() {
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  @Override
  void allocate() {
    CUdeviceptr address = new CUdeviceptr();
    check(cuMemAllocAsync(address, ALLOCATED_BYTES, stream), "cuMemAllocAsync");
    check(cuMemFreeAsync(address, stream), "cuMemFreeAsync");
  }

  public static void main(String[] words) throws Exception {
    new JCudaPeer(image(words[0])).measure(Integer.parseInt(words[1]));
  }
}
