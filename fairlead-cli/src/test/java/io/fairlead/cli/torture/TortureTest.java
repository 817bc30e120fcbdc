package io.fairlead.cli.torture;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.Mutant;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A short torture finds nothing, and finds what is put in. */
@Timeout(300)
class TortureTest {
  private static final long MEMORY = 1 << 20;
  private static final int SEEDS_MAX = 60;

  @TempDir private Path directory;

  private Round.Plan plan(int actors, int steps) {
    return new Round.Plan("host", MEMORY, directory, actors, steps);
  }

  @ParameterizedTest
  @ValueSource(longs = {1, 2, 4})
  void nothingIsWrong(long seed) {
    Tally tally = Round.run(seed, plan(12, 20), device -> {});
    assertThat(tally.checks.sum()).isPositive();
    assertThat(tally.spills.sum()).isPositive();
    assertThat(directory).isEmptyDirectory();
  }

  /**
   * Those that it finds within seconds wherever it runs; it finds slower ones, too, and where
   * threads run side by side such as {@code spill.image.early}, which one processor hides.
   */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "ledger.write.skip",
        "spill.generation.skip",
        "download.early",
        "staging.recycle.early",
        "pool.frontier.skip"
      })
  void whatIsPutInIsFound(String bug) {
    String found = null;
    try (var _ = Mutant.enable(bug)) {
      for (long seed = 1; found == null && seed <= SEEDS_MAX; seed++) {
        found = failure(seed);
      }
    }
    assertThat(found).as("of %d seeds, with %s", SEEDS_MAX, bug).isNotNull();
  }

  private String failure(long seed) {
    StringWriter lines = new StringWriter();
    try (LogWatch log = LogWatch.begin(new PrintWriter(lines))) {
      Round.run(seed, plan(24, 30), device -> {});
      log.require();
      return null;
    } catch (RuntimeException found) {
      return String.valueOf(found.getMessage()).lines().findFirst().orElse("");
    }
  }

  @Test
  void aSeedSaysWhatFails() {
    assertThat(Round.describe(7)).isEqualTo(Round.describe(7)).contains("pool ");
  }
}
