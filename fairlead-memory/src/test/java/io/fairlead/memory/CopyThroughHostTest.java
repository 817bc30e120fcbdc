package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.spi.Driver;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Copies between devices of a driver that copies only within one. */
@Timeout(60)
class CopyThroughHostTest {
  private static final long CHUNK = 64 << 10;

  private static Driver withoutPeerCopies() {
    Driver host = new HostDriverProvider().open(Map.of("devices", "2", "memory", "4m"));
    return DriverAround.of(
        host, (name, _, call) -> name.equals("capabilities") ? Set.of() : call.make());
  }

  @Test
  void bringsAllChunks() {
    Driver driver = withoutPeerCopies();
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Device one = device(tasks, driver, 0);
        Device two = device(tasks, driver, 1);
        DeviceBuffer here = one.allocate(5 * CHUNK);
        DeviceBuffer there = two.allocate(5 * CHUNK)) {
      int[] values = IntStream.range(0, (int) (5 * CHUNK / 4)).toArray();
      there.upload(values);
      here.copyFrom(there);
      there.fill((byte) 0);
      assertThat(here.toInts()).isEqualTo(values);
      assertThat(one.context().canCopyFrom(two.context())).isFalse();
      assertThatThrownBy(
              () -> one.stream().copyFromPeer(here, 0, two.context(), there.forPeers(), 0, 8))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("copy to host memory");
    }
    driver.close();
  }

  private static Device device(TaskRuntime tasks, Driver driver, int ordinal) {
    return Device.open(
        tasks,
        DeviceContext.open(tasks, driver, ordinal, DeviceConfig.defaults()),
        MemoryConfig.defaults().withChunk(CHUNK));
  }
}
