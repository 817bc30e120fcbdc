package io.fairlead.ffi;

import io.fairlead.device.spi.OsThreads;
import io.fairlead.ffi.posix.ForeignCall;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Numbers operating-system threads on Linux and macOS, 1, 2, 3, … as they are first seen, in a
 * thread-specific value of the C library. Neither {@code pthread_self} nor {@code gettid} would do:
 * both are given to a new thread once the old one ended, and the new one would find the old one's
 * context current.
 *
 * <p>Threads: any, virtual ones included; a virtual thread gets its carrier's number. Never blocks;
 * about 10 ns, a new thread a little more.
 */
public final class PosixOsThreads implements OsThreads {

  /**
   * Loads the functions.
   *
   * @throws UnsupportedOperationException where there are none, or native access is denied; the
   *     message says which
   */
  public PosixOsThreads() {
    try {
      Key.id();
    } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
      throw new UnsupportedOperationException(
          "OS threads cannot be told apart here: "
              + (e.getCause() == null ? e.getMessage() : e.getCause().getMessage()),
          e);
    }
  }

  @Override
  public long current() {
    return Key.id();
  }

  /** The one key of this process; its class fails to initialise where there are no pthreads. */
  private static final class Key {
    private static final MethodHandle GET;
    private static final MethodHandle SET;
    private static final AtomicLong LAST = new AtomicLong();

    static {
      String os = System.getProperty("os.name", "").toLowerCase(Locale.ROOT);
      boolean mac = os.contains("mac");
      if (!mac && !os.contains("linux")) {
        throw new UnsupportedOperationException("only Linux and macOS are known, not " + os);
      }
      // pthread_key_t is an unsigned int on Linux (glibc and musl), an unsigned long on macOS.
      ValueLayout keyType = mac ? ValueLayout.JAVA_LONG : ValueLayout.JAVA_INT;
      Object key = create(keyType, mac);
      FunctionDescriptor get = FunctionDescriptor.of(ValueLayout.JAVA_LONG, keyType);
      FunctionDescriptor set =
          FunctionDescriptor.of(ValueLayout.JAVA_INT, keyType, ValueLayout.JAVA_LONG);
      GET = bind("pthread_getspecific", get, key);
      SET = bind("pthread_setspecific", set, key);
    }

    private static Object create(ValueLayout keyType, boolean mac) {
      FunctionDescriptor create =
          FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS);
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment key = arena.allocate(keyType);
        int status =
            (int) handle("pthread_key_create", create).invokeExact(key, MemorySegment.NULL);
        if (status != 0) {
          throw new UnsupportedOperationException("pthread_key_create failed with " + status);
        }
        return mac
            ? (Object) key.get(ValueLayout.JAVA_LONG, 0)
            : (Object) key.get(ValueLayout.JAVA_INT, 0);
      } catch (Throwable e) {
        throw ForeignCall.unexpected("pthread_key_create", e);
      }
    }

    private static MethodHandle bind(String name, FunctionDescriptor type, Object key) {
      return MethodHandles.insertArguments(handle(name, type), 0, key);
    }

    private static MethodHandle handle(String name, FunctionDescriptor type) {
      Linker linker = Linker.nativeLinker();
      MemorySegment function =
          linker
              .defaultLookup()
              .find(name)
              .or(() -> SymbolLookup.loaderLookup().find(name))
              .orElseThrow(() -> new UnsupportedOperationException("the C library has no " + name));
      return linker.downcallHandle(function, type);
    }

    /**
     * The number in this thread's slot, put there now if it is the first time. No point between the
     * two calls suspends a virtual thread, so both are made by the same carrier.
     */
    static long id() {
      try {
        long id = (long) GET.invokeExact();
        return id != 0 ? id : number();
      } catch (Throwable e) {
        throw ForeignCall.unexpected("pthread_getspecific", e);
      }
    }

    private static long number() throws Throwable {
      long id = LAST.incrementAndGet();
      int status = (int) SET.invokeExact(id);
      if (status != 0) {
        throw new IllegalStateException("pthread_setspecific failed with " + status);
      }
      return id;
    }
  }
}
