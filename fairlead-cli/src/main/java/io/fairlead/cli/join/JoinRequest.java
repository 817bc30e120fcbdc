package io.fairlead.cli.join;

import io.fairlead.cli.ReportWriter;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What the command line of {@code fairlead join} asks for.
 *
 * @param files the two files, or nothing where tables are generated
 * @param partitions how many; 0 for as many as are good
 */
record JoinRequest(
    @Nullable Files files,
    int rows,
    double skew,
    long seed,
    int tasks,
    int streams,
    int partitions,
    String device,
    @Nullable Long deviceMemory,
    @Nullable Long hostMemory,
    @Nullable Path spillFolder,
    boolean check,
    @Nullable Path out) {

  /** How keys are compared. */
  enum Keys {
    /** As integers if the first key of the left file is one. */
    AUTO,
    INTEGER,
    TEXT
  }

  /**
   * Two files.
   *
   * @param on the column that both have
   * @param sums the columns to sum; empty for all with numbers
   */
  record Files(Path left, Path right, String on, List<String> sums, Keys keys) {}

  boolean groupsOnStandardOutput() {
    return ReportWriter.isStandardOutput(out);
  }

  /** Negative for as many as are good. */
  int partitionBits() {
    return partitions == 0 ? -1 : Integer.numberOfTrailingZeros(partitions);
  }
}
