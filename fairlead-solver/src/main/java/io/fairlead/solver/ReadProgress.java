package io.fairlead.solver;

/** Hears how far reading has come; called on the reading thread, a few dozen times a second. */
@FunctionalInterface
public interface ReadProgress {
  /** Hears nothing. */
  ReadProgress SILENT = (bytes, bytesTotal, entries, entriesTotal) -> {};

  /**
   * Called now and then while a file is read, and at its end.
   *
   * @param bytes bytes taken from the file so far, packed where the file is
   * @param bytesTotal the file's size
   * @param entries entries read so far
   * @param entriesTotal entries that the file promises
   */
  void read(long bytes, long bytesTotal, long entries, long entriesTotal);
}
