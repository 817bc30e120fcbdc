package io.fairlead.comm;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.fault.Mutant;
import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * Finds that work which spreads by messages is done, on every rank: no message of it is on its way,
 * and nothing that could send another one is going on anywhere. Made by {@link Comm#termination}.
 *
 * <p>Work comes in epochs. In each one every rank calls {@link #begin}, sends messages if it has
 * any to start with, and calls {@link #finish}; what that answers is settled on every rank, once,
 * when all is done. What counts:
 *
 * <ul>
 *   <li>a {@link #message}, from the call until its handler at the other side has returned,
 *       wherever it waits meanwhile: for {@code after}, for room, for its handler;
 *   <li>what a handler or a task {@link #hold holds} or {@link #track tracks}, until that ends: so
 *       a task that a handler starts is part of the work;
 *   <li>each rank itself, from {@code begin} to {@code finish}.
 * </ul>
 *
 * <p>Work comes of work only: messages and holds are taken by what counts itself, else they are
 * refused. Messages of the next epoch wait at a rank, with their senders if they are many, until
 * that rank has begun it too. So no handler runs between the end of an epoch and the next {@link
 * #begin}.
 *
 * <p><b>Threads.</b> Any thread may call anything, device managers too; nothing blocks. Handlers
 * run, and {@code finish} is settled, on the communication thread. Detections are independent: each
 * has channels of its own, so several may go on at once, and none of their messages meets those of
 * the communicator. What they tell each other goes as collectives do, past all data.
 *
 * <p><b>Errors.</b> A message that was not sent, because its {@code after} failed, say, or
 * something tracked that failed, fails {@code finish} on every rank, once all the rest is done: so
 * the next epoch can begin. A message that was cancelled in time simply ends. Everything else (a
 * handler that throws, a rank that fails or dies, a communicator that is closed meanwhile) fails
 * {@code finish} at once, and no further epoch can begin. A rank that closes its part ends this
 * detection on all ranks, and nothing else: they may make another one.
 *
 * <p><b>The algorithm</b> is Mattern's, of four counters (F. Mattern, "Algorithms for distributed
 * termination detection", Distributed Computing 2, 1987), in waves that are all-reduces: ranks add
 * up how many messages they have submitted, S, and how many have ended, R, and the work is done
 * when the S of one wave is the R of the one before. A rank takes part in a wave only while nothing
 * of its own counts, and not before it has handled all messages to it that were known in the last
 * wave (his vector counters): so there are no waves while there is work to wait for, mostly two in
 * all. Let t lie between both waves. S and R only grow, and no message ends before it is submitted,
 * so R(first wave) ≤ R(t) ≤ S(t) ≤ S(second wave). If the ends are equal, so is all between: no
 * message was on its way at t, and none had ended at any rank since its part in the first wave,
 * when nothing else counted there; and nothing begins to count but by messages.
 *
 * <pre>
 * IDLE → OPEN       begin()
 * OPEN → ENDING     finish(): the rank itself counts no more
 * ENDING → IDLE     a wave found the end
 * any → broken      something failed; finish is settled with it, and begin is refused
 * </pre>
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode, guard</th></tr>
 *   <tr><td>phase, end, broken</td><td>any</td><td>any</td><td>lock</td></tr>
 *   <tr><td>epoch</td><td>begin, while nothing counts</td><td>who counts</td><td>volatile</td></tr>
 *   <tr><td>counting</td><td>who counts; leaves zero only by begin and by handlers</td><td>loop</td>
 *       <td>atomic: what was counted before is seen with the zero</td></tr>
 *   <tr><td>underWay, submitted, ended, failures</td><td>who counts</td><td>loop, at counting = 0</td>
 *       <td>atomic; only grow, over all epochs, underWay but for what was not sent</td></tr>
 *   <tr><td>handled, expected, waving, gone, the last wave's sums</td><td>loop</td><td>loop</td>
 *       <td>plain</td></tr>
 *   <tr><td>firstFailure</td><td>who fails first</td><td>loop</td><td>compare-and-set</td></tr>
 *   <tr><td>scheduled</td><td>any</td><td>any</td><td>compare-and-set: one look is queued</td></tr>
 * </table>
 *
 * <p><b>Lock order.</b> The lock is innermost; sources are settled outside it.
 */
public final class Termination implements AutoCloseable {

  /** Something that counts until it is closed. */
  public interface Hold extends AutoCloseable {
    /** Ends it. Any thread; never blocks; twice is harmless. */
    @Override
    void close();
  }

  private enum Phase {
    IDLE,
    OPEN,
    ENDING
  }

  /** After no wave of this epoch: equal to no sum. */
  private static final long NO_WAVE = -1;

  /** The tag of {@link Word}s, on a channel that has no waves. */
  private static final int WATCHED = Integer.MAX_VALUE;

  /** Of what a rank says of its failure. */
  private static final int WORDS_MAX = 500;

  private final CommEngine engine;

  /** Epochs take turns, so that what comes tells by its channel of which of two it is. */
  private final Comm[] channels;

  private final int rank;
  private final int size;

  private final BriefLock lock = new BriefLock();
  private Phase phase = Phase.IDLE;
  private Completion.@Nullable Source<Long> end;
  private @Nullable CommException broken;

  private volatile long epoch;

  private final AtomicLong counting = new AtomicLong();

  /** For each rank: messages that were sent there. */
  private final AtomicLongArray underWay;

  private final AtomicLong submitted = new AtomicLong();

  /** Handled here, or submitted here and never sent. */
  private final AtomicLong ended = new AtomicLong();

  private final AtomicLong failures = new AtomicLong();
  private final AtomicReference<@Nullable Throwable> firstFailure = new AtomicReference<>();
  private final AtomicBoolean scheduled = new AtomicBoolean();

  private long handled;
  private long expected;
  private boolean waving;

  /** Who has closed its part while this rank was in a wave; that may go well even so. */
  private @Nullable CommException gone;

  private long lastEnded = NO_WAVE;
  private long messagesBefore;
  private long failuresBefore;

  Termination(CommEngine engine, Comm even, Comm odd) {
    this.engine = engine;
    this.channels = new Comm[] {even, odd};
    this.rank = engine.rank();
    this.size = engine.size();
    this.underWay = new AtomicLongArray(size);
    engine.loop(); // started here, where a thread may be started
    for (Comm channel : channels) {
      channel.inflow().pause(true);
    }
    for (int peer = 0; peer < size; peer++) {
      engine.post(new Watch(odd.channel(), peer), Operation.RECEIVE);
    }
  }

  // --- an epoch ---------------------------------------------------------------------------------

  /**
   * Begins the next epoch on this rank. From now on this rank counts, its messages and holds are
   * taken, and its handlers run. Every rank begins every epoch; nobody waits for the others.
   *
   * @throws IllegalStateException if the last epoch has not ended here; or if something has failed
   *     or a rank has closed its part: make another detection then
   */
  @SuppressWarnings("NonAtomicVolatileUpdate") // under the lock
  public void begin() {
    lock.lock();
    try {
      CommException failed = broken;
      if (isClosing()) {
        throw closedHere();
      }
      if (failed != null) {
        throw new IllegalStateException(
            "this detection has failed: make another one, once the cause is mended ("
                + failed.getMessage()
                + ")",
            failed);
      }
      if (phase != Phase.IDLE) {
        throw new IllegalStateException(
            "epoch " + epoch + " has not ended here: wait for what finish() answered");
      }
      epoch = epoch + 1;
      end = engine.source();
      phase = Phase.OPEN;
      counting.incrementAndGet();
    } finally {
      lock.unlock();
    }
    channel().inflow().pause(false);
  }

  /**
   * Says that this rank starts nothing more by itself in this epoch: only what counts already goes
   * on, and what comes of it. Once in each epoch, by every rank.
   *
   * @return done when the work is done everywhere; its value, the same on every rank, is the number
   *     of messages that were submitted in the epoch. Cancelling it, or a wait that ends early,
   *     changes nothing but the wait
   * @throws IllegalStateException if no epoch is open here
   */
  public Completion<Long> finish() {
    Completion.Source<Long> source;
    lock.lock();
    try {
      if (phase != Phase.OPEN) {
        if (isClosing()) {
          throw closedHere();
        }
        throw new IllegalStateException(
            phase == Phase.IDLE
                ? "no epoch is open here: begin() first"
                : "epoch " + epoch + " is finished here already");
      }
      phase = Phase.ENDING;
      source = Objects.requireNonNull(end);
    } finally {
      lock.unlock();
    }
    leave();
    return source.completion();
  }

  // --- what counts ------------------------------------------------------------------------------

  /**
   * As {@link Comm#handle}, for messages of this detection; before the first {@link #begin}, or as
   * soon as they can come.
   */
  public void handle(int handlerId, MessageHandler handler) {
    Objects.requireNonNull(handler, "handler");
    // The channel's own refusal speaks of a communicator.
    if (channels[0].isClosed()) {
      throw closedHere();
    }
    MessageHandler counted =
        (source, header, blobs) -> {
          counting.incrementAndGet();
          handler.handle(source, header, blobs);
          // Not if it throws: all ranks fail then, and none may find the end before it hears so.
          handled++;
          ended.incrementAndGet();
          leave();
        };
    for (Comm channel : channels) {
      channel.handle(handlerId, counted);
    }
  }

  /**
   * As {@link Comm#message(int, int, MemorySegment, Blob...)}; counts from this call until its
   * handler has returned.
   *
   * @throws IllegalStateException if nothing counts at this rank, so that all may be done already
   */
  public Completion<@Nullable Void> message(
      int peer, int handlerId, MemorySegment header, Blob... blobs) {
    return message(peer, handlerId, null, header, blobs);
  }

  /** As the other, once {@code after} is done; counts from the call, not from then. */
  public Completion<@Nullable Void> message(
      int peer, int handlerId, @Nullable Completion<?> after, MemorySegment header, Blob... blobs) {
    channels[0].checkPeer(peer);
    enter("a message");
    OnItsWay onItsWay = new OnItsWay(peer);
    try {
      return channel().message(onItsWay, peer, handlerId, after, header, blobs);
    } catch (RuntimeException | Error refused) {
      onItsWay.ended(false, null);
      throw refused;
    }
  }

  /**
   * Takes something in that counts until it is closed: a task that is to run, say. By something
   * that counts.
   *
   * @throws IllegalStateException if nothing counts at this rank, so that all may be done already
   */
  public Hold hold() {
    enter("a hold");
    return new Held();
  }

  /**
   * As {@link #hold}, until the completion is settled. If it fails, so does what {@link #finish}
   * answers, on every rank.
   *
   * @return the completion
   */
  public <T extends @Nullable Object> Completion<T> track(Completion<T> completion) {
    Objects.requireNonNull(completion, "completion");
    enter("a completion");
    completion.onDone(
        settled -> {
          if (settled.state() == Completion.State.FAILED) {
            failed(Objects.requireNonNull(settled.cause()));
          }
          leave();
        });
    return completion;
  }

  private static IllegalStateException closedHere() {
    return new IllegalStateException("this detection is closed here: make another one");
  }

  private void enter(String what) {
    for (long seen = counting.get(); ; seen = counting.get()) {
      if (seen == 0 && isClosing()) {
        throw closedHere();
      }
      if (seen == 0) {
        throw new IllegalStateException(
            what
                + " comes from outside of the work, which may be done already: begin() first, and"
                + " after finish() act in a handler or under a hold that one has taken");
      }
      if (counting.compareAndSet(seen, seen + 1)) {
        return;
      }
    }
  }

  private void leave() {
    if (counting.decrementAndGet() == 0) {
      schedule();
    }
  }

  private void failed(Throwable cause) {
    failures.incrementAndGet();
    firstFailure.compareAndSet(null, cause);
  }

  /** Of the epoch that counts. */
  private Comm channel() {
    return channels[(int) (epoch & 1)];
  }

  /** A message, and what counts of it: itself, and this rank until it has left or never will. */
  private final class OnItsWay extends AtomicBoolean implements Outgoing.Listener {
    private static final long serialVersionUID = 1L;

    @SuppressWarnings("serial") // nobody does
    private final int peer;

    OnItsWay(int peer) {
      this.peer = peer;
      if (Mutant.on("termination.counts-at-delivery")) {
        leave();
      } else {
        count();
      }
    }

    private void count() {
      underWay.incrementAndGet(peer);
      submitted.incrementAndGet();
    }

    @Override
    public void ended(boolean sent, @Nullable CommException failure) {
      if (!compareAndSet(false, true)) {
        return;
      }
      if (Mutant.on("termination.counts-at-delivery")) {
        if (sent) {
          count();
        }
        return;
      }
      if (!sent) {
        underWay.decrementAndGet(peer);
        ended.incrementAndGet();
        if (failure != null && failure.reason() != Reason.WITHDRAWN) {
          failed(failure);
        }
      }
      leave();
    }
  }

  private final class Held extends AtomicBoolean implements Hold {
    private static final long serialVersionUID = 1L;

    @Override
    public void close() {
      if (compareAndSet(false, true)) {
        leave();
      }
    }
  }

  // --- waves: on the communication thread -------------------------------------------------------

  private void schedule() {
    if (scheduled.compareAndSet(false, true)) {
      engine.loop().push(new CommEngine.Entering(this::look));
    }
  }

  /** Takes part in the next wave, if nothing here is to be waited for. */
  private void look() {
    scheduled.set(false);
    // Once nothing counts only a handler can change that, and those run on this thread.
    if (waving || !isEnding() || counting.get() != 0 || handled < expected) {
      return;
    }
    waving = true;
    long[] wave = new long[size + 3];
    for (int peer = 0; peer < size; peer++) {
      wave[peer] = underWay.get(peer);
    }
    wave[size] = submitted.get();
    wave[size + 1] = ended.get();
    wave[size + 2] = failures.get();
    channels[0]
        .reduceApart(wave, "look for the end of epoch " + epoch)
        .onDone(sum -> engine.loop().push(new CommEngine.Entering(() -> waved(sum, wave))));
  }

  private boolean isEnding() {
    lock.lock();
    try {
      return phase == Phase.ENDING && broken == null;
    } finally {
      lock.unlock();
    }
  }

  private void waved(Completion<?> sum, long[] wave) {
    waving = false;
    if (sum.cause() instanceof CommException failure) {
      boolean closes = failure.reason() == Reason.PEER_CLOSED && gone != null;
      breakAndTell(closes ? Objects.requireNonNull(gone) : failure);
      return;
    }
    if (!isEnding()) {
      return; // broken: somebody else has said so
    }
    boolean done = wave[size] == (Mutant.on("termination.one-wave") ? wave[size + 1] : lastEnded);
    expected = wave[rank];
    lastEnded = wave[size + 1];
    if (done) {
      settle(wave[size], wave[size + 2]);
    } else if (gone != null) {
      breakAndTell(gone);
    } else {
      look();
    }
  }

  private void settle(long messages, long failed) {
    long ofEpoch = messages - messagesBefore;
    long failedOfEpoch = failed - failuresBefore;
    messagesBefore = messages;
    failuresBefore = failed;
    lastEnded = NO_WAVE;
    Throwable cause = firstFailure.getAndSet(null);
    channel().inflow().pause(true);
    Completion.Source<Long> source;
    lock.lock();
    try {
      phase = Phase.IDLE;
      source = Objects.requireNonNull(end);
    } finally {
      lock.unlock();
    }
    if (gone != null) {
      breakWith(gone); // after its last epoch, but this rank cannot have another one
    }
    if (failedOfEpoch == 0) {
      source.complete(ofEpoch);
    } else {
      source.fail(incomplete(failedOfEpoch, cause));
    }
  }

  private CommException incomplete(long failed, @Nullable Throwable cause) {
    String where = cause == null ? "; none at this rank" : ", here first: " + cause.getMessage();
    return Failures.of(
        rank,
        Comm.ANY,
        "epoch " + epoch,
        new TransportException(
            Reason.INCOMPLETE,
            "all is done but what failed: " + failed + " messages or tracked completions" + where,
            cause));
  }

  // --- the end ----------------------------------------------------------------------------------

  /**
   * Once this rank closes, that is the first cause: what others say then may well be an answer to
   * it, and be here sooner.
   */
  private CommException firstCause(CommException failure) {
    if (!isClosing() || failure.reason() == Reason.CLOSED) {
      return failure;
    }
    return Failures.of(
        rank,
        Comm.ANY,
        "epoch " + epoch,
        new TransportException(
            Reason.CLOSED, "rank " + rank + " closed the communicator itself", failure));
  }

  /** False: it was broken before. */
  private boolean breakWith(CommException found) {
    CommException failure = firstCause(found);
    Completion.Source<Long> source;
    lock.lock();
    try {
      if (broken != null) {
        return false;
      }
      broken = failure;
      source = phase == Phase.IDLE ? null : end;
    } finally {
      lock.unlock();
    }
    if (source != null) {
      source.fail(failure);
    }
    return true;
  }

  /**
   * This rank takes part in no wave any more, because a peer has closed its part. Whoever is in one
   * does not know whether it goes well, and may need no more of that peer: this rank tells them.
   */
  private void breakAndTell(CommException found) {
    if (!breakWith(found) || found.reason() != Reason.PEER_CLOSED || isClosing()) {
      return;
    }
    Throwable cause = found.getCause();
    String why = String.valueOf((cause == null ? found : cause).getMessage());
    byte[] words = why.substring(0, Math.min(why.length(), WORDS_MAX)).getBytes(UTF_8);
    for (int peer = 0; peer < size; peer++) {
      if (peer != rank) {
        engine.post(new Word(peer, words), Operation.SEND);
      }
    }
  }

  private boolean isClosing() {
    return channels[0].isClosing() || channels[1].isClosing();
  }

  /**
   * The messages that came here and were not handled before this was closed; see {@link
   * Comm#undelivered}.
   */
  public List<Undelivered> undelivered() {
    List<Undelivered> all = new ArrayList<>(channels[0].undelivered());
    all.addAll(channels[1].undelivered());
    return all;
  }

  /**
   * Ends this rank's part, as {@link Comm#close} does; after the last epoch. The communicator that
   * made it closes it too. An epoch that goes on fails on every rank, but for a rank that finds its
   * end at this moment; messages that are no part of the detection are not touched.
   */
  @Override
  public void close() {
    for (Comm channel : channels) {
      channel.close();
    }
  }

  @Override
  public String toString() {
    return "Termination[rank " + rank + " of " + size + ", epoch " + epoch + "]";
  }

  /**
   * A receive of a {@link Word} from each rank: it ends also when the communicator is closed, here
   * or there, or a rank fails, and so while this rank takes part in no wave.
   */
  private final class Watch extends ReceiveRequest implements Ending {
    private @Nullable TransportException cause;
    private boolean told;

    Watch(int channel, int peer) {
      super(channel, Traffic.COLLECTIVE, peer, WATCHED, null);
    }

    @Override
    public boolean isWithdrawn() {
      return false;
    }

    @Override
    public void received(int source, long bytes, @Nullable MemorySegment data) {
      byte[] words = Objects.requireNonNull(data).toArray(ValueLayout.JAVA_BYTE);
      String why = new String(words, UTF_8) + ", says rank " + source;
      told = true;
      cause = new TransportException(Reason.PEER_CLOSED, why, null);
      engine.end(this);
    }

    @Override
    public void failed(TransportException failure) {
      cause = failure;
      engine.end(this);
    }

    @Override
    public void tell() {
      engine.loop().push(new CommEngine.Callback(this::ended));
    }

    private void ended() {
      TransportException why = Objects.requireNonNull(cause);
      boolean closed = why.reason() == Reason.PEER_CLOSED;
      int peer = closed && !told ? source() : Comm.ANY;
      CommException failure = Failures.of(rank, peer, "epoch " + epoch, why);
      if (told || !closed) {
        breakWith(failure);
      } else if (!waving) {
        breakAndTell(failure);
      } else if (gone == null) {
        gone = failure; // it may have seen the wave's result, the end, before this rank does
      }
    }
  }

  /** Tells a peer that this rank takes part in no wave any more, and why. */
  private final class Word extends SendRequest implements Ending {
    private @Nullable TransportException cause;

    Word(int peer, byte[] words) {
      super(
          channels[1].channel(),
          Traffic.COLLECTIVE,
          peer,
          WATCHED,
          new MemorySegment[] {MemorySegment.ofArray(words)});
    }

    @Override
    public boolean isWithdrawn() {
      return false;
    }

    @Override
    public void sent() {}

    @Override
    public void failed(TransportException failure) {
      cause = failure;
      engine.end(this);
    }

    @Override
    public void tell() {
      TransportException why = Objects.requireNonNull(cause);
      switch (why.reason()) {
        case CLOSED, PEER_CLOSED, PEER_FAILED -> {} // it knows, or this rank has closed meanwhile
        case SIZE_MISMATCH, MEMORY, GATE, WITHDRAWN, BACK_PRESSURE, LIBRARY, INCOMPLETE ->
            engine.abort(Failures.of(rank, target(), "end of epoch " + epoch, why));
      }
    }
  }
}
