/*
 * What launches, waits, calls on current contexts, allocations and copies cost in C, by the driver API: the
 * baseline of "fairlead bench cuda".
 *
 *   baseline LIBRARY IMAGE SCALE [PART]    LIBRARY is the driver's (libcuda.so.1), IMAGE a file with PTX of
 *                                          the kernels nop and spin, SCALE divides the numbers of rounds
 *
 * PART is waits, costs (launches, current contexts) or memory (allocations, copies); without it, all.
 *
 * Prints a line "samples NAME NANOS..." for each figure.
 */
#define PROGRAM "baseline"
#include "driver.h"
#include <string.h>

enum { BATCH = 200, BATCHES = 300 };
enum { CHEAP_BATCH = 10000, CHEAP_BATCHES = 100, WARM_UP_NANOS = 500000000 };
enum { ALLOCATED_BYTES = 4096, COPIED_BYTES = 64 << 20, COPIES = 40 };

static int (*get_current)(void **);
static int (*push_current)(void *);
static int (*pop_current)(void **);
static int (*module_load)(void **, const void *);
static int (*get_function)(void **, void *, const char *);
static int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            void *, void **, void **);
static void *nop, *spin;

/* The calls that only this one makes. */
static void load_more(void) {
  *(void **)&get_current = find("cuCtxGetCurrent");
  *(void **)&push_current = find("cuCtxPushCurrent_v2");
  *(void **)&pop_current = find("cuCtxPopCurrent_v2");
  *(void **)&module_load = find("cuModuleLoadData");
  *(void **)&get_function = find("cuModuleGetFunction");
  *(void **)&launch_kernel = find("cuLaunchKernel");
}

static char *text(const char *path) {
  FILE *file = fopen(path, "rb");
  char *content = calloc(1, 1 << 20);
  if (file == NULL || content == NULL || fread(content, 1, (1 << 20) - 1, file) == 0) {
    fprintf(stderr, "baseline: cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return content;
}

static void launch(long nanos) {
  void *arguments[] = {&nanos};
  int status = nanos == 0
                   ? launch_kernel(nop, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL)
                   : launch_kernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
  check(status, "cuLaunchKernel");
}

/* A launch, and a wait that spins, of a kernel that takes so long. */
static void waits(const char *name, long nanos, int rounds) {
  printf("samples %s", name);
  for (int i = 0; i < rounds; i++) {
    long start = now();
    launch(nanos);
    synchronize();
    printf(" %ld", now() - start);
  }
  printf("\n");
}

/* Per launch, in batches that leave the stream far from full. */
static void launches(int batches) {
  printf("samples launch");
  for (int i = 0; i < batches; i++) {
    long start = now();
    for (int j = 0; j < BATCH; j++) launch(0);
    printf(" %.1f", (double)(now() - start) / BATCH);
    synchronize();
  }
  printf("\n");
}

static void get(void) {
  void *found;
  check(get_current(&found), "cuCtxGetCurrent");
}

/* What makes a context current where none is, and puts back what was there: by get and set, or by push and pop. */
static void set(void) {
  void *found;
  check(get_current(&found), "cuCtxGetCurrent");
  check(set_current(context), "cuCtxSetCurrent");
  check(set_current(found), "cuCtxSetCurrent");
}

static void push(void) {
  check(push_current(context), "cuCtxPushCurrent");
  check(pop_current(NULL), "cuCtxPopCurrent");
}

/* Calls that are too short to be timed one by one. */
static void cheap(const char *name, void (*call)(void), int batches) {
  printf("samples %s", name);
  for (int i = -batches / 5; i < batches; i++) {
    long start = now();
    for (int j = 0; j < CHEAP_BATCH; j++) call();
    if (i >= 0) printf(" %.2f", (double)(now() - start) / CHEAP_BATCH);
  }
  printf("\n");
}

/* On a thread where the context is current, then where none is. */
static void guards(int batches) {
  cheap("guard.get", get, batches);
  check(set_current(NULL), "cuCtxSetCurrent");
  cheap("guard.set", set, batches);
  cheap("guard.push", push, batches);
  check(set_current(context), "cuCtxSetCurrent");
}

/* Per pair of an allocation and its end, in the order of the stream. */
static void allocations(int batches) {
  printf("samples alloc");
  for (int i = -batches / 5; i < batches; i++) {
    long start = now();
    for (int j = 0; j < BATCH; j++) {
      unsigned long long address;
      check(allocate(&address, ALLOCATED_BYTES, stream), "cuMemAllocAsync");
      check(release(address, stream), "cuMemFreeAsync");
    }
    if (i >= 0) printf(" %.1f", (double)(now() - start) / BATCH);
    synchronize();
  }
  printf("\n");
}

/* Copies of pinned memory, each waited for: to the device, or back. */
static void copies(const char *name, int up, int rounds) {
  void *block;
  unsigned long long buffer;
  check(pin(&block, COPIED_BYTES, 0), "cuMemHostAlloc");
  check(allocate(&buffer, COPIED_BYTES, stream), "cuMemAllocAsync");
  check(copy_up(buffer, block, COPIED_BYTES, stream), "cuMemcpyHtoDAsync");
  synchronize();
  printf("samples %s", name);
  for (int i = -3; i < rounds; i++) {
    long start = now();
    check(up ? copy_up(buffer, block, COPIED_BYTES, stream) : copy_down(block, buffer, COPIED_BYTES, stream),
          "a copy");
    synchronize();
    if (i >= 0) printf(" %ld", now() - start);
  }
  printf("\n");
  check(release(buffer, stream), "cuMemFreeAsync");
  synchronize();
  check(unpin(block), "cuMemFreeHost");
}

/* The part that is asked for, or all. */
static int wanted(int count, char **words, const char *part) {
  return count == 4 || strcmp(words[4], part) == 0;
}

int main(int count, char **words) {
  if (count != 4 && count != 5) {
    fprintf(stderr, "usage: baseline LIBRARY IMAGE SCALE [waits|costs|memory]\n");
    return 2;
  }
  int scale = atoi(words[3]);
  if (scale < 1) scale = 1;
  void *module;
  int device = begin(words[1]);
  load_more();
  check(module_load(&module, text(words[2])), "cuModuleLoadData");
  check(get_function(&nop, module, "nop"), "cuModuleGetFunction");
  check(get_function(&spin, module, "spin"), "cuModuleGetFunction");
  for (long start = now(); now() - start < WARM_UP_NANOS / scale;) {
    launch(0);
    synchronize();
  }
  launch(1000);
  synchronize();
  if (wanted(count, words, "waits")) {
    waits("wait.0", 0, 4000 / scale);
    waits("wait.20", 20000, 3000 / scale);
    waits("wait.200", 200000, 800 / scale);
  }
  if (wanted(count, words, "costs")) {
    launches(rounds(BATCHES, scale));
    guards(rounds(CHEAP_BATCHES, scale));
  }
  if (wanted(count, words, "memory")) {
    keep_freed(device);
    allocations(rounds(BATCHES, scale));
    copies("copy.up", 1, rounds(COPIES, scale));
    copies("copy.down", 0, rounds(COPIES, scale));
  }
  return 0;
}
