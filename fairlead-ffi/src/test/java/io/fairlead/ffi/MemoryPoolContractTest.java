package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.host.HostDriverProvider;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** Both pools on the host device, and on CUDA over the stand-in, which counts wrong uses. */
class MemoryPoolContractTest {

  @Nested
  class OnTheHost extends MemoryPoolContract {
    @Override
    Driver openDriver() {
      return new HostDriverProvider()
          .open(Map.of("workers", "2", "poison", "true", "memory", Long.toString(64L << 20)));
    }

    @Override
    ModuleImage image() {
      JavaKernel hold =
          (arguments, _, _) -> {
            MemorySegment flag = MemorySegment.ofAddress(arguments.i64(0)).reinterpret(Long.BYTES);
            while ((long) ValueLayout.JAVA_LONG.varHandle().getVolatile(flag, 0L) == 0) {
              Thread.onSpinWait();
            }
          };
      return new ModuleImage.Java(Map.of("hold", hold));
    }
  }

  private abstract static class OnStandIn extends MemoryPoolContract {
    private final StandInLibrary standIn = StandInLibrary.get();
    private final boolean old;

    OnStandIn(boolean old) {
      this.old = old;
    }

    @Override
    Driver openDriver() {
      standIn.reset();
      standIn.oldDriver(old);
      return new CudaDriverProvider(standIn.path().toString()).open(Map.of());
    }

    @Override
    ModuleImage image() {
      return CudaKernels.STAND_IN;
    }

    /** In place of its own: after all was closed. */
    @Override
    @AfterEach
    void close() {
      super.close();
      assertThat(standIn.traps()).isEmpty();
      standIn.assertNothingIsLeft();
    }
  }

  @Nested
  @EnabledOnOs(OS.LINUX)
  class OnTheStandIn extends OnStandIn {
    OnTheStandIn() {
      super(false);
    }
  }

  /** Each call demands that its context is current. */
  @Nested
  @EnabledOnOs(OS.LINUX)
  class OnAnOldDriver extends OnStandIn {
    OnAnOldDriver() {
      super(true);
    }
  }
}
