/* Streams: first in, first out, one worker thread each; their order against each other. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

enum { WORKER_STACK_BYTES = 1 << 20 }; /* host functions may be Java */

/* --- operations ------------------------------------------------------------------------------*/

struct op *op_new(enum operation what) {
  struct op *op = zalloc(sizeof *op);
  op->what = what;
  return op;
}

void op_free(struct op *op) {
  memory_untouch(op);
  if (op->what == RECORD || op->what == WAIT) record_drop(op->record);
  if (op->what == COPY) free(op->copy.staged);
  free(op->pieces_touched);
  free(op->table);
  free(op);
}

void ops_free(struct op *op) {
  while (op != NULL) {
    struct op *next = op->next;
    op_free(op);
    op = next;
  }
}

static void append(struct stream *stream, struct op *op) {
  op->sequence = ++stream->enqueued;
  op->order = ++g.enqueued;
  if (op->what == RECORD) {
    op->record->at = (struct use){stream->head.handle, op->sequence};
    for (int i = 0; i < stream->clock.count; i++) {
      uses_note(&op->record->clock, stream->clock.of[i]);
    }
  }
  if (stream->last == NULL) {
    stream->first = op;
  } else {
    stream->last->next = op;
  }
  stream->last = op;
  stream->queued++;
  pthread_cond_signal(&stream->wake);
}

/* --- order between streams -------------------------------------------------------------------*/

static bool over(struct use use) {
  struct stream *stream = object_peek(use.stream, STREAM);
  return stream == NULL || stream->completed >= use.sequence;
}

static void uses_forget_old(struct uses *uses) {
  int kept = 0;
  for (int i = 0; i < uses->count; i++) {
    if (!over(uses->of[i])) uses->of[kept++] = uses->of[i];
  }
  uses->count = kept;
}

void uses_note(struct uses *uses, struct use use) {
  for (int i = 0; i < uses->count; i++) {
    if (uses->of[i].stream != use.stream) continue;
    if (uses->of[i].sequence < use.sequence) uses->of[i].sequence = use.sequence;
    return;
  }
  if (uses->count == uses->room) uses_forget_old(uses);
  if (uses->count == uses->room) {
    uses->room = uses->room == 0 ? 4 : 2 * uses->room;
    uses->of = realloc(uses->of, (size_t)uses->room * sizeof *uses->of);
    if (uses->of == NULL) abort();
  }
  uses->of[uses->count++] = use;
}

bool stream_after(const struct stream *stream, struct use use) {
  if (use.stream == stream->head.handle || over(use)) return true;
  for (int i = 0; i < stream->clock.count; i++) {
    struct use known = stream->clock.of[i];
    if (known.stream == use.stream) return known.sequence >= use.sequence;
  }
  return false;
}

/* A stream whose use is neither over nor ordered before what this one is given next. */
struct stream *stream_other_user(const struct stream *stream, const struct uses *uses) {
  for (int i = 0; i < uses->count; i++) {
    if (!stream_after(stream, uses->of[i])) return object_peek(uses->of[i].stream, STREAM);
  }
  return NULL;
}

static void learn(struct stream *stream, const struct record *record) {
  uses_note(&stream->clock, record->at);
  for (int i = 0; i < record->clock.count; i++) uses_note(&stream->clock, record->clock.of[i]);
}

CUresult stream_order(struct stream *stream, struct record *record) {
  if (record->done) return CUDA_SUCCESS;
  struct op *op = record_op(WAIT, record); /* keeps the record, if room has to be waited for */
  CUresult status = stream_enqueue(stream, op);
  if (status == CUDA_SUCCESS) learn(stream, record);
  return status;
}

/* What the later stream is given next comes after all that the earlier one has. */
static void fence(struct stream *earlier, struct stream *later) {
  if (earlier->queued == 0) return;
  struct record *record = record_new();
  append(earlier, record_op(RECORD, record));
  append(later, record_op(WAIT, record));
  learn(later, record);
  record_drop(record);
}

static bool blocking(const struct stream *stream) {
  return (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* The legacy stream waits for all blocking streams, and they for it. */
static CUresult order_with_legacy(struct stream *stream) {
  struct context *context = stream->head.context;
  if (context->legacy == NULL || !blocking(stream)) return CUDA_SUCCESS;
  if (stream != context->legacy) {
    fence(context->legacy, stream);
    return CUDA_SUCCESS;
  }
  CHECK(capture_legacy(context));
  for (struct stream *other = context->streams; other != NULL; other = other->next) {
    if (other != stream && blocking(other) && !other->head.closing) fence(other, stream);
  }
  return CUDA_SUCCESS;
}

/* --- the worker ------------------------------------------------------------------------------*/

/* Needs the hardware to have done with what is before it in its stream; records do not. */
static bool holds_queue(const struct op *op) {
  return op->what == KERNEL || op->what == WRITE || op->what == FILL || op->what == HOST;
}

/* Whether a running kernel has something behind it that needs the hardware to look on. */
static bool occupies(const struct stream *stream) {
  if (!stream->running) return false;
  for (struct op *op = stream->first->next; op != NULL; op = op->next) {
    if (holds_queue(op)) return true;
  }
  return false;
}

int streams_occupying(const struct context *context) {
  int count = 0;
  for (struct stream *stream = context->streams; stream != NULL; stream = stream->next) {
    count += occupies(stream);
  }
  return count;
}

/*
 * Queues in order: streams share them, and one that holds its queue behind unfinished work of its
 * own stream holds up all that others gave to that queue after it.
 */
static bool sticks(const struct stream *stream, const struct op *op) {
  for (struct stream *other = stream->head.context->streams; other != NULL; other = other->next) {
    if (other == stream || other->queue != stream->queue || other->first == NULL) continue;
    for (struct op *o = other->first->next; o != NULL && o->order < op->order; o = o->next) {
      if (holds_queue(o)) return true;
    }
  }
  return false;
}

static bool must_wait(struct stream *stream, struct op *op) {
  struct context *context = stream->head.context;
  if (atomic_load(&context->cancelled)) return false;
  if (op->what == WAIT && !op->record->done) return true;
  if (g.hardware_queues == 2) return sticks(stream, op);
  return g.hardware_queues == 1 && streams_occupying(context) >= g.connections;
}

static void run_kernel(struct stream *stream, struct op *op) {
  stream->running = true;
  changed();
  unlock();
  int fault = kernel_run(&op->launch);
  lock();
  if (fault == 0) memory_check_table(op);
  stream->running = false;
  if (fault != 0) context_fault(stream->head.context, fault);
}

static void run_copy(struct op *op) {
  void *source = op->copy.staged != NULL ? op->copy.staged : (void *)op->copy.source;
  unlock();
  memmove((void *)op->copy.target, source, op->copy.bytes);
  bool same = op->copy.staged == NULL ||
              memory_same(source, op->copy.source, op->copy.bytes);
  lock();
  if (!same) trap("changed during the copy", "unpinned source %p", (void *)op->copy.source);
}

static void run_fill(struct op *op) {
  unlock();
  if (op->fill.width == 1) {
    memset((void *)op->fill.target, (int)op->fill.value, op->fill.count);
  } else if (op->fill.width == 2) {
    uint16_t *target = (uint16_t *)op->fill.target;
    for (size_t i = 0; i < op->fill.count; i++) target[i] = (uint16_t)op->fill.value;
  } else {
    uint32_t *target = (uint32_t *)op->fill.target;
    for (size_t i = 0; i < op->fill.count; i++) target[i] = op->fill.value;
  }
  lock();
}

static void run_host_function(struct op *op) {
  unlock();
  self.in_host_function = true;
  op->host.function(op->host.data);
  self.in_host_function = false;
  lock();
  self.call = NULL;
}

/* Release: who sees the value must see what the stream did before. */
static void run_write(struct op *op) {
  atomic_store_explicit((_Atomic uint64_t *)op->write.target, op->write.value,
                        memory_order_release);
}

static void run_work(struct stream *stream, struct op *op) {
  switch (op->what) {
    case KERNEL: run_kernel(stream, op); break;
    case COPY: run_copy(op); break;
    case FILL: run_fill(op); break;
    case WRITE: run_write(op); break;
    case HOST: run_host_function(op); break;
    default: break;
  }
}

static void finish(struct stream *stream, struct op *op) {
  if (op->what == RECORD) record_done(op->record);
  if (op->what == FREE) {
    stream->freeing -= op->freed.allocation->bytes;
    memory_release(op->freed.allocation);
  }
  stream->first = op->next;
  if (stream->first == NULL) stream->last = NULL;
  stream->queued--;
  stream->completed = op->sequence;
  op_free(op);
  changed();
}

static void stream_free(struct stream *stream) {
  struct stream **link = &stream->head.context->streams;
  while (*link != stream) link = &(*link)->next;
  *link = stream->next;
  object_close(stream);
  pthread_cond_destroy(&stream->wake);
  free(stream->clock.of);
  free(stream);
  changed();
}

static void *work(void *argument) {
  struct stream *stream = argument;
  lock();
  for (;;) {
    struct op *op = stream->first;
    if (op != NULL) {
      while (must_wait(stream, op)) await_change();
      if (!atomic_load(&stream->head.context->cancelled)) run_work(stream, op);
      finish(stream, op);
    } else if (stream->head.closing && stream->holders == 0) {
      break;
    } else {
      pthread_cond_wait(&stream->wake, &g.lock);
    }
  }
  stream_free(stream);
  unlock();
  return NULL;
}

static bool start_worker(struct stream *stream) {
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
  bool started = pthread_create(&thread, &attributes, work, stream) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

/* --- calls -----------------------------------------------------------------------------------*/

static struct stream *stream_new(struct context *context, unsigned flags, int priority) {
  struct stream *stream = zalloc(sizeof *stream);
  stream->flags = flags;
  stream->priority = priority;
  pthread_cond_init(&stream->wake, NULL);
  object_open(stream, STREAM, context);
  stream->queue = context->made++ % g.connections;
  stream->next = context->streams;
  context->streams = stream;
  if (start_worker(stream)) return stream;
  stream_free(stream);
  return NULL;
}

/* Gone for callers; its worker ends with its last operation. */
void stream_end(struct stream *stream) {
  object_retire(stream);
  pthread_cond_signal(&stream->wake);
}

static void hold(struct stream *stream) { stream->holders++; }

static void unhold(struct stream *stream) {
  if (--stream->holders == 0) pthread_cond_signal(&stream->wake);
}

static CUresult standing(const struct context *context) {
  return context->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : (CUresult)context->fault;
}

CUresult stream_wait(struct stream *stream, uint64_t sequence) {
  struct context *context = stream->head.context;
  hold(stream);
  while (stream->completed < sequence && !atomic_load(&context->cancelled)) await_change();
  unhold(stream);
  return standing(context);
}

static CUresult await_room(struct stream *stream) {
  struct context *context = stream->head.context;
  if (stream->queued < g.depth) return standing(context);
  hold(stream);
  g.blocked++;
  while (stream->queued >= g.depth && !stream->head.closing &&
         !atomic_load(&context->cancelled)) {
    await_change();
  }
  g.blocked--;
  unhold(stream);
  CHECK(standing(context));
  return stream->head.closing ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult admit(struct stream *stream, struct op *op) {
  if (stream->capture != NULL) return capture_add(stream, op);
  CHECK(order_with_legacy(stream));
  CHECK(await_room(stream));
  CHECK(memory_touch(stream, op));
  append(stream, op);
  return CUDA_SUCCESS;
}

CUresult stream_enqueue(struct stream *stream, struct op *op) {
  CUresult status = admit(stream, op);
  if (status != CUDA_SUCCESS) op_free(op);
  return status;
}

static struct stream *per_thread(struct context *context) {
  for (struct stream *stream = context->streams; stream != NULL; stream = stream->next) {
    if (stream->per_thread && pthread_equal(stream->thread, pthread_self())) return stream;
  }
  struct stream *made = stream_new(context, CU_STREAM_DEFAULT, 0);
  if (made == NULL) return NULL;
  made->per_thread = true;
  made->thread = pthread_self();
  return made;
}

static struct stream *legacy(struct context *context) {
  if (context->legacy == NULL) context->legacy = stream_new(context, CU_STREAM_DEFAULT, 0);
  return context->legacy;
}

/* The default streams are those of the current context. */
static CUresult default_stream(CUstream handle, struct stream **out) {
  struct context *context;
  CHECK(current_context(&context));
  if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  CHECK(context_use(context));
  *out = handle == CU_STREAM_PER_THREAD ? per_thread(context) : legacy(context);
  return *out == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static bool is_default(CUstream handle) {
  return handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

/* Work on a default stream: for foreign code only, which says that it is that. */
CUresult stream_use(CUstream handle, struct stream **out) {
  if (!is_default(handle)) return object_use(handle, STREAM, out);
  if (!self.foreign) trap("default stream", "used");
  return default_stream(handle, out);
}

/* Events order the legacy stream for everybody, if they call it by its name. */
CUresult stream_use_to_order(CUstream handle, struct stream **out) {
  return handle == CU_STREAM_LEGACY ? default_stream(handle, out) : stream_use(handle, out);
}

API(cuStreamCreateWithPriority, BOUND, (CUstream *out, unsigned int flags, int priority),
    (out, flags, priority)) {
  if (out == NULL || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  CHECK(context_await_creation(bound()->head.handle));
  if (priority > LEAST_PRIORITY) priority = LEAST_PRIORITY;
  if (priority < GREATEST_PRIORITY) priority = GREATEST_PRIORITY;
  struct stream *stream = stream_new(bound(), flags, priority);
  if (stream == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = stream->head.handle;
  return CUDA_SUCCESS;
}

API(cuStreamCreate, BOUND, (CUstream *out, unsigned int flags), (out, flags)) {
  return cuStreamCreateWithPriority_locked(out, flags, LEAST_PRIORITY);
}

API(cuStreamGetPriority, BOUND_IF_OLD, (CUstream handle, int *priority), (handle, priority)) {
  struct stream *stream;
  CHECK(stream_use(handle, &stream));
  if (priority == NULL) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

API(cuStreamDestroy_v2, BOUND_IF_OLD, (CUstream handle), (handle)) {
  struct stream *stream;
  CHECK(stream_use(handle, &stream));
  CHECK(capture_refuses(stream));
  if (is_default(handle)) return CUDA_ERROR_INVALID_HANDLE;
  stream_end(stream);
  return CUDA_SUCCESS;
}

API(cuStreamGetCtx, BOUND_IF_OLD, (CUstream handle, CUcontext *out), (handle, out)) {
  struct stream *stream;
  CHECK(stream_use(handle, &stream));
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = stream->head.context->head.handle;
  return CUDA_SUCCESS;
}

API(cuStreamQuery, BOUND_IF_OLD | QUERY, (CUstream handle), (handle)) {
  struct stream *stream;
  CHECK(stream_use(handle, &stream));
  CHECK(capture_refuses(stream));
  return stream->queued == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API(cuStreamSynchronize, BOUND_IF_OLD | QUERY, (CUstream handle), (handle)) {
  struct stream *stream;
  CHECK(stream_use(handle, &stream));
  CHECK(capture_refuses(stream));
  return stream_wait(stream, stream->enqueued);
}

API(cuLaunchHostFunc, BOUND_IF_OLD, (CUstream handle, CUhostFn function, void *data),
    (handle, function, data)) {
  struct stream *stream;
  CHECK(stream_use(handle, &stream));
  if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct op *op = op_new(HOST);
  op->host.function = function;
  op->host.data = data;
  return stream_enqueue(stream, op);
}
