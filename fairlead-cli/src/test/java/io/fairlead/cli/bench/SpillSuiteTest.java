package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Tier;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.Completion;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** How spilling is measured, with something else in its place. */
@Timeout(120)
class SpillSuiteTest {
  private static final long BYTES = 1L << 20;

  private static void opened(
      Function<DeviceBuffer, Completion<?>> spill, Consumer<SpillProbes> body) {
    FairleadConfig config =
        FairleadConfig.defaults().withDevice("host").withDeviceMemory(64 * BYTES);
    try (Fairlead fairlead = Fairlead.open(config)) {
      body.accept(new SpillProbes(fairlead, spill));
    }
  }

  private static Completion<?> fetch(DeviceBuffer buffer) {
    return buffer.downloadTo(Arena.ofAuto().allocate(buffer.bytes()));
  }

  @Test
  void eachBufferIsSpilledInEachRound() {
    AtomicInteger spilled = new AtomicInteger();
    List<Integer> between = new ArrayList<>();
    Function<DeviceBuffer, Completion<?>> spill =
        buffer -> {
          spilled.incrementAndGet();
          return fetch(buffer);
        };
    opened(
        spill,
        probes -> {
          double[][] samples = probes.passes(40, 4096, 5, between::add);
          assertThat(samples).hasDimensions(2, 5);
          assertThat(Samples.of(samples[0]).min()).isPositive();
          assertThat(Samples.of(samples[1]).min()).isPositive();
        });
    assertThat(spilled.get()).isGreaterThanOrEqualTo(40 * (5 + 3)); // warmed up by time
    assertThat(spilled.get() % 40).isZero();
    assertThat(between).containsExactly(0, 1, 2, 3, 4);
  }

  @Test
  void whatStayedOnTheDeviceIsNotTimed() {
    assertThatThrownBy(
            () ->
                opened(
                    _ -> Completion.completed(Tier.DEVICE),
                    probes -> probes.passes(3, 4096, 1, _ -> {})))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("3 of 3 buffers stay");
  }

  @Test
  void whatHasNoRoomAtOnceIsAskedAgain() {
    AtomicInteger asked = new AtomicInteger();
    opened(
        _ -> Completion.completed(asked.incrementAndGet() % 2 == 0 ? Tier.HOST : Tier.DEVICE),
        probes -> probes.passes(3, 4096, 1, _ -> {}));
    assertThat(asked).hasValueGreaterThanOrEqualTo(2 * 3 * 4);
  }

  @Test
  void whatIsMeasuredIsThatBuffersAreSpilled() {
    FairleadConfig config =
        Spills.config(
            FairleadConfig.defaults().withDevice("host").withDeviceMemory(64 * BYTES),
            64 * BYTES,
            null);
    try (Fairlead fairlead = Fairlead.open(config)) {
      new SpillProbes(fairlead, Spills::spill).passes(8, BYTES, 2, _ -> {});
      long spills = fairlead.device().memory().spills(); // warmed up for as long as that takes
      assertThat(spills).isGreaterThanOrEqualTo(8 * (2 + 3));
      assertThat(spills % 8).as("all of them in each round").isZero();
      assertThat(fairlead.device().memory().returns()).isEqualTo(spills);
    }
  }

  /** Each operation that brings back is told of 32 buffers, and some signals go with them. */
  @Test
  void smallBuffersLeaveAndComeBackByFewOperations() {
    FairleadConfig config =
        Spills.config(
            FairleadConfig.defaults().withDevice("host").withDeviceMemory(64 * BYTES),
            64 * BYTES,
            null);
    try (Fairlead fairlead = Fairlead.open(config)) {
      double[][] calls = new SpillProbes(fairlead, Spills::spill).calls(256, 4096, 3);
      assertThat(calls).hasDimensions(2, 3);
      assertThat(Samples.of(calls[0]).min()).isPositive();
      assertThat(Samples.of(calls[1]).median()).isPositive().isLessThan(0.5);
    }
  }

  @Test
  void theOneBesideIsMeasuredInTurn() {
    opened(
        SpillSuiteTest::fetch,
        probes -> {
          double[][] medians = probes.bystander(2, BYTES, 2);
          assertThat(medians).hasDimensions(2, 2);
          assertThat(Samples.of(medians[0]).min()).isPositive();
          assertThat(Samples.of(medians[1]).min()).isPositive();
        });
  }

  @Test
  void aShareIsOfWhatARawOneReaches() {
    Row row = SpillSuite.share("r", Samples.of(200, 100, 400), 150, 70, 90);
    assertThat(row.value()).isEqualTo(75, within(1e-9));
    assertThat(row.verdict()).isEqualTo("kept");
  }

  @Test
  void rawCopiesAreTimed() {
    try (RawCopies copies = new RawCopies(3, 4096)) {
      assertThat(copies.down()).isPositive();
      assertThat(copies.up()).isPositive();
    }
  }

  @Test
  void aRawFileIsWrittenReadAndDeleted(@TempDir Path folder) throws IOException {
    try (RawFile file = new RawFile(folder, 8L << 20)) {
      assertThat(file.write()).isPositive();
      assertThat(file.read()).isPositive();
      try (Stream<Path> files = Files.list(folder)) {
        assertThat(files.mapToLong(each -> each.toFile().length())).containsExactly(8L << 20);
      }
    }
    assertThat(folder).isEmptyDirectory();
    assertThatThrownBy(() -> new RawFile(folder, 1000))
        .isInstanceOf(IllegalArgumentException.class);
    assertThat(folder).isEmptyDirectory();
  }
}
