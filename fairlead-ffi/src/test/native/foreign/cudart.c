/* The run-time API's calls that the tests make, by the names and signatures of the real one. */
#include "runtime.h"

enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2, DEVICE_TO_DEVICE = 3 };

int cudaMalloc(void **out, size_t bytes) { FOREIGN(cuMemAlloc_v2((CUdeviceptr *)out, bytes)); }

int cudaFree(void *address) { FOREIGN(cuMemFree_v2((CUdeviceptr)address)); }

int cudaMallocAsync(void **out, size_t bytes, CUstream on) {
  FOREIGN(cuMemAllocAsync((CUdeviceptr *)out, bytes, on));
}

int cudaFreeAsync(void *address, CUstream on) { FOREIGN(cuMemFreeAsync((CUdeviceptr)address, on)); }

static CUresult copy(void *target, const void *source, size_t bytes, int kind, CUstream on) {
  switch (kind) {
    case HOST_TO_DEVICE: return cuMemcpyHtoDAsync_v2((CUdeviceptr)target, source, bytes, on);
    case DEVICE_TO_HOST: return cuMemcpyDtoHAsync_v2(target, (CUdeviceptr)source, bytes, on);
    case DEVICE_TO_DEVICE:
      return cuMemcpyDtoDAsync_v2((CUdeviceptr)target, (CUdeviceptr)source, bytes, on);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

int cudaMemcpyAsync(void *target, const void *source, size_t bytes, int kind, CUstream on) {
  FOREIGN(copy(target, source, bytes, kind, on));
}

int cudaMemsetAsync(void *target, int value, size_t count, CUstream on) {
  FOREIGN(cuMemsetD8Async((CUdeviceptr)target, (unsigned char)value, count, on));
}

int cudaStreamCreateWithFlags(CUstream *out, unsigned int flags) {
  FOREIGN(cuStreamCreate(out, flags));
}

int cudaStreamDestroy(CUstream stream) { FOREIGN(cuStreamDestroy_v2(stream)); }

int cudaStreamSynchronize(CUstream stream) { FOREIGN(cuStreamSynchronize(stream)); }
