package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

class DoctorCommandTest {
  private static final String LIBRARY_PROPERTY = "fairlead.cuda.library";
  private static final String POOL_PROPERTY = "fairlead.memory.pool";

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

  /** On the stand-in, whose devices are as an H200. */
  @Test
  @EnabledOnOs(OS.LINUX)
  void saysInWhichFormAGpuTakesTheKernels(@TempDir Path folder) {
    String before = System.getProperty(LIBRARY_PROPERTY);
    System.setProperty(LIBRARY_PROPERTY, StandInDriver.build(folder).toString());
    try {
      Run run = Run.fairlead("doctor");
      assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.OK);
      assertThat(run.out())
          .contains("kernels     cuda 0 (Stand-in 0, sm_90): prebuilt machine code")
          .contains("kernels     cuda 1 (Stand-in 1, sm_90): prebuilt machine code")
          .containsPattern("memory      cuda 0 .Stand-in 0, sm_90.: .*, free .*, ours .*, others ");
      assertThat(Run.fairlead("doctor", "--json").out())
          .contains("\"cuda 0 (Stand-in 0, sm_90)\": \"prebuilt machine code\"")
          .contains("\"pool_unused\": ")
          .contains("\"others\": ");
    } finally {
      if (before == null) {
        System.clearProperty(LIBRARY_PROPERTY);
      } else {
        System.setProperty(LIBRARY_PROPERTY, before);
      }
    }
  }

  @Test
  void namesASettingThatCannotBe() {
    System.setProperty(POOL_PROPERTY, "none");
    try {
      Run run = Run.fairlead("doctor", "--waits");
      assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.OK);
      assertThat(run.out())
          .contains("setting     wrong: property fairlead.memory.pool is 'none'")
          .doesNotContain("waits       ");
      Run solve = Run.fairlead("solve", "--poisson", "2");
      assertThat(solve.code()).isEqualTo(ExitCode.USAGE);
      assertThat(solve.err()).contains("property fairlead.memory.pool is 'none'");
      assertThat(Run.fairlead("doctor", "--json").out()).contains("\"wrong_setting\": \"property ");
    } finally {
      System.clearProperty(POOL_PROPERTY);
    }
  }

  @Test
  void triesTheWaitingModesIfAsked() {
    Run run = Run.fairlead("doctor", "--waits");
    assertThat(run.code()).isEqualTo(ExitCode.OK);
    assertThat(run.out())
        .containsPattern("waits       host: nonblocking \\d+ % of a core")
        .containsPattern("waits       host: blocking \\d+ % of a core\\R")
        .containsPattern("waits       host: spin \\d+ % of a core\\R");
    assertThat(Run.fairlead("doctor", "--waits", "--json").out())
        .contains("\"mode\": \"nonblocking\"")
        .contains("\"as_said\": true");
    assertThat(Run.fairlead("doctor").out()).doesNotContain("waits       ");
  }
}
