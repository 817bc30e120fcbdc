package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceStream;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** In which order an entry is counted, found, and given back. */
class ReclaimerTest {
  private static final int BYTES = 1024;

  private final TestDevice world = TestDevice.stepped();

  @AfterEach
  void close() {
    world.close();
  }

  /** A block that somebody takes at every moment at which it can be found. */
  private static final class Wanted extends Reclaimer.Entry {
    long counted;
    long least;
    boolean isTaken;

    Wanted(Frontier frontier, Charge charge) {
      super(frontier, charge);
    }

    private void take() {
      if (takeReleased()) {
        isTaken = true;
        count(-BYTES);
      }
    }

    private void count(long bytes) {
      counted += bytes;
      least = Math.min(least, counted);
    }

    @Override
    void reaching() {
      take();
      count(BYTES);
      take();
    }

    @Override
    void missed() {
      count(-BYTES);
    }

    @Override
    void reached() {
      take();
    }
  }

  private Wanted used(Budget budget) {
    DeviceStream stream = world.newStream();
    DeviceBuffer buffer = world.device.allocate(BYTES);
    stream.fill(buffer, 0, BYTES, (byte) 1);
    buffer.close();
    Charge charge = budget.tryCharge(new Account("test", 1, null), BYTES);
    assertThat(charge).isNotNull();
    budget.closing(charge);
    return new Wanted(new Frontier(stream.mark(), List.of()), charge);
  }

  @Test
  void nobodyFindsABlockThatIsNotCounted() {
    Budget budget = new Budget(BYTES);
    Reclaimer reclaimer = new Reclaimer(budget);
    Wanted swept = used(budget);
    reclaimer.add(swept);
    Completion<Void> all = world.device.context().reached();
    world.stepper().completeAll();
    assertThat(all.isDone()).isTrue();
    reclaimer.sweep();
    assertThat(swept.isTaken).isTrue();
    assertThat(swept.least).as("as a pool counts what it keeps").isZero();
    assertThat(swept.counted).isZero();
    assertThat(budget.pendingFree()).isZero();
  }

  @Test
  void whatWasTakenBeforeIsNotCounted() {
    Budget budget = new Budget(BYTES);
    Reclaimer reclaimer = new Reclaimer(budget);
    Wanted taken = used(budget);
    reclaimer.add(taken);
    assertThat(taken.takeUnreached()).isTrue();
    world.stepper().completeAll();
    reclaimer.sweep();
    assertThat(taken.counted).isZero();
    assertThat(budget.pendingFree()).as("who took it has the charge").isEqualTo(BYTES);
  }

  @Test
  void countingItLateIsFound() {
    try (var _ = Mutant.enable("pool.ready.late")) {
      assertThatThrownBy(this::nobodyFindsABlockThatIsNotCounted)
          .isInstanceOf(AssertionError.class)
          .hasMessageContaining("as a pool counts what it keeps");
    }
  }
}
