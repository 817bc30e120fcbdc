package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;

import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;

/** Tasks on an owner's thread. */
@Timeout(60)
@DisabledIfSystemProperty(
    named = "fairlead.test.closed",
    matches = "true",
    disabledReason = "there are no own carriers where the package is closed")
@SuppressWarnings("ThreadPriorityCheck") // a yield is one more way to suspend
class OwnerAffineTest {
  private static final Duration SOON = Duration.ofSeconds(30);

  private TaskRuntime runtime;
  private Owner owner;

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.OWN));
    owner = runtime.owner("affine", Role.OWNER);
  }

  @AfterEach
  void close() {
    runtime.close();
  }

  @Test
  void itRunsOnTheOwnersThreadBeforeAndAfterItWaits() {
    Thread home = owner.call(Thread::currentThread).await();
    List<Thread> seen =
        owner
            .affine(
                () -> {
                  List<Thread> carriers = new ArrayList<>();
                  for (int i = 0; i < 100; i++) {
                    carriers.add(VirtualThreads.carrier());
                    Eventually.suspend();
                    Thread.yield();
                    LockSupport.parkNanos(1_000);
                  }
                  assertThat(Thread.currentThread().isVirtual()).isTrue();
                  assertThat(owner.isOwnerThread()).isTrue();
                  assertThat(Role.current()).isEqualTo(Role.TASK);
                  return carriers;
                })
            .await();
    assertThat(seen).hasSize(100).allMatch(home::equals);
  }

  @Test
  void theOwnerGoesOnWhileItWaits() {
    Completion.Source<Integer> later = Completion.source();
    Completion<Integer> waits = owner.affine(() -> later.completion().await());
    assertThat(owner.call(() -> 1).await()).isEqualTo(1);
    assertThat(waits.isDone()).isFalse();
    owner.call(() -> later.complete(2)).await();
    assertThat(waits.await()).isEqualTo(2);
  }

  @Test
  void itEntersTheOwnersEngineAtOnce() {
    Gate gate = Gate.of("e", ThreadRule.OWNER_ONLY, owner, Set.of(), null);
    Thread home = owner.call(Thread::currentThread).await();
    Thread inside = owner.affine(() -> gate.call("look", VirtualThreads::carrier)).await();
    assertThat(inside).isSameAs(home);
    assertThat(owner.affine(() -> gate.decide(Role.current())).await()).isEqualTo(Gate.Way.DIRECT);
    assertThat(gate.decide(Role.TASK)).isEqualTo(Gate.Way.SHIFT);
  }

  @Test
  void whatItStartsPlainlyRunsElsewhere() throws InterruptedException {
    Thread home = owner.call(Thread::currentThread).await();
    AtomicReference<Thread> seen = new AtomicReference<>();
    Thread child =
        owner
            .affine(() -> Thread.startVirtualThread(() -> seen.set(VirtualThreads.carrier())))
            .await();
    child.join();
    assertThat(seen.get()).isNotSameAs(home).isInstanceOf(Carrier.class);
  }

  @Test
  void manyOfThemWakeEachOther() {
    AtomicInteger turn = new AtomicInteger();
    int tasks = 50;
    Thread[] threads = new Thread[tasks];
    CountDownLatch begun = new CountDownLatch(tasks);
    List<Completion<Integer>> all = new ArrayList<>();
    for (int t = 0; t < tasks; t++) {
      int me = t;
      all.add(
          owner.affine(
              () -> {
                threads[me] = Thread.currentThread();
                begun.countDown();
                begun.await();
                for (int i = 0; i < 100; i++) {
                  while (turn.get() % tasks != me) {
                    LockSupport.park();
                  }
                  turn.incrementAndGet();
                  LockSupport.unpark(threads[(me + 1) % tasks]);
                }
                return me;
              }));
    }
    assertThat(Completion.all(all).await(Duration.ofSeconds(30))).hasSize(tasks);
    assertThat(turn).hasValue(tasks * 100);
  }

  @Test
  void cancellingItsCompletionCancelsIt() {
    CountDownLatch begun = new CountDownLatch(1);
    Completion.Source<Throwable> ended = Completion.source();
    Completion<Integer> waits =
        owner.affine(
            () -> {
              begun.countDown();
              try {
                return Completion.<Integer>source().completion().await();
              } catch (TaskCancelledException e) {
                ended.complete(e);
                throw e;
              }
            });
    runtime.enter("starter", 0, () -> begun.await(30, java.util.concurrent.TimeUnit.SECONDS));
    waits.cancel();
    assertThat(ended.completion().await(Duration.ofSeconds(30)))
        .isInstanceOf(TaskCancelledException.class);
    assertThatExceptionOfType(TaskCancelledException.class).isThrownBy(waits::await);
  }

  @Test
  void theOwnersEndWaitsForIt() {
    Completion.Source<Integer> later = Completion.source();
    CountDownLatch begun = new CountDownLatch(1);
    Completion<Integer> waits =
        owner.affine(
            () -> {
              begun.countDown();
              int value = later.completion().await();
              owner.close(); // from within: returns at once
              return value;
            });
    runtime.enter("starter", 0, () -> begun.await(30, java.util.concurrent.TimeUnit.SECONDS));
    Thread closer = Thread.ofPlatform().start(owner::close);
    Eventually.waits(closer);
    assertThat(owner.ended().isDone()).isFalse();
    later.complete(3);
    assertThat(waits.await()).isEqualTo(3);
    owner.ended().await(Duration.ofSeconds(30));
    assertThatIllegalStateException().isThrownBy(() -> owner.affine(() -> 1));
  }

  @Test
  void oneThatBlocksTheOwnerIsReported() {
    CountDownLatch free = new CountDownLatch(1);
    AtomicInteger holds = new AtomicInteger();
    Completion<Integer> blocks =
        owner.affine(
            () -> {
              holds.set(1);
              while (free.getCount() > 0) {
                Thread.onSpinWait(); // as a native call would that blocks
              }
              return 1;
            });
    Eventually.holds("it has begun", () -> holds.get() == 1);
    assertThat(runtime.carriers().owners())
        .singleElement()
        .satisfies(
            mounted -> {
              assertThat(mounted.owner()).isEqualTo("affine");
              assertThat(mounted.nanos()).isNotNegative();
            });
    free.countDown();
    blocks.await();
    Eventually.holds("none is mounted", () -> runtime.carriers().owners().isEmpty());
  }

  @Test
  void jdkCarriersRefuseItAndSayTheFlag() {
    try (TaskRuntime jdk = TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.JDK))) {
      Owner plain = jdk.owner("plain", Role.OWNER);
      assertThatIllegalStateException()
          .isThrownBy(() -> plain.affine(() -> 1))
          .withMessageContaining("--add-opens java.base/java.lang=ALL-UNNAMED");
    }
  }

  @Test
  void aCommandThatAwaitsAnAffineTaskOfItsOwnerIsTold() {
    Completion.Source<Integer> go = Completion.source();
    Completion<Integer> affine = owner.affine(() -> go.completion().await());
    Completion<Integer> command = owner.call(affine::await);
    try {
      Eventually.holds("it was told", command::isDone);
      assertThat(command.cause())
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("would never end")
          .hasMessageContaining("task 'call-affine' on owner 'affine'")
          .hasMessageContaining("wait in an affine task");
    } finally {
      go.complete(4); // or a failure would be a hang
    }
    assertThat(affine.await()).isEqualTo(4);
    assertThat(owner.affine(() -> owner.affine(() -> 6).await()).await())
        .as("affine tasks may wait for each other")
        .isEqualTo(6);
  }

  @Test
  void anOwnerThatIsClosedInACallForWhichItsAffineTaskWaits() {
    Engine<Integer> a = runtime.engine("a", ThreadRule.ONE_AT_A_TIME, () -> 1, EngineLimits.of(1));
    Completion<Integer> affine =
        a.<Completion<Integer>>call(
            0,
            i -> {
              Completion<Integer> waits = owner.affine(() -> a.<Integer>call(0, j -> j));
              // the engine counts it before the graph knows of it
              Eventually.holds("it waits", () -> WaitGraph.size("an instance of engine 'a'") == 1);
              assertThatIllegalStateException()
                  .isThrownBy(owner::close)
                  .withMessageContainingAll("would never end", "task 'call-affine'", "engine 'a'");
              return waits;
            });
    assertThat(affine.await()).isEqualTo(1);
  }

  /** It would have to be given the lock on the thread of the command that waits behind it. */
  @Test
  void oneThatComesToTheGraphOfWaitsBeforeACommandOfItsOwnerHoldsNobodyUp() throws Exception {
    CountDownLatch held = new CountDownLatch(1);
    CountDownLatch affineBegan = new CountDownLatch(1);
    AtomicReference<Thread> command = new AtomicReference<>();
    Runnable untilTheCommandWaits =
        () -> {
          held.countDown();
          Thread seen = null;
          for (int looks = 0;
              looks < 1_000_000 && (seen == null || seen.getState() == Thread.State.RUNNABLE);
              looks += seen == null ? 0 : 1) {
            Thread.onSpinWait();
            seen = command.get();
          }
        };
    Thread holder = Thread.ofPlatform().start(() -> Passing.enterAndLeave(untilTheCommandWaits));
    held.await();
    Completion<Integer> affine =
        owner.affine(
            () -> {
              affineBegan.countDown();
              Passing.enterAndLeave(() -> {});
              return 1;
            });
    affineBegan.await();
    Completion<Integer> called =
        owner.call(
            () -> {
              command.set(Thread.currentThread());
              Passing.enterAndLeave(() -> {});
              return 2;
            });
    assertThat(affine.await(Duration.ofSeconds(20))).isEqualTo(1);
    assertThat(called.await(Duration.ofSeconds(20))).isEqualTo(2);
    holder.join();
  }

  @Test
  void aCommandAndAnAffineTaskOfOneOwnerMayBothWaitForALock() {
    assertThat(bothGetALock(owner, new ReentrantLock(), Owner::lock, false)).isTrue();
    assertThat(bothGetALock(owner, new BriefLock(), ReentrantLock::lock, false)).isTrue();
  }

  @Test
  void theTestAboveFindsThatTheyQueueForIt() {
    // it is never closed: its owner's thread waits for ever
    TaskRuntime lost = TaskRuntime.open(TaskConfig.DEFAULT.carriers(CarrierMode.OWN));
    try (Mutant.Handle _ = Mutant.enable("owner.queues-for-locks")) {
      Owner home = lost.owner("lost", Role.OWNER);
      assertThat(bothGetALock(home, new ReentrantLock(), Owner::lock, true)).isFalse();
    }
  }

  /** The lock is held; a task on the owner comes for it, then a command does; then it is free. */
  private static boolean bothGetALock(
      Owner home, ReentrantLock lock, Consumer<ReentrantLock> take, boolean queues) {
    AtomicInteger begun = new AtomicInteger();
    Completion<Integer> affine;
    Completion<Integer> command;
    lock.lock();
    try {
      affine = home.affine(() -> lockOnce(lock, take, begun));
      Eventually.holds("the task comes", () -> begun.get() == 1);
      command = home.tryCall(() -> lockOnce(lock, take, begun));
      if (queues) {
        Eventually.holds("both stand in its queue", () -> lock.getQueueLength() == 2);
      } else {
        // a task that waits for an inner lock keeps the thread, so that the command does not come
        Eventually.holdsWithin(Duration.ofMillis(300), () -> begun.get() == 2);
      }
    } finally {
      lock.unlock();
    }
    return Eventually.holdsWithin(
        Duration.ofSeconds(queues ? 3 : 20), () -> affine.isDone() && command.isDone());
  }

  /** It is in a call that may take long, so nobody looks again and again whether it has ended. */
  @Test
  void aTaskAtTheGateOfAnEngineThatIsInACallIsPutDown() throws Exception {
    Gate gate = Gate.of("e", ThreadRule.ONE_AT_A_TIME, null, Set.of(), null);
    CountDownLatch goOn = new CountDownLatch(1);
    Thread holder = holding(gate, goOn);
    AtomicReference<Thread> self = new AtomicReference<>();
    Completion<Integer> affine = owner.affine(() -> enter(gate, self, 1));
    try {
      Eventually.holds("it comes", () -> self.get() != null);
      Eventually.waits(self.get());
      assertThat(owner.call(() -> 2).await()).as("its owner has the thread").isEqualTo(2);
      assertThat(self.get().getState()).isEqualTo(Thread.State.WAITING);
    } finally {
      goOn.countDown();
    }
    assertThat(affine.await(SOON)).isEqualTo(1);
    holder.join();
  }

  /** The task is woken first, and its thread is the command's. */
  @Test
  void aCommandBehindATaskOfItsOwnerComesThroughAGate() throws Exception {
    Gate gate = Gate.of("e", ThreadRule.ONE_AT_A_TIME, null, Set.of(), null);
    CountDownLatch goOn = new CountDownLatch(1);
    Thread holder = holding(gate, goOn);
    AtomicReference<Thread> task = new AtomicReference<>();
    AtomicReference<Thread> thread = new AtomicReference<>();
    Completion<Integer> affine = owner.affine(() -> enter(gate, task, 1));
    Eventually.holds("it comes", () -> task.get() != null);
    Eventually.waits(task.get());
    Completion<Integer> command = owner.call(() -> enter(gate, thread, 2));
    Eventually.holds("it comes", () -> thread.get() != null);
    Eventually.waits(thread.get());
    Thread plain = Thread.ofVirtual().start(() -> gate.call("third", () -> 3));
    goOn.countDown();
    assertThat(affine.await(SOON)).isEqualTo(1);
    assertThat(command.await(SOON)).isEqualTo(2);
    plain.join();
    holder.join();
  }

  @Test
  void whoeverComesToAGateComesThrough() {
    int rounds = 300;
    Gate gate = Gate.of("e", ThreadRule.ONE_AT_A_TIME, null, Set.of(), null);
    Owner other = runtime.owner("other", Role.OWNER);
    int[] unguarded = new int[1];
    // inside nothing suspends: a command would wait for a task that it keeps from going on
    Callable<Integer> passes = () -> gate.call("pass", () -> ++unguarded[0]);
    List<Completion<Integer>> all = new ArrayList<>();
    for (Owner on : List.of(owner, owner, other, other)) {
      all.add(on.affine(() -> repeat(rounds, passes)));
    }
    Completion.Source<Integer> plain = Completion.source();
    Thread.ofVirtual()
        .start(
            () -> {
              for (int i = 0; i < rounds; i++) {
                gate.call("pass", () -> ++unguarded[0]);
              }
              plain.complete(rounds);
            });
    for (int i = 0; i < rounds; i++) {
      all.add(owner.call(passes::call));
      all.add(other.call(passes::call));
    }
    all.add(plain.completion());
    Completion.all(all).await(SOON);
    assertThat(unguarded[0]).isEqualTo(7 * rounds);
  }

  private static Integer repeat(int rounds, Callable<Integer> body) throws Exception {
    int last = 0;
    for (int i = 0; i < rounds; i++) {
      last = body.call();
    }
    return last;
  }

  private static Integer enter(Gate gate, AtomicReference<Thread> self, int value) {
    self.set(Thread.currentThread());
    return gate.call("enter", () -> value);
  }

  /** A thread that is in a call until it is told. */
  private static Thread holding(Gate gate, CountDownLatch goOn) throws InterruptedException {
    CountDownLatch inside = new CountDownLatch(1);
    Thread holder =
        Thread.ofPlatform()
            .start(
                () ->
                    gate.call(
                        "long",
                        () -> {
                          inside.countDown();
                          goOn.await();
                          return "ended";
                        }));
    inside.await();
    return holder;
  }

  private static int lockOnce(
      ReentrantLock lock, Consumer<ReentrantLock> take, AtomicInteger begun) {
    begun.incrementAndGet();
    take.accept(lock);
    try {
      return 1;
    } finally {
      lock.unlock();
    }
  }

  /** A wait that goes through the graph's lock, and is over. */
  private static final class Passing extends WaitGraph.Wait {
    private final Runnable underTheLock;

    private Passing(Runnable underTheLock) {
      super(Task.current(), new WaitGraph.In(new Something(), null), false);
      this.underTheLock = underTheLock;
    }

    static void enterAndLeave(Runnable underTheLock) {
      Passing wait = new Passing(underTheLock);
      WaitGraph.enter(wait);
      WaitGraph.leave(wait);
    }

    @Override
    boolean isDone() {
      return true;
    }

    @Override
    boolean isHopeless(Predicate<WaitGraph.Held> stuck) {
      underTheLock.run();
      return false;
    }

    @Override
    String what() {
      return "nothing";
    }

    @Override
    RuntimeException refusal(String circle) {
      return new IllegalStateException(circle);
    }
  }

  private static final class Something extends WaitGraph.Held {
    @Override
    String where() {
      return "in something";
    }
  }

  @Test
  void aTaskThatWaitsForWhatIsFoundByLookingLooksItself() {
    List<Thread> lookers = new ArrayList<>();
    Thread self =
        owner
            .affine(
                () -> {
                  Looked looked = new Looked();
                  looked.atPoll =
                      polls -> {
                        lookers.add(Thread.currentThread());
                        if (polls == 3) {
                          looked.source.complete("found");
                        }
                      };
                  assertThat(looked.source.completion().await(SOON)).isEqualTo("found");
                  return Thread.currentThread();
                })
            .await();
    assertThat(lookers).hasSize(3).allMatch(self::equals);
  }

  @Test
  void aTaskThatLooksMakesRoomForWhateverIsQueuedOnItsOwner() {
    List<Consumer<Runnable>> ways =
        List.of(
            end -> assertThat(owner.trySubmit(end)).isTrue(),
            end ->
                owner.affine(
                    () -> {
                      end.run();
                      return "ended";
                    }),
            end ->
                owner.retire(
                    new Retired() {
                      @Override
                      protected void release() {
                        end.run();
                      }
                    }));
    for (Consumer<Runnable> way : ways) {
      AtomicInteger looks = new AtomicInteger();
      owner
          .affine(
              () -> {
                Looked looked = new Looked();
                looked.atPoll =
                    polls -> {
                      looks.set(polls);
                      if (polls == 1) {
                        way.accept(() -> looked.source.complete("ended by what was queued"));
                      }
                    };
                return looked.source.completion().await(SOON);
              })
          .await();
      assertThat(looks).as("looks, though something was queued at the first").hasValue(1);
    }
  }

  @Test
  void whatATaskDidBeforeItLooksCountsAsATurn() {
    owner
        .affine(
            () -> {
              long end = System.nanoTime() + 2 * Owner.LONG_TURN_NANOS;
              while (System.nanoTime() - end < 0) {
                Thread.onSpinWait();
              }
              Looked looked = new Looked();
              looked.atPoll = polls -> looked.source.complete("found at once");
              return looked.source.completion().await(SOON);
            })
        .await();
    assertThat(owner.turns().longCount()).isPositive();
  }

  /** Such a task never suspends, so the loop would not come to anything else. */
  @Test
  void aTaskThatAlwaysFindsWhatItLooksForLetsTheSourcesOfItsOwnerBePolled() {
    for (int sources = 1; sources <= 3; sources++) {
      AtomicInteger polls = new AtomicInteger();
      AtomicReference<Looked> wanted = new AtomicReference<>(new Looked());
      owner.addSource(
          () -> {
            polls.incrementAndGet();
            return wanted.get().source.complete("by the loop") ? 1 : 0; // where the task has parked
          });
      int seen =
          owner
              .affine(
                  () -> {
                    int before = polls.get();
                    long end = System.nanoTime() + SOON.toNanos();
                    int looks = 0;
                    while (polls.get() == before && System.nanoTime() - end < 0) {
                      Looked looked = new Looked();
                      looked.atPoll = once -> looked.source.complete("at once");
                      wanted.set(looked);
                      looked.source.completion().await();
                      looks++;
                    }
                    assertThat(polls.get()).as("polls, after %d looks", looks).isNotEqualTo(before);
                    return looks;
                  })
              .await();
      assertThat(seen).isPositive();
    }
  }

  /** Something that only a look finds. */
  private static final class Looked implements WaitHelp {
    final Completion.Source<String> source = Completion.source(this);
    Consumer<Integer> atPoll = polls -> {};
    private int polls;

    @Override
    public boolean poll() {
      atPoll.accept(++polls);
      return false;
    }

    @Override
    public boolean isFoundByLooking() {
      return true;
    }

    @Override
    public boolean block(long nanos) {
      return false;
    }
  }
}
