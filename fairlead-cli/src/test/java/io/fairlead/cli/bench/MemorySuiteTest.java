package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.cli.Progress;
import io.fairlead.memory.MemoryPool;
import io.fairlead.memory.SpillConfig;
import io.fairlead.runtime.DriverUnavailableException;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

/** What the suite of memory measures, and how it says what it could not. */
@Timeout(120)
class MemorySuiteTest {
  private static final int SCALE = 100;
  private static final long BYTES = 16L << 20;

  @TempDir static Path folder;

  private static void opened(MemoryPool pool, Consumer<MemoryProbes> body) {
    FairleadConfig config = FairleadConfig.defaults().withDevice("host").withDeviceMemory(BYTES);
    config =
        config.withMemory(
            config
                .memory()
                .withPool(pool)
                .withWait(Duration.ofMillis(50))
                .withSpill(SpillConfig.OFF));
    try (Fairlead fairlead = Fairlead.open(config)) {
      body.accept(new MemoryProbes(fairlead, SCALE));
    }
  }

  @Test
  void usesInTheLedgerAreMeasured() {
    opened(
        MemoryPool.FAIRLEAD,
        probes -> {
          MemoryProbes.Ledger ledger = probes.ledger();
          for (Samples each :
              List.of(ledger.none(), ledger.one(), ledger.reads(), ledger.writes())) {
            assertThat(each.count()).isEqualTo(20);
            assertThat(each.min()).isPositive();
          }
          assertThat(ledger.plain().count()).isEqualTo(20);
          assertThat(ledger.calls()).isZero();
        });
  }

  @Test
  void pairsAreMeasuredOnAnEmptyAndOnAFullDevice() {
    opened(
        MemoryPool.FAIRLEAD,
        probes -> {
          assertThat(Samples.of(probes.pairs()).min()).isPositive();
          assertThat(Samples.of(probes.usedPairs()).min()).isPositive();
          double[][] medians = probes.pairsEmptyAndFull();
          assertThat(medians).hasDimensions(2, 2);
          assertThat(Samples.of(medians[1]).min()).isPositive();
        });
  }

  @Test
  void aTraceFillsMostOfADeviceOfEitherPool() {
    for (MemoryPool pool : MemoryPool.values()) {
      opened(
          pool,
          probes -> {
            AtomicReference<String> why = new AtomicReference<>();
            double usable = probes.usable(1, why::set);
            assertThat(why.get()).as(pool.name()).startsWith("no room for");
            // refused for want of room: what lives takes no more, and fills it but for the gaps
            assertThat(usable).as(pool.name()).isBetween(0.5, 1.0);
          });
    }
  }

  @Test
  void tasksWithTooLittleMemoryTogetherEnd() throws Exception {
    Suite.Options options = new Suite.Options(true, 64, List.of("oom"), "host", null);
    StringWriter said = new StringWriter();
    List<Row> rows = new MemorySuite().run(options, Progress.to(new PrintWriter(said), false));
    assertThat(rows.stream().map(Row::id))
        .containsExactly("oom.false", "oom.found", "oom.scale", "oom.scale.blocked");
    assertThat(rows).as(said.toString()).allSatisfy(row -> assertThat(row.missing()).isNull());
    assertThat(rows.get(0).value()).isZero();
    assertThat(rows.get(1).p50()).isPositive();
    assertThat(rows.get(2).value()).isZero();
  }

  private static final CountDownLatch PINNED_SEEN = new CountDownLatch(1);

  /** A class whose initialiser waits keeps the carrier of the task that needs it first. */
  private static final class Pins {
    static final boolean OVER = await();

    private static boolean await() {
      try {
        PINNED_SEEN.await();
        return true;
      } catch (InterruptedException e) {
        return false;
      }
    }
  }

  @Test
  void aCarrierThatATaskBlocksIsSeen() throws InterruptedException {
    try (CarrierWatch watch = CarrierWatch.begin()) {
      Thread.ofVirtual().start(() -> assertThat(Pins.OVER).isTrue());
      while (watch.blocked() == 0) {
        Thread.onSpinWait();
      }
      PINNED_SEEN.countDown();
    }
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void rowsOfAGpuAreBesideC() throws IOException, InterruptedException {
    Path standIn = StandIn.build(folder);
    StandIn.setMemory(standIn, 64L << 20);
    CudaPeer c =
        new CudaPeer(StandIn.ROOT.resolve("fairlead-lab/peers/cuda/memory.sh"), standIn.toString());
    List<Row> rows = StandIn.with(standIn, () -> run(new MemorySuite(new MemoryPeer(c)), "cuda"));
    assertThat(rows.stream().map(Row::id)).containsExactly("memory.alloc", "memory.alloc.used");
    assertThat(rows).allSatisfy(row -> assertThat(row.missing()).isNull());
    assertThat(rows.getFirst().baseline()).isNotNull().isPositive();
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void withoutCThereIsOurFigureAlone() throws IOException, InterruptedException {
    Path standIn = StandIn.build(folder);
    StandIn.setMemory(standIn, 64L << 20);
    CudaPeer none = new CudaPeer(folder.resolve("none"), standIn.toString());
    List<Row> rows =
        StandIn.with(standIn, () -> run(new MemorySuite(new MemoryPeer(none)), "cuda"));
    assertThat(rows.getFirst().missing()).isNull();
    assertThat(rows.getFirst().baseline()).isNull();
  }

  private static List<Row> run(MemorySuite suite, String device) throws Exception {
    Suite.Options options =
        new Suite.Options(true, 64, List.of("memory.alloc.used", "memory.alloc"), device, null);
    List<Row> rows = suite.run(options, Progress.to(new PrintWriter(new StringWriter()), false));
    return rows.stream().filter(row -> !row.id().equals("memory.alloc.full")).toList();
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void cPrintsWhatTheSuitesLookFor() throws IOException, InterruptedException {
    Path standIn = StandIn.build(folder);
    StandIn.setMemory(standIn, 1L << 30);
    CudaPeer c =
        new CudaPeer(StandIn.ROOT.resolve("fairlead-lab/peers/cuda/memory.sh"), standIn.toString());
    StringWriter said = new StringWriter();
    Progress progress = Progress.to(new PrintWriter(said, true), false);
    assertThat(new MemoryPeer(c).samples(SCALE, progress).keySet())
        .as(said.toString())
        .containsExactlyInAnyOrder(
            "alloc",
            "large.down",
            "large.up",
            "small.down",
            "small.up",
            "fill.alone",
            "fill.beside");
  }

  @Test
  void aPartThatFailsLeavesTheOthers() throws Exception {
    Part bad =
        new Part(
            "what fails",
            List.of("a.bad"),
            () -> {
              throw new IllegalStateException("no luck");
            });
    Part good =
        new Part(
            "what works",
            List.of("a.good", "a.none"),
            () -> List.of(Row.exact("a.good", "ns", "lower", 1)));
    StringWriter said = new StringWriter();
    List<List<Row>> handedOver = new ArrayList<>();
    Part.run(
        List.of(bad, good),
        new Suite.Options(true, 64),
        Progress.to(new PrintWriter(said, true), false),
        handedOver::add);
    assertThat(handedOver).hasSize(2); // a run that is cut has given what it had
    List<Row> rows = handedOver.stream().flatMap(List::stream).toList();
    assertThat(rows.stream().map(Row::id)).containsExactly("a.bad", "a.good", "a.none");
    assertThat(rows.stream().map(Row::missing).filter(Objects::nonNull))
        .containsExactly("failed", "not measured");
    assertThat(said.toString()).contains("what fails failed", "no luck");
  }

  @Test
  void aDeviceThatIsNotThereIsSaid() {
    Path library = Path.of("libno-such.so");
    assertThatThrownBy(() -> StandIn.with(library, () -> run(new MemorySuite(), "cuda")))
        .isInstanceOf(DriverUnavailableException.class)
        .hasMessageContaining("'cuda' was asked for and is not available");
  }
}
