package io.fairlead.host;

import io.fairlead.device.spi.DriverException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * All objects of one driver by handle. A handle is (generation, slot, kind): looking one up is two
 * array reads and a comparison. A slot is used again with the next generation, and never after its
 * last one, so no handle is ever given out twice.
 *
 * <p>Lock-free: free slots are a stack of fresh nodes, so that a node is never on it twice.
 *
 * <table>
 * <caption>Shared state</caption>
 * <tr><th>field</th><th>written by</th><th>read by</th><th>mode</th></tr>
 * <tr><td>chunks and their slots</td><td>add, remove</td><td>every call</td>
 *     <td>volatile: whoever finds an entry must see all of it</td></tr>
 * <tr><td>freeSlots</td><td>add, remove</td><td>add</td><td>compare and set</td></tr>
 * </table>
 */
final class HandleTable {
  enum Kind {
    CONTEXT(1),
    STREAM(2),
    EVENT(3),
    MODULE(4),
    KERNEL(5),
    GRAPH(6),
    EXECUTABLE(7);

    /** As it stands in the lowest bits of a handle; never 0, so that no handle is. */
    final int code;

    Kind(int code) {
      this.code = code;
    }

    String noun() {
      return name().toLowerCase(java.util.Locale.ROOT);
    }
  }

  /** Something with a handle. */
  abstract static class Entry {
    /** Written once, before the entry is published in its slot. */
    private long handle;

    final long handle() {
      return handle;
    }

    abstract Kind kind();

    abstract HostContext context();
  }

  private static final int KIND_BITS = 3;
  private static final int SLOT_BITS = 25;
  private static final int CHUNK_BITS = 10;
  private static final int CHUNK = 1 << CHUNK_BITS;
  private static final int SLOTS_MAX = 1 << SLOT_BITS;

  private record FreeSlot(int slot, int generation, @Nullable FreeSlot next) {}

  private final AtomicReferenceArray<@Nullable AtomicReferenceArray<@Nullable Entry>> chunks =
      new AtomicReferenceArray<>(SLOTS_MAX >> CHUNK_BITS);
  private final AtomicReference<@Nullable FreeSlot> freeSlots = new AtomicReference<>();
  private final AtomicInteger slots = new AtomicInteger();

  /** Gives the entry its handle. */
  long add(Entry entry) {
    FreeSlot free = popFree();
    int slot = free != null ? free.slot : freshSlot();
    long generation = free != null ? free.generation : 1;
    entry.handle =
        generation << (SLOT_BITS + KIND_BITS) | (long) slot << KIND_BITS | entry.kind().code;
    chunk(slot).set(slot & (CHUNK - 1), entry);
    return entry.handle;
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

  private AtomicReferenceArray<@Nullable Entry> chunk(int slot) {
    int index = slot >> CHUNK_BITS;
    AtomicReferenceArray<@Nullable Entry> found = chunks.get(index);
    if (found == null) {
      chunks.compareAndSet(index, null, new AtomicReferenceArray<>(CHUNK));
      found = chunks.get(index);
      assert found != null : "a chunk once set stays";
    }
    return found;
  }

  /** Makes the handle stale; false if it was already. */
  boolean remove(Entry entry) {
    int slot = slot(entry.handle);
    if (!chunk(slot).compareAndSet(slot & (CHUNK - 1), entry, null)) {
      return false;
    }
    long generation = (entry.handle >>> (SLOT_BITS + KIND_BITS)) + 1;
    if (generation < Integer.MAX_VALUE) {
      pushFree(slot, (int) generation);
    }
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

  private @Nullable Entry find(long handle) {
    int slot = slot(handle);
    AtomicReferenceArray<@Nullable Entry> chunk = chunks.get(slot >> CHUNK_BITS);
    Entry entry = chunk == null ? null : chunk.get(slot & (CHUNK - 1));
    return entry != null && entry.handle == handle ? entry : null;
  }

  @Nullable HostContext contextOrNull(long handle) {
    return find(handle) instanceof HostContext context ? context : null;
  }

  HostContext context(long handle) {
    if (find(handle) instanceof HostContext context) {
      return context;
    }
    throw unknown(Kind.CONTEXT, handle, DriverException.INVALID_CONTEXT);
  }

  HostStream stream(long handle) {
    if (find(handle) instanceof HostStream stream && !stream.isDestroyed()) {
      return stream;
    }
    throw unknown(Kind.STREAM, handle, DriverException.INVALID_HANDLE);
  }

  HostEvent event(long handle) {
    if (find(handle) instanceof HostEvent event) {
      return event;
    }
    throw unknown(Kind.EVENT, handle, DriverException.INVALID_HANDLE);
  }

  HostModule module(long handle) {
    if (find(handle) instanceof HostModule module) {
      return module;
    }
    throw unknown(Kind.MODULE, handle, DriverException.INVALID_HANDLE);
  }

  HostKernel kernel(long handle) {
    if (find(handle) instanceof HostKernel kernel) {
      return kernel;
    }
    throw unknown(Kind.KERNEL, handle, DriverException.INVALID_HANDLE);
  }

  HostGraph graph(long handle) {
    if (find(handle) instanceof HostGraph graph) {
      return graph;
    }
    throw unknown(Kind.GRAPH, handle, DriverException.INVALID_HANDLE);
  }

  HostExecutable executable(long handle) {
    if (find(handle) instanceof HostExecutable executable) {
      return executable;
    }
    throw unknown(Kind.EXECUTABLE, handle, DriverException.INVALID_HANDLE);
  }

  private static DriverException unknown(Kind wanted, long handle, int status) {
    int code = (int) handle & ((1 << KIND_BITS) - 1);
    String why =
        code == wanted.code
            ? "stale " + wanted.noun() + " handle: it was destroyed, or its context ended"
            : "a handle of kind " + wanted.noun() + " is needed here, not " + noun(code);
    return Status.refused(status, why + " (" + Status.hex(handle) + ")");
  }

  private static String noun(int code) {
    for (Kind kind : Kind.values()) {
      if (kind.code == code) {
        return kind.noun();
      }
    }
    return "this number";
  }

  /** Calls {@code visitor} with every entry of the context that is there throughout. */
  void forEach(HostContext context, Consumer<Entry> visitor) {
    int end = Math.min(slots.get(), SLOTS_MAX);
    for (int slot = 0; slot < end; slot++) {
      AtomicReferenceArray<@Nullable Entry> chunk = chunks.get(slot >> CHUNK_BITS);
      Entry entry = chunk == null ? null : chunk.get(slot & (CHUNK - 1));
      if (entry != null && entry.context() == context) {
        visitor.accept(entry);
      }
    }
  }
}
