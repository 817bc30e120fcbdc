package io.fairlead.ffi;

import static io.fairlead.device.Param.I64;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.Mark;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.memory.MemoryPool;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * What buffers are promised, whichever pool their memory comes from. A subclass says which driver.
 */
@Timeout(120)
abstract class MemoryPoolContract {
  private static final long SEED = 20_261_130;
  private static final int BYTES = 64 << 10;
  private static final int TASKS = 12;
  private static final int ROUNDS = 40;
  private static final long LIMIT = 4L << 20;

  private final TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
  private Driver driver;
  private Device device;

  abstract Driver openDriver();

  /** Has the kernel {@code hold}, which waits until the number at an address is not 0. */
  abstract ModuleImage image();

  private void open(MemoryConfig config) {
    driver = openDriver();
    device =
        Device.open(tasks, DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults()), config);
  }

  @AfterEach
  void close() {
    if (device != null) {
      device.close();
    }
    if (driver != null) {
      driver.close();
    }
    tasks.close();
  }

  private static MemoryConfig of(MemoryPool pool) {
    return MemoryConfig.defaults().withPool(pool);
  }

  @ParameterizedTest
  @EnumSource
  void noBlockIsHandedOnWhileItIsUsed(MemoryPool pool) {
    open(of(pool));
    Kernel hold = device.load(new ModuleSource("rules", List.of(image()))).kernel("hold", I64);
    try (DeviceStream slow = device.context().openStream(0);
        HostBlock flag = device.context().hostBlocks().take(Long.BYTES);
        HostBlock read = device.context().hostBlocks().take(BYTES)) {
      flag.segment().set(JAVA_LONG, 0, 0);
      warmUp();
      DeviceBuffer buffer = device.allocate(BYTES);
      hold.launch(slow, CudaKernels.ALONE, flag.segment().address());
      slow.fill(buffer, 0, BYTES, (byte) 7);
      Mark copied = new Mark(slow, slow.copyToHost(read.segment(), buffer, 0));
      buffer.close();

      DeviceBuffer next = device.allocate(BYTES);
      next.fill((byte) 9);
      assertThat(next.toBytes()).as("does not wait for the held stream").containsOnly(9);
      flag.segment().set(JAVA_LONG, 0, 1);
      slow.reached(copied).await();
      assertThat(read.segment().toArray(JAVA_BYTE)).containsOnly(7);
      assertThat(next.toBytes()).containsOnly(9);
      next.close();
    }
  }

  /** A driver may wait for kernels to make what is needed: so it is made before. */
  private void warmUp() {
    try (DeviceBuffer one = device.allocate(BYTES);
        DeviceBuffer other = device.allocate(BYTES)) {
      other.copyFrom(one);
      assertThat(other.toBytes()).hasSize(BYTES);
    }
  }

  @ParameterizedTest
  @EnumSource
  void everyTaskFindsWhatItWroteWithinTheLimit(MemoryPool pool) {
    open(of(pool).withLimit(LIMIT));
    try (TaskScope<Integer> scope = tasks.scope()) {
      for (int i = 0; i < TASKS; i++) {
        SplittableRandom random = new SplittableRandom(SEED + i);
        scope.fork(() -> writesAndReads(random));
      }
      assertThat(scope.join()).hasSize(TASKS).containsOnly(ROUNDS);
    }
    device.context().reached().await();
    while (device.memory().inUse() > 0) {
      Thread.onSpinWait(); // whoever has seen the last free reached is about to count it
    }
    assertThat(device.memory().peak()).isLessThanOrEqualTo(LIMIT);
    device.trim().await();
    assertThat(device.memory().cached()).isZero();
  }

  private int writesAndReads(SplittableRandom random) {
    for (int round = 0; round < ROUNDS; round++) {
      int bytes = BYTES >> random.nextInt(4);
      byte value = (byte) random.nextInt();
      try (DeviceBuffer buffer = device.allocate(bytes)) {
        buffer.fill(value);
        if (random.nextBoolean()) {
          assertThat(buffer.toBytes()).containsOnly(value);
        }
      }
    }
    return ROUNDS;
  }

  @ParameterizedTest
  @EnumSource
  void allOfTheLimitCanBeHadInAnySizes(MemoryPool pool) {
    open(of(pool).withLimit(LIMIT));
    for (int parts = 1; parts <= 16; parts *= 2) {
      List<DeviceBuffer> buffers = new ArrayList<>();
      for (int i = 0; i < parts; i++) {
        buffers.add(device.allocate(LIMIT / parts));
      }
      assertThat(device.memory().inUse()).isEqualTo(LIMIT);
      buffers.forEach(DeviceBuffer::close);
    }
  }

  @Test
  void inSteadyStateTheDriverIsNotAsked() {
    open(of(MemoryPool.FAIRLEAD));
    tasks.enter(
        "steady",
        0,
        () -> {
          device.allocate(BYTES).close();
          long operations = device.context().stats().operations();
          for (int i = 0; i < 1000; i++) {
            device.allocate(BYTES).close();
          }
          assertThat(device.context().stats().operations()).isEqualTo(operations);
          assertThat(device.memory().reused()).isEqualTo(1000);
          return null;
        });
  }
}
