package io.fairlead.sim;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.util.Objects.requireNonNull;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.DeviceFeatures;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Graphs;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.device.spi.Pieces;
import io.fairlead.device.spi.StreamListener;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.IntSupplier;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * The rules of {@link Driver} as tests. A subclass says how to open a driver with two devices of
 * {@link #memoryBytes()} each; a driver whose kernels are not Java also says what its image is, how
 * to hold a stream, and how to lose a context. Rules that a driver has no capability for are
 * skipped, and say so; a subclass on real hardware says what else it has not.
 *
 * <p>No test sleeps, and none believes that something has not happened because it has not happened
 * yet: what must not happen is kept from happening by a held stream. While one is held, nothing is
 * made or loaded: a real driver may wait with that until no kernel runs. Should a call hang behind
 * a held stream all the same, the stream is let go after {@link #HELD_SECONDS_MAX} seconds, since
 * no interrupt reaches a native call, and the test fails.
 */
@Timeout(60)
public abstract class DriverContract {
  /** Marks the rules that lose a context: on hardware each is run in a process of its own. */
  public static final String FAULT = "fault";

  private static final int BUSY_THREADS = 8;
  private static final int LOOKS_UNTIL_NAP = 500;
  private static final long NAP_NANOS = 20_000;
  private static final Grid ONE = Grid.of(1);

  /** Below the limit of a test, so that what hung is back when it fails. */
  private static final int HELD_SECONDS_MAX = 40;

  /** The driver under test. */
  protected Driver driver;

  /** The context of device 0, current on the test's thread. */
  protected long context;

  /** What the kernel that loses a context throws, where kernels are Java. */
  private final RuntimeException cause = new ArithmeticException("thrown by the kernel on purpose");

  private final List<Runnable> held = new CopyOnWriteArrayList<>();
  private final AtomicReference<@Nullable Throwable> elsewhere = new AtomicReference<>();
  private final AtomicLong ticket = new AtomicLong();
  private final CountDownLatch ended = new CountDownLatch(1);

  /** Fields are set before each test. */
  @SuppressWarnings("NullAway.Init")
  protected DriverContract() {}

  // --- what a subclass says ---------------------------------------------------------------------

  /** A new driver with two devices. */
  protected abstract Driver open();

  /** How many devices the driver has; rules that take two are skipped with one. */
  protected int devices() {
    return 2;
  }

  /** Device memory of each; small enough to be filled. */
  protected long memoryBytes() {
    return 16L << 20;
  }

  /**
   * Whether the tests have the device's memory to themselves: then they fill it, and count what is
   * free to the byte.
   */
  protected boolean isMemoryOurs() {
    return true;
  }

  /**
   * Kernels {@code number(i64 first, out i64[])}: item i becomes first + i; {@code add(in i64[],
   * inOut i64[])}; {@code count(inOut i64[])}: item i grows by one.
   */
  protected ModuleImage image() {
    return new ModuleImage.Java(
        Map.of(
            "number",
            (a, begin, end) -> {
              for (long i = begin; i < end; i++) {
                a.buffer(1).setAtIndex(JAVA_LONG, i, a.i64(0) + i);
              }
            },
            "add",
            (a, begin, end) -> {
              for (long i = begin; i < end; i++) {
                long sum =
                    a.buffer(1).getAtIndex(JAVA_LONG, i) + a.buffer(0).getAtIndex(JAVA_LONG, i);
                a.buffer(1).setAtIndex(JAVA_LONG, i, sum);
              }
            },
            "count",
            (a, begin, end) -> {
              for (long i = begin; i < end; i++) {
                a.buffer(0).setAtIndex(JAVA_LONG, i, a.buffer(0).getAtIndex(JAVA_LONG, i) + 1);
              }
            }));
  }

  /** How often each of 32 virtual threads goes through the calls that must not suspend it. */
  protected int rounds() {
    return 100;
  }

  /** Enqueues work that does not end before the answer is run. */
  protected Runnable hold(long stream) {
    CountDownLatch letGo = new CountDownLatch(1);
    launchJava(
        stream,
        (a, begin, end) -> {
          try {
            letGo.await();
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
        });
    return letGo::countDown;
  }

  /** As {@link #hold}, for many streams at once: all are held before anything else is made. */
  protected Runnable holdAll(List<Long> streams) {
    List<Runnable> letGo = streams.stream().map(this::hold).toList();
    return () -> letGo.forEach(Runnable::run);
  }

  /** How many streams can be held while others go on. */
  protected int heldStreamsMax() {
    return 1;
  }

  /** Whether a context may be lost: on some hardware the process is of no use afterwards. */
  protected boolean mayLoseContexts() {
    return true;
  }

  /**
   * Whether a device can be used again once its lost context was released. Else a retain goes on to
   * say why it was lost, as long as the process lives.
   */
  protected boolean replacesLostContexts() {
    return true;
  }

  /** Whether an address names one memory on all devices, so that the driver takes it on each. */
  protected boolean hasOneAddressSpace() {
    return false;
  }

  /**
   * Whether a memory checker stands before the driver: it waits for the device where the driver
   * does not, at the end of a stream for one, and makes calls of its own, which a capture minds.
   */
  protected boolean isChecked() {
    return false;
  }

  /**
   * Makes ready for the answer, which enqueues work that loses the context of {@code stream}, and
   * gives the status of the loss. The context is current both times.
   */
  protected IntSupplier fault(long stream) {
    needJavaKernels();
    long kernel =
        javaKernel(
            (a, begin, end) -> {
              throw cause;
            });
    return () -> {
      driver.launch(stream, kernel, ONE, new LaunchArguments());
      return DriverException.LAUNCH_FAILED;
    };
  }

  @BeforeEach
  void openDriver() {
    driver = open();
    context = driver.retain(0);
    driver.makeCurrent(context);
    Thread.ofPlatform().daemon().name("let-go").start(this::letGoInTheEnd);
  }

  private void letGoInTheEnd() {
    try {
      if (!ended.await(HELD_SECONDS_MAX, TimeUnit.SECONDS)) {
        elsewhere.compareAndSet(
            null,
            new AssertionError("not ended after " + HELD_SECONDS_MAX + " s: held streams let go"));
        held.forEach(Runnable::run);
      }
    } catch (InterruptedException e) {
      throw new AssertionError("nobody interrupts this thread", e);
    }
  }

  @AfterEach
  void closeDriver() {
    letGoAndClose();
    Throwable failed = elsewhere.get();
    if (failed != null) {
      throw new AssertionError("a thread of the test failed", failed);
    }
  }

  /** Ends the test's work and the driver, for who looks at what is left. May be done twice. */
  @SuppressWarnings("RedundantNullCheck") // open() may have skipped the test
  protected final void letGoAndClose() {
    ended.countDown();
    if (driver != null) {
      held.forEach(Runnable::run);
      driver.makeCurrent(0);
      driver.close();
    }
  }

  // --- helpers ----------------------------------------------------------------------------------

  /** A stream of device 0. */
  protected final long stream() {
    return driver.streamCreate(context, 0, null);
  }

  private Runnable held(long stream) {
    Runnable letGo = hold(stream);
    held.add(letGo);
    return letGo;
  }

  private void launchJava(long stream, JavaKernel kernel) {
    driver.launch(stream, javaKernel(kernel), ONE, new LaunchArguments());
  }

  private long javaKernel(JavaKernel kernel) {
    ModuleImage image = new ModuleImage.Java(Map.of("k", kernel));
    return driver.kernel(driver.moduleLoad(driver.current(), image), "k");
  }

  /** {@code number}, which has run once: a driver may load a kernel at its first launch. */
  private long numberThatRan(long stream, long block, long bytes) {
    long number = kernel("number");
    driver.launch(stream, number, ONE, new LaunchArguments().scalar(0).buffer(block, bytes));
    await(stream);
    return number;
  }

  private long kernel(String name) {
    return driver.kernel(driver.moduleLoad(context, image()), name);
  }

  /** How far a stream of device 0, or of the context that is current, is; asked if need be. */
  private long reached(long stream) {
    long current = driver.current();
    if (current > 0 && current != context) {
      reached(current, stream);
    }
    return reached(context, stream);
  }

  private long reached(long of, long stream) {
    if (driver.mustAsk(stream)) {
      driver.ask(of, new long[] {stream}, 1, 0);
    }
    return driver.reached(stream);
  }

  /** Waits until all that is enqueued so far has ended. */
  protected final void await(long stream) {
    long mark = ticket.incrementAndGet();
    driver.signal(stream, mark);
    await(() -> reached(stream) >= mark || driver.status(context) != null);
  }

  private static void await(BooleanSupplier condition) {
    int looks = 0;
    while (!condition.getAsBoolean()) {
      if (++looks < LOOKS_UNTIL_NAP) {
        Thread.onSpinWait();
      } else {
        LockSupport.parkNanos(NAP_NANOS); // the device may need this processor
      }
      if (Thread.interrupted()) {
        throw new AssertionError("waited in vain");
      }
    }
  }

  private static MemorySegment longs(Arena arena, int count) {
    return arena.allocate(JAVA_LONG, count);
  }

  private static long[] array(MemorySegment segment) {
    return segment.toArray(JAVA_LONG);
  }

  private long[] download(long stream, long address, int count) {
    try (Arena arena = Arena.ofShared()) {
      MemorySegment target = longs(arena, count);
      driver.copyToHost(stream, target, address);
      await(stream);
      return array(target);
    }
  }

  private static void refused(int status, Runnable call) {
    DriverException e = catchThrowableOfType(DriverException.class, call::run);
    assertThat(e).as("must be refused with status %d", status).isNotNull();
    assertThat(e.status()).as(e.getMessage()).isEqualTo(status);
    assertThat(e.statusName()).isNotBlank();
  }

  private Thread elsewhere(Thread.Builder builder, Runnable body) {
    return builder.start(
        () -> {
          try {
            body.run();
          } catch (Throwable t) {
            elsewhere.compareAndSet(null, t);
          }
        });
  }

  private static void join(List<Thread> threads) {
    for (Thread thread : threads) {
      try {
        thread.join();
      } catch (InterruptedException e) {
        throw new AssertionError("waited in vain for " + thread, e);
      }
    }
  }

  private void needJavaKernels() {
    Assumptions.assumeTrue(
        driver.capabilities().contains(Capability.JAVA_KERNELS), "needs kernels in Java");
  }

  private Graphs needGraphs() {
    Assumptions.assumeTrue(driver.capabilities().contains(Capability.GRAPHS), "needs graphs");
    return driver.graphs();
  }

  private void needTwoDevices() {
    Assumptions.assumeTrue(devices() > 1, "needs two devices");
  }

  private void needFaults() {
    Assumptions.assumeTrue(mayLoseContexts(), "needs contexts that may be lost");
  }

  private void needNoChecker() {
    Assumptions.assumeFalse(
        isChecked(), "a memory checker stands before the driver, and waits where it does not");
  }

  private void needMemory() {
    Assumptions.assumeTrue(isMemoryOurs(), "needs a device whose memory nobody else uses");
    // what the context was tried out with as it was opened may be on its way back
    await(() -> driver.memoryInfo(context).freeBytes() == memoryBytes());
  }

  // --- contexts
  // -----------------------------------------------------------------------------------

  @Test
  void aContextIsCurrentOnOneThreadOnly() {
    assertThat(driver.current()).isEqualTo(context);
    join(
        List.of(
            elsewhere(
                Thread.ofPlatform(),
                () -> {
                  assertThat(driver.current()).isZero();
                  if (devices() > 1) {
                    long other = driver.retain(1);
                    driver.makeCurrent(other);
                    assertThat(driver.current()).isEqualTo(other);
                  }
                })));
    assertThat(driver.current()).isEqualTo(context);
    driver.makeCurrent(0);
    assertThat(driver.current()).isZero();
  }

  @Test
  void aBoundContextGivesWayToWhatWasCurrent() {
    long[] befores =
        devices() > 1 ? new long[] {0, context, driver.retain(1)} : new long[] {0, context};
    for (long before : befores) {
      driver.makeCurrent(before);
      long token = driver.bind(context);
      assertThat(token).isNotEqualTo(Long.MIN_VALUE);
      assertThat(driver.current()).isEqualTo(context);
      long inner = driver.bind(context);
      assertThat(driver.current()).isEqualTo(context);
      driver.restore(context, inner);
      assertThat(driver.current()).isEqualTo(context);
      driver.restore(context, token);
      assertThat(driver.current()).isEqualTo(before);
    }
  }

  @Test
  void aContextThatEndedIsNotBound() {
    driver.release(context);
    driver.makeCurrent(0);
    refused(DriverException.INVALID_CONTEXT, () -> driver.bind(context));
    assertThat(driver.current()).isZero();
  }

  @Test
  void callsThatNeedACurrentContextFailWithoutIt() {
    long stream = stream();
    long event = driver.eventCreate(context);
    long address = driver.allocAsync(stream, 64);
    long module = driver.moduleLoad(context, image());
    long kernel = driver.kernel(module, "count");
    MemorySegment block = driver.hostAlloc(context, 64);
    LaunchArguments arguments = new LaunchArguments().buffer(address, 64);
    Map<DriverCall, Runnable> calls =
        Map.ofEntries(
            Map.entry(DriverCall.STREAM_CREATE, () -> driver.streamCreate(context, 0, null)),
            Map.entry(DriverCall.SIGNAL, () -> driver.signal(stream, ticket.incrementAndGet())),
            Map.entry(DriverCall.STREAM_SYNCHRONIZE, () -> driver.streamSynchronize(stream)),
            Map.entry(DriverCall.EVENT_CREATE, () -> driver.eventCreate(context)),
            Map.entry(DriverCall.EVENT_RECORD, () -> driver.eventRecord(event, stream)),
            Map.entry(DriverCall.EVENT_QUERY, () -> driver.eventQuery(event)),
            Map.entry(DriverCall.STREAM_WAIT_EVENT, () -> driver.streamWaitEvent(stream, event)),
            Map.entry(DriverCall.ALLOC_ASYNC, () -> driver.allocAsync(stream, 64)),
            Map.entry(DriverCall.HOST_ALLOC, () -> driver.hostAlloc(context, 64)),
            Map.entry(DriverCall.COPY, () -> driver.copyToDevice(stream, address, block)),
            Map.entry(DriverCall.FILL, () -> driver.fill(stream, address, 64, (byte) 1)),
            Map.entry(DriverCall.MODULE_LOAD, () -> driver.moduleLoad(context, image())),
            Map.entry(DriverCall.KERNEL, () -> driver.kernel(module, "count")),
            Map.entry(DriverCall.LAUNCH, () -> driver.launch(stream, kernel, ONE, arguments)),
            Map.entry(DriverCall.MEMORY_INFO, () -> driver.memoryInfo(context)),
            Map.entry(DriverCall.TRIM, () -> driver.trimPool(context, Long.MAX_VALUE)));
    for (long wrong : wrongContexts()) {
      driver.makeCurrent(wrong);
      calls.forEach(this::refusedIfItNeedsItsContext);
    }
    driver.makeCurrent(context);
    calls.values().forEach(Runnable::run);
    await(stream);
    assertThat(driver.status(context)).isNull();
  }

  /** None, and that of another device where there is one. */
  private long[] wrongContexts() {
    return devices() > 1 ? new long[] {0, driver.retain(1)} : new long[] {0};
  }

  private void refusedIfItNeedsItsContext(DriverCall call, Runnable body) {
    if (driver.needsCurrent(call)) {
      refused(DriverException.INVALID_CONTEXT, body);
    } else {
      body.run();
    }
  }

  /** Those that take something away: what was refused is there still, and can be taken away. */
  @Test
  void endingCallsThatNeedACurrentContextFailWithoutIt() {
    for (long wrong : wrongContexts()) {
      driver.makeCurrent(context);
      long stream = stream();
      long gone = stream();
      long event = driver.eventCreate(context);
      long address = driver.allocAsync(stream, 64);
      long module = driver.moduleLoad(context, image());
      MemorySegment block = driver.hostAlloc(context, 64);
      Map<DriverCall, Runnable> calls =
          Map.of(
              DriverCall.STREAM_DESTROY,
              () -> driver.streamDestroy(gone),
              DriverCall.EVENT_DESTROY,
              () -> driver.eventDestroy(event),
              DriverCall.FREE_ASYNC,
              () -> driver.freeAsync(stream, address),
              DriverCall.HOST_FREE,
              () -> driver.hostFree(context, block),
              DriverCall.MODULE_UNLOAD,
              () -> driver.moduleUnload(module));
      driver.makeCurrent(wrong);
      calls.forEach(this::refusedIfItNeedsItsContext);
      driver.makeCurrent(context);
      calls.forEach(
          (call, body) -> {
            if (driver.needsCurrent(call)) {
              body.run();
            }
          });
      refused(DriverException.INVALID_HANDLE, () -> driver.streamDestroy(gone));
      await(stream);
    }
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void aContextEndsWithItsLastRelease() {
    long stream = stream();
    assertThat(driver.retain(0)).isEqualTo(context);
    driver.release(context);
    await(stream);
    driver.release(context);
    refused(DriverException.INVALID_HANDLE, () -> driver.reached(stream));
    refused(DriverException.INVALID_CONTEXT, () -> driver.makeCurrent(context));
    assertThat(driver.current()).as("an ended context is current nowhere").isZero();
    long fresh = driver.retain(0);
    assertThat(fresh).isNotEqualTo(context);
    assertThat(driver.status(fresh)).isNull();
  }

  @Test
  void workThatIsEnqueuedEndsBeforeItsContext() {
    long stream = stream();
    long kernel = kernel("count");
    long address = driver.allocAsync(stream, 8);
    driver.fill(stream, address, 8, (byte) 0);
    try (Arena arena = Arena.ofShared()) {
      MemorySegment result = longs(arena, 1);
      for (int i = 0; i < 100; i++) {
        driver.launch(stream, kernel, ONE, new LaunchArguments().buffer(address, 8));
      }
      driver.copyToHost(stream, result, address);
      await(stream);
      driver.release(context);
      assertThat(array(result)).containsExactly(100);
    }
  }

  @Test
  void thereAreOnlySoManyDevices() {
    int devices = devices();
    assertThat(driver.deviceCount()).isEqualTo(devices);
    refused(DriverException.INVALID_DEVICE, () -> driver.retain(devices));
    refused(DriverException.INVALID_DEVICE, () -> driver.info(-1));
    assertThat(driver.info(devices - 1).ordinal()).isEqualTo(devices - 1);
  }

  // --- handles
  // ------------------------------------------------------------------------------------

  @Test
  void staleHandlesAreRefusedByKind() {
    long stream = stream();
    long event = driver.eventCreate(context);
    long module = driver.moduleLoad(context, image());
    long kernel = driver.kernel(module, "count");
    driver.streamDestroy(stream);
    driver.eventDestroy(event);
    driver.moduleUnload(module);
    assertThatThrownBy(() -> driver.signal(stream, 1)).hasMessageContaining("stream");
    assertThatThrownBy(() -> driver.eventQuery(event)).hasMessageContaining("event");
    assertThatThrownBy(() -> driver.kernel(module, "count")).hasMessageContaining("module");
    long live = stream();
    assertThatThrownBy(() -> driver.launch(live, kernel, ONE, new LaunchArguments()))
        .hasMessageContaining("kernel");
    refused(DriverException.INVALID_HANDLE, () -> driver.streamDestroy(stream));
    refused(DriverException.INVALID_HANDLE, () -> driver.eventDestroy(event));
    refused(DriverException.INVALID_HANDLE, () -> driver.moduleUnload(module));
  }

  @Test
  void aHandleOfAnotherKindIsRefused() {
    long stream = stream();
    long event = driver.eventCreate(context);
    refused(DriverException.INVALID_HANDLE, () -> driver.signal(event, 1));
    refused(DriverException.INVALID_HANDLE, () -> driver.eventQuery(stream));
    refused(DriverException.INVALID_HANDLE, () -> driver.reached(0));
    refused(DriverException.INVALID_HANDLE, () -> driver.reached(-1));
  }

  @Test
  void handlesAreNeverGivenOutTwice() {
    Set<Long> seen = new HashSet<>();
    for (int i = 0; i < 2_000; i++) {
      long stream = stream();
      long event = driver.eventCreate(context);
      assertThat(seen.add(stream)).isTrue();
      assertThat(seen.add(event)).isTrue();
      driver.streamDestroy(stream);
      driver.eventDestroy(event);
    }
  }

  // --- streams
  // ------------------------------------------------------------------------------------

  @Test
  void aStreamRunsInOrder() {
    long stream = stream();
    long number = kernel("number");
    long add = kernel("add");
    int count = 5_000;
    long bytes = 8L * count;
    long x = driver.allocAsync(stream, bytes);
    long y = driver.allocAsync(stream, bytes);
    driver.fill(stream, y, bytes, (byte) 0);
    Grid grid = Grid.of(count).withGrain(100);
    for (int round = 0; round < 200; round++) {
      driver.launch(stream, number, grid, new LaunchArguments().scalar(round).buffer(x, bytes));
      driver.launch(stream, add, grid, new LaunchArguments().buffer(x, bytes).buffer(y, bytes));
    }
    long[] sums = download(stream, y, count);
    for (int i = 0; i < count; i++) {
      assertThat(sums[i]).isEqualTo(199L * 200 / 2 + 200L * i);
    }
  }

  @Test
  void aHeldStreamHoldsNobodyElse() {
    long slow = stream();
    long quick = stream();
    Runnable letGo = held(slow);
    driver.signal(slow, 7);
    await(quick);
    assertThat(reached(slow)).isZero();
    letGo.run();
    await(() -> reached(slow) == 7);
  }

  @Test
  void synchronizeWaitsForAllThatIsEnqueued() {
    long stream = stream();
    Runnable letGo = held(stream);
    driver.signal(stream, 1);
    CountDownLatch started = new CountDownLatch(1);
    AtomicLong seen = new AtomicLong(-1);
    Thread waiting =
        elsewhere(
            Thread.ofPlatform(),
            () -> {
              driver.makeCurrent(context);
              started.countDown();
              driver.streamSynchronize(stream);
              seen.set(reached(stream));
              driver.makeCurrent(0);
            });
    await(() -> started.getCount() == 0);
    assertThat(seen.get()).isEqualTo(-1);
    letGo.run();
    join(List.of(waiting));
    assertThat(seen.get()).isEqualTo(1);
  }

  @Test
  void workOfADestroyedStreamStillEnds() {
    needNoChecker();
    long stream = stream();
    long event = driver.eventCreate(context);
    Runnable letGo = held(stream);
    driver.eventRecord(event, stream);
    driver.streamDestroy(stream);
    refused(DriverException.INVALID_HANDLE, () -> driver.reached(stream));
    assertThat(driver.eventQuery(event)).isFalse();
    letGo.run();
    await(() -> driver.eventQuery(event));
  }

  @Test
  void manyThreadsMayUseOneStream() {
    long stream = stream();
    long count = kernel("count");
    long address = driver.allocAsync(stream, 8);
    driver.fill(stream, address, 8, (byte) 0);
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < BUSY_THREADS; t++) {
      threads.add(
          elsewhere(
              Thread.ofPlatform(),
              () -> {
                driver.makeCurrent(context);
                for (int i = 0; i < 500; i++) {
                  driver.launch(stream, count, ONE, new LaunchArguments().buffer(address, 8));
                }
                driver.makeCurrent(0);
              }));
    }
    join(threads);
    assertThat(download(stream, address, 1)).containsExactly(500 * BUSY_THREADS);
  }

  // --- signals and listeners
  // ----------------------------------------------------------------------

  @Test
  void whoSeesTheSignalSeesTheData() {
    long stream = stream();
    long number = kernel("number");
    int count = 64;
    long bytes = 8L * count;
    long address = driver.allocAsync(stream, bytes);
    assertThat(reached(stream)).isZero();
    try (Arena arena = Arena.ofShared()) {
      MemorySegment host = longs(arena, count);
      for (long round = 1; round <= 2_000; round++) {
        driver.launch(
            stream,
            number,
            Grid.of(count),
            new LaunchArguments().scalar(round).buffer(address, bytes));
        driver.copyToHost(stream, host, address);
        driver.signal(stream, round);
        long mark = round;
        await(() -> reached(stream) >= mark);
        assertThat(host.getAtIndex(JAVA_LONG, 0)).isEqualTo(round);
        assertThat(host.getAtIndex(JAVA_LONG, count - 1)).isEqualTo(round + count - 1);
      }
    }
  }

  /** Writes down what it is told. */
  private static final class Recorder implements StreamListener {
    final List<Long> values = new CopyOnWriteArrayList<>();
    final AtomicInteger lost = new AtomicInteger();

    @Override
    public void reached(long value) {
      values.add(value);
    }

    @Override
    public void lost() {
      lost.incrementAndGet();
    }
  }

  @Test
  void listenersHearOfSignalsWhereTheDriverNotifies() {
    Recorder recorder = new Recorder();
    long stream = driver.streamCreate(context, 0, recorder);
    for (int i = 1; i <= 100; i++) {
      driver.signal(stream, i);
    }
    await(() -> reached(stream) == 100);
    if (driver.capabilities().contains(Capability.NOTIFY)) {
      await(() -> !recorder.values.isEmpty() && recorder.values.getLast() == 100);
      assertThat(recorder.values).isSorted().doesNotHaveDuplicates();
    } else {
      driver.streamSynchronize(stream);
      assertThat(recorder.values).isEmpty();
    }
  }

  @Test
  void aListenerThatThrowsStopsNothing() {
    long stream =
        driver.streamCreate(
            context,
            0,
            new StreamListener() {
              @Override
              public void reached(long value) {
                throw new IllegalStateException("a listener's own bug; logged on purpose");
              }

              @Override
              public void lost() {}
            });
    driver.signal(stream, 1);
    driver.signal(stream, 2);
    await(() -> reached(stream) == 2);
    assertThat(driver.status(context)).isNull();
  }

  /** However many signals are outstanding behind long work, others' work and signals go on. */
  private void holdMany(int count) {
    Assumptions.assumeTrue(heldStreamsMax() >= count, "needs " + count + " streams held at once");
    List<Long> slow = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      slow.add(stream());
    }
    long probe = stream();
    long address = driver.allocAsync(probe, 8);
    long number = numberThatRan(probe, address, 8);
    Runnable letGo = holdAll(slow);
    held.add(letGo);
    slow.forEach(stream -> driver.signal(stream, 1));
    for (long round = 1; round <= 20; round++) {
      driver.launch(probe, number, ONE, new LaunchArguments().scalar(round).buffer(address, 8));
      await(probe);
    }
    assertThat(slow).allMatch(stream -> reached(stream) == 0);
    letGo.run();
    for (long stream : slow) {
      await(() -> reached(stream) == 1);
    }
    assertThat(download(probe, address, 1)).containsExactly(20);
  }

  @Test
  void sixteenHeldStreamsHoldNobodyElse() {
    holdMany(16);
  }

  @Test
  void sixtyFourHeldStreamsHoldNobodyElse() {
    holdMany(64);
  }

  @Test
  void aHundredAndTwentyHeldStreamsHoldNobodyElse() {
    holdMany(120);
  }

  @Test
  void aSignalStandsForWhatWasThereThen() {
    long slow = stream();
    long stream = stream();
    long event = driver.eventCreate(context);
    Runnable letGo = held(slow);
    driver.eventRecord(event, slow);
    driver.signal(stream, 10);
    driver.streamWaitEvent(stream, event);
    for (long value = 11; value <= 40; value++) {
      driver.signal(stream, value);
    }
    await(() -> reached(stream) > 0);
    assertThat(reached(stream)).isEqualTo(10);
    letGo.run();
    await(() -> reached(stream) == 40);
  }

  /** More signals than a driver may have room for, none of which is asked about. */
  @Test
  void signalsThatNobodyAsksAboutArriveAllTheSame() {
    List<Long> streams = new ArrayList<>();
    for (int i = 0; i < 40; i++) {
      streams.add(stream());
    }
    for (long value = 1; value <= 100; value++) {
      for (long stream : streams) {
        driver.signal(stream, value);
      }
    }
    for (long stream : streams) {
      await(() -> reached(stream) == 100);
    }
  }

  @Test
  void synchronizingMakesSignalsKnown() {
    for (int i = 0; i < 40; i++) {
      long stream = stream();
      driver.signal(stream, 3);
      driver.streamSynchronize(stream);
      assertThat(driver.reached(stream)).isEqualTo(3);
    }
  }

  @Test
  void askingPassesOverWhatIsGone() {
    long gone = stream();
    long live = stream();
    driver.signal(gone, 1);
    driver.streamDestroy(gone);
    driver.signal(live, 1);
    assertThat(driver.mustAsk(gone)).isFalse();
    assertThat(driver.mustAsk(0)).isFalse();
    long[] both = {gone, live};
    await(
        () -> {
          assertThat(driver.ask(context, both, 2, 1_000_000)).isBetween(0, 2);
          return driver.reached(live) == 1;
        });
    assertThat(driver.ask(0, both, 2, 0)).isEqualTo(2);
    assertThat(driver.ask(context, both, 0, 0)).isZero();
    assertThat(driver.current()).isEqualTo(context);
  }

  /** What is asked, by whom and in which order, changes no answer. */
  @Test
  void manyMayAskAndSignalAtOnce() {
    List<Long> streams = new ArrayList<>();
    for (int i = 0; i < 24; i++) {
      streams.add(stream());
    }
    long[] all = streams.stream().mapToLong(Long::longValue).toArray();
    CountDownLatch signalled = new CountDownLatch(4);
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < 4; t++) {
      int mine = t;
      threads.add(elsewhere(Thread.ofPlatform(), () -> signalSome(all, mine, signalled)));
    }
    for (int t = 0; t < 2; t++) {
      threads.add(elsewhere(Thread.ofPlatform(), () -> askAll(all, signalled)));
    }
    join(threads);
    for (long stream : all) {
      await(() -> reached(stream) == 300);
    }
  }

  /** Each stream has one thread that signals. */
  private void signalSome(long[] streams, int mine, CountDownLatch signalled) {
    driver.makeCurrent(context);
    for (long value = 1; value <= 300; value++) {
      for (int i = mine; i < streams.length; i += 4) {
        driver.signal(streams[i], value);
      }
    }
    driver.makeCurrent(0);
    signalled.countDown();
  }

  private void askAll(long[] streams, CountDownLatch signalled) {
    long[] seen = new long[streams.length];
    while (signalled.getCount() > 0) {
      driver.ask(context, streams, streams.length, 100_000);
      for (int i = 0; i < streams.length; i++) {
        long reached = driver.reached(streams[i]);
        assertThat(reached).isBetween(seen[i], 300L);
        seen[i] = reached;
      }
    }
  }

  // --- events
  // -------------------------------------------------------------------------------------

  @Test
  void anEventNeverRecordedIsNoWait() {
    long stream = stream();
    long event = driver.eventCreate(context);
    assertThat(driver.eventQuery(event)).isTrue();
    driver.streamWaitEvent(stream, event);
    await(stream);
  }

  @Test
  void aWaitOrdersWorkAcrossStreams() {
    long producer = stream();
    long consumer = stream();
    long bystander = stream();
    long event = driver.eventCreate(context);
    long address = driver.allocAsync(producer, 800);
    long number = numberThatRan(producer, address, 800);
    Runnable letGo = held(producer);
    driver.launch(
        producer, number, Grid.of(100), new LaunchArguments().scalar(40).buffer(address, 800));
    driver.eventRecord(event, producer);
    driver.streamWaitEvent(consumer, event);
    driver.signal(consumer, 1);
    await(bystander);
    assertThat(driver.eventQuery(event)).isFalse();
    assertThat(reached(consumer)).isZero();
    letGo.run();
    assertThat(download(consumer, address, 100)).contains(40, 139);
    assertThat(driver.eventQuery(event)).isTrue();
  }

  @Test
  void aWaitIsForTheRecordThatWasThere() {
    long slow = stream();
    long quick = stream();
    long waiting = stream();
    long later = stream();
    long event = driver.eventCreate(context);
    Runnable letGo = held(slow);
    driver.eventRecord(event, slow);
    driver.streamWaitEvent(waiting, event);
    driver.signal(waiting, 1);
    driver.eventRecord(event, quick);
    driver.streamWaitEvent(later, event);
    await(later);
    await(() -> driver.eventQuery(event));
    assertThat(reached(waiting)).as("waits for the first record still").isZero();
    letGo.run();
    await(() -> reached(waiting) == 1);
  }

  @Test
  void destroyingAnEventEndsNoWait() {
    long slow = stream();
    long waiting = stream();
    long bystander = stream();
    long event = driver.eventCreate(context);
    Runnable letGo = held(slow);
    driver.eventRecord(event, slow);
    driver.streamWaitEvent(waiting, event);
    driver.signal(waiting, 1);
    driver.eventDestroy(event);
    await(bystander);
    assertThat(reached(waiting)).isZero();
    letGo.run();
    await(() -> reached(waiting) == 1);
  }

  @Test
  void aStreamMayWaitForItself() {
    long stream = stream();
    long event = driver.eventCreate(context);
    Runnable letGo = held(stream);
    driver.eventRecord(event, stream);
    driver.streamWaitEvent(stream, event);
    letGo.run();
    await(stream);
  }

  @Test
  void manyStreamsMayWaitForOneEvent() {
    long slow = stream();
    long event = driver.eventCreate(context);
    List<Long> waiting = new ArrayList<>();
    for (int i = 0; i < 50; i++) {
      waiting.add(stream());
    }
    Runnable letGo = held(slow);
    driver.eventRecord(event, slow);
    for (long stream : waiting) {
      driver.streamWaitEvent(stream, event);
      driver.signal(stream, 1);
    }
    assertThat(waiting).allMatch(s -> reached(s) == 0);
    letGo.run();
    await(() -> waiting.stream().allMatch(s -> reached(s) == 1));
  }

  @Test
  void aWaitCrossesDevices() {
    needTwoDevices();
    long other = driver.retain(1);
    driver.makeCurrent(other);
    long there = driver.streamCreate(other, 0, null);
    long event = driver.eventCreate(other);
    driver.makeCurrent(context);
    long here = stream();
    long bystander = stream();
    driver.makeCurrent(other);
    Runnable letGo = held(there);
    driver.eventRecord(event, there);
    driver.makeCurrent(context);
    driver.streamWaitEvent(here, event);
    driver.signal(here, 1);
    await(bystander);
    assertThat(reached(here)).isZero();
    letGo.run();
    await(() -> reached(here) == 1);
  }

  // --- foreign code -----------------------------------------------------------------------------

  @Test
  void anAdoptedStreamIsTheSameStreamAndStaysItsMakers() {
    int count = 1000;
    long made = stream();
    long adopted = driver.streamAdopt(context, driver.streamNative(made));
    assertThat(driver.streamNative(adopted)).isEqualTo(driver.streamNative(made));
    long block = driver.allocAsync(made, 8L * count);
    long number = kernel("number");
    Grid grid = Grid.of(count);
    driver.launch(made, number, grid, new LaunchArguments().scalar(1).buffer(block, 8L * count));
    driver.launch(adopted, number, grid, new LaunchArguments().scalar(2).buffer(block, 8L * count));
    await(adopted);
    assertThat(driver.reached(adopted)).isPositive();
    driver.streamLetGo(adopted);
    if (adopted != made) {
      refused(DriverException.INVALID_HANDLE, () -> driver.signal(adopted, Long.MAX_VALUE));
      refused(DriverException.INVALID_HANDLE, () -> driver.reached(adopted));
    }
    assertThat(download(made, block, count)[count - 1]).isEqualTo(count + 1);
    driver.freeAsync(made, block);
    driver.streamDestroy(made);
  }

  @Test
  void codeThatNamesNoStreamIsOrderedByEvents() {
    long stream = stream();
    long before = driver.eventCreate(context);
    long after = driver.eventCreate(context);
    assertThat(driver.contextNative(context)).isNotZero();
    if (!driver.capabilities().contains(Capability.DEFAULT_STREAM)) {
      int refusal = DriverException.NOT_SUPPORTED;
      refused(refusal, () -> driver.defaultStreamWait(context, before));
      refused(refusal, () -> driver.defaultStreamRecord(context, after));
      return;
    }
    driver.defaultStreamRecord(context, after); // before anything is held
    await(() -> driver.eventQuery(after));
    Runnable letGo = held(stream);
    driver.eventRecord(before, stream);
    driver.defaultStreamWait(context, before);
    driver.defaultStreamRecord(context, after);
    assertThat(driver.eventQuery(after)).isFalse();
    driver.makeCurrent(0);
    int refusal = DriverException.INVALID_CONTEXT;
    refused(refusal, () -> driver.defaultStreamWait(context, before));
    refused(refusal, () -> driver.defaultStreamRecord(context, after));
    driver.makeCurrent(context);
    letGo.run();
    await(() -> driver.eventQuery(after));
  }

  // --- memory
  // -------------------------------------------------------------------------------------

  @Test
  void blocksAreAlignedAndApart() {
    long stream = stream();
    long number = kernel("number");
    List<Long> blocks = new ArrayList<>();
    for (int i = 0; i < 200; i++) {
      int count = 1 + i * 7 % 100;
      long address = driver.allocAsync(stream, 8L * count);
      assertThat(address % 256).isZero();
      blocks.add(address);
      driver.launch(
          stream,
          number,
          Grid.of(count),
          new LaunchArguments().scalar(i * 1_000L).buffer(address, 8L * count));
    }
    assertThat(new HashSet<>(blocks)).hasSize(200);
    for (int i = 0; i < 200; i++) {
      int count = 1 + i * 7 % 100;
      long[] values = download(stream, blocks.get(i), count);
      assertThat(values[0]).isEqualTo(i * 1_000L);
      assertThat(values[count - 1]).isEqualTo(i * 1_000L + count - 1);
    }
  }

  @Test
  void memoryRunsOutAndComesBack() {
    needMemory();
    long stream = stream();
    List<Long> blocks = new ArrayList<>();
    DriverException full = null;
    while (full == null) {
      try {
        blocks.add(driver.allocAsync(stream, 1 << 20));
      } catch (DriverException e) {
        full = e;
      }
    }
    assertThat(full.isOutOfMemory()).isTrue();
    assertThat(full.isFatal()).isFalse();
    assertThat((long) blocks.size() << 20).isLessThanOrEqualTo(memoryBytes());
    assertThat((long) blocks.size() << 20).isGreaterThan(memoryBytes() / 2);
    blocks.forEach(block -> driver.freeAsync(stream, block));
    await(stream);
    long large = driver.allocAsync(stream, memoryBytes() / 2);
    driver.freeAsync(stream, large);
    await(stream);
    MemoryInfo info = driver.memoryInfo(context);
    assertThat(info.totalBytes()).isEqualTo(memoryBytes());
    assertThat(info.freeBytes()).isEqualTo(memoryBytes());
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void aTrimReturnsWhatNobodyUsesAndNothingElse() {
    needMemory();
    long stream = stream();
    long kept = driver.allocAsync(stream, 1 << 20);
    driver.fill(stream, kept, 1 << 20, (byte) 7);
    driver.freeAsync(stream, driver.allocAsync(stream, 2 << 20));
    await(stream);
    MemoryInfo before = driver.memoryInfo(context);
    assertThat(before.poolUsedBytes()).isBetween(0L, before.poolBytes());
    assertThat(before.outsideBytes() + before.poolUnusedBytes()).isEqualTo(before.freeBytes());
    driver.trimPool(context, 0);
    MemoryInfo after = driver.memoryInfo(context);
    assertThat(after.freeBytes()).isEqualTo(before.freeBytes());
    assertThat(after.poolUnusedBytes()).isZero();
    assertThat(after.outsideBytes()).isEqualTo(after.freeBytes());
    MemorySegment read = driver.hostAlloc(context, 1 << 20);
    driver.copyToHost(stream, read, kept);
    await(stream);
    assertThat(read.toArray(JAVA_BYTE)).containsOnly(7);
    driver.hostFree(context, read);
    driver.freeAsync(stream, kept);
    await(stream);
    assertThat(driver.memoryInfo(context).freeBytes()).isEqualTo(before.freeBytes() + (1 << 20));
  }

  @Test
  void moreThanThereIsIsRefusedAtOnce() {
    long stream = stream();
    long more = driver.info(0).memoryBytes() + 1;
    refused(DriverException.OUT_OF_MEMORY, () -> driver.allocAsync(stream, more));
    refused(DriverException.INVALID_VALUE, () -> driver.allocAsync(stream, 0));
    refused(DriverException.INVALID_VALUE, () -> driver.allocAsync(stream, -1));
  }

  @Test
  void whatAStreamFreedIsItsOwnAtOnceAndOthersLater() {
    needMemory();
    long owner = stream();
    long other = stream();
    long most = memoryBytes() / 4 * 3;
    long first = driver.allocAsync(owner, most);
    Runnable letGo = held(owner);
    driver.freeAsync(owner, first);
    refused(DriverException.OUT_OF_MEMORY, () -> driver.allocAsync(other, most));
    long second = driver.allocAsync(owner, most);
    driver.freeAsync(owner, second);
    refused(DriverException.OUT_OF_MEMORY, () -> driver.allocAsync(other, most));
    letGo.run();
    await(owner);
    long third = driver.allocAsync(other, most);
    driver.freeAsync(other, third);
    await(other);
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void wrongFreesAreRefusedAtOnce() {
    long stream = stream();
    long block = driver.allocAsync(stream, 4096);
    refused(DriverException.INVALID_VALUE, () -> driver.freeAsync(stream, block + 256));
    refused(DriverException.INVALID_VALUE, () -> driver.freeAsync(stream, 0));
    refused(DriverException.INVALID_VALUE, () -> driver.freeAsync(stream, 12345));
    driver.freeAsync(stream, block);
    refused(DriverException.INVALID_VALUE, () -> driver.freeAsync(stream, block));
    await(stream);
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void copiesAndFillsMoveWhatTheySay() {
    long stream = stream();
    long a = driver.allocAsync(stream, 4096);
    long b = driver.allocAsync(stream, 4096);
    MemorySegment up = driver.hostAlloc(context, 4096);
    for (int i = 0; i < 512; i++) {
      up.setAtIndex(JAVA_LONG, i, i * 3L);
    }
    driver.copyToDevice(stream, a, up);
    driver.fill(stream, b, 4096, (byte) 0x11);
    driver.copyOnDevice(stream, b + 8, a + 16, 24);
    long[] values = download(stream, b, 5);
    assertThat(values).containsExactly(0x1111111111111111L, 6, 9, 12, 0x1111111111111111L);
    assertThat(download(stream, a + 4088, 1)).containsExactly(511 * 3);
    driver.hostFree(context, up);
  }

  @Test
  void largeCopiesMoveEverything() {
    long stream = stream();
    long bytes = memoryBytes() / 2 - 24;
    long block = driver.allocAsync(stream, bytes);
    MemorySegment up = driver.hostAlloc(context, bytes);
    MemorySegment down = driver.hostAlloc(context, bytes);
    for (long i = 0; i < bytes; i += 8) {
      up.set(JAVA_LONG, i, i ^ 0x5DEECE66DL);
    }
    driver.copyToDevice(stream, block, up);
    driver.copyToHost(stream, down, block);
    await(stream);
    assertThat(up.mismatch(down)).isEqualTo(-1);
    driver.fill(stream, block, bytes, (byte) 9);
    driver.copyToHost(stream, down, block);
    await(stream);
    assertThat(down.get(JAVA_BYTE, 0)).isEqualTo((byte) 9);
    assertThat(down.asSlice(0, bytes - 1).mismatch(down.asSlice(1))).isEqualTo(-1);
    driver.hostFree(context, up);
    driver.hostFree(context, down);
  }

  @Test
  void transfersOfNothingAreFine() {
    long stream = stream();
    long block = driver.allocAsync(stream, 256);
    driver.copyToDevice(stream, block, MemorySegment.NULL);
    driver.copyToHost(stream, MemorySegment.NULL, block);
    driver.copyOnDevice(stream, block, block, 0);
    driver.fill(stream, block, 0, (byte) 1);
    await(stream);
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void transfersToNowhereAreRefusedAtOnce() {
    long stream = stream();
    long block = driver.allocAsync(stream, 256);
    MemorySegment host = driver.hostAlloc(context, 256);
    refused(DriverException.INVALID_VALUE, () -> driver.copyToDevice(stream, 4711, host));
    refused(DriverException.INVALID_VALUE, () -> driver.copyToHost(stream, host, 0));
    refused(DriverException.INVALID_VALUE, () -> driver.copyOnDevice(stream, block, 1, 8));
    refused(DriverException.INVALID_VALUE, () -> driver.fill(stream, 1, 8, (byte) 0));
    refused(DriverException.INVALID_VALUE, () -> driver.fill(stream, block, -8, (byte) 0));
    await(stream);
    assertThat(driver.status(context)).isNull();
    driver.hostFree(context, host);
    refused(DriverException.INVALID_VALUE, () -> driver.hostFree(context, host));
  }

  // --- many pieces at once
  // ------------------------------------------------------------------------------------

  /** Bytes of each piece: some that no wide copy fits, and some that a block takes several of. */
  private static final long[] PIECES = {4096, 1, 16, 7, 65_536, 100, 4096, 12_345};

  /** What a piece begins behind a multiple of 64 bytes, there and here. */
  private static final long[] BESIDE = {0, 3, 0, 5, 0, 4, 8, 0};

  private static final long PIECE_ROOM = 65_536 + 64;

  /** Pieces of {@link #PIECES} in two blocks, whose table is in page-locked memory. */
  private Pieces pieces(long block, MemorySegment host) {
    Pieces pieces = new Pieces(driver.hostAlloc(context, 4096));
    for (int i = 0; i < PIECES.length; i++) {
      long at = i * PIECE_ROOM + BESIDE[i];
      pieces.add(block + at, host.asSlice(at, PIECES[i]));
    }
    return pieces;
  }

  private static boolean isInPiece(long offset) {
    long inside = offset % PIECE_ROOM - BESIDE[(int) (offset / PIECE_ROOM)];
    return inside >= 0 && inside < PIECES[(int) (offset / PIECE_ROOM)];
  }

  private void piecesMove() {
    long stream = stream();
    long bytes = PIECES.length * PIECE_ROOM;
    long block = driver.allocAsync(stream, bytes);
    MemorySegment up = driver.hostAlloc(context, bytes);
    MemorySegment down = driver.hostAlloc(context, bytes);
    for (long i = 0; i < bytes; i++) {
      up.set(JAVA_BYTE, i, (byte) (i * 31 + i / 251));
    }
    down.fill((byte) 0x55);
    driver.fill(stream, block, bytes, (byte) 0x11);
    driver.copyPiecesToDevice(stream, pieces(block, up));
    MemorySegment all = driver.hostAlloc(context, bytes);
    driver.copyToHost(stream, all, block);
    driver.copyPiecesToHost(stream, pieces(block, down));
    await(stream);
    for (long i = 0; i < bytes; i++) {
      byte moved = up.get(JAVA_BYTE, i);
      boolean inside = isInPiece(i);
      if (all.get(JAVA_BYTE, i) != (inside ? moved : 0x11)
          || down.get(JAVA_BYTE, i) != (inside ? moved : 0x55)) {
        assertThat(all.get(JAVA_BYTE, i)).as("up, %d", i).isEqualTo(inside ? moved : (byte) 0x11);
        assertThat(down.get(JAVA_BYTE, i))
            .as("down, %d", i)
            .isEqualTo(inside ? moved : (byte) 0x55);
      }
    }
  }

  @Test
  void piecesMoveAndNothingBesideThem() {
    driver.preparePieces(context);
    piecesMove();
  }

  @Test
  void piecesMoveAlsoIfNobodyMadeReady() {
    piecesMove();
  }

  @Test
  void madeReadyTwiceIsTheSame() {
    assertThat(driver.preparePieces(context)).isEqualTo(driver.preparePieces(context));
    piecesMove();
  }

  @Test
  void piecesAreInTheOrderOfTheirStream() {
    driver.preparePieces(context);
    long stream = stream();
    long number = kernel("number");
    int count = 512;
    long block = driver.allocAsync(stream, 8L * count * 2);
    MemorySegment host = driver.hostAlloc(context, 8L * count * 4);
    Grid grid = Grid.of(count);
    for (int round = 0; round < 50; round++) {
      Pieces down = new Pieces(driver.hostAlloc(context, 4096));
      Pieces again = new Pieces(driver.hostAlloc(context, 4096));
      for (int i = 0; i < 64; i++) {
        long from = 64L * i;
        down.add(block + from, host.asSlice(from, 64));
        again.add(block + from, host.asSlice(8L * count + from, 64));
      }
      LaunchArguments first = new LaunchArguments().scalar(round).buffer(block, 8L * count);
      driver.launch(stream, number, grid, first);
      driver.copyPiecesToHost(stream, down);
      LaunchArguments second = new LaunchArguments().scalar(-round).buffer(block, 8L * count);
      driver.launch(stream, number, grid, second);
      driver.copyPiecesToHost(stream, again);
      await(stream);
      for (int i = 0; i < count; i++) {
        assertThat(host.getAtIndex(JAVA_LONG, i)).isEqualTo(round + i);
        assertThat(host.getAtIndex(JAVA_LONG, count + i)).isEqualTo(-round + i);
      }
    }
  }

  /** By the next operation too, which somebody may have it for. */
  @Test
  void aTableMayBeFilledAnewOnceItsCopiesHaveEnded() {
    driver.preparePieces(context);
    long stream = stream();
    long block = driver.allocAsync(stream, 4096);
    MemorySegment table = driver.hostAlloc(context, 4096);
    MemorySegment host = driver.hostAlloc(context, 4096);
    for (int round = 1; round <= 50; round++) {
      driver.fill(stream, block, 4096, (byte) round);
      Pieces pieces = new Pieces(table);
      int others = round % 7;
      for (int i = 0; i < others; i++) {
        pieces.add(block + 512L * i, host.asSlice(512L * i, 512));
      }
      pieces.add(block + 3584, host.asSlice(3584, 512 - round));
      driver.copyPiecesToHost(stream, pieces);
      await(stream);
      assertThat(host.get(JAVA_BYTE, 4095 - round)).isEqualTo((byte) round);
      for (int i = 0; i < others; i++) {
        assertThat(host.get(JAVA_BYTE, 512L * i + 511)).as("of %d", others).isEqualTo((byte) round);
      }
    }
  }

  @Test
  void noPiecesAndEmptyOnesAreFine() {
    driver.preparePieces(context);
    long stream = stream();
    long block = driver.allocAsync(stream, 256);
    Pieces none = new Pieces(driver.hostAlloc(context, 4096));
    driver.copyPiecesToDevice(stream, none);
    driver.copyPiecesToHost(stream, none);
    MemorySegment host = driver.hostAlloc(context, 256);
    host.fill((byte) 3);
    Pieces pieces = new Pieces(driver.hostAlloc(context, 4096));
    pieces.add(block, MemorySegment.NULL);
    pieces.add(block, host);
    pieces.add(0, MemorySegment.NULL);
    driver.copyPiecesToDevice(stream, pieces);
    assertThat(download(stream, block, 1)).containsExactly(0x0303030303030303L);
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void aPieceThatIsRefusedIsNamed() {
    driver.preparePieces(context);
    long stream = stream();
    long block = driver.allocAsync(stream, 256);
    MemorySegment host = driver.hostAlloc(context, 256);
    List<MemorySegment> wrong =
        List.of(MemorySegment.ofArray(new byte[64]), host.asSlice(0, 64).asReadOnly());
    for (MemorySegment each : wrong) {
      Pieces pieces = new Pieces(driver.hostAlloc(context, 4096));
      pieces.add(block, host.asSlice(64, 64));
      pieces.add(block + 64, each);
      DriverException e =
          catchThrowableOfType(
              DriverException.class, () -> driver.copyPiecesToHost(stream, pieces));
      assertThat(e).hasMessageStartingWith("piece 1 of 2: ");
      assertThat(e.status()).isEqualTo(DriverException.INVALID_VALUE);
    }
    await(stream);
    assertThat(driver.status(context)).isNull();
  }

  /** At once or later, but never done without a word. */
  @Test
  @Tag(FAULT)
  void aPieceOfNoBlockIsRefusedOrAnIllegalAddress() {
    needFaults();
    needMemory();
    driver.preparePieces(context);
    long stream = stream();
    Pieces pieces = new Pieces(driver.hostAlloc(context, 4096));
    MemorySegment host = driver.hostAlloc(context, 256);
    pieces.add(driver.allocAsync(stream, 256), host.asSlice(0, 128));
    pieces.add(4711, host.asSlice(128, 128));
    try {
      driver.copyPiecesToDevice(stream, pieces);
    } catch (DriverException e) {
      assertThat(e).hasMessageStartingWith("piece 1 of 2: ");
      assertThat(e.status()).isEqualTo(DriverException.INVALID_VALUE);
      assertThat(driver.status(context)).isNull();
      return;
    }
    expectLost(context, DriverException.ILLEGAL_ADDRESS);
  }

  /** A graph would read the table at each launch. */
  @Test
  void piecesAreNotCaptured() {
    Graphs graphs = needGraphs();
    driver.preparePieces(context);
    long stream = stream();
    long block = zeroed(stream, 1);
    long count = kernel("count");
    Pieces pieces = new Pieces(driver.hostAlloc(context, 4096));
    pieces.add(block, driver.hostAlloc(context, 8));
    long executable =
        captured(
            graphs,
            stream,
            () -> {
              addOne(stream, count, block);
              refused(
                  DriverException.CAPTURE_UNSUPPORTED,
                  () -> driver.copyPiecesToDevice(stream, pieces));
              refused(
                  DriverException.CAPTURE_UNSUPPORTED,
                  () -> driver.copyPiecesToHost(stream, pieces));
              addOne(stream, count, block);
            });
    graphs.launch(stream, executable);
    assertThat(download(stream, block, 1)).containsExactly(2);
  }

  @Test
  void devicesShareNoMemory() {
    needTwoDevices();
    long other = driver.retain(1);
    driver.makeCurrent(other);
    long there = driver.streamCreate(other, 0, null);
    long block = driver.allocAsync(there, 4096);
    driver.makeCurrent(context);
    long here = stream();
    if (hasOneAddressSpace()) {
      assertThat(driver.allocAsync(here, 4096))
          .satisfiesAnyOf(
              address -> assertThat(address).isGreaterThanOrEqualTo(block + 4096),
              address -> assertThat(address).isLessThanOrEqualTo(block - 4096));
      return;
    }
    refused(DriverException.INVALID_VALUE, () -> driver.fill(here, block, 8, (byte) 0));
    refused(DriverException.INVALID_VALUE, () -> driver.freeAsync(here, block));
  }

  // --- kernels
  // ------------------------------------------------------------------------------------

  @Test
  void everyItemRunsOnce() {
    long stream = stream();
    long count = kernel("count");
    int most = 70_000;
    long block = driver.allocAsync(stream, 8L * most);
    driver.fill(stream, block, 8L * most, (byte) 0);
    int[] sizes = {0, 1, 2, 999, 1_000, 1_001, 15_999, 16_000, 16_001, 69_999, most};
    for (int size : sizes) {
      driver.launch(
          stream,
          count,
          Grid.of(size).withGrain(1_000),
          new LaunchArguments().buffer(block, 8L * most));
    }
    long[] counts = download(stream, block, most);
    for (int i = 0; i < most; i++) {
      int item = i;
      long expected = java.util.stream.IntStream.of(sizes).filter(s -> s > item).count();
      assertThat(counts[i]).isEqualTo(expected);
    }
  }

  @Test
  void argumentsAreCopied() {
    long stream = stream();
    long block = driver.allocAsync(stream, 80);
    long number = numberThatRan(stream, block, 80);
    Runnable letGo = held(stream);
    LaunchArguments arguments = new LaunchArguments().scalar(5).buffer(block, 80);
    driver.launch(stream, number, Grid.of(10), arguments);
    arguments.clear().scalar(-1).buffer(0, 0);
    letGo.run();
    assertThat(download(stream, block, 2)).containsExactly(5, 6);
  }

  @Test
  void aKernelThatIsNotThereIsRefusedWithTheNamesOfThoseThatAre() {
    long module = driver.moduleLoad(context, image());
    refused(DriverException.NOT_FOUND, () -> driver.kernel(module, "nope"));
    assertThatThrownBy(() -> driver.kernel(module, "nope"))
        .hasMessageContainingAll("add", "count", "number");
  }

  @Test
  void imagesAreTakenOrRefused() {
    assertThat(driver.accepts(image())).isTrue();
    ModuleImage ptx = new ModuleImage.Ptx("garbage");
    if (!driver.accepts(ptx)) {
      refused(DriverException.INVALID_IMAGE, () -> driver.moduleLoad(context, ptx));
    }
  }

  // --- faults
  // -------------------------------------------------------------------------------------

  private void expectLost(long lost, int status) {
    await(() -> driver.status(lost) != null);
    DriverException first = requireNonNull(driver.status(lost));
    assertThat(first.status()).as(first.getMessage()).isEqualTo(status);
    assertThat(first.isFatal()).isTrue();
  }

  @Test
  @Tag(FAULT)
  void aKernelThatFailsLosesItsContextLater() {
    needFaults();
    Recorder recorder = new Recorder();
    long stream = stream();
    long bystander = driver.streamCreate(context, 0, recorder);
    long event = driver.eventCreate(context);
    long module = driver.moduleLoad(context, image());
    long block = driver.allocAsync(stream, 64);
    IntSupplier fault = fault(stream);
    Runnable letGo = held(stream);
    int status = fault.getAsInt();
    driver.signal(stream, 1);
    driver.eventRecord(event, stream);
    driver.streamWaitEvent(bystander, event);
    driver.signal(bystander, 1);
    assertThat(driver.status(context)).as("nothing has run yet").isNull();
    letGo.run();
    expectLost(context, status);
    DriverException first = driver.status(context);
    if (driver.capabilities().contains(Capability.JAVA_KERNELS)) {
      assertThat(first).hasCause(cause);
    }
    assertThat(reached(stream)).as("work behind the fault was not done").isZero();
    List<Runnable> calls =
        List.of(
            () -> driver.streamSynchronize(stream),
            () -> driver.streamSynchronize(bystander),
            () -> driver.signal(bystander, 2),
            () -> driver.eventQuery(event),
            () -> driver.allocAsync(bystander, 8),
            () -> driver.freeAsync(bystander, block),
            () -> driver.fill(bystander, block, 8, (byte) 0),
            () -> driver.kernel(module, "add"),
            () -> driver.streamCreate(context, 0, null),
            () -> driver.memoryInfo(context));
    for (Runnable call : calls) {
      DriverException later = catchThrowableOfType(DriverException.class, call::run);
      assertThat(later).isNotNull();
      assertThat(later.status()).isEqualTo(status);
      assertThat(later.isFatal()).isTrue();
      assertThat(later == first || later.getCause() == first).as("the same first cause").isTrue();
    }
    if (driver.capabilities().contains(Capability.NOTIFY)) {
      await(() -> recorder.lost.get() == 1);
      assertThat(recorder.values).isEmpty();
    }
  }

  @Test
  @Tag(FAULT)
  void aLostContextIsReplacedAfterItsLastRelease() {
    needFaults();
    long stream = stream();
    int status = fault(stream).getAsInt();
    expectLost(context, status);
    refused(status, () -> driver.retain(0));
    driver.release(context);
    if (!replacesLostContexts()) {
      refused(status, () -> driver.retain(0));
      return;
    }
    long fresh = driver.retain(0);
    driver.makeCurrent(fresh);
    context = fresh;
    long again = stream();
    long block = driver.allocAsync(again, 8);
    driver.fill(again, block, 8, (byte) 0);
    assertThat(download(again, block, 1)).containsExactly(0);
  }

  @Test
  @Tag(FAULT)
  void otherContextsGoOn() {
    needFaults();
    needTwoDevices();
    long other = driver.retain(1);
    driver.makeCurrent(other);
    long there = driver.streamCreate(other, 0, null);
    driver.makeCurrent(context);
    long here = stream();
    long event = driver.eventCreate(context);
    int status = fault(here).getAsInt();
    try {
      driver.eventRecord(event, here);
      driver.makeCurrent(other);
      driver.streamWaitEvent(there, event);
    } catch (DriverException e) {
      assertThat(e.isFatal()).as("the fault was faster: " + e.getMessage()).isTrue();
    }
    expectLost(context, status);
    driver.makeCurrent(other);
    driver.signal(there, 3);
    await(() -> reached(other, there) == 3);
    assertThat(driver.status(other)).isNull();
  }

  @Test
  void accessBeyondABufferIsAnIllegalAddress() {
    needJavaKernels();
    long stream = stream();
    long number = kernel("number");
    long block = driver.allocAsync(stream, 800);
    driver.launch(stream, number, Grid.of(51), new LaunchArguments().scalar(0).buffer(block, 400));
    expectLost(context, DriverException.ILLEGAL_ADDRESS);
  }

  @Test
  @Tag(FAULT)
  void aBufferThatIsNotThereIsAnIllegalAddress() {
    needFaults();
    long stream = stream();
    long number = kernel("number");
    driver.launch(stream, number, Grid.of(1), new LaunchArguments().scalar(0).buffer(4096, 8));
    expectLost(context, DriverException.ILLEGAL_ADDRESS);
  }

  /** At once or later, but never done without a word. */
  @Test
  void aCopyBeyondABlockIsRefusedOrAnIllegalAddress() {
    needMemory(); // what lies behind a block may be somebody's, and the copy right
    long stream = stream();
    long block = driver.allocAsync(stream, 256);
    MemorySegment host = driver.hostAlloc(context, 512);
    try {
      driver.copyToHost(stream, host, block);
    } catch (DriverException e) {
      assertThat(e.status()).as(e.getMessage()).isEqualTo(DriverException.INVALID_VALUE);
      assertThat(driver.status(context)).isNull();
      return;
    }
    expectLost(context, DriverException.ILLEGAL_ADDRESS);
  }

  // --- graphs
  // -------------------------------------------------------------------------------------

  private static final int[] FIRST = {};

  /** Of what the body enqueues on the stream. */
  private long captured(Graphs graphs, long stream, Runnable body) {
    graphs.beginCapture(stream);
    body.run();
    return executable(graphs, graphs.endCapture(stream));
  }

  private static long executable(Graphs graphs, long graph) {
    long executable = graphs.instantiate(graph);
    graphs.destroyGraph(graph);
    return executable;
  }

  private long zeroed(long stream, int count) {
    long block = driver.allocAsync(stream, 8L * count);
    driver.fill(stream, block, 8L * count, (byte) 0);
    await(stream);
    return block;
  }

  /** To the first number of the block; {@code count} is the kernel that does it. */
  private void addOne(long stream, long count, long block) {
    driver.launch(stream, count, ONE, new LaunchArguments().buffer(block, 8));
  }

  @Test
  void graphsAreThereOrRefusedWithAWord() {
    if (driver.capabilities().contains(Capability.GRAPHS)) {
      assertThat(driver.graphs()).isNotNull();
    } else {
      refused(DriverException.NOT_SUPPORTED, driver::graphs);
    }
  }

  @Test
  void whatIsCapturedRunsAtEachLaunch() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long sum = zeroed(stream, 100);
    long x = driver.allocAsync(stream, 800);
    long number = kernel("number");
    long add = kernel("add");
    MemorySegment host = driver.hostAlloc(context, 800);
    host.fill((byte) 0);
    Grid grid = Grid.of(100);
    long executable =
        captured(
            graphs,
            stream,
            () -> {
              driver.launch(stream, number, grid, new LaunchArguments().scalar(7).buffer(x, 800));
              driver.launch(
                  stream, add, grid, new LaunchArguments().buffer(x, 800).buffer(sum, 800));
              driver.copyToHost(stream, host, sum);
            });
    assertThat(download(stream, sum, 100)).as("nothing ran while it was captured").containsOnly(0);
    long other = stream();
    for (int i = 1; i <= 3; i++) {
      graphs.launch(other, executable);
      await(other);
      assertThat(host.getAtIndex(JAVA_LONG, 0)).isEqualTo(7L * i);
      assertThat(host.getAtIndex(JAVA_LONG, 99)).isEqualTo(106L * i);
    }
    graphs.destroyExecutable(executable);
    assertThat(driver.status(context)).isNull();
  }

  /** Each of them would end a capture, or be captured and do harm at each launch. */
  @Test
  void whatACaptureForbidsIsRefusedAndLeavesItAsItIs() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long block = zeroed(stream, 1);
    long event = driver.eventCreate(context);
    driver.eventRecord(event, stream());
    long count = kernel("count");
    long empty = captured(graphs, stream, () -> {});
    long executable =
        captured(
            graphs,
            stream,
            () -> {
              addOne(stream, count, block);
              List<Runnable> forbidden =
                  List.of(
                      () -> driver.signal(stream, ticket.incrementAndGet()),
                      () -> driver.streamSynchronize(stream),
                      () -> driver.eventRecord(event, stream),
                      () -> driver.streamWaitEvent(stream, event),
                      () -> driver.allocAsync(stream, 64),
                      () -> driver.freeAsync(stream, block),
                      () -> graphs.launch(stream, empty));
              for (Runnable call : forbidden) {
                refused(DriverException.CAPTURE_UNSUPPORTED, call);
              }
              refused(DriverException.ILLEGAL_STATE, () -> graphs.beginCapture(stream));
              addOne(stream, count, block);
            });
    graphs.launch(stream, executable);
    graphs.launch(stream, empty);
    assertThat(download(stream, block, 1)).containsExactly(2);
  }

  @Test
  void aCaptureThatIsNotUnderWayCannotEnd() {
    Graphs graphs = needGraphs();
    long stream = stream();
    refused(DriverException.ILLEGAL_STATE, () -> graphs.endCapture(stream));
    graphs.destroyGraph(graphs.create(context));
    await(stream);
  }

  /** A task that moved does that. */
  @Test
  void aCaptureMayEndOnAnotherThread() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long block = zeroed(stream, 1);
    long count = kernel("count");
    graphs.beginCapture(stream);
    addOne(stream, count, block);
    AtomicLong graph = new AtomicLong();
    join(
        List.of(
            elsewhere(
                Thread.ofPlatform(),
                () -> {
                  driver.makeCurrent(context);
                  addOne(stream, count, block);
                  graph.set(graphs.endCapture(stream));
                  driver.makeCurrent(0);
                })));
    graphs.launch(stream, executable(graphs, graph.get()));
    assertThat(download(stream, block, 1)).containsExactly(2);
  }

  /** What creates, loads and asks, by this thread and by others, and the heartbeat. */
  @Test
  void callsElsewhereDoNotDisturbACapture() {
    needNoChecker();
    Graphs graphs = needGraphs();
    long stream = stream();
    long other = stream();
    long block = zeroed(stream, 1);
    long count = kernel("count");
    long event = driver.eventCreate(context);
    Runnable busy =
        () -> {
          driver.makeCurrent(context);
          driver.hostFree(context, driver.hostAlloc(context, 64));
          driver.moduleUnload(driver.moduleLoad(context, image()));
          driver.streamDestroy(driver.streamCreate(context, 0, null));
          driver.freeAsync(other, driver.allocAsync(other, 64));
          driver.eventRecord(event, other);
          driver.streamWaitEvent(other, event);
          driver.eventQuery(event);
          driver.streamSynchronize(other);
          driver.memoryInfo(context);
          assertThat(driver.status(context)).isNull();
        };
    long executable =
        captured(
            graphs,
            stream,
            () -> {
              addOne(stream, count, block);
              busy.run();
              join(
                  List.of(
                      elsewhere(
                          Thread.ofPlatform(),
                          () -> {
                            busy.run();
                            driver.makeCurrent(0);
                          })));
              addOne(stream, count, block);
            });
    graphs.launch(stream, executable);
    assertThat(download(stream, block, 1)).containsExactly(2);
  }

  /** Its signal from before is outstanding, so the heartbeat would like to ask about it. */
  @Test
  void aStreamThatIsBehindMayBeCaptured() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long block = zeroed(stream, 1);
    long count = kernel("count");
    Runnable letGo = held(stream);
    long mark = ticket.incrementAndGet();
    driver.signal(stream, mark);
    graphs.beginCapture(stream);
    for (int i = 0; i < 1_000; i++) {
      assertThat(driver.status(context)).isNull();
      assertThat(reached(stream)).isLessThan(mark);
    }
    addOne(stream, count, block);
    letGo.run();
    await(() -> reached(stream) == mark);
    long graph = graphs.endCapture(stream);
    graphs.launch(stream, executable(graphs, graph));
    assertThat(download(stream, block, 1)).containsExactly(1);
  }

  /** A signal that was captured would be written again at each launch. */
  @Test
  void signalsNeverFallHoweverOftenAGraphIsLaunched() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long block = zeroed(stream, 1);
    long count = kernel("count");
    long executable = captured(graphs, stream, () -> addOne(stream, count, block));
    long seen = 0;
    for (int i = 0; i < 1_000; i++) {
      graphs.launch(stream, executable);
      driver.signal(stream, ticket.incrementAndGet());
      long now = reached(stream);
      assertThat(now).isGreaterThanOrEqualTo(seen);
      seen = now;
      if (i % 64 == 0) {
        await(stream);
      }
    }
    assertThat(download(stream, block, 1)).containsExactly(1_000);
  }

  /** A diamond with copies at both ends; the stand-in runs what has no order youngest first. */
  @Test
  void nodesRunInTheOrderOfTheirDependencies() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long x = zeroed(stream, 10);
    long y = zeroed(stream, 10);
    long z = zeroed(stream, 10);
    MemorySegment up = driver.hostAlloc(context, 80);
    MemorySegment down = driver.hostAlloc(context, 80);
    long count = kernel("count");
    long add = kernel("add");
    Grid grid = Grid.of(10);
    long graph = graphs.create(context);
    int top = graphs.addCopyToDevice(graph, FIRST, x, up);
    int left = graphs.addLaunch(graph, of(top), count, grid, new LaunchArguments().buffer(x, 80));
    int empty = graphs.addEmpty(graph, of(left));
    int right = graphs.addFill(graph, of(top), y, 80, (byte) 0);
    int across = graphs.addCopyOnDevice(graph, of(empty, right), z, x, 80);
    int none =
        graphs.addLaunch(graph, of(across), count, Grid.of(0), new LaunchArguments().buffer(z, 80));
    int sum =
        graphs.addLaunch(
            graph, of(none), add, grid, new LaunchArguments().buffer(z, 80).buffer(y, 80));
    graphs.addCopyToHost(graph, of(sum), down, y);
    long executable = executable(graphs, graph);
    for (int round = 1; round <= 3; round++) {
      for (int i = 0; i < 10; i++) {
        up.setAtIndex(JAVA_LONG, i, 100L * round + i);
      }
      graphs.launch(stream, executable);
      await(stream);
      for (int i = 0; i < 10; i++) {
        assertThat(down.getAtIndex(JAVA_LONG, i)).isEqualTo(100L * round + i + 1);
      }
    }
  }

  private static int[] of(int... nodes) {
    return nodes;
  }

  @Test
  void wrongNodesAreRefused() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long graph = graphs.create(context);
    refused(DriverException.INVALID_VALUE, () -> graphs.addEmpty(graph, of(0)));
    int node = graphs.addEmpty(graph, FIRST);
    refused(DriverException.INVALID_VALUE, () -> graphs.addEmpty(graph, of(-1)));
    refused(DriverException.INVALID_VALUE, () -> graphs.addEmpty(graph, of(node, node)));
    refused(DriverException.INVALID_VALUE, () -> graphs.addFill(graph, FIRST, 0, -1, (byte) 0));
    MemorySegment heap = MemorySegment.ofArray(new long[1]);
    long block = driver.allocAsync(stream, 8);
    refused(DriverException.INVALID_VALUE, () -> graphs.addCopyToDevice(graph, FIRST, block, heap));
    graphs.beginCapture(stream);
    long closed = graphs.endCapture(stream);
    refused(DriverException.INVALID_VALUE, () -> graphs.addEmpty(closed, FIRST));
    graphs.launch(stream, executable(graphs, graph));
    await(stream);
  }

  /** Wherever it is launched: its memory is the same. */
  @Test
  void launchesOfOneExecutableFollowEachOther() {
    Graphs graphs = needGraphs();
    long slow = stream();
    long quick = stream();
    long bystander = stream();
    long block = zeroed(slow, 1);
    long count = kernel("count");
    long executable = captured(graphs, slow, () -> addOne(slow, count, block));
    graphs.launch(slow, executable); // so that it is on the device
    await(slow);
    Runnable letGo = held(slow);
    graphs.launch(slow, executable);
    graphs.launch(quick, executable);
    driver.signal(quick, 1);
    await(bystander);
    assertThat(reached(quick)).isZero();
    letGo.run();
    await(() -> reached(quick) == 1);
    assertThat(download(quick, block, 1)).containsExactly(3);
  }

  @Test
  void whatWasLaunchedEndsAlsoIfItsExecutableIsGone() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long block = zeroed(stream, 1);
    long count = kernel("count");
    long executable = captured(graphs, stream, () -> addOne(stream, count, block));
    graphs.launch(stream, executable); // so that it is on the device
    await(stream);
    Runnable letGo = held(stream);
    graphs.launch(stream, executable);
    CountDownLatch destroying = new CountDownLatch(1);
    Thread elsewhere =
        elsewhere(
            Thread.ofPlatform(),
            () -> {
              driver.makeCurrent(context);
              destroying.countDown();
              graphs.destroyExecutable(executable); // which may wait for kernels that run
              driver.makeCurrent(0);
            });
    await(() -> destroying.getCount() == 0);
    letGo.run();
    join(List.of(elsewhere));
    refused(DriverException.INVALID_HANDLE, () -> graphs.launch(stream, executable));
    refused(DriverException.INVALID_HANDLE, () -> graphs.destroyExecutable(executable));
    assertThat(download(stream, block, 1)).containsExactly(2);
  }

  @Test
  void graphsAndExecutablesAreNotTheSame() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long graph = graphs.create(context);
    long executable = graphs.instantiate(graph);
    refused(DriverException.INVALID_HANDLE, () -> graphs.launch(stream, graph));
    refused(DriverException.INVALID_HANDLE, () -> graphs.destroyGraph(executable));
    refused(DriverException.INVALID_HANDLE, () -> graphs.instantiate(executable));
    graphs.destroyGraph(graph);
    refused(DriverException.INVALID_HANDLE, () -> graphs.destroyGraph(graph));
    refused(DriverException.INVALID_HANDLE, () -> graphs.addEmpty(graph, FIRST));
    graphs.launch(stream, executable);
    await(stream);
  }

  @Test
  void aStreamThatIsDestroyedDropsItsCapture() {
    Graphs graphs = needGraphs();
    long gone = stream();
    long left = stream();
    long block = zeroed(gone, 1);
    for (long each : new long[] {gone, left}) {
      graphs.beginCapture(each);
      driver.fill(each, block, 8, (byte) 1);
    }
    driver.streamDestroy(gone);
    refused(DriverException.INVALID_HANDLE, () -> graphs.endCapture(gone));
    assertThat(download(stream(), block, 1)).containsExactly(0);
    // the other one goes with its context
  }

  @Test
  void aGraphIsLaunchedWhereItWasMade() {
    Graphs graphs = needGraphs();
    needTwoDevices();
    long executable = executable(graphs, graphs.create(context));
    long other = driver.retain(1);
    driver.makeCurrent(other);
    long there = driver.streamCreate(other, 0, null);
    refused(DriverException.INVALID_HANDLE, () -> graphs.launch(there, executable));
    driver.makeCurrent(context);
  }

  @Test
  void graphCallsThatNeedACurrentContextFailWithoutIt() {
    Graphs graphs = needGraphs();
    long stream = stream();
    long graph = graphs.create(context);
    long executable = graphs.instantiate(graph);
    for (long wrong : wrongContexts()) {
      driver.makeCurrent(context);
      long given = graphs.create(context);
      long made = graphs.instantiate(given);
      Runnable destroy =
          () -> {
            graphs.destroyExecutable(made);
            graphs.destroyGraph(given);
          };
      Map<DriverCall, Runnable> calls =
          Map.of(
              DriverCall.GRAPH_BUILD,
              () -> graphs.addEmpty(graph, FIRST),
              DriverCall.GRAPH_LAUNCH,
              () -> graphs.launch(stream, executable),
              DriverCall.CAPTURE,
              () -> {
                graphs.beginCapture(stream);
                graphs.endCapture(stream);
              },
              DriverCall.GRAPH_DESTROY,
              destroy);
      driver.makeCurrent(wrong);
      calls.forEach(this::refusedIfItNeedsItsContext);
      driver.makeCurrent(context);
      graphs.launch(stream, executable);
      await(stream);
      if (driver.needsCurrent(DriverCall.GRAPH_DESTROY)) {
        destroy.run();
      }
      refused(DriverException.INVALID_HANDLE, () -> graphs.launch(stream, made));
    }
  }

  // --- threads
  // ------------------------------------------------------------------------------------

  /**
   * A call that suspended its virtual thread could come back on another carrier, where another
   * context is current. So: many virtual threads, few carriers, contended calls, and the carrier
   * compared before and after each.
   */
  @Test
  @SuppressWarnings("ThreadPriorityCheck") // to let the others on this carrier have their turn
  void callsDoNotSuspendVirtualThreads() {
    long shared = stream();
    long count = kernel("count");
    long event = driver.eventCreate(context);
    long word = driver.allocAsync(shared, 8);
    driver.fill(shared, word, 8, (byte) 0);
    List<Thread> threads = new ArrayList<>();
    AtomicInteger moved = new AtomicInteger();
    for (int t = 0; t < BUSY_THREADS * 4; t++) {
      threads.add(
          elsewhere(
              Thread.ofVirtual(),
              () -> {
                for (int i = 0; i < rounds(); i++) {
                  String before = carrier();
                  driver.makeCurrent(context);
                  long own = driver.streamCreate(context, 0, null);
                  long block = driver.allocAsync(own, 1_000);
                  driver.fill(own, block, 1_000, (byte) 1);
                  driver.eventRecord(event, own);
                  driver.streamWaitEvent(shared, event);
                  driver.launch(shared, count, ONE, new LaunchArguments().buffer(word, 8));
                  driver.eventQuery(event);
                  driver.freeAsync(own, block);
                  driver.streamDestroy(own);
                  assertThat(driver.current()).isEqualTo(context);
                  driver.makeCurrent(0);
                  if (!carrier().equals(before)) {
                    moved.incrementAndGet();
                  }
                  Thread.yield();
                }
              }));
    }
    join(threads);
    assertThat(moved.get()).as("threads that came back on another carrier").isZero();
    assertThat(download(shared, word, 1)).containsExactly(4L * BUSY_THREADS * rounds());
  }

  /** Everything behind the @ of a virtual thread's text is its carrier's name. */
  private static String carrier() {
    String text = Thread.currentThread().toString();
    return text.substring(text.lastIndexOf('@') + 1);
  }

  @Test
  void closingTwiceIsFine() throws InterruptedException {
    stream();
    driver.close();
    driver.close();
    assertThatThrownBy(() -> driver.retain(0)).isInstanceOf(DriverException.class);
    Thread late = Thread.ofPlatform().start(() -> driver.close());
    assertThat(late.join(java.time.Duration.ofSeconds(30))).isTrue();
  }

  // --- patterns, and copies between devices -----------------------------------------------------

  @Test
  void fillsHaveWidePatterns() {
    long stream = stream();
    long block = driver.allocAsync(stream, 64);
    driver.fill(stream, block, 64, (byte) 0);
    driver.fillPattern(stream, block, 16, 4, 0x01020304);
    driver.fillPattern(stream, block + 22, 10, 2, 0x7777_1234);
    driver.fillPattern(stream, block, 0, 2, -1);
    assertThat(download(stream, block, 5))
        .containsExactly(
            0x01020304_01020304L,
            0x01020304_01020304L,
            0x1234_0000_0000_0000L,
            0x1234_1234_1234_1234L,
            0);
    refused(DriverException.INVALID_VALUE, () -> driver.fillPattern(stream, block, 9, 2, 0));
    refused(DriverException.INVALID_VALUE, () -> driver.fillPattern(stream, block + 2, 8, 4, 0));
    refused(DriverException.INVALID_VALUE, () -> driver.fillPattern(stream, block, 9, 3, 0));
    refused(DriverException.INVALID_VALUE, () -> driver.fillPattern(stream, block, -4, 4, 0));
  }

  private void needPeerCopies() {
    Assumptions.assumeTrue(
        driver.capabilities().contains(Capability.PEER_COPY), "no copies between devices");
  }

  /** On a stream of either device, both ways, behind work of the other one. */
  @Test
  void copiesGoFromDeviceToDevice() {
    needPeerCopies();
    needTwoDevices();
    long other = driver.retain(1);
    driver.makeCurrent(other);
    long there = driver.streamCreate(other, 0, null);
    long thereDone = driver.eventCreate(other);
    long theirs = driver.allocAsync(there, 80);
    driver.eventRecord(thereDone, there);
    assertThat(driver.connect(other, context)).isEqualTo(driver.connect(other, context));
    driver.makeCurrent(context);
    long here = stream();
    driver.streamWaitEvent(here, thereDone);
    long hereDone = driver.eventCreate(context);
    long ours = driver.allocAsync(here, 80);
    driver.connect(context, other);
    driver.fill(here, ours, 80, (byte) 1);
    Runnable letGo = held(here);
    driver.fill(here, ours, 40, (byte) 7);
    driver.copyPeer(here, theirs + 8, other, ours, context, 64);
    driver.eventRecord(hereDone, here);
    driver.makeCurrent(other);
    driver.streamWaitEvent(there, hereDone);
    driver.copyPeer(there, ours, context, theirs + 8, other, 8);
    driver.copyPeer(there, ours + 72, context, theirs + 64, other, 8);
    driver.eventRecord(thereDone, there);
    assertThat(driver.eventQuery(thereDone)).as("it comes after the held stream").isFalse();
    driver.makeCurrent(context);
    driver.streamWaitEvent(here, thereDone);
    letGo.run();
    assertThat(download(here, ours, 10))
        .startsWith(0x07070707_07070707L)
        .endsWith(0x01010101_01010101L);
    driver.makeCurrent(other);
    assertThat(download(there, theirs + 8, 8))
        .startsWith(0x07070707_07070707L)
        .endsWith(0x01010101_01010101L);
    driver.makeCurrent(context);
  }

  @Test
  void aCopyWithinOneDeviceIsOneBetweenDevices() {
    needPeerCopies();
    long stream = stream();
    long block = driver.allocAsync(stream, 64);
    driver.fill(stream, block, 32, (byte) 3);
    assertThat(driver.connect(context, context)).isTrue();
    driver.copyPeer(stream, block + 32, context, block, context, 32);
    driver.copyPeer(stream, block, context, block + 32, context, 0);
    assertThat(download(stream, block, 8)).containsOnly(0x03030303_03030303L);
    refused(
        DriverException.INVALID_VALUE,
        () -> driver.copyPeer(stream, block, context, block, context, -1));
  }

  @Test
  @Tag(FAULT)
  void aPeerThatIsLostIsNoLossOfOurs() {
    needPeerCopies();
    needFaults();
    needTwoDevices();
    long mine = stream();
    long ours = driver.allocAsync(mine, 8);
    long other = driver.retain(1);
    driver.makeCurrent(other);
    long there = driver.streamCreate(other, 0, null);
    long theirs = driver.allocAsync(there, 8);
    int status = fault(there).getAsInt();
    expectLost(other, status);
    driver.makeCurrent(context);
    for (Runnable call :
        List.<Runnable>of(
            () -> driver.copyPeer(mine, ours, context, theirs, other, 8),
            () -> driver.connect(context, other))) {
      DriverException e = catchThrowableOfType(DriverException.class, call::run);
      assertThat(e.status()).isEqualTo(status);
      assertThat(e.isFatal()).isFalse();
      assertThat(e).hasMessageContaining("device 1").hasCause(driver.status(other));
    }
    assertThat(driver.status(context)).isNull();
    driver.fill(mine, ours, 8, (byte) 2);
    assertThat(download(mine, ours, 1)).containsExactly(0x02020202_02020202L);
  }

  // --- launches that ask for more ---------------------------------------------------------------

  /** Each item runs once all the same; a device that cannot says what to do instead. */
  @Test
  void launchesAreCooperativeAndInClustersOrRefused() {
    DeviceFeatures features = driver.info(0).features();
    long stream = stream();
    long count = kernel("count");
    int most = 900; // an odd number of blocks
    long block = driver.allocAsync(stream, 8L * most);
    driver.fill(stream, block, 8L * most, (byte) 0);
    Grid grid = Grid.of(most).withBlock(64);
    LaunchArguments arguments = new LaunchArguments().buffer(block, 8L * most);
    int launches = 0;
    for (Grid asked :
        List.of(grid.cooperative(), grid.withCluster(2), grid.withSharedBytes(4096))) {
      boolean can =
          (features.cooperative() || !asked.isCooperative())
              && (features.clusters() || asked.cluster() == 1);
      if (can) {
        driver.launch(stream, count, asked, arguments);
        launches++;
      } else {
        refused(
            DriverException.NOT_SUPPORTED, () -> driver.launch(stream, count, asked, arguments));
      }
    }
    assertThat(download(stream, block, most)).containsOnly(launches);
  }

  @Test
  void aCooperativeLaunchIsNotLargerThanTheDevice() {
    Assumptions.assumeTrue(driver.info(0).features().cooperative(), "no cooperative launches");
    long stream = stream();
    long count = kernel("count");
    Grid block = Grid.of(1).withBlock(256);
    long resident = driver.residentBlocks(count, block);
    assertThat(resident).isGreaterThanOrEqualTo(driver.info(0).workers());
    int items = Math.toIntExact(256 * resident);
    long memory = driver.allocAsync(stream, 8L * items);
    driver.fill(stream, memory, 8L * items, (byte) 0);
    LaunchArguments arguments = new LaunchArguments().buffer(memory, 8L * items);
    Grid all = Grid.of(items).withBlock(256).cooperative();
    driver.launch(stream, count, all, arguments);
    Grid more = Grid.of(items + 1).withBlock(256).cooperative();
    assertThatThrownBy(() -> driver.launch(stream, count, more, arguments))
        .isInstanceOfSatisfying(
            DriverException.class,
            e -> assertThat(e.status()).isEqualTo(DriverException.COOPERATIVE_LAUNCH_TOO_LARGE))
        .hasMessageContaining(Long.toString(resident))
        .hasMessageContaining("residentBlocks");
    assertThat(driver.status(context)).isNull();
    assertThat(download(stream, memory, items)).containsOnly(1);
  }

  @Test
  void anImageIsTakenForADevice() {
    assertThat(driver.accepts(0, image())).isTrue();
    refused(DriverException.INVALID_DEVICE, () -> driver.info(driver.deviceCount()));
  }
}
