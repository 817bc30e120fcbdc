package io.fairlead.memory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.HashSet;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The files of a local file system, past the page cache where it can be done.
 *
 * <p><b>Direct.</b> Memory is what there is too little of when something is spilled, so it should
 * not go to a second copy in the page cache; and without that copy the disk is faster. The option
 * for it is in {@code jdk.unsupported}, which is not required: it is there on every class path, in
 * every image that was linked with it, and on a module path with {@code --add-modules
 * jdk.unsupported}. Without it, or where the file system does not want it, files are buffered, and
 * forced to the device before they are published: only so does a write error that the system finds
 * late come while the bytes are still elsewhere.
 */
final class LocalFiles implements DiskFiles {
  /** Larger units would waste more than they win: network file systems name a megabyte. */
  static final int ALIGNMENT_MAX = 64 << 10;

  private static final String OPTION = "com.sun.nio.file.ExtendedOpenOption";

  private final @Nullable OpenOption direct;
  private final int alignment;
  private final FileAttribute<?> mine =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

  private LocalFiles(@Nullable OpenOption direct, int alignment) {
    this.direct = direct;
    this.alignment = alignment;
  }

  /** Files that go through the page cache. */
  static LocalFiles buffered() {
    return new LocalFiles(null, 1);
  }

  /**
   * Direct files if a trial in this directory succeeds and chunks are whole units of it, else
   * buffered ones.
   */
  static LocalFiles in(Path directory, long chunkBytes) {
    OpenOption option = directOption();
    if (option != null) {
      try {
        long block = Files.getFileStore(directory).getBlockSize();
        long unit = Math.max(block, DiskFormat.UNIT);
        if (unit <= ALIGNMENT_MAX && Long.bitCount(unit) == 1 && chunkBytes % unit == 0) {
          LocalFiles files = new LocalFiles(option, Math.toIntExact(unit));
          if (files.works(directory.resolve("probe"))) {
            return files;
          }
        }
      } catch (IOException | UnsupportedOperationException no) {
        return buffered();
      }
    }
    return buffered();
  }

  /** By its name, since its module need not be there. */
  private static @Nullable OpenOption directOption() {
    try {
      return (OpenOption) Class.forName(OPTION).getField("DIRECT").get(null);
    } catch (ReflectiveOperationException | LinkageError absent) {
      return null;
    }
  }

  private boolean works(Path file) throws IOException {
    try (Arena arena = Arena.ofShared()) {
      ByteBuffer block = arena.allocate(alignment, alignment).asByteBuffer();
      try (OpenFile target = create(file)) {
        if (target.write(block, 0) != alignment) {
          return false;
        }
      }
      try (OpenFile source = open(file)) {
        return source.read(block.clear(), 0) == alignment;
      }
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException no) {
      return false;
    } finally {
      Files.deleteIfExists(file);
    }
  }

  @Override
  public int alignment() {
    return alignment;
  }

  @Override
  public OpenFile create(Path file) throws IOException {
    Set<OpenOption> options =
        options(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
    return new Channel(FileChannel.open(file, options, mine));
  }

  @Override
  public OpenFile reopen(Path file) throws IOException {
    return new Channel(
        FileChannel.open(file, options(StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS)));
  }

  @Override
  public OpenFile open(Path file) throws IOException {
    return new Channel(
        FileChannel.open(file, options(StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)));
  }

  private Set<OpenOption> options(OpenOption... options) {
    Set<OpenOption> all = new HashSet<>(Set.of(options));
    if (direct != null) {
      all.add(direct);
    }
    return all;
  }

  @Override
  public void rename(Path from, Path to) throws IOException {
    Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
  }

  @Override
  public long size(Path file) throws IOException {
    return (long) Files.getAttribute(file, "size", LinkOption.NOFOLLOW_LINKS);
  }

  @Override
  public boolean delete(Path file) throws IOException {
    return Files.deleteIfExists(file);
  }

  @Override
  public long usableBytes(Path directory) throws IOException {
    return Files.getFileStore(directory).getUsableSpace();
  }

  private record Channel(FileChannel channel) implements OpenFile {
    @Override
    public int write(ByteBuffer source, long position) throws IOException {
      return channel.write(source, position);
    }

    @Override
    public int read(ByteBuffer target, long position) throws IOException {
      return channel.read(target, position);
    }

    @Override
    public void force() throws IOException {
      channel.force(false);
    }

    @Override
    public void close() throws IOException {
      channel.close();
    }
  }
}
