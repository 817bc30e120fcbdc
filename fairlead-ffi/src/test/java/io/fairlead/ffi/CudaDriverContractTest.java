package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.device.spi.Pieces;
import io.fairlead.sim.DriverContract;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.IntSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/**
 * The driver's rules against the CUDA driver, on the stand-in for its library; which also counts
 * what a real one would punish in its own way.
 */
@EnabledOnOs(OS.LINUX)
class CudaDriverContractTest {

  /** Rules about wrong uses: these use it wrongly, and the stand-in says so. */
  private static final Set<String> WRONG_ON_PURPOSE =
      Set.of(
          "aCopyBeyondABlockIsRefusedOrAnIllegalAddress",
          "aPieceOfNoBlockIsRefusedOrAnIllegalAddress",
          "devicesShareNoMemory",
          "transfersToNowhereAreRefusedAtOnce",
          "wrongFreesAreRefusedAtOnce");

  /** The attribute of a device. */
  private static final int CAPABILITY_MAJOR = 75;

  /** What the driver is told by the environment, unless somebody loaded it before. */
  private static final int QUEUES = 32;

  private abstract static class OnStandIn extends DriverContract {
    private final StandInLibrary standIn = StandInLibrary.get();
    private final boolean old;
    private final String signals;

    OnStandIn(boolean old, String signals) {
      this.old = old;
      this.signals = signals;
    }

    /** How many streams may have a ticket outstanding; the signals of others are events. */
    String tickets() {
      return "auto";
    }

    /**
     * From how many streams on nothing is made or loaded while a kernel runs; never if negative.
     */
    int creationWaitsFrom() {
      return -1;
    }

    @Override
    protected Driver open() {
      standIn.reset();
      standIn.oldDriver(old);
      standIn.hardwareQueues(true);
      standIn.connections(QUEUES);
      standIn.creationWaitsFrom(creationWaitsFrom());
      architecture(standIn);
      for (int device = 0; device < devices(); device++) {
        standIn.memory(device, memoryBytes());
      }
      return new CudaDriverProvider()
          .open(
              Map.of(
                  "library",
                  standIn.path().toString(),
                  "nvrtc",
                  "/nowhere/libnvrtc.so",
                  "signals",
                  signals,
                  "tickets",
                  tickets()));
    }

    /** Which device it is. */
    void architecture(StandInLibrary library) {}

    /** Whether there is code for pieces. */
    boolean hasPieces() {
      return true;
    }

    @Override
    protected ModuleImage image() {
      return CudaKernels.STAND_IN;
    }

    @Override
    protected Runnable hold(long stream) {
      return CudaKernels.hold(driver, module(), stream);
    }

    @Override
    protected Runnable holdAll(List<Long> streams) {
      return CudaKernels.holdAll(driver, module(), streams);
    }

    @Override
    protected int heldStreamsMax() {
      return 120;
    }

    @Override
    protected IntSupplier fault(long stream) {
      Runnable fault = CudaKernels.fault(driver, module(), stream);
      return () -> {
        fault.run();
        return DriverException.ILLEGAL_ADDRESS;
      };
    }

    private long module() {
      return driver.moduleLoad(driver.current(), image());
    }

    /** A rule that needs what a driver does not say that it has is skipped, and nobody sees it. */
    @Test
    void noRuleIsSkippedForWantOfSomething() {
      assertThat(driver.capabilities())
          .contains(Capability.GRAPHS, Capability.PEER_COPY, Capability.DEFAULT_STREAM);
      assertThat(devices()).isGreaterThan(1);
      assertThat(mayLoseContexts()).isTrue();
      assertThat(isMemoryOurs()).isTrue();
      assertThat(driver.info(0).features().cooperative()).isTrue();
    }

    @Test
    void needsWhatTheDriverDemands() {
      for (DriverCall call : DriverCall.values()) {
        boolean anyway =
            Set.of(
                    DriverCall.STREAM_CREATE,
                    DriverCall.EVENT_CREATE,
                    DriverCall.HOST_ALLOC,
                    DriverCall.MODULE_LOAD,
                    DriverCall.MODULE_UNLOAD,
                    DriverCall.KERNEL,
                    DriverCall.MEMORY_INFO,
                    DriverCall.TRIM,
                    DriverCall.CONNECT,
                    DriverCall.GRAPH_BUILD)
                .contains(call);
        assertThat(driver.needsCurrent(call)).as("%s", call).isEqualTo(old || anyway);
      }
    }

    /** Else the rules about pieces would be about single copies. */
    @Test
    void piecesAreOneLaunchOrOneByOne() {
      assertThat(driver.preparePieces(context)).isEqualTo(hasPieces());
      long stream = stream();
      Pieces pieces = new Pieces(driver.hostAlloc(context, 4096));
      MemorySegment host = driver.hostAlloc(context, 4096);
      for (int i = 0; i < 100; i++) {
        pieces.add(driver.allocAsync(stream, 40), host.asSlice(40L * i, 40));
      }
      long launches = standIn.calls("cuLaunchKernel");
      long up = standIn.calls("cuMemcpyHtoDAsync_v2");
      long down = standIn.calls("cuMemcpyDtoHAsync_v2");
      driver.copyPiecesToDevice(stream, pieces);
      driver.copyPiecesToHost(stream, pieces);
      int copies = hasPieces() ? 0 : 100;
      assertThat(standIn.calls("cuLaunchKernel") - launches).isEqualTo(hasPieces() ? 2 : 0);
      assertThat(standIn.calls("cuMemcpyHtoDAsync_v2") - up).isEqualTo(copies);
      assertThat(standIn.calls("cuMemcpyDtoHAsync_v2") - down).isEqualTo(copies);
      await(stream);
    }

    /** Runs before the driver is closed, and closes it first. */
    @AfterEach
    void nothingIsLeft(TestInfo test) {
      String name = test.getTestMethod().orElseThrow().getName();
      letGoAndClose();
      List<String> traps = standIn.traps();
      standIn.assertNothingIsLeft();
      if (!WRONG_ON_PURPOSE.contains(name)) {
        assertThat(traps).isEmpty();
      }
    }
  }

  @Nested
  class NewDriver extends OnStandIn {
    NewDriver() {
      super(false, "write");
    }
  }

  /** Each call demands that its context is current. */
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

  /** As a real driver may: so no rule needs that something can be made while a stream is held. */
  @Nested
  class CreationWaits extends OnStandIn {
    CreationWaits() {
      super(false, "write");
    }

    @Override
    int creationWaitsFrom() {
      return 0;
    }
  }

  /** As one did: with few streams nothing waits, and with many all that makes something. */
  @Nested
  class CreationWaitsWithManyStreams extends OnStandIn {
    CreationWaitsWithManyStreams() {
      super(false, "write");
    }

    @Override
    int creationWaitsFrom() {
      return 32;
    }
  }

  /** An architecture that none of the shipped code is for, and no compiler. */
  @Nested
  class WithoutCodeForPieces extends OnStandIn {
    WithoutCodeForPieces() {
      super(false, "write");
    }

    @Override
    void architecture(StandInLibrary library) {
      library.attribute(CAPABILITY_MAJOR, 7);
    }

    @Override
    boolean hasPieces() {
      return false;
    }
  }

  @Nested
  class WithEventsOnly extends OnStandIn {
    WithEventsOnly() {
      super(false, "write");
    }

    @Override
    String tickets() {
      return "0";
    }
  }

  @Nested
  class WithEventsOnlyOnAnOldDriver extends OnStandIn {
    WithEventsOnlyOnAnOldDriver() {
      super(true, "write");
    }

    @Override
    String tickets() {
      return "0";
    }
  }

  @Nested
  class WithOneTicket extends OnStandIn {
    WithOneTicket() {
      super(false, "write");
    }

    @Override
    String tickets() {
      return "1";
    }
  }

  @Nested
  class WithOneTicketWithoutWriteValues extends OnStandIn {
    WithOneTicketWithoutWriteValues() {
      super(false, "fill");
    }

    @Override
    String tickets() {
      return "1";
    }
  }
}
