package io.fairlead.ffi.mpi;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.fairlead.fault.Mutant;
import io.fairlead.ffi.posix.Futex;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/**
 * Wakes ranks of one host that sleep. MPI has no descriptor to wait for, so whoever looks for
 * messages has to look again and again; with this, a rank that has said that it sleeps is woken by
 * whoever sends to it.
 *
 * <p>Each rank has a word in memory that all ranks of the communicator share. It counts up: even is
 * awake, odd is asleep.
 *
 * <pre>
 * AWAKE (even)  → ASLEEP  announce(): this rank alone, by who polls it
 * ASLEEP (odd)  → AWAKE   sent() of a peer, which also wakes the doorman of this rank
 *                         stir(): this rank itself, which has begun something that needs polls
 *                         withdraw(): who polls it does so for some other reason
 * </pre>
 *
 * <h2>Nothing is slept over</h2>
 *
 * Between the write and the read of each side stands a full fence, as in Dekker's algorithm, here
 * across processes:
 *
 * <pre>
 * sleeper:  word = ASLEEP;            fence; poll      → nothing there? sleep
 * sender:   MPI takes the packet;     fence; read word → ASLEEP? make it AWAKE, wake
 * </pre>
 *
 * Of two fences one is first in the order that all processors agree on. If it is the sleeper's, the
 * sender reads ASLEEP, or an AWAKE that somebody wrote later, who then wakes. If it is the
 * sender's, the packet is where the sleeper's poll looks for it. Only the sleeper itself makes the
 * word odd, so a word that is odd after its poll was odd before it.
 *
 * <p>The same holds between the sleeper and its doorman, the thread here that waits for the word to
 * be changed: the owner of the loop announces that it parks, fences, and asks {@link #isAsleep};
 * the doorman sees the word AWAKE, fences, and looks at the owner's bell. And between the doorman
 * and the sender stands the system, which compares the word before it puts the doorman to sleep.
 *
 * <p><b>What that takes for granted</b> is that a packet which MPI took is where the receiver looks
 * for it. MPI may keep it back, where the way is full: the sender's own polls push it then. So a
 * rank that has requests of MPI's in flight does not sleep, whoever has sent wakes its own loop
 * too, which polls for some milliseconds more, as does the one that was woken; and peers whose
 * packets MPI had kept back are looked at again when it lets go of them. A library that keeps back
 * more than that, or a sender that dies between the change of the word and the wake, makes a
 * message late by a nap, 10 ms: no sleep is without an end.
 *
 * <pre>
 * field      | writer                                | reader          | mode, guard
 * own word   | this rank, under the engine's turn (even to odd); peers, this rank (odd to even)
 *            |                                       | anyone          | volatile; compare-and-set
 *            |                                       |                 | from odd, so one of all wakes
 * words of peers | see above                         | who has sent    | plain, after a full fence
 * bell       | announce(), once                      | doorman         | volatile
 * closed     | close()                               | doorman         | volatile
 * broken     | doorman                               | announce()      | volatile
 * heard      | doorman                               | tests           | adder
 * </pre>
 *
 * <p>Threads: {@link #announce}, {@link #sent}, {@link #stir} by whoever has the engine's turn; the
 * rest by any. Nothing blocks but the doorman, and {@link #close}, which waits for it.
 */
final class Doorbell implements AutoCloseable {
  /** Two cache lines for each word, since lines are fetched in pairs. The first pair is a mark. */
  private static final int WORD_BYTES = 128;

  /** Between two calls to a doorman that was just going to sleep. */
  private static final Duration CLOSE_LOOK = Duration.ofMillis(5);

  private static final System.Logger LOG = System.getLogger("io.fairlead.ffi.mpi");
  private static final VarHandle WORD = JAVA_INT.varHandle();

  private final MemorySegment words;
  private final int rank;
  private final MemorySegment own;
  private final @Nullable Thread doorman;
  private final LongAdder heard = new LongAdder();
  private volatile @Nullable Runnable bell;
  private volatile boolean closed;
  private volatile boolean broken;

  /**
   * One rank's end.
   *
   * @param words {@link #bytes} of memory that all ranks have mapped, all zero but for the mark
   */
  Doorbell(MemorySegment words, int rank, int size) {
    this.words = words;
    this.rank = rank;
    this.own = words.asSlice(at(rank), JAVA_INT.byteSize());
    this.doorman =
        size == 1
            ? null // nobody rings
            : Thread.ofPlatform().daemon().name("fairlead-doorman-" + rank).start(this::attend);
  }

  /** That of a rank that has no peers. */
  static Doorbell alone() {
    return new Doorbell(Arena.ofAuto().allocate(bytes(1), WORD_BYTES), 0, 1);
  }

  /** How much memory the words of so many ranks take. */
  static long bytes(int size) {
    return at(size);
  }

  private static long at(int rank) {
    return (rank + 1L) * WORD_BYTES;
  }

  // --- the sleeper ------------------------------------------------------------------------------

  /**
   * Announces that this rank will sleep if the next poll finds nothing: until {@code wakes} is run.
   * Always the same one.
   *
   * @return false: nobody would ring
   */
  boolean announce(Runnable wakes) {
    if (broken || closed) {
      return false;
    }
    if (bell == null) {
      bell = wakes;
    }
    int word = (int) WORD.getVolatile(own, 0L);
    if (!isAsleep(word)) {
      // Nobody else changes an even word, but for the end.
      WORD.compareAndSet(own, 0L, word, word + 1);
    }
    VarHandle.fullFence(); // see above: before the poll that decides
    return true;
  }

  /** Whether nobody has rung since the announcement. Any thread. */
  boolean isAsleep() {
    return isAsleep((int) WORD.getVolatile(own, 0L));
  }

  private static boolean isAsleep(int word) {
    return (word & 1) != 0;
  }

  /** This rank does not sleep, whatever it announced: nobody need ring. By who polls. */
  void withdraw() {
    int word = (int) WORD.getVolatile(own, 0L);
    if (isAsleep(word)) {
      WORD.compareAndSet(own, 0L, word, word + 1);
    }
  }

  /** This rank has begun what only polls bring to an end, and so must not sleep. */
  void stir() {
    int word = (int) WORD.get(own, 0L);
    if (isAsleep(word) && WORD.compareAndSet(own, 0L, word, word + 1)) {
      Runnable wakes = bell;
      if (wakes != null) {
        wakes.run();
      }
    }
  }

  // --- the sender -------------------------------------------------------------------------------

  /** MPI has taken something for the peer, or has let go of what it had kept back. */
  void sent(int peer) {
    VarHandle.fullFence(); // see above: after what was sent
    long at = at(peer);
    int word = (int) WORD.get(words, at);
    if (isAsleep(word)) {
      ring(at, word);
    }
  }

  private void ring(long at, int word) {
    if (Mutant.on("doorbell.never-rings")) {
      return;
    }
    if (WORD.compareAndSet(words, at, word, word + 1)) {
      int _ = Futex.wake(words.asSlice(at, JAVA_INT.byteSize()));
    }
  }

  // --- the doorman ------------------------------------------------------------------------------

  private void attend() {
    try {
      int told = 0;
      while (!closed) {
        int word = (int) WORD.getVolatile(own, 0L);
        int woken = word & ~1; // as it was when it was awake last
        if (woken != told) {
          told = woken;
          tell(word);
        } else if (Futex.await(own, word) == Futex.Woken.REFUSED) {
          throw new IllegalStateException("the system does not let it wait any more");
        }
      }
    } catch (RuntimeException | Error failure) {
      broken = true;
      LOG.log(
          System.Logger.Level.WARNING,
          "the doorman of rank " + rank + " has ended; its loop naps from now on",
          failure);
    }
  }

  /** Whoever is asleep again has seen what was rung for. */
  private void tell(int word) {
    Runnable wakes = bell;
    if (wakes != null && !isAsleep(word)) {
      heard.increment();
      wakes.run();
    }
  }

  /** How often somebody came to the door. For tests. */
  long heard() {
    return heard.sum();
  }

  /** Ends the doorman. Idempotent; not by the doorman. */
  @Override
  public void close() {
    closed = true;
    Thread waiting = doorman;
    if (waiting == null) {
      return;
    }
    boolean interrupted = false;
    while (waiting.isAlive()) {
      WORD.getAndAdd(own, 0L, 2); // so that it does not go to sleep
      Futex.wake(own);
      try {
        waiting.join(CLOSE_LOOK);
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
