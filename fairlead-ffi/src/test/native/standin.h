/*
 * A strict stand-in for libcuda.so.1: real threads, streams, events and memory on the CPU, under a
 * GPU driver's rules, and a count of every use that a real driver would punish with undefined
 * behaviour (a "trap").
 *
 *   context.c  devices, primary contexts, the thread-local stack of current contexts
 *   stream.c   streams and their worker threads, order, hardware queues, host functions
 *   event.c    events and their records
 *   memory.c   allocations, pools, pinned memory, copies, fills, write-values
 *   kernels.c  modules, the kernels that are built in, launches
 *   images.c   PTX, cubins and fatbins as compilers make them, and kernels from a library
 *   peers.c    what is between two devices
 *   capture.c  capture
 *   graph.c    graphs, their nodes, executables, replay
 *   calls.c    what every call begins with, handles, traps, faults, the standin_ controls
 *
 * One lock guards everything. It is given back while work runs (kernels, copies, host functions)
 * and while a call waits. Lock-free, since kernels look while they run: context.cancelled.
 *
 * A stream's operation: queued -> (its event, its hardware queue) -> running -> done. In a context
 * that faulted or is being torn down it is dropped instead: bookkeeping, but no effect.
 */
#ifndef STANDIN_H
#define STANDIN_H

#define _GNU_SOURCE /* so it must be the first that is included */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_subset.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  MAX_DEVICES = 8,
  MAX_PARAMETERS = 16,
  MAX_ARGUMENT_BYTES = 256,
  NAME_BYTES = 64,
  LEAST_PRIORITY = 0,
  GREATEST_PRIORITY = -5
};

/* --- objects and handles ---------------------------------------------------------------------*/

enum kind { CONTEXT, STREAM, EVENT, MODULE, FUNCTION, GRAPH, GRAPH_EXEC, GRAPH_NODE, POOL, KINDS };

/* The head of everything that has a handle. */
struct object {
  enum kind kind;
  void *handle;
  struct context *context;
  bool closing; /* destroyed for the caller, but work still goes on */
};

void object_open(void *object, enum kind kind, struct context *context);
/* For the caller it is gone, for its work not yet. */
void object_retire(void *object);
/* The handle is stale from here on. */
void object_close(void *object);
/* Closes what lives in a context that ends; its streams ended before. */
void objects_end(struct context *context);
/* Without a trap: NULL for what is gone. */
void *object_peek(const void *handle, enum kind kind);
/* Only that the handle lives. */
CUresult object_find(const void *handle, enum kind kind, void *out);
/* And that the call may touch its context now: not faulted, current where the driver is old. */
CUresult object_use(const void *handle, enum kind kind, void *out);

struct op;
struct stream;
struct capture;
struct record;

struct context {
  struct object head;
  int device;
  int fault;             /* the first context-fatal status, or 0 */
  bool dead;
  atomic_bool cancelled; /* faulted or being torn down: running kernels give up */
  struct stream *streams;
  struct stream *legacy;
  struct context *next_created; /* of those that are not primary */
  unsigned peers;        /* devices whose contexts' memory it may reach, a bit for each */
  int made;              /* streams so far */
};

struct device {
  struct context *primary;
  int fault;             /* of a context that was, where they stay */
  int retained;
  unsigned flags;
  struct object pool;
  size_t limit, used, pooled, pooled_high, reserved, reserved_high;
  cuuint64_t threshold;
  int reuse_off[4]; /* by attribute */
  unsigned allowed;      /* devices that may reach the pool's memory, a bit for each */
};

/* --- what every call begins and ends with ----------------------------------------------------*/

enum demand {
  ANYTIME = 0,      /* before cuInit, within host functions */
  INITIALISED = 1,
  BOUND_IF_OLD = 2, /* a current context, if the driver is old */
  BOUND = 3,        /* a current context, always */
  DEMAND_MASK = 15,
  UNSAFE = 16,      /* not seen by capture, so forbidden while some capture is on */
  QUERY = 32        /* forbidden only while a capture in global mode is on */
};

struct call {
  const char *name;
  int demands;
  long count, refused;
  bool listed;
  struct call *next;
};

CUresult call_begin(struct call *call);
void call_end(void);

/* Defines an exported driver function, whose body runs under the lock. */
#define API(name, demands, parameters, arguments)                 \
  static CUresult name##_locked parameters;                       \
  EXPORT CUresult name parameters {                               \
    static struct call call = {#name, demands, 0, 0, false, NULL}; \
    CUresult status = call_begin(&call);                          \
    if (status == CUDA_SUCCESS) status = name##_locked arguments; \
    if (status != CUDA_SUCCESS) call.refused++;                   \
    call_end();                                                   \
    return status;                                                \
  }                                                               \
  static CUresult name##_locked parameters

#define CHECK(expression)                                         \
  do {                                                            \
    CUresult checked_ = (expression);                             \
    if (checked_ != CUDA_SUCCESS) return checked_;                \
  } while (0)

void *zalloc(size_t bytes);
void lock(void);
void unlock(void);
/* Waits until something changed; what the caller looked at before may be gone. */
void await_change(void);
void changed(void);

/* A wrong use; kind is one of the words in the README of this folder. */
void trap(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The context that is current on this thread; NULL if none. */
CUresult current_context(struct context **out);
/* The one that a BOUND call was made under. */
struct context *bound(void);
CUresult context_use(struct context *context);
/*
 * In that mode: waits until no kernel of the context runs, as a real driver may before it makes or
 * loads something. What the caller looked at before may be gone then.
 */
CUresult context_await_creation(CUcontext handle);
bool context_idle(const struct context *context);
/* Waits until no kernel of the context runs; as above. */
CUresult context_await_kernels(CUcontext handle);
void context_fault(struct context *context, int status);
void context_end(struct context *context);
void contexts_reset(void);
CUresult device_find(CUdevice number, struct device **out);
/* An attribute's value; -1 if there is none of that number. */
int device_attribute(int attribute);
void attributes_reset(void);
void peers_reset(void);
CUresult pool_find(CUmemoryPool pool, struct device **out);

struct state {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool initialised;
  bool old_driver;
  bool faults_stay;         /* after a fault a process gets no other context */
  bool pool_keeps;          /* what a pool has and nobody uses is nobody else's either */
  bool lazy;                /* code is brought to the device when it is first asked for */
  int hardware_queues;      /* 0 none, 1 counted, 2 in order: see stream.c */
  unsigned long enqueued;   /* operations of all streams */
  int version, devices, connections, depth;
  int creation_waits;       /* from how many streams on; never if negative */
  int blocked;              /* callers that wait for room in a stream */
  unsigned epoch;           /* how often standin_reset was called */
  long live[KINDS], device_allocations, host_allocations;
  struct device device[MAX_DEVICES];
  struct capture *captures;
  struct context *created;
};
extern struct state g;

struct thread {
  const char *call;
  bool in_host_function;
  bool foreign; /* code that may use the default streams */
  unsigned epoch;
  int depth;
  CUstreamCaptureMode capture_mode;
  CUcontext stack[16];
};
extern _Thread_local struct thread self;

/* --- memory ----------------------------------------------------------------------------------*/

enum memory { DEVICE_MEMORY, PINNED_MEMORY, REGISTERED_MEMORY };

/* Until where a stream used something. */
struct use {
  CUstream stream;
  uint64_t sequence;
};

struct uses {
  struct use *of;
  int count, room;
};

/*
 * One piece of memory: live -> freed (no new work may name it) -> released (poisoned, kept apart
 * for a while so that late uses are known for what they are) -> gone.
 */
struct allocation {
  uintptr_t base;
  size_t bytes;
  enum memory memory;
  bool pooled, freed, released;
  int pins;           /* operations that touch it and are not done */
  struct context *context;
  struct use born;    /* where in which stream it was allocated */
  struct uses uses;
  struct allocation *before, *after; /* of all there are */
  struct allocation *later;          /* of the released ones */
};

/* The live allocation around these bytes; anything else is a trap. */
CUresult memory_range(uintptr_t address, size_t bytes, struct allocation **out);
/* Pins what the operation touches, as the next of that stream, and checks that it may. */
CUresult memory_touch(struct stream *stream, struct op *op);
void memory_untouch(struct op *op);
/* Traps if the table of pieces is another one than when the operation was enqueued. */
void memory_check_table(const struct op *op);
/* No trap: for running kernels, where it is a fault, and for host pointers. */
struct allocation *memory_at(uintptr_t address);
void memory_release(struct allocation *allocation);
void memory_end(struct context *context);
bool memory_same(const void *mine, uintptr_t theirs, size_t bytes);

/* --- streams ---------------------------------------------------------------------------------*/

enum operation { KERNEL, COPY, FILL, WRITE, HOST, RECORD, WAIT, FREE, ALLOCATE, EMPTY };

struct layout {
  int count;
  size_t offset[MAX_PARAMETERS], size[MAX_PARAMETERS], bytes;
  char type[MAX_PARAMETERS + 1]; /* i: int, l: long, f: float, d: double, p: pointer */
};

struct launch {
  const struct builtin *builtin; /* NULL: of the library of kernels, by name */
  char name[NAME_BYTES];
  uint64_t threads;
  uint32_t blocks, block, cluster, shared;
  bool cooperative;
  struct context *context;
  struct layout layout;
  unsigned char arguments[MAX_ARGUMENT_BYTES];
};

/* An entry of the table of a kernel that copies pieces. */
struct piece {
  uintptr_t device, host;
  size_t bytes;
};

struct op {
  enum operation what;
  struct op *next;
  uint64_t sequence;
  unsigned long order;      /* among those of all streams */
  int touches;
  struct allocation *touched[MAX_PARAMETERS];
  struct allocation **pieces_touched; /* of a kernel that copies pieces, which has no limit */
  size_t pieces_count;
  void *table;              /* as it was when that was enqueued */
  union {
    struct launch launch;
    struct { uintptr_t target, source; size_t bytes; void *staged; bool to_host, from_host; } copy;
    struct { uintptr_t target; size_t count; uint32_t value; int width; } fill;
    struct { uintptr_t target; uint64_t value; } write;
    struct { CUhostFn function; void *data; } host;
    struct record *record;
    struct { uintptr_t address; struct allocation *allocation; } freed;
  };
};

struct stream {
  struct object head;
  unsigned flags;
  int priority;
  bool per_thread; /* the default stream of that thread */
  pthread_t thread;
  pthread_cond_t wake;
  struct op *first, *last;
  long queued;                  /* the running one included */
  uint64_t enqueued, completed;
  bool running;                 /* a kernel runs */
  int queue;                    /* the hardware queue that it shares */
  int holders;                  /* calls that wait and will look at this again */
  size_t freeing;               /* bytes whose free is queued here */
  struct uses clock;            /* other streams' work that comes before our next */
  struct capture *capture;
  uint64_t captured;            /* operations of it in that capture */
  bool unjoined;                /* the last of them is not waited for by others yet */
  struct stream *next;
};

struct op *op_new(enum operation what);
struct op *op_copy(uintptr_t target, uintptr_t source, size_t bytes);
void op_free(struct op *op);
void ops_free(struct op *first);
/* Takes the operation over, whatever it answers. */
CUresult stream_enqueue(struct stream *stream, struct op *op);
CUresult stream_use(CUstream handle, struct stream **out);
CUresult stream_use_to_order(CUstream handle, struct stream **out);
CUresult stream_wait(struct stream *stream, uint64_t sequence);
/* Whether that use is over, or sure to be before what the stream is given next. */
bool stream_after(const struct stream *stream, struct use use);
void uses_note(struct uses *uses, struct use use);
struct stream *stream_other_user(const struct stream *stream, const struct uses *uses);
/* What the stream is given next comes after that record. */
CUresult stream_order(struct stream *stream, struct record *record);
void stream_end(struct stream *stream);
int streams_occupying(const struct context *context);
int kernel_run(const struct launch *launch);
/* Whether what it touches is what its table says, which must not change before it has run. */
bool kernel_copies_pieces(const struct launch *launch);
/* What a launch would do, its arguments copied; of the kernel's context. */
CUresult kernel_prepare(const CUlaunchConfig *config, CUfunction handle, void **parameters,
                        void **extra, struct launch *out);

/* --- images ----------------------------------------------------------------------------------*/

/* What goes wrong while an image is read, for the log that the caller gave. */
struct log {
  char text[256];
};

/* Whether these bytes are an image that a driver would take, not one for the stand-in alone. */
bool image_is_real(const void *image);
/* Calls back for each kernel of the part that is for this device. */
typedef CUresult image_kernel(void *module, const char *name, const size_t *sizes, int count,
                              struct log *log);
CUresult image_read(const void *image, image_kernel *each, void *module, struct log *log);
/* Kernels of the library that a test names: emulated_signature, emulated_launch. */
const char *library_signature(const char *name);
int library_run(const struct launch *launch);

/* One recording of an event, shared by the event, its operation and whoever waits. */
struct record {
  int references;
  bool done;
  double millis;
  struct use at;
  struct uses clock;
  unsigned long captured; /* the number of the capture that this was recorded in, or 0 */
};

struct record *record_new(void);
void record_drop(struct record *record);
void record_done(struct record *record);
struct op *record_op(enum operation what, struct record *record);
void event_free(void *event);

/* --- capture ---------------------------------------------------------------------------------*/

struct capture {
  struct stream *origin;
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool invalid;
  unsigned long number; /* from 1 on */
  struct op *first, *last;
  struct capture *next;
};

CUresult capture_add(struct stream *stream, struct op *op);
/* An act that a capture forbids: traps, invalidates, answers status. */
CUresult capture_break(struct capture *capture, CUresult status, const char *why);
/* Whether this thread may make an unsafe call (or a query) now. */
CUresult capture_permits(int demands);
/* A call that is not possible on a stream that captures. */
CUresult capture_refuses(const struct stream *stream);
CUresult capture_refuses_record(const struct record *record);
/* Whether the legacy stream may do anything while a blocking stream captures. */
CUresult capture_legacy(const struct context *context);
/* A wait for that record, where the stream or the record is part of a capture. */
CUresult capture_wait(struct stream *stream, struct record *record);
void captures_end(struct context *context);
void module_free(void *module);

/* --- graphs ----------------------------------------------------------------------------------*/

/* Takes the operations over. */
CUgraph graph_of_capture(struct op *first, struct context *context);
void graph_free(void *graph);
void executable_free(void *executable);

#endif
