package io.fairlead.host;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class CurrentContextsTest {
  private final AtomicLong thread = new AtomicLong(1);
  private final CurrentContexts contexts = new CurrentContexts(thread::get);

  @Test
  void eachThreadHasItsOwn() {
    for (long t = 1; t <= 3_000; t++) {
      thread.set(t);
      assertThat(contexts.get()).isZero();
      contexts.set(t * 8);
    }
    for (long t = 1; t <= 3_000; t++) {
      thread.set(t);
      assertThat(contexts.get()).isEqualTo(t * 8);
      contexts.set(0);
      assertThat(contexts.get()).isZero();
    }
  }

  /** Threads that come and go: idle entries are swept, and a thread whose entry was comes back. */
  @Test
  void idleEntriesAreSweptAndReturn() {
    for (long t = 1; t <= 100_000; t++) {
      thread.set(t);
      contexts.set(t);
      contexts.set(0);
    }
    for (long t = 1; t <= 100_000; t += 997) {
      thread.set(t);
      assertThat(contexts.get()).isZero();
      contexts.set(t);
      assertThat(contexts.get()).isEqualTo(t);
    }
    assertThat(contexts.entries()).isLessThan(10_000);
  }
}
