package io.fairlead.host;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.StreamListener;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class HostStepperTest {
  private final Driver driver =
      new HostDriverProvider().open(Map.of("stepped", "true", "memory", "1m"));
  private final HostStepper stepper = HostStepper.of(driver);
  private final long context = driver.retain(0);
  private final List<String> heard = new ArrayList<>();

  HostStepperTest() {
    driver.makeCurrent(context);
  }

  @AfterEach
  void close() {
    driver.makeCurrent(0);
    driver.close();
  }

  private long stream(String name) {
    return driver.streamCreate(
        context,
        0,
        new StreamListener() {
          @Override
          public void reached(long value) {
            heard.add(name + value);
          }

          @Override
          public void lost() {
            heard.add(name + " lost");
          }
        });
  }

  @Test
  void nothingEndsUntilItIsTold() {
    long stream = stream("a");
    driver.signal(stream, 1);
    driver.signal(stream, 2);
    assertThat(driver.reached(stream)).isZero();
    stepper.complete(stream);
    assertThat(driver.reached(stream)).isEqualTo(1);
    assertThat(heard).containsExactly("a1");
    assertThat(stepper.completeAll()).isEqualTo(1);
    assertThat(driver.reached(stream)).isEqualTo(2);
    assertThat(driver.capabilities()).contains(Capability.STEPPED, Capability.NOTIFY);
  }

  @Test
  void pendingOperationsSayWhatTheyDo() {
    long a = stream("a");
    long b = stream("b");
    long event = driver.eventCreate(context);
    long block = driver.allocAsync(a, 512);
    driver.fill(a, block, 512, (byte) 3);
    driver.eventRecord(event, a);
    driver.streamWaitEvent(b, event);
    driver.signal(b, 5);
    assertThat(stepper.pending(a))
        .extracting(HostStepper.Pending::description)
        .satisfiesExactly(
            d -> assertThat(d).startsWith("allocate 512 bytes"),
            d -> assertThat(d).isEqualTo("fill of 512 bytes"),
            d -> assertThat(d).isEqualTo("record event"));
    assertThat(stepper.pending(b))
        .extracting(HostStepper.Pending::state)
        .containsExactly(HostStepper.State.BLOCKED, HostStepper.State.QUEUED);
    assertThat(stepper.ready()).containsExactly(a);
    assertThat(stepper.completeAll(a)).isEqualTo(3);
    assertThat(stepper.ready()).containsExactly(b);
    assertThat(stepper.completeAll()).isEqualTo(2);
    assertThat(stepper.pending()).isEmpty();
  }

  @Test
  void anyOrderOfStreamsIsPossible() {
    long a = stream("a");
    long b = stream("b");
    for (int i = 1; i <= 2; i++) {
      driver.signal(a, i);
      driver.signal(b, i);
    }
    stepper.complete(b);
    stepper.complete(b);
    stepper.complete(a);
    stepper.complete(a);
    assertThat(heard).containsExactly("b1", "b2", "a1", "a2");
  }

  @Test
  void anOperationMovesDataWhenItStartsAndCountsWhenItCompletes() {
    long stream = stream("a");
    MemorySegment host = driver.hostAlloc(context, 8);
    long block = driver.allocAsync(stream, 8);
    driver.fill(stream, block, 8, (byte) 1);
    driver.copyToHost(stream, host, block);
    driver.signal(stream, 1);
    stepper.complete(stream);
    stepper.complete(stream);
    stepper.start(stream);
    assertThat(stepper.pending(stream).getFirst().state()).isEqualTo(HostStepper.State.STARTED);
    assertThat(host.get(JAVA_LONG, 0)).isEqualTo(0x0101010101010101L);
    assertThat(driver.reached(stream)).isZero();
    host.set(JAVA_LONG, 0, 9);
    stepper.completeAll();
    assertThat(host.get(JAVA_LONG, 0)).as("not copied a second time").isEqualTo(9);
    assertThat(driver.reached(stream)).isEqualTo(1);
  }

  @Test
  void wrongStepsAreRefusedWithTheReason() {
    long a = stream("a");
    long b = stream("b");
    assertThatThrownBy(() -> stepper.complete(a)).hasMessageContaining("no pending operation");
    assertThatThrownBy(() -> stepper.complete(4711)).hasMessageContaining("no stream");
    long event = driver.eventCreate(context);
    driver.eventRecord(event, a);
    driver.streamWaitEvent(b, event);
    assertThatThrownBy(() -> stepper.complete(b)).hasMessageContaining("blocked");
    stepper.start(a);
    assertThatThrownBy(() -> stepper.start(a)).hasMessageContaining("has started");
    try (Driver other = new HostDriverProvider().open(Map.of())) {
      assertThatThrownBy(() -> HostStepper.of(other)).hasMessageContaining("stepped=true");
    }
  }

  @Test
  void aFaultIsPutWhereTheTestWantsIt() {
    long a = stream("a");
    long b = stream("b");
    driver.signal(a, 1);
    driver.signal(a, 2);
    driver.signal(b, 1);
    stepper.complete(a);
    stepper.failNext(a, DriverException.LAUNCH_FAILED);
    stepper.complete(a);
    assertThat(driver.status(context).status()).isEqualTo(DriverException.LAUNCH_FAILED);
    assertThat(heard).containsExactlyInAnyOrder("a1", "a lost", "b lost");
    assertThat(stepper.completeAll()).as("what is left is dropped").isEqualTo(1);
    assertThat(driver.reached(b)).isZero();
  }

  @Test
  void aContextWithPendingWorkCanEnd() {
    long stream = stream("a");
    driver.signal(stream, 1);
    driver.release(context);
    assertThat(stepper.pending()).isEmpty();
    assertThat(driver.current()).isZero();
  }
}
