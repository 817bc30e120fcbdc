package io.fairlead.ffi.cuda;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import org.jspecify.annotations.Nullable;

/**
 * The device's default pool, which everybody in this process shares who allocates in stream order.
 * While a context of ours is open it keeps what was freed, so that the next allocation need not go
 * to the system, and makes no order between streams that nobody asked for. Both are put back to
 * what they were afterwards.
 */
final class MemPool {
  private static final int REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3;
  private static final int RELEASE_THRESHOLD = 4;
  private static final int RESERVED_MEM_CURRENT = 5;
  private static final int USED_MEM_CURRENT = 7;
  private static final long KEEP_ALL = -1; // unsigned

  // CUmemAccessDesc: type and number of the location, then what it may do
  private static final int LOCATION_DEVICE = 1;
  private static final int READ_WRITE = 3;

  private final CudaContext context;
  private final CudaApi api;
  private final int device;
  private long pool;
  private @Nullable Long thresholdBefore;
  private @Nullable Integer dependenciesBefore;

  MemPool(CudaContext context, int device) {
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
    if (set(RELEASE_THRESHOLD, KEEP_ALL)) {
      thresholdBefore = threshold;
    }
    int dependencies = (int) get(REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
    if (set(REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0)) {
      dependenciesBefore = dependencies;
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
    if (dependenciesBefore != null) {
      set(REUSE_ALLOW_INTERNAL_DEPENDENCIES, dependenciesBefore);
    }
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
