// Copies of many small pieces between device memory and page-locked host memory, which a kernel
// reaches by the same addresses as the host does. CudaPieces launches it.

namespace {

// An entry of the table, as io.fairlead.device.spi.Pieces writes it.
struct Piece {
  char* device;
  char* host;
  long long bytes;
};

// Loads before stores, so that so many are on their way over the bus at once.
constexpr int UNROLL = 4;

__device__ void copy_wide(int4* target, const int4* source, long long count) {
  const long long threads = blockDim.x;
  long long i = threadIdx.x;
  for (; i + (UNROLL - 1) * threads < count; i += UNROLL * threads) {
    int4 values[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) values[k] = source[i + k * threads];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) target[i + k * threads] = values[k];
  }
  for (; i < count; i += threads) target[i] = source[i];
}

__device__ void copy(char* target, const char* source, long long bytes) {
  const unsigned long long ends =
      reinterpret_cast<unsigned long long>(target) | reinterpret_cast<unsigned long long>(source);
  const long long wide = ends % sizeof(int4) == 0 ? bytes / sizeof(int4) : 0;
  copy_wide(reinterpret_cast<int4*>(target), reinterpret_cast<const int4*>(source), wide);
  for (long long i = wide * sizeof(int4) + threadIdx.x; i < bytes; i += blockDim.x) {
    target[i] = source[i];
  }
}

}  // namespace

// Each block takes a piece at a time; one of its threads reads the entry, which lies on the host.
extern "C" __global__ void fairlead_copy_pieces(const Piece* pieces, long long count,
                                                long long to_host) {
  __shared__ Piece piece;
  for (long long i = blockIdx.x; i < count; i += gridDim.x) {
    if (threadIdx.x == 0) piece = pieces[i];
    __syncthreads();
    copy(to_host ? piece.host : piece.device, to_host ? piece.device : piece.host, piece.bytes);
    __syncthreads();
  }
}
