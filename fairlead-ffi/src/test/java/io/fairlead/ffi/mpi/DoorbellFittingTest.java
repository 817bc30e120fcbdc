package io.fairlead.ffi.mpi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.ffi.mpi.PeerWatch.ProcessId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntPredicate;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** All ranks of a host have a doorbell, or none has. The ranks are threads of one process here. */
@EnabledOnOs(OS.LINUX)
@Timeout(60)
class DoorbellFittingTest {
  private static final ProcessId SELF = ProcessId.current();

  /** Gives everybody what everybody says. */
  private static final class Threads {
    private final List<MemorySegment> said;
    private final CyclicBarrier barrier;
    final AtomicInteger exchanges = new AtomicInteger();

    Threads(int size) {
      this.said = new ArrayList<>(Collections.nCopies(size, MemorySegment.NULL));
      this.barrier = new CyclicBarrier(size);
    }

    MemorySegment all(int rank, MemorySegment mine) {
      synchronized (said) {
        said.set(rank, mine);
      }
      meet();
      MemorySegment all = Arena.ofAuto().allocate(said.size() * mine.byteSize(), Long.BYTES);
      synchronized (said) {
        for (int each = 0; each < said.size(); each++) {
          all.asSlice(each * mine.byteSize()).copyFrom(said.get(each));
        }
      }
      meet();
      exchanges.incrementAndGet();
      return all;
    }

    private void meet() {
      try {
        barrier.await(20, TimeUnit.SECONDS);
      } catch (Exception e) {
        throw new AssertionError("a rank did not come", e);
      }
    }
  }

  private static List<Optional<Doorbell>> fit(
      Threads threads, List<ProcessId> processes, IntPredicate wanted) throws Exception {
    try (ExecutorService ranks =
        Executors.newThreadPerTaskExecutor(Thread.ofPlatform().factory())) {
      List<Future<Optional<Doorbell>>> futures = new ArrayList<>();
      for (int each = 0; each < processes.size(); each++) {
        int rank = each;
        futures.add(
            ranks.submit(
                () ->
                    Optional.ofNullable(
                        DoorbellFitting.fit(
                            mine -> threads.all(rank, mine), processes, rank, wanted.test(rank)))));
      }
      List<Optional<Doorbell>> bells = new ArrayList<>();
      for (Future<Optional<Doorbell>> future : futures) {
        bells.add(future.get());
      }
      return bells;
    }
  }

  private static void assertNone(List<ProcessId> processes, int exchanges, IntPredicate wanted)
      throws Exception {
    Threads threads = new Threads(processes.size());
    assertThat(fit(threads, processes, wanted)).allMatch(Optional::isEmpty);
    assertThat(threads.exchanges.get()).isEqualTo(exchanges * processes.size());
  }

  @Test
  void ranksOfOneHostRingEachOther() throws Exception {
    List<ProcessId> processes = List.of(SELF, SELF, SELF);
    List<Doorbell> bells =
        fit(new Threads(3), processes, rank -> true).stream().map(Optional::orElseThrow).toList();
    List<Semaphore> rungs = List.of(new Semaphore(0), new Semaphore(0), new Semaphore(0));
    for (int sleeper = 0; sleeper < 3; sleeper++) {
      for (int sender = 0; sender < 3; sender++) {
        if (sender != sleeper) {
          assertThat(bells.get(sleeper).announce(rungs.get(sleeper)::release)).isTrue();
          bells.get(sender).sent(sleeper);
          assertThat(rungs.get(sleeper).tryAcquire(20, TimeUnit.SECONDS)).isTrue();
        }
      }
    }
    bells.forEach(Doorbell::close);
  }

  @Test
  void aRankByItselfNeedsNobody() throws Exception {
    Threads threads = new Threads(1);
    Optional<Doorbell> alone = fit(threads, List.of(SELF), rank -> true).getFirst();
    assertThat(alone).isPresent();
    assertThat(threads.exchanges.get()).isZero();
    alone.orElseThrow().close();
  }

  @Test
  void ranksOfOtherHostsAreNotAskedAndAllNap() throws Exception {
    ProcessId elsewhere = new ProcessId(SELF.host() + 1, SELF.pid(), SELF.start());
    assertNone(List.of(SELF, SELF, elsewhere), 0, rank -> true);
    ProcessId unknown = new ProcessId(0, SELF.pid(), SELF.start());
    assertNone(List.of(unknown, unknown), 0, rank -> true);
  }

  @Test
  void whereOneRankDoesNotWantItAllNap() throws Exception {
    for (int unwilling = 0; unwilling < 3; unwilling++) {
      int which = unwilling;
      assertNone(List.of(SELF, SELF, SELF), 1, rank -> rank != which);
    }
  }

  /** Rank 0 is said to be a process that is not there, so what it has made is not found. */
  @Test
  void whereOneRankCannotMapItAllNap() throws Exception {
    ProcessId nobody = new ProcessId(SELF.host(), Integer.MAX_VALUE, SELF.start());
    assertNone(List.of(nobody, SELF), 2, rank -> true);
  }
}
