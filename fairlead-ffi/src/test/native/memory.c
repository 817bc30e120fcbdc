/* The map of all memory, pools, pinned memory, and the operations that only move bytes. */
#include "standin.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
  ALIGNMENT = 512,
  POISON_NEW = 0xCD,
  POISON_FREED = 0xDD,
  POISON_NEW_BYTES_MAX = 1 << 20, /* more of a large block would only cost time */
  KEPT_BLOCKS_MAX = 512,
  COMPARE_BYTES = 1 << 14
};
static const size_t KEPT_BYTES_MAX = (size_t)16 << 20;

/* --- the map ---------------------------------------------------------------------------------*/

static void *tree; /* of disjoint ranges: those that overlap count as equal */
static struct allocation *all, *kept_first, *kept_last;
static size_t kept_bytes;
static int kept_blocks;
static bool keep_all;

static int by_range(const void *one, const void *other) {
  const struct allocation *a = one, *b = other;
  if (a->base + a->bytes <= b->base) return -1;
  return b->base + b->bytes <= a->base;
}

static struct allocation *overlapping(uintptr_t base, size_t bytes) {
  struct allocation key = {.base = base, .bytes = bytes};
  struct allocation **found = tfind(&key, &tree, by_range);
  return found == NULL ? NULL : *found;
}

struct allocation *memory_at(uintptr_t address) { return overlapping(address, 1); }

static void forget(struct allocation *allocation) {
  tdelete(allocation, &tree, by_range);
  if (allocation->after != NULL) allocation->after->before = allocation->before;
  if (allocation->before != NULL) allocation->before->after = allocation->after;
  if (all == allocation) all = allocation->after;
  free(allocation->uses.of);
  free(allocation);
}

static void count_live(const struct allocation *allocation, int change) {
  long *live =
      allocation->memory == DEVICE_MEMORY ? &g.device_allocations : &g.host_allocations;
  *live += change;
}

static struct allocation *enter(uintptr_t base, size_t bytes, enum memory memory,
                                struct context *context) {
  struct allocation *allocation = zalloc(sizeof *allocation);
  allocation->base = base;
  allocation->bytes = bytes;
  allocation->memory = memory;
  allocation->context = context;
  struct allocation *old;
  while ((old = overlapping(base, bytes)) != NULL) {
    count_live(old, -1); /* registered once, and given back to the heap behind our back */
    forget(old);
  }
  tsearch(allocation, &tree, by_range);
  allocation->after = all;
  if (all != NULL) all->before = allocation;
  all = allocation;
  count_live(allocation, 1);
  return allocation;
}

static struct device *device_of(const struct allocation *allocation) {
  return &g.device[allocation->context->device];
}

static void raise_to(size_t *mark, size_t value) {
  if (*mark < value) *mark = value;
}

static void account_taken(struct allocation *allocation) {
  struct device *device = device_of(allocation);
  device->used += allocation->bytes;
  if (!allocation->pooled) return;
  device->pooled += allocation->bytes;
  raise_to(&device->pooled_high, device->pooled);
  raise_to(&device->reserved, device->pooled);
  raise_to(&device->reserved_high, device->reserved);
}

static void pool_trim(struct device *device, size_t keep) {
  size_t least = device->pooled > keep ? device->pooled : keep;
  if (device->reserved > least) device->reserved = least;
}

static void account_given_back(struct allocation *allocation) {
  struct device *device = device_of(allocation);
  device->used -= allocation->bytes;
  if (!allocation->pooled) return;
  device->pooled -= allocation->bytes;
  pool_trim(device, device->threshold);
}

/* Released blocks are kept apart, so that late uses meet poison and are known for what they are. */
static void let_go_of_oldest(void) {
  while (!keep_all && kept_first != NULL && kept_first->pins == 0 &&
         (kept_bytes > KEPT_BYTES_MAX || kept_blocks > KEPT_BLOCKS_MAX)) {
    struct allocation *oldest = kept_first;
    kept_first = oldest->later;
    if (kept_first == NULL) kept_last = NULL;
    kept_bytes -= oldest->bytes;
    kept_blocks--;
    free((void *)oldest->base);
    forget(oldest);
  }
}

static void keep_apart(struct allocation *allocation) {
  if (allocation->bytes <= KEPT_BYTES_MAX) {
    memset((void *)allocation->base, POISON_FREED, allocation->bytes);
  }
  if (kept_last == NULL) {
    kept_first = allocation;
  } else {
    kept_last->later = allocation;
  }
  kept_last = allocation;
  kept_bytes += allocation->bytes;
  kept_blocks++;
  let_go_of_oldest();
}

static void mark_freed(struct allocation *allocation) {
  if (allocation->freed) return;
  allocation->freed = true;
  count_live(allocation, -1);
}

/* The free has come to pass. */
void memory_release(struct allocation *allocation) {
  if (allocation->released) return;
  mark_freed(allocation);
  allocation->released = true;
  if (allocation->memory == REGISTERED_MEMORY) {
    forget(allocation); /* the host's own */
    return;
  }
  if (allocation->memory == DEVICE_MEMORY) account_given_back(allocation);
  keep_apart(allocation);
}

void memory_end(struct context *context) {
  struct allocation *next;
  keep_all = true; /* or the next one might be let go of */
  for (struct allocation *allocation = all; allocation != NULL; allocation = next) {
    next = allocation->after;
    if (allocation->context == context) memory_release(allocation);
  }
  keep_all = false;
  let_go_of_oldest();
}

bool memory_same(const void *mine, uintptr_t theirs, size_t bytes) {
  char seen[COMPARE_BYTES];
  for (size_t at = 0; at < bytes; at += COMPARE_BYTES) {
    size_t part = bytes - at < COMPARE_BYTES ? bytes - at : COMPARE_BYTES;
    struct iovec here = {seen, part}, there = {(char *)theirs + at, part};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)part) return true; /* gone */
    if (memcmp((const char *)mine + at, seen, part) != 0) return false;
  }
  return true;
}

/* --- what operations touch -------------------------------------------------------------------*/

CUresult memory_range(uintptr_t address, size_t bytes, struct allocation **out) {
  struct allocation *found = memory_at(address);
  if (found == NULL) {
    trap("outside an allocation", "%p is in none", (void *)address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (found->freed) {
    trap("use after free", "%p was freed", (void *)address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes > found->base + found->bytes - address) {
    trap("outside an allocation", "%zu bytes at %p, which has %zu", bytes, (void *)address,
         (size_t)(found->base + found->bytes - address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = found;
  return CUDA_SUCCESS;
}

/* The pinned memory around host bytes; NULL for memory that is not pinned. */
static CUresult host_range(uintptr_t address, size_t bytes, struct allocation **out) {
  *out = NULL;
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  struct allocation *found = memory_at(address);
  if (found == NULL) {
    if (memory_at(address + bytes - 1) == NULL) return CUDA_SUCCESS;
    trap("outside an allocation", "%p is not pinned, its end is", (void *)address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (found->memory == DEVICE_MEMORY && !found->freed) {
    trap("outside an allocation", "%p is device memory, host memory is meant", (void *)address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return memory_range(address, bytes, out);
}

static void pin(struct stream *stream, struct allocation *allocation) {
  if (!stream_after(stream, allocation->born)) {
    trap("use before its allocation", "%p, in the order of streams", (void *)allocation->base);
  }
  allocation->pins++;
  uses_note(&allocation->uses, (struct use){stream->head.handle, stream->enqueued + 1});
}

static void touch(struct stream *stream, struct op *op, struct allocation *allocation) {
  if (allocation == NULL) return;
  pin(stream, allocation);
  op->touched[op->touches++] = allocation;
}

static bool foreign(const struct stream *stream, const struct allocation *allocation) {
  if (allocation->memory != DEVICE_MEMORY || allocation->context == stream->head.context) {
    return false;
  }
  trap("wrong context", "%p is another device's memory", (void *)allocation->base);
  return true;
}

/* Both ends of a piece; one that is wrong is a fault when it runs. */
static void touch_piece(struct stream *stream, struct op *op, int i, uintptr_t address) {
  struct allocation *allocation = memory_at(address);
  if (allocation == NULL) return;
  if (allocation->freed) {
    trap("use after free", "piece %d, %p, was freed", i, (void *)address);
  } else if (!foreign(stream, allocation)) {
    pin(stream, allocation);
    op->pieces_touched[op->pieces_count++] = allocation;
  }
}

/* The table is complete now, and stays so. */
static void touch_pieces(struct stream *stream, struct op *op) {
  const struct launch *launch = &op->launch;
  uintptr_t table;
  int64_t count;
  memcpy(&table, launch->arguments + launch->layout.offset[0], sizeof table);
  memcpy(&count, launch->arguments + launch->layout.offset[1], sizeof count);
  struct allocation *at = memory_at(table);
  size_t bytes = (size_t)count * sizeof(struct piece);
  if (at == NULL || at->freed || at->memory != PINNED_MEMORY ||
      bytes > at->base + at->bytes - table) {
    trap("outside an allocation", "a table of %lld pieces at %p", (long long)count, (void *)table);
    return;
  }
  op->table = malloc(bytes + 1);
  op->pieces_touched = malloc(2 * ((size_t)count + 1) * sizeof *op->pieces_touched);
  if (op->table == NULL || op->pieces_touched == NULL) abort();
  memcpy(op->table, (void *)table, bytes);
  const struct piece *pieces = op->table;
  for (int i = 0; i < count; i++) {
    if (pieces[i].bytes == 0) continue;
    touch_piece(stream, op, i, pieces[i].device);
    touch_piece(stream, op, i, pieces[i].host);
  }
}

void memory_check_table(const struct op *op) {
  if (op->table == NULL) return;
  uintptr_t table;
  int64_t count;
  memcpy(&table, op->launch.arguments + op->launch.layout.offset[0], sizeof table);
  memcpy(&count, op->launch.arguments + op->launch.layout.offset[1], sizeof count);
  if (memcmp(op->table, (void *)table, (size_t)count * sizeof(struct piece)) != 0) {
    trap("changed during the copy", "the table of pieces at %p", (void *)table);
  }
}

/* What a kernel's pointers name is only its own affair when it runs: then it may fault. */
static CUresult touch_arguments(struct stream *stream, struct op *op) {
  struct launch *launch = &op->launch;
  for (int i = 0; i < launch->layout.count; i++) {
    if (launch->layout.type[i] != 'p') continue;
    uintptr_t address;
    memcpy(&address, launch->arguments + launch->layout.offset[i], sizeof address);
    struct allocation *allocation = memory_at(address);
    if (allocation == NULL) continue;
    if (allocation->freed) {
      trap("use after free", "argument %d, %p, was freed", i, (void *)address);
    } else if (!foreign(stream, allocation)) {
      touch(stream, op, allocation);
    }
  }
  if (kernel_copies_pieces(launch)) touch_pieces(stream, op);
  return CUDA_SUCCESS;
}

static void stage(struct op *op) {
  op->copy.staged = malloc(op->copy.bytes);
  if (op->copy.staged == NULL) abort();
  memcpy(op->copy.staged, (void *)op->copy.source, op->copy.bytes);
}

static CUresult touch_copy(struct stream *stream, struct op *op) {
  struct allocation *source, *target;
  size_t bytes = op->copy.bytes;
  CHECK(op->copy.from_host ? host_range(op->copy.source, bytes, &source)
                           : memory_range(op->copy.source, bytes, &source));
  CHECK(op->copy.to_host ? host_range(op->copy.target, bytes, &target)
                         : memory_range(op->copy.target, bytes, &target));
  if (source == NULL) stage(op);
  touch(stream, op, source);
  touch(stream, op, target);
  return CUDA_SUCCESS;
}

static CUresult touch_range(struct stream *stream, struct op *op, uintptr_t address,
                            size_t bytes) {
  struct allocation *allocation;
  CHECK(memory_range(address, bytes, &allocation));
  if (foreign(stream, allocation)) return CUDA_ERROR_INVALID_VALUE;
  touch(stream, op, allocation);
  return CUDA_SUCCESS;
}

/* The allocation that begins there and can be freed. */
static CUresult freeable(uintptr_t address, enum memory memory, struct allocation **out) {
  struct allocation *found = memory_at(address);
  if (found == NULL || found->base != address || found->memory != memory) {
    trap("outside an allocation", "%p cannot be freed by this call", (void *)address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (found->freed) {
    trap("double free", "%p", (void *)address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = found;
  return CUDA_SUCCESS;
}

static CUresult touch_freed(struct stream *stream, struct op *op) {
  struct allocation *allocation;
  CHECK(freeable(op->freed.address, DEVICE_MEMORY, &allocation));
  if (foreign(stream, allocation)) return CUDA_ERROR_INVALID_VALUE;
  struct stream *other = stream_other_user(stream, &allocation->uses);
  if (other != NULL) {
    trap("free with work pending", "%p, used by stream %p", (void *)allocation->base,
         other->head.handle);
  }
  if (!stream_after(stream, allocation->born)) {
    trap("use before its allocation", "freed: %p", (void *)allocation->base);
  }
  mark_freed(allocation);
  stream->freeing += allocation->bytes;
  op->freed.allocation = allocation;
  return CUDA_SUCCESS;
}

CUresult memory_touch(struct stream *stream, struct op *op) {
  switch (op->what) {
    case KERNEL: return touch_arguments(stream, op);
    case COPY: return touch_copy(stream, op);
    case FILL:
      return touch_range(stream, op, op->fill.target, op->fill.count * (size_t)op->fill.width);
    case WRITE: return touch_range(stream, op, op->write.target, sizeof(uint64_t));
    case FREE: return touch_freed(stream, op);
    default: return CUDA_SUCCESS;
  }
}

void memory_untouch(struct op *op) {
  for (int i = 0; i < op->touches; i++) op->touched[i]->pins--;
  op->touches = 0;
  for (size_t i = 0; i < op->pieces_count; i++) op->pieces_touched[i]->pins--;
  op->pieces_count = 0;
}

/* --- device memory ---------------------------------------------------------------------------*/

static CUresult allocate(struct context *context, size_t bytes, size_t freeing,
                         struct allocation **out) {
  struct device *device = &g.device[context->device];
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  size_t used = device->used - freeing; /* what this stream is about to free, it may have again */
  if (bytes > device->limit || used > device->limit - bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  void *memory;
  if (posix_memalign(&memory, ALIGNMENT, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memset(memory, POISON_NEW, bytes < POISON_NEW_BYTES_MAX ? bytes : POISON_NEW_BYTES_MAX);
  *out = enter((uintptr_t)memory, bytes, DEVICE_MEMORY, context);
  return CUDA_SUCCESS;
}

static size_t kept_by_pool(const struct device *device) {
  return device->reserved - device->pooled;
}

API(cuMemAlloc_v2, BOUND | UNSAFE, (CUdeviceptr *out, size_t bytes), (out, bytes)) {
  struct allocation *allocation;
  struct device *device = &g.device[bound()->device];
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  size_t used = device->used + (g.pool_keeps ? kept_by_pool(device) : 0);
  if (used > device->limit || bytes > device->limit - used) return CUDA_ERROR_OUT_OF_MEMORY;
  CHECK(allocate(bound(), bytes, 0, &allocation));
  account_taken(allocation);
  *out = allocation->base;
  return CUDA_SUCCESS;
}

API(cuMemAllocAsync, BOUND_IF_OLD, (CUdeviceptr *out, size_t bytes, CUstream on),
    (out, bytes, on)) {
  struct stream *stream;
  struct allocation *allocation;
  CHECK(stream_use(on, &stream));
  CHECK(capture_refuses(stream));
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  CHECK(stream_enqueue(stream, op_new(ALLOCATE)));
  CHECK(allocate(stream->head.context, bytes, stream->freeing, &allocation));
  allocation->pooled = true;
  allocation->born = (struct use){on, stream->enqueued};
  account_taken(allocation);
  *out = allocation->base;
  return CUDA_SUCCESS;
}

API(cuMemFreeAsync, BOUND_IF_OLD, (CUdeviceptr address, CUstream on), (address, on)) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  CHECK(capture_refuses(stream));
  struct op *op = op_new(FREE);
  op->freed.address = address;
  return stream_enqueue(stream, op);
}

/* Waits for all work of the context, as the real one does. */
API(cuMemFree_v2, BOUND_IF_OLD | UNSAFE, (CUdeviceptr address), (address)) {
  struct allocation *allocation;
  if (address == 0) return CUDA_SUCCESS;
  CHECK(freeable(address, DEVICE_MEMORY, &allocation));
  struct context *context = allocation->context;
  CHECK(context_use(context));
  mark_freed(allocation);
  while (!context_idle(context) && !atomic_load(&context->cancelled)) await_change();
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  memory_release(allocation);
  return (CUresult)context->fault;
}

API(cuMemGetInfo_v2, BOUND, (size_t *available, size_t *total), (available, total)) {
  struct device *device = &g.device[bound()->device];
  if (available == NULL || total == NULL) return CUDA_ERROR_INVALID_VALUE;
  size_t used = device->used + kept_by_pool(device);
  *available = used > device->limit ? 0 : device->limit - used;
  *total = device->limit;
  return CUDA_SUCCESS;
}

/* --- pools -----------------------------------------------------------------------------------*/

API(cuDeviceGetDefaultMemPool, INITIALISED, (CUmemoryPool *out, CUdevice number),
    (out, number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device->pool.handle == NULL) object_open(&device->pool, POOL, NULL);
  *out = device->pool.handle;
  return CUDA_SUCCESS;
}

CUresult pool_find(CUmemoryPool pool, struct device **out) {
  struct object *object;
  CHECK(object_find(pool, POOL, &object));
  *out = (struct device *)((char *)object - offsetof(struct device, pool));
  return CUDA_SUCCESS;
}

API(cuMemPoolSetAttribute, INITIALISED,
    (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value)) {
  struct device *device;
  CHECK(pool_find(pool, &device));
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      device->reuse_off[attribute] = *(int *)value == 0; /* only chances to reuse more */
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      device->threshold = *(cuuint64_t *)value;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*(cuuint64_t *)value != 0) return CUDA_ERROR_INVALID_VALUE;
      device->reserved_high = device->reserved;
      device->pooled_high = device->pooled;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

API(cuMemPoolGetAttribute, INITIALISED,
    (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value)) {
  struct device *device;
  CHECK(pool_find(pool, &device));
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *(int *)value = !device->reuse_off[attribute];
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(cuuint64_t *)value = device->threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *(cuuint64_t *)value = device->reserved; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *(cuuint64_t *)value = device->reserved_high; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(cuuint64_t *)value = device->pooled; break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(cuuint64_t *)value = device->pooled_high; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

API(cuMemPoolTrimTo, INITIALISED, (CUmemoryPool pool, size_t keep), (pool, keep)) {
  struct device *device;
  CHECK(pool_find(pool, &device));
  pool_trim(device, keep);
  return CUDA_SUCCESS;
}

/* --- pinned host memory ----------------------------------------------------------------------*/

API(cuMemHostAlloc, BOUND | UNSAFE, (void **out, size_t bytes, unsigned int flags),
    (out, bytes, flags)) {
  void *memory;
  if (out == NULL || bytes == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  CHECK(context_await_creation(bound()->head.handle));
  if (posix_memalign(&memory, 4096, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memset(memory, POISON_NEW, bytes < POISON_NEW_BYTES_MAX ? bytes : POISON_NEW_BYTES_MAX);
  enter((uintptr_t)memory, bytes, PINNED_MEMORY, bound());
  *out = memory;
  return CUDA_SUCCESS;
}

/* A real driver may wait here or not: to free what work still uses is wrong either way. */
static CUresult end_pinned(struct allocation *allocation) {
  struct context *context = allocation->context;
  CHECK(context_use(context));
  if (allocation->pins > 0) {
    trap("free with work pending", "host memory %p", (void *)allocation->base);
  }
  mark_freed(allocation);
  while (allocation->pins > 0) await_change();
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  memory_release(allocation);
  return CUDA_SUCCESS;
}

API(cuMemFreeHost, BOUND_IF_OLD | UNSAFE, (void *address), (address)) {
  struct allocation *allocation;
  CHECK(freeable((uintptr_t)address, PINNED_MEMORY, &allocation));
  return end_pinned(allocation);
}

API(cuMemHostGetDevicePointer_v2, BOUND_IF_OLD, (CUdeviceptr *out, void *address, unsigned flags),
    (out, address, flags)) {
  struct allocation *allocation;
  if (out == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CHECK(memory_range((uintptr_t)address, 1, &allocation));
  if (allocation->memory == DEVICE_MEMORY) return CUDA_ERROR_INVALID_VALUE;
  *out = (uintptr_t)address;
  return CUDA_SUCCESS;
}

API(cuMemHostRegister_v2, BOUND | UNSAFE, (void *address, size_t bytes, unsigned int flags),
    (address, bytes, flags)) {
  if (address == NULL || bytes == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  if (overlapping((uintptr_t)address, bytes) != NULL) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  enter((uintptr_t)address, bytes, REGISTERED_MEMORY, bound());
  return CUDA_SUCCESS;
}

API(cuMemHostUnregister, BOUND_IF_OLD | UNSAFE, (void *address), (address)) {
  struct allocation *allocation = memory_at((uintptr_t)address);
  if (allocation == NULL || allocation->memory != REGISTERED_MEMORY || allocation->freed ||
      allocation->base != (uintptr_t)address) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  return end_pinned(allocation);
}

API(cuPointerGetAttribute, BOUND_IF_OLD,
    (void *data, CUpointer_attribute attribute, CUdeviceptr address),
    (data, attribute, address)) {
  struct allocation *found = memory_at(address);
  if (data == NULL || found == NULL || found->freed) return CUDA_ERROR_INVALID_VALUE;
  bool device = found->memory == DEVICE_MEMORY;
  switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(void **)data = found->context->head.handle; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned *)data = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (device) return CUDA_ERROR_INVALID_VALUE;
      *(uintptr_t *)data = address;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = found->context->device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(uintptr_t *)data = found->base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = found->bytes; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* --- copies, fills, write-values -------------------------------------------------------------*/

struct op *op_copy(uintptr_t target, uintptr_t source, size_t bytes) {
  struct op *op = op_new(COPY);
  op->copy.target = target;
  op->copy.source = source;
  op->copy.bytes = bytes;
  return op;
}

API(cuMemcpyHtoDAsync_v2, BOUND_IF_OLD,
    (CUdeviceptr target, const void *source, size_t bytes, CUstream on),
    (target, source, bytes, on)) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  if (bytes == 0) return CUDA_SUCCESS;
  struct op *op = op_copy(target, (uintptr_t)source, bytes);
  op->copy.from_host = true;
  return stream_enqueue(stream, op);
}

/* Into memory that is not pinned the real call returns only when all is there. */
API(cuMemcpyDtoHAsync_v2, BOUND_IF_OLD,
    (void *target, CUdeviceptr source, size_t bytes, CUstream on), (target, source, bytes, on)) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  if (bytes == 0) return CUDA_SUCCESS;
  struct op *op = op_copy((uintptr_t)target, source, bytes);
  op->copy.to_host = true;
  CHECK(stream_enqueue(stream, op));
  bool pinned = memory_at((uintptr_t)target) != NULL;
  if (pinned || stream->capture != NULL) return CUDA_SUCCESS;
  return stream_wait(stream, stream->enqueued);
}

API(cuMemcpyDtoDAsync_v2, BOUND_IF_OLD,
    (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream on),
    (target, source, bytes, on)) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  if (bytes == 0) return CUDA_SUCCESS;
  return stream_enqueue(stream, op_copy(target, source, bytes));
}

/* Whether the memory is that context's, as the caller of a peer copy says. */
static CUresult belongs(CUdeviceptr address, size_t bytes, CUcontext handle) {
  struct context *context;
  struct allocation *allocation;
  CHECK(object_find(handle, CONTEXT, &context));
  CHECK(memory_range(address, bytes, &allocation));
  if (allocation->context == context) return CUDA_SUCCESS;
  trap("wrong context", "%p is not of context %p", (void *)allocation->base, (void *)handle);
  return CUDA_ERROR_INVALID_VALUE;
}

API(cuMemcpyPeerAsync, BOUND_IF_OLD,
    (CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
     size_t bytes, CUstream on),
    (target, target_context, source, source_context, bytes, on)) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  if (bytes == 0) return CUDA_SUCCESS;
  CHECK(belongs(target, bytes, target_context));
  CHECK(belongs(source, bytes, source_context));
  return stream_enqueue(stream, op_copy(target, source, bytes));
}

static CUresult fill(CUdeviceptr target, uint32_t value, int width, size_t count, CUstream on) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  if (target % (unsigned)width != 0 || count > SIZE_MAX / 4) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  struct op *op = op_new(FILL);
  op->fill.target = target;
  op->fill.value = value;
  op->fill.width = width;
  op->fill.count = count;
  return stream_enqueue(stream, op);
}

API(cuMemsetD8Async, BOUND_IF_OLD,
    (CUdeviceptr target, unsigned char value, size_t count, CUstream on),
    (target, value, count, on)) {
  return fill(target, value, 1, count, on);
}

API(cuMemsetD16Async, BOUND_IF_OLD,
    (CUdeviceptr target, unsigned short value, size_t count, CUstream on),
    (target, value, count, on)) {
  return fill(target, value, 2, count, on);
}

API(cuMemsetD32Async, BOUND_IF_OLD,
    (CUdeviceptr target, unsigned int value, size_t count, CUstream on),
    (target, value, count, on)) {
  return fill(target, value, 4, count, on);
}

API(cuStreamWriteValue64_v2, BOUND_IF_OLD,
    (CUstream on, CUdeviceptr target, cuuint64_t value, unsigned int flags),
    (on, target, value, flags)) {
  struct stream *stream;
  CHECK(stream_use(on, &stream));
  if (target % 8 != 0 || flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct op *op = op_new(WRITE);
  op->write.target = target;
  op->write.value = value;
  return stream_enqueue(stream, op);
}
