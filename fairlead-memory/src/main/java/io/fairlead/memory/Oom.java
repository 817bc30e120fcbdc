package io.fairlead.memory;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.task.Task;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Work that can give way when memory runs out.
 *
 * <p>While tasks wait for memory that others keep, who wait for memory themselves, nobody goes on.
 * Then one that is inside {@link #retry} or {@link #splitAndRetry} is rolled back: of the lowest
 * priority, and among these the youngest. A {@link MemoryRollbackException} unwinds its body, the
 * buffers that this run of it has allocated are closed, and it begins again once the memory that it
 * is known to need is set aside for it. It is split, or fails, only where nobody else is in its
 * way. If nobody who waits is inside, one of them fails with an {@link OutOfDeviceMemoryException}.
 *
 * <p><b>The body</b> may run any number of times, so it has to do the same each time: it changes
 * nothing outside of what it allocates, or changes it only at its end. What it reads was allocated
 * before it, and is neither leased nor held around it: so that can be spilled between two runs.
 * Leases, holds, reservations and scopes that it opens it closes in {@code finally}, or with {@code
 * try}. Buffers that it returns are its caller's; of a run that was rolled back there are none.
 *
 * <p>Threads: on a task's thread. Waits as allocations do; interrupt, cancellation and deadline of
 * the task end that.
 */
public final class Oom {
  private static final AtomicLong NUMBERS = new AtomicLong();

  private Oom() {}

  /** Cuts work into less. */
  @FunctionalInterface
  public interface Splitter<I> {
    /**
     * Parts that together are the whole, in order. At least two; fewer say that it cannot be cut
     * any further. Not run inside of a try: what it allocates is its own.
     */
    List<I> split(I whole);
  }

  /**
   * Runs the body until one run of it was not rolled back.
   *
   * @return what that one returned
   * @throws OutOfDeviceMemoryException if not even all that others give back is enough for it
   * @throws IllegalStateException in no task
   */
  public static <T extends @Nullable Object> T retry(Device device, Supplier<T> body) {
    Objects.requireNonNull(body, "body");
    return new Work(device).run(body);
  }

  /**
   * Runs the body for the input; where there is too little memory for that, for parts of it.
   *
   * @return the results of the parts, in their order
   * @throws OutOfDeviceMemoryException if a part that cannot be cut any further is too large
   * @throws IllegalStateException in no task
   */
  public static <I, T extends @Nullable Object> List<T> splitAndRetry(
      Device device, I input, Splitter<I> splitter, Function<? super I, ? extends T> body) {
    Objects.requireNonNull(splitter, "splitter");
    Objects.requireNonNull(body, "body");
    ArrayDeque<I> left = new ArrayDeque<>();
    left.add(input);
    List<T> results = new ArrayList<>();
    long number = NUMBERS.incrementAndGet();
    while (!left.isEmpty()) {
      I part = left.removeFirst();
      try {
        results.add(new Work(device, number).run(() -> body.apply(part)));
      } catch (OutOfDeviceMemoryException tooLarge) {
        List<I> parts = splitter.split(part);
        if (parts.size() < 2) {
          throw tooLarge;
        }
        for (I each : parts.reversed()) {
          left.addFirst(each);
        }
      }
    }
    return results;
  }

  /**
   * From now on until the result is closed, the calling task's {@code allocation}-th allocation
   * meets what it would meet without memory; those of its children do not count. For tests of
   * bodies.
   *
   * @param allocation 1 for the next one
   * @throws IllegalStateException in no task
   */
  public static Drill drill(Device device, int allocation, Drill.Kind kind) {
    if (allocation < 1) {
      throw new IllegalArgumentException(
          "allocation " + allocation + " does not come; 1 is the next one");
    }
    Account account = account(device);
    Drill drill = new Drill(account, allocation, Objects.requireNonNull(kind, "kind"));
    account.drill = drill;
    return drill;
  }

  private static Account account(Device device) {
    if (Task.current().isRoot()) {
      throw new IllegalStateException(
          "this thread is in no task, so there is none to roll back: call it inside of"
              + " TaskRuntime.enter or a fork");
    }
    return device.account();
  }

  /** One piece of work, through all its runs. */
  private static final class Work {
    private final Device device;
    private final Account account;
    private final long number;

    /** What it needs as far as is known; 0 before it was rolled back. */
    private long demand;

    Work(Device device) {
      this(device, NUMBERS.incrementAndGet());
    }

    Work(Device device, long number) {
      this.device = device;
      this.account = account(device);
      this.number = number;
    }

    <T extends @Nullable Object> T run(Supplier<? extends T> body) {
      while (true) {
        try (Reservation room = setAside()) {
          Try attempt = new Try(account, number, room == null ? 0 : room.bytes());
          T result = run(body, attempt);
          Verdict end = attempt.end();
          if (end == null) {
            return result;
          }
          giveBack(attempt);
          learn(end);
        }
      }
    }

    /** The result of a run that was rolled back is not used. */
    private <T extends @Nullable Object> T run(Supplier<? extends T> body, Try attempt) {
      account.attempt = attempt;
      try {
        return body.get();
      } catch (RuntimeException | Error failure) {
        if (attempt.end() == null) {
          throw failure;
        }
        if (!(failure instanceof MemoryRollbackException) && Task.current().isCancelled()) {
          giveBack(attempt);
          throw failure; // it is to stop
        }
        return none();
      } finally {
        account.attempt = attempt.outer;
        if (attempt.end() == null && attempt.outer != null) {
          attempt.outer.made.addAll(attempt.made);
        }
      }
    }

    @SuppressWarnings({"NullAway", "TypeParameterUnusedInFormals"}) // nobody looks at it
    private static <T extends @Nullable Object> T none() {
      return (T) null;
    }

    private void giveBack(Try attempt) {
      for (Storage storage : List.copyOf(attempt.made)) {
        device.close(storage);
      }
    }

    private void learn(Verdict end) {
      if (end.kind == Verdict.Kind.SPLIT) {
        throw device.ladder().outOfMemory(end, end.asked, device.site());
      }
      demand = Math.min(Math.max(demand, end.demand), end.cap);
    }

    private @Nullable Reservation setAside() {
      if (demand <= 0) {
        return null;
      }
      try {
        return device.reserveAgain(demand);
      } catch (Verdict verdict) {
        throw device.ladder().toThrow(verdict, demand, device.site());
      }
    }
  }
}
