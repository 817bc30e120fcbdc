// The kernels of the solver for a GPU. SolverKernels has their names and parameters, JavaKernels
// the same in Java, GpuGrids how they are launched. C++17 without any header: NVRTC compiles the
// file as it is, and so does nvcc.
//
// Threads. A product with a sparse matrix takes a thread for each row. Slices are four rows wide,
// so the four values that lie side by side are one memory sector of 32 bytes, and a warp reads
// eight of those: as many as 32 doubles fill at best. A sorted block of 64 rows is two warps, each
// of rows that are about equally long. A dot product takes a thread block for each chunk, the
// dense inverse a thread block for each row.
//
// Order of sums. A row's sum runs in the order of its entries. All other sums have a fixed number
// of lanes: each adds its items in order, then the lanes are added as a tree. Neither depends on
// the number of blocks or threads that were launched, so results are the same bit for bit for any
// launch with at most MOST_THREADS threads in a block. They are not those of the host device: its
// chunks are summed in another order, and a GPU fuses a product and a sum into one rounding.

// SolverKernels, SlicedRows and GpuGrids have the same numbers.
constexpr int BLOCK = 64;
constexpr int SLICE = 4;
constexpr int CHUNK = 1024;
constexpr int DOT_LANES = 512;
constexpr int DENSE_LANES = 128;
constexpr int MOST_THREADS = 512;

// Slots, and the steps of SolverKernels.
constexpr int SLOT_PQ = 1;
constexpr int SLOT_RQ = 2;
constexpr int SLOT_QQ = 3;
constexpr int SLOT_RR = 4;
constexpr int SLOT_NEXT_RZ = 5;
constexpr int SLOT_RZ = 6;
constexpr int SLOT_ALPHA = 7;
constexpr int SLOT_BETA = 8;
constexpr int SLOT_PREDICTED = 9;
constexpr int STEP_NONE = 0;
constexpr int STEP_ALPHA = 1;
constexpr int STEP_BETA = 2;

// Dot products that are summed at once, at most.
constexpr int MOST_DOTS = 3;

#define KERNEL extern "C" __global__ void __launch_bounds__(MOST_THREADS)
#define MATRIX                                                                                 \
  const int *__restrict__ slicePtr, const int *__restrict__ colIdx,                            \
      const double *__restrict__ values, const signed char *__restrict__ order, int rows

// --- where a thread is ------------------------------------------------------------------------

__device__ __forceinline__ long long firstItem() {
  return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ long long stride() { return (long long)gridDim.x * blockDim.x; }

// At least one, so that every sum is written.
__device__ __forceinline__ int chunksOf(int items) {
  return items <= CHUNK ? 1 : (int)(((long long)items + CHUNK - 1) / CHUNK);
}

// --- sums -------------------------------------------------------------------------------------

// Adds the lanes of each row of sums into its first. All threads of the block call it; the lanes
// that they wrote before are seen by all.
template <int ROWS, int LANES>
__device__ __forceinline__ void addLanes(double (&sums)[ROWS][LANES]) {
  for (int half = LANES / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int lane = threadIdx.x; lane < half; lane += blockDim.x) {
      for (int row = 0; row < ROWS; row++) {
        sums[row][lane] += sums[row][lane + half];
      }
    }
  }
  __syncthreads();
}

// Stores a chunk's sums into the partials from `first` on, `pitch` apart. All threads of the block
// call it, and may write the lanes again after it.
template <int ROWS, int LANES>
__device__ __forceinline__ void storeSums(
    double (&sums)[ROWS][LANES], double *first, long long pitch) {
  addLanes(sums);
  for (int row = threadIdx.x; row < ROWS; row += blockDim.x) {
    first[row * pitch] = sums[row][0];
  }
  __syncthreads();
}

// --- products with a sparse matrix -------------------------------------------------------------

// The row that is at a place of its block.
__device__ __forceinline__ long long rowAt(const signed char *order, long long place) {
  return place / BLOCK * BLOCK + __ldg(order + place);
}

// The product of the row at a place with x, which the kernel does not write.
__device__ __forceinline__ double rowSum(
    const int *slicePtr, const int *colIdx, const double *values, const double *x,
    long long place) {
  const int *slice = slicePtr + place / SLICE;
  int end = __ldg(slice + 1);
  double sum = 0.0;
#pragma unroll 4
  for (int k = __ldg(slice) + (int)(place % SLICE); k < end; k += SLICE) {
    sum += __ldg(values + k) * __ldg(x + __ldg(colIdx + k));
  }
  return sum;
}

// Places from `rows` on are empty rows that fill up the last block: sorting leaves them last.
#define FOR_EACH_PLACE                                                                         \
  for (long long place = firstItem(), step = stride(); place < rows; place += step)

// y = A x.
KERNEL apply(MATRIX, const double *__restrict__ x, double *__restrict__ y) {
  FOR_EACH_PLACE {
    y[rowAt(order, place)] = rowSum(slicePtr, colIdx, values, x, place);
  }
}

// q = A p, and each chunk's part of p·q, r·q and q·q.
KERNEL applyDots(
    MATRIX, const double *__restrict__ p, const double *__restrict__ r, double *__restrict__ q,
    double *__restrict__ partials) {
  __shared__ double sums[3][DOT_LANES];
  int chunks = chunksOf(rows);
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    long long first = (long long)chunk * CHUNK;
    for (int lane = threadIdx.x; lane < DOT_LANES; lane += blockDim.x) {
      double pq = 0.0;
      double rq = 0.0;
      double qq = 0.0;
      for (int k = lane; k < CHUNK && first + k < rows; k += DOT_LANES) {
        long long row = rowAt(order, first + k);
        double qi = rowSum(slicePtr, colIdx, values, p, first + k);
        q[row] = qi;
        pq += __ldg(p + row) * qi;
        rq += __ldg(r + row) * qi;
        qq += qi * qi;
      }
      sums[0][lane] = pq;
      sums[1][lane] = rq;
      sums[2][lane] = qq;
    }
    storeSums(sums, partials + chunk, chunks);
  }
}

// y = b − A x.
KERNEL residual(
    MATRIX, const double *__restrict__ x, const double *__restrict__ b, double *__restrict__ y) {
  FOR_EACH_PLACE {
    long long row = rowAt(order, place);
    y[row] = __ldg(b + row) - rowSum(slicePtr, colIdx, values, x, place);
  }
}

// y = cx x + cold old + gain D⁻¹ (b − A x). y may be the memory of old, and old that of x: a
// thread reads its item of old before it writes it, and nobody else does.
KERNEL smooth(
    MATRIX, const double *__restrict__ x, const double *old, const double *__restrict__ b,
    const double *__restrict__ inverse, double *y, double ofX, double ofOld, double gain) {
  FOR_EACH_PLACE {
    long long row = rowAt(order, place);
    double sum = rowSum(slicePtr, colIdx, values, x, place);
    double correction = gain * __ldg(inverse + row) * (__ldg(b + row) - sum);
    y[row] = ofX * __ldg(x + row) + ofOld * old[row] + correction;
  }
}

// y = R x, and y1 = gain D⁻¹ y: the first smoothing of a zero guess.
KERNEL restrict(
    MATRIX, const double *__restrict__ x, double *__restrict__ y,
    const double *__restrict__ inverse, double *__restrict__ y1, double gain) {
  FOR_EACH_PLACE {
    long long row = rowAt(order, place);
    double sum = rowSum(slicePtr, colIdx, values, x, place);
    y[row] = sum;
    y1[row] = gain * __ldg(inverse + row) * sum;
  }
}

// y = y + P x.
KERNEL prolong(MATRIX, const double *__restrict__ x, double *__restrict__ y) {
  FOR_EACH_PLACE {
    long long row = rowAt(order, place);
    y[row] += rowSum(slicePtr, colIdx, values, x, place);
  }
}

// --- the coarsest level -----------------------------------------------------------------------

// y = M x for a dense matrix by rows.
KERNEL dense(
    const double *__restrict__ m, const double *__restrict__ x, double *__restrict__ y, int rows,
    int columns) {
  __shared__ double sums[1][DENSE_LANES];
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const double *entries = m + (long long)row * columns;
    for (int lane = threadIdx.x; lane < DENSE_LANES; lane += blockDim.x) {
      double sum = 0.0;
#pragma unroll 4
      for (int j = lane; j < columns; j += DENSE_LANES) {
        sum += __ldg(entries + j) * __ldg(x + j);
      }
      sums[0][lane] = sum;
    }
    storeSums(sums, y + row, 1);
  }
}

// --- vectors ----------------------------------------------------------------------------------

// y = gain D⁻¹ x.
KERNEL scale(
    const double *__restrict__ x, const double *__restrict__ inverse, double *__restrict__ y,
    double gain, long long items) {
  for (long long i = firstItem(); i < items; i += stride()) {
    y[i] = gain * inverse[i] * x[i];
  }
}

// y = x + f y with f = factor · scalars[slot].
KERNEL addScaled(
    double factor, int slot, const double *__restrict__ scalars, const double *__restrict__ x,
    double *__restrict__ y, long long items) {
  double f = factor * scalars[slot];
  for (long long i = firstItem(); i < items; i += stride()) {
    y[i] = x[i] + f * y[i];
  }
}

// x = x + α p; r = r − α q; z = gain D⁻¹ r, and each chunk's part of r·r and r·z.
KERNEL update(
    double factor, int slot, const double *__restrict__ scalars, const double *__restrict__ p,
    const double *__restrict__ q, const double *__restrict__ inverse, double gain,
    double *__restrict__ x, double *__restrict__ r, double *__restrict__ z,
    double *__restrict__ partials, int n) {
  __shared__ double sums[2][DOT_LANES];
  double alpha = factor * scalars[slot];
  int chunks = chunksOf(n);
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    long long first = (long long)chunk * CHUNK;
    for (int lane = threadIdx.x; lane < DOT_LANES; lane += blockDim.x) {
      double rr = 0.0;
      double rz = 0.0;
      for (int k = lane; k < CHUNK && first + k < n; k += DOT_LANES) {
        long long i = first + k;
        double ri = r[i] - alpha * q[i];
        double zi = gain * inverse[i] * ri;
        x[i] += alpha * p[i];
        r[i] = ri;
        z[i] = zi;
        rr += ri * ri;
        rz += ri * zi;
      }
      sums[0][lane] = rr;
      sums[1][lane] = rz;
    }
    storeSums(sums, partials + chunk, chunks);
  }
}

// Each chunk's part of p·q, r·q and q·q.
KERNEL dots(
    const double *__restrict__ p, const double *__restrict__ r, const double *__restrict__ q,
    double *__restrict__ partials, int n) {
  __shared__ double sums[3][DOT_LANES];
  int chunks = chunksOf(n);
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    long long first = (long long)chunk * CHUNK;
    for (int lane = threadIdx.x; lane < DOT_LANES; lane += blockDim.x) {
      double pq = 0.0;
      double rq = 0.0;
      double qq = 0.0;
      for (int k = lane; k < CHUNK && first + k < n; k += DOT_LANES) {
        double qi = q[first + k];
        pq += p[first + k] * qi;
        rq += r[first + k] * qi;
        qq += qi * qi;
      }
      sums[0][lane] = pq;
      sums[1][lane] = rq;
      sums[2][lane] = qq;
    }
    storeSums(sums, partials + chunk, chunks);
  }
}

// Each chunk's part of x·y, in the row of the partials that is named. y may be x.
KERNEL dot(
    const double *__restrict__ x, const double *__restrict__ y, double *__restrict__ partials,
    int row, int n) {
  __shared__ double sums[1][DOT_LANES];
  int chunks = chunksOf(n);
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    long long first = (long long)chunk * CHUNK;
    for (int lane = threadIdx.x; lane < DOT_LANES; lane += blockDim.x) {
      double sum = 0.0;
      for (int k = lane; k < CHUNK && first + k < n; k += DOT_LANES) {
        sum += x[first + k] * y[first + k];
      }
      sums[0][lane] = sum;
    }
    storeSums(sums, partials + (long long)row * chunks + chunk, chunks);
  }
}

__device__ __forceinline__ void takeStep(int step, double *s) {
  if (step == STEP_ALPHA) {
    double alpha = s[SLOT_RZ] / s[SLOT_PQ];
    double square =
        s[SLOT_RR] - 2.0 * alpha * s[SLOT_RQ] + alpha * alpha * s[SLOT_QQ];
    s[SLOT_ALPHA] = alpha;
    // Not fmax: what is not a number must stay so, for the host looks at it.
    s[SLOT_PREDICTED] = square <= 0.0 ? 0.0 : square;
  } else if (step == STEP_BETA) {
    double next = s[SLOT_NEXT_RZ];
    s[SLOT_BETA] = next / s[SLOT_RZ];
    s[SLOT_RZ] = next;
  } else if (step != STEP_NONE) {
    __trap();
  }
}

// Adds the chunks of up to MOST_DOTS dot products into the scalars from a slot on; then takes the
// step of the iteration that is named. The first block does all of it.
KERNEL sum(
    const double *__restrict__ partials, double *s, int chunks, int count, int slot, int step) {
  __shared__ double sums[MOST_DOTS][DOT_LANES];
  if (blockIdx.x != 0) {
    return;
  }
  if (count > MOST_DOTS) {
    __trap();
  }
  for (int lane = threadIdx.x; lane < DOT_LANES; lane += blockDim.x) {
    for (int k = 0; k < MOST_DOTS; k++) {
      double sum = 0.0;
      for (long long i = lane; k < count && i < chunks; i += DOT_LANES) {
        sum += partials[(long long)k * chunks + i];
      }
      sums[k][lane] = sum;
    }
  }
  addLanes(sums);
  if (threadIdx.x == 0) {
    for (int k = 0; k < count; k++) {
      s[slot + k] = sums[k][0];
    }
    takeStep(step, s);
  }
}

// y[k] = x[index[k]].
KERNEL pack(
    const int *__restrict__ index, const double *__restrict__ x, double *__restrict__ y,
    long long items) {
  for (long long k = firstItem(); k < items; k += stride()) {
    y[k] = __ldg(x + index[k]);
  }
}
