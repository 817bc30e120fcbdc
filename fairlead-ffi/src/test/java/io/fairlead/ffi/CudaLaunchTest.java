package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.DeviceFeatures;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.sim.LaunchArguments;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** What a launch asks of CUDA, as the stand-in sees it. */
@Timeout(60)
@EnabledOnOs(OS.LINUX)
class CudaLaunchTest {
  private static final int COOPERATIVE = 95;
  private static final int CLUSTERS = 120;

  private final StandInLibrary standIn = StandInLibrary.get();
  private Driver driver;
  private long context;
  private long stream;
  private long shape;
  private long block;
  private MemorySegment host;

  @BeforeEach
  void open() {
    standIn.reset();
    openDriver();
  }

  private void openDriver() {
    driver = new CudaDriverProvider(standIn.path().toString()).open(Map.of());
    context = driver.retain(0);
    driver.makeCurrent(context);
    stream = driver.streamCreate(context, 0, null);
    shape = driver.kernel(driver.moduleLoad(context, CudaKernels.STAND_IN), "shape");
    block = driver.allocAsync(stream, 40);
    host = driver.hostAlloc(context, 40);
  }

  private void reopenWithout(int attribute) {
    driver.makeCurrent(0);
    driver.close();
    standIn.attribute(attribute, 0);
    openDriver();
  }

  @AfterEach
  void close() {
    driver.makeCurrent(0);
    driver.close();
    assertThat(standIn.traps()).isEmpty();
    standIn.reset();
  }

  /** Blocks, threads in each, blocks in a cluster, whether all at once, shared bytes. */
  private long[] shape(Grid grid) {
    driver.launch(stream, shape, grid, new LaunchArguments().buffer(block, 40));
    driver.copyToHost(stream, host, block);
    driver.streamSynchronize(stream);
    return host.toArray(JAVA_LONG);
  }

  private DriverException refused(Grid grid) {
    try {
      shape(grid);
    } catch (DriverException e) {
      return e;
    }
    throw new AssertionError(grid + " was not refused");
  }

  @Test
  void aGridReachesTheDriver() {
    assertThat(shape(Grid.of(1000))).containsExactly(8, 128, 1, 0, 0);
    assertThat(standIn.calls("cuLaunchKernelEx")).as("by the probe alone").isEqualTo(1);
    assertThat(shape(Grid.of(1000).cooperative())).containsExactly(8, 128, 1, 1, 0);
    assertThat(shape(Grid.of(1000).withCluster(4))).containsExactly(8, 128, 4, 0, 0);
    assertThat(shape(Grid.of(999).withBlock(32).withCluster(8).cooperative().withSharedBytes(64)))
        .containsExactly(32, 32, 8, 1, 64);
  }

  @Test
  void blocksAreRoundedUpToWholeClusters() {
    assertThat(shape(Grid.of(1).withBlock(32).withCluster(8))).containsExactly(8, 32, 8, 0, 0);
    assertThat(shape(Grid.of(32 * 9).withBlock(32).withCluster(4)))
        .containsExactly(12, 32, 4, 0, 0);
  }

  /** Beyond 48 KiB a kernel has to be told before. */
  @Test
  void sharedMemoryIsAskedForOnce() {
    assertThat(shape(Grid.of(1).withSharedBytes(48 << 10))[4]).isEqualTo(48 << 10);
    assertThat(standIn.calls("cuFuncSetAttribute")).isZero();
    assertThat(shape(Grid.of(1).withSharedBytes(100_000))[4]).isEqualTo(100_000);
    assertThat(shape(Grid.of(1).withSharedBytes(200_000))[4]).isEqualTo(200_000);
    assertThat(standIn.calls("cuFuncSetAttribute")).isEqualTo(1);
    assertThat(refused(Grid.of(1).withSharedBytes(300_000)))
        .hasMessageContaining("300000 bytes of shared memory")
        .hasMessageContaining("at most 232448");
  }

  @Test
  void aDeviceWithoutCooperativeLaunchesSaysSo() {
    reopenWithout(COOPERATIVE);
    DriverException e = refused(Grid.of(1).cooperative());
    assertThat(e.status()).isEqualTo(DriverException.NOT_SUPPORTED);
    assertThat(e)
        .hasMessageContaining("kernel shape: device 0 (Stand-in 0, sm_90) has no cooperative")
        .hasMessageContaining("once for each of its phases");
    assertThat(shape(Grid.of(1).withCluster(2))).containsExactly(2, 128, 2, 0, 0);
  }

  @Test
  void aDeviceWithoutClustersSaysSo() {
    reopenWithout(CLUSTERS);
    DriverException e = refused(Grid.of(1).withCluster(2));
    assertThat(e.status()).isEqualTo(DriverException.NOT_SUPPORTED);
    assertThat(e).hasMessageContaining("without withCluster()");
    assertThat(shape(Grid.of(1).cooperative())).containsExactly(1, 128, 1, 1, 0);
  }

  @Test
  void residentBlocksFollowTheGrid() {
    assertThat(driver.residentBlocks(shape, Grid.of(1).withBlock(1024))).isEqualTo(2 * 132);
    assertThat(driver.residentBlocks(shape, Grid.of(1).withBlock(32))).isEqualTo(32 * 132);
    assertThat(driver.residentBlocks(shape, Grid.of(1).withSharedBytes(200_000))).isEqualTo(132);
    assertThat(driver.residentBlocks(shape, Grid.of(1).withBlock(1024).withCluster(8)))
        .isEqualTo(2 * 132);
  }

  @Test
  void aDeviceTellsItsFeatures() {
    assertThat(driver.info(1).features())
        .isEqualTo(new DeviceFeatures(90, true, true, 232_448, 62_914_560, 3, "0000:02:00.0"));
  }
}
