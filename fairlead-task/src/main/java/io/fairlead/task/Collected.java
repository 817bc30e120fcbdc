package io.fairlead.task;

import java.lang.ref.Cleaner;
import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Told once its object was collected, on the process's one thread of the role {@link Role#CLEANER}:
 * no gate lets it into an engine, so what is told only retires a node to its owner. Like any
 * reference it tells nothing if it is itself collected first.
 *
 * <p>It does the work of a {@link Cleaner}, which cannot share its thread with references of one's
 * own; those cost nothing beside the object that keeps them anyway.
 */
public abstract class Collected extends PhantomReference<Object> {

  protected Collected(Object referent) {
    super(Objects.requireNonNull(referent, "referent"), CleanerThread.QUEUE);
  }

  /** On the cleaner's thread; must not wait. What it throws is dropped. */
  protected abstract void collected();

  /**
   * Runs {@code action} once {@code referent} was collected, or earlier by {@link
   * Cleaner.Cleanable#clean()}: once in all. Any thread; never blocks for longer than it takes to
   * enter a list.
   *
   * @param action must not refer to {@code referent}, which would live for ever
   */
  public static Cleaner.Cleanable register(Object referent, Runnable action) {
    Action registered = new Action(referent, action);
    registered.enter();
    return registered;
  }

  private static final class CleanerThread {
    static final ReferenceQueue<Object> QUEUE = start();

    private static ReferenceQueue<Object> start() {
      ReferenceQueue<Object> queue = new ReferenceQueue<>();
      Role.CLEANER.newThread("cleaner", () -> serve(queue)).start();
      return queue;
    }

    private static void serve(ReferenceQueue<Object> queue) {
      while (true) {
        try {
          if (queue.remove() instanceof Collected reference) {
            reference.collected();
          }
        } catch (InterruptedException | RuntimeException | Error unexpected) {
          // as of a Cleaner: the next one has to be told too
        }
      }
    }
  }

  /** An action that waits, in a ring around {@link #ALL}, which keeps it alive. */
  static final class Action extends Collected implements Cleaner.Cleanable {
    /** A leaf; guards the links. Commands of an owner and its affine tasks come for it. */
    static final BriefLock LOCK = new BriefLock();

    private static final Action ALL = new Action();

    private final Runnable action;
    private @Nullable Action previous;
    private @Nullable Action next;

    private Action() {
      super(Action.class);
      action = () -> {};
      previous = this;
      next = this;
    }

    Action(Object referent, Runnable action) {
      super(referent);
      this.action = Objects.requireNonNull(action, "action");
    }

    void enter() {
      LOCK.lock();
      try {
        Action after = Objects.requireNonNull(ALL.next);
        previous = ALL;
        next = after;
        after.previous = this;
        ALL.next = this;
      } finally {
        LOCK.unlock();
      }
    }

    /** False if it has left before. */
    private boolean leave() {
      LOCK.lock();
      try {
        Action before = previous;
        Action after = next;
        if (before == null || after == null) {
          return false;
        }
        before.next = after;
        after.previous = before;
        previous = null;
        next = null;
        return true;
      } finally {
        LOCK.unlock();
      }
    }

    @Override
    public void clean() {
      if (leave()) {
        clear();
        action.run();
      }
    }

    @Override
    protected void collected() {
      clean();
    }
  }
}
