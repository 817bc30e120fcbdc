package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.cli.Progress;
import io.fairlead.cli.bench.CommSuite.Closed;
import io.fairlead.cli.bench.InstalledMpi.Binding;
import io.fairlead.cli.bench.InstalledMpi.Flavour;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.InProcess;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.Role;
import io.fairlead.task.WaitMode;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

/**
 * What the suite of messages does without an MPI: its probes between ranks of one process, its
 * processes under a stand-in for a launcher; and the twin in C where there is an MPI.
 */
@Timeout(180)
@EnabledOnOs(OS.LINUX)
class CommSuiteTest {
  private static final int SCALE = 200;

  @TempDir private Path folder;

  private static <T> T opened(Function<Fairlead, T> body) {
    try (Fairlead fairlead = Fairlead.open(FairleadConfig.defaults().withDevice("host"))) {
      return body.apply(fairlead);
    }
  }

  private interface Probe {
    double[] measure(CommProbes probes, CommManagers managers) throws Exception;
  }

  /** On both ranks of a world of one process; what rank 0 measured. */
  private static double[] measured(Probe probe) {
    Optional<double[]> figures =
        opened(
            fairlead -> {
              try (CommWorld world = CommWorld.open(fairlead, CommWorld.IN_PROCESS)) {
                return world.run(
                    comm -> {
                      CommProbes probes = new CommProbes(fairlead, comm, SCALE);
                      return probe.measure(probes, new CommManagers(comm, probes, SCALE));
                    });
              }
            });
    return figures.orElseThrow();
  }

  private static void requireSamples(double[] samples, int count) {
    assertThat(samples).hasSize(count);
    assertThat(Samples.of(samples).min()).isPositive();
  }

  @Test
  void roundTripsAndRatesAreMeasured() {
    requireSamples(measured((probes, managers) -> probes.small()), 5);
    requireSamples(measured((probes, managers) -> probes.large()), 5);
    requireSamples(measured((probes, managers) -> probes.smallAffine()), 5);
    requireSamples(measured((probes, managers) -> probes.rate()), 5);
    requireSamples(measured((probes, managers) -> probes.rateAffine()), 5);
    requireSamples(measured((probes, managers) -> probes.blobs()), 5);
    requireSamples(measured((probes, managers) -> probes.blobsMade()), 5);
  }

  @Test
  void messagesOfADeviceManagerAreMeasuredByCallbackAndByTask() {
    requireSamples(measured((probes, managers) -> managers.shiftedToCallback()), 100);
    requireSamples(measured((probes, managers) -> managers.shiftedToTask()), 100);
    requireSamples(
        measured(
            (probes, managers) -> {
              managers.shiftedToCallback();
              return managers.shiftedToTask();
            }),
        100);
  }

  @Test
  void messagesOfDeviceMemoryAndCyclesInEachModeAreMeasured() {
    opened(
        fairlead -> {
          try (CommWorld world = CommWorld.open(fairlead, CommWorld.IN_PROCESS)) {
            return world.run(
                comm -> {
                  CommDevices devices = new CommDevices(fairlead, comm, SCALE);
                  CommDevices.Starts starts = devices.starts();
                  Map<WaitMode, double[]> seconds = devices.vcycles();
                  if (comm.rank() != 0) {
                    assertThat(starts).isNull();
                    assertThat(seconds).isEmpty();
                    return "measured";
                  }
                  requireSamples(Objects.requireNonNull(starts).sent(), 5);
                  requireSamples(starts.spun(), 5);
                  requireSamples(starts.plain(), 5);
                  assertThat(seconds).containsOnlyKeys(WaitMode.values());
                  seconds.values().forEach(each -> requireSamples(each, 2));
                  return "measured";
                });
          }
        });
  }

  @Test
  void whatIsMoreThanSpinningAndSendingIsOfTheMedians() {
    assertThat(
            CommDevices.Starts.more(
                Samples.of(30.0, 50.0, 40.0), Samples.of(20.0, 25.0), Samples.of(3.0)))
        .isEqualTo(40.0 - Samples.of(20.0, 25.0).median() - 3.0);
  }

  @Test
  void aFloodComesWhole() {
    double[] flood = measured((probes, managers) -> probes.flood());
    assertThat(flood).hasSize(3);
    assertThat(flood[2]).as("wrong").isZero();
  }

  @Test
  void anIdleEngineIsMeasured() {
    double[] percent = measured((probes, managers) -> probes.idle());
    assertThat(percent).hasSize(1);
    assertThat(percent[0]).isNotNegative();
    requireSamples(measured((probes, managers) -> probes.firstMessages()), 5);
  }

  @Test
  void allOfManyWaitersAreServed() {
    opened(
        fairlead -> {
          try (CommWorld world = CommWorld.open(fairlead, CommWorld.IN_PROCESS)) {
            world.run(
                comm -> {
                  double[] figures = new CommWaiters(fairlead, comm).serve(2_000);
                  assertThat(figures).hasSize(comm.rank() == 1 ? 2 : 0);
                  assertThat(comm.rank() == 1 ? figures[0] : 0).as("unserved").isZero();
                  return "served";
                });
          }
          return "closed";
        });
  }

  @Test
  void messagesBesideSpillsAreRight() {
    CommSpills.Outcome outcome = CommSpills.run(4_000);
    assertThat(outcome.messages()).isEqualTo(4_000);
    assertThat(outcome.wrong()).isZero();
    assertThat(outcome.spilled()).as("else nothing was shown").isPositive();
  }

  // --- submits
  // ------------------------------------------------------------------------------------

  private static long entriesOfManagers() {
    CommWatch watch = new CommWatch();
    double[] submits =
        opened(
            fairlead -> {
              try (CommWorld world =
                  CommWorld.open(
                      fairlead, CommWorld.IN_PROCESS, 2, CommConfig.DEFAULT, watch::around)) {
                return world
                    .run(
                        comm -> {
                          CommProbes probes = new CommProbes(fairlead, comm, SCALE);
                          return new CommManagers(comm, probes, SCALE).submits();
                        })
                    .orElseThrow();
              }
            });
    requireSamples(submits, 5);
    return watch.entries();
  }

  @Test
  void aManagerThatSubmitsEntersNoTransport() {
    assertThat(entriesOfManagers()).isZero();
  }

  /** Canary: else nobody would know that the watch sees anything. */
  @Test
  void aManagerThatEntersATransportIsSeen() throws InterruptedException {
    CommWatch watch = new CommWatch();
    List<Transport> transports = InProcess.provider().open(new TransportSettings(2, 4096, 10));
    Transport watched = watch.around(transports.getFirst());
    assertThat(watched.poll()).isZero();
    assertThat(watch.entries()).as("this thread manages nothing").isZero();
    Thread manager =
        Role.DEVICE_MANAGER.newThread(
            "manager",
            () -> {
              watched.poll();
              watched.rank(); // says what it is, and enters nothing
            });
    manager.start();
    manager.join();
    assertThat(watch.entries()).isEqualTo(1);
    transports.forEach(Transport::close);
  }

  // --- closes
  // -------------------------------------------------------------------------------------

  private static Map<String, Samples> closed(Samples told, Samples accounted, Samples open) {
    Samples quick = told.times(0);
    return Map.of(
        "close.told",
        told,
        "close.accounted",
        accounted,
        "close.millis",
        quick,
        "close.open",
        open);
  }

  @Test
  void whatIsNotAccountedForIsLost() {
    Samples told = Samples.of(5, 3);
    Samples none = Samples.of(0, 0);
    // rank 1 received what rank 0 was told is sent
    assertThat(Closed.ofOneWorld(closed(told, Samples.of(1, 7), none)))
        .isEqualTo(new Closed(1, 0, 0));
    assertThat(Closed.ofOneWorld(closed(told, Samples.of(4, 3), none)))
        .isEqualTo(new Closed(1, 1, 0));
    // two worlds: one lost a message, the other had one twice
    assertThat(Closed.inOneProcess(closed(told, Samples.of(4, 4), none)))
        .isEqualTo(new Closed(2, 2, 0));
  }

  @Test
  void whatHasNotEndedIsLate() {
    Samples told = Samples.of(5, 3);
    assertThat(Closed.inOneProcess(closed(told, told, Samples.of(0, 2))))
        .isEqualTo(new Closed(2, 0, 1));
    assertThat(Closed.ofOneWorld(closed(told, told, Samples.of(1, 1))).late()).isEqualTo(1);
  }

  // --- processes
  // ----------------------------------------------------------------------------------

  private List<Row> run(StringWriter said, CommSuite suite, String... only) throws Exception {
    Suite.Options options = new Suite.Options(true, 64, List.of(only));
    return suite.run(options, Progress.to(new PrintWriter(said, true), false));
  }

  private static Row row(List<Row> rows, String id) {
    return rows.stream().filter(each -> each.id().equals(id)).findFirst().orElseThrow();
  }

  @Test
  void oursAndTheTwinAreMeasuredInTurnUnderALauncher() throws Exception {
    StandInMpi mpi = new StandInMpi(folder);
    Path twin = mpi.twin("samples half.8 1000 2000 3000", "samples rate 1e6", "noise", "samples x");
    CommSuite suite =
        new CommSuite(List.of(mpi.launcher(Flavour.OPEN_MPI)), twin, CommWorld.IN_PROCESS);
    StringWriter said = new StringWriter();
    List<Row> rows =
        run(
            said,
            suite,
            "comm.8B.inline.openmpi",
            "comm.8B.shift.task.openmpi",
            "comm.rate.inline.openmpi",
            "comm.rate.shift.openmpi",
            "comm.blobs.openmpi",
            "comm.8B.inline.mpich",
            "comm.close.lost.openmpi");
    assertThat(rows.stream().map(Row::id))
        .containsExactly(
            "comm.8B.inline.openmpi.unbound",
            "comm.rate.inline.openmpi.unbound",
            "comm.rate.shift.openmpi.unbound",
            "comm.blobs.openmpi.unbound",
            "comm.8B.shift.task.openmpi.unbound",
            "comm.close.lost.openmpi",
            "comm.8B.inline.mpich.unbound");
    Row small = row(rows, "comm.8B.inline.openmpi.unbound");
    assertThat(small.missing()).isNull();
    assertThat(small.baseline()).isEqualTo(2000);
    assertThat(small.value()).isPositive().isEqualTo(small.ratio());
    assertThat(small.must()).isEqualTo(1.3);
    assertThat(row(rows, "comm.rate.inline.openmpi.unbound").better()).isEqualTo("higher");
    assertThat(row(rows, "comm.rate.shift.openmpi.unbound").value()).isPositive();
    assertThat(mpi.calls(Flavour.OPEN_MPI).lines().filter(call -> call.contains("funneled")))
        .as("of ours, one that may be entered by one thread only")
        .singleElement()
        .asString()
        .contains("RATE")
        .doesNotContain("PING_PONG");
    assertThat(row(rows, "comm.blobs.openmpi.unbound").missing())
        .as("the twin said nothing of blobs")
        .isEqualTo("not measured");
    Row shift = row(rows, "comm.8B.shift.task.openmpi.unbound");
    assertThat(shift.unit()).isEqualTo("us");
    assertThat(shift.value()).isPositive();
    assertThat(row(rows, "comm.close.lost.openmpi").value()).isZero();
    assertThat(row(rows, "comm.8B.inline.mpich.unbound").missing()).isEqualTo("not here");
    assertThat(said.toString())
        .contains(
            "no mpich here", "comm.8B.inline.openmpi.unbound: ours ", ", C 2000 [2000..2000]");
    assertThat(mpi.calls(Flavour.OPEN_MPI).lines().toList().getFirst())
        .as("C comes first in the first round")
        .startsWith("--bind-to none ")
        .contains("-n 2 ")
        .endsWith("twin.openmpi 10 pingpong rate blobs");
  }

  @Test
  void anotherRankOfALauncherThanTheFirstHasNothingToDo() throws Exception {
    List<String> command = ChildProcess.command(List.of(), List.of("bench", "comm", "--json", "-"));
    ChildProcess.Result second =
        ChildProcess.run(
            "rank 1",
            command,
            environment -> environment.put("PMI_RANK", "1"),
            Duration.ofMinutes(2));
    assertThat(second.output()).noneMatch(line -> line.contains("comm.") || line.contains("["));
  }

  @Test
  void theFirstRankMeasuresInAProcessThatKnowsOfNoLauncher() throws Exception {
    List<String> args =
        List.of("bench", "comm", "--quick", "--only", "comm.submit.entries.inprocess");
    List<String> command = new ArrayList<>(ChildProcess.bound(1));
    command.addAll(ChildProcess.command(List.of("-Dfairlead.root=" + StandIn.ROOT), args));
    ChildProcess.Result first =
        ChildProcess.run(
            "rank 0",
            command,
            environment -> environment.put("OMPI_COMM_WORLD_RANK", "0"),
            Duration.ofMinutes(2));
    assertThat(first.output())
        .as("once")
        .filteredOn(line -> line.startsWith("comm.submit.entries.inprocess"))
        .hasSize(1);
  }

  @Test
  void boundRanksAreRowsOfTheirOwn() {
    List<String> ids = new CommSuite().ids(new Suite.Options(false, 64));
    for (Flavour flavour : Flavour.values()) {
      for (Binding binding : Binding.values()) {
        assertThat(ids).contains("comm.1MiB.inline." + flavour.word() + "." + binding.word());
      }
    }
    assertThat(ids).doesNotHaveDuplicates();
    assertThat(new CommSuite().ids(new Suite.Options(true, 64)))
        .noneMatch(id -> id.endsWith(".bound"));
  }

  @Test
  void withoutACompilerThereIsNoBaseline() throws Exception {
    StandInMpi mpi = new StandInMpi(folder);
    InstalledMpi full = mpi.launcher(Flavour.MPICH);
    InstalledMpi bare = new InstalledMpi(Flavour.MPICH, full.launcher(), null);
    StringWriter said = new StringWriter();
    List<Row> rows =
        run(
            said,
            new CommSuite(List.of(bare), folder.resolve("none"), CommWorld.IN_PROCESS),
            "comm.8B.inline.mpich",
            "comm.8B.shift.callback.mpich");
    assertThat(row(rows, "comm.8B.inline.mpich.unbound").missing()).isEqualTo("no baseline");
    assertThat(row(rows, "comm.8B.shift.callback.mpich.unbound").missing()).isNull();
    assertThat(said.toString()).contains("no baseline in C: no compiler for mpich");
  }

  @Test
  void aTransportThatIsNotThereIsSaid() throws Exception {
    StandInMpi mpi = new StandInMpi(folder);
    StringWriter said = new StringWriter();
    List<Row> rows =
        run(
            said,
            new CommSuite(
                List.of(mpi.launcher(Flavour.OPEN_MPI)), mpi.twin("samples x 1"), "pigeons"),
            "comm.submit.p999.openmpi",
            "comm.idle.cpu.openmpi",
            "comm.flood.receiver.openmpi",
            "comm.close.late.openmpi");
    assertThat(rows.stream().map(Row::missing).filter(Objects::nonNull))
        .containsExactly("failed", "failed", "failed");
    assertThat(row(rows, "comm.close.late.openmpi").value()).as("two launches failed").isEqualTo(2);
    assertThat(said.toString()).contains("the transport 'pigeons' cannot be used");
  }

  @Test
  void speedUpsOfVCyclesStandBesideThoseOfHpgmg() throws Exception {
    StandInMpi mpi = new StandInMpi(folder);
    List<InstalledMpi> launchers = List.of(mpi.launcher(Flavour.OPEN_MPI));
    Path twin = mpi.twin("samples x 1");
    mpi.program(
        "hpgmg.sh",
        """
        #!/bin/bash
        [ "$HPGMG" = /its/folder ] || exit 69
        cat > "$2" <<'EOF'
        #!/bin/sh
        echo "===== Warming up by running 10 solves ====="
        echo "           v-cycle= 9  norm=1e-12  rel=6e-12  done (77.5 seconds)"
        echo "===== Running 10 solves ====="
        echo "MGSolve... v-cycle= 1  norm=1e-2  rel=9e-02  "
        echo "           v-cycle= 2  norm=1e-12  rel=6e-12  done (0.$2 seconds)"
        echo "===== Warming up by running 10 solves ====="
        echo "           v-cycle= 9  norm=1e-12  rel=6e-12  done (88.5 seconds)"
        EOF
        chmod +x "$2"
        """);
    StringWriter said = new StringWriter();
    List<Row> rows =
        run(
            said,
            new CommSuite(launchers, twin, CommWorld.IN_PROCESS, "/its/folder"),
            "comm.vcycle.differences.openmpi",
            "comm.vcycle.speedup.openmpi",
            "comm.vcycle.over_hpgmg.openmpi");
    assertThat(row(rows, "comm.vcycle.differences.openmpi").value()).isZero();
    Row speedUp = row(rows, "comm.vcycle.speedup.openmpi");
    assertThat(speedUp.value()).as(said.toString()).isPositive();
    Row beside = row(rows, "comm.vcycle.over_hpgmg.openmpi");
    assertThat(beside.baseline()).as("0.8 over 0.4").isEqualTo(2.0, within(1e-9));
    assertThat(beside.value()).isEqualTo(speedUp.value() / 2, within(1e-9));
    assertThat(beside.must()).isEqualTo(0.85);
  }

  @Test
  void whereNobodySaysWhereHpgmgIsItsRowSaysSo() throws Exception {
    StandInMpi mpi = new StandInMpi(folder);
    StringWriter said = new StringWriter();
    List<Row> rows =
        run(
            said,
            new CommSuite(List.of(mpi.launcher(Flavour.MPICH)), folder.resolve("none"), "pigeons"),
            "comm.vcycle.speedup.mpich",
            "comm.vcycle.over_hpgmg.mpich");
    assertThat(row(rows, "comm.vcycle.over_hpgmg.mpich").missing())
        .isEqualTo("not measured: no HPGMG");
    assertThat(row(rows, "comm.vcycle.speedup.mpich").missing()).isEqualTo("failed");
    assertThat(said.toString()).contains("FAIRLEAD_HPGMG=FOLDER");
  }

  @Test
  void linesOfSamplesAreReadAsTheyAreWritten() {
    String line = SampleLine.text("x", 1.5, 2e9);
    assertThat(line).isEqualTo("samples x 1.50000 2.00000e+09");
    SampleLine read = SampleLine.parse(line).orElseThrow();
    assertThat(read.name()).isEqualTo("x");
    assertThat(read.samples().max()).isEqualTo(2e9, within(1.0));
    assertThat(Stream.of("samples x", "samples", "sample x 1", "").map(SampleLine::parse))
        .containsOnly(Optional.empty());
  }

  // --- the twin
  // -----------------------------------------------------------------------------------

  @Test
  void theTwinIsBuiltAndRunsByEachMpiThatIsHere() throws Exception {
    List<InstalledMpi> launchers =
        InstalledMpi.found().stream().filter(each -> each.compiler() != null).toList();
    if (launchers.isEmpty()) {
      System.err.println("!! NOT RUN: an MPI with its compiler is to build and run the twin in C");
    }
    assumeTrue(!launchers.isEmpty(), "needs an MPI: scripts/install-peers");
    StringWriter said = new StringWriter();
    Path script = StandIn.ROOT.resolve("fairlead-lab/peers/mpi/twin.sh");
    Progress progress = Progress.to(new PrintWriter(said, true), false);
    try (CommRuns runs = new CommRuns(launchers, script, "mpi", null, progress)) {
      for (InstalledMpi launcher : launchers) {
        List<String> parts = List.of("pingpong", "rate", "blobs", "flood");
        Map<String, Samples> samples = runs.twin(launcher, Binding.UNBOUND, SCALE, parts);
        assertThat(samples.keySet())
            .as(launcher.describe() + said)
            .containsExactlyInAnyOrder(
                "half.8",
                "half.1m",
                "rate",
                "blobs",
                "flood.receiver",
                "flood.sender",
                "flood.wrong");
        assertThat(Objects.requireNonNull(samples.get("half.8")).min()).isPositive();
        assertThat(Objects.requireNonNull(samples.get("flood.wrong")).max()).isZero();
      }
    }
  }
}
