package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.device.Operand;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The driver's own stream-ordered pool: every buffer is an operation of a stream at both ends. The
 * driver orders the next owner after the free only, so the free comes after every use.
 */
final class DriverPool implements Pool {
  private static final Completion<@Nullable Void> NOTHING = Completion.completed(null);
  private static final Access[] WRITE = {Access.WRITE};

  private final DeviceContext context;
  private final Driver driver;
  private final Budget budget;
  private final Reclaimer reclaimer;
  private final long waitNanos;

  DriverPool(DeviceContext context, Budget budget, Reclaimer reclaimer, long waitNanos) {
    this.context = context;
    this.driver = context.driver();
    this.budget = budget;
    this.reclaimer = reclaimer;
    this.waitNanos = waitNanos;
  }

  @Override
  public @Nullable Block reuse(DeviceStream stream, Account account, long bytes) {
    return null;
  }

  @Override
  public @Nullable Block reuseUnfinished(DeviceStream stream, Account account, long bytes) {
    return null;
  }

  /** The driver may have less room than the limit says: then its own pending frees are awaited. */
  @Override
  public Block allocate(DeviceStream stream, long bytes, Charge charge) {
    long start = System.nanoTime();
    while (true) {
      boolean hope = budget.pendingFree() > 0;
      try {
        return allocateNow(stream, bytes, charge);
      } catch (OutOfDeviceMemoryException refused) {
        long left = waitNanos - (System.nanoTime() - start);
        if (!hope || left <= 0 || !reclaimer.awaitOldest(left)) {
          throw refused;
        }
      }
    }
  }

  /** What the driver's shared pool keeps for nobody goes back to the device before this fails. */
  Block allocateNow(DeviceStream stream, long bytes, Charge charge) {
    try {
      return enqueueAllocation(stream, bytes, charge);
    } catch (OutOfDeviceMemoryException refused) {
      if (stream.isCaptured() || !Role.current().mayWait() || !trimShared(0)) {
        throw refused;
      }
      return enqueueAllocation(stream, bytes, charge);
    }
  }

  /**
   * Returns to the device what the driver's own pool keeps and nobody uses: others in this process
   * have given it back there, or we have. Waits for the owner.
   *
   * @param keepBytes of all that it has, in use or not
   * @return whether there was anything
   */
  boolean trimShared(long keepBytes) {
    try {
      MemoryInfo info = memoryInfo();
      if (info.poolUnusedBytes() == 0 || Mutant.on("pool.shared.skip")) {
        return false;
      }
      context.driverCall(
          DriverCall.TRIM,
          "trim the driver's pool",
          () -> {
            driver.trimPool(context.nativeContext(), keepBytes);
            return true;
          });
      return true;
    } catch (DeviceException refused) {
      return false; // whoever needs the memory is told that there is none
    }
  }

  MemoryInfo memoryInfo() {
    return context.driverCall(
        DriverCall.MEMORY_INFO, "memory info", () -> driver.memoryInfo(context.nativeContext()));
  }

  private Block enqueueAllocation(DeviceStream stream, long bytes, Charge charge) {
    long[] address = new long[1];
    long sequence =
        stream.enqueue(
            DriverCall.ALLOC_ASYNC,
            "allocate",
            (handle, none) -> address[0] = driver.allocAsync(handle, bytes));
    Mark allocated = new Mark(stream, sequence);
    return new Block(
        address[0],
        Mutant.on("ledger.alloc.skip") ? Frontier.NONE : new Frontier(allocated, List.of()),
        charge);
  }

  @Override
  public boolean giveBack(Storage storage, Charge charge) {
    Mark freed = free(storage);
    budget.closing(charge); // not before: what the driver refuses does not come back
    if (freed == null) {
      return false;
    }
    if (Mutant.on("memory.release.early")) {
      budget.release(charge);
    } else {
      reclaimer.add(new Reclaimer.Entry(new Frontier(freed, List.of()), charge));
    }
    return true;
  }

  /**
   * Enqueues the free of a storage that is {@code FREEING}, and answers where it is reached; null
   * if that is left to the owner.
   */
  @Nullable Mark free(Storage storage) {
    DeviceStream newest = storage.newest();
    DeviceStream stream = newest == null ? context.stream() : newest;
    try {
      // The stream of the newest use has the fewest others to wait for.
      return free(storage, stream);
    } catch (IllegalStateException closed) {
      // A user's own stream, closed since or being captured; its work counts like any other's.
      DeviceStream mine = context.stream();
      return mine.isCaptured() ? null : free(storage, mine);
    }
  }

  private Mark free(Storage storage, DeviceStream stream) {
    long sequence =
        stream.enqueue(
            DriverCall.FREE_ASYNC,
            "free",
            new Operand[] {new Freeing(storage)},
            WRITE,
            (handle, addresses) -> driver.freeAsync(handle, addresses[0]));
    return new Mark(stream, sequence);
  }

  /** Enqueues the free of memory that nobody owns, after its frontier. */
  void free(DeviceStream stream, long address, Frontier frontier) {
    for (int i = 0; i < frontier.size(); i++) {
      stream.after(frontier.mark(i));
    }
    stream.enqueue(
        DriverCall.FREE_ASYNC, "free", (handle, none) -> driver.freeAsync(handle, address));
  }

  @Override
  public Completion<@Nullable Void> trim(long bytes) {
    return NOTHING;
  }

  @Override
  public long cached() {
    return 0;
  }

  @Override
  public long reused() {
    return 0;
  }

  @Override
  public void abandon() {
    reclaimer.abandon();
  }

  @Override
  public void close() {}

  /** The use of a storage that ends it. */
  private record Freeing(Storage storage) implements StorageUse {
    @Override
    public long bytes() {
      return storage.bytes;
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      storage.acquireToFree(stream);
      return storage.address;
    }
  }
}
