package io.fairlead.ffi;

import static io.fairlead.device.Param.I64;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceLostException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Each kind of fault that ends a context, and what comes after it, on the stand-in. */
@Timeout(60)
@EnabledOnOs(OS.LINUX)
class FaultsOnCudaTest {
  private static final ModuleSource SOURCE =
      new ModuleSource("rules", List.of(CudaKernels.STAND_IN));

  private final StandInLibrary standIn = StandInLibrary.get();
  private final TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
  private Driver driver;

  @BeforeEach
  void open() {
    standIn.reset();
    driver = new CudaDriverProvider(standIn.path().toString()).open(Map.of());
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

  /** Nobody calls: those who wait are told all the same, each with the same first cause. */
  @ParameterizedTest
  @ValueSource(
      ints = {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 999})
  void eachFatalStatusFailsWhoWaits(int status) {
    try (DeviceContext device = device(0);
        DeviceContext other = device(1)) {
      Kernel hold = device.load(SOURCE).kernel("hold", I64);
      DeviceStream one = device.openStream(0);
      DeviceStream two = device.openStream(0);
      try (var flag = device.hostBlocks().take(Long.BYTES)) {
        flag.segment().set(ValueLayout.JAVA_LONG, 0, 0);
        hold.launch(one, CudaKernels.ALONE, flag.segment().address());
        two.after(one.mark());
        List<Completion<Void>> waits = List.of(one.reached(), two.reached());
        standIn.fault(0, status);
        for (Completion<Void> wait : waits) {
          Throwable lost = catchThrowable(wait::await);
          assertThat(lost).isInstanceOf(DeviceLostException.class);
          assertThat(lost.getCause()).isSameAs(device.fault());
        }
      }
      assertThat(device.fault())
          .isInstanceOfSatisfying(
              DeviceException.class,
              first -> {
                assertThat(first.status()).isEqualTo(status);
                assertThat(first.statusName()).matches("CUDA_ERROR_[A-Z_]+");
                assertThat(first.launchSites()).anyMatch(site -> site.contains("launch hold"));
              });
      assertThatThrownBy(() -> device.openStream(0))
          .isInstanceOf(DeviceLostException.class)
          .cause()
          .isSameAs(device.fault());
      other.openStream(0).close();
      assertThat(other.isLost()).isFalse();
    }
  }

  /** What refuses a call and leaves the context whole. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 201, 400, 600, 701, 801})
  void anyOtherStatusIsOneCalls(int status) {
    try (DeviceContext device = device(0)) {
      Kernel nop = device.load(SOURCE).kernel("nop");
      DeviceStream stream = device.openStream(0);
      standIn.failNext("cuLaunchKernel", status, 1);
      assertThatThrownBy(() -> nop.launch(stream, CudaKernels.ALONE))
          .isInstanceOfSatisfying(
              DeviceException.class, e -> assertThat(e.status()).isEqualTo(status));
      nop.launch(stream, CudaKernels.ALONE);
      stream.reached().await();
      assertThat(device.isLost()).isFalse();
    }
  }

  private void lose(DeviceContext device) {
    DeviceStream stream = device.stream();
    device.load(SOURCE).kernel("nullstore").launch(stream, CudaKernels.ALONE);
    assertThatThrownBy(() -> stream.reached().await()).isInstanceOf(DeviceLostException.class);
  }

  @Test
  void aFreshContextWorksWhereTheDriverGivesOne() {
    try (DeviceContext device = device(0)) {
      lose(device);
    }
    try (DeviceContext fresh = device(0)) {
      fresh.load(SOURCE).kernel("nop").launch(CudaKernels.ALONE);
      fresh.stream().reached().await();
      assertThat(fresh.isLost()).isFalse();
    }
  }

  /** As driver 580 does it. */
  @Test
  void whereItGivesNoneThatIsSaid() {
    standIn.faultsStay(true);
    try (DeviceContext device = device(0)) {
      lose(device);
    }
    assertThatThrownBy(() -> device(0))
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("retain the primary context on device 0 failed")
        .hasMessageContaining("CUDA_ERROR_ILLEGAL_ADDRESS (700)")
        .hasMessageContaining("start a new process");
    try (DeviceContext other = device(1)) {
      other.openStream(0).close();
      assertThat(other.isLost()).isFalse();
    }
  }
}
