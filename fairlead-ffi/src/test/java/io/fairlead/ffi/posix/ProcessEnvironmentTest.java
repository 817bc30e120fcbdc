package io.fairlead.ffi.posix;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** What native libraries of this process see of its environment. */
@DisabledOnOs(value = OS.WINDOWS, disabledReason = "there is no setenv")
class ProcessEnvironmentTest {

  @Test
  void whatIsSetStays() {
    assertThat(ProcessEnvironment.get("FAIRLEAD_TEST_NEVER_SET")).isNull();
    assertThat(ProcessEnvironment.setIfAbsent("FAIRLEAD_TEST_SET", "first")).isTrue();
    assertThat(ProcessEnvironment.setIfAbsent("FAIRLEAD_TEST_SET", "second")).isTrue();
    assertThat(ProcessEnvironment.get("FAIRLEAD_TEST_SET")).isEqualTo("first");
  }

  @Test
  void aValueOfAnyLengthIsReadWhole() {
    String path = "/some/folder:".repeat(1_000);
    assertThat(ProcessEnvironment.setIfAbsent("FAIRLEAD_TEST_LONG", path)).isTrue();
    assertThat(ProcessEnvironment.get("FAIRLEAD_TEST_LONG")).isEqualTo(path);
  }
}
