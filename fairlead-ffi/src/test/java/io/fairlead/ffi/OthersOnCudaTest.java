package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.spi.Driver;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.memory.RealMemory;
import io.fairlead.memory.SpillConfig;
import io.fairlead.memory.SpillRegistration;
import io.fairlead.memory.Spillable;
import io.fairlead.memory.Tier;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A library that allocates by the run-time API, beside us on one device, on the stand-in: its
 * memory and the driver's shared pool are seen, and each gives way to the other.
 */
@EnabledOnOs(OS.LINUX)
@Timeout(120)
class OthersOnCudaTest {
  private static final long UNIT = 64 << 10;
  private static final long MEMORY = 64 * UNIT;
  private static final int NON_BLOCKING = 1;
  private static final int OUT_OF_MEMORY = 2;
  private static final Duration LONG = Duration.ofHours(1);

  private final StandInLibrary standIn = StandInLibrary.get();
  private final String library = ForeignLibraries.get(standIn, "cudart");
  private final TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
  private Driver driver;
  private Device device;
  private long stream;
  private final ArrayDeque<Long> blocks = new ArrayDeque<>();

  private void open(boolean old) {
    standIn.reset();
    standIn.oldDriver(old);
    standIn.memory(0, MEMORY);
    standIn.poolKeeps(true);
    driver = new CudaDriverProvider(standIn.path().toString()).open(Map.of());
    device =
        Device.open(
            tasks,
            DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults()),
            MemoryConfig.defaults().withSpill(SpillConfig.TO_HOST.withHostBytesMax(MEMORY)));
    stream = made("cudaStreamCreateWithFlags", NON_BLOCKING);
    while (device.realMemory().othersBytes() > 0) { // what the driver was tried out with
      Thread.onSpinWait();
    }
  }

  @AfterEach
  void close() {
    if (device != null) {
      free(Long.MAX_VALUE);
      call("cudaStreamDestroy", stream);
      device.close();
      driver.close();
      assertThat(standIn.traps()).isEmpty();
      standIn.assertNothingIsLeft();
    }
    tasks.close();
  }

  // --- the library ----------------------------------------------------------------------------

  private int status(String function, Object... arguments) {
    MemoryLayout[] types =
        Stream.of(arguments).map(OthersOnCudaTest::layout).toArray(MemoryLayout[]::new);
    try {
      return (int)
          Linker.nativeLinker()
              .downcallHandle(
                  SymbolLookup.libraryLookup(library, Arena.global()).findOrThrow(function),
                  FunctionDescriptor.of(JAVA_INT, types))
              .invokeWithArguments(arguments);
    } catch (Throwable e) {
      throw new AssertionError(function + " threw, which no native function can", e);
    }
  }

  private static MemoryLayout layout(Object argument) {
    return switch (argument) {
      case Integer _ -> JAVA_INT;
      case Long _ -> JAVA_LONG;
      case MemorySegment _ -> ADDRESS;
      default -> throw new IllegalArgumentException("no native type for " + argument);
    };
  }

  private void call(String function, Object... arguments) {
    assertThat(status(function, arguments)).as(function).isZero();
  }

  private long made(String function, Object... arguments) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(JAVA_LONG);
      Object[] all = Stream.concat(Stream.of((Object) out), Stream.of(arguments)).toArray();
      call(function, all);
      return out.get(JAVA_LONG, 0);
    }
  }

  /** Whether there was room. */
  private boolean take(long bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(JAVA_LONG);
      int status = status("cudaMalloc", out, bytes);
      if (status == OUT_OF_MEMORY) {
        return false;
      }
      assertThat(status).isZero();
      blocks.add(out.get(JAVA_LONG, 0));
      return true;
    }
  }

  /** Blocks of a unit. */
  private long free(long bytes) {
    long freed = 0;
    while (freed < bytes && !blocks.isEmpty()) {
      call("cudaFree", blocks.removeLast());
      freed += UNIT;
    }
    return freed;
  }

  // --- who gives way --------------------------------------------------------------------------

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void whatTheSharedPoolKeepsIsSeenAndGoesBack(boolean old) {
    open(old);
    long pooled = made("cudaMallocAsync", 40 * UNIT, stream);
    assertThat(device.realMemory().othersBytes()).isEqualTo(40 * UNIT);
    call("cudaFreeAsync", pooled, stream);
    call("cudaStreamSynchronize", stream);
    RealMemory kept = device.realMemory();
    assertThat(kept.othersBytes()).isZero();
    assertThat(kept.poolUnusedBytes()).isGreaterThanOrEqualTo(40 * UNIT);
    assertThat(take(40 * UNIT)).as("before the pool was trimmed").isFalse();
    assertThat(device.makeRoom(40 * UNIT, LONG)).isGreaterThanOrEqualTo(40 * UNIT);
    assertThat(take(40 * UNIT)).isTrue();
    assertThat(device.realMemory().othersBytes()).isEqualTo(40 * UNIT);
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void buffersLeaveForOthersAndComeBack(boolean old) {
    open(old);
    try (DeviceBuffer idle = device.allocate(48 * UNIT)) {
      idle.fill((byte) 7);
      assertThat(take(32 * UNIT)).isFalse();
      assertThat(device.realMemory().oursBytes()).isEqualTo(48 * UNIT);
      assertThat(device.makeRoom(32 * UNIT, LONG)).isGreaterThanOrEqualTo(32 * UNIT);
      assertThat(idle.tier()).isEqualTo(Tier.HOST);
      assertThat(take(32 * UNIT)).isTrue();
      free(Long.MAX_VALUE);
      assertThat(idle.toBytes()).containsOnly(7);
    }
  }

  /** As the callback of an allocator that has failed: its own pool is not asked just then. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aLibraryAsksAndIsAsked(boolean old) throws InterruptedException {
    open(old);
    for (int i = 0; i < 16; i++) {
      assertThat(take(UNIT)).isTrue();
    }
    Spillable pool =
        new Spillable() {
          @Override
          public long spillableBytes() {
            return blocks.size() * UNIT;
          }

          @Override
          public long spill(long bytes) {
            return free(bytes);
          }
        };
    try (SpillRegistration registration =
            device.register("library", Spillable.Memory.UNTRACKED, pool);
        DeviceBuffer idle = device.allocate(44 * UNIT)) {
      registration.priority(-1);
      idle.fill((byte) 7);
      assertThat(take(8 * UNIT)).isFalse();
      Thread callback = new Thread(() -> registration.makeRoom(8 * UNIT, LONG));
      callback.start();
      callback.join();
      assertThat(registration.stats().calls()).isZero();
      assertThat(take(8 * UNIT)).isTrue();
      call("cudaFree", blocks.removeLast());
      assertThat(idle.toBytes()).containsOnly(7);
      try (DeviceBuffer more = device.allocate(8 * UNIT)) {
        more.fill((byte) 9);
        assertThat(more.toBytes()).containsOnly(9);
        assertThat(registration.stats().calls()).as("the driver had no room").isPositive();
        assertThat(idle.tier()).isEqualTo(Tier.DEVICE);
      }
    }
  }
}
