package io.fairlead.cli.bench;

import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.SpillConfig;
import io.fairlead.memory.Tier;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.Completion;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/** How memory is spilled, as the benchmarks ask for it: the one place that knows. */
final class Spills {
  private static final long DISK_BYTES = 8L << 30;

  private Spills() {}

  /**
   * Buffers go to pinned host memory, of which so much is taken, and from there to files.
   *
   * @param directory null: to no files
   */
  static FairleadConfig config(FairleadConfig config, long hostBytes, @Nullable Path directory) {
    SpillConfig spill = SpillConfig.TO_HOST.withHostBytesMax(hostBytes);
    if (directory != null) {
      spill = spill.withDisk(directory, DISK_BYTES);
    }
    return config.withMemory(config.memory().withSpill(spill));
  }

  /** Asks for it; done once the buffer has left the device, or could not. */
  static Completion<Tier> spill(DeviceBuffer buffer) {
    return buffer.spill();
  }
}
