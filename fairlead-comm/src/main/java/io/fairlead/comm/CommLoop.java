package io.fairlead.comm;

import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.PollSource;
import io.fairlead.task.TaskBody;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The communication thread of one rank: runs what was shifted to it, the handlers of active
 * messages, affine tasks, and the transport's progress where it needs any.
 *
 * <p><b>Idle</b>, a loop that has to poll goes the way of every {@link Owner}: spin, unless it has
 * one processor only, yield for 200 µs, then naps that grow with the silence, up to {@link
 * Rest#NAP_NANOS_MAX} unless the transport can ring: see {@link Rest}. What is pushed ends a nap at
 * once: the push rings, and {@link #isReady} is asked between the announcement of a nap and the
 * nap.
 *
 * <p>The queue is intrusive, many producers and one consumer: a push is one exchange and one write,
 * so it neither blocks nor allocates nor refuses, on any thread. It is bounded because its nodes
 * are: by the slots that were reserved for them, and by one node for each live operation.
 *
 * <pre>
 * RUNNING → ENDING   end(), on the thread itself: what is queued still runs
 *         → ENDED    the thread has run all it saw; what comes now is told it is late
 * </pre>
 *
 * <table>
 *   <caption>fields</caption>
 *   <tr><th>field</th><th>writer</th><th>reader</th><th>mode</th></tr>
 *   <tr><td>newest</td><td>producers</td><td>same, loop</td><td>getAndSet: orders the producers</td></tr>
 *   <tr><td>LoopNode.next</td><td>producer of the next node</td><td>consumer</td><td>volatile</td></tr>
 *   <tr><td>oldest</td><td>consumer: loop, then holder of late</td><td>same</td><td>plain; ended hands it over</td></tr>
 *   <tr><td>rest</td><td>loop</td><td>loop, and affine tasks on its thread</td><td>plain</td></tr>
 *   <tr><td>ending</td><td>loop</td><td>loop</td><td>plain</td></tr>
 *   <tr><td>wanted</td><td>who rings, loop</td><td>loop</td><td>volatile: see the bell of {@link
 *       Owner}</td></tr>
 *   <tr><td>ended</td><td>loop, once</td><td>producers</td><td>volatile</td></tr>
 * </table>
 *
 * <p>{@code late} is only ever tried, never waited for, and only after the end.
 */
final class CommLoop implements PollSource {
  /** Nodes run before the transport is polled again. */
  private static final int QUANTUM = 64;

  private final @Nullable Owner owner;

  /** Null: the transport needs no progress. */
  private final @Nullable Rest rest;

  private final Consumer<Throwable> onFault;
  private final AtomicReference<LoopNode> newest;
  private final ReentrantLock late = new ReentrantLock();
  private final Completion.Source<@Nullable Void> end = Completion.source();
  private final LongAdder rings = new LongAdder();
  private LoopNode oldest;
  private boolean ending;

  /** Rung since the last poll, also if it did not nap: then it must not go aside. */
  private volatile boolean wanted;

  private volatile boolean ended;

  private CommLoop(
      @Nullable Owner owner, Rest.@Nullable Progress progress, Consumer<Throwable> onFault) {
    this.owner = owner;
    this.rest = progress == null ? null : new Rest(progress, System::nanoTime);
    this.onFault = onFault;
    LoopNode stub = new Stub();
    this.newest = new AtomicReference<>(stub);
    this.oldest = stub;
    this.ended = owner == null;
  }

  /** With what makes progress, if the transport needs any. */
  static CommLoop start(
      Owner owner, Rest.@Nullable Progress progress, Consumer<Throwable> onFault) {
    CommLoop loop = new CommLoop(owner, progress, onFault);
    owner.addSource(loop);
    return loop;
  }

  /** A loop for a communicator that closed before it needed one: everything is late. */
  static CommLoop ended() {
    return new CommLoop(null, null, fault -> {});
  }

  boolean isOwnThread() {
    return owner != null && owner.isOwnerThread();
  }

  /** Queues a node. Any thread; wait-free but for the wake-up. */
  void push(LoopNode node) {
    LoopNode before = newest.getAndSet(node);
    before.next = node;
    // Read after the link: either the loop sees the node before it ends, or this thread sees the
    // end.
    if (ended) {
      runLate();
    } else if (owner != null) {
      owner.ring();
    }
  }

  @Override
  public int poll() {
    if (ended) {
      return 0;
    }
    int done = 0;
    LoopNode node = oldest.next;
    // To the very end once it is ending: nobody polls again.
    while (node != null && (done < QUANTUM || ending)) {
      oldest = node;
      done++;
      run(node);
      node = oldest.next;
    }
    if (ending && node == null) {
      ended = true;
      runLate();
      end.complete(null);
      return done;
    }
    boolean asked = wanted;
    if (asked) {
      wanted = false; // before the look: what comes to be wanted during it is looked at again
    }
    return done + (rest == null ? 0 : rest.poll(done > 0, asked));
  }

  private void run(LoopNode node) {
    try {
      node.run();
    } catch (RuntimeException | Error e) {
      onFault.accept(e);
    }
  }

  /** After the end: whoever finds nodes tells them, one thread at a time. */
  private void runLate() {
    while (hasQueued() && late.tryLock()) {
      try {
        for (LoopNode node = oldest.next; node != null; node = oldest.next) {
          oldest = node;
          node.late();
        }
      } finally {
        late.unlock();
      }
    }
  }

  @Override
  public boolean hasPending() {
    return !ended && (rest != null || hasQueued());
  }

  @Override
  public boolean isReady() {
    return !ended && (wanted || hasQueued() || (rest != null && rest.hasRung()));
  }

  @Override
  public boolean isLookedFor() {
    return rest != null && rest.isLookedFor();
  }

  @Override
  public long napNanosMax() {
    return rest == null ? Rest.NAP_NANOS_MAX : rest.napNanosMax();
  }

  /** Has the transport looked at again and again, if it naps. Any thread; never blocks. */
  void ring() {
    rings.increment();
    if (owner != null && !ended) {
      if (!owner.isOwnerThread()) {
        wanted = true;
      }
      owner.ring();
    }
  }

  /** How often that was. For tests. */
  long rings() {
    return rings.sum();
  }

  /** As {@link Comm#affine}. */
  <T extends @Nullable Object> Completion<T> affine(TaskBody<T> body) {
    if (owner == null || ended) {
      throw new IllegalStateException(
          "this rank closed the communicator: its thread takes no more tasks");
    }
    return owner.affine(body);
  }

  /** What tasks on the thread held it up. */
  Owner.Turns turns() {
    return owner == null ? new Owner.Turns(0, 0) : owner.turns();
  }

  private boolean hasQueued() {
    // A push between exchange and link does not count: its producer looks again after the link.
    return oldest.next != null;
  }

  /** On the thread itself: ends it once what is queued has run. */
  void end() {
    ending = true;
    if (owner != null) {
      owner.close();
    }
  }

  /**
   * Waits until the thread has ended. Only where a thread may wait, and once {@link #end} is called
   * or queued: closing the owner before that would leave what is queued undone.
   */
  void awaitEnd() {
    if (owner != null) {
      end.completion().awaitUninterruptibly();
      owner.close();
    }
  }

  /**
   * If the runtime, and so the thread, was closed before the communicator: tells all that is
   * queued, and all that comes, that it is late. Only where a thread may wait.
   */
  void noticeEnd() {
    if (owner == null || isOwnThread() || ended) {
      return;
    }
    try {
      owner.trySubmit(() -> {});
    } catch (IllegalStateException closed) {
      owner.close();
      // The thread is gone, so this one may take the queue over.
      ended = true;
      runLate();
      end.complete(null);
    }
  }

  private static final class Stub extends LoopNode {
    @Override
    void run() {
      throw new AssertionError("the stub is never queued");
    }
  }
}
