/*
 * What foreign libraries begin with: the run-time API takes the context that is current, and makes
 * device 0's primary one current on a thread that has none.
 */
#ifndef RUNTIME_H
#define RUNTIME_H

#include "../cuda_subset.h"

/* Of the stand-in, against which these are linked. */
int standin_foreign(int on);
CUresult cuInit(unsigned int flags);
CUresult cuCtxGetCurrent(CUcontext *out);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                        CUstream stream, void **parameters, void **extra);
CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream on);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream on);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t bytes, CUstream on);
CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t bytes, CUstream on);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream on);
CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream on);
CUresult cuStreamCreate(CUstream *out, unsigned int flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);

static inline CUresult runtime_context(void) {
  CUcontext current;
  CUresult status = cuCtxGetCurrent(&current);
  if (status != CUDA_SUCCESS || current != NULL) return status;
  status = cuDevicePrimaryCtxRetain(&current, 0);
  if (status != CUDA_SUCCESS) return status;
  cuDevicePrimaryCtxRelease_v2(0); /* somebody else has it, or it was not there */
  return cuCtxSetCurrent(current);
}

/* A call of the library: in its context, and known to be foreign. */
#define FOREIGN(call)                        \
  do {                                       \
    int before_ = standin_foreign(1);        \
    CUresult status_ = runtime_context();    \
    if (status_ == CUDA_SUCCESS) status_ = call; \
    standin_foreign(before_);                \
    return (int)status_;                     \
  } while (0)

#endif
