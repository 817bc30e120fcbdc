/*
 * Modules, kernels and launches. A module image is text:
 *
 *   //standin 1
 *   kernel axpy n:i64 a:f64 x:ptr y:ptr
 *
 * Each kernel named must be built in here, with those types (i32, i64, f32, f64, ptr).
 */
#include "standin.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- the kernels that are built in -----------------------------------------------------------*/

struct builtin {
  const char *name, *types;
  int (*run)(const struct launch *launch); /* answers the fault, or 0 */
};

static const void *argument(const struct launch *launch, int i) {
  return launch->arguments + launch->layout.offset[i];
}

static int64_t long_at(const struct launch *launch, int i) {
  int64_t value;
  memcpy(&value, argument(launch, i), sizeof value);
  return value;
}

static double double_at(const struct launch *launch, int i) {
  double value;
  memcpy(&value, argument(launch, i), sizeof value);
  return value;
}

static bool reaches(const struct launch *launch, uintptr_t address, size_t bytes) {
  const struct allocation *found = memory_at(address);
  if (found == NULL || found->released) return false;
  if (found->memory == DEVICE_MEMORY && found->context != launch->context) return false;
  return bytes <= found->base + found->bytes - address;
}

/* The memory at argument i, or NULL where the device would fault. */
static void *memory_for(const struct launch *launch, int i, size_t bytes) {
  uintptr_t address = (uintptr_t)long_at(launch, i);
  lock();
  bool inside = reaches(launch, address, bytes);
  unlock();
  return inside ? (void *)address : NULL;
}

/* A grid that is smaller than its data does only a part, as on a device. */
static uint64_t elements(const struct launch *launch, int64_t wanted) {
  if (wanted <= 0) return 0;
  return (uint64_t)wanted < launch->threads ? (uint64_t)wanted : launch->threads;
}

static int run_axpy(const struct launch *launch) {
  uint64_t n = elements(launch, long_at(launch, 0));
  if (n == 0) return 0;
  double a = double_at(launch, 1);
  const double *x = memory_for(launch, 2, n * sizeof *x);
  double *y = memory_for(launch, 3, n * sizeof *y);
  if (x == NULL || y == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t i = 0; i < n; i++) y[i] += a * x[i];
  return 0;
}

static int run_fill64(const struct launch *launch) {
  uint64_t n = elements(launch, long_at(launch, 1));
  if (n == 0) return 0;
  int64_t *target = memory_for(launch, 0, n * sizeof *target);
  if (target == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t i = 0; i < n; i++) target[i] = long_at(launch, 2);
  return 0;
}

static int run_count(const struct launch *launch) {
  _Atomic uint64_t *counter = memory_for(launch, 0, sizeof *counter);
  if (counter == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  atomic_fetch_add(counter, launch->threads);
  return 0;
}

/* The kernels of the driver's rules: the arguments, then the number of items. */
static int run_axpy_items(const struct launch *launch) {
  uint64_t n = elements(launch, long_at(launch, 3));
  double a = double_at(launch, 0);
  const double *x = memory_for(launch, 1, n * sizeof *x);
  double *y = memory_for(launch, 2, n * sizeof *y);
  if (x == NULL || y == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t i = 0; i < n; i++) y[i] += a * x[i];
  return 0;
}

static int run_count_each(const struct launch *launch) {
  uint64_t n = elements(launch, long_at(launch, 1));
  _Atomic int64_t *counters = memory_for(launch, 0, n * sizeof *counters);
  if (counters == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t i = 0; i < n; i++) atomic_fetch_add(&counters[i], 1);
  return 0;
}

static int run_number(const struct launch *launch) {
  uint64_t n = elements(launch, long_at(launch, 2));
  int64_t *target = memory_for(launch, 1, n * sizeof *target);
  if (target == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t i = 0; i < n; i++) target[i] = long_at(launch, 0) + (int64_t)i;
  return 0;
}

static int run_add(const struct launch *launch) {
  uint64_t n = elements(launch, long_at(launch, 2));
  const int64_t *source = memory_for(launch, 0, n * sizeof *source);
  int64_t *target = memory_for(launch, 1, n * sizeof *target);
  if (source == NULL || target == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t i = 0; i < n; i++) target[i] += source[i];
  return 0;
}

/* Where a matrix of that many columns ends, in elements. */
static size_t extent(int64_t rows, int64_t columns, int64_t leading) {
  return rows <= 0 || columns <= 0 ? 0 : (size_t)((columns - 1) * leading + rows);
}

static double at(const double *matrix, bool transposed, int64_t row, int64_t column,
                 int64_t leading) {
  return transposed ? matrix[row * leading + column] : matrix[column * leading + row];
}

/* Column by column, as BLAS has it: c = alpha a b + beta c, a and b transposed if it is said. */
static int run_dgemm(const struct launch *launch) {
  bool ta = long_at(launch, 0) != 0, tb = long_at(launch, 1) != 0;
  int64_t m = long_at(launch, 2), n = long_at(launch, 3), k = long_at(launch, 4);
  int64_t lda = long_at(launch, 7), ldb = long_at(launch, 9), ldc = long_at(launch, 12);
  double alpha = double_at(launch, 5), beta = double_at(launch, 10);
  size_t bytes = sizeof(double);
  const double *a = memory_for(launch, 6, bytes * (ta ? extent(k, m, lda) : extent(m, k, lda)));
  const double *b = memory_for(launch, 8, bytes * (tb ? extent(n, k, ldb) : extent(k, n, ldb)));
  double *c = memory_for(launch, 11, bytes * extent(m, n, ldc));
  if (a == NULL || b == NULL || c == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  int64_t entries = (int64_t)elements(launch, m * n);
  for (int64_t i = 0; i < entries; i++) {
    int64_t row = i % m, column = i / m;
    double sum = 0;
    for (int64_t j = 0; j < k; j++) sum += at(a, ta, row, j, lda) * at(b, tb, j, column, ldb);
    double *entry = &c[column * ldc + row];
    *entry = alpha * sum + (beta == 0 ? 0 : beta * *entry); /* 0: c is not looked at */
  }
  return 0;
}

static int run_flag64(const struct launch *launch) {
  _Atomic int64_t *flag = memory_for(launch, 0, sizeof *flag);
  if (flag == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  atomic_store_explicit(flag, long_at(launch, 1), memory_order_release);
  return 0;
}

static int64_t nanos_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/*
 * A device has cores of its own; here the waiting must leave some to those who wait for it. Long
 * rests, so that a hundred held kernels cost little; short enough to see soon that all is lost.
 */
static void rest(int64_t nanos) {
  enum { REST_MAX_NANOS = 2000000, REST_MIN_NANOS = 20000 };
  struct timespec time = {0, nanos > REST_MAX_NANOS ? REST_MAX_NANOS : nanos};
  if (nanos > REST_MIN_NANOS) {
    nanosleep(&time, NULL);
  } else {
    sched_yield();
  }
}

static bool goes_on(const struct launch *launch) {
  return !atomic_load(&launch->context->cancelled);
}

static int run_spin(const struct launch *launch) {
  int64_t end = nanos_now() + long_at(launch, 0), now;
  while ((now = nanos_now()) < end && goes_on(launch)) rest(end - now);
  return 0;
}

static int run_hold(const struct launch *launch) {
  _Atomic uint64_t *flag = memory_for(launch, 0, sizeof *flag);
  if (flag == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  int64_t pause = 25000;
  while (atomic_load_explicit(flag, memory_order_acquire) == 0 && goes_on(launch)) {
    rest(pause);
    if (pause < 2000000) pause += pause / 4;
  }
  return 0;
}

/* The table was read when this was enqueued: so its pieces are known, and pinned. */
static int run_pieces(const struct launch *launch) {
  size_t count = (size_t)long_at(launch, 1);
  bool to_host = long_at(launch, 2) != 0;
  const struct piece *table = memory_for(launch, 0, count * sizeof *table);
  if (table == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (size_t i = 0; i < count; i++) {
    const struct piece *piece = &table[i];
    if (piece->bytes == 0) continue;
    lock();
    bool inside = reaches(launch, piece->device, piece->bytes) &&
                  reaches(launch, piece->host, piece->bytes) &&
                  memory_at(piece->device)->memory == DEVICE_MEMORY &&
                  memory_at(piece->host)->memory == PINNED_MEMORY;
    unlock();
    if (!inside) return CUDA_ERROR_ILLEGAL_ADDRESS;
    memcpy((void *)(to_host ? piece->host : piece->device),
           (void *)(to_host ? piece->device : piece->host), piece->bytes);
  }
  return 0;
}

bool kernel_copies_pieces(const struct launch *launch) {
  return launch->builtin != NULL && launch->builtin->run == run_pieces;
}

static int run_nop(const struct launch *launch) {
  (void)launch;
  return 0;
}

static int run_nullstore(const struct launch *launch) {
  (void)launch;
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static int run_assertfail(const struct launch *launch) {
  (void)launch;
  return CUDA_ERROR_ASSERT;
}

static int run_trapfail(const struct launch *launch) {
  (void)launch;
  return CUDA_ERROR_LAUNCH_FAILED;
}

/* What the launch was: blocks, threads in each, blocks in a cluster, all at once, shared bytes. */
static int run_shape(const struct launch *launch) {
  int64_t *out = memory_for(launch, 0, 5 * sizeof *out);
  if (out == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
  int64_t shape[] = {launch->blocks, launch->block, launch->cluster, launch->cooperative,
                     launch->shared};
  memcpy(out, shape, sizeof shape);
  return 0;
}

/* A name may be there more than once, with other types. */
static const struct builtin BUILTINS[] = {
    {"axpy", "ldpp", run_axpy},          /* n, a, x, y: y += a x */
    {"fill64", "pll", run_fill64},       /* target, n, value */
    {"count", "p", run_count},           /* counter: one more for each thread */
    {"axpy", "dppl", run_axpy_items},    /* a, x, y, items */
    {"count", "pl", run_count_each},     /* counters, items: one more in each */
    {"number", "lpl", run_number},       /* first, target, items: first + i */
    {"add", "ppl", run_add},             /* source, target, items: target += source */
    {"dgemm", "llllldplpldpl", run_dgemm}, /* transposed a, b; m n k alpha a lda b ldb beta c ldc */
    {"flag64", "pl", run_flag64},        /* flag, value: a release store */
    {"spin", "l", run_spin},             /* nanoseconds */
    {"hold", "p", run_hold},             /* flag: until it is not zero */
    {"shape", "p", run_shape},           /* five numbers of the launch */
    {"fairlead_copy_pieces", "pll", run_pieces}, /* table, pieces, whether to the host */
    {"nop", "", run_nop},
    {"nullstore", "", run_nullstore},    /* 700 */
    {"assertfail", "", run_assertfail},  /* 710 */
    {"trapfail", "", run_trapfail},      /* 719 */
};

int kernel_run(const struct launch *launch) {
  return launch->builtin == NULL ? library_run(launch) : launch->builtin->run(launch);
}

static const struct builtin *builtin_of(const char *name, const char *types) {
  for (size_t i = 0; i < sizeof BUILTINS / sizeof *BUILTINS; i++) {
    const struct builtin *each = &BUILTINS[i];
    if (strcmp(each->name, name) == 0 && strcmp(each->types, types) == 0) return each;
  }
  return NULL;
}

/* --- modules ---------------------------------------------------------------------------------*/

struct function {
  struct object head;
  char name[NAME_BYTES];
  const struct builtin *builtin; /* NULL: of the library */
  bool runs;                     /* the code of a real image may be of neither */
  int shared_max;                /* dynamic bytes that a launch may ask for */
  struct layout layout;
  bool loaded;
  struct function *next;
};

enum { SHARED_BYTES = 49152 };

struct module {
  struct object head;
  struct function *functions;
  unsigned count;
};

static const struct {
  const char *name;
  char code;
  size_t bytes;
} TYPES[] = {{"i32", 'i', 4}, {"i64", 'l', 8}, {"f32", 'f', 4}, {"f64", 'd', 8}, {"ptr", 'p', 8}};

static void layout_add(struct layout *layout, char code, size_t bytes) {
  int i = layout->count++;
  layout->offset[i] = (layout->bytes + bytes - 1) / bytes * bytes;
  layout->size[i] = bytes;
  layout->type[i] = code;
  layout->bytes = layout->offset[i] + bytes;
}

static bool parse_parameter(struct layout *layout, const char *word) {
  const char *type = strchr(word, ':');
  if (type == NULL || layout->count == MAX_PARAMETERS) return false;
  for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
    if (strcmp(type + 1, TYPES[i].name) != 0) continue;
    layout_add(layout, TYPES[i].code, TYPES[i].bytes);
    return true;
  }
  return false;
}

static struct function *function_new(struct module *module) {
  struct function *function = zalloc(sizeof *function);
  function->next = module->functions; /* so that module_free finds it, whatever happens */
  module->functions = function;
  module->count++;
  function->loaded = !g.lazy;
  function->runs = true;
  function->shared_max = SHARED_BYTES;
  object_open(function, FUNCTION, module->head.context);
  return function;
}

static CUresult parse_kernel(struct module *module, char *rest_of_line, struct log *log) {
  char *state, *name = strtok_r(rest_of_line, " \t\r", &state);
  struct function *function = function_new(module);
  snprintf(function->name, NAME_BYTES, "%s", name == NULL ? "" : name);
  for (char *word; (word = strtok_r(NULL, " \t\r", &state)) != NULL;) {
    if (parse_parameter(&function->layout, word)) continue;
    snprintf(log->text, sizeof log->text, "%s: not a parameter: '%s'", function->name, word);
    return CUDA_ERROR_INVALID_PTX;
  }
  function->builtin = builtin_of(function->name, function->layout.type);
  if (function->builtin != NULL) return CUDA_SUCCESS;
  snprintf(log->text, sizeof log->text, "no kernel '%s' with types '%s' is built in",
           function->name, function->layout.type);
  return CUDA_ERROR_INVALID_PTX;
}

/* The kernel that is built in with this name and these sizes, whatever the types. */
static const struct builtin *builtin_sized(const char *name, const size_t *sizes, int count) {
  for (size_t i = 0; i < sizeof BUILTINS / sizeof *BUILTINS; i++) {
    const struct builtin *each = &BUILTINS[i];
    if (strcmp(each->name, name) != 0 || (int)strlen(each->types) != count) continue;
    struct layout layout = {0};
    for (int k = 0; k < count; k++) {
      for (size_t t = 0; t < sizeof TYPES / sizeof *TYPES; t++) {
        if (TYPES[t].code == each->types[k]) layout_add(&layout, TYPES[t].code, TYPES[t].bytes);
      }
    }
    if (memcmp(layout.size, sizes, (size_t)count * sizeof *sizes) == 0) return each;
  }
  return NULL;
}

static char type_of(size_t bytes, const char *declared) {
  if (declared != NULL) return strncmp(declared, "in(", 3) == 0 ||
                                       strncmp(declared, "out(", 4) == 0 ? 'p' : 'l';
  return bytes == 4 ? 'i' : 'l';
}

static const char *next_declared(const char *declared) {
  const char *comma = declared == NULL ? NULL : strstr(declared, ", ");
  return comma == NULL ? NULL : comma + 2;
}

/* A kernel of a real image; one without parameters and unknown is taken for an empty one. */
static CUresult add_kernel(void *of, const char *name, const size_t *sizes, int count,
                           struct log *log) {
  struct function *function = function_new(of);
  snprintf(function->name, NAME_BYTES, "%s", name);
  function->builtin = builtin_sized(name, sizes, count);
  const char *declared = function->builtin == NULL ? library_signature(name) : NULL;
  if (function->builtin == NULL && declared == NULL) {
    function->runs = count == 0;
    function->builtin = builtin_of("nop", "");
  }
  const char *types = function->runs && declared == NULL ? function->builtin->types : NULL;
  for (int i = 0; i < count; i++) {
    if (sizes[i] == 0) {
      snprintf(log->text, sizeof log->text, "%s: parameter %d has no size", name, i);
      return CUDA_ERROR_INVALID_PTX;
    }
    layout_add(&function->layout, types != NULL ? types[i] : type_of(sizes[i], declared), sizes[i]);
    declared = next_declared(declared);
  }
  return CUDA_SUCCESS;
}

static CUresult parse_lines(struct module *module, char *text, struct log *log) {
  char *state;
  for (char *line = strtok_r(text, "\n", &state); line != NULL;
       line = strtok_r(NULL, "\n", &state)) {
    if (line[0] == '\r' || strncmp(line, "//", 2) == 0) continue;
    if (strncmp(line, "kernel ", 7) != 0) {
      snprintf(log->text, sizeof log->text, "not a kernel: '%.100s'", line);
      return CUDA_ERROR_INVALID_PTX;
    }
    CHECK(parse_kernel(module, line + 7, log));
  }
  return CUDA_SUCCESS;
}

static CUresult parse(struct module *module, const char *image, struct log *log) {
  static const char HEADER[] = "//standin 1\n";
  if (image_is_real(image) || strncmp(image, HEADER, sizeof HEADER - 1) != 0) {
    if (image_is_real(image)) return image_read(image, add_kernel, module, log);
    snprintf(log->text, sizeof log->text, "an image for the stand-in begins with '//standin 1'");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  char *text = strdup(image);
  if (text == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult status = parse_lines(module, text, log);
  free(text);
  return status;
}

void module_free(void *freed) {
  struct module *module = freed;
  while (module->functions != NULL) {
    struct function *function = module->functions;
    module->functions = function->next;
    object_close(function);
    free(function);
  }
  object_close(module);
  free(module);
}

static CUresult load(CUmodule *out, const void *image, struct log *log) {
  if (out == NULL || image == NULL) return CUDA_ERROR_INVALID_VALUE;
  CHECK(context_await_creation(bound()->head.handle));
  struct module *module = zalloc(sizeof *module);
  object_open(module, MODULE, bound());
  CUresult status = parse(module, image, log);
  if (status == CUDA_SUCCESS) {
    *out = module->head.handle;
  } else {
    module_free(module);
  }
  return status;
}

API(cuModuleLoadData, BOUND | UNSAFE, (CUmodule *out, const void *image), (out, image)) {
  struct log log = {""};
  return load(out, image, &log);
}

/* Into a buffer option and its size option, which then says how much was written. */
static void write_log(const char *text, int buffer_option, int size_option, unsigned count,
                      const CUjit_option *options, void **values) {
  char *buffer = NULL;
  for (unsigned i = 0; i < count; i++) {
    if ((int)options[i] == buffer_option) buffer = values[i];
  }
  for (unsigned i = 0; i < count && buffer != NULL; i++) {
    size_t size = (uintptr_t)values[i];
    if ((int)options[i] != size_option || size == 0) continue;
    snprintf(buffer, size, "%s", text);
    values[i] = (void *)strlen(buffer);
  }
}

API(cuModuleLoadDataEx, BOUND | UNSAFE,
    (CUmodule *out, const void *image, unsigned int count, CUjit_option *options, void **values),
    (out, image, count, options, values)) {
  if (count > 0 && (options == NULL || values == NULL)) return CUDA_ERROR_INVALID_VALUE;
  struct log log = {""};
  CUresult status = load(out, image, &log);
  write_log(log.text, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, count, options,
            values);
  write_log("", CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, count, options,
            values);
  return status;
}

API(cuModuleUnload, BOUND_IF_OLD | UNSAFE, (CUmodule handle), (handle)) {
  struct module *module;
  CHECK(object_use(handle, MODULE, &module));
  module_free(module);
  return CUDA_SUCCESS;
}

API(cuModuleGetFunction, BOUND_IF_OLD, (CUfunction *out, CUmodule handle, const char *name),
    (out, handle, name)) {
  struct module *module;
  CHECK(object_use(handle, MODULE, &module));
  if (out == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  CHECK(context_await_creation(module->head.context->head.handle));
  CHECK(object_use(handle, MODULE, &module)); /* it may be gone by now */
  for (struct function *function = module->functions; function != NULL;
       function = function->next) {
    if (strcmp(function->name, name) != 0) continue;
    *out = function->head.handle;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

API(cuModuleGetFunctionCount, BOUND_IF_OLD, (unsigned int *count, CUmodule handle),
    (count, handle)) {
  struct module *module;
  CHECK(object_use(handle, MODULE, &module));
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = module->count;
  return CUDA_SUCCESS;
}

API(cuModuleEnumerateFunctions, BOUND_IF_OLD,
    (CUfunction *functions, unsigned int room, CUmodule handle), (functions, room, handle)) {
  struct module *module;
  CHECK(object_use(handle, MODULE, &module));
  if (functions == NULL && room > 0) return CUDA_ERROR_INVALID_VALUE;
  struct function *function = module->functions;
  for (unsigned i = 0; i < room && function != NULL; i++, function = function->next) {
    functions[i] = function->head.handle;
  }
  return CUDA_SUCCESS;
}

API(cuFuncGetName, BOUND_IF_OLD, (const char **name, CUfunction handle), (name, handle)) {
  struct function *function;
  CHECK(object_use(handle, FUNCTION, &function));
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name;
  return CUDA_SUCCESS;
}

API(cuFuncGetParamInfo, BOUND_IF_OLD,
    (CUfunction handle, size_t index, size_t *offset, size_t *size),
    (handle, index, offset, size)) {
  struct function *function;
  CHECK(object_use(handle, FUNCTION, &function));
  if (offset == NULL || index >= (size_t)function->layout.count) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->layout.offset[index];
  if (size != NULL) *size = function->layout.size[index];
  return CUDA_SUCCESS;
}

/* Its code is on the device then; bringing it there waits until no kernel of the context runs. */
static CUresult function_bring(CUfunction handle, struct function **out) {
  CHECK(object_use(handle, FUNCTION, out));
  if ((*out)->loaded) return CUDA_SUCCESS;
  CHECK(context_await_kernels((*out)->head.context->head.handle));
  CHECK(object_use(handle, FUNCTION, out)); /* it may be gone by now */
  (*out)->loaded = true;
  return CUDA_SUCCESS;
}

API(cuFuncLoad, BOUND, (CUfunction handle), (handle)) {
  struct function *function;
  return function_bring(handle, &function);
}

API(cuFuncGetAttribute, BOUND_IF_OLD,
    (int *value, CUfunction_attribute attribute, CUfunction handle), (value, attribute, handle)) {
  /* threads, shared, constant, local bytes, registers, PTX and binary version, cache, dynamic */
  static const int VALUES[] = {1024, 0, 0, 0, 16, 90, 90, 0, 49152};
  struct function *function;
  CHECK(function_bring(handle, &function));
  if (value == NULL || (int)attribute < 0 || (int)attribute > 15) return CUDA_ERROR_INVALID_VALUE;
  *value = (size_t)attribute < sizeof VALUES / sizeof *VALUES ? VALUES[(int)attribute] : 0;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) *value = function->shared_max;
  return CUDA_SUCCESS;
}

API(cuFuncSetAttribute, BOUND_IF_OLD,
    (CUfunction handle, CUfunction_attribute attribute, int value), (handle, attribute, value)) {
  struct function *function;
  CHECK(object_use(handle, FUNCTION, &function));
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value > device_attribute(97)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->shared_max = value;
  return CUDA_SUCCESS;
}

/* --- launches --------------------------------------------------------------------------------*/

static bool shape_allowed(const CUlaunchConfig *config) {
  unsigned long long threads =
      (unsigned long long)config->blockDimX * config->blockDimY * config->blockDimZ;
  return config->gridDimX > 0 && config->gridDimX <= 0x7FFFFFFF && config->gridDimY > 0 &&
         config->gridDimY <= 65535 && config->gridDimZ > 0 && config->gridDimZ <= 65535 &&
         config->blockDimX <= 1024 && config->blockDimY <= 1024 && config->blockDimZ <= 64 &&
         threads > 0 && threads <= 1024;
}

static uint64_t blocks_of(const CUlaunchConfig *config) {
  return (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
}

static CUresult cluster_allowed(const CUlaunchConfig *config, const CUlaunchAttributeValue *of) {
  unsigned x = of->clusterDim.x, y = of->clusterDim.y, z = of->clusterDim.z;
  if (x == 0 || y == 0 || z == 0 || config->gridDimX % x != 0 || config->gridDimY % y != 0 ||
      config->gridDimZ % z != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return (uint64_t)x * y * z <= 8 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

/* Blocks that a multiprocessor holds: as many as its threads, and its shared memory, allow. */
static int resident_each(unsigned threads, size_t shared) {
  enum { MOST = 32 };
  int blocks = device_attribute(39) / (int)threads;
  int by_memory = shared == 0 ? MOST : device_attribute(97) / (int)shared;
  int least = blocks < by_memory ? blocks : by_memory;
  return least < MOST ? least : MOST;
}

static uint64_t resident(const CUlaunchConfig *config) {
  unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
  return (uint64_t)device_attribute(16) *
         (unsigned)resident_each(threads, config->sharedMemBytes);
}

static CUresult attributes_allowed(const CUlaunchConfig *config, struct launch *made) {
  if (config->numAttrs > 0 && config->attrs == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const CUlaunchAttribute *attribute = &config->attrs[i];
    switch ((int)attribute->id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY: break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        if (attribute->value.cooperative == 0) break;
        if (device_attribute(95) != 1) return CUDA_ERROR_NOT_SUPPORTED;
        if (blocks_of(config) > resident(config)) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        made->cooperative = true;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        if (device_attribute(120) != 1) return CUDA_ERROR_NOT_SUPPORTED;
        CHECK(cluster_allowed(config, &attribute->value));
        made->cluster = attribute->value.clusterDim.x;
        break;
      default: return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessor, BOUND_IF_OLD,
    (int *blocks, CUfunction handle, int threads, size_t shared),
    (blocks, handle, threads, shared)) {
  struct function *function;
  CHECK(object_use(handle, FUNCTION, &function));
  if (blocks == NULL || threads < 1 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  *blocks = resident_each((unsigned)threads, shared);
  return CUDA_SUCCESS;
}

API(cuOccupancyMaxActiveClusters, BOUND_IF_OLD,
    (int *clusters, CUfunction handle, const CUlaunchConfig *config), (clusters, handle, config)) {
  struct function *function;
  struct launch asked = {.cluster = 1};
  CHECK(object_use(handle, FUNCTION, &function));
  if (clusters == NULL || config == NULL) return CUDA_ERROR_INVALID_VALUE;
  CHECK(attributes_allowed(config, &asked));
  *clusters = (int)(resident(config) / asked.cluster);
  return CUDA_SUCCESS;
}

/* One buffer with all arguments; its size must be what the kernel takes. */
static CUresult copy_buffer(struct launch *launch, void **extra) {
  const void *buffer = NULL;
  size_t size = 0, wanted = launch->layout.bytes;
  for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = *(size_t *)extra[i + 1];
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  bool fits = size == wanted || size == (wanted + 7) / 8 * 8;
  if (!fits || (buffer == NULL && wanted > 0)) return CUDA_ERROR_INVALID_VALUE;
  if (wanted > 0) memcpy(launch->arguments, buffer, wanted);
  return CUDA_SUCCESS;
}

static CUresult copy_arguments(struct launch *launch, void **parameters, void **extra) {
  const struct layout *layout = &launch->layout;
  if (parameters != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  if (extra != NULL) return copy_buffer(launch, extra);
  if (parameters == NULL) return layout->count == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < layout->count; i++) {
    if (parameters[i] == NULL) return CUDA_ERROR_INVALID_VALUE;
    memcpy(launch->arguments + layout->offset[i], parameters[i], layout->size[i]);
  }
  return CUDA_SUCCESS;
}

CUresult kernel_prepare(const CUlaunchConfig *config, CUfunction handle, void **parameters,
                        void **extra, struct launch *out) {
  struct function *function;
  CHECK(function_bring(handle, &function));
  if (!shape_allowed(config) || config->sharedMemBytes > (unsigned)function->shared_max) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!function->runs) return CUDA_ERROR_NOT_SUPPORTED;
  *out = (struct launch){.builtin = function->builtin,
                         .layout = function->layout,
                         .blocks = config->gridDimX,
                         .block = config->blockDimX,
                         .cluster = 1,
                         .shared = config->sharedMemBytes,
                         .context = function->head.context};
  memcpy(out->name, function->name, NAME_BYTES);
  CHECK(attributes_allowed(config, out));
  out->threads = blocks_of(config) * config->blockDimX * config->blockDimY * config->blockDimZ;
  return copy_arguments(out, parameters, extra);
}

static CUresult launch(const CUlaunchConfig *config, CUfunction handle, void **parameters,
                       void **extra) {
  struct function *function;
  struct stream *stream;
  struct launch made;
  CHECK(function_bring(handle, &function));
  CHECK(stream_use(config->hStream, &stream));
  if (function->head.context != stream->head.context) {
    trap("wrong context", "kernel %s and stream are of different contexts", function->name);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CHECK(kernel_prepare(config, handle, parameters, extra, &made));
  struct op *op = op_new(KERNEL);
  op->launch = made;
  return stream_enqueue(stream, op);
}

API(cuLaunchKernel, BOUND_IF_OLD,
    (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned shared, CUstream on, void **parameters, void **extra),
    (function, gx, gy, gz, bx, by, bz, shared, on, parameters, extra)) {
  CUlaunchConfig config = {gx, gy, gz, bx, by, bz, shared, on, NULL, 0};
  return launch(&config, function, parameters, extra);
}

API(cuLaunchKernelEx, BOUND_IF_OLD,
    (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
    (config, function, parameters, extra)) {
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  return launch(config, function, parameters, extra);
}
