package io.fairlead.memory;

import io.fairlead.fault.Mutant;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;
import org.jspecify.annotations.Nullable;

/**
 * What an image looks like in its file, and how what comes back is told from what was written.
 *
 * <pre>
 * at            | what                                     | little endian
 * 0             | "FLSPILL1"                               | 8 bytes
 * 8, 12         | version, checksum algorithm (1: CRC32C)  | int
 * 16, 24, 32    | length, generation, storage id           | long
 * 40, 48        | chunk size, where the first chunk begins | long
 * 56            | number of chunks                         | int
 * 60            | checksum of each chunk                   | int each
 * after that    | checksum of all before it                | int
 * to the unit   | zeros
 * dataAt        | the chunks; zeros from the last one to the unit
 * </pre>
 *
 * Only the process that wrote an image reads it, and it keeps what it wrote: a header must be the
 * same to the byte, and so be of this image, storage and generation, and a chunk must have the
 * checksum that its place had in memory. So it does not help a wrong file to be right in itself.
 */
record DiskFormat(long storageId, long generation, long bytes, long chunkBytes, int unit) {
  /** Headers and ends are padded to this at least. */
  static final int UNIT = 4096;

  static final int VERSION = 1;
  static final int CRC32C_ALGORITHM = 1;

  /** "FLSPILL1". */
  private static final long MAGIC = 0x314c_4c49_5053_4c46L;

  private static final int FIXED = 60;

  /**
   * Large enough that a disk is as fast as it can be, and small enough that its checksums are added
   * up while another thread's run is under way.
   */
  private static final long RUN_BYTES = 4L << 20;

  int chunks() {
    return chunksIn(bytes);
  }

  /**
   * Which chunk begins there.
   *
   * @throws IllegalArgumentException if it is none, or these bytes are no whole chunks
   */
  int indexOf(long offset, long length) {
    boolean begins = offset >= 0 && offset % chunkBytes == 0 && length > 0;
    boolean ends =
        length <= bytes - offset && (length % chunkBytes == 0 || offset + length == bytes);
    if (!begins || !ends) {
      throw new IllegalArgumentException(
          length
              + " bytes at "
              + offset
              + " are no whole chunks of "
              + chunkBytes
              + " of an image of "
              + bytes);
    }
    return Math.toIntExact(offset / chunkBytes);
  }

  int chunksIn(long length) {
    return Math.toIntExact((length + chunkBytes - 1) / chunkBytes);
  }

  /** So many go with one call of the system. */
  int runChunks() {
    return (int) Math.max(1, RUN_BYTES / chunkBytes);
  }

  /**
   * What goes with one call.
   *
   * @param memory of some chunks
   * @param done chunks of it that went before
   */
  MemorySegment run(MemorySegment memory, int done) {
    long from = done * chunkBytes;
    long whole = runChunks() * chunkBytes;
    return memory.asSlice(from, Math.min(whole, memory.byteSize() - from));
  }

  /** Of the last one, what is left. */
  long chunkLength(int index) {
    return Math.min(chunkBytes, bytes - index * chunkBytes);
  }

  /** Where the chunks begin; the size of the header. */
  long dataAt() {
    return roundUp(FIXED + 4L * chunks() + 4);
  }

  long chunkAt(int index) {
    return dataAt() + index * chunkBytes;
  }

  long fileBytes() {
    return dataAt() + roundUp(bytes);
  }

  private long roundUp(long length) {
    return (length + unit - 1) / unit * unit;
  }

  /** Puts those of the chunks of a run into {@code sums}, from {@code at} on. */
  void putChecksums(MemorySegment run, int[] sums, int at) {
    ByteBuffer bytes = run.asByteBuffer();
    CRC32C crc = new CRC32C();
    int chunk = Math.toIntExact(chunkBytes);
    for (int i = at; bytes.position() < bytes.capacity(); i++) {
      bytes.limit(Math.min(bytes.position() + chunk, bytes.capacity()));
      crc.reset();
      crc.update(bytes);
      sums[i] = (int) crc.getValue();
    }
  }

  /** Puts the header into the {@link #dataAt} bytes of {@code target}. */
  void putHeader(int[] checksums, MemorySegment target) {
    ByteBuffer header = target.asByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    header.putLong(MAGIC).putInt(VERSION).putInt(CRC32C_ALGORITHM);
    header.putLong(bytes).putLong(generation).putLong(storageId);
    header.putLong(chunkBytes).putLong(dataAt()).putInt(checksums.length);
    for (int checksum : checksums) {
      header.putInt(checksum);
    }
    CRC32C crc = new CRC32C();
    crc.update(header.duplicate().flip());
    header.putInt((int) crc.getValue());
  }

  /** What is wrong with a header that was read, or null. */
  @Nullable String wrongWith(MemorySegment read, MemorySegment written) {
    long at = read.mismatch(written);
    if (at < 0 || Mutant.on("disk.header-unchecked")) {
      return null;
    }
    ByteBuffer header = read.asByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    if (header.getLong(0) != MAGIC) {
      return "it is no image: its first bytes are others";
    }
    if (header.getLong(24) != generation) {
      return "it has generation " + header.getLong(24) + " instead of " + generation;
    }
    if (header.getLong(32) != storageId) {
      return "it is of storage " + header.getLong(32) + " instead of " + storageId;
    }
    return "its header differs at byte " + at;
  }
}
