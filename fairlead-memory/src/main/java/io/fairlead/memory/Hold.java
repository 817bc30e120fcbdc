package io.fairlead.memory;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Keeps a buffer on the device: while it is open the buffer is not spilled. A buffer that is closed
 * meanwhile is freed when its last hold ends.
 *
 * <p>Threads: any. Closing does not block, and may happen several times.
 */
public final class Hold implements AutoCloseable {
  private final DeviceBuffer buffer;
  private final Keeper keeper;
  private final AtomicBoolean open = new AtomicBoolean(true);

  Hold(DeviceBuffer buffer, Keeper keeper) {
    this.buffer = buffer;
    this.keeper = keeper;
  }

  /**
   * Says that another task than the one that took it will close it. Else, while that one waits for
   * memory itself, nobody is thought to end this, and somebody is told at once that he waits in
   * vain; now only after a time of grace. Any thread; does not block.
   */
  public void handOn() {
    keeper.handOn();
  }

  @Override
  public void close() {
    if (open.compareAndSet(true, false)) {
      buffer.endHold(keeper);
    }
  }
}
