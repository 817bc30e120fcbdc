package io.fairlead.solver;

import io.fairlead.solver.internal.MtxReader;
import io.fairlead.solver.internal.file.WholeFile;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.zip.GZIPOutputStream;

/**
 * Matrix Market files, plain or gzip (told apart by their content): coordinate and array; real,
 * integer and pattern; general, symmetric and skew-symmetric.
 *
 * <p>All methods block while they read or write and may be called from any thread. What is wrong
 * with an input is thrown as {@link BadInputException}, which names the file and the line.
 */
public final class MatrixMarket {
  private MatrixMarket() {}

  /** Reads a matrix; see {@link #readMatrix(Path, ReadProgress)}. */
  public static MatrixFile readMatrix(Path file) {
    return readMatrix(file, ReadProgress.SILENT);
  }

  /**
   * Reads a matrix, with both triangles where the file lists one.
   *
   * @throws BadInputException if the file cannot be read, is not in the format, lists an entry
   *     twice, or does not fit into memory
   */
  public static MatrixFile readMatrix(Path file, ReadProgress progress) {
    return MtxReader.matrix(file, progress);
  }

  /**
   * Reads dense columns: right-hand sides or initial guesses. A coordinate file is accepted too;
   * what it does not list is zero.
   *
   * @param rows the rows that each column must have, or negative for any number
   * @param what what the columns are, as the message should say: "the right-hand side"
   * @throws BadInputException as {@link #readMatrix(Path, ReadProgress)}, and if the number of rows
   *     is another
   */
  public static DenseColumns readColumns(Path file, int rows, String what, ReadProgress progress) {
    return MtxReader.columns(file, rows, what, progress);
  }

  /**
   * Writes dense columns as {@code array real general}, each number with as many digits (17 at
   * most) as give the same double back; packed, if the name ends in {@code .gz}.
   *
   * <p>The file appears under its name only when it is complete. Links are followed, a file that is
   * there is replaced and keeps its mode; a device or a pipe is written to as it stands.
   *
   * @throws IOException if the file cannot be written, or is read-only; nothing is left behind
   * @throws IllegalArgumentException if a number is not finite, which the format cannot say
   */
  public static void writeColumns(Path file, DenseColumns columns) throws IOException {
    requireFinite(columns);
    boolean packs = file.toString().endsWith(".gz");
    WholeFile.write(file, out -> writeText(packs ? new GZIPOutputStream(out) : out, columns));
  }

  /**
   * Writes dense columns as {@link #writeColumns(Path, DenseColumns)} does, unpacked, to a writer
   * that stays the caller's.
   *
   * @throws IOException as the writer does
   * @throws IllegalArgumentException if a number is not finite, which the format cannot say
   */
  public static void writeColumns(Writer out, DenseColumns columns) throws IOException {
    requireFinite(columns);
    writeAll(out, columns);
  }

  private static void requireFinite(DenseColumns columns) {
    for (double[] column : columns.columns()) {
      for (int i = 0; i < column.length; i++) {
        if (!Double.isFinite(column[i])) {
          throw new IllegalArgumentException(
              "entry "
                  + (i + 1)
                  + " is "
                  + column[i]
                  + "; a Matrix Market file holds finite numbers");
        }
      }
    }
  }

  private static void writeText(OutputStream out, DenseColumns columns) throws IOException {
    try (Writer text = new BufferedWriter(new OutputStreamWriter(out, StandardCharsets.US_ASCII))) {
      writeAll(text, columns);
    }
  }

  private static void writeAll(Writer out, DenseColumns columns) throws IOException {
    out.write("%%MatrixMarket matrix array real general\n");
    out.write(columns.rows() + " " + columns.count() + "\n");
    for (double[] column : columns.columns()) {
      for (double value : column) {
        out.write(Double.toString(value));
        out.write('\n');
      }
    }
  }
}
