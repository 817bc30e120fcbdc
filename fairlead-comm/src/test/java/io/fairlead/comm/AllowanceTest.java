package io.fairlead.comm;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.Mutant;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** How much may be out, and who waits for it. */
@Timeout(60)
class AllowanceTest {
  private static final int THREADS = 4;
  private static final int ROUNDS = 4_000;
  private static final int MAX = 5;

  @Test
  void whoCannotWaitIsAnsweredWhileSomebodyHoldsTheLock() throws Exception {
    Allowance allowance = new Allowance(1);
    assertThat(allowance.tryTake(1)).isTrue();
    CountDownLatch inside = new CountDownLatch(1);
    CountDownLatch leaves = new CountDownLatch(1);
    AtomicBoolean holds = new AtomicBoolean();
    Thread waits =
        Thread.ofPlatform()
            .start(() -> allowance.take(1, () -> holds.get() && isHeld(inside, leaves)));
    Eventually.is(1, "who waits", allowance::waiting);
    holds.set(true);
    Thread looks = Thread.ofPlatform().start(allowance::look); // asks under the lock
    inside.await();
    AtomicBoolean answered = new AtomicBoolean();
    Thread manager =
        Thread.ofPlatform()
            .start(
                () -> {
                  boolean taken = allowance.tryTake(1);
                  long out = allowance.out();
                  answered.set(!taken && out == 1);
                });
    try {
      Eventually.holds("an answer", answered::get);
    } finally {
      leaves.countDown();
    }
    manager.join();
    looks.join();
    allowance.give(1);
    waits.join();
    assertThat(allowance.out()).isEqualTo(1);
  }

  private static boolean isHeld(CountDownLatch inside, CountDownLatch leaves) {
    inside.countDown();
    try {
      leaves.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
    return false;
  }

  @Test
  void nobodyPassesWhoWaits() {
    assertThat(passes()).isFalse();
  }

  @Test
  void theMutantThatPassesIsFound() {
    try (Mutant.Handle mutant = Mutant.enable("allowance.passes-who-waits")) {
      assertThat(mutant).isNotNull();
      assertThat(passes()).isTrue();
    }
  }

  /** One is left, and one waits for two. */
  private static boolean passes() {
    Allowance allowance = new Allowance(2);
    assertThat(allowance.tryTake(1)).isTrue();
    Allowance.Waiter waiter = allowance.queue(2, () -> false);
    assertThat(waiter.source().completion().isDone()).isFalse();
    return allowance.tryTake(1);
  }

  @Test
  void whatWasGivenBackJustBeforeIsSeen() {
    assertThat(isServedAtOnce()).isTrue();
  }

  @Test
  void theMutantThatLooksNoMoreIsFound() {
    try (Mutant.Handle mutant = Mutant.enable("allowance.looks-no-more")) {
      assertThat(mutant).isNotNull();
      assertThat(isServedAtOnce()).isFalse();
    }
  }

  /** As if another had given between the try and the queue. */
  private static boolean isServedAtOnce() {
    return new Allowance(1).queue(1, () -> false).source().completion().isDone();
  }

  @Test
  void theQueueIsServedInItsOrder() {
    Allowance allowance = new Allowance(3);
    assertThat(allowance.tryTake(3)).isTrue();
    Allowance.Waiter large = allowance.queue(2, () -> false);
    Allowance.Waiter small = allowance.queue(1, () -> false);
    allowance.give(1);
    assertThat(small.source().completion().isDone()).as("before the large one").isFalse();
    allowance.give(1);
    assertThat(large.source().completion().isDone()).isTrue();
    assertThat(small.source().completion().isDone()).isFalse();
    allowance.give(1);
    assertThat(small.source().completion().isDone()).isTrue();
    assertThat(allowance.out()).isEqualTo(3);
    allowance.give(3);
    assertThat(allowance.tryTake(3)).as("nobody waits any more").isTrue();
  }

  @Test
  void moreThanCanBeCountedIsNoLimit() {
    Allowance allowance = new Allowance(Long.MAX_VALUE);
    assertThat(allowance.tryTake(1L << 60)).isTrue();
    assertThat(allowance.out()).isEqualTo(1L << 60);
    allowance.give(1L << 60);
    assertThat(allowance.out()).isZero();
  }

  /** Those who wait, those who cannot, and those who give up, at random. */
  @Test
  void underLoadAllComesBackAndNobodyIsForgotten() throws Exception {
    long seed = System.nanoTime();
    System.out.println("AllowanceTest seed " + seed);
    Allowance allowance = new Allowance(MAX);
    AtomicLong out = new AtomicLong();
    AtomicLong tooMuch = new AtomicLong();
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < THREADS; t++) {
      Random random = new Random(seed + t);
      threads.add(Thread.ofPlatform().start(() -> load(allowance, random, out, tooMuch)));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertThat(tooMuch).as("seed %s", seed).hasValue(0);
    assertThat(allowance.out()).as("seed %s", seed).isZero();
    assertThat(allowance.waiting()).as("seed %s", seed).isZero();
    assertThat(allowance.tryTake(MAX)).as("seed %s", seed).isTrue();
  }

  private static void load(Allowance allowance, Random random, AtomicLong out, AtomicLong tooMuch) {
    for (int i = 0; i < ROUNDS; i++) {
      int amount = 1 + random.nextInt(MAX);
      boolean taken =
          switch (random.nextInt(8)) {
            case 0, 1, 2 -> allowance.take(amount, () -> false);
            case 3 -> allowance.take(amount, () -> true);
            default -> allowance.tryTake(amount);
          };
      if (taken) {
        if (out.addAndGet(amount) > MAX) {
          tooMuch.incrementAndGet();
        }
        if (random.nextInt(4) == 0) {
          Thread.onSpinWait();
        }
        out.addAndGet(-amount);
        allowance.give(amount);
      }
    }
  }
}
