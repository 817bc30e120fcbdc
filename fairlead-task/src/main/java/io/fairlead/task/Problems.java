package io.fairlead.task;

import io.fairlead.fault.TaskFailedException;
import org.jspecify.annotations.Nullable;

/** Collects what goes wrong in steps that must all be done; the first is thrown. One thread. */
final class Problems {
  /** Notes on one exception: it may be shared by many tasks, so it must not grow without end. */
  static final int NOTES_MAX = 8;

  private @Nullable Throwable first;

  void add(Throwable problem) {
    if (first == null) {
      first = problem;
    } else {
      note(first, problem);
    }
  }

  /** Runs a step that a problem elsewhere must not prevent. */
  @SuppressWarnings("CatchingUnchecked") // whatever it throws is kept
  void run(Step step) {
    try {
      step.run();
    } catch (Throwable problem) {
      add(problem);
    }
  }

  /** Keeps what went wrong here on something that is thrown instead. */
  void noteOn(Throwable thrown) {
    if (first != null) {
      note(thrown, first);
    }
  }

  @Nullable Throwable first() {
    return first;
  }

  /** The first problem, as it is, to be thrown; there must be one. An Error is thrown here. */
  Exception toThrow() {
    return switch (first) {
      case null -> throw new IllegalStateException("nothing went wrong");
      case Exception exception -> exception;
      case Error error -> throw error;
      case Throwable strange -> new TaskFailedException("failed: " + strange, strange);
    };
  }

  /** Throws the first problem, as it is, if there is one. */
  void throwAny() throws Exception {
    if (first != null) {
      throw toThrow();
    }
  }

  /** Throws the first problem; a checked one is wrapped. */
  void throwUnchecked(String what) {
    if (first != null) {
      throw unchecked(what, first);
    }
  }

  /** Something to throw that carries the problem: itself if it can be thrown anywhere. */
  static RuntimeException unchecked(String what, Throwable problem) {
    return switch (problem) {
      case RuntimeException unchecked -> unchecked;
      case Error error -> throw error;
      case Throwable checked -> new TaskFailedException(what + " failed: " + checked, checked);
    };
  }

  @SuppressWarnings("ReferenceEquality") // a throwable must not be suppressed by itself
  static void note(Throwable on, Throwable note) {
    if (on != note && on.getSuppressed().length < NOTES_MAX) {
      on.addSuppressed(note);
    }
  }

  interface Step {
    void run() throws Exception;
  }
}
