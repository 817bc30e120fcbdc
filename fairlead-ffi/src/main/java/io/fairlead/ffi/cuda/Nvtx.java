package io.fairlead.ffi.cuda;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.jspecify.annotations.Nullable;

/**
 * Ranges for a profiler that listens to NVTX, as the headers of NVTX 3 make them: there is no
 * library of it. A tool names its own library in {@code NVTX_INJECTION64_PATH}; we load that, call
 * its {@code InitializeInjectionNvtx2}, and lend it tables of places for functions, of which it
 * fills in those that it has. Where no tool is named, nothing is loaded, and nothing is called.
 *
 * <p>Push and pop belong to an OS thread, so nothing may suspend between the two. Each program part
 * that has the headers is an instance of its own to a tool; so is each of these.
 *
 * <p>Immutable once attached. Any thread.
 */
final class Nvtx {
  /** Where a tool says what it is. */
  static final String VARIABLE = "NVTX_INJECTION64_PATH";

  /** Nobody listens. */
  static final Nvtx NONE = new Nvtx(MemorySegment.NULL, MemorySegment.NULL);

  private static final System.Logger LOG = System.getLogger("io.fairlead.ffi");
  private static final int VERSION = 3;

  // --- nvtxTypes.h ------------------------------------------------------------------------------

  private static final int TABLE_OF_CALLBACKS = 1;
  private static final int TABLE_OF_VERSION = 3;

  /**
   * Functions of each module, by its number; 0 is none. Core, CUDA, OpenCL, CUDART, core 2, sync.
   */
  private static final int[] FUNCTIONS = {0, 16, 9, 15, 7, 16, 7};

  private static final int CORE = 1;
  private static final int CORE_RANGE_PUSH_A = 9;
  private static final int CORE_RANGE_POP = 11;

  private static final MethodHandle PUSH = shape(FunctionDescriptor.of(JAVA_INT, ADDRESS));
  private static final MethodHandle POP = shape(FunctionDescriptor.of(JAVA_INT));

  private final MemorySegment push;
  private final MemorySegment pop;

  private Nvtx(MemorySegment push, MemorySegment pop) {
    this.push = push;
    this.pop = pop;
  }

  private static MethodHandle shape(FunctionDescriptor type) {
    return Linker.nativeLinker().downcallHandle(type);
  }

  /**
   * Tells the tool that we are there. Blocking.
   *
   * @param library the tool's, or null if there is none; one that does not work is logged
   */
  static Nvtx attach(@Nullable String library) {
    if (library == null || library.isBlank()) {
      return NONE;
    }
    try {
      return new Tables().offer(library);
    } catch (IllegalArgumentException e) {
      LOG.log(Level.WARNING, "no ranges for a profiler: " + library + " cannot be loaded");
      return NONE;
    }
  }

  boolean isAttached() {
    return push.address() != 0 && pop.address() != 0;
  }

  /** The calling OS thread begins what is called so. */
  void push(String name) {
    try (Arena arena = Arena.ofConfined()) {
      int level = (int) PUSH.invokeExact(push, arena.allocateFrom(name));
      assert level >= -2 : "a level, or that the tool keeps none";
    } catch (Throwable e) {
      throw unexpected("nvtxRangePushA", e);
    }
  }

  /** It ends what it began last. */
  void pop() {
    try {
      int level = (int) POP.invokeExact(pop);
      assert level >= -2 : "a level, or that the tool keeps none";
    } catch (Throwable e) {
      throw unexpected("nvtxRangePop", e);
    }
  }

  /** What a tool is lent: places, tables of them, and the functions by which it asks for them. */
  private static final class Tables {
    private static final MethodHandles.Lookup LOOKUP = MethodHandles.lookup();

    private final Arena arena = Arena.global(); // a tool may write there at any time
    private final MemorySegment[] tables = new MemorySegment[FUNCTIONS.length];
    private final MemorySegment[] places = new MemorySegment[FUNCTIONS.length];
    private final MemorySegment callbacks = arena.allocate(JAVA_LONG, 2);
    private final MemorySegment version = arena.allocate(JAVA_LONG, 3);

    Tables() {
      for (int module = 0; module < FUNCTIONS.length; module++) {
        // one more, that stays null: who reads past the end is to crash there
        tables[module] = arena.allocate(ADDRESS, FUNCTIONS[module] + 1L);
        places[module] = arena.allocate(ADDRESS, FUNCTIONS[module] + 1L);
        for (int i = 1; i < FUNCTIONS[module]; i++) {
          tables[module].setAtIndex(
              ADDRESS, i, places[module].asSlice(i * ADDRESS.byteSize(), ADDRESS.byteSize()));
        }
      }
    }

    Nvtx offer(String library) {
      SymbolLookup symbols = SymbolLookup.libraryLookup(library, arena);
      MemorySegment initialize =
          symbols
              .find("InitializeInjectionNvtx2")
              .orElseThrow(() -> new IllegalArgumentException("it is no tool of NVTX"));
      fill();
      MemorySegment ask =
          upcall("exportTable", FunctionDescriptor.of(ADDRESS, JAVA_INT), int.class);
      int accepted;
      try {
        accepted =
            (int) shape(FunctionDescriptor.of(JAVA_INT, ADDRESS)).invokeExact(initialize, ask);
      } catch (Throwable e) {
        throw unexpected("InitializeInjectionNvtx2", e);
      }
      if (accepted == 0) {
        LOG.log(Level.WARNING, "no ranges for a profiler: the tool in " + library + " declines");
        return NONE;
      }
      return new Nvtx(place(CORE_RANGE_PUSH_A), place(CORE_RANGE_POP));
    }

    private MemorySegment place(int function) {
      return places[CORE].getAtIndex(ADDRESS, function);
    }

    private void fill() {
      callbacks.set(JAVA_LONG, 0, callbacks.byteSize());
      callbacks.setAtIndex(
          ADDRESS,
          1,
          upcall(
              "functionTable",
              FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS),
              int.class,
              MemorySegment.class,
              MemorySegment.class));
      version.set(JAVA_LONG, 0, version.byteSize());
      version.set(JAVA_INT, JAVA_LONG.byteSize(), VERSION);
      version.setAtIndex(
          ADDRESS, 2, upcall("toolVersion", FunctionDescriptor.ofVoid(JAVA_INT), int.class));
    }

    private MemorySegment upcall(String method, FunctionDescriptor type, Class<?>... parameters) {
      Class<?> answer = type.returnLayout().map(Tables::carrier).orElse(void.class);
      try {
        MethodHandle handle = LOOKUP.bind(this, method, MethodType.methodType(answer, parameters));
        return Linker.nativeLinker().upcallStub(handle, type, arena);
      } catch (ReflectiveOperationException e) {
        throw new LinkageError("it is a method of this class", e);
      }
    }

    private static Class<?> carrier(MemoryLayout layout) {
      return layout.equals(JAVA_INT) ? int.class : MemorySegment.class;
    }

    // --- called by the tool, on whatever thread; none of it throws
    // --------------------------------

    @SuppressWarnings("UnusedMethod") // by its name, see upcall
    private MemorySegment exportTable(int id) {
      return switch (id) {
        case TABLE_OF_CALLBACKS -> callbacks;
        case TABLE_OF_VERSION -> version;
        default -> MemorySegment.NULL;
      };
    }

    @SuppressWarnings("UnusedMethod") // by its name, see upcall
    private int functionTable(int module, MemorySegment table, MemorySegment size) {
      if (module < 1 || module >= FUNCTIONS.length) {
        return 0;
      }
      if (size.address() != 0) {
        size.reinterpret(JAVA_INT.byteSize()).set(JAVA_INT, 0, FUNCTIONS[module]);
      }
      if (table.address() != 0) {
        table.reinterpret(ADDRESS.byteSize()).set(ADDRESS, 0, tables[module]);
      }
      return 1;
    }

    @SuppressWarnings({"UnusedMethod", "UnusedVariable"}) // by its name; nothing depends on it
    private void toolVersion(int number) {}
  }
}
