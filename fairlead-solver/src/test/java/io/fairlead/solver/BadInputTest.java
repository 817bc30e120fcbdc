package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.GZIPOutputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What is wrong with a file is said with its name, its line, and what was expected. */
class BadInputTest {
  private static final String SYMMETRIC = "%%MatrixMarket matrix coordinate real symmetric\n";
  private static final String GENERAL = "%%MatrixMarket matrix coordinate real general\n";

  @TempDir Path folder;

  private Path write(String text) throws IOException {
    return Files.writeString(folder.resolve("a.mtx"), text);
  }

  private static BadInputException reading(Path file) {
    return catchThrowableOfType(
        BadInputException.class, () -> SpdCheck.require(MatrixMarket.readMatrix(file)));
  }

  private void refuses(String text, long line, String message) throws IOException {
    Path file = write(text);
    BadInputException e = reading(file);
    assertThat(e).as("%s", text).isNotNull();
    String place = line == 0 ? file + ": " : file + ":" + line + ": ";
    assertThat(e).hasMessage(place + message);
    assertThat(e.line()).isEqualTo(line);
    assertThat(e.file()).isEqualTo(file);
  }

  @Test
  void missingFile() {
    Path file = folder.resolve("none.mtx");
    assertThat(reading(file)).hasMessage(file + ": no such file; expected a Matrix Market file");
  }

  @Test
  void directory() {
    assertThat(reading(folder))
        .hasMessage(folder + ": is a directory; expected a Matrix Market file");
  }

  @Test
  void unreadableFile() {
    // A name that no file system call can take stands for every other failure to open.
    Path file = folder.resolve("x".repeat(5000));
    assertThat(reading(file))
        .hasMessageStartingWith(file + ": cannot be read (")
        .hasMessageEndingWith("; expected a readable file");
  }

  @Test
  void emptyFile() throws IOException {
    refuses(
        "",
        1,
        "the file is empty; expected a first line like"
            + " '%%MatrixMarket matrix coordinate real symmetric'");
  }

  @Test
  void notMatrixMarket() throws IOException {
    refuses(
        "\u0001\u0002ELF binary\n1 2 3\n",
        1,
        "not a Matrix Market file: it begins with '??ELF binary'; expected a first line like"
            + " '%%MatrixMarket matrix coordinate real symmetric'");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "%%MatrixMarket matrix coordinate real|the banner '%%MatrixMarket matrix coordinate real' is"
            + " broken; expected five words like '%%MatrixMarket matrix coordinate real symmetric'",
        "%%MatrixMarket vector array real general|the banner '%%MatrixMarket vector array real"
            + " general' is broken; expected five words like '%%MatrixMarket matrix coordinate real"
            + " symmetric'",
        "%%MatrixMarket matrix coordinate complex general|complex matrices are not supported;"
            + " expected real, integer or pattern",
        "%%MatrixMarket matrix coordinate real hermitian|hermitian matrices are not supported;"
            + " expected general or symmetric",
        "%%MatrixMarket matrix sparse real general|the format 'sparse' is unknown; expected"
            + " coordinate or array",
        "%%MatrixMarket matrix coordinate float general|the field 'float' is unknown; expected"
            + " real, integer or pattern",
        "%%MatrixMarket matrix coordinate real lower|the symmetry 'lower' is unknown; expected"
            + " general or symmetric",
        "%%MatrixMarket matrix array pattern general|'array pattern' lists no values; expected array"
            + " real or integer"
      })
  void brokenBanner(String banner, String message) throws IOException {
    refuses(banner + "\n1 1 1\n1 1 1.0\n", 1, message);
  }

  @Test
  void noSizeLine() throws IOException {
    refuses(
        SYMMETRIC + "% only this\n",
        3,
        "the file ends before its size line; expected 'rows columns entries'");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "2 2|nothing for the number of entries; expected a size line 'rows columns entries' of"
            + " whole numbers",
        "2 x 3|'x' for the number of columns; expected a size line 'rows columns entries' of whole"
            + " numbers",
        "2 2 3 4|'4' is too much on this line; expected a size line 'rows columns entries' of whole"
            + " numbers",
        "2.5 2 3|'2.5' for the number of rows; expected a size line 'rows columns entries' of whole"
            + " numbers",
        "-2 2 3|a negative size; expected a size line 'rows columns entries' of whole numbers",
        "0 0 0|the matrix is 0 x 0; expected at least one row and one column",
        "2 3 1|a symmetric matrix of 2 x 3; expected as many rows as columns",
        "2 2 5|5 entries in a matrix of 2 x 2; expected at most 4",
        "3000000000 3000000000 1|the matrix is 3000000000 x 3000000000; expected at most"
            + " 2,147,483,639 rows and columns",
        "99999999999999999999 1 1|the matrix is more than 2^63 x 1; expected at most 2,147,483,639"
            + " rows and columns"
      })
  void brokenSizeLine(String sizes, String message) throws IOException {
    refuses(SYMMETRIC + sizes + "\n1 1 1.0\n", 2, message);
  }

  @Test
  void tooManyEntriesForAnArray() throws IOException {
    refuses(
        SYMMETRIC + "2000000 2000000 1500000000\n1 1 1.0\n",
        3,
        "3000000000 entries with both triangles; expected at most 2,147,483,639");
  }

  @Test
  void tooManyEntriesForTheMemory() throws IOException {
    Path file = write(GENERAL + "2000000 2000000 2000000000\n1 1 1.0\n");
    assertThat(reading(file))
        .hasMessageStartingWith(
            file + ":3: 2,000,000,000 entries in 2,000,000 rows need about 53,422 MiB of memory")
        .hasMessageContaining("expected a matrix that fits: give the JVM more with -Xmx");
  }

  @Test
  void fewerEntriesThanPromised() throws IOException {
    refuses(
        SYMMETRIC + "2 2 3\n1 1 1.0\n2 2 1.0\n", 5, "the file ends after 2 entries; expected 3");
  }

  @Test
  void promisesFarBeyondTheFileAreNotAllocated() throws IOException {
    refuses(
        GENERAL + "1000000 1000000 20000000\n1 1 1.0\n",
        4,
        "the file ends after 1 entries; expected 20000000");
  }

  @Test
  void moreEntriesThanPromised() throws IOException {
    refuses(
        SYMMETRIC + "2 2 1\n1 1 1.0\n2 2 1.0\n",
        4,
        "more than the 1 entries promised; expected the end of the file");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "0 1 1.0|row 0 is outside the matrix; expected 1 to 2",
        "3 1 1.0|row 3 is outside the matrix; expected 1 to 2",
        "1 -1 1.0|column -1 is outside the matrix; expected 1 to 2",
        "99999999999999999999 1 1.0|row beyond 2^63 is outside the matrix; expected 1 to 2",
        "1 2 1.0|entry (1, 2) lies above the diagonal of a symmetric file; expected the lower"
            + " triangle only: row >= column",
        "1 1 nan|'nan' is not a finite number; expected a real number",
        "1 1 -Infinity|'-Infinity' is not a finite number; expected a real number",
        "1 1 1e999|'1e999' is beyond the largest double; expected a finite real number",
        "1 1 abc|'abc' is not a number; expected a real number",
        "1 1 1.0.0|'1.0.0' is not a number; expected a real number",
        "1 1 0x10|'0x10' is not a number; expected a real number",
        "1 1 1f|'1f' is not a number; expected a real number",
        "1 1 -|'-' is not a number; expected a real number",
        "1 1 1e|'1e' is not a number; expected a real number",
        "1 1|no value on this line; expected a real number",
        "1|nothing for the column; expected 'row column value'",
        "one 1 1.0|'one' for the row; expected 'row column value'",
        "1 1.5 1.0|'1.5' for the column; expected 'row column value'",
        "1 1 1.0 2.0|'2.0' is too much on this line; expected 'row column value'",
        "%1 1 1.0|a comment among the entries; expected comments only before the size line"
      })
  void brokenEntry(String entry, String message) throws IOException {
    refuses(SYMMETRIC + "2 2 2\n2 2 1.0\n" + entry + "\n", 4, message);
  }

  @Test
  void duplicateEntry() throws IOException {
    refuses(
        SYMMETRIC + "3 3 4\n1 1 1.0\n3 1 1.0\n2 2 1.0\n3 1 2.0\n",
        6,
        "entry (3, 1) is listed again, first on line 4; expected each entry once");
    refuses(
        GENERAL + "3 3 4\n1 1 1.0\n1 3 1.0\n2 2 1.0\n1 3 2.0\n",
        6,
        "entry (1, 3) is listed again, first on line 4; expected each entry once");
  }

  @Test
  void fractionAmongIntegers() throws IOException {
    refuses(
        "%%MatrixMarket matrix coordinate integer symmetric\n1 1 1\n1 1 1.5\n",
        3, "1.5 in a file of integers; expected a whole number");
  }

  @Test
  void diagonalInSkewSymmetric() throws IOException {
    refuses(
        "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n1 1 1.0\n",
        3,
        "diagonal entry (1, 1) in a skew-symmetric file; expected entries below the diagonal only");
  }

  @Test
  void skewSymmetricIsNotPositiveDefinite() throws IOException {
    refuses(
        "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1.0\n",
        1, "a skew-symmetric matrix is not positive definite; expected a symmetric one");
  }

  @Test
  void notSquare() throws IOException {
    refuses(
        GENERAL + "2 3 1\n1 1 1.0\n", 2, "the matrix is 2 x 3; expected as many rows as columns");
  }

  @Test
  void notSymmetric() throws IOException {
    refuses(
        GENERAL + "2 2 4\n1 1 2.0\n2 1 -1.0\n1 2 -0.5\n2 2 2.0\n",
        5,
        "the matrix is not symmetric: entry (1, 2) is -0.5 but (2, 1) is -1.0 (line 4); expected"
            + " both to be equal");
    refuses(
        GENERAL + "2 2 3\n1 1 2.0\n2 1 -1.0\n2 2 2.0\n",
        4,
        "the matrix is not symmetric: entry (2, 1) is -1.0 but (1, 2) is not there; expected both"
            + " to be equal");
  }

  @Test
  void diagonalNotPositive() throws IOException {
    String expected = "; expected a positive one, as in every positive definite matrix";
    refuses(SYMMETRIC + "2 2 1\n1 1 1.0\n", 0, "row 2 has no diagonal entry" + expected);
    refuses(SYMMETRIC + "2 2 2\n1 1 1.0\n2 2 0\n", 4, "diagonal entry (2, 2) is 0.0" + expected);
    refuses(SYMMETRIC + "2 2 2\n1 1 -1\n2 2 1\n", 3, "diagonal entry (1, 1) is -1.0" + expected);
  }

  private static byte[] gzip(byte[] plain) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (GZIPOutputStream out = new GZIPOutputStream(bytes)) {
      out.write(plain);
    }
    return bytes.toByteArray();
  }

  private static String diagonalOf(int n) {
    StringBuilder text = new StringBuilder(SYMMETRIC + n + " " + n + " " + n + "\n");
    for (int i = 1; i <= n; i++) {
      text.append(i).append(' ').append(i).append(' ').append(1.0 + 1.0 / i).append('\n');
    }
    return text.toString();
  }

  @Test
  void gzipThatEndsEarly() throws IOException {
    byte[] whole = gzip(diagonalOf(20_000).getBytes(StandardCharsets.US_ASCII));
    Path file = folder.resolve("a.mtx.gz");
    for (int cut : new int[] {whole.length / 2, whole.length - 4, 15}) {
      Files.write(file, Arrays.copyOf(whole, cut));
      assertThat(reading(file))
          .hasMessageMatching(
              "(?s)\\Q"
                  + file
                  + "\\E:\\d+: \\QThe gzip data ends early; expected the rest of the"
                      .replace("The", "the")
                  + " file: copy it again\\E");
    }
    Files.write(file, Arrays.copyOf(whole, 5));
    assertThat(reading(file))
        .hasMessage(
            file
                + ":1: the gzip header is broken; expected a whole .mtx.gz file: this one may be damaged");
  }

  @Test
  void gzipThatIsCorrupt() throws IOException {
    byte[] broken = gzip(diagonalOf(20_000).getBytes(StandardCharsets.US_ASCII));
    Arrays.fill(broken, broken.length / 2, broken.length / 2 + 50, (byte) 0x55);
    Path file = Files.write(folder.resolve("a.mtx.gz"), broken);
    assertThat(reading(file)).isNotNull().hasMessageStartingWith(file + ":");
    broken = gzip(diagonalOf(20_000).getBytes(StandardCharsets.US_ASCII));
    broken[broken.length - 8] ^= 1;
    Files.write(file, broken);
    assertThat(reading(file))
        .hasMessageMatching(
            "\\Q"
                + file
                + "\\E:\\d+: the gzip data is corrupt \\(.*\\); the file may be damaged:"
                + " copy it again");
  }

  @Test
  void rightHandSideOfTheWrongLength() throws IOException {
    Path file = write("%%MatrixMarket matrix array real general\n3 1\n1\n2\n3\n");
    BadInputException e =
        catchThrowableOfType(
            BadInputException.class,
            () -> MatrixMarket.readColumns(file, 4, "the right-hand side", ReadProgress.SILENT));
    assertThat(e)
        .hasMessage(file + ":2: the right-hand side has 3 rows; expected 4, as many as the matrix");
  }

  @Test
  void arrayWithTooFewValues() throws IOException {
    Path file = write("%%MatrixMarket matrix array real general\n3 1\n1\n2\n");
    BadInputException e =
        catchThrowableOfType(
            BadInputException.class,
            () -> MatrixMarket.readColumns(file, 3, "b", ReadProgress.SILENT));
    assertThat(e).hasMessage(file + ":5: the file ends after 2 entries; expected 3");
  }
}
