/*
 * Graphs. A graph is built of nodes, or of what was captured; an executable is a copy of it that can
 * be launched.
 *
 * Nodes are replayed in an order that their dependencies allow and that is as unlike the order of
 * their making as can be, so that a dependency that is missing shows.
 *
 * A graph and an executable are not safe for two threads at once with a driver. All calls are under
 * one lock here, so only what waits inside a launch is found out.
 */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

struct node {
  struct object head;
  struct graph *graph;
  struct op *op;
  struct node **after;
  size_t count;
  bool placed;
  struct node *older;
};

struct graph {
  struct object head;
  struct op *captured;
  struct node *newest;
};

struct executable {
  struct object head;
  struct op *first;
  struct record *last; /* the end of the launch before */
  bool launching;
};

static struct graph *graph_new(struct context *context) {
  struct graph *graph = zalloc(sizeof *graph);
  object_open(graph, GRAPH, context);
  return graph;
}

CUgraph graph_of_capture(struct op *first, struct context *context) {
  struct graph *graph = graph_new(context);
  graph->captured = first;
  return graph->head.handle;
}

void graph_free(void *freed) {
  struct graph *graph = freed;
  ops_free(graph->captured);
  while (graph->newest != NULL) {
    struct node *node = graph->newest;
    graph->newest = node->older;
    op_free(node->op);
    free(node->after);
    object_close(node);
    free(node);
  }
  object_close(graph);
  free(graph);
}

void executable_free(void *freed) {
  struct executable *executable = freed;
  ops_free(executable->first);
  record_drop(executable->last);
  object_close(executable);
  free(executable);
}

/* --- nodes -----------------------------------------------------------------------------------*/

API(cuGraphCreate, BOUND, (CUgraph *out, unsigned int flags), (out, flags)) {
  if (out == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = graph_new(bound())->head.handle;
  return CUDA_SUCCESS;
}

static CUresult dependencies(const struct graph *graph, const CUgraphNode *after, size_t count) {
  if (count > 0 && after == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    struct node *node;
    CHECK(object_find(after[i], GRAPH_NODE, &node));
    if (node->graph != graph) {
      trap("wrong graph", "a dependency is a node of another graph");
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t j = 0; j < i; j++) {
      if (after[j] == after[i]) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

/* Takes the operation over, whatever it answers. */
static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *after, size_t count,
                    struct op *op) {
  struct graph *graph;
  CUresult status = object_use(handle, GRAPH, &graph);
  if (status == CUDA_SUCCESS) status = dependencies(graph, after, count);
  if (status == CUDA_SUCCESS && out == NULL) status = CUDA_ERROR_INVALID_VALUE;
  if (status != CUDA_SUCCESS) {
    op_free(op);
    return status;
  }
  struct node *node = zalloc(sizeof *node);
  object_open(node, GRAPH_NODE, graph->head.context);
  node->graph = graph;
  node->op = op;
  node->count = count;
  node->after = zalloc((count + 1) * sizeof *node->after);
  for (size_t i = 0; i < count; i++) node->after[i] = object_peek(after[i], GRAPH_NODE);
  node->older = graph->newest;
  graph->newest = node;
  *out = node->head.handle;
  return CUDA_SUCCESS;
}

API(cuGraphAddEmptyNode, BOUND_IF_OLD,
    (CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count),
    (out, graph, after, count)) {
  return add(out, graph, after, count, op_new(EMPTY));
}

API(cuGraphAddKernelNode_v2, BOUND_IF_OLD,
    (CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
     const CUDA_KERNEL_NODE_PARAMS *params),
    (out, graph, after, count, params)) {
  if (params == NULL || params->func == NULL || params->kern != NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUlaunchConfig config = {params->gridDimX,       params->gridDimY,  params->gridDimZ,
                           params->blockDimX,      params->blockDimY, params->blockDimZ,
                           params->sharedMemBytes, NULL,              NULL,
                           0};
  struct launch made;
  CHECK(kernel_prepare(&config, params->func, params->kernelParams, params->extra, &made));
  struct op *op = op_new(KERNEL);
  op->launch = made;
  return add(out, graph, after, count, op);
}

/* The context that the node names; its memory must be there now. */
static CUresult memory_of(CUcontext handle, uintptr_t address, size_t bytes) {
  struct context *context;
  struct allocation *allocation;
  CHECK(object_use(handle, CONTEXT, &context));
  CHECK(memory_range(address, bytes, &allocation));
  if (allocation->memory != DEVICE_MEMORY || allocation->context == context) return CUDA_SUCCESS;
  trap("wrong context", "%p is another context's memory", (void *)address);
  return CUDA_ERROR_INVALID_VALUE;
}

/* One row of bytes, from where it begins: no arrays, no pitches. */
static bool linear(const CUDA_MEMCPY3D *copy) {
  return copy->srcXInBytes == 0 && copy->srcY == 0 && copy->srcZ == 0 && copy->srcLOD == 0 &&
         copy->dstXInBytes == 0 && copy->dstY == 0 && copy->dstZ == 0 && copy->dstLOD == 0 &&
         copy->srcArray == NULL && copy->dstArray == NULL && copy->reserved0 == NULL &&
         copy->reserved1 == NULL && copy->WidthInBytes > 0 && copy->Height == 1 &&
         copy->Depth == 1;
}

static bool host_or_device(CUmemorytype type) {
  return (int)type == CU_MEMORYTYPE_HOST || (int)type == CU_MEMORYTYPE_DEVICE;
}

API(cuGraphAddMemcpyNode, BOUND_IF_OLD,
    (CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
     const CUDA_MEMCPY3D *copy, CUcontext context),
    (out, graph, after, count, copy, context)) {
  if (copy == NULL || !linear(copy) || !host_or_device(copy->srcMemoryType) ||
      !host_or_device(copy->dstMemoryType)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool from_host = (int)copy->srcMemoryType == CU_MEMORYTYPE_HOST;
  bool to_host = (int)copy->dstMemoryType == CU_MEMORYTYPE_HOST;
  uintptr_t source = from_host ? (uintptr_t)copy->srcHost : copy->srcDevice;
  uintptr_t target = to_host ? (uintptr_t)copy->dstHost : copy->dstDevice;
  if (source == 0 || target == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!from_host) CHECK(memory_of(context, source, copy->WidthInBytes));
  if (!to_host) CHECK(memory_of(context, target, copy->WidthInBytes));
  struct op *op = op_copy(target, source, copy->WidthInBytes);
  op->copy.from_host = from_host;
  op->copy.to_host = to_host;
  return add(out, graph, after, count, op);
}

API(cuGraphAddMemsetNode, BOUND_IF_OLD,
    (CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
     const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context),
    (out, graph, after, count, fill, context)) {
  if (fill == NULL || (fill->elementSize != 1 && fill->elementSize != 4) || fill->width == 0 ||
      fill->height != 1 || fill->dst % fill->elementSize != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (fill->elementSize == 1 && fill->value > 0xFF) return CUDA_ERROR_INVALID_VALUE;
  CHECK(memory_of(context, fill->dst, fill->width * fill->elementSize));
  struct op *op = op_new(FILL);
  op->fill.target = fill->dst;
  op->fill.value = fill->value;
  op->fill.width = (int)fill->elementSize;
  op->fill.count = fill->width;
  return add(out, graph, after, count, op);
}

/* --- executables -----------------------------------------------------------------------------*/

static struct op *copy_of(const struct op *op) {
  struct op *copy = op_new(op->what);
  *copy = *op;
  copy->next = NULL;
  return copy;
}

static struct op *copies(const struct op *op) {
  struct op *first = NULL, **link = &first;
  for (; op != NULL; op = op->next) {
    *link = copy_of(op);
    link = &(*link)->next;
  }
  return first;
}

static bool ready(const struct node *node) {
  if (node->placed) return false;
  for (size_t i = 0; i < node->count; i++) {
    if (!node->after[i]->placed) return false;
  }
  return true;
}

/* Of the nodes that may come next the youngest. */
static struct op *ordered(struct graph *graph) {
  struct op *first = NULL, **link = &first;
  struct node *node = graph->newest;
  for (; node != NULL; node = node->older) node->placed = false;
  for (node = graph->newest; node != NULL;) {
    if (!ready(node)) {
      node = node->older;
      continue;
    }
    node->placed = true;
    *link = copy_of(node->op);
    link = &(*link)->next;
    node = graph->newest;
  }
  return first;
}

API(cuGraphInstantiateWithFlags, BOUND_IF_OLD,
    (CUgraphExec *out, CUgraph handle, unsigned long long flags), (out, handle, flags)) {
  struct graph *graph;
  CHECK(object_use(handle, GRAPH, &graph));
  if (out == NULL || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  struct executable *executable = zalloc(sizeof *executable);
  executable->first = graph->captured != NULL ? copies(graph->captured) : ordered(graph);
  object_open(executable, GRAPH_EXEC, graph->head.context);
  *out = executable->head.handle;
  return CUDA_SUCCESS;
}

/* The stream may go while room is waited for: it is looked up again for each. */
static CUresult replay(CUstream on, struct op *op) {
  CUresult status = CUDA_SUCCESS;
  while (op != NULL) {
    struct op *next = op->next;
    struct stream *stream = object_peek(on, STREAM);
    op->next = NULL;
    if (status == CUDA_SUCCESS && stream == NULL) status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS) {
      status = stream_enqueue(stream, op);
    } else {
      op_free(op);
    }
    op = next;
  }
  return status;
}

/* After the launch before, on whichever stream that was, as a driver sees to. */
static CUresult launch(CUgraphExec handle, struct executable *executable, struct stream *stream) {
  CUstream on = stream->head.handle;
  if (executable->last != NULL) CHECK(stream_order(stream, executable->last));
  CHECK(replay(on, copies(executable->first)));
  executable = object_peek(handle, GRAPH_EXEC);
  stream = object_peek(on, STREAM);
  if (executable == NULL || stream == NULL) return CUDA_SUCCESS;
  struct record *record = record_new();
  CUresult status = stream_enqueue(stream, record_op(RECORD, record));
  executable = object_peek(handle, GRAPH_EXEC);
  if (executable == NULL || status != CUDA_SUCCESS) {
    record_drop(record);
    return status;
  }
  record_drop(executable->last);
  executable->last = record;
  return CUDA_SUCCESS;
}

API(cuGraphLaunch, BOUND_IF_OLD, (CUgraphExec handle, CUstream on), (handle, on)) {
  struct executable *executable;
  struct stream *stream;
  CHECK(object_use(handle, GRAPH_EXEC, &executable));
  CHECK(stream_use(on, &stream));
  CHECK(capture_refuses(stream)); /* a driver would make it a child, which nobody here needs */
  if (executable->head.context != stream->head.context) {
    trap("wrong context", "graph and stream are of different contexts");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (executable->launching) trap("two at once", "two threads launch one executable");
  executable->launching = true;
  CUresult status = launch(handle, executable, stream);
  executable = object_peek(handle, GRAPH_EXEC);
  if (executable != NULL) executable->launching = false;
  return status;
}

API(cuGraphUpload, BOUND_IF_OLD, (CUgraphExec handle, CUstream on), (handle, on)) {
  struct executable *executable;
  struct stream *stream;
  CHECK(object_use(handle, GRAPH_EXEC, &executable));
  CHECK(stream_use(on, &stream));
  CHECK(capture_refuses(stream));
  if (executable->launching) trap("two at once", "uploaded while it is being launched");
  return CUDA_SUCCESS;
}

API(cuGraphDestroy, BOUND_IF_OLD, (CUgraph handle), (handle)) {
  struct graph *graph;
  CHECK(object_use(handle, GRAPH, &graph));
  graph_free(graph);
  return CUDA_SUCCESS;
}

/* Allowed while it runs: what was launched ends. */
API(cuGraphExecDestroy, BOUND_IF_OLD, (CUgraphExec handle), (handle)) {
  struct executable *executable;
  CHECK(object_use(handle, GRAPH_EXEC, &executable));
  if (executable->launching) trap("two at once", "destroyed while it is being launched");
  executable_free(executable);
  return CUDA_SUCCESS;
}
