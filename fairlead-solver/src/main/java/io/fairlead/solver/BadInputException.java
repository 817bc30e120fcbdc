package io.fairlead.solver;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import java.nio.file.Path;

/**
 * The input is at fault, not the program: the message reads {@code FILE:LINE: what is wrong; what
 * was expected} and is meant to be shown as it is.
 */
public final class BadInputException extends FairleadException {
  private static final long serialVersionUID = 1L;

  /** The line of complaints about a file as a whole. */
  public static final long NO_LINE = 0;

  private final transient Path file;
  private final long line;

  /**
   * Makes the exception.
   *
   * @param file the file at fault
   * @param line the line at fault, from 1, or {@link #NO_LINE}
   * @param message what is wrong; what was expected
   */
  public BadInputException(Path file, long line, String message) {
    super(
        Severity.OPERATION,
        line == NO_LINE ? file + ": " + message : file + ":" + line + ": " + message,
        null);
    this.file = file;
    this.line = line;
  }

  /** Returns the file at fault. */
  public Path file() {
    return file;
  }

  /** Returns the line at fault, from 1, or {@link #NO_LINE}. */
  public long line() {
    return line;
  }
}
