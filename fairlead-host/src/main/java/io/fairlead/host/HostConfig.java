package io.fairlead.host;

import io.fairlead.device.ByteSize;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;

/**
 * The settings of a host driver, checked once.
 *
 * @param devices how many devices to offer
 * @param workers worker threads of each
 * @param memoryBytes device memory of each
 * @param strict whether every call needs its context current, as on old drivers
 * @param notifies whether streams call their listeners; else they have to be polled
 * @param stepped whether operations end only when {@link HostStepper} says so
 * @param poison whether freed device memory is overwritten, to bring use after free to light
 * @param spinNanos how long an idle worker looks for work before it parks
 * @param spinnersMax how many workers of all devices may do so at a time
 */
record HostConfig(
    int devices,
    int workers,
    long memoryBytes,
    boolean strict,
    boolean notifies,
    boolean stepped,
    boolean poison,
    long spinNanos,
    int spinnersMax) {

  /** As the bit set of parked workers is laid out: one long. */
  static final int WORKERS_MAX = 64;

  static final int DEVICES_MAX = 1024;

  /**
   * A worker that has to be woken costs its caller a system call of 2 to 5 µs and the work 20 to 50
   * µs until it starts: looking for about that long at most doubles what a wait costs.
   */
  private static final long SPIN_MICROS = 50;

  private static final Set<String> KEYS =
      new TreeSet<>(
          Set.of(
              "devices",
              "workers",
              "memory",
              "strict",
              "notify",
              "stepped",
              "poison",
              "spinMicros"));

  static HostConfig of(Map<String, String> settings) {
    for (String key : settings.keySet()) {
      if (!KEYS.contains(key)) {
        throw Status.invalidValue(
            "the host driver has no setting '" + key + "'; it has " + String.join(", ", KEYS));
      }
    }
    int cores = Runtime.getRuntime().availableProcessors();
    int devices = (int) number(settings, "devices", 1, 1, DEVICES_MAX);
    int workers = (int) number(settings, "workers", Math.min(cores, WORKERS_MAX), 1, WORKERS_MAX);
    return new HostConfig(
        devices,
        workers,
        memory(settings, devices),
        flag(settings, "strict", false),
        flag(settings, "notify", true),
        flag(settings, "stepped", false),
        flag(settings, "poison", false),
        TimeUnit.MICROSECONDS.toNanos(
            number(settings, "spinMicros", cores > 1 ? SPIN_MICROS : 0, 0, 1_000_000)),
        // Half of the cores stay with the callers, however many devices and workers there are.
        Math.max(1, cores / 2));
  }

  private static boolean flag(Map<String, String> settings, String key, boolean otherwise) {
    String text = settings.get(key);
    if (text == null) {
      return otherwise;
    }
    return switch (text.strip()) {
      case "true" -> true;
      case "false" -> false;
      default -> throw wrong(key, "true or false", text);
    };
  }

  private static long number(
      Map<String, String> settings, String key, long otherwise, long min, long max) {
    String text = settings.get(key);
    if (text == null) {
      return otherwise;
    }
    try {
      long value = Long.parseLong(text.strip());
      if (value >= min && value <= max) {
        return value;
      }
    } catch (NumberFormatException e) {
      // falls through to the message below, which says all that the exception could
    }
    throw wrong(key, "a number from " + min + " to " + max, text);
  }

  private static long memory(Map<String, String> settings, int devices) {
    String text = settings.get("memory");
    if (text == null) {
      return Math.max(1L << 20, physicalBytes() / 2 / devices);
    }
    try {
      long bytes = ByteSize.parse(text);
      if (bytes >= 256) {
        return bytes;
      }
    } catch (IllegalArgumentException e) {
      // falls through to the message below, which says all that the exception could
    }
    throw wrong(
        "memory", "a number of bytes, at least 256, or one with k, m, g or t behind it", text);
  }

  private static RuntimeException wrong(String key, String expected, String text) {
    return Status.invalidValue(
        "the host driver's setting '" + key + "' must be " + expected + ", not '" + text + "'");
  }

  /** What the machine or the container has; twice the heap's limit where neither says. */
  private static long physicalBytes() {
    long machine = Long.MAX_VALUE;
    try {
      for (String line : Files.readAllLines(Path.of("/proc/meminfo"))) {
        if (line.startsWith("MemTotal:")) {
          machine = Long.parseLong(line.replaceAll("\\D", "")) << 10;
        }
      }
      Path limit = Path.of("/sys/fs/cgroup/memory.max");
      if (Files.isReadable(limit)) {
        String text = Files.readString(limit).strip();
        machine = text.equals("max") ? machine : Math.min(machine, Long.parseLong(text));
      }
    } catch (IOException | NumberFormatException e) {
      machine = Long.MAX_VALUE; // not Linux as we know it
    }
    return machine == Long.MAX_VALUE ? 2 * Runtime.getRuntime().maxMemory() : machine;
  }
}
