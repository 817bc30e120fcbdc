package io.fairlead.cli.bench;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;

/**
 * What spilling to a disk is compared with: a loop of direct reads or writes of one file, one piece
 * after the other, past the system's cache. Confined to the thread that measures.
 */
final class RawFile implements AutoCloseable {
  private static final int PIECE = 4 << 20;
  private static final int ALIGNMENT = 4096;

  private final Path path;
  private final FileChannel file;
  private final ByteBuffer piece =
      ByteBuffer.allocateDirect(PIECE + ALIGNMENT).alignedSlice(ALIGNMENT);
  private final long bytes;

  /**
   * Makes the file there.
   *
   * @param bytes a multiple of 4 MiB
   * @throws IOException also where files cannot be opened for direct access
   */
  RawFile(Path directory, long bytes) throws IOException {
    if (bytes % PIECE != 0) {
      throw new IllegalArgumentException(bytes + " bytes are no pieces of " + PIECE);
    }
    this.bytes = bytes;
    this.path = Files.createTempFile(directory, "fairlead-bench", ".raw");
    for (int i = 0; i < PIECE; i++) {
      piece.put(i, (byte) ((i * 31) >> 3)); // a disk that compresses gains nothing
    }
    try {
      Set<OpenOption> options = Set.of(StandardOpenOption.READ, StandardOpenOption.WRITE, direct());
      this.file = FileChannel.open(path, options);
    } catch (IOException | UnsupportedOperationException refused) {
      Files.delete(path);
      throw new IOException("no direct access to files in " + directory, refused);
    }
  }

  /** By its name, since compilers warn of a class that belongs to the JDK. */
  private static OpenOption direct() {
    try {
      Class<?> options = Class.forName("com.sun.nio.file.ExtendedOpenOption");
      return (OpenOption) options.getField("DIRECT").get(null);
    } catch (ReflectiveOperationException missing) {
      throw new UnsupportedOperationException("this JDK has no direct access", missing);
    }
  }

  /**
   * Writes all of it to the disk; nanoseconds. Not forced, as images are not: neither outlives its
   * process, and what goes past the system's cache has its errors told by the write.
   */
  double write() throws IOException {
    long start = System.nanoTime();
    for (long at = 0; at < bytes; at += PIECE) {
      piece.position(0).limit(PIECE);
      while (piece.hasRemaining()) {
        file.write(piece, at + piece.position());
      }
    }
    return System.nanoTime() - start;
  }

  /** Reads all of it; nanoseconds. */
  double read() throws IOException {
    long start = System.nanoTime();
    for (long at = 0; at < bytes; at += PIECE) {
      piece.position(0).limit(PIECE);
      while (piece.hasRemaining()) {
        if (file.read(piece, at + piece.position()) < 0) {
          throw new IOException(path + " is shorter than what was written");
        }
      }
    }
    return System.nanoTime() - start;
  }

  @Override
  public void close() throws IOException {
    file.close();
    Files.delete(path);
  }
}
