package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.Mutant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Who gets bytes, who waits, and in which order they are served. */
class BudgetTest {
  private static final long LIMIT = 1000;

  private final Budget budget = new Budget(LIMIT);
  private final Account first = new Account("first", 1, null);
  private final Account second = new Account("second", 2, null);
  private final Account third = new Account("third", 3, null);

  /** At the end of a test. */
  private long mayBeLent;

  @AfterEach
  void neverMoreThanTheLimit() {
    MemoryStats stats = budget.stats();
    assertThat(stats.inUse()).isBetween(0L, LIMIT);
    assertThat(stats.reserved()).isBetween(0L, LIMIT);
    assertThat(stats.inUse() + stats.reserved()).isBetween(0L, LIMIT + mayBeLent);
    assertThat(stats.pendingFree()).isBetween(0L, stats.inUse());
    assertThat(stats.peak()).isBetween(stats.inUse(), LIMIT);
  }

  @Test
  void grantsAtOnceWhatFits() {
    Budget.Request request = budget.charge(first, 600);

    assertThat(request.source).isNull();
    assertThat(budget.stats()).isEqualTo(new MemoryStats(LIMIT, 600, 0, 600, 1, 0));
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

  /** Who makes room may have counted on just these bytes. */
  @Test
  void tellsWhoMakesRoomOfBytesThatGoAheadOfThoseWhoWait() {
    AtomicInteger told = new AtomicInteger();
    budget.onMissing(told::incrementAndGet);
    Charge held = granted(budget.charge(first, 800));
    budget.charge(second, 500);
    assertThat(told.get()).as("nobody was overtaken").isZero();

    Charge ahead = budget.tryCharge(first, 100);
    assertThat(told.get()).isEqualTo(1);
    Charge entered = granted(budget.charge(first, 50));
    assertThat(told.get()).isEqualTo(2);
    assertThat(budget.tryCharge(third, 10)).as("may not overtake").isNull();
    assertThat(told.get()).isEqualTo(2);

    free(Objects.requireNonNull(ahead));
    free(entered);
    free(held);
  }

  /** Only the first of those who begin counts, so the next one counts once he is the first. */
  @Test
  void tellsWhoMakesRoomThatAnotherOneIsTheFirstNow() {
    AtomicInteger told = new AtomicInteger();
    budget.onMissing(told::incrementAndGet);
    Charge held = granted(budget.charge(first, 900));
    Charge more = granted(budget.charge(first, 100));
    Budget.Request next = budget.charge(second, 100);
    Budget.Request last = budget.charge(third, 500);
    assertThat(budget.missing()).isEqualTo(100);

    budget.closing(more);
    assertThat(told.get()).as("that is less").isZero();
    budget.release(more);
    assertThat(isGranted(next)).isTrue();
    assertThat(budget.missing()).isEqualTo(500);
    assertThat(told.get()).isEqualTo(1);

    free(held);
    assertThat(isGranted(last)).isTrue();
    assertThat(told.get()).as("nobody waits").isEqualTo(1);
  }

  /** And who leaves the queue may have been the first. */
  @Test
  void tellsWhoMakesRoomThatTheFirstOneHasLeft() {
    AtomicInteger told = new AtomicInteger();
    budget.onMissing(told::incrementAndGet);
    granted(budget.charge(first, 900));
    Budget.Request small = budget.charge(second, 200);
    budget.charge(third, 500);
    budget.withdraw(small);
    assertThat(told.get()).isEqualTo(1);
  }

  /** Bytes that were on their way to a reservation do not come to who waits for others. */
  @Test
  void tellsWhoMakesRoomOfBytesThatGoToAReservation() {
    AtomicInteger told = new AtomicInteger();
    budget.onMissing(told::incrementAndGet);
    Room room = room(budget.admit(first, 600, true));
    Charge inside = granted(budget.charge(first, 600));
    granted(budget.charge(second, 400));
    Budget.Request waiting = budget.charge(second, 500);
    budget.closing(inside);
    assertThat(budget.missing()).as("as it looks").isNegative();
    assertThat(told.get()).isZero();

    budget.release(inside);
    assertThat(isGranted(waiting)).isFalse();
    assertThat(budget.missing()).isEqualTo(500);
    assertThat(told.get()).isEqualTo(1);

    budget.close(room);
    assertThat(isGranted(waiting)).isTrue();
  }

  /**
   * The device is full, and at each moment somebody waits for what he brings back.
   *
   * @return how many of them pass one who begins, and has asked before all of them
   */
  private int passedBy(int most) {
    ArrayDeque<Charge> there = new ArrayDeque<>();
    for (int i = 0; i < 10; i++) {
      there.add(granted(budget.charge(first, 100)));
    }
    Budget.Request begins = budget.charge(second, 100);
    Budget.Request behind = budget.charge(third, 100);
    int passed = 0;
    for (; passed < most && !isGranted(begins); passed++) {
      Charge below = there.removeFirst();
      Budget.Request comesBack = budget.chargeAgain(first, List.of(below), List.of());
      assertThat(isGranted(comesBack)).as("the device is full").isFalse();
      free(below); // it leaves, for who waits longest of those who may have it
      if (isGranted(comesBack)) {
        there.add(cameBack(comesBack));
      } else {
        budget.withdraw(comesBack);
      }
    }
    free(there.removeFirst());
    if (passed < most) {
      assertThat(isGranted(behind)).as("who asked next, and was passed as often").isTrue();
    }
    return passed;
  }

  @Test
  void whatComesBackDoesNotPassWhoBeginsForEver() {
    assertThat(passedBy(1000)).isBetween(Budget.OVERTAKEN_MAX, Budget.OVERTAKEN_MAX + 3);
  }

  @Test
  void aBudgetThatLetsAllOfThemPassIsFound() {
    try (var _ = Mutant.enable("budget.overtaken.ever")) {
      assertThat(passedBy(1000)).isEqualTo(1000);
    }
  }

  /**
   * Many began to wait before any of what came back, so all were passed as often; then somebody who
   * has memory asks for more.
   *
   * @return how many of the many get memory before him
   */
  private int crowdBefore() {
    List<Budget.Request> crowd = new ArrayList<>();
    ArrayDeque<Charge> there = new ArrayDeque<>();
    for (int i = 0; i < 10; i++) {
      there.add(granted(budget.charge(first, 100)));
    }
    for (int i = 0; i < 50; i++) {
      crowd.add(budget.charge(new Account("begins", 10 + i, null), 100));
    }
    for (int i = 0; i < Budget.OVERTAKEN_MAX; i++) {
      Charge below = there.removeFirst();
      Budget.Request comesBack = budget.chargeAgain(first, List.of(below), List.of());
      free(below);
      there.add(cameBack(comesBack));
    }
    budget.withdraw(budget.charge(third, 1)); // so that it is looked who is next
    Budget.Request goesOn = budget.charge(first, 100);
    while (!isGranted(goesOn) && !there.isEmpty()) {
      free(there.removeFirst());
    }
    return (int) crowd.stream().filter(BudgetTest::isGranted).count();
  }

  @Test
  void aCrowdThatWasPassedTogetherDoesNotStandBeforeWhoHasBegun() {
    assertThat(crowdBefore()).isLessThanOrEqualTo(1);
  }

  @Test
  void aBudgetThatPutsTheCrowdBeforeHimIsFound() {
    try (var _ = Mutant.enable("budget.overtaken.all")) {
      assertThat(crowdBefore()).isGreaterThanOrEqualTo(9);
    }
  }

  // --- very many ------------------------------------------------------------------------------

  private enum Crowd {
    BEGIN,
    GO_ON,
    GO_ON_FOR_A_PARENT
  }

  /**
   * So many wait; then bytes come and go, somebody is withdrawn, and who makes room looks.
   *
   * @return how many requests were looked at for each of that
   */
  private long stepsBeside(int many, Crowd kind) {
    long most = 1L << 40;
    Budget crowded = new Budget(most);
    Account parent = new Account("parent", 1, null);
    Charge held = granted(crowded.charge(parent, most - 2L * many));
    List<Account> accounts = new ArrayList<>();
    for (int i = 0; i < many; i++) {
      boolean below = kind == Crowd.GO_ON_FOR_A_PARENT;
      accounts.add(new Account("waits", 10 + i, below ? parent : null));
      if (kind == Crowd.GO_ON) {
        granted(crowded.charge(accounts.get(i), 1));
      }
    }
    List<Budget.Request> waiting = new ArrayList<>();
    accounts.forEach(each -> waiting.add(crowded.charge(each, most)));
    int rounds = 100;
    long before = crowded.steps();
    for (int i = 0; i < rounds; i++) {
      Charge some = crowded.tryCharge(parent, 1);
      crowded.cancel(Objects.requireNonNull(some));
      Budget.Request more = crowded.charge(parent, most - 1);
      assertThat(crowded.missing()).isPositive();
      assertThat(crowded.missingAtOnce()).isPositive();
      assertThat(crowded.helped().rooms()).isEmpty();
      assertThat(crowded.withdraw(more)).isTrue();
      assertThat(crowded.withdraw(waiting.get(many / 2 + i))).isTrue();
    }
    long steps = (crowded.steps() - before) / rounds;
    assertThat(held.bytes).isPositive();
    return steps;
  }

  @ParameterizedTest
  @EnumSource
  void doesNotLookAtAllWhoWaitForWhatConcernsOne(Crowd kind) {
    // of 2 to the power of 8, some more than that; the others are 5 times as many
    assertThat(stepsBeside(256, kind)).as("beside few").isLessThan(600);
    assertThat(stepsBeside(256 * 64, kind)).as("beside many").isLessThan(600);
  }

  // --- where the driver has less than the limit -----------------------------------------------

  private boolean beginsWhile(Runnable refused) {
    Charge held = granted(budget.charge(first, 500));
    refused.run();
    Budget.Request goesOn = budget.charge(first, 100);
    assertThat(isGranted(goesOn)).as("who has begun").isTrue();
    Charge tried = budget.tryCharge(second, 100);
    Budget.Request begins = budget.charge(second, 100);
    boolean began = tried != null || isGranted(begins);
    if (tried == null && !began) {
      free(granted(goesOn));
      assertThat(isGranted(begins)).as("others give something back").isFalse();
      budget.goOn();
      assertThat(isGranted(begins)).as("nobody waits for the driver any more").isTrue();
      free(granted(begins));
    }
    free(held);
    return began;
  }

  @Test
  void nobodyBeginsWhileTheDriverHasNoRoomForOthers() {
    assertThat(beginsWhile(budget::holdBack)).isFalse();
  }

  @Test
  void whoBeginsAllTheSameIsFound() {
    try (var _ = Mutant.enable("budget.refused.begins")) {
      assertThat(beginsWhile(budget::holdBack)).isTrue();
    }
  }

  /** Room for the small ones behind the first who begins is made on the same way. */
  @Test
  void whatTheNextOnesLackIsMissingTooIfItIsLittle() {
    granted(budget.charge(first, LIMIT));
    budget.charge(second, 20);
    assertThat(budget.missing()).isEqualTo(20);
    budget.charge(third, 30);
    assertThat(budget.missing()).isEqualTo(50);
    budget.charge(new Account("large", 4, null), 400);
    budget.charge(new Account("small", 5, null), 1);
    assertThat(budget.missing()).as("the order stays as it is").isEqualTo(50);
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

  /** Who keeps what the first one waits for may wait for that turn. */
  @Test
  void letsWhoHasTheTurnGoBeforeWhoBegins() {
    Charge held = granted(budget.charge(first, 300));
    Budget.Request begins = budget.admit(second, 800, true);
    assertThat(isGranted(budget.charge(third, 100))).as("stands behind it").isFalse();

    Charge inTurn = granted(budget.chargeInTurn(third, 100));
    Budget.Request tooMuch = budget.chargeInTurn(third, 700);

    assertThat(isGranted(tooMuch)).isFalse();
    assertThat(budget.picture(Set.of()).continuing()).containsExactly(tooMuch);
    assertThat(isGranted(begins)).isFalse();
    free(held);
    assertThat(isGranted(tooMuch)).isTrue();
    free(inTurn);
    free(granted(tooMuch));
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

  /** Else each byte that comes back would go to one more who keeps it and wants more. */
  @Test
  void whoHasMemoryGoesBeforeWhoContinuesForAParent() {
    Charge table = granted(budget.charge(first, 300));
    Account child = budget.inherit(first, false, "child", 7);
    Account other = budget.inherit(first, false, "other", 8);
    Charge own = granted(budget.charge(other, 300));
    Charge more = granted(budget.charge(other, 400));
    Budget.Request heir = budget.charge(child, 300);
    Budget.Request holder = budget.charge(other, 300);

    free(more);
    assertThat(isGranted(holder)).isTrue();
    assertThat(isGranted(heir)).isFalse();
    free(own);
    assertThat(isGranted(heir)).isTrue();

    free(table);
    free(granted(heir));
    free(granted(holder));
  }

  /** The same in the reservation of the parent. */
  @Test
  void whoHasMemoryGoesBeforeWhoDrawsOnAParentsReservation() {
    Room room = room(budget.admit(first, 1000, true));
    Account child = budget.inherit(first, false, "child", 7);
    Account other = budget.inherit(first, false, "other", 8);
    Charge own = granted(budget.charge(other, 500));
    Charge more = granted(budget.charge(other, 500));
    Budget.Request heir = budget.charge(child, 300);
    Budget.Request holder = budget.charge(other, 300);

    free(more);
    assertThat(isGranted(holder)).isTrue();
    assertThat(isGranted(heir)).isFalse();
    free(own);
    assertThat(isGranted(heir)).isTrue();

    free(granted(heir));
    free(granted(holder));
    budget.close(room);
  }

  /** Its parent may hold what the others want. */
  @Test
  void whoContinuesForAParentGetsWhatIsTooLittleForOthers() {
    Charge table = granted(budget.charge(first, 800));
    Charge own = granted(budget.charge(second, 200));
    Budget.Request holder = budget.charge(second, 700);
    Budget.Request heir = budget.charge(budget.inherit(first, false, "child", 7), 150);
    assertThat(isGranted(heir)).isFalse();

    free(own);
    assertThat(isGranted(holder)).isFalse();
    assertThat(isGranted(heir)).isTrue();
    free(table);
    free(granted(heir));
    free(granted(holder));
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

  // --- lending ------------------------------------------------------------------------------

  /** Of a buffer that was on the device, and is below now. */
  private Charge below(Account account, long bytes) {
    Charge charge = granted(budget.charge(account, bytes));
    budget.wentBelow(charge);
    free(charge);
    return charge;
  }

  private static Charge cameBack(Budget.Request request) {
    assertThat(isGranted(request)).isTrue();
    return request.charges.getFirst();
  }

  /** What was in use went below, and all of the device was promised since. */
  private Budget.Request returnIntoPromised(long bytes) {
    Charge before = below(first, bytes);
    room(budget.admit(second, 900, true));
    return budget.chargeAgain(first, List.of(before), List.of());
  }

  @Test
  void nothingIsLentBeforeNothingElseHelps() {
    Budget.Request comesBack = returnIntoPromised(400);
    assertThat(isGranted(comesBack)).isFalse();
    assertThat(budget.missing()).isEqualTo(300);

    assertThat(budget.lend()).as("nothing more is missing").isZero();
    assertThat(isGranted(comesBack)).isTrue();
    assertThat(budget.stats().inUse()).isEqualTo(400);
    assertThat(budget.stats().reserved()).isEqualTo(900);
    mayBeLent = 300;
  }

  @Test
  void whoDrawsOnWhatIsLentWaitsForOthersToLeave() {
    AtomicInteger told = new AtomicInteger();
    budget.onMissing(told::incrementAndGet);
    Budget.Request comesBack = returnIntoPromised(400);
    budget.lend();
    Charge some = granted(budget.charge(second, 500));
    Budget.Request more = budget.charge(second, 300);
    assertThat(isGranted(more)).as("100 are there").isFalse();
    assertThat(more.continues).isTrue();
    assertThat(budget.missing()).isEqualTo(200);

    free(cameBack(comesBack));
    assertThat(isGranted(more)).isTrue();
    assertThat(budget.stats().inUse()).isEqualTo(800);
    assertThat(budget.stats().reserved()).isEqualTo(100);
    free(some);
  }

  @Test
  void nothingIsPromisedWhileSomethingIsLent() {
    Budget.Request comesBack = returnIntoPromised(400);
    budget.lend();
    Budget.Request other = budget.admit(third, 10, true);
    assertThat(isGranted(other)).isFalse();
    assertThat(isGranted(budget.admit(first, 0, true))).as("that is nothing").isTrue();
    assertThat(isGranted(budget.charge(first, 10))).isFalse();
    assertThat(budget.missing()).as("10 for each, and what is lent").isEqualTo(320);
    free(cameBack(comesBack));
    assertThat(isGranted(other)).isTrue();
  }

  @Test
  void theEndOfAReservationIsTheEndOfTheLoan() {
    Charge before = below(first, 400);
    Room promised = room(budget.admit(second, 900, true));
    Budget.Request comesBack = budget.chargeAgain(first, List.of(before), List.of());
    budget.lend();
    budget.close(promised);
    assertThat(budget.stats().reserved()).isZero();
    assertThat(budget.freeBytes()).isEqualTo(600);
    assertThat(isGranted(comesBack)).isTrue();
  }

  /** Buffers of reservations leave for it, although their bytes go back to those. */
  @Test
  void whatLeavesAReservationIsLentToo() {
    Charge before = below(first, 400);
    Room promised = room(budget.admit(second, 900, true));
    Charge inside = granted(budget.charge(second, 800));
    Budget.Request comesBack = budget.chargeAgain(first, List.of(before), List.of());
    Budget.Helped helped = budget.helped();
    assertThat(budget.wouldHelp(inside, helped)).as("it goes back to the reservation").isFalse();

    assertThat(budget.lend()).isEqualTo(200);
    free(inside);
    assertThat(isGranted(comesBack)).isTrue();
    assertThat(budget.free(promised)).isEqualTo(900);
    mayBeLent = 300;
  }

  @Test
  void whatIsLentIsNotGivenFromHandToHand() {
    Budget.Request comesBack = returnIntoPromised(400);
    budget.lend();
    Charge lent = cameBack(comesBack);
    budget.closing(lent);
    assertThat(budget.renew(first, lent)).as("it goes back to who it was promised to").isNull();
    assertThat(budget.renew(first, List.of(lent), 400)).isNull();
    assertThat(budget.stats().inUse()).isEqualTo(400);
    assertThat(budget.stats().pendingFree()).isEqualTo(400);
    budget.release(lent);
    assertThat(budget.stats().inUse()).isZero();
  }

  /** Those for whom it is promised may wait for the turn. */
  @Test
  void whoHasTheTurnForANewBufferIsLentToo() {
    granted(budget.charge(first, 100));
    Room promised = room(budget.admit(second, 800, true));
    Budget.Request inTurn = budget.chargeInTurn(third, 400);
    assertThat(isGranted(inTurn)).as("as long as others may leave").isFalse();

    assertThat(budget.lend()).isZero();
    Charge lent = granted(inTurn);
    assertThat(budget.stats().inUse()).isEqualTo(500);
    assertThat(budget.free(promised)).isEqualTo(800);
    assertThat(isGranted(budget.admit(third, 10, true))).as("promised meanwhile").isFalse();
    free(lent);
    mayBeLent = 300;
  }

  @Test
  void whoHasTheTurnAndAReservationDrawsOnThat() {
    Room promised = room(budget.admit(second, 800, true));
    granted(budget.charge(first, 150));
    Budget.Request inTurn = budget.chargeInTurn(second, 700);
    granted(inTurn);
    assertThat(budget.free(promised)).isEqualTo(100);
  }

  /** Stopped just as it was granted, by who waits and by who asked. */
  @Test
  void whatIsForgottenTwiceIsGivenBackOnce() {
    granted(budget.charge(first, 100));
    Budget.Request besides = budget.chargeBesides(second, 400, List.of());
    Budget.Request promised = budget.admit(third, 200, true);
    for (int i = 0; i < 2; i++) {
      Waiting.forget(budget, besides);
      Waiting.forget(budget, promised);
      assertThat(budget.stats().inUse()).isEqualTo(100);
      assertThat(budget.stats().pendingFree()).isZero();
      assertThat(budget.stats().reserved()).isZero();
    }
  }

  // --- who is in less of a hurry ------------------------------------------------------------

  @Test
  void whoWaitsToReserveIsTheOnlyOneWhoIsPatient() {
    granted(budget.charge(first, 900));
    Budget.Request reserves = budget.admit(second, 300, true);
    assertThat(budget.missing()).isEqualTo(200);
    assertThat(budget.missingAtOnce()).isZero();
    assertThat(budget.missingSince(reserves.since)).isEqualTo(200);
    assertThat(budget.missingSince(reserves.since - 1)).as("it has just begun").isZero();

    budget.charge(first, 500);
    assertThat(budget.missingAtOnce()).isEqualTo(400);
    assertThat(budget.missing()).isEqualTo(700);
  }

  @Test
  void aTryThatBeginsAgainIsNot() {
    granted(budget.charge(first, 900));
    budget.admitTry(second, 300);
    assertThat(budget.missingAtOnce()).isEqualTo(200);
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
