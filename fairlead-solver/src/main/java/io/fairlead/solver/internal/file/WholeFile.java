package io.fairlead.solver.internal.file;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.AccessDeniedException;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.HexFormat;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Writes a file that is there whole or not at all.
 *
 * <p>Links are followed to what they name. What is found there decides:
 *
 * <pre>
 * nothing, a file      written beside it under a name ending in .part, then renamed; a new file has
 *                      the mode that the umask leaves, an old one keeps its own
 * a device, a pipe     opened and written: it is the target itself, not the name for one
 * a folder, a file     refused
 * that is read-only
 * </pre>
 *
 * Any thread; every method may block on the file system. What they throw names the reason, see
 * {@link #reason}.
 */
public final class WholeFile {
  /** As many as Linux follows. */
  private static final int LINKS_MAX = 40;

  private static final int BUFFER_BYTES = 1 << 16;

  /** Names may have 255 bytes on most file systems, and a character up to four. */
  private static final int NAME_PREFIX_MAX = 48;

  private WholeFile() {}

  /** What is to be written. */
  @FunctionalInterface
  public interface Body {
    /** Writes all of it; {@code out} is buffered, and closed by the caller. */
    void writeTo(OutputStream out) throws IOException;
  }

  /** Writes the file. If that fails, what was there before is still there, and nothing new is. */
  public static void write(Path name, Body body) throws IOException {
    Target target = resolve(name);
    requireWritable(target);
    if (target.kind == Kind.STREAM) {
      OutputStream open =
          Files.newOutputStream(
              target.path, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING);
      writeAndClose(open, body);
    } else {
      writeWhole(target, body);
    }
  }

  /** Refuses at once what {@link #write} would refuse after the work is done. */
  public static void requireWritable(Path name) throws IOException {
    requireWritable(resolve(name));
  }

  /**
   * Whether writing one would overwrite the other: both names lead to one file, or would. Never
   * true of devices and pipes, which keep nothing.
   */
  public static boolean isSame(Path one, Path other) throws IOException {
    Target first = resolve(one);
    Target second = resolve(other);
    if (first.kind == Kind.ABSENT || second.kind == Kind.ABSENT) {
      return first.kind == second.kind && first.path.equals(second.path);
    }
    return Files.isSameFile(first.path, second.path)
        && !Files.readAttributes(first.path, BasicFileAttributes.class).isOther();
  }

  /** Returns why it failed, in words for a person, without the name of the file. */
  public static String reason(IOException failure) {
    return switch (failure) {
      case AccessDeniedException denied -> "permission denied";
      case NoSuchFileException missing -> "its folder is gone";
      case FileSystemException known when known.getReason() != null ->
          Objects.requireNonNull(known.getReason());
      default ->
          failure.getMessage() == null
              ? failure.getClass().getSimpleName()
              : Objects.requireNonNull(failure.getMessage());
    };
  }

  private enum Kind {
    ABSENT,
    FILE,
    FOLDER,
    STREAM
  }

  private record Target(Path path, Kind kind) {
    Path folder() throws IOException {
      Path folder = path.getParent();
      if (folder == null) {
        throw new FileSystemException(path.toString(), null, "it is a folder");
      }
      return folder;
    }
  }

  private static Target resolve(Path name) throws IOException {
    Path path = name.toAbsolutePath();
    for (int links = 0; links <= LINKS_MAX; links++) {
      if (standsForSomethingOpen(path)) {
        return new Target(path, Files.isDirectory(path) ? Kind.FOLDER : Kind.STREAM);
      }
      if (!Files.isSymbolicLink(path)) {
        return Files.exists(path) ? existing(path) : absent(path);
      }
      path = path.resolveSibling(Files.readSymbolicLink(path));
    }
    throw new FileSystemException(name.toString(), null, "its links lead nowhere");
  }

  /** As {@code /dev/stdout} does: a new file in that place would not be what is open. */
  private static boolean standsForSomethingOpen(Path path) throws IOException {
    Path folder = path.getParent();
    if (folder == null || !Files.exists(path)) {
      return false;
    }
    Path real = folder.toRealPath();
    return real.startsWith("/proc") || real.startsWith("/dev/fd");
  }

  private static Target existing(Path path) throws IOException {
    BasicFileAttributes attributes = Files.readAttributes(path, BasicFileAttributes.class);
    if (attributes.isDirectory()) {
      return new Target(path, Kind.FOLDER);
    }
    return attributes.isOther()
        ? new Target(path, Kind.STREAM)
        : new Target(path.toRealPath(), Kind.FILE);
  }

  private static Target absent(Path path) throws IOException {
    Path folder = path.getParent();
    Path file = path.getFileName();
    if (folder == null || file == null || !Files.isDirectory(folder)) {
      String missing = folder == null ? path.toString() : folder.toString();
      throw new FileSystemException(path.toString(), null, "there is no folder " + missing);
    }
    return new Target(folder.toRealPath().resolve(file), Kind.ABSENT);
  }

  private static void requireWritable(Target target) throws IOException {
    switch (target.kind) {
      case FOLDER -> throw refused(target, "it is a folder");
      case STREAM -> require(Files.isWritable(target.path), target, "permission denied");
      case FILE -> {
        require(isWritable(target.path), target, "the file is read-only");
        requireWritableFolder(target);
      }
      case ABSENT -> requireWritableFolder(target);
    }
  }

  private static void requireWritableFolder(Target target) throws IOException {
    Path folder = target.folder();
    require(Files.isWritable(folder), target, "no permission to write in the folder " + folder);
  }

  /** An administrator may write anything; a file that nobody is to write is left alone still. */
  private static boolean isWritable(Path file) throws IOException {
    Set<PosixFilePermission> mode = mode(file);
    boolean anybody =
        mode.isEmpty()
            || mode.contains(PosixFilePermission.OWNER_WRITE)
            || mode.contains(PosixFilePermission.GROUP_WRITE)
            || mode.contains(PosixFilePermission.OTHERS_WRITE);
    return anybody && Files.isWritable(file);
  }

  /** Empty where the file system knows no modes. */
  private static Set<PosixFilePermission> mode(Path file) throws IOException {
    PosixFileAttributeView view = Files.getFileAttributeView(file, PosixFileAttributeView.class);
    return view == null
        ? EnumSet.noneOf(PosixFilePermission.class)
        : view.readAttributes().permissions();
  }

  private static void require(boolean holds, Target target, String otherwise) throws IOException {
    if (!holds) {
      throw refused(target, otherwise);
    }
  }

  private static IOException refused(Target target, String reason) {
    return new FileSystemException(target.path.toString(), null, reason);
  }

  private static void writeWhole(Target target, Body body) throws IOException {
    try (Part part = Part.beside(target)) {
      OutputStream open = part.create();
      if (target.kind == Kind.FILE) {
        keepMode(target.path, part.path, open);
      }
      writeAndClose(open, body);
      part.publish(target.path);
    }
  }

  private static void keepMode(Path from, Path to, OutputStream open) throws IOException {
    try {
      Set<PosixFilePermission> mode = mode(from);
      if (!mode.isEmpty()) {
        Files.setPosixFilePermissions(to, mode);
      }
    } catch (IOException failure) {
      try (open) {
        throw failure;
      }
    }
  }

  private static void writeAndClose(OutputStream open, Body body) throws IOException {
    try (OutputStream out = new BufferedOutputStream(open, BUFFER_BYTES)) {
      body.writeTo(out);
    }
  }

  /**
   * The file while it is unfinished. It goes when this is closed, and when the process is told to
   * end before that.
   */
  private static final class Part implements AutoCloseable {
    final Path path;
    private final Thread sweeper = Thread.ofPlatform().name("fairlead-sweep").unstarted(this::end);
    private boolean ended;

    private Part(Path path) {
      this.path = path;
    }

    static Part beside(Target target) throws IOException {
      String name = Objects.requireNonNull(target.path.getFileName()).toString();
      String start = name.length() > NAME_PREFIX_MAX ? name.substring(0, NAME_PREFIX_MAX) : name;
      String unique = HexFormat.of().toHexDigits(ThreadLocalRandom.current().nextLong());
      Part part = new Part(target.folder().resolve("." + start + "." + unique + ".part"));
      try {
        Runtime.getRuntime().addShutdownHook(part.sweeper);
      } catch (IllegalStateException ending) {
        throw processEnds(target.path);
      }
      return part;
    }

    /** Under the lock, so that nothing is made once it was swept. */
    synchronized OutputStream create() throws IOException {
      if (ended) {
        throw processEnds(path);
      }
      return Files.newOutputStream(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
    }

    void publish(Path target) throws IOException {
      try {
        Files.move(path, target, StandardCopyOption.ATOMIC_MOVE);
      } catch (AtomicMoveNotSupportedException e) {
        Files.move(path, target, StandardCopyOption.REPLACE_EXISTING);
      }
    }

    private synchronized void end() {
      ended = true;
      path.toFile().delete();
    }

    @Override
    public void close() throws IOException {
      try {
        Runtime.getRuntime().removeShutdownHook(sweeper);
      } catch (IllegalStateException ending) {
        return; // it runs, or has run
      }
      Files.deleteIfExists(path);
    }

    private static IOException processEnds(Path file) {
      return new FileSystemException(file.toString(), null, "the process is ending");
    }
  }
}
