package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class DoctorCommandTest {

  @Test
  void saysWhatIsUsedAndWhy() {
    Run run = Run.fairlead("doctor");
    assertThat(run.code()).isEqualTo(ExitCode.OK);
    assertThat(run.err()).isEmpty();
    assertThat(run.out())
        .contains("processors  " + Runtime.getRuntime().availableProcessors())
        .contains("carriers    own (auto: java.lang is open to us)")
        .contains("for own ones: java --add-opens java.base/java.lang=ALL-UNNAMED")
        .containsPattern("driver      host .*devices: [1-9]")
        .contains("driver      cuda");
  }

  @Test
  void saysItInJson() {
    Run run = Run.fairlead("doctor", "--json");
    assertThat(run.code()).isEqualTo(ExitCode.OK);
    assertThat(run.out())
        .contains("\"mode\": \"own\"")
        .contains("\"flag\": \"--add-opens java.base/java.lang=ALL-UNNAMED\"")
        .contains("\"name\": \"host\"");
  }
}
