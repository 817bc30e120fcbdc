package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.fault.Mutant;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Any order of asking, drawing, closing, reaching and giving up, from a seed: the limit holds after
 * every step, nobody waits who need not, and in the end everything is back.
 */
class BudgetSimTest {
  private static final int WORLDS = 200;
  private static final int STEPS = 400;
  private static final long LIMIT = 1000;

  static LongStream seeds() {
    return LongStream.rangeClosed(1, Boolean.getBoolean("fairlead.long") ? 300 : 5);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void theLimitHoldsInAnyOrder(long seed) {
    for (int world = 0; world < WORLDS; world++) {
      new World(1_000_003 * seed + world).run();
    }
  }

  @Test
  void aBudgetThatForgetsItsLimitIsFound() {
    try (var _ = Mutant.enable("memory.limit.skip")) {
      assertThatThrownBy(() -> theLimitHoldsInAnyOrder(1)).isInstanceOf(AssertionError.class);
    }
  }

  private static final class World {
    private final long seed;
    private final Random random;
    private final Budget budget = new Budget(LIMIT);
    private final List<Account> accounts = new ArrayList<>();
    private final List<Budget.Request> waiting = new ArrayList<>();
    private final List<Charge> live = new ArrayList<>();
    private final List<Charge> freeing = new ArrayList<>();
    private final List<Room> rooms = new ArrayList<>();

    /** What buffers took that are below now. */
    private final List<Charge> below = new ArrayList<>();

    /** Most that can be lent: what came back since something was. */
    private long lent;

    World(long seed) {
      this.seed = seed;
      this.random = new Random(seed);
      for (int i = 0; i < 4; i++) {
        accounts.add(new Account("task " + i, i, null));
      }
      accounts.add(budget.inherit(accounts.get(0), false, "child", 9));
    }

    void run() {
      for (int step = 0; step < STEPS; step++) {
        step();
        check();
      }
      end();
    }

    private void step() {
      switch (random.nextInt(10)) {
        case 0, 1, 2 -> asked(budget.charge(any(accounts), bytes()));
        case 3 -> asked(budget.admit(any(accounts), bytes(), random.nextInt(8) > 0));
        case 4, 5 -> closeOne();
        case 6, 7 -> reachOne();
        case 8 -> closeRoom();
        default -> {
          switch (random.nextInt(4)) {
            case 0 -> goBelow();
            case 1 -> comeBack();
            case 2 -> budget.lend();
            default -> giveUp();
          }
        }
      }
    }

    private void goBelow() {
      if (!live.isEmpty()) {
        Charge charge = live.remove(random.nextInt(live.size()));
        budget.wentBelow(charge);
        below.add(charge);
        budget.closing(charge);
        freeing.add(charge);
      }
    }

    private void comeBack() {
      List<Charge> together = new ArrayList<>();
      for (int i = random.nextInt(3); i >= 0 && !below.isEmpty(); i--) {
        together.add(below.remove(random.nextInt(below.size())));
      }
      if (!together.isEmpty()) {
        asked(budget.chargeAgain(any(accounts), together, List.of()));
      }
    }

    private long bytes() {
      return 1L + random.nextInt(random.nextInt(4) == 0 ? 1000 : 300);
    }

    private void asked(Budget.Request request) {
      if (request.source == null) {
        granted(request);
      } else {
        waiting.add(request);
      }
    }

    private void granted(Budget.Request request) {
      if (request.before != null) {
        request.charges.forEach(budget::leftBelow);
        live.addAll(request.charges);
        lent += request.bytes;
      } else if (request.reserves) {
        rooms.add(request.room);
      } else {
        live.add(request.charge);
      }
    }

    private void closeOne() {
      if (!live.isEmpty()) {
        Charge charge = live.remove(random.nextInt(live.size()));
        budget.closing(charge);
        freeing.add(charge);
      }
    }

    private void reachOne() {
      if (!freeing.isEmpty()) {
        budget.release(freeing.remove(random.nextInt(freeing.size())));
      }
    }

    private void closeRoom() {
      if (!rooms.isEmpty()) {
        budget.close(rooms.remove(random.nextInt(rooms.size())));
      }
    }

    private void giveUp() {
      if (!waiting.isEmpty()) {
        Budget.Request request = waiting.remove(random.nextInt(waiting.size()));
        if (!budget.withdraw(request)) {
          granted(request);
        } else if (request.before != null) {
          below.addAll(request.before);
        }
      }
    }

    private void check() {
      waiting.removeIf(
          request -> {
            boolean granted = request.source.completion().isDone();
            if (granted) {
              granted(request);
            }
            return granted;
          });
      MemoryStats stats = budget.stats();
      assertThat(stats.inUse()).as("seed %d", seed).isEqualTo(sum(live) + sum(freeing));
      assertThat(stats.pendingFree()).as("seed %d", seed).isEqualTo(sum(freeing));
      assertThat(stats.reserved()).as("seed %d", seed).isEqualTo(unused());
      assertThat(stats.inUse()).as("seed %d", seed).isLessThanOrEqualTo(LIMIT);
      long lentNow = Math.max(0, stats.inUse() + stats.reserved() - LIMIT);
      assertThat(lentNow).as("seed %d: only what came back is lent", seed).isBetween(0L, lent);
      lent = lentNow;
      assertNobodyWaitsWithoutNeed(LIMIT - stats.inUse() - stats.reserved(), LIMIT - stats.inUse());
    }

    private long unused() {
      return rooms.stream().mapToLong(Room::free).sum();
    }

    private void assertNobodyWaitsWithoutNeed(long free, long there) {
      boolean somebodyGoesOn = waiting.stream().anyMatch(request -> request.continues);
      boolean first = true;
      for (Budget.Request request : waiting) {
        boolean isNext = request.continues || (first && !somebodyGoesOn);
        first &= request.continues;
        if (isNext) {
          boolean draws = !request.reserves && isPromised(request);
          assertThat(request.bytes)
              .as("seed %d: it fits, and waits", seed)
              .isGreaterThan(request.borrows || draws ? there : free);
        }
      }
    }

    private static boolean isPromised(Budget.Request request) {
      Room room = request.account.openRoom();
      while (room != null && room.free() < request.bytes) {
        room = room.outer;
      }
      return room != null;
    }

    private static long sum(List<Charge> charges) {
      return charges.stream().mapToLong(charge -> charge.bytes).sum();
    }

    private void end() {
      below.forEach(budget::leftBelow); // closed there
      below.clear();
      while (!live.isEmpty() || !freeing.isEmpty() || !rooms.isEmpty() || !waiting.isEmpty()) {
        closeOne();
        reachOne();
        closeRoom();
        giveUp();
        below.forEach(budget::leftBelow);
        below.clear();
        check();
      }
      MemoryStats stats = budget.stats();
      assertThat(stats.inUse() + stats.reserved() + stats.pendingFree()).isZero();
      for (Account account : accounts) {
        assertThat(account.held).as("seed %d: %s", seed, account.task).isZero();
        assertThat(account.below).as("seed %d: %s", seed, account.task).isZero();
      }
    }

    private <T> T any(List<T> list) {
      return list.get(random.nextInt(list.size()));
    }
  }
}
