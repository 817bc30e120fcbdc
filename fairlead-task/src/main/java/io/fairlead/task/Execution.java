package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * One thread of execution, and the task it runs at the moment: what {@link Task#current()} finds.
 *
 * <p>It is bound once for the length of the thread's work; a child that runs in place in its
 * parent's thread is then one plain write of {@code task}, before and after. A thread whose
 * scheduler is ours keeps it there, where it costs a parked thread nothing more; on any other a
 * {@link ScopedValue} holds it.
 *
 * <pre>
 * field | writer     | reader     | mode
 * task  | own thread | own thread | plain: a thread that inherited the binding reads ROOT instead
 * child | own thread | own thread | plain: what it runs in place of a task, until that is asked for
 * forks | own thread | own thread | plain: the newest of a list, one for each runtime it forks in
 * strand, byHand, waits | own thread | own thread | plain: whose turn it has while it runs
 * </pre>
 */
final class Execution {
  private static final ScopedValue<Execution> CURRENT = ScopedValue.newInstance();

  /** Stands for the threads that have none. */
  private static final Execution NONE = new Execution(null, null);

  final @Nullable Thread thread;
  private @Nullable Task task;
  private @Nullable Fork<?> child;
  private @Nullable Forks forks;
  private @Nullable Strand strand;

  /** No scheduler of ours passes the turn when the thread suspends: our waits do. */
  private boolean byHand;

  /** Waits that it is in, one inside another; the outermost gives the turn up. */
  private short waits;

  Execution(@Nullable Task task, @Nullable Thread thread) {
    this.task = task;
    this.thread = thread;
  }

  /** The calling thread's, or null where nobody entered. A few nanoseconds. */
  static @Nullable Execution current() {
    Resumable ours = Resumable.current();
    return ours == null ? bound() : ours.execution;
  }

  private static @Nullable Execution bound() {
    Execution found = CURRENT.orElse(NONE);
    // A structured task scope of the JDK hands bindings down to other threads: not their task.
    return found.thread == Thread.currentThread() ? found : null;
  }

  /** What it runs, or null between the tasks of a strand's thread. Own thread. */
  @Nullable Task task() {
    Task known = task;
    return known == null && child != null ? taskOf(child) : known;
  }

  private Task taskOf(Fork<?> asked) {
    Task made = asked.task();
    task = made;
    child = null;
    return made;
  }

  boolean isOf(Thread candidate, Task expected) {
    return thread == candidate && task() == expected;
  }

  /** Makes this the current task; gives the one before, for {@link #leave}. Own thread. */
  @Nullable Task enter(Task next) {
    Task before = task();
    task = next;
    return before;
  }

  /** As {@link #enter(Task)}, of a child whose task nobody has asked for yet. */
  @Nullable Task enter(Fork<?> next) {
    Task before = task();
    task = null;
    child = next;
    return before;
  }

  /** Puts back what was current. Own thread. */
  void leave(@Nullable Task before) {
    task = before;
    child = null;
  }

  /**
   * Begins one as this task, in the scheduler of the calling thread, which has none yet; {@link
   * #close} ends it. Null if that scheduler is not ours: see {@link #begin}.
   */
  static @Nullable Execution open(Task task) {
    Resumable ours = Resumable.current();
    return ours == null ? null : keep(ours, new Execution(task, Thread.currentThread()));
  }

  private static Execution keep(Resumable ours, Execution made) {
    ours.execution = made;
    return made;
  }

  /** Ends what {@link #open} began. Own thread. */
  void close() {
    Resumable ours = Resumable.current();
    if (ours != null) {
      ours.execution = null;
    }
    end();
  }

  /** Runs the body on a thread that has no execution yet, as this task. */
  static <T extends @Nullable Object> T begin(Task task, TaskBody<T> body) throws Exception {
    return begin(new Execution(task, Thread.currentThread()), body);
  }

  private static <T extends @Nullable Object> T begin(Execution made, TaskBody<T> body)
      throws Exception {
    Resumable ours = Resumable.current();
    if (ours != null) {
      keep(ours, made);
      try {
        return Task.nullable(body.run());
      } finally {
        made.close();
      }
    }
    try {
      return ScopedValue.where(CURRENT, made).call(() -> Task.nullable(body.run()));
    } finally {
      made.end();
    }
  }

  /** Runs the body on a thread that was given the turn of this strand. It may enter tasks. */
  static void beginInTurn(Strand strand, boolean byHand, Runnable body) {
    Execution made = new Execution(null, Thread.currentThread());
    made.strand = strand;
    made.byHand = byHand;
    try {
      begin(
          made,
          () -> {
            body.run();
            return null;
          });
    } catch (RuntimeException unchecked) {
      throw unchecked;
    } catch (Exception checked) {
      throw new IllegalStateException("a Runnable threw a checked exception", checked);
    } finally {
      if (byHand) {
        strand.pass();
      }
    }
  }

  /** The strand that this thread runs in, or null. Own thread. */
  @Nullable Strand strand() {
    return strand;
  }

  /** Makes a strand whose turn this thread has; it must not have one. Own thread. */
  Strand foundFamily() {
    Strand made = new Strand();
    byHand = !Resumable.join(made);
    strand = made;
    return made;
  }

  /** The founder ends. Own thread. */
  void leaveFamily() {
    Strand left = strand;
    strand = null;
    if (!byHand) {
      Resumable.leave();
    } else if (left != null) {
      byHand = false;
      left.pass();
    }
  }

  /** The thread is about to wait; others of its strand may run. Own thread. */
  void giveTurn() {
    if (byHand && strand != null && waits++ == 0) {
      strand.pass();
    }
  }

  /** The wait is over; waits until nobody else of its strand runs. Own thread. */
  void takeTurn() {
    if (byHand && strand != null && --waits == 0) {
      strand.take();
    }
  }

  /** The frames of this thread that the runtime's runners may take. Own thread. */
  Forks forksOf(Runners runners) {
    Forks newest = forks;
    if (newest != null && newest.runners == runners) {
      return newest;
    }
    for (Forks other = newest; other != null; other = other.older) {
      if (other.runners == runners) {
        return other;
      }
    }
    Forks made = new Forks(runners, this, newest);
    forks = made;
    return made;
  }

  /** Whether runners, or others of its strand, get something when the thread waits. Own thread. */
  boolean holdsWhatOthersWant() {
    if (byHand && strand != null) {
      return true;
    }
    for (Forks f = forks; f != null; f = f.older) {
      if (f.holdsAny()) {
        return true;
      }
    }
    return false;
  }

  /**
   * Lets runners have what lies here at once: the thread is about to wait. It does not where there
   * is no thread to be had for what lies here: nothing is exposed then. Own thread.
   */
  void expose() {
    try {
      for (Forks f = forks; f != null; f = f.older) {
        f.expose();
      }
    } catch (Throwable none) {
      coverFrames();
      throw none;
    }
    giveTurn();
  }

  /** As expose, for a wait that must not end before what it waits for. Own thread. */
  void exposeAnyhow() {
    for (Forks f = forks; f != null; f = f.older) {
      f.exposeAnyhow();
    }
    giveTurn();
  }

  /** The wait is over. Own thread. */
  void cover() {
    takeTurn();
    coverFrames();
  }

  private void coverFrames() {
    for (Forks f = forks; f != null; f = f.older) {
      f.cover();
    }
  }

  private void end() {
    for (Forks f = forks; f != null; f = f.older) {
      f.end();
    }
    forks = null;
  }
}
