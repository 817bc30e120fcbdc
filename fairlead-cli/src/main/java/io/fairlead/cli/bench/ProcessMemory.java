package io.fairlead.cli.bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** What this process takes of the machine, as Linux tells. */
final class ProcessMemory {
  private static final Path STATUS = Path.of("/proc/self/status");
  private static final int KIB = 1024;

  private ProcessMemory() {}

  /** Bytes that are resident now. */
  static long resident() {
    return bytes("VmRSS:");
  }

  /** The most bytes that were resident at a time. */
  static long peak() {
    return bytes("VmHWM:");
  }

  /** The processor time of all threads so far. */
  static long cpuNanos() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  private static long bytes(String key) {
    try {
      for (String line : Files.readAllLines(STATUS)) {
        if (line.startsWith(key)) {
          return KIB * Long.parseLong(line.substring(key.length()).replace("kB", "").strip());
        }
      }
      throw new IllegalStateException(STATUS + " has no " + key);
    } catch (IOException elsewhere) {
      throw new UncheckedIOException("this row is measured on Linux only", elsewhere);
    }
  }
}
