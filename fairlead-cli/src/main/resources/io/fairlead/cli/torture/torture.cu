// Content of buffers: word i is base + i * STEP, so that one number says what a buffer holds.
#define STEP (-7046029254386353131LL)

extern "C" __global__ void writeWords(long long* words, long long n, long long base) {
  long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) words[i] = base + i * STEP;
}

extern "C" __global__ void moveWords(const long long* from, long long* to, long long n, long long by) {
  long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i] + by;
}

extern "C" __global__ void addToWords(long long* words, long long n, long long by) {
  long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) words[i] += by;
}

extern "C" __global__ void checkWords(const long long* words, unsigned long long* wrong, long long n, long long base) {
  long long i = (long long) blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && words[i] != base + i * STEP) atomicAdd(wrong, 1ULL);
}
