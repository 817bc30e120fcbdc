package io.fairlead.memory;

import io.fairlead.fault.Mutant;
import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/**
 * Moves whole chunks between memory and a file: all of it, or it fails. One thread at a time.
 *
 * <p>What is aligned goes straight from and to the caller's memory. What is not, and the end of an
 * image that is no whole unit, goes through a buffer that is kept.
 */
final class DiskTransfer {
  /** A piece of a chunk that is not aligned: large enough that a call of the system is cheap. */
  private static final int BOUNCE = 1 << 20;

  /** A file that takes or gives nothing so often in a row is stuck. */
  static final int STALLS_MAX = 4;

  private final DiskFiles files;
  private final int alignment;
  private final int unit;

  /** Made for the first job that needs it: if there is no memory, only that one fails. */
  private @Nullable MemorySegment bounce;

  /** For files whose ends are padded to {@code unit}, a multiple of their alignment. */
  DiskTransfer(DiskFiles files, int unit) {
    this.files = files;
    this.alignment = files.alignment();
    this.unit = unit;
  }

  private MemorySegment bounce() {
    MemorySegment known = bounce;
    if (known == null) {
      known = files.buffer(Math.max(BOUNCE, unit), unit);
      bounce = known;
    }
    return known;
  }

  /** Writes it there, and zeros up to the unit. */
  void write(DiskFiles.OpenFile file, MemorySegment source, long position) throws IOException {
    long whole = whole(source.byteSize());
    if (isAligned(source)) {
      writeFully(file, source.asSlice(0, whole), position);
    } else {
      MemorySegment through = bounce();
      for (long done = 0; done < whole; done += through.byteSize()) {
        MemorySegment piece = through.asSlice(0, Math.min(through.byteSize(), whole - done));
        piece.copyFrom(source.asSlice(done, piece.byteSize()));
        writeFully(file, piece, position + done);
      }
    }
    if (whole < source.byteSize()) {
      MemorySegment tail = bounce().asSlice(0, unit).fill((byte) 0);
      tail.copyFrom(source.asSlice(whole));
      writeFully(file, tail, position + whole);
    }
  }

  /**
   * Reads it from there.
   *
   * @throws EOFException if the file ends before that
   * @return false if what follows up to the unit is not zero
   */
  boolean read(DiskFiles.OpenFile file, MemorySegment target, long position) throws IOException {
    long whole = whole(target.byteSize());
    if (isAligned(target)) {
      readFully(file, target.asSlice(0, whole), position);
    } else {
      MemorySegment through = bounce();
      for (long done = 0; done < whole; done += through.byteSize()) {
        MemorySegment piece = through.asSlice(0, Math.min(through.byteSize(), whole - done));
        readFully(file, piece, position + done);
        target.asSlice(done).copyFrom(piece);
      }
    }
    if (whole == target.byteSize()) {
      return true;
    }
    MemorySegment tail = bounce().asSlice(0, unit);
    readFully(file, tail, position + whole);
    long length = target.byteSize() - whole;
    target.asSlice(whole).copyFrom(tail.asSlice(0, length));
    return isZero(tail.asSlice(length));
  }

  private long whole(long bytes) {
    return bytes - bytes % unit;
  }

  private boolean isAligned(MemorySegment memory) {
    return memory.address() % alignment == 0;
  }

  private static boolean isZero(MemorySegment memory) {
    return memory.mismatch(MemorySegment.ofArray(new byte[(int) memory.byteSize()])) < 0;
  }

  private void writeFully(DiskFiles.OpenFile file, MemorySegment source, long position)
      throws IOException {
    ByteBuffer bytes = source.asByteBuffer();
    int stalls = 0;
    for (int done = 0; done < bytes.capacity(); ) {
      ByteBuffer rest = bytes.slice(done, bytes.capacity() - done);
      int length = rest.remaining();
      int moved = moved(file.write(rest, position + done), length, "wrote");
      stalls = moved == 0 ? stalled(stalls, "takes", position + done) : 0;
      done += Mutant.on("disk.short-write-accepted") ? length : moved;
    }
  }

  private void readFully(DiskFiles.OpenFile file, MemorySegment target, long position)
      throws IOException {
    ByteBuffer bytes = target.asByteBuffer();
    int stalls = 0;
    for (int done = 0; done < bytes.capacity(); ) {
      ByteBuffer rest = bytes.slice(done, bytes.capacity() - done);
      int length = rest.remaining();
      int read = file.read(rest, position + done);
      int moved = moved(Math.max(0, read), length, "read");
      // Less than a unit, again and again: there is no more.
      if (read < 0 || (read > moved && stalls + 1 == STALLS_MAX)) {
        throw new EOFException("it ends at or behind byte " + (position + done));
      }
      stalls = moved == 0 ? stalled(stalls, "gives", position + done) : 0;
      done += Mutant.on("disk.short-read-accepted") ? length : moved;
    }
  }

  /** In whole units of the alignment: from within one, a direct file cannot go on. */
  private int moved(int said, int asked, String verb) throws IOException {
    if (said < 0 || said > asked) {
      throw new IOException(verb + " " + said + " bytes of " + asked);
    }
    return said - said % alignment;
  }

  private static int stalled(int before, String verb, long position) throws IOException {
    if (before + 1 == STALLS_MAX) {
      throw new IOException("it " + verb + " nothing at byte " + position);
    }
    return before + 1;
  }
}
