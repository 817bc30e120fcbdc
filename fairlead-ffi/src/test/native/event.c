/* Events: each recording is a record of its own, so that a wait means what was recorded then. */
#include "standin.h"

#include <stdlib.h>
#include <time.h>

struct event {
  struct object head;
  unsigned flags;
  struct record *last;
};

struct record *record_new(void) {
  struct record *record = zalloc(sizeof *record);
  record->references = 1;
  return record;
}

void record_drop(struct record *record) {
  if (record == NULL || --record->references > 0) return;
  free(record->clock.of);
  free(record);
}

void record_done(struct record *record) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  record->millis = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
  record->done = true;
}

struct op *record_op(enum operation what, struct record *record) {
  struct op *op = op_new(what);
  op->record = record;
  record->references++;
  return op;
}

API(cuEventCreate, BOUND, (CUevent *out, unsigned int flags), (out, flags)) {
  if (out == NULL || (flags & ~7u) != 0) return CUDA_ERROR_INVALID_VALUE;
  CHECK(context_await_creation(bound()->head.handle));
  struct event *event = zalloc(sizeof *event);
  event->flags = flags;
  object_open(event, EVENT, bound());
  *out = event->head.handle;
  return CUDA_SUCCESS;
}

void event_free(void *freed) {
  struct event *event = freed;
  object_close(event);
  record_drop(event->last);
  free(event);
}

/* Allowed while its work is pending: that keeps the record. */
API(cuEventDestroy_v2, BOUND_IF_OLD, (CUevent handle), (handle)) {
  struct event *event;
  CHECK(object_use(handle, EVENT, &event));
  event_free(event);
  return CUDA_SUCCESS;
}

static void set_last(struct event *event, struct record *record) {
  record_drop(event->last);
  event->last = record;
}

static void record_captured(struct event *event, struct stream *stream) {
  struct record *record = record_new();
  record->captured = stream->capture->number;
  record->at = (struct use){stream->head.handle, stream->captured};
  set_last(event, record);
}

API(cuEventRecord, BOUND_IF_OLD, (CUevent handle, CUstream on), (handle, on)) {
  struct event *event;
  struct stream *stream;
  CHECK(object_use(handle, EVENT, &event));
  CHECK(stream_use_to_order(on, &stream));
  if (event->head.context != stream->head.context) {
    trap("wrong context", "event and stream are of different contexts");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->capture != NULL) {
    record_captured(event, stream);
    return CUDA_SUCCESS;
  }
  struct record *record = record_new();
  CUresult status = stream_enqueue(stream, record_op(RECORD, record));
  event = object_peek(handle, EVENT); /* the stream may have been full, and the event gone since */
  if (status == CUDA_SUCCESS && event != NULL) {
    set_last(event, record);
  } else {
    record_drop(record);
  }
  return status;
}

API(cuStreamWaitEvent, BOUND_IF_OLD, (CUstream on, CUevent handle, unsigned int flags),
    (on, handle, flags)) {
  struct event *event;
  struct stream *stream;
  CHECK(stream_use_to_order(on, &stream));
  CHECK(object_find(handle, EVENT, &event)); /* of any context */
  if ((flags & ~1u) != 0) return CUDA_ERROR_INVALID_VALUE;
  struct record *record = event->last;
  if (record == NULL) return CUDA_SUCCESS; /* never recorded: nothing to wait for */
  if (stream->capture != NULL || record->captured != 0) return capture_wait(stream, record);
  return stream_order(stream, record);
}

API(cuEventQuery, BOUND_IF_OLD | QUERY, (CUevent handle), (handle)) {
  struct event *event;
  CHECK(object_use(handle, EVENT, &event));
  if (event->last == NULL) return CUDA_SUCCESS;
  CHECK(capture_refuses_record(event->last));
  return event->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API(cuEventSynchronize, BOUND_IF_OLD | QUERY, (CUevent handle), (handle)) {
  struct event *event;
  CHECK(object_use(handle, EVENT, &event));
  struct context *context = event->head.context;
  struct record *record = event->last;
  if (record == NULL) return CUDA_SUCCESS;
  CHECK(capture_refuses_record(record));
  record->references++;
  while (!record->done && !atomic_load(&context->cancelled)) await_change();
  record_drop(record);
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return (CUresult)context->fault;
}

static CUresult timed(CUevent handle, struct record **out) {
  struct event *event;
  CHECK(object_use(handle, EVENT, &event));
  if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0 || event->last == NULL) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CHECK(capture_refuses_record(event->last));
  *out = event->last;
  return event->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API(cuEventElapsedTime_v2, BOUND_IF_OLD, (float *millis, CUevent start, CUevent end),
    (millis, start, end)) {
  struct record *first, *last;
  if (millis == NULL) return CUDA_ERROR_INVALID_VALUE;
  CHECK(timed(start, &first));
  CHECK(timed(end, &last));
  *millis = (float)(last->millis - first->millis);
  return CUDA_SUCCESS;
}

#ifndef STANDIN_REAL_HEADER /* there it is a macro for the other */
EXPORT CUresult cuEventElapsedTime(float *millis, CUevent start, CUevent end)
    __attribute__((alias("cuEventElapsedTime_v2")));
#endif
