package io.fairlead.memory;

import io.fairlead.device.DeviceException;
import io.fairlead.task.Retired;

/** Something for the owner to do; whoever is owed more than a try looks again. */
final class Order extends Retired {
  private final Runnable order;

  Order(Runnable order) {
    this.order = order;
  }

  @Override
  protected void release() {
    try {
      order.run();
    } catch (DeviceException | IllegalStateException ended) {
      // the context is lost or closed, and its memory with it
    }
  }
}
