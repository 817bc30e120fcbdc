package io.fairlead.task;

import io.fairlead.fault.Mutant;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A group of tasks of which at most one runs at a time: {@link Placement.Serial}. Made by {@link
 * TaskRuntime#strand}; needs no closing. Between two suspensions a member has the state that the
 * group shares for itself, and sees all that other members did before.
 *
 * <p><b>The turn.</b> One for each strand; who has it runs.
 *
 * <pre>
 * FREE     nobody runs, nobody waits
 *   → TAKEN   a member that enters, by compare-and-set; it passes the turn to the oldest, itself
 * TAKEN    one member runs, or lies in the one queue from which a thread will take it
 *   → TAKEN   pass: the next of those that wait goes on, in the order in which they entered
 *   → FREE    pass, nobody waits; then a second look, for who entered meanwhile saw TAKEN
 *
 * who enters:  push; turn == FREE and I swap it to TAKEN? → pass
 * who passes:  take one; none → turn = FREE; anybody pushed, and I swap it back? → take again
 *
 * field  | writer                   | reader       | mode, guard
 * turn   | who enters, who passes   | both         | volatile, compare-and-set. Each side writes,
 *        |                          |              | then reads the other's: one sees the other
 * inbox  | who enters (push), holder (take all) | both | compare-and-set / getAndSet
 * outbox | holder                   | holder       | plain: handed over with the turn
 * Member.link | who enters, then the holder | holder | plain: published by the push
 * </pre>
 *
 * <p><b>Who gives the turn up.</b> On own carriers the scheduler: it does when the member's thread
 * suspends, whatever for, and a member that can go on lies here and not with a carrier. So the
 * strand is one piece of work for the carriers and moves as a whole. On the JDK's carriers, and
 * where a parent of {@link Placement#WITH_PARENT} runs on a thread of its own, our waits do
 * (Completion.await, join, Owner.submit): <i>by hand</i>. Both kinds may share one strand.
 *
 * <p><b>A family</b> is the strand of {@link Placement#WITH_PARENT}: made with the turn taken, by
 * the parent that forks the first such child and runs at that moment; it ends with the parent.
 *
 * <p>Lock order: no locks. Nothing but queueing, unparking and starting a thread happens in pass.
 */
public final class Strand {
  private static final int FREE = 0;
  private static final int TAKEN = 1;
  private static final VarHandle TURN;
  private static final VarHandle INBOX;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      TURN = lookup.findVarHandle(Strand.class, "turn", int.class);
      INBOX = lookup.findVarHandle(Strand.class, "inbox", Member.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** One that waits for the turn. In at most one strand, and there once. */
  abstract static class Member {
    private @Nullable Member link;

    /** It has the turn. By who had it before; never blocks, never throws. */
    abstract void goOn();
  }

  private final String name;

  /** Null for a family. */
  private final @Nullable TaskRuntime runtime;

  private volatile int turn;
  private volatile @Nullable Member inbox;
  private @Nullable Member outbox;

  Strand(String name, TaskRuntime runtime) {
    this.name = Objects.requireNonNull(name, "name");
    this.runtime = runtime;
  }

  /** A family; its turn is the caller's. */
  Strand() {
    this.name = "family";
    this.runtime = null;
    this.turn = TAKEN;
  }

  /** As given. */
  public String name() {
    return name;
  }

  void checkOpen() {
    if (runtime != null && runtime.isClosed()) {
      throw new IllegalStateException(
          "strand '" + name + "' belongs to a runtime that is closed: make one with an open one");
    }
  }

  /** Waits for the turn; goes on when it comes. Any thread; never blocks. */
  void enter(Member member) {
    for (; ; ) {
      Member head = inbox;
      member.link = head;
      // compare-and-set: publishes it and its link
      if (INBOX.compareAndSet(this, head, member)) {
        break;
      }
    }
    if (turn == FREE && TURN.compareAndSet(this, FREE, TAKEN)) {
      pass();
    }
  }

  /** Gives the turn up, to the member that waits longest. By who has it; never blocks. */
  void pass() {
    for (; ; ) {
      Member next = poll();
      if (next != null) {
        next.goOn(); // last: the turn is its own from here on
        return;
      }
      turn = FREE; // volatile, before the second look
      if (inbox == null
          || Mutant.on("strand.no-second-look")
          || !TURN.compareAndSet(this, FREE, TAKEN)) {
        return;
      }
    }
  }

  /** Whether somebody waits for the turn. By who has it. */
  boolean isWanted() {
    return outbox != null || inbox != null;
  }

  private @Nullable Member poll() {
    Member first = outbox;
    if (first == null) {
      first = oldestFirst((Member) INBOX.getAndSet(this, null));
      if (first == null) {
        return null;
      }
    }
    outbox = first.link;
    first.link = null;
    return first;
  }

  private static @Nullable Member oldestFirst(@Nullable Member newest) {
    Member reversed = null;
    for (Member member = newest; member != null; ) {
      Member following = member.link;
      member.link = reversed;
      reversed = member;
      member = following;
    }
    return reversed;
  }

  // --- by hand ----------------------------------------------------------------------------------

  /** Waits until the caller has the turn; neither cancellation nor an interrupt ends that. */
  void take() {
    // nobody waits where it is FREE, but who has just pushed: then one of the two was first
    if (TURN.compareAndSet(this, FREE, TAKEN)) {
      return;
    }
    Ticket ticket = new Ticket(Thread.currentThread());
    enter(ticket);
    boolean interrupted = false;
    while (!ticket.granted) {
      Completion.parkHelpingOwner(this, () -> ticket.granted);
      interrupted |= Thread.interrupted(); // cleared, else parking would return at once
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** A thread that waits. */
  private static final class Ticket extends Member {
    private final Thread thread;
    private volatile boolean granted;

    Ticket(Thread thread) {
      this.thread = thread;
    }

    @Override
    void goOn() {
      granted = true; // volatile, and unpark after it
      LockSupport.unpark(thread);
    }
  }

  /** A thread that is started when its turn comes, so that it holds nothing until then. */
  static final class Start extends Member {
    private final Strand strand;
    private final Fork<?> fork;
    private final Thread thread;

    Start(Strand strand, Fork<?> fork, Thread thread) {
      this.strand = strand;
      this.fork = fork;
      this.thread = thread;
    }

    @Override
    @SuppressWarnings("CatchingUnchecked") // who passes the turn is not who asked for the thread
    void goOn() {
      try {
        thread.start();
      } catch (Throwable none) {
        fork.skip(none);
        strand.pass();
      }
    }
  }

  /** Whether nobody has the turn. For tests. */
  boolean isFree() {
    return turn == FREE;
  }

  @Override
  public String toString() {
    return "Strand[" + name + "]";
  }
}
