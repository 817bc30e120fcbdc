package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import java.util.zip.GZIPOutputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * What bad input gets: file, line, what was expected; exit code 3; no trace; nothing half-written.
 */
@Timeout(60)
class BadInputTest {
  private static final String SYMMETRIC = "%%MatrixMarket matrix coordinate real symmetric\n";
  private static final String GENERAL = "%%MatrixMarket matrix coordinate real general\n";

  @TempDir Path folder;

  static Stream<Arguments> files() {
    return Stream.of(
        file("not Matrix Market", "hello\n1 1 1\n", 1, "%%MatrixMarket"),
        file("empty", "", 1, "%%MatrixMarket"),
        file("broken size line", SYMMETRIC + "2 2\n", 2, "rows columns entries"),
        file("size is a word", SYMMETRIC + "two 2 2\n", 2, "two"),
        file("fewer entries", SYMMETRIC + "2 2 3\n1 1 2.0\n2 2 2.0\n", 0, "3"),
        file("more entries", SYMMETRIC + "2 2 1\n1 1 2.0\n2 2 2.0\n", 4, "1"),
        file("index too large", SYMMETRIC + "2 2 2\n1 1 2.0\n3 2 2.0\n", 4, "3"),
        file("index zero", SYMMETRIC + "2 2 2\n0 1 2.0\n2 2 2.0\n", 3, "0"),
        file("wrong side", SYMMETRIC + "2 2 3\n1 1 2.0\n1 2 1.0\n2 2 2.0\n", 4, "lower"),
        file("NaN", SYMMETRIC + "1 1 1\n1 1 nan\n", 3, "nan"),
        file("infinity", SYMMETRIC + "1 1 1\n1 1 inf\n", 3, "inf"),
        file("duplicate", SYMMETRIC + "2 2 3\n1 1 2.0\n2 2 2.0\n1 1 2.0\n", 5, "again"),
        file(
            "complex",
            "%%MatrixMarket matrix coordinate complex symmetric\n1 1 1\n1 1 1 0\n",
            1,
            "complex"),
        file("not square", GENERAL + "2 3 1\n1 1 2.0\n", 2, "as many rows as columns"),
        file("not symmetric", GENERAL + "2 2 3\n1 1 2.0\n1 2 1.0\n2 2 2.0\n", 0, "symmetric"),
        file(
            "skew-symmetric",
            "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1.0\n",
            0,
            "skew"),
        file("zero diagonal", SYMMETRIC + "2 2 2\n1 1 2.0\n2 1 1.0\n", 0, "diagonal"),
        file("negative diagonal", SYMMETRIC + "2 2 2\n1 1 2.0\n2 2 -1.0\n", 0, "diagonal"),
        file("0 x 0", SYMMETRIC + "0 0 0\n", 0, "0"),
        file(
            "not positive definite",
            SYMMETRIC + "2 2 3\n1 1 1.0\n2 1 2.0\n2 2 1.0\n",
            0,
            "positive definite"));
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("files")
  void eachMessageNamesTheFileTheLineAndWhatWasExpected(
      String name, String text, int line, String says) throws IOException {
    Path file = Files.writeString(folder.resolve("bad.mtx"), text);
    Path out = folder.resolve("x.mtx");

    Run run = Run.fairlead("solve", file, "--device", "host", "--out", out);

    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err()).contains("bad.mtx").containsIgnoringCase(says);
    if (line > 0) {
      assertThat(run.err()).contains("bad.mtx:" + line + ":");
    }
    assertNoTraceAndNothingWritten(run, out);
  }

  private static Arguments file(String name, String text, int line, String says) {
    return Arguments.of(name, text, line, says);
  }

  private void assertNoTraceAndNothingWritten(Run run, Path out) throws IOException {
    assertThat(run.err()).doesNotContain("\tat ").doesNotContain("Exception");
    assertThat(run.out()).isEmpty();
    assertThat(out).doesNotExist();
    try (Stream<Path> left = Files.list(folder)) {
      assertThat(left.filter(f -> f.getFileName().toString().contains("partial"))).isEmpty();
    }
  }

  @Test
  void missingFile() throws IOException {
    Run run = Run.fairlead("solve", folder.resolve("none.mtx"));
    assertThat(run.code()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err()).contains("none.mtx");
    assertNoTraceAndNothingWritten(run, folder.resolve("x.mtx"));
  }

  @Test
  void gzipThatEndsEarly() throws IOException {
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    try (GZIPOutputStream gzip = new GZIPOutputStream(packed)) {
      StringBuilder text = new StringBuilder(SYMMETRIC + "5000 5000 5000\n");
      for (int i = 1; i <= 5000; i++) {
        text.append(i).append(' ').append(i).append(' ').append(1.0 / i).append('\n');
      }
      gzip.write(text.toString().getBytes(StandardCharsets.US_ASCII));
    }
    byte[] bytes = packed.toByteArray();
    Path file = Files.write(folder.resolve("early.mtx.gz"), Arrays.copyOf(bytes, bytes.length / 2));
    Run run = Run.fairlead("solve", file);
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err()).contains("early.mtx.gz").containsIgnoringCase("gzip");
    assertNoTraceAndNothingWritten(run, folder.resolve("x.mtx"));
  }

  @Test
  void gzipThatIsDamaged() throws IOException {
    byte[] bytes = {0x1f, (byte) 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, -1, -1, -1, -1, -1, -1, -1};
    Path file = Files.write(folder.resolve("damaged.mtx.gz"), bytes);
    Run run = Run.fairlead("solve", file);
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err()).contains("damaged.mtx.gz").contains("the file may be damaged");
    assertNoTraceAndNothingWritten(run, folder.resolve("x.mtx"));
  }

  @Test
  void rightHandSideOfTheWrongLength() throws IOException {
    Path file = Files.writeString(folder.resolve("a.mtx"), SYMMETRIC + "2 2 2\n1 1 2\n2 2 2\n");
    Path b =
        Files.writeString(
            folder.resolve("b.mtx"), "%%MatrixMarket matrix array real general\n3 1\n1\n2\n3\n");
    Run run = Run.fairlead("solve", file, "--rhs", b);
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err()).contains("b.mtx").contains("right-hand side").contains("2").contains("3");
    assertNoTraceAndNothingWritten(run, folder.resolve("x.mtx"));
  }

  @Test
  void initialGuessWithTheWrongNumberOfColumns() throws IOException {
    Path file = Files.writeString(folder.resolve("a.mtx"), SYMMETRIC + "1 1 1\n1 1 2\n");
    Path x0 =
        Files.writeString(
            folder.resolve("x0.mtx"), "%%MatrixMarket matrix array real general\n1 2\n1\n2\n");
    Run run = Run.fairlead("solve", file, "--x0", x0);
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err())
        .contains("x0.mtx")
        .contains("initial guess has 2 columns; expected 1")
        .doesNotContain("1, or");
  }

  @Test
  void outputFolderThatDoesNotExistIsFoundBeforeTheSolve() throws IOException {
    Path file = Files.writeString(folder.resolve("a.mtx"), SYMMETRIC + "1 1 1\n1 1 2\n");
    Run run = Run.fairlead("solve", file, "--out", folder.resolve("nowhere/x.mtx"));
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err()).contains("there is no folder").doesNotContain("reading");
  }

  @Test
  void anOutputThatIsAnInputIsRefused() throws IOException {
    String text = SYMMETRIC + "1 1 1\n1 1 2\n";
    String column = "%%MatrixMarket matrix array real general\n1 1\n1\n";
    Path file = Files.writeString(folder.resolve("a.mtx"), text);
    Path b = Files.writeString(folder.resolve("b.mtx"), column);
    Path link = Files.createSymbolicLink(folder.resolve("link.mtx"), b);
    for (String output : List.of("--out", "--json")) {
      for (Path input : List.of(file, b, link, folder.resolve("./a.mtx"))) {
        Run run = Run.fairlead("solve", file, "--rhs", b, "--x0", b, output, input);
        assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.USAGE);
        assertThat(run.err()).contains(output + " " + input + " would overwrite the input");
      }
    }
    assertThat(file).hasContent(text);
    assertThat(b).hasContent(column);
  }

  @Test
  void oneFileForTwoOutputsIsRefused() throws IOException {
    Path file = Files.writeString(folder.resolve("a.mtx"), SYMMETRIC + "1 1 1\n1 1 2\n");
    Path out = folder.resolve("x");
    Path link = Files.createSymbolicLink(folder.resolve("link"), Path.of("x"));
    for (Object json : List.of(out, folder.resolve("./x"), link)) {
      Run run = Run.fairlead("solve", file, "--out", out, "--json", json);
      assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.USAGE);
      assertThat(run.err()).contains("would overwrite --json");
    }
    assertThat(out).doesNotExist();
  }

  @Test
  void anEmptyNameIsAUsageError() {
    for (List<String> words :
        List.of(
            List.of(""),
            List.of("a", "--rhs", ""),
            List.of("a", "--out", ""),
            List.of("a", "--json", ""))) {
      List<Object> all = new ArrayList<>(List.of("solve"));
      all.addAll(words);
      Run run = Run.fairlead(all.toArray());
      assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.USAGE);
      assertThat(run.err()).contains("is empty");
    }
    assertThat(Run.fairlead("bench", "vcycle", "--json", "").code()).isEqualTo(ExitCode.USAGE);
  }

  @Test
  void aReadOnlyOutputIsRefusedBeforeTheSolve() throws IOException {
    Path file = Files.writeString(folder.resolve("a.mtx"), SYMMETRIC + "1 1 1\n1 1 2\n");
    Path out = Files.writeString(folder.resolve("x.mtx"), "precious");
    assumeTrue(out.toFile().setReadOnly(), "no read-only files here");
    Run run = Run.fairlead("solve", file, "--out", out);
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err()).contains(out + ": cannot be written: the file is read-only");
    assertThat(out).hasContent("precious");
  }
}
