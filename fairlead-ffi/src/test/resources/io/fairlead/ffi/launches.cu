// Kernels that only some launches can run; scripts/prebuild-kernels makes launches.fatbin of it.
// Without cooperative_groups.h, which the run-time compiler has not.

// A barrier of all threads of a cooperative launch. The counter is zero before the launch.
__device__ void gridBarrier(unsigned* counter, unsigned round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(counter, 1);
    while (*(volatile unsigned*)counter < round * gridDim.x) {
    }
    __threadfence();
  }
  __syncthreads();
}

// Each block writes its number, and after the barrier adds what the block behind it wrote. With
// blocks that do not all run at once it would never end.
extern "C" __global__ void ring(long long* out, long long* sums, unsigned* counter) {
  unsigned next = (blockIdx.x + 1) % gridDim.x;
  for (unsigned round = 1; round <= 10; round++) {
    if (threadIdx.x == 0) out[blockIdx.x] = 100 * round + blockIdx.x;
    gridBarrier(counter, 2 * round - 1);
    if (threadIdx.x == 0) sums[blockIdx.x] += ((volatile long long*)out)[next];
    gridBarrier(counter, 2 * round);
  }
}

// Each block gives its number to the others of its cluster through their shared memory.
extern "C" __global__ void cluster(long long* ranks, long long* sums) {
#if __CUDA_ARCH__ >= 900
  __shared__ long long mine;
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) mine = blockIdx.x;
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0) {
    long long sum = 0;
    for (unsigned k = 0; k < size; k++) {
      unsigned here = (unsigned)__cvta_generic_to_shared(&mine), there;
      long long value;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(k));
      asm volatile("ld.shared::cluster.s64 %0, [%1];" : "=l"(value) : "r"(there));
      sum += value;
    }
    ranks[blockIdx.x] = rank;
    sums[blockIdx.x] = sum;
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// Turns the items of a block round in dynamic shared memory, of which there are `count` longs.
extern "C" __global__ void turn(long long* inOut, int count) {
  extern __shared__ long long items[];
  for (int i = threadIdx.x; i < count; i += blockDim.x) items[i] = inOut[i];
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) inOut[i] = items[count - 1 - i];
}
