package io.fairlead.ffi.mpi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.Launch.Family;
import io.fairlead.ffi.MpiLauncher;
import io.fairlead.sim.TerminationContract;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * What goes wrong between processes ends in words, on the ranks concerned, within a bounded time:
 * no JVM is brought down, nothing hangs.
 */
@Timeout(120)
class MpiTroubleTest {
  private static final int FAILURE = 4;
  private static final int STUCK_SECONDS = 40; // the storm takes one or two

  @TempDir private Path folder;

  /**
   * Says how each rank ended. A launcher ends all of them as soon as one has ended, and whose code
   * it then ends with is not promised, MPICH's not even that it is not a signal's.
   */
  private static final List<String> SAYING_CODES =
      List.of("sh", "-c", "\"$@\"; c=$?; echo \">> a rank ended with $c\"; exit $c", "sh");

  /** How two ranks ended, and what they said. */
  private record Ended(int code, String said) {}

  private static Ended run(Family family, String trouble, String... options) throws Exception {
    return run(MpiJob.launcher(family), List.of(), trouble, options);
  }

  private static Ended run(
      MpiLauncher launcher, List<String> launcherWords, String trouble, String... options)
      throws Exception {
    List<String> command = command(launcher, launcherWords, trouble, options);
    try (MpiJob job = MpiJob.start(command, launcher.environment())) {
      int code = job.await();
      return new Ended(code, job.output());
    }
  }

  private static List<String> command(
      MpiLauncher launcher, List<String> launcherWords, String trouble, String... options) {
    List<String> java = new ArrayList<>(List.of("-Dfairlead.mutants=true"));
    java.addAll(List.of("--add-opens", "java.base/java.lang=ALL-UNNAMED"));
    java.addAll(List.of(options));
    List<String> command = new ArrayList<>(launcher.words(2, MpiLauncher.Binding.NONE));
    command.addAll(launcherWords);
    command.addAll(MpiJob.java(java, MpiTrouble.class, trouble));
    return command;
  }

  /**
   * Truncation stays within what is sent at once: where Open MPI 4.1.4 reads the sender's memory
   * itself, it writes beyond a receive that is too short, in a program in C as well. The protocol
   * above posts receives of the announced length, so that cannot come of a message.
   */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void whatCallersGetWrongIsSaidAndTheRanksGoOn(Family family) throws Exception {
    Ended ended = run(family, "well");
    assertThat(ended.said).contains("rank 0 of 2 has the sum 3.0", "rank 1 of 2 has the sum 3.0");
    // a transfer that is too long
    assertThat(ended.said)
        .containsPattern("rank 1: large failed: MPI_Irecv: .*(?i)truncat")
        .contains("rank 1: short done, 8 bytes", "rank 1: a packet all the same");
    // arguments
    assertThat(ended.said)
        .contains(
            "refused: there is no rank 2", "refused: Comm.ANY is for receives", "refused: tag -1")
        .contains("failed: SIZE_MISMATCH", "failed: CLOSED")
        .contains("rank 0 goes on", "rank 1 goes on")
        .doesNotContain("was not refused", "did not fail");
    // many threads at once
    assertThat(ended.said).contains("rank 0 has received 4800", "rank 1 has received 4800");
    // what is closed
    for (String call :
        List.of("send", "receive", "message", "put", "get", "barrier", "expose", "handle")) {
      assertThat(ended.said)
          .containsPattern(call + " closed: .*rank 0.* closed the communicator")
          .containsPattern(call + " closed: .*rank 1.* closed the communicator");
    }
    assertThat(ended.said)
        .containsPattern("duplicate closed: .*closed the communicator")
        .containsPattern("termination closed: .*closed the communicator")
        .containsPattern("lend closed: .*closed the communicator")
        .containsPattern("affine closed: .*closed the communicator")
        .contains("rank 0 is closed", "rank 1 is closed")
        .doesNotContain("was let in\n");
    assertThat(ended.code).as(ended.said).isZero();
  }

  @Test
  void aRankByItselfNeedsNoLauncher() throws Exception {
    MpiJob.launcher(Family.OPEN_MPI); // where there is one, there is its library
    List<String> command = new ArrayList<>(List.of("/usr/bin/env", "-i"));
    command.addAll(MpiJob.java(List.of(), MpiTrouble.class, "hello"));
    try (MpiJob job = MpiJob.start(command, Map.of())) {
      int code = job.await();
      assertThat(job.output()).contains("rank 0 of 1 has the sum 1.0");
      assertThat(code).as(job.output()).isZero();
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void ranksOfOtherVersionsAreFoundBeforeTheFirstMessage(Family family) throws Exception {
    Ended ended = run(MpiJob.launcher(family), SAYING_CODES, "versions");
    assertThat(ended.said).contains("use the same MPI library on all ranks").contains("(altered)");
    assertFailed(ended);
  }

  /** It is found in the environment, before anything starts, so nothing need be launched. */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void aLibraryThatTheLauncherDoesNotKnowIsRefused(Family family) throws Exception {
    MpiJob.launcher(Family.OPEN_MPI);
    MpiJob.launcher(Family.MPICH);
    boolean mpich = family == Family.MPICH;
    Map<String, String> launched =
        mpich
            ? Map.of("PMI_RANK", "0", "PMI_SIZE", "2")
            : Map.of("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2");
    String other = mpich ? "libmpi.so.40" : "libmpich.so.12";
    Ended ended = alone(launched, "-D" + MpiLibrary.PROPERTY + "=" + other);
    assertThat(ended.said).contains("started this process, but " + other + " is");
    assertThat(ended.code).as(ended.said).isEqualTo(FAILURE);
  }

  private static Ended alone(Map<String, String> environment, String option) throws Exception {
    List<String> command = MpiJob.java(List.of(option), MpiTrouble.class, "hello");
    try (MpiJob job = MpiJob.start(command, environment)) {
      int code = job.await();
      return new Ended(code, job.output());
    }
  }

  @Test
  void aLibraryThatIsMissingIsSaid() throws Exception {
    Ended ended = alone(Map.of(), "-D" + MpiLibrary.PROPERTY + "=/nowhere/libmpi.so");
    assertThat(ended.said)
        .contains("/nowhere/libmpi.so cannot be loaded")
        .contains("install Open MPI (Debian: libopenmpi-dev openmpi-bin) or MPICH");
    assertThat(ended.code).as(ended.said).isEqualTo(FAILURE);
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void aRankThatDoesNotComeIsNotWaitedForForEver(Family family) throws Exception {
    String second = "-D" + Introduction.SECONDS_PROPERTY + "=1";
    Ended ended = run(MpiJob.launcher(family), SAYING_CODES, "late", second);
    assertThat(ended.said).contains("not all ranks came within 1 s");
    assertFailed(ended);
  }

  private static void assertFailed(Ended ended) {
    assertThat(ended.said).contains(">> a rank ended with " + FAILURE);
    assertThat(ended.code).as(ended.said).isNotZero();
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void aKilledRankEndsTheJob(Family family) throws Exception {
    Ended ended = run(family, "killed");
    assertThat(ended.code).as(ended.said).isNotZero();
  }

  /**
   * Told to let the others live, a launcher says nothing to them, or nothing that they can wait
   * for: they see it themselves. MPICH's lives with a rank that ends, not with one that is killed,
   * so a shell stands in between.
   */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void whoWaitsForAKilledRankIsTold(Family family) throws Exception {
    Ended ended = run(MpiJob.launcher(family), lettingOthersLive(family), "killed");
    // The launchers' own codes say little then: one is 0, the other that of the signal.
    assertThat(ended.said).contains("receive").contains("rank 1 (process ").contains("has ended");
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void whoWaitsForTheWorkOfAKilledRankIsTold(Family family) throws Exception {
    Ended ended = run(MpiJob.launcher(family), lettingOthersLive(family), "killed-at-work");
    assertThat(ended.said)
        .containsPattern("epoch 1 on rank 0: .*rank 1 \\(process \\d+\\) has ended");
  }

  /**
   * A rank that gives MPI up meets nobody in its end. Open MPI's launcher tells the others that it
   * has gone; MPICH's does not, and they see its process end.
   */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void whoGivesMpiUpIsNotWaitedForForEver(Family family) throws Exception {
    Ended ended = run(MpiJob.launcher(family), lettingOthersLive(family), "one-gives-up");
    assertThat(ended.said).contains("rank 1 is through", "rank 0 is through");
  }

  private static List<String> lettingOthersLive(Family family) {
    return family == Family.MPICH
        ? List.of("-disable-auto-cleanup", "sh", "-c", "trap '' USR1; \"$@\"; exit $?", "sh")
        : List.of("--enable-recovery");
  }

  /** The contract of the detection of termination, by two processes. */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void theEndOfWorkIsFoundByProcesses(Family family) throws Exception {
    for (String threads : List.of("serialized", "funneled")) {
      Ended ended = run(family, "termination", "-D" + MpiProcess.THREADS_PROPERTY + "=" + threads);
      int rules = 2 * TerminationContract.values().length; // each with two seeds
      assertThat(ended.said)
          .contains("rank 0 has kept " + rules + " rules", "rank 1 has kept " + rules + " rules");
      assertThat(ended.code).as(ended.said).isZero();
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void aStrangerDoesNotEnterAtFunneled(Family family) throws Exception {
    Ended ended = run(family, "thread", "-D" + MpiProcess.THREADS_PROPERTY + "=funneled");
    assertThat(ended.said)
        .contains("enters MPI on another thread than opened it")
        .doesNotContain("it was let in")
        .contains("rank 0 goes on", "rank 1 goes on");
    assertThat(ended.code).as(ended.said).isZero();
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void theEngineLetsInOneThreadAtFunneled(Family family) throws Exception {
    Ended ended = run(family, "storm", "-D" + MpiProcess.THREADS_PROPERTY + "=funneled");
    assertThat(ended.said).contains("rank 0 has received 4800", "rank 1 has received 4800");
    assertThat(ended.code).as(ended.said).isZero();
  }

  /** The next communicator has its number, if it is freed. */
  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void whatComesTooLateForAWireIsNotGivenToTheNext(Family family) throws Exception {
    String closed = "-Dfairlead.test.spoken=" + folder.resolve(family.name());
    Ended ended = run(family, "too-late", closed);
    assertThat(ended.said).contains("rank 0 has packets [2]", "rank 1 has packets [2]");
    assertThat(ended.code).as(ended.said).isZero();
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void whoSleepsIsWokenByAPacket(Family family) throws Exception {
    Ended ended = run(family, "rest");
    assertThat(ended.said)
        .contains("rank 0 was rung, and slept: true", "rank 1 was rung, and slept: true");
    assertThat(ended.code).as(ended.said).isZero();
  }

  @Test
  void aPacketThatRingsNobodyIsFound() throws Exception {
    Ended ended = run(Family.OPEN_MPI, "rest-unrung");
    assertThat(ended.said).contains("was not rung");
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void loopsRestAtEveryLevelOfThreads(Family family) throws Exception {
    for (String threads : List.of("serialized", "funneled")) {
      Ended ended = run(family, "loops-rest", "-D" + MpiProcess.THREADS_PROPERTY + "=" + threads);
      assertThat(ended.said).contains("rank 0 has rested", "rank 1 has rested");
      assertThat(ended.code).as(ended.said).isZero();
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void ranksWithoutADoorbellNap(Family family) throws Exception {
    Ended ended = run(family, "hello", "-D" + DoorbellFitting.PROPERTY + "=off");
    assertThat(ended.said).contains("rank 0 of 2 has the sum 3.0", "rank 1 of 2 has the sum 3.0");
    assertThat(ended.code).as(ended.said).isZero();
  }

  @Test
  void aDoorbellThatIsNeitherOnNorOffIsRefused() throws Exception {
    Ended ended = alone(Map.of(), "-D" + DoorbellFitting.PROPERTY + "=loud");
    assertThat(ended.said).contains("is 'loud'; it must be on or off");
    assertThat(ended.code).as(ended.said).isEqualTo(FAILURE);
  }

  /**
   * With two threads inside, MPICH ends with its own assertion, or is stuck for good: without that,
   * the storms would show little.
   */
  @Test
  void mpichDoesNotStandTwoThreadsInside() throws Exception {
    MpiLauncher launcher = MpiJob.launcher(Family.MPICH);
    List<String> command =
        command(
            launcher,
            List.of(),
            "storm-without-door",
            "-D" + MpiProcess.THREADS_PROPERTY + "=funneled",
            "-XX:-CreateCoredumpOnCrash",
            "-XX:ErrorFile=/dev/null");
    try (MpiJob job = MpiJob.start(command, launcher.environment())) {
      if (job.endsWithin(STUCK_SECONDS)) {
        assertThat(job.await()).as(job.output()).isNotZero();
      } else {
        assertThat(job.output()).doesNotContain("has received");
      }
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"OPEN_MPI", "MPICH"})
  void aRankThatFailsTellsTheOthersWhy(Family family) throws Exception {
    String spoken = "-Dfairlead.test.spoken=" + folder.resolve(family.name());
    Ended ended = run(family, "fails-and-stays", spoken);
    assertThat(ended.said)
        .contains("receive of 8 bytes from rank 1, tag 7 on rank 0: rank 1 failed: ")
        .contains("the third wheel came off");
  }
}
