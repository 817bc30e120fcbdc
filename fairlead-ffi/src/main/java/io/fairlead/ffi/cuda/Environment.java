package io.fairlead.ffi.cuda;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The one environment variable that matters here: {@code CUDA_DEVICE_MAX_CONNECTIONS}, how many
 * hardware queues the driver uses. A stream's signal behind long work occupies one, and once they
 * are all occupied the work of other streams sticks. The driver's own choice is 8; 32 is the most.
 * So it is set to 32 in this process before the driver is loaded, unless somebody has set it.
 *
 * <p>It is the C library's environment that is changed: {@link System#getenv} does not show it,
 * programs started by this process do not inherit it from Java.
 */
final class Environment {
  private static final String CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS";
  private static final int CONNECTIONS_MAX = 32;

  /** What the driver takes if nobody says anything. */
  private static final int CONNECTIONS_DEFAULT = 8;

  /** Before this class was loaded; Java reads the environment as the process starts. */
  private static final boolean GIVEN = System.getenv(CONNECTIONS) != null;

  private static final int CHOSEN = choose();

  private Environment() {}

  /** Sets what is not set. Once for the process; call it before a driver is loaded. */
  static void prepare() {
    if (CHOSEN < 1) {
      throw new AssertionError("the class is initialised by now");
    }
  }

  /**
   * How many streams may have an outstanding signal at once.
   *
   * <p>Measured on an H200: with 8 queues the first count at which other streams were stuck was 7,
   * with 32 it was 31 and 16 was free of it. Half the queues is below both.
   *
   * @param driverWasInUse whether somebody had a context before us: the driver had read the
   *     variable by then, so that only what the process was started with counts
   */
  static int streamsWithSignals(boolean driverWasInUse) {
    int queues = driverWasInUse && !GIVEN ? CONNECTIONS_DEFAULT : CHOSEN;
    return Math.max(1, queues / 2);
  }

  private static int choose() {
    if (find("getenv").isEmpty() || find("setenv").isEmpty()) {
      return CONNECTIONS_DEFAULT; // no POSIX system: the driver's own choice stands
    }
    try (Arena arena = Arena.ofConfined()) {
      String present = get(arena);
      if (present != null) {
        return parse(present);
      }
      return set(arena) ? CONNECTIONS_MAX : CONNECTIONS_DEFAULT;
    }
  }

  /** As the driver reads it: what is no number from 1 to 32 is not taken. */
  private static int parse(String text) {
    try {
      int number = Integer.parseInt(text.strip());
      return number < 1 || number > CONNECTIONS_MAX ? CONNECTIONS_DEFAULT : number;
    } catch (NumberFormatException e) {
      return CONNECTIONS_DEFAULT;
    }
  }

  private static @Nullable String get(Arena arena) {
    MemorySegment name = arena.allocateFrom(CONNECTIONS);
    try {
      MemorySegment value =
          (MemorySegment)
              Linker.nativeLinker()
                  .downcallHandle(function("getenv"), FunctionDescriptor.of(ADDRESS, ADDRESS))
                  .invokeExact(name);
      return value.address() == 0 ? null : Memory.string(value.address());
    } catch (Throwable e) {
      throw CudaApi.unexpected("getenv", e);
    }
  }

  private static boolean set(Arena arena) {
    MemorySegment name = arena.allocateFrom(CONNECTIONS);
    MemorySegment value = arena.allocateFrom(Integer.toString(CONNECTIONS_MAX));
    FunctionDescriptor type = FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT);
    try {
      int status =
          (int)
              Linker.nativeLinker()
                  .downcallHandle(function("setenv"), type)
                  .invokeExact(name, value, 0);
      return status == 0;
    } catch (Throwable e) {
      throw CudaApi.unexpected("setenv", e);
    }
  }

  private static MemorySegment function(String name) {
    return find(name).orElseThrow();
  }

  private static Optional<MemorySegment> find(String name) {
    return Linker.nativeLinker().defaultLookup().find(name);
  }
}
