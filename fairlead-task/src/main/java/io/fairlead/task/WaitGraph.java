package io.fairlead.task;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The runtime's own waits on which others may depend, of all runtimes: a wait that would close a
 * circle is found as it begins, and fails instead of hanging.
 *
 * <p><b>What is held.</b> Each {@link Held} thing is free again only when certain tasks have ended:
 *
 * <pre>
 * a call of an engine    the task that made it, and whoever it waits for by structure
 * a call on an owner     the task that it runs in, and its children
 * an owner's thread      what runs on it, and the children of scopes that were opened on it
 * an owner's end         its affine tasks
 * a scope                its children, and theirs
 * a frame that was taken the runner's task, and its children
 * </pre>
 *
 * A task knows what depends on it by its {@link Frame}s: what it is in, innermost first, and then
 * what its scope was opened in. So a child that waits stands for its parent too, who cannot leave
 * the scope before it.
 *
 * <p><b>When a wait is hopeless.</b>
 *
 * <pre>
 * for an instance        every instance is in a call that depends on a hopeless wait
 * for an engine's end    one of its calls does
 * for a call on an owner the owner's thread does, or the call's own task
 * for an owner's end     the same, or one of its affine tasks
 * for a scope's children one of them does, or is bound to an owner whose thread does
 * for a taken frame      whoever runs it does
 * </pre>
 *
 * The largest set of waits that are hopeless by each other is a deadlock. Such a set only comes up
 * when a wait begins, or a hope ends; who brings it about looks, under the lock. A wait that begins
 * fails if it is in the set. Where that one must not fail (a close, a frame, a hope that ended),
 * another one of the set is refused while it waits.
 *
 * <p><b>What ends by itself is no part of it:</b> a wait that has a deadline, whose task was asked
 * to stop, or below a scope or a fork that has a deadline, which will cancel it; and one below a
 * FIRST_SUCCESS scope, while a child that is not in the set may succeed. When that one fails, or
 * waits in the set too, the hope ends: that looks again. A failure that would cancel siblings, and
 * a child that is not forked yet, are no hope: nobody knows of them.
 *
 * <p><b>Joins.</b> Whoever joins a scope in no more than it was opened in is covered by its
 * children's frames, and costs nothing. One that has entered more since (a call, an owner's thread)
 * is a wait itself: it <i>exposes</i> what it holds to its children. Only while there is one do the
 * waits of tasks that hold nothing themselves matter. These are <i>loose</i>: kept in a concurrent
 * set, without the lock.
 *
 * <pre>
 * field         | guard
 * WAITS         | LOCK: those that hold calls or threads
 * LOOSE, LOOSE_JOINS | concurrent sets: the rest, those for scopes and frames apart
 * exposures, hoping | LOCK to write; volatile: who is loose adds itself, then reads them; who
 *               | writes them looks at the loose ones after that: one sees the other
 * HOPED         | LOCK: scopes of whose children one may succeed yet, and end a circle; hoping
 *               | says whether there are any
 * Held.waits    | LOCK: how many of WAITS depend on its end
 * Wait.refused  | LOCK to write; volatile, then unpark: the waiter reads it after its park
 * </pre>
 *
 * <p>No phantom is seen although the calls of engines come and go meanwhile: let a wait be the
 * first of a found set to end. It cannot be given what it waits for, since whoever holds that waits
 * in the set; so it was stopped, which is looked at, or refused, under the lock.
 *
 * <p>What waits for memory or for strangers' completions is not known here.
 *
 * <p>Lock order: LOCK → an engine's pool. Both are held for moments, and nobody waits in their
 * queues: an affine task that is woken there could only take the lock on its owner's thread, which
 * may wait behind it. So who holds one never suspends.
 */
final class WaitGraph {
  private static final ReentrantLock LOCK = new ReentrantLock();
  private static final Set<Wait> WAITS = new LinkedHashSet<>();
  private static final Set<Wait> LOOSE = ConcurrentHashMap.newKeySet();
  private static final Set<Wait> LOOSE_JOINS = ConcurrentHashMap.newKeySet();
  private static final Set<Frame> HOPED = Collections.newSetFromMap(new IdentityHashMap<>());
  private static volatile int exposures;
  private static volatile boolean hoping;

  private WaitGraph() {}

  // --- what is held -----------------------------------------------------------------------------

  /** Something that is free again only when tasks have ended that have a {@link Frame} of it. */
  abstract static class Held {
    private int waits;

    /** For messages: "in a call of engine 'x'", say. */
    abstract String where();
  }

  /** One thing that a task is in, so that it cannot be free before the task ends. */
  abstract static class Frame extends Held {
    /** What that is in. */
    final @Nullable Frame around;

    /** The next call or thread from here outwards: most tasks are in none. */
    final @Nullable In inside;

    Frame(@Nullable Frame around) {
      this.around = around;
      this.inside = this instanceof In in ? in : insideOf(around);
    }

    Held held() {
      return this;
    }

    /** Whether a deadline will cancel what is in it, or somebody has begun to. */
    abstract boolean cancels();
  }

  private static @Nullable In insideOf(@Nullable Frame frame) {
    return frame == null ? null : frame.inside;
  }

  /** A call, or an owner's thread. */
  static final class In extends Frame {
    private final Held held;

    In(Held held, @Nullable Frame around) {
      super(around);
      this.held = held;
    }

    @Override
    Held held() {
      return held;
    }

    @Override
    boolean cancels() {
      return false;
    }

    @Nullable In next() {
      return insideOf(around);
    }

    @Override
    String where() {
      return held.where();
    }
  }

  /** A fork that has a deadline. */
  static final class Timed extends Frame {
    Timed(Frame around) {
      super(around);
    }

    @Override
    boolean cancels() {
      return true;
    }

    @Override
    String where() {
      return "below a deadline";
    }
  }

  /** A frame of a scope that a runner took. */
  static final class Lent extends Frame {
    Lent(TaskScope<?> scope) {
      super(scope);
    }

    @Override
    boolean cancels() {
      return false;
    }

    @Override
    String where() {
      return "in a frame";
    }
  }

  /** What depends on the caller's task: its frames, and the thread that it would hold up. */
  static @Nullable Frame framesHere(Task task) {
    Owner owner = RoleThread.currentOwner();
    // that of an engine's instance is only wanted by whoever waits for the instance
    return owner == null || owner.forEngine ? task.frames : new In(owner.held, task.frames);
  }

  /** Whether these are in a call, or on a thread, in which the others are not. */
  static boolean isMore(@Nullable Frame frames, @Nullable Frame than) {
    for (In in = insideOf(frames); in != null; in = in.next()) {
      if (!isIn(than, in.held)) {
        return true;
      }
    }
    return false;
  }

  @SuppressWarnings("ReferenceEquality") // what is held is itself
  private static boolean isIn(@Nullable Frame frames, Held held) {
    for (In in = insideOf(frames); in != null; in = in.next()) {
      if (in.held == held) {
        return true;
      }
    }
    return false;
  }

  // --- waits ------------------------------------------------------------------------------------

  /** One wait, of one thread. Made by it. */
  abstract static class Wait {
    final Task task;
    private final Thread thread = Thread.currentThread();
    private final @Nullable Frame frames;
    private final boolean obeys;
    private volatile @Nullable String refused;

    /**
     * A wait of the calling thread.
     *
     * @param frames what it is in
     * @param obeys whether cancellation and interrupts end it
     */
    Wait(Task task, @Nullable Frame frames, boolean obeys) {
      this.task = task;
      this.frames = frames;
      this.obeys = obeys;
    }

    /** Whether it has what it waits for. */
    abstract boolean isDone();

    /** Whether what it waits for never comes if this is so of what is held. */
    abstract boolean isHopeless(Predicate<Held> stuck);

    /** For messages: "an instance of engine 'x'", say. */
    abstract String what();

    abstract RuntimeException refusal(String circle);

    /** Whether it may fail while it waits; if not another one has to. */
    boolean mayBeRefused() {
      return true;
    }

    /** Whether it may begin even so, since another one of the circle has to fail. */
    boolean mayBegin() {
      return !mayBeRefused();
    }

    /** Whether it waits for a scope or a frame. */
    boolean isJoin() {
      return false;
    }

    /** The scope, or what a runner made of the frame; null if it waits for something else. */
    @Nullable Frame joins() {
      return null;
    }

    /** Whether it holds what its children, who stand for it otherwise, do not. */
    boolean isLoose() {
      return insideOf(frames) == null;
    }

    final void throwIfRefused() {
      String circle = refused;
      if (circle != null) {
        throw refusal(circle);
      }
    }

    final boolean isRefused() {
      return refused != null;
    }

    private void refuse(String circle) {
      refused = circle; // volatile, and unpark after it
      LockSupport.unpark(thread);
    }

    /** Whether it ends without any other. */
    private boolean endsByItself() {
      return isDone() || (obeys && (task.isDisturbed() || thread.isInterrupted() || isCancelled()));
    }

    private boolean isCancelled() {
      for (Frame f = frames; f != null; f = f.around) {
        if (f.cancels()) {
          return true;
        }
      }
      return false;
    }

    private void addHeld(Set<Held> all) {
      for (Frame f = frames; f != null; f = f.around) {
        all.add(f.held());
      }
    }

    private void count(int by) {
      for (In in = insideOf(frames); in != null; in = in.next()) {
        in.held.waits += by;
      }
    }

    private boolean isBelow(Set<Frame> scopes) {
      for (Frame f = frames; f != null; f = f.around) {
        if (scopes.contains(f)) {
          return true;
        }
      }
      return false;
    }

    @Override
    public String toString() {
      String places =
          Stream.iterate(insideOf(frames), in -> in != null, In::next)
              .map(In::where)
              .distinct()
              .collect(Collectors.joining(" and "));
      String who = task.isRoot() ? "a thread in no task" : "task '" + task.name() + "'";
      return who + (places.isEmpty() ? "" : ", " + places + ",") + " waits for " + what();
    }
  }

  /**
   * The calling thread is about to wait. It leaves when the wait is over, however it ended.
   *
   * @throws RuntimeException the wait's refusal, if it could never end
   */
  static void enter(Wait wait) {
    if (wait.isLoose()) {
      loose(wait).add(wait);
      if (exposures == 0 && !hoping) { // volatile, after the add: see the table
        return;
      }
    }
    lock(LOCK);
    try {
      add(wait);
      if (mayBeInCircle(wait)) { // seldom
        breakCircles(wait);
      }
    } finally {
      LOCK.unlock();
    }
    wait.throwIfRefused();
  }

  static void leave(Wait wait) {
    if (wait.isLoose()) {
      loose(wait).remove(wait);
      return;
    }
    lock(LOCK);
    try {
      remove(wait);
    } finally {
      LOCK.unlock();
    }
  }

  /** Looks for circles: something that might have ended waits will not do so any more. */
  static void look() {
    lock(LOCK);
    try {
      breakCircles(null);
    } finally {
      LOCK.unlock();
    }
  }

  /** This scope has ended. */
  static void forget(TaskScope<?> scope) {
    lock(LOCK);
    try {
      HOPED.remove(scope);
      hoping = !HOPED.isEmpty();
    } finally {
      LOCK.unlock();
    }
  }

  /**
   * Adds every wait that is hopeless if what is held is not free again, and what is held by it.
   *
   * @param held changed
   * @param stuck changed
   */
  static void addHopeless(Set<Held> held, Set<Wait> stuck) {
    lock(LOCK);
    try {
      List<Wait> rest = new ArrayList<>(WAITS);
      rest.addAll(LOOSE);
      rest.addAll(LOOSE_JOINS);
      rest.removeIf(Wait::endsByItself);
      boolean again = true;
      while (again) {
        again = false;
        for (Wait wait : List.copyOf(rest)) {
          if (wait.isHopeless(held::contains)) {
            wait.addHeld(held);
            stuck.add(wait);
            rest.remove(wait);
            again = true;
          }
        }
      }
    } finally {
      LOCK.unlock();
    }
  }

  /** How many waits are known. For tests. */
  static int size() {
    lock(LOCK);
    try {
      return WAITS.size() + LOOSE.size() + LOOSE_JOINS.size() + HOPED.size();
    } finally {
      LOCK.unlock();
    }
  }

  /** How many of them wait for this, as {@link Wait#what} says it. For tests. */
  static long size(String what) {
    lock(LOCK);
    try {
      return Stream.of(WAITS, LOOSE, LOOSE_JOINS)
          .flatMap(Set::stream)
          .filter(wait -> wait.what().equals(what))
          .count();
    } finally {
      LOCK.unlock();
    }
  }

  private static Set<Wait> loose(Wait wait) {
    return wait.isJoin() ? LOOSE_JOINS : LOOSE;
  }

  /** Takes the graph's lock, or that of an engine's pool: see the class comment. */
  @SuppressWarnings("ThreadPriorityCheck") // whoever holds it may need the processor
  static void lock(ReentrantLock lock) {
    boolean mayYield = !LOCK.isHeldByCurrentThread();
    while (!lock.tryLock()) {
      if (mayYield) {
        Thread.yield();
      } else {
        Thread.onSpinWait();
      }
    }
  }

  // --- under the lock ---------------------------------------------------------------------------

  @SuppressWarnings("NonAtomicVolatileUpdate") // under the lock; volatile for those without
  private static void add(Wait wait) {
    if (!wait.isLoose() && WAITS.add(wait)) {
      wait.count(1);
      exposures += wait.isJoin() ? 1 : 0;
    }
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // as in add
  private static void remove(Wait wait) {
    if (wait.isLoose()) {
      loose(wait).remove(wait);
    } else if (WAITS.remove(wait)) {
      wait.count(-1);
      exposures -= wait.isJoin() ? 1 : 0;
    }
  }

  /** Whether it is worth looking: what it needs is held by who waits, and others depend on it. */
  private static boolean mayBeInCircle(Wait wait) {
    return wait.isHopeless(held -> held.waits > 0 || held instanceof Frame)
        && (!wait.isLoose() || wait.isBelow(exposed()));
  }

  /** The scopes and frames of which it matters whether loose waits are below them. */
  private static Set<Frame> exposed() {
    Set<Frame> all = Collections.newSetFromMap(new IdentityHashMap<>());
    all.addAll(HOPED);
    Stream.concat(WAITS.stream(), LOOSE_JOINS.stream())
        .map(Wait::joins)
        .forEach(
            joined -> {
              if (joined != null) {
                all.add(joined);
              }
            });
    return all;
  }

  /** Refuses waits until none is hopeless: the one that has just begun, if that helps. */
  private static void breakCircles(@Nullable Wait newest) {
    for (Set<Wait> found = hopeless(); !found.isEmpty(); found = hopeless()) {
      boolean itself = newest != null && !newest.mayBegin() && isIn(newest, found);
      Wait victim = itself ? newest : lastIn(found);
      if (victim == null) {
        return;
      }
      String circle = circle(victim, found);
      remove(victim);
      victim.refuse(Objects.requireNonNull(circle));
    }
  }

  /** Whether it is in a circle, not only behind one. */
  private static boolean isIn(Wait wait, Set<Wait> found) {
    return found.contains(wait) && circle(wait, found) != null;
  }

  private static @Nullable Wait lastIn(Set<Wait> found) {
    for (Wait wait : new ArrayList<>(found).reversed()) {
      if (wait.mayBeRefused() && isIn(wait, found)) {
        return wait;
      }
    }
    return null;
  }

  /** The largest set of waits of which each is hopeless by the others. */
  private static Set<Wait> hopeless() {
    for (; ; ) {
      Set<Frame> hopes = Collections.newSetFromMap(new IdentityHashMap<>());
      Set<Wait> found = hopeless(hopes);
      if (HOPED.containsAll(hopes)) {
        HOPED.retainAll(hopes);
        hoping = !HOPED.isEmpty();
        return found;
      }
      HOPED.addAll(hopes);
      hoping = true; // volatile, then once more: with those that are loose
    }
  }

  /** As it is known; tells the scopes without which it would be larger. */
  private static Set<Wait> hopeless(Set<Frame> hopes) {
    Set<Wait> rest = new LinkedHashSet<>(WAITS);
    if (exposures > 0 || hoping) {
      Set<Frame> exposed = exposed();
      Stream.concat(LOOSE.stream(), LOOSE_JOINS.stream())
          .filter(wait -> wait.isBelow(exposed))
          .forEach(rest::add);
    }
    rest.removeIf(Wait::endsByItself);
    for (boolean again = true; again; ) {
      Stuck stuck = new Stuck(List.copyOf(rest), hopes);
      again = rest.removeIf(wait -> !stuck.makesHopeless(wait));
    }
    return rest;
  }

  /** What can never be free if none of these waits ends. */
  private static final class Stuck {
    private final List<Wait> waits;
    private final Set<Held> held = Collections.newSetFromMap(new IdentityHashMap<>());
    private final IdentityHashMap<TaskScope<?>, Set<Task>> children = new IdentityHashMap<>();

    private final Set<Frame> hopes;

    Stuck(List<Wait> waits, Set<Frame> hopes) {
      this.waits = waits;
      this.hopes = hopes;
      waits.forEach(wait -> wait.addHeld(held));
    }

    boolean makesHopeless(Wait wait) {
      return wait.isHopeless(held::contains) && !(wait.obeys && mayBeCancelled(wait));
    }

    /** By a sibling of it, or of somebody above, that succeeds first. */
    private boolean mayBeCancelled(Wait wait) {
      for (Frame f = wait.frames; f != null; f = f.around) {
        if (f instanceof TaskScope<?> scope
            && scope.isForFirst()
            && scope.maySucceedWithout(childrenOf(scope), held::contains)) {
          hopes.add(scope);
          return true;
        }
      }
      return false;
    }

    /** Those below which one waits. */
    private Set<Task> childrenOf(TaskScope<?> scope) {
      return children.computeIfAbsent(
          scope,
          key -> {
            Set<Task> all = Collections.newSetFromMap(new IdentityHashMap<>());
            waits.forEach(wait -> addChild(key, wait, all));
            return all;
          });
    }

    private static void addChild(TaskScope<?> scope, Wait wait, Set<Task> all) {
      if (wait.isBelow(Set.of(scope))) {
        Task child = scope.childAbove(wait.task);
        if (child != null) {
          all.add(child);
        }
      }
    }
  }

  /** The shortest way from a wait back to itself, in words; null if there is none. */
  private static @Nullable String circle(Wait start, Set<Wait> hopeless) {
    Map<Wait, Wait> from = new HashMap<>();
    ArrayDeque<Wait> open = new ArrayDeque<>(List.of(start));
    while (!from.containsKey(start) && !open.isEmpty()) {
      Wait at = open.remove();
      for (Wait next : hopeless) {
        if (!from.containsKey(next) && dependsOn(at, next, hopeless)) {
          from.put(next, at);
          open.add(next);
        }
      }
    }
    if (!from.containsKey(start)) {
      return null;
    }
    ArrayDeque<Wait> way = new ArrayDeque<>();
    for (Wait at = from.get(start); at != null && way.size() < hopeless.size(); ) {
      way.addFirst(at);
      at = at.equals(start) ? null : from.get(at);
    }
    return inWords(way);
  }

  private static String inWords(Iterable<Wait> waits) {
    List<String> words = new ArrayList<>();
    waits.forEach(wait -> words.add(wait.toString()));
    return String.join("; ", words);
  }

  /** Whether the other alone makes it hopeless, or it would not be without the other. */
  private static boolean dependsOn(Wait waiting, Wait other, Set<Wait> hopeless) {
    Set<Held> by = Collections.newSetFromMap(new IdentityHashMap<>());
    other.addHeld(by);
    if (waiting.isHopeless(by::contains)) {
      return true; // most are: the rest takes time with many waits
    }
    Set<Held> without = Collections.newSetFromMap(new IdentityHashMap<>());
    hopeless.forEach(each -> each.addHeld(without));
    without.removeAll(by);
    return !waiting.isHopeless(without::contains);
  }
}
