package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.Fairlead;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The same joins on a GPU: the groups of plain Java and of the host device. */
@Timeout(300)
class JoinOnCudaGpuTest {
  @BeforeEach
  void requireGpu() {
    DriverReport cuda =
        Fairlead.drivers().stream()
            .filter(driver -> driver.name().equals("cuda"))
            .findFirst()
            .orElse(new DriverReport("cuda", false, 0, "its provider is not on the path"));
    if (!cuda.available()) {
      System.err.println("!! NOT RUN: needs a CUDA device: " + cuda.text());
    }
    assumeTrue(cuda.available(), cuda.text());
  }

  @ParameterizedTest
  @CsvSource({
    "1,0,1,1",
    "2,0,8,4",
    "10001,0,8,0",
    "100003,0.8,16,0",
    "100003,1.5,32,64",
    "1000000,0,8,0",
    "1000000,1,16,256"
  })
  void groupsAreThoseOfTheHost(int rows, double skew, int tasks, int partitions) {
    String found = digest("cuda", rows, skew, tasks, partitions);
    assertThat(found).isEqualTo(digest("host", rows, skew, tasks, partitions));
  }

  private static String digest(String device, int rows, double skew, int tasks, int partitions) {
    Run run =
        Run.fairlead(
            "join",
            "--rows",
            rows,
            "--skew",
            skew,
            "--tasks",
            tasks,
            partitions == 0 ? "--seed=1" : "--partitions=" + partitions,
            "--device",
            device,
            "--check",
            "--json",
            "-");
    assertThat(run.code()).as("on %s: %s", device, run.err()).isZero();
    assertThat(run.out()).contains("\"plain Java\": \"the same\"", "\"in core\": \"the same\"");
    String after = run.out().substring(run.out().indexOf("\"digest\": \"") + 11);
    return after.substring(0, 16);
  }
}
