package io.fairlead.ffi;

import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.inOut;
import static io.fairlead.device.Param.out;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Tasks on CUDA, on the stand-in for its library: rows 001.1, 001.3, 001.6 and 000.5. It counts
 * each call that is made without the context that it needs.
 */
@Timeout(120)
@EnabledOnOs(OS.LINUX)
@SuppressWarnings("ThreadPriorityCheck") // yielding is what brings a task to another carrier
class ContextOnCudaTest {
  private static final long SEED = 20_261_130;
  private static final int TASKS = 2_000;
  private static final int STREAMS = 48;

  /** Carriers, owners, poller, cleaner and what the JDK starts by itself. */
  private static final int THREADS_MAX = 24;

  private static final ModuleSource SOURCE =
      new ModuleSource("rules", List.of(CudaKernels.STAND_IN));

  private final StandInLibrary standIn = StandInLibrary.get();
  private final TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
  private Driver driver;

  @BeforeEach
  void open() {
    standIn.reset();
  }

  private void openDriver(boolean old) {
    openDriver(old, Map.of());
  }

  private void openDriver(boolean old, Map<String, String> settings) {
    standIn.oldDriver(old);
    driver = new CudaDriverProvider(standIn.path().toString()).open(settings);
  }

  @AfterEach
  void close() {
    driver.close();
    tasks.close();
    assertThat(standIn.traps()).isEmpty();
    standIn.assertNothingIsLeft();
    standIn.reset();
  }

  private DeviceContext device(int ordinal) {
    return DeviceContext.open(tasks, driver, ordinal, DeviceConfig.defaults());
  }

  /** Device memory without a ledger: its user orders it. */
  private record Block(long address, long bytes) implements Operand {
    static Block on(DeviceStream stream, long bytes) {
      Driver driver = stream.context().driver();
      long[] address = new long[1];
      stream.enqueue(
          DriverCall.ALLOC_ASYNC,
          "allocate",
          (handle, none) -> address[0] = driver.allocAsync(handle, bytes));
      return new Block(address[0], bytes);
    }

    void free(DeviceStream stream) {
      Driver driver = stream.context().driver();
      stream.enqueue(
          DriverCall.FREE_ASYNC, "free", (handle, none) -> driver.freeAsync(handle, address));
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      return address;
    }

    @Override
    public void recorded(DeviceStream stream, long sequence, Access access) {}

    @Override
    public void abandoned(DeviceStream stream, Access access) {}
  }

  /** The sum says that no launch was lost; the traps that none was made in a wrong context. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void tasksThatMigrateCallTwoDevicesFromEverywhere(boolean old) throws Exception {
    System.out.println("seed " + SEED);
    openDriver(old);
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    try (DeviceContext one = device(0);
        DeviceContext two = device(1)) {
      List<DeviceContext> devices = List.of(one, two);
      List<Kernel> counts = new ArrayList<>();
      List<Block> blocks = new ArrayList<>();
      for (DeviceContext device : devices) {
        counts.add(device.load(SOURCE).kernel("count", inOut(I64)));
        Block block = Block.on(device.stream(), Long.BYTES);
        device.stream().fill(block, 0, Long.BYTES, (byte) 0);
        device.stream().reached().await();
        blocks.add(block);
      }
      threads.resetPeakThreadCount();
      int before = threads.getThreadCount();
      try (TaskScope<Void> scope = tasks.scope()) {
        for (int i = 0; i < TASKS; i++) {
          SplittableRandom random = new SplittableRandom(SEED + i);
          scope.fork(
              () -> {
                for (int round = 0; round < 3; round++) {
                  int which = random.nextInt(2);
                  yieldAtRandom(random);
                  counts.get(which).launch(Grid.of(1), blocks.get(which));
                  yieldAtRandom(random);
                  if (random.nextInt(4) == 0) {
                    devices.get(which).stream().reached().await();
                  }
                }
                for (DeviceContext device : devices) {
                  device.stream().reached().await();
                }
                return null;
              });
        }
        scope.join();
      }
      assertThat(threads.getPeakThreadCount() - before).isLessThan(THREADS_MAX);
      assertThat(sum(one, blocks.get(0)) + sum(two, blocks.get(1))).isEqualTo(3L * TASKS);
      for (int i = 0; i < 2; i++) {
        blocks.get(i).free(devices.get(i).stream());
      }
    }
  }

  private static long sum(DeviceContext device, Block block) {
    try (var host = device.hostBlocks().take(Long.BYTES)) {
      MemorySegment segment = host.segment();
      device.stream().copyToHost(segment, block, 0);
      device.stream().reached().await();
      return segment.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  private static void yieldAtRandom(SplittableRandom random) {
    switch (random.nextInt(4)) {
      case 0 -> Thread.yield();
      case 1 -> LockSupport.parkNanos(1 + random.nextInt(20_000));
      default -> {}
    }
  }

  /**
   * Many tasks wait in every mode for many streams that come after each other, most of which have
   * no ticket: all are woken, and none before what it waits for.
   */
  @ParameterizedTest
  @CsvSource({"0, false", "2, false", "2, true", "auto, false"})
  void waitsOnManyStreamsAllEnd(String tickets, boolean old) throws Exception {
    long seed = SEED + tickets.hashCode();
    System.out.println("seed " + seed);
    openDriver(old, Map.of("tickets", tickets));
    try (DeviceContext device = device(0);
        HostBlock counters = device.hostBlocks().take(8L * STREAMS)) {
      MemorySegment done = counters.segment().fill((byte) 0);
      Kernel count = device.load(SOURCE).kernel("count", inOut(I64));
      List<DeviceStream> streams = new ArrayList<>();
      for (int i = 0; i < STREAMS; i++) {
        streams.add(device.openStream(0));
      }
      AtomicIntegerArray launched = new AtomicIntegerArray(STREAMS);
      AtomicInteger waited = new AtomicInteger();
      try (TaskScope<Void> scope = tasks.scope()) {
        for (int task = 0; task < STREAMS * 4; task++) {
          SplittableRandom random = new SplittableRandom(seed + task);
          int mine = task % STREAMS;
          scope.fork(
              () -> {
                for (int round = 0; round < 20; round++) {
                  DeviceStream stream = streams.get(mine);
                  if (random.nextInt(3) == 0) {
                    stream.after(streams.get(random.nextInt(STREAMS)).mark());
                  }
                  Block counter = new Block(done.address() + 8L * mine, 8);
                  count.launch(stream, Grid.of(1), counter);
                  int least = launched.incrementAndGet(mine);
                  yieldAtRandom(random);
                  WaitMode mode = random.nextInt(8) == 0 ? WaitMode.SPIN : WaitMode.NONBLOCKING;
                  stream.reached().await(mode);
                  assertThat(done.getAtIndex(ValueLayout.JAVA_LONG, mine))
                      .isGreaterThanOrEqualTo(least);
                  waited.incrementAndGet();
                }
                return null;
              });
        }
        scope.join();
      }
      assertThat(waited.get()).isEqualTo(STREAMS * 4 * 20);
      streams.forEach(DeviceStream::close);
    }
  }

  /** Each mode does what it says, whether the signal arrives by itself or has to be asked for. */
  @ParameterizedTest
  @CsvSource({"0, SPIN", "0, BLOCKING", "0, NONBLOCKING", "auto, SPIN", "auto, BLOCKING"})
  void eachWaitModeDoesWhatItSays(String tickets, WaitMode mode) throws Exception {
    openDriver(false, Map.of("tickets", tickets));
    try (DeviceContext device = device(0);
        HostBlock flag = device.hostBlocks().take(Long.BYTES)) {
      Kernel hold = device.load(SOURCE).kernel("hold", I64);
      DeviceStream stream = device.openStream(0);
      flag.segment().set(ValueLayout.JAVA_LONG, 0, 0);
      hold.launch(stream, CudaKernels.ALONE, flag.segment().address());
      Completion<Void> reached = stream.reached();
      long synchronizes = standIn.calls("cuStreamSynchronize");
      long queries = standIn.calls("cuEventQuery");
      AtomicReference<Thread> waiter = new AtomicReference<>();
      Thread waiting =
          Thread.ofPlatform()
              .start(
                  () -> {
                    waiter.set(Thread.currentThread());
                    reached.await(mode);
                  });
      switch (mode) {
        case BLOCKING -> until(() -> standIn.calls("cuStreamSynchronize") > synchronizes);
        case NONBLOCKING ->
            until(
                () ->
                    waiting.getState() == Thread.State.WAITING
                        && (!tickets.equals("0") || standIn.calls("cuEventQuery") > queries));
        case SPIN -> until(() -> waiter.get() != null);
      }
      if (mode == WaitMode.SPIN) {
        assertThat(waiting.getState()).isEqualTo(Thread.State.RUNNABLE);
      }
      assertThat(reached.isDone()).isFalse();
      flag.segment().set(ValueLayout.JAVA_LONG, 0, 1);
      waiting.join();
      assertThat(reached.isDone()).isTrue();
      assertThat(standIn.calls("cuStreamSynchronize") > synchronizes)
          .isEqualTo(mode == WaitMode.BLOCKING);
      stream.close();
    }
  }

  private static void until(BooleanSupplier condition) {
    while (!condition.getAsBoolean()) {
      LockSupport.parkNanos(50_000);
    }
  }

  /** One fault, many waiters that nobody's call tells: each gets the same first cause. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aFaultFailsAllWaitersWithOneCause(boolean old) {
    openDriver(old);
    try (DeviceContext device = device(0)) {
      Kernel hold = device.load(SOURCE).kernel("hold", I64);
      Kernel fault = device.load(SOURCE).kernel("nullstore");
      List<Completion<Void>> waits = new ArrayList<>();
      try (var flag = device.hostBlocks().take(Long.BYTES)) {
        flag.segment().set(ValueLayout.JAVA_LONG, 0, 0);
        DeviceStream first = device.openStream(0);
        hold.launch(first, CudaKernels.ALONE, flag.segment().address());
        fault.launch(first, CudaKernels.ALONE);
        for (int i = 0; i < 500; i++) {
          waits.add(first.reached());
        }
        DeviceStream second = device.openStream(0);
        second.after(first.mark());
        waits.add(second.reached());
        flag.segment().set(ValueLayout.JAVA_LONG, 0, 1);
        for (Completion<Void> wait : waits) {
          Throwable lost = catchThrowable(wait::await);
          assertThat(lost).isInstanceOf(DeviceLostException.class);
          assertThat(lost.getCause()).isSameAs(device.fault());
        }
      }
      assertThat(device.fault())
          .hasMessageContaining("CUDA_ERROR_ILLEGAL_ADDRESS (700)")
          .hasMessageContaining("launch nullstore");
      assertThatThrownBy(() -> device.openStream(0)).isInstanceOf(DeviceLostException.class);
    }
    try (DeviceContext fresh = device(0)) {
      fresh.stream().checkpoint();
      assertThat(fresh.isLost()).isFalse();
    }
  }

  @Test
  void anArgumentThatDoesNotFitIsSaidAtTheLaunch() {
    openDriver(false);
    try (DeviceContext device = device(0)) {
      Kernel axpy = device.load(SOURCE).kernel("axpy", I64);
      assertThatThrownBy(() -> axpy.launch(Grid.of(1), 1L))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("CUDA_ERROR_INVALID_VALUE (1)")
          .hasMessageContaining("kernel axpy(8, 8, 8, 8 bytes)");
      assertThatThrownBy(() -> device.load(SOURCE).kernel("nope"))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("add, assertfail, axpy, count");
    }
  }

  // --- between devices --------------------------------------------------------------------------

  private static final int VALUES = 100;

  /**
   * Both ways, each behind what the other device does with the same memory, and freed behind the
   * copies. The traps say that nothing came before what it needs.
   */
  @ParameterizedTest
  @CsvSource({"false, false", "true, false", "false, true"})
  void copiesBetweenDevicesFollowTheLedger(boolean old, boolean apart) {
    openDriver(old);
    standIn.apart(apart);
    try (Device one = Device.open(tasks, device(0), MemoryConfig.defaults());
        Device two = Device.open(tasks, device(1), MemoryConfig.defaults())) {
      Kernel number = two.load(SOURCE).kernel("number", I64, out(I64));
      for (int round = 0; round < 20; round++) {
        try (DeviceBuffer here = one.allocate(8L * VALUES);
            DeviceBuffer there = two.allocate(8L * VALUES)) {
          number.launch(Grid.of(VALUES), 5L + round, there);
          here.copyFrom(there);
          number.launch(Grid.of(VALUES), 0L, there); // not before it was copied
          there.slice(0, 8).copyFrom(here.slice(8, 8));
          assertThat(here.toLongs()).startsWith(5 + round, 6 + round).hasSize(VALUES);
          assertThat(there.toLongs()).startsWith(6 + round, 1, 2);
        }
      }
      assertThat(standIn.calls("cuMemcpyPeerAsync")).isGreaterThanOrEqualTo(40);
      assertThat(standIn.reaches(0, 1)).isEqualTo(!apart);
      assertThat(standIn.reaches(1, 0)).isEqualTo(!apart);
      assertThat(standIn.calls("cuCtxEnablePeerAccess")).isEqualTo(apart ? 0 : 2);
    }
  }

  @Test
  void aBufferMayBeClosedRightAfterItWasCopiedToAnotherDevice() {
    openDriver(false);
    try (Device one = Device.open(tasks, device(0), MemoryConfig.defaults());
        Device two = Device.open(tasks, device(1), MemoryConfig.defaults());
        DeviceBuffer here = one.allocate(1 << 16)) {
      for (int round = 0; round < 50; round++) {
        DeviceBuffer there = two.allocate(1 << 16);
        there.fill((byte) round);
        here.copyFrom(there);
        there.close();
        there = two.allocate(1 << 16);
        there.fill((byte) -1);
        there.close();
        assertThat(here.toBytes()).containsOnly(round);
      }
    }
  }

  /** The source's device closes first: what was copied from it ends before its memory goes. */
  @Test
  void aDeviceMayBeClosedRightAfterItWasCopiedFrom() {
    openDriver(false);
    try (Device one = Device.open(tasks, device(0), MemoryConfig.defaults());
        DeviceBuffer here = one.allocate(1 << 16)) {
      Kernel spin = one.load(SOURCE).kernel("spin", I64);
      for (int round = 0; round < 5; round++) {
        Device two =
            Device.open(tasks, device(1), MemoryConfig.defaults().withLeakListener(leaks -> {}));
        DeviceBuffer there = two.allocate(1 << 16);
        there.fill((byte) round);
        spin.launch(Grid.of(1).withBlock(1), 5_000_000L);
        here.copyFrom(there);
        two.close(); // the buffer is a leak, and freed in order
        assertThat(here.toBytes()).containsOnly(round);
      }
    }
  }
}
