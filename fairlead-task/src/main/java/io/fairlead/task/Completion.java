package io.fairlead.task;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskFailedException;
import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * The outcome of something that is going on: stream work, a copy, a message, a call on an owner.
 * Everything asynchronous returns one.
 *
 * <p>Any number of threads may wait, ask and register callbacks at once, and none of them ever
 * blocks another. The operation itself belongs to whoever holds the {@link Source}.
 *
 * <p><b>States.</b> One field holds the whole state, so every transition is one compare-and-set:
 *
 * <pre>
 * PENDING   state = null or the newest Node of a list of waiters and callbacks
 *   add       head → Node(head)        a waiter or callback registers; fails once settled
 *   sweep     dead head → its next     garbage of waits that ended early
 *   settle    head → outcome           complete, fail or cancel: the first one wins and takes
 *                                      the whole list; it alone fires each node, once
 * DONE      state = the value, or NIL for null
 * FAILED    state = Failure(cause)
 * CANCELLED state = Failure(cause, cancelled)
 * </pre>
 *
 * Because a node and the outcome compete for the same field, there is no window in which a waiter
 * could register unseen and then sleep: either settle takes the node, or the waiter's
 * compare-and-set fails and it finds the outcome.
 *
 * <p><b>Waits that end early</b> (deadline, interrupt, cancellation) mark their node dead. Dead
 * nodes are counted; when they are at least {@value #SWEEP_MIN} and a quarter of what the last pass
 * left, whoever counted last unlinks them all in one pass. What a pass visits was either added
 * since the last one or is paid for by the dead, so the cost of each early end is constant on
 * average, and garbage stays below a quarter of the living plus {@value #SWEEP_MIN}.
 *
 * <pre>
 * field      | writer                       | reader     | mode, guard
 * state      | anyone, by compare-and-set   | anyone     | acquire / release: see each access
 * dead       | early waiters, the sweeper   | same       | atomic add; top bit = a sweep goes on
 * length     | the one sweeper              | early waiters | opaque: living nodes after the last pass
 * Node.next  | its thread before it is added| settler,   | plain: published by state's CAS; the
 *            | then the one sweeper         | sweeper    | sweeper only skips dead nodes, and a dead
 *            |                              |            | node keeps its next, so a settler that
 *            |                              |            | walks meanwhile meets every living node
 * help,      | its maker, then the settler  | waiters,   | plain: before it is shared; then who sees
 *   onCancel |                              | cancellers | the old ones asks about what is over, and
 *            |                              |            | onCancel is run by the settler only
 * </pre>
 *
 * <p><b>Once settled</b> it keeps its value or cause and nothing else of the operation: not what
 * would have taken that back, nor who helped, nor those who waited. So does a dead node, which may
 * hang on a pending completion for long: it has let go of what it would have run.
 *
 * <p><b>Lock order.</b> No locks. Callbacks run under none.
 *
 * <p><b>Waiting</b> comes in the three {@link WaitMode}s. NONBLOCKING escalates: look, on a
 * platform thread spin for at most a microsecond, on a carrier of ours that has nothing else to run
 * look at what only looking finds for as long as that carrier would ({@link Carriers}), park. A
 * thread of an {@link Owner} that waits goes on polling that owner's sources meanwhile, since
 * nobody else does.
 *
 * @param <T> the type of the value
 */
public final class Completion<T extends @Nullable Object> {

  /** Where the operation stands. */
  public enum State {
    /** Not settled yet. */
    PENDING,
    /** Has a value (perhaps null). */
    DONE,
    /** Has a cause. */
    FAILED,
    /** Nobody wants it any more; the operation itself may still go on. */
    CANCELLED
  }

  /**
   * Looks of a platform thread before it parks: about 1 µs, a fraction of park plus unpark. A
   * virtual one parks at once: that is cheap, and its carrier may be who completes this.
   */
  private static final int SPINS_BEFORE_PARK = 24;

  /** Looks of a task by itself, some 200 ns each, between two times that it lets others run. */
  private static final int LOOKS_PER_YIELD = 64;

  /** Such looks between two looks at the clock, which takes as long as a quarter of one or more. */
  private static final int LOOKS_PER_CLOCK = 8;

  /** SPIN: looks between two looks at the clock and the interrupt status. */
  private static final int SPINS_PER_CHECK = 32;

  /** SPIN: checks between two yields, so that a spinning task cannot starve who completes it. */
  private static final int CHECKS_PER_YIELD = 32;

  /**
   * SPIN in a platform thread: after so many checks, 50 µs or more, it yields at each. A yield
   * costs less than a check, and where the machine is full, what is waited for may need this
   * processor.
   */
  private static final int CHECKS_UNTIL_LONG = 32;

  /** SPIN in a virtual thread: checks between two naps, about a quarter of a millisecond. */
  private static final int CHECKS_PER_NAP = 512;

  /** BLOCKING: longest single block, so that cancellation is seen where the engine allows it. */
  private static final long BLOCK_NANOS = 10_000_000;

  /** Fewer dead nodes than this are not worth a pass. */
  static final int SWEEP_MIN = 64;

  private static final int SWEEPING = 1 << 31;
  private static final long NEVER = Long.MAX_VALUE;
  private static final Object NIL = new Object();
  private static final System.Logger LOG = System.getLogger(Completion.class.getName());
  private static final VarHandle STATE;
  private static final VarHandle DEAD;
  private static final VarHandle LENGTH;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      STATE = lookup.findVarHandle(Completion.class, "state", Object.class);
      DEAD = lookup.findVarHandle(Completion.class, "dead", int.class);
      LENGTH = lookup.findVarHandle(Completion.class, "length", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private volatile @Nullable Object state;

  @SuppressWarnings("unused") // through DEAD
  private volatile int dead;

  @SuppressWarnings("unused") // through LENGTH
  private volatile int length;

  /** {@link Over#HELP} once it is settled, if there was any. */
  private @Nullable WaitHelp help;

  /** Told of a cancellation before anybody else. A field, since messages are many. */
  private @Nullable Runnable onCancel;

  private Completion(@Nullable WaitHelp help) {
    this(help, null);
  }

  private Completion(@Nullable WaitHelp help, @Nullable Runnable onCancel) {
    this.help = help;
    this.onCancel = onCancel;
    // as for final fields: whoever is handed this by a race sees both
    VarHandle.storeStoreFence();
  }

  // --- asking -------------------------------------------------------------------------------

  /** Whether it is settled: done, failed or cancelled. Any thread; never blocks. */
  public boolean isDone() {
    return isOutcome(look());
  }

  /** Where it stands. Any thread; never blocks. */
  public State state() {
    Object seen = look();
    if (!isOutcome(seen)) {
      return State.PENDING;
    }
    if (seen instanceof Failure failure) {
      return failure.cancelled ? State.CANCELLED : State.FAILED;
    }
    return State.DONE;
  }

  /** Why it failed or was cancelled, or null. Any thread; never blocks. */
  public @Nullable Throwable cause() {
    return look() instanceof Failure failure ? failure.cause : null;
  }

  /**
   * The value, if it is there. Any thread; never blocks; throws what {@link #await()} would.
   *
   * @throws IllegalStateException while it is pending
   */
  public T getNow() {
    Object seen = look();
    if (!isOutcome(seen)) {
      throw new IllegalStateException("still pending: ask isDone() first, or await()");
    }
    return report(seen);
  }

  // --- waiting ------------------------------------------------------------------------------

  /**
   * Waits in the current task's mode and returns the value. Any thread that may wait. If it is
   * settled already this costs a memory read, and cancellation of the task is not looked at.
   *
   * @throws FairleadException the cause of the failure, as it is; one instance for all waiters
   * @throws TaskFailedException around any other cause
   * @throws TaskCancelledException if this completion or the waiting task is cancelled
   * @throws io.fairlead.fault.TaskInterruptedException if the waiting task is interrupted; its
   *     interrupt status is set again
   * @throws IllegalStateException where waiting would hang or break a rule: in a callback on a
   *     polling thread, or on a virtual thread inside a CONTEXT_CURRENT call
   */
  public T await() {
    Object seen = look();
    return isOutcome(seen) ? report(seen) : report(settled(null, NEVER, true));
  }

  /**
   * As {@link #await()}, but no longer than {@code deadline} from now.
   *
   * @throws DeadlineExceededException when it has passed; the operation goes on
   */
  public T await(Duration deadline) {
    Object seen = look();
    return isOutcome(seen) ? report(seen) : report(settled(null, nanos(deadline), true));
  }

  /** As {@link #await()}, in this mode. */
  public T await(WaitMode mode) {
    Objects.requireNonNull(mode, "mode");
    Object seen = look();
    return isOutcome(seen) ? report(seen) : report(settled(mode, NEVER, true));
  }

  /** As {@link #await(Duration)}, in this mode. */
  public T await(WaitMode mode, Duration deadline) {
    Objects.requireNonNull(mode, "mode");
    Object seen = look();
    return isOutcome(seen) ? report(seen) : report(settled(mode, nanos(deadline), true));
  }

  /**
   * As {@link #await()}, but neither cancellation nor an interrupt of the waiting task ends the
   * wait; an interrupt status is set again afterwards. For cleaning up.
   */
  public T awaitUninterruptibly() {
    Object seen = look();
    return isOutcome(seen) ? report(seen) : report(settled(null, NEVER, false));
  }

  /**
   * As {@link #awaitUninterruptibly()}, but no longer than {@code limit}.
   *
   * @param entered whose refusal ends it, too; the caller has entered it
   */
  T awaitUninterruptibly(Duration limit, WaitGraph.@Nullable Wait entered) {
    Object seen = look();
    if (isOutcome(seen)) {
      return report(seen);
    }
    Task task = Task.current();
    task.checkMayWait();
    return report(settled(task.waitMode(), new Wait(task, nanos(limit), false, entered)));
  }

  /**
   * As {@link #awaitUninterruptibly()}, and no circle of waits ends it: another one has to fail.
   */
  T awaitAnyhow() {
    Object seen = look();
    if (isOutcome(seen)) {
      return report(seen);
    }
    Task task = Task.current();
    task.checkMayWait();
    WaitGraph.Frame frames = needs(call -> true) ? WaitGraph.framesHere(task) : null;
    WaitMode mode = task.waitMode();
    return report(
        frames == null
            ? settled(mode, new Wait(task, NEVER, false, null))
            : settledInGraph(
                new CallHelp.Wait(task, frames, this, false, false),
                mode,
                new Wait(task, NEVER, false, null)));
  }

  /** As {@link #await()}, being this wait, which is entered here. */
  T await(WaitGraph.Wait known) {
    Object seen = look();
    if (isOutcome(seen)) {
      return report(seen);
    }
    Task task = Task.current();
    task.checkMayWait();
    return report(settledInGraph(known, task.waitMode(), new Wait(task, NEVER, true, known)));
  }

  // --- settling from the waiting side, callbacks, combinations --------------------------------

  /**
   * Gives it up: settles it as CANCELLED, wakes its waiters with {@link TaskCancelledException} and
   * runs what the source registered with {@link Source#onCancel}. The operation itself may go on,
   * and what it uses must stay valid until it has ended. Any thread; never blocks.
   *
   * @return false if it was settled before
   */
  public boolean cancel() {
    Runnable takesBack = onCancel; // before it is let go; if another one settles it, of no use
    Object taken =
        exchange(
            new Failure(new TaskCancelledException("the completion was cancelled", null), true));
    if (isOutcome(taken)) {
      return false;
    }
    if (takesBack != null) {
      Carrier.callsNow();
      guarded(takesBack);
    }
    fireAll((Node) taken);
    return true;
  }

  /**
   * Calls back once this is settled: on the settling thread, or at once on this one. The callback
   * must not block. What it throws is logged. Callbacks run in the order in which they came.
   */
  public void onDone(Consumer<? super Completion<T>> callback) {
    Objects.requireNonNull(callback, "callback");
    add(new Callback<>(this, callback));
  }

  /**
   * The value of {@code f}, once this has one. {@code f} runs where callbacks run and must not
   * block; what it throws is the failure. A failure or cancellation is passed on. Cancelling the
   * result does not cancel this.
   */
  public <U extends @Nullable Object> Completion<U> thenApply(Function<? super T, ? extends U> f) {
    Objects.requireNonNull(f, "f");
    Completion<U> target = new Completion<>(help);
    Apply<T, U> node = new Apply<>(this, f, target);
    if (isOutcome(look())) {
      node.fire(new Wave());
    } else {
      add(node);
      // last: a node must have been added before it may be abandoned
      target.add(new Unhook(target, List.of(this), List.of(node)));
    }
    return target;
  }

  /** The same as a stage that nobody else can complete. A cancellation arrives as its exception. */
  public CompletionStage<T> toStage() {
    CompletableFuture<T> future = new CompletableFuture<>();
    onDone(
        done -> {
          Throwable cause = done.cause();
          if (cause == null) {
            future.complete(done.getNow());
          } else if (done.state() == State.CANCELLED) {
            CancellationException cancelled = new CancellationException(cause.getMessage());
            cancelled.initCause(cause);
            future.completeExceptionally(cancelled);
          } else {
            future.completeExceptionally(cause);
          }
        });
    return future.minimalCompletionStage();
  }

  /** Settles as the stage does. Cancelling the result leaves the stage alone. */
  public static <T extends @Nullable Object> Completion<T> of(CompletionStage<T> stage) {
    Completion<T> target = new Completion<>(null);
    stage.whenComplete(
        (value, failure) -> {
          if (failure == null) {
            target.settle(boxed(value));
          } else {
            target.settle(fromStage(failure));
          }
        });
    return target;
  }

  /** Done from the start. */
  public static <T extends @Nullable Object> Completion<T> completed(@Nullable T value) {
    Completion<T> target = new Completion<>(null);
    // plain: not shared yet
    STATE.set(target, boxed(value));
    return target;
  }

  /** Failed from the start. */
  public static <T extends @Nullable Object> Completion<T> failed(Throwable cause) {
    Completion<T> target = new Completion<>(null);
    // plain: not shared yet
    STATE.set(target, new Failure(Objects.requireNonNull(cause, "cause"), false));
    return target;
  }

  /**
   * All values, in order, once <b>every</b> part is settled; else the failure that came first. It
   * waits for all even then, so that nothing of it is still going on afterwards. Cancel a
   * combination that is no longer wanted: that unhooks it from its parts.
   */
  public static <T extends @Nullable Object> Completion<List<T>> all(
      List<Completion<T>> completions) {
    List<Completion<T>> parts = List.copyOf(completions);
    if (parts.isEmpty()) {
      return completed(List.of());
    }
    Completion<List<T>> target = new Completion<>(new AllHelp(parts));
    All<T> all = new All<>(parts, target);
    hook(target, parts, part -> new AllPart(part, all));
    return target;
  }

  /**
   * The outcome, value or failure, of the part that is settled first. The others go on. Cancel a
   * combination that is no longer wanted: that unhooks it from its parts.
   *
   * @throws IllegalArgumentException if there are no parts: nothing could ever complete it
   */
  public static <T extends @Nullable Object> Completion<T> any(List<Completion<T>> completions) {
    List<Completion<T>> parts = List.copyOf(completions);
    if (parts.isEmpty()) {
      throw new IllegalArgumentException("any of no completions would never be done");
    }
    Completion<T> target = new Completion<>(new AnyHelp(parts));
    hook(target, parts, part -> new AnyPart(part, target));
    return target;
  }

  /** A new pending completion, as its source. */
  public static <T extends @Nullable Object> Source<T> source() {
    return new Source<>(new Completion<>(null));
  }

  /** A new pending completion whose waiters may help it along. */
  public static <T extends @Nullable Object> Source<T> source(WaitHelp help) {
    return new Source<>(new Completion<>(Objects.requireNonNull(help, "help")));
  }

  /**
   * The same with what {@link Source#onCancel} would be told first, which costs less than to tell
   * it.
   *
   * @param help null: waiters cannot help
   */
  public static <T extends @Nullable Object> Source<T> source(
      @Nullable WaitHelp help, Runnable onCancel) {
    return new Source<>(new Completion<>(help, Objects.requireNonNull(onCancel, "onCancel")));
  }

  @Override
  public String toString() {
    Throwable cause = cause();
    return "Completion[" + state() + (cause == null ? "" : ": " + cause) + "]";
  }

  /**
   * The side of a completion that settles it; belongs to whoever runs the operation. Any thread;
   * never blocks, but runs the callbacks of whoever waits.
   */
  public static final class Source<T extends @Nullable Object> {
    private final Completion<T> completion;

    private Source(Completion<T> completion) {
      this.completion = completion;
    }

    /** What is handed out. */
    public Completion<T> completion() {
      return completion;
    }

    /**
     * Whether settling it now would wake or call back somebody: a waiter that has parked, or a
     * callback. Whoever still looks by himself does not count. A hint; any thread; never blocks.
     */
    public boolean isAwaited() {
      return completion.look() instanceof Node;
    }

    /** Settles it with a value; false if it was settled before. */
    public boolean complete(@Nullable T value) {
      return completion.settle(boxed(value));
    }

    /** Settles it with a cause; false if it was settled before. */
    public boolean fail(Throwable cause) {
      return completion.settle(new Failure(Objects.requireNonNull(cause, "cause"), false));
    }

    /**
     * Runs {@code action} if the completion is cancelled: on the cancelling thread, or at once. It
     * must not block.
     */
    public void onCancel(Runnable action) {
      Objects.requireNonNull(action, "action");
      completion.add(new OnCancel(completion, action));
    }
  }

  // --- the state ------------------------------------------------------------------------------

  private @Nullable Object look() {
    // acquire: whoever sees the outcome must also see what the operation wrote before it
    return STATE.getAcquire(this);
  }

  private static boolean isOutcome(@Nullable Object seen) {
    return seen != null && !(seen instanceof Node);
  }

  private static Object boxed(@Nullable Object value) {
    return value == null ? NIL : value;
  }

  private static Failure fromStage(Throwable failure) {
    Throwable cause = failure;
    while (cause instanceof CompletionException && cause.getCause() != null) {
      cause = cause.getCause();
    }
    if (cause instanceof CancellationException) {
      return new Failure(new TaskCancelledException("the stage was cancelled", cause), true);
    }
    return new Failure(cause, false);
  }

  @SuppressWarnings("unchecked") // only settle() writes outcomes, and takes T or a Failure
  private T report(@Nullable Object outcome) {
    if (outcome instanceof Failure failure) {
      throw failure.toThrow();
    }
    return Task.nullable((@Nullable T) (outcome == NIL ? null : outcome));
  }

  private boolean settle(Object outcome) {
    Object taken = exchange(outcome);
    if (isOutcome(taken)) {
      return false;
    }
    fireAll((Node) taken);
    return true;
  }

  private static void fireAll(@Nullable Node head) {
    if (head != null && head.next == null && head.isAlone()) {
      fireAlone(head); // one waiter or callback, as most often: nothing is made for it
    } else if (head != null) {
      Wave wave = new Wave();
      wave.add(head);
      wave.run();
    }
  }

  private static void fireAlone(Node node) {
    if (!node.isDead()) {
      node.fire(null);
    }
  }

  /** As the other, in the wave of another one; what is to be fired goes into it, oldest first. */
  private boolean settle(Object outcome, Wave wave) {
    Object taken = exchange(outcome);
    if (isOutcome(taken)) {
      return false;
    }
    wave.add((Node) taken);
    return true;
  }

  /** The one transition to an outcome: answers what was there, an outcome or a list of nodes. */
  private @Nullable Object exchange(Object outcome) {
    for (; ; ) {
      Object seen = look();
      // release: publishes the outcome and all that the operation wrote before it;
      // acquire on the list that is taken: its nodes were written by other threads
      if (isOutcome(seen)) {
        return seen;
      }
      if (STATE.weakCompareAndSet(this, seen, outcome)) {
        letGo();
        return seen;
      }
    }
  }

  /** It is settled, and may be kept for its value long after its operation. By the settler. */
  private void letGo() {
    onCancel = null;
    if (help != null) {
      help = Over.HELP;
    }
  }

  /** Adds the node, or fires it at once if this is settled; says whether it was added. */
  private boolean add(Node node) {
    for (; ; ) {
      Object seen = look();
      if (isOutcome(seen)) {
        if (node.isAlone()) {
          node.fire(null);
        } else {
          Wave wave = new Wave();
          node.fire(wave);
          wave.run();
        }
        return false;
      }
      Node head = (Node) seen;
      node.next = head;
      // release: the node's fields go with it
      if (STATE.weakCompareAndSet(this, seen, node)) {
        return true;
      }
    }
  }

  /** Marks a node that nobody waits on any more, and sweeps when that pays. */
  private void abandon(Node node) {
    node.die();
    if (Mutant.on("completion.no-sweep")) {
      return;
    }
    // atomic add, a full fence: the sweeper that reads this count also sees the mark
    int count = (int) DEAD.getAndAdd(this, 1) + 1;
    while (count >= sweepThreshold() && sweep()) {
      count = (int) DEAD.getOpaque(this);
    }
  }

  private int sweepThreshold() {
    // opaque: an old length only makes the pass come sooner or later
    return Math.max(SWEEP_MIN, (int) LENGTH.getOpaque(this) / 4);
  }

  /** One pass by one thread at a time; false if somebody else is at it. */
  private boolean sweep() {
    int count = (int) DEAD.getOpaque(this);
    // compare-and-set: the top bit is the sweeper's lock; a second sweeper could link back a node
    // that the first has unlinked and that is no longer counted
    if (count < 0 || !DEAD.compareAndSet(this, count, SWEEPING)) {
      return false;
    }
    unlinkDead();
    DEAD.getAndBitwiseAnd(this, ~SWEEPING);
    return true;
  }

  private void unlinkDead() {
    Node head = firstLiving();
    if (head == null) {
      LENGTH.setOpaque(this, 0);
      return;
    }
    int living = 1;
    Node last = head;
    for (Node node = head.next; node != null; node = node.next) {
      if (!node.isDead()) {
        last.next = node;
        last = node;
        living++;
      }
    }
    last.next = null;
    LENGTH.setOpaque(this, living);
  }

  private @Nullable Node firstLiving() {
    for (; ; ) {
      if (!(look() instanceof Node head)) {
        return null;
      }
      if (!head.isDead()) {
        return head;
      }
      // full compare-and-set; if it fails a newer node or the outcome came, so look again
      STATE.compareAndSet(this, head, head.next);
    }
  }

  /** How many nodes are linked, dead or alive. For tests; walks the list. */
  int linked() {
    int count = 0;
    for (Node n = look() instanceof Node head ? head : null; n != null; n = n.next) {
      count++;
    }
    return count;
  }

  // --- waiting, in full -----------------------------------------------------------------------

  static long nanos(Duration deadline) {
    try {
      return deadline.toNanos();
    } catch (ArithmeticException tooLong) {
      return deadline.isNegative() ? 0 : NEVER; // 292 years and more
    }
  }

  /** Waits until this is settled and returns the outcome. */
  private Object settled(@Nullable WaitMode wanted, long nanos, boolean obeys) {
    Execution here = Execution.current();
    Task task = Task.of(here);
    task.checkMayWait();
    CallHelp.Wait known = help == null ? null : knownWait(task, nanos, obeys);
    WaitMode mode = wanted == null ? task.waitMode() : wanted;
    if (known != null) {
      return settledInGraph(known, mode, new Wait(task, nanos, obeys, known));
    }
    boolean plain = obeys && nanos == NEVER && Thread.currentThread().isVirtual();
    if (mode == WaitMode.NONBLOCKING && plain) {
      Object soon = lookForAWhile(here, task, null, NEVER);
      return soon == null ? parkForGood(here, task) : soon;
    }
    return settled(mode, new Wait(task, nanos, obeys, null));
  }

  private Object settledInGraph(WaitGraph.Wait known, WaitMode mode, Wait wait) {
    WaitGraph.enter(known);
    try {
      wait.task.parksFor(known);
      StuckTasks.parks();
      return settledKnown(mode, wait);
    } finally {
      wait.task.goesOn();
      WaitGraph.leave(known);
    }
  }

  /** What the graph of waits has to know of this one: it needs an owner, and others need it. */
  private CallHelp.@Nullable Wait knownWait(Task task, long nanos, boolean obeys) {
    if (needs(call -> call.isAwaitedFromWithin(task))) {
      throw new IllegalStateException(
          "task '"
              + task.name()
              + "' awaits "
              + what()
              + ", which cannot end before it does: it would wait for itself. Register onDone, or "
              + "await it outside of the call");
    }
    // a wait with a deadline ends by itself
    WaitGraph.Frame frames =
        nanos == NEVER && needs(call -> true) ? WaitGraph.framesHere(task) : null;
    return frames == null ? null : new CallHelp.Wait(task, frames, this, obeys, true);
  }

  /** Whether it cannot be settled unless a call is made of which this is so. */
  boolean needs(Predicate<CallHelp> such) {
    return !isDone()
        && switch (help) {
          case CallHelp call -> such.test(call);
          case AllHelp all -> all.parts.stream().anyMatch(part -> part.needs(such));
          case AnyHelp any -> any.parts.stream().allMatch(part -> part.needs(such));
          case null, default -> false;
        };
  }

  private Object settled(WaitMode mode, Wait wait) {
    wait.task.parksFor(this);
    try {
      return settledKnown(mode, wait);
    } finally {
      wait.task.goesOn();
    }
  }

  private Object settledKnown(WaitMode mode, Wait wait) {
    try {
      return switch (mode) {
        case SPIN -> exposed(wait, () -> spin(wait));
        case BLOCKING -> exposed(wait, () -> block(wait));
        case NONBLOCKING -> park(wait);
      };
    } finally {
      wait.restoreInterrupt();
    }
  }

  /**
   * The wait of most tasks: without a deadline, on a virtual thread. One frame and no object but
   * its node, since that is what each parked task holds.
   */
  private Object parkForGood(@Nullable Execution here, Task task) {
    Waiter waiter = new Waiter(Thread.currentThread());
    if (here != null) {
      here.expose();
    }
    try {
      add(waiter);
      task.parksFor(this);
      for (; ; ) {
        Object seen = look();
        if (isOutcome(seen)) {
          return Objects.requireNonNull(seen);
        }
        task.checkCancelled();
        leaveToOthers();
        LockSupport.park(this);
      }
    } finally {
      task.goesOn();
      if (!isOutcome(look())) {
        abandon(waiter);
      }
      if (here != null) {
        here.cover();
      }
    }
  }

  /**
   * The outcome, or null if none came soon or the carrier has something to run. What only looking
   * finds is first looked at by itself: so soon it costs nothing else. Then in the carrier's place,
   * unless others may want what the thread has as soon as it waits.
   *
   * <p>What another task may end is not looked for: where that one runs, the woken goes on best.
   */
  private @Nullable Object lookForAWhile(
      @Nullable Execution here, Task task, WaitGraph.@Nullable Wait known, long nanosLeft) {
    WaitHelp looking = help != null && help.isFoundByLooking() ? help : null;
    if (looking == null && !(help instanceof CallHelp)) {
      return null;
    }
    long nanos = Math.min(Carriers.lookNanosHere(), nanosLeft);
    if (nanos <= 0) {
      return looking == null ? null : lookOnOwner(here, looking, nanosLeft);
    }
    long since = System.nanoTime();
    boolean wanted = here != null && here.holdsWhatOthersWant();
    if (looking != null) {
      long alone = wanted ? WaitHelp.LOOK_NANOS : looking.lookNanos();
      Object soon = lookFirst(looking, null, since + Math.min(nanos, alone));
      if (soon != null || nanos <= alone) {
        return soon;
      }
    }
    if (wanted) {
      return null;
    }
    if (Carriers.looksHere(new Look(this, looking, task, known, since, since + nanos))) {
      if (looking != null) {
        looking.poll();
      }
      Object seen = look();
      return isOutcome(seen) ? seen : null;
    }
    return null;
  }

  /**
   * The same by an affine task, whose owner has nothing else to do and would look for the same: it
   * costs a third of being put down and taken up again.
   */
  private @Nullable Object lookOnOwner(@Nullable Execution here, WaitHelp looking, long nanosLeft) {
    Owner owner = nanosLeft > 0 ? Owner.belowTask() : null;
    if (owner == null || !owner.isIdle()) {
      return null;
    }
    long since = System.nanoTime();
    long left = owner.lookNanosLeft(since);
    if (left <= 0) {
      return null;
    }
    boolean wanted = here != null && here.holdsWhatOthersWant();
    long alone = Math.min(left, wanted ? WaitHelp.LOOK_NANOS : looking.lookNanos());
    owner.taskLooks(since);
    return lookFirst(looking, owner, since + Math.min(alone, nanosLeft));
  }

  /**
   * @param owner whose thread the caller has; null: a carrier
   */
  private @Nullable Object lookFirst(WaitHelp looking, @Nullable Owner owner, long end) {
    for (int looks = 1; owner == null ? Carriers.isIdleHere() : owner.isIdle(); looks++) {
      looking.pollFor(this);
      Object seen = look();
      if (isOutcome(seen)) {
        return seen;
      }
      if (looks % LOOKS_PER_CLOCK == 0 && System.nanoTime() - end >= 0) {
        return null;
      }
      if (looks % LOOKS_PER_YIELD == 0 && VirtualThreads.canYieldCarrier()) {
        VirtualThreads.yieldCarrier();
      } else {
        Thread.onSpinWait();
      }
    }
    return null;
  }

  /** The caller parks: others have to find the end. */
  private void leaveToOthers() {
    if (help != null) {
      help.parks();
    }
  }

  /** What the caller's task has forked is for runners to take meanwhile. */
  private static Object exposed(Wait wait, Supplier<Object> waiting) {
    Execution here = Execution.current();
    if (here == null) {
      return waiting.get();
    }
    if (wait.obeys) {
      here.expose();
    } else {
      here.exposeAnyhow();
    }
    try {
      return waiting.get();
    } finally {
      here.cover();
    }
  }

  @SuppressWarnings("ThreadPriorityCheck") // the yield lets whoever completes it run at all
  private Object spin(Wait wait) {
    for (int checks = 1; ; checks++) {
      for (int i = 0; i < SPINS_PER_CHECK; i++) {
        if (help != null) {
          help.pollFor(this);
        }
        Object seen = look();
        if (isOutcome(seen)) {
          return Objects.requireNonNull(seen);
        }
        Thread.onSpinWait();
      }
      wait.check(this);
      wait.helpOwner();
      if (checks % CHECKS_PER_NAP == 0 && Thread.currentThread().isVirtual()) {
        // a carrier prefers its own queue, where a yielding task goes: as many spinning tasks as
        // carriers would keep out all that others wake. A nap comes back through the common queue
        LockSupport.parkNanos(1);
      } else if (checks % CHECKS_PER_YIELD == 0 || isLongSpin(checks)) {
        Thread.yield();
      }
    }
  }

  private static boolean isLongSpin(int checks) {
    return checks > CHECKS_UNTIL_LONG && !Thread.currentThread().isVirtual();
  }

  private Object block(Wait wait) {
    for (; ; ) {
      Object seen = look();
      if (isOutcome(seen)) {
        return Objects.requireNonNull(seen);
      }
      wait.check(this);
      if (help == null || !help.block(Math.min(wait.left(), BLOCK_NANOS))) {
        return park(wait);
      }
      help.poll();
      wait.helpOwner();
      Thread.onSpinWait();
    }
  }

  private Object park(Wait wait) {
    if (Thread.currentThread().isVirtual()) {
      Object soon = lookForAWhile(Execution.current(), wait.task, wait.known, wait.left());
      if (soon != null) {
        return soon;
      }
    } else {
      for (int i = 0; i < SPINS_BEFORE_PARK; i++) {
        Object seen = look();
        if (isOutcome(seen)) {
          return Objects.requireNonNull(seen);
        }
        Thread.onSpinWait();
      }
    }
    return exposed(wait, () -> parkExposed(wait));
  }

  private Object parkExposed(Wait wait) {
    Waiter waiter = new Waiter(Thread.currentThread());
    add(waiter);
    try {
      for (; ; ) {
        Object seen = look();
        if (isOutcome(seen)) {
          return Objects.requireNonNull(seen);
        }
        wait.check(this);
        leaveToOthers();
        wait.park(this); // and looks once more, where strangers' sources are polled
      }
    } finally {
      if (!isOutcome(look())) {
        abandon(waiter);
      }
    }
  }

  /** One wait of one thread: whom it obeys and how long it goes on. Used by that thread only. */
  private static final class Wait {
    private final Task task;
    private final long nanos;
    private final long end;
    private final boolean obeys;

    /** What {@link WaitGraph} knows it as, and may refuse. */
    private final WaitGraph.@Nullable Wait known;

    private final @Nullable Owner owner = RoleThread.currentOwner();
    private boolean interrupted;

    Wait(Task task, long nanos, boolean obeys, WaitGraph.@Nullable Wait known) {
      this.task = task;
      this.nanos = nanos;
      this.end = nanos == NEVER ? 0 : System.nanoTime() + nanos;
      this.obeys = obeys;
      this.known = known;
    }

    long left() {
      return nanos == NEVER ? NEVER : end - System.nanoTime();
    }

    /** Throws if the wait has to end early. */
    void check(Completion<?> completion) {
      if (obeys) {
        task.checkCancelled();
      } else if (Thread.interrupted()) {
        interrupted = true; // cleared, else parking would return at once, for ever
      }
      if (known != null) {
        known.throwIfRefused();
      }
      if (nanos != NEVER && left() <= 0) {
        throw new DeadlineExceededException(completion.what(), Duration.ofNanos(nanos));
      }
    }

    void park(Completion<?> completion) {
      if (owner != null) {
        owner.parkWhileWaiting(completion, left(), () -> isOver(completion));
      } else if (nanos == NEVER) {
        LockSupport.park(completion);
      } else {
        LockSupport.parkNanos(completion, left());
      }
    }

    private boolean isOver(Completion<?> completion) {
      return completion.isDone() || (known != null && known.isRefused());
    }

    void helpOwner() {
      if (owner != null) {
        owner.pollWhileWaiting();
      }
    }

    void restoreInterrupt() {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /**
   * Parks the calling thread once; a thread of an owner polls its sources meanwhile, and looks
   * after that whether the wait is over.
   */
  static void parkHelpingOwner(Object blocker, BooleanSupplier over) {
    Owner owner = RoleThread.currentOwner();
    if (owner != null) {
      owner.parkWhileWaiting(blocker, NEVER, over);
    } else {
      LockSupport.park(blocker);
    }
  }

  /** Whether nobody here knows who settles it. */
  boolean isStrangers() {
    return help == null;
  }

  String what() {
    return help == null ? "the operation" : help.what();
  }

  // --- what hangs on a pending completion -----------------------------------------------------

  private record Failure(Throwable cause, boolean cancelled) {
    FairleadException toThrow() {
      if (cause instanceof FairleadException known) {
        return known; // the same instance for every waiter: nothing is added to it
      }
      return new TaskFailedException("what was waited for failed: " + cause, cause);
    }
  }

  private abstract static class Node {
    @Nullable Node next;

    /**
     * Called once, by the thread that settled the completion it was added to.
     *
     * @param wave where it adds what it settles in turn; null if it {@link #isAlone}
     */
    abstract void fire(@Nullable Wave wave);

    /** Whether it settles nothing that belongs to the same wave. */
    boolean isAlone() {
      return false;
    }

    /** Nobody waits on this any more. */
    abstract void die();

    abstract boolean isDead();
  }

  private static final class Waiter extends Node {
    // plain: only the waiter clears it; who unparks too late, or misses the mark, does no harm
    private @Nullable Thread thread;

    Waiter(Thread thread) {
      this.thread = thread;
    }

    @Override
    void fire(@Nullable Wave wave) {
      LockSupport.unpark(thread);
    }

    @Override
    boolean isAlone() {
      return true;
    }

    @Override
    void die() {
      thread = null;
    }

    @Override
    boolean isDead() {
      return thread == null;
    }
  }

  /** A node that nobody takes off: it lives until it fires. */
  private abstract static class Lasting extends Node {
    @Override
    void die() {
      throw new AssertionError("nobody abandons it");
    }

    @Override
    boolean isDead() {
      return false;
    }
  }

  /**
   * A node of a combination, which may be taken off again before it fires.
   *
   * @param <C> what it settles, or helps to
   */
  private abstract static class Hook<C> extends Node {
    // plain: a stale read only means that it fires into something that is settled already
    private @Nullable C into;

    Hook(C into) {
      this.into = into;
    }

    @Override
    void fire(@Nullable Wave wave) {
      C found = into;
      if (found != null) {
        fire(found, Objects.requireNonNull(wave));
      }
    }

    abstract void fire(C found, Wave wave);

    @Override
    void die() {
      into = null;
    }

    @Override
    boolean isDead() {
      return into == null;
    }
  }

  private static final class Callback<T extends @Nullable Object> extends Lasting {
    private final Completion<T> completion;
    private final Consumer<? super Completion<T>> callback;

    Callback(Completion<T> completion, Consumer<? super Completion<T>> callback) {
      this.completion = completion;
      this.callback = callback;
    }

    @Override
    @SuppressWarnings("CatchingUnchecked") // a stranger's callback must not stop the others
    void fire(@Nullable Wave wave) {
      Carrier.callsNow();
      try {
        callback.accept(completion);
      } catch (Throwable thrown) {
        logThrown(thrown);
      }
    }

    @Override
    boolean isAlone() {
      return true;
    }
  }

  private static final class OnCancel extends Lasting {
    private final Completion<?> completion;
    private final Runnable action;

    OnCancel(Completion<?> completion, Runnable action) {
      this.completion = completion;
      this.action = action;
    }

    @Override
    void fire(@Nullable Wave wave) {
      if (completion.state() == State.CANCELLED) {
        Carrier.callsNow();
        guarded(action);
      }
    }

    @Override
    boolean isAlone() {
      return true;
    }
  }

  private static final class Apply<T extends @Nullable Object, U extends @Nullable Object>
      extends Hook<Applied<T, U>> {
    private final Completion<T> from;

    Apply(Completion<T> from, Function<? super T, ? extends U> f, Completion<U> target) {
      super(new Applied<>(f, target));
      this.from = from;
    }

    @Override
    void fire(Applied<T, U> applied, Wave wave) {
      if (!applied.target.isDone()) {
        applied.target.settle(applied.to(from), wave);
      }
    }
  }

  /** A function of thenApply(), and what it settles. */
  private record Applied<T extends @Nullable Object, U extends @Nullable Object>(
      Function<? super T, ? extends U> f, Completion<U> target) {

    @SuppressWarnings("CatchingUnchecked") // whatever f throws is the outcome
    Object to(Completion<T> from) {
      Object outcome = Objects.requireNonNull(from.look());
      if (outcome instanceof Failure) {
        return outcome;
      }
      Carrier.callsNow();
      try {
        return boxed(f.apply(from.report(outcome)));
      } catch (Throwable failure) {
        return new Failure(failure, false);
      }
    }
  }

  /** What all() collects. */
  private static final class All<T extends @Nullable Object> {
    private static final VarHandle LEFT;
    private static final VarHandle FIRST;

    static {
      try {
        MethodHandles.Lookup lookup = MethodHandles.lookup();
        LEFT = lookup.findVarHandle(All.class, "left", int.class);
        FIRST = lookup.findVarHandle(All.class, "first", Failure.class);
      } catch (ReflectiveOperationException e) {
        throw new ExceptionInInitializerError(e);
      }
    }

    private final List<Completion<T>> parts;
    private final Completion<List<T>> target;

    @SuppressWarnings("unused") // through LEFT
    private volatile int left;

    private volatile @Nullable Failure first;

    All(List<Completion<T>> parts, Completion<List<T>> target) {
      this.parts = parts;
      this.target = target;
      this.left = parts.size();
    }

    void partDone(Object outcome, Wave wave) {
      if (outcome instanceof Failure) {
        // compare-and-set: of failures that come together one is first
        FIRST.compareAndSet(this, null, outcome);
      }
      // atomic add: the last part sees what all others left in first
      if ((int) LEFT.getAndAdd(this, -1) == 1) {
        Failure failure = first;
        target.settle(failure == null ? values() : new Failure(failure.cause, false), wave);
      }
    }

    private List<T> values() {
      List<T> values = new ArrayList<>(parts.size());
      for (Completion<T> part : parts) {
        values.add(part.getNow());
      }
      return java.util.Collections.unmodifiableList(values);
    }
  }

  private static final class AllPart extends Hook<All<?>> {
    private final Completion<?> part;

    AllPart(Completion<?> part, All<?> all) {
      super(all);
      this.part = part;
    }

    @Override
    void fire(All<?> all, Wave wave) {
      all.partDone(Objects.requireNonNull(part.look()), wave);
    }
  }

  private static final class AnyPart extends Hook<Completion<?>> {
    private final Completion<?> part;

    AnyPart(Completion<?> part, Completion<?> target) {
      super(target);
      this.part = part;
    }

    @Override
    void fire(Completion<?> target, Wave wave) {
      target.settle(Objects.requireNonNull(part.look()), wave);
    }
  }

  /** Hangs on a combination: once that is settled, its nodes on the parts are dead. */
  private static final class Unhook extends Lasting {
    private final Completion<?> target;
    private final List<? extends Completion<?>> parts;
    private final List<? extends Node> nodes;

    Unhook(Completion<?> target, List<? extends Completion<?>> parts, List<? extends Node> nodes) {
      this.target = target;
      this.parts = parts;
      this.nodes = nodes;
    }

    @Override
    void fire(@Nullable Wave wave) {
      assert target.isDone();
      for (int i = 0; i < nodes.size(); i++) {
        Completion<?> part = parts.get(i);
        if (!part.isDone()) {
          part.abandon(nodes.get(i));
        }
      }
    }
  }

  private static void hook(
      Completion<?> target,
      List<? extends Completion<?>> parts,
      Function<Completion<?>, Node> nodeFor) {
    List<Node> nodes = new ArrayList<>(parts.size());
    for (Completion<?> part : parts) {
      nodes.add(nodeFor.apply(part));
    }
    for (int i = 0; i < nodes.size(); i++) {
      Completion<?> part = parts.get(i);
      part.add(nodes.get(i));
    }
    // last: nodes must have been added before they may be abandoned
    target.add(new Unhook(target, parts, nodes));
  }

  @SuppressWarnings("CatchingUnchecked") // a stranger's callback must not stop the others
  private static void guarded(Runnable callback) {
    try {
      callback.run();
    } catch (Throwable thrown) {
      logThrown(thrown);
    }
  }

  private static void logThrown(Throwable thrown) {
    LOG.log(Level.ERROR, "a completion's callback threw; the completion stands", thrown);
  }

  /**
   * What one settling has still to fire. Combinations add to it instead of calling deeper, so that
   * a chain of a million costs no stack.
   */
  private static final class Wave {
    private @Nullable Node single;
    private @Nullable ArrayDeque<Node> more;

    /** Takes a list, newest first, and queues it oldest first. */
    void add(@Nullable Node head) {
      if (head == null) {
        return;
      }
      if (head.next == null && single == null && more == null) {
        single = head;
        return;
      }
      if (more == null) {
        more = new ArrayDeque<>();
      }
      addOldestFirst(more, head);
    }

    private static void addOldestFirst(ArrayDeque<Node> queue, Node head) {
      int count = 0;
      for (Node node = head; node != null; node = node.next) {
        count++;
      }
      Node[] nodes = new Node[count];
      int filled = 0;
      // a sweeper may shorten the list between the two walks, never lengthen it
      for (Node node = head; node != null && filled < count; node = node.next) {
        nodes[filled++] = node;
      }
      for (Node node : Arrays.asList(nodes).subList(0, filled).reversed()) {
        queue.add(node);
      }
    }

    void run() {
      for (; ; ) {
        Node node = next();
        if (node == null) {
          return;
        }
        if (!node.isDead()) {
          node.fire(this);
        }
      }
    }

    private @Nullable Node next() {
      Node node = single;
      if (node != null) {
        single = null;
        return node;
      }
      return more == null ? null : more.poll();
    }
  }

  // --- help -----------------------------------------------------------------------------------

  /** In the place of any other once the operation is over. */
  private enum Over implements WaitHelp {
    HELP;

    @Override
    public boolean poll() {
      return true;
    }

    @Override
    public boolean block(long nanos) {
      return true;
    }

    @Override
    public String what() {
      return "something that has just come";
    }
  }

  /** All are wanted: look at each, block on the first that is not there yet. */
  private record AllHelp(List<? extends Completion<?>> parts) implements WaitHelp {
    @Override
    public boolean poll() {
      boolean done = true;
      for (Completion<?> part : parts) {
        done &= part.isDone() || (part.help != null && part.help.poll());
      }
      return done;
    }

    @Override
    public boolean block(long nanos) {
      for (Completion<?> part : parts) {
        if (!part.isDone()) {
          return part.help != null && part.help.block(nanos);
        }
      }
      return true;
    }

    @Override
    public String what() {
      return "all of " + parts.size() + " operations";
    }
  }

  /** One is enough: look at each; blocking on one could miss the others, so park. */
  private record AnyHelp(List<? extends Completion<?>> parts) implements WaitHelp {
    @Override
    public boolean poll() {
      boolean done = false;
      for (Completion<?> part : parts) {
        done |= part.isDone() || (part.help != null && part.help.poll());
      }
      return done;
    }

    @Override
    public boolean block(long nanos) {
      return false;
    }

    @Override
    public String what() {
      return "any of " + parts.size() + " operations";
    }
  }
}
