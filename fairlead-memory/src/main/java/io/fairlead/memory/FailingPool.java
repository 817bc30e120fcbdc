package io.fairlead.memory;

import io.fairlead.device.DeviceStream;
import io.fairlead.device.OutOfDeviceMemoryException;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Refuses some requests on purpose, so that programs can be tried where memory runs out. A request
 * is refused before anything was taken or charged for it.
 */
final class FailingPool extends ForwardingPool {
  private final MemoryFailures failures;
  private final int device;

  /** Requests so far. */
  private final AtomicLong requests = new AtomicLong();

  FailingPool(Pool inner, MemoryFailures failures, int device) {
    super(inner);
    this.failures = failures;
    this.device = device;
  }

  /** Every request comes here first, so this is where they are counted. */
  @Override
  public @Nullable Block reuse(DeviceStream stream, Account account, long bytes) {
    long request = requests.incrementAndGet();
    if (failures.isDue(request)) {
      throw new OutOfDeviceMemoryException(
          "request "
              + request
              + " for memory of device "
              + device
              + ", for "
              + Sizes.text(bytes)
              + ", fails on purpose: "
              + MemoryConfig.FAIL_PROPERTY
              + " is "
              + failures,
          "allocate",
          device,
          null);
    }
    return super.reuse(stream, account, bytes);
  }
}
