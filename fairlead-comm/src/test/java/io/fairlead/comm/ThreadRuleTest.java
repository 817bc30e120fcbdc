package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static io.fairlead.comm.World.value;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.fault.Mutant;
import io.fairlead.task.CarrierMode;
import io.fairlead.task.Collected;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Who enters a transport, watched at its door under load (rows 004.1, 004.2). */
@Timeout(300)
class ThreadRuleTest {
  private static final Duration SOON = Duration.ofSeconds(60);
  private static final int SIZE = 3;

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void atEveryLevelTheRuleHoldsUnderLoad_row004_1_and_2(ThreadLevel level) {
    try (World world = GuardedTransport.world(SIZE, level, CommConfig.DEFAULT)) {
      long shiftedByManagers = load(world, 300);
      assertThat(GuardedTransport.violations(world)).isEmpty();
      assertThat(GuardedTransport.entries(world)).isGreaterThan(3_000);
      assertThat(shiftedByManagers).isGreaterThanOrEqualTo(SIZE * 300L);
    }
  }

  /** A library that has to be polled: tasks that wait look themselves where they may. */
  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void soItDoesWhereTheTransportIsPolled(ThreadLevel level) {
    TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    try (World world = GuardedTransport.world(tasks, SIZE, level, CommConfig.DEFAULT, true)) {
      load(world, 100);
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  /** It may stop looking at any time, and the loop naps the longer the more tasks look. */
  @Test
  void aTaskThatFindsWhatAnotherWaitsForWakesTheLoop() {
    TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    try (World world =
        GuardedTransport.world(tasks, 1, ThreadLevel.SERIALIZED, CommConfig.DEFAULT, true)) {
      CommEngine engine = world.rank(0).engine();
      CommLoop loop = engine.loop();
      Completion.Source<String> another = engine.source();
      Completion.Source<Long> mine = engine.source();
      Thread self = Thread.currentThread();
      long before = loop.rings();
      ((GuardedTransport) engine.transport).found =
          () -> {
            if (Thread.currentThread() != self) {
              return 0;
            }
            if (another.completion().isDone()) {
              engine.end(() -> mine.complete(loop.rings()));
            } else {
              engine.end(() -> another.complete("found"));
            }
            return 1;
          };
      assertThat(mine.completion().await(WaitMode.SPIN, SOON)).isEqualTo(before + 1);
      assertThat(another.completion().await(SOON)).isEqualTo("found");
      assertThat(loop.rings()).as("not for its own").isEqualTo(before + 1);
    }
  }

  /** As a long send, which ends before the answer to it comes: whoever asks for it will see. */
  @Test
  void aTaskThatFindsWhatNobodyWaitsForLetsTheLoopSleep() {
    TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    try (World world =
        GuardedTransport.world(tasks, 1, ThreadLevel.SERIALIZED, CommConfig.DEFAULT, true)) {
      CommEngine engine = world.rank(0).engine();
      CommLoop loop = engine.loop();
      MemorySegment[] memory = {memory(1)};
      Sending send = new Sending(engine, 0, 0, 1, memory);
      Completion<?> sent = send.completion();
      Receiving receive = new Receiving(engine, 0, 0, 1, memory);
      Completion<Received> received = receive.completion();
      Completion.Source<Long> mine = engine.source();
      Thread self = Thread.currentThread();
      long before = loop.rings();
      ((GuardedTransport) engine.transport).found =
          () -> {
            if (Thread.currentThread() != self) {
              return 0;
            }
            if (!sent.isDone()) {
              send.sent();
            } else if (!received.isDone()) {
              receive.received(0, 1, null);
            } else {
              engine.end(() -> mine.complete(loop.rings()));
            }
            return 1;
          };
      assertThat(mine.completion().await(WaitMode.SPIN, SOON)).isEqualTo(before);
      assertThat(sent.isDone()).isTrue();
      assertThat(received.isDone()).isTrue();
    }
  }

  /** What the loop would find they find before it; it would only take their processor. */
  @Test
  void theLoopGoesAsideWhileATaskLooks() {
    TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    try (World world =
            GuardedTransport.world(tasks, 1, ThreadLevel.SERIALIZED, CommConfig.DEFAULT, true);
        TaskScope<String> scope = tasks.scope()) {
      CommEngine engine = world.rank(0).engine();
      CommLoop loop = engine.loop();
      Completion.Source<String> end = engine.source();
      scope.fork(() -> end.completion().await(WaitMode.SPIN));
      Eventually.holds("the loop goes aside", () -> onLoop(loop, loop::isLookedFor));
      end.complete("found");
      scope.join();
      Eventually.holds("it looks itself again", () -> !onLoop(loop, loop::isLookedFor));
    }
  }

  private static boolean onLoop(CommLoop loop, BooleanSupplier asked) {
    Completion.Source<Boolean> answer = Completion.source();
    loop.push(new CommEngine.Callback(() -> answer.complete(asked.getAsBoolean())));
    return answer.completion().await(SOON);
  }

  @Test
  void theMutantThatSkipsTheShiftIsFound() {
    try (World world = GuardedTransport.world(SIZE, ThreadLevel.MULTIPLE, CommConfig.DEFAULT);
        Mutant.Handle skip = Mutant.enable("comm.shift.skip")) {
      assertThat(skip).isNotNull();
      load(world, 20);
      assertThat(GuardedTransport.violations(world))
          .isNotEmpty()
          .allMatch(violation -> violation.endsWith("by DEVICE_MANAGER"));
    }
  }

  /** Tasks exchange, while device managers open gates, send, receive and cancel by themselves. */
  private static long load(World world, int rounds) {
    List<Owner> managers = new ArrayList<>();
    for (int i = 0; i < SIZE; i++) {
      managers.add(world.tasks.owner("manager-" + i, Role.DEVICE_MANAGER));
    }
    try (TaskScope<String> scope = world.tasks.scope()) {
      for (Comm comm : world.ranks) {
        scope.fork(() -> gatedRing(comm, managers.get(comm.rank()), rounds));
        scope.fork(() -> plainRing(comm, rounds));
        scope.fork(() -> managersRing(comm, managers.get(comm.rank()), rounds));
        scope.fork(() -> oneSided(comm, rounds));
        if (world.tasks.carriers().mode() == CarrierMode.OWN) {
          scope.fork(() -> comm.affine(() -> affineRing(comm, rounds)).await(SOON));
        }
      }
      scope.join();
    }
    return world.ranks.stream().mapToLong(comm -> comm.stats().shifted()).sum();
  }

  /** The gate of every send is opened on a device manager. */
  private static String gatedRing(Comm comm, Owner manager, int rounds) {
    for (int i = 0; i < rounds; i++) {
      MemorySegment into = memory(300);
      Completion<Received> received = comm.receive((comm.rank() + 2) % SIZE, 1, into);
      Completion<String> gate = manager.call(() -> "computed");
      comm.send((comm.rank() + 1) % SIZE, 1, gate, Blob.of(bytes(300, i))).await(SOON);
      received.await(SOON);
      assertThat(into.mismatch(bytes(300, i))).isEqualTo(-1);
    }
    return "done";
  }

  private static String plainRing(Comm comm, int rounds) {
    double[] sum = new double[2];
    for (int i = 0; i < rounds; i++) {
      Completion<Received> received = comm.receive((comm.rank() + 1) % SIZE, 2, memory(5000));
      comm.send((comm.rank() + 2) % SIZE, 2, bytes(5000, i)).await(SOON);
      received.await(SOON);
      sum[0] = comm.rank();
      comm.allReduce(sum, ReduceOp.SUM).await(SOON);
      assertThat(sum[0]).isEqualTo(3);
      comm.receive(0, 99).cancel();
    }
    return "done";
  }

  /** Everything from a device manager: the calls themselves are shifted. */
  private static String managersRing(Comm comm, Owner manager, int rounds) {
    for (int i = 0; i < rounds; i++) {
      int round = i;
      MemorySegment into = memory(8);
      List<Completion<?>> parts = new ArrayList<>();
      manager
          .call(
              () -> {
                parts.add(comm.receive((comm.rank() + 2) % SIZE, 3, into));
                parts.add(comm.send((comm.rank() + 1) % SIZE, 3, longs(round)));
                Completion<Received> unwanted = comm.receive(0, 98);
                parts.add(unwanted.cancel() ? Completion.completed("cancelled") : unwanted);
                return "posted";
              })
          .await(SOON);
      parts.forEach(part -> part.await(SOON));
      assertThat(value(into)).isEqualTo(round);
    }
    return "done";
  }

  /** On the communication thread itself, beside its handlers and what was shifted to it. */
  private static String affineRing(Comm comm, int rounds) {
    MemorySegment into = memory(700);
    for (int i = 0; i < rounds; i++) {
      Completion<Received> received = comm.receive((comm.rank() + 2) % SIZE, 4, into);
      comm.send((comm.rank() + 1) % SIZE, 4, bytes(700, i)).await(SOON);
      received.await(SOON);
      assertThat(into.mismatch(bytes(700, i))).isEqualTo(-1);
    }
    return "done";
  }

  /** Puts into the next rank's window, and tells it by a message. */
  private static String oneSided(Comm comm, int rounds) {
    int next = (comm.rank() + 1) % SIZE;
    MemorySegment memory = memory(8);
    try (Window window = comm.expose(memory).await(SOON)) {
      comm.send((comm.rank() + 2) % SIZE, 5, longs(window.key())).await(SOON);
      long key = value(comm.receive(next, 5).await(SOON).data());
      for (int i = 1; i <= rounds; i++) {
        comm.put(next, key, 0, longs(i)).await(SOON);
        comm.send(next, 6, longs(i)).await(SOON);
        comm.receive((comm.rank() + 2) % SIZE, 6).await(SOON);
        assertThat(value(memory)).isEqualTo(i);
        comm.send((comm.rank() + 2) % SIZE, 7, longs(i)).await(SOON);
        comm.receive(next, 7).await(SOON);
      }
      MemorySegment got = memory(8);
      comm.get(next, key, 0, got).await(SOON);
      assertThat(value(got)).isEqualTo(rounds);
      comm.send(next, 8, longs(0)).await(SOON); // it may close its window
      comm.receive((comm.rank() + 2) % SIZE, 8).await(SOON);
    }
    return "done";
  }

  @Test
  void aCleanerNeverEntersAndItsSendArrives() throws InterruptedException {
    try (World world = GuardedTransport.world(2, ThreadLevel.MULTIPLE, CommConfig.DEFAULT)) {
      CountDownLatch cleaned = new CountDownLatch(1);
      Comm comm = world.rank(0);
      Collected.register(
          new Object(),
          () -> {
            comm.send(1, 1, longs(Role.current() == Role.CLEANER ? 1 : 0));
            cleaned.countDown();
          });
      for (int i = 0; i < 300 && !cleaned.await(100, TimeUnit.MILLISECONDS); i++) {
        System.gc();
      }
      assertThat(cleaned.getCount()).isZero();
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(1);
      assertThat(GuardedTransport.violations(world)).isEmpty();
      assertThat(comm.stats().shifted()).isEqualTo(1);
    }
  }

  @Test
  void aFullQueueRefusesWhoMustNotWaitAndSaysWhatToDo() throws Exception {
    CommConfig config = CommConfig.DEFAULT.withSlots(1, 4);
    try (World world = GuardedTransport.world(2, ThreadLevel.MULTIPLE, config)) {
      Comm comm = world.rank(0);
      CountDownLatch blocked = new CountDownLatch(1);
      CountDownLatch inside = new CountDownLatch(1);
      comm.handle(
          1,
          (source, header, blobs) -> {
            inside.countDown();
            try {
              blocked.await();
            } catch (InterruptedException e) {
              Thread.currentThread().interrupt();
            }
          });
      comm.message(0, 1, memory(0)).await(SOON);
      inside.await();
      Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
      List<Completion<?>> sends = new ArrayList<>();
      manager
          .call(
              () -> {
                for (int i = 0; i < 6; i++) {
                  sends.add(comm.send(1, 1, longs(i)));
                }
                return "posted";
              })
          .await(SOON);
      assertThat(sends.subList(0, 4)).noneMatch(Completion::isDone);
      for (Completion<?> refused : sends.subList(4, 6)) {
        CommException failure = (CommException) refused.cause();
        assertThat(failure.reason()).isEqualTo(Reason.BACK_PRESSURE);
        assertThat(failure).hasMessageContaining("a send with 'after'");
      }
      assertThat(comm.stats().refused()).isEqualTo(2);
      blocked.countDown();
      sends.subList(0, 4).forEach(send -> send.await(SOON));
    }
  }

  @Test
  void aGatedSendIsNeverRefusedHoweverFullTheQueueIs_row004_6() throws Exception {
    CommConfig config = CommConfig.DEFAULT.withSlots(1000, 1);
    try (World world = GuardedTransport.world(2, ThreadLevel.FUNNELED, config)) {
      Comm comm = world.rank(0);
      Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
      List<Completion.Source<String>> gates = new ArrayList<>();
      List<Completion<?>> sends = new ArrayList<>();
      for (int i = 0; i < 1000; i++) {
        gates.add(Completion.source());
        sends.add(comm.send(1, i, gates.get(i).completion(), Blob.of(longs(i))));
      }
      manager
          .call(
              () -> {
                gates.forEach(gate -> gate.complete("done"));
                return "all";
              })
          .await(SOON);
      sends.forEach(send -> send.await(SOON));
      for (int i = 0; i < 1000; i++) {
        assertThat(value(world.rank(1).receive(0, i).await(SOON).data())).isEqualTo(i);
      }
      assertThat(comm.stats().refused()).isZero();
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void callbacksSendOnAtEveryLevel(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      int hops = 200;
      Completion.Source<Long> end = Completion.source();
      relay(world, 0, hops, end);
      relay(world, 1, hops, end);
      world.rank(0).send(1, 0, longs(1)).await(SOON);
      assertThat(end.completion().await(SOON)).isEqualTo(hops);
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  /** Receives, and in the callback receives again and sends on. */
  private static void relay(World world, int rank, int hops, Completion.Source<Long> end) {
    Comm comm = world.rank(rank);
    comm.receive(1 - rank, 0)
        .onDone(
            done -> {
              if (done.state() != Completion.State.DONE) {
                return;
              }
              long hop = value(done.getNow().data());
              if (hop == hops) {
                end.complete(hop);
                return;
              }
              relay(world, rank, hops, end);
              comm.send(1 - rank, 0, longs(hop + 1));
            });
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void messagesDuplicatesAndClosingKeepTheRuleAtEveryLevel(ThreadLevel level) {
    World world = GuardedTransport.world(2, level, CommConfig.DEFAULT);
    List<Comm> duplicates = new ArrayList<>();
    world.ranks.forEach(rank -> duplicates.add(rank.duplicate()));
    Completion.Source<Long> seen = Completion.source();
    duplicates.get(1).handle(1, (source, header, blobs) -> seen.complete(value(header)));
    duplicates.get(0).message(1, 1, longs(5)).await(SOON);
    assertThat(seen.completion().await(SOON)).isEqualTo(5);
    Completion<Received> pending = duplicates.get(0).receive(1, 9);
    Completion<?> barrier = world.rank(1).barrier();
    world.close();
    assertThat(pending.isDone()).isTrue();
    assertThat(barrier.isDone()).isTrue();
    assertThat(GuardedTransport.violations(world)).isEmpty();
  }

  @Test
  void aManagerMayClose() {
    SplittableRandom random = new SplittableRandom(1);
    for (int i = 0; i < 20; i++) {
      World world = GuardedTransport.world(2, ThreadLevel.MULTIPLE, CommConfig.DEFAULT);
      Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
      Completion<Received> pending = world.rank(random.nextInt(2)).receive(1, 9);
      manager
          .call(
              () -> {
                world.rank(1).close();
                return "closing";
              })
          .await(SOON);
      assertThat(waitFor(pending)).isInstanceOf(CommException.class);
      world.close();
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  private static Throwable waitFor(Completion<?> completion) {
    Completion.Source<Throwable> cause = Completion.source();
    completion.onDone(done -> cause.complete(done.cause()));
    return cause.completion().await(SOON);
  }
}
