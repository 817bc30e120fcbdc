package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.sim.DriverContract;
import io.fairlead.sim.LaunchArguments;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What only a real driver can show: its compilers, and what it demands. */
@Timeout(120)
class CudaDriverGpuTest {
  private static final int COUNT = 10_000;

  private Driver driver;
  private long context;

  @BeforeEach
  void open() {
    driver = CudaGpu.open();
    context = driver.retain(0);
    driver.makeCurrent(context);
  }

  @AfterEach
  void close() {
    if (driver != null) {
      driver.makeCurrent(0);
      driver.close();
      assertThat(driver.current()).isZero();
    }
  }

  /** Printed, so that a run says what it ran on. */
  @Test
  void saysWhatItIs() {
    System.out.println("CUDA " + driver.version() + ", " + driver.info(0));
    System.out.println(
        "needs a current context: "
            + Arrays.stream(DriverCall.values()).filter(driver::needsCurrent).toList());
    assertThat(driver.info(0).memoryBytes()).isPositive();
    assertThat(driver.info(0).streamsWithSignals()).isPositive();
    assertThat(driver.memoryInfo(context).freeBytes()).isPositive();
    assertThat(driver.status(context)).isNull();
  }

  private long[] number(ModuleImage image) {
    long stream = driver.streamCreate(context, 1, null);
    long kernel = driver.kernel(driver.moduleLoad(context, image), "number");
    long block = driver.allocAsync(stream, 8L * COUNT);
    MemorySegment host = driver.hostAlloc(context, 8L * COUNT);
    driver.launch(
        stream, kernel, Grid.of(COUNT), new LaunchArguments().scalar(5).buffer(block, 8L * COUNT));
    driver.copyToHost(stream, host, block);
    driver.signal(stream, 1);
    while (driver.reached(stream) < 1) {
      Thread.onSpinWait();
    }
    driver.freeAsync(stream, block);
    return host.toArray(JAVA_LONG);
  }

  @Test
  void runsPtx() {
    assertThat(number(CudaKernels.PTX)).isEqualTo(LongStream.range(5, 5 + COUNT).toArray());
  }

  @Test
  void runsSource() {
    needCompiler();
    assertThat(number(CudaKernels.SOURCE)).isEqualTo(LongStream.range(5, 5 + COUNT).toArray());
  }

  @Test
  void runsAFatbin() {
    needArchitecture(80, 90);
    assertThat(number(CudaKernels.FATBIN)).isEqualTo(LongStream.range(5, 5 + COUNT).toArray());
  }

  @Test
  void runsACubin() {
    needArchitecture(80, 90);
    int mine = driver.info(0).features().architecture() / 10 * 10;
    assertThat(number(CudaKernels.cubin(mine))).isEqualTo(LongStream.range(5, 5 + COUNT).toArray());
  }

  @Test
  void codeForAnotherDeviceIsRefusedWithBothNames() {
    int other = driver.info(0).features().architecture() / 10 == 9 ? 80 : 90;
    assertThat(driver.accepts(0, CudaKernels.cubin(other))).isFalse();
    assertThatThrownBy(() -> driver.moduleLoad(context, CudaKernels.cubin(other)))
        .isInstanceOf(DriverException.class)
        .hasMessageContaining("sm_" + other)
        .hasMessageContaining(driver.info(0).features().architectureName());
  }

  /** The fatbins of these tests have code for the first device of each of these. */
  private void needArchitecture(int... wanted) {
    int mine = driver.info(0).features().architecture();
    boolean there = Arrays.stream(wanted).anyMatch(each -> each / 10 == mine / 10);
    if (!there) {
      System.out.println("!! NO MACHINE CODE FOR sm_" + mine + ": tests with it were NOT run");
    }
    Assumptions.assumeTrue(there, "no machine code for sm_" + mine);
  }

  // --- launches that ask for more ---------------------------------------------------------------

  private long launchesKernel(String name) {
    return driver.kernel(driver.moduleLoad(context, CudaKernels.LAUNCHES), name);
  }

  private long[] longs(long stream, long address, int count) {
    MemorySegment host = driver.hostAlloc(context, 8L * count);
    driver.copyToHost(stream, host, address);
    driver.streamSynchronize(stream);
    return host.toArray(JAVA_LONG);
  }

  /** Each block waits for all others, ten times: so all have to run at once. */
  @Test
  void aCooperativeKernelHasABarrierOfAllThreads() {
    needArchitecture(80, 90);
    long stream = driver.streamCreate(context, 0, null);
    long ring = launchesKernel("ring");
    Grid block = Grid.of(1).withBlock(64);
    int blocks = Math.toIntExact(driver.residentBlocks(ring, block));
    System.out.println("blocks of 64 threads that are resident at once: " + blocks);
    long bytes = 8L * blocks;
    long out = driver.allocAsync(stream, bytes);
    long sums = driver.allocAsync(stream, bytes);
    long counter = driver.allocAsync(stream, 4);
    driver.fill(stream, sums, bytes, (byte) 0);
    driver.fill(stream, counter, 4, (byte) 0);
    driver.launch(
        stream,
        ring,
        Grid.of(64L * blocks).withBlock(64).cooperative(),
        new LaunchArguments().buffer(out, bytes).buffer(sums, bytes).buffer(counter, 4));
    long[] expected = new long[blocks];
    Arrays.setAll(expected, i -> 100L * 55 + 10L * ((i + 1) % blocks));
    assertThat(longs(stream, sums, blocks)).isEqualTo(expected);
  }

  @Test
  void theBlocksOfAClusterReachEachOthersSharedMemory() {
    needArchitecture(90);
    long stream = driver.streamCreate(context, 0, null);
    long cluster = launchesKernel("cluster");
    int blocks = 64;
    long bytes = 8L * blocks;
    long ranks = driver.allocAsync(stream, bytes);
    long sums = driver.allocAsync(stream, bytes);
    for (int size : new int[] {2, 4, 8}) {
      driver.launch(
          stream,
          cluster,
          Grid.of(32L * blocks).withBlock(32).withCluster(size),
          new LaunchArguments().buffer(ranks, bytes).buffer(sums, bytes));
      long[] expected = new long[blocks];
      Arrays.setAll(
          expected,
          i -> {
            long first = i / size * (long) size;
            return size * first + size * (size - 1L) / 2;
          });
      assertThat(longs(stream, sums, blocks)).as("clusters of %s", size).isEqualTo(expected);
      assertThat(longs(stream, ranks, blocks)[size - 1]).isEqualTo(size - 1);
    }
    System.out.println(
        "blocks resident in clusters of 8: "
            + driver.residentBlocks(cluster, Grid.of(1).withBlock(32).withCluster(8)));
  }

  @Test
  void aBlockGetsMoreSharedMemoryThanKernelsHaveAtFirst() {
    needArchitecture(80, 90);
    long stream = driver.streamCreate(context, 0, null);
    long turn = launchesKernel("turn");
    int count = 12_000;
    long block = driver.allocAsync(stream, 8L * count);
    MemorySegment host = driver.hostAlloc(context, 8L * count);
    for (int i = 0; i < count; i++) {
      host.setAtIndex(JAVA_LONG, i, i);
    }
    driver.copyToDevice(stream, block, host);
    driver.launch(
        stream,
        turn,
        Grid.of(256).withBlock(256).withSharedBytes(8 * count),
        new LaunchArguments().buffer(block, 8L * count).narrow(count));
    assertThat(longs(stream, block, count))
        .isEqualTo(LongStream.range(0, count).map(i -> count - 1 - i).toArray());
  }

  private void needCompiler() {
    boolean there = driver.accepts(CudaKernels.SOURCE);
    if (!there) {
      System.out.println("!! NO NVRTC: the tests with CUDA C++ were NOT run");
    }
    Assumptions.assumeTrue(there, "no NVRTC");
  }

  @Test
  void ptxThatIsRefusedComesWithTheLog() {
    assertThatThrownBy(
            () ->
                driver.moduleLoad(
                    context, new ModuleImage.Ptx(".version 7.0\n.target sm_80\nnonsense\n")))
        .isInstanceOf(DriverException.class)
        .hasMessageContaining("nonsense");
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void argumentsAreCheckedAgainstTheKernel() {
    long kernel = driver.kernel(driver.moduleLoad(context, CudaKernels.PTX), "axpy");
    long stream = driver.streamCreate(context, 0, null);
    assertThatThrownBy(
            () -> driver.launch(stream, kernel, Grid.of(1), new LaunchArguments().scalar(1.0)))
        .isInstanceOf(DriverException.class)
        .hasMessageContaining("kernel axpy(8, 8, 8, 8 bytes)");
  }

  /** Whoever sees it knows that the heartbeat sees it, and whether a fresh context can be had. */
  @Test
  @Tag(DriverContract.FAULT)
  void aFaultIsSeenByTheHeartbeatAlone() {
    Assumptions.assumeTrue(CudaGpu.mayFault(), "not asked for");
    long stream = driver.streamCreate(context, 0, null);
    long module = driver.moduleLoad(context, CudaKernels.PTX);
    long since = System.nanoTime();
    CudaKernels.fault(driver, module, stream).run();
    driver.signal(stream, 1);
    while (driver.status(context) == null) {
      Thread.onSpinWait();
    }
    System.out.println("fault seen after " + (System.nanoTime() - since) / 1000 + " us");
    assertThat(driver.status(context))
        .isInstanceOfSatisfying(
            DriverException.class,
            e -> assertThat(e.status()).isEqualTo(DriverException.ILLEGAL_ADDRESS));
    driver.release(context);
    try {
      context = driver.retain(0);
      System.out.println("a fresh context after a fault: " + driver.status(context));
    } catch (DriverException e) {
      System.out.println("no fresh context after a fault: " + e.getMessage());
    }
  }
}
