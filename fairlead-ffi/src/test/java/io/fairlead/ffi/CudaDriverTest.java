package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.util.Objects.requireNonNull;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.sim.LaunchArguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What is CUDA's own, on the stand-in; the rules of every driver are in the contract test. */
@Timeout(60)
@EnabledOnOs(OS.LINUX)
class CudaDriverTest {
  private final StandInLibrary standIn = StandInLibrary.get();
  private Driver driver;
  private long context;

  @BeforeEach
  void open() {
    standIn.reset();
    driver = open(Map.of());
    context = driver.retain(0);
    driver.makeCurrent(context);
  }

  private Driver open(Map<String, String> settings) {
    return new CudaDriverProvider(standIn.path().toString()).open(settings);
  }

  @AfterEach
  void close() {
    driver.close();
    assertThat(standIn.traps()).isEmpty();
    standIn.assertNothingIsLeft();
    standIn.reset();
  }

  private static DriverException refused(int status, Runnable call) {
    AtomicReference<DriverException> thrown = new AtomicReference<>();
    assertThatThrownBy(call::run)
        .isInstanceOfSatisfying(
            DriverException.class,
            e -> {
              assertThat(e.status()).as(e.getMessage()).isEqualTo(status);
              thrown.set(e);
            });
    return requireNonNull(thrown.get());
  }

  private static void await(BooleanSupplier condition) {
    while (!condition.getAsBoolean()) {
      Thread.onSpinWait();
    }
  }

  private long stream() {
    return driver.streamCreate(context, 0, null);
  }

  private long kernel(String name) {
    return driver.kernel(driver.moduleLoad(context, CudaKernels.STAND_IN), name);
  }

  // --- current contexts ---------------------------------------------------------------------

  private MemorySegment rawCurrent() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_LONG);
      assertThat(standIn.call("cuCtxGetCurrent", answer)).isZero();
      return MemorySegment.ofAddress(answer.get(JAVA_LONG, 0));
    }
  }

  private MemorySegment foreignContext(int device) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_LONG);
      assertThat(standIn.call("cuDevicePrimaryCtxRetain", answer, device)).isZero();
      return MemorySegment.ofAddress(answer.get(JAVA_LONG, 0));
    }
  }

  @Test
  void whatForeignCodeMadeCurrentIsPutBack() {
    MemorySegment foreign = foreignContext(1);
    assertThat(standIn.call("cuCtxSetCurrent", foreign)).isZero();
    long before = driver.current();
    assertThat(before).isNotZero().isNotEqualTo(context);
    driver.makeCurrent(context);
    driver.makeCurrent(before);
    assertThat(rawCurrent()).isEqualTo(foreign);
    assertThat(standIn.call("cuDevicePrimaryCtxRelease_v2", 1)).isZero();
    driver.makeCurrent(before); // has ended: then none is
    assertThat(rawCurrent()).isEqualTo(MemorySegment.NULL);
    assertThat(standIn.traps()).singleElement().asString().contains("stale handle");
    standIn.clearTraps();
  }

  /** Whatever becomes of it meanwhile: it is not looked at, and nothing takes its place. */
  @Test
  void bindingTakesTwoCallsAndLeavesForeignContextsAlone() {
    MemorySegment foreign = foreignContext(1);
    assertThat(standIn.call("cuCtxSetCurrent", foreign)).isZero();
    long gets = standIn.calls("cuCtxGetCurrent");
    long sets = standIn.calls("cuCtxSetCurrent");
    long token = driver.bind(context);
    assertThat(standIn.call("cuDevicePrimaryCtxRelease_v2", 1)).isZero();
    driver.restore(context, token);
    assertThat(standIn.calls("cuCtxPushCurrent_v2")).isEqualTo(1);
    assertThat(standIn.calls("cuCtxPopCurrent_v2")).isEqualTo(1);
    assertThat(standIn.calls("cuCtxGetCurrent")).isEqualTo(gets);
    assertThat(standIn.calls("cuCtxSetCurrent")).isEqualTo(sets);
    assertThat(rawCurrent()).as("as if nobody had been here").isEqualTo(foreign);
    driver.makeCurrent(0);
  }

  @Test
  void aContextThatCannotBeBoundLeavesWhatWas() {
    MemorySegment before = rawCurrent();
    standIn.failNext("cuCtxPushCurrent_v2", DriverException.INVALID_VALUE, 1);
    DriverException refused = refused(DriverException.INVALID_VALUE, () -> driver.bind(context));
    assertThat(refused).hasMessageContaining("cuCtxPushCurrent");
    assertThat(rawCurrent()).isEqualTo(before);
  }

  /** With and without a call for it: a first launch would wait for the kernel that is held. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void codeIsThereBeforeItIsLaunched(boolean named) {
    standIn.lazy(true);
    if (!named) {
      standIn.failNext("cuFuncLoad", DriverException.NOT_SUPPORTED, 100);
      standIn.failNext("cuModuleGetFunctionCount", DriverException.NOT_SUPPORTED, 100);
    }
    long module = driver.moduleLoad(context, CudaKernels.STAND_IN);
    long nop = driver.kernel(module, "nop");
    long held = stream();
    Runnable letGo = CudaKernels.hold(driver, module, held);
    long free = stream();
    CompletableFuture<Long> behind =
        CompletableFuture.supplyAsync(
            () -> {
              driver.launch(free, nop, CudaKernels.ALONE, new LaunchArguments());
              driver.signal(free, 1);
              await(() -> driver.reached(free) == 1);
              driver.signal(held, 1);
              return driver.reached(held);
            });
    try {
      assertThat(behind)
          .as("the launch beside a held kernel")
          .succeedsWithin(Duration.ofSeconds(20))
          .isEqualTo(0L);
    } finally {
      letGo.run();
      behind.join();
    }
    await(() -> driver.reached(held) == 1);
  }

  @Test
  void openingLeavesWhatWasCurrent() {
    MemorySegment foreign = foreignContext(1);
    assertThat(standIn.call("cuCtxSetCurrent", foreign)).isZero();
    try (Driver other = open(Map.of())) {
      other.retain(0);
      assertThat(rawCurrent()).isEqualTo(foreign);
      other.retain(1); // the same primary context, which foreign code keeps
      assertThat(rawCurrent()).isEqualTo(foreign);
    }
    assertThat(standIn.call("cuCtxSetCurrent", MemorySegment.NULL)).isZero();
    assertThat(standIn.call("cuDevicePrimaryCtxRelease_v2", 1)).isZero();
  }

  @Test
  void needsAreKnownBeforeAnybodyRetains() {
    try (Driver other = open(Map.of())) {
      driver.makeCurrent(0);
      assertThat(other.needsCurrent(DriverCall.LAUNCH)).isFalse();
      assertThat(other.needsCurrent(DriverCall.STREAM_CREATE)).isTrue();
      assertThat(rawCurrent()).isEqualTo(MemorySegment.NULL);
    }
  }

  // --- devices ------------------------------------------------------------------------------

  @Test
  void aDeviceSaysWhatItIs() {
    assertThat(driver.info(0).name()).isEqualTo("Stand-in 0");
    assertThat(driver.info(0).workers()).isEqualTo(132);
    assertThat(driver.info(0).memoryBytes()).isEqualTo(256L << 20);
    assertThat(driver.info(0).streamsWithSignals()).isBetween(1, 16);
    assertThat(driver.kernelNanos(context)).isEqualTo(-1);
  }

  // --- pinned memory ------------------------------------------------------------------------

  @ParameterizedTest
  @ValueSource(longs = {80, (2L << 20) - 8, 2L << 20, 8L << 20})
  void largeAndSmallPinnedMemoryIsCopiedFromAndTo(long bytes) {
    copiesThere(driver.hostAlloc(context, bytes));
  }

  private void copiesThere(MemorySegment host) {
    long stream = stream();
    long bytes = host.byteSize();
    long block = driver.allocAsync(stream, bytes);
    host.set(JAVA_LONG, 0, 7);
    host.set(JAVA_LONG, bytes - 8, 9);
    driver.copyToDevice(stream, block, host);
    driver.streamSynchronize(stream);
    host.fill((byte) 0);
    driver.copyToHost(stream, host, block);
    driver.freeAsync(stream, block);
    driver.streamSynchronize(stream);
    assertThat(host.get(JAVA_LONG, 0)).isEqualTo(7);
    assertThat(host.get(JAVA_LONG, bytes - 8)).isEqualTo(9);
    driver.hostFree(context, host);
    assertThatThrownBy(() -> host.get(JAVA_LONG, 0)).isInstanceOf(IllegalStateException.class);
  }

  @Test
  void largePinnedMemoryIsTheSystemsAndRegistered() {
    standIn.failNext("cuMemHostAlloc", DriverException.OUT_OF_MEMORY, 1);
    MemorySegment large = driver.hostAlloc(context, 2 << 20);
    assertThat(large.address() % (2 << 20)).isZero();
    copiesThere(large);
    assertThat(refused(DriverException.OUT_OF_MEMORY, () -> driver.hostAlloc(context, 1 << 20)))
        .as("small memory is the driver's")
        .hasMessageContaining("cuMemHostAlloc");
  }

  @Test
  void whereTheSystemsMemoryIsNotTakenTheDriverAllocatesIt() {
    standIn.failNext("cuMemHostRegister_v2", DriverException.OUT_OF_MEMORY, 1);
    copiesThere(driver.hostAlloc(context, 4 << 20));
  }

  @Test
  void pinnedMemoryThatIsRefusedInBothWaysIsSaid() {
    standIn.failNext("cuMemHostRegister_v2", DriverException.OUT_OF_MEMORY, 1);
    standIn.failNext("cuMemHostAlloc", DriverException.OUT_OF_MEMORY, 1);
    assertThat(refused(DriverException.OUT_OF_MEMORY, () -> driver.hostAlloc(context, 4 << 20)))
        .hasMessageContaining("cuMemHostAlloc");
  }

  // --- kernels ------------------------------------------------------------------------------

  @Test
  void theNumberOfItemsGoesLast() {
    long stream = stream();
    long block = driver.allocAsync(stream, 80);
    MemorySegment host = driver.hostAlloc(context, 80);
    driver.fill(stream, block, 80, (byte) 0);
    LaunchArguments arguments = new LaunchArguments().scalar(7).buffer(block, 80);
    driver.launch(stream, kernel("number"), Grid.of(3).withBlock(2), arguments);
    driver.copyToHost(stream, host, block);
    driver.freeAsync(stream, block);
    driver.streamSynchronize(stream);
    assertThat(host.toArray(JAVA_LONG)).containsExactly(7, 8, 9, 0, 0, 0, 0, 0, 0, 0);
  }

  @Test
  void aKernelNeedNotTakeTheNumberOfItems() {
    long stream = stream();
    driver.launch(stream, kernel("spin"), CudaKernels.ALONE, new LaunchArguments().scalar(1));
    driver.launch(stream, kernel("nop"), CudaKernels.ALONE, new LaunchArguments());
    driver.streamSynchronize(stream);
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void argumentsAreCheckedAgainstTheKernel() {
    long stream = stream();
    long axpy = kernel("axpy");
    LaunchArguments few = new LaunchArguments().scalar(2.0);
    assertThat(refused(DriverException.INVALID_VALUE, () -> launch(stream, axpy, few)))
        .hasMessageContaining("kernel axpy(8, 8, 8, 8 bytes) was launched with 1 arguments");
    LaunchArguments narrow = new LaunchArguments().narrow(2).buffer(0, 8).buffer(0, 8);
    assertThat(refused(DriverException.INVALID_VALUE, () -> launch(stream, axpy, narrow)))
        .hasMessageContaining("argument 1 has 4 bytes, and the kernel's parameter has 8");
  }

  private void launch(long stream, long kernel, LaunchArguments arguments) {
    driver.launch(stream, kernel, Grid.of(1), arguments);
  }

  @Test
  void aGridIsNotLargerThanALaunch() {
    long stream = stream();
    long nop = kernel("nop");
    Grid grid = Grid.of(1L << 40).withBlock(1);
    assertThat(
            refused(
                DriverException.INVALID_VALUE,
                () -> driver.launch(stream, nop, grid, new LaunchArguments())))
        .hasMessageContaining("2147483647");
  }

  @Test
  void aKernelOfAnUnloadedModuleIsStale() {
    long module = driver.moduleLoad(context, CudaKernels.STAND_IN);
    long kernel = driver.kernel(module, "nop");
    assertThat(driver.kernel(module, "nop")).as("found again").isEqualTo(kernel);
    driver.moduleUnload(module);
    assertThat(
            refused(
                DriverException.INVALID_HANDLE,
                () -> driver.launch(stream(), kernel, Grid.of(1), new LaunchArguments())))
        .hasMessageContaining("stale kernel");
  }

  @Test
  void anImageThatIsRefusedComesWithTheLog() {
    ModuleImage image = new ModuleImage.Ptx("//standin 1\nkernel nonsense\n");
    assertThatThrownBy(() -> driver.moduleLoad(context, image))
        .isInstanceOf(DriverException.class)
        .hasMessageContaining("no kernel 'nonsense'");
    byte[] bytes = "//standin 1\nkernel nop\n".getBytes(StandardCharsets.UTF_8);
    long module = driver.moduleLoad(context, new ModuleImage.Binary(bytes));
    assertThat(driver.kernel(module, "nop")).isPositive();
    assertThat(
            refused(
                DriverException.INVALID_IMAGE,
                () -> driver.moduleLoad(context, new ModuleImage.Java(Map.of()))))
        .hasMessageContaining("Java");
  }

  // --- signals ------------------------------------------------------------------------------

  @Test
  void signalsDoNotFall() {
    long stream = stream();
    driver.signal(stream, 5);
    refused(DriverException.INVALID_VALUE, () -> driver.signal(stream, 4));
    await(() -> driver.reached(stream) == 5);
  }

  /** A signal that the driver refused is as if it had not been asked for. */
  @Test
  void aRefusedSignalMayBeGivenAgain() {
    long stream = stream();
    standIn.failNext("cuStreamWriteValue64_v2", DriverException.OUT_OF_MEMORY, 1);
    refused(DriverException.OUT_OF_MEMORY, () -> driver.signal(stream, 9));
    driver.signal(stream, 8);
    await(() -> driver.reached(stream) == 8);
  }

  /** The values of 32 bits, past where those wrap. */
  @Test
  void aFilledSignalKnowsItsUpperHalf() {
    driver.close();
    driver = open(Map.of("signals", "fill"));
    context = driver.retain(0);
    driver.makeCurrent(context);
    long stream = stream();
    assertThat(driver.reached(stream)).isZero();
    for (long value : new long[] {1, 0x7FFFFFFFL, 0xFFFFFFFEL, 0x1_0000_0001L, 0x1_8000_0000L}) {
      driver.signal(stream, value);
      await(() -> driver.reached(stream) == value);
    }
  }

  /** The word of a destroyed stream is not given to another while a signal is on its way to it. */
  @Test
  void aStreamsWordIsItsOwnUntilItsLastSignal() {
    long held = stream();
    Runnable letGo =
        CudaKernels.hold(driver, driver.moduleLoad(context, CudaKernels.STAND_IN), held);
    driver.signal(held, 77);
    driver.streamDestroy(held);
    List<Long> others = new ArrayList<>();
    for (int i = 0; i < 300; i++) { // more than a page has
      long stream = stream();
      assertThat(driver.reached(stream)).isZero();
      others.add(stream);
    }
    letGo.run();
    long last = others.getLast();
    driver.signal(last, 1);
    await(() -> driver.reached(last) == 1);
    assertThat(others.subList(0, 299)).allMatch(each -> driver.reached(each) == 0);
  }

  /** What a destroyed stream still does uses pinned memory, which goes only after that. */
  @Test
  void aContextEndsAfterTheWorkOfDestroyedStreams() throws InterruptedException {
    long stream = stream();
    long module = driver.moduleLoad(context, CudaKernels.STAND_IN);
    Runnable letGo = CudaKernels.hold(driver, module, stream);
    driver.signal(stream, 1);
    driver.streamDestroy(stream);
    long frees = standIn.calls("cuMemFreeHost");
    Thread closing = Thread.ofPlatform().start(driver::close);
    // either it waits for the work, or it has gone on without
    await(() -> standIn.calls("cuCtxSynchronize") > 0 || standIn.calls("cuMemFreeHost") > frees);
    letGo.run();
    closing.join();
    assertThat(standIn.traps()).isEmpty();
  }

  // --- errors -------------------------------------------------------------------------------

  @Test
  void everyStatusHasNameNumberAndText() {
    long stream = stream();
    standIn.failNext("cuMemAllocAsync", 801, 1);
    DriverException e = refused(801, () -> driver.allocAsync(stream, 8));
    assertThat(e.statusName()).isEqualTo("CUDA_ERROR_NOT_SUPPORTED");
    assertThat(e).hasMessageContaining("cuMemAllocAsync of 8 bytes: operation not supported");
    assertThat(e.isFatal()).isFalse();
    assertThat(driver.status(context)).isNull();
  }

  /** A fault that nobody's call met is seen by asking. */
  @Test
  void aFaultOutOfNowhereIsSeenByTheHeartbeat() {
    standIn.fault(0, 719);
    DriverException first = requireNonNull(driver.status(context));
    assertThat(first.status()).isEqualTo(DriverException.LAUNCH_FAILED);
    assertThat(first.isFatal()).isTrue();
    assertThat(driver.status(context)).isSameAs(first);
    assertThat(refused(719, this::stream)).hasCause(first);
  }

  @Test
  void theFirstCauseStays() {
    long stream = stream();
    standIn.failNext("cuMemAllocAsync", 700, 1);
    standIn.failNext("cuStreamQuery", 710, 10);
    DriverException thrown = refused(700, () -> driver.allocAsync(stream, 8));
    assertThat(thrown.getCause()).isSameAs(driver.status(context));
    refused(700, () -> driver.signal(stream, 1));
    refused(700, () -> driver.streamDestroy(stream));
    refused(DriverException.INVALID_HANDLE, () -> driver.streamDestroy(stream));
  }

  @Test
  void aDeviceThatCannotBeRetainedSaysWhy() {
    standIn.failNext("cuDevicePrimaryCtxRetain", 46, 1);
    DriverException e = refused(46, () -> driver.retain(1));
    assertThat(e).hasMessageContaining("cuDevicePrimaryCtxRetain");
    standIn.failNext("cuMemHostRegister_v2", DriverException.OUT_OF_MEMORY, 1);
    refused(DriverException.OUT_OF_MEMORY, () -> driver.retain(1));
    assertThat(driver.current()).isEqualTo(context);
    assertThat(driver.retain(1)).isPositive();
  }

  // --- destroying what others use -----------------------------------------------------------

  /** Whoever destroys does not pull the stream away from under a call that is under way. */
  @Test
  void aStreamMayBeDestroyedWhileOthersUseIt() throws InterruptedException {
    AtomicReference<Throwable> failed = new AtomicReference<>();
    for (int round = 0; round < 200; round++) {
      long stream = stream();
      List<Thread> threads = new ArrayList<>();
      for (int t = 0; t < 3; t++) {
        threads.add(Thread.ofPlatform().start(() -> use(stream, failed)));
      }
      driver.streamDestroy(stream);
      for (Thread thread : threads) {
        thread.join();
      }
    }
    assertThat(failed.get()).isNull();
  }

  private void use(long stream, AtomicReference<Throwable> failed) {
    try {
      for (int i = 0; i < 200; i++) {
        driver.reached(stream);
        driver.signal(stream, 1);
        driver.streamSynchronize(stream);
      }
    } catch (DriverException e) {
      if (e.status() != DriverException.INVALID_HANDLE) {
        failed.compareAndSet(null, e);
      }
    }
  }

  /** A poller looks at streams and contexts also in the moment in which they end. */
  @Test
  void aContextMayEndWhileOthersLook() throws InterruptedException {
    AtomicReference<Throwable> failed = new AtomicReference<>();
    for (int round = 0; round < 30; round++) {
      long other = driver.retain(1);
      driver.makeCurrent(other);
      long stream = driver.streamCreate(other, 0, null);
      driver.makeCurrent(context);
      driver.signal(stream, 1);
      Thread looking = Thread.ofPlatform().start(() -> look(other, stream, failed));
      driver.release(other);
      looking.join();
    }
    assertThat(failed.get()).isNull();
  }

  private void look(long other, long stream, AtomicReference<Throwable> failed) {
    try {
      while (driver.reached(stream) <= 1) {
        DriverException status = driver.status(other);
        if (status != null && status.status() != DriverException.INVALID_CONTEXT) {
          failed.compareAndSet(null, status);
          return;
        }
      }
      failed.compareAndSet(null, new AssertionError("a value that nobody signalled"));
    } catch (DriverException e) {
      if (e.status() != DriverException.INVALID_HANDLE) {
        failed.compareAndSet(null, e);
      }
    }
  }
}
