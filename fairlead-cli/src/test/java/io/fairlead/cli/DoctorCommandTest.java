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

  @Test
  void theMaskHasAsManyProcessorsAsJavaSees() {
    String mask = DoctorCommand.affinity();
    org.junit.jupiter.api.Assumptions.assumeTrue(mask != null, "the system tells no mask");
    int allowed = 0;
    for (String range : mask.split(",", -1)) {
      String[] ends = range.split("-", -1);
      allowed +=
          Integer.parseInt(ends[ends.length - 1].strip()) - Integer.parseInt(ends[0].strip()) + 1;
    }
    assertThat(Runtime.getRuntime().availableProcessors()).isLessThanOrEqualTo(allowed);
  }
}
