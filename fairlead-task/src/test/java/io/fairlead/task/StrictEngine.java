package io.fairlead.task;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The functions of strict.c: a native library that checks its thread rule by itself, on every call.
 * Built with the machine's C compiler; where there is none, {@link #available} skips the caller.
 */
final class StrictEngine {
  /** In the order of strict.c. */
  enum Wrong {
    OTHER_THREAD,
    TWO_AT_ONCE,
    NOT_CURRENT,
    LEFT_CURRENT,
    OTHER_CALL
  }

  private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;
  private static final boolean BUILT;
  private static final @Nullable MethodHandle BEGIN;
  private static final @Nullable MethodHandle HERE;
  private static final @Nullable MethodHandle MAKE;
  private static final @Nullable MethodHandle ENTER;
  private static final @Nullable MethodHandle LEAVE;
  private static final @Nullable MethodHandle BIND;
  private static final @Nullable MethodHandle RESTORE;
  private static final @Nullable MethodHandle END;
  private static final @Nullable MethodHandle WRONGS;

  static {
    SymbolLookup library = build();
    BUILT = library != null;
    BEGIN = function(library, "strict_begin", FunctionDescriptor.ofVoid());
    HERE = function(library, "strict_here", FunctionDescriptor.of(LONG));
    MAKE = function(library, "strict_make", FunctionDescriptor.of(LONG, INT, INT));
    ENTER = function(library, "strict_enter", FunctionDescriptor.of(INT, LONG, LONG));
    LEAVE = function(library, "strict_leave", FunctionDescriptor.of(INT, LONG, LONG));
    BIND = function(library, "strict_bind", FunctionDescriptor.of(LONG, LONG));
    RESTORE = function(library, "strict_restore", FunctionDescriptor.ofVoid(LONG));
    END = function(library, "strict_end", FunctionDescriptor.of(LONG, LONG));
    WRONGS = function(library, "strict_wrongs", FunctionDescriptor.of(LONG, INT));
  }

  private final long handle;

  private StrictEngine(long handle) {
    this.handle = handle;
  }

  /** Forgets what an earlier run has left current. */
  static void begin() {
    try {
      BEGIN.invokeExact();
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /** Which OS thread runs the caller. */
  static long here() {
    try {
      return (long) HERE.invokeExact();
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /** Skips the calling test where there is no compiler. */
  static void available() {
    if (!BUILT) {
      System.out.println("!! NO C COMPILER (gcc): no calls of a strict native engine were made");
    }
    assumeTrue(BUILT, "no gcc");
  }

  private static @Nullable SymbolLookup build() {
    String told = System.getenv("FAIRLEAD_CC");
    String compiler = told == null || told.isBlank() ? "gcc" : told;
    Path root = Path.of(System.getProperty("fairlead.root"));
    Path source = root.resolve("fairlead-task/src/test/c/strict.c");
    try {
      // Where the suites run, since a bundle may lie where nobody can write.
      Path library =
          Files.createDirectories(Path.of("target", "strict").toAbsolutePath())
              .resolve(System.mapLibraryName("strict"));
      Process process =
          new ProcessBuilder(
                  compiler,
                  "-std=c11",
                  "-Wall",
                  "-Werror",
                  "-O2",
                  "-shared",
                  "-fPIC",
                  "-o",
                  library.toString(),
                  source.toString())
              .inheritIO()
              .start();
      if (process.waitFor() != 0) {
        throw new IllegalStateException(compiler + " does not compile strict.c");
      }
      return SymbolLookup.libraryLookup(library, Arena.global());
    } catch (IOException none) {
      return null;
    } catch (InterruptedException stop) {
      throw new IllegalStateException("interrupted while " + compiler + " ran", stop);
    }
  }

  private static @Nullable MethodHandle function(
      @Nullable SymbolLookup library, String name, FunctionDescriptor type) {
    return library == null
        ? null
        : Linker.nativeLinker().downcallHandle(library.findOrThrow(name), type);
  }

  /** Makes one. Where its rule wants it. */
  static StrictEngine make(ThreadRule rule, boolean alone) {
    int number =
        switch (rule) {
          case OWNER_ONLY -> 0;
          case ONE_AT_A_TIME -> 1;
          case CONTEXT_CURRENT -> 2;
          case ANY_THREAD -> throw new IllegalArgumentException("nothing to check");
        };
    try {
      return new StrictEngine((long) MAKE.invokeExact(number, alone ? 1 : 0));
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  void enter(long call) {
    try {
      int _ = (int) ENTER.invokeExact(handle, call);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  void leave(long call) {
    try {
      int _ = (int) LEAVE.invokeExact(handle, call);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  Binding binding() {
    return new Binding() {
      @Override
      public long bind() {
        try {
          return (long) BIND.invokeExact(handle);
        } catch (Throwable e) {
          throw new AssertionError(e);
        }
      }

      @Override
      public void restore(long previous) {
        try {
          RESTORE.invokeExact(previous);
        } catch (Throwable e) {
          throw new AssertionError(e);
        }
      }
    };
  }

  /** Ends it; gives how many calls it has counted. */
  long end() {
    try {
      return (long) END.invokeExact(handle);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /** What was wrong so far in this process, and how often. */
  static Map<Wrong, Long> wrongs() {
    Map<Wrong, Long> found = new EnumMap<>(Wrong.class);
    for (int kind = 0; kind < Wrong.values().length; kind++) {
      try {
        found.put(Wrong.values()[kind], (long) WRONGS.invokeExact(kind));
      } catch (Throwable e) {
        throw new AssertionError(e);
      }
    }
    return found;
  }
}
