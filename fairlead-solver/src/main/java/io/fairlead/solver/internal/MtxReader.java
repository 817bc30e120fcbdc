package io.fairlead.solver.internal;

import io.fairlead.solver.BadInputException;
import io.fairlead.solver.CsrMatrix;
import io.fairlead.solver.DenseColumns;
import io.fairlead.solver.MatrixFile;
import io.fairlead.solver.MatrixFile.Field;
import io.fairlead.solver.MatrixFile.Symmetry;
import io.fairlead.solver.ReadProgress;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;

/** Reads one Matrix Market file, entry by entry, and checks each. One thread. */
public final class MtxReader implements AutoCloseable {
  /** Between two calls of the progress listener. */
  private static final int PROGRESS_ENTRIES = 1 << 15;

  private final MtxText text;
  private final MtxHeader header;
  private final ReadProgress progress;
  private final boolean pattern;
  private final boolean whole;

  /** The last entry read, its indices from 0. */
  private int row;

  private int col;
  private double value;

  /** The line of the last entry, or of the size line before the first. */
  private long entryLine;

  private MtxReader(Path file, ReadProgress progress) {
    this.text = MtxText.open(file);
    this.progress = progress;
    this.header = headerOrClose(text);
    this.entryLine = header.line();
    this.pattern = header.field() == Field.PATTERN;
    this.whole = header.field() == Field.INTEGER;
  }

  private static MtxHeader headerOrClose(MtxText text) {
    try {
      return MtxHeader.read(text);
    } catch (BadInputException e) {
      text.close();
      throw e;
    }
  }

  /** Reads a matrix in either format. */
  public static MatrixFile matrix(Path file, ReadProgress progress) {
    try (MtxReader reader = new MtxReader(file, progress)) {
      return reader.readMatrix();
    }
  }

  /**
   * Reads dense columns in either format.
   *
   * @param rows how many each must have, or negative for any number
   * @param what the columns are, for the message
   */
  public static DenseColumns columns(Path file, int rows, String what, ReadProgress progress) {
    try (MtxReader reader = new MtxReader(file, progress)) {
      return reader.readColumns(rows, what);
    }
  }

  /**
   * Returns the line that lists an entry of a file that was read before, or {@link
   * BadInputException#NO_LINE}, as where it came through a pipe and is gone.
   *
   * @param occurrence 1 for the first such line
   */
  static long lineOf(Path file, int row, int col, int occurrence) {
    if (!MtxText.canBeReadAgain(file)) {
      return BadInputException.NO_LINE;
    }
    try (MtxReader reader = new MtxReader(file, ReadProgress.SILENT)) {
      return reader.findLine(row, col, occurrence);
    }
  }

  /** Returns the line of the sizes of a file that was read before, or as {@link #lineOf}. */
  static long sizeLineOf(Path file) {
    if (!MtxText.canBeReadAgain(file)) {
      return BadInputException.NO_LINE;
    }
    try (MtxReader reader = new MtxReader(file, ReadProgress.SILENT)) {
      return reader.header.line();
    }
  }

  private long findLine(int wantedRow, int wantedCol, int occurrence) {
    int seen = 0;
    for (long k = 0; header.coordinate() && k < header.entries(); k++) {
      readEntry(k);
      boolean mirrored =
          header.symmetry() != Symmetry.GENERAL && row == wantedCol && col == wantedRow;
      if ((row == wantedRow && col == wantedCol) || mirrored) {
        seen++;
        if (seen == occurrence) {
          return entryLine;
        }
      }
    }
    return BadInputException.NO_LINE;
  }

  private MatrixFile readMatrix() {
    long expanded = header.entries() * (header.symmetry() == Symmetry.GENERAL ? 1 : 2);
    requireMemory(header.entries() * 16 + expanded * 12 + header.rows() * 8, expanded);
    Triplets triplets = header.coordinate() ? readTriplets() : readDenseTriplets();
    CsrMatrix matrix = assemble(triplets);
    return new MatrixFile(text.file(), header.field(), header.symmetry(), header.entries(), matrix);
  }

  /** Counts what reading will take before anything is allocated. */
  private void requireMemory(long bytes, long expanded) {
    if (expanded > Integer.MAX_VALUE - 8) {
      throw text.bad(expanded + " entries with both triangles; expected at most 2,147,483,639");
    }
    Runtime runtime = Runtime.getRuntime();
    long free = runtime.maxMemory() - runtime.totalMemory() + runtime.freeMemory();
    if (bytes > free) {
      throw text.bad(
          String.format(
              Locale.ROOT,
              "%,d entries in %,d rows need about %s of memory to read and %s are free; expected a"
                  + " matrix that fits: give the JVM more with -Xmx (to the command with"
                  + " FAIRLEAD_JAVA_OPTS=-Xmx8g)",
              header.entries(),
              header.rows(),
              mebibytes(bytes),
              mebibytes(free)));
    }
  }

  private static String mebibytes(long bytes) {
    return String.format(Locale.ROOT, "%,d MiB", (bytes >> 20) + 1);
  }

  /** Entries in the order of the file. */
  private static final class Triplets {
    int[] rows;
    int[] cols;
    double[] values;
    int count;

    Triplets(int capacity) {
      rows = new int[capacity];
      cols = new int[capacity];
      values = new double[capacity];
    }

    void add(int row, int col, double value, int most) {
      if (count == rows.length) {
        grow(most);
      }
      rows[count] = row;
      cols[count] = col;
      values[count++] = value;
    }

    private void grow(int most) {
      int capacity = (int) Math.min(most, count + (count >> 1) + 1024L);
      rows = Arrays.copyOf(rows, capacity);
      cols = Arrays.copyOf(cols, capacity);
      values = Arrays.copyOf(values, capacity);
    }
  }

  /** What the file can hold at most decides the first capacity, not what it promises. */
  private int firstCapacity() {
    long most = text.packed() ? text.fileBytes() : text.fileBytes() / 4 + 1;
    return (int) Math.min(header.entries(), most);
  }

  private Triplets readTriplets() {
    int most = (int) header.entries();
    Triplets triplets = new Triplets(firstCapacity());
    for (int k = 0; k < most; k++) {
      readEntry(k);
      triplets.add(row, col, value, most);
      if (k % PROGRESS_ENTRIES == 0) {
        report(k);
      }
    }
    requireEnd();
    report(most);
    return triplets;
  }

  private void report(long entries) {
    progress.read(text.bytesRead(), text.fileBytes(), entries, header.entries());
  }

  private void readEntry(long index) {
    requireContent(index);
    entryLine = text.line();
    row = index("row", header.rows());
    col = index("column", header.cols());
    value = pattern ? 1.0 : readValue();
    text.requireLineEnd(pattern ? "'row column'" : "'row column value'");
    if (header.symmetry() != Symmetry.GENERAL) {
      requireLower();
    }
  }

  private void requireContent(long index) {
    if (!text.skipToContent()) {
      throw text.bad("the file ends after " + index + " entries; expected " + header.entries());
    }
    if (text.atComment()) {
      throw text.bad("a comment among the entries; expected comments only before the size line");
    }
  }

  private int index(String what, long size) {
    long index = text.nextLong("the " + what, pattern ? "'row column'" : "'row column value'");
    if (index < 1 || index > size) {
      throw text.bad(
          what
              + " "
              + (index == Long.MAX_VALUE ? "beyond 2^63" : index)
              + " is outside the matrix; expected 1 to "
              + size);
    }
    return (int) index - 1;
  }

  private double readValue() {
    double v = text.nextDouble();
    if (whole && v != Math.rint(v)) {
      throw text.bad(v + " in a file of integers; expected a whole number");
    }
    return v;
  }

  /** Complaints name the entry's line, which is over by now. */
  private void requireLower() {
    if (col > row) {
      throw atEntry(
          "entry ("
              + (row + 1)
              + ", "
              + (col + 1)
              + ") lies above the diagonal of a "
              + MtxHeader.name(header.symmetry())
              + " file; expected the lower triangle only: row >= column");
    }
    if (col == row && header.symmetry() == Symmetry.SKEW_SYMMETRIC) {
      throw atEntry(
          "diagonal entry ("
              + (row + 1)
              + ", "
              + (col + 1)
              + ") in a skew-symmetric file; expected entries below the diagonal only");
    }
  }

  private BadInputException atEntry(String message) {
    return new BadInputException(text.file(), entryLine, message);
  }

  private void requireEnd() {
    if (text.skipToContent()) {
      throw text.bad(
          "more than the " + header.entries() + " entries promised; expected the end of the file");
    }
  }

  private Triplets readDenseTriplets() {
    Triplets triplets = new Triplets(firstCapacity());
    int rows = (int) header.rows();
    int cols = (int) header.cols();
    int most = (int) header.entries();
    int skip = header.symmetry() == Symmetry.SKEW_SYMMETRIC ? 1 : 0;
    long index = 0;
    for (int j = 0; j < cols; j++) {
      for (int i = header.symmetry() == Symmetry.GENERAL ? 0 : j + skip; i < rows; i++) {
        double v = readListed(index++);
        if (v != 0.0) {
          triplets.add(i, j, v, most);
        }
      }
    }
    requireEnd();
    report(index);
    return triplets;
  }

  private double readListed(long index) {
    requireContent(index);
    double v = readValue();
    text.requireLineEnd("one value a line");
    if (index % PROGRESS_ENTRIES == 0) {
      report(index);
    }
    return v;
  }

  private CsrMatrix assemble(Triplets t) {
    int rows = (int) header.rows();
    boolean mirror = header.symmetry() != Symmetry.GENERAL;
    double sign = header.symmetry() == Symmetry.SKEW_SYMMETRIC ? -1.0 : 1.0;
    int[] ptr = countRows(t, rows, mirror);
    int[] idx = new int[ptr[rows]];
    double[] val = new double[ptr[rows]];
    int[] next = Arrays.copyOf(ptr, rows);
    for (int k = 0; k < t.count; k++) {
      int i = t.rows[k];
      int j = t.cols[k];
      int at = next[i]++;
      idx[at] = j;
      val[at] = t.values[k];
      if (mirror && i != j) {
        at = next[j]++;
        idx[at] = i;
        val[at] = sign * t.values[k];
      }
    }
    for (int i = 0; i < rows; i++) {
      orderRow(i, ptr, idx, val);
    }
    return new CsrMatrix(rows, (int) header.cols(), ptr, idx, val);
  }

  private static int[] countRows(Triplets t, int rows, boolean mirror) {
    int[] ptr = new int[rows + 1];
    for (int k = 0; k < t.count; k++) {
      ptr[t.rows[k] + 1]++;
      if (mirror && t.rows[k] != t.cols[k]) {
        ptr[t.cols[k] + 1]++;
      }
    }
    for (int i = 0; i < rows; i++) {
      ptr[i + 1] += ptr[i];
    }
    return ptr;
  }

  /** Sorts a row that is not ascending; what is then still not ascending is there twice. */
  private void orderRow(int i, int[] ptr, int[] idx, double[] val) {
    if (firstDescent(i, ptr, idx) < 0) {
      return;
    }
    RowBuffer.sortRow(idx, val, ptr[i], ptr[i + 1]);
    int twice = firstDescent(i, ptr, idx);
    if (twice >= 0) {
      throw duplicate(i, idx[twice]);
    }
  }

  private static int firstDescent(int i, int[] ptr, int[] idx) {
    int end = ptr[i + 1];
    for (int k = ptr[i] + 1; k < end; k++) {
      if (idx[k] <= idx[k - 1]) {
        return k;
      }
    }
    return -1;
  }

  private BadInputException duplicate(int i, int j) {
    int r = header.symmetry() == Symmetry.GENERAL ? i : Math.max(i, j);
    int c = header.symmetry() == Symmetry.GENERAL ? j : Math.min(i, j);
    long first = lineOf(text.file(), r, c, 1);
    long second = lineOf(text.file(), r, c, 2);
    return new BadInputException(
        text.file(),
        second,
        "entry ("
            + (r + 1)
            + ", "
            + (c + 1)
            + ") is listed again"
            + (first == BadInputException.NO_LINE ? "" : ", first on line " + first)
            + "; expected each entry once");
  }

  private DenseColumns readColumns(int expectedRows, String what) {
    if (expectedRows >= 0 && header.rows() != expectedRows) {
      throw atEntry(
          what
              + " has "
              + header.rows()
              + " rows; expected "
              + expectedRows
              + ", as many as the matrix");
    }
    requireColumnMemory();
    double[][] columns = new double[(int) header.cols()][(int) header.rows()];
    Triplets t = header.coordinate() ? readTriplets() : readDenseTriplets();
    boolean mirror = header.symmetry() != Symmetry.GENERAL;
    CsrMatrix matrix = mirror || header.coordinate() ? assemble(t) : null;
    if (matrix == null) {
      for (int k = 0; k < t.count; k++) {
        columns[t.cols[k]][t.rows[k]] = t.values[k];
      }
    } else {
      scatter(matrix, columns);
    }
    return new DenseColumns((int) header.rows(), columns);
  }

  private void requireColumnMemory() {
    long cells = header.rows() * header.cols();
    requireMemory(cells > Integer.MAX_VALUE - 8 ? Long.MAX_VALUE : cells * 24, 0);
  }

  private static void scatter(CsrMatrix matrix, double[][] columns) {
    for (int i = 0; i < matrix.rows(); i++) {
      for (int k = matrix.rowPtr()[i]; k < matrix.rowPtr()[i + 1]; k++) {
        columns[matrix.colIdx()[k]][i] = matrix.values()[k];
      }
    }
  }

  @Override
  public void close() {
    text.close();
  }
}
