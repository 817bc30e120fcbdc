// The kernels that the driver's rules ask for: the arguments, then the number of items.
// rules.ptx is made of it: nvcc -ptx -arch=compute_80 rules.cu, and its .version lowered to 7.0,
// so that drivers since CUDA 11.0 take it.
extern "C" __global__ void number(long long first, long long* out, long long items) {
  long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
  if (i < items) out[i] = first + i;
}
extern "C" __global__ void add(const long long* in, long long* inOut, long long items) {
  long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
  if (i < items) inOut[i] += in[i];
}
extern "C" __global__ void count(unsigned long long* inOut, long long items) {
  long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
  if (i < items) atomicAdd(inOut + i, 1ull);
}
extern "C" __global__ void axpy(double a, const double* x, double* y, long long items) {
  long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
  if (i < items) y[i] += a * x[i];
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
