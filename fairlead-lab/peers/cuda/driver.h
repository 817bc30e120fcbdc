/*
 * What the baselines in C share: the driver's calls, by its library's name, and the clock. Its own declarations,
 * since a host that has a driver need not have its headers. PROGRAM is what messages begin with.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SPIN_SCHEDULING = 1, NON_BLOCKING = 1, RELEASE_THRESHOLD = 4 };

static int (*init)(unsigned);
static int (*device_get)(int *, int);
static int (*set_flags)(int, unsigned);
static int (*retain)(void **, int);
static int (*set_current)(void *);
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
static int (*fill)(unsigned long long, unsigned char, size_t, void *);

static void *library, *context, *stream;

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, PROGRAM ": the driver has no %s\n", name);
    exit(1);
  }
  return found;
}

static void load_driver(const char *path) {
  library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, PROGRAM ": %s\n", dlerror());
    exit(1);
  }
  *(void **)&init = find("cuInit");
  *(void **)&device_get = find("cuDeviceGet");
  *(void **)&set_flags = find("cuDevicePrimaryCtxSetFlags_v2");
  *(void **)&retain = find("cuDevicePrimaryCtxRetain");
  *(void **)&set_current = find("cuCtxSetCurrent");
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
  *(void **)&fill = find("cuMemsetD8Async");
}

static void check(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, PROGRAM ": %s failed with status %d\n", what, status);
  exit(1);
}

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void wait_for(void *its) { check(stream_synchronize(its), "cuStreamSynchronize"); }

static void synchronize(void) { wait_for(stream); }

static void *new_stream(void) {
  void *made;
  check(stream_create(&made, NON_BLOCKING, 0), "cuStreamCreateWithPriority");
  return made;
}

/* The pool keeps what is freed, as ours does: else each wait gives it back to the system. */
static void keep_freed(int device) {
  void *pool;
  unsigned long long all = ~0ULL;
  check(default_pool(&pool, device), "cuDeviceGetDefaultMemPool");
  check(set_pool(pool, RELEASE_THRESHOLD, &all), "cuMemPoolSetAttribute");
}

/* A context that is current, and a stream; returns the device. */
static int begin(const char *path) {
  int device;
  load_driver(path);
  check(init(0), "cuInit");
  check(device_get(&device, 0), "cuDeviceGet");
  check(set_flags(device, SPIN_SCHEDULING), "cuDevicePrimaryCtxSetFlags");
  check(retain(&context, device), "cuDevicePrimaryCtxRetain");
  check(set_current(context), "cuCtxSetCurrent");
  stream = new_stream();
  return device;
}

/* No less than a few. */
static int rounds(int full, int scale) { return full / scale < 5 ? 5 : full / scale; }
