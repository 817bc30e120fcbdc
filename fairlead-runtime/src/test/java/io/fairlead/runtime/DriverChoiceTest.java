package io.fairlead.runtime;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.DriverProvider;
import io.fairlead.host.HostDriverProvider;
import java.net.URL;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;

/** Law 6: nothing falls back quietly. */
class DriverChoiceTest {
  private static final DriverProvider HOST = new HostDriverProvider();
  private static final DriverProvider NO_CUDA =
      new Stub("cuda", 100, new DriverProvider.Probe.Unavailable("libcuda.so.1 is not here"), 0);
  private static final DriverProvider BROKEN_CUDA =
      new Stub(
          "cuda", 100, new DriverProvider.Probe.Available("13.0", 1), DriverException.NOT_FOUND);

  @Test
  void autoTakesTheBestThatWorksAndSaysWhatItPassedOver() {
    DriverChoice choice = DriverChoice.open(config("auto"), List.of(HOST, NO_CUDA));
    try (Driver driver = choice.driver()) {
      assertThat(driver.name()).isEqualTo("host");
      assertThat(choice.reason()).contains("passed over cuda: libcuda.so.1 is not here");
    }
  }

  @Test
  void autoPassesOverADriverThatDoesNotOpen() {
    DriverChoice choice = DriverChoice.open(config("auto"), List.of(BROKEN_CUDA, HOST));
    try (Driver driver = choice.driver()) {
      assertThat(driver.name()).isEqualTo("host");
      assertThat(choice.reason()).contains("cuda did not open: broken on purpose");
    }
  }

  @Test
  void autoNeedsNoExcuseForTheBest() {
    try (Driver driver = DriverChoice.open(config("auto"), List.of(HOST)).driver()) {
      assertThat(driver.name()).isEqualTo("host");
    }
  }

  @Test
  void aNamedDriverThatIsNotThereFailsWithTheReason() {
    assertThatThrownBy(() -> DriverChoice.open(config("cuda"), List.of(HOST, NO_CUDA)))
        .isInstanceOf(DriverUnavailableException.class)
        .hasMessageContaining("'cuda'")
        .hasMessageContaining("libcuda.so.1 is not here");
  }

  @Test
  void aNamedDriverThatDoesNotOpenFailsWithItsCause() {
    assertThatThrownBy(() -> DriverChoice.open(config("cuda"), List.of(HOST, BROKEN_CUDA)))
        .isInstanceOf(DriverUnavailableException.class)
        .hasMessageContaining("broken on purpose")
        .hasCauseInstanceOf(DriverException.class);
  }

  @Test
  void anUnknownNameIsToldWhatThereIs() {
    assertThatThrownBy(() -> DriverChoice.open(config("vulkan"), List.of(HOST, NO_CUDA)))
        .isInstanceOf(DriverUnavailableException.class)
        .hasMessageContaining("no driver named 'vulkan'")
        .hasMessageContaining("host, cuda");
  }

  @Test
  void anEmptyPathIsToldWhatToAdd() {
    assertThatThrownBy(() -> DriverChoice.open(config("auto"), List.of()))
        .isInstanceOf(DriverUnavailableException.class)
        .hasMessageContaining("io.fairlead.host");
  }

  @Test
  void aWrongSettingIsRefusedByTheDriver() {
    FairleadConfig config = config("host").withDriverSetting("colour", "blue");
    assertThatThrownBy(() -> DriverChoice.open(config, List.of(HOST)))
        .isInstanceOf(DriverUnavailableException.class)
        .hasMessageContaining("colour");
  }

  private static FairleadConfig config(String device) {
    return FairleadConfig.defaults().withDevice(device);
  }

  private record Stub(String name, int preference, Probe probe, int status)
      implements DriverProvider {
    @Override
    public Driver open(Map<String, String> settings) {
      throw new DriverException(status, "BROKEN", false, "broken on purpose", null);
    }
  }

  @Test
  void driversAreLookedForWhereTheCallerFindsItsClasses() {
    List<String> asked = new CopyOnWriteArrayList<>();
    ClassLoader mine = Thread.currentThread().getContextClassLoader();
    Thread.currentThread().setContextClassLoader(new Listening(mine, asked));
    try (Fairlead fairlead = Fairlead.open(FairleadConfig.defaults().withDevice("host"))) {
      assertThat(fairlead.devices()).isNotEmpty();
    } finally {
      Thread.currentThread().setContextClassLoader(mine);
    }
    assertThat(asked).contains("META-INF/services/" + DriverProvider.class.getName());
  }

  private static final class Listening extends ClassLoader {
    private final List<String> asked;

    Listening(ClassLoader parent, List<String> asked) {
      super(parent);
      this.asked = asked;
    }

    @Override
    protected Enumeration<URL> findResources(String name) {
      asked.add(name);
      return Collections.emptyEnumeration();
    }
  }
}
