package io.fairlead.runtime;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.memory.MemoryPool;
import io.fairlead.task.WaitMode;
import java.util.Map;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class FairleadConfigTest {

  @Test
  void withoutPropertiesItIsTheDefaults() {
    assertThat(FairleadConfig.from(new Properties())).isEqualTo(FairleadConfig.defaults());
    assertThat(FairleadConfig.defaults().device()).isEqualTo("auto");
    assertThat(FairleadConfig.defaults().waitMode()).isEqualTo(WaitMode.NONBLOCKING);
  }

  @Test
  void readsEveryProperty() {
    FairleadConfig config =
        from(
            Map.of(
                "fairlead.device", "host",
                "fairlead.sync", "spin",
                "fairlead.host.devices", "2",
                "fairlead.host.workers", "3",
                "fairlead.device.memory", "64m",
                "fairlead.memory.pool", "driver"));

    assertThat(config.device()).isEqualTo("host");
    assertThat(config.waitMode()).isEqualTo(WaitMode.SPIN);
    assertThat(config.memoryWithLimit().limitBytes()).isEqualTo(64 << 20);
    assertThat(config.memory().pool()).isEqualTo(MemoryPool.DRIVER);
    assertThat(config.hostSettings())
        .containsExactlyInAnyOrderEntriesOf(
            Map.of("devices", "2", "workers", "3", "memory", Long.toString(64 << 20)));
  }

  @ParameterizedTest
  @CsvSource({
    "fairlead.host.devices, none",
    "fairlead.host.devices, 0",
    "fairlead.host.workers, -1",
    "fairlead.host.workers, 4096",
    "fairlead.device.memory, lots",
    "fairlead.device.memory, 0",
    "fairlead.memory.pool, lake",
    "fairlead.sync, sometimes"
  })
  void namesThePropertyThatIsWrong(String name, String value) {
    assertThatThrownBy(() -> from(Map.of(name, value)))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining(name)
        .hasMessageContaining(value);
  }

  @Test
  void refusesAnEmptyDevice() {
    assertThatThrownBy(() -> from(Map.of("fairlead.device", " ")))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("auto");
  }

  @Test
  void settingsByHandWin() {
    FairleadConfig config =
        FairleadConfig.defaults().withHostDevices(2).withDriverSetting("devices", "3");

    assertThat(config.hostSettings()).isEqualTo(Map.of("devices", "3"));
  }

  private static FairleadConfig from(Map<String, String> values) {
    Properties properties = new Properties();
    properties.putAll(values);
    return FairleadConfig.from(properties);
  }
}
