package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class ProcessorsTest {

  @Test
  void readsWhatTheSystemLists() {
    assertThat(Processors.parse("0")).containsExactly(0);
    assertThat(Processors.parse("0-3,8, 10-11")).containsExactly(0, 1, 2, 3, 8, 10, 11);
  }

  @Test
  void takesOneOfEachCoreFirst() {
    List<Integer> allowed = List.of(0, 1, 2, 3, 5);
    // as many systems number them: neighbours, or halves
    assertThat(Processors.coresFirst(allowed, p -> List.of(p & ~1, p | 1)))
        .containsExactly(0, 2, 5, 1, 3);
    assertThat(Processors.coresFirst(allowed, p -> List.of(p % 3, p % 3 + 3)))
        .containsExactly(0, 1, 2, 3, 5);
  }

  @Test
  void theMaskHasAsManyProcessorsAsJavaSees() {
    String mask = Processors.affinity();
    assumeTrue(mask != null, "the system tells no mask");
    assertThat(Runtime.getRuntime().availableProcessors())
        .isLessThanOrEqualTo(Processors.parse(mask).size());
    assertThat(Processors.coresFirst()).containsExactlyInAnyOrderElementsOf(Processors.parse(mask));
  }
}
