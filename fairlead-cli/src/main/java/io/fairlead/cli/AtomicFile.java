package io.fairlead.cli;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** Writes a file that is there whole or not at all. */
public final class AtomicFile {
  private AtomicFile() {}

  /**
   * Writes {@code text} to a temporary file beside {@code name} and renames it when it is complete.
   * Blocks; any thread.
   *
   * @throws UnwritableException if the folder does not exist or cannot be written to
   */
  public static void write(String name, String text) {
    Path target = Path.of(name).toAbsolutePath();
    requireWritable(Path.of(name));
    Path folder = java.util.Objects.requireNonNull(target.getParent(), name);
    try {
      Path partial = Files.createTempFile(folder, "." + target.getFileName(), ".partial");
      try {
        Files.writeString(partial, text, StandardCharsets.UTF_8);
        Files.move(partial, target, StandardCopyOption.REPLACE_EXISTING);
      } finally {
        Files.deleteIfExists(partial);
      }
    } catch (IOException e) {
      throw new UnwritableException(name, e);
    }
  }

  /**
   * Refuses at once what {@link #write} would refuse after the work is done.
   *
   * @throws UnwritableException if the folder does not exist or cannot be written to
   */
  static void requireWritable(Path file) {
    Path target = file.toAbsolutePath();
    Path folder = java.util.Objects.requireNonNull(target.getParent());
    if (!Files.isDirectory(folder)) {
      throw new UnwritableException(file.toString(), new NoSuchFileException(folder.toString()));
    }
    if (Files.isDirectory(target)) {
      throw new UnwritableException(file.toString(), new IOException("it is a folder"));
    }
    if (!Files.isWritable(folder)) {
      throw new UnwritableException(file.toString(), new IOException(folder + " is read-only"));
    }
  }

  /** An output file cannot be written. */
  public static final class UnwritableException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    UnwritableException(String name, IOException cause) {
      super(
          name + ": cannot be written: " + reason(cause) + "; expected a file in a writable folder",
          cause);
    }

    private static String reason(IOException cause) {
      return cause instanceof NoSuchFileException missing
          ? "there is no folder " + missing.getFile()
          : String.valueOf(cause.getMessage());
    }
  }
}
