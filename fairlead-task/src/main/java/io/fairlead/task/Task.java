package io.fairlead.task;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * One piece of work: the carrier of identity, cancellation, interrupt status, wait mode and
 * attachments. State is found through the task, never through the thread it happens to run on.
 *
 * <p><b>Life.</b>
 *
 * <pre>
 * NEW      made by fork, enter or an owner's call; runner = null, or HANDED to a thread that will
 *          begin it
 *   → RUNNING  runner = its thread: its own, a runner's, or its parent's that joins. If it was
 *          cancelled before, the body does not run at all
 * RUNNING  the body; while it makes a synchronous call on an owner it is <i>lent</i>: runner is the
 *          owner's thread, and the caller waits, so that one thread at a time acts for it
 *   → ENDING   scopes that the body left open are cancelled and waited for; end hooks run
 *   → ENDED    runner = GONE
 * </pre>
 *
 * <b>Cancellation</b> is sticky and goes down: flag first, then every open scope is cancelled, then
 * the runner is interrupted (which ends JDK waits, and ours). A scope or child that opens at the
 * same moment either is seen by the canceller or sees the flag itself (both sides write, then
 * read). While a child runs in place, its thread is the runner of both.
 *
 * <pre>
 * field       | writer                    | reader   | mode, guard
 * flags       | anyone                    | anyone   | volatile, atomic or / and
 * cause       | the first canceller       | anyone   | written before the flag that says so
 * runner      | the thread that acts; who | cancellers | compare-and-set; null → a thread claims
 *             | interrupts it             |          | a child in a deque; POKING for the length
 *             |                           |          | of one interrupt() call, so that none hits
 *             |                           |          | a thread that has gone on to other work
 * seat        | who made it, who ends it  | anyone   | acquire / release: who sees none
 *             |                           |          | sees the runner that was written before.
 *             |                           |          | While there is one, runner is the fork's:
 *             |                           |          | most children never have a task
 * id          | who asks first            | anyone   | compare-and-set
 * attachments | own thread (fork: forker) | own thread; joiner after the end | plain: handed over
 *             |                           |          | by thread start and by the scope's count
 * scopes      | own thread                | cancellers | volatile: see cancellation
 * frames      | own thread (fork: forker; an owner's call: its maker) | own thread | plain: handed
 *             |                           |          | over as attachments are
 * binds, family | own thread              | own thread | plain
 * parkedFor   | own thread                | {@link StuckTasks} | opaque: who sees an old one looks again
 * called      | who made it               | anyone   | plain: before it is handed out
 * </pre>
 *
 * ROOT is one for the process: what threads count as that never entered. It cannot be cancelled,
 * does not end, keeps no list of scopes, and its attachments are thread-safe.
 */
public final class Task {
  private static final int CANCELLED = 1;
  private static final int INTERRUPTED = 2;

  private static final AtomicLong IDS = new AtomicLong();

  /** As runner: taken for a runner that has not begun yet. */
  static final Object HANDED = new Object();

  /** As runner: somebody is about to interrupt it. */
  private static final Object POKING = new Object();

  /** As runner: it has ended. */
  static final Object GONE = new Object();

  private static final Task ROOT = new Task(null, "root", 0, Placement.FREE, WaitMode.NONBLOCKING);
  private static final Map<TaskAttachment<?>, Object> ROOT_VALUES = new ConcurrentHashMap<>();
  private static final VarHandle FLAGS;
  private static final VarHandle CAUSE;
  private static final VarHandle RUNNER;
  private static final VarHandle SEAT;
  private static final VarHandle WAIT_MODE;
  private static final VarHandle ID;
  private static final VarHandle PARKED_FOR;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      FLAGS = lookup.findVarHandle(Task.class, "flags", int.class);
      CAUSE = lookup.findVarHandle(Task.class, "cause", Throwable.class);
      WAIT_MODE = lookup.findVarHandle(Task.class, "waitMode", WaitMode.class);
      RUNNER = lookup.findVarHandle(Task.class, "runner", Object.class);
      ID = lookup.findVarHandle(Task.class, "id", long.class);
      SEAT = lookup.findVarHandle(Task.class, "seat", Fork.class);
      PARKED_FOR = lookup.findVarHandle(Task.class, "parkedFor", Object.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** 0 until somebody asks: most children of a scope are never asked, and counting costs. */
  private volatile long id;

  private final @Nullable Task parent;
  private final @Nullable String name;
  private final int priority;
  private final Placement placement;

  /** Final but for ROOT, whose mode is that of the runtime opened last. */
  private WaitMode waitMode;

  private volatile int flags;
  private volatile @Nullable Throwable cause;
  private volatile @Nullable Object runner;

  /** The fork that says who runs it, while it lies in a deque or goes on; else null. */
  private @Nullable Fork<?> seat;

  private @Nullable Attached attachments;
  private volatile @Nullable TaskScope<?> scopes;
  private int binds;

  /** Its thread runs in a strand that it has founded for its children WITH_PARENT. */
  private boolean family;

  /** Begun by a call, whose caller may end before it: nobody above waits for it. */
  boolean called;

  /** A scope, a frame, a wait of the graph, or else a completion; null while it goes on. */
  @SuppressWarnings("unused") // through PARKED_FOR
  private @Nullable Object parkedFor;

  /** What cannot be free before this task ends: calls and scopes, innermost first. */
  WaitGraph.@Nullable Frame frames;

  Task(
      @Nullable Task parent,
      @Nullable String name,
      int priority,
      Placement placement,
      WaitMode waitMode) {
    this.parent = parent;
    this.name = name;
    this.priority = priority;
    this.placement = placement;
    this.waitMode = waitMode;
  }

  // --- who --------------------------------------------------------------------------------------

  /**
   * The caller's task; ROOT on a thread that never entered. Any thread; never blocks; a few
   * nanoseconds.
   */
  public static Task current() {
    return of(Execution.current());
  }

  /** What runs there; ROOT where nobody entered. */
  static Task of(@Nullable Execution here) {
    Task found = here == null ? null : here.task();
    return found == null ? ROOT : found;
  }

  /** The process-wide ROOT. */
  static Task root() {
    return ROOT;
  }

  /** Whether this is what unentered threads count as. */
  public boolean isRoot() {
    return this == ROOT;
  }

  /** Never given twice in one process; in the order in which tasks are first asked for it. */
  public long id() {
    if (id == 0) {
      // compare-and-set: who asks at the same time gets the same one
      ID.compareAndSet(this, 0L, IDS.incrementAndGet());
    }
    return id;
  }

  /** As given, or "task-" and the id. */
  public String name() {
    return name == null ? "task-" + id() : name;
  }

  @Nullable String givenName() {
    return name;
  }

  /** Higher is more urgent. */
  public int priority() {
    return priority;
  }

  /** Who forked it, or null for ROOT. */
  public @Nullable Task parent() {
    return parent;
  }

  /** Where it runs. */
  public Placement placement() {
    return placement;
  }

  /** How it waits unless a call says otherwise. */
  public WaitMode waitMode() {
    // opaque: ROOT's changes are seen some time
    return (WaitMode) WAIT_MODE.getOpaque(this);
  }

  // --- cancellation and interrupts --------------------------------------------------------------

  /**
   * Asks the task and everything below it to stop. Waits throw {@link TaskCancelledException} from
   * now on, its thread is interrupted, a child that has not begun will not begin. The first cause
   * stands. Any thread; never blocks.
   *
   * @param cause why, or null
   * @throws IllegalStateException for ROOT
   */
  public void cancel(@Nullable Throwable cause) {
    if (isRoot()) {
      throw new IllegalStateException(
          "ROOT stands for all threads that never entered and cannot be cancelled: "
              + "cancel a scope, or enter(...) and cancel that task");
    }
    if (cause != null) {
      // compare-and-set before the flag: who sees the flag sees the first cause
      CAUSE.compareAndSet(this, null, cause);
    }
    if (((int) FLAGS.getAndBitwiseOr(this, CANCELLED) & CANCELLED) != 0) {
      return;
    }
    // scopes first: a child that runs in place on this thread must know why it is interrupted
    for (TaskScope<?> scope = scopes; scope != null; scope = scope.outer) {
      scope.cancel(cause);
    }
    interruptRunner();
  }

  /** Whether it was asked to stop. Any thread; never blocks. */
  public boolean isCancelled() {
    return (flags & CANCELLED) != 0;
  }

  /**
   * Interrupts the task: its present wait, or else its next one, throws {@link
   * TaskInterruptedException}. Any thread; never blocks.
   *
   * @throws IllegalStateException for ROOT: interrupt the thread instead
   */
  public void interrupt() {
    if (isRoot()) {
      throw new IllegalStateException("ROOT has no thread of its own: interrupt the thread");
    }
    FLAGS.getAndBitwiseOr(this, INTERRUPTED);
    for (TaskScope<?> scope = scopes; scope != null; scope = scope.outer) {
      scope.ownerInterrupted();
    }
    interruptRunner();
  }

  /** Whether it, or the calling thread acting for it, is interrupted. Any thread. */
  public boolean isInterrupted() {
    return (flags & INTERRUPTED) != 0
        || (current() == this && Thread.currentThread().isInterrupted());
  }

  /** Whether the current task was interrupted, and clears that, as {@link Thread#interrupted}. */
  public static boolean interrupted() {
    Task task = current();
    boolean flag = ((int) FLAGS.getAndBitwiseAnd(task, ~INTERRUPTED) & INTERRUPTED) != 0;
    boolean status = Thread.interrupted(); // both are cleared
    return status || flag;
  }

  /**
   * Returns if there is no reason to stop. On the task's own thread; never blocks.
   *
   * @throws TaskCancelledException if it is cancelled
   * @throws TaskInterruptedException if it is interrupted; the status stays set
   */
  public void checkCancelled() {
    if (flags != 0 || Thread.currentThread().isInterrupted()) {
      throw reasonToStop();
    }
  }

  /**
   * Why the thread was interrupted. The flags are read again after the interrupt was seen: cancel
   * sets its flag first, so that no cancelled task says that it was interrupted.
   */
  private FairleadException reasonToStop() {
    if (isStopping()) {
      return cancelled();
    }
    Thread.currentThread().interrupt();
    return interruption();
  }

  /**
   * Whether it is cancelled, or about to be: a child in place shares its thread with those above,
   * and their canceller may interrupt the thread while another one that cancels the same scope has
   * not come to this child yet. On its own thread.
   */
  boolean isStopping() {
    for (Task above = this; above != null; above = above.called ? null : above.parent) {
      if (above.isCancelled()) {
        cancelFrom(above);
        return true;
      }
    }
    return false;
  }

  @SuppressWarnings("ReferenceEquality") // a task is itself
  private void cancelFrom(Task above) {
    if (above != this) {
      cancel(above.cause);
    }
  }

  TaskInterruptedException interruption() {
    return new TaskInterruptedException("task '" + name() + "' was interrupted");
  }

  /** As checkCancelled, but cleans up before it throws. */
  void checkCancelledOr(Runnable cleanup) {
    try {
      checkCancelled();
    } catch (RuntimeException stop) {
      cleanup.run();
      throw stop;
    }
  }

  private TaskCancelledException cancelled() {
    Throwable why = cause;
    String message = "task '" + name() + "' was cancelled" + (why == null ? "" : ": " + why);
    return new TaskCancelledException(message, why);
  }

  @Nullable Throwable cancelCause() {
    return cause;
  }

  // --- attachments
  // --------------------------------------------------------------------------------

  /**
   * This task's value under the key; made by {@link TaskAttachment#initial} if there is none. On
   * the task's own thread; for ROOT on any that never entered.
   *
   * @throws IllegalStateException in another task
   */
  public <T> @Nullable T get(TaskAttachment<T> key) {
    if (isRoot()) {
      return rootGet(key);
    }
    checkOwn();
    Attached found = find(key);
    if (found == null) {
      T made = key.initial(this);
      if (made == null) {
        return null;
      }
      found = attach(key, made);
    }
    return value(found);
  }

  /** The value if there is one; makes none. Same threads as {@link #get}. */
  public <T> @Nullable T peek(TaskAttachment<T> key) {
    if (isRoot()) {
      return value(ROOT_VALUES.get(key));
    }
    checkOwn();
    Attached found = find(key);
    return found == null ? null : value(found);
  }

  <T> void set(TaskAttachment<T> key, @Nullable T value) {
    checkOwn();
    Attached found = find(key);
    if (found != null) {
      found.value = value;
    } else if (value != null) {
      attach(key, value);
    }
  }

  private void checkOwn() {
    if (current() != this) {
      throw new IllegalStateException(
          "task '"
              + name()
              + "' is asked for an attachment by task '"
              + current().name()
              + "': attachments are used by their own task only");
    }
  }

  @SuppressWarnings("ReferenceEquality") // a key is itself, whatever its equals says
  private @Nullable Attached find(TaskAttachment<?> key) {
    for (Attached a = attachments; a != null; a = a.next) {
      if (a.key == key) {
        return a;
      }
    }
    return null;
  }

  private Attached attach(TaskAttachment<?> key, Object value) {
    Attached made = new Attached(key, value, attachments);
    attachments = made;
    return made;
  }

  @SuppressWarnings({"unchecked", "TypeParameterUnusedInFormals"}) // attached under such a key
  private static <T> @Nullable T value(Attached attached) {
    return (T) attached.value;
  }

  @SuppressWarnings({"unchecked", "TypeParameterUnusedInFormals"}) // attached under such a key
  private static <T> @Nullable T value(@Nullable Object value) {
    return (T) value;
  }

  private static <T> @Nullable T rootGet(TaskAttachment<T> key) {
    T value = value(ROOT_VALUES.get(key));
    if (value != null) {
      return value;
    }
    key.rootLock.lock();
    try {
      value = value(ROOT_VALUES.get(key));
      if (value == null) {
        value = key.initial(ROOT);
        if (value != null) {
          ROOT_VALUES.put(key, value);
        }
      }
      return value;
    } finally {
      key.rootLock.unlock();
    }
  }

  static <T> @Nullable T rootForget(TaskAttachment<T> key) {
    return value(ROOT_VALUES.remove(key));
  }

  /** Gives the child its first values. Forker's thread. */
  void forkAttachmentsTo(Task child) {
    if (isRoot()) {
      ROOT_VALUES.forEach((key, value) -> forkOne(key, value, child));
      return;
    }
    for (Attached a = attachments; a != null; a = a.next) {
      forkOne(a.key, a.value, child);
    }
  }

  @SuppressWarnings("unchecked") // attached under a key of this type
  private void forkOne(TaskAttachment<?> key, @Nullable Object value, Task child) {
    Object first = ((TaskAttachment<Object>) key).fork(this, value, child);
    if (first != null) {
      child.attach(key, first);
    }
  }

  /** Hands the ended child's values to this task. Joiner's thread. */
  @SuppressWarnings("unchecked") // attached under a key of this type
  void joinAttachmentsOf(Task child, Problems problems) {
    for (Attached a = child.attachments; a != null; a = a.next) {
      TaskAttachment<Object> key = (TaskAttachment<Object>) a.key;
      Object value = a.value;
      if (value != null) {
        problems.run(() -> key.join(this, child, value));
      }
    }
    child.attachments = null;
  }

  /** Runs the end hooks, newest first, and those of values that come up meanwhile. */
  @SuppressWarnings("unchecked") // attached under a key of this type
  private void endAttachments(Problems problems) {
    for (Attached a = firstNotEnded(); a != null; a = firstNotEnded()) {
      a.ended = true;
      TaskAttachment<Object> key = (TaskAttachment<Object>) a.key;
      Object value = a.value;
      if (value != null) {
        problems.run(() -> key.end(this, value));
      }
    }
  }

  private @Nullable Attached firstNotEnded() {
    for (Attached a = attachments; a != null; a = a.next) {
      if (!a.ended) {
        return a;
      }
    }
    return null;
  }

  private static final class Attached {
    final TaskAttachment<?> key;
    final @Nullable Attached next;
    @Nullable Object value;
    boolean ended;

    Attached(TaskAttachment<?> key, Object value, @Nullable Attached next) {
      this.key = key;
      this.value = value;
      this.next = next;
    }
  }

  // --- running
  // ------------------------------------------------------------------------------------

  /**
   * Runs the body as this task on the calling thread, from begin to end: end hooks included, scopes
   * that it left open closed.
   */
  <T extends @Nullable Object> T run(TaskBody<T> body) throws Exception {
    Execution here = Execution.current();
    if (here != null) {
      return runHere(here, body);
    }
    Execution made = Execution.open(this);
    if (made == null) {
      return Execution.begin(this, () -> begun(body));
    }
    // few frames between here and the body: each is memory of each parked task
    try {
      checkAndBecome();
      return live(body);
    } finally {
      made.close();
    }
  }

  /** As run, where the execution is known, on behalf of another task. */
  <T extends @Nullable Object> T runHere(Execution here, TaskBody<T> body) throws Exception {
    Task before = here.enter(this);
    try {
      return begun(body);
    } finally {
      here.leave(before);
    }
  }

  private <T extends @Nullable Object> T begun(TaskBody<T> body) throws Exception {
    checkAndBecome();
    return live(body);
  }

  private void checkAndBecome() throws Exception {
    if (isStoppedBeforeBegin()) {
      setRunner(GONE); // a fork that lies with its parent must not begin a second time, in its join
      letGo();
      throw notBegun();
    }
    become(Thread.currentThread());
  }

  /** Its claims and its thread are those of this fork. Before it is handed out. */
  void sits(Fork<?> fork) {
    seat = fork;
  }

  /** It has ended before anybody asked for it. Before it is handed out. */
  void endsAsMade() {
    runner = GONE;
    frames = null;
  }

  /** As {@link #runClaimed}, of a child that has no task unless somebody asks for it. */
  @SuppressWarnings("CatchingUnchecked") // whatever it throws is the task's failure
  static <T extends @Nullable Object> T runUnasked(Fork<?> fork, TaskBody<T> body)
      throws Exception {
    Throwable failure = null;
    T value;
    try {
      value = nullable(body.run());
    } catch (Throwable thrown) {
      failure = thrown;
      value = nullable(null);
    }
    Task asked = fork.taskIfAsked();
    if (asked != null) {
      return asked.ends(value, failure);
    }
    vacate(fork);
    asked = fork.taskIfAsked(); // after it: who asked meanwhile, to interrupt it, has done so
    if (asked != null) {
      asked.letGo();
      asked.clearOwnInterrupt();
    }
    if (failure != null) {
      Problems problems = new Problems();
      problems.add(failure);
      throw problems.toThrow();
    }
    return value;
  }

  /** As run, on a thread that has claimed it: the task is current already. */
  <T extends @Nullable Object> T runClaimed(TaskBody<T> body) throws Exception {
    if (isStoppedBeforeBegin()) {
      setRunner(GONE);
      letGo();
      throw notBegun();
    }
    if (flags != 0) {
      Thread.currentThread().interrupt();
    }
    return live(body);
  }

  private boolean isStoppedBeforeBegin() {
    return isCancelled() && !Mutant.on("task.cancelled-still-begins");
  }

  private Exception notBegun() {
    Problems problems = new Problems();
    problems.add(cancelled()); // its attachments' end hooks run all the same
    endAttachments(problems);
    return problems.toThrow();
  }

  @SuppressWarnings("CatchingUnchecked") // whatever it throws is the task's failure
  private <T extends @Nullable Object> T live(TaskBody<T> body) throws Exception {
    T value;
    try {
      value = nullable(body.run());
    } catch (Throwable failure) {
      return ends(nullable(null), failure);
    }
    return ends(value, null);
  }

  private <T extends @Nullable Object> T ends(T value, @Nullable Throwable failure)
      throws Exception {
    Problems problems = null;
    if (failure != null) {
      problems = new Problems();
      problems.add(failure);
    }
    if (scopes != null || attachments != null) {
      problems = problems == null ? new Problems() : problems;
      closeLeftScopes(problems);
      endAttachments(problems);
    }
    if (family) {
      family = false;
      Objects.requireNonNull(Execution.current()).leaveFamily();
    }
    leave();
    if (problems == null || problems.first() == null) {
      return value;
    }
    throw problems.toThrow();
  }

  /**
   * Runs the body as this task on the calling thread while the thread that acts for it waits: the
   * task is lent. The lender gets it back before this returns.
   */
  <T extends @Nullable Object> T runLent(Thread lender, TaskBody<T> body) throws Exception {
    if (isRoot()) {
      return nullable(body.run());
    }
    become(Thread.currentThread());
    try {
      Execution here = Execution.current();
      if (here == null) {
        return Execution.begin(this, body);
      }
      Task before = here.enter(this);
      try {
        return nullable(body.run());
      } finally {
        here.leave(before);
      }
    } finally {
      setRunner(lender);
      clearOwnInterrupt();
      if (flags != 0) {
        lender.interrupt();
      }
    }
  }

  /** The calling thread acts for this task again, after a child ran inline on it. */
  void resume() {
    if (!isRoot()) {
      become(Thread.currentThread());
    }
  }

  /** Interrupts the calling thread again if the task was: a child in place has used it up. */
  void resumeAfterChild() {
    if (flags != 0) {
      Thread.currentThread().interrupt();
    }
  }

  /** Whether it was asked to stop, or interrupted. */
  boolean isDisturbed() {
    return flags != 0;
  }

  /** The strand of its children WITH_PARENT. Own thread. */
  Strand family(Execution here) {
    Strand known = here.strand();
    if (known == null) {
      known = here.foundFamily();
      family = true;
    }
    return known;
  }

  /** Whether this is the other one, or cannot end before it does. Any thread. */
  @SuppressWarnings("ReferenceEquality") // a task is itself
  boolean isWaitedForBy(Task other) {
    for (Task task = this; task != null; task = task.called ? null : task.parent) {
      if (task == other) {
        return true;
      }
    }
    return false;
  }

  private void become(Thread thread) {
    setRunner(thread);
    // volatile both: a canceller that missed the runner has set a flag that is seen here
    if (flags != 0) {
      thread.interrupt();
    }
  }

  private void leave() {
    setRunner(GONE);
    letGo();
    clearOwnInterrupt();
  }

  /**
   * It has ended: whoever keeps it need not keep the fork, and its result, nor the scopes that it
   * was in, and the results there. Its thread, and who made it too late for that.
   */
  void letGo() {
    frames = null;
    if (seat() != null) {
      runner = GONE;
      SEAT.setRelease(this, null);
    }
  }

  private void clearOwnInterrupt() {
    if ((flags & INTERRUPTED) == 0 && isCancelled()) {
      // our own interrupt, sent to end waits: it must not leak into what the thread does next
      Thread.interrupted();
    }
  }

  /** Who says which thread acts for it: its fork, or itself. */
  private @Nullable Fork<?> seat() {
    return (Fork<?>) SEAT.getAcquire(this);
  }

  private void setRunner(Object next) {
    Fork<?> fork = seat();
    for (; ; ) {
      Object seen = fork == null ? runner : fork.runner();
      // not while somebody pokes: the interrupt must not hit what the thread does next
      if (seen != POKING && moveRunner(fork, seen, next)) {
        return;
      }
      Thread.onSpinWait();
    }
  }

  /** The thread of this fork goes on to other work. */
  private static void vacate(Fork<?> fork) {
    for (; ; ) {
      Object seen = fork.runner();
      if (seen != POKING && fork.moveRunner(seen, GONE)) { // as setRunner
        return;
      }
      Thread.onSpinWait();
    }
  }

  private boolean moveRunner(@Nullable Fork<?> fork, @Nullable Object seen, Object next) {
    return fork == null ? RUNNER.compareAndSet(this, seen, next) : fork.moveRunner(seen, next);
  }

  private void interruptRunner() {
    Fork<?> fork = seat();
    for (; ; ) {
      Object seen = fork == null ? runner : fork.runner();
      if (seen instanceof Thread thread) {
        // compare-and-set: the thread stays the task's for one interrupt(), which never blocks
        if (moveRunner(fork, seen, POKING)) {
          thread.interrupt();
          moveRunner(fork, POKING, thread); // nobody else moves it from there
          return;
        }
      } else if (seen != POKING) {
        return; // not begun, or ended
      }
      Thread.onSpinWait();
    }
  }

  /** Its thread waits from here on until {@link #goesOn}. Own thread. */
  void parksFor(Object what) {
    if (!isRoot()) {
      PARKED_FOR.setOpaque(this, what);
    }
  }

  void goesOn() {
    if (!isRoot()) {
      PARKED_FOR.setOpaque(this, null);
    }
  }

  @Nullable Object parkedFor() {
    return PARKED_FOR.getOpaque(this);
  }

  /** The thread that acts for it; null before it begins and after it ended. */
  @Nullable Thread thread() {
    return actor() instanceof Thread thread ? thread : null;
  }

  boolean hasEnded() {
    return actor() == GONE;
  }

  private @Nullable Object actor() {
    Fork<?> fork = seat();
    return fork == null ? runner : fork.runner();
  }

  boolean hasAttachments() {
    return attachments != null;
  }

  // --- scopes, and where waiting is allowed
  // -------------------------------------------------------

  void push(TaskScope<?> scope) {
    if (!isRoot()) {
      scopes = scope;
    }
  }

  void pop(TaskScope<?> scope) {
    if (!isRoot()) {
      scopes = scope.outer;
    }
  }

  @Nullable TaskScope<?> innermostScope() {
    return isRoot() ? null : scopes;
  }

  private void closeLeftScopes(Problems problems) {
    TaskScope<?> left = scopes;
    if (left == null) {
      return;
    }
    problems.add(
        new IllegalStateException(
            "task '"
                + name()
                + "' ended with its scope '"
                + left.name()
                + "' open: use try-with-resources"));
    for (; left != null; left = scopes) {
      TaskScope<?> scope = left;
      problems.run(scope::closeNow);
    }
  }

  /**
   * The task of the calling thread, if that is a virtual one: only those can lose their context. An
   * owner's thread that binds as a lent task must not count: the lender, who is waiting for it,
   * would be refused its wait.
   */
  static @Nullable Task ofVirtualThread() {
    if (!Thread.currentThread().isVirtual()) {
      return null;
    }
    Task task = current();
    return task.isRoot() ? null : task;
  }

  /** Own thread: a context is bound for the length of a call, which therefore must not suspend. */
  void enterBind() {
    binds++;
  }

  /** Own thread: whether a context is bound, so that it must not suspend. */
  boolean isBinding() {
    return binds > 0;
  }

  void leaveBind() {
    binds--;
  }

  /** Refuses a wait that would hang or break a rule, instead of letting it. */
  void checkMayWait() {
    if (Thread.currentThread() instanceof RoleThread own && own.isPolling()) {
      throw new IllegalStateException(
          "a callback on the polling thread of '"
              + own.label
              + "' waits for a completion, and would wait for itself: register onDone instead");
    }
    if (binds > 0 && !isRoot() && Thread.currentThread().isVirtual()) {
      throw new IllegalStateException(
          "task '"
              + name()
              + "' waits inside a call that has a context current: it could resume "
              + "on another OS thread, without it. Wait outside of the call");
    }
  }

  /** ROOT waits as the runtime that was opened last. */
  static void rootWaitMode(WaitMode mode) {
    WAIT_MODE.setOpaque(ROOT, mode);
  }

  /** Says that null is among the values of T, which the type system cannot. */
  @SuppressWarnings({"NullAway", "TypeParameterUnusedInFormals"})
  static <T extends @Nullable Object> T nullable(@Nullable T value) {
    return value;
  }

  @Override
  public String toString() {
    return "Task[" + name() + " #" + id() + "]";
  }
}
