package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverException;
import io.fairlead.ffi.cuda.CudaObject.Kind;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.jspecify.annotations.Nullable;

/**
 * All objects of one driver by handle. CUDA's own handles are pointers, which are used again for
 * newer objects; ours are (generation, slot, kind): finding an object is two array reads and a
 * comparison. A slot is used again with the next generation, and never after its last one, so no
 * handle is ever given out twice. Handles are positive.
 *
 * <p>Lock-free: free slots are a stack of fresh nodes, so that a node is never on it twice.
 *
 * <pre>
 * field                | writer      | reader | mode, guard
 * chunks and their     | add, remove | any    | volatile: whoever finds an object must see all of it
 *   slots              |             |        |
 * freeSlots, slots     | add, remove | add    | CAS
 * </pre>
 */
final class HandleTable {
  private static final int KIND_BITS = 3;
  private static final int SLOT_BITS = 25;
  private static final int CHUNK_BITS = 10;
  private static final int CHUNK = 1 << CHUNK_BITS;
  private static final int SLOTS_MAX = 1 << SLOT_BITS;

  private record FreeSlot(int slot, int generation, @Nullable FreeSlot next) {}

  private final AtomicReferenceArray<@Nullable AtomicReferenceArray<@Nullable CudaObject>> chunks =
      new AtomicReferenceArray<>(SLOTS_MAX >> CHUNK_BITS);
  private final AtomicReference<@Nullable FreeSlot> freeSlots = new AtomicReference<>();
  private final AtomicInteger slots = new AtomicInteger();

  /** Gives the object its handle. */
  long add(CudaObject object) {
    FreeSlot free = popFree();
    int slot = free != null ? free.slot : freshSlot();
    long generation = free != null ? free.generation : 1;
    long handle =
        generation << (SLOT_BITS + KIND_BITS) | (long) slot << KIND_BITS | object.kind().code;
    object.handle(handle);
    chunk(slot).set(slot & (CHUNK - 1), object);
    return handle;
  }

  private @Nullable FreeSlot popFree() {
    while (true) {
      FreeSlot top = freeSlots.get();
      if (top == null || freeSlots.compareAndSet(top, top.next)) {
        return top;
      }
    }
  }

  private int freshSlot() {
    int slot = slots.getAndIncrement();
    if (slot >= SLOTS_MAX || slot < 0) {
      slots.set(SLOTS_MAX);
      throw Status.refused(
          DriverException.OUT_OF_MEMORY,
          "this driver has no more than " + SLOTS_MAX + " live handles; close what is not used");
    }
    return slot;
  }

  private AtomicReferenceArray<@Nullable CudaObject> chunk(int slot) {
    int index = slot >> CHUNK_BITS;
    AtomicReferenceArray<@Nullable CudaObject> found = chunks.get(index);
    if (found == null) {
      chunks.compareAndSet(index, null, new AtomicReferenceArray<>(CHUNK));
      found = chunks.get(index);
      assert found != null : "a chunk once set stays";
    }
    return found;
  }

  /** Makes the handle stale and gives up the use that came with it; false if it was stale. */
  boolean remove(CudaObject object) {
    long handle = object.handle();
    int slot = slot(handle);
    if (!chunk(slot).compareAndSet(slot & (CHUNK - 1), object, null)) {
      return false;
    }
    long generation = (handle >>> (SLOT_BITS + KIND_BITS)) + 1;
    if (generation < Integer.MAX_VALUE) {
      pushFree(slot, (int) generation);
    }
    object.exit();
    return true;
  }

  private void pushFree(int slot, int generation) {
    while (true) {
      FreeSlot top = freeSlots.get();
      if (freeSlots.compareAndSet(top, new FreeSlot(slot, generation, top))) {
        return;
      }
    }
  }

  private static int slot(long handle) {
    return (int) (handle >>> KIND_BITS) & (SLOTS_MAX - 1);
  }

  private @Nullable CudaObject find(long handle) {
    int slot = slot(handle);
    AtomicReferenceArray<@Nullable CudaObject> chunk = chunks.get(slot >> CHUNK_BITS);
    CudaObject object = chunk == null ? null : chunk.get(slot & (CHUNK - 1));
    return object != null && object.handle() == handle ? object : null;
  }

  /** Whether it is one of ours, of whatever kind. */
  boolean isKnown(long handle) {
    return find(handle) != null;
  }

  @Nullable CudaContext contextOrNull(long handle) {
    return find(handle) instanceof CudaContext context ? context : null;
  }

  CudaContext context(long handle) {
    if (find(handle) instanceof CudaContext context) {
      return context;
    }
    throw unknown(Kind.CONTEXT, handle);
  }

  @Nullable CudaStream streamOrNull(long handle) {
    return find(handle) instanceof CudaStream stream ? stream : null;
  }

  CudaStream stream(long handle) {
    if (find(handle) instanceof CudaStream stream) {
      return stream;
    }
    throw unknown(Kind.STREAM, handle);
  }

  CudaEvent event(long handle) {
    if (find(handle) instanceof CudaEvent event) {
      return event;
    }
    throw unknown(Kind.EVENT, handle);
  }

  CudaModule module(long handle) {
    if (find(handle) instanceof CudaModule module) {
      return module;
    }
    throw unknown(Kind.MODULE, handle);
  }

  CudaKernel kernel(long handle) {
    if (find(handle) instanceof CudaKernel kernel) {
      return kernel;
    }
    throw unknown(Kind.KERNEL, handle);
  }

  CudaGraph graph(long handle) {
    if (find(handle) instanceof CudaGraph graph) {
      return graph;
    }
    throw unknown(Kind.GRAPH, handle);
  }

  CudaExecutable executable(long handle) {
    if (find(handle) instanceof CudaExecutable executable) {
      return executable;
    }
    throw unknown(Kind.EXECUTABLE, handle);
  }

  /** What a call with a handle that is not, or not any more, of the wanted kind throws. */
  static DriverException unknown(Kind wanted, long handle) {
    int code = (int) handle & ((1 << KIND_BITS) - 1);
    String why =
        code == wanted.code
            ? "stale " + wanted.noun() + " handle: it was destroyed, or its context ended"
            : "a handle of kind " + wanted.noun() + " is needed here, not " + noun(code);
    int status =
        wanted == Kind.CONTEXT ? DriverException.INVALID_CONTEXT : DriverException.INVALID_HANDLE;
    return Status.refused(status, why + " (" + Status.hex(handle) + ")");
  }

  private static String noun(int code) {
    for (Kind kind : Kind.values()) {
      if (kind.code == code) {
        return "of kind " + kind.noun();
      }
    }
    return "this number";
  }

  /** Every object of the context that is there throughout. */
  List<CudaObject> of(CudaContext context) {
    List<CudaObject> found = new ArrayList<>();
    int end = Math.min(slots.get(), SLOTS_MAX);
    for (int slot = 0; slot < end; slot++) {
      AtomicReferenceArray<@Nullable CudaObject> chunk = chunks.get(slot >> CHUNK_BITS);
      CudaObject object = chunk == null ? null : chunk.get(slot & (CHUNK - 1));
      if (object != null && object.context() == context) {
        found.add(object);
      }
    }
    return found;
  }
}
