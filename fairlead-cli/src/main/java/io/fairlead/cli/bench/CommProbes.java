package io.fairlead.cli.bench;

import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.comm.Blob;
import io.fairlead.comm.Comm;
import io.fairlead.comm.Received;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * What messages cost between two ranks, as "twin.c" measures it in C. Each method is called on both
 * ranks, in a task each, in the same order; the figures are those of rank 0, others get none.
 *
 * <p>Sizes and numbers are those of "twin.c"; rounds that are not counted are more, for the
 * compiler.
 */
final class CommProbes {
  static final int SMALL = 8;
  static final int LARGE = 1 << 20;

  private static final int BLOBS_HANDLER = 1;
  private static final int MADE_HANDLER = 2;

  private static final int SMALL_BATCH = 100;
  private static final int SMALL_SAMPLES = 400;

  /**
   * Rounds that are not counted for each that is: about a second of them, which the compiler needs
   * where it shares its rank's core; no more than {@link #WARM_UP_NANOS_MAX} on a machine that is
   * full.
   */
  private static final int SMALL_WARM_UPS = 20;

  private static final long WARM_UP_NANOS_MAX = 3_000_000_000L;

  /** In front of each message of a batch: whether another one follows. */
  private static final long MORE = 1;

  private static final long LAST = 2;

  private static final int LARGE_BATCH = 4;
  private static final int LARGE_SAMPLES = 150;
  private static final int LARGE_WARM_UPS = 8;

  private static final int TASKS = 64;
  private static final int RATE_EACH = 400;
  private static final int RATE_SAMPLES = 40;

  private static final int HEADER = 64;
  private static final int BLOBS = 4;
  private static final int BLOB = 64 << 10;
  private static final int BLOBS_BATCH = 10;
  private static final int BLOBS_SAMPLES = 200;
  private static final int BLOBS_WARM_UPS = 5;

  private static final int FLOOD = 200_000;
  private static final int FLOOD_BYTES = 4_000;

  private static final int TAG = 1;
  private static final int TO_ROOT_TAG = 2;
  private static final int FLOOD_TAG = 3;

  /** The first of as many as there are tasks. */
  private static final int TASKS_TAG = 1_000;

  private static final long IDLE_NANOS = 3_000_000_000L;
  private static final long PAUSE_NANOS = 300_000_000;
  private static final int FIRST_MESSAGES = 20;
  private static final double PERCENT = 100;

  private final Fairlead fairlead;
  private final Comm comm;
  private final int peer;
  private final int scale;

  /** The answer that rank 0 waits for; written before the message that is answered. */
  private volatile Completion.Source<String> answer = Completion.source();

  CommProbes(Fairlead fairlead, Comm comm, int scale) {
    if (comm.size() != 2) {
      throw new IllegalStateException("two ranks are measured, not " + comm.size());
    }
    this.fairlead = fairlead;
    this.comm = comm;
    this.peer = 1 - comm.rank();
    this.scale = scale;
  }

  private boolean isRoot() {
    return comm.rank() == 0;
  }

  private int rounds(int full) {
    return Math.max(5, full / scale);
  }

  /** Memory that any thread may read, written once. */
  private MemorySegment memory(long bytes) {
    return Arena.ofAuto().allocate(bytes, JAVA_LONG.byteAlignment()).fill((byte) (1 + comm.rank()));
  }

  // --- half round trips -------------------------------------------------------------------------

  /** Half of a round trip of 8 bytes; nanoseconds. */
  double[] small() {
    return halfRoundTrips(SMALL, SMALL_BATCH, rounds(SMALL_SAMPLES), SMALL_WARM_UPS);
  }

  /** The same by tasks on the communication threads. */
  double[] smallAffine() {
    return comm.affine(this::small).await();
  }

  /** Half of a round trip of 1 MiB; nanoseconds. */
  double[] large() {
    return halfRoundTrips(LARGE, LARGE_BATCH, rounds(LARGE_SAMPLES), LARGE_WARM_UPS);
  }

  private double[] halfRoundTrips(int bytes, int batch, int samples, int warmUps) {
    MemorySegment out = memory(bytes);
    MemorySegment in = memory(bytes);
    double[] nanos = new double[isRoot() ? samples : 0];
    comm.barrier().await();
    if (!isRoot()) {
      do {
        roundTrips(batch, out, in);
      } while (in.get(JAVA_LONG, 0) == MORE);
      return nanos;
    }
    long until = System.nanoTime() + WARM_UP_NANOS_MAX;
    for (int i = -warmUps * samples; i < samples; i++) {
      i = i < 0 && System.nanoTime() - until > 0 ? 0 : i;
      out.set(JAVA_LONG, 0, i + 1 < samples ? MORE : LAST);
      long start = System.nanoTime();
      roundTrips(batch, out, in);
      if (i >= 0) {
        nanos[i] = (double) (System.nanoTime() - start) / batch / 2;
      }
    }
    return nanos;
  }

  private void roundTrips(int batch, MemorySegment out, MemorySegment in) {
    for (int j = 0; j < batch; j++) {
      roundTrip(TAG, out, in);
    }
  }

  private void roundTrip(int tag, MemorySegment out, MemorySegment in) {
    Completion<Received> received = comm.receive(peer, tag, in);
    if (isRoot()) {
      Completion<@Nullable Void> sent = comm.send(peer, tag, out);
      received.await();
      sent.await();
    } else {
      received.await();
      comm.send(peer, tag, out).await();
    }
  }

  // --- rate -------------------------------------------------------------------------------------

  /** Messages of 8 bytes a second, both directions together, by 64 tasks on each rank. */
  double[] rate() {
    return rate(this::exchange);
  }

  /** The same by tasks on the communication threads. */
  double[] rateAffine() {
    return rate(this::exchangeAffine);
  }

  private interface Exchange {
    /** Each slot so many times. */
    void run(List<Slot> slots, int each);
  }

  private double[] rate(Exchange exchange) {
    int samples = rounds(RATE_SAMPLES);
    int each = Math.max(20, RATE_EACH / scale);
    double[] rates = new double[isRoot() ? samples : 0];
    List<Slot> slots = new ArrayList<>();
    for (int task = 0; task < TASKS; task++) {
      slots.add(new Slot(TASKS_TAG + task, memory(SMALL), memory(SMALL)));
    }
    for (int i = -samples; i < samples; i++) {
      comm.barrier().await();
      long start = System.nanoTime();
      exchange.run(slots, each);
      if (isRoot() && i >= 0) {
        rates[i] = 2.0 * TASKS * each * 1e9 / (System.nanoTime() - start);
      }
    }
    return rates;
  }

  /** What one task sends and receives. */
  private record Slot(int tag, MemorySegment out, MemorySegment in) {}

  private void exchange(List<Slot> slots, int each) {
    try (TaskScope<@Nullable Void> scope = fairlead.scope()) {
      for (Slot slot : slots) {
        scope.fork(() -> exchange(slot, each));
      }
      scope.join();
    }
  }

  private void exchangeAffine(List<Slot> slots, int each) {
    List<Completion<@Nullable Void>> tasks = new ArrayList<>();
    for (Slot slot : slots) {
      tasks.add(comm.affine(() -> exchange(slot, each)));
    }
    tasks.forEach(Completion::await);
  }

  private @Nullable Void exchange(Slot slot, int times) {
    for (int i = 0; i < times; i++) {
      exchange(slot);
    }
    return null;
  }

  private void exchange(Slot slot) {
    Completion<Received> received = comm.receive(peer, slot.tag, slot.in);
    Completion<@Nullable Void> sent = comm.send(peer, slot.tag, slot.out);
    sent.await();
    received.await();
  }

  // --- blobs ------------------------------------------------------------------------------------

  /**
   * Half of a round trip of a header and four blobs of 64 KiB, which come to the same places each
   * time, and go from others, as in C: memory that one core writes and another reads, in turn,
   * takes either of them about twice as long. Nanoseconds. Once for each world.
   */
  double[] blobs() {
    MemorySegment[] places = blobMemory();
    Blob[] out = blobsOf(List.of(blobMemory()));
    comm.handle(
        BLOBS_HANDLER,
        (source, got, lengths) -> places,
        (source, got, blobs) -> answered(BLOBS_HANDLER, got, out));
    return blobs(BLOBS_HANDLER, out);
  }

  /** The same with memory that is made for each message, and sent back. Once for each world. */
  double[] blobsMade() {
    comm.handle(MADE_HANDLER, (source, got, blobs) -> answered(MADE_HANDLER, got, blobsOf(blobs)));
    return blobs(MADE_HANDLER, blobsOf(List.of(blobMemory())));
  }

  private static Blob[] blobsOf(List<MemorySegment> memory) {
    return memory.stream().map(Blob::of).toArray(Blob[]::new);
  }

  private MemorySegment[] blobMemory() {
    MemorySegment[] blobs = new MemorySegment[BLOBS];
    Arrays.setAll(blobs, blob -> memory(BLOB));
    return blobs;
  }

  private void answered(int handler, MemorySegment header, Blob[] blobs) {
    if (isRoot()) {
      answer.complete("answered");
    } else {
      comm.message(peer, handler, header, blobs);
    }
  }

  private double[] blobs(int handler, Blob[] blobs) {
    int samples = rounds(BLOBS_SAMPLES);
    double[] nanos = new double[isRoot() ? samples : 0];
    MemorySegment header = memory(HEADER);
    comm.barrier().await();
    long until = System.nanoTime() + WARM_UP_NANOS_MAX;
    for (int i = -BLOBS_WARM_UPS * samples; i < samples && isRoot(); i++) {
      i = i < 0 && System.nanoTime() - until > 0 ? 0 : i;
      long start = System.nanoTime();
      for (int j = 0; j < BLOBS_BATCH; j++) {
        answer = Completion.source();
        Completion<@Nullable Void> sent = comm.message(peer, handler, header, blobs);
        answer.completion().await();
        sent.await();
      }
      if (i >= 0) {
        nanos[i] = (double) (System.nanoTime() - start) / BLOBS_BATCH / 2;
      }
    }
    comm.barrier().await();
    return nanos;
  }

  // --- flood ------------------------------------------------------------------------------------

  /**
   * By how much many messages that nobody receives yet let a rank grow.
   *
   * @return the receiver's growth in bytes, the sender's, and how many messages came wrong
   */
  double[] flood() {
    int count = rounds(FLOOD);
    return isRoot() ? sendFlood(count) : receiveFlood(count);
  }

  private double[] sendFlood(int count) {
    // each has its own number in front, so each needs its own memory: that is no growth of ours
    MemorySegment all = memory((long) count * FLOOD_BYTES);
    List<Completion<@Nullable Void>> sent = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      all.set(JAVA_LONG, (long) i * FLOOD_BYTES, i);
    }
    comm.barrier().await();
    long before = ProcessMemory.resident();
    for (int i = 0; i < count; i++) {
      MemorySegment message = all.asSlice((long) i * FLOOD_BYTES, FLOOD_BYTES);
      sent.add(comm.send(peer, FLOOD_TAG, message));
    }
    comm.barrier().await(); // collectives pass by what nobody receives
    sent.forEach(Completion::await);
    double grown = ProcessMemory.peak() - before;
    double[] peers = fromPeer();
    return new double[] {peers[0], grown, peers[1]};
  }

  private double[] receiveFlood(int count) {
    MemorySegment in = memory(FLOOD_BYTES);
    comm.barrier().await();
    long before = ProcessMemory.resident();
    comm.barrier().await();
    int wrong = 0;
    for (int i = 0; i < count; i++) {
      comm.receive(peer, FLOOD_TAG, in).await();
      wrong += in.get(JAVA_LONG, 0) == i ? 0 : 1;
    }
    toRoot((double) (ProcessMemory.peak() - before), wrong);
    return new double[0];
  }

  // --- idle -------------------------------------------------------------------------------------

  /**
   * What an engine does that has nothing to do.
   *
   * @return percent of a core that this process takes while nobody sends, with a task that waits to
   *     receive
   */
  double[] idle() {
    small(); // compiled, and its peers known
    comm.barrier().await();
    MemorySegment in = memory(SMALL);
    Completion<Received> received = comm.receive(peer, TAG, in);
    rest(PAUSE_NANOS);
    long start = System.nanoTime();
    long before = ProcessMemory.cpuNanos();
    rest(IDLE_NANOS / Math.min(scale, 3));
    double percent = PERCENT * (ProcessMemory.cpuNanos() - before) / (System.nanoTime() - start);
    comm.send(peer, TAG, memory(SMALL)).await();
    received.await();
    return new double[] {percent};
  }

  /**
   * From the send of a message to the task that waits for it, on the other rank of this machine,
   * after nobody has sent for a while; nanoseconds.
   */
  double[] firstMessages() {
    int count = rounds(FIRST_MESSAGES);
    MemorySegment stamp = memory(SMALL);
    double[] nanos = new double[count];
    for (int i = 0; i < count; i++) {
      if (isRoot()) {
        rest(PAUSE_NANOS);
        stamp.set(JAVA_LONG, 0, System.nanoTime());
        comm.send(peer, TAG, stamp).await();
      } else {
        comm.receive(peer, TAG, stamp).await();
        nanos[i] = System.nanoTime() - stamp.get(JAVA_LONG, 0);
      }
    }
    return atRoot(nanos);
  }

  /** Nothing is waited for: time is to pass in which nobody does anything. */
  private static void rest(long nanos) {
    long end = System.nanoTime() + nanos;
    for (long left = nanos; left > 0; left = end - System.nanoTime()) {
      LockSupport.parkNanos(left);
    }
  }

  // --- figures that another rank has ------------------------------------------------------------

  /** What the peer of rank 0 measured, at rank 0; nothing elsewhere. */
  double[] atRoot(double... ofPeer) {
    if (isRoot()) {
      return fromPeer();
    }
    toRoot(ofPeer);
    return new double[0];
  }

  private void toRoot(double... figures) {
    MemorySegment out = memory((long) figures.length * Double.BYTES);
    MemorySegment.copy(figures, 0, out, JAVA_DOUBLE, 0, figures.length);
    comm.send(peer, TO_ROOT_TAG, out).await();
  }

  private double[] fromPeer() {
    return comm.receive(peer, TO_ROOT_TAG).await().data().toArray(JAVA_DOUBLE);
  }
}
