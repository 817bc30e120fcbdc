package io.fairlead.ffi.mpi;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.Mutant;
import io.fairlead.ffi.posix.NamelessFile;
import java.io.BufferedReader;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** Who sleeps is woken, by whoever sends, also by another process. */
@EnabledOnOs(OS.LINUX)
@Timeout(100)
class DoorbellTest {
  private static final long MARK = 0xD00_BE11L;
  private static final int ROUNDS = 3_000;

  /** Two ranks of one process; the second one's bell lets go of a permit. */
  private static final class Pair implements AutoCloseable {
    private final NamelessFile file;
    final Doorbell sender;
    final Doorbell sleeper;
    final Semaphore rung = new Semaphore(0);

    Pair() throws IOException {
      this.file = NamelessFile.create(Doorbell.bytes(2), MARK);
      this.sender = new Doorbell(file.memory(), 0, 2);
      this.sleeper = new Doorbell(file.memory(), 1, 2);
    }

    boolean announce() {
      return sleeper.announce(rung::release);
    }

    boolean isRung() throws InterruptedException {
      return rung.tryAcquire(20, TimeUnit.SECONDS);
    }

    @Override
    public void close() {
      sender.close();
      sleeper.close();
      file.close();
    }
  }

  @Test
  void whoSleepsIsRungOnceAndWhoIsAwakeIsNot() throws Exception {
    try (Pair pair = new Pair()) {
      pair.sender.sent(1);
      assertThat(pair.sleeper.isAsleep()).isFalse();
      for (int round = 1; round <= 10; round++) {
        assertThat(pair.announce()).isTrue();
        assertThat(pair.announce()).as("it stays announced").isTrue();
        assertThat(pair.sleeper.isAsleep()).isTrue();
        pair.sender.sent(1);
        assertThat(pair.sleeper.isAsleep()).isFalse();
        pair.sender.sent(1); // it is awake
        assertThat(pair.isRung()).isTrue();
        assertThat(pair.sleeper.heard()).isEqualTo(round);
      }
      assertThat(pair.rung.availablePermits()).isZero();
    }
  }

  /** At once, without the doorman; and a rest that is withdrawn needs no bell. */
  @Test
  void aRankThatBeginsSomethingRingsItself() throws Exception {
    try (Pair pair = new Pair()) {
      pair.sleeper.stir();
      assertThat(pair.rung.availablePermits()).isZero();
      assertThat(pair.announce()).isTrue();
      pair.sleeper.stir();
      assertThat(pair.rung.tryAcquire()).isTrue();
      assertThat(pair.sleeper.isAsleep()).isFalse();
      assertThat(pair.announce()).isTrue();
      pair.sleeper.withdraw();
      assertThat(pair.sleeper.isAsleep()).isFalse();
      pair.sender.sent(1);
      // The doorman may have missed two that were none of his, or come to them late and rung.
      assertThat(pair.announce()).isTrue();
      pair.rung.drainPermits();
      pair.sender.sent(1);
      assertThat(pair.isRung()).isTrue();
    }
  }

  @Test
  void aRankWithoutPeersRestsToo() {
    try (Doorbell alone = Doorbell.alone()) {
      Semaphore rung = new Semaphore(0);
      assertThat(alone.announce(rung::release)).isTrue();
      alone.stir();
      assertThat(rung.availablePermits()).isEqualTo(1);
    }
  }

  @Test
  void afterTheEndNobodySleepsAndARingIsHarmless() throws Exception {
    try (Pair pair = new Pair()) {
      assertThat(pair.announce()).isTrue();
      pair.sleeper.close();
      assertThat(pair.announce()).isFalse();
      pair.sender.sent(1);
      pair.sleeper.close();
    }
  }

  @Test
  void aBellThatIsNotRungIsFound() throws Exception {
    try (Mutant.Handle _ = Mutant.enable("doorbell.never-rings");
        Pair pair = new Pair()) {
      assertThat(pair.announce()).isTrue();
      pair.sender.sent(1);
      assertThat(pair.sleeper.isAsleep()).isTrue();
    }
  }

  // --- two processes ----------------------------------------------------------------------------

  /**
   * Each waits for the other's number without an end, so that a ring which is lost makes it hang;
   * with pauses of random length, so that sends fall on all sides of the announcement.
   */
  @Test
  void noRingIsLostBetweenProcesses() throws Exception {
    long seed = System.nanoTime();
    System.out.println("DoorbellTest seed " + seed);
    try (NamelessFile file = NamelessFile.create(DoorbellRank.bytes(), MARK)) {
      Process other = start(file, "exchange", Integer.toString(ROUNDS), Long.toString(seed + 1));
      DoorbellRank rank = new DoorbellRank(file.memory(), 0);
      try {
        int slept = rank.exchange(ROUNDS, seed);
        assertThat(other.waitFor()).as(said(other)).isZero();
        System.out.println("rank 0 slept in " + slept + " of " + ROUNDS + " rounds");
        assertThat(slept).isPositive();
      } finally {
        other.destroyForcibly();
      }
      rank.close();
    }
  }

  /** It leaves nothing behind, and nobody who rings it is held up. */
  @Test
  void aRankThatIsKilledInItsSleepHoldsNobodyUp() throws Exception {
    try (NamelessFile file = NamelessFile.create(DoorbellRank.bytes(), MARK)) {
      Process other = start(file, "sleep");
      BufferedReader said = other.inputReader();
      assertThat(said.readLine()).isEqualTo("asleep");
      other.destroyForcibly().waitFor();
      try (Doorbell bell = new Doorbell(file.memory(), 0, 2)) {
        bell.sent(1);
        bell.sent(1);
        Semaphore rung = new Semaphore(0);
        assertThat(bell.announce(rung::release)).isTrue();
        bell.stir();
        assertThat(rung.tryAcquire()).isTrue();
      }
    }
  }

  /** The memory was made by a process that is killed; who has it goes on. */
  @Test
  void theMemoryOutlivesItsMaker() throws Exception {
    Process maker = start(null, "make");
    MemorySegment memory;
    try (BufferedReader said = maker.inputReader()) {
      int number = Integer.parseInt(said.readLine());
      memory = NamelessFile.open(maker.pid(), number, DoorbellRank.bytes(), MARK);
      maker.destroyForcibly().waitFor();
    }
    try (Doorbell one = new Doorbell(memory, 0, 2);
        Doorbell two = new Doorbell(memory, 1, 2)) {
      Semaphore rung = new Semaphore(0);
      assertThat(two.announce(rung::release)).isTrue();
      one.sent(1);
      assertThat(rung.tryAcquire(20, TimeUnit.SECONDS)).isTrue();
    }
  }

  private static Process start(@Nullable NamelessFile file, String... words) throws IOException {
    List<String> arguments = new ArrayList<>(List.of(words));
    if (file != null) {
      arguments.add(1, Long.toString(ProcessHandle.current().pid()));
      arguments.add(2, Integer.toString(file.number()));
    }
    List<String> command =
        MpiJob.java(List.of(), DoorbellRank.class, arguments.toArray(String[]::new));
    return new ProcessBuilder(command).redirectErrorStream(true).start();
  }

  private static String said(Process process) throws IOException {
    return new String(process.getInputStream().readAllBytes(), UTF_8);
  }
}
