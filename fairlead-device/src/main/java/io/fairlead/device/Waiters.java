package io.fairlead.device;

import io.fairlead.task.Completion;
import io.fairlead.task.WaitHelp;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * Everybody who waits for one stream, in the order of what they wait for. To see whether anything
 * is due costs one comparison, however many wait.
 *
 * <p>Nothing here blocks, so that a driver's thread, a poller and any task may drain. Of those who
 * drain at once one does the work and the others leave it a note ({@code rounds}), so that no
 * wake-up is lost:
 *
 * <ul>
 *   <li>a waiter is added first and looks for its result afterwards;
 *   <li>a result is stored first and drained afterwards;
 *   <li>a drain that is under way when either happens goes round once more.
 * </ul>
 *
 * <pre>
 * field       | writer            | reader            | mode, guard
 * incoming    | any (push), drain | drain             | CAS push; getAndSet by the drainer
 * rounds      | any               | any               | atomic: 0 to 1 makes the caller the drainer
 * waiting     | drainer           | drainer           | plain; rounds orders one drainer after the other
 * refusal     | any               | drainer           | atomic, taken by the drainer
 * end         | owner             | drainer           | volatile, before a drain
 * outstanding | any               | poller, any       | atomic; a hint: 0 lets the poller skip us
 * cancelled   | any               | drainer           | atomic; a hint when to sweep
 * first,      | drainer           | poller            | volatile, plain before it: how the last round
 *   oldest,   |                   |                   | left things. A newcomer that it does not count
 *   newest    |                   |                   | drains itself
 * </pre>
 */
final class Waiters {
  /** Fewer cancelled waiters than this are not worth a sweep. */
  private static final int SWEEP_MIN = 64;

  private static final VarHandle INCOMING;

  static {
    try {
      INCOMING = MethodHandles.lookup().findVarHandle(Waiters.class, "incoming", Waiter.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final StreamCore stream;
  private final AtomicInteger rounds = new AtomicInteger();
  private final AtomicInteger outstanding = new AtomicInteger();
  private final AtomicInteger cancelled = new AtomicInteger();
  private final AtomicReference<@Nullable DeviceException> refusal = new AtomicReference<>();
  private final WaitLine<Waiter> waiting = new WaitLine<>();
  private volatile @Nullable Waiter incoming;
  private volatile @Nullable DeviceException end;

  /** What the first waiter waits for. */
  private volatile long first = Long.MAX_VALUE;

  /** Since when the first waiter waits, and the newest one. */
  private long oldest;

  private long newest;

  /** How many were added so far; makes waiters for the same operation first come, first served. */
  private long arrivals;

  Waiters(StreamCore stream) {
    this.stream = stream;
  }

  boolean isEmpty() {
    return outstanding.get() == 0;
  }

  int size() {
    return outstanding.get();
  }

  /** Adds a waiter. The caller then makes sure of a signal, and drains. */
  void add(Waiter waiter) {
    // before the push: a poller that sees 0 may skip this stream, and we drain afterwards ourselves
    outstanding.incrementAndGet();
    Waiter head;
    do {
      head = incoming;
      waiter.next = head;
      // release: the drainer that takes the waiter must see all of it
    } while (!INCOMING.compareAndSet(this, head, waiter));
  }

  void noteCancelled() {
    cancelled.incrementAndGet();
  }

  /** The next drain fails those who wait without a signal: theirs could not be enqueued. */
  void noteRefusal(DeviceException cause) {
    refusal.compareAndSet(null, cause); // the first of several is the cause
  }

  boolean isRefused() {
    return refusal.get() != null;
  }

  /** The next drain, and each after it, fails all who are not due: the stream is given up. */
  void end(DeviceException cause) {
    end = cause;
  }

  /**
   * Completes everyone who is due, and fails the rest if the context is lost. Any thread; never
   * blocks.
   *
   * @return how many were completed by this call
   */
  int drain() {
    if (rounds.getAndIncrement() != 0) {
      return 0; // the drainer sees our increment and goes round again
    }
    int found = 0;
    int seen = 1;
    do {
      found += round();
      seen = rounds.addAndGet(-seen);
    } while (seen != 0);
    return found;
  }

  private int round() {
    takeIncoming();
    DeviceException refused = refusal.get() == null ? null : refusal.getAndSet(null);
    int found = completeDue();
    if (!waiting.isEmpty()) {
      found += failHopeless(refused);
    }
    sweep();
    noteFirst();
    return found;
  }

  private void noteFirst() {
    Waiter head = waiting.peek();
    if (head != null) {
      oldest = head.since;
    }
    first = head == null ? Long.MAX_VALUE : head.sequence;
  }

  /** The poller's look, which changes nothing: whether a drain could find something to do. */
  boolean mayDrain() {
    return incoming != null
        || stream.isDue(first)
        || refusal.get() != null
        || end != null
        || cancelled.get() >= SWEEP_MIN
        || stream.context.failure() != null;
  }

  /** What the first one waits for, as the last round left it; a very large number for nobody. */
  long first() {
    return first;
  }

  /** Since when the first one waits, as the last round left it. */
  long oldestNanos() {
    long seen = first; // volatile, before the plain field
    return seen == Long.MAX_VALUE ? System.nanoTime() : oldest;
  }

  /** Since when the newest one waits, as the last round left it. */
  long newestNanos() {
    long seen = first; // volatile, before the plain field
    return seen == Long.MAX_VALUE ? System.nanoTime() : newest;
  }

  private void takeIncoming() {
    Waiter node = (Waiter) INCOMING.getAndSet(this, null);
    ArrayDeque<Waiter> reversed = null;
    while (node != null) {
      Waiter next = node.next;
      node.next = null;
      if (next == null && reversed == null) {
        enter(node); // the usual case: one newcomer, no detour
        return;
      }
      reversed = reversed == null ? new ArrayDeque<>() : reversed;
      reversed.push(node);
      node = next;
    }
    while (reversed != null && !reversed.isEmpty()) {
      enter(reversed.pop());
    }
  }

  private void enter(Waiter waiter) {
    waiter.arrival = arrivals++;
    newest = waiter.since;
    waiting.add(waiter);
  }

  private int completeDue() {
    Waiter first = waiting.peek();
    if (first == null) {
      return 0;
    }
    long done;
    try {
      done = stream.refreshDone();
    } catch (DeviceException e) {
      return failAll(e); // the driver no longer knows this stream
    }
    Waiter due = takeDue(done);
    return due == null ? 0 : complete(due, done);
  }

  private @Nullable Waiter takeDue(long done) {
    Waiter head = waiting.peek();
    return head == null || head.sequence > done ? null : waiting.poll();
  }

  /** This one and all others that are due. Counts each before: who is woken may look. */
  private int complete(Waiter one, long done) {
    long now = System.nanoTime();
    int found = 0;
    for (Waiter each = one; each != null; each = takeDue(done)) {
      outstanding.decrementAndGet();
      stream.counters().waitNanos.add(now - each.since);
      each.complete();
      found++;
    }
    return found;
  }

  private int failHopeless(@Nullable DeviceException cause) {
    DeviceException lost = stream.context.failure();
    if (lost == null) {
      lost = end;
    }
    if (lost != null) {
      return failAll(lost);
    }
    return cause == null ? 0 : failUnsignalled(cause);
  }

  /** Whose signal was taken will be reached all the same. */
  private int failUnsignalled(DeviceException cause) {
    long signalled = stream.signalled();
    List<Waiter> failed = new ArrayList<>();
    waiting.removeIf(each -> each.sequence > signalled && failed.add(each));
    for (Waiter each : failed) {
      outstanding.decrementAndGet();
      each.fail(cause);
    }
    return failed.size();
  }

  private int failAll(DeviceException cause) {
    int found = 0;
    for (Waiter each = waiting.poll(); each != null; each = waiting.poll()) {
      outstanding.decrementAndGet();
      each.fail(cause);
      found++;
    }
    return found;
  }

  private void sweep() {
    int gone = cancelled.get();
    if (gone < SWEEP_MIN || gone < waiting.size() / 2) {
      return;
    }
    int before = waiting.size();
    waiting.removeIf(Waiter::isDone);
    outstanding.addAndGet(waiting.size() - before);
    cancelled.set(0); // may lose a count that came just now; it is a hint
  }

  /** One waiter: a node here, and the help that a spinning or blocking task gets. */
  static final class Waiter implements WaitHelp, Comparable<Waiter> {
    private final StreamCore stream;
    private final long sequence;
    private final long since = System.nanoTime();
    private final Completion.Source<Void> source = Completion.source(this);
    private long arrival;
    private @Nullable Waiter next;

    Waiter(StreamCore stream, long sequence) {
      this.stream = stream;
      this.sequence = sequence;
      source.onCancel(stream::noteCancelled);
    }

    Completion<Void> completion() {
      return source.completion();
    }

    boolean isDone() {
      return source.completion().isDone();
    }

    @SuppressWarnings("NullAway") // Void has no other value
    private void complete() {
      source.complete(null);
    }

    private void fail(DeviceException cause) {
      stream.counters().waitNanos.add(System.nanoTime() - since);
      source.fail(cause);
    }

    @Override
    public boolean poll() {
      if (!isDone() && stream.isDueIfAsked(sequence)) {
        stream.drain();
      }
      return isDone();
    }

    @Override
    public boolean isFoundByLooking() {
      return stream.isFoundByLooking();
    }

    @Override
    public boolean isReady() {
      return isDone() || stream.isDue(sequence);
    }

    @Override
    public boolean block(long nanos) {
      return stream.block(sequence) && isDone();
    }

    @Override
    public String what() {
      return "stream "
          + stream.id
          + " of device "
          + stream.context.ordinal()
          + " to reach operation "
          + sequence;
    }

    @Override
    public int compareTo(Waiter other) {
      int bySequence = Long.compare(sequence, other.sequence);
      return bySequence != 0 ? bySequence : Long.compare(arrival, other.arrival);
    }
  }
}
