package io.fairlead.ffi;

import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.out;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Grid;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.MemoryConfig;
import io.fairlead.memory.MemoryPool;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** A profiler that listens to NVTX sees which task has enqueued what. */
@Timeout(60)
@EnabledOnOs(OS.LINUX)
class NvtxTest {
  private static final int COUNT = 100;
  private static final int TASKS = 50;

  private final StandInLibrary standIn = StandInLibrary.get();
  private final String tool = ForeignLibraries.get(standIn, "nvtxtool");

  private Object ask(String function, MemoryLayout answer, Object... arguments) {
    FunctionDescriptor type =
        arguments.length == 0
            ? FunctionDescriptor.of(answer)
            : FunctionDescriptor.of(answer, JAVA_INT);
    try {
      return Linker.nativeLinker()
          .downcallHandle(
              SymbolLookup.libraryLookup(tool, Arena.global()).findOrThrow(function), type)
          .invokeWithArguments(arguments);
    } catch (Throwable e) {
      throw new AssertionError(function + " threw, which no native function can", e);
    }
  }

  private int number(String function) {
    return (int) ask(function, JAVA_INT);
  }

  private List<String> names(int from) {
    return IntStream.range(from, number("tool_count"))
        .mapToObj(i -> (MemorySegment) ask("tool_name", ADDRESS, i))
        .map(text -> text.reinterpret(64).getString(0))
        .toList();
  }

  private Driver open(String library) {
    standIn.reset();
    return new CudaDriverProvider(standIn.path().toString()).open(Map.of("nvtx", library));
  }

  @Test
  void whatATaskEnqueuesIsShownUnderItsName() {
    int instances = number("tool_instances");
    int before = number("tool_count");
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver driver = open(tool);
        Device device =
            Device.open(
                tasks,
                DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults()),
                MemoryConfig.defaults().withPool(MemoryPool.DRIVER))) {
      assertThat(driver.isProfiled()).isTrue();
      Kernel number =
          device
              .load(new ModuleSource("rules", List.of(CudaKernels.STAND_IN)))
              .kernel("number", I64, out(I64));
      try (TaskScope<long[]> scope = tasks.scope()) {
        for (int i = 0; i < TASKS; i++) {
          scope.fork(
              ForkOptions.named("worker " + i % 5),
              () -> {
                try (DeviceBuffer buffer = device.allocate(8L * COUNT)) {
                  number.launch(Grid.of(COUNT), 1L, buffer);
                  return buffer.toLongs();
                }
              });
        }
        assertThat(scope.join()).hasSize(TASKS);
      }
    }
    assertThat(number("tool_instances")).isEqualTo(instances + 1);
    List<String> names = names(before);
    assertThat(new TreeSet<>(names))
        .contains("worker 0", "worker 1", "worker 2", "worker 3", "worker 4");
    assertThat(names.stream().filter(name -> name.startsWith("worker ")))
        .as("an allocation, a launch, a copy and a free each")
        .hasSizeGreaterThanOrEqualTo(4 * TASKS);
    assertThat(number("tool_wrong")).as("pops on a thread that pushed nothing").isZero();
    assertThat(number("tool_depth")).isZero();
    assertThat(standIn.traps()).isEmpty();
    standIn.reset();
  }

  @Test
  void withoutAToolNothingIsCalled() {
    int before = number("tool_count");
    for (String none : List.of("", "/nowhere/libtool.so", standIn.path().toString())) {
      try (Driver driver = open(none)) {
        assertThat(driver.isProfiled()).isFalse();
        driver.rangeBegin("nobody listens");
        driver.rangeEnd();
      }
    }
    assertThat(number("tool_count")).isEqualTo(before);
    assertThat(ValueLayout.ADDRESS.byteSize()).as("the tables are those of 64 bits").isEqualTo(8);
    standIn.reset();
  }
}
