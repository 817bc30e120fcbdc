package io.fairlead.memory;

import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.inOut;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceGraph;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.GraphBuilder;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.Grid;
import io.fairlead.task.TaskBody;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Buffers in graphs: held, ordered by the ledger, and given back after the graph. */
@Timeout(60)
class GraphBufferTest {
  private static final int TASKS = 16;
  private static final int ROUNDS = 50;
  private static final int COUNT = 64;
  private static final long BYTES = 8L * COUNT;

  /** Adds one to each element, with a plain load and store: two at once would lose some. */
  private static final ModuleSource INCREMENT =
      ModuleSource.java(
          "increment",
          Map.of(
              "increment",
              (arguments, begin, end) -> {
                for (long i = begin; i < end; i++) {
                  long old = arguments.buffer(0).getAtIndex(ValueLayout.JAVA_LONG, i);
                  arguments.buffer(0).setAtIndex(ValueLayout.JAVA_LONG, i, old + 1);
                }
              }));

  private TestDevice world;
  private Device device;
  private Kernel increment;

  @BeforeEach
  void open() {
    world = TestDevice.open();
    device = world.device;
    increment = device.load(INCREMENT).kernel("increment", inOut(I64));
  }

  @AfterEach
  void close() {
    world.close();
  }

  private <T> T inTask(TaskBody<T> body) {
    return world.tasks.enter("test", 0, body);
  }

  private DeviceBuffer zeros() {
    DeviceBuffer buffer = device.allocate(BYTES);
    buffer.fill((byte) 0);
    return buffer;
  }

  private void untilUsed(long bytes) {
    long deadline = System.nanoTime() + 20_000_000_000L;
    while (device.memory().inUse() != bytes) {
      device.context().reached().await();
      assertThat(System.nanoTime()).as("still %s in use", device.memory()).isLessThan(deadline);
    }
  }

  @Test
  void copiesAndFillsOfBuffersAreCaptured() {
    long[] told =
        inTask(
            () -> {
              try (DeviceBuffer x = zeros();
                  DeviceBuffer y = zeros()) {
                // snippet:capture
                DeviceGraph step =
                    device.capture(
                        "step",
                        stream -> {
                          increment.launch(stream, Grid.of(COUNT), x);
                          y.copyFrom(x);
                          x.slice(0, 8).fill((byte) 0);
                        });
                step.launch();
                step.launch();
                // end:capture
                long[] left = x.toLongs();
                assertThat(left[0]).isZero();
                assertThat(left[1]).isEqualTo(2);
                step.close();
                return y.toLongs();
              }
            });
    assertThat(told[0]).isEqualTo(1);
    assertThat(told[COUNT - 1]).isEqualTo(2);
    untilUsed(0);
  }

  /** Half of the tasks launch the graph, half the kernel itself. */
  @Test
  void launchesOfAGraphAreOrderedLikeAnyOtherUse() {
    try (DeviceBuffer x = zeros();
        GraphBuilder builder = device.buildGraph("g")) {
      builder.launch(increment, Grid.of(COUNT), x);
      builder.launch(increment, Grid.of(COUNT), x);
      try (DeviceGraph graph = builder.build()) {
        try (TaskScope<Boolean> scope = world.tasks.scope()) {
          for (int i = 0; i < TASKS; i++) {
            boolean whole = i % 2 == 0;
            scope.fork(
                () -> {
                  for (int round = 0; round < ROUNDS; round++) {
                    if (whole) {
                      graph.launch();
                    } else {
                      increment.launch(Grid.of(COUNT), x);
                    }
                  }
                  return true;
                });
          }
          scope.join();
        }
        assertThat(x.toLongs()).containsOnly(TASKS * ROUNDS * 3L / 2);
      }
    }
  }

  @Test
  void aBufferThatIsClosedStaysUntilTheGraphIsGone() {
    DeviceBuffer x = zeros();
    long used = device.memory().inUse();
    try (GraphBuilder builder = device.buildGraph("g")) {
      builder.launch(increment, Grid.of(COUNT), x);
      DeviceGraph graph = builder.build();
      graph.launch();
      x.close();
      assertThatThrownBy(graph::launch)
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("was closed at");
      device.context().reached().await();
      assertThat(device.memory().inUse()).as("held").isEqualTo(used);
      graph.close();
    }
    untilUsed(0);
  }

  @Test
  void whatIsNotPartOfAGraphIsRefusedWithAdvice() {
    inTask(
        () -> {
          try (DeviceBuffer x = zeros();
              HostBlock block = device.context().hostBlocks().take(BYTES)) {
            device
                .capture(
                    "g",
                    stream -> {
                      List<Runnable> refused =
                          List.of(
                              () -> device.allocate(8).close(),
                              () -> x.upload(new long[COUNT]),
                              x::toLongs,
                              () -> x.download(segment -> 1),
                              () -> x.downloadTo(block),
                              () -> x.lease(stream).close());
                      for (Runnable call : refused) {
                        assertThatThrownBy(call::run)
                            .isInstanceOf(IllegalStateException.class)
                            .hasMessageContaining("is being captured");
                      }
                    })
                .close();
            x.upload(new long[COUNT]);
            return x.toLongs();
          }
        });
    untilUsed(0);
  }

  /** Also one whose last use was on a stream that is being captured. */
  @Test
  void aBufferMayBeClosedDuringACapture() {
    inTask(
        () -> {
          DeviceBuffer unrelated = zeros();
          DeviceBuffer used = zeros();
          try (DeviceStream own = device.context().openStream(0)) {
            DeviceBuffer before = zeros();
            own.fill(before, 0, BYTES, (byte) 1);
            own.capture("own", before::close).close();
          }
          DeviceGraph graph =
              device.capture(
                  "g",
                  _ -> {
                    unrelated.close();
                    increment.launch(Grid.of(COUNT), used);
                    used.close();
                  });
          untilUsed(device.memory().inUse());
          graph.close();
          return true;
        });
    untilUsed(0);
  }

  /** Foreign code gets the stream's handle and the addresses. */
  @Test
  void foreignWorkIsCapturedWithItsOperands() {
    try (DeviceBuffer x = zeros();
        DeviceStream stream = device.context().openStream(0)) {
      DeviceGraph graph =
          stream.capture(
              "g",
              () ->
                  stream.enqueue(
                      "foreign",
                      new Operand[] {x},
                      new Access[] {Access.WRITE},
                      (handle, addresses) -> world.driver.fill(handle, addresses[0], 8, (byte) 1)));
      graph.launch(stream);
      assertThat(x.toLongs()).startsWith(0x0101_0101_0101_0101L, 0);
      graph.close();
    }
  }

  /** Both ways by memory of the user's own, which each launch reads and writes again. */
  @Test
  void hostMemoryIsCopiedAtEachLaunch() {
    try (DeviceBuffer x = zeros();
        HostBlock up = device.context().hostBlocks().take(BYTES);
        HostBlock down = device.context().hostBlocks().take(BYTES);
        GraphBuilder builder = device.buildGraph("g")) {
      MemorySegment source = up.segment();
      MemorySegment target = down.segment();
      builder.copyToDevice(x, 0, source);
      builder.launch(increment, Grid.of(COUNT), x);
      builder.copyToHost(target, x, 0);
      try (DeviceGraph graph = builder.build()) {
        for (long round = 0; round < 3; round++) {
          source.setAtIndex(ValueLayout.JAVA_LONG, 0, 10 * round);
          var mark = graph.launch(device.stream());
          mark.stream().reached(mark).await();
          assertThat(target.getAtIndex(ValueLayout.JAVA_LONG, 0)).isEqualTo(10 * round + 1);
        }
      }
      device.context().closeGraphs().await();
    }
  }

  /** The graph is reported, and what it held is freed in order. */
  @Test
  void aDeviceClosesWithAGraphOpen() {
    DeviceBuffer x = zeros();
    GraphBuilder builder = device.buildGraph("left open");
    builder.launch(increment, Grid.of(COUNT), x);
    DeviceGraph graph = builder.build();
    graph.launch();
    x.close();
    device.close();
    assertThat(device.context().stats().leaks()).isEqualTo(1);
    assertThat(device.memory().inUse()).isZero();
    assertThatThrownBy(graph::launch).isInstanceOf(IllegalStateException.class);
    graph.close();
  }
}
