package io.fairlead.cli.examples;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.comm.Blob;
import io.fairlead.comm.Comm;
import io.fairlead.comm.Received;
import io.fairlead.comm.ReduceOp;
import io.fairlead.comm.Termination;
import io.fairlead.comm.Window;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.runtime.Fairlead;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;

/** The examples of docs/guide/messages.md, for any number of ranks. */
final class Messages {
  private static final int RING = 1;
  private static final int WORK = 2;
  private static final int DEVICE = 3;
  private static final int BYTES = 100_000;

  private Messages() {}

  // snippet:world
  public static void main(String[] arguments) throws InterruptedException {
    try (Fairlead fairlead = Fairlead.open()) {
      Comm world = fairlead.world(); // every rank asks for it, and waits for the others
      say(world, "ring " + ring(world) + ", sum " + sum(world));
      say(world, "work " + work(world) + ", put " + put(world));
      say(world, "spread " + spread(world) + ", tasks " + tasks(fairlead, world));
      say(world, "device " + device(fairlead.device(), world) + ", affine " + affine(world));
    } // all ranks meet once more, and the message library ends
  }

  // end:world

  private static void say(Comm comm, String text) {
    System.out.println("rank " + comm.rank() + " of " + comm.size() + ": " + text);
  }

  // snippet:ring
  /** Each rank sends its number to the next, and answers what came from the one before. */
  static long ring(Comm comm) {
    int next = (comm.rank() + 1) % comm.size();
    int before = (comm.rank() + comm.size() - 1) % comm.size();
    MemorySegment theirs = MemorySegment.ofArray(new long[1]);
    Completion<Received> received = comm.receive(before, RING, theirs); // at once: none waits
    comm.send(next, RING, MemorySegment.ofArray(new long[] {comm.rank()})).await();
    received.await(); // parks this task only
    return theirs.get(JAVA_LONG, 0);
  }

  // end:ring

  // snippet:sum
  /** The same on every rank, bit for bit. */
  static double sum(Comm comm) {
    double[] values = {comm.rank() + 1};
    comm.allReduce(values, ReduceOp.SUM).await();
    return values[0];
  }

  // end:sum

  // snippet:message
  /** Rank 0 sends work to all; a handler takes it, whatever the rank is doing. */
  static long work(Comm comm) {
    AtomicLong total = new AtomicLong();
    Completion.Source<Long> done = Completion.source();
    comm.handle(
        WORK,
        (source, header, blobs) -> { // on the communication thread: short, and never waiting
          for (MemorySegment blob : blobs) {
            total.addAndGet(blob.get(JAVA_LONG, 0));
          }
          done.complete(total.get() + header.get(JAVA_LONG, 0));
        });
    if (comm.rank() == 0) {
      MemorySegment header = MemorySegment.ofArray(new long[] {1000});
      Blob two = Blob.of(MemorySegment.ofArray(new long[] {20}));
      Blob three = Blob.of(MemorySegment.ofArray(new long[] {3}));
      for (int peer = 0; peer < comm.size(); peer++) {
        comm.message(peer, WORK, header, two, three).await(); // it may be reused; not: handled
      }
    }
    return done.completion().await();
  }

  // end:message

  // snippet:spread
  /** Who gets a number sends on two that are one less; the end is found when none is left. */
  static long spread(Comm comm) {
    try (Termination work = comm.termination()) { // every rank does so, in the same order
      work.handle(
          WORK, (source, header, blobs) -> sendOn(work, comm, header.get(JAVA_LONG, 0) - 1));
      work.begin();
      if (comm.rank() == 0) {
        work.message(0, WORK, MemorySegment.ofArray(new long[] {5}));
      }
      return work.finish().await(); // on every rank: how many messages there were
    }
  }

  private static void sendOn(Termination work, Comm comm, long left) {
    for (int child = 0; left > 0 && child < 2; child++) {
      int peer = (int) ((comm.rank() + left + child) % comm.size());
      work.message(peer, WORK, MemorySegment.ofArray(new long[] {left})); // counts from here on
    }
  }

  // end:spread

  // snippet:tasks
  /** The same where tasks do the work: what a handler holds counts until it is closed. */
  static long tasks(Fairlead fairlead, Comm comm) throws InterruptedException {
    BlockingQueue<TaskBody<String>> ready = new LinkedBlockingQueue<>();
    try (Termination work = comm.termination();
        TaskScope<String> scope = fairlead.scope()) {
      work.handle(
          WORK,
          (source, header, blobs) -> {
            Termination.Hold hold = work.hold(); // before the handler returns
            ready.add(
                () -> {
                  try (hold) {
                    sendOn(work, comm, header.get(JAVA_LONG, 0) - 1);
                  }
                  return "sent";
                });
          });
      work.begin();
      if (comm.rank() == 0) {
        work.message(0, WORK, MemorySegment.ofArray(new long[] {5}));
      }
      Completion<Long> end = work.finish();
      end.onDone(settled -> ready.add(() -> "over")); // so that the loop looks once more
      while (!end.isDone()) {
        scope.fork(ready.take());
      }
      scope.join();
      return end.await();
    }
  }

  // end:tasks

  // snippet:put
  /** Each rank writes its number into its place at rank 0, whose task takes no part in it. */
  static String put(Comm comm) {
    MemorySegment table = MemorySegment.ofArray(new long[comm.size()]);
    try (Window window = comm.expose(table).await()) {
      MemorySegment key = MemorySegment.ofArray(new long[] {window.key()});
      comm.broadcast(0, key).await(); // whoever is to use a window is told its key
      MemorySegment mine = MemorySegment.ofArray(new long[] {comm.rank() + 1});
      comm.put(0, key.get(JAVA_LONG, 0), 8L * comm.rank(), mine).await(); // it lies there now
      comm.barrier().await();
      return comm.rank() == 0 ? Arrays.toString(table.toArray(JAVA_LONG)) : "to rank 0";
    }
  }

  // end:put

  // snippet:device
  /** Device buffers go and come like host memory, in the order of the task's stream. */
  static boolean device(Device device, Comm comm) {
    int next = (comm.rank() + 1) % comm.size();
    int before = (comm.rank() + comm.size() - 1) % comm.size();
    try (DeviceBuffer source = device.allocate(BYTES);
        DeviceBuffer target = device.allocate(BYTES)) {
      Completion<Received> received = comm.receiveInto(before, DEVICE, Blob.of(target));
      source.fill((byte) (comm.rank() + 1)); // enqueued; the send leaves once it has happened
      Completion<?> sent = comm.send(next, DEVICE, null, Blob.of(source));
      source.fill((byte) 0); // comes after, whenever the message leaves
      sent.await();
      received.await();
      byte[] came = target.toBytes();
      return came[0] == before + 1 && came[BYTES - 1] == before + 1;
    }
  }

  // end:device

  // snippet:affine
  /** A loop of short messages, run where the library may be entered: nothing is handed over. */
  static long affine(Comm comm) {
    return comm.affine(
            () -> {
              long sum = 0;
              for (int round = 0; round < 100; round++) {
                sum += ring(comm);
              }
              return sum;
            })
        .await();
  }

  // end:affine

  // snippet:library
  /** A library keeps its messages apart from those of its caller. */
  static Optional<Long> library(Comm callers) {
    try (Comm own = callers.duplicate()) { // every rank does so, in the same order
      return Optional.of(ring(own));
    }
  }
  // end:library
}
