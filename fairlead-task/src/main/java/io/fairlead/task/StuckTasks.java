package io.fairlead.task;

import java.lang.invoke.VarHandle;
import java.util.Collection;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import org.jspecify.annotations.Nullable;

/**
 * Which tasks cannot go on before certain others do. For those who let tasks wait for something
 * that the runtime does not know, memory say, and want to know whether they wait for each other.
 *
 * <p>A task is stuck by others if it is one of them, or waits, through any number of scopes,
 * frames, engines and owners, for one of them: in the join or close of a scope that one of them is
 * below, for an instance of an engine all of whose calls are, or for an owner's thread that is.
 *
 * <p>It is a picture of a moment: of tasks that stay parked for as long as those do that they are
 * stuck by. Who acts on it looks afterwards whether these have not gone on meanwhile.
 *
 * <p>Threads: any. It takes the locks of the graph of waits for moments, and never blocks.
 */
public final class StuckTasks {
  /** Who is told when a task parks for others; hardly ever anybody. */
  private static final List<Runnable> WATCHERS = new CopyOnWriteArrayList<>();

  private final Set<Task> blocked = Collections.newSetFromMap(new IdentityHashMap<>());
  private final Set<WaitGraph.Held> held = Collections.newSetFromMap(new IdentityHashMap<>());
  private final Set<WaitGraph.Wait> waits = Collections.newSetFromMap(new IdentityHashMap<>());

  private StuckTasks() {}

  /** A task, and what it is in, at the place where it waits. Immutable. */
  public static final class Place {
    private final Task task;
    private final WaitGraph.@Nullable Frame frames;

    private Place(Task task) {
      this.task = task;
      this.frames = WaitGraph.framesHere(task);
    }

    /** The caller's task, where it is now. */
    public static Place here() {
      return new Place(Task.current());
    }

    /** Whether it is in a call of an engine, or on an owner's thread, that others may wait for. */
    public boolean isInCall() {
      return frames != null && frames.inside != null;
    }

    /** Whose it is. */
    public Task task() {
      return task;
    }

    /**
     * Whether its wait may end without what it waits for: it was interrupted, somebody above was
     * cancelled, or a sibling may succeed first. A deadline does not count. Any thread.
     */
    public boolean mayBeCancelled() {
      for (WaitGraph.Frame f = frames; f != null; f = f.around) {
        if (f instanceof TaskScope<?> scope && (scope.isForFirst() || scope.isStopped())) {
          return true;
        }
      }
      return task.isDisturbed();
    }
  }

  /** Who is stuck while these wait where they are. */
  public static StuckTasks by(Collection<Place> blocked) {
    StuckTasks stuck = new StuckTasks();
    for (Place place : blocked) {
      if (!place.task.isRoot()) {
        stuck.blocked.add(place.task);
      }
      for (WaitGraph.Frame f = place.frames; f != null; f = f.around) {
        stuck.held.add(f.held());
      }
    }
    WaitGraph.addHopeless(stuck.held, stuck.waits);
    return stuck;
  }

  /** Whether the task is one of them, or waits for one. */
  public boolean contains(Task task) {
    return blocked.contains(task)
        || switch (task.parkedFor()) {
          case TaskScope<?> scope -> held.contains(scope);
          case JoinFrame frame -> isHeld(frame.lent());
          case WaitGraph.Wait wait -> waits.contains(wait);
          case null, default -> false;
        };
  }

  private boolean isHeld(WaitGraph.@Nullable Lent lent) {
    return lent != null && held.contains(lent);
  }

  // --- one task -----------------------------------------------------------------------------

  /** What a task is doing, as far as one can see from outside. */
  public enum Doing {
    /** It runs, or could. */
    RUNS,
    /** It waits for other tasks, or for a device. */
    WAITS,
    /** It waits for something that nobody knows the end of: a lock of the user's, a message. */
    WAITS_ELSEWHERE,
    /** It has ended. */
    ENDED
  }

  /** What it does just now. Any thread; never blocks. */
  public static Doing doing(Task task) {
    if (task.hasEnded()) {
      return Doing.ENDED;
    }
    Object parked = task.parkedFor();
    if (parked != null) {
      return parked instanceof Completion<?> any && any.isStrangers()
          ? Doing.WAITS_ELSEWHERE
          : Doing.WAITS;
    }
    Thread thread = task.thread();
    return thread == null
        ? Doing.RUNS
        : switch (thread.getState()) {
          case BLOCKED, WAITING, TIMED_WAITING -> Doing.WAITS_ELSEWHERE;
          case NEW, RUNNABLE, TERMINATED -> Doing.RUNS;
        };
  }

  /** The same in words, for messages: "joins scope 'x'", say. */
  public static String describe(Task task) {
    return switch (doing(task)) {
      case RUNS -> "runs";
      case ENDED -> "has ended";
      case WAITS_ELSEWHERE -> "waits for a lock, a message, or anything else of others'";
      case WAITS ->
          "waits for "
              + switch (task.parkedFor()) {
                case TaskScope<?> scope -> "the children of scope '" + scope.name() + "'";
                case JoinFrame _ -> "a forked frame";
                case WaitGraph.Wait wait -> wait.what();
                case Completion<?> completion -> completion.what();
                case null, default -> "something that has just come";
              };
    };
  }

  // --- events -------------------------------------------------------------------------------

  /**
   * From now on {@code told} is run whenever a task parks for other tasks: on its thread, so it
   * must be short, must not throw, and must not wait.
   */
  public static void watch(Runnable told) {
    WATCHERS.add(told);
  }

  /** Ends that. */
  public static void unwatch(Runnable told) {
    WATCHERS.remove(told);
  }

  /** The caller's task has said what it parks for, and will park. */
  static void parks() {
    VarHandle.fullFence(); // who watches first says so, then looks at what tasks are parked for
    if (!WATCHERS.isEmpty()) {
      WATCHERS.forEach(Runnable::run);
    }
  }
}
