package io.fairlead.ffi;

import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.inOut;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceGraph;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.Mark;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Param;
import io.fairlead.device.spi.Capability;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The rules of graphs on a GPU, and what only that can show. */
class DeviceGraphGpuTest extends DeviceGraphRules {
  private static final int HELD_SECONDS_MAX = 10;
  private static final int WARM_UP = 5_000;
  private static final int ROUNDS = 2_000;
  private static final Grid ONE = Grid.of(1).withBlock(1);

  @Override
  Driver openDriver() {
    return CudaGpu.open();
  }

  @Override
  ModuleImage image() {
    return CudaKernels.PTX;
  }

  /** Printed, so that a run says it. */
  @Test
  void saysWhatGraphsNeed() {
    assertThat(driver.capabilities()).contains(Capability.GRAPHS);
    System.out.println(
        "need a current context: "
            + Stream.of(
                    DriverCall.CAPTURE,
                    DriverCall.GRAPH_BUILD,
                    DriverCall.GRAPH_LAUNCH,
                    DriverCall.GRAPH_DESTROY)
                .filter(driver::needsCurrent)
                .toList());
  }

  /** An executable is brought to the device when it is made, so that nobody waits here. */
  @Test
  void aFirstLaunchDoesNotWaitForKernelsThatRun() {
    behind(
        (graph, held, stream) -> {
          long begin = System.nanoTime();
          Mark mark = graph.launch(stream);
          long launched = System.nanoTime();
          stream.reached(mark).await();
          System.out.printf(
              "first launch of a graph beside a held kernel: %d us, its end after %d us%n",
              (launched - begin) / 1_000, (System.nanoTime() - begin) / 1_000);
          return 1;
        });
  }

  /** Printed, so that a run says when the driver blocks a launch: of operations it is at 1,022. */
  @Test
  void launchesBehindAHeldKernel() {
    CudaGpu.requireUnchecked("its launches wait for a kernel that runs");
    behind(
        (graph, held, stream) -> {
          long slowest = 0;
          int launches = device.config().unfinishedMax() / CAPTURED; // then the task would park
          for (int i = 0; i < launches; i++) {
            long begin = System.nanoTime();
            graph.launch(held);
            slowest = Math.max(slowest, System.nanoTime() - begin);
          }
          System.out.printf(
              "%d launches of a graph of %d behind a held kernel: the slowest took %d us%n",
              launches, CAPTURED, slowest / 1_000);
          return launches;
        });
  }

  /** Printed beside what peers/cuda/graphs.c prints; only what comes of it is checked. */
  @Test
  void saysWhatALaunchAndAWaitCost() {
    double[] figures =
        tasks.enter(
            "measured",
            0,
            () -> {
              Kernel nop = kernel("nop");
              DeviceStream stream = device.stream();
              DeviceGraph graph = device.capture("20 nops", on -> launchAll(nop, on));
              double graphs = medianMicros(() -> awaited(stream, () -> graph.launch(stream)));
              double singles = medianMicros(() -> awaited(stream, () -> launchAll(nop, stream)));
              double one = medianMicros(() -> awaited(stream, () -> nop.launch(stream, ONE)));
              graph.close();
              return new double[] {graphs, singles, one};
            });
    System.out.printf(
        "launch and parked wait, p50: a graph of %d nops %.2f us, %d single nops %.2f us, one nop"
            + " %.2f us%n",
        CAPTURED, figures[0], CAPTURED, figures[1], figures[2]);
    assertThat(figures).doesNotContain(0.0);
  }

  private static void launchAll(Kernel nop, DeviceStream stream) {
    for (int i = 0; i < CAPTURED; i++) {
      nop.launch(stream, ONE);
    }
  }

  private static void awaited(DeviceStream stream, Runnable launch) {
    launch.run();
    stream.reached().await();
  }

  private static double medianMicros(Runnable body) {
    for (int i = 0; i < WARM_UP; i++) {
      body.run();
    }
    double[] micros = new double[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
      long begin = System.nanoTime();
      body.run();
      micros[i] = (System.nanoTime() - begin) / 1e3;
    }
    Arrays.sort(micros);
    return micros[ROUNDS / 2];
  }

  private interface Body {
    int launched(DeviceGraph graph, DeviceStream held, DeviceStream stream);
  }

  /** Should a call wait for the held kernel, that is let go, since nobody reaches a native call. */
  private void behind(Body body) {
    Kernel count = kernel("count", inOut(I64));
    Kernel hold = kernel("hold", I64);
    CountDownLatch ended = new CountDownLatch(1);
    AtomicBoolean rescued = new AtomicBoolean();
    try (HostBlock flag = device.hostBlocks().take(Long.BYTES);
        HostBlock counted = device.hostBlocks().take(Long.BYTES);
        DeviceStream held = device.openStream(0);
        DeviceStream stream = device.openStream(0)) {
      Block block = Block.zeros(stream, Long.BYTES);
      flag.segment().set(ValueLayout.JAVA_LONG, 0, 0);
      try (DeviceGraph graph =
          stream.capture(
              "behind",
              () -> {
                for (int i = 0; i < CAPTURED; i++) {
                  count.launch(stream, Grid.of(1), block);
                }
              })) {
        hold.launch(held, CudaKernels.ALONE, flag.segment().address());
        Thread.ofPlatform().daemon().start(() -> rescue(ended, rescued, flag));
        int launched = body.launched(graph, held, stream);
        ended.countDown();
        flag.segment().set(ValueLayout.JAVA_LONG, 0, 1);
        held.reached().await();
        stream.copyToHost(counted.segment(), block, 0);
        stream.reached().await();
        assertThat(counted.segment().get(ValueLayout.JAVA_LONG, 0))
            .isEqualTo((long) CAPTURED * launched);
      }
      block.free(stream);
    }
    assertThat(rescued).as("nothing waited for the held kernel").isFalse();
  }

  private static void rescue(CountDownLatch ended, AtomicBoolean rescued, HostBlock flag) {
    try {
      if (!ended.await(HELD_SECONDS_MAX, TimeUnit.SECONDS)) {
        rescued.set(true);
        flag.segment().set(ValueLayout.JAVA_LONG, 0, 1);
      }
    } catch (InterruptedException e) {
      throw new AssertionError("nobody interrupts this thread", e);
    }
  }

  private Kernel kernel(String name, Param... params) {
    return device.load(new ModuleSource(name, List.of(image()))).kernel(name, params);
  }
}
