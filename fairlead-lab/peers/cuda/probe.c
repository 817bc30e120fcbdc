/*
 * What a driver does that no document says: what its calls on current contexts cost, and which call
 * tells first of a fault. Run by probe.sh.
 *
 *   probe LIBRARY IMAGE current       prints nanoseconds of a get, a set, a push with its pop
 *   probe LIBRARY IMAGE CALL MICROS   stores to where nothing is, then makes that call, over and over
 *                                     with so long a pause, until it fails: prints the milliseconds
 *                                     since the launch, and those of the longest call
 *
 * LIBRARY and IMAGE as of baseline.c; IMAGE has a kernel nullstore.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NON_BLOCKING = 1, DISABLE_TIMING = 2, ROUNDS = 1000000 };

static void *library, *context, *stream, *idle, *event;

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "probe: the driver has no %s\n", name);
    exit(1);
  }
  return found;
}

static void check(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "probe: %s failed with status %d\n", what, status);
  exit(1);
}

/* Calls it with up to three arguments, all of them pointers or small numbers. */
#define CALL(name, ...) check(CALL_STATUS(name, __VA_ARGS__), name)
#define CALL_STATUS(name, ...) ((int (*)())find(name))(__VA_ARGS__)

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e9 + time.tv_nsec;
}

static char *text(const char *path) {
  FILE *file = fopen(path, "rb");
  char *content = calloc(1, 1 << 20);
  if (file == NULL || content == NULL || fread(content, 1, (1 << 20) - 1, file) == 0) {
    fprintf(stderr, "probe: cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return content;
}

static void current(void) {
  int (*get)(void **) = (int (*)(void **))find("cuCtxGetCurrent");
  int (*set)(void *) = (int (*)(void *))find("cuCtxSetCurrent");
  int (*push)(void *) = (int (*)(void *))find("cuCtxPushCurrent_v2");
  int (*pop)(void **) = (int (*)(void **))find("cuCtxPopCurrent_v2");
  void *found;
  for (int round = 0; round < 3; round++) {
    double start = now();
    for (int i = 0; i < ROUNDS; i++) get(&found);
    double got = now();
    for (int i = 0; i < ROUNDS / 2; i++) {
      set(NULL);
      set(context);
    }
    double stood = now();
    set(NULL);
    for (int i = 0; i < ROUNDS; i++) {
      push(context);
      pop(NULL);
    }
    double pushed = now();
    set(context);
    printf("current get %.1f set %.1f push+pop %.1f ns\n", (got - start) / ROUNDS,
           (stood - got) / ROUNDS, (pushed - stood) / ROUNDS);
  }
}

static int ask(const char *call) {
  size_t free_bytes, total_bytes;
  if (strcmp(call, "stream_query") == 0) return CALL_STATUS("cuStreamQuery", stream);
  if (strcmp(call, "idle_query") == 0) return CALL_STATUS("cuStreamQuery", idle);
  if (strcmp(call, "event_query") == 0) return CALL_STATUS("cuEventQuery", event);
  if (strcmp(call, "event_record") == 0) return CALL_STATUS("cuEventRecord", event, idle);
  if (strcmp(call, "memory_info") == 0) {
    return CALL_STATUS("cuMemGetInfo_v2", &free_bytes, &total_bytes);
  }
  if (strcmp(call, "stream_synchronize") == 0) return CALL_STATUS("cuStreamSynchronize", stream);
  if (strcmp(call, "context_synchronize") == 0) return ((int (*)(void))find("cuCtxSynchronize"))();
  fprintf(stderr, "probe: there is no call %s\n", call);
  exit(2);
}

static void fault(const char *image, const char *call, long micros) {
  void *module, *kernel;
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                void **, void **) = NULL;
  *(void **)&launch = find("cuLaunchKernel");
  CALL("cuModuleLoadData", &module, text(image));
  CALL("cuModuleGetFunction", &kernel, module, "nullstore");
  CALL("cuStreamCreateWithPriority", &stream, NON_BLOCKING, 0);
  CALL("cuStreamCreateWithPriority", &idle, NON_BLOCKING, 0);
  CALL("cuEventCreate", &event, DISABLE_TIMING);
  struct timespec pause = {0, micros * 1000};
  double start = now(), longest = 0;
  check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
  (void)CALL_STATUS("cuEventRecord", event, stream); /* it may know already */
  for (long asked = 1;; asked++) {
    double before = now();
    int status = ask(call);
    double after = now();
    if (after - before > longest) longest = after - before;
    if (status != 0 && status != 600) {
      printf("fault %s every %ld us: status %d after %.2f ms, %ld calls, longest %.2f ms\n", call,
             micros, status, (after - start) * 1e-6, asked, longest * 1e-6);
      return;
    }
    if (after - start > 5e9) {
      printf("fault %s every %ld us: not seen in 5 s\n", call, micros);
      return;
    }
    if (micros > 0) nanosleep(&pause, NULL);
  }
}

int main(int count, char **arguments) {
  int device;
  if (count < 4) {
    fprintf(stderr, "probe LIBRARY IMAGE current, or probe LIBRARY IMAGE CALL MICROS\n");
    return 2;
  }
  library = dlopen(arguments[1], RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "probe: %s\n", dlerror());
    return 1;
  }
  CALL("cuInit", 0);
  CALL("cuDeviceGet", &device, 0);
  CALL("cuDevicePrimaryCtxRetain", &context, device);
  CALL("cuCtxSetCurrent", context);
  if (strcmp(arguments[3], "current") == 0) {
    current();
  } else {
    fault(arguments[2], arguments[3], count > 4 ? atol(arguments[4]) : 0);
  }
  fflush(stdout);
  _Exit(0); /* a lost context need not be taken down in order */
}
