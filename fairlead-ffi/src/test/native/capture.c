/*
 * Capture. The operations of all streams of a capture are kept in one list, in the order in which
 * they were captured: that is one of the orders that the graph allows, and the one in which it is
 * replayed.
 *
 * A capture: active -> (invalid ->) ended. What it forbids both answers its status and makes it
 * invalid, so that its end answers 901 and gives no graph.
 */
#include "standin.h"

#include <stdlib.h>

static unsigned long captures_begun;

static struct capture *capture_numbered(unsigned long number) {
  struct capture *capture = g.captures;
  while (capture != NULL && capture->number != number) capture = capture->next;
  return capture;
}

CUresult capture_break(struct capture *capture, CUresult status, const char *why) {
  if (capture != NULL) capture->invalid = true;
  trap("capture", "%s", why);
  return status;
}

CUresult capture_refuses(const struct stream *stream) {
  if (stream->capture == NULL) return CUDA_SUCCESS;
  return capture_break(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                       "not on a stream that captures");
}

CUresult capture_refuses_record(const struct record *record) {
  if (record->captured == 0) return CUDA_SUCCESS;
  return capture_break(capture_numbered(record->captured), CUDA_ERROR_CAPTURED_EVENT,
                       "the event was last recorded by a capture");
}

/*
 * Unsafe calls are forbidden to the thread of a capture that is not relaxed, and to all while one
 * is on in global mode. Queries break the latter only (a watchdog's query does), and leave a
 * capture in thread-local mode alone. A thread can loosen its own side (the exchange below).
 */
static bool forbids(const struct capture *capture, int demands) {
  bool mine = pthread_equal(capture->thread, pthread_self()) != 0;
  bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (self.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (global && !mine) return self.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  if ((demands & QUERY) != 0) return global;
  return mine && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult capture_permits(int demands) {
  CUresult status = CUDA_SUCCESS;
  if ((demands & (UNSAFE | QUERY)) == 0) return status;
  for (struct capture *capture = g.captures; capture != NULL; capture = capture->next) {
    if (!forbids(capture, demands)) continue;
    status = capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                           "not while something is captured");
  }
  return status;
}

static struct capture *blocking_capture(const struct context *context) {
  for (struct capture *capture = g.captures; capture != NULL; capture = capture->next) {
    bool blocking = (capture->origin->flags & CU_STREAM_NON_BLOCKING) == 0;
    if (capture->origin->head.context == context && blocking) return capture;
  }
  return NULL;
}

CUresult capture_legacy(const struct context *context) {
  struct capture *capture = blocking_capture(context);
  if (capture == NULL) return CUDA_SUCCESS;
  return capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                       "the legacy stream would have to wait for what is captured");
}

CUresult capture_add(struct stream *stream, struct op *op) {
  struct capture *capture = stream->capture;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (capture->last == NULL) {
    capture->first = op;
  } else {
    capture->last->next = op;
  }
  capture->last = op;
  stream->captured++;
  stream->unjoined = stream != capture->origin;
  return CUDA_SUCCESS;
}

/* Whoever waits for the last thing that a stream captured has joined that stream. */
static void join(struct capture *capture, const struct record *record) {
  struct stream *recorded = object_peek(record->at.stream, STREAM);
  if (recorded == NULL || recorded->capture != capture) return;
  if (recorded->captured == record->at.sequence) recorded->unjoined = false;
}

static CUresult wait_while_capturing(struct stream *stream, struct record *record) {
  struct capture *mine = stream->capture, *other = capture_numbered(record->captured);
  if (record->captured == 0) {
    return capture_break(mine, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                         "waits for work that is not captured");
  }
  if (other == mine) {
    join(mine, record);
    stream->unjoined = stream != mine->origin;
    return CUDA_SUCCESS;
  }
  capture_break(other, CUDA_SUCCESS, "waited for by another capture");
  return capture_break(mine, CUDA_ERROR_STREAM_CAPTURE_MERGE, "waits for another capture");
}

CUresult capture_wait(struct stream *stream, struct record *record) {
  if (stream->capture != NULL) return wait_while_capturing(stream, record);
  struct capture *capture = capture_numbered(record->captured);
  if (capture == NULL) return capture_refuses_record(record);
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->head.context != capture->origin->head.context ||
      stream == stream->head.context->legacy) {
    return capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "cannot join the capture");
  }
  join(capture, record);
  stream->capture = capture;
  stream->captured = 0;
  stream->unjoined = true;
  return CUDA_SUCCESS;
}

/* Takes the capture out of the list and off its streams; true if some were not joined. */
static bool detach(struct capture *capture) {
  bool unjoined = false;
  struct stream *stream = capture->origin->head.context->streams;
  for (; stream != NULL; stream = stream->next) {
    if (stream->capture != capture) continue;
    unjoined |= stream->unjoined;
    stream->capture = NULL;
    stream->captured = 0;
    stream->unjoined = false;
  }
  struct capture **link = &g.captures;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  return unjoined;
}

void captures_end(struct context *context) {
  struct capture *next;
  for (struct capture *capture = g.captures; capture != NULL; capture = next) {
    next = capture->next;
    if (capture->origin->head.context != context) continue;
    detach(capture);
    ops_free(capture->first);
    free(capture);
  }
}

API(cuStreamBeginCapture_v2, BOUND_IF_OLD, (CUstream on, CUstreamCaptureMode mode), (on, mode)) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  if ((int)mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != NULL) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream == stream->head.context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  struct capture *capture = zalloc(sizeof *capture);
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->number = ++captures_begun;
  capture->next = g.captures;
  g.captures = capture;
  stream->capture = capture;
  stream->captured = 0;
  stream->unjoined = false;
  return CUDA_SUCCESS;
}

static CUresult ending(const struct capture *capture, const struct stream *stream) {
  if (capture == NULL) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  bool mine = pthread_equal(capture->thread, pthread_self()) != 0;
  bool relaxed = capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED;
  return mine || relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

API(cuStreamEndCapture, BOUND_IF_OLD, (CUstream on, CUgraph *out), (on, out)) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  struct capture *capture = stream->capture;
  CHECK(ending(capture, stream));
  CUresult status = detach(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS;
  if (capture->invalid) status = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (status == CUDA_SUCCESS) {
    *out = graph_of_capture(capture->first, stream->head.context);
  } else {
    ops_free(capture->first);
  }
  free(capture);
  return status;
}

/* Of the legacy stream it says whether a blocking one captures, and leaves that capture alone. */
API(cuStreamIsCapturing, BOUND_IF_OLD, (CUstream on, CUstreamCaptureStatus *out), (on, out)) {
  struct stream *stream;
  CHECK(stream_use_to_order(on, &stream));
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct context *context = stream->head.context;
  if (stream == context->legacy && blocking_capture(context) != NULL) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  *out = stream->capture == NULL     ? CU_STREAM_CAPTURE_STATUS_NONE
         : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

API(cuThreadExchangeStreamCaptureMode, INITIALISED, (CUstreamCaptureMode *mode), (mode)) {
  if (mode == NULL || (int)*mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUstreamCaptureMode before = self.capture_mode;
  self.capture_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
