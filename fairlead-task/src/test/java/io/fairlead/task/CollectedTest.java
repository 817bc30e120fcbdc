package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class CollectedTest {

  private static void collectUntil(String what, BooleanSupplier condition) {
    Eventually.holds(
        what,
        () -> {
          System.gc();
          return condition.getAsBoolean();
        });
  }

  @Test
  void itIsToldOnOneThreadOfTheCleanersRole() {
    List<Thread> threads = new ArrayList<>();
    AtomicInteger told = new AtomicInteger();
    AtomicReference<Role> role = new AtomicReference<>();
    Collected.register(
        new Object(),
        () -> {
          threads.add(Thread.currentThread());
          told.incrementAndGet();
        });
    Collected own =
        new Collected(new Object()) {
          @Override
          protected void collected() {
            threads.add(Thread.currentThread());
            role.set(Role.current());
            told.incrementAndGet();
          }
        };
    collectUntil("both are told", () -> told.get() == 2);
    assertThat(threads.getFirst()).isSameAs(threads.getLast());
    assertThat(role).hasValue(Role.CLEANER);
    assertThat(own.refersTo(null)).isTrue();
  }

  @Test
  void anActionRunsOnceWhoeverAsks() {
    AtomicInteger ran = new AtomicInteger();
    Object kept = new Object();
    Cleaner.Cleanable first = Collected.register(kept, ran::incrementAndGet);
    Cleaner.Cleanable second = Collected.register(new Object(), ran::incrementAndGet);
    first.clean();
    first.clean();
    try {
      collectUntil("the second is told", () -> ran.get() == 2);
      second.clean();
      first.clean();
      assertThat(ran).hasValue(2);
    } finally {
      Reference.reachabilityFence(kept);
    }
  }

  @Test
  void oneThatThrowsStopsNoOther() {
    AtomicInteger ran = new AtomicInteger();
    Collected.register(
        new Object(),
        () -> {
          ran.incrementAndGet();
          throw new IllegalStateException("on purpose");
        });
    collectUntil("the first is told", () -> ran.get() == 1);
    Collected.register(new Object(), ran::incrementAndGet);
    collectUntil("the second is told", () -> ran.get() == 2);
  }
}
