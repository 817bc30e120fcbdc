package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.fault.Mutant;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The turn by itself. */
@Timeout(60)
class StrandTest {
  private static final int ROUNDS = 20_000;

  /** Counts how often it was given the turn. */
  private static final class Counting extends Strand.Member {
    final AtomicInteger turns = new AtomicInteger();

    @Override
    void goOn() {
      turns.incrementAndGet();
    }
  }

  @Test
  void theTurnGoesToWhoWaitsLongest() {
    Strand strand = new Strand(); // taken
    Counting[] members = {new Counting(), new Counting(), new Counting()};
    for (Counting member : members) {
      strand.enter(member);
      assertThat(member.turns).hasValue(0);
    }
    for (Counting member : members) {
      strand.pass();
      assertThat(member.turns).hasValue(1);
    }
    assertThat(strand.isFree()).isFalse();
    strand.pass();
    assertThat(strand.isFree()).isTrue();
    Counting alone = new Counting();
    strand.enter(alone);
    assertThat(alone.turns).hasValue(1);
  }

  @Test
  void aMemberThatEntersWhileTheTurnIsGivenUpGetsIt() throws Exception {
    assertThat(lost(ROUNDS)).isZero();
  }

  @Test
  void withoutTheSecondLookOneIsLost() throws Exception {
    assumeTrue(
        Runtime.getRuntime().availableProcessors() > 1,
        "the two hardly ever meet: there is one processor");
    try (Mutant.Handle _ = Mutant.enable("strand.no-second-look")) {
      long end = System.nanoTime() + 30_000_000_000L;
      int lost = 0;
      while (lost == 0 && System.nanoTime() - end < 0) {
        lost = lost(ROUNDS);
      }
      assertThat(lost).isPositive();
    }
  }

  /** How often a member waited for ever that entered as the turn was given up. */
  private static int lost(int rounds) throws Exception {
    Strand[] strands = new Strand[rounds];
    Counting[] members = new Counting[rounds];
    for (int i = 0; i < rounds; i++) {
      strands[i] = new Strand();
      members[i] = new Counting();
    }
    CyclicBarrier start = new CyclicBarrier(2);
    AtomicInteger at = new AtomicInteger();
    Thread passer =
        Thread.ofPlatform()
            .start(
                () -> {
                  meet(start);
                  for (int i = 0; i < rounds; i++) {
                    follow(at, i);
                    strands[i].pass();
                  }
                });
    meet(start);
    for (int i = 0; i < rounds; i++) {
      at.set(i + 1);
      strands[i].enter(members[i]);
    }
    passer.join();
    int lost = 0;
    for (Counting member : members) {
      assertThat(member.turns.get()).isLessThan(2);
      lost += member.turns.get() == 0 ? 1 : 0;
    }
    return lost;
  }

  private static void follow(AtomicInteger at, int round) {
    while (at.get() <= round) {
      Thread.onSpinWait();
    }
  }

  private static void meet(CyclicBarrier barrier) {
    try {
      barrier.await();
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }
}
