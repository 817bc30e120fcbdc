package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Param;
import io.fairlead.device.spi.Driver;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Tickets and events on a real GPU: where one gives way to the other, and that nothing sticks. */
@Timeout(120)
class CudaSignalsGpuTest {
  private static final ModuleSource SOURCE = new ModuleSource("rules", List.of(CudaKernels.PTX));

  private Driver driver;
  private TaskRuntime tasks;
  private DeviceContext device;
  private Kernel hold;
  private Kernel nop;

  @BeforeEach
  void open() {
    driver = CudaGpu.open();
    tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    device = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults());
    hold = device.load(SOURCE).kernel("hold", Param.I64);
    nop = device.load(SOURCE).kernel("nop");
  }

  @AfterEach
  void close() {
    if (device != null) {
      device.close();
      tasks.close();
      driver.close();
    }
  }

  private List<DeviceStream> streams(int count) {
    List<DeviceStream> streams = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      DeviceStream stream = device.openStream(0);
      nop.launch(stream, CudaKernels.ALONE);
      stream.reached().await();
      streams.add(stream);
    }
    return streams;
  }

  /**
   * Streams that are waited for and held; then others' launches and waits in each mode. Nothing but
   * the signal lies behind a held kernel: a second kernel there would occupy a hardware queue
   * itself, whoever waits.
   */
  @ParameterizedTest
  @ValueSource(ints = {16, 64, 120})
  void waitsBehindHeldKernelsHoldNobodyElse(int count) {
    List<DeviceStream> slow = streams(count);
    List<DeviceStream> probes = streams(3);
    try (HostBlock flags = device.hostBlocks().take(Long.BYTES)) {
      MemorySegment flag = flags.segment().fill((byte) 0);
      for (DeviceStream stream : slow) {
        hold.launch(stream, CudaKernels.ALONE, flag.address());
      }
      try {
        List<Completion<Void>> waits = slow.stream().map(DeviceStream::reached).toList();
        long asked = slow.stream().filter(stream -> driver.mustAsk(stream.handle())).count();
        int tickets = driver.info(0).streamsWithSignals();
        System.out.println(count + " held, " + asked + " of them with an event");
        assertThat(asked).isGreaterThanOrEqualTo(count - tickets);
        for (int round = 0; round < 50; round++) {
          for (DeviceStream probe : probes) {
            nop.launch(probe, CudaKernels.ALONE);
            for (WaitMode mode : WaitMode.values()) {
              probe.reached().await(mode);
            }
          }
        }
        assertThat(waits).noneMatch(Completion::isDone);
        flag.set(JAVA_LONG, 0, 1);
        Completion.all(waits).await();
      } finally {
        flag.set(JAVA_LONG, 0, 1);
        slow.forEach(stream -> stream.reached().awaitUninterruptibly());
      }
    }
  }

  /** The limit as the driver has it, with many tasks: each wait ends, and not before its work. */
  @ParameterizedTest
  @EnumSource(WaitMode.class)
  void manyTasksOnManyStreamsAllEnd(WaitMode mode) throws Exception {
    List<DeviceStream> streams = streams(64);
    Kernel count = device.load(SOURCE).kernel("number", Param.I64, Param.I64);
    AtomicInteger waited = new AtomicInteger();
    try (HostBlock block = device.hostBlocks().take(64L * Long.BYTES);
        TaskScope<Void> scope = tasks.scope()) {
      MemorySegment values = block.segment().fill((byte) 0);
      for (int i = 0; i < 64; i++) {
        int mine = i;
        scope.fork(
            () -> {
              for (long round = 1; round <= 300; round++) {
                long address = values.address() + (long) mine * Long.BYTES;
                if (round % 7 == 0) {
                  streams.get(mine).after(streams.get((mine + 1) % 64).mark());
                }
                count.launch(streams.get(mine), CudaKernels.ALONE, round, address);
                streams.get(mine).reached().await(mode);
                assertThat(values.getAtIndex(JAVA_LONG, mine)).isEqualTo(round);
                waited.incrementAndGet();
              }
              return null;
            });
      }
      scope.join();
    }
    assertThat(waited.get()).isEqualTo(64 * 300);
  }

  /** What a question costs; printed, so that a run says what it ran on. */
  @Test
  void aQuestionAboutManyStreamsIsAnswered() {
    List<DeviceStream> slow = streams(100);
    try (HostBlock flags = device.hostBlocks().take(Long.BYTES)) {
      MemorySegment flag = flags.segment().fill((byte) 0);
      slow.forEach(stream -> hold.launch(stream, CudaKernels.ALONE, flag.address()));
      try {
        List<Completion<Void>> waits = slow.stream().map(DeviceStream::reached).toList();
        long[] pending =
            slow.stream().mapToLong(DeviceStream::handle).filter(driver::mustAsk).toArray();
        long best = Long.MAX_VALUE;
        int asked = 0;
        for (int round = 0; round < 200; round++) {
          long start = System.nanoTime();
          int now = driver.ask(device.nativeContext(), pending, pending.length, Long.MAX_VALUE);
          if (now == pending.length) { // else the poller was asking
            best = Math.min(best, System.nanoTime() - start);
            asked = now;
          }
        }
        System.out.println(best + " ns to ask about " + asked + " streams");
        assertThat(asked).isEqualTo(pending.length);
        assertThat(waits).noneMatch(Completion::isDone);
      } finally {
        flag.set(JAVA_LONG, 0, 1);
        slow.forEach(stream -> stream.reached().awaitUninterruptibly());
      }
    }
  }
}
