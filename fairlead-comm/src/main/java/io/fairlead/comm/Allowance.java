package io.fairlead.comm;

import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
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
 * <p>{@code left} and {@code waiting} are guarded by {@code lock}, an innermost lock: completions
 * are settled after it is given up.
 */
final class Allowance {
  private final long max;
  private final ReentrantLock lock = new ReentrantLock();
  private final Queue<Waiter> waiting = new ArrayDeque<>();
  private long left;

  Allowance(long max) {
    this.max = max;
    this.left = max;
  }

  long max() {
    return max;
  }

  long out() {
    Owner.lock(lock);
    try {
      return max - left;
    } finally {
      lock.unlock();
    }
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

  /** Takes if that needs no waiting. Any thread. */
  boolean tryTake(long amount) {
    Owner.lock(lock);
    try {
      if (!waiting.isEmpty() || left < amount) {
        return false;
      }
      left -= amount;
      return true;
    } finally {
      lock.unlock();
    }
  }

  /**
   * Takes, waiting for it if need be. Only threads that may wait. {@code amount} ≤ max.
   *
   * @param over whether it is of no use any more; who makes it so calls {@link #look} then
   * @return false: it became so, and nothing was taken
   */
  boolean take(long amount, BooleanSupplier over) {
    Waiter waiter;
    Owner.lock(lock);
    try {
      if (waiting.isEmpty() && left >= amount) {
        left -= amount;
        return true;
      }
      waiter = new Waiter(amount, over, Completion.source());
      waiting.add(waiter);
    } finally {
      lock.unlock();
    }
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

  void give(long amount) {
    Owner.lock(lock);
    try {
      left += amount;
    } finally {
      lock.unlock();
    }
    serve();
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
        left += returned;
        while (!waiting.isEmpty() && waiting.element().amount <= left) {
          Waiter first = waiting.remove();
          left -= first.amount;
          served.add(first);
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

  private record Waiter(long amount, BooleanSupplier over, Completion.Source<Boolean> source) {}
}
