package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Which reuse the driver's own pool is told, and that it does as before afterwards. */
@EnabledOnOs(OS.LINUX)
@Timeout(120)
class CudaReuseTest {
  /** Events, opportunistic, internal: 1 where the pool may. */
  private static final List<Integer> AS_THE_DRIVER_DOES = List.of(1, 1, 1);

  private final StandInLibrary standIn = StandInLibrary.get();

  private static int call(SymbolLookup symbols, String function, Object... arguments) {
    MemoryLayout[] types = new MemoryLayout[arguments.length];
    for (int i = 0; i < arguments.length; i++) {
      types[i] =
          switch (arguments[i]) {
            case Integer _ -> JAVA_INT;
            case Long _ -> JAVA_LONG;
            default -> ADDRESS;
          };
    }
    try {
      return (int)
          Linker.nativeLinker()
              .downcallHandle(symbols.findOrThrow(function), FunctionDescriptor.of(JAVA_INT, types))
              .invokeWithArguments(arguments);
    } catch (Throwable e) {
      throw new AssertionError(function + " threw, which no native function can", e);
    }
  }

  private List<Integer> reuse() {
    try (Arena arena = Arena.ofConfined()) {
      SymbolLookup symbols = SymbolLookup.libraryLookup(standIn.path(), arena);
      MemorySegment out = arena.allocate(JAVA_LONG);
      assertThat(call(symbols, "cuDeviceGetDefaultMemPool", out, 0)).isZero();
      long pool = out.get(JAVA_LONG, 0);
      List<Integer> found = new ArrayList<>();
      for (int attribute = 1; attribute <= 3; attribute++) {
        assertThat(call(symbols, "cuMemPoolGetAttribute", pool, attribute, out)).isZero();
        found.add(out.get(JAVA_INT, 0));
      }
      return found;
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "auto | 1, 1, 0",
        "none | 0, 0, 0",
        "events | 1, 0, 0",
        "opportunistic | 0, 1, 0",
        "internal | 0, 0, 1",
        "internal,events | 1, 0, 1",
        "events,opportunistic,internal | 1, 1, 1"
      })
  void thePoolIsToldAndPutBack(String setting, String expected) {
    standIn.reset();
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Driver driver =
            new CudaDriverProvider(standIn.path().toString()).open(Map.of("reuse", setting))) {
      assertThat(reuse()).isEqualTo(AS_THE_DRIVER_DOES);
      try (DeviceContext context = DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults())) {
        assertThat(reuse()).as(context + ", " + setting).hasToString("[" + expected + "]");
      }
      assertThat(reuse()).isEqualTo(AS_THE_DRIVER_DOES);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "event", "all", "events,", "events, internal", "none,events"})
  void whatItDoesNotKnowIsRefused(String setting) {
    assertThatThrownBy(
            () -> new CudaDriverProvider(standIn.path().toString()).open(Map.of("reuse", setting)))
        .isInstanceOf(DriverException.class)
        .hasMessageContaining(
            "takes auto, none, or some of events, opportunistic and internal with commas between,"
                + " not "
                + setting);
  }

  @Test
  void theSettingIsAmongThoseThatAreNamed() {
    assertThatThrownBy(
            () -> new CudaDriverProvider(standIn.path().toString()).open(Map.of("re-use", "none")))
        .hasMessageContaining("'re-use'")
        .hasMessageContaining("reuse");
  }
}
