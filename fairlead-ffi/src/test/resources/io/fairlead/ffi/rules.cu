// The kernels that the driver's rules ask for: the number of items first, then the arguments.
// rules.ptx is made of it: nvcc -ptx -arch=compute_80 rules.cu, and its .version lowered to 7.0,
// so that drivers since CUDA 11.0 take it.
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
