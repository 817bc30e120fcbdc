package io.fairlead.ffi.cuda;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.fairlead.ffi.cuda.CudaSettings.Reuse;
import java.lang.foreign.Arena;
import java.util.EnumMap;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The device's default pool, which everybody in this process shares who allocates in stream order.
 * While a context of ours is open it keeps what was freed, up to a share of the device's memory, so
 * that the next allocation need not go to the system; what is beyond goes back, since where there
 * is little, what is free would lie in pieces. It makes no order between streams that nobody asked
 * for, unless a setting wants it. All is put back to what it was afterwards.
 */
final class MemPool {
  private static final int RELEASE_THRESHOLD = 4;
  private static final int RESERVED_MEM_CURRENT = 5;
  private static final int USED_MEM_CURRENT = 7;

  // CUmemAccessDesc: type and number of the location, then what it may do
  private static final int LOCATION_DEVICE = 1;
  private static final int READ_WRITE = 3;

  private final CudaContext context;
  private final CudaApi api;
  private final int device;
  private final long kept;
  private final @Nullable Set<Reuse> reuse;
  private final Map<Reuse, Long> reuseBefore = new EnumMap<>(Reuse.class);
  private long pool;
  private @Nullable Long thresholdBefore;

  /**
   * @param bytes the device's memory
   */
  MemPool(CudaContext context, int device, long bytes, @Nullable Set<Reuse> reuse) {
    this.kept = bytes / 4 * 3;
    this.reuse = reuse;
    this.context = context;
    this.api = context.api;
    this.device = device;
  }

  void open() {
    Scratch scratch = Scratch.take();
    try {
      context.check(
          api.deviceGetDefaultMemPool(scratch.answer(), device), "cuDeviceGetDefaultMemPool");
      pool = scratch.longAnswer();
    } finally {
      scratch.giveBack();
    }
    long threshold = get(RELEASE_THRESHOLD, 0);
    if (set(RELEASE_THRESHOLD, kept)) {
      thresholdBefore = threshold;
    }
    Set<Reuse> wanted = reuse;
    if (wanted == null) {
      reuse(Reuse.INTERNAL, false);
    } else {
      for (Reuse each : Reuse.values()) {
        reuse(each, wanted.contains(each));
      }
    }
  }

  private void reuse(Reuse which, boolean allowed) {
    long before = get(which.attribute, 1);
    if (set(which.attribute, allowed ? 1 : 0)) {
      reuseBefore.put(which, before);
    }
  }

  /** What it has from the device, in use or not. */
  long bytes() {
    return get(RESERVED_MEM_CURRENT, 0);
  }

  /** What of that somebody has allocated, we or others. */
  long usedBytes() {
    return get(USED_MEM_CURRENT, 0);
  }

  /** Returns what nobody uses, until it has no more than that, or nothing more can go. */
  void trim(long keepBytes) {
    context.check(api.memPoolTrimTo(pool, keepBytes), "cuMemPoolTrimTo");
  }

  /** Lets kernels and copies of another device reach what is allocated here. */
  int allow(int other) {
    try (Arena arena = Arena.ofConfined()) {
      long description = arena.allocateFrom(JAVA_INT, LOCATION_DEVICE, other, READ_WRITE).address();
      return api.peers().memPoolSetAccess(pool, description, 1);
    }
  }

  void close() {
    if (thresholdBefore != null) {
      set(RELEASE_THRESHOLD, thresholdBefore);
    }
    reuseBefore.forEach((which, before) -> set(which.attribute, before));
    if (pool != 0 && !context.isLost()) {
      api.memPoolTrimTo(pool, 0);
    }
  }

  /** Some attributes are 32 bits wide, and leave the rest zero. */
  private long get(int attribute, long otherwise) {
    Scratch scratch = Scratch.take();
    try {
      Memory.setLong(scratch.answer(), 0);
      return api.memPoolGetAttribute(pool, attribute, scratch.answer()) == Status.SUCCESS
          ? scratch.longAnswer()
          : otherwise;
    } finally {
      scratch.giveBack();
    }
  }

  private boolean set(int attribute, long value) {
    Scratch scratch = Scratch.take();
    try {
      Memory.setLong(scratch.answer(), value);
      return api.memPoolSetAttribute(pool, attribute, scratch.answer()) == Status.SUCCESS;
    } finally {
      scratch.giveBack();
    }
  }
}
