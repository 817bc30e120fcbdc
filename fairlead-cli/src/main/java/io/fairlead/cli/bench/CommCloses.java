package io.fairlead.cli.bench;

import io.fairlead.comm.Blob;
import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Ranks that are closed while all of them send, receive and call handlers. What a sender was told
 * is sent must have been received, or be named as undelivered by the rank that closed; and every
 * operation must end.
 *
 * <p>One seed fixes what each rank does, not when.
 */
final class CommCloses {
  /** No close may take longer. */
  static final Duration LIMIT = Duration.ofSeconds(5);

  private static final int OPERATIONS = 40;
  private static final int TAGS = 3;
  private static final int NOBODYS_TAG = 77;
  private static final int HANDLER = 1;

  private final Fairlead fairlead;
  private final CommWorld world;
  private final int seed;
  private final Queue<Completion<?>> sends = new ConcurrentLinkedQueue<>();
  private final Queue<Completion<?>> messages = new ConcurrentLinkedQueue<>();
  private final Queue<Completion<?>> receives = new ConcurrentLinkedQueue<>();
  private final AtomicLong handled = new AtomicLong();

  private CommCloses(Fairlead fairlead, CommWorld world, int seed) {
    this.fairlead = fairlead;
    this.world = world;
    this.seed = seed;
  }

  /**
   * What became of the messages of the ranks that live here; of all ranks together, what was told
   * and what is accounted for must be equal.
   *
   * @param told senders were told that so many are sent
   * @param accounted so many were received, discarded or named as undelivered
   * @param nanos the longest that a rank's close, and the end of its operations, took
   * @param open operations that had not ended by {@link #LIMIT}
   */
  record Account(long told, long accounted, long nanos, long open) {}

  /** Little room for what nobody receives, or none: so that senders wait too. */
  static CommConfig config(int seed) {
    return CommConfig.DEFAULT.withEager(seed % 3 == 0 ? 0 : 4096, 20).withMessageBytes(500);
  }

  /** Ranks of that world load each other and are closed. It is of no use after that. */
  static Account close(Fairlead fairlead, CommWorld world, int seed) {
    return new CommCloses(fairlead, world, seed).account();
  }

  private Account account() {
    for (Comm comm : world.here()) {
      comm.handle(HANDLER, (source, header, blobs) -> handled.incrementAndGet());
    }
    AtomicLong longest = new AtomicLong();
    try (TaskScope<String> scope = fairlead.scope()) {
      for (Comm comm : world.here()) {
        scope.fork(() -> load(comm));
        scope.fork(
            () -> {
              long nanos = close(comm);
              longest.accumulateAndGet(nanos, Math::max);
              return "closed";
            });
      }
      scope.join();
    }
    world.close();
    long open = notEnded(sends) + notEnded(messages) + notEnded(receives);
    long accounted = done(receives) + handled.get();
    for (Comm comm : world.here()) {
      accounted += comm.stats().discarded();
      accounted += comm.undelivered().stream().filter(CommCloses::isOfATask).count();
    }
    return new Account(done(sends) + done(messages), accounted, longest.get(), open);
  }

  private static boolean isOfATask(Undelivered message) {
    return !message.kind().equals("collective");
  }

  private String load(Comm comm) {
    SplittableRandom random = new SplittableRandom(31L * seed + comm.rank());
    for (int i = 0; i < OPERATIONS; i++) {
      int peer = random.nextInt(comm.size());
      switch (random.nextInt(6)) {
        case 0, 1 -> sends.add(comm.send(peer, random.nextInt(TAGS), bytes(random.nextInt(6000))));
        case 2 -> receives.add(comm.receive(Comm.ANY, random.nextInt(TAGS)));
        case 3 -> receives.add(comm.receive(peer, random.nextInt(TAGS)));
        // one in eight for a handler that there is not
        case 4 -> messages.add(comm.message(peer, HANDLER + random.nextInt(8) / 7, bytes(8)));
        default -> sends.add(gated(comm, peer, random.nextInt(4) > 0));
      }
    }
    return "loaded";
  }

  private static Completion<?> gated(Comm comm, int peer, boolean opens) {
    Completion.Source<String> gate = Completion.source();
    Completion<?> sent = comm.send(peer, 1, gate.completion(), Blob.of(bytes(16)));
    if (opens) {
      gate.complete("open");
    }
    return sent;
  }

  private static MemorySegment bytes(int count) {
    return MemorySegment.ofArray(new byte[count]);
  }

  /** In the middle of the load, sooner or later; returns how long it took. */
  private long close(Comm comm) {
    SplittableRandom random = new SplittableRandom(37L * seed + comm.rank());
    for (int i = random.nextInt(50); i > 0; i--) {
      comm.receive(Comm.ANY, NOBODYS_TAG); // some time, and more that has to be ended
    }
    long start = System.nanoTime();
    comm.close();
    return System.nanoTime() - start;
  }

  private static long done(Queue<Completion<?>> completions) {
    return completions.stream().filter(c -> c.state() == Completion.State.DONE).count();
  }

  /** Those that do not end in time; the close is over, so all should have. */
  private static long notEnded(Queue<Completion<?>> completions) {
    long until = System.nanoTime() + LIMIT.toNanos();
    long open = 0;
    for (Completion<?> each : completions) {
      while (!each.isDone() && System.nanoTime() < until) {
        Thread.onSpinWait();
      }
      open += each.isDone() ? 0 : 1;
    }
    return open;
  }
}
