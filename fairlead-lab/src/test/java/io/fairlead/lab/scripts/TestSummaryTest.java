package io.fairlead.lab.scripts;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.lab.Repository;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The end of ./verify, over reports written here. */
@Timeout(120)
class TestSummaryTest {
  @TempDir Path root;

  @BeforeEach
  void oneModuleWithATestThatPassed() throws IOException {
    write("one/pom.xml", "");
    suite("a.FirstTest", "<testcase classname='a.FirstTest' name='works'/>");
  }

  @Test
  void whatPassedIsCounted() throws Exception {
    assertThat(summary(0)).isEqualTo("1 passed, 0 failed, 0 skipped\n");
  }

  @Test
  void aTestThatWasSkippedIsListedWithItsReason() throws Exception {
    suite(
        "a.GpuTest",
        "<testcase classname='a.GpuTest' name='x'><skipped message='no GPU'/></testcase>");
    assertThat(summary(0))
        .contains("skipped: a.GpuTest.x: no GPU", "1 passed, 0 failed, 1 skipped");
  }

  /** What an assumption before all tests leaves behind. */
  @Test
  void aSuiteOfWhichNothingWasRunIsListedWithWhatItSaid() throws Exception {
    suite("a.NativeTest", "<system-out>!! NO C COMPILER (gcc)</system-out>");
    suite("a.SilentTest", "");
    assertThat(summary(0))
        .contains("skipped: a.NativeTest: none of its tests was run; !! NO C COMPILER (gcc)")
        .contains("skipped: a.SilentTest: none of its tests was run; no reason given")
        .contains("1 passed, 0 failed, 2 skipped");
  }

  @Test
  void aSuiteWithoutAReportWasNotRun() throws Exception {
    write("one/src/test/java/a/LostTest.java", "");
    write("one/src/test/java/a/OwnerRaceTest.java", "");
    write("one/src/test/java/a/canary/BadTest.java", "");
    assertThat(summary(1))
        .contains("not run: a.LostTest: it left no report")
        .doesNotContain("OwnerRaceTest", "BadTest");
  }

  private void suite(String name, String content) throws IOException {
    write("one/src/test/java/" + name.replace('.', '/') + ".java", "");
    write(
        "one/target/surefire-reports/TEST-" + name + ".xml",
        "<testsuite name='" + name + "'>" + content + "</testsuite>");
  }

  private void write(String file, String text) throws IOException {
    Path path = root.resolve(file);
    Files.createDirectories(path.getParent());
    Files.writeString(path, text);
  }

  private String summary(int exitCode) throws Exception {
    Process process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:TieredStopAtLevel=1",
                Repository.root().resolve("scripts/TestSummary.java").toString(),
                root.toString())
            .redirectErrorStream(true)
            .start();
    process.getOutputStream().close();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertThat(process.waitFor()).as(said).isEqualTo(exitCode);
    return said;
  }
}
