package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.OutOfDeviceMemoryException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What can be put around a pool: failures on purpose, and a log. */
class PoolWrappingTest {
  private static final long BYTES = 4096;

  // --- failures -----------------------------------------------------------------------------

  @ParameterizedTest
  @EnumSource
  void theNthAllocationFailsAndLeavesNothing(MemoryPool pool) {
    MemoryConfig config =
        MemoryConfig.defaults().withPool(pool).withFailures(MemoryFailures.nth(3));
    try (TestDevice world = TestDevice.open(config)) {
      Device device = world.device;
      device.allocate(0).close(); // takes nothing, and does not count
      device.allocate(BYTES).close();
      device.allocate(BYTES).close();
      assertThatThrownBy(() -> device.allocate(BYTES))
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessage(
              "request 3 for memory of device 0, for 4.0 KiB (4096 bytes), fails on purpose:"
                  + " fairlead.memory.fail is 3");
      world.awaitNothingInUse();
      device.allocate(BYTES).close();
    }
  }

  @Test
  void ofARateTheSameSeedMeansTheSameAllocations() {
    List<Integer> failed = failing("25%:7");
    assertThat(failed).isEqualTo(failing("25%:7")).isNotEqualTo(failing("25%:8"));
    assertThat(failed).as("of 1000").hasSizeBetween(200, 300);
    assertThat(failing("100%")).hasSize(1000);
    assertThat(failing("0%")).isEmpty();
  }

  private static List<Integer> failing(String text) {
    MemoryFailures failures = MemoryFailures.parse(text);
    return IntStream.rangeClosed(1, 1000).filter(failures::isDue).boxed().toList();
  }

  @ParameterizedTest
  @ValueSource(strings = {"none", "7", "2.5%:0", "50.0%:-3"})
  void aPlanIsWrittenAsItIsRead(String text) {
    assertThat(MemoryFailures.parse(text)).hasToString(text);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "often", "-1", "101%", "-1%", "2%42", "2%:", "NaN%"})
  void whatIsNoPlanIsRefusedWithWhatItMayBe(String text) {
    Properties properties = new Properties();
    properties.setProperty("fairlead.memory.fail", text);
    assertThatThrownBy(() -> MemoryConfig.from(properties))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessage(
            "property fairlead.memory.fail: '"
                + text
                + "' must be none, a number (7: the seventh), or a rate with or without a seed (2%,"
                + " 2%:42)");
  }

  @Test
  void theWrappersAreSettings() {
    Properties properties = new Properties();
    assertThat(MemoryConfig.from(properties).wrapping()).isEqualTo(PoolWrapping.NONE);
    properties.setProperty("fairlead.memory.fail", "1%");
    properties.setProperty("fairlead.memory.log", "summary");
    properties.setProperty("fairlead.memory.pool", "arena");
    MemoryConfig config = MemoryConfig.from(properties);
    assertThat(config.wrapping().failures()).isEqualTo(MemoryFailures.rate(0.01, 0));
    assertThat(config.wrapping().log()).isEqualTo(PoolLog.SUMMARY);
    assertThat(config.pool()).isEqualTo(MemoryPool.ARENA);
    properties.setProperty("fairlead.memory.log", "loud");
    assertThatThrownBy(() -> MemoryConfig.from(properties))
        .hasMessageContaining("fairlead.memory.log is 'loud'")
        .hasMessageContaining("off or summary or all");
  }

  // --- log ----------------------------------------------------------------------------------

  /** What the pools log while it is open. */
  private static final class Log extends Handler implements AutoCloseable {
    private final Logger logger = Logger.getLogger(Pool.class.getName());
    final List<String> lines = Collections.synchronizedList(new ArrayList<>());

    Log() {
      logger.addHandler(this);
      logger.setUseParentHandlers(false);
    }

    @Override
    public void publish(LogRecord line) {
      lines.add(line.getMessage());
    }

    @Override
    public void flush() {}

    @Override
    public void close() {
      logger.removeHandler(this);
      logger.setUseParentHandlers(true);
    }
  }

  private static List<String> logged(PoolLog log) {
    MemoryConfig config =
        MemoryConfig.defaults().withPoolLog(log).withFailures(MemoryFailures.nth(4));
    try (Log lines = new Log()) {
      try (TestDevice world = TestDevice.open(config)) {
        Device device = world.device;
        for (int i = 0; i < 3; i++) {
          device.allocate(BYTES).close();
        }
        assertThatThrownBy(() -> device.allocate(100))
            .isInstanceOf(OutOfDeviceMemoryException.class);
        device.trim().await();
      }
      return List.copyOf(lines.lines);
    }
  }

  @Test
  void nothingIsLoggedUnlessItIsAskedFor() {
    assertThat(logged(PoolLog.OFF)).isEmpty();
  }

  @Test
  void aSummarySaysHowThePoolWasUsed() {
    List<String> lines = logged(PoolLog.SUMMARY);
    assertThat(lines).hasSize(2);
    assertThat(lines.getFirst()).contains("memory pool: trimmed; ");
    assertThat(lines.getLast())
        .contains("memory pool: closed; 3 buffers of 12.0 KiB (12288 bytes) in all")
        .contains("the largest of 4.0 KiB (4096 bytes)")
        .contains("2 had their memory at once, 0 before its last use ended, 1 after a charge")
        .contains("1 were refused; 3 were given back")
        .endsWith("by size: up to 4.0 KiB (4096 bytes) 3");
  }

  @Test
  void allSaysWhoGotWhat() {
    List<String> lines = logged(PoolLog.ALL);
    assertThat(lines).hasSize(3 + 3 + 1 + 2);
    assertThat(lines.get(0))
        .contains("4.0 KiB (4096 bytes) at 0x")
        .contains("for stream ")
        .contains("and task 'root', from the pool or the driver");
    assertThat(lines.get(1)).contains("given back");
    assertThat(lines.get(2)).contains("at once");
    assertThat(lines.get(6)).contains("256 bytes refused: request 4");
  }
}
