package io.fairlead.device;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import java.util.List;
import java.util.concurrent.locks.Condition;
import org.jspecify.annotations.Nullable;

/**
 * The driver's side of a {@link DeviceGraph}; does not keep that alive.
 *
 * <pre>
 * from   | to     | by                                     | what it means
 * -------|--------|----------------------------------------|------------------------------------
 * OPEN   | CLOSED | close(), the cleaner, the context      | it is not launched any more
 * CLOSED | GONE   | the owner, after the last launch ended | destroyed; what it held is let go
 * </pre>
 *
 * <p>It is the last operand of its own launches: they follow each other, on whichever streams, and
 * no two threads are inside the driver with it. As with a buffer, a launch is pending between
 * acquire and recorded, and the next one waits for that.
 *
 * <p>Lock order: a stream's turn, operands, then {@code lock}; nothing is called under it.
 *
 * <pre>
 * field   | writer                 | reader | mode, guard
 * last    | who launches           | same   | lock
 * pending | who launches           | same   | lock
 * closed  | close, the owner       | any    | lock
 * gone    | the owner              | owner  | plain
 * </pre>
 */
final class Executable implements Operand {
  final DeviceContext context;
  final String name;
  private final long handle;
  private final String madeAt;
  private final int numbers;
  private final Holdings holdings;
  private final Operand[] operands;
  private final Access[] accesses;
  private final Completion.Source<Void> ended = Completion.source();
  private final BriefLock lock = new BriefLock();
  private final Condition recorded = lock.newCondition();
  private @Nullable Mark last;
  private boolean pending;
  private boolean closed;
  private boolean gone;

  Executable(
      DeviceContext context,
      String name,
      long handle,
      int operations,
      Holdings holdings,
      String madeAt) {
    this.context = context;
    this.name = name;
    this.handle = handle;
    this.madeAt = madeAt;
    this.numbers = Math.clamp(operations, 1, Math.max(1, context.config().unfinishedMax() / 2));
    this.holdings = holdings;
    this.operands = holdings.operandsAnd(this);
    this.accesses = holdings.accessesAnd(Access.READ_WRITE);
  }

  long launch(DeviceStream stream) {
    return stream
        .core()
        .enqueue(
            stream,
            DriverCall.GRAPH_LAUNCH,
            "launch graph " + name,
            -1,
            numbers,
            operands,
            accesses,
            (streamHandle, _) -> context.driver().graphs().launch(streamHandle, handle));
  }

  // --- as an operand of its launches ----------------------------------------------------------

  @Override
  public long bytes() {
    return 0;
  }

  @Override
  public long acquire(DeviceStream stream, Access access) {
    Mark before;
    lock.lock();
    try {
      while (pending) {
        recorded.awaitUninterruptibly();
      }
      requireOpen();
      pending = true;
      before = last;
    } finally {
      lock.unlock();
    }
    if (before != null) {
      comeAfter(stream, before);
    }
    return 0;
  }

  private void comeAfter(DeviceStream stream, Mark before) {
    try {
      stream.after(before);
    } catch (RuntimeException | Error failure) {
      settle(null);
      throw failure;
    }
  }

  private void requireOpen() {
    if (closed) {
      throw new IllegalStateException(
          "graph '" + name + "' was closed; keep it open while it is used");
    }
  }

  @Override
  public void recorded(DeviceStream stream, long sequence, Access access) {
    settle(new Mark(stream, sequence));
  }

  @Override
  public void abandoned(DeviceStream stream, Access access) {
    settle(null);
  }

  private void settle(@Nullable Mark launched) {
    lock.lock();
    try {
      pending = false;
      if (launched != null) {
        last = launched;
      }
      recorded.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Behind all memory: it is the last that is acquired. */
  @Override
  public long order() {
    return Long.MAX_VALUE;
  }

  // --- its end --------------------------------------------------------------------------------

  /** Refuses further launches, and retires it. Waits for a launch that is being enqueued. */
  void close() {
    if (shut()) {
      holdings.leaving(); // before the owner may let it go
      context.owner().retire(new End(this, false));
    }
  }

  /** As {@link #close}, where its user should have done that: reported if it was open. */
  void closeLeaked() {
    if (shutLeaked()) {
      holdings.leaving();
      context.owner().retire(new End(this, false));
    }
  }

  /** The handle was dropped, so nobody launches. The cleaner; no lock. */
  void dropped() {
    context.owner().retire(new End(this, true));
  }

  /** As {@link #shut}, where its user should have closed it: reported if it was open. */
  boolean shutLeaked() {
    boolean first = shut();
    if (first) {
      context.reportLeak("graph " + name, madeAt);
    }
    return first;
  }

  /** Whether it was open until now. */
  private boolean shut() {
    lock.lock();
    try {
      while (pending) {
        recorded.awaitUninterruptibly();
      }
      boolean first = !closed;
      closed = true;
      return first;
    } finally {
      lock.unlock();
    }
  }

  /** Completes once it is gone. */
  Completion<Void> ended() {
    return ended.completion();
  }

  /** Destroys it if its last launch has ended, else when that is so. Owner only. */
  private void endWhenIdle() {
    Mark mark = lastLaunch();
    if (mark == null || mark.stream().core().isReachedIfKnown(mark.sequence())) {
      end();
    } else {
      context.afterWork(List.of(mark), this::end);
    }
  }

  private @Nullable Mark lastLaunch() {
    lock.lock();
    try {
      return last;
    } finally {
      lock.unlock();
    }
  }

  /** Owner only; the first call counts. */
  void end() {
    if (gone) {
      return;
    }
    gone = true;
    context.quietly(
        DriverCall.GRAPH_DESTROY,
        "destroy graph " + name,
        () -> context.driver().graphs().destroyExecutable(handle));
    context.graphs().forget(this);
    try {
      holdings.release();
    } finally {
      ended.complete(null);
    }
  }

  private static final class End extends Retired {
    private final Executable executable;
    private final boolean dropped;

    End(Executable executable, boolean dropped) {
      this.executable = executable;
      this.dropped = dropped;
    }

    @Override
    protected void release() {
      if (dropped && !executable.shutLeaked()) {
        return; // closed in order
      }
      executable.endWhenIdle();
    }
  }
}
