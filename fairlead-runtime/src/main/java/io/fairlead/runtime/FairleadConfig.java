package io.fairlead.runtime;

import io.fairlead.device.ByteSize;
import io.fairlead.device.DeviceConfig;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.WaitMode;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.TreeMap;

/**
 * How a {@link Fairlead} is opened. Immutable; checked once, here.
 *
 * @param device which driver: {@code auto}, {@code host}, {@code cuda}, or the name of another
 *     provider. {@code auto} takes the best one that works here and says which
 * @param hostDevices how many devices the host driver makes; 0 leaves it to the driver
 * @param hostWorkers worker threads of each host device; 0 leaves it to the driver
 * @param deviceMemory most bytes that buffers may take on each device; 0: all it has. The host
 *     device gets exactly this much memory
 * @param driverSettings further settings for the driver that is taken, by its own names
 * @param tasks how tasks wait, and the limits of owners
 * @param context the limits of each device context
 * @param memory how each device's memory is handed out; its limit is {@code deviceMemory}
 * @param transport what carries messages between the ranks of {@link Fairlead#world}: {@code auto},
 *     {@code in-process}, {@code mpi}, or the name of another provider. {@code auto} takes MPI for
 *     ranks that a launcher started, else this process alone
 */
public record FairleadConfig(
    String device,
    int hostDevices,
    int hostWorkers,
    long deviceMemory,
    Map<String, String> driverSettings,
    TaskConfig tasks,
    DeviceConfig context,
    MemoryConfig memory,
    String transport) {

  /** The value of {@link #device} and {@link #transport} that takes the best there is. */
  public static final String AUTO = "auto";

  /** Names the driver: {@code auto}, {@code host}, {@code cuda}. */
  public static final String DEVICE_PROPERTY = "fairlead.device";

  /** Names the transport: {@code auto}, {@code in-process}, {@code mpi}. */
  public static final String TRANSPORT_PROPERTY = "fairlead.transport";

  /** How tasks wait: {@code nonblocking}, {@code blocking}, {@code spin}. */
  public static final String SYNC_PROPERTY = "fairlead.sync";

  /** How many host devices. */
  public static final String HOST_DEVICES_PROPERTY = "fairlead.host.devices";

  /** Worker threads of each host device. */
  public static final String HOST_WORKERS_PROPERTY = "fairlead.host.workers";

  /** Bytes of each device, with an optional unit: {@code 512m}, {@code 4GiB}. */
  public static final String DEVICE_MEMORY_PROPERTY = "fairlead.device.memory";

  /** More than any host has processors; catches a mistyped number before threads are made. */
  private static final int HOST_MAX = 1024;

  public FairleadConfig {
    Objects.requireNonNull(tasks, "tasks");
    Objects.requireNonNull(context, "context");
    Objects.requireNonNull(memory, "memory");
    driverSettings = Map.copyOf(driverSettings);
    if (device.isBlank()) {
      throw new IllegalArgumentException(
          "the device is empty; say auto, host, cuda or the name of a driver provider");
    }
    if (transport.isBlank()) {
      throw new IllegalArgumentException(
          "the transport is empty; say auto, in-process, mpi or the name of a transport provider");
    }
    requireRange("hostDevices", hostDevices);
    requireRange("hostWorkers", hostWorkers);
    if (deviceMemory < 0) {
      throw new IllegalArgumentException(
          "deviceMemory is " + deviceMemory + "; give a number of bytes, or 0 for all there is");
    }
  }

  private static void requireRange(String name, int value) {
    if (value < 0 || value > HOST_MAX) {
      throw new IllegalArgumentException(
          name + " is " + value + "; it must be 1 to " + HOST_MAX + ", or 0 for the default");
    }
  }

  /** The best driver, all of its devices and memory, waiting without blocking. */
  public static FairleadConfig defaults() {
    return new FairleadConfig(
        AUTO,
        0,
        0,
        0,
        Map.of(),
        TaskConfig.DEFAULT,
        DeviceConfig.defaults(),
        MemoryConfig.defaults(),
        AUTO);
  }

  /** The defaults, changed by the {@code fairlead.*} system properties of this process. */
  public static FairleadConfig fromSystem() {
    return from(System.getProperties());
  }

  /**
   * The defaults, changed by the {@code fairlead.*} properties above.
   *
   * @throws IllegalArgumentException naming the property, its value, and what it may be
   */
  public static FairleadConfig from(Properties properties) {
    return defaults()
        .withTasks(TaskConfig.from(properties))
        .withDevice(properties.getProperty(DEVICE_PROPERTY, AUTO).strip())
        .withHostDevices(number(properties, HOST_DEVICES_PROPERTY))
        .withHostWorkers(number(properties, HOST_WORKERS_PROPERTY))
        .withDeviceMemory(bytes(properties, DEVICE_MEMORY_PROPERTY))
        .withMemory(MemoryConfig.from(properties))
        .withTransport(properties.getProperty(TRANSPORT_PROPERTY, AUTO).strip());
  }

  private static int number(Properties properties, String name) {
    String text = properties.getProperty(name);
    if (text == null) {
      return 0;
    }
    try {
      int value = Integer.parseInt(text.strip());
      if (value >= 1 && value <= HOST_MAX) {
        return value;
      }
    } catch (NumberFormatException notANumber) {
      // said below, as for a number out of range
    }
    throw new IllegalArgumentException(
        "property " + name + " is '" + text + "'; it must be a number from 1 to " + HOST_MAX);
  }

  private static long bytes(Properties properties, String name) {
    String text = properties.getProperty(name);
    if (text == null) {
      return 0;
    }
    try {
      return ByteSize.parse(text);
    } catch (IllegalArgumentException malformed) {
      throw new IllegalArgumentException(
          "property " + name + ": " + malformed.getMessage(), malformed);
    }
  }

  public WaitMode waitMode() {
    return tasks.waitMode();
  }

  public FairleadConfig withDevice(String name) {
    return new FairleadConfig(
        name,
        hostDevices,
        hostWorkers,
        deviceMemory,
        driverSettings,
        tasks,
        context,
        memory,
        transport);
  }

  public FairleadConfig withHostDevices(int count) {
    return new FairleadConfig(
        device,
        count,
        hostWorkers,
        deviceMemory,
        driverSettings,
        tasks,
        context,
        memory,
        transport);
  }

  public FairleadConfig withHostWorkers(int count) {
    return new FairleadConfig(
        device,
        hostDevices,
        count,
        deviceMemory,
        driverSettings,
        tasks,
        context,
        memory,
        transport);
  }

  public FairleadConfig withDeviceMemory(long bytes) {
    return new FairleadConfig(
        device, hostDevices, hostWorkers, bytes, driverSettings, tasks, context, memory, transport);
  }

  public FairleadConfig withWaitMode(WaitMode mode) {
    return withTasks(tasks.waitMode(mode));
  }

  /** Adds one setting for the driver; see its provider for the names. */
  public FairleadConfig withDriverSetting(String name, String value) {
    Map<String, String> settings = new TreeMap<>(driverSettings);
    settings.put(name, value);
    return new FairleadConfig(
        device,
        hostDevices,
        hostWorkers,
        deviceMemory,
        settings,
        tasks,
        context,
        memory,
        transport);
  }

  public FairleadConfig withTasks(TaskConfig config) {
    return new FairleadConfig(
        device,
        hostDevices,
        hostWorkers,
        deviceMemory,
        driverSettings,
        config,
        context,
        memory,
        transport);
  }

  public FairleadConfig withContext(DeviceConfig config) {
    return new FairleadConfig(
        device,
        hostDevices,
        hostWorkers,
        deviceMemory,
        driverSettings,
        tasks,
        config,
        memory,
        transport);
  }

  public FairleadConfig withMemory(MemoryConfig config) {
    return new FairleadConfig(
        device,
        hostDevices,
        hostWorkers,
        deviceMemory,
        driverSettings,
        tasks,
        context,
        config,
        transport);
  }

  public FairleadConfig withTransport(String name) {
    return new FairleadConfig(
        device,
        hostDevices,
        hostWorkers,
        deviceMemory,
        driverSettings,
        tasks,
        context,
        memory,
        name);
  }

  /** What the host driver is told: settings given by hand win. */
  Map<String, String> hostSettings() {
    Map<String, String> settings = new TreeMap<>();
    putIfSet(settings, "devices", hostDevices);
    putIfSet(settings, "workers", hostWorkers);
    putIfSet(settings, "memory", deviceMemory);
    settings.putAll(driverSettings);
    return settings;
  }

  private static void putIfSet(Map<String, String> settings, String name, long value) {
    if (value != 0) {
      settings.put(name, Long.toString(value));
    }
  }

  /** How each device's memory is handed out. */
  MemoryConfig memoryWithLimit() {
    return deviceMemory == 0 ? memory : memory.withLimit(deviceMemory);
  }
}
