/* What is between two devices: who reaches whose memory. Copies are in memory.c. */
#include "standin.h"

#include <stdio.h>

static bool apart; /* no device reaches another's memory */

void peers_reset(void) { apart = false; }

EXPORT void standin_set_apart(int on) {
  lock();
  apart = on != 0;
  unlock();
}

/* Whether kernels and direct copies of one device reach what another's pool gave out. */
EXPORT int standin_reaches(int device, int other) {
  lock();
  int reaches = device >= 0 && other >= 0 && device < MAX_DEVICES && other < MAX_DEVICES &&
                g.device[device].primary != NULL &&
                (g.device[device].primary->peers >> other & 1) != 0 &&
                (g.device[other].allowed >> device & 1) != 0;
  unlock();
  return reaches;
}

API(cuDeviceCanAccessPeer, INITIALISED, (int *can, CUdevice device, CUdevice peer),
    (can, device, peer)) {
  struct device *found;
  CHECK(device_find(device, &found));
  CHECK(device_find(peer, &found));
  if (can == NULL) return CUDA_ERROR_INVALID_VALUE;
  *can = device != peer && !apart;
  return CUDA_SUCCESS;
}

API(cuCtxEnablePeerAccess, BOUND | UNSAFE, (CUcontext handle, unsigned int flags),
    (handle, flags)) {
  struct context *peer;
  CHECK(object_find(handle, CONTEXT, &peer));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer == bound() || apart) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  unsigned bit = 1u << peer->device;
  if ((bound()->peers & bit) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  bound()->peers |= bit;
  return CUDA_SUCCESS;
}

API(cuMemPoolSetAccess, INITIALISED,
    (CUmemoryPool pool, const CUmemAccessDesc *descriptions, size_t count),
    (pool, descriptions, count)) {
  struct device *owner, *found;
  CHECK(pool_find(pool, &owner));
  if (descriptions == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if ((int)descriptions[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    CHECK(device_find(descriptions[i].location.id, &found));
    if (found == owner) return CUDA_ERROR_INVALID_VALUE; /* its own cannot be taken from it */
    if (apart) return CUDA_ERROR_INVALID_DEVICE;
    unsigned bit = 1u << descriptions[i].location.id;
    bool all = (int)descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    owner->allowed = all ? owner->allowed | bit : owner->allowed & ~bit;
  }
  return CUDA_SUCCESS;
}

API(cuDeviceGetPCIBusId, INITIALISED, (char *text, int length, CUdevice number),
    (text, length, number)) {
  struct device *device;
  CHECK(device_find(number, &device));
  if (text == NULL || length < 13) return CUDA_ERROR_INVALID_VALUE;
  snprintf(text, (size_t)length, "0000:%02X:00.0", 1 + number);
  return CUDA_SUCCESS;
}
