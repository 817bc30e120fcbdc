package io.fairlead.cli;

import io.fairlead.solver.internal.file.WholeFile;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** Writes a file that is there whole or not at all; see {@link WholeFile}. */
public final class AtomicFile {
  private AtomicFile() {}

  /**
   * Writes {@code text} there. Blocks; any thread.
   *
   * @throws UnwritableException if it cannot be written
   */
  public static void write(String name, String text) {
    write(Path.of(name), out -> out.write(text.getBytes(StandardCharsets.UTF_8)));
  }

  /**
   * Writes what {@code body} writes there. Blocks; any thread.
   *
   * @throws UnwritableException if it cannot be written
   */
  public static void write(Path file, WholeFile.Body body) {
    try {
      WholeFile.write(file, body);
    } catch (IOException e) {
      throw new UnwritableException(file.toString(), e);
    }
  }

  /**
   * Refuses at once what {@link #write} would refuse after the work is done.
   *
   * @throws UnwritableException if it cannot be written
   */
  public static void requireWritable(Path file) {
    try {
      WholeFile.requireWritable(file);
    } catch (IOException e) {
      throw new UnwritableException(file.toString(), e);
    }
  }

  /**
   * Whether writing one would overwrite the other. What cannot be told apart here fails where it is
   * opened.
   */
  public static boolean isSame(Path one, Path other) {
    try {
      return WholeFile.isSame(one, other);
    } catch (IOException unknown) {
      return false;
    }
  }

  /** An output cannot be written. */
  public static final class UnwritableException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    UnwritableException(String name, IOException cause) {
      super(name + ": cannot be written: " + WholeFile.reason(cause), cause);
    }
  }
}
