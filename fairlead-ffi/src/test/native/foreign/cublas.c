/* cuBLAS's calls of a matrix product, by the names and signatures of the real one. */
#include "runtime.h"

#include <stdlib.h>

struct handle {
  CUmodule module;
  CUfunction dgemm;
  CUstream stream;
};

static const char IMAGE[] =
    "//standin 1\n"
    "kernel dgemm ta:i64 tb:i64 m:i64 n:i64 k:i64 alpha:f64 a:ptr lda:i64 b:ptr ldb:i64 beta:f64"
    " c:ptr ldc:i64\n";

static CUresult create(struct handle *made) {
  CUresult status = cuModuleLoadData(&made->module, IMAGE);
  return status != CUDA_SUCCESS ? status
                                : cuModuleGetFunction(&made->dgemm, made->module, "dgemm");
}

int cublasCreate_v2(struct handle **out) {
  *out = calloc(1, sizeof **out);
  FOREIGN(create(*out));
}

static CUresult destroy(struct handle *handle) {
  CUresult status = cuModuleUnload(handle->module);
  free(handle);
  return status;
}

int cublasDestroy_v2(struct handle *handle) { FOREIGN(destroy(handle)); }

int cublasSetStream_v2(struct handle *handle, CUstream stream) {
  handle->stream = stream;
  return CUDA_SUCCESS;
}

static CUresult launch(struct handle *handle, void **parameters, int entries) {
  enum { BLOCK = 128 };
  unsigned blocks = (unsigned)((entries + BLOCK - 1) / BLOCK);
  return cuLaunchKernel(handle->dgemm, blocks, 1, 1, BLOCK, 1, 1, 0, handle->stream, parameters,
                        NULL);
}

int cublasDgemm_v2(struct handle *handle, int transa, int transb, int m, int n, int k,
                   const double *alpha, const double *a, int lda, const double *b, int ldb,
                   const double *beta, double *c, int ldc) {
  int64_t wide[] = {transa, transb, m, n, k, lda, ldb, ldc};
  double scales[] = {*alpha, *beta};
  void *parameters[] = {&wide[0], &wide[1], &wide[2], &wide[3], &wide[4], &scales[0], &a,
                        &wide[5], &b,       &wide[6], &scales[1], &c,     &wide[7]};
  FOREIGN(launch(handle, parameters, m * n));
}
