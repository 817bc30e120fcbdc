package io.fairlead.ffi;

import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static io.fairlead.device.Param.out;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceGraph;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.GraphBuilder;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.Mark;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Graphs of tasks on CUDA: what must hold on the stand-in and on a GPU. */
@Timeout(120)
abstract class DeviceGraphRules {
  static final int CAPTURED = 20;
  private static final int LAUNCHES = 1_000;
  private static final int AWAIT_EVERY = 50;

  /** Set before each test. */
  Driver driver;

  TaskRuntime tasks;
  DeviceContext device;
  private Kernel count;
  private Kernel hold;

  /** A new driver. */
  abstract Driver openDriver();

  abstract ModuleImage image();

  @BeforeEach
  void open() {
    driver = openDriver();
    tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    device = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults());
    var module = device.load(new ModuleSource("rules", List.of(image())));
    count = module.kernel("count", inOut(I64));
    hold = module.kernel("hold", I64);
  }

  @AfterEach
  void close() {
    if (device != null) {
      device.close();
      tasks.close();
      driver.close();
    }
  }

  /** Device memory without a ledger: its user orders it. */
  record Block(long address, long bytes) implements Operand {
    static Block zeros(DeviceStream stream, long bytes) {
      Driver driver = stream.context().driver();
      long[] address = new long[1];
      stream.enqueue(
          DriverCall.ALLOC_ASYNC,
          "allocate",
          (handle, none) -> address[0] = driver.allocAsync(handle, bytes));
      Block block = new Block(address[0], bytes);
      stream.fill(block, 0, bytes, (byte) 0);
      stream.reached().await();
      return block;
    }

    void free(DeviceStream stream) {
      Driver driver = stream.context().driver();
      stream.enqueue(
          DriverCall.FREE_ASYNC, "free", (handle, none) -> driver.freeAsync(handle, address));
    }

    @Override
    public long hold(DeviceContext context, Object graph) {
      return address;
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      return address;
    }

    @Override
    public void recorded(DeviceStream stream, long sequence, Access access) {}

    @Override
    public void abandoned(DeviceStream stream, Access access) {}
  }

  private long first(DeviceStream stream, Block block) {
    try (HostBlock host = device.hostBlocks().take(Long.BYTES)) {
      stream.copyToHost(host.segment(), block, 0);
      stream.reached().await();
      return host.segment().get(ValueLayout.JAVA_LONG, 0);
    }
  }

  /** Somebody waits all the time, so the poller looks; and heartbeats, one after the other. */
  @Test
  void aThousandLaunchesOfWhatWasCapturedWhileOthersPolled() throws Exception {
    AtomicBoolean over = new AtomicBoolean();
    Thread heart = Thread.ofPlatform().daemon().start(() -> beatUntil(over));
    try {
      captureAndLaunchAThousandTimes();
    } finally {
      over.set(true);
      heart.join();
    }
    assertThat(driver.status(device.nativeContext())).isNull();
  }

  private void beatUntil(AtomicBoolean over) {
    while (!over.get() && driver.status(device.nativeContext()) == null) {
      Thread.onSpinWait();
    }
  }

  private void captureAndLaunchAThousandTimes() {
    try (HostBlock flag = device.hostBlocks().take(Long.BYTES);
        DeviceStream held = device.openStream(0);
        DeviceStream stream = device.openStream(0)) {
      Block block = Block.zeros(stream, Long.BYTES);
      flag.segment().set(ValueLayout.JAVA_LONG, 0, 0);
      hold.launch(held, CudaKernels.ALONE, flag.segment().address());
      Completion<Void> behind = held.reached();
      count.launch(stream, Grid.of(1), block);
      Mark before = stream.mark();
      DeviceGraph graph =
          stream.capture(
              "thousand",
              () -> {
                for (int i = 0; i < CAPTURED; i++) {
                  count.launch(stream, Grid.of(1), block);
                  LockSupport.parkNanos(100_000);
                }
                stream.reached(before).await();
                flag.segment()
                    .set(ValueLayout.JAVA_LONG, 0, 1); // what makes graphs may wait for it
              });
      behind.await();
      long seen = 0;
      for (int i = 1; i <= LAUNCHES; i++) {
        Mark mark = graph.launch(stream);
        Completion<Void> reached = stream.reached(mark);
        if (i % AWAIT_EVERY == 0) {
          reached.await();
        }
        long now = driver.reached(stream.handle());
        assertThat(now).as("tickets never fall").isGreaterThanOrEqualTo(seen);
        seen = now;
      }
      assertThat(first(stream, block)).isEqualTo(1L + CAPTURED * LAUNCHES);
      graph.close();
      block.free(stream);
    }
  }

  /** Tasks that move between threads while they capture, beside tasks that wait. */
  @Test
  void manyTasksCaptureAtOnce() throws Exception {
    int captures = 12;
    int launches = 20;
    try (TaskScope<Long> scope = tasks.scope()) {
      for (int i = 0; i < captures; i++) {
        scope.fork(
            () -> {
              Block block = Block.zeros(device.stream(), Long.BYTES);
              DeviceGraph graph =
                  device.capture(
                      "many",
                      stream -> {
                        for (int each = 0; each < CAPTURED; each++) {
                          count.launch(Grid.of(1), block);
                          LockSupport.parkNanos(20_000);
                        }
                      });
              for (int launch = 0; launch < launches; launch++) {
                graph.launch();
                if (launch % 4 == 0) {
                  device.stream().reached().await();
                }
              }
              long counted = first(device.stream(), block);
              graph.close();
              block.free(device.stream());
              return counted;
            });
      }
      assertThat(scope.join()).hasSize(captures).containsOnly((long) CAPTURED * launches);
    }
  }

  @Test
  void aGraphOfNodesFollowsItsData() {
    int items = 1_000;
    long bytes = 8L * items;
    var module = device.load(new ModuleSource("nodes", List.of(image())));
    Kernel number = module.kernel("number", I64, out(I64));
    Kernel add = module.kernel("add", in(I64), inOut(I64));
    try (HostBlock host = device.hostBlocks().take(bytes);
        DeviceStream stream = device.openStream(0);
        GraphBuilder builder = device.buildGraph("nodes")) {
      Block x = Block.zeros(stream, bytes);
      Block y = Block.zeros(stream, bytes);
      Grid grid = Grid.of(items);
      GraphBuilder.Node last = builder.launch(number, grid, 5L, x);
      last = builder.fill(y, 0, bytes, (byte) 0).after(last);
      last = builder.launch(add, grid, x, y).after(last);
      last = builder.launch(count, grid, y).after(last);
      last = builder.copyOnDevice(x, 0, y, 0, bytes).after(last);
      builder.copyToHost(host.segment(), x, 0).after(last);
      try (DeviceGraph graph = builder.build()) {
        module.close();
        for (int round = 0; round < 3; round++) {
          host.segment().fill((byte) 0);
          Mark end = graph.launch(stream);
          stream.reached(end).await();
          for (int i = 0; i < items; i++) {
            assertThat(host.segment().getAtIndex(ValueLayout.JAVA_LONG, i)).isEqualTo(6L + i);
          }
        }
      }
      x.free(stream);
      y.free(stream);
    }
  }
}
