package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.fault.Mutant;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.host.HostStepper;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Several threads at once use the same buffers on streams of their own, each as its seed says, in
 * runs of one stream and mixed: what the driver was told puts every two uses that conflict into an
 * order, and the streams wait for each other in no circle.
 */
class LedgerSimTest {
  private static final int STREAMS = 3;
  private static final int BUFFERS = 4;

  /** With their edges fewer than a stream takes at once: nothing ends before all are enqueued. */
  private static final int OPERATIONS = 60;

  /** Within so many seeds, a ledger that forgets its owner's uses is found. */
  private static final int SEEDS_TO_FIND = 40;

  static LongStream seeds() {
    return LongStream.rangeClosed(1, Boolean.getBoolean("fairlead.long") ? 2_000 : 60);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void everyTwoUsesThatConflictHaveAnOrder(long seed) throws Exception {
    assertThat(races(seed)).as("seed %d", seed).isEmpty();
  }

  @Test
  void aLedgerThatForgetsIsFound() throws Exception {
    for (String mutant :
        List.of(
            "ledger.owner.lose", "ledger.owner.forget", "ledger.write.skip", "ledger.read.skip")) {
      int found = 0;
      try (var _ = Mutant.enable(mutant)) {
        for (long seed = 1; seed <= SEEDS_TO_FIND && found == 0; seed++) {
          found = races(seed).size();
        }
      }
      assertThat(found).as(mutant).isPositive();
    }
  }

  private static List<String> races(long seed) throws Exception {
    RecordedOrder order = new RecordedOrder();
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver plain =
            new HostDriverProvider()
                .open(Map.of("memory", "1048576", "workers", "2", "stepped", "true"))) {
      HostStepper stepper = HostStepper.of(plain);
      DeviceConfig config = DeviceConfig.defaults().withCloseNanos(0);
      DeviceContext context = DeviceContext.open(tasks, order.around(plain), 0, config);
      try (Device device = Device.open(tasks, context, MemoryConfig.defaults())) {
        run(device, stepper, order, seed);
      }
    }
    assertThat(order.count()).as("seed %d", seed).isGreaterThan(OPERATIONS * STREAMS / 2);
    return order.races();
  }

  private static void run(Device device, HostStepper stepper, RecordedOrder order, long seed)
      throws Exception {
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < BUFFERS; i++) {
      buffers.add(device.allocate(256));
    }
    device.context().reached();
    stepper.completeAll(); // the allocations: they are not watched
    CyclicBarrier begin = new CyclicBarrier(STREAMS);
    List<User> users =
        IntStream.range(0, STREAMS)
            .mapToObj(i -> new User(device, buffers, order, begin, STREAMS * seed + i))
            .toList();
    for (User user : users) {
      user.thread.start();
    }
    for (User user : users) {
      user.thread.join();
      assertThat(user.failure).as("seed %d", seed).isNull();
    }
    buffers.forEach(DeviceBuffer::close);
    device.context().reached();
    stepper.completeAll();
    assertThat(stepper.pending()).as("seed %d: a circle of waits", seed).isEmpty();
    users.forEach(user -> user.stream.close());
  }

  private static final class User {
    private final List<DeviceBuffer> buffers;
    private final RecordedOrder order;
    private final CyclicBarrier begin;
    private final Random random;
    private final DeviceStream stream;
    final Thread thread = Thread.ofPlatform().unstarted(this::run);
    volatile Throwable failure;
    private int mine;

    User(
        Device device,
        List<DeviceBuffer> buffers,
        RecordedOrder order,
        CyclicBarrier begin,
        long seed) {
      this.buffers = buffers;
      this.order = order;
      this.begin = begin;
      this.random = new Random(seed);
      this.stream = device.context().openStream(0);
    }

    private void run() {
      try {
        begin.await();
        for (int i = 0; i < OPERATIONS; i++) {
          operation();
        }
      } catch (Throwable e) {
        failure = e;
      }
    }

    /** Mostly on the buffer of the last one, so that its stream becomes the owner. */
    private void operation() {
      if (random.nextInt(6) == 0) {
        mine = random.nextInt(BUFFERS);
      }
      int count = 1 + random.nextInt(2);
      Operand[] operands = new Operand[count];
      Access[] accesses = new Access[count];
      for (int i = 0; i < count; i++) {
        DeviceBuffer buffer = buffers.get((mine + i * random.nextInt(2)) % BUFFERS);
        operands[i] = random.nextInt(4) == 0 ? buffer.slice(0, 128) : buffer;
        accesses[i] = random.nextInt(3) > 0 ? Access.READ : Access.READ_WRITE;
      }
      if (random.nextInt(10) == 0) {
        refused(operands, accesses);
      } else {
        stream.enqueue(
            DriverCall.LAUNCH,
            "use",
            operands,
            accesses,
            (handle, _) -> use(handle, operands, accesses));
      }
    }

    private void use(long handle, Operand[] operands, Access[] accesses) {
      for (int i = 0; i < operands.length; i++) {
        order.use(handle, operands[i].order(), accesses[i]);
      }
      linger();
    }

    private void refused(Operand[] operands, Access[] accesses) {
      try {
        stream.enqueue(
            DriverCall.LAUNCH,
            "refused",
            operands,
            accesses,
            (_, _) -> {
              linger();
              throw new Refused();
            });
      } catch (Refused expected) {
        // it leaves nothing behind
      }
    }

    @SuppressWarnings("ThreadPriorityCheck") // to be interleaved, not to be ordered
    private void linger() {
      if (random.nextInt(3) == 0) {
        Thread.yield();
      }
    }
  }

  private static final class Refused extends RuntimeException {
    private static final long serialVersionUID = 1;
  }
}
