package io.fairlead.ffi;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.sim.LaunchArguments;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * The kernels that the driver's rules ask for, as CUDA has them: the number of items first. The
 * stand-in has them built in and is told their parameters; a GPU gets them in CUDA C++.
 */
final class CudaKernels {
  /** For the stand-in. */
  static final ModuleImage STAND_IN =
      new ModuleImage.Ptx(
          """
          //standin 1
          kernel number n:i64 first:i64 out:ptr
          kernel add n:i64 in:ptr inOut:ptr
          kernel count n:i64 inOut:ptr
          kernel axpy n:i64 a:f64 x:ptr y:ptr
          kernel spin nanos:i64
          kernel hold flag:ptr
          kernel nop
          kernel nullstore
          kernel assertfail
          """);

  /** The same kernels for a GPU, as source. */
  static final String SOURCE =
      """
      extern "C" __global__ void number(long long n, long long first, long long* out) {
        long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[i] = first + i;
      }
      extern "C" __global__ void add(long long n, const long long* in, long long* inOut) {
        long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) inOut[i] += in[i];
      }
      extern "C" __global__ void count(long long n, unsigned long long* inOut) {
        long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(inOut + i, 1ull);
      }
      extern "C" __global__ void axpy(long long n, double a, const double* x, double* y) {
        long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i];
      }
      extern "C" __global__ void spin(long long nanos) {
        unsigned long long begin, now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
        do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < nanos);
      }
      extern "C" __global__ void hold(volatile long long* flag) {
        if (threadIdx.x == 0) while (*flag == 0) __nanosleep(2000);
      }
      extern "C" __global__ void nop() {}
      extern "C" __global__ void nullstore() {
        *(volatile int*) 0 = 1;
      }
      extern "C" __global__ void assertfail() {
        __trap();
      }
      """;

  /** One thread: a kernel that waits need not wait 128 times. */
  static final Grid ALONE = Grid.of(1).withBlock(1);

  private CudaKernels() {}

  /**
   * A kernel that runs until the answer is run. The context that is current is the stream's.
   *
   * @param image has the kernel {@code hold}
   */
  static Runnable hold(Driver driver, ModuleImage image, long stream) {
    long context = driver.current();
    MemorySegment flag = driver.hostAlloc(context, Long.BYTES);
    flag.set(ValueLayout.JAVA_LONG, 0, 0);
    long kernel = driver.kernel(driver.moduleLoad(context, image), "hold");
    driver.launch(stream, kernel, ALONE, new LaunchArguments().scalar(flag.address()));
    return () -> {
      if (flag.scope().isAlive()) {
        flag.set(ValueLayout.JAVA_LONG, 0, 1);
      }
    };
  }

  /** A kernel that stores to where nothing is. */
  static void fault(Driver driver, ModuleImage image, long stream) {
    long kernel = driver.kernel(driver.moduleLoad(driver.current(), image), "nullstore");
    driver.launch(stream, kernel, ALONE, new LaunchArguments());
  }
}
