/*
 * What a launch and a wait of a graph cost in C, by the driver API; by hand, beside what
 * DeviceGraphGpuTest prints.
 *
 *   gcc -O2 -o graphs graphs.c -ldl && ./graphs libcuda.so.1 IMAGE
 *
 * IMAGE is a file with PTX of the kernels nop and hold (rules.ptx of fairlead-ffi's tests has them). Prints
 * the median of a launch and a spinning wait of a graph of 20 nops, of 20 single nops, and of one; then how
 * many launches of the graph the driver takes behind a kernel that is held, in 1.5 s: of single launches it
 * was 1,021.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SPIN = 1, NON_BLOCKING = 1, RELAXED = 2, MAPPED = 2, NOPS = 20, ROUNDS = 2000, MOST = 4000 };

static void *library, *stream, *nop, *graph, *executable;
static atomic_int accepted, over;

#define CALL(name, ...)                                                           \
  do {                                                                            \
    int (*call)() = (int (*)())dlsym(library, name);                              \
    int status = call == NULL ? -1 : call(__VA_ARGS__);                           \
    if (status != 0) {                                                            \
      fprintf(stderr, "graphs: %s answers %d\n", name, status);                   \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

static int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            void *, void **, void **);
static int (*launch_graph)(void *, void *);
static int (*synchronize)(void *);

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void nops(int count) {
  for (int i = 0; i < count; i++) launch_kernel(nop, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static int by_value(const void *one, const void *other) {
  double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

static void measure(const char *what, int singles) {
  static double micros[ROUNDS];
  for (int i = -ROUNDS; i < ROUNDS; i++) {
    double begin = now();
    if (singles > 0) {
      nops(singles);
    } else {
      launch_graph(executable, stream);
    }
    synchronize(stream);
    if (i >= 0) micros[i] = now() - begin;
  }
  qsort(micros, ROUNDS, sizeof *micros, by_value);
  printf("%s: %.2f us\n", what, micros[ROUNDS / 2]);
}

static void *fill(void *unused) {
  while (!over && accepted < MOST) {
    launch_graph(executable, stream);
    accepted++;
  }
  return unused;
}

int main(int count, char **words) {
  int device;
  void *context, *module, *hold, *flag;
  static char text[1 << 20];
  if (count != 3) return fprintf(stderr, "usage: graphs LIBRARY IMAGE\n"), 2;
  FILE *file = fopen(words[2], "rb");
  library = dlopen(words[1], RTLD_NOW);
  if (library == NULL || file == NULL || fread(text, 1, sizeof text - 1, file) == 0) {
    return fprintf(stderr, "graphs: cannot read %s or %s\n", words[1], words[2]), 1;
  }
  CALL("cuInit", 0);
  CALL("cuDeviceGet", &device, 0);
  CALL("cuDevicePrimaryCtxSetFlags_v2", device, SPIN);
  CALL("cuDevicePrimaryCtxRetain", &context, device);
  CALL("cuCtxSetCurrent", context);
  CALL("cuModuleLoadData", &module, text);
  CALL("cuModuleGetFunction", &nop, module, "nop");
  CALL("cuModuleGetFunction", &hold, module, "hold");
  CALL("cuStreamCreateWithPriority", &stream, NON_BLOCKING, 0);
  CALL("cuMemHostAlloc", &flag, (size_t)8, MAPPED);
  *(void **)&launch_kernel = dlsym(library, "cuLaunchKernel");
  *(void **)&launch_graph = dlsym(library, "cuGraphLaunch");
  *(void **)&synchronize = dlsym(library, "cuStreamSynchronize");
  CALL("cuStreamBeginCapture_v2", stream, RELAXED);
  nops(NOPS);
  CALL("cuStreamEndCapture", stream, &graph);
  CALL("cuGraphInstantiateWithFlags", &executable, graph, 0ULL);
  measure("graph of 20 nops", 0);
  measure("20 single nops", NOPS);
  measure("one nop", 1);

  *(volatile long *)flag = 0;
  void *arguments[] = {&flag};
  launch_kernel(hold, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
  pthread_t filling;
  pthread_create(&filling, NULL, fill, NULL);
  usleep(1500000);
  printf("launches of the graph accepted behind a held kernel in 1.5 s: %d%s\n", (int)accepted,
         accepted == MOST ? " (all that were tried)" : ", then blocked");
  over = 1;
  *(volatile long *)flag = 1;
  pthread_join(filling, NULL);
  synchronize(stream);
  return 0;
}
