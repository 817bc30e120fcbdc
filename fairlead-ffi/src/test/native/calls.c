/* What every call begins with, handles and their generations, traps, and the controls of tests. */
#include "standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TRAPS = 1000, TRAP_BYTES = 256, MAX_FAILURES = 16 };

struct state g = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
};
_Thread_local struct thread self;

void lock(void) { pthread_mutex_lock(&g.lock); }

void unlock(void) { pthread_mutex_unlock(&g.lock); }

void await_change(void) { pthread_cond_wait(&g.changed, &g.lock); }

void changed(void) { pthread_cond_broadcast(&g.changed); }

void *zalloc(size_t bytes) {
  void *memory = calloc(1, bytes);
  if (memory == NULL) {
    fprintf(stderr, "stand-in: no memory for its own use\n");
    abort();
  }
  return memory;
}

/* --- traps -----------------------------------------------------------------------------------*/

static char traps[MAX_TRAPS][TRAP_BYTES];
static int trap_count;

void trap(const char *kind, const char *format, ...) {
  int place = trap_count++;
  if (place >= MAX_TRAPS) return; /* counted all the same */
  va_list arguments;
  va_start(arguments, format);
  int used = snprintf(traps[place], TRAP_BYTES, "%s: %s: ", kind,
                      self.call == NULL ? "a stream's worker" : self.call);
  vsnprintf(traps[place] + used, TRAP_BYTES - (size_t)used, format, arguments);
  va_end(arguments);
}

/* --- handles ---------------------------------------------------------------------------------*/

/*
 * A handle: kind + 1 in bits 56-59, generation in 24-55, slot in 4-23. A slot's generation grows
 * each time it is given out, so that a stale handle never meets a younger object.
 */
struct slot {
  struct object *object;
  uint32_t generation;
  bool with_context; /* its last object went with its context */
  int next_free;
};

enum { MAX_SLOTS = 1 << 20 };

static struct slot *slots;
static int slot_count, first_free = -1;

static const char *const KIND_NAMES[KINDS] = {"context",  "stream", "event",      "module",
                                              "function", "graph",  "graph exec", "graph node",
                                              "pool"};

static int handle_slot(const void *handle) { return (int)((uintptr_t)handle >> 4 & 0xFFFFF); }

static uint32_t handle_generation(const void *handle) {
  return (uint32_t)((uintptr_t)handle >> 24);
}

static int handle_kind(const void *handle) { return (int)((uintptr_t)handle >> 56) - 1; }

static int slot_take(void) {
  if (first_free >= 0) {
    int taken = first_free;
    first_free = slots[taken].next_free;
    return taken;
  }
  if (slot_count == MAX_SLOTS) {
    fprintf(stderr, "stand-in: more than %d objects at once\n", MAX_SLOTS);
    abort();
  }
  if ((slot_count & (slot_count - 1)) == 0) { /* at each power of two */
    slots = realloc(slots, (slot_count == 0 ? 1 : 2 * (size_t)slot_count) * sizeof *slots);
    if (slots == NULL) abort();
  }
  slots[slot_count] = (struct slot){0};
  return slot_count++;
}

void object_open(void *opened, enum kind kind, struct context *context) {
  struct object *object = opened;
  int taken = slot_take();
  slots[taken].object = object;
  slots[taken].with_context = false;
  uint64_t generation = ++slots[taken].generation;
  object->kind = kind;
  object->context = context;
  object->handle =
      (void *)(uintptr_t)((uint64_t)(kind + 1) << 56 | generation << 24 | (uint64_t)taken << 4);
  g.live[kind]++;
}

void object_retire(void *retired) {
  struct object *object = retired;
  if (object->closing) return;
  object->closing = true;
  g.live[object->kind]--;
}

void object_close(void *closed) {
  struct object *object = closed;
  object_retire(object);
  int index = handle_slot(object->handle);
  slots[index].object = NULL;
  slots[index].with_context = object->context != NULL && object->context->dead;
  slots[index].next_free = first_free;
  first_free = index;
}

static struct slot *slot_of(const void *handle) {
  int index = handle_slot(handle);
  return index < slot_count ? &slots[index] : NULL;
}

void *object_peek(const void *handle, enum kind kind) {
  struct slot *slot = slot_of(handle);
  bool same = slot != NULL && slot->object != NULL && slot->object->handle == handle;
  return same && slot->object->kind == kind ? slot->object : NULL;
}

static CUresult stale(const void *handle, enum kind kind) {
  int is = handle_kind(handle);
  if (is != (int)kind) {
    trap("stale handle", "%p is a %s, not a %s", (void *)handle,
         is >= 0 && is < KINDS ? KIND_NAMES[is] : "number without meaning", KIND_NAMES[kind]);
    return kind == CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
  }
  trap("stale handle", "%s %p is no more", KIND_NAMES[kind], (void *)handle);
  if (kind == CONTEXT) return CUDA_ERROR_INVALID_CONTEXT;
  struct slot *slot = slot_of(handle);
  bool last = slot != NULL && slot->generation == handle_generation(handle);
  return last && slot->with_context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

CUresult object_find(const void *handle, enum kind kind, void *out) {
  struct object *object = object_peek(handle, kind);
  if (object == NULL || object->closing) return stale(handle, kind);
  *(struct object **)out = object;
  return CUDA_SUCCESS;
}

CUresult object_use(const void *handle, enum kind kind, void *out) {
  CHECK(object_find(handle, kind, out));
  return context_use((*(struct object **)out)->context);
}

void objects_end(struct context *context) {
  static void (*const END[KINDS])(void *) = {[EVENT] = event_free,
                                             [MODULE] = module_free,
                                             [GRAPH] = graph_free,
                                             [GRAPH_EXEC] = executable_free};
  for (int i = 0; i < slot_count; i++) {
    struct object *object = slots[i].object;
    if (object == NULL || object->context != context || END[object->kind] == NULL) continue;
    END[object->kind](object);
  }
}

/* --- calls -----------------------------------------------------------------------------------*/

static struct call *calls;

static struct {
  char function[NAME_BYTES];
  int status, count;
} failures[MAX_FAILURES];

static char demanding[MAX_FAILURES][NAME_BYTES];

static bool demands_current(const char *function) {
  for (int i = 0; i < MAX_FAILURES; i++) {
    if (strcmp(demanding[i], function) == 0) return true;
  }
  return false;
}

static void count_call(struct call *call) {
  call->count++;
  if (call->listed) return;
  call->listed = true;
  call->next = calls;
  calls = call;
}

static CUresult injected(const char *function) {
  for (int i = 0; i < MAX_FAILURES; i++) {
    if (failures[i].count > 0 && strcmp(failures[i].function, function) == 0) {
      failures[i].count--;
      return (CUresult)failures[i].status;
    }
  }
  return CUDA_SUCCESS;
}

/* What a thread had current before the last reset is nothing to it now. */
static void enter_epoch(void) {
  if (self.epoch == g.epoch) return;
  self.epoch = g.epoch;
  self.depth = 0;
  self.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static CUresult demand_context(int demand) {
  if (demand != BOUND && !(demand == BOUND_IF_OLD && g.old_driver)) return CUDA_SUCCESS;
  struct context *current;
  CHECK(current_context(&current));
  if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  return demand == BOUND ? (CUresult)current->fault : CUDA_SUCCESS;
}

CUresult call_begin(struct call *call) {
  lock();
  enter_epoch();
  self.call = call->name;
  count_call(call);
  if (call->demands == ANYTIME) return CUDA_SUCCESS;
  if (self.in_host_function) {
    trap("call inside a host function", "answered 800");
    return CUDA_ERROR_NOT_PERMITTED;
  }
  CHECK(injected(call->name));
  if (!g.initialised && strcmp(call->name, "cuInit") != 0) return CUDA_ERROR_NOT_INITIALIZED;
  CHECK(demand_context(demands_current(call->name) ? BOUND : call->demands & DEMAND_MASK));
  return capture_permits(call->demands);
}

void call_end(void) {
  self.call = NULL;
  unlock();
}

/* --- controls of tests -----------------------------------------------------------------------*/

static int connections_told(void) {
  const char *told = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  int number = told == NULL ? 0 : atoi(told);
  return number < 1 ? 8 : number > 32 ? 32 : number;
}

static void defaults(void) {
  g.initialised = g.old_driver = g.faults_stay = g.pool_keeps = g.lazy = false;
  g.hardware_queues = 0;
  g.version = 13000;
  g.devices = 2;
  g.connections = connections_told();
  g.creation_waits = -1;
  g.depth = 1022; /* as measured: the 1,022nd launch behind a held kernel blocks its caller */
  attributes_reset();
  peers_reset();
  for (int i = 0; i < MAX_DEVICES; i++) {
    g.device[i] = (struct device){.pool = g.device[i].pool, .limit = (size_t)256 << 20};
  }
}

__attribute__((constructor)) static void load(void) { defaults(); }

/* Ends all there is, and makes everything as it was when the library was loaded. */
EXPORT void standin_reset(void) {
  lock();
  contexts_reset();
  g.epoch++;
  defaults();
  memset(failures, 0, sizeof failures);
  memset(demanding, 0, sizeof demanding);
  for (struct call *call = calls; call != NULL; call = call->next) {
    call->count = call->refused = 0;
  }
  trap_count = 0;
  unlock();
}

EXPORT void standin_set_devices(int devices) {
  lock();
  g.devices = devices < 0 ? 0 : devices > MAX_DEVICES ? MAX_DEVICES : devices;
  unlock();
}

EXPORT void standin_set_version(int version) {
  lock();
  g.version = version;
  unlock();
}

EXPORT void standin_mode_old_driver(int on) {
  lock();
  g.old_driver = on != 0;
  unlock();
}

/* 0 none, 1 counted, 2 in order */
EXPORT void standin_mode_hardware_queues(int mode) {
  lock();
  g.hardware_queues = mode;
  changed();
  unlock();
}

/* After a fault each retain of that device answers with it, as of a driver that was seen to. */
EXPORT void standin_mode_faults_stay(int on) {
  lock();
  g.faults_stay = on != 0;
  unlock();
}

/* What pools keep is returned only when they are trimmed, not when others need it. */
EXPORT void standin_mode_pool_keeps(int on) {
  lock();
  g.pool_keeps = on != 0;
  unlock();
}

/* Functions of modules that are loaded from now on are brought to the device when first needed. */
EXPORT void standin_mode_lazy(int on) {
  lock();
  g.lazy = on != 0;
  unlock();
}

/* Instead of CUDA_DEVICE_MAX_CONNECTIONS, which is only read when the library is loaded. */
EXPORT void standin_set_connections(int connections) {
  lock();
  g.connections = connections;
  changed();
  unlock();
}

/* How many operations a stream takes, the running one included, before its callers block. */
EXPORT void standin_set_depth(int depth) {
  lock();
  g.depth = depth;
  changed();
  unlock();
}

/* From so many streams of a context on, what makes or loads something waits for its kernels. */
EXPORT void standin_set_creation_waits(int streams) {
  lock();
  g.creation_waits = streams;
  changed();
  unlock();
}

EXPORT void standin_set_memory(int device, size_t bytes) {
  lock();
  if (device >= 0 && device < MAX_DEVICES) g.device[device].limit = bytes;
  unlock();
}

/* The next count calls of that function answer status and do nothing. */
EXPORT void standin_fail_next(const char *function, int status, int count) {
  lock();
  for (int i = 0; i < MAX_FAILURES; i++) {
    if (failures[i].count > 0) continue;
    snprintf(failures[i].function, NAME_BYTES, "%s", function);
    failures[i].status = status;
    failures[i].count = count;
    break;
  }
  unlock();
}

/* That function demands a current context, though the driver is not old. */
EXPORT void standin_demand_current(const char *function) {
  lock();
  for (int i = 0; i < MAX_FAILURES; i++) {
    if (demanding[i][0] != 0) continue;
    snprintf(demanding[i], NAME_BYTES, "%s", function);
    break;
  }
  unlock();
}

/* From here on this thread's calls are foreign code's, or no longer; answers what they were. */
EXPORT int standin_foreign(int on) {
  int before = self.foreign;
  self.foreign = on != 0;
  return before;
}

/* A context-fatal fault out of nowhere, as of a kernel of someone else. */
EXPORT void standin_fault(int device, int status) {
  lock();
  if (device >= 0 && device < MAX_DEVICES && g.device[device].primary != NULL) {
    context_fault(g.device[device].primary, status);
  }
  unlock();
}

/* 0 contexts, 1 streams, 2 events, 3 modules, 4 device and 5 host allocations, 6 graphs, 7 execs */
EXPORT long standin_live(int kind) {
  lock();
  long live = kind == 4   ? g.device_allocations
              : kind == 5 ? g.host_allocations
              : kind >= 0 && kind <= 3 ? g.live[kind]
              : kind == 6 || kind == 7 ? g.live[GRAPH + kind - 6]
                                       : -1;
  unlock();
  return live;
}

/* How often that function was called. */
EXPORT long standin_calls(const char *function) {
  lock();
  long count = 0;
  for (struct call *call = calls; call != NULL; call = call->next) {
    if (strcmp(call->name, function) == 0) count = call->count;
  }
  unlock();
  return count;
}

/* How often it answered anything but success: what tools that look for errors would report. */
EXPORT long standin_refused(const char *function) {
  lock();
  long count = 0;
  for (struct call *call = calls; call != NULL; call = call->next) {
    if (strcmp(call->name, function) == 0) count = call->refused;
  }
  unlock();
  return count;
}

EXPORT int standin_traps(void) {
  lock();
  int count = trap_count;
  unlock();
  return count;
}

EXPORT int standin_trap_text(int i, char *buffer, int length) {
  lock();
  bool there = i >= 0 && i < trap_count && i < MAX_TRAPS && length > 0;
  if (there) snprintf(buffer, (size_t)length, "%s", traps[i]);
  unlock();
  return there;
}

EXPORT void standin_clear_traps(void) {
  lock();
  trap_count = 0;
  unlock();
}

/* Callers that wait for room in a stream. */
EXPORT int standin_blocked(void) {
  lock();
  int blocked = g.blocked;
  unlock();
  return blocked;
}

/* Streams of the device that hold a hardware queue: a kernel runs, and what may stick is behind. */
EXPORT int standin_occupied(int device) {
  lock();
  struct context *context = device >= 0 && device < MAX_DEVICES ? g.device[device].primary : NULL;
  int occupied = context == NULL ? 0 : streams_occupying(context);
  unlock();
  return occupied;
}

/* Operations of the stream that are not done; 0 as well for a stream that is no more. */
EXPORT long standin_queued(CUstream handle) {
  lock();
  struct stream *stream = object_peek(handle, STREAM);
  long queued = stream == NULL ? 0 : stream->queued;
  unlock();
  return queued;
}
