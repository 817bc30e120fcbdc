package io.fairlead.task;

import io.fairlead.fault.Mutant;
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
 *   → QUEUED  execute: it can go on. In a strand it waits there until it is GRANTED the turn; then
 *             it lies in exactly one queue of a thread
 *   → IDLE    resume: a thread has taken it out and runs it. When it suspends, the turn is passed
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
 * strand | its thread, mounted     | executors     | volatile: a second execute may look at any time
 * granted| who passes the turn, then who resumes | same | plain: published by the queue
 * goesOn, wentOn | the carrier it is on | the same, thieves | plain: a hint, stale at worst
 * execution | its thread, mounted  | the same      | plain
 * </pre>
 *
 * A thread that joins or leaves a strand while it is mounted tells the platform thread below, whose
 * {@code holds} says which turn to pass when it has suspended: this object may be elsewhere by
 * then. Where it is found in a queue without the turn, because it joined since, it enters then.
 *
 * <p>A virtual thread that is made plainly inside a task inherits its scheduler, which then is
 * given a continuation that is not its own. It is no task of ours and goes wherever there is room.
 */
abstract class Resumable extends Strand.Member implements Executor {
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
  private volatile @Nullable Strand strand;
  private boolean granted;

  /** Link of the queue that it is in. */
  @Nullable Resumable next;

  /** When it last woke another, it did not suspend soon after, nor the time before. */
  boolean goesOn;

  /** When it last woke another, it did not suspend soon after. */
  boolean wentOn;

  /** What its thread runs; a bound ScopedValue would cost each parked thread 200 bytes and more. */
  @Nullable Execution execution;

  Resumable(Carriers carriers, @Nullable Strand strand) {
    this.carriers = carriers;
    this.strand = strand;
  }

  /** Puts it where it waits for a thread to take it. Any thread; never blocks, never throws. */
  abstract void queue();

  /** Whether this thread may run it; if not it is queued elsewhere. That thread. */
  boolean mayRunOn(RoleThread thread) {
    return true;
  }

  @Override
  @SuppressWarnings("ReferenceEquality") // a continuation is itself, whatever its equals says
  public final void execute(Runnable continuation) {
    Runnable mine = own;
    if (mine == null) {
      own = continuation;
    } else if (mine != continuation) {
      Resumable foreign = new Foreign(carriers);
      foreign.own = continuation;
      foreign.becomeReady();
      return;
    }
    becomeReady();
  }

  private void becomeReady() {
    if (QUEUED.compareAndSet(this, 0, 1)) {
      Strand in = strandOrNone();
      if (in == null) {
        queue();
      } else {
        in.enter(this);
      }
    }
  }

  private @Nullable Strand strandOrNone() {
    return Mutant.on("strand.ignored") ? null : strand;
  }

  @Override
  final void goOn() {
    granted = true;
    queue();
  }

  /** Runs it until it suspends or ends. By who took it out of its queue, a platform thread. */
  final void resume() {
    RoleThread on = (RoleThread) Thread.currentThread();
    if (!mayRunOn(on)) {
      return;
    }
    Strand in = strandOrNone();
    if (in != null && !granted) {
      in.enter(this); // it joined since it was queued
      return;
    }
    granted = false;
    on.holds = in;
    on.runs = this;
    queued = 0; // volatile, and before the thread's state is read: see the class comment
    try {
      Objects.requireNonNull(own).run();
    } finally {
      on.runs = null;
      passTurn(on);
    }
  }

  private static void passTurn(RoleThread on) {
    Strand held = on.holds;
    if (held != null) {
      on.holds = null;
      held.pass();
    }
  }

  /**
   * Has the calling thread scheduled through this strand from now on, whose turn it has. False if
   * its scheduler is not ours.
   */
  static boolean join(Strand family) {
    RoleThread on = below();
    Resumable mounted = on == null ? null : known(on.runs);
    if (on == null || mounted == null) {
      return false;
    }
    mounted.strand = family;
    on.holds = family;
    return true;
  }

  /** The calling thread, which joined it, is scheduled by itself again; the turn is passed. */
  static void leave() {
    RoleThread on = Objects.requireNonNull(below());
    Objects.requireNonNull(on.runs).strand = null;
    passTurn(on);
  }

  /** That of the calling thread, or null if its scheduler is not ours. A few nanoseconds. */
  static @Nullable Resumable current() {
    RoleThread on = below();
    return on == null ? null : known(on.runs);
  }

  private static @Nullable Resumable known(@Nullable Resumable mounted) {
    return mounted instanceof Foreign ? null : mounted;
  }

  private static @Nullable RoleThread below() {
    return VirtualThreads.closed() == null
            && Thread.currentThread().isVirtual()
            && VirtualThreads.carrier() instanceof RoleThread on
        ? on
        : null;
  }

  /** Whether it stands for the same thread. */
  @SuppressWarnings("ReferenceEquality") // as above
  final boolean isSameThread(@Nullable Resumable other) {
    return other != null && other.own == own;
  }

  /** Runs on whichever carrier has room. */
  static class Free extends Resumable {
    Free(Carriers carriers) {
      this(carriers, null);
    }

    Free(Carriers carriers, @Nullable Strand strand) {
      super(carriers, strand);
    }

    @Override
    final void queue() {
      carriers.ready(this);
    }
  }

  /** And is the body of its thread as well: one object less for each parked task. */
  static final class OfFork extends Free implements Runnable {
    private final Fork<?> fork;

    OfFork(Carriers carriers, Fork<?> fork) {
      super(carriers);
      this.fork = fork;
    }

    @Override
    public void run() {
      fork.run();
    }
  }

  /** A thread that is no task of ours, for one resumption. */
  static final class Foreign extends Free {
    Foreign(Carriers carriers) {
      super(carriers);
    }
  }

  /**
   * Runs on the carrier that first ran it. That is not a spare: those come and go.
   *
   * <pre>
   * field | writer                        | reader            | mode
   * home  | who first takes it, before it runs | who makes it ready | plain: it has run since
   * </pre>
   */
  static final class Initial extends Resumable {
    private @Nullable Carrier home;

    Initial(Carriers carriers) {
      super(carriers, null);
    }

    @Override
    void queue() {
      Carrier known = home;
      if (known == null) {
        carriers.ready(this);
      } else {
        goHome(known);
      }
    }

    private void goHome(Carrier known) {
      if (Mutant.on("initial.in-common-queue")) {
        carriers.inject(this);
      } else {
        known.readyHere(this);
      }
    }

    @Override
    @SuppressWarnings("ReferenceEquality") // a thread is itself
    boolean mayRunOn(RoleThread thread) {
      Carrier known = home;
      if (known == null) {
        known = carriers.homeFor((Carrier) thread);
        home = known;
      }
      if (known == thread) {
        return true;
      }
      goHome(known);
      return false;
    }
  }

  /** Runs on one owner's thread, and nowhere else. */
  static final class Affine extends Resumable {
    private final Owner owner;

    Affine(Carriers carriers, Owner owner) {
      super(carriers, null);
      this.owner = owner;
    }

    @Override
    void queue() {
      owner.resume(this);
    }
  }
}
