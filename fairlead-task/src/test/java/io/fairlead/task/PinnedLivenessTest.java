package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.Mutant;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;

/**
 * A task that may run on one carrier only waits for it, and nobody else touches it. Where such
 * tasks lie in a queue that all carriers take from, those that may not run them take them and put
 * them back for ever: all threads are busy, and nothing goes on. Found by counting, not by time:
 * what a free carrier does while a task waits for another one is bounded by what it has to do.
 */
@Timeout(120)
@DisabledIfSystemProperty(
    named = "fairlead.test.closed",
    matches = "true",
    disabledReason = "there are no own carriers where the package is closed")
class PinnedLivenessTest {
  /** Pieces of other work that the free carrier is given. */
  private static final int PIECES = 50;

  /** A wake, a look around, the piece itself, and once more before it parks. */
  private static final int TURNS_PER_PIECE = 8;

  /** Nobody takes as often as this without being in a circle. */
  private static final int TURNS_OF_A_CIRCLE = 10 * PIECES * TURNS_PER_PIECE;

  private final AtomicBoolean stop = new AtomicBoolean();
  private Carriers carriers;

  @BeforeEach
  void open() {
    // no watcher: its spares would be a third party
    carriers = new Carriers("pinned", 2).startUnwatched();
  }

  @AfterEach
  void close() {
    stop.set(true);
    carriers.close();
  }

  /** A task that stays where it first ran; made ready once while its carrier is busy. */
  private final class Pinned {
    final AtomicReference<Carrier> home = new AtomicReference<>();
    final CountDownLatch ended = new CountDownLatch(1);
    final AtomicBoolean go = new AtomicBoolean();
    final Thread thread =
        carriers.threadThatStays(
            () -> {
              home.set((Carrier) VirtualThreads.carrier());
              while (!go.get()) {
                LockSupport.park();
              }
              assertThat(VirtualThreads.carrier()).isSameAs(home.get());
              ended.countDown();
            });

    void start() {
      thread.start();
      Eventually.holds("it waits", () -> home.get() != null);
      Eventually.waits(thread);
    }

    void makeReady() {
      go.set(true);
      LockSupport.unpark(thread);
    }
  }

  /** Has the carrier busy with a task that does not suspend; gives the other one. */
  private Carrier keepBusy(Carrier home, AtomicBoolean until) {
    AtomicBoolean elsewhere = new AtomicBoolean();
    AtomicInteger busy = new AtomicInteger();
    for (int i = 0; i < 2; i++) {
      carriers
          .thread(
              () -> {
                Thread mine = VirtualThreads.carrier();
                busy.incrementAndGet();
                while (!until.get() && !stop.get() && !(mine != home && elsewhere.get())) {
                  Thread.onSpinWait();
                }
              })
          .start();
    }
    Eventually.holds("both are busy", () -> busy.get() == 2);
    elsewhere.set(true);
    Carrier[] all = carriers.all();
    return all[0] == home ? all[1] : all[0];
  }

  private void doPieces() {
    for (int i = 0; i < PIECES; i++) {
      CountDownLatch ran = new CountDownLatch(1);
      carriers.thread(ran::countDown).start();
      TaskScopeTest.awaitQuietly(ran);
    }
  }

  @Test
  void nobodyElseTouchesATaskThatWaitsForItsCarrier() {
    Pinned pinned = new Pinned();
    pinned.start();
    AtomicBoolean until = new AtomicBoolean();
    Carrier free = keepBusy(pinned.home.get(), until);
    pinned.makeReady();
    Eventually.holds("the free carrier rests", free::isParked);
    long turns = free.turns();
    doPieces();
    assertThat(free.turns() - turns).isLessThanOrEqualTo(PIECES * TURNS_PER_PIECE);
    assertThat(pinned.ended.getCount()).as("its carrier is busy").isEqualTo(1);
    until.set(true);
    TaskScopeTest.awaitQuietly(pinned.ended);
  }

  @Test
  void theTestAboveFindsCarriersThatTakeAndPutBack() {
    try (Mutant.Handle _ = Mutant.enable("initial.in-common-queue")) {
      Pinned pinned = new Pinned();
      pinned.start();
      AtomicBoolean until = new AtomicBoolean();
      Carrier free = keepBusy(pinned.home.get(), until);
      long turns = free.turns();
      pinned.makeReady();
      Eventually.holds("it takes and puts back", () -> free.turns() - turns > TURNS_OF_A_CIRCLE);
      until.set(true);
      TaskScopeTest.awaitQuietly(pinned.ended);
    }
  }
}
