package io.fairlead.memory;

import io.fairlead.fault.Mutant;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A directory of our own, inside the one that was given, for as long as the tier lives.
 *
 * <h2>Which directories are taken</h2>
 *
 * What is spilled is data of the program, and what comes back is believed. So nobody else may be
 * able to put a file or a link in our way:
 *
 * <ul>
 *   <li>The given directory exists, and its path leads through no symbolic link. It belongs to this
 *       user or to root, and neither group nor others may write to it, or it has the sticky bit, as
 *       {@code /tmp} has: then nobody else can remove or rename what is ours in it.
 *   <li>Nor may others write to a directory above it, but for the same bit: they could put another
 *       in its place. A group may, there: shared project directories are made so, and a group is
 *       somebody's choice.
 *   <li>Ours is made with mode 0700, and every file in it with 0600, new, through no link.
 * </ul>
 *
 * <h2>Who is alive</h2>
 *
 * Ours is named {@code fairlead-spill-PID-START-BOOT-RANDOM} and holds a file {@code lock}, which
 * the living process has locked; the system takes the lock away with the process, however that
 * ends. A process that finds a directory of this user whose lock it can take removes what is in it,
 * unread: images, then the lock, then the directory. The name does not say who is alive, since
 * numbers come again. It says two other things:
 *
 * <ul>
 *   <li>Which are this very process's own. Their lock files are never touched: closing one anywhere
 *       in a process gives up all locks that the process has on it.
 *   <li>Which were made under another boot of a kernel, this machine's or another's. On a file
 *       system that is not known to be local they are left alone, since locks are often not seen
 *       from one machine to another there.
 * </ul>
 *
 * <p>To make one there are several steps, and a cleaner may come between any two. It removes a
 * directory only if it is empty, and a lock file only while it has the lock; so whoever has locked
 * a lock file that still has its name has a directory that stays. Else it makes another.
 *
 * <p>One thread at a time.
 */
final class DiskDirectory {
  static final String PREFIX = "fairlead-spill-";
  static final String LOCK = "lock";
  private static final int ATTEMPTS = 16;

  /** Where a lock that can be taken is nobody's. */
  private static final Set<String> LOCAL =
      Set.of("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay");

  private static final Path BOOT_ID = Path.of("/proc/sys/kernel/random/boot_id");
  private static final int STICKY = 01000;
  private static final int GROUP_WRITES = 0020;
  private static final int OTHERS_WRITE = 0002;
  private static final int PERMISSIONS = 0777;
  private static final int ONLY_US = 0700;
  private static final int ROOT = 0;

  private static final FileAttribute<?> OURS =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
  private static final FileAttribute<?> OUR_FILE =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));
  private static final System.Logger LOG = System.getLogger(DiskDirectory.class.getName());

  private final Path given;
  private final Object device;

  /** Lost their lock while they were ours; files may still lie in them. */
  private final List<Path> former = new ArrayList<>();

  /** Volatile: reports read it while a trial may make another. */
  private volatile Path path;

  private FileChannel lock;
  private int leftovers;
  private long leftoverBytes;

  private DiskDirectory(Path given) throws IOException {
    this.given = given.toAbsolutePath().normalize();
    Attributes attributes = requireSafe(given);
    this.device = attributes.device;
    make();
    boolean taken = false;
    try {
      requireOwner(attributes);
      clean();
      taken = true;
    } finally {
      if (!taken) {
        close();
      }
    }
  }

  /**
   * Checks the given directory, makes ours in it, and removes what dead processes have left.
   * Blocks.
   *
   * @throws SpillException refused, saying what to do
   */
  static DiskDirectory open(Path given) {
    try {
      return new DiskDirectory(given);
    } catch (IOException | UnsupportedOperationException failed) {
      throw refused(given, "cannot be used for spilling: " + reason(failed), failed);
    }
  }

  /** Ours. It is another one after {@link #check} has had to make it again. */
  Path path() {
    return path;
  }

  /** Directories of dead processes that were removed. */
  int leftovers() {
    return leftovers;
  }

  /** Bytes of the files in them. */
  long leftoverBytes() {
    return leftoverBytes;
  }

  /**
   * Looks whether all is as it was, and makes ours again if it is gone. Blocks.
   *
   * @throws SpillException where the directory has changed into one that would be refused
   * @throws IOException if it cannot be used now
   */
  void check() throws IOException {
    Attributes attributes = requireSafe(given);
    if (!attributes.device.equals(device)) {
      // What lies below a mount that has gone is mostly the system's own disk, which is not to be
      // filled.
      throw new NoSuchFileException(
          given.toString(), null, "another file system is there than when it was opened");
    }
    if (!Files.exists(path.resolve(LOCK), LinkOption.NOFOLLOW_LINKS)) {
      giveUpLock();
      former.add(path);
      make();
    }
  }

  /** Removes ours; where files are left in it, the next process is to do it. Blocks. */
  void close() {
    try {
      if (isEmptyButForLock()) {
        // Before the lock is given up: from then on others may do it.
        Files.deleteIfExists(path.resolve(LOCK));
        Files.deleteIfExists(path);
      } else {
        LOG.log(Level.WARNING, path + " is left to the next process: files in it stayed");
      }
      for (Path each : former) {
        removeIfEmpty(each);
      }
    } catch (IOException later) {
      LOG.log(Level.WARNING, path + " is left to the next process: " + reason(later));
    } finally {
      giveUpLock();
    }
  }

  /** With a file but no lock it would be nobody's to remove. */
  private boolean isEmptyButForLock() throws IOException {
    try {
      for (Path file : list(path, "*")) {
        if (!file.getFileName().toString().equals(LOCK)) {
          return false;
        }
      }
      return true;
    } catch (NoSuchFileException gone) {
      return true;
    }
  }

  private void giveUpLock() {
    try {
      lock.close();
    } catch (IOException nothingToDo) {
      LOG.log(Level.DEBUG, "closing " + path.resolve(LOCK), nothingToDo);
    }
  }

  // --- is it safe? ----------------------------------------------------------------------------

  private static Attributes requireSafe(Path given) throws IOException {
    Path absolute = given.toAbsolutePath().normalize();
    if (Files.isSymbolicLink(absolute)) {
      throw refused(given, "it is a symbolic link; give the directory that is meant", null);
    }
    Path real;
    try {
      real = given.toRealPath();
    } catch (NoSuchFileException missing) {
      throw refused(
          given, "there is no such directory; make it: mkdir -m 700 '" + given + "'", missing);
    }
    if (!real.equals(absolute)) {
      throw refused(
          given,
          "a symbolic link leads to it, which somebody could turn elsewhere; if '"
              + real
              + "' is meant, give that",
          null);
    }
    Attributes attributes = Attributes.of(real);
    if (!attributes.isDirectory) {
      throw refused(given, "it is no directory; give one that only this user can write to", null);
    }
    if (attributes.othersMayChange(GROUP_WRITES | OTHERS_WRITE)) {
      throw refused(
          given,
          "others can write to it, and could change what is spilled; make one for this user alone:"
              + " mkdir -m 700 '"
              + given
              + "/spill', and give that, or chmod go-w '"
              + given
              + "'",
          null);
    }
    for (Path above = real.getParent(); above != null; above = above.getParent()) {
      if (Attributes.of(above).othersMayChange(OTHERS_WRITE)) {
        throw refused(
            given,
            "others can write to '"
                + above
                + "' above it, and could put another directory in its place; chmod o-w '"
                + above
                + "', or give a directory elsewhere",
            null);
      }
    }
    return attributes;
  }

  /** Known only after ours is made: whose files this process makes is the owner of that. */
  private void requireOwner(Attributes attributes) throws IOException {
    Attributes ours = Attributes.of(path);
    if (attributes.owner != ROOT && attributes.owner != ours.owner) {
      throw refused(
          given,
          "it belongs to user "
              + attributes.owner
              + ", who could change what user "
              + ours.owner
              + " spills there; give a directory of this user's own",
          null);
    }
    if ((ours.mode & PERMISSIONS) != ONLY_US) {
      throw refused(
          given,
          "directories that are made there can be read by others; give one on a file system with"
              + " POSIX permissions",
          null);
    }
  }

  private record Attributes(
      boolean isDirectory, boolean isLink, int owner, int mode, Object device) {
    static Attributes of(Path path) throws IOException {
      Map<String, Object> all =
          Files.readAttributes(
              path, "unix:isDirectory,isSymbolicLink,uid,mode,dev", LinkOption.NOFOLLOW_LINKS);
      return new Attributes(
          (boolean) asked(all, "isDirectory"),
          (boolean) asked(all, "isSymbolicLink"),
          (int) asked(all, "uid"),
          (int) asked(all, "mode"),
          asked(all, "dev"));
    }

    private static Object asked(Map<String, Object> all, String name) {
      return Objects.requireNonNull(all.get(name), name);
    }

    boolean othersMayChange(int who) {
      return (mode & who) != 0 && (mode & STICKY) == 0;
    }
  }

  // --- ours -----------------------------------------------------------------------------------

  private void make() throws IOException {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      Path made = given.resolve(PREFIX + thisProcess() + "-" + random());
      try {
        Files.createDirectory(made, OURS);
      } catch (FileAlreadyExistsException unlikely) {
        continue;
      }
      FileChannel locked = lock(made);
      if (locked != null) {
        path = made;
        lock = locked;
        return;
      }
    }
    throw new FileSystemException(
        given.toString(), null, "what was made there was removed at once, " + ATTEMPTS + " times");
  }

  /** Makes and locks the lock file; null if a cleaner was faster. */
  private static @Nullable FileChannel lock(Path made) throws IOException {
    Path file = made.resolve(LOCK);
    FileChannel channel;
    try {
      channel =
          FileChannel.open(
              file,
              Set.of(
                  StandardOpenOption.CREATE_NEW,
                  StandardOpenOption.WRITE,
                  LinkOption.NOFOLLOW_LINKS),
              OUR_FILE);
    } catch (NoSuchFileException removed) {
      return null;
    }
    boolean mine = false;
    try {
      mine = channel.tryLock() != null && Files.exists(file, LinkOption.NOFOLLOW_LINKS);
      return mine ? channel : null;
    } finally {
      if (!mine) {
        channel.close();
      }
    }
  }

  /** Number, start and boot: together never those of another process. */
  private static String thisProcess() {
    ProcessHandle self = ProcessHandle.current();
    long start = self.info().startInstant().map(Instant::toEpochMilli).orElse(0L);
    return self.pid() + "-" + start + "-" + boot();
  }

  /** Eight digits are enough to tell machines and their boots apart. */
  static String boot() {
    try {
      return Files.readString(BOOT_ID).strip().substring(0, 8);
    } catch (IOException | IndexOutOfBoundsException unknown) {
      return "0";
    }
  }

  private static String random() {
    byte[] bytes = new byte[8];
    new SecureRandom().nextBytes(bytes);
    return HexFormat.of().formatHex(bytes);
  }

  // --- of the dead ----------------------------------------------------------------------------

  private void clean() throws IOException {
    int owner = Attributes.of(path).owner;
    String own = PREFIX + thisProcess() + "-";
    String type = Files.getFileStore(given).type();
    for (Path each : list(given, PREFIX + "*")) {
      String name = each.getFileName().toString();
      if (!name.startsWith(own) && isLockTold(name, boot(), type)) {
        cleanIfDead(each, owner);
      }
    }
  }

  private static List<Path> list(Path directory, String glob) throws IOException {
    try (DirectoryStream<Path> stream = Files.newDirectoryStream(directory, glob)) {
      return all(stream);
    }
  }

  /**
   * All of it.
   *
   * @throws IOException also where the file system fails half way, which a loop over it would be
   *     told by another exception
   */
  static List<Path> all(DirectoryStream<Path> directory) throws IOException {
    List<Path> all = new ArrayList<>();
    try {
      directory.forEach(all::add);
    } catch (DirectoryIteratorException failed) {
      throw failed.getCause();
    }
    return all;
  }

  /** Whether a lock that can be taken means that its process has ended. */
  static boolean isLockTold(String name, String boot, String fileSystem) {
    List<String> fields = List.of(name.substring(PREFIX.length()).split("-", -1));
    return LOCAL.contains(fileSystem) || (fields.size() == 4 && fields.get(2).equals(boot));
  }

  private void cleanIfDead(Path found, int owner) throws IOException {
    Attributes attributes;
    try {
      attributes = Attributes.of(found);
    } catch (NoSuchFileException gone) {
      return;
    }
    if (attributes.isLink) {
      throw planted(found);
    }
    // Others' may be alive or dead: only they may tell.
    if (!attributes.isDirectory || attributes.owner != owner) {
      return;
    }
    try (FileChannel channel = openLock(found)) {
      if (Mutant.on("disk.living-cleaned") || channel.tryLock() != null) {
        remove(found);
      }
    } catch (NoSuchFileException unlocked) {
      // Its process has died between two steps, or is about to make one: then it makes another.
      removeIfEmpty(found);
    } catch (OverlappingFileLockException busy) {
      LOG.log(Level.DEBUG, "somebody else in this process is removing " + found);
    } catch (IOException cannot) {
      LOG.log(
          Level.WARNING,
          found + " of a process that has ended cannot be removed: " + reason(cannot));
    }
  }

  private FileChannel openLock(Path found) throws IOException {
    Path file = found.resolve(LOCK);
    if (Files.isSymbolicLink(file)) {
      throw planted(file);
    }
    return FileChannel.open(file, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
  }

  private void remove(Path dead) throws IOException {
    try {
      for (Path file : list(dead, "*")) {
        if (!file.getFileName().toString().equals(LOCK)) {
          removeFile(file);
        }
      }
    } catch (NoSuchFileException | NotDirectoryException gone) {
      return;
    }
    Files.deleteIfExists(dead.resolve(LOCK));
    removeIfEmpty(dead);
    leftovers++;
  }

  /** Its name only, wherever it leads: a link is removed, not followed. */
  private void removeFile(Path file) throws IOException {
    try {
      BasicFileAttributes attributes =
          Files.readAttributes(file, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
      if (Files.deleteIfExists(file) && attributes.isRegularFile()) {
        leftoverBytes += attributes.size();
      }
    } catch (NoSuchFileException gone) {
      LOG.log(Level.DEBUG, "another process was faster with " + file);
    }
  }

  private static void removeIfEmpty(Path directory) throws IOException {
    try {
      Files.deleteIfExists(directory);
    } catch (DirectoryNotEmptyException inUse) {
      LOG.log(Level.DEBUG, directory + " is not empty");
    }
  }

  // --- refusing -------------------------------------------------------------------------------

  private SpillException planted(Path link) {
    return refused(
        given,
        "'"
            + link
            + "' is a symbolic link, and Fairlead makes none; find out who did, and remove it",
        null);
  }

  private static SpillException refused(Path given, String why, @Nullable Throwable cause) {
    return new SpillException(SpillException.Reason.REFUSED, given, why, cause);
  }

  /** What the file system says, without the name, which is said already. */
  static String reason(Throwable failure) {
    if (failure instanceof FileSystemException named && named.getReason() != null) {
      return named.getReason();
    }
    String name = failure.getClass().getSimpleName().replace("Exception", "");
    return failure.getMessage() == null || failure instanceof FileSystemException
        ? name
        : failure.getMessage();
  }
}
