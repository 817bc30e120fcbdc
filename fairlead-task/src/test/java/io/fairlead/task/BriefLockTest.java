package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.Mutant;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;

/** Locks that an owner's affine tasks and its commands both take. */
@Timeout(60)
@DisabledIfSystemProperty(
    named = "fairlead.test.closed",
    matches = "true",
    disabledReason = "there are no own carriers where the package is closed")
class BriefLockTest {
  private static final Duration SOON = Duration.ofSeconds(20);

  @Test
  void aCommandAndAnAffineTaskBothGetIt() {
    assertBothGetIt(_ -> new OfLock(new BriefLock()));
  }

  /** What the class is for, and a monitor is no help. */
  @Test
  void aPlainLockHangsBothAndSoDoesAMonitor() {
    // never closed: their owners' threads wait for ever
    assertThat(bothHang(runtime(), new OfLock(new ReentrantLock()))).isTrue();
    assertThat(bothHang(runtime(), new OfMonitor())).isTrue();
  }

  /** Nobody who makes what is looked after so, or closes it, knows of a lock there. */
  @Test
  void bothGetToTheListOfWhatIsToBeCollected() {
    assertBothGetIt(_ -> new OfCollected());
  }

  @Test
  void bothEnterAnEngineThatLetsInOneAtATime() {
    Gate gate = Gate.of("narrow", ThreadRule.ONE_AT_A_TIME, null, Set.of(), null);
    assertBothGetIt(_ -> new OfGate(gate));
  }

  @Test
  void theMutantThatQueuesIsFound() {
    TaskRuntime lost = runtime();
    try (Mutant.Handle queues = Mutant.enable("owner.queues-for-locks")) {
      assertThat(queues).isNotNull();
      assertThat(bothHang(lost, new OfLock(new BriefLock()))).isTrue();
    }
  }

  @Test
  void aTaskThatWaitsLetsTheHolderGoOnIfThatIsSuspended() {
    try (TaskRuntime tasks = runtime()) {
      Owner owner = tasks.owner("home", Role.OWNER);
      BriefLock lock = new BriefLock();
      Completion.Source<String> open = Completion.source();
      Completion<String> holds =
          owner.affine(
              () -> {
                lock.lock();
                try {
                  return open.completion().await(); // it must not; the others go on all the same
                } finally {
                  lock.unlock();
                }
              });
      Eventually.holds("it holds the lock", lock::isLocked);
      AtomicInteger begun = new AtomicInteger();
      Completion<Integer> waits =
          owner.affine(
              () -> {
                begun.incrementAndGet();
                lock.lock();
                try {
                  return lock.getHoldCount();
                } finally {
                  lock.unlock();
                }
              });
      Eventually.holds("it comes for the lock", () -> begun.get() == 1);
      open.complete("open");
      assertThat(holds.await(SOON)).isEqualTo("open");
      assertThat(waits.await(SOON)).isEqualTo(1);
    }
  }

  @Test
  void itIsReentrantAndExclusive() throws InterruptedException {
    BriefLock lock = new BriefLock();
    int[] count = {0};
    Thread[] threads = new Thread[4];
    for (int t = 0; t < threads.length; t++) {
      threads[t] =
          Thread.ofVirtual()
              .start(
                  () -> {
                    for (int i = 0; i < 10_000; i++) {
                      twice(lock, () -> count[0]++);
                    }
                  });
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertThat(count[0]).isEqualTo(40_000);
  }

  private static void twice(BriefLock lock, Runnable body) {
    lock.lock();
    try {
      new OfLock(lock).hold(body);
    } finally {
      lock.unlock();
    }
  }

  private static TaskRuntime runtime() {
    return TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.OWN));
  }

  private static void assertBothGetIt(Function<TaskRuntime, Held> held) {
    TaskRuntime tasks = runtime();
    Visit visit = new Visit(tasks.owner("home", Role.OWNER), held.apply(tasks));
    // in vain where the task keeps the thread, and so the command away
    Eventually.holdsWithin(Duration.ofMillis(300), visit::bothStand);
    visit.free.countDown();
    assertThat(Eventually.holdsWithin(SOON, visit::isOver)).as("both got it").isTrue();
    tasks.close(); // only now: it would wait for those that hang
  }

  private static boolean bothHang(TaskRuntime tasks, Held held) {
    Visit visit = new Visit(tasks.owner("home", Role.OWNER), held);
    Eventually.holds("both wait for it", visit::bothStand);
    visit.free.countDown();
    return !Eventually.holdsWithin(Duration.ofSeconds(3), visit::isOver);
  }

  /**
   * Somebody elsewhere holds it; an affine task comes for it, then a command of the same owner;
   * then it is free.
   */
  private static final class Visit {
    final CountDownLatch free = new CountDownLatch(1);
    private final List<Thread> comers = new CopyOnWriteArrayList<>();
    private final Completion<Integer> affine;
    private final Completion<Integer> command;

    Visit(Owner owner, Held held) {
      CountDownLatch taken = new CountDownLatch(1);
      Thread.ofPlatform().daemon().start(() -> held.hold(() -> keep(taken)));
      Eventually.holds("it is held", () -> taken.getCount() == 0);
      affine = owner.affine(() -> come(held));
      Eventually.holds("the task comes", () -> comers.size() == 1);
      command = owner.tryCall(() -> come(held));
    }

    private void keep(CountDownLatch taken) {
      taken.countDown();
      while (free.getCount() > 0) {
        LockSupport.parkNanos(100_000);
      }
    }

    private int come(Held held) {
      comers.add(Thread.currentThread());
      held.pass();
      return 1;
    }

    /** Whether both wait until they are woken: who looks again and again does not. */
    boolean bothStand() {
      return comers.size() == 2 && comers.stream().allMatch(Visit::stands);
    }

    private static boolean stands(Thread thread) {
      return switch (thread.getState()) {
        case WAITING, BLOCKED -> true;
        case NEW, RUNNABLE, TIMED_WAITING, TERMINATED -> false;
      };
    }

    boolean isOver() {
      return affine.isDone() && command.isDone();
    }
  }

  private interface Held {
    void hold(Runnable body);

    /** Holds it as briefly as those who come for it do. */
    default void pass() {
      hold(() -> {});
    }
  }

  private record OfLock(ReentrantLock lock) implements Held {
    @Override
    public void hold(Runnable body) {
      lock.lock();
      try {
        body.run();
      } finally {
        lock.unlock();
      }
    }
  }

  private static final class OfCollected implements Held {
    @Override
    public void hold(Runnable body) {
      new OfLock(Collected.Action.LOCK).hold(body);
    }

    @Override
    public void pass() {
      Collected.register(new Object(), () -> {}).clean();
    }
  }

  private record OfGate(Gate gate) implements Held {
    @Override
    public void hold(Runnable body) {
      gate.<@Nullable Void>call(
          "hold",
          () -> {
            body.run();
            return null;
          });
    }
  }

  private static final class OfMonitor implements Held {
    private final Object monitor = new Object();

    @Override
    public void hold(Runnable body) {
      synchronized (monitor) {
        body.run();
      }
    }
  }
}
