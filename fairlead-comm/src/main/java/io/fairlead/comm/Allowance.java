package io.fairlead.comm;

import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/**
 * So much of something that may be out at a time. Who wants more than there is waits, first come
 * first served; who cannot wait asks and is told no.
 *
 * <p>While nobody waits, taking and giving back are one compare-and-set and one addition: a device
 * manager takes here, which must wait for no lock, and where the lock was held just then it parked,
 * for microseconds.
 *
 * <p><b>State</b>: what is left, and whether somebody waits, in one word.
 *
 * <pre>
 * (left, nobody)  → (left − a, nobody)  tryTake, if there is as much
 * (left, any)     → (left + a, same)    give; who sees that somebody waits serves then
 * (left, any)     → (left, waits)       under the lock: one that found too little stands in the queue;
 *                                       looks once more
 * (left, waits)   → (left − a, waits)   under the lock: the first in the queue is served
 * (left, waits)   → (left, nobody)      under the lock: the queue is empty
 * </pre>
 *
 * <p>No wake is lost, since all of these are one after the other: a give that saw nobody waiting
 * came before the waiter's mark, so the look after that mark sees what it gave; any other give
 * serves. Nobody is passed: with the mark no tryTake succeeds. So under the lock and with the mark,
 * what is left only grows but by who holds the lock.
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>state</td><td>any</td><td>any</td><td>atomic, as above</td></tr>
 *   <tr><td>waiting</td><td>any</td><td>same</td><td>lock</td></tr>
 * </table>
 *
 * <p>{@code lock} is an innermost lock: completions are settled after it is given up.
 */
final class Allowance {
  /** In the lowest bit of the state; what is left is above. */
  private static final long WAITED = 1;

  private static final int LEFT_SHIFT = 1;
  private static final VarHandle STATE;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(Allowance.class, "state", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final long max;
  private final ReentrantLock lock = new ReentrantLock();
  private final Queue<Waiter> waiting = new ArrayDeque<>();
  private volatile long state;

  Allowance(long max) {
    this.max = Math.min(max, Long.MAX_VALUE >> LEFT_SHIFT); // more is no limit
    this.state = this.max << LEFT_SHIFT;
  }

  long max() {
    return max;
  }

  long out() {
    return max - left(state);
  }

  /** How many wait. For tests. */
  int waiting() {
    Owner.lock(lock);
    try {
      return waiting.size();
    } finally {
      lock.unlock();
    }
  }

  private static long left(long state) {
    return state >> LEFT_SHIFT;
  }

  private static boolean isWaited(long state) {
    return (state & WAITED) != 0;
  }

  /** Takes if that needs no waiting. Any thread; takes no lock. */
  boolean tryTake(long amount) {
    for (; ; ) {
      long seen = state;
      if (left(seen) < amount || (isWaited(seen) && !Mutant.on("allowance.passes-who-waits"))) {
        return false;
      }
      if (STATE.weakCompareAndSet(this, seen, seen - (amount << LEFT_SHIFT))) {
        return true;
      }
    }
  }

  /**
   * Takes, waiting for it if need be. Only threads that may wait. {@code amount} ≤ max.
   *
   * @param over whether it is of no use any more; who makes it so calls {@link #look} then
   * @return false: it became so, and nothing was taken
   */
  boolean take(long amount, BooleanSupplier over) {
    if (tryTake(amount)) {
      return true;
    }
    Waiter waiter = queue(amount, over);
    if (over.getAsBoolean()) {
      look(); // after the add: either this thread sees it, or who made it so the waiter
    }
    boolean told = false;
    try {
      boolean taken = waiter.source.completion().await();
      told = true;
      return taken;
    } finally {
      if (!told) {
        giveUp(waiter);
      }
    }
  }

  /** Stands in the queue from now on, and may be served already. */
  Waiter queue(long amount, BooleanSupplier over) {
    Waiter waiter = new Waiter(amount, over, Completion.source());
    Owner.lock(lock);
    try {
      waiting.add(waiter);
      mark();
    } finally {
      lock.unlock();
    }
    if (!Mutant.on("allowance.looks-no-more")) {
      serve(); // what was given back before the mark
    }
    return waiter;
  }

  /** Under the lock. */
  private void mark() {
    long _ = (long) STATE.getAndBitwiseOr(this, WAITED);
  }

  /** Under the lock: nobody waits any more. */
  private void unmark() {
    long _ = (long) STATE.getAndBitwiseAnd(this, ~WAITED);
  }

  /** For some who wait it may be over: they go on without. Any thread; never blocks. */
  void look() {
    List<Waiter> refused = new ArrayList<>(0);
    Owner.lock(lock);
    try {
      waiting.removeIf(waiter -> waiter.over.getAsBoolean() && refused.add(waiter));
    } finally {
      lock.unlock();
    }
    refused.forEach(waiter -> waiter.source.complete(false));
    serve(); // they may have stood in front of smaller ones
  }

  /** Any thread; takes no lock while nobody waits. */
  void give(long amount) {
    if (isWaited(add(amount))) {
      serve();
    }
  }

  /** What the state was before. */
  private long add(long amount) {
    return (long) STATE.getAndAdd(this, amount << LEFT_SHIFT);
  }

  private void giveUp(Waiter waiter) {
    if (!waiter.source.completion().cancel()) {
      if (waiter.source.completion().getNow()) {
        give(waiter.amount);
      }
      return;
    }
    Owner.lock(lock);
    try {
      waiting.remove(waiter);
    } finally {
      lock.unlock();
    }
    // The one that gave up may have stood in front of a smaller one.
    serve();
  }

  private void serve() {
    long returned = 0;
    do {
      List<Waiter> served = new ArrayList<>(0);
      Owner.lock(lock);
      try {
        add(returned);
        while (!waiting.isEmpty() && waiting.element().amount <= left(state)) {
          Waiter first = waiting.remove();
          add(-first.amount);
          served.add(first);
        }
        if (waiting.isEmpty()) {
          unmark();
        }
      } finally {
        lock.unlock();
      }
      returned = 0;
      for (Waiter waiter : served) {
        // False: it gave up at this very moment and does not know that it was served.
        returned += waiter.source.complete(true) ? 0 : waiter.amount;
      }
    } while (returned > 0);
  }

  /** One in the queue; its source says true once it is served, false once it is over. */
  record Waiter(long amount, BooleanSupplier over, Completion.Source<Boolean> source) {}
}
