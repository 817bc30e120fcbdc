package io.fairlead.solver.internal.device;

import io.fairlead.device.DeviceException;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Mark;
import io.fairlead.memory.Device;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The pinned host blocks of one solve on one rank. Confined to the rank's task. */
final class PinnedBlocks implements AutoCloseable {
  private final Device device;
  private final List<HostBlock> blocks = new ArrayList<>();

  PinnedBlocks(Device device) {
    this.device = device;
  }

  HostBlock take(long bytes) {
    HostBlock block = device.context().hostBlocks().take(Math.max(Double.BYTES, bytes));
    blocks.add(block);
    return block;
  }

  /**
   * Gives the blocks back once the stream is done with them. After a failure the communicator must
   * have failed before, so that no message comes into them any more.
   */
  @Override
  public void close() {
    Mark end = end();
    if (end == null) {
      blocks.forEach(HostBlock::close);
    } else {
      blocks.forEach(block -> block.closeAfter(end));
    }
  }

  /** The end of the task's work so far; null where the context is lost, and all work with it. */
  private @Nullable Mark end() {
    try {
      return device.stream().mark();
    } catch (DeviceException lost) {
      return null;
    }
  }
}
