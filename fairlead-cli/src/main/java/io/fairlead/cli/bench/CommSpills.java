package io.fairlead.cli.bench;

import io.fairlead.comm.Blob;
import io.fairlead.comm.Comm;
import io.fairlead.comm.Received;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Tier;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Messages of device buffers on a device that has room for half of them: while they are in flight,
 * everything around them is spilled and brought back. Each message has content of its own, and each
 * that comes is checked, every byte; those of a lane have one tag, so one that overtakes another is
 * found too.
 */
final class CommSpills {
  private static final int BYTES = 4096;

  /** Senders, each with a receiver. */
  private static final int LANES = 32;

  /** Each side of a lane has so many, and uses them in turn. */
  private static final int BUFFERS = 8;

  /** Room for half of the buffers of both sides. */
  private static final long DEVICE_BYTES = (long) LANES * BUFFERS * BYTES;

  private static final long HOST_BYTES = 64L << 20;

  private static final int ALLOCATED_SECONDS_MAX = 60;

  private final Fairlead fairlead;
  private final Device device;
  private final CountDownLatch allocated = new CountDownLatch(2 * LANES);
  private final AtomicLong wrong = new AtomicLong();
  private final AtomicLong spilled = new AtomicLong();

  private CommSpills(Fairlead fairlead) {
    this.fairlead = fairlead;
    this.device = fairlead.device();
  }

  /**
   * So many messages, at least.
   *
   * @param messages how many were checked
   * @param wrong how many of them had another content than was sent
   * @param spilled how many buffers left the device meanwhile because they were asked to
   */
  record Outcome(long messages, long wrong, long spilled) {}

  static Outcome run(int messages) {
    FairleadConfig config = FairleadConfig.fromSystem().withDevice("host");
    config = Spills.config(config.withDeviceMemory(DEVICE_BYTES), HOST_BYTES, null);
    try (Fairlead fairlead = Fairlead.open(config);
        CommWorld world = CommWorld.open(fairlead, CommWorld.IN_PROCESS)) {
      return new CommSpills(fairlead).measure(world, Math.ceilDiv(messages, LANES));
    }
  }

  private Outcome measure(CommWorld world, int each) {
    world.run(
        comm -> {
          try (TaskScope<String> scope = fairlead.scope()) {
            for (int lane = 0; lane < LANES; lane++) {
              int own = lane;
              scope.fork(() -> comm.rank() == 0 ? send(comm, own, each) : receive(comm, own, each));
            }
            scope.join();
          }
          return "done";
        });
    return new Outcome((long) each * LANES, wrong.get(), spilled.get());
  }

  private String send(Comm comm, int lane, int count) throws InterruptedException {
    try (Buffers buffers = new Buffers()) {
      awaitOthers();
      List<Completion<@Nullable Void>> sent = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        DeviceBuffer buffer = buffers.at(i);
        buffer.upload(0, content(lane, i));
        sent.add(comm.send(1, lane, null, Blob.of(buffer)));
        buffer.fill((byte) 0); // seen at the receiver if the copy does not come before
        buffers.spillOne();
        if (sent.size() == BUFFERS) {
          sent.forEach(Completion::await);
          sent.clear();
        }
      }
      sent.forEach(Completion::await);
    }
    return "sent";
  }

  private String receive(Comm comm, int lane, int count) throws InterruptedException {
    try (Buffers buffers = new Buffers()) {
      awaitOthers();
      for (int i = 0; i < count; i++) {
        DeviceBuffer buffer = buffers.at(i);
        Completion<Received> received = comm.receiveInto(0, lane, Blob.of(buffer));
        buffers.spillOne();
        received.await();
        MemorySegment expected = content(lane, i);
        if (!buffer.download(got -> got.mismatch(expected) == -1).await()) {
          wrong.incrementAndGet();
        }
      }
    }
    return "received";
  }

  /**
   * All have their buffers before the first message: whoever asks for new ones beside fifty tasks
   * that have theirs brought back all the time may wait for longer than an allocation does.
   */
  private void awaitOthers() throws InterruptedException {
    allocated.countDown();
    if (!allocated.await(ALLOCATED_SECONDS_MAX, TimeUnit.SECONDS)) {
      throw new IllegalStateException("not all lanes got their buffers");
    }
  }

  /** Differs in each word from that of any other message. */
  private static MemorySegment content(int lane, int number) {
    long[] words = new long[BYTES / Long.BYTES];
    long word = (long) lane << 48 | (long) number << 16;
    for (int i = 0; i < words.length; i++) {
      words[i] = word + i;
    }
    return MemorySegment.ofArray(words);
  }

  /** Of one side of a lane; used by its task alone. */
  private final class Buffers implements AutoCloseable {
    private final List<DeviceBuffer> all = new ArrayList<>();
    private Completion<Tier> leaving = Completion.completed(Tier.DEVICE);

    Buffers() {
      for (int i = 0; i < BUFFERS; i++) {
        all.add(device.allocate(BYTES));
      }
    }

    DeviceBuffer at(int number) {
      return all.get(number % BUFFERS);
    }

    /** Any of them: also one that is being sent, or that a message is on its way to. */
    void spillOne() {
      if (leaving.isDone()) {
        leaving = Spills.spill(at(ThreadLocalRandom.current().nextInt(BUFFERS)));
        leaving.onDone(this::left);
      }
    }

    private void left(Completion<Tier> where) {
      if (where.state() == Completion.State.DONE && where.getNow() != Tier.DEVICE) {
        spilled.incrementAndGet();
      }
    }

    @Override
    public void close() {
      leaving.await();
      all.forEach(DeviceBuffer::close);
    }
  }
}
