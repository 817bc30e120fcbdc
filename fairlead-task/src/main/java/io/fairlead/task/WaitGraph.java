package io.fairlead.task;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * The runtime's own waits on which others may depend, of all runtimes: a wait that would close a
 * circle is found before it begins, and fails instead of hanging.
 *
 * <p><b>What is held.</b> Each {@link Held} thing is free again only when certain tasks have ended:
 *
 * <pre>
 * a call of an engine    the task that made it, and whoever it waits for by structure
 * a call on an owner     the task that it runs in, and its children
 * an owner's thread      what runs on it, and the children of scopes that were opened on it
 * </pre>
 *
 * A task knows what depends on it by its {@link Frame}s, which its children inherit. So a child
 * that waits stands for its parent too, who cannot leave the scope before it.
 *
 * <p><b>When a wait is hopeless.</b>
 *
 * <pre>
 * for an instance        every instance is in a call that depends on a hopeless wait
 * for an engine's end    one of its calls does
 * for a call on an owner the owner's thread does, or the call's own task
 * </pre>
 *
 * The largest set of waits that are hopeless by each other is a deadlock. Such a set only comes up
 * when a wait begins; so that one looks, under the lock, and fails if it is in it. A wait that has
 * a deadline, or whose task was asked to stop, ends by itself and makes nothing hopeless.
 *
 * <p><b>Cost.</b> Nothing where nobody waits, and nothing for waits on which nobody depends: those
 * of tasks in no call, on threads of their own. What waits for memory or for strangers' completions
 * is not known here.
 *
 * <pre>
 * field      | guard
 * WAITS      | LOCK
 * Held.waits | LOCK: how many waits depend on its end
 * </pre>
 *
 * <p>No phantom is seen although the calls of engines come and go meanwhile: let a wait be the
 * first of a found set to end. It cannot be given what it waits for, since whoever holds that waits
 * in the set; it leaves only under the lock, or by being stopped, which is looked at.
 *
 * <p>Lock order: LOCK → an engine's pool.
 */
final class WaitGraph {
  private static final ReentrantLock LOCK = new ReentrantLock();
  private static final Set<Wait> WAITS = new LinkedHashSet<>();

  private WaitGraph() {}

  /** Something that is free again only when tasks have ended that have a {@link Frame} of it. */
  abstract static class Held {
    private int waits;

    /** For messages: "in a call of engine 'x'", say. */
    abstract String where();
  }

  /** One thing that cannot be free before a task ends: innermost first. */
  record Frame(Held held, @Nullable Frame outer) {}

  /** What depends on the caller's task in a scope that it opens now. */
  static @Nullable Frame framesHere(Task task) {
    Held thread = thread();
    return thread == null ? task.engineFrames : new Frame(thread, task.engineFrames);
  }

  /** The thread that the caller holds up while it waits, if others may need it. */
  private static @Nullable Held thread() {
    Owner owner = RoleThread.currentOwner();
    // that of an engine's instance is only wanted by whoever waits for the instance
    return owner == null || owner.forEngine ? null : owner.held;
  }

  /** One wait, of one thread. */
  abstract static class Wait {
    final Task task;
    final Completion<?> until;
    private final boolean obeys;
    private final List<Held> holds;

    Wait(Task task, Completion<?> until, boolean obeys) {
      this.task = task;
      this.until = until;
      this.obeys = obeys;
      this.holds = holdsOf(task);
    }

    private static List<Held> holdsOf(Task task) {
      List<Held> all = new ArrayList<>(2);
      Held thread = thread();
      if (thread != null) {
        all.add(thread);
      }
      for (Frame f = task.engineFrames; f != null; f = f.outer) {
        if (!all.contains(f.held)) {
          all.add(f.held);
        }
      }
      return all;
    }

    /** Whether it ends without any other. */
    private boolean isOver() {
      return until.isDone() || (obeys && task.isDisturbed());
    }

    /** Whether what it waits for never comes if this is so of what is held. */
    abstract boolean isHopeless(Predicate<Held> stuck);

    /** For messages: "an instance of engine 'x'", say. */
    abstract String what();

    abstract RuntimeException refusal(String circle);

    @Override
    public String toString() {
      String places = holds.stream().map(Held::where).collect(Collectors.joining(" and "));
      String who = task.isRoot() ? "a thread in no task" : "task '" + task.name() + "'";
      return who + (places.isEmpty() ? "" : ", " + places + ",") + " waits for " + what();
    }
  }

  /** Whether anything can depend on a wait of the calling thread. */
  static boolean matters(Task task) {
    return task.engineFrames != null || thread() != null;
  }

  /**
   * The calling thread is about to wait. It leaves when the wait is over, however it ended.
   *
   * @throws RuntimeException the wait's refusal, if it could never end
   */
  static void enter(Wait wait) {
    LOCK.lock();
    try {
      count(wait, 1);
      WAITS.add(wait);
      if (!wait.isHopeless(held -> held.waits > 0) || wait.isOver()) {
        return; // nearly always
      }
      Set<Wait> hopeless = hopeless();
      if (hopeless.contains(wait)) {
        remove(wait);
        throw wait.refusal(circle(wait, hopeless));
      }
    } finally {
      LOCK.unlock();
    }
  }

  static void leave(Wait wait) {
    LOCK.lock();
    try {
      remove(wait);
    } finally {
      LOCK.unlock();
    }
  }

  /** How many waits are known. For tests. */
  static int size() {
    LOCK.lock();
    try {
      return WAITS.size();
    } finally {
      LOCK.unlock();
    }
  }

  private static void remove(Wait wait) {
    if (WAITS.remove(wait)) {
      count(wait, -1);
    }
  }

  private static void count(Wait wait, int by) {
    for (Held held : wait.holds) {
      held.waits += by;
    }
  }

  /** The largest set of waits of which each is hopeless by the others. */
  private static Set<Wait> hopeless() {
    Set<Wait> rest = new HashSet<>(WAITS);
    rest.removeIf(Wait::isOver);
    for (boolean again = true; again; ) {
      Set<Held> stuck = Collections.newSetFromMap(new IdentityHashMap<>());
      rest.forEach(wait -> stuck.addAll(wait.holds));
      again = rest.removeIf(wait -> !wait.isHopeless(stuck::contains));
    }
    return rest;
  }

  /** The shortest way from a wait back to itself, in words. */
  private static String circle(Wait start, Set<Wait> hopeless) {
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
    List<String> words = new ArrayList<>();
    for (Wait at = from.get(start); at != null && words.size() < hopeless.size(); ) {
      words.addFirst(at.toString());
      at = at.equals(start) ? null : from.get(at);
    }
    return String.join("; ", words);
  }

  /** Whether the other alone makes it hopeless, or it would not be without the other. */
  private static boolean dependsOn(Wait waiting, Wait other, Set<Wait> hopeless) {
    Set<Held> without = Collections.newSetFromMap(new IdentityHashMap<>());
    hopeless.forEach(each -> without.addAll(each.holds));
    other.holds.forEach(without::remove);
    return waiting.isHopeless(other.holds::contains) || !waiting.isHopeless(without::contains);
  }
}
