package io.fairlead.solver.internal;

import io.fairlead.solver.BadInputException;
import io.fairlead.solver.MatrixFile;
import io.fairlead.solver.SpdCheck;

/** Finds the lines of entries again, for messages: only once something is wrong. */
public final class EntryLines {
  private EntryLines() {}

  /** Returns the complaint about a finding, at the line of its entry. */
  public static BadInputException badInput(MatrixFile matrixFile, SpdCheck.Finding finding) {
    long line = line(matrixFile, finding.row(), finding.col());
    long other =
        finding.row() == finding.col() // on the diagonal, or about the sizes
            ? BadInputException.NO_LINE
            : line(matrixFile, finding.col(), finding.row());
    String where = other == BadInputException.NO_LINE ? "" : " (line " + other + ")";
    return new BadInputException(
        matrixFile.file(), line, finding.problem() + where + "; expected " + finding.expected());
  }

  private static long line(MatrixFile matrixFile, int row, int col) {
    return row < 0
        ? MtxReader.sizeLineOf(matrixFile.file())
        : MtxReader.lineOf(matrixFile.file(), row, col, 1);
  }
}
