package io.fairlead.runtime;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.CommException;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Hold;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.memory.Reservation;
import io.fairlead.task.Engine;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.Fork;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.TaskScope;
import io.fairlead.task.ThreadRule;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What can never come is not waited for, and who gives up waiting leaves nothing behind. */
class NothingHangsTest {
  private static final long MEMORY = 8 << 20;
  private static final FairleadConfig HOST =
      FairleadConfig.defaults()
          .withDevice("host")
          .withHostWorkers(2)
          .withMemory(MemoryConfig.defaults().withGrace(Duration.ofMillis(20)))
          .withDeviceMemory(MEMORY);

  private static Engine<StringBuilder> engine(Fairlead fairlead) {
    return fairlead.engine(
        "words", ThreadRule.ONE_AT_A_TIME, StringBuilder::new, EngineLimits.of(1));
  }

  @Test
  void aCallThatWasRefusedLeavesNoReservation() {
    try (Fairlead fairlead = Fairlead.open(HOST)) {
      Device device = fairlead.device();
      Engine<StringBuilder> engine = engine(fairlead);
      Reservation all = fairlead.enter("careful", 0, () -> device.reserve(MEMORY));

      Optional<String> refused =
          fairlead.enter("caller", 0, () -> engine.tryCall(1 << 20, words -> "called"));
      all.close();

      assertThat(refused).isEmpty();
      assertThat(device.memory().reserved()).isZero();
    }
  }

  @Test
  void aCallThatWasCancelledLeavesNoReservation() {
    try (Fairlead fairlead = Fairlead.open(HOST);
        TaskScope<String> scope = fairlead.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      Device device = fairlead.device();
      Engine<StringBuilder> engine = engine(fairlead);
      Reservation all = fairlead.enter("careful", 0, () -> device.reserve(MEMORY));

      AtomicReference<Thread> caller = new AtomicReference<>();
      Fork<String> fork =
          scope.fork(
              () -> {
                caller.set(Thread.currentThread());
                return engine.call(1 << 20, words -> "called");
              });
      while (caller.get() == null || caller.get().getState() != Thread.State.WAITING) {
        Thread.onSpinWait(); // ends by the test's timeout if it never waits
      }
      fork.task().cancel(null);
      scope.join();
      all.close();

      assertThat(fork.failure()).isNotNull();
      assertThat(device.memory().reserved()).isZero();
    }
  }

  @Test
  void aCallOfWhoHoldsWhatItNeedsFails() {
    try (Fairlead fairlead = Fairlead.open(HOST)) {
      Engine<StringBuilder> engine = engine(fairlead);
      fairlead.enter(
          "holder",
          0,
          () -> {
            try (DeviceBuffer held = fairlead.device().allocate(MEMORY);
                Hold _ = held.hold()) {
              held.fill((byte) 1);
              assertThatThrownBy(() -> engine.call(1 << 20, words -> "called"))
                  .isInstanceOf(OutOfDeviceMemoryException.class)
                  .hasMessageContaining("the task itself holds all of it");
            }
            return null;
          });
    }
  }

  @ParameterizedTest
  @EnumSource
  void nobodyWaitsForARankThatHasReturned(WaitMode mode) {
    try (Fairlead fairlead = Fairlead.open(HOST.withWaitMode(mode))) {
      assertThatThrownBy(
              () ->
                  fairlead.ranks(
                      2, comm -> comm.rank() == 0 ? null : comm.receive(0, 7).await().bytes()))
          .isInstanceOf(CommException.class)
          .hasMessageContaining("rank 0");
    }
  }

  @ParameterizedTest
  @EnumSource
  void whatARankSentBeforeItReturnedIsReceived(WaitMode mode) {
    try (Fairlead fairlead = Fairlead.open(HOST.withWaitMode(mode))) {
      assertThat(
              fairlead.ranks(
                  3,
                  comm -> {
                    if (comm.rank() > 0) {
                      comm.send(0, 7, MemorySegment.ofArray(new long[comm.rank()])).await();
                      return 0L;
                    }
                    return comm.receive(1, 7).await().bytes() + comm.receive(2, 7).await().bytes();
                  }))
          .containsExactly(24L, 0L, 0L);
    }
  }
}
