package io.fairlead.ffi.cuda;

import io.fairlead.ffi.posix.PageRun;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A block of page-locked host memory that kernels of all contexts reach at the host's address.
 *
 * <p>The driver's own allocation takes some 0.7 s for a GiB, and for as long as it lasts no other
 * call of the process goes on (H200, driver 580: a fill that was waited for took up to 12.7 ms
 * beside pieces of 4 MiB). So large blocks are memory of the system, with pages of 2 MiB where
 * there are such, that is there before it is registered: 0.3 s for a GiB by pieces of 64 MiB, and
 * 0.8 ms. Where that cannot be had, and for small ones, it is the driver's.
 *
 * @param run the system's pages; null if the driver allocated it
 */
record PinnedMemory(MemorySegment segment, Arena arena, @Nullable PageRun run) {
  private static final int PORTABLE_AND_MAPPED = 0x01 | 0x02;

  /** A page of that size is the least that is worth it. */
  private static final long REGISTERED_MIN = 2L << 20;

  /**
   * Pins that much. The context is current where the driver's allocation wants that. Blocks.
   *
   * @throws io.fairlead.device.spi.DriverException if the driver can pin no more
   */
  static PinnedMemory pin(CudaContext context, long bytes) {
    PageRun run = bytes < REGISTERED_MIN ? null : register(context, bytes);
    return run != null ? of(run.address(), bytes, run) : of(allocate(context, bytes), bytes, null);
  }

  @SuppressWarnings("MustBeClosedChecker") // unpin closes it
  private static PinnedMemory of(long address, long bytes, @Nullable PageRun run) {
    Arena arena = Arena.ofShared(); // so that the block is closed before its memory goes
    return new PinnedMemory(
        MemorySegment.ofAddress(address).reinterpret(bytes, arena, null), arena, run);
  }

  private static long allocate(CudaContext context, long bytes) {
    Scratch scratch = Scratch.take();
    try {
      context.check(
          context.api.memHostAlloc(scratch.answer(), bytes, PORTABLE_AND_MAPPED), "cuMemHostAlloc");
      return scratch.longAnswer();
    } finally {
      scratch.giveBack();
    }
  }

  /** Null if it cannot be had in this way; whatever it was, the driver's allocation says it. */
  private static @Nullable PageRun register(CudaContext context, long bytes) {
    PageRun run = PageRun.take(bytes);
    if (run == null) {
      return null;
    }
    CudaApi api = context.api;
    long previous = Current.bind(api, context.raw);
    boolean unused;
    try {
      unused = api.memHostRegister(run.address(), bytes, PORTABLE_AND_MAPPED) != Status.SUCCESS;
      if (!unused && isAtItsAddress(api, run.address())) {
        return run;
      }
      unused = unused || api.memHostUnregister(run.address()) == Status.SUCCESS;
    } finally {
      Current.restore(api, context.raw, previous);
    }
    if (unused) {
      run.close();
    }
    return null;
  }

  /** Whether kernels reach it there: on nearly all machines. */
  private static boolean isAtItsAddress(CudaApi api, long address) {
    Scratch scratch = Scratch.take();
    try {
      return api.memHostGetDevicePointer(scratch.answer(), address, 0) == Status.SUCCESS
          && scratch.longAnswer() == address;
    } finally {
      scratch.giveBack();
    }
  }

  long address() {
    return segment.address();
  }

  /**
   * Nothing uses it any more. Once. Blocks.
   *
   * @return pages that the driver did not let go, as those of a context that is lost: they can go
   *     once the context is released
   */
  @Nullable PageRun unpin(CudaContext context) {
    long address = address();
    arena.close();
    if (run == null) {
      context.note(context.api.memFreeHost(address), "cuMemFreeHost");
      return null;
    }
    int status;
    long previous = Current.bind(context.api, context.raw);
    try {
      status = context.api.memHostUnregister(address);
    } finally {
      Current.restore(context.api, context.raw, previous);
    }
    context.note(status, "cuMemHostUnregister");
    if (status != Status.SUCCESS) {
      return run;
    }
    run.close();
    return null;
  }
}
