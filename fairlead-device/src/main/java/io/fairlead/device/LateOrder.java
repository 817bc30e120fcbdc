package io.fairlead.device;

import io.fairlead.task.Completion;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * Foreign work of which nobody knew where it ends when its body returned: nothing could be recorded
 * on the default stream then, since a library was capturing a blocking one, say. What the work uses
 * stays lent until it is over:
 *
 * <pre>
 * from | to       | by                                          | what it means
 * -----|----------|---------------------------------------------|----------------------------------
 * LATE | OVER     | who uses its stream next, or the owner's    | the stream comes after the work
 *      |          | next try                                    |
 * LATE | OVER     | the owner, if its stream takes no more      | the work has ended
 * LATE | OVER     | the owner, if the context is lost           | it will never end
 * LATE | GIVEN UP | the context that closes                     | what it uses stays lent for good
 * </pre>
 *
 * The owner tries again and again, each time later. See {@link ForeignThreads}.
 *
 * <pre>
 * field   | writer             | reader    | mode, guard
 * next    | who lists it       | same      | plain, the turn of its stream
 * settled | who finds it over  | any       | CAS: the first one says so
 * nap     | the owner          | the owner | plain
 * </pre>
 */
final class LateOrder {
  /** The first try comes after that. */
  private static final long NAP_NANOS = 1_000_000;

  /** Each try after that, at the latest. */
  private static final long NAP_NANOS_MAX = 100_000_000;

  final StreamCore stream;

  /** What the default stream is recorded with: any record from now on covers the work. */
  final long event;

  /** The one before it that its stream owes too. */
  @Nullable LateOrder next;

  private final Runnable ordered;
  private final AtomicBoolean settled = new AtomicBoolean();
  private final Completion.Source<Void> over = Completion.source();
  private long nap = NAP_NANOS / 2;

  LateOrder(StreamCore stream, long event, Runnable ordered) {
    this.stream = stream;
    this.event = event;
    this.ordered = ordered;
  }

  /** Done once whoever was to be told has been. */
  Completion<Void> over() {
    return over.completion();
  }

  boolean isSettled() {
    return settled.get();
  }

  /** For the first caller: it then sees to it that {@link #end} is called. Any thread. */
  boolean settle() {
    return settled.compareAndSet(false, true);
  }

  /** Owner only; once. */
  @SuppressWarnings("NullAway") // Void has no other value
  void end() {
    try {
      ordered.run();
    } finally {
      over.complete(null);
    }
  }

  /** How long to wait for the next try. Owner only. */
  long nextNap() {
    nap = Math.min(2 * nap, NAP_NANOS_MAX);
    return nap;
  }
}
