package io.fairlead.runtime;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.runtime.ReadmeExample.Batch;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The README's example runs. That the README shows it as it is, SnippetsTest in the lab checks. */
class ReadmeTest {
  @Test
  void theExampleRuns() {
    List<Batch> batches =
        List.of(
            new Batch(new double[] {1, 2, 3}, new double[] {0.5, 0, 0}),
            new Batch(new double[] {10}, new double[] {-20}));

    assertThat(ReadmeExample.sums(batches)).containsExactly(12.5, 0.0);
  }
}
