package io.fairlead.host;

import io.fairlead.device.spi.DriverCall;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * One entry of a stream, linked to the next. Run by whoever owns the stream at the time: a worker,
 * or the stepping thread.
 */
abstract class Operation {
  static final VarHandle NEXT;

  static {
    try {
      NEXT = MethodHandles.lookup().findVarHandle(Operation.class, "next", Operation.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Written once by the producer behind it (volatile), cut by the consumer (plain). */
  @SuppressWarnings("unused") // through NEXT
  private @Nullable Operation next;

  final @Nullable Operation next() {
    return (Operation) NEXT.getVolatile(this);
  }

  /** Which driver call made it. */
  abstract DriverCall call();

  /** What it does, for lists of pending work and for faults. */
  abstract String describe();

  /**
   * Runs on the stream's owner.
   *
   * @param worker null on a stepping thread
   * @return false if the stream was left to somebody else, who will go on with it; the caller must
   *     not touch it any more
   */
  abstract boolean run(HostStream stream, @Nullable Worker worker);

  /** Instead of {@link #run} when the context is lost: whoever waits for this must not hang. */
  void abandon(HostStream stream) {}

  /** After it ended: lets go of what it held, since the last operation of a stream lives on. */
  void drop() {}
}
