package io.fairlead.memory;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.TaskFailedException;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Waits for requests of a {@link Budget}; whoever stops waiting leaves no trace in it. */
final class Waiting {
  private Waiting() {}

  /** Waits until the request is granted, however long it takes. */
  static void await(Budget budget, Reclaimer reclaimer, Budget.Request request) {
    Completion.Source<Boolean> source = request.source;
    if (source == null) {
      return;
    }
    try {
      reclaimer.watch();
      source.completion().await();
    } catch (TaskFailedException refused) {
      throw closed(budget, request, refused);
    } catch (RuntimeException | Error failure) {
      forget(budget, request);
      throw failure;
    }
  }

  /**
   * Waits at most {@code nanos}.
   *
   * @return whether it was granted; if not, it still stands in its queue
   */
  static boolean await(Budget budget, Reclaimer reclaimer, Budget.Request request, long nanos) {
    Completion.Source<Boolean> source = request.source;
    if (source == null || source.completion().state() == Completion.State.DONE) {
      return true;
    }
    long start = System.nanoTime();
    try {
      reclaimer.watch();
      source.completion().await(Duration.ofNanos(nanos));
      return true;
    } catch (DeadlineExceededException late) {
      if (System.nanoTime() - start < nanos) {
        forget(budget, request); // Not our deadline but the task's.
        throw late;
      }
      return false;
    } catch (TaskFailedException refused) {
      throw closed(budget, request, refused);
    } catch (RuntimeException | Error failure) {
      forget(budget, request);
      throw failure;
    }
  }

  /** Waits for nothing but the time, for whom no event says when to try again. */
  static void pause(long nanos) {
    hasCome(
        Completion.<@Nullable Void>source(OwnWait.ROOM).completion(), System.nanoTime() + nanos);
  }

  /** What a request fails with when the device closes, with the trace of who waited. */
  private static IllegalStateException closed(
      Budget budget, Budget.Request request, TaskFailedException refused) {
    forget(budget, request);
    Throwable cause = Objects.requireNonNull(refused.getCause(), "why nobody may wait");
    if (cause instanceof Verdict verdict) {
      throw verdict;
    }
    return new IllegalStateException(cause.getMessage(), cause);
  }

  static Charge granted(Budget.Request request) {
    return Objects.requireNonNull(request.charge, "charge of a granted request");
  }

  /**
   * Takes the request back, also if it was granted in the meantime. A second time does nothing: who
   * is stopped as it is granted takes it back where he waits, and maybe where he asked.
   */
  static void forget(Budget budget, Budget.Request request) {
    if (budget.withdraw(request) || !budget.forget(request)) {
      return;
    }
    if (request.charge != null) {
      budget.cancel(request.charge);
    }
    if (request.room != null) {
      budget.close(request.room);
    }
    if (request.charges != null) {
      request.charges.forEach(budget::cancel);
    }
  }

  /**
   * Waits until the deadline at most; a thread that may not wait, not at all.
   *
   * @param deadline of {@link System#nanoTime}
   * @return false if it has passed
   */
  static boolean hasCome(Completion<?> what, long deadline) {
    long nanos = deadline - System.nanoTime();
    if (nanos <= 0) {
      return false;
    }
    if (!Role.current().mayWait()) {
      return true;
    }
    try {
      what.await(Duration.ofNanos(nanos));
      return true;
    } catch (DeadlineExceededException late) {
      if (System.nanoTime() < deadline) {
        throw late; // not our deadline but the task's
      }
      return false;
    }
  }
}
