package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.sim.LaunchArguments;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Modules in each of their forms, on the stand-in, which takes images of compilers as a driver does
 * and has their kernels built in.
 */
@Timeout(60)
@EnabledOnOs(OS.LINUX)
class CudaModulesTest {
  private static final int ARCHITECTURE_MAJOR = 75;
  private static final int COUNT = 100;

  private final StandInLibrary standIn = StandInLibrary.get();
  private Driver driver;
  private long context;

  @BeforeEach
  void open() {
    standIn.reset();
    open(Map.of());
  }

  private void open(Map<String, String> settings) {
    driver = new CudaDriverProvider(standIn.path().toString()).open(settings);
    context = driver.retain(0);
    driver.makeCurrent(context);
  }

  @AfterEach
  void close() {
    driver.makeCurrent(0);
    driver.close();
    assertThat(standIn.traps()).isEmpty();
    standIn.assertNothingIsLeft();
    standIn.reset();
  }

  static Stream<ModuleImage> images() {
    return Stream.of(
        CudaKernels.PTX,
        CudaKernels.FATBIN,
        CudaKernels.cubin(90),
        new ModuleImage.Binary(
            ((ModuleImage.Ptx) CudaKernels.PTX)
                .text()
                .getBytes(java.nio.charset.StandardCharsets.UTF_8)));
  }

  /** No call is refused by the driver, which tools for memory checks would report. */
  @ParameterizedTest
  @MethodSource("images")
  void eachFormRuns(ModuleImage image) {
    assertThat(driver.accepts(0, image)).isTrue();
    long module = driver.moduleLoad(context, image);
    assertThat(number(module)).isEqualTo(LongStream.range(5, 5 + COUNT).toArray());
    for (String name : List.of("add", "count", "axpy", "spin", "hold", "nop")) {
      assertThat(driver.kernel(module, name)).isPositive();
    }
    assertThat(standIn.calls("cuFuncGetParamInfo")).isPositive();
    assertThat(standIn.refused("cuFuncGetParamInfo")).isZero();
  }

  private long[] number(long module) {
    long stream = driver.streamCreate(context, 0, null);
    long block = driver.allocAsync(stream, 8L * COUNT);
    MemorySegment host = driver.hostAlloc(context, 8L * COUNT);
    driver.launch(
        stream,
        driver.kernel(module, "number"),
        Grid.of(COUNT),
        new LaunchArguments().scalar(5).buffer(block, 8L * COUNT));
    driver.copyToHost(stream, host, block);
    driver.freeAsync(stream, block);
    driver.streamSynchronize(stream);
    return host.toArray(JAVA_LONG);
  }

  @ParameterizedTest
  @MethodSource("images")
  void argumentsAreCheckedInEachForm(ModuleImage image) {
    long stream = driver.streamCreate(context, 0, null);
    long axpy = driver.kernel(driver.moduleLoad(context, image), "axpy");
    LaunchArguments narrow = new LaunchArguments().narrow(2).buffer(0, 8).buffer(0, 8);
    assertThat(refused(() -> driver.launch(stream, axpy, Grid.of(1), narrow)))
        .hasMessageContaining("argument 1 has 4 bytes, and the kernel's parameter has 8");
    assertThat(
            refused(() -> driver.launch(stream, axpy, Grid.of(1), new LaunchArguments().scalar(1))))
        .hasMessageContaining("kernel axpy(8, 8, 8, 8 bytes) was launched with 1 arguments");
  }

  /** An image that says nothing of its kernels: the driver is asked until it has no more. */
  @Test
  void ofOtherImagesTheDriverIsAsked() {
    long module = driver.moduleLoad(context, CudaKernels.STAND_IN);
    assertThat(driver.kernel(module, "axpy")).isPositive();
    assertThat(standIn.calls("cuFuncGetParamInfo")).isEqualTo(5);
    assertThat(standIn.refused("cuFuncGetParamInfo")).isEqualTo(1);
  }

  // --- other devices --------------------------------------------------------------------------

  @Test
  void codeForAnotherDeviceIsRefusedWithBothNames() {
    ModuleImage other = CudaKernels.cubin(80);
    assertThat(driver.accepts(0, other)).isFalse();
    DriverException e = refused(() -> driver.moduleLoad(context, other));
    assertThat(e.status()).isEqualTo(DriverException.NO_BINARY_FOR_DEVICE);
    assertThat(e.statusName()).isEqualTo("CUDA_ERROR_NO_BINARY_FOR_GPU");
    assertThat(e.isNotForThisDevice()).isTrue();
    assertThat(e)
        .hasMessageContaining("has sm_80, none of which runs on device 0 (Stand-in 0)")
        .hasMessageContaining("which is sm_90")
        .hasMessageContaining("nvcc -gencode");
    assertThat(standIn.calls("cuModuleLoadDataEx")).as("the probe alone").isEqualTo(1);
  }

  @Test
  void anOlderDeviceTakesNoNewerPtx() {
    ModuleImage ptx = new ModuleImage.Ptx(".version 8.6\n.target sm_100\n.entry k() { ret; }\n");
    assertThat(driver.accepts(0, ptx)).isFalse();
    assertThat(refused(() -> driver.moduleLoad(context, ptx)))
        .hasMessageContaining("PTX 8.6 for sm_100");
  }

  /** The driver finds it out: the image looks as if it were of today. */
  @Test
  void whatIsNewerThanTheDriverSaysSo() {
    standIn.version(12_040);
    ModuleImage ptx = new ModuleImage.Ptx(".version 9.0\n.target sm_80\n.entry k() { ret; }\n");
    DriverException e = refused(() -> driver.moduleLoad(context, ptx));
    assertThat(e.status()).isEqualTo(DriverException.UNSUPPORTED_PTX_VERSION);
    assertThat(e.isNotForThisDevice()).isTrue();
    assertThat(e)
        .hasMessageContaining("The image is PTX 9.0 for sm_80, the device sm_90")
        .hasMessageContaining("and the driver is for CUDA 12");
  }

  private static DriverException refused(Runnable call) {
    try {
      call.run();
    } catch (DriverException e) {
      return e;
    }
    throw new AssertionError("it was not refused");
  }

  // --- which form is taken --------------------------------------------------------------------

  private static final ModuleSource ALL =
      new ModuleSource("rules", List.of(CudaKernels.FATBIN, CudaKernels.SOURCE, CudaKernels.PTX));

  private void onDevice(Consumer<DeviceContext> body) {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        DeviceContext device = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
      body.accept(device);
    }
  }

  private ModuleImage taken(ModuleSource source) {
    ModuleImage[] taken = new ModuleImage[1];
    onDevice(
        device -> {
          try (KernelModule module = device.load(source)) {
            taken[0] = module.image();
            module.kernel("nop").launch(device.stream(), Grid.of(1));
          }
        });
    return taken[0];
  }

  private void reopen(int major, Map<String, String> settings) {
    driver.makeCurrent(0);
    driver.close();
    standIn.attribute(ARCHITECTURE_MAJOR, major);
    open(settings);
  }

  @Test
  void machineCodeComesFirstWhereItFits() {
    assertThat(taken(ALL)).isSameAs(CudaKernels.FATBIN);
  }

  /** No compiler is there either. */
  @Test
  void ptxIsForLaterDevices() {
    reopen(12, Map.of("nvrtc", "libno-such-compiler.so"));
    assertThat(driver.info(0).features().architectureName()).isEqualTo("sm_120");
    assertThat(taken(ALL)).isSameAs(CudaKernels.PTX);
  }

  /** A compiler knows them better than PTX that was made before they were. */
  @Test
  void sourceIsCompiledForLaterDevices() {
    reopen(12, Map.of());
    boolean there = driver.accepts(CudaKernels.SOURCE);
    if (!there) {
      System.out.println("!! NO NVRTC: the test with CUDA C++ was NOT run");
    }
    assumeTrue(there, "no NVRTC");
    assertThat(taken(ALL)).isSameAs(CudaKernels.SOURCE);
    assertThat(standIn.refused("cuFuncGetParamInfo")).isZero();
  }

  @Test
  void theDriversOwnRefusalIsFollowedByTheNextForm() {
    ModuleSource two = new ModuleSource("rules", List.of(CudaKernels.FATBIN, CudaKernels.PTX));
    for (int status : new int[] {200, 209}) {
      onDevice(
          device -> {
            standIn.failNext("cuModuleLoadDataEx", status, 1);
            try (KernelModule module = device.load(two)) {
              assertThat(module.image()).as("after %s", status).isSameAs(CudaKernels.PTX);
            }
          });
    }
  }

  /** What is wrong in itself is not passed over. */
  @Test
  void anErrorInAnImageIsNot() {
    ModuleSource two = new ModuleSource("rules", List.of(CudaKernels.PTX, CudaKernels.FATBIN));
    onDevice(
        device -> {
          standIn.failNext("cuModuleLoadDataEx", 218, 1);
          assertThatThrownBy(() -> device.load(two))
              .isInstanceOfSatisfying(
                  DeviceException.class, e -> assertThat(e.status()).isEqualTo(218));
        });
  }

  @Test
  void whereNothingFitsTheFirstSaysWhy() {
    reopen(7, Map.of("nvrtc", "libno-such-compiler.so"));
    onDevice(
        device ->
            assertThatThrownBy(() -> device.load(ALL))
                .isInstanceOf(DeviceException.class)
                .hasMessageContaining("load module rules on device 0")
                .hasMessageContaining("the module has sm_80, sm_90, none of which runs on")
                .hasMessageContaining("which is sm_70"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"any", "binary", "ptx"})
  void aSettingForcesOne(String code) {
    reopen(9, Map.of("code", code));
    assertThat(taken(ALL)).isSameAs(code.equals("ptx") ? CudaKernels.PTX : CudaKernels.FATBIN);
  }

  @Test
  void aForcedFormThatIsNotThereIsRefused() {
    reopen(9, Map.of("code", "binary"));
    onDevice(
        device ->
            assertThatThrownBy(() -> device.load(new ModuleSource("m", List.of(CudaKernels.PTX))))
                .isInstanceOf(DeviceException.class)
                .hasMessageContaining("The setting code=binary"));
    assertThatThrownBy(
            () -> new CudaDriverProvider(standIn.path().toString()).open(Map.of("code", "cobol")))
        .isInstanceOf(DriverException.class)
        .hasMessageContaining("any, binary, source or ptx, not cobol");
  }
}
