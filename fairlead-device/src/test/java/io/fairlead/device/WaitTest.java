package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Waiting for streams: the same in every mode, whether the driver notifies or is polled. */
class WaitTest {

  static Stream<Arguments> modes() {
    List<Arguments> all = new ArrayList<>();
    for (WaitMode mode : WaitMode.values()) {
      all.add(Arguments.of("notified", mode, (Supplier<FakeDriver>) FakeDriver::stepped));
      all.add(Arguments.of("polled", mode, (Supplier<FakeDriver>) FakeDriver::polled));
      all.add(Arguments.of("asked", mode, (Supplier<FakeDriver>) FakeDriver::asked));
    }
    return all.stream();
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("modes")
  void aWaitEndsWithTheWork(String how, WaitMode mode, Supplier<FakeDriver> driver)
      throws Exception {
    try (World world = new World(driver.get());
        TaskScope<Integer> scope = world.tasks.scope()) {
      AtomicInteger began = new AtomicInteger();
      for (int i = 0; i < 4; i++) {
        int number = i;
        scope.fork(
            ForkOptions.DEFAULT.waitMode(mode),
            () -> {
              DeviceStream stream = world.context.stream();
              work(stream, "work " + number);
              began.incrementAndGet();
              stream.reached().await();
              return number;
            });
      }
      World.until("all have enqueued", () -> began.get() == 4);
      assertThat(scope.forks()).allMatch(fork -> fork.state() == Fork.State.RUNNING);
      world.driver.automatic();
      assertThat(scope.join()).containsExactly(0, 1, 2, 3);
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("modes")
  void aPlatformThreadWaitsInEveryModeToo(String how, WaitMode mode, Supplier<FakeDriver> driver)
      throws Exception {
    try (World world = new World(driver.get())) {
      DeviceStream stream = world.context.stream();
      work(stream, "work");
      CountDownLatch ended = new CountDownLatch(1);
      Thread waiter =
          Thread.ofPlatform()
              .start(
                  () -> {
                    stream.reached().await(mode);
                    ended.countDown();
                  });
      world.driver.endOne(stream);
      waiter.join(Duration.ofNanos(World.PATIENCE_NANOS));
      assertThat(ended.getCount()).isZero();
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("modes")
  void aDeadlineEndsTheWaitAndLeavesTheWorkAlone(
      String how, WaitMode mode, Supplier<FakeDriver> driver) throws Exception {
    try (World world = new World(driver.get())) {
      AtomicInteger finished = new AtomicInteger();
      try (TaskScope<Void> scope = world.tasks.scope()) {
        scope.fork(
            () -> {
              DeviceStream stream = world.context.stream();
              work(stream, "work");
              Completion<Void> reached = stream.reached();
              assertThatThrownBy(() -> reached.await(mode, Duration.ofMillis(5)))
                  .isInstanceOf(DeadlineExceededException.class)
                  .hasMessageContaining("stream " + stream.id() + " of device 0 to reach");
              world.driver.endOne(stream);
              reached.await(mode);
              finished.incrementAndGet();
              return null;
            });
        scope.join();
      }
      assertThat(finished.get()).isEqualTo(1);
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("modes")
  void cancellationEndsTheWait(String how, WaitMode mode, Supplier<FakeDriver> driver)
      throws Exception {
    endsEarly(driver, mode, fork -> fork.task().cancel(null), TaskCancelledException.class);
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("modes")
  void anInterruptEndsTheWait(String how, WaitMode mode, Supplier<FakeDriver> driver)
      throws Exception {
    endsEarly(driver, mode, fork -> fork.task().interrupt(), TaskInterruptedException.class);
  }

  private static void endsEarly(
      Supplier<FakeDriver> driver,
      WaitMode mode,
      java.util.function.Consumer<Fork<?>> how,
      Class<? extends Throwable> thrown)
      throws Exception {
    try (World world = new World(driver.get());
        TaskScope<Void> scope = world.tasks.scope()) {
      CountDownLatch began = new CountDownLatch(1);
      CountDownLatch seen = new CountDownLatch(1);
      Fork<Void> fork =
          scope.fork(
              () -> {
                DeviceStream stream = world.context.stream();
                work(stream, "work");
                Completion<Void> reached = stream.reached();
                began.countDown();
                assertThatThrownBy(() -> reached.await(mode)).isInstanceOf(thrown);
                assertThat(reached.isDone()).isFalse();
                seen.countDown();
                return null;
              });
      began.await();
      how.accept(fork);
      seen.await();
      assertThat(world.driver.ended()).isEmpty();
      scope.cancel(null);
    }
  }

  @Test
  void aWaitForWhatHasEndedCallsNoDriverAndAllocatesNothing() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.stream();
      work(stream, "work");
      Mark mark = stream.mark();
      stream.reached(mark).await();
      world.driver.forgetCalls();
      assertThat(stream.reached(mark)).isSameAs(stream.reached(mark));
      assertThat(stream.reached(mark).isDone()).isTrue();
      assertThat(stream.isReached(mark)).isTrue();
      assertThat(world.driver.calls()).isEmpty();
    }
  }

  @Test
  void manyWaitersShareOneSignal() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.stream();
      work(stream, "work");
      List<Completion<Void>> all = new ArrayList<>();
      for (int i = 0; i < 1000; i++) {
        all.add(stream.reached());
      }
      assertThat(world.driver.count("signal")).isEqualTo(1);
      world.driver.endOne(stream);
      Completion.all(all).await();
      assertThat(world.context.stats().waits()).isEqualTo(1000);
      assertThat(world.context.stats().waitNanos()).isPositive();
    }
  }

  @Test
  void waitersAreWokenInOrderOfWhatTheyWaitFor() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.stream();
      List<Mark> marks = new ArrayList<>();
      List<Integer> woken = java.util.Collections.synchronizedList(new ArrayList<>());
      for (int i = 0; i < 5; i++) {
        work(stream, "work " + i);
        marks.add(stream.mark());
        stream.reached(); // its own signal, so that each position can be told apart
      }
      for (int i = 4; i >= 0; i--) {
        int number = i;
        stream.reached(marks.get(i)).onDone(done -> woken.add(number));
      }
      world.driver.endOne(stream);
      World.until("the first is woken", () -> woken.size() == 1);
      world.driver.endAll();
      World.until("all are woken", () -> woken.size() == 5);
      assertThat(woken).containsExactly(0, 1, 2, 3, 4);
    }
  }

  @Test
  void givingUpManyWaitsLeavesNoGarbage() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.stream();
      work(stream, "work");
      for (int i = 0; i < 10_000; i++) {
        assertThat(stream.reached().cancel()).isTrue();
      }
      assertThat(stream.core().waiting()).isLessThan(200);
    }
  }

  @Test
  void aWaitWithAnIdlePollerWakesIt() throws Exception {
    try (World world = new World(FakeDriver.polled())) {
      DeviceStream stream = world.context.stream();
      for (int i = 0; i < 200; i++) {
        work(stream, "work " + i);
        Completion<Void> reached = stream.reached();
        if (i % 20 == 0) {
          Thread.sleep(2); // not for the result: lets the poller fall asleep now and then
        }
        world.driver.endOne(stream);
        reached.await();
      }
      assertThat(world.driver.ended()).hasSize(200);
    }
  }

  @Test
  void aTaskParksWhileTooMuchIsUnfinished() throws Exception {
    DeviceConfig config = DeviceConfig.defaults().withUnfinishedMax(16);
    try (World world = new World(FakeDriver.stepped(), config);
        TaskScope<Void> scope = world.tasks.scope()) {
      AtomicInteger enqueued = new AtomicInteger();
      scope.fork(
          () -> {
            DeviceStream stream = world.context.stream();
            for (int i = 0; i < 100; i++) {
              work(stream, "work " + i);
              enqueued.incrementAndGet();
            }
            return null;
          });
      World.until("the limit is reached", () -> enqueued.get() == 16);
      DeviceStream other = world.context.openStream(0);
      work(other, "others go on");
      world.driver.endOne(other);
      other.reached().await();
      assertThat(enqueued.get()).isEqualTo(16);
      world.driver.automatic();
      scope.join();
      assertThat(enqueued.get()).isEqualTo(100);
      other.close();
    }
  }

  @Test
  void aTaskThatParksForRoomCanBeCancelled() throws Exception {
    DeviceConfig config = DeviceConfig.defaults().withUnfinishedMax(4);
    try (World world = new World(FakeDriver.stepped(), config);
        TaskScope<Void> scope = world.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      AtomicInteger enqueued = new AtomicInteger();
      Fork<Void> fork =
          scope.fork(
              () -> {
                while (true) {
                  work(world.context.stream(), "work");
                  enqueued.incrementAndGet();
                }
              });
      World.until("the limit is reached", () -> enqueued.get() == 4);
      fork.task().cancel(null);
      scope.join();
      assertThat(fork.failure()).isInstanceOf(TaskCancelledException.class);
      assertThat(enqueued.get()).isEqualTo(4);
    }
  }

  @Test
  void aMarkOfAnotherStreamIsRefused() {
    try (World world = new World(FakeDriver.strict());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0)) {
      assertThatThrownBy(() -> a.reached(b.mark()))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("not of stream " + a.id());
    }
  }
}
