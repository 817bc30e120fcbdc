package io.fairlead.comm;

import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.task.Completion;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How a send, message, put or get ends.
 *
 * <p>Most sends end before anybody could ask: the receive was posted, or there was room. Those
 * share one completion; a source is made only for a send that is still going on.
 *
 * <pre>
 * outcome: null → SENT            ended first; completion() answers the shared one
 *          null → Source          asked first; the end settles the source
 *          null → CommException   failed first
 * </pre>
 *
 * <p>{@code outcome} moves once, by compare-and-set. {@code parcel} and {@code place} are written
 * by the submitting thread before the request is posted or gated, and read by whoever ends it.
 * {@code failure} is written by who ends it and read by who tells, on the same thread or later in
 * the order of a queue: plain.
 */
final class Outgoing implements Ending, Runnable {

  /** Hears once what became of the request itself, whoever waits for it or has cancelled that. */
  interface Listener {
    /**
     * On any thread; must not block.
     *
     * @param sent false: it failed, or was taken back in time
     * @param failure null also if it was taken back
     */
    void ended(boolean sent, @Nullable CommException failure);
  }

  private static final Completion<@Nullable Void> SENT = Completion.completed(null);
  private static final VarHandle OUTCOME;

  static {
    try {
      OUTCOME = MethodHandles.lookup().findVarHandle(Outgoing.class, "outcome", Object.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final CommEngine engine;
  private final Request request;
  private final @Nullable Listener listener;
  private volatile @Nullable Object outcome;
  private @Nullable Parcel parcel;
  private @Nullable GatedSends place;
  private volatile @Nullable Gated gated;
  private @Nullable CommException failure;

  Outgoing(CommEngine engine, Request request) {
    this(engine, request, null);
  }

  Outgoing(CommEngine engine, Request request, @Nullable Listener listener) {
    this.engine = engine;
    this.request = request;
    this.listener = listener;
  }

  /** Given back when the send has ended. Before the post. */
  void keep(@Nullable Parcel sentParcel, @Nullable GatedSends reserved) {
    parcel = sentParcel;
    place = reserved;
  }

  void gated(Gated node) {
    gated = node;
  }

  /** What the caller waits for. Once, by the submitting thread. */
  Completion<@Nullable Void> completion() {
    Object seen = outcome;
    if (seen == null) {
      Completion.Source<@Nullable Void> source = engine.source(this);
      if (OUTCOME.compareAndSet(this, null, source)) {
        return source.completion();
      }
      seen = outcome;
    }
    return seen instanceof CommException failure ? Completion.failed(failure) : SENT;
  }

  boolean isWithdrawn() {
    return outcome instanceof Completion.Source<?> source
        && source.completion().state() == Completion.State.CANCELLED;
  }

  void sent(long bytes) {
    if (request instanceof Copying copy && copy.comesHere()) {
      engine.countReceived(bytes);
    } else {
      engine.countSent(bytes);
    }
    engine.end(this);
  }

  void failed(TransportException cause, int peer, String what) {
    failure = Failures.of(engine.rank(), peer, what, cause);
    engine.end(this);
  }

  @Override
  public boolean isAwaited() {
    return listener != null
        || (outcome instanceof Completion.Source<?> source && source.isAwaited());
  }

  @Override
  public void tell() {
    CommException cause = failure;
    giveBack();
    tellListener(cause == null, cause);
    if (OUTCOME.compareAndSet(this, null, cause == null ? SENT : cause)) {
      return;
    }
    if (cause == null) {
      source().complete(null);
    } else {
      source().fail(cause);
    }
  }

  @SuppressWarnings("unchecked") // nothing else is ever put there
  private Completion.Source<@Nullable Void> source() {
    return (Completion.Source<@Nullable Void>) Objects.requireNonNull(outcome);
  }

  /** The completion was cancelled. No callback comes if the transport lets go of it. */
  @Override
  public void run() {
    Gated waiting = gated;
    if (waiting != null && waiting.cancel()) {
      takenBack();
    } else {
      engine.withdraw(request, this::takenBack);
    }
  }

  private void takenBack() {
    giveBack();
    tellListener(false, null);
  }

  private void tellListener(boolean sent, @Nullable CommException cause) {
    Listener told = listener;
    if (told != null) {
      told.ended(sent, cause);
    }
  }

  private void giveBack() {
    Parcel kept = parcel;
    if (kept != null) {
      kept.giveBack();
    }
    GatedSends reserved = place;
    if (reserved != null) {
      place = null;
      reserved.release();
    }
  }
}
