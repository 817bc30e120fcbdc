package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;

class CarrierWatchTest {
  private static final CountDownLatch SEEN = new CountDownLatch(1);

  /** A class that is being initialized keeps the task, which waits in it, on its carrier. */
  private static final class Pins {
    static final boolean DONE = awaitSeen();

    private static boolean awaitSeen() {
      try {
        SEEN.await();
        return true;
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }

  @Test
  void seesACarrierThatIsBlocked() throws InterruptedException {
    try (CarrierWatch watch = CarrierWatch.begin()) {
      Thread task = Thread.ofVirtual().start(() -> assertThat(Pins.DONE).isTrue());
      while (watch.blocked() == 0) {
        LockSupport.parkNanos(1_000_000);
      }
      SEEN.countDown();
      task.join();
    }
  }
}
