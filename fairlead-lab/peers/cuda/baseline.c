/*
 * What launches, waits, allocations and copies cost in C, by the driver API: the baseline of "fairlead bench cuda".
 *
 *   baseline LIBRARY IMAGE SCALE    LIBRARY is the driver's (libcuda.so.1), IMAGE a file with PTX of
 *                                   the kernels nop and spin, SCALE divides the numbers of rounds
 *
 * Prints a line "samples NAME NANOS..." for each figure. Its own declarations, since a host that has a
 * driver need not have its headers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SPIN_SCHEDULING = 1, NON_BLOCKING = 1, WARM_UP = 2000, BATCH = 200, BATCHES = 300 };
enum { RELEASE_THRESHOLD = 4, ALLOCATED_BYTES = 4096, COPIED_BYTES = 64 << 20, COPIES = 40 };

static int (*init)(unsigned);
static int (*device_get)(int *, int);
static int (*set_flags)(int, unsigned);
static int (*retain)(void **, int);
static int (*set_current)(void *);
static int (*module_load)(void **, const void *);
static int (*get_function)(void **, void *, const char *);
static int (*stream_create)(void **, unsigned, int);
static int (*stream_synchronize)(void *);
static int (*allocate)(unsigned long long *, size_t, void *);
static int (*release)(unsigned long long, void *);
static int (*default_pool)(void **, int);
static int (*set_pool)(void *, int, void *);
static int (*pin)(void **, size_t, unsigned);
static int (*unpin)(void *);
static int (*copy_up)(unsigned long long, const void *, size_t, void *);
static int (*copy_down)(void *, unsigned long long, size_t, void *);
static int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            void *, void **, void **);

static void *library;

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "baseline: the driver has no %s\n", name);
    exit(1);
  }
  return found;
}

static void load_driver(const char *path) {
  library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "baseline: %s\n", dlerror());
    exit(1);
  }
  *(void **)&init = find("cuInit");
  *(void **)&device_get = find("cuDeviceGet");
  *(void **)&set_flags = find("cuDevicePrimaryCtxSetFlags_v2");
  *(void **)&retain = find("cuDevicePrimaryCtxRetain");
  *(void **)&set_current = find("cuCtxSetCurrent");
  *(void **)&module_load = find("cuModuleLoadData");
  *(void **)&get_function = find("cuModuleGetFunction");
  *(void **)&stream_create = find("cuStreamCreateWithPriority");
  *(void **)&stream_synchronize = find("cuStreamSynchronize");
  *(void **)&allocate = find("cuMemAllocAsync");
  *(void **)&release = find("cuMemFreeAsync");
  *(void **)&default_pool = find("cuDeviceGetDefaultMemPool");
  *(void **)&set_pool = find("cuMemPoolSetAttribute");
  *(void **)&pin = find("cuMemHostAlloc");
  *(void **)&unpin = find("cuMemFreeHost");
  *(void **)&copy_up = find("cuMemcpyHtoDAsync_v2");
  *(void **)&copy_down = find("cuMemcpyDtoHAsync_v2");
  *(void **)&launch_kernel = find("cuLaunchKernel");
}

static void check(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "baseline: %s failed with status %d\n", what, status);
  exit(1);
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

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *stream, *nop, *spin;

static void launch(long nanos) {
  void *arguments[] = {&nanos};
  int status = nanos == 0
                   ? launch_kernel(nop, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL)
                   : launch_kernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
  check(status, "cuLaunchKernel");
}

static void synchronize(void) { check(stream_synchronize(stream), "cuStreamSynchronize"); }

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

/* The pool keeps what is freed, as ours does: else each wait gives it back to the system. */
static void keep_freed(int device) {
  void *pool;
  unsigned long long all = ~0ULL;
  check(default_pool(&pool, device), "cuDeviceGetDefaultMemPool");
  check(set_pool(pool, RELEASE_THRESHOLD, &all), "cuMemPoolSetAttribute");
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

/* No less than a few. */
static int rounds(int full, int scale) { return full / scale < 5 ? 5 : full / scale; }

int main(int count, char **words) {
  if (count != 4) {
    fprintf(stderr, "usage: baseline LIBRARY IMAGE SCALE\n");
    return 2;
  }
  int device, scale = atoi(words[3]);
  if (scale < 1) scale = 1;
  void *context, *module;
  load_driver(words[1]);
  check(init(0), "cuInit");
  check(device_get(&device, 0), "cuDeviceGet");
  check(set_flags(device, SPIN_SCHEDULING), "cuDevicePrimaryCtxSetFlags");
  check(retain(&context, device), "cuDevicePrimaryCtxRetain");
  check(set_current(context), "cuCtxSetCurrent");
  check(module_load(&module, text(words[2])), "cuModuleLoadData");
  check(get_function(&nop, module, "nop"), "cuModuleGetFunction");
  check(get_function(&spin, module, "spin"), "cuModuleGetFunction");
  check(stream_create(&stream, NON_BLOCKING, 0), "cuStreamCreateWithPriority");
  for (int i = 0; i < WARM_UP / scale; i++) {
    launch(0);
    synchronize();
  }
  launch(1000);
  synchronize();
  waits("wait.0", 0, 4000 / scale);
  waits("wait.20", 20000, 3000 / scale);
  waits("wait.200", 200000, 800 / scale);
  keep_freed(device);
  launches(rounds(BATCHES, scale));
  allocations(rounds(BATCHES, scale));
  copies("copy.up", 1, rounds(COPIES, scale));
  copies("copy.down", 0, rounds(COPIES, scale));
  return 0;
}
