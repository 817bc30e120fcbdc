package io.fairlead.host;

import io.fairlead.device.spi.DriverCall;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * A point in a stream that others can wait for.
 *
 * <p>Waiting streams hang on a stack; whoever runs the record takes the whole stack and closes it,
 * so that a stream which comes later sees that it need not wait.
 *
 * <table>
 * <caption>Shared state</caption>
 * <tr><th>field</th><th>written by</th><th>read by</th><th>mode</th></tr>
 * <tr><td>waiters</td><td>streams that wait; the record's owner, once, to CLOSED</td>
 *     <td>the same, and queries</td><td>compare and set; acquire for queries: who sees CLOSED must
 *     see what the work before the record wrote</td></tr>
 * </table>
 */
final class EventRecord extends Operation {
  private static final VarHandle WAITERS;

  static {
    try {
      WAITERS = MethodHandles.lookup().findVarHandle(EventRecord.class, "waiters", Waiter.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** A node of the stack; told apart by identity. */
  private static final class Waiter {
    final @Nullable HostStream stream;
    final @Nullable Waiter next;

    Waiter(@Nullable HostStream stream, @Nullable Waiter next) {
      this.stream = stream;
      this.next = next;
    }
  }

  private static final Waiter CLOSED = new Waiter(null, null);

  final HostStream stream;

  @SuppressWarnings("unused") // through WAITERS
  private volatile @Nullable Waiter waiters;

  EventRecord(HostStream stream) {
    this.stream = stream;
  }

  boolean isDone() {
    return WAITERS.getAcquire(this) == CLOSED;
  }

  /** Has {@code waiting} told once this is done; false if it is done already. */
  boolean tell(HostStream waiting) {
    while (true) {
      Waiter top = waiters;
      if (top == CLOSED) {
        return false;
      }
      if (WAITERS.compareAndSet(this, top, new Waiter(waiting, top))) {
        return true;
      }
    }
  }

  @Override
  boolean run(HostStream owned, @Nullable Worker worker) {
    done();
    return true;
  }

  @Override
  void abandon(HostStream owned) {
    done(); // a stream of another context must not hang because this one was lost
  }

  private void done() {
    Waiter w = (Waiter) WAITERS.getAndSet(this, CLOSED);
    for (; w != null; w = w.next) {
      if (w.stream != null) {
        w.stream.stopWaiting();
      }
    }
  }

  @Override
  DriverCall call() {
    return DriverCall.EVENT_RECORD;
  }

  @Override
  String describe() {
    return "record event";
  }
}
