package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.ForeignBody;
import io.fairlead.task.Completion;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
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

  private static final int BLOCKING = 0;
  private static final int RELAXED = 2;
  private static final int OUT_OF_MEMORY = 2;

  private abstract static class OnStandIn extends ForeignCodeContract {
    final StandInLibrary standIn = StandInLibrary.get();
    private final boolean old;

    OnStandIn(boolean old) {
      this.old = old;
    }

    /** Before the driver is opened. */
    void prepare() {}

    @Override
    Driver openDriver() {
      standIn.reset();
      standIn.oldDriver(old);
      prepare();
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
      standIn.assertNothingIsLeft();
      assertThat(traps).filteredOn(trap -> !isLookAtStranger(trap)).isEmpty();
    }

    /** Whose a stream is can be asked of an old driver only under that context. */
    private boolean isLookAtStranger(String trap) {
      return old && trap.startsWith("wrong context: cuStreamGetCtx");
    }

    long foreignStream() {
      return foreignStream(NON_BLOCKING);
    }

    private long foreignStream(int flags) {
      long[] made = new long[1];
      inThePrimaryContext(() -> made[0] = made(cudart(), "cudaStreamCreateWithFlags", flags));
      return made[0];
    }

    private void captures(long stream) {
      MemorySegment raw = MemorySegment.ofAddress(stream);
      inThePrimaryContext(
          () ->
              assertThat(standIn.call("cuStreamBeginCapture_v2", raw, RELAXED))
                  .as("begin a capture")
                  .isZero());
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
      captures(theirs);
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
      inThePrimaryContext(() -> call(cudart(), "cudaStreamDestroy", theirs));
    }

    /**
     * As above, for a stream of ours that a library was lent; what was on it before is waited for,
     * and the heartbeat does not end their capture.
     */
    @Test
    void aStreamOfOursThatALibraryCapturesIsLeftAlone() {
      DeviceStream ours = device.context().openStream(0);
      DeviceStream other = device.context().openStream(0);
      MemorySegment raw = MemorySegment.ofAddress(ours.nativeHandle());
      warm(ours, other);
      try (Held held = new Held();
          DeviceBuffer buffer = device.allocate(BYTES)) {
        held.holdBack(ours);
        Completion<Void> before = ours.reached();
        captures(raw.address());
        assertThat(driver.status(device.context().nativeContext())).as("heartbeat").isNull();
        List<ThrowingCallable> uses =
            List.of(
                () -> number.launch(ours, Grid.of(COUNT), 7L, buffer),
                () -> ours.fill(buffer, 0, BYTES, (byte) 0),
                ours::checkpoint,
                () -> ours.capture("g", () -> {}));
        for (ThrowingCallable use : uses) {
          assertThatThrownBy(use)
              .isInstanceOf(DeviceException.class)
              .hasMessageContaining("while foreign code captures it")
              .hasMessageContaining("capture a stream of its own");
        }
        assertThat(before.isDone()).isFalse();
        number.launch(other, Grid.of(COUNT), 7L, buffer);
        held.release();
        before.await();
        endsEmpty(raw);
        add.launch(ours, Grid.of(COUNT), buffer, buffer);
        ours.reached().await();
        assertThat(buffer.toLongs()).isEqualTo(LongStream.of(numbers(7)).map(i -> 2 * i).toArray());
      }
      assertThat(device.context().isLost()).isFalse();
      ours.close();
      other.close();
    }

    /** The handle was theirs until the stream was closed: their capture ends with it. */
    @Test
    void aStreamOfOursThatALibraryCapturesCanBeClosed() {
      DeviceStream ours = device.context().openStream(0);
      captures(ours.nativeHandle());
      long streams = standIn.live(StandInLibrary.Live.STREAMS);
      ours.close();
      until("it is destroyed", () -> standIn.live(StandInLibrary.Live.STREAMS) == streams - 1);
      assertThat(device.context().isLost()).isFalse();
    }

    /**
     * A library that captures a blocking stream when its body returns: nothing may be recorded on
     * the default stream then, so nobody knows where its work ends.
     */
    @Test
    void whatForeignCodeUsesStaysLentUntilItsEndIsKnown() {
      DeviceStream producer = device.context().openStream(0);
      DeviceStream other = device.context().openStream(0);
      long blocking = foreignStream(BLOCKING);
      warm(producer, other);
      try (Held held = new Held()) {
        DeviceBuffer in = device.allocate(BYTES);
        DeviceBuffer out = device.allocate(BYTES);
        held.holdBack(producer);
        number.launch(producer, Grid.of(COUNT), 7L, in);
        ForeignBody<Void> body =
            (reads, writes) -> {
              copy(writes[0], reads[0], BYTES, LEGACY);
              captures(blocking);
              return null;
            };
        assertThatThrownBy(() -> device.foreign(List.of(in), List.of(out), body))
            .isInstanceOf(DeviceException.class)
            .hasMessageContaining("the body has returned")
            .hasMessageContaining("stays lent")
            .hasMessageContaining("cudaStreamNonBlocking");
        assertThatThrownBy(() -> add.launch(other, Grid.of(COUNT), out, in))
            .isInstanceOf(IllegalStateException.class)
            .hasMessageContaining("leased to foreign code");
        assertThatThrownBy(() -> add.launch(Grid.of(COUNT), out, out))
            .as("the caller's own stream")
            .isInstanceOf(DeviceException.class)
            .hasMessageContaining("comes after foreign work");
        in.close();
        long inUse = device.memory().inUse();
        held.release();
        producer.reached().await();
        long asked = standIn.calls("cuStreamIsCapturing");
        until("it is tried again", () -> standIn.calls("cuStreamIsCapturing") > asked + 1);
        assertThat(device.memory().inUse()).as("the buffer that was closed").isEqualTo(inUse);
        endsEmpty(MemorySegment.ofAddress(blocking));
        until("they are no longer lent", () -> usable(out, other));
        assertThat(out.toLongs()).isEqualTo(LongStream.of(numbers(7)).map(i -> 2 * i).toArray());
        out.close();
      }
      inThePrimaryContext(() -> call(cudart(), "cudaStreamDestroy", blocking));
      producer.close();
      other.close();
    }

    private boolean usable(DeviceBuffer buffer, DeviceStream stream) {
      try {
        add.launch(stream, Grid.of(COUNT), buffer, buffer);
        return true;
      } catch (IllegalStateException lent) {
        return false;
      }
    }

    /** A signal that the driver has no room for says nothing of the work. */
    @Test
    void memoryOfOthersGoesBackOnlyWhenItsLastUseHasEnded() {
      long[] theirs = new long[1];
      inThePrimaryContext(() -> theirs[0] = made(cudart(), "cudaMalloc", BYTES));
      AtomicInteger released = new AtomicInteger();
      DeviceStream ours = device.context().openStream(0);
      warm(ours);
      try (Held held = new Held()) {
        DeviceBuffer buffer =
            device.adopt(
                theirs[0],
                BYTES,
                ours,
                () -> {
                  call(cudart(), "cudaFree", theirs[0]);
                  released.incrementAndGet();
                });
        held.holdBack(ours);
        number.launch(ours, Grid.of(COUNT), 7L, buffer);
        standIn.failNext("cuStreamWriteValue64_v2", OUT_OF_MEMORY, 3);
        long refused = standIn.refused("cuStreamWriteValue64_v2");
        long calls = standIn.calls("cuStreamWriteValue64_v2");
        buffer.close();
        // the fourth is taken; until it is asked for, whoever waits for the stream may be refused
        // too
        until(
            "it was refused, and tried again",
            () -> {
              assertThat(released).hasValue(0);
              return standIn.calls("cuStreamWriteValue64_v2") >= calls + 4;
            });
        assertThat(standIn.refused("cuStreamWriteValue64_v2")).isEqualTo(refused + 3);
        assertThat(released).hasValue(0);
      }
      until("it is released", () -> released.get() == 1);
      ours.close();
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

  /** The question whether a stream is captured needs its context, although hardly anything does. */
  @Nested
  class DriverWithOneNeed extends OnStandIn {
    DriverWithOneNeed() {
      super(false);
    }

    @Override
    void prepare() {
      standIn.demandCurrent("cuStreamIsCapturing");
    }

    /** What tools that look for errors would report: the probe's try, and no other. */
    @Test
    void itIsAskedUnderThatContext() {
      assertThat(currentNative()).isZero();
      long tried = standIn.refused("cuStreamIsCapturing");
      assertThat(tried).isEqualTo(1);
      long theirs = foreignStream();
      DeviceStream adopted = device.adoptStream(theirs);
      try (DeviceBuffer buffer = device.allocate(BYTES)) {
        long asked = standIn.calls("cuStreamIsCapturing");
        number.launch(adopted, Grid.of(COUNT), 7L, buffer);
        adopted.reached().await();
        assertThat(standIn.calls("cuStreamIsCapturing")).isGreaterThan(asked);
      }
      adopted.close();
      device.context().reached().await();
      assertThat(standIn.refused("cuStreamIsCapturing")).isEqualTo(tried);
      assertThat(currentNative()).isZero();
      inThePrimaryContext(() -> call(cudart(), "cudaStreamDestroy", theirs));
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
