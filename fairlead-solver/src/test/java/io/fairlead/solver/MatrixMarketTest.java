package io.fairlead.solver;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import java.util.zip.GZIPOutputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class MatrixMarketTest {
  @TempDir Path folder;

  private Path write(String text) throws IOException {
    return Files.writeString(folder.resolve("a.mtx"), text);
  }

  private static String lines(String... lines) {
    return String.join("\n", lines) + "\n";
  }

  private static double[][] dense(CsrMatrix a) {
    double[][] full = new double[a.rows()][a.cols()];
    for (int i = 0; i < a.rows(); i++) {
      for (int j = 0; j < a.cols(); j++) {
        full[i][j] = a.get(i, j);
      }
    }
    return full;
  }

  @Test
  void symmetricCoordinatesFillBothTriangles() throws IOException {
    MatrixFile read =
        MatrixMarket.readMatrix(
            write(
                lines(
                    "%%MatrixMarket matrix coordinate real symmetric",
                    "% note",
                    "",
                    "%",
                    "3 3 4",
                    "",
                    "2 1 -1.5\r",
                    "1 1 2",
                    "",
                    " 3\t2  +.5e1 ",
                    "3 3 4.",
                    "")));
    assertThat(dense(read.matrix()))
        .isDeepEqualTo(new double[][] {{2, -1.5, 0}, {-1.5, 0, 5}, {0, 5, 4}});
    assertThat(read.matrix().entries()).isEqualTo(6);
    assertThat(read.stored()).isEqualTo(4);
    assertThat(read.symmetry()).isEqualTo(MatrixFile.Symmetry.SYMMETRIC);
  }

  @Test
  void lineEndsOfWindowsAreAccepted() throws IOException {
    MatrixFile read =
        MatrixMarket.readMatrix(
            write(
                lines(
                    "%%MatrixMarket matrix coordinate real general\r",
                    "%x\r", "2 2 2\r", "1 2 3.0\r", "2 1 4.0\r")));
    assertThat(dense(read.matrix())).isDeepEqualTo(new double[][] {{0, 3}, {4, 0}});
  }

  @Test
  void theLastLineMayLackItsEndAndTheBannerIgnoresCase() throws IOException {
    MatrixFile read =
        MatrixMarket.readMatrix(
            write("%%matrixmarket MATRIX Coordinate Integer General\n1 1 1\n1 1 7"));
    assertThat(read.matrix().get(0, 0)).isEqualTo(7);
    assertThat(read.field()).isEqualTo(MatrixFile.Field.INTEGER);
  }

  @Test
  void patternCountsAsOnes() throws IOException {
    MatrixFile read =
        MatrixMarket.readMatrix(
            write("%%MatrixMarket matrix coordinate pattern symmetric\n2 2 2\n1 1\n2 1\n"));
    assertThat(dense(read.matrix())).isDeepEqualTo(new double[][] {{1, 1}, {1, 0}});
  }

  @Test
  void skewSymmetricMirrorsWithTheOtherSign() throws IOException {
    MatrixFile read =
        MatrixMarket.readMatrix(
            write("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 3\n"));
    assertThat(dense(read.matrix())).isDeepEqualTo(new double[][] {{0, -3}, {3, 0}});
  }

  @Test
  void arraysListColumnsAndLowerTriangles() throws IOException {
    String banner = "%%MatrixMarket matrix array real ";
    assertThat(
            dense(MatrixMarket.readMatrix(write(banner + "general\n2 2\n1\n2\n3\n0\n")).matrix()))
        .isDeepEqualTo(new double[][] {{1, 3}, {2, 0}});
    assertThat(dense(MatrixMarket.readMatrix(write(banner + "symmetric\n2 2\n1\n2\n3\n")).matrix()))
        .isDeepEqualTo(new double[][] {{1, 2}, {2, 3}});
    assertThat(dense(MatrixMarket.readMatrix(write(banner + "skew-symmetric\n2 2\n4\n")).matrix()))
        .isDeepEqualTo(new double[][] {{0, -4}, {4, 0}});
  }

  @Test
  void columnsOfBothFormats() throws IOException {
    DenseColumns array =
        MatrixMarket.readColumns(
            write("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n0\n"),
            2,
            "b",
            ReadProgress.SILENT);
    assertThat(array.count()).isEqualTo(2);
    assertThat(array.column(0)).containsExactly(1, 2);
    assertThat(array.column(1)).containsExactly(3, 0);
    DenseColumns coordinate =
        MatrixMarket.readColumns(
            write("%%MatrixMarket matrix coordinate real general\n3 1 1\n2 1 5\n"),
            -1,
            "b",
            ReadProgress.SILENT);
    assertThat(coordinate.column(0)).containsExactly(0, 5, 0);
  }

  @Test
  void entriesInAnyOrderComeOutSorted() throws IOException {
    Random random = new Random(7);
    int n = 200;
    List<String> lines = new ArrayList<>();
    double[][] full = new double[n][n];
    for (int i = 0; i < n; i++) {
      for (int j = 0; j < n; j++) {
        if (random.nextInt(4) == 0) {
          full[i][j] = random.nextGaussian() * Math.pow(10, random.nextInt(30) - 15);
          lines.add((i + 1) + " " + (j + 1) + " " + full[i][j]);
        }
      }
    }
    Collections.shuffle(lines, random);
    Path file = folder.resolve("b.mtx.gz");
    try (OutputStream out = new GZIPOutputStream(Files.newOutputStream(file))) {
      String head = "%%MatrixMarket matrix coordinate real general\n" + n + " " + n + " ";
      out.write(
          (head + lines.size() + "\n" + String.join("\n", lines))
              .getBytes(StandardCharsets.US_ASCII));
    }
    CsrMatrix a = MatrixMarket.readMatrix(file).matrix();
    assertThat(dense(a)).isDeepEqualTo(full);
    for (int i = 0; i < n; i++) {
      for (int k = a.rowPtr()[i] + 1; k < a.rowPtr()[i + 1]; k++) {
        assertThat(a.colIdx()[k]).isGreaterThan(a.colIdx()[k - 1]);
      }
    }
  }

  @Test
  void progressEndsAtTheEnd() throws IOException {
    Path file = write("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 2\n");
    long[] last = new long[4];
    MatrixMarket.readMatrix(
        file,
        (bytes, bytesTotal, entries, entriesTotal) -> {
          last[0] = bytes;
          last[1] = bytesTotal;
          last[2] = entries;
          last[3] = entriesTotal;
        });
    assertThat(last).containsExactly(Files.size(file), Files.size(file), 2, 2);
  }

  @Test
  void whatIsWrittenReadsBackTheSame() throws IOException {
    Random random = new Random(3);
    double[][] columns = new double[2][500];
    for (double[] column : columns) {
      for (int i = 0; i < column.length; i++) {
        column[i] = Double.longBitsToDouble(random.nextLong());
        column[i] = Double.isFinite(column[i]) ? column[i] : Double.MIN_VALUE;
      }
    }
    Path file = folder.resolve("x.mtx");
    Files.writeString(file, "old");
    MatrixMarket.writeColumns(file, new DenseColumns(500, columns));
    DenseColumns back = MatrixMarket.readColumns(file, 500, "x", ReadProgress.SILENT);
    assertThat(back.column(0)).containsExactly(columns[0]);
    assertThat(back.column(1)).containsExactly(columns[1]);
    assertThat(filesIn(folder)).containsExactly("x.mtx");
  }

  @Test
  void nothingHalfWrittenIsLeft() throws IOException {
    Path taken = Files.createDirectory(folder.resolve("taken"));
    Files.writeString(taken.resolve("inside"), "x");
    DenseColumns columns = new DenseColumns(1, new double[] {1});
    assertThatThrownBy(() -> MatrixMarket.writeColumns(taken, columns))
        .isInstanceOf(IOException.class);
    assertThatThrownBy(() -> MatrixMarket.writeColumns(folder.resolve("no/such/x.mtx"), columns))
        .isInstanceOf(IOException.class);
    Path nan = folder.resolve("nan.mtx");
    assertThatThrownBy(
            () -> MatrixMarket.writeColumns(nan, new DenseColumns(1, new double[] {Double.NaN})))
        .hasMessage("entry 1 is NaN; a Matrix Market file holds finite numbers");
    assertThat(filesIn(folder)).containsExactly("taken");
  }

  private static List<String> filesIn(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(f -> f.getFileName().toString()).sorted().toList();
    }
  }

  /** What comes through a pipe comes once. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aPipeIsReadLikeAFile(boolean packed) throws Exception {
    String text = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 3.0\n2 1 4.0\n";
    Path pipe = pipe();
    feed(pipe, packed ? inTwoPackedParts(text) : text.getBytes(StandardCharsets.US_ASCII));
    assertThat(dense(MatrixMarket.readMatrix(pipe).matrix()))
        .isDeepEqualTo(new double[][] {{0, 3}, {4, 0}});
  }

  @Test
  void complaintsAboutAPipeDoNotWaitForItAgain() throws Exception {
    Path pipe = pipe();
    String text = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 3.0\n1 2 4.0\n";
    feed(pipe, text.getBytes(StandardCharsets.US_ASCII));
    assertThatThrownBy(() -> MatrixMarket.readMatrix(pipe))
        .hasMessage(pipe + ": entry (1, 2) is listed again; expected each entry once");
  }

  private static byte[] inTwoPackedParts(String text) throws IOException {
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    for (String part : List.of(text.substring(0, 50), text.substring(50))) {
      try (GZIPOutputStream gzip = new GZIPOutputStream(packed)) {
        gzip.write(part.getBytes(StandardCharsets.US_ASCII));
      }
    }
    return packed.toByteArray();
  }

  private Path pipe() throws Exception {
    Path pipe = folder.resolve("pipe");
    try {
      Process made = new ProcessBuilder("mkfifo", pipe.toString()).start();
      assertThat(made.waitFor(30, TimeUnit.SECONDS)).isTrue();
    } catch (IOException none) {
      assumeTrue(false, "no mkfifo here");
    }
    return pipe;
  }

  private static void feed(Path pipe, byte[] bytes) {
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              try {
                Files.write(pipe, bytes, StandardOpenOption.WRITE);
              } catch (IOException e) {
                throw new UncheckedIOException(e);
              }
            });
  }
}
