package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.Task;
import io.fairlead.task.TaskScope;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A refusal reaches those whom it concerns, and nobody else. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RefusalTest {

  @Test
  void aRefusedSignalFailsOnlyThoseWhoNeedIt() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.stream();
      work(stream, "a");
      Completion<Void> a = stream.reached();
      work(stream, "b");
      world.driver.refuseNext(DriverCall.SIGNAL, DriverException.OUT_OF_MEMORY, "OUT_OF_MEMORY");
      Completion<Void> b = stream.reached();
      assertThat(b.cause()).isInstanceOf(OutOfDeviceMemoryException.class);
      assertThat(a.isDone()).as("its signal was taken").isFalse();
      world.driver.endOne(stream);
      a.await();
    }
  }

  @Test
  void aRefusedCheckpointAheadLeavesTheOperationEnqueued() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.stream();
      AtomicBoolean refused = new AtomicBoolean();
      for (int i = 1; i <= 64; i++) {
        world.driver.refuseNext(
            DriverCall.EVENT_RECORD, DriverException.OUT_OF_MEMORY, "OUT_OF_MEMORY");
        assertThat(work(stream, "work")).isEqualTo(i);
        refused.set(world.driver.count("eventRecord") > 0);
      }
      assertThat(refused).as("a checkpoint was tried").isTrue();
      Mark mark = stream.mark();
      try (DeviceStream other = world.context.openStream(0)) {
        other.after(mark); // records now what could not be recorded ahead
        assertThat(world.driver.count("streamWaitEvent")).isEqualTo(1);
      }
    }
  }

  @Test
  void aMarkThatNobodyHasGivenOutIsRefused() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream other = world.context.openStream(0)) {
      DeviceStream stream = world.context.stream();
      work(stream, "work");
      Mark future = new Mark(stream, 1000);
      assertThatThrownBy(() -> stream.reached(future))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("operation 1000");
      assertThatThrownBy(() -> stream.isReached(future))
          .isInstanceOf(IllegalArgumentException.class);
      assertThatThrownBy(() -> other.after(future)).isInstanceOf(IllegalArgumentException.class);
    }
  }

  @Test
  void aCancelledTaskStillFreesOnAFullStream() {
    DeviceConfig config = DeviceConfig.defaults().withUnfinishedMax(4);
    try (World world = new World(FakeDriver.stepped(), config);
        TaskScope<Long> scope = world.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      AtomicReference<DeviceStream> full = new AtomicReference<>();
      Fork<Long> fork =
          scope.fork(
              () -> {
                DeviceStream stream = world.context.stream();
                for (int i = 0; i < 4; i++) {
                  work(stream, "work");
                }
                full.set(stream);
                Task.current().cancel(null);
                return stream.enqueue(
                    DriverCall.FREE_ASYNC,
                    "free",
                    (handle, addresses) -> world.driver.freeAsync(handle, 1));
              });
      World.until(
          "the task waits for room",
          () ->
              fork.state() != Fork.State.RUNNING
                  || (full.get() != null && full.get().core().waiting() > 0));
      world.driver.automatic();
      scope.join();
      assertThat(fork.failure()).isNull();
      assertThat(world.driver.count("free")).isEqualTo(1);
    }
  }

  @Test
  void nobodyIsToldUnderAStreamsTurn() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.openStream(0);
      DeviceStream other = world.context.openStream(0);
      AtomicBoolean turnWasFree = new AtomicBoolean();
      work(other, "work");
      Completion<Void> waiting = other.reached();
      waiting.onDone(done -> turnWasFree.set(canClose(stream)));
      assertThatThrownBy(
              () ->
                  stream.enqueue(
                      DriverCall.LAUNCH,
                      "fails",
                      (handle, addresses) -> {
                        throw new DriverException(
                            DriverException.LAUNCH_FAILED, "LAUNCH_FAILED", true, "fatal", null);
                      }))
          .isInstanceOf(DeviceLostException.class);
      assertThat(waiting.state()).isEqualTo(Completion.State.FAILED);
      assertThat(turnWasFree).isTrue();
    }
  }

  /** Another thread takes the turn; a bound, since with the turn held it never could. */
  private static boolean canClose(DeviceStream stream) {
    CountDownLatch closed = new CountDownLatch(1);
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              stream.close();
              closed.countDown();
            });
    try {
      return closed.await(30, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      return false;
    }
  }
}
