package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Who gets bytes, who waits, and in which order they are served. */
class BudgetTest {
  private static final long LIMIT = 1000;

  private final Budget budget = new Budget(LIMIT);
  private final Account first = new Account("first", 1, null);
  private final Account second = new Account("second", 2, null);
  private final Account third = new Account("third", 3, null);

  @AfterEach
  void neverMoreThanTheLimit() {
    MemoryStats stats = budget.stats();
    assertThat(stats.inUse() + stats.reserved()).isBetween(0L, LIMIT);
    assertThat(stats.pendingFree()).isBetween(0L, stats.inUse());
    assertThat(stats.peak()).isBetween(stats.inUse(), LIMIT);
  }

  @Test
  void grantsAtOnceWhatFits() {
    Budget.Request request = budget.charge(first, 600);

    assertThat(request.source).isNull();
    assertThat(budget.stats()).isEqualTo(new MemoryStats(LIMIT, 600, 0, 600, 1, 0, 0, 0));
  }

  @Test
  void countsAClosedBufferUntilTheDeviceHasReachedItsFree() {
    Charge charge = granted(budget.charge(first, 600));
    budget.closing(charge);
    Budget.Request waiting = budget.charge(second, 500);

    assertThat(budget.stats().inUse()).isEqualTo(600);
    assertThat(budget.stats().pendingFree()).isEqualTo(600);
    assertThat(isGranted(waiting)).isFalse();

    budget.release(charge);

    assertThat(isGranted(waiting)).isTrue();
    assertThat(budget.stats().inUse()).isEqualTo(500);
  }

  @Test
  void servesThoseWhoBeginInTheOrderOfAsking() {
    Charge held = granted(budget.charge(first, 900));
    Budget.Request large = budget.charge(second, 800);
    Budget.Request small = budget.charge(third, 50);

    assertThat(isGranted(small)).as("50 would fit, but 800 asked before").isFalse();
    free(held);
    assertThat(isGranted(large)).isTrue();
    assertThat(isGranted(small)).isTrue();
  }

  @Test
  void letsWhoHoldsMemoryGoBeforeWhoBegins() {
    Charge held = granted(budget.charge(first, 900));
    Budget.Request begins = budget.admit(second, 800, true);
    Budget.Request goesOn = budget.charge(first, 100);

    assertThat(isGranted(goesOn)).isTrue();
    assertThat(isGranted(begins)).isFalse();

    free(held);
    free(granted(goesOn));
    assertThat(isGranted(begins)).isTrue();
  }

  @Test
  void admitsNobodyNewWhileSomebodyWhoBeganWaits() {
    Charge a = granted(budget.charge(first, 500));
    Charge b = granted(budget.charge(second, 400));
    Budget.Request goesOn = budget.charge(second, 300);
    Budget.Request begins = budget.charge(third, 50);

    assertThat(isGranted(begins)).as("50 fit, but second lacks 300 to go on").isFalse();
    free(a);
    assertThat(isGranted(goesOn)).isTrue();
    assertThat(isGranted(begins)).isTrue();
    free(b);
  }

  @Test
  void grantsWhoeverFitsAmongThoseWhoGoOn() {
    granted(budget.charge(first, 600));
    granted(budget.charge(second, 300));
    Budget.Request tooLarge = budget.charge(second, 500);
    Budget.Request fits = budget.charge(first, 100);

    assertThat(isGranted(fits)).as("else first waits for second, which waits for first").isTrue();
    assertThat(isGranted(tooLarge)).isFalse();
  }

  @Test
  void aChildGoesOnForItsParent() {
    granted(budget.charge(first, 600));
    Account child = budget.inherit(first, false, "child", 9);
    Budget.Request begins = budget.charge(second, 500);

    assertThat(isGranted(begins)).isFalse();
    assertThat(isGranted(budget.charge(child, 300))).isTrue();
  }

  @Test
  void aChildOfTheRootBeginsByItself() {
    granted(budget.charge(first, 600));
    Account child = budget.inherit(first, true, "child", 9);
    budget.charge(second, 500);

    assertThat(isGranted(budget.charge(child, 300))).isFalse();
  }

  @Test
  void aReservationIsDrawnOnByItsTaskAndItsChildren() {
    Room room = room(budget.admit(first, 700, true));
    Account child = budget.inherit(first, false, "child", 9);
    granted(budget.charge(second, 300));

    Charge own = granted(budget.charge(first, 400));
    Charge childs = granted(budget.charge(child, 300));

    assertThat(own.room).isSameAs(room);
    assertThat(childs.room).isSameAs(room);
    assertThat(budget.stats().inUse()).isEqualTo(LIMIT);
    assertThat(budget.stats().reserved()).isZero();
  }

  @Test
  void whatIsFreedInsideAReservationStaysReserved() {
    Room room = room(budget.admit(first, 700, true));
    free(granted(budget.charge(first, 400)));

    assertThat(budget.stats().reserved()).isEqualTo(700);
    assertThat(room.free()).isEqualTo(700);
  }

  @Test
  void aTaskWaitsForItsOwnFreesInsideItsReservation() {
    room(budget.admit(first, 700, true));
    Charge held = granted(budget.charge(first, 500));
    granted(budget.charge(second, 300));
    budget.closing(held);
    Budget.Request again = budget.charge(first, 500);

    assertThat(isGranted(again)).isFalse();
    budget.release(held);
    assertThat(isGranted(again)).isTrue();
  }

  @Test
  void aClosedReservationKeepsItsLiveBuffersCounted() {
    Room room = room(budget.admit(first, 700, true));
    Charge held = granted(budget.charge(first, 400));
    budget.close(room);
    budget.close(room);

    assertThat(budget.stats().inUse()).isEqualTo(400);
    assertThat(budget.stats().reserved()).isZero();
    free(held);
    assertThat(budget.stats().inUse()).isZero();
    assertThat(granted(budget.charge(first, LIMIT)).room).isNull();
  }

  @Test
  void aNestedReservationIsCarvedFromTheOneAround() {
    Room outer = room(budget.admit(first, 700, true));
    Room inner = room(budget.admit(first, 500, true));

    assertThat(inner.parent).isSameAs(outer);
    assertThat(outer.free()).isEqualTo(200);
    assertThat(budget.stats().reserved()).isEqualTo(700);

    Charge held = granted(budget.charge(first, 300));
    assertThat(held.room).isSameAs(inner);
    budget.close(inner);
    assertThat(outer.free()).as("300 are still in use").isEqualTo(400);
    free(held);
    assertThat(outer.free()).isEqualTo(700);
    budget.close(outer);
    assertThat(budget.stats().reserved()).isZero();
  }

  @Test
  void closingTheOuterReservationFirstLosesNothing() {
    Room outer = room(budget.admit(first, 700, true));
    Room inner = room(budget.admit(first, 500, true));
    Charge held = granted(budget.charge(first, 300));

    budget.close(outer);
    assertThat(budget.stats().reserved()).as("what the inner one has left").isEqualTo(200);
    budget.close(inner);
    assertThat(budget.stats().reserved()).isZero();
    free(held);
    assertThat(budget.stats().inUse()).isZero();
    assertThat(isGranted(budget.charge(first, LIMIT))).isTrue();
  }

  @Test
  void reservationsAreServedInTheOrderOfAsking() {
    Room held = room(budget.admit(first, 900, true));
    List<Budget.Request> waiting = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      waiting.add(budget.admit(new Account("job " + i, 10 + i, null), 500 - 100 * i, true));
    }

    budget.close(held);

    assertThat(waiting.stream().map(BudgetTest::isGranted))
        .containsExactly(true, true, false, false);
  }

  @Test
  void whoLeavesTheQueueLetsTheNextOneIn() {
    granted(budget.charge(first, 900));
    Budget.Request large = budget.charge(second, 800);
    Budget.Request small = budget.charge(third, 50);

    assertThat(budget.withdraw(large)).isTrue();
    assertThat(isGranted(small)).isTrue();
    assertThat(budget.withdraw(small)).as("it was granted before").isFalse();
  }

  @Test
  void knowsWhoHoldsEverything() {
    Charge mine = granted(budget.charge(first, 900));

    assertThat(budget.heldOnlyBy(first)).isTrue();
    assertThat(budget.heldOnlyBy(second)).isFalse();
    granted(budget.charge(second, 100));
    assertThat(budget.heldOnlyBy(first)).isFalse();
    budget.closing(mine);
    assertThat(budget.heldOnlyBy(second)).as("a free is on its way").isFalse();
  }

  private void free(Charge charge) {
    budget.closing(charge);
    budget.release(charge);
  }

  private static boolean isGranted(Budget.Request request) {
    return request.source == null || request.source.completion().isDone();
  }

  private static Charge granted(Budget.Request request) {
    assertThat(isGranted(request)).isTrue();
    return request.charge;
  }

  private static Room room(Budget.Request request) {
    assertThat(isGranted(request)).isTrue();
    return request.room;
  }
}
