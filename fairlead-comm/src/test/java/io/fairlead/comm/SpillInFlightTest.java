package io.fairlead.comm;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.spi.Driver;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.memory.SpillConfig;
import io.fairlead.memory.Tier;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Messages of device buffers on a device with room for half of them: while they are in flight,
 * everything around them is spilled and comes back (row comm.spill). Each message has content of
 * its own, in the order of its lane, and every word of each is checked. One seed alone: {@code
 * -Dfairlead.seed=N}.
 */
@Timeout(3_600)
class SpillInFlightTest {
  private static final Duration SOON = Duration.ofSeconds(100);
  private static final int MESSAGES = Boolean.getBoolean("fairlead.long") ? 500_000 : 5_000;
  private static final int LANES = 8;
  private static final int BUFFERS = 8;
  private static final int WORDS = 512;
  private static final long BYTES = WORDS * (long) Long.BYTES;
  private static final long LIMIT = LANES * BUFFERS * BYTES;
  private static final long HOST_BYTES = 64L << 20;

  static LongStream seeds() {
    Long only = Long.getLong("fairlead.seed");
    return only != null ? LongStream.of(only) : LongStream.of(1, 2);
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("seeds")
  void everyMessageArrivesAsItWasSentAndInOrder(long seed) {
    TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    Driver driver = new HostDriverProvider().open(Map.of());
    DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults());
    MemoryConfig config =
        MemoryConfig.defaults()
            .withLimit(LIMIT)
            .withChunk(BYTES)
            .withWait(SOON) // on a busy machine sixteen tasks may take their time in turn
            .withSpill(SpillConfig.TO_HOST.withHostBytesMax(HOST_BYTES));
    try (Device device = Device.open(tasks, context, config)) {
      World world = new World(tasks, InProcess.ranks(tasks, 2, CommConfig.DEFAULT));
      Run run = new Run(device, seed);
      world.each(
          comm -> {
            try (TaskScope<String> scope = tasks.scope()) {
              for (int lane = 0; lane < LANES; lane++) {
                int own = lane;
                scope.fork(() -> comm.rank() == 0 ? run.send(comm, own) : run.receive(comm, own));
              }
              scope.join();
            }
          });
      assertThat(run.spilled.get()).as("seed %d: buffers spilled", seed).isGreaterThan(100);
      world.ranks.forEach(Comm::close);
    }
    tasks.close();
    driver.close();
  }

  /** What the tasks of one world share. */
  private record Run(Device device, long seed, AtomicLong spilled) {
    Run(Device device, long seed) {
      this(device, seed, new AtomicLong());
    }

    String send(Comm comm, int lane) {
      SplittableRandom random = new SplittableRandom(seed * 1_000 + lane);
      List<DeviceBuffer> buffers = buffers();
      Queue<Completion<?>> sent = new ArrayDeque<>();
      for (int i = 0; i < MESSAGES / LANES; i++) {
        DeviceBuffer buffer = buffers.get(random.nextInt(BUFFERS));
        buffer.upload(content(lane, i));
        sent.add(comm.send(1, lane, null, Blob.of(buffer)));
        buffer.fill((byte) 0); // seen at the receiver if the copy does not come before
        spillOne(buffers, random);
        if (sent.size() > BUFFERS) {
          sent.remove().await(SOON);
        }
      }
      sent.forEach(send -> send.await(SOON));
      buffers.forEach(DeviceBuffer::close);
      return "sent";
    }

    String receive(Comm comm, int lane) {
      SplittableRandom random = new SplittableRandom(seed * 1_000 + 500 + lane);
      List<DeviceBuffer> buffers = buffers();
      for (int i = 0; i < MESSAGES / LANES; i++) {
        DeviceBuffer buffer = buffers.get(random.nextInt(BUFFERS));
        Completion<Received> received = comm.receiveInto(0, lane, Blob.of(buffer));
        spillOne(buffers, random);
        received.await(SOON);
        MemorySegment got = MemorySegment.ofArray(buffer.toBytes());
        assertThat(got.mismatch(content(lane, i)))
            .as("seed %d, lane %d, message %d, begins %x", seed, lane, i, first(got))
            .isEqualTo(-1);
      }
      buffers.forEach(DeviceBuffer::close);
      return "received";
    }

    private static long first(MemorySegment got) {
      return got.get(ValueLayout.JAVA_LONG_UNALIGNED, 0);
    }

    private List<DeviceBuffer> buffers() {
      List<DeviceBuffer> all = new ArrayList<>();
      for (int i = 0; i < BUFFERS; i++) {
        all.add(device.allocate(BYTES));
      }
      return all;
    }

    /** Any of them: also one that is being sent, or that a message is on its way to. */
    private void spillOne(List<DeviceBuffer> buffers, SplittableRandom random) {
      if (random.nextInt(3) == 0) {
        buffers
            .get(random.nextInt(BUFFERS))
            .spill()
            .onDone(
                left -> {
                  if (left.state() == Completion.State.DONE && left.getNow() != Tier.DEVICE) {
                    spilled.incrementAndGet();
                  }
                });
      }
    }

    /** Differs in each word from that of any other message. */
    private static MemorySegment content(int lane, int number) {
      long[] words = new long[WORDS];
      for (int i = 0; i < WORDS; i++) {
        words[i] = (long) lane << 56 | (long) number << 16 | i;
      }
      return MemorySegment.ofArray(words);
    }
  }
}
