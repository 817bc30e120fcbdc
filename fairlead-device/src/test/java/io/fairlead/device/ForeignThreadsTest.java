package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.EngineException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.Role;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.Task;
import io.fairlead.task.TaskScope;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Code that knows no streams: where it runs, what it comes after, and what comes after it. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ForeignThreadsTest {

  private static FakeDriver withDefaultStream(long[] handle) {
    FakeDriver driver = FakeDriver.stepped();
    handle[0] = driver.withDefaultStream();
    return driver;
  }

  @Test
  void foreignWorkStandsBetweenWhatIsBeforeAndAfterOnTheStream() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign))) {
      DeviceStream stream = world.context.stream();
      work(stream, "before");
      String answer =
          world.context.foreign(
              stream,
              () -> {
                world.driver.foreignWork(foreign[0], "foreign");
                return "returned";
              });
      assertThat(answer).isEqualTo("returned");
      work(stream, "after");
      Completion<Void> reached = stream.reached();
      world.driver.endForeign(foreign[0]); // it may; its turn has not come
      assertThat(world.driver.ended()).isEmpty();
      world.driver.endOne(stream);
      assertThat(world.driver.ended()).containsExactly("before", "foreign");
      assertThat(reached.isDone()).isFalse();
      world.driver.endOne(stream);
      reached.await();
      assertThat(world.driver.ended()).containsExactly("before", "foreign", "after");
    }
  }

  @Test
  void theBodyRunsAsTheCallersTaskWithTheContextCurrentAndMayWait() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign))) {
      world.driver.automatic();
      DeviceStream stream = world.context.stream();
      world.tasks.enter(
          "caller",
          0,
          () -> {
            Task caller = Task.current();
            world.context.foreign(
                stream,
                () -> {
                  assertThat(Task.current()).isSameAs(caller);
                  assertThat(Role.current()).isEqualTo(Role.OWNER);
                  assertThat(world.driver.current()).isEqualTo(world.context.nativeContext());
                  work(stream, "inside");
                  stream.reached().await();
                  assertThat(world.driver.current()).isEqualTo(world.context.nativeContext());
                  return null;
                });
            return null;
          });
      assertThat(world.driver.ended()).contains("inside");
    }
  }

  @Test
  void whateverContextABodyLeavesIsNotTheNextOnes() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign))) {
      DeviceStream stream = world.context.stream();
      for (long left : new long[] {2, 0}) {
        world.context.foreign(
            stream,
            () -> {
              assertThat(world.driver.current()).isEqualTo(world.context.nativeContext());
              world.driver.foreignWork(foreign[0], "left " + left);
              world.driver.makeCurrent(left);
              return null;
            });
      }
      Completion<Void> reached = stream.reached();
      assertThat(reached.isDone()).isFalse();
      world.driver.endForeign(foreign[0]);
      world.driver.endForeign(foreign[0]);
      reached.await();
    }
  }

  @Test
  void whatABodyThrowsSurfacesAndItsWorkIsOrderedAllTheSame() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign))) {
      DeviceStream stream = world.context.stream();
      IllegalStateException unchecked = new IllegalStateException("on purpose");
      AtomicInteger ordered = new AtomicInteger();
      assertThatThrownBy(
              () ->
                  world.context.foreign(
                      stream,
                      () -> {
                        world.driver.foreignWork(foreign[0], "foreign");
                        throw unchecked;
                      },
                      ordered::incrementAndGet))
          .isSameAs(unchecked);
      assertThat(ordered).hasValue(1);
      assertThat(stream.reached().isDone()).isFalse();
      world.driver.endForeign(foreign[0]);
      stream.reached().await();
      IOException checked = new IOException("on purpose");
      assertThatThrownBy(
              () ->
                  world.context.foreign(
                      stream,
                      () -> {
                        throw checked;
                      }))
          .isInstanceOf(EngineException.class)
          .hasCause(checked);
    }
  }

  @Test
  void anOrderThatTheDriverRefusesIsSaid() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign))) {
      DeviceStream stream = world.context.stream();
      AtomicInteger began = new AtomicInteger();
      AtomicInteger ordered = new AtomicInteger();
      world.context.foreign(stream, () -> null); // makes what a thread needs
      refuse(world, DriverCall.STREAM_WAIT_EVENT);
      assertThatThrownBy(
              () -> world.context.foreign(stream, began::incrementAndGet, ordered::incrementAndGet))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("foreign work");
      assertThat(began).hasValue(0);
      assertThat(ordered).hasValue(0);
      IllegalStateException thrown = new IllegalStateException("on purpose");
      Throwable caught =
          catchThrowable(
              () ->
                  world.context.foreign(
                      stream,
                      () -> {
                        refuse(world, DriverCall.EVENT_RECORD);
                        throw thrown;
                      },
                      ordered::incrementAndGet));
      assertThat(caught).isSameAs(thrown);
      assertThat(caught.getSuppressed()).singleElement().isInstanceOf(DeviceException.class);
      World.until("the next try has made it", () -> ordered.get() == 1);
    }
  }

  // --- where nobody knows at first where the work ends ------------------------------------------

  /** A body that leaves work, while a blocking stream is captured. */
  private static int leaveWork(World world, long foreign) {
    world.driver.blockDefaultStream(true);
    world.driver.foreignWork(foreign, "foreign");
    return 1;
  }

  private static void staysLent(World world, long foreign, DeviceStream stream, Runnable ordered) {
    assertThatThrownBy(
            () -> world.context.foreign(stream, () -> leaveWork(world, foreign), ordered))
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("the body has returned")
        .hasMessageContaining("stays lent")
        .hasMessageContaining("a blocking stream is captured");
  }

  private static void tryOnce(World world) {
    long tries = world.driver.count("defaultStreamRecord");
    World.until("it was tried again", () -> world.driver.count("defaultStreamRecord") > tries);
  }

  @Test
  void asLongAsNobodyKnowsWhereTheWorkEndsItIsKept() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign));
        DeviceStream other = world.context.openStream(0)) {
      DeviceStream stream = world.context.stream();
      Mark before = stream.mark();
      AtomicInteger ordered = new AtomicInteger();
      staysLent(world, foreign[0], stream, ordered::incrementAndGet);
      for (Runnable use :
          List.<Runnable>of(
              () -> work(stream, "unordered"),
              stream::mark,
              stream::reached,
              () -> world.context.foreign(stream, () -> null))) {
        assertThatThrownBy(use::run)
            .isInstanceOf(DeviceException.class)
            .hasMessageContaining("comes after foreign work, and nobody can say now")
            .hasMessageContaining("a blocking stream is captured");
      }
      stream.enqueue(DriverCall.FREE_ASYNC, "free", (h, none) -> world.driver.freeAsync(h, 1));
      assertThat(stream.isReached(before)).isTrue();
      work(other, "others'");
      other.after(before);
      tryOnce(world);
      tryOnce(world);
      assertThat(ordered).hasValue(0);
      world.driver.blockDefaultStream(false);
      World.until("it is ordered", () -> ordered.get() == 1);
      work(stream, "after");
      Completion<Void> reached = stream.reached();
      world.driver.endOne(stream);
      world.driver.endOne(stream);
      world.driver.endOne(other);
      assertThat(world.driver.ended()).containsExactly("free", "others'");
      assertThat(reached.isDone()).isFalse();
      world.driver.endForeign(foreign[0]);
      reached.await();
      assertThat(world.driver.ended()).endsWith("foreign", "after");
      assertThat(ordered).hasValue(1);
    }
  }

  /** Whoever uses the stream next makes the order, without waiting for the owner. */
  @Test
  void whoUsesTheStreamNextMakesTheOrder() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign))) {
      DeviceStream stream = world.context.stream();
      AtomicInteger ordered = new AtomicInteger();
      CountDownLatch hold = new CountDownLatch(1);
      staysLent(world, foreign[0], stream, ordered::incrementAndGet);
      staysLentAgain(world, foreign[0], stream, ordered);
      Completion<Boolean> held = world.context.owner().call(() -> holdOwner(hold));
      world.driver.blockDefaultStream(false);
      Completion<Void> reached = stream.reached();
      assertThat(reached.isDone()).isFalse();
      hold.countDown();
      held.await();
      World.until("both are told", () -> ordered.get() == 2);
      world.driver.endForeign(foreign[0]);
      world.driver.endForeign(foreign[0]);
      reached.await();
      assertThat(ordered).hasValue(2);
    }
  }

  /** Two tasks on one stream, whose bodies ran at once. */
  private static void staysLentAgain(
      World world, long foreign, DeviceStream stream, AtomicInteger ordered) {
    world.driver.foreignWork(foreign, "another");
    LateOrder second = new LateOrder(stream.core(), anEvent(world), ordered::incrementAndGet);
    stream.core().owe(second);
  }

  private static long anEvent(World world) {
    return world.context.driverCall(
        DriverCall.EVENT_CREATE,
        "create an event",
        () -> world.driver.eventCreate(world.context.nativeContext()));
  }

  private static boolean holdOwner(CountDownLatch hold) throws InterruptedException {
    hold.await();
    return true;
  }

  @Test
  void whereItsStreamIsClosedItsEndIsWaitedFor() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign))) {
      DeviceStream stream = world.context.openStream(0);
      AtomicInteger ordered = new AtomicInteger();
      assertThatThrownBy(
              () ->
                  world.context.foreign(
                      stream,
                      () -> {
                        world.driver.foreignWork(foreign[0], "foreign");
                        stream.close();
                        return null;
                      },
                      ordered::incrementAndGet))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("was closed");
      World.until("its end is waited for", () -> isWaitedFor(world));
      assertThat(ordered).hasValue(0);
      world.driver.endForeign(foreign[0]);
      World.until("it has ended", () -> ordered.get() == 1);
    }
  }

  private static boolean isWaitedFor(World world) {
    return world.driver.count("signal") > 0 && world.driver.count("defaultStreamRecord") > 0;
  }

  @Test
  void aLossEndsWhatIsKept() {
    long[] foreign = new long[1];
    World world = new World(withDefaultStream(foreign));
    AtomicInteger ordered = new AtomicInteger();
    staysLent(world, foreign[0], world.context.stream(), ordered::incrementAndGet);
    world.driver.fail("as the test wants");
    World.until("it is told", () -> ordered.get() == 1);
    world.context.close();
    world.close();
  }

  @Test
  void aContextThatClosesWaitsForAWhileAndThenGivesUp() {
    long[] foreign = new long[1];
    World world =
        new World(withDefaultStream(foreign), DeviceConfig.defaults().withCloseNanos(20_000_000));
    AtomicInteger ordered = new AtomicInteger();
    staysLent(world, foreign[0], world.context.stream(), ordered::incrementAndGet);
    world.driver.automatic();
    world.context.close();
    assertThat(ordered).hasValue(0);
    assertThat(world.driver.openEvents()).isZero();
    assertThat(world.driver.count("release")).isEqualTo(1);
    world.close();
    assertThat(ordered).hasValue(0);
  }

  @Test
  void aContextThatClosesMakesTheOrderFirst() throws Exception {
    long[] foreign = new long[1];
    World world = new World(withDefaultStream(foreign));
    AtomicInteger ordered = new AtomicInteger();
    staysLent(world, foreign[0], world.context.stream(), ordered::incrementAndGet);
    world.driver.automatic();
    Thread closer = Thread.ofPlatform().start(world.context::close);
    World.until("it takes no more", () -> refuses(world, world.context.stream()));
    tryOnce(world);
    assertThat(world.driver.count("release")).isZero();
    world.driver.blockDefaultStream(false);
    closer.join();
    assertThat(ordered).hasValue(1);
    world.close();
  }

  @Test
  void thatItEndsBeforeIsFound() {
    try (Mutant.Handle _ = Mutant.enable("foreign.late.forgotten")) {
      assertThatThrownBy(this::asLongAsNobodyKnowsWhereTheWorkEndsItIsKept)
          .isInstanceOf(AssertionError.class);
    }
  }

  private static void refuse(World world, DriverCall call) {
    world.driver.refuseNext(call, DriverException.OUT_OF_MEMORY, "OUT_OF_MEMORY");
  }

  @Test
  void aCallThatWaitsForAThreadCanBeCancelledAndOneThatHasBegunIsWaitedFor() throws Exception {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign));
        TaskScope<Integer> scope = world.tasks.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      DeviceStream stream = world.context.stream();
      CountDownLatch all = new CountDownLatch(ForeignThreads.THREADS);
      CountDownLatch go = new CountDownLatch(1);
      for (int i = 0; i < ForeignThreads.THREADS; i++) {
        scope.fork(
            ForkOptions.DEFAULT.eager(true),
            () -> world.context.foreign(stream, () -> hold(all, go)));
      }
      all.await();
      AtomicInteger began = new AtomicInteger();
      Fork<Integer> waits =
          scope.fork(
              ForkOptions.DEFAULT.eager(true),
              () -> world.context.foreign(stream, began::incrementAndGet));
      waits.task().cancel(null);
      World.until("it has given up", () -> waits.state() != Fork.State.RUNNING);
      assertThat(waits.failure()).isInstanceOf(TaskCancelledException.class);
      go.countDown();
      scope.join();
      assertThat(began).hasValue(0);
    }
  }

  private static int hold(CountDownLatch all, CountDownLatch go) throws InterruptedException {
    all.countDown();
    go.await();
    return 0;
  }

  @Test
  void aBodyInsideABodyIsToldThatItWouldWaitForItself() {
    long[] foreign = new long[1];
    try (World world = new World(withDefaultStream(foreign))) {
      DeviceStream stream = world.context.stream();
      assertThatThrownBy(
              () ->
                  world.context.foreign(stream, () -> world.context.foreign(stream, () -> "never")))
          .isInstanceOf(EngineException.class)
          .hasMessageContaining("from inside one of its own calls");
    }
  }

  @Test
  void aContextThatClosesWaitsForABodyAndTakesNoOther() throws Exception {
    long[] foreign = new long[1];
    World world = new World(withDefaultStream(foreign));
    DeviceStream stream = world.context.stream();
    CountDownLatch began = new CountDownLatch(1);
    CountDownLatch go = new CountDownLatch(1);
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread caller =
        Thread.ofPlatform()
            .start(
                () -> {
                  try {
                    world.context.foreign(
                        stream,
                        () -> {
                          began.countDown();
                          go.await();
                          world.driver.foreignWork(foreign[0], "foreign");
                          return null;
                        });
                  } catch (RuntimeException e) {
                    failure.set(e);
                  }
                });
    began.await();
    world.driver.automatic();
    Thread closer = Thread.ofPlatform().start(world.context::close);
    World.until("it takes no more", () -> refuses(world, stream));
    assertThat(world.driver.count("release")).isZero();
    go.countDown();
    caller.join();
    closer.join();
    assertThat(failure).hasValue(null);
    assertThat(world.driver.ended()).contains("foreign");
    assertThat(world.driver.count("release")).isEqualTo(1);
    assertThat(world.driver.openEvents()).isZero();
    world.close();
  }

  private static boolean refuses(World world, DeviceStream stream) {
    try {
      world.context.foreign(stream, () -> null);
      return false;
    } catch (DeviceException e) {
      return false; // it is still asked
    } catch (EngineException | IllegalStateException e) {
      return true;
    }
  }

  @Test
  void aLostContextSaysSo() {
    long[] foreign = new long[1];
    World world = new World(withDefaultStream(foreign));
    DeviceStream stream = world.context.stream();
    assertThatThrownBy(
            () ->
                world.context.foreign(
                    stream,
                    () -> {
                      world.driver.fail("as the test wants");
                      return null;
                    }))
        .isInstanceOf(DeviceLostException.class);
    assertThatThrownBy(() -> world.context.foreign(stream, () -> null))
        .isInstanceOf(DeviceLostException.class);
    world.context.close();
    world.close();
  }

  @Test
  void withoutADefaultStreamTheBodyBeginsWhenTheStreamHasEnded() throws Exception {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.stream();
      work(stream, "before");
      AtomicInteger began = new AtomicInteger();
      Thread caller =
          Thread.ofPlatform().start(() -> world.context.foreign(stream, began::incrementAndGet));
      World.until("it waits", () -> stream.core().waiting() == 1);
      assertThat(began).hasValue(0);
      world.driver.endOne(stream);
      caller.join();
      assertThat(began).hasValue(1);
      assertThat(world.driver.count("defaultStream")).isZero();
    }
  }
}
