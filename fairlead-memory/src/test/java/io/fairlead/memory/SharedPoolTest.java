package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.MemoryInfo;
import io.fairlead.fault.Mutant;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * What the driver's own pool keeps for nobody goes before anybody is told that there is no room.
 */
@Timeout(120)
class SharedPoolTest {
  private static final int UNIT = 64 << 10;

  private final KeepingDriver keeping = new KeepingDriver();
  private TestDevice world;

  /** A driver whose pool keeps memory that others have given back, until it is trimmed. */
  private static final class KeepingDriver {
    volatile boolean keeps;
    final AtomicInteger trims = new AtomicInteger();

    Driver around(Driver driver) {
      return DriverAround.of(
          driver,
          (name, _, call) ->
              switch (name) {
                case "allocAsync" -> {
                  refuseIfKept();
                  yield call.make();
                }
                case "memoryInfo" -> info((MemoryInfo) Objects.requireNonNull(call.make()));
                case "trimPool" -> {
                  keeps = false;
                  trims.incrementAndGet();
                  yield call.make();
                }
                default -> call.make();
              });
    }

    private void refuseIfKept() {
      if (keeps) {
        throw new DriverException(
            DriverException.OUT_OF_MEMORY, "OUT_OF_MEMORY", false, "in pieces", null);
      }
    }

    private MemoryInfo info(MemoryInfo real) {
      long kept = keeps ? UNIT : 0;
      return new MemoryInfo(real.freeBytes(), real.totalBytes(), kept, 0);
    }
  }

  private void open(MemoryPool pool) {
    MemoryConfig config = MemoryConfig.defaults().withPool(pool).withLimit(16 * UNIT);
    world = TestDevice.open(config, keeping::around);
  }

  @AfterEach
  void close() {
    world.close();
  }

  @ParameterizedTest
  @EnumSource
  void itIsTrimmedBeforeARefusal(MemoryPool pool) {
    open(pool);
    keeping.keeps = true;
    assertThat(world.device.realMemory().poolUnusedBytes()).isEqualTo(UNIT);
    try (DeviceBuffer buffer = world.device.allocate(UNIT)) {
      buffer.fill((byte) 3);
      assertThat(buffer.toBytes()).containsOnly(3);
    }
    assertThat(keeping.trims).hasValue(1);
    assertThat(world.device.realMemory().poolUnusedBytes()).isZero();
  }

  /** With nothing else that could make room. */
  @ParameterizedTest
  @EnumSource
  void withoutThatItWouldBeRefused(MemoryPool pool) {
    open(pool);
    keeping.keeps = true;
    try (var _ = Mutant.enable("pool.shared.skip")) {
      assertThatThrownBy(() -> world.device.allocate(UNIT))
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("kept by the driver's pool 64.0 KiB");
    }
    assertThat(keeping.trims).hasValue(0);
  }
}
