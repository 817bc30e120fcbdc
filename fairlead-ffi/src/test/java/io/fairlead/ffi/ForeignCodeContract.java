package io.fairlead.ffi;

import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static io.fairlead.device.Param.out;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.Mark;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.ffi.examples.MatrixProduct;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Lease;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Libraries that know nothing of us beside us, on one primary context: cuBLAS on a stream that was
 * lent, the run-time API on its default streams and on streams and memory of its own, and threads
 * with contexts of their own. A subclass says which driver and which libraries.
 *
 * <p>What must come later is held back by a kernel that waits for a flag, and everything is made
 * and loaded before it runs, since a driver may wait with that for kernels.
 */
@Timeout(120)
abstract class ForeignCodeContract {
  static final int COUNT = 10_000;
  static final long BYTES = 8L * COUNT;

  private static final long SEED = 20_261_130;
  private static final int DEVICE_TO_DEVICE = 3;
  static final int NON_BLOCKING = 1;

  /** The default streams by the names that the run-time API has for them. */
  static final int LEGACY = 0;

  private static final int PER_THREAD = 2;

  final TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
  Driver driver;
  Device device;
  Kernel number;
  Kernel add;
  private Kernel hold;

  // --- what a subclass says ---------------------------------------------------------------------

  abstract Driver openDriver();

  abstract ModuleImage image();

  /** The library of the driver itself. */
  abstract String driverLibrary();

  /** Skips the calling test if it is not there. */
  abstract String cublas();

  /** Skips the calling test if it is not there. */
  abstract String cudart();

  // --- foreign code -----------------------------------------------------------------------------

  /** Calls a function that answers a status, which has to be 0. */
  static void call(String library, String function, Object... arguments) {
    MemoryLayout[] types =
        Stream.of(arguments).map(ForeignCodeContract::layout).toArray(MemoryLayout[]::new);
    int status;
    try {
      status =
          (int)
              Linker.nativeLinker()
                  .downcallHandle(
                      SymbolLookup.libraryLookup(library, Arena.global()).findOrThrow(function),
                      FunctionDescriptor.of(JAVA_INT, types))
                  .invokeWithArguments(arguments);
    } catch (Throwable e) {
      throw new AssertionError(function + " threw, which no native function can", e);
    }
    assertThat(status).as(function).isZero();
  }

  private static MemoryLayout layout(Object argument) {
    return switch (argument) {
      case Integer _ -> JAVA_INT;
      case Long _ -> JAVA_LONG;
      case MemorySegment _ -> ADDRESS;
      default -> throw new IllegalArgumentException("no native type for " + argument);
    };
  }

  /** What a function writes to its first argument. */
  static long made(String library, String function, Object... rest) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_LONG);
      List<Object> all = new ArrayList<>(List.of(answer));
      all.addAll(Arrays.asList(rest));
      call(library, function, all.toArray());
      return answer.get(JAVA_LONG, 0);
    }
  }

  void copy(long target, long source, long bytes, long stream) {
    call(cudart(), "cudaMemcpyAsync", target, source, bytes, DEVICE_TO_DEVICE, stream);
  }

  long currentNative() {
    return made(driverLibrary(), "cuCtxGetCurrent");
  }

  // --- a world ----------------------------------------------------------------------------------

  @BeforeEach
  void open() {
    driver = openDriver();
    device =
        Device.open(
            tasks,
            DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults()),
            MemoryConfig.defaults());
    KernelModule module = device.load(new ModuleSource("rules", List.of(image())));
    number = module.kernel("number", I64, out(I64));
    add = module.kernel("add", in(I64), inOut(I64));
    hold = module.kernel("hold", I64);
  }

  /** What a subclass looks at is looked at after all is closed. */
  @AfterEach
  void close() {
    if (device != null) {
      device.close();
    }
    tasks.close();
    if (driver != null) {
      driver.close();
    }
  }

  /** Runs the kernels once, and what foreign code begins with, so that nothing is loaded later. */
  void warm(DeviceStream... streams) {
    try (DeviceBuffer one = device.allocate(BYTES);
        DeviceBuffer other = device.allocate(BYTES);
        Held held = new Held()) {
      held.release();
      for (DeviceStream stream : streams) {
        held.holdBack(stream);
        number.launch(stream, Grid.of(COUNT), 0L, one);
        number.launch(stream, Grid.of(COUNT), 0L, other);
        add.launch(stream, Grid.of(COUNT), one, other);
      }
      device.foreign(
          List.of(one),
          List.of(other),
          (reads, writes) -> {
            for (long stream : new long[] {LEGACY, PER_THREAD}) {
              copy(writes[0], reads[0], BYTES, stream);
            }
            return null;
          });
      device.context().reached().await();
    }
  }

  /** A kernel that waits on a stream until it is let go. */
  final class Held implements AutoCloseable {
    private final HostBlock flag = device.context().hostBlocks().take(Long.BYTES);

    Held() {
      flag.segment().set(JAVA_LONG, 0, 0);
    }

    void holdBack(DeviceStream stream) {
      hold.launch(stream, CudaKernels.ALONE, flag.segment().address());
    }

    void release() {
      flag.segment().set(JAVA_LONG, 0, 1);
    }

    @Override
    public void close() {
      release();
      device.context().reached().await();
      flag.close();
    }
  }

  static long[] numbers(long first) {
    return LongStream.range(first, first + COUNT).toArray();
  }

  static void until(String what, BooleanSupplier condition) {
    long deadline = System.nanoTime() + 30_000_000_000L;
    while (!condition.getAsBoolean()) {
      assertThat(System.nanoTime()).as("waited in vain until %s", what).isLessThan(deadline);
      LockSupport.parkNanos(100_000);
    }
  }

  // --- a stream that is lent --------------------------------------------------------------------

  @Test
  void cublasMultipliesOnStreamsOfTasks() {
    int n = 48;
    int products = 12;
    System.out.println("seed " + SEED);
    try (MatrixProduct product = new MatrixProduct(tasks, device, cublas(), 2);
        TaskScope<double[]> scope = tasks.scope()) {
      for (int i = 0; i < products; i++) {
        double[] a = random(n, 2 * i);
        double[] b = random(n, 2 * i + 1);
        scope.fork(
            () -> {
              try (DeviceBuffer left = device.allocate(8L * n * n);
                  DeviceBuffer right = device.allocate(8L * n * n);
                  DeviceBuffer result = device.allocate(8L * n * n)) {
                left.upload(a);
                right.upload(b);
                product.multiply(n, left, right, result);
                return result.toDoubles();
              }
            });
      }
      List<double[]> results = scope.join();
      assertThat(results).hasSize(products);
      for (int i = 0; i < products; i++) {
        double[] expected = multiplied(n, random(n, 2 * i), random(n, 2 * i + 1));
        assertThat(results.get(i)).containsExactly(expected, within(1e-12 * n));
      }
    }
  }

  private static double[] random(int n, long salt) {
    SplittableRandom random = new SplittableRandom(SEED + salt);
    return random.doubles((long) n * n, -1, 1).toArray();
  }

  /** Column by column, in plain Java. */
  private static double[] multiplied(int n, double[] a, double[] b) {
    double[] c = new double[n * n];
    for (int column = 0; column < n; column++) {
      for (int row = 0; row < n; row++) {
        double sum = 0;
        for (int k = 0; k < n; k++) {
          sum += a[k * n + row] * b[column * n + k];
        }
        c[column * n + row] = sum;
      }
    }
    return c;
  }

  @Test
  void workOnALentStreamComesAfterWhatItReadsAndBeforeWhatReadsIt() {
    DeviceStream producer = device.context().openStream(0);
    DeviceStream lent = device.context().openStream(0);
    DeviceStream consumer = device.context().openStream(0);
    warm(producer, lent, consumer);
    try (Held held = new Held()) {
      DeviceBuffer in = device.allocate(BYTES);
      DeviceBuffer out = device.allocate(BYTES);
      DeviceBuffer sum = device.allocate(BYTES);
      held.holdBack(producer);
      number.launch(producer, Grid.of(COUNT), 7L, in);
      number.launch(consumer, Grid.of(COUNT), 0L, sum);
      try (Lease from = in.lease(lent, Access.READ);
          Lease to = out.lease(lent, Access.WRITE)) {
        copy(to.address(), from.address(), BYTES, lent.nativeHandle());
      }
      add.launch(consumer, Grid.of(COUNT), out, sum);
      number.launch(producer, Grid.of(COUNT), 99L, in); // after the foreign read
      Completion<Void> done = consumer.reached();
      in.close(); // and the free after that
      out.close();
      assertThat(done.isDone()).isFalse();
      held.release();
      assertThat(sum.toLongs()).isEqualTo(doubled());
      sum.close();
    }
    List.of(producer, lent, consumer).forEach(DeviceStream::close);
  }

  /** 0 + 7, 1 + 8, ... */
  private static long[] doubled() {
    return LongStream.range(0, COUNT).map(i -> i + i + 7).toArray();
  }

  // --- code that names no stream ----------------------------------------------------------------

  @ParameterizedTest
  @ValueSource(ints = {LEGACY, PER_THREAD})
  void codeOnADefaultStreamComesAfterWhatItReadsAndBeforeWhatReadsIt(int stream) {
    DeviceStream producer = device.context().openStream(0);
    DeviceStream consumer = device.context().openStream(0);
    warm(producer, consumer);
    try (Held held = new Held()) {
      DeviceBuffer in = device.allocate(BYTES);
      DeviceBuffer out = device.allocate(BYTES);
      DeviceBuffer sum = device.allocate(BYTES);
      held.holdBack(producer);
      number.launch(producer, Grid.of(COUNT), 7L, in);
      number.launch(consumer, Grid.of(COUNT), 0L, sum);
      Role role =
          device.foreign(
              List.of(in),
              List.of(out),
              (reads, writes) -> {
                assertThat(currentNative()).isEqualTo(device.context().nativeHandle());
                copy(writes[0], reads[0], BYTES, stream);
                return Role.current();
              });
      assertThat(role).isEqualTo(Role.OWNER);
      add.launch(consumer, Grid.of(COUNT), out, sum);
      number.launch(producer, Grid.of(COUNT), 99L, in);
      Completion<Void> done = consumer.reached();
      in.close();
      out.close();
      assertThat(done.isDone()).isFalse();
      assertThat(device.stream().reached().isDone()).as("the caller's stream").isFalse();
      held.release();
      assertThat(sum.toLongs()).isEqualTo(doubled());
      sum.close();
    }
    producer.close();
    consumer.close();
  }

  @Test
  void whatABodyThrowsSurfacesAndItsWorkIsOrdered() {
    try (DeviceBuffer buffer = device.allocate(BYTES)) {
      IllegalStateException thrown = new IllegalStateException("a library's own");
      assertThatThrownBy(
              () ->
                  device.foreign(
                      List.of(),
                      List.of(buffer),
                      (reads, writes) -> {
                        call(cudart(), "cudaMemsetAsync", writes[0], 5, BYTES, (long) LEGACY);
                        throw thrown;
                      }))
          .isSameAs(thrown);
      assertThat(buffer.toBytes()).containsOnly(5);
    }
  }

  @Test
  void aBodyMayLeaveAnotherContextCurrent() {
    long[] own = new long[1];
    try (DeviceBuffer buffer = device.allocate(BYTES)) {
      device.foreign(
          List.of(),
          List.of(buffer),
          (reads, writes) -> {
            call(cudart(), "cudaMemsetAsync", writes[0], 5, BYTES, (long) LEGACY);
            own[0] = made(driverLibrary(), "cuCtxCreate_v2", 0, 0);
            return null;
          });
      assertThat(buffer.toBytes()).containsOnly(5);
      device.foreign(
          List.of(),
          List.of(buffer),
          (reads, writes) -> {
            assertThat(currentNative()).isEqualTo(device.context().nativeHandle());
            call(cudart(), "cudaMemsetAsync", writes[0], 6, BYTES, (long) LEGACY);
            return null;
          });
      assertThat(buffer.toBytes()).containsOnly(6);
    }
    call(driverLibrary(), "cuCtxDestroy_v2", own[0]);
  }

  // --- streams and memory of others -------------------------------------------------------------

  @Test
  void aStreamAndMemoryOfTheRunTimeApiAreWaitedForAndGoBack() {
    AtomicInteger released = new AtomicInteger();
    List<Role> by = new ArrayList<>();
    long[] theirs = new long[2];
    inThePrimaryContext(
        () -> {
          theirs[0] = made(cudart(), "cudaStreamCreateWithFlags", NON_BLOCKING);
          theirs[1] = made(cudart(), "cudaMalloc", BYTES);
        });
    DeviceStream ours = device.context().openStream(0);
    DeviceStream adopted = device.adoptStream(theirs[0]);
    assertThat(device.adoptStream(theirs[0])).isSameAs(adopted);
    assertThat(adopted.nativeHandle()).isEqualTo(theirs[0]);
    warm(ours, adopted);
    try (Held held = new Held()) {
      held.holdBack(adopted);
      call(cudart(), "cudaMemsetAsync", theirs[1], 0, BYTES, theirs[0]);
      DeviceBuffer buffer =
          device.adopt(
              theirs[1],
              BYTES,
              adopted,
              () -> {
                call(cudart(), "cudaFree", theirs[1]);
                by.add(Role.current());
                released.incrementAndGet();
              });
      Completion<Void> filled = adopted.reached();
      try (DeviceBuffer sum = device.allocate(BYTES)) {
        number.launch(ours, Grid.of(COUNT), 7L, sum);
        add.launch(ours, Grid.of(COUNT), sum, buffer);
        add.launch(ours, Grid.of(COUNT), buffer, sum);
        buffer.close();
        assertThat(filled.isDone()).isFalse();
        assertThat(released).hasValue(0);
        held.release();
        filled.await();
        long[] expected = LongStream.of(numbers(7)).map(each -> 2 * each).toArray();
        assertThat(sum.toLongs()).isEqualTo(expected);
      }
    }
    until("it is released", () -> released.get() == 1);
    assertThat(by).containsExactly(Role.DEVICE_MANAGER);
    adopted.close();
    inThePrimaryContext(() -> call(cudart(), "cudaStreamDestroy", theirs[0]));
    ours.close();
    device.context().reached().await();
    assertThat(released).hasValue(1);
  }

  void inThePrimaryContext(Runnable body) {
    long previous = device.context().binding().bind();
    try {
      body.run();
    } finally {
      device.context().binding().restore(previous);
    }
  }

  /** As its maker may, since it was closed here; who has waited or marked it is none the worse. */
  @Test
  void anAdoptedStreamMayGoOnceItIsClosed() {
    CudaGpu.requireUnchecked("it destroys a stream only once its kernels have ended");
    long[] theirs = new long[1];
    inThePrimaryContext(
        () -> theirs[0] = made(cudart(), "cudaStreamCreateWithFlags", NON_BLOCKING));
    DeviceStream ours = device.context().openStream(0);
    DeviceStream adopted = device.adoptStream(theirs[0]);
    warm(ours, adopted);
    try (Held held = new Held()) {
      held.holdBack(adopted);
      Completion<Void> before = adopted.reached();
      Mark mark = adopted.mark();
      adopted.close();
      inThePrimaryContext(() -> call(cudart(), "cudaStreamDestroy", theirs[0]));
      Completion<Void> after = adopted.reached(mark);
      ours.after(mark);
      Completion<Void> edge = ours.reached(ours.mark());
      assertThat(before.isDone() || after.isDone()).isFalse();
      assertThat(driver.status(device.context().nativeContext())).as("heartbeat").isNull();
      held.release();
      before.await();
      after.await();
      edge.await();
    }
    ours.close();
  }

  @Test
  void whatIsNoStreamOfThePrimaryContextIsNotAdopted() {
    for (long name : new long[] {0, 1, 2}) {
      assertThatThrownBy(() -> device.adoptStream(name))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("device.foreign");
    }
    DeviceStream ours = device.context().openStream(0);
    assertThatThrownBy(() -> device.adoptStream(ours.handle()))
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("adopt what stream.nativeHandle() gives");
    ours.close();
    long[] elsewhere = new long[1];
    inAContextOfOnesOwn(
        () -> {
          elsewhere[0] = made(driverLibrary(), "cuStreamCreate", NON_BLOCKING);
          assertThatThrownBy(() -> device.adoptStream(elsewhere[0]))
              .isInstanceOf(DeviceException.class)
              .hasMessageContaining("is no stream of the primary context");
          call(driverLibrary(), "cuStreamDestroy_v2", elsewhere[0]);
        });
    assertThat(device.context().isLost()).isFalse();
  }

  // --- threads with contexts of their own -------------------------------------------------------

  /** On a thread of its own, as foreign threads do. */
  private void inAContextOfOnesOwn(Runnable body) {
    try (var thread = Executors.newSingleThreadExecutor()) {
      CompletableFuture.runAsync(
              () -> {
                long own = made(driverLibrary(), "cuCtxCreate_v2", 0, 0);
                body.run();
                assertThat(currentNative()).isEqualTo(own);
                call(driverLibrary(), "cuCtxDestroy_v2", own);
              },
              thread)
          .join();
    }
  }

  @Test
  void aForeignThreadKeepsItsContext() {
    inAContextOfOnesOwn(
        () -> {
          long own = currentNative();
          assertThat(own).isNotEqualTo(device.context().nativeHandle());
          try (DeviceBuffer one = device.allocate(BYTES);
              DeviceBuffer other = device.allocate(BYTES)) {
            assertThat(currentNative()).isEqualTo(own);
            one.upload(numbers(0));
            assertThat(currentNative()).isEqualTo(own);
            number.launch(Grid.of(COUNT), 7L, other);
            add.launch(Grid.of(COUNT), one, other);
            assertThat(currentNative()).isEqualTo(own);
            try (DeviceStream stream = device.context().openStream(0)) {
              stream.after(device.stream().mark());
              stream.reached().await();
              assertThat(currentNative()).isEqualTo(own);
            }
            device.foreign(List.of(one), List.of(), (reads, writes) -> null);
            assertThat(currentNative()).isEqualTo(own);
            assertThat(other.toLongs()).isEqualTo(doubled());
          }
          device.stream().reached().await();
          assertThat(currentNative()).isEqualTo(own);
        });
  }
}
