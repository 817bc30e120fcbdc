package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceStream;
import io.fairlead.fault.Mutant;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The buffers of one call of {@link Device#foreign}. Once the body has begun, only the context says
 * when its work can harm nobody any more, which may be long after the call: until then they stay
 * lent.
 *
 * <p>Used by the calling task, then by the thread of the body, then by whoever ends it.
 */
final class ForeignLeases {
  private final DeviceStream stream;
  private final List<Lease> leases = new ArrayList<>();

  /** Volatile: the calling task looks at it after the body's thread has set it. */
  private volatile boolean begun;

  ForeignLeases(DeviceStream stream) {
    this.stream = stream;
  }

  /** Their addresses. */
  long[] lend(List<DeviceBuffer> buffers, Access access) {
    long[] addresses = new long[buffers.size()];
    for (int i = 0; i < addresses.length; i++) {
      Lease lease = buffers.get(i).lease(stream, access);
      leases.add(lease);
      addresses[i] = lease.address();
    }
    return addresses;
  }

  <T extends @Nullable Object> T run(ForeignBody<T> body, long[] reads, long[] writes)
      throws Exception {
    begun = true;
    return body.run(reads, writes);
  }

  void endUnlessBegun() {
    if (!begun || Mutant.on("foreign.lease.early")) {
      endAll();
    }
  }

  /** Each is ended, whatever becomes of the others. */
  void endAll() {
    RuntimeException failure = null;
    for (Lease lease : leases) {
      try {
        lease.close();
      } catch (RuntimeException e) {
        if (failure == null) {
          failure = e;
        } else {
          failure.addSuppressed(e);
        }
      }
    }
    if (failure != null) {
      throw failure;
    }
  }
}
