package io.fairlead.host;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.Driver;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** An event that two threads record at once names the later of their records. */
@Timeout(60)
class EventRecordingTest {
  /** Without the compare and set, about one round in fifty went wrong on two busy cores. */
  private static final int ROUNDS = 1000;

  private static final int SPINS_BEFORE_YIELD = 1000;

  private final AtomicInteger begun = new AtomicInteger();
  private final AtomicInteger ended = new AtomicInteger();

  @Test
  void anOvertakenRecordIsNotNamed() {
    try (Driver driver = new HostDriverProvider().open(Map.of("stepped", "true"))) {
      HostDriver host = (HostDriver) driver;
      long context = driver.retain(0);
      driver.makeCurrent(context);
      HostStream stream = host.handles().stream(driver.streamCreate(context, 0, null));
      HostEvent event = host.handles().event(driver.eventCreate(context));
      EventRecord slow = new EventRecord(stream);
      EventRecord fast = new EventRecord(stream);
      assertThat(event.record(null, fast)).isTrue();
      assertThat(event.record(null, slow)).isFalse();
      assertThat(event.last()).isSameAs(fast);
      driver.makeCurrent(0);
    }
  }

  @Test
  void theLastRecordCounts() throws Exception {
    try (Driver driver = new HostDriverProvider().open(Map.of("stepped", "true"))) {
      HostStepper stepper = HostStepper.of(driver);
      long context = driver.retain(0);
      driver.makeCurrent(context);
      long stream = driver.streamCreate(context, 0, null);
      long event = driver.eventCreate(context);
      Thread other =
          Thread.ofPlatform().daemon().start(() -> recordInEachRound(driver, event, stream));
      int tooEarly = 0;
      for (int round = 1; round <= ROUNDS; round++) {
        begun.set(round);
        driver.eventRecord(event, stream);
        await(ended, round);
        int pending = stepper.pending(stream).size();
        for (int i = 1; i < pending; i++) {
          stepper.complete(stream);
        }
        tooEarly += driver.eventQuery(event) ? 1 : 0; // the last record is still pending
        stepper.complete(stream);
        assertThat(driver.eventQuery(event)).isTrue();
      }
      other.join();
      driver.makeCurrent(0);
      assertThat(tooEarly).as("rounds where an event came before its last record").isZero();
    }
  }

  private void recordInEachRound(Driver driver, long event, long stream) {
    for (int round = 1; round <= ROUNDS; round++) {
      await(begun, round);
      driver.eventRecord(event, stream);
      ended.set(round);
    }
  }

  @SuppressWarnings("ThreadPriorityCheck") // both threads shall run at once, where two cores are
  private static void await(AtomicInteger counter, int value) {
    for (int spins = 0; counter.get() < value; spins++) {
      if (spins > SPINS_BEFORE_YIELD) {
        Thread.yield();
      } else {
        Thread.onSpinWait();
      }
    }
  }
}
