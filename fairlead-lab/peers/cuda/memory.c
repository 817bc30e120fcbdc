/*
 * What allocations and pinned copies cost in C, by the driver API: the baseline of "fairlead bench memory" and
 * "fairlead bench spill".
 *
 *   memory LIBRARY ANYTHING SCALE    LIBRARY is the driver's (libcuda.so.1), SCALE divides the numbers of rounds
 *
 * Prints a line "samples NAME NANOS..." for each figure: of one allocation with its end (alloc), and of many copies
 * that are enqueued at once and waited for together, of 4 x 64 MiB (large) and 1024 x 4 KiB (small), each block and
 * each buffer by itself, to the host (down) and back (up).
 */
#define PROGRAM "memory"
#include "driver.h"

enum { PAIRS = 16, PAIR_BATCHES = 3000, ALLOCATED_BYTES = 4096, COPIES = 30 };
enum { LARGE = 4, LARGE_BYTES = 64 << 20, SMALL = 1024, SMALL_BYTES = 4096 };

/* For each pair of an allocation and its end, in the order of the stream. */
static void allocations(int batches) {
  printf("samples alloc");
  for (int i = -batches / 5; i < batches; i++) {
    long start = now();
    for (int j = 0; j < PAIRS; j++) {
      unsigned long long address;
      check(allocate(&address, ALLOCATED_BYTES, stream), "cuMemAllocAsync");
      check(release(address, stream), "cuMemFreeAsync");
    }
    if (i >= 0) printf(" %.1f", (double)(now() - start) / PAIRS);
    if (i % 8 == 0) synchronize();
  }
  printf("\n");
}

static long pass(int up, int count, size_t bytes, char *host, unsigned long long *buffers) {
  long start = now();
  for (int i = 0; i < count; i++) {
    char *block = host + i * bytes;
    check(up ? copy_up(buffers[i], block, bytes, stream) : copy_down(block, buffers[i], bytes, stream), "a copy");
  }
  synchronize();
  return now() - start;
}

static void copies(const char *size, int count, size_t bytes, int rounds) {
  void *host;
  unsigned long long *buffers = calloc(count, sizeof *buffers);
  check(buffers == NULL, "calloc");
  check(pin(&host, count * bytes, 0), "cuMemHostAlloc");
  for (int i = 0; i < count; i++) check(allocate(&buffers[i], bytes, stream), "cuMemAllocAsync");
  for (int up = 0; up <= 1; up++) {
    printf("samples %s.%s", size, up ? "up" : "down");
    for (int i = -3; i < rounds; i++) {
      long nanos = pass(up, count, bytes, host, buffers);
      if (i >= 0) printf(" %ld", nanos);
    }
    printf("\n");
  }
  for (int i = 0; i < count; i++) check(release(buffers[i], stream), "cuMemFreeAsync");
  synchronize();
  check(unpin(host), "cuMemFreeHost");
  free(buffers);
}

int main(int count, char **words) {
  if (count != 4) {
    fprintf(stderr, "usage: memory LIBRARY ANYTHING SCALE\n");
    return 2;
  }
  int scale = atoi(words[3]);
  if (scale < 1) scale = 1;
  keep_freed(begin(words[1]));
  allocations(rounds(PAIR_BATCHES, scale));
  copies("large", LARGE, LARGE_BYTES, rounds(COPIES, scale));
  copies("small", SMALL, SMALL_BYTES, rounds(10 * COPIES, scale));
  return 0;
}
