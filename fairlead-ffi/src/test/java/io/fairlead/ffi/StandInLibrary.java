package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The strict stand-in for {@code libcuda.so.1}: built by gcc once per JVM from {@code
 * src/test/native} of this module, which says what it does. There is one per process, whoever loads
 * it by {@link #path()}, so a test that uses it calls {@link #reset()} first and looks at {@link
 * #traps()} last.
 *
 * <p>{@code FAIRLEAD_CC} names another compiler; {@code -Dfairlead.standin.flags="-fsanitize=..."}
 * adds flags, for a run by hand.
 */
final class StandInLibrary {

  /** What {@code standin_live} counts, with its numbers. */
  enum Live {
    CONTEXTS(0),
    STREAMS(1),
    EVENTS(2),
    MODULES(3),
    DEVICE_ALLOCATIONS(4),
    HOST_ALLOCATIONS(5),
    GRAPHS(6),
    GRAPH_EXECS(7);

    private final int number;

    Live(int number) {
      this.number = number;
    }
  }

  private static final int TRAP_BYTES = 256;

  private static @Nullable StandInLibrary loaded;
  private static String reason = "";

  private final Path path;
  private final SymbolLookup symbols;
  private final Map<String, MethodHandle> handles = new ConcurrentHashMap<>();

  private StandInLibrary(Path path) {
    this.path = path;
    this.symbols = SymbolLookup.libraryLookup(path, Arena.global());
  }

  /** Builds and loads it at the first call; skips the calling test where no compiler is. */
  static synchronized StandInLibrary get() {
    if (loaded == null && reason.isEmpty()) {
      loaded = build();
    }
    if (loaded == null) {
      System.out.println("!! " + reason + ": the tests on the stand-in driver were NOT run");
    }
    assumeTrue(loaded != null, reason);
    return Objects.requireNonNull(loaded);
  }

  /** The same below the root of the repository and of a bundle. */
  static Path sources() {
    return Path.of(
        System.getProperty("fairlead.root", ".."), "fairlead-ffi", "src", "test", "native");
  }

  static String compiler() {
    String told = System.getenv("FAIRLEAD_CC");
    return told == null || told.isBlank() ? "gcc" : told;
  }

  private static @Nullable StandInLibrary build() {
    Path sources = sources();
    if (!Files.isDirectory(sources)) {
      reason = "NO SOURCES OF THE STAND-IN (" + sources + ")";
      return null;
    }
    Path target = Path.of("target", "standin", "libcuda.so.1").toAbsolutePath();
    Path fresh = target.resolveSibling("libcuda." + ProcessHandle.current().pid());
    try {
      Files.createDirectories(target.getParent());
      if (!compile(sources, fresh)) {
        return null;
      }
      // Another JVM may have the old file mapped: it keeps it.
      Files.move(fresh, target, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (InterruptedException e) {
      throw new AssertionError("interrupted while the stand-in was built", e);
    }
    return new StandInLibrary(target);
  }

  private static boolean compile(Path sources, Path target)
      throws IOException, InterruptedException {
    String compiler = compiler();
    List<String> command = new ArrayList<>(List.of(compiler, "-std=c11", "-O1", "-g"));
    command.addAll(List.of("-fPIC", "-shared", "-pthread", "-fvisibility=hidden"));
    command.addAll(List.of("-Wall", "-Wextra", "-Werror"));
    // Its worker threads live on, so it must never be unloaded.
    command.add("-Wl,-z,nodelete");
    // Not the driver's name: whoever asks for that one later is to get the real one, or none.
    command.add("-Wl,-soname,libcuda-standin.so");
    Stream.of(System.getProperty("fairlead.standin.flags", "").split(" "))
        .filter(flag -> !flag.isBlank())
        .forEach(command::add);
    command.addAll(List.of("-o", target.toString()));
    try (Stream<Path> files = Files.list(sources)) {
      files.map(Path::toString).filter(f -> f.endsWith(".c")).sorted().forEach(command::add);
    }
    Process process;
    try {
      process = new ProcessBuilder(command).inheritIO().start();
    } catch (IOException e) {
      reason = "NO C COMPILER (" + compiler + ")";
      return false;
    }
    if (process.waitFor() != 0) {
      throw new AssertionError(compiler + " does not compile the stand-in");
    }
    return true;
  }

  /** What to load as the driver. */
  Path path() {
    return path;
  }

  /** A function of it, for an upcall or a handle of one's own. */
  MemorySegment symbol(String function) {
    return symbols.find(function).orElseThrow(() -> new AssertionError("no " + function));
  }

  /**
   * Calls a function that answers an int. Arguments: Integer, Long (also for what is a size or a
   * device address), Float, or MemorySegment (also for handles); a String is passed as text.
   */
  int call(String function, Object... arguments) {
    return (int) Objects.requireNonNull(invoke(ValueLayout.JAVA_INT, function, arguments));
  }

  private @Nullable Object invoke(
      @Nullable MemoryLayout answer, String function, Object... arguments) {
    try (Arena arena = Arena.ofConfined()) {
      Object[] passed = Stream.of(arguments).map(a -> passed(arena, a)).toArray();
      MemoryLayout[] types =
          Stream.of(passed).map(StandInLibrary::layout).toArray(l -> new MemoryLayout[l]);
      FunctionDescriptor type =
          answer == null ? FunctionDescriptor.ofVoid(types) : FunctionDescriptor.of(answer, types);
      MethodHandle handle =
          handles.computeIfAbsent(
              function + type, key -> Linker.nativeLinker().downcallHandle(symbol(function), type));
      return handle.invokeWithArguments(passed);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError(function + " threw, which no native function can", e);
    }
  }

  private static Object passed(Arena arena, Object argument) {
    return argument instanceof String text ? arena.allocateFrom(text) : argument;
  }

  private static MemoryLayout layout(Object argument) {
    return switch (argument) {
      case Integer i -> ValueLayout.JAVA_INT;
      case Long l -> ValueLayout.JAVA_LONG;
      case Float f -> ValueLayout.JAVA_FLOAT;
      case MemorySegment s -> ValueLayout.ADDRESS;
      default -> throw new IllegalArgumentException("no native type for " + argument);
    };
  }

  private void control(String function, Object... arguments) {
    invoke(null, function, arguments);
  }

  private long count(String function, Object... arguments) {
    return (long) Objects.requireNonNull(invoke(ValueLayout.JAVA_LONG, function, arguments));
  }

  /** Ends everything and makes all as it was when the library was loaded, not initialised. */
  void reset() {
    control("standin_reset");
  }

  void devices(int count) {
    control("standin_set_devices", count);
  }

  /** As CUDA counts: 13000 is 13.0. */
  void version(int version) {
    control("standin_set_version", version);
  }

  /** Every call demands the current context that it concerns. */
  void oldDriver(boolean on) {
    control("standin_mode_old_driver", on ? 1 : 0);
  }

  /** That function demands a current context, until the reset, though the driver is not old. */
  void demandCurrent(String function) {
    control("standin_demand_current", function);
  }

  /** Write-values, host functions and kernels behind a running kernel occupy a queue. */
  void hardwareQueues(boolean on) {
    control("standin_mode_hardware_queues", on ? 1 : 0);
  }

  /** Each stream shares one of the queues, which are in order, with others. */
  void hardwareQueuesInOrder() {
    control("standin_mode_hardware_queues", 2);
  }

  /** Hardware queues of a device, instead of CUDA_DEVICE_MAX_CONNECTIONS. */
  void connections(int count) {
    control("standin_set_connections", count);
  }

  /** Operations that a stream takes, the running one included, before its callers block. */
  void depth(int operations) {
    control("standin_set_depth", operations);
  }

  /**
   * From so many streams on, what makes or loads something waits for kernels; never if negative.
   */
  void creationWaitsFrom(int streams) {
    control("standin_set_creation_waits", streams);
  }

  /** After a fault a device gives no other context: each retain answers with the first fault. */
  void faultsStay(boolean on) {
    control("standin_mode_faults_stay", on ? 1 : 0);
  }

  /** What pools keep is returned only when they are trimmed, not when others need it. */
  void poolKeeps(boolean on) {
    control("standin_mode_pool_keeps", on ? 1 : 0);
  }

  /** Code is brought to the device when it is first asked for, and that waits for kernels. */
  void lazy(boolean on) {
    control("standin_mode_lazy", on ? 1 : 0);
  }

  void memory(int device, long bytes) {
    control("standin_set_memory", device, bytes);
  }

  /** What the devices answer for an attribute, by CUDA's number: 75 and 76 are the architecture. */
  void attribute(int attribute, int value) {
    control("standin_set_attribute", attribute, value);
  }

  /** Devices do not reach each other's memory; copies between them work all the same. */
  void apart(boolean on) {
    control("standin_set_apart", on ? 1 : 0);
  }

  /** Whether a device reaches what was allocated in another's pool. */
  boolean reaches(int device, int other) {
    return call("standin_reaches", device, other) != 0;
  }

  /** How often the function answered anything but success since the reset. */
  long refused(String function) {
    return count("standin_refused", function);
  }

  /** Once all is closed: of no kind is anything there any more. */
  void assertNothingIsLeft() {
    for (Live kind : Live.values()) {
      assertThat(live(kind)).as("%s that are left", kind).isZero();
    }
  }

  /** The next {@code count} calls of the function answer the status and do nothing. */
  void failNext(String function, int status, int count) {
    control("standin_fail_next", function, status, count);
  }

  /** A context-fatal fault of the device's primary context, out of nowhere. */
  void fault(int device, int status) {
    control("standin_fault", device, status);
  }

  long live(Live kind) {
    return count("standin_live", kind.number);
  }

  /** How often the function was called since the reset. */
  long calls(String function) {
    return count("standin_calls", function);
  }

  /** Threads that wait for room in a stream. */
  int blocked() {
    return call("standin_blocked");
  }

  /** Streams of the device that hold a hardware queue now. */
  int occupied(int device) {
    return call("standin_occupied", device);
  }

  /** Operations of the stream that are not done. */
  long queued(MemorySegment stream) {
    return count("standin_queued", stream);
  }

  /** The wrong uses so far, "kind: function: what", see the README of the native folder. */
  List<String> traps() {
    List<String> texts = new ArrayList<>();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment buffer = arena.allocate(TRAP_BYTES);
      for (int i = 0; call("standin_trap_text", i, buffer, TRAP_BYTES) != 0; i++) {
        texts.add(buffer.getString(0));
      }
    }
    return texts;
  }

  void clearTraps() {
    control("standin_clear_traps");
  }
}
