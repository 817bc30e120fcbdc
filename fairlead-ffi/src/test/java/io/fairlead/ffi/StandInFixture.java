package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;

/** The stand-in with two devices, device 0's primary context current, and short words for calls. */
@Timeout(60)
abstract class StandInFixture {
  static final int INVALID_VALUE = 1;
  static final int OUT_OF_MEMORY = 2;
  static final int INVALID_CONTEXT = 201;
  static final int INVALID_HANDLE = 400;
  static final int NOT_READY = 600;
  static final int ILLEGAL_ADDRESS = 700;
  static final int CONTEXT_IS_DESTROYED = 709;
  static final int NOT_PERMITTED = 800;

  static final String IMAGE =
      """
      //standin 1
      kernel axpy n:i64 a:f64 x:ptr y:ptr
      kernel fill64 target:ptr n:i64 value:i64
      kernel count counter:ptr
      kernel flag64 flag:ptr value:i64
      kernel spin nanos:i64
      kernel hold flag:ptr
      kernel nop
      kernel nullstore
      kernel assertfail
      kernel trapfail
      """;

  private static final Duration BOUND = Duration.ofSeconds(30);

  final StandInLibrary standIn = StandInLibrary.get();
  final Arena arena = Arena.ofShared();
  MemorySegment context = MemorySegment.NULL;

  @BeforeEach
  void open() {
    standIn.reset();
    ok("cuInit", 0);
    context = pointer("cuDevicePrimaryCtxRetain", 0);
    ok("cuCtxSetCurrent", context);
  }

  /** Whatever a test did: no wrong use that it does not know of, and nothing outlives a reset. */
  @AfterEach
  void close() {
    List<String> traps = standIn.traps();
    standIn.reset();
    arena.close();
    assertThat(traps).isEmpty();
    for (StandInLibrary.Live kind : StandInLibrary.Live.values()) {
      assertThat(standIn.live(kind)).as("live %s", kind).isZero();
    }
  }

  // --- calls --------------------------------------------------------------------------------

  void ok(String function, Object... arguments) {
    answers(0, function, arguments);
  }

  void answers(int status, String function, Object... arguments) {
    assertThat(standIn.call(function, arguments)).as(function).isEqualTo(status);
  }

  /** The call that made the last wrong use, of this kind, and no other wrong use before it. */
  void trapped(String kind) {
    assertThat(standIn.traps()).singleElement().asString().startsWith(kind + ": ");
    standIn.clearTraps();
  }

  MemorySegment out() {
    return arena.allocate(16, 16);
  }

  private MemorySegment outOf(String function, Object... rest) {
    Object[] all = new Object[rest.length + 1];
    MemorySegment out = out();
    all[0] = out;
    System.arraycopy(rest, 0, all, 1, rest.length);
    ok(function, all);
    return out;
  }

  /** What a function writes to its first argument. */
  MemorySegment pointer(String function, Object... rest) {
    return outOf(function, rest).get(ValueLayout.ADDRESS, 0);
  }

  long number(String function, Object... rest) {
    return outOf(function, rest).get(ValueLayout.JAVA_LONG, 0);
  }

  // --- things -------------------------------------------------------------------------------

  MemorySegment stream() {
    return pointer("cuStreamCreateWithPriority", 1, 0);
  }

  MemorySegment event() {
    return pointer("cuEventCreate", 2);
  }

  /** Makes the primary context of device 1, and leaves device 0's current. */
  MemorySegment otherContext() {
    return pointer("cuDevicePrimaryCtxRetain", 1);
  }

  /** Runs with another context current; none: {@link MemorySegment#NULL}. */
  void under(MemorySegment other, Runnable body) {
    ok("cuCtxSetCurrent", other);
    body.run();
    ok("cuCtxSetCurrent", context);
  }

  MemorySegment pinned(long bytes) {
    return pointer("cuMemHostAlloc", bytes, 0).reinterpret(bytes).fill((byte) 0);
  }

  long allocate(MemorySegment stream, long bytes) {
    return number("cuMemAllocAsync", bytes, stream);
  }

  MemorySegment kernel(String name) {
    return pointer("cuModuleGetFunction", pointer("cuModuleLoadData", IMAGE), name);
  }

  /** Arguments as cuLaunchKernel takes them: an array of pointers to values. */
  MemorySegment arguments(Object... values) {
    MemorySegment pointers = arena.allocate(ValueLayout.ADDRESS, Math.max(1, values.length));
    for (int i = 0; i < values.length; i++) {
      pointers.setAtIndex(ValueLayout.ADDRESS, i, value(values[i]));
    }
    return pointers;
  }

  private MemorySegment value(Object value) {
    return switch (value) {
      case Long l -> arena.allocateFrom(ValueLayout.JAVA_LONG, l);
      case Double d -> arena.allocateFrom(ValueLayout.JAVA_DOUBLE, d);
      case MemorySegment s -> arena.allocateFrom(ValueLayout.ADDRESS, s);
      default -> throw new IllegalArgumentException(value.toString());
    };
  }

  int launch(
      MemorySegment stream, MemorySegment kernel, int blocks, int threads, Object... values) {
    MemorySegment none = MemorySegment.NULL;
    return standIn.call(
        "cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments(values), none);
  }

  /** A kernel that runs on the stream until {@link Held#release}. */
  Held hold(MemorySegment stream) {
    Held held = new Held(pinned(8));
    assertThat(launch(stream, kernel("hold"), 1, 1, held.flag)).isZero();
    return held;
  }

  record Held(MemorySegment flag) {
    void release() {
      flag.set(ValueLayout.JAVA_LONG, 0, 1);
    }
  }

  static void eventually(String what, BooleanSupplier condition) {
    long end = System.nanoTime() + BOUND.toNanos();
    while (!condition.getAsBoolean()) {
      assertThat(System.nanoTime()).as("not within %s: %s", BOUND, what).isLessThan(end);
      LockSupport.parkNanos(100_000);
    }
  }
}
