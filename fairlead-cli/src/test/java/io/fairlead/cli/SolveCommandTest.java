package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.solver.DenseColumns;
import io.fairlead.solver.MatrixMarket;
import io.fairlead.solver.ReadProgress;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The command as a user runs it, in this process. */
@Timeout(120)
class SolveCommandTest {
  private static final Path BUS = Path.of("../data/1138_bus.mtx");

  @TempDir Path folder;

  @Test
  void theBusMatrixIsSolvedAndXIsOne() throws IOException {
    Path out = folder.resolve("x.mtx");
    Run run = Run.fairlead("solve", BUS, "--device", "host", "--out", out);
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out()).startsWith("solved in ").contains("1,138 rows", "levels", "time");
    DenseColumns x = MatrixMarket.readColumns(out, 1138, "x", ReadProgress.SILENT);
    assertThat(distanceFromOnes(x)).isLessThanOrEqualTo(1e-4);
  }

  @Test
  void jsonOnStandardOutputIsAllThatStandsThere() {
    Run run = Run.fairlead("solve", BUS, "--device", "host", "--json", "-");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out()).startsWith("{").endsWith("}\n");
    assertThat(run.out())
        .contains(
            "\"converged\": true",
            "\"iterations\"",
            "\"relativeResidual\"",
            "\"xNorm2\"",
            "\"xSum\"",
            "\"rows\": 1138",
            "\"entries\": 4054",
            "\"levels\"",
            "\"ranks\": 1",
            "\"device\"",
            "\"sync\": \"nonblocking\"",
            "\"peakBytes\"",
            "\"read\"",
            "\"setup\"",
            "\"solve\"",
            "\"kernels\"",
            "\"waits\"",
            "\"messages\"");
    assertThat(run.err()).contains("solved in");
  }

  @Test
  void theSolutionOnStandardOutputIsAllThatStandsThere() throws IOException {
    Run run = Run.fairlead("solve", BUS, "--device", "host", "--out", "-");
    assertThat(run.code()).as(run.err()).isZero();
    Path out = Files.writeString(folder.resolve("x.mtx"), run.out());
    DenseColumns x = MatrixMarket.readColumns(out, 1138, "x", ReadProgress.SILENT);
    assertThat(distanceFromOnes(x)).isLessThanOrEqualTo(1e-4);
    assertThat(run.err()).contains("solved in");
    Run both = Run.fairlead("solve", BUS, "--out", "-", "--json", "-");
    assertThat(both.code()).isEqualTo(ExitCode.USAGE);
    assertThat(both.err()).contains("standard output");
  }

  @Test
  void oneIterationIsNotSeveral() throws IOException {
    Path file =
        Files.writeString(
            folder.resolve("a.mtx"),
            "%%MatrixMarket matrix coordinate real symmetric\n1 1 1\n1 1 2\n");
    Run run = Run.fairlead("solve", file, "--device", "host", "--precond", "none");
    assertThat(run.out()).as(run.err()).startsWith("solved in 1 iteration:");
  }

  @Test
  void anOutputThatEndsInGzIsPacked() throws IOException {
    Path out = folder.resolve("x.mtx.gz");
    Run run = Run.fairlead("solve", "--poisson", 10, "--device", "host", "--out", out);
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(Files.readAllBytes(out)).startsWith(0x1f, 0x8b);
    assertThat(MatrixMarket.readColumns(out, 1000, "x", ReadProgress.SILENT).count()).isEqualTo(1);
  }

  @ParameterizedTest
  @CsvSource({"1,nonblocking", "1,blocking", "1,spin", "2,nonblocking", "2,blocking", "4,spin"})
  void everyWaitingModeAndNumberOfRanksSolves(int ranks, String sync) throws IOException {
    Path out = folder.resolve("x.mtx");
    Run run =
        Run.fairlead(
            "solve",
            "--poisson",
            12,
            "--device",
            "host",
            "--ranks",
            ranks,
            "--sync",
            sync,
            "--out",
            out);
    assertThat(run.code()).as(run.err()).isZero();
    DenseColumns x = MatrixMarket.readColumns(out, 1728, "x", ReadProgress.SILENT);
    assertThat(distanceFromOnes(x)).isLessThanOrEqualTo(1e-6);
  }

  @ParameterizedTest
  @ValueSource(strings = {"amg", "jacobi", "none"})
  void everyPreconditionerSolves(String precond) {
    Run run = Run.fairlead("solve", "--poisson", 10, "--device", "host", "--precond", precond);
    assertThat(run.code()).as(run.err()).isZero();
  }

  @Test
  void severalRightHandSidesGiveSeveralColumns() throws IOException {
    double[] first = new double[1000];
    Arrays.fill(first, 1.0);
    double[] second = new double[1000];
    second[17] = 3.0;
    Path b = folder.resolve("b.mtx");
    MatrixMarket.writeColumns(b, new DenseColumns(1000, first, second));
    Path out = folder.resolve("x.mtx");
    Run run = Run.fairlead("solve", "--poisson", 10, "--rhs", b, "--out", out, "--device", "host");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out()).contains("2 systems");
    assertThat(MatrixMarket.readColumns(out, 1000, "x", ReadProgress.SILENT).count()).isEqualTo(2);
  }

  @Test
  void startingFromTheSolutionTakesNoIterations() throws IOException {
    Path out = folder.resolve("x.mtx");
    assertThat(Run.fairlead("solve", BUS, "--device", "host", "--out", out).code()).isZero();
    Run again = Run.fairlead("solve", BUS, "--device", "host", "--x0", out, "--tol", "1e-7");
    assertThat(again.code()).as(again.err()).isZero();
    assertThat(again.out()).startsWith("solved in 0 iterations");
  }

  @Test
  void theLimitOfIterationsGivesExitCodeOne() throws IOException {
    Path out = folder.resolve("x.mtx");
    Run run = Run.fairlead("solve", BUS, "--device", "host", "--max-iterations", 2, "--out", out);
    assertThat(run.code()).isEqualTo(ExitCode.NOT_CONVERGED);
    assertThat(run.out()).startsWith("NOT SOLVED");
    assertThat(out).as("what was reached is still the user's").exists();
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "solve",
        "solve --tol 2 a.mtx",
        "solve --tol x a.mtx",
        "solve a.mtx --poisson 3",
        "solve --poisson 675",
        "solve a.mtx --jobs 0",
        "solve a.mtx --ranks 0",
        "solve a.mtx --device gpu",
        "solve a.mtx --device-memory lots",
        "solve a.mtx --sync sleepy",
        "solve a.mtx --frobnicate",
        "nonsense",
        "bench nothing",
        "bench",
        ""
      })
  void wrongUseGivesExitCodeTwoAndSaysWhat(String words) {
    Run run = Run.fairlead((Object[]) (words.isEmpty() ? new String[0] : words.split(" ")));
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.USAGE);
    assertThat(run.err()).isNotBlank().doesNotContain("\tat ", "not an int", "AMG");
    assertThat(run.err().lines().toList()).as("no page of usage").hasSizeLessThan(8);
    assertThat(run.err()).containsPattern("See fairlead( solve| bench|) --help");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "--ranks x|expected a whole number",
        "--jobs 9999999999999|expected a whole number",
        "--tol tight|expected a number, such as 0.5 or 1e-8, not 'tight'",
        "--precond ilu|expected amg, jacobi or none, not 'ilu'",
        "--sync sleepy|expected nonblocking, blocking or spin, not 'sleepy'"
      })
  void whatIsNoNumberOrChoiceIsSaidInPlainWords(String words, String says) {
    Run run = Run.fairlead((Object[]) ("solve a.mtx " + words).split(" "));
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.USAGE);
    assertThat(run.err()).contains(says);
  }

  @Test
  void theHelpIsWhole() {
    assertThat(Run.fairlead("--help").out())
        .contains("69", "FAIRLEAD_JAVA_OPTS", "FAIRLEAD_DATA")
        .contains("positive definite matrix.");
    assertThat(Run.fairlead("solve", "--help").out()).contains("69", "FAIRLEAD_JAVA_OPTS");
    assertThat(Run.fairlead("bench", "--help").out())
        .contains("Exit codes")
        .doesNotContain("COMMAND");
  }

  @Test
  void aGridForASuiteWithoutOneIsRefused() {
    Run run = Run.fairlead("bench", "host", "--grid", 20);
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.USAGE);
    assertThat(run.err()).contains("--grid");
  }

  @Test
  void outputThatDoesNotArriveIsNoSuccess() {
    Writer full =
        new Writer() {
          @Override
          public void write(char[] text, int offset, int length) throws IOException {
            throw new IOException("no space left");
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        };
    StringWriter err = new StringWriter();
    int code =
        Main.run(
            new PrintWriter(full), new PrintWriter(err), "solve", "--poisson", "4", "--out", "-");
    assertThat(code).as("%s", err).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(err.toString()).contains("standard output: cannot be written");
  }

  @Test
  void moreMemoryThanTheLimitIsRefusedWithAReport() throws IOException {
    Run run = Run.fairlead("solve", BUS, "--device", "host", "--device-memory", "16K");
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err()).contains("16").doesNotContain("\tat ").doesNotContain("bug");
    assertThat(run.err()).contains("larger --device-memory");
  }

  @Test
  void cudaWhereThereIsNoneFailsAndSaysWhy() {
    Run run = Run.fairlead("solve", BUS, "--device", "cuda");
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err()).containsIgnoringCase("cuda").doesNotContain("\tat ");
  }

  @Test
  void manyJobsAtOnceStayWithinTheMemoryAndAgree() {
    Run run =
        Run.fairlead(
            "solve",
            "--poisson",
            16,
            "--device",
            "host",
            "--jobs",
            24,
            "--device-memory",
            "6M",
            "--json",
            "-");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(number(run.out(), "peakBytes")).isLessThanOrEqualTo(6 * 1024 * 1024.0);
    assertThat(run.out()).contains("\"jobs\": 24");
  }

  private static double distanceFromOnes(DenseColumns x) {
    return Arrays.stream(x.column(0)).map(v -> Math.abs(v - 1)).max().orElseThrow();
  }

  private static double number(String json, String key) {
    String after = json.substring(json.indexOf("\"" + key + "\": ") + key.length() + 4);
    return Double.parseDouble(after.split("[,\\n}]", 2)[0]);
  }

  @Test
  void versionAndHelp() {
    assertThat(Run.fairlead("--version").out()).startsWith("fairlead ");
    assertThat(Run.fairlead("solve", "--help").out()).contains("--rhs", "Exit codes");
    assertThat(Files.exists(BUS)).isTrue();
  }
}
