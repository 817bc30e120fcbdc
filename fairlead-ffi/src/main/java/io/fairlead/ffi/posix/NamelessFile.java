package io.fairlead.ffi.posix;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Memory for processes of one host and one user to share, as a file without a name: Linux's {@code
 * memfd_create}. It has no place in any folder, so nobody can plant one, a link leads nowhere, and
 * nothing is left behind however its processes end: the system takes it back with the last of them.
 * Its length is sealed, so memory that is mapped cannot be taken away.
 *
 * <p>Another process finds it by the number of the process that made it and the number of the open
 * file there, as long as that one has it open. The system lets in who may look into that process.
 * What is found so is taken for a stranger's until its length and its mark, a number that the maker
 * chose and told in another way, are right.
 *
 * <p>Any thread; nothing blocks for longer than a call of the system.
 */
public final class NamelessFile implements AutoCloseable {
  private static final int CLOSE_ON_EXEC = 0x1;
  private static final int ALLOW_SEALING = 0x2;
  private static final int NEVER_EXECUTABLE = 0x8;

  private static final int ADD_SEALS = 1024 + 9;

  /** Against seals, shrinking and growing. */
  private static final int SEALS = 0x1 | 0x2 | 0x4;

  private final int number;
  private final MemorySegment memory;
  private final AtomicBoolean closed = new AtomicBoolean();

  private NamelessFile(int number, MemorySegment memory) {
    this.number = number;
    this.memory = memory;
  }

  /**
   * Makes one; all of it is zero but the first eight bytes, which are the mark.
   *
   * @throws IOException why there is none to be had
   */
  public static NamelessFile create(long bytes, long mark) throws IOException {
    if (!System.getProperty("os.name", "").toLowerCase(Locale.ROOT).contains("linux")) {
      throw new IOException("only Linux has files without names");
    }
    int number = Calls.create();
    if (number < 0) {
      throw new IOException("memfd_create is refused");
    }
    try {
      if (Calls.truncate(number, bytes) != 0 || Calls.control(number, ADD_SEALS, SEALS) != 0) {
        throw new IOException("a file without a name could not be made " + bytes + " bytes long");
      }
      MemorySegment memory = map(ProcessHandle.current().pid(), number, bytes);
      memory.set(JAVA_LONG, 0, mark);
      return new NamelessFile(number, memory);
    } catch (IOException | RuntimeException | Error failure) {
      Calls.close(number);
      throw failure;
    }
  }

  /**
   * Maps the memory that another process of this host has made, and has open still.
   *
   * @param process the number of that process
   * @param number that of the file there
   * @return the memory, which stays mapped while the segment is reachable
   * @throws IOException if it is not there, may not be opened, or is not what was made with this
   *     length and mark
   */
  public static MemorySegment open(long process, int number, long bytes, long mark)
      throws IOException {
    MemorySegment memory = map(process, number, bytes);
    if (memory.get(JAVA_LONG, 0) != mark) {
      throw new IOException(
          "file " + number + " of process " + process + " is not the one that was meant");
    }
    return memory;
  }

  private static MemorySegment map(long process, int number, long bytes) throws IOException {
    Path path = Path.of("/proc/" + process + "/fd/" + number);
    try (FileChannel channel =
        FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      if (channel.size() != bytes) { // a longer map would make a shorter file longer
        throw new IOException(path + " is " + channel.size() + " bytes long, not " + bytes);
      }
      return channel.map(MapMode.READ_WRITE, 0, bytes, Arena.ofAuto());
    } catch (UnsupportedOperationException | IllegalArgumentException notSuchAFile) {
      throw new IOException(path + " cannot be mapped: " + notSuchAFile.getMessage(), notSuchAFile);
    }
  }

  /** The number under which others find it, until it is closed. */
  public int number() {
    return number;
  }

  /** Stays mapped while the segment is reachable, whether this is closed or not. */
  public MemorySegment memory() {
    return memory;
  }

  /** From now on nobody finds it. Idempotent. */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      Calls.close(number);
    }
  }

  /** Loaded where they are first needed. */
  private static final class Calls {
    private static final MethodHandle CREATE =
        handle("memfd_create", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
    private static final MethodHandle TRUNCATE =
        handle("ftruncate", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG));
    private static final MethodHandle CONTROL =
        handle(
            "fcntl",
            FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT),
            Linker.Option.firstVariadicArg(2));
    private static final MethodHandle CLOSE =
        handle("close", FunctionDescriptor.of(JAVA_INT, new MemoryLayout[] {JAVA_INT}));

    private static MethodHandle handle(
        String name, FunctionDescriptor type, Linker.Option... options) {
      Linker linker = Linker.nativeLinker();
      return linker.downcallHandle(linker.defaultLookup().findOrThrow(name), type, options);
    }

    static int create() {
      int number = create(CLOSE_ON_EXEC | ALLOW_SEALING | NEVER_EXECUTABLE);
      return number >= 0 ? number : create(CLOSE_ON_EXEC | ALLOW_SEALING); // before Linux 6.3
    }

    private static int create(int flags) {
      try (Arena arena = Arena.ofConfined()) {
        return (int) CREATE.invokeExact(arena.allocateFrom("fairlead"), flags);
      } catch (Throwable e) {
        throw ForeignCall.unexpected("memfd_create", e);
      }
    }

    static int truncate(int number, long bytes) {
      try {
        return (int) TRUNCATE.invokeExact(number, bytes);
      } catch (Throwable e) {
        throw ForeignCall.unexpected("ftruncate", e);
      }
    }

    static int control(int number, int command, int argument) {
      try {
        return (int) CONTROL.invokeExact(number, command, argument);
      } catch (Throwable e) {
        throw ForeignCall.unexpected("fcntl", e);
      }
    }

    static void close(int number) {
      try {
        int _ = (int) CLOSE.invokeExact(number); // closed in any case
      } catch (Throwable e) {
        throw ForeignCall.unexpected("close", e);
      }
    }
  }
}
