package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.ModuleImage;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** The rules of graphs on the stand-in, which counts each call that would end a capture. */
@EnabledOnOs(OS.LINUX)
class GraphOnCudaTest {

  private abstract static class OnStandIn extends DeviceGraphRules {
    private final StandInLibrary standIn = StandInLibrary.get();
    private final boolean old;
    private final String signals;

    OnStandIn(boolean old, String signals) {
      this.old = old;
      this.signals = signals;
    }

    @Override
    Driver openDriver() {
      standIn.reset();
      standIn.oldDriver(old);
      return new CudaDriverProvider(standIn.path().toString()).open(Map.of("signals", signals));
    }

    @Override
    ModuleImage image() {
      return CudaKernels.STAND_IN;
    }

    @Override
    @AfterEach
    void close() {
      super.close();
      List<String> traps = standIn.traps();
      standIn.assertNothingIsLeft();
      assertThat(traps).isEmpty();
    }
  }

  @Nested
  class NewDriver extends OnStandIn {
    NewDriver() {
      super(false, "write");
    }
  }

  @Nested
  class OldDriver extends OnStandIn {
    OldDriver() {
      super(true, "auto");
    }
  }

  @Nested
  class WithoutWriteValues extends OnStandIn {
    WithoutWriteValues() {
      super(false, "fill");
    }
  }
}
