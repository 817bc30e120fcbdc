package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.task.Completion;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/**
 * Foreign code beside us on the stand-in, which counts what a real driver would punish in its own
 * way: a default stream that we use, a free that comes too early, a handle that is no more.
 */
@EnabledOnOs(OS.LINUX)
class ForeignCodeContractTest {

  private static final int RELAXED = 2;

  private abstract static class OnStandIn extends ForeignCodeContract {
    final StandInLibrary standIn = StandInLibrary.get();
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

    @Override
    String driverLibrary() {
      return standIn.path().toString();
    }

    @Override
    String cublas() {
      return ForeignLibraries.get(standIn, "cublas");
    }

    @Override
    String cudart() {
      return ForeignLibraries.get(standIn, "cudart");
    }

    /** Runs before the driver is closed, and closes it first. */
    @AfterEach
    void nothingIsLeft() {
      close();
      List<String> traps = standIn.traps();
      for (StandInLibrary.Live kind : StandInLibrary.Live.values()) {
        assertThat(standIn.live(kind)).as("%s that are left", kind).isZero();
      }
      assertThat(traps).filteredOn(trap -> !isLookAtStranger(trap)).isEmpty();
    }

    /** Whose a stream is can be asked of an old driver only under that context. */
    private boolean isLookAtStranger(String trap) {
      return old && trap.startsWith("wrong context: cuStreamGetCtx");
    }

    private long foreignStream() {
      long previous = device.context().binding().bind();
      try {
        return made(cudart(), "cudaStreamCreateWithFlags", 1);
      } finally {
        device.context().binding().restore(previous);
      }
    }

    /** On a real driver it is undefined; what can be told is told, and the context is not lost. */
    @Test
    void anAdoptedStreamThatItsMakerDestroysIsSaid() {
      long theirs = foreignStream();
      DeviceStream adopted = device.adoptStream(theirs);
      long previous = device.context().binding().bind();
      call(cudart(), "cudaStreamDestroy", theirs);
      device.context().binding().restore(previous);
      Completion<Void> waits = adopted.reached();
      assertThatThrownBy(waits::await)
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("was destroyed by its maker")
          .hasMessageContaining("close it here before that");
      assertThatThrownBy(() -> device.stream().after(adopted.mark()))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("was destroyed by its maker");
      adopted.close();
      device.stream().checkpoint();
      device.stream().reached().await();
      assertThat(device.context().isLost()).isFalse();
      device.close();
      assertThat(standIn.traps())
          .isNotEmpty()
          .allMatch(trap -> trap.startsWith("stale handle: "))
          .allMatch(trap -> trap.contains("stream 0x" + Long.toHexString(theirs)));
      standIn.clearTraps();
    }

    /**
     * A signal of ours would become a part of their graph: nobody would see it now, and each launch
     * would write its old value over a newer one.
     */
    @Test
    void anAdoptedStreamThatItsMakerCapturesIsLeftAlone() {
      long theirs = foreignStream();
      MemorySegment raw = MemorySegment.ofAddress(theirs);
      DeviceStream adopted = device.adoptStream(theirs);
      long previous = device.context().binding().bind();
      assertThat(standIn.call("cuStreamBeginCapture_v2", raw, RELAXED)).isZero();
      device.context().binding().restore(previous);
      Completion<Void> waits = adopted.reached();
      // by who drains just now, which may be the poller
      assertThatThrownBy(waits::await).isInstanceOf(DeviceException.class);
      assertThat(waits.cause())
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("captured by its maker")
          .hasMessageContaining("wait until that capture has ended");
      assertThatThrownBy(() -> device.stream().after(adopted.mark()))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("captured by its maker");
      endsEmpty(raw);
      adopted.reached().await();
      assertThat(device.context().isLost()).isFalse();
      adopted.close();
      previous = device.context().binding().bind();
      call(cudart(), "cudaStreamDestroy", theirs);
      device.context().binding().restore(previous);
    }

    /** Their capture goes on as if nobody had looked, and has nothing of ours. */
    private void endsEmpty(MemorySegment stream) {
      long previous = device.context().binding().bind();
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment graph = arena.allocate(ValueLayout.ADDRESS);
        assertThat(standIn.call("cuStreamEndCapture", stream, graph)).isZero();
        assertThat(standIn.call("cuGraphDestroy", graph.get(ValueLayout.ADDRESS, 0))).isZero();
      } finally {
        device.context().binding().restore(previous);
      }
    }
  }

  @Nested
  class NewDriver extends OnStandIn {
    NewDriver() {
      super(false);
    }
  }

  /** Each call demands that its context is current. */
  @Nested
  class OldDriver extends OnStandIn {
    OldDriver() {
      super(true);
    }
  }
}
