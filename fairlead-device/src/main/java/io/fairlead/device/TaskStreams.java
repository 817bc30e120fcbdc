package io.fairlead.device;

import io.fairlead.task.Task;
import io.fairlead.task.TaskAttachment;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Gives each task its stream of one context, and makes the order of device work follow the
 * structure of tasks.
 *
 * <ul>
 *   <li>fork: the child's work comes after what its parent had enqueued by then;
 *   <li>first use: a stream is leased from the pool, and comes after that;
 *   <li>end: the stream goes back, and the child keeps where its work ends;
 *   <li>join: the parent's next operation comes after that.
 * </ul>
 *
 * All of it is lazy: positions are carried as clocks, and become edges only when an operation
 * really follows on another stream while the earlier work is unfinished.
 */
final class TaskStreams extends TaskAttachment<TaskStreams.Lease> {
  private final DeviceContext context;

  TaskStreams(DeviceContext context) {
    this.context = context;
  }

  /** The current task's stream. May park while the driver makes a new one. */
  DeviceStream current() {
    context.requireSound("stream", 0);
    Task task = Task.current();
    Lease lease = task.get(this);
    if (lease == null) {
      throw new AssertionError("initial() makes a lease for every task");
    }
    DeviceStream instead = lease.instead;
    if (instead != null) {
      return instead;
    }
    DeviceStream stream = lease.stream;
    return stream != null ? stream : lease.take(context, task);
  }

  /**
   * Runs the body with another stream as the current task's, for a capture. What is forked or
   * joined meanwhile is ordered by the task's own.
   */
  <T> T instead(DeviceStream other, Supplier<T> body) {
    Lease lease = Task.current().get(this);
    if (lease == null) {
      throw new AssertionError("initial() makes a lease for every task");
    }
    if (lease.instead != null) {
      throw new IllegalStateException(
          "this task is capturing already; capture one graph after the other");
    }
    lease.instead = other;
    try {
      return body.get();
    } finally {
      lease.instead = null;
    }
  }

  @Override
  protected Lease initial(Task task) {
    return new Lease(Clock.NONE);
  }

  @Override
  protected @Nullable Lease fork(Task parent, @Nullable Lease parentLease, Task child) {
    Clock before = parentLease == null ? Clock.NONE : parentLease.frontier();
    return before.isEmpty() ? null : new Lease(before);
  }

  @Override
  protected void join(Task parent, Task child, Lease childLease) {
    Clock before = childLease.frontier();
    if (before.isEmpty()) {
      return;
    }
    Lease mine = parent.get(this);
    if (mine != null) {
      mine.comeAfter(before);
    }
  }

  @Override
  protected void end(Task task, Lease lease) {
    lease.giveBack(context.pool());
  }

  /** ROOT's stream, or null; ROOT lets go of it. */
  void forget() {
    forgetRoot();
  }

  /**
   * What one task has of the context's streams.
   *
   * <pre>
   * field   | writer                          | reader          | mode, guard
   * stream  | the task, once; ROOT under pool | the task; ROOT: | volatile
   * since   | with stream                     | any             | plain, before stream
   * instead | the task                        | the task        | plain; never ROOT's
   * pending | the task; ROOT: any             | same            | atomic; what no stream knows yet
   * </pre>
   */
  static final class Lease {
    private final AtomicReference<Clock> pending;
    private volatile @Nullable DeviceStream stream;
    private long since;
    private @Nullable DeviceStream instead;

    Lease(Clock before) {
      pending = new AtomicReference<>(before);
    }

    DeviceStream take(DeviceContext context, Task task) {
      StreamPool pool = context.pool();
      DeviceStream mine =
          task.isRoot() ? begin(pool.leaseShared()) : begin(pool.lease(task.priority()));
      passOn(mine);
      return mine;
    }

    /** Synchronized: of several threads that never entered, the first one's {@code since} stays. */
    private synchronized DeviceStream begin(DeviceStream leased) {
      DeviceStream known = stream;
      if (known != null) {
        return known;
      }
      since = leased.core().enqueued();
      // volatile: whoever sees the stream sees `since`
      stream = leased;
      return leased;
    }

    /** Orders what this task does next after {@code before}. */
    void comeAfter(Clock before) {
      pending.accumulateAndGet(before, Clock::join);
      // afterwards: whoever takes a stream meanwhile passes on what it finds, we the rest
      DeviceStream mine = stream;
      if (mine != null) {
        passOn(mine);
      }
    }

    private void passOn(DeviceStream mine) {
      Clock left = pending.get();
      if (!left.isEmpty()) {
        mine.core().defer(left);
        // only now, and only that: a frontier taken in between finds it in one place at least
        pending.compareAndSet(left, Clock.NONE);
      }
    }

    /** What must be over before work that follows this task's work. */
    Clock frontier() {
      Clock before = pending.get();
      DeviceStream mine = stream;
      return mine == null ? before : before.join(mine.core().frontier(since));
    }

    private void giveBack(StreamPool pool) {
      DeviceStream mine = stream;
      if (mine != null) {
        pending.set(frontier());
        stream = null;
        pool.giveBack(mine);
      }
    }
  }
}
