package io.fairlead.memory;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** How much memory this machine has for us. */
final class HostMemory {
  private static final Path MACHINE = Path.of("/proc/meminfo");
  private static final Path GROUP = Path.of("/sys/fs/cgroup/memory.max");

  /** What the heap may take is a quarter of the memory, unless somebody has said otherwise. */
  private static final int HEAP_SHARE = 4;

  private HostMemory() {}

  /** Bytes of the machine, or of the group that this process is in, whichever is less. */
  static long bytes() {
    return Math.min(machine(), group());
  }

  private static long machine() {
    try {
      for (String line : Files.readAllLines(MACHINE)) {
        if (line.startsWith("MemTotal:")) {
          return Long.parseLong(line.replaceAll("[^0-9]", "")) << 10;
        }
      }
    } catch (IOException | NumberFormatException notLinux) {
      // guessed below
    }
    return Math.min(Runtime.getRuntime().maxMemory(), Long.MAX_VALUE / HEAP_SHARE) * HEAP_SHARE;
  }

  private static long group() {
    try {
      return Long.parseLong(Files.readString(GROUP).strip());
    } catch (IOException | NumberFormatException noLimit) {
      return Long.MAX_VALUE;
    }
  }
}
