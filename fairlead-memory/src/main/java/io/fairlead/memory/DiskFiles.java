package io.fairlead.memory;

import java.io.Closeable;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/**
 * The file operations of the disk tier, and nothing else of it, so that tests can put faults in.
 * Every call may block; only threads of {@link DiskTier} make them. Any number at once.
 */
interface DiskFiles {
  /**
   * What addresses, positions and lengths must be multiples of, a power of two; 1 if the file
   * system takes any.
   */
  int alignment();

  /**
   * Memory for what does not lie in the file as it lies in the caller's memory, aligned to {@link
   * #alignment} at least; the collector's.
   */
  default MemorySegment buffer(long bytes, long alignedTo) {
    return Arena.ofAuto().allocate(bytes, alignedTo);
  }

  /** Makes a file that was not there, for its owner alone, to be written. */
  OpenFile create(Path file) throws IOException;

  /** Opens a file that is there to be written over. A symbolic link is an error. */
  OpenFile reopen(Path file) throws IOException;

  /** Opens a file to be read. A symbolic link is an error. */
  OpenFile open(Path file) throws IOException;

  /** Gives the file its other name, at once; takes the place of what has that name. */
  void rename(Path from, Path to) throws IOException;

  /** The size by its name. */
  long size(Path file) throws IOException;

  /** Removes the file; says whether it was there. */
  boolean delete(Path file) throws IOException;

  /** Bytes that may still be written there. */
  long usableBytes(Path directory) throws IOException;

  /** A file that is open. Reads and writes may move less than they were asked for. */
  interface OpenFile extends Closeable {
    /** Writes what remains, or the first part of it; says how much. */
    int write(ByteBuffer source, long position) throws IOException;

    /** Reads into what remains, or the first part of it; says how much; -1 at the end. */
    int read(ByteBuffer target, long position) throws IOException;

    /** Returns once the device has it all. */
    void force() throws IOException;
  }
}
