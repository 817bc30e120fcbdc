/*
 * When a driver's pool puts together what was freed: how much of the device lives when the first
 * request of a trace is refused, by how its user waits. See decision 0027. Run by freed.sh.
 *
 *   freed LIBRARY WAY KEEPS SEED   prints the share, the allocations, and what a call of the way took
 *
 * WAY    synchronize  cuStreamSynchronize after each operation
 *        query        cuStreamQuery until it is done
 *        ticket       a word that the stream writes is watched, the driver is not asked
 *        trim         as ticket; beyond 75 % cuMemPoolTrimTo(0) after each operation
 *        event        as ticket; beyond 75 % cuEventSynchronize of an event behind it, which has ended
 *        event16      the same, after one operation in 16
 *        idle         as ticket; beyond 75 % cuStreamSynchronize of another stream
 *        late         as ticket; cuStreamSynchronize once a request is refused, which is tried again
 * KEEPS  1: the pool keeps all that is freed; 0: it returns it
 *
 * One stream, sizes from 256 bytes to a 256th of what is free, as many in each octave: filled to
 * 80 %, four times as many closes and allocations as there are blocks, then filled for good.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NON_BLOCKING = 1, DISABLE_TIMING = 2, MAPPED = 2, RELEASE_THRESHOLD = 4, BLOCKS_MAX = 1 << 16 };

static void *library, *context, *stream, *idle, *event, *pool;
static volatile unsigned *word;
static unsigned long long word_on_device, seed, blocks[BLOCKS_MAX];
static size_t sizes[BLOCKS_MAX];
static const char *way;
static unsigned mark;
static long calls;
static double longest, together;

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "freed: the driver has no %s\n", name);
    exit(1);
  }
  return found;
}

static void check(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "freed: %s failed with status %d\n", what, status);
  exit(1);
}

/* With pointers and 64-bit numbers, or small ones, as arguments. */
#define STATUS(name, ...) ((int (*)())find(name))(__VA_ARGS__)
#define CALL(name, ...) check(STATUS(name, __VA_ARGS__), name)

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static int is(const char *name) { return strcmp(way, name) == 0; }

static double drawn(void) {
  seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
  return (double)(seed >> 11) / 9007199254740992.0;
}

static void extra(long operation) {
  double begin = now();
  if (is("trim")) {
    CALL("cuMemPoolTrimTo", pool, (size_t)0);
  } else if (is("event") || (is("event16") && operation % 16 == 0)) {
    CALL("cuEventSynchronize", event);
  } else if (is("idle")) {
    CALL("cuStreamSynchronize", idle);
  } else {
    return;
  }
  double took = now() - begin;
  calls++;
  together += took;
  if (took > longest) longest = took;
}

/* Until the stream has done all of it. */
static void wait_for(long operation, int scarce) {
  if (is("synchronize")) {
    CALL("cuStreamSynchronize", stream);
  } else if (is("query")) {
    while (STATUS("cuStreamQuery", stream) != 0) {
    }
  } else {
    if (is("event") || is("event16")) CALL("cuEventRecord", event, stream);
    CALL("cuMemsetD32Async", word_on_device, ++mark, (size_t)1, stream);
    while (*word != mark) {
    }
    if (scarce) extra(operation);
  }
}

static void begin(const char *path, int keeps) {
  int device;
  void *page;
  unsigned long long kept = keeps ? ~0ULL : 0;
  library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "freed: %s\n", dlerror());
    exit(1);
  }
  CALL("cuInit", 0);
  CALL("cuDeviceGet", &device, 0);
  CALL("cuDevicePrimaryCtxRetain", &context, device);
  CALL("cuCtxSetCurrent", context);
  CALL("cuStreamCreateWithPriority", &stream, NON_BLOCKING, 0);
  CALL("cuStreamCreateWithPriority", &idle, NON_BLOCKING, 0);
  CALL("cuEventCreate", &event, DISABLE_TIMING);
  CALL("cuMemHostAlloc", &page, (size_t)4096, MAPPED);
  CALL("cuMemHostGetDevicePointer_v2", &word_on_device, page, 0);
  memset(page, 0, 4096);
  word = page;
  CALL("cuDeviceGetDefaultMemPool", &pool, device);
  CALL("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, &kept);
}

int main(int count, char **arguments) {
  if (count != 5) {
    fprintf(stderr, "usage: freed LIBRARY WAY KEEPS SEED\n");
    return 2;
  }
  way = arguments[2];
  seed = strtoull(arguments[4], NULL, 10);
  begin(arguments[1], atoi(arguments[3]));
  size_t free_bytes, all;
  CALL("cuMemGetInfo_v2", &free_bytes, &all);
  double limit = 0.995 * (double)free_bytes, live = 0, octaves = log(limit / 256 / 256);
  long churns = -1, allocations = 0, operation = 0;
  int there = 0;
  for (;;) {
    int scarce = live > 0.75 * limit;
    if (churns < 0 && live > 0.8 * limit) churns = 4L * there;
    int closes = churns > 0 && (live > 0.9 * limit || drawn() < 0.5);
    if (churns > 0) churns--;
    if (closes) {
      int chosen = (int)(drawn() * there--);
      CALL("cuMemFreeAsync", blocks[chosen], stream);
      live -= (double)sizes[chosen];
      blocks[chosen] = blocks[there];
      sizes[chosen] = sizes[there];
    } else {
      size_t bytes = (size_t)(256 * exp(octaves * drawn()));
      if (live + (double)bytes > limit || there == BLOCKS_MAX) break;
      allocations++;
      int status = STATUS("cuMemAllocAsync", &blocks[there], bytes, stream);
      if (status != 0 && is("late")) {
        CALL("cuMemPoolTrimTo", pool, (size_t)0);
        CALL("cuStreamSynchronize", stream);
        status = STATUS("cuMemAllocAsync", &blocks[there], bytes, stream);
      }
      if (status != 0) break;
      sizes[there++] = bytes;
      live += (double)bytes;
    }
    wait_for(operation++, scarce);
  }
  printf("%-12s keeps %s: %.2f %% live, %ld allocations", way, arguments[3], 100 * live / limit, allocations);
  if (calls > 0) printf(", %.1f us a call of %ld, %.1f at most", together / (double)calls, calls, longest);
  printf("\n");
  return 0;
}
