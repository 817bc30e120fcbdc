/* Devices, primary contexts, and the stack of current contexts that each thread has. */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- errors ----------------------------------------------------------------------------------*/

#define ERROR(name, text) {CUDA_ERROR_##name, "CUDA_ERROR_" #name, text}

static const struct {
  int status;
  const char *name, *text;
} ERRORS[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    ERROR(INVALID_VALUE, "invalid argument"),
    ERROR(OUT_OF_MEMORY, "out of memory"),
    ERROR(NOT_INITIALIZED, "initialization error"),
    ERROR(DEINITIALIZED, "driver shutting down"),
    ERROR(NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(INVALID_DEVICE, "invalid device ordinal"),
    ERROR(INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(INVALID_CONTEXT, "invalid device context"),
    ERROR(NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    ERROR(PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    ERROR(INVALID_PTX, "a PTX JIT compilation failed"),
    ERROR(NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"),
    ERROR(JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    ERROR(UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."),
    ERROR(CONTAINED, "Invalid access of peer GPU memory over nvlink or a hardware error"),
    ERROR(INVALID_SOURCE, "device kernel image is invalid"),
    ERROR(INVALID_HANDLE, "invalid resource handle"),
    ERROR(ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(NOT_FOUND, "named symbol not found"),
    ERROR(NOT_READY, "device not ready"),
    ERROR(ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    ERROR(PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ERROR(PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    ERROR(CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(ASSERT, "device-side assert triggered"),
    ERROR(HOST_MEMORY_ALREADY_REGISTERED,
          "part or all of the requested memory range is already mapped"),
    ERROR(HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    ERROR(HARDWARE_STACK_ERROR, "hardware stack error"),
    ERROR(ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    ERROR(MISALIGNED_ADDRESS, "misaligned address"),
    ERROR(INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space"),
    ERROR(INVALID_PC, "invalid program counter"),
    ERROR(LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    ERROR(TENSOR_MEMORY_LEAK, "tensor memory leak"),
    ERROR(NOT_PERMITTED, "operation not permitted"),
    ERROR(NOT_SUPPORTED, "operation not supported"),
    ERROR(MPS_CLIENT_TERMINATED, "MPS client has been terminated"),
    ERROR(STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(STREAM_CAPTURE_INVALIDATED,
          "operation failed due to a previous error during capture"),
    ERROR(STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    ERROR(STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    ERROR(STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(STREAM_CAPTURE_ISOLATION,
          "dependency created on uncaptured work in another stream"),
    ERROR(STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(CAPTURED_EVENT,
          "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(INVALID_CLUSTER_SIZE, "invalid cluster size"),
    ERROR(UNKNOWN, "unknown error"),
};

static int error_index(int status) {
  for (int i = 0; i < (int)(sizeof ERRORS / sizeof *ERRORS); i++) {
    if (ERRORS[i].status == status) return i;
  }
  return -1;
}

API(cuGetErrorName, ANYTIME, (CUresult error, const char **text), (error, text)) {
  int i = error_index((int)error);
  if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
  *text = i < 0 ? NULL : ERRORS[i].name;
  return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API(cuGetErrorString, ANYTIME, (CUresult error, const char **text), (error, text)) {
  int i = error_index((int)error);
  if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
  *text = i < 0 ? NULL : ERRORS[i].text;
  return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* --- the driver and its devices --------------------------------------------------------------*/

API(cuInit, INITIALISED, (unsigned int flags), (flags)) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (g.devices == 0) return CUDA_ERROR_NO_DEVICE;
  g.initialised = true;
  return CUDA_SUCCESS;
}

API(cuDriverGetVersion, ANYTIME, (int *version), (version)) {
  if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
  *version = g.version;
  return CUDA_SUCCESS;
}

CUresult device_find(CUdevice number, struct device **out) {
  if (number < 0 || number >= g.devices) return CUDA_ERROR_INVALID_DEVICE;
  *out = &g.device[number];
  return CUDA_SUCCESS;
}

API(cuDeviceGetCount, INITIALISED, (int *count), (count)) {
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = g.devices;
  return CUDA_SUCCESS;
}

API(cuDeviceGet, INITIALISED, (CUdevice *device, int ordinal), (device, ordinal)) {
  struct device *found;
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  CHECK(device_find(ordinal, &found));
  *device = ordinal;
  return CUDA_SUCCESS;
}

API(cuDeviceGetName, INITIALISED, (char *name, int length, CUdevice number),
    (name, length, number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (name == NULL || length < 1) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)length, "Stand-in %d", number);
  return CUDA_SUCCESS;
}

API(cuDeviceTotalMem_v2, INITIALISED, (size_t *bytes, CUdevice number), (bytes, number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->limit;
  return CUDA_SUCCESS;
}

API(cuDeviceGetUuid_v2, INITIALISED, (CUuuid *uuid, CUdevice number), (uuid, number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid->bytes, "fairlead-standi", 15);
  uuid->bytes[15] = (char)number;
  return CUDA_SUCCESS;
}

/* Attribute numbers of the ABI with an H200's answers, where Fairlead might look. */
static const int ATTRIBUTES[][2] = {
    {1, 1024},         /* threads per block */
    {2, 1024},         /* block x, y, z */
    {3, 1024},
    {4, 64},
    {5, 0x7FFFFFFF},   /* grid x, y, z */
    {6, 65535},
    {7, 65535},
    {8, 49152},        /* shared memory per block */
    {9, 65536},        /* constant memory */
    {10, 32},          /* warp */
    {12, 65536},       /* registers per block */
    {13, 1980000},     /* clock, kHz */
    {16, 132},         /* multiprocessors */
    {17, 0},           /* kernel time limit */
    {18, 0},           /* integrated */
    {19, 1},           /* can map host memory */
    {20, 0},           /* compute mode */
    {31, 1},           /* concurrent kernels */
    {32, 1},           /* ECC */
    {34, 0},           /* PCI device */
    {38, 62914560},    /* L2 bytes */
    {39, 2048},        /* threads per multiprocessor */
    {40, 3},           /* copy engines */
    {41, 1},           /* unified addressing */
    {50, 0},           /* PCI domain */
    {75, 9},           /* compute capability */
    {76, 0},
    {78, 1},           /* stream priorities */
    {82, 65536},       /* registers per multiprocessor */
    {91, 1},           /* host pointers of registered memory */
    {92, 1},           /* stream memory operations, first version */
    {93, 1},
    {94, 1},
    {95, 1},           /* cooperative launch */
    {97, 232448},      /* shared memory per block, opted in */
    {98, 1},           /* flush of remote writes */
    {99, 1},           /* host registration */
    {115, 1},          /* memory pools */
    {120, 1},          /* clusters */
    {122, 1},          /* 64-bit stream memory operations */
    {123, 1},
};

/* What a test made of them; -1: as above. */
static int told[128];

void attributes_reset(void) { memset(told, -1, sizeof told); }

int device_attribute(int attribute) {
  if (attribute < 0 || attribute >= (int)(sizeof told / sizeof *told)) return -1;
  if (told[attribute] >= 0) return told[attribute];
  for (int i = 0; i < (int)(sizeof ATTRIBUTES / sizeof *ATTRIBUTES); i++) {
    if (ATTRIBUTES[i][0] == attribute) return ATTRIBUTES[i][1];
  }
  return -1;
}

/* Until the next reset, on all devices: another architecture, or one that lacks something. */
EXPORT void standin_set_attribute(int attribute, int value) {
  lock();
  if (attribute >= 0 && attribute < (int)(sizeof told / sizeof *told)) told[attribute] = value;
  unlock();
}

API(cuDeviceGetAttribute, INITIALISED, (int *value, CUdevice_attribute attribute, CUdevice number),
    (value, attribute, number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  if ((int)attribute == 33) { /* PCI bus: what tells the devices apart */
    *value = 1 + number;
    return CUDA_SUCCESS;
  }
  *value = device_attribute((int)attribute);
  return *value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* --- primary contexts ------------------------------------------------------------------------*/

static struct context *context_new(int device) {
  struct context *context = zalloc(sizeof *context);
  object_open(context, CONTEXT, context);
  context->device = device;
  return context;
}

/* Ends it, its streams' workers, and all that lives in it. Waits, so the lock is given back. */
void context_end(struct context *context) {
  context->dead = true;
  object_retire(context);
  captures_end(context);
  for (struct stream *stream = context->streams; stream != NULL; stream = stream->next) {
    stream_end(stream);
  }
  changed();
  while (context->streams != NULL) await_change();
  objects_end(context);
  memory_end(context);
  object_close(context); /* never freed: a few bytes, and late callers may still look */
  changed();
}

static void created_end(struct context *context) {
  struct context **link = &g.created;
  while (*link != context) link = &(*link)->next_created;
  *link = context->next_created;
  atomic_store(&context->cancelled, true);
  context_end(context);
}

void contexts_reset(void) {
  while (g.created != NULL) created_end(g.created);
  for (int i = 0; i < MAX_DEVICES; i++) {
    struct context *context = g.device[i].primary;
    g.device[i].primary = NULL;
    if (context == NULL) continue;
    atomic_store(&context->cancelled, true);
    context_end(context);
  }
}

void context_fault(struct context *context, int status) {
  if (context->fault == 0) context->fault = status; /* the first cause stays */
  struct device *device = &g.device[context->device];
  if (g.faults_stay && device->fault == 0) device->fault = context->fault;
  atomic_store(&context->cancelled, true);
  changed();
}

bool context_idle(const struct context *context) {
  for (struct stream *stream = context->streams; stream != NULL; stream = stream->next) {
    if (stream->queued > 0) return false;
  }
  return true;
}

API(cuDevicePrimaryCtxRetain, INITIALISED, (CUcontext *out, CUdevice number), (out, number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device->fault != 0) return (CUresult)device->fault;
  if (device->primary == NULL) device->primary = context_new(number);
  if (device->primary->fault != 0) return (CUresult)device->primary->fault;
  device->retained++;
  *out = device->primary->head.handle;
  return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxRelease_v2, INITIALISED, (CUdevice number), (number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (device->retained == 0) {
    trap("released too often", "device %d", number);
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (--device->retained > 0 || device->primary == NULL) return CUDA_SUCCESS;
  struct context *context = device->primary;
  device->primary = NULL;
  while (!context_idle(context) && !atomic_load(&context->cancelled)) await_change();
  context_end(context);
  return CUDA_SUCCESS;
}

/* Ends the context at once, work and all. It stays retained: each retain wants its release. */
API(cuDevicePrimaryCtxReset_v2, INITIALISED, (CUdevice number), (number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  struct context *context = device->primary;
  device->primary = NULL;
  if (context == NULL) return CUDA_SUCCESS;
  atomic_store(&context->cancelled, true);
  context_end(context);
  return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxGetState, INITIALISED, (CUdevice number, unsigned int *flags, int *active),
    (number, flags, active)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (flags == NULL || active == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = device->flags;
  *active = device->primary != NULL;
  return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxSetFlags_v2, INITIALISED, (CUdevice number, unsigned int flags),
    (number, flags)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if ((flags & ~0xFFu) != 0) return CUDA_ERROR_INVALID_VALUE;
  device->flags = flags;
  return CUDA_SUCCESS;
}

/* --- current contexts ------------------------------------------------------------------------*/

static CUcontext top(void) { return self.depth == 0 ? NULL : self.stack[self.depth - 1]; }

CUresult current_context(struct context **out) {
  *out = NULL;
  if (top() == NULL) return CUDA_SUCCESS;
  struct context *context = object_peek(top(), CONTEXT);
  if (context == NULL || context->dead) {
    trap("stale handle", "the current context %p is no more", (void *)top());
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *out = context;
  return CUDA_SUCCESS;
}

struct context *bound(void) { return object_peek(top(), CONTEXT); }

static int kernels_running(const struct context *context, int *streams) {
  int running = 0;
  for (const struct stream *stream = context->streams; stream != NULL; stream = stream->next) {
    ++*streams;
    running += stream->first != NULL && stream->first->what == KERNEL;
  }
  return atomic_load(&context->cancelled) ? 0 : running;
}

static CUresult await_kernels(CUcontext handle, int from_streams) {
  for (;;) {
    struct context *context = object_peek(handle, CONTEXT);
    if (context == NULL) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    int streams = 0;
    if (kernels_running(context, &streams) == 0 || streams < from_streams) return CUDA_SUCCESS;
    await_change();
  }
}

CUresult context_await_kernels(CUcontext handle) { return await_kernels(handle, 0); }

CUresult context_await_creation(CUcontext handle) {
  return g.creation_waits < 0 ? CUDA_SUCCESS : await_kernels(handle, g.creation_waits);
}

CUresult context_use(struct context *context) {
  if (context->dead) {
    trap("stale handle", "its context %p is no more", context->head.handle);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (g.old_driver && top() != context->head.handle) {
    trap("wrong context", "belongs to %p, current is %p", context->head.handle, (void *)top());
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return (CUresult)context->fault;
}

/* Looking is always allowed, at a dead context too. */
API(cuCtxGetCurrent, INITIALISED, (CUcontext *out), (out)) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = top();
  return CUDA_SUCCESS;
}

static CUresult push(CUcontext handle) {
  struct context *context;
  CHECK(object_find(handle, CONTEXT, &context));
  if (self.depth == (int)(sizeof self.stack / sizeof *self.stack)) return CUDA_ERROR_INVALID_VALUE;
  self.stack[self.depth++] = handle;
  return CUDA_SUCCESS;
}

/* Replaces the top of the stack; none: takes it away. */
API(cuCtxSetCurrent, INITIALISED, (CUcontext handle), (handle)) {
  struct context *context;
  if (handle != NULL) CHECK(object_find(handle, CONTEXT, &context));
  if (self.depth > 0) self.depth--;
  return handle == NULL ? CUDA_SUCCESS : push(handle);
}

API(cuCtxPushCurrent_v2, INITIALISED, (CUcontext handle), (handle)) { return push(handle); }

API(cuCtxPopCurrent_v2, INITIALISED, (CUcontext *out), (out)) {
  if (self.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != NULL) *out = top();
  self.depth--;
  return CUDA_SUCCESS;
}

/* A context of the caller's own, not the primary one; it is current then. */
API(cuCtxCreate_v2, INITIALISED, (CUcontext *out, unsigned int flags, CUdevice number),
    (out, flags, number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (out == NULL || (flags & ~0xFFu) != 0) return CUDA_ERROR_INVALID_VALUE;
  struct context *context = context_new(number);
  context->next_created = g.created;
  g.created = context;
  *out = context->head.handle;
  return push(context->head.handle);
}

API(cuCtxDestroy_v2, INITIALISED, (CUcontext handle), (handle)) {
  struct context *context;
  CHECK(object_find(handle, CONTEXT, &context));
  if (context == g.device[context->device].primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (top() == handle) self.depth--;
  created_end(context);
  return CUDA_SUCCESS;
}

API(cuCtxGetDevice, BOUND, (CUdevice *device), (device)) {
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = bound()->device;
  return CUDA_SUCCESS;
}

API(cuCtxGetStreamPriorityRange, BOUND, (int *least, int *greatest), (least, greatest)) {
  if (least != NULL) *least = LEAST_PRIORITY;
  if (greatest != NULL) *greatest = GREATEST_PRIORITY;
  return CUDA_SUCCESS;
}

API(cuCtxSynchronize, BOUND | UNSAFE, (void), ()) {
  struct context *context = bound();
  while (!context_idle(context) && !atomic_load(&context->cancelled)) await_change();
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return (CUresult)context->fault;
}
