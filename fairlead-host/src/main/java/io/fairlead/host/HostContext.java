package io.fairlead.host;

import io.fairlead.device.spi.DriverException;
import io.fairlead.host.pool.DevicePool;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A device's primary context: its memory, its streams and its first fault.
 *
 * <pre>
 *   SOUND --asynchronous fault--> LOST --last release--> ENDED
 *     '----------------last release------------------------^
 * </pre>
 *
 * Lost: every call fails with the first fault; what is enqueued is dropped, not run. Ended: no
 * handle of it is known any more.
 *
 * <table>
 * <caption>Shared state</caption>
 * <tr><th>field</th><th>written by</th><th>read by</th><th>mode</th></tr>
 * <tr><td>fault</td><td>whoever meets the first fault</td><td>every call, every operation</td>
 *     <td>compare and set: the first cause wins, and stays</td></tr>
 * <tr><td>ending</td><td>the last release</td><td>workers at a wait</td><td>volatile</td></tr>
 * <tr><td>busyStreams</td><td>callers that wake a stream, workers that leave one</td>
 *     <td>the last release</td><td>atomic</td></tr>
 * <tr><td>hostBlocks</td><td colspan="3">concurrent map; only in calls that may block</td></tr>
 * </table>
 */
final class HostContext extends HandleTable.Entry {
  private static final long LOOK_NANOS = TimeUnit.MICROSECONDS.toNanos(50);

  /** Where page-locked memory begins; a direct file takes nothing else without one more copy. */
  private static final long PAGE = 4096;

  /** Blocks from here on begin at a page; smaller ones would take up to twice their size. */
  private static final long PAGED_MIN = 64 << 10;

  private static final long ALIGNMENT = 256;

  final HostDevice device;
  final DevicePool pool;
  final LongAdder kernelNanos = new LongAdder();
  private final HandleTable handles;
  private final AtomicReference<@Nullable DriverException> fault = new AtomicReference<>();
  private final AtomicInteger busyStreams = new AtomicInteger();
  private final Map<Long, Arena> hostBlocks = new ConcurrentHashMap<>();
  private volatile boolean ending;

  HostContext(HostDevice device, HandleTable handles, DevicePool pool) {
    this.device = device;
    this.handles = handles;
    this.pool = pool;
  }

  // --- faults ---------------------------------------------------------------------------------

  @Nullable DriverException fault() {
    return fault.get();
  }

  boolean isLost() {
    return fault.get() != null;
  }

  void checkSound() {
    DriverException first = fault.get();
    if (first != null) {
      throw Status.again(first);
    }
  }

  /** Loses the context; only the first fault counts. Tells every stream, with no lock held. */
  void lose(DriverException cause) {
    if (fault.compareAndSet(null, cause)) {
      handles.forEach(
          this,
          entry -> {
            if (entry instanceof HostStream stream) {
              stream.contextLost();
            }
          });
    }
  }

  // --- pinned host memory ---------------------------------------------------------------------

  @SuppressWarnings("MustBeClosedChecker") // hostFree closes it, or the end of the context
  MemorySegment hostAlloc(long bytes) {
    Arena arena = Arena.ofShared();
    try {
      MemorySegment block = arena.allocate(bytes, bytes < PAGED_MIN ? ALIGNMENT : PAGE);
      hostBlocks.put(block.address(), arena);
      return block;
    } catch (OutOfMemoryError e) {
      arena.close();
      throw Status.refused(
          DriverException.OUT_OF_MEMORY,
          "this process has no " + bytes + " bytes of host memory left: " + e.getMessage());
    }
  }

  void hostFree(MemorySegment block) {
    Arena arena = hostBlocks.remove(block.address());
    if (arena == null) {
      throw Status.invalidValue(
          "this block at "
              + Status.hex(block.address())
              + " does not stem from hostAlloc of this context, or was freed before");
    }
    arena.close();
  }

  // --- end ------------------------------------------------------------------------------------

  boolean isEnding() {
    return ending;
  }

  void streamBusy() {
    busyStreams.getAndIncrement();
  }

  void streamIdle() {
    busyStreams.getAndDecrement();
  }

  /**
   * Ends the context: enqueued work ends first, except that nothing waits any longer for events of
   * other contexts, which need never come. Blocks.
   */
  void end() {
    ending = true;
    if (device.isStepped()) {
      forEachStream(HostStream::abandonAll);
    }
    while (busyStreams.get() > 0) {
      forEachStream(HostStream::stopWaiting);
      LockSupport.parkNanos(LOOK_NANOS);
    }
    handles.forEach(this, handles::remove);
    handles.remove(this);
    pool.close();
    hostBlocks.keySet().forEach(this::closeHostBlock);
  }

  private void forEachStream(java.util.function.Consumer<HostStream> action) {
    handles.forEach(
        this,
        entry -> {
          if (entry instanceof HostStream stream) {
            action.accept(stream);
          }
        });
  }

  private void closeHostBlock(Long address) {
    Arena arena = hostBlocks.remove(address);
    if (arena != null) {
      arena.close();
    }
  }

  @Override
  HandleTable.Kind kind() {
    return HandleTable.Kind.CONTEXT;
  }

  @Override
  HostContext context() {
    return this;
  }
}
