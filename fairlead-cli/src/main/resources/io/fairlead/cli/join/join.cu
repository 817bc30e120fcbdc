// The kernels of the join for a GPU. JoinKernels has their names and parameters and says what rows
// and tables are, JavaJoinKernels has the same in Java. C++17 without any header: NVRTC compiles the
// file as it is, and so does nvcc.
//
// Results do not depend on how many blocks or threads were launched, nor on their order, except for
// where rows lie in a partition and entries in a table: all that is shared is changed by adding, or
// by taking a free entry.

typedef unsigned long long word64;

// JoinKernels and Groups have the same numbers.
constexpr long long FREE = (long long)0x8000000000000000ULL;
constexpr int TAKEN = 0;
constexpr int OVERFLOWED = 1;
constexpr int COLLECTED = 2;
constexpr int LEFT_ROWS = 1;
constexpr int RIGHT_ROWS = 2;
constexpr int SUMS = 3;
constexpr int MOST_PARTITIONS = 1024;
constexpr int TILE_ROWS = 2048;
constexpr int MOST_THREADS = 512;

#define KERNEL extern "C" __global__ void __launch_bounds__(MOST_THREADS)

// --- where a thread is ------------------------------------------------------------------------

__device__ __forceinline__ long long firstItem() {
  return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ long long stride() { return (long long)gridDim.x * blockDim.x; }

// --- where a key goes, as KeyHash says --------------------------------------------------------

__device__ __forceinline__ word64 hashOf(long long key) {
  word64 h = (word64)key;
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDULL;
  h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53ULL;
  return h ^ (h >> 33);
}

__device__ __forceinline__ int partitionOf(long long key, int bits) {
  return bits == 0 ? 0 : (int)(hashOf(key) >> (64 - bits));
}

__device__ __forceinline__ long long slotOf(long long key, int bits, long long capacity) {
  return (long long)__umul64hi(hashOf(key) << bits, (word64)capacity);
}

__device__ __forceinline__ long long add(long long *target, long long value) {
  return (long long)atomicAdd((word64 *)target, (word64)value);
}

// --- partitions -------------------------------------------------------------------------------

// Counts the rows of a tile by partition. All threads of the block call it, and see the counts
// afterwards.
__device__ __forceinline__ void countTile(
    const long long *rows, long long first, long long end, int words, int bits, int *counts) {
  for (int p = threadIdx.x; p < 1 << bits; p += blockDim.x) {
    counts[p] = 0;
  }
  __syncthreads();
  for (long long row = first + threadIdx.x; row < end; row += blockDim.x) {
    atomicAdd(&counts[partitionOf(rows[row * words], bits)], 1);
  }
  __syncthreads();
}

__device__ __forceinline__ long long smaller(long long a, long long b) { return a < b ? a : b; }

// A block for each tile.
KERNEL countRows(
    const long long *__restrict__ rows, int n, int words, int bits, long long *counts) {
  __shared__ int inTile[MOST_PARTITIONS];
  for (long long tile = blockIdx.x; tile * TILE_ROWS < n; tile += gridDim.x) {
    long long first = tile * TILE_ROWS;
    countTile(rows, first, smaller(first + TILE_ROWS, n), words, bits, inTile);
    for (int p = threadIdx.x; p < 1 << bits; p += blockDim.x) {
      if (inTile[p] != 0) {
        add(&counts[p], inTile[p]);
      }
    }
    __syncthreads();
  }
}

// A block for each tile, whose rows find their places together.
KERNEL scatterRows(
    const long long *__restrict__ rows, int n, int words, int bits, long long *next,
    long long *__restrict__ sorted) {
  __shared__ int inTile[MOST_PARTITIONS];
  __shared__ long long places[MOST_PARTITIONS];
  for (long long tile = blockIdx.x; tile * TILE_ROWS < n; tile += gridDim.x) {
    long long first = tile * TILE_ROWS;
    long long end = smaller(first + TILE_ROWS, n);
    countTile(rows, first, end, words, bits, inTile);
    for (int p = threadIdx.x; p < 1 << bits; p += blockDim.x) {
      if (inTile[p] != 0) {
        places[p] = add(&next[p], inTile[p]);
        inTile[p] = 0;
      }
    }
    __syncthreads();
    for (long long row = first + threadIdx.x; row < end; row += blockDim.x) {
      const long long *from = rows + row * words;
      int p = partitionOf(from[0], bits);
      long long *to = sorted + (places[p] + atomicAdd(&inTile[p], 1)) * words;
      for (int word = 0; word < words; word++) {
        to[word] = from[word];
      }
    }
    __syncthreads();
  }
}

// --- tables -----------------------------------------------------------------------------------

// A thread for each entry.
KERNEL clearTable(long long *__restrict__ table, long long capacity, int entryWords) {
  for (long long entry = firstItem(); entry <= capacity; entry += stride()) {
    long long *at = table + entry * entryWords;
    at[0] = FREE;
    for (int word = 1; word < entryWords; word++) {
      at[word] = 0;
    }
  }
}

// The key's entry, which is taken if there is none; null if none is free.
__device__ __forceinline__ long long *take(
    long long key, int bits, long long *table, long long capacity, int entryWords,
    long long probesMax) {
  if (key == FREE) {
    return table + capacity * entryWords; // its key is that already
  }
  long long slot = slotOf(key, bits, capacity);
  for (long long probe = 0; probe < probesMax; probe++) {
    long long *at = table + slot * entryWords;
    long long there = *(volatile long long *)at;
    if (there == FREE) {
      there = (long long)atomicCAS((word64 *)at, (word64)FREE, (word64)key);
    }
    if (there == key || there == FREE) {
      return at;
    }
    slot = slot + 1 == capacity ? 0 : slot + 1;
  }
  return nullptr;
}

// A thread for each row.
KERNEL buildTable(
    const long long *__restrict__ rows, int n, int words, int bits, long long *table,
    long long capacity, int entryWords, long long probesMax, long long *counters) {
  long long taken = 0;
  for (long long row = firstItem(); row < n; row += stride()) {
    const long long *from = rows + row * words;
    long long *at = take(from[0], bits, table, capacity, entryWords, probesMax);
    if (at == nullptr) {
      *(volatile long long *)&counters[OVERFLOWED] = 1; // the host looks at that, and begins anew
      return;
    }
    if (add(&at[LEFT_ROWS], 1) == 0) {
      taken++;
    }
    for (int word = 1; word < words; word++) {
      add(&at[SUMS + word - 1], from[word]);
    }
  }
  if (taken != 0) {
    add(&counters[TAKEN], taken);
  }
}

// The key's entry, or null. Nobody takes entries meanwhile.
__device__ __forceinline__ long long *find(
    long long key, int bits, long long *table, long long capacity, int entryWords) {
  if (key == FREE) {
    return table + capacity * entryWords;
  }
  long long slot = slotOf(key, bits, capacity);
  for (long long probe = 0; probe < capacity; probe++) {
    long long *at = table + slot * entryWords;
    if (at[0] == key) {
      return at;
    }
    if (at[0] == FREE) {
      return nullptr;
    }
    slot = slot + 1 == capacity ? 0 : slot + 1;
  }
  return nullptr;
}

// A thread for each row.
KERNEL probeTable(
    const long long *__restrict__ rows, int n, int words, int bits, long long *table,
    long long capacity, int entryWords) {
  int sums = entryWords - (words - 1);
  for (long long row = firstItem(); row < n; row += stride()) {
    const long long *from = rows + row * words;
    long long *at = find(from[0], bits, table, capacity, entryWords);
    if (at != nullptr) {
      add(&at[RIGHT_ROWS], 1);
      for (int word = 1; word < words; word++) {
        add(&at[sums + word - 1], from[word]);
      }
    }
  }
}

// A thread for each entry.
KERNEL collectGroups(
    const long long *__restrict__ table, long long capacity, int entryWords, long long *counters,
    long long *__restrict__ groups) {
  for (long long entry = firstItem(); entry <= capacity; entry += stride()) {
    const long long *from = table + entry * entryWords;
    if (from[LEFT_ROWS] > 0 && from[RIGHT_ROWS] > 0) {
      long long *to = groups + add(&counters[COLLECTED], 1) * entryWords;
      for (int word = 0; word < entryWords; word++) {
        to[word] = from[word];
      }
    }
  }
}
