package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;

import java.util.Properties;
import org.junit.jupiter.api.Test;

/** Runs where the package is open, and once more where it is closed: see the module's pom. */
class CarrierModeTest {
  private static final boolean OPEN = !Boolean.getBoolean("fairlead.test.closed");

  private static TaskConfig config(String carriers) {
    Properties properties = new Properties();
    properties.setProperty("fairlead.carriers", carriers);
    return TaskConfig.from(properties);
  }

  @Test
  void theTestsRunOnWhatTheyAreMeantToRunOn() {
    assertThat(VirtualThreads.closed() == null).isEqualTo(OPEN);
  }

  @Test
  void autoTakesOwnCarriersWhereThePackageIsOpen() {
    try (TaskRuntime runtime = TaskRuntime.open(config("auto"))) {
      CarrierReport report = runtime.carriers();
      assertThat(report.mode()).isEqualTo(OPEN ? CarrierMode.OWN : CarrierMode.JDK);
      assertThat(report.why()).startsWith("auto: ").contains("java.lang");
      assertThat(report.flag()).isEqualTo("--add-opens java.base/java.lang=ALL-UNNAMED");
      assertThat(report.carriers())
          .isEqualTo(OPEN ? Runtime.getRuntime().availableProcessors() : 0);
    }
  }

  @Test
  void ownFailsWithTheFlagWhereItIsClosed() {
    if (OPEN) {
      try (TaskRuntime runtime = TaskRuntime.open(config("Own"))) {
        assertThat(runtime.carriers().mode()).isEqualTo(CarrierMode.OWN);
      }
    } else {
      assertThatIllegalStateException()
          .isThrownBy(() -> TaskRuntime.open(config("Own")))
          .withMessageContaining("pass --add-opens java.base/java.lang=ALL-UNNAMED");
    }
  }

  @Test
  void jdkIsTakenWhereverItIsAskedFor() {
    try (TaskRuntime runtime = TaskRuntime.open(config("jdk"))) {
      assertThat(runtime.carriers().mode()).isEqualTo(CarrierMode.JDK);
      assertThat(runtime.carriers().why()).isEqualTo("asked for");
    }
  }

  @Test
  void otherWordsAreRefused() {
    assertThatIllegalArgumentException()
        .isThrownBy(() -> config("mine"))
        .withMessage("property fairlead.carriers: carriers 'mine': use auto, own or jdk");
  }
}
