package io.fairlead.host;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.DriverProvider;
import java.util.Map;
import java.util.ServiceLoader;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class HostDriverProviderTest {

  @Test
  void isFoundAndAvailable() {
    DriverProvider provider =
        ServiceLoader.load(DriverProvider.class).stream()
            .map(ServiceLoader.Provider::get)
            .filter(p -> p.name().equals("host"))
            .findFirst()
            .orElseThrow();
    assertThat(provider.probe()).isInstanceOf(DriverProvider.Probe.Available.class);
  }

  @Test
  void takesItsSettings() {
    try (Driver driver =
        new HostDriverProvider()
            .open(Map.of("devices", "3", "workers", "2", "memory", "5m", "notify", "false"))) {
      assertThat(driver.deviceCount()).isEqualTo(3);
      assertThat(driver.info(2).workers()).isEqualTo(2);
      assertThat(driver.info(2).memoryBytes()).isEqualTo(5 << 20);
      assertThat(driver.capabilities())
          .containsExactlyInAnyOrder(
              Capability.JAVA_KERNELS, Capability.PEER_COPY, Capability.GRAPHS);
    }
  }

  @Test
  void hasMemoryByDefault() {
    try (Driver driver = new HostDriverProvider().open(Map.of())) {
      assertThat(driver.info(0).memoryBytes()).isGreaterThanOrEqualTo(1 << 20);
      assertThat(driver.info(0).workers()).isPositive();
    }
  }

  @ParameterizedTest
  @CsvSource({
    "worker, 2, worker",
    "workers, 0, workers",
    "workers, 65, workers",
    "devices, many, devices",
    "memory, -5, memory",
    "memory, 9999999999g, memory",
    "memory, '', memory",
    "strict, yes, strict",
    "spinMicros, -1, spinMicros",
  })
  void refusesWrongSettingsByName(String key, String value, String named) {
    assertThatThrownBy(() -> new HostDriverProvider().open(Map.of(key, value)))
        .isInstanceOfSatisfying(
            DriverException.class,
            e -> assertThat(e.status()).isEqualTo(DriverException.INVALID_VALUE))
        .hasMessageContaining("'" + named + "'");
  }

  @Test
  void namesTheDevicesThereAre() {
    try (Driver driver = new HostDriverProvider().open(Map.of("devices", "2"))) {
      assertThatThrownBy(() -> driver.retain(2))
          .isInstanceOfSatisfying(
              DriverException.class,
              e -> assertThat(e.status()).isEqualTo(DriverException.INVALID_DEVICE))
          .hasMessageContaining("there are 2");
    }
  }
}
