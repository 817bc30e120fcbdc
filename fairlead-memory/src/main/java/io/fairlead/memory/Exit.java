package io.fairlead.memory;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import org.jspecify.annotations.Nullable;

/** The stream on which a pool gives memory back to the driver. On the device's owner only. */
final class Exit {
  private final DeviceContext context;
  private @Nullable DeviceStream stream;

  Exit(DeviceContext context) {
    this.context = context;
  }

  /** Opened when it is first needed. */
  DeviceStream stream() {
    DeviceStream known = stream;
    if (known == null) {
      known = context.openStream(0);
      stream = known;
    }
    return known;
  }

  /** If it was opened; its work goes on. */
  void close() {
    DeviceStream known = stream;
    stream = null;
    if (known != null) {
      known.close();
    }
  }
}
