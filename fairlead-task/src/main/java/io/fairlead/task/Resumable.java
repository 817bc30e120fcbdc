package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/**
 * One virtual thread as its carriers see it: the scheduler that the JDK hands its continuation to
 * whenever it can go on. Being one object for each thread, it knows by itself whose continuation it
 * was given, and placement is where it queues itself.
 *
 * <pre>
 * IDLE    not in a queue: new, running, parked or ended
 *   → QUEUED  execute: it can go on, and lies in exactly one queue
 *   → IDLE    resume: a thread has taken it out and runs it
 * </pre>
 *
 * The JDK calls execute once each time the thread becomes ready, from any thread; and once more
 * after it took a stack trace of one that was ready. The second call finds it QUEUED and does
 * nothing, for the link can be in one queue only. Nothing is lost: {@code resume} writes IDLE and
 * then looks whether the thread can run; a taker of traces lets it run and then looks for QUEUED.
 *
 * <pre>
 * field  | writer                  | reader        | mode, guard
 * own    | the first execute, which is the thread's start | later ones | plain: later ones come
 *        |                         |               | from what was run since
 * queued | executors, who resumes  | executors     | volatile, compare-and-set: see above
 * next   | who queues it, then the queue's consumer | the consumer | plain: published by the queue
 * goesOn | the carrier it is on    | the same      | plain: a hint, stale at worst
 * </pre>
 *
 * A virtual thread that is made plainly inside a task inherits its scheduler, which then is given a
 * continuation that is not its own. It is no task of ours and goes wherever there is room.
 */
abstract class Resumable implements Executor {
  private static final VarHandle QUEUED;

  static {
    try {
      QUEUED = MethodHandles.lookup().findVarHandle(Resumable.class, "queued", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  final Carriers carriers;
  @Nullable Runnable own;
  private volatile int queued;

  /** Link of the queue that it is in. */
  @Nullable Resumable next;

  /** When it last woke another, it did not suspend soon after. */
  boolean goesOn;

  Resumable(Carriers carriers) {
    this.carriers = carriers;
  }

  /** Puts it where it waits for a thread to take it. Any thread; never blocks, never throws. */
  abstract void queue();

  @Override
  @SuppressWarnings("ReferenceEquality") // a continuation is itself, whatever its equals says
  public final void execute(Runnable continuation) {
    Runnable mine = own;
    if (mine == null) {
      own = continuation;
    } else if (mine != continuation) {
      Resumable foreign = new Free(carriers);
      foreign.own = continuation;
      foreign.enter();
      return;
    }
    enter();
  }

  private void enter() {
    if (QUEUED.compareAndSet(this, 0, 1)) {
      queue();
    }
  }

  /** Runs it until it suspends or ends. By who took it out of its queue, a platform thread. */
  final void resume() {
    queued = 0; // volatile, and before the thread's state is read: see the class comment
    Objects.requireNonNull(own).run();
  }

  /** Whether it stands for the same thread. */
  @SuppressWarnings("ReferenceEquality") // as above
  final boolean isSameThread(@Nullable Resumable other) {
    return other != null && other.own == own;
  }

  /** Runs on whichever carrier has room. */
  static final class Free extends Resumable {
    Free(Carriers carriers) {
      super(carriers);
    }

    @Override
    void queue() {
      carriers.ready(this);
    }
  }

  /** Runs on one owner's thread, and nowhere else. */
  static final class Affine extends Resumable {
    private final Owner owner;

    Affine(Carriers carriers, Owner owner) {
      super(carriers);
      this.owner = owner;
    }

    @Override
    void queue() {
      owner.resume(this);
    }
  }
}
