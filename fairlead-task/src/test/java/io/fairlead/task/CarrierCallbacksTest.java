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
    private final AtomicBoolean pending;

    Once(Runnable what) {
      this(what, true);
    }

    Once(Runnable what, boolean pending) {
      this.what = what;
      this.pending = new AtomicBoolean(pending);
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

  /** Blocks until something has run; in vain, for so long at most. */
  private static final class Blocks implements Runnable {
    private final CountDownLatch begun = new CountDownLatch(1);
    private final CountDownLatch ran = new CountDownLatch(1);
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile boolean inTime;

    @Override
    public void run() {
      begun.countDown();
      inTime = await(ran);
      ended.countDown();
    }

    void assertItRanMeanwhile() {
      await(ended);
      assertThat(inTime).as("it ran while something blocked until it had").isTrue();
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
    Blocks blocks = new Blocks();
    Polled polled = carriers.addSource(new Once(settles(blocks)), Carriers.NAP_NANOS_MAX);
    await(blocks.begun);
    carriers.thread(blocks.ran::countDown).start();
    blocks.assertItRanMeanwhile();
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
    Blocks blocks = new Blocks();
    Thread waiter =
        carriers.thread(
            () -> {
              String _ = first.completion().await();
              blocks.ran.countDown();
            });
    waiter.start();
    Eventually.holds("it waits", () -> waiter.getState() == Thread.State.WAITING);
    sleeps(carriers);
    Runnable callback =
        settles(
            () -> {
              if (byCallback) {
                first.complete("first");
              }
              blocks.run();
            });
    Once source =
        new Once(
            () -> {
              if (!byCallback) {
                first.complete("first");
              }
              callback.run();
            });
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    blocks.assertItRanMeanwhile();
    carriers.removeSource(polled);
  }

  /** No source should block, but what it asks may be held up by others, a driver's lock, say. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void whatIsReadyGoesOnWhileThePollOfASearcherBlocks(int regulars) {
    Carriers carriers = carriers(regulars);
    Blocks blocks = new Blocks();
    PollSource source =
        () -> {
          boolean first = blocks.begun.getCount() > 0;
          if (first && carriers.anySearching() && !carriers.isWatcherAsleep()) {
            blocks.run();
          }
          return 0;
        };
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    Eventually.holds(
        "a searcher polls while the watcher is awake",
        () -> {
          carriers.ring();
          carriers.watch();
          return blocks.begun.getCount() == 0;
        });
    carriers.thread(blocks.ran::countDown).start();
    blocks.assertItRanMeanwhile();
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

  /** It uses its processor, so the system does not say that it sleeps. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void whatIsReadyGoesOnWhileACallbackSpins(int regulars) {
    Carriers carriers = carriers(regulars);
    CountDownLatch spins = new CountDownLatch(1);
    CountDownLatch ran = new CountDownLatch(1);
    CountDownLatch done = new CountDownLatch(1);
    Once source =
        new Once(
            settles(
                () -> {
                  spins.countDown();
                  spinUntil(ran);
                  done.countDown();
                }));
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    await(spins);
    carriers.thread(ran::countDown).start();
    assertThat(await(done)).as("the task ran while the callback spun for it").isTrue();
    carriers.removeSource(polled);
  }

  private static void spinUntil(CountDownLatch latch) {
    long end = System.nanoTime() + 2 * SECONDS_MAX * 1_000_000_000L;
    while (latch.getCount() > 0 && System.nanoTime() - end < 0) {
      Thread.onSpinWait();
    }
  }

  /** The one that runs it looked after all sources; a second device's, say. */
  @ParameterizedTest
  @ValueSource(ints = {2, 4})
  void otherSourcesAreSeenToWhileACallbackOfTheAttendantBlocks(int regulars) {
    Carriers carriers = carriers(regulars);
    Blocks blocks = new Blocks();
    Once other = new Once(settles(blocks.ran::countDown), false);
    Polled second = carriers.addSource(other, Carriers.NAP_NANOS_MAX);
    AtomicBoolean may = new AtomicBoolean();
    Once callback = new Once(settles(blocks));
    PollSource held =
        new PollSource() {
          @Override
          public int poll() {
            return may.get() ? callback.poll() : 0;
          }

          @Override
          public boolean hasPending() {
            return callback.hasPending();
          }
        };
    Polled first = carriers.addSource(held, Carriers.NAP_NANOS_MAX);
    Eventually.holds(
        "one attends", () -> Arrays.stream(carriers.all()).anyMatch(carriers::isAttendant));
    may.set(true);
    await(blocks.begun);
    Eventually.holds(
        "the others sleep",
        () -> Arrays.stream(carriers.all()).filter(Carrier::isParked).count() == regulars - 1);
    other.pending.set(true);
    carriers.ring();
    blocks.assertItRanMeanwhile();
    carriers.removeSource(first);
    carriers.removeSource(second);
  }

  /** Outside of any callback; nobody is told by the watcher, which sleeps. */
  @ParameterizedTest
  @ValueSource(ints = {2, 4})
  void whatIsReadyGoesOnWhileAPollWaitsForALock(int regulars) {
    Carriers carriers = carriers(regulars);
    BriefLock lock = new BriefLock();
    CountDownLatch wants = new CountDownLatch(1);
    CountDownLatch ran = new CountDownLatch(1);
    Once source =
        new Once(
            () -> {
              wants.countDown();
              locked(lock, () -> {});
            });
    Polled polled;
    lock.lock();
    try {
      polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
      await(wants);
      Eventually.holds("it counts no more", () -> !carriers.anySearching());
      carriers.thread(ran::countDown).start();
      assertThat(await(ran)).as("the task ran").isTrue();
    } finally {
      lock.unlock();
    }
    carriers.removeSource(polled);
  }

  /** It holds a lock while it waits for an inner one, and its carrier's poll wants the first. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void aTaskThatStaysDoesNotSuspendForAnInnerLock(int regulars) throws InterruptedException {
    Carriers carriers = carriers(regulars);
    BriefLock outer = new BriefLock();
    BriefLock inner = new BriefLock();
    CountDownLatch holds = new CountDownLatch(1);
    CountDownLatch wants = new CountDownLatch(1);
    CountDownLatch had = new CountDownLatch(1);
    Thread stays =
        carriers.threadThatStays(
            () ->
                locked(
                    outer,
                    () -> {
                      holds.countDown();
                      locked(inner, () -> {});
                    }));
    Once source =
        new Once(
            settles(
                () -> {
                  wants.countDown();
                  locked(outer, had::countDown);
                }));
    Polled polled;
    inner.lock();
    try {
      stays.start();
      await(holds);
      polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
      await(wants);
    } finally {
      inner.unlock();
    }
    boolean ended = stays.join(Duration.ofSeconds(SECONDS_MAX));
    if (!ended) {
      opened.clear(); // what hangs cannot be closed
    }
    assertThat(ended).as("the task ended").isTrue();
    assertThat(await(had)).as("the callback had the lock").isTrue();
    carriers.removeSource(polled);
  }

  /**
   * All carriers are busy, so the watcher polls; its callback wants a lock whose holder can go on
   * now, but has no carrier.
   */
  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void theWatcherSeesToCarriersWhileItWaitsForALock(int regulars) {
    Carriers carriers = carriers(regulars);
    BriefLock outer = new BriefLock();
    BriefLock inner = new BriefLock();
    CountDownLatch had = new CountDownLatch(1);
    Thread holder = carriers.thread(() -> locked(outer, () -> locked(inner, () -> {})));
    Polled polled;
    inner.lock();
    try {
      holder.start();
      Eventually.holds("it queues", () -> inner.hasQueuedThread(holder));
      CountDownLatch busy = new CountDownLatch(regulars);
      for (int i = 0; i < regulars; i++) {
        carriers
            .thread(
                () -> {
                  busy.countDown();
                  spinUntil(had);
                })
            .start();
      }
      await(busy);
      CountDownLatch wants = new CountDownLatch(1);
      Once source =
          new Once(
              settles(
                  () -> {
                    wants.countDown();
                    locked(outer, had::countDown);
                  }));
      polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
      await(wants);
    } finally {
      inner.unlock();
    }
    assertThat(await(had)).as("the callback had the lock").isTrue();
    carriers.removeSource(polled);
  }
}
