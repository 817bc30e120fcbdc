package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Two GPUs of one host, and what goes from one to the other. */
@Timeout(120)
class CudaPeersGpuTest {
  private static final int BYTES = 256 << 20;
  private static final int ROUNDS = 10;

  private Driver driver;
  private TaskRuntime tasks;

  @BeforeEach
  void open() {
    driver = CudaGpu.open();
    boolean two = driver.deviceCount() > 1;
    if (!two) {
      System.out.println("!! ONE GPU: the tests between two were NOT run");
    }
    assumeTrue(two, "one GPU");
    tasks = TaskRuntime.open(TaskConfig.DEFAULT);
  }

  @AfterEach
  void close() {
    if (tasks != null) {
      tasks.close();
    }
    if (driver != null) {
      driver.close();
    }
  }

  private Device device(int ordinal) {
    return Device.open(
        tasks,
        DeviceContext.open(tasks, driver, ordinal, DeviceConfig.defaults()),
        MemoryConfig.defaults());
  }

  /** The rate is printed, with whether it went directly. */
  @Test
  void copiesGoBothWays() {
    try (Device one = device(0);
        Device two = device(1);
        DeviceBuffer here = one.allocate(BYTES);
        DeviceBuffer there = two.allocate(BYTES)) {
      there.fillInts(0x01020304);
      here.copyFrom(there);
      there.fill((byte) 0);
      assertThat(here.slice(BYTES - 64, 64).toInts()).containsOnly(0x01020304);
      assertThat(here.slice(0, 64).toInts()).containsOnly(0x01020304);
      there.copyFrom(here);
      assertThat(there.slice(BYTES / 2, 64).toInts()).containsOnly(0x01020304);
      one.stream().reached().await();
      two.stream().reached().await();
      long start = System.nanoTime();
      for (int i = 0; i < ROUNDS; i++) {
        here.copyFrom(there);
      }
      one.stream().reached().await();
      double seconds = 1e-9 * (System.nanoTime() - start);
      boolean direct =
          one.context()
              .driverCall(
                  DriverCall.CONNECT,
                  "ask whether it is direct",
                  () ->
                      driver.connect(one.context().nativeContext(), two.context().nativeContext()));
      System.out.printf(
          "copies from GPU 1 to GPU 0: %.1f GB/s, direct: %s%n",
          1e-9 * BYTES * ROUNDS / seconds, direct);
    }
  }

  @Test
  void aBufferMayBeClosedWhileItIsCopied() {
    try (Device one = device(0);
        Device two = device(1);
        DeviceBuffer here = one.allocate(1 << 20)) {
      for (int round = 0; round < 50; round++) {
        try (DeviceBuffer there = two.allocate(1 << 20)) {
          there.fill((byte) round);
          here.copyFrom(there);
        }
        try (DeviceBuffer next = two.allocate(1 << 20)) {
          next.fill((byte) -1);
        }
        assertThat(here.toBytes()).containsOnly(round);
      }
    }
  }
}
