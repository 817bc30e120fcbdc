/*
 * What allocations and pinned copies cost in C, by the driver API: the baseline of "fairlead bench memory" and
 * "fairlead bench spill".
 *
 *   memory LIBRARY ANYTHING SCALE    LIBRARY is the driver's (libcuda.so.1), SCALE divides the numbers of rounds
 *
 * Prints a line "samples NAME NANOS..." for each figure: of one allocation with its end (alloc), and of many copies
 * that are enqueued at once and waited for together, of 4 x 64 MiB (large) and 1024 x 4 KiB (small), each block and
 * each buffer by itself, to the host (down) and back (up); and the median time of a fill of 4 MiB that is waited for,
 * for each of some periods in which nothing else goes on (fill.alone), or another thread writes, copies down and copies
 * up the large ones, without end (fill.beside).
 */
#define PROGRAM "memory"
#include "driver.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PAIRS = 16, PAIR_BATCHES = 3000, ALLOCATED_BYTES = 4096, COPIES = 30 };
enum { FILL_BYTES = 4 << 20, PERIODS = 15, FILLS_MAX = 100000 };
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

static const long PERIOD_NANOS = 200000000;
static atomic_int ended;

static int by_size(const void *a, const void *b) {
  long x = *(const long *)a, y = *(const long *)b;
  return (x > y) - (x < y);
}

/* The median of fills that are each waited for, one after the other. */
static long fills(unsigned long long own, long *samples) {
  int done = 0;
  long end = now() + PERIOD_NANOS;
  do {
    long start = now();
    check(fill(own, (unsigned char)done, FILL_BYTES, stream), "cuMemsetD8Async");
    synchronize();
    samples[done++] = now() - start;
  } while (done < FILLS_MAX && now() < end);
  qsort(samples, done, sizeof *samples, by_size);
  return samples[done / 2];
}

static void *copy_without_end(void *nothing) {
  void *host, *its;
  unsigned long long buffers[LARGE];
  check(set_current(context), "cuCtxSetCurrent");
  its = new_stream();
  check(pin(&host, (size_t)LARGE * LARGE_BYTES, 0), "cuMemHostAlloc");
  int count = 0; /* a small device may have no room for all of them beside the fill's */
  while (count < LARGE && allocate(&buffers[count], LARGE_BYTES, its) == 0) count++;
  check(count == 0, "cuMemAllocAsync");
  while (!ended) {
    for (int i = 0; i < count; i++) check(fill(buffers[i], (unsigned char)i, LARGE_BYTES, its), "cuMemsetD8Async");
    wait_for(its);
    for (int up = 0; up <= 1; up++) {
      for (int i = 0; i < count; i++) {
        char *block = (char *)host + (size_t)i * LARGE_BYTES;
        check(up ? copy_up(buffers[i], block, LARGE_BYTES, its) : copy_down(block, buffers[i], LARGE_BYTES, its),
              "a copy");
      }
      wait_for(its);
    }
  }
  for (int i = 0; i < count; i++) check(release(buffers[i], its), "cuMemFreeAsync");
  wait_for(its);
  check(unpin(host), "cuMemFreeHost");
  return nothing;
}

static void bystander(int periods) {
  static long medians[2][PERIODS];
  unsigned long long own;
  long *samples = calloc(FILLS_MAX, sizeof *samples);
  check(samples == NULL, "calloc");
  check(allocate(&own, FILL_BYTES, stream), "cuMemAllocAsync");
  fills(own, samples);
  for (int i = 0; i < periods; i++) {
    pthread_t other;
    medians[0][i] = fills(own, samples);
    ended = 0;
    check(pthread_create(&other, NULL, copy_without_end, NULL), "pthread_create");
    fills(own, samples); /* it has pinned its memory by then */
    medians[1][i] = fills(own, samples);
    ended = 1;
    check(pthread_join(other, NULL), "pthread_join");
  }
  for (int beside = 0; beside <= 1; beside++) {
    printf("samples fill.%s", beside ? "beside" : "alone");
    for (int i = 0; i < periods; i++) printf(" %ld", medians[beside][i]);
    printf("\n");
  }
  check(release(own, stream), "cuMemFreeAsync");
  synchronize();
  free(samples);
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
  bystander(rounds(PERIODS, scale));
  return 0;
}
