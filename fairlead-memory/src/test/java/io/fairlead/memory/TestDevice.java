package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.Driver;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.UnaryOperator;

/** A host device of its own for a test, stepped or not, with everything around it. */
final class TestDevice implements AutoCloseable {
  /** Small, so that a slip shows; freed memory is overwritten, so that a use after free shows. */
  static final long MEMORY = 4L << 20;

  final TaskRuntime tasks;
  final Driver driver;
  final Device device;
  final List<Device> devices = new ArrayList<>();
  private final List<DeviceStream> streams = new ArrayList<>();

  private TestDevice(MemoryConfig memory, DeviceConfig contexts, Map<String, String> settings) {
    this(memory, contexts, settings, driver -> driver);
  }

  private TestDevice(
      MemoryConfig memory,
      DeviceConfig contexts,
      Map<String, String> settings,
      UnaryOperator<Driver> around) {
    Map<String, String> all =
        new HashMap<>(Map.of("memory", Long.toString(MEMORY), "poison", "true", "workers", "2"));
    all.putAll(settings);
    tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    driver = around.apply(new HostDriverProvider().open(all));
    for (int i = 0; i < driver.deviceCount(); i++) {
      DeviceConfig config = contexts;
      if (isStepped()) {
        config = config.withCloseNanos(0); // nobody steps while it closes
      }
      devices.add(Device.open(tasks, DeviceContext.open(tasks, driver, i, config), memory));
    }
    device = devices.getFirst();
  }

  static TestDevice open() {
    return open(MemoryConfig.defaults());
  }

  static TestDevice open(MemoryConfig memory) {
    return new TestDevice(memory, DeviceConfig.defaults(), Map.of());
  }

  static TestDevice open(MemoryConfig memory, Map<String, String> settings) {
    return new TestDevice(memory, DeviceConfig.defaults(), settings);
  }

  /** Of a driver that something stands around. */
  static TestDevice open(MemoryConfig memory, UnaryOperator<Driver> around) {
    return new TestDevice(memory, DeviceConfig.defaults(), Map.of(), around);
  }

  /** Nothing on it moves unless {@link #stepper} says so. */
  static TestDevice stepped() {
    return stepped(MemoryConfig.defaults());
  }

  static TestDevice stepped(MemoryConfig memory) {
    return stepped(memory, DeviceConfig.defaults());
  }

  static TestDevice stepped(MemoryConfig memory, DeviceConfig contexts) {
    return new TestDevice(memory, contexts, Map.of("stepped", "true"));
  }

  private boolean isStepped() {
    return driver.capabilities().contains(Capability.STEPPED);
  }

  HostStepper stepper() {
    return HostStepper.of(driver);
  }

  /** Closed with the device. */
  DeviceStream newStream() {
    DeviceStream stream = device.context().openStream(0);
    streams.add(stream);
    return stream;
  }

  /** A buffer of {@code bytes} bytes of {@code value} that nobody is working on any more. */
  DeviceBuffer filled(HostStepper stepper, long bytes, int value) {
    DeviceBuffer buffer = device.allocate(bytes);
    buffer.fill((byte) value);
    // Asked for, so that it is known to be reached and makes no edges later.
    Completion<Void> filled = device.context().reached();
    stepper.completeAll();
    assertThat(filled.isDone()).isTrue();
    return buffer;
  }

  /** What is done in each round with a reservation. */
  interface Reserved {
    void run(Reservation reservation, int round);
  }

  /** In a task that has reserved so much; nothing of it may be left at the end. */
  void repeatReserved(long bytes, int rounds, Reserved body) {
    tasks.enter(
        "careful",
        0,
        () -> {
          try (Reservation reservation = device.reserve(bytes)) {
            for (int round = 0; round < rounds; round++) {
              body.run(reservation, round);
            }
          }
          return null;
        });
    awaitNothingInUse();
    assertThat(device.memory().reserved()).as("reserved").isZero();
  }

  /**
   * Waits until the device has done with everything, and all of it is counted as free. Who sees
   * that a free was reached counts it a moment later, and may be any thread: what watches for those
   * who wait, the spiller. So nobody who only waits for the device can say that nothing is in use.
   * Ends by the test's timeout if something stays in use.
   */
  void awaitNothingInUse() {
    device.context().reached().await();
    while (device.memory().inUse() > 0) {
      LockSupport.parkNanos(100_000);
    }
  }

  /** The same for what is below, too: an image goes when the spiller has seen the end of a copy. */
  void awaitNothingLeft() {
    awaitNothingInUse();
    while (device.memory().onHost() > 0) {
      LockSupport.parkNanos(100_000);
    }
  }

  /** Returns once the owner has released all that was retired before: trims, and frees for it. */
  void awaitRetired() {
    Completion.Source<Boolean> released = Completion.source();
    device
        .context()
        .owner()
        .retire(
            new Retired() {
              @Override
              protected void release() {
                released.complete(true);
              }
            });
    released.completion().await();
  }

  /** As a library calls the driver, that was given the context and makes it current itself. */
  void behind(Runnable call) {
    long before = driver.current();
    driver.makeCurrent(device.context().nativeHandle());
    try {
      call.run();
    } finally {
      driver.makeCurrent(before);
    }
  }

  @Override
  public void close() {
    streams.forEach(DeviceStream::close);
    if (isStepped()) {
      device.context().reached();
      stepper().completeAll();
    }
    devices.reversed().forEach(Device::close);
    tasks.close();
    driver.close();
  }
}
