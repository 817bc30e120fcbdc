package io.fairlead.fault;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class MutantTest {
  @Test
  @SuppressWarnings("try") // closes twice on purpose
  void isOnOnlyWhileEnabled() {
    assertThat(Mutant.available()).as("the test JVM is started with -Dfairlead.mutants").isTrue();
    assertThat(Mutant.on("test.some-bug")).isFalse();
    try (Mutant.Handle bug = Mutant.enable("test.some-bug")) {
      assertThat(Mutant.on("test.some-bug")).isTrue();
      assertThat(Mutant.on("test.another")).isFalse();
      bug.close();
      assertThat(Mutant.on("test.some-bug")).isFalse();
    }
  }
}
