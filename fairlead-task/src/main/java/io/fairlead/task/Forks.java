package io.fairlead.task;

import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Fork and join for fine-grained recursion: a fork costs a few nanoseconds and no memory, and
 * becomes parallel only where a processor has nothing to do. {@link TaskScope#forkJoin} gives one
 * to a function, which hands it on to the functions that it calls:
 *
 * <pre>
 * static long fib(Forks forks, long n) {
 *   if (n &lt; 2) {
 *     return n;
 *   }
 *   LongFrame first = forks.fork(Example::fib, n - 1);
 *   long second = fib(forks, n - 2);
 *   return forks.join(first) + second;
 * }
 * </pre>
 *
 * <p>Each fork is joined once, by the function that forked it, the newest first. What a function
 * that throws has not joined is stopped and waited for. Once the scope is cancelled the next fork
 * throws {@link TaskCancelledException}, which names it.
 *
 * <p><b>What a forked function is.</b> A piece of the scope owner's task: run in place it is that
 * task; taken by a runner it is a child of it, which the scope's cancellation reaches wherever it
 * waits. Attachments and task locals are not handed to it: pass what it needs as its argument. A
 * piece that needs a task of its own is a {@link TaskScope#fork}.
 *
 * <p><b>Deque.</b> One for each thread and runtime, of frames that stay in their place. The owner
 * pushes and pops at {@code head}. Everything in it is public at once: no frame hides behind an
 * owner that computes or blocks. Which thread begins a frame is decided by a compare-and-set of the
 * frame itself (see {@link JoinFrame}), never by the indices, which only say where to look:
 *
 * <pre>
 *  0 .. top-1     begun: by runners, or in place for children of scopes
 *  top .. head-1  waiting, or begun
 *  head ..        free frames, to be used again
 *
 * field   | writer          | reader  | mode, guard
 * head    | owner           | runners | release: what lies below has been written
 * slots[] | owner           | runners | release / acquire: the frame's fields come with it; a
 *         |                 |         | stale slot is harmless, since its frame decides
 * slots   | owner, by growing | runners | volatile; the old array still names the same frames
 * top     | owner lowers it, a runner that took a frame raises it | runners | compare-and-set;
 *         |                 |         | upper half = times it was lowered, so that a late runner
 *         |                 |         | cannot hide what was forked since
 * exposed | owner           | runners | volatile: the owner waits, take frames without delay
 * called  | owner, runners  | both    | compare-and-set: see below
 * region, depth, looks | owner | owner | plain: looks are forksToLook, forksPerLook, looked
 * newer, older of the registry | any, under the registry's lock
 * </pre>
 *
 * <p><b>Who comes when the owner waits.</b> It has one runner come, on the processor that it
 * leaves, with no word to anybody else. That one takes the oldest frame, has the next runner come
 * if there are more, and only then runs its own; afterwards it takes what still lies there. So
 * however many of them block, one more comes; and where none does, one does it all.
 *
 * <pre>
 * called = false → true    the owner, exposed, or the runner that came: a runner was sent
 *        = true  → false   that runner has come; it looks at exposed and the frames after that
 *
 * owner:   frames; exposed = true;  called? → one will look    else send one
 * runner:  called = false; exposed? no → leaves; frames? none → leaves
 * </pre>
 *
 * Each side writes, then reads the other's: either the owner sends another one, or the runner sees
 * what the owner has left. A runner that finds nothing, since the owner went on, rests again.
 *
 * <p>A runner that took a frame moves top behind it if all from top up to it have begun; below the
 * taken frame nothing can be popped until that frame is DONE, so nothing new comes up below.
 * Children of scopes are popped as soon as they have begun, and unwound ones before: then top is
 * lowered in any case, and a runner looks no further than head.
 *
 * <p>Threads: each instance is used by one thread only, and says so otherwise.
 */
public final class Forks {
  /**
   * Joins in place on one stack; beyond, a runner does it. Some 200 bytes for a frame and 2 KiB for
   * a child of a scope, interpreted, are half of a thread's default stack of 1 MiB.
   */
  static final int DEPTH_MAX = 512;

  /** What a child of a scope that runs in place counts for. */
  static final int DEPTH_CHILD = 4;

  private static final int SLOTS_MIN = 16;

  /** Forks until the first look at the clock, which costs as much as some twenty of them. */
  private static final int FORKS_PER_LOOK = 64;

  /** From then on as many as take about this long, so that tiny forks seldom pay for a look. */
  private static final long LOOK_NANOS_MIN = 10_000;

  private static final long LOOK_NANOS_MAX = 25_000;
  private static final int FORKS_PER_LOOK_MAX = 4_096;

  /** A child of a scope costs as much as some frames, and most often does more. */
  private static final int LOOKS_PER_CHILD = 4;

  private static final ForkFrame[] NO_SLOTS = {};
  private static final VarHandle HEAD;
  private static final VarHandle TOP;
  private static final VarHandle SLOT;
  private static final VarHandle CALLED;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      HEAD = lookup.findVarHandle(Forks.class, "head", int.class);
      TOP = lookup.findVarHandle(Forks.class, "top", long.class);
      CALLED = lookup.findVarHandle(Forks.class, "called", boolean.class);
      SLOT = MethodHandles.arrayElementVarHandle(ForkFrame[].class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  final Runners runners;
  final Execution execution;
  final @Nullable Forks older;
  private final @Nullable Thread thread;

  private volatile ForkFrame[] slots = NO_SLOTS;
  private ForkFrame[] own = NO_SLOTS;
  private int head;
  private volatile long top;
  private volatile boolean exposed;
  private volatile boolean called;
  private @Nullable TaskScope<?> region;
  private int depth;
  private int forksToLook = FORKS_PER_LOOK;
  private int forksPerLook = FORKS_PER_LOOK;
  private long looked;

  /** The registry's ring. */
  @Nullable Forks ringNext;

  @Nullable Forks ringPrevious;

  Forks(Runners runners, Execution execution, @Nullable Forks older) {
    this.runners = runners;
    this.execution = execution;
    this.older = older;
    this.thread = execution.thread;
  }

  // --- forking ----------------------------------------------------------------------------------

  /**
   * Leaves {@code fn(argument)} to be run by {@link #join(LongFrame)}, or by a runner before that.
   * Never blocks.
   *
   * @throws TaskCancelledException if the scope was cancelled
   * @throws IllegalStateException on another thread than its own, or after forkJoin has returned
   */
  @SuppressWarnings("ReferenceEquality") // only whether a store would change anything
  public LongFrame fork(LongFork fn, long argument) {
    TaskScope<?> scope = region;
    if (scope == null || scope.isStopped() || Thread.currentThread() != thread) {
      throw refused(scope);
    }
    int h = head;
    ForkFrame[] s = own;
    LongFrame frame = h < s.length && s[h] instanceof LongFrame found ? found : newLongFrame(h);
    frame.argument = argument;
    // a store of a reference costs a collector's barrier, so none that changes nothing
    if (frame.fn != fn) {
      frame.fn = fn;
    }
    if (frame.region != scope) {
      frame.region = scope;
    }
    frame.ready();
    HEAD.setRelease(this, h + 1);
    if (runners.wantsAttention()) {
      runners.attend(frame);
    }
    if (--forksToLook <= 0) {
      lookAround();
    }
    return frame;
  }

  /**
   * As {@link #fork(LongFork, long)}, with objects.
   *
   * @throws TaskCancelledException if the scope was cancelled
   * @throws IllegalStateException on another thread than its own, or after forkJoin has returned
   */
  @SuppressWarnings("ReferenceEquality") // only whether a store would change anything
  public <A extends @Nullable Object, R extends @Nullable Object> ObjectFrame<R> fork(
      ObjectFork<A, R> fn, A argument) {
    TaskScope<?> scope = region;
    if (scope == null || scope.isStopped() || Thread.currentThread() != thread) {
      throw refused(scope);
    }
    int h = head;
    ForkFrame[] s = own;
    ObjectFrame<?> frame =
        h < s.length && s[h] instanceof ObjectFrame<?> found ? found : newObjectFrame(h);
    if (frame.argument != argument) {
      frame.argument = argument;
    }
    if (frame.fn != fn) {
      frame.fn = fn;
    }
    if (frame.region != scope) {
      frame.region = scope;
    }
    frame.ready();
    HEAD.setRelease(this, h + 1);
    if (runners.wantsAttention()) {
      runners.attend(frame);
    }
    if (--forksToLook <= 0) {
      lookAround();
    }
    return typed(frame);
  }

  private void lookAround() {
    long now = System.nanoTime();
    long spent = now - looked;
    looked = now;
    if (spent < LOOK_NANOS_MIN) {
      forksPerLook = Math.min(2 * forksPerLook, FORKS_PER_LOOK_MAX);
    } else if (spent > LOOK_NANOS_MAX) {
      forksPerLook = Math.max(forksPerLook / 2, 1);
    }
    forksToLook = forksPerLook;
    Carriers.atForkPoint(now);
  }

  @SuppressWarnings("unchecked") // its function gives R
  private static <R extends @Nullable Object> ObjectFrame<R> typed(ObjectFrame<?> frame) {
    return (ObjectFrame<R>) frame;
  }

  private LongFrame newLongFrame(int h) {
    LongFrame made = new LongFrame(this, h);
    put(h, made);
    return made;
  }

  private ObjectFrame<?> newObjectFrame(int h) {
    ObjectFrame<?> made = new ObjectFrame<>(this, h);
    put(h, made);
    return made;
  }

  private void put(int h, ForkFrame frame) {
    if (h == own.length) {
      grow();
    }
    SLOT.setRelease(own, h, frame);
  }

  private void grow() {
    boolean first = own.length == 0;
    own = Arrays.copyOf(own, Math.max(SLOTS_MIN, 2 * own.length));
    slots = own;
    if (first) {
      runners.register(this);
    }
  }

  /** Leaves a scope's child here. Own thread; the caller has written the child. */
  void push(Fork<?> child) {
    lay(child);
    if (runners.wantsAttention()) {
      runners.attend(child);
    }
    forksToLook -= LOOKS_PER_CHILD;
    if (forksToLook <= 0) {
      lookAround();
    }
  }

  /** Puts what waits to begin on top. Own thread. */
  void lay(ForkFrame frame) {
    int h = head;
    put(h, frame);
    HEAD.setRelease(this, h + 1);
  }

  // --- joining ----------------------------------------------------------------------------------

  /**
   * The result of a fork: runs it in place if nobody took it, else waits for whoever did. Its
   * failure is thrown as it is. Cancellation does not end the wait, but the scope's ends what is
   * waited for.
   *
   * @throws IllegalStateException if it was joined already, is not the newest that is not joined,
   *     or belongs to another thread
   */
  public long join(LongFrame frame) {
    int h = head - 1;
    if (frame.index == h && frame.forks == this && depth < DEPTH_MAX && frame.claim()) {
      HEAD.setOpaque(this, h);
      depth++;
      try {
        @SuppressWarnings("NullAway") // forked, so there is a function
        long result = frame.fn.run(this, frame.argument);
        if (head == h) {
          depth--;
          return result;
        }
        throw leftBehind();
      } catch (Throwable thrown) {
        depth--;
        unwind(h);
        throw thrown;
      }
    }
    joinTaken(frame);
    return frame.result;
  }

  /**
   * As {@link #join(LongFrame)}.
   *
   * @throws IllegalStateException if it was joined already, is not the newest that is not joined,
   *     or belongs to another thread
   */
  @SuppressWarnings("unchecked") // the frame's function takes its argument and gives an R
  public <R extends @Nullable Object> R join(ObjectFrame<R> frame) {
    int h = head - 1;
    if (frame.index == h && frame.forks == this && depth < DEPTH_MAX && frame.claim()) {
      HEAD.setOpaque(this, h);
      depth++;
      try {
        Object argument = frame.argument;
        frame.argument = null; // not kept alive until the next fork here
        @SuppressWarnings("NullAway") // forked, so there is a function
        R result = ((ObjectFork<@Nullable Object, R>) frame.fn).run(this, argument);
        if (head == h) {
          depth--;
          return result;
        }
        throw leftBehind();
      } catch (Throwable thrown) {
        depth--;
        unwind(h);
        throw thrown;
      }
    }
    joinTaken(frame);
    R result = (R) Task.nullable(frame.result);
    frame.forget();
    return result;
  }

  private void joinTaken(JoinFrame frame) {
    check(frame);
    Task.current().checkMayWait(); // not in place: a claim costs less than this
    if (frame.takeForRunner()) {
      runners.execute(frame); // the stack is deep: go on with an empty one
    }
    frame.awaitDone();
    HEAD.setOpaque(this, frame.index);
    lowerTop();
    frame.finish();
  }

  private void check(JoinFrame frame) {
    if (frame.forks != this || Thread.currentThread() != thread) {
      throw new IllegalStateException(
          "this frame belongs to another thread: join it in the function that forked it, with the"
              + " Forks that were given to that function");
    }
    trim(frame.index + 1);
    if (frame.isFree() || frame.index >= head) {
      throw new IllegalStateException("this frame was joined already: each fork is joined once");
    }
    if (frame.index != head - 1) {
      throw new IllegalStateException(
          "this frame is joined out of order: "
              + (head - 1 - frame.index)
              + " newer forks are not joined yet; join the newest first");
    }
  }

  private IllegalStateException leftBehind() {
    return new IllegalStateException(
        "a forked function returned without joining all that it forked: each fork is joined once");
  }

  private RuntimeException refused(@Nullable TaskScope<?> scope) {
    if (Thread.currentThread() != thread) {
      return new IllegalStateException(
          "these Forks belong to another thread: use those that were given to the function");
    }
    if (scope == null) {
      return new IllegalStateException(
          "these Forks are used after forkJoin has returned: call TaskScope.forkJoin again");
    }
    return scope.stopped();
  }

  // --- regions ----------------------------------------------------------------------------------

  /** Runs the function under this scope, and leaves the deque as it was. */
  long call(TaskScope<?> scope, LongFork fn, long argument) {
    TaskScope<?> outer = region;
    int base = head;
    region = scope;
    try {
      long result = fn.run(this, argument);
      if (head != base) {
        throw leftBehind();
      }
      return result;
    } catch (Throwable thrown) {
      unwind(base);
      throw thrown;
    } finally {
      region = outer;
    }
  }

  /** As above, with objects. */
  <A extends @Nullable Object, R extends @Nullable Object> R call(
      TaskScope<?> scope, ObjectFork<A, R> fn, A argument) {
    TaskScope<?> outer = region;
    int base = head;
    region = scope;
    try {
      R result = fn.run(this, argument);
      if (head != base) {
        throw leftBehind();
      }
      return result;
    } catch (Throwable thrown) {
      unwind(base);
      throw thrown;
    } finally {
      region = outer;
    }
  }

  /** Drops what lies above and waits for what runs: a function has thrown and will not join. */
  private void unwind(int base) {
    while (head > base) {
      int h = head - 1;
      if (own[h] instanceof JoinFrame frame) {
        if (!frame.claim()) {
          dropTaken(frame);
        }
        frame.forget();
      } else {
        SLOT.setOpaque(own, h, null); // a scope's child needs no deque: its scope finds it
      }
      HEAD.setOpaque(this, h);
    }
    lowerTopAnyhow();
  }

  @SuppressWarnings("CatchingUnchecked") // what was thrown first stands
  private static void dropTaken(JoinFrame frame) {
    if (frame.isFree()) {
      return;
    }
    frame.awaitDone();
    try {
      frame.finish();
    } catch (RuntimeException | Error second) {
      // the function that forked it has failed already, and this may be the same failure
    }
  }

  // --- for scopes -------------------------------------------------------------------------------

  boolean isDeep() {
    return depth >= DEPTH_MAX;
  }

  void enterChild() {
    depth += DEPTH_CHILD;
  }

  void leaveChild() {
    depth -= DEPTH_CHILD;
  }

  /** Where the next fork goes: what a function leaves must be as it found it. Own thread. */
  int head() {
    return head;
  }

  /** Takes children of scopes off the top that have begun, down to where its caller began. */
  void trim(int floor) {
    int h = head;
    while (h > floor && own[h - 1] instanceof Fork<?> child && child.waiting() == 0) {
      h--;
      SLOT.setOpaque(own, h, null);
    }
    if (h != head) {
      HEAD.setOpaque(this, h);
      lowerTopAnyhow();
    }
  }

  /** Everything below this child has begun: runners need not look there. */
  void skipBegun() {
    long seen = top;
    int at = (int) seen;
    int h = head;
    while (at < h && own[at] instanceof Fork<?> child && child.waiting() == 0) {
      at++;
    }
    // compare-and-set: a runner may move it too; whoever fails has only more to look at
    TOP.compareAndSet(this, seen, word(seen, at));
  }

  // --- for runners, and waits -------------------------------------------------------------------

  /** The oldest frame that waits, or null. Any thread. */
  @Nullable ForkFrame oldest() {
    int h = (int) HEAD.getAcquire(this);
    ForkFrame[] s = slots;
    int end = Math.min(h, s.length);
    for (int i = (int) top; i < end; i++) {
      ForkFrame frame = (ForkFrame) SLOT.getAcquire(s, i);
      if (frame != null && frame.waiting() != 0) {
        return frame;
      }
    }
    return null;
  }

  /** Takes this frame for the calling runner, if it still waits under this number. */
  boolean take(ForkFrame frame, long number) {
    long seen = top; // before the frame is taken: see the class comment
    int next = nextIfAllBegun(frame, (int) seen);
    if (!frame.take(number)) {
      return false;
    }
    if (next >= 0) {
      TOP.compareAndSet(this, seen, word(seen, next));
    }
    return true;
  }

  /**
   * The index behind this frame if all from the given one up to it have begun, else -1. Of two
   * runners that take at the same time the second moves no index; who takes next passes over both.
   */
  @SuppressWarnings("ReferenceEquality") // a frame is itself
  private int nextIfAllBegun(ForkFrame frame, int from) {
    int h = (int) HEAD.getAcquire(this); // after top: what lies below it is no leftover
    ForkFrame[] s = slots;
    int end = Math.min(h, s.length);
    for (int at = from; at < end; at++) {
      ForkFrame there = (ForkFrame) SLOT.getAcquire(s, at);
      if (there == frame) {
        return at + 1;
      }
      if (there == null || there.waiting() != 0) {
        return -1;
      }
    }
    return -1;
  }

  private static long word(long seen, int index) {
    return (seen & ~0xFFFF_FFFFL) | index;
  }

  /** Owner: what was popped may be forked again. */
  private void lowerTop() {
    // also where it is there already: a late runner may be about to move it up by one
    if ((int) top >= head) {
      lowerTopAnyhow();
    }
  }

  /**
   * Owner: a runner that has just begun a child that was popped, or still may, must not take the
   * index that it had for a sign of what lies here now.
   */
  private void lowerTopAnyhow() {
    long seen = top;
    top = (((seen >>> 32) + 1) << 32) | Math.min((int) seen, head);
  }

  /** Below it nothing waits. For tests. */
  int topIndex() {
    return (int) top;
  }

  /**
   * Takes the oldest frame for the calling runner, while the owner waits; null if there is none.
   */
  @Nullable ForkFrame takeExposed() {
    while (exposed) {
      ForkFrame frame = oldest();
      if (frame == null) {
        return null;
      }
      if (take(frame, frame.waiting())) {
        return frame;
      }
    }
    return null;
  }

  boolean isExposed() {
    return exposed;
  }

  /** Whether a fork waits here. */
  boolean holdsFrames() {
    return oldest() != null;
  }

  /** The owner is about to wait: if something lies here a runner comes at once. */
  void expose() {
    if (holdsAny() && offer()) {
      send();
    }
  }

  /** Whether there is anything to expose. Own thread. */
  boolean holdsAny() {
    return head > 0 && holdsFrames();
  }

  /** As {@link #expose}, for a wait that must not end: where there is no thread nobody comes. */
  @SuppressWarnings("CatchingUnchecked") // what is waited for goes on, whatever happens here
  void exposeAnyhow() {
    try {
      expose();
    } catch (Throwable none) {
      // the owner runs what lies here, when it has waited
    }
  }

  /**
   * The owner waits for what a runner has, and exposed what lies here: none does, then perhaps
   * elsewhere.
   */
  void lookElsewhere() {
    if (!exposed) {
      runners.processorFree();
    }
  }

  /** The owner lets runners take what lies here; whether it is for it to send one. */
  boolean offer() {
    exposed = true; // volatile, before the look at called: see the class comment
    return call();
  }

  /**
   * By the runner that was sent here: takes a frame, and has the next one come if there is more.
   */
  @Nullable ForkFrame takeAsSent() {
    called = false; // volatile, before the look at exposed and the frames: see the class comment
    ForkFrame frame = takeExposed();
    boolean more = frame != null && exposed && holdsFrames();
    if (more && !Mutant.on("forks.one-runner-comes") && call()) {
      sendAnother();
    }
    return frame;
  }

  @SuppressWarnings("CatchingUnchecked") // this runner has a frame to run, whatever happens
  private void sendAnother() {
    try {
      send();
    } catch (Throwable none) {
      // no thread to be had: this runner takes what is left, when it has run what it took
    }
  }

  /** Whether no runner is on its way, and the caller is the one to send one. */
  boolean call() {
    // compare-and-set: the owner and a runner may both want one
    return !called && CALLED.compareAndSet(this, false, true);
  }

  /**
   * Throws where there is neither a thread to be had nor a watcher, and something lies here still:
   * nobody would ever come. The last watcher may be the one that has just emptied this.
   */
  private void send() {
    try {
      runners.send(this);
    } catch (Throwable none) {
      called = false; // the next wait tries again
      if (!runners.wakesWatcher() && holdsFrames()) {
        throw none;
      }
    }
  }

  void cover() {
    if (exposed) {
      exposed = false;
    }
  }

  void end() {
    if (own.length > 0) {
      runners.unregister(this);
    }
  }
}
