package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.cli.Progress;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** V-cycles in each waiting mode, on the host device. */
@Timeout(180)
class CudaVCyclesTest {
  @Test
  void eachModeIsMeasuredOnTheSameSetup() throws Exception {
    StringWriter said = new StringWriter();
    CudaRuns runs =
        new CudaRuns(
            new CudaPeer(Path.of("none"), ""),
            null,
            Progress.to(new PrintWriter(said, true), false));
    runs.begin("V-cycles");
    List<String> args =
        List.of(
            "bench", "cuda-vcycle-worker", "--device=host", "--small=2", "--large=2", "--grid=24");
    runs.measure("vcycle", args, List.of(), ChildProcess.Place.all(), Duration.ofSeconds(150));
    assertThat(runs.failed()).as(said.toString()).isZero();
    List<Row> rows = CudaVCycles.rows(runs);
    assertThat(rows.stream().map(Row::id)).containsExactlyElementsOf(CudaVCycles.ids());
    assertThat(rows).allSatisfy(row -> assertThat(row.value()).isPositive());
    assertThat(rows.stream().filter(row -> row.id().equals("cuda.vcycle.large.side")))
        .singleElement()
        .satisfies(row -> assertThat(row.value()).isEqualTo(24));
  }

  /** A large problem that cannot be; the small one was measured by then. */
  @Test
  void whatAProcessSaidBeforeItFailedCounts() throws Exception {
    StringWriter said = new StringWriter();
    CudaRuns runs =
        new CudaRuns(
            new CudaPeer(Path.of("none"), ""),
            null,
            Progress.to(new PrintWriter(said, true), false));
    runs.begin("V-cycles");
    List<String> args =
        List.of(
            "bench", "cuda-vcycle-worker", "--device=host", "--small=1", "--large=1", "--grid=-1");
    ChildProcess.Place all = ChildProcess.Place.all();
    runs.measure("vcycle", args, List.of(), all, Duration.ofSeconds(150));
    assertThat(runs.failed()).isEqualTo(1);
    List<String> ids = CudaVCycles.rows(runs).stream().map(Row::id).toList();
    assertThat(ids).contains("cuda.vcycle.64.1rank.spin").doesNotContain("cuda.vcycle.large.side");
  }

  @Test
  void aProblemWhoseSetupWouldTakeTooLongShrinks() {
    // with eight times the unknowns: 10 s, and 1.3 times as much since it is larger
    assertThat(CudaVCycleWorker.sideThatFits(256, 128, 1.25, 13.1)).isEqualTo(256);
    assertThat(CudaVCycleWorker.sideThatFits(256, 128, 1.25, 12.9)).isEqualTo(248);
    assertThat(CudaVCycleWorker.sideThatFits(256, 128, 1e9, 1)).isEqualTo(8);
    assertThat(CudaVCycleWorker.secondsOf(256, 128, 1.25)).isEqualTo(13, within(1e-9));
  }
}
