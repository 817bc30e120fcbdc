package io.fairlead.ffi.posix;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * Memory from the system, by pages that are there already: of 2 MiB where the system gives such
 * ones to who asks, so that a driver that pins them has few to look at.
 *
 * <p>Belongs to who took it, until it is closed. Any thread; taking one blocks while the system
 * clears the pages (some 10 ms for 64 MiB).
 */
public final class PageRun implements AutoCloseable {
  private static final long HUGE = 2L << 20;

  // of Linux, the same on all processors that Java runs on
  private static final int READ_AND_WRITE = 0x1 | 0x2;
  private static final int PRIVATE_AND_ANONYMOUS = 0x02 | 0x20;
  private static final int ADVISE_NOT_TO_FORK = 10;
  private static final int ADVISE_HUGE_PAGES = 14;
  private static final int ADVISE_POPULATE_WRITE = 23;

  private final long address;
  private final long mapped;
  private final long mappedBytes;
  private final AtomicBoolean closed = new AtomicBoolean();

  private PageRun(long address, long mapped, long mappedBytes) {
    this.address = address;
    this.mapped = mapped;
    this.mappedBytes = mappedBytes;
  }

  /** So many bytes, all zero; null where the system has none, or is not Linux. */
  public static @Nullable PageRun take(long bytes) {
    return Calls.AVAILABLE ? Calls.take(bytes) : null;
  }

  /** Of the first byte: at a multiple of 2 MiB. */
  public long address() {
    return address;
  }

  /** Gives it back to the system. Idempotent. */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      Calls.unmap(mapped, mappedBytes);
    }
  }

  /** Loaded where they are first needed. */
  private static final class Calls {
    static final boolean AVAILABLE =
        System.getProperty("os.name", "").toLowerCase(Locale.ROOT).contains("linux");

    private static final MethodHandle MMAP =
        find(
            "mmap",
            FunctionDescriptor.of(
                JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG));
    private static final MethodHandle MADVISE =
        find("madvise", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT));
    private static final MethodHandle MUNMAP =
        find("munmap", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG));

    private static MethodHandle find(String name, FunctionDescriptor type) {
      SymbolLookup libc = Linker.nativeLinker().defaultLookup();
      return Linker.nativeLinker().downcallHandle(libc.findOrThrow(name), type);
    }

    static @Nullable PageRun take(long bytes) {
      long all =
          bytes + HUGE; // some of it stays untouched, so that the rest begins where it should
      long mapped = map(all);
      if (mapped == -1) {
        return null;
      }
      long address = (mapped + HUGE - 1) & -HUGE;
      advise(mapped, all, ADVISE_NOT_TO_FORK); // a child would get a copy of what is pinned
      advise(address, bytes, ADVISE_HUGE_PAGES);
      // else they come one by one, as they are pinned
      advise(address, bytes, ADVISE_POPULATE_WRITE);
      return new PageRun(address, mapped, all);
    }

    private static long map(long bytes) {
      try {
        return (long) MMAP.invokeExact(0L, bytes, READ_AND_WRITE, PRIVATE_AND_ANONYMOUS, -1, 0L);
      } catch (Throwable e) {
        throw ForeignCall.unexpected("mmap", e);
      }
    }

    private static void advise(long address, long bytes, int advice) {
      try {
        int _ = (int) MADVISE.invokeExact(address, bytes, advice); // no more than advice
      } catch (Throwable e) {
        throw ForeignCall.unexpected("madvise", e);
      }
    }

    static void unmap(long address, long bytes) {
      try {
        int status = (int) MUNMAP.invokeExact(address, bytes);
        if (status != 0) {
          throw new IllegalStateException("munmap refused pages that mmap gave");
        }
      } catch (Throwable e) {
        throw ForeignCall.unexpected("munmap", e);
      }
    }
  }
}
