package io.fairlead.lab.canary.nativeaccess;

import java.lang.foreign.MemorySegment;

/** Memory outside the heap is not native access. */
class OffHeap {
  long bytes() {
    return MemorySegment.NULL.byteSize();
  }
}
