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
