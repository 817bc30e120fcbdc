package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * What {@link Forks#fork} gives and {@link Forks#join} takes: one call that may be running
 * elsewhere. A frame belongs to its place in the deque and is used again by the next fork there, so
 * a fork that nobody takes allocates nothing. Join it once, and forget it.
 *
 * <pre>
 * state = number of the fork (upper bits), and
 *   FREE    nothing forked, or joined
 *     → READY   fork: arguments first, then this, with the next number
 *   READY → FREE    join: the owner runs it in place
 *         → TAKEN   a runner, or the owner on behalf of one, has it
 *   TAKEN → WAITED  the owner is about to park
 *   TAKEN, WAITED → DONE  the runner has left a result or failure; it wakes the owner if WAITED
 *   DONE → FREE     the owner has read the result: only now may it reuse the frame
 *
 * field        | writer                  | reader | mode, guard
 * state        | owner, runners          | both   | release by fork and DONE; else compare-and-set
 * region, fn, argument | owner, at fork  | runner | plain: published by READY; no reuse before DONE
 * result, failure, helper | the runner   | owner  | plain: published by DONE
 * waiter       | owner                   | runner | plain: published by WAITED
 * lent         | the runner              | {@link WaitGraph} | opaque: a wait of what has it comes after
 * </pre>
 */
public abstract sealed class JoinFrame extends ForkFrame permits LongFrame, ObjectFrame {
  static final int FREE = 0;
  static final int READY = 1;
  static final int TAKEN = 2;
  static final int WAITED = 3;
  static final int DONE = 4;
  static final long STEP = 7;
  static final long NEXT = 8;

  /** Looks of a joiner before it parks: about 2 µs, what the wake would cost. */
  private static final int SPINS_BEFORE_PARK = 50;

  static final VarHandle STATE;
  private static final VarHandle LENT;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      STATE = lookup.findVarHandle(JoinFrame.class, "state", long.class);
      LENT = lookup.findVarHandle(JoinFrame.class, "lent", WaitGraph.Lent.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private volatile long state;
  final Forks forks;
  final int index;
  @Nullable TaskScope<?> region;
  private @Nullable Throwable failure;
  private @Nullable Task helper;
  private @Nullable Thread waiter;

  @SuppressWarnings("unused") // through LENT
  private WaitGraph.@Nullable Lent lent;

  JoinFrame(Forks forks, int index) {
    this.forks = forks;
    this.index = index;
  }

  /** Calls the function and keeps its result. The runner's thread. */
  abstract void call(Forks own, TaskScope<?> scope);

  /** Lets go of the objects it holds. The owner's thread, once it is free. */
  void forget() {}

  // --- the owner's side -------------------------------------------------------------------------

  /** Release: whoever takes it sees its arguments. */
  final void ready() {
    // plain read: between join and fork nobody else writes
    STATE.setRelease(this, ((long) STATE.get(this) & ~STEP) + NEXT + READY);
  }

  /** Whether the owner may run it in place: nobody else will. */
  final boolean claim() {
    long seen = (long) STATE.getOpaque(this);
    return (seen & STEP) == READY && STATE.compareAndSet(this, seen, seen - READY);
  }

  final boolean isFree() {
    return (state & STEP) == FREE;
  }

  @Override
  final boolean takeForRunner() {
    return take(waiting());
  }

  /** Waits for the runner's end. Neither cancellation nor an interrupt ends it: the runner's do. */
  final void awaitDone() {
    for (int i = forks.runners.spinsAreVain() ? SPINS_BEFORE_PARK : 0; i < SPINS_BEFORE_PARK; i++) {
      if ((state & STEP) == DONE) {
        return;
      }
      Thread.onSpinWait();
    }
    waiter = Thread.currentThread();
    long seen = state;
    // compare-and-set: publishes the waiter, or finds DONE
    if ((seen & STEP) == TAKEN && STATE.compareAndSet(this, seen, seen + (WAITED - TAKEN))) {
      park();
    }
    waiter = null;
  }

  private void park() {
    Task task = Task.current();
    task.parksFor(this);
    StuckTasks.parks();
    try {
      parkKnown();
    } finally {
      task.goesOn();
    }
  }

  private void parkKnown() {
    Wait known = knownWait();
    if (known == null) {
      parkTillDone();
      return;
    }
    WaitGraph.enter(known);
    try {
      parkTillDone();
    } finally {
      WaitGraph.leave(known);
    }
  }

  /** What a runner made of it; null if none has it. Any thread. */
  WaitGraph.@Nullable Lent lent() {
    return (WaitGraph.Lent) LENT.getOpaque(this);
  }

  /** Null where those who run frames stand for the owner: see {@link WaitGraph}. */
  private @Nullable Wait knownWait() {
    Task task = Task.current();
    WaitGraph.Frame frames = WaitGraph.framesHere(task);
    if (frames == null) {
      return null;
    }
    boolean more = WaitGraph.isMore(frames, region);
    return more || frames instanceof WaitGraph.Lent ? new Wait(this, task, frames, more) : null;
  }

  /** The owner's wait, which must not fail: whoever runs the frame does instead. */
  private static final class Wait extends WaitGraph.Wait {
    private final JoinFrame frame;
    private final boolean more;

    Wait(JoinFrame frame, Task task, WaitGraph.Frame frames, boolean more) {
      super(task, frames, false);
      this.frame = frame;
      this.more = more;
    }

    @Override
    boolean isDone() {
      return (frame.state & STEP) == DONE;
    }

    @Override
    boolean isHopeless(Predicate<WaitGraph.Held> stuck) {
      WaitGraph.Frame joined = joins();
      return joined != null && stuck.test(joined);
    }

    @Override
    boolean isJoin() {
      return true;
    }

    @Override
    WaitGraph.@Nullable Frame joins() {
      // opaque: what waits below it has entered the graph's lock, or set, after this was written
      return (WaitGraph.Lent) LENT.getOpaque(frame);
    }

    @Override
    boolean isLoose() {
      return !more;
    }

    @Override
    boolean mayBeRefused() {
      return false;
    }

    @Override
    String what() {
      return "a forked frame";
    }

    @Override
    RuntimeException refusal(String circle) {
      throw new IllegalStateException("a wait that must not fail was refused: " + circle);
    }
  }

  private void parkTillDone() {
    boolean interrupted = false;
    forks.execution.exposeAnyhow(); // the frames of other runtimes, too
    forks.lookElsewhere();
    while ((state & STEP) != DONE) {
      Completion.parkHelpingOwner(this, () -> (state & STEP) == DONE);
      interrupted |= Thread.interrupted(); // cleared, else parking would return at once
    }
    forks.execution.cover();
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Reads what the runner left, and frees the frame. Throws the call's failure, as it is. */
  final void finish() {
    Throwable problem = failure;
    Task helped = helper;
    failure = null;
    helper = null;
    // plain: the next fork releases it
    STATE.set(this, ((long) STATE.get(this) & ~STEP) + FREE);
    if (helped != null || problem != null) {
      Problems problems = new Problems();
      if (problem != null) {
        problems.add(problem);
      }
      if (helped != null) {
        Task.current().joinAttachmentsOf(helped, problems);
      }
      problems.throwUnchecked("a frame");
    }
  }

  // --- the runner's side ------------------------------------------------------------------------

  @Override
  final long waiting() {
    long seen = state;
    return (seen & STEP) == READY ? seen : 0;
  }

  @Override
  final boolean take(long number) {
    // compare-and-set with the number: a frame that was joined and forked again is another one
    return number != 0 && STATE.compareAndSet(this, number, number + (TAKEN - READY));
  }

  @Override
  final void failTaken(Throwable none) {
    failure = none;
    done();
  }

  @Override
  final void runTaken(Execution runner, Runners runners) {
    TaskScope<?> scope = region;
    if (scope == null) {
      throw new IllegalStateException("a frame was taken that nobody forked");
    }
    try {
      runTaken(runner, runners, scope);
    } catch (Throwable thrown) {
      failure = thrown; // no memory for its helper, too
    }
    done();
  }

  private void runTaken(Execution runner, Runners runners, TaskScope<?> scope) throws Exception {
    WaitGraph.Lent made = new WaitGraph.Lent(scope);
    LENT.setOpaque(this, made);
    Task task = scope.lendHelper(made);
    try {
      task.runHere(
          runner,
          () -> {
            call(runner.forksOf(runners), scope);
            return null;
          });
    } finally {
      scope.returnHelper(task);
      helper = task.hasAttachments() ? task : null;
    }
  }

  final void done() {
    for (; ; ) {
      long seen = state;
      // before DONE: after it the owner may use the frame again
      Thread parked = (seen & STEP) == WAITED ? waiter : null;
      if (STATE.compareAndSet(this, seen, (seen & ~STEP) + DONE)) {
        LockSupport.unpark(parked);
        return;
      }
    }
  }
}
