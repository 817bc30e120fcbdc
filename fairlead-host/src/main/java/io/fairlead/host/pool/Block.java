package io.fairlead.host.pool;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * One allocation. It lives in two orders at once: that of the calls (allocated, then free called)
 * and that of the streams (allocation ran, then free ran).
 *
 * <pre>
 *   RESERVED --allocation ran--> LIVE --free ran--> FREED
 * </pre>
 *
 * <p>Work that meets a block which is not LIVE was not ordered after its allocation, or not before
 * its free: on a GPU, wrong data on a bad day; here, a fault that says so.
 *
 * <table>
 * <caption>Shared state</caption>
 * <tr><th>field</th><th>written by</th><th>read by</th><th>mode</th></tr>
 * <tr><td>state</td><td>the worker that runs the allocation or the free</td>
 *     <td>workers that run other work</td><td>volatile</td></tr>
 * <tr><td>freeCalled</td><td>the first caller of free</td><td>other callers of free</td>
 *     <td>compare and set: only one of them frees</td></tr>
 * <tr><td>rest, freeRan</td><td colspan="3">guarded by the pool's lock</td></tr>
 * </table>
 */
public final class Block {
  private static final int RESERVED = 0;
  private static final int LIVE = 1;
  private static final int FREED = 2;

  private static final VarHandle FREE_CALLED;

  static {
    try {
      FREE_CALLED = MethodHandles.lookup().findVarHandle(Block.class, "freeCalled", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final long address;
  private final long bytes;
  private final MemorySegment memory;
  final Chunk chunk;

  /** What is left of the chunk for others once the free runs; null before free, or if reused. */
  @Nullable Chunk rest;

  boolean freeRan;

  private volatile int state = RESERVED;

  @SuppressWarnings("unused") // through FREE_CALLED
  private volatile boolean freeCalled;

  Block(Chunk chunk, long bytes) {
    this.chunk = chunk;
    this.bytes = bytes;
    this.address = chunk.slab.address(chunk.start);
    this.memory = chunk.slab.memory.asSlice(chunk.start << Slab.GRANULE_BITS, bytes);
  }

  public long address() {
    return address;
  }

  public long bytes() {
    return bytes;
  }

  /** The memory, exactly as large as asked for. */
  public MemorySegment memory() {
    return memory;
  }

  public boolean contains(long someAddress) {
    return someAddress >= address && someAddress - address < bytes;
  }

  /** Whether {@code length} bytes from {@code someAddress} on lie within. */
  public boolean holds(long someAddress, long length) {
    return contains(someAddress) && length <= bytes - (someAddress - address);
  }

  public MemorySegment slice(long someAddress, long length) {
    return memory.asSlice(someAddress - address, length);
  }

  /** The stream reached the allocation. */
  public void allocationRan() {
    state = LIVE;
  }

  /** The stream reached the free; false if the allocation had not run, or it was freed before. */
  public boolean endLife() {
    boolean live = state == LIVE;
    state = FREED;
    return live;
  }

  /** Null while work may use the block, else what is wrong with the order of the streams. */
  public @Nullable String misuse() {
    return switch (state) {
      case LIVE -> null;
      case RESERVED -> "before its allocation was reached";
      default -> "after it was freed";
    };
  }

  /** True for the one caller that is to free the block. */
  public boolean claimFree() {
    return FREE_CALLED.compareAndSet(this, false, true);
  }
}
