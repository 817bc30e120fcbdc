package io.fairlead.comm;

import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.task.Completion;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How a send or message ends.
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
 */
final class Outgoing {
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
  private volatile @Nullable Object outcome;
  private @Nullable Parcel parcel;
  private @Nullable GatedSends place;
  private volatile @Nullable Gated gated;

  Outgoing(CommEngine engine, Request request) {
    this.engine = engine;
    this.request = request;
  }

  /** Given back when the send has ended. Before the post. */
  void keep(Parcel sentParcel, @Nullable GatedSends reserved) {
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
      Completion.Source<@Nullable Void> source = Completion.source();
      if (OUTCOME.compareAndSet(this, null, source)) {
        source.onCancel(this::withdraw);
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
    if (engine.endsAtOnce()) {
      done(bytes);
    } else {
      engine.end(() -> done(bytes));
    }
  }

  private void done(long bytes) {
    engine.counters.sent(bytes);
    giveBack();
    if (!OUTCOME.compareAndSet(this, null, SENT)) {
      source().complete(null);
    }
  }

  void failed(TransportException cause, int peer, String what) {
    if (engine.endsAtOnce()) {
      fail(cause, peer, what);
    } else {
      engine.end(() -> fail(cause, peer, what));
    }
  }

  private void fail(TransportException cause, int peer, String what) {
    giveBack();
    CommException failure = Failures.of(engine.rank(), peer, what, cause);
    if (!OUTCOME.compareAndSet(this, null, failure)) {
      source().fail(failure);
    }
  }

  @SuppressWarnings("unchecked") // nothing else is ever put there
  private Completion.Source<@Nullable Void> source() {
    return (Completion.Source<@Nullable Void>) Objects.requireNonNull(outcome);
  }

  /** The completion was cancelled. No callback comes if the transport lets go of it. */
  private void withdraw() {
    Gated waiting = gated;
    if (waiting != null && waiting.cancel()) {
      giveBack();
    } else {
      engine.withdraw(request, this::giveBack);
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
