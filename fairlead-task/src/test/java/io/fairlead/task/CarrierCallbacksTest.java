package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Callbacks run within a carrier's poll, and some block, though none should: for a lock that is
 * held, most often. Whatever is ready must go on meanwhile, for it may be what they wait for.
 */
@Timeout(120)
@DisabledIfSystemProperty(
    named = "fairlead.test.closed",
    matches = "true",
    disabledReason = "there are no own carriers where the package is closed")
class CarrierCallbacksTest {
  private static final long SECONDS_MAX = 5;

  private final List<Carriers> opened = new ArrayList<>();

  private Carriers carriers(int regulars) {
    Carriers carriers = new Carriers("test", regulars).start();
    opened.add(carriers);
    sleeps(carriers);
    return carriers;
  }

  /** So that it is a carrier that polls, woken for that. */
  private static void sleeps(Carriers carriers) {
    Eventually.holds(
        "all sleep",
        () ->
            carriers.isWatcherAsleep()
                && Arrays.stream(carriers.all()).allMatch(Carrier::isParked));
  }

  @AfterEach
  void close() {
    opened.forEach(Carriers::close);
  }

  /** Once it is rung, its next poll does something. */
  private static final class Once implements PollSource {
    private final Runnable what;
    private final AtomicBoolean pending = new AtomicBoolean(true);

    Once(Runnable what) {
      this.what = what;
    }

    @Override
    public int poll() {
      if (!pending.compareAndSet(true, false)) {
        return 0;
      }
      what.run();
      return 1;
    }

    @Override
    public boolean hasPending() {
      return pending.get();
    }
  }

  /** A completion with a callback, whose settling runs it. */
  private static Runnable settles(Runnable callback) {
    Completion.Source<String> source = Completion.source();
    source.completion().onDone(_ -> callback.run());
    return () -> source.complete("found");
  }

  private static boolean await(CountDownLatch latch) {
    try {
      return latch.await(SECONDS_MAX, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static void locked(ReentrantLock lock, Runnable what) {
    lock.lock();
    try {
      what.run();
    } finally {
      lock.unlock();
    }
  }

  /** Who searches has nobody woken. A callback must not count as a search, however it blocks. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void whatIsReadyGoesOnWhileACallbackBlocks(int regulars) {
    Carriers carriers = carriers(regulars);
    CountDownLatch blocks = new CountDownLatch(1);
    CountDownLatch ran = new CountDownLatch(1);
    CountDownLatch done = new CountDownLatch(1);
    AtomicBoolean inTime = new AtomicBoolean();
    Once source =
        new Once(
            settles(
                () -> {
                  blocks.countDown();
                  inTime.set(await(ran));
                  done.countDown();
                }));
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    await(blocks);
    carriers.thread(ran::countDown).start();
    await(done);
    assertThat(inTime).as("the task ran while the callback waited for it").isTrue();
    carriers.removeSource(polled);
  }

  /** What the poll itself has made ready lies with the carrier that blocks. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void whatThePollFoundGoesOnWhileACallbackBlocks(int regulars) {
    assertFoundGoesOn(regulars, false);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void whatACallbackMakesReadyGoesOnWhileItBlocks(int regulars) {
    assertFoundGoesOn(regulars, true);
  }

  private void assertFoundGoesOn(int regulars, boolean byCallback) {
    Carriers carriers = carriers(regulars);
    Completion.Source<String> first = Completion.source();
    CountDownLatch ran = new CountDownLatch(1);
    AtomicBoolean inTime = new AtomicBoolean();
    CountDownLatch done = new CountDownLatch(1);
    Thread waiter =
        carriers.thread(
            () -> {
              String _ = first.completion().await();
              ran.countDown();
            });
    waiter.start();
    Eventually.holds("it waits", () -> waiter.getState() == Thread.State.WAITING);
    sleeps(carriers);
    Runnable blocking =
        settles(
            () -> {
              if (byCallback) {
                first.complete("first");
              }
              inTime.set(await(ran));
              done.countDown();
            });
    Once source =
        new Once(
            () -> {
              if (!byCallback) {
                first.complete("first");
              }
              blocking.run();
            });
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    await(done);
    assertThat(inTime).as("the task ran while the callback waited for it").isTrue();
    carriers.removeSource(polled);
  }

  /** No source should block, but what it asks may be held up by others, a driver's lock, say. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void whatIsReadyGoesOnWhileThePollOfASearcherBlocks(int regulars) {
    Carriers carriers = carriers(regulars);
    CountDownLatch blocks = new CountDownLatch(1);
    CountDownLatch ran = new CountDownLatch(1);
    CountDownLatch done = new CountDownLatch(1);
    AtomicBoolean inTime = new AtomicBoolean();
    PollSource source =
        () -> {
          boolean first = blocks.getCount() > 0;
          if (first && carriers.anySearching() && !carriers.isWatcherAsleep()) {
            blocks.countDown();
            inTime.set(await(ran));
            done.countDown();
          }
          return 0;
        };
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    Eventually.holds(
        "a searcher polls while the watcher is awake",
        () -> {
          carriers.ring();
          carriers.watch();
          return blocks.getCount() == 0;
        });
    carriers.thread(ran::countDown).start();
    await(done);
    assertThat(inTime).as("the task ran while the poll waited for it").isTrue();
    carriers.removeSource(polled);
  }

  /**
   * The task that is first in the queue can only go on on the carrier that polls: who polls must
   * not stand in the queue behind it. Nobody helps here, no watcher and no other carrier.
   */
  @Test
  void aPollDoesNotQueueBehindATaskForALockThatIsHeldForMoments() throws InterruptedException {
    Carriers carriers = new Carriers("test", 1).startUnwatched();
    opened.add(carriers);
    BriefLock lock = new BriefLock();
    AtomicInteger passed = new AtomicInteger();
    AtomicReference<Thread> polls = new AtomicReference<>();
    CountDownLatch wants = new CountDownLatch(1);
    Once source =
        new Once(
            settles(
                () -> {
                  polls.set(Thread.currentThread());
                  wants.countDown();
                  locked(lock, passed::incrementAndGet);
                }));
    Thread task = carriers.thread(() -> locked(lock, passed::incrementAndGet));
    lock.lock();
    try {
      task.start();
      Eventually.holds("the task queues", () -> lock.hasQueuedThread(task));
      Polled _ = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
      await(wants);
      Thread carrier = polls.get();
      Eventually.holds(
          "the callback waits", () -> LockSupport.getBlocker(carrier) instanceof ReentrantLock);
      assertThat(lock.hasQueuedThread(carrier)).as("it stands in the queue").isFalse();
    } finally {
      lock.unlock();
    }
    assertThat(task.join(Duration.ofSeconds(SECONDS_MAX))).as("the task ended").isTrue();
    Eventually.holds("both have had the lock", () -> passed.get() == 2);
  }
}
