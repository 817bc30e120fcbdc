package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Own carriers, each test with some of its own. Nothing here may hang: that is what is tested. */
@Timeout(120)
@DisabledIfSystemProperty(
    named = "fairlead.test.closed",
    matches = "true",
    disabledReason = "there are no own carriers where the package is closed")
@SuppressWarnings("ThreadPriorityCheck") // yields are part of what a scheduler is asked for
class CarriersTest {
  private final List<Carriers> opened = new ArrayList<>();

  private Carriers carriers(int regulars) {
    Carriers carriers = new Carriers("test", regulars).start();
    opened.add(carriers);
    return carriers;
  }

  @AfterEach
  void close() {
    opened.forEach(Carriers::close);
  }

  private static Thread start(Carriers carriers, Runnable body) {
    Thread thread = carriers.thread(body);
    thread.start();
    return thread;
  }

  /** Tasks that never suspend, until they are told to stop. */
  private static List<Thread> loops(Carriers carriers, int count, AtomicBoolean stop) {
    List<Thread> loops = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      loops.add(
          start(
              carriers,
              () -> {
                while (!stop.get()) {
                  Thread.onSpinWait();
                }
              }));
    }
    return loops;
  }

  private static void join(Thread thread) {
    try {
      assertThat(thread.join(Duration.ofSeconds(60))).as(thread + " ended").isTrue();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void threadsRunOnThem() {
    Carriers carriers = carriers(2);
    AtomicReference<Thread> seen = new AtomicReference<>();
    join(start(carriers, () -> seen.set(VirtualThreads.carrier())));
    assertThat(seen.get()).isInstanceOf(Carrier.class);
    assertThat(((Carrier) seen.get()).carriers).isSameAs(carriers);
  }

  /** Of which nobody is told: it is settled by whoever looks, and here only the waiter does. */
  private static final class Found implements WaitHelp {
    private final Completion.Source<String> source = Completion.source(this);
    private final boolean foundByLooking;
    private final AtomicInteger looks = new AtomicInteger();

    Found(boolean foundByLooking) {
      this.foundByLooking = foundByLooking;
    }

    @Override
    public boolean poll() {
      looks.incrementAndGet();
      return source.complete("found");
    }

    @Override
    public boolean isFoundByLooking() {
      return foundByLooking;
    }

    @Override
    public boolean block(long nanos) {
      return false;
    }
  }

  @Test
  void aTaskOnAnIdleCarrierLooksItselfBeforeItParks() {
    Found looked = new Found(true);
    AtomicReference<String> seen = new AtomicReference<>();
    join(start(carriers(1), () -> seen.set(looked.source.completion().await())));
    assertThat(seen.get()).isEqualTo("found");
    assertThat(looked.looks.get()).isEqualTo(1);
  }

  @Test
  void aTaskDoesNotLookForWhatOthersAreToldOf() {
    Found looked = new Found(false);
    AtomicReference<String> seen = new AtomicReference<>();
    Thread waiter = start(carriers(1), () -> seen.set(looked.source.completion().await()));
    while (waiter.getState() != Thread.State.WAITING) {
      Thread.onSpinWait();
    }
    looked.source.complete("told");
    join(waiter);
    assertThat(seen.get()).isEqualTo("told");
    assertThat(looked.looks.get()).isZero();
  }

  /** Rounds in which a spare carrier took the other task, on a busy machine, say nothing. */
  @Test
  void aTaskDoesNotLookWhileItsCarrierHasOthersToRun() {
    Carriers carriers = carriers(1);
    boolean told = false;
    for (int round = 0; round < 1_000 && !told; round++) {
      Found looked = new Found(true);
      AtomicReference<String> seen = new AtomicReference<>();
      AtomicReference<Thread> waitedOn = new AtomicReference<>();
      AtomicReference<Thread> toldOn = new AtomicReference<>();
      join(
          start(
              carriers,
              () -> {
                Thread waiter =
                    start(
                        carriers,
                        () -> {
                          waitedOn.set(VirtualThreads.carrier());
                          seen.set(looked.source.completion().await());
                        });
                Thread teller =
                    start(
                        carriers,
                        () -> {
                          toldOn.set(VirtualThreads.carrier());
                          looked.source.complete("told");
                        });
                Thread.yield();
                join(waiter);
                join(teller);
              }));
      told = toldOn.get() == waitedOn.get();
      if (told) {
        assertThat(seen.get()).isEqualTo("told");
        assertThat(looked.looks.get()).isZero();
      }
    }
    assertThat(told).as("a round on one carrier").isTrue();
  }

  @Test
  void whatATaskStartsPlainlyRunsOnThemToo() {
    Carriers carriers = carriers(2);
    AtomicReference<Thread> seen = new AtomicReference<>();
    AtomicInteger ran = new AtomicInteger();
    join(
        start(
            carriers,
            () -> {
              List<Thread> plain = new ArrayList<>();
              for (int i = 0; i < 1_000; i++) {
                plain.add(
                    Thread.startVirtualThread(
                        () -> {
                          seen.set(VirtualThreads.carrier());
                          Thread.yield();
                          LockSupport.parkNanos(1_000);
                          ran.incrementAndGet();
                        }));
              }
              plain.forEach(CarriersTest::join);
            }));
    assertThat(seen.get()).isInstanceOf(Carrier.class);
    assertThat(ran).hasValue(1_000);
  }

  // --- nobody is left behind a task that computes

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void whatStaysGoesOnWhileATaskForks(int regulars) {
    Carriers carriers = carriers(regulars);
    AtomicBoolean again = new AtomicBoolean();
    CountDownLatch parks = new CountDownLatch(1);
    Thread stays =
        carriers.threadThatStays(
            () -> {
              parks.countDown();
              LockSupport.park();
              again.set(true);
            });
    stays.start();
    await(parks);
    List<Thread> forking = new ArrayList<>();
    CountDownLatch forks = new CountDownLatch(regulars);
    for (int i = 0; i < regulars; i++) {
      forking.add(
          start(
              carriers,
              () -> {
                forks.countDown();
                while (!again.get()) {
                  Carriers.atForkPoint(System.nanoTime());
                  for (int spins = 0; spins < 100; spins++) {
                    Thread.onSpinWait();
                  }
                }
              }));
    }
    await(forks);
    LockSupport.unpark(stays);
    forking.forEach(CarriersTest::join);
    join(stays);
  }

  @Test
  void whoYieldsToOneThatStaysAndComputesGoesOnElsewhere() {
    Carriers carriers = carriers(2);
    AtomicReference<Thread> home = new AtomicReference<>();
    CountDownLatch parks = new CountDownLatch(1);
    AtomicBoolean computes = new AtomicBoolean();
    AtomicBoolean back = new AtomicBoolean();
    Thread stays =
        carriers.threadThatStays(
            () -> {
              home.set(VirtualThreads.carrier());
              parks.countDown();
              LockSupport.park();
              computes.set(true);
              while (!back.get()) {
                Thread.onSpinWait();
              }
            });
    stays.start();
    await(parks);
    AtomicBoolean there = new AtomicBoolean();
    Thread yields;
    do {
      yields =
          start(
              carriers,
              () -> {
                if (!home.get().equals(VirtualThreads.carrier())) {
                  return;
                }
                there.set(true);
                while (!carriers.isWatcherAsleep()) { // which would see to it
                  Thread.onSpinWait();
                }
                LockSupport.unpark(stays);
                while (!computes.get()) {
                  Thread.yield();
                }
                back.set(true);
              });
      while (yields.isAlive() && !there.get()) {
        Thread.onSpinWait();
      }
    } while (!there.get());
    join(yields);
    join(stays);
  }

  // --- none is lost

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 5})
  void noneIsLostAmongYieldsParksSleepsAndLocks(int regulars) {
    long seed = Long.getLong("fairlead.seed", System.nanoTime() & 0xffff_ffffL);
    System.out.println("seed: -Dfairlead.seed=" + seed);
    Carriers carriers = carriers(regulars);
    int threads = 200;
    int steps = 300;
    Thread[] all = new Thread[threads];
    AtomicInteger[] lockedWanted = {new AtomicInteger(), new AtomicInteger()};
    ReentrantLock lock = new ReentrantLock();
    Object monitor = new Object();
    int[] locked = new int[2];
    AtomicInteger done = new AtomicInteger();
    CountDownLatch made = new CountDownLatch(1);
    for (int t = 0; t < threads; t++) {
      SplittableRandom random = new SplittableRandom(seed + t);
      int me = t;
      all[t] =
          carriers.thread(
              () -> {
                await(made);
                for (int step = 0; step < steps; step++) {
                  switch (random.nextInt(7)) {
                    case 0 -> Thread.yield();
                    case 1 -> LockSupport.parkNanos(random.nextInt(1, 50_000));
                    case 2 -> {
                      lockedWanted[0].incrementAndGet();
                      lock.lock();
                      try {
                        locked[0]++;
                        if (random.nextInt(8) == 0) {
                          Thread.yield();
                        }
                      } finally {
                        lock.unlock();
                      }
                    }
                    case 3 -> {
                      lockedWanted[1].incrementAndGet();
                      synchronized (monitor) {
                        locked[1]++;
                        if (random.nextInt(8) == 0) {
                          Thread.yield();
                        }
                      }
                    }
                    case 4 -> join(Thread.startVirtualThread(Thread::yield));
                    default -> LockSupport.unpark(all[(me + 1) % threads]);
                  }
                }
                done.incrementAndGet();
              });
    }
    for (Thread thread : all) {
      thread.start();
    }
    made.countDown();
    for (Thread thread : all) {
      join(thread);
    }
    assertThat(done).as("seed " + seed).hasValue(threads);
    assertThat(locked[0]).isEqualTo(lockedWanted[0].get());
    assertThat(locked[1]).isEqualTo(lockedWanted[1].get());
    assertEmpty(carriers);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3})
  void aRingOfWakesGoesRound(int regulars) {
    Carriers carriers = carriers(regulars);
    int threads = 7;
    int rounds = 20_000;
    Thread[] ring = new Thread[threads];
    AtomicInteger turn = new AtomicInteger(-1);
    for (int t = 0; t < threads; t++) {
      int me = t;
      ring[t] =
          carriers.thread(
              () -> {
                for (int at = me; at < rounds; at += threads) {
                  while (turn.get() != at) {
                    LockSupport.park();
                  }
                  turn.set(at + 1);
                  LockSupport.unpark(ring[(at + 1) % threads]);
                }
              });
    }
    for (Thread thread : ring) {
      thread.start();
    }
    turn.set(0);
    LockSupport.unpark(ring[0]);
    for (Thread thread : ring) {
      join(thread);
    }
    assertThat(turn).hasValue(rounds);
  }

  @Test
  void stackTracesTakenMeanwhileLoseNothing() {
    Carriers carriers = carriers(2);
    AtomicBoolean stop = new AtomicBoolean();
    Thread[] pair = new Thread[2];
    AtomicInteger turn = new AtomicInteger();
    for (int t = 0; t < 2; t++) {
      int me = t;
      pair[t] =
          carriers.thread(
              () -> {
                for (int i = 0; i < 5_000; i++) {
                  while (turn.get() != me) {
                    Thread.yield();
                    LockSupport.parkNanos(100_000);
                  }
                  turn.set(1 - me);
                  LockSupport.unpark(pair[1 - me]);
                }
              });
    }
    Thread tracer =
        Thread.ofPlatform()
            .start(
                () -> {
                  while (!stop.get()) {
                    pair[0].getStackTrace();
                    pair[1].getStackTrace();
                  }
                });
    pair[0].start();
    pair[1].start();
    join(pair[0]);
    join(pair[1]);
    stop.set(true);
    join(tracer);
    assertEmpty(carriers);
  }

  private static void assertEmpty(Carriers carriers) {
    Eventually.holds("nothing is ready", () -> !carriers.workVisible());
    for (Carrier carrier : carriers.all()) {
      Eventually.holds(carrier + " has nothing", () -> !carrier.hasWork() && !carrier.isMounted());
    }
    Eventually.holds("nobody searches", () -> !carriers.anySearching());
  }

  // --- none is starved

  @Test
  void twoThatWakeEachOtherDoNotStarveAThird() {
    Carriers carriers = carriers(1);
    AtomicBoolean third = new AtomicBoolean();
    Thread[] pair = new Thread[2];
    AtomicInteger turn = new AtomicInteger();
    for (int t = 0; t < 2; t++) {
      int me = t;
      pair[t] =
          carriers.thread(
              () -> {
                while (!third.get()) {
                  while (turn.get() != me && !third.get()) {
                    LockSupport.park();
                  }
                  turn.set(1 - me);
                  LockSupport.unpark(pair[1 - me]);
                }
                LockSupport.unpark(pair[1 - me]);
              });
    }
    Thread starter =
        start(
            carriers,
            () -> {
              pair[0].start();
              pair[1].start();
              carriers.thread(() -> third.set(true)).start();
            });
    join(starter);
    join(pair[0]);
    join(pair[1]);
    assertThat(third).isTrue();
  }

  @Test
  void yieldersDoNotStarveWhatComesFromOutside() {
    Carriers carriers = carriers(1);
    AtomicBoolean came = new AtomicBoolean();
    List<Thread> yielders = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      yielders.add(
          start(
              carriers,
              () -> {
                while (!came.get()) {
                  Thread.yield();
                }
              }));
    }
    join(start(carriers, () -> came.set(true)));
    yielders.forEach(CarriersTest::join);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void loopsThatNeverYieldDoNotStopOthers(int regulars) {
    Carriers carriers = carriers(regulars);
    AtomicBoolean stop = new AtomicBoolean();
    List<Thread> loops = loops(carriers, regulars, stop);
    for (int i = 0; i < 20; i++) {
      join(start(carriers, Thread::yield));
    }
    stop.set(true);
    loops.forEach(CarriersTest::join);
  }

  @Test
  void oneThatAWakerLeavesInItsNextSlotRunsThoughTheWakerGoesOn() {
    Carriers carriers = carriers(2);
    AtomicBoolean ran = new AtomicBoolean();
    join(
        start(
            carriers,
            () -> {
              carriers.thread(() -> ran.set(true)).start();
              while (!ran.get()) {
                Thread.onSpinWait();
              }
            }));
  }

  /**
   * A waker that was held up once may only have lost its processor: what it woke stays where it is
   * warm. One that goes on again and again leaves it to others.
   */
  @Test
  void aWakerThatWasHeldUpOnceDoesNotCountAsGoingOn() {
    Carriers carriers = carriers(1);
    AtomicBoolean stop = new AtomicBoolean();
    Thread woken =
        start(
            carriers,
            () -> {
              while (!stop.get()) {
                LockSupport.park();
              }
            });
    List<Boolean> goesOn = new ArrayList<>();
    join(
        start(
            carriers,
            () -> {
              for (int i = 0; i < 2; i++) {
                LockSupport.unpark(woken);
                compute(100_000);
                Thread.yield();
                goesOn.add(Resumable.current().goesOn);
              }
              stop.set(true);
              LockSupport.unpark(woken);
            }));
    join(woken);
    assertThat(goesOn).containsExactly(false, true);
  }

  private static void compute(long nanos) {
    long start = System.nanoTime();
    while (System.nanoTime() - start < nanos) {
      Thread.onSpinWait();
    }
  }

  @Test
  void tasksThatForkTakeTurnsThoughNobodyWatches() {
    Carriers carriers = new Carriers("test", 1).startUnwatched();
    opened.add(carriers);
    AtomicInteger turn = new AtomicInteger();
    List<Thread> forkers = new ArrayList<>();
    for (int t = 0; t < 3; t++) {
      int me = t;
      forkers.add(
          start(
              carriers,
              () -> {
                for (int i = 0; i < 10; i++) {
                  forkUntil(() -> turn.get() % 3 == me);
                  turn.incrementAndGet();
                }
              }));
    }
    forkers.forEach(CarriersTest::join);
  }

  /** Comes by forks, as a computation does. */
  private static void forkUntil(BooleanSupplier condition) {
    while (!condition.getAsBoolean()) {
      Carriers.atForkPoint(System.nanoTime());
    }
  }

  @Test
  void onePinnedThatForksDoesNotStopOthers() {
    Carriers carriers = carriers(1);
    Thread pinned = start(carriers, () -> assertThat(PinnedForker.ENDED).isTrue());
    Eventually.holds("it forks", PINNED_FORKS::get);
    join(start(carriers, () -> PINNED_GOES_ON.set(true)));
    join(pinned);
  }

  private static final AtomicBoolean PINNED_FORKS = new AtomicBoolean();
  private static final AtomicBoolean PINNED_GOES_ON = new AtomicBoolean();

  /** A virtual thread cannot leave its carrier inside a static initialiser. */
  private static final class PinnedForker {
    static final boolean ENDED = forks();

    private static boolean forks() {
      PINNED_FORKS.set(true);
      forkUntil(PINNED_GOES_ON::get);
      return true;
    }
  }

  @Test
  void moreLongTasksThanCarriersAddFewSpares() {
    Carriers carriers = carriers(2);
    AtomicBoolean stop = new AtomicBoolean();
    List<Thread> loops = loops(carriers, 40, stop);
    Eventually.holds("both processors are given a spare", () -> carriers.sparesActive() >= 2);
    // one that the system stops for long may count as asleep once; each of 40 would not
    boolean many =
        Eventually.holdsWithin(Duration.ofMillis(100), () -> carriers.sparesActive() > 10);
    stop.set(true);
    assertThat(many).isFalse();
    loops.forEach(CarriersTest::join);
  }

  @Test
  void nativeCallsThatBlockAreGivenAsManySpares() throws Throwable {
    Linker linker = Linker.nativeLinker();
    MemorySegment usleep = linker.defaultLookup().find("usleep").orElseThrow();
    MethodHandle sleep =
        linker.downcallHandle(
            usleep, FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT));
    Carriers carriers = carriers(2);
    AtomicBoolean free = new AtomicBoolean();
    AtomicInteger begun = new AtomicInteger();
    List<Thread> blocked = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      blocked.add(
          start(
              carriers,
              () -> {
                begun.incrementAndGet();
                while (!free.get()) {
                  sleepIn(sleep);
                }
              }));
    }
    Eventually.holds("all have begun", () -> begun.get() == 20);
    join(start(carriers, () -> free.set(true)));
    blocked.forEach(CarriersTest::join);
    assertEmpty(carriers);
  }

  private static void sleepIn(MethodHandle sleep) {
    try {
      int error = (int) sleep.invokeExact(20_000);
      assertThat(error).isZero();
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  /** Parked inside a static initialiser: the JDK cannot take it off its carrier. */
  private static final class Pinned {
    static final CountDownLatch FREED = new CountDownLatch(1);

    static class One {
      static final long VALUE = pin(1);
    }

    static class Two {
      static final long VALUE = pin(2);
    }

    static class Three {
      static final long VALUE = pin(3);
    }

    private static long pin(long value) {
      await(FREED);
      return value;
    }
  }

  @Test
  void pinnedTasksDoNotStopOthers() {
    Carriers carriers = carriers(2);
    AtomicInteger sum = new AtomicInteger();
    List<Thread> pinned =
        List.of(
            start(carriers, () -> sum.addAndGet((int) Pinned.One.VALUE)),
            start(carriers, () -> sum.addAndGet((int) Pinned.Two.VALUE)),
            start(carriers, () -> sum.addAndGet((int) Pinned.Three.VALUE)));
    pinned.forEach(Eventually::waits);
    for (int i = 0; i < 20; i++) {
      join(start(carriers, Thread::yield));
    }
    join(start(carriers, Pinned.FREED::countDown));
    pinned.forEach(CarriersTest::join);
    assertThat(sum).hasValue(6);
  }

  // --- polling

  @Test
  void idleCarriersPoll() {
    Carriers carriers = carriers(2);
    TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, carriers);
    AtomicReference<Completion.Source<Role>> pending = new AtomicReference<>();
    runtime.register(() -> complete(pending));
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(
          () -> {
            for (int i = 0; i < 200; i++) {
              assertThat(roundtrip(pending)).isEqualTo(Role.DEVICE_MANAGER);
            }
            return 1;
          });
      assertThat(scope.join()).containsExactly(1);
    }
    runtime.close();
    assertThat(carriers.hasSources()).isFalse();
  }

  @Test
  void completionsArriveThoughAllCarriersLoop() {
    Carriers carriers = carriers(2);
    TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, carriers);
    AtomicReference<Completion.Source<Role>> pending = new AtomicReference<>();
    AtomicBoolean stop = new AtomicBoolean();
    runtime.register(() -> complete(pending));
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 2; i++) {
        scope.fork(
            () -> {
              while (!stop.get()) {
                Thread.onSpinWait();
              }
              return 1;
            });
      }
      scope.fork(
          () -> {
            for (int i = 0; i < 50; i++) {
              roundtrip(pending);
            }
            stop.set(true);
            return 1;
          });
      assertThat(scope.join()).hasSize(3);
    }
    runtime.close();
  }

  @Test
  void completionsArriveThoughAllCarriersFork() {
    Carriers carriers = new Carriers("test", 2).startUnwatched(); // so that nobody else polls
    opened.add(carriers);
    TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, carriers);
    AtomicReference<Completion.Source<Role>> pending = new AtomicReference<>();
    AtomicBoolean stop = new AtomicBoolean();
    runtime.register(() -> complete(pending));
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 2; i++) {
        scope.fork(ForkOptions.DEFAULT.eager(true), () -> forkUntil(stop, runtime));
      }
      scope.fork(
          ForkOptions.DEFAULT.eager(true),
          () -> {
            for (int i = 0; i < 50; i++) {
              roundtrip(pending);
            }
            stop.set(true);
            return 1;
          });
      assertThat(scope.join()).hasSize(3);
    }
    runtime.close();
  }

  private static int forkUntil(AtomicBoolean stop, TaskRuntime runtime) {
    while (!stop.get()) {
      try (TaskScope<Integer> inner = runtime.scope()) {
        inner.fork(() -> 1);
        inner.fork(() -> 2);
        inner.join();
      }
    }
    return 1;
  }

  private static int complete(AtomicReference<Completion.Source<Role>> pending) {
    Completion.Source<Role> source = pending.getAndSet(null);
    return source != null && source.complete(Role.current()) ? 1 : 0;
  }

  private static Role roundtrip(AtomicReference<Completion.Source<Role>> pending) {
    Completion.Source<Role> source = Completion.source();
    pending.set(source);
    return source.completion().await(Duration.ofSeconds(30));
  }

  /** A callback that holds a busy carrier up, in its poll, stands for a system that does. */
  @Test
  void whatAPollHasFoundGoesOnElsewhereIfThePollerDoesNot() {
    Carriers carriers = new Carriers("test", 2).startUnwatched(); // so that nobody hands it over
    opened.add(carriers);
    AtomicBoolean stop = new AtomicBoolean();
    AtomicReference<Completion.Source<Integer>> pending = new AtomicReference<>();
    CountDownLatch wentOn = new CountDownLatch(1);
    AtomicBoolean inTime = new AtomicBoolean();
    Looked source = new Looked();
    source.found =
        () -> {
          Completion.Source<Integer> found = pending.getAndSet(null);
          if (found == null) {
            return false;
          }
          found.complete(1);
          inTime.set(comes(wentOn));
          return true;
        };
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    List<Thread> forkers = new ArrayList<>();
    CountDownLatch fork = new CountDownLatch(2);
    for (int i = 0; i < 2; i++) {
      forkers.add(
          start(
              carriers,
              () -> {
                fork.countDown();
                forkUntil(stop::get);
              }));
    }
    join(
        start(
            carriers,
            () -> {
              await(fork);
              Completion.Source<Integer> end = Completion.source();
              pending.set(end);
              end.completion().await();
              wentOn.countDown();
            }));
    stop.set(true);
    forkers.forEach(CarriersTest::join);
    source.pending = false;
    carriers.removeSource(polled);
    Eventually.holds("went on while the poller was held up", inTime::get); // it says so itself
  }

  private static boolean comes(CountDownLatch latch) {
    try {
      return latch.await(20, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  /** It may have lost its processor just after it came by a fork. */
  @Test
  void whatLiesWithACarrierThatDoesNotMoveIsHandedOverThoughItForkedJustNow() {
    Carriers carriers = new Carriers("test", 2); // by hand: none is started
    Carrier forks = carriers.all()[0];
    long now = System.nanoTime();
    assertThat(forks.isLookDue(now)).isFalse();
    assertThat(forks.forksNow(now)).isTrue();
    forks.ready(new Resumable.Free(carriers));
    carriers.watcher.look(now);
    assertThat(carriers.ready.isEmpty()).as("it may go on soon").isTrue();
    carriers.watcher.look(now + Watcher.LATE_NANOS);
    assertThat(carriers.ready.isEmpty()).as("it does not").isFalse();
    assertThat(forks.still).as("and is given no spare").isFalse();
  }

  @Test
  void aCarrierThatHasSleptDoesNotCountAsStandingStillWhenItRuns() {
    Carriers carriers = carriers(1);
    for (int i = 0; i < 20; i++) {
      Carrier only = carriers.all()[0];
      Eventually.holds("it sleeps", only::isParked);
      long asleep = only.turns();
      AtomicLong runs = new AtomicLong();
      join(start(carriers, () -> runs.set(only.turns())));
      assertThat(runs.get()).isGreaterThan(asleep);
    }
  }

  @Test
  void aSourceThatRestedIsPolledOnceItRings() {
    Carriers carriers = carriers(2);
    TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, carriers);
    AtomicReference<Completion.Source<Role>> pending = new AtomicReference<>();
    runtime.register(
        new PollSource() {
          @Override
          public int poll() {
            return complete(pending);
          }

          @Override
          public boolean hasPending() {
            return pending.get() != null;
          }
        });
    for (int i = 0; i < 50; i++) {
      assertAllSleep(carriers);
      Completion.Source<Role> source = Completion.source();
      pending.set(source);
      runtime.ringPoller();
      source.completion().await(Duration.ofSeconds(30));
    }
    runtime.close();
  }

  /** Something is pending all the time; the last one that looked, and how often each did. */
  private static final class Looked implements PollSource {
    private final Map<Thread, Integer> looks = new ConcurrentHashMap<>();
    private volatile boolean pending = true;
    private volatile BooleanSupplier found = () -> false;

    @Override
    public int poll() {
      looks.merge(Thread.currentThread(), 1, Integer::sum);
      return found.getAsBoolean() ? 1 : 0;
    }

    @Override
    public boolean hasPending() {
      return pending;
    }

    int by(Thread thread) {
      return looks.getOrDefault(thread, 0);
    }
  }

  /**
   * A task waits on its carrier while another one searches for what is pending: that one leaves it
   * to the first, where the task goes on.
   */
  @Test
  void whoGoesIdleLastLooksAloneAndRunsWhatItFinds() {
    Carriers carriers = new Carriers("test", 2).startUnwatched(); // so that nobody else wakes one
    opened.add(carriers);
    Looked source = new Looked();
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    int rounds = 20;
    int handedOver = 0;
    for (int i = 0; i < rounds; i++) {
      Completion.Source<Integer> end = Completion.source();
      AtomicInteger others = new AtomicInteger();
      AtomicReference<Thread> waitedOn = new AtomicReference<>();
      AtomicReference<Thread> wentOnAt = new AtomicReference<>();
      Thread task =
          start(
              carriers,
              () -> {
                Thread here = VirtualThreads.carrier();
                Thread other = carriers.all()[here.equals(carriers.all()[0]) ? 1 : 0];
                int before = source.by(other);
                Thread ringer = Thread.ofPlatform().start(carriers::ring);
                while (source.by(other) == before) {
                  Thread.onSpinWait(); // until the other searches
                }
                waitedOn.set(here);
                int hereBefore = source.by(here);
                AtomicInteger seen = new AtomicInteger();
                source.found =
                    () -> {
                      int looked = source.by(here) - hereBefore;
                      if (looked > 1
                          && seen.getAndIncrement() == 0) { // the first is before it takes over
                        others.set(source.by(other));
                      }
                      if (looked < 50 || !Thread.currentThread().equals(here)) {
                        return false;
                      }
                      others.set(source.by(other) - others.get());
                      source.found = () -> false;
                      return end.complete(1);
                    };
                end.completion().await();
                wentOnAt.set(VirtualThreads.carrier());
                join(ringer);
              });
      join(task);
      // the other is between two looks when it is taken over, or without a processor
      if (waitedOn.get().equals(wentOnAt.get()) && others.get() < 3) {
        handedOver++;
      }
    }
    assertThat(handedOver).as("rounds in which the other left off").isGreaterThan(rounds / 2);
    source.pending = false;
    carriers.removeSource(polled);
  }

  @Test
  void theAttendantIsOneAtATime() {
    Carriers carriers = new Carriers("test", 2); // by hand: none is started
    Looked source = new Looked();
    carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    Carrier first = carriers.all()[0];
    Carrier second = carriers.all()[1];
    assertThat(carriers.attends(first)).isTrue();
    assertThat(carriers.attends(second)).isFalse();
    assertThat(carriers.takeOver(second)).isTrue();
    assertThat(carriers.attends(first)).isFalse();
    carriers.leave(first);
    assertThat(carriers.isAttendant(second)).isTrue();
    assertThat(carriers.sleepNanos(first, 0)).isEqualTo(Long.MAX_VALUE);
    assertThat(carriers.sleepNanos(second, 0)).isEqualTo(Nap.NANOS_MIN);
    assertThat(carriers.pendingUnattended()).isFalse();
    carriers.leave(second);
    assertThat(carriers.pendingUnattended()).isTrue();
    source.pending = false;
    assertThat(carriers.takeOver(first)).isFalse();
    assertThat(carriers.sleepNanos(first, 0)).isEqualTo(Long.MAX_VALUE);
    assertThat(carriers.isAttendant(first)).isFalse();
  }

  /** Who rings relies on a searcher, which was the attendant, and finds something else to do. */
  @Test
  void aSearcherThatWasTheAttendantLeavesNothingToNobody() {
    Carriers carriers = new Carriers("test", 2); // by hand: none is started
    Looked source = new Looked();
    carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    Carrier first = carriers.all()[0];
    Carrier second = carriers.all()[1];
    assertThat(carriers.attends(first)).isTrue();
    carriers.startSearch(); // the first one, which does not see what follows
    assertThat(carriers.takeOver(second)).isTrue();
    source.pending = false;
    assertThat(carriers.sleepNanos(second, 0)).as("gives up").isEqualTo(Long.MAX_VALUE);
    assertThat(carriers.watcher.mayFallAsleep()).isTrue();
    source.pending = true;
    carriers.ring();
    assertThat(carriers.isWatcherAsleep()).as("one searches").isTrue();
    carriers.foundWork();
    carriers.leave(first);
    assertThat(carriers.isWatcherAsleep()).isFalse();
  }

  /** Waits that end after some looks, among tasks that come from outside, without a watcher. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void noWaitIsForgottenWhoeverAttends(int regulars) {
    long seed = Long.getLong("fairlead.seed", System.nanoTime() & 0xffff_ffffL);
    System.out.println("seed: -Dfairlead.seed=" + seed);
    Carriers carriers = new Carriers("test", regulars).startUnwatched();
    opened.add(carriers);
    Countdown source = new Countdown();
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    List<Thread> waiters = new ArrayList<>();
    for (int t = 0; t < 3 * regulars; t++) {
      SplittableRandom random = new SplittableRandom(seed + t);
      waiters.add(
          start(
              carriers,
              () -> {
                for (int i = 0; i < 1_000; i++) {
                  source.await(random.nextInt(1, 20), carriers);
                }
              }));
    }
    SplittableRandom random = new SplittableRandom(seed);
    for (int i = 0; i < 500; i++) {
      if (random.nextBoolean()) {
        join(start(carriers, Thread::yield));
      } else {
        source.await(random.nextInt(1, 20), carriers);
      }
    }
    waiters.forEach(CarriersTest::join);
    assertThat(source.hasPending()).as("seed " + seed).isFalse();
    carriers.removeSource(polled);
    assertEmpty(carriers);
  }

  /** Each wait ends after so many polls. */
  private static final class Countdown implements PollSource {
    private final Map<Completion.Source<Integer>, AtomicInteger> waits = new ConcurrentHashMap<>();

    void await(int polls, Carriers carriers) {
      Completion.Source<Integer> source = Completion.source();
      waits.put(source, new AtomicInteger(polls));
      carriers.ring();
      source.completion().await(Duration.ofSeconds(60));
    }

    @Override
    public int poll() {
      int found = 0;
      for (Completion.Source<Integer> source : List.copyOf(waits.keySet())) {
        if (waits.get(source).decrementAndGet() == 0) {
          waits.remove(source);
          found += source.complete(1) ? 1 : 0;
        }
      }
      return found;
    }

    @Override
    public boolean hasPending() {
      return !waits.isEmpty();
    }
  }

  /** A device's waits: what keeps all carriers busy must not keep those who look away from them. */
  @Test
  void waitsThatRingEndThoughAllCarriersLoop() {
    Carriers carriers = carriers(2);
    AtomicBoolean stop = new AtomicBoolean();
    List<Thread> loops = loops(carriers, 2, stop);
    waitsEnd(carriers);
    stop.set(true);
    loops.forEach(CarriersTest::join);
  }

  @Test
  void waitsThatRingEndThoughAllCarriersFork() {
    Carriers carriers = new Carriers("test", 2).startUnwatched(); // so that nobody else polls
    opened.add(carriers);
    AtomicBoolean stop = new AtomicBoolean();
    List<Thread> forking = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      forking.add(start(carriers, () -> forkUntil(stop::get)));
    }
    waitsEnd(carriers);
    stop.set(true);
    forking.forEach(CarriersTest::join);
  }

  private static void waitsEnd(Carriers carriers) {
    Countdown source = new Countdown();
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    join(
        start(
            carriers,
            () -> {
              for (int i = 0; i < 50; i++) {
                source.await(2, carriers);
              }
            }));
    assertThat(source.hasPending()).isFalse();
    carriers.removeSource(polled);
  }

  /** Something new beside what is old: who naps, looks at once, and often. */
  @Test
  void aRingWakesTheAttendantFromItsNap() {
    Carriers carriers = carriers(2);
    Looked source = new Looked();
    Polled polled = carriers.addSource(source, 60_000_000_000L);
    Eventually.holds(
        "the attendant naps for long",
        () -> {
          int before = looks(source);
          LockSupport.parkNanos(2_000_000);
          return looks(source) == before;
        });
    int before = looks(source);
    carriers.ring();
    Eventually.holds("it looks often again", () -> looks(source) > before + 20);
    source.pending = false;
    carriers.removeSource(polled);
  }

  private static int looks(Looked source) {
    return source.looks.values().stream().mapToInt(Integer::intValue).sum();
  }

  /** Nothing to do: no carrier and no watcher wakes by itself. */
  private static void assertAllSleep(Carriers carriers) {
    for (Carrier carrier : carriers.all()) {
      Eventually.holds(
          carrier + " sleeps without limit", () -> carrier.getState() == Thread.State.WAITING);
    }
  }

  /** With nothing ready the watcher sleeps, and nobody would tell the spare later. */
  @Test
  void aSpareLeavesWhenItsWorkIsDoneThoughOthersStandStill() {
    Carriers carriers = carriers(2);
    boolean tried = false;
    long end = System.nanoTime() + 30_000_000_000L; // a spare that came once is near for 5 s
    while (!tried && System.nanoTime() - end < 0) {
      AtomicBoolean stop = new AtomicBoolean();
      Set<Thread> below = ConcurrentHashMap.newKeySet();
      List<Thread> loops = new ArrayList<>();
      for (int each = 0; each < 2; each++) {
        loops.add(
            start(
                carriers,
                () -> {
                  below.add(VirtualThreads.carrier());
                  while (!stop.get()) {
                    Thread.onSpinWait();
                  }
                }));
      }
      Eventually.holds("both loops run", () -> below.size() == 2);
      // a loop on a spare keeps it: on a busy machine a spare may come before a regular one wakes
      if (below.equals(Set.of(carriers.all()[0], carriers.all()[1]))) {
        tried = true;
        join(start(carriers, () -> {}));
        Eventually.holds("the watcher sleeps", carriers::isWatcherAsleep);
        Eventually.holds("no spare is active", () -> carriers.sparesActive() == 0);
      }
      stop.set(true);
      loops.forEach(CarriersTest::join);
    }
    assertThat(tried).as("both loops ran on regular carriers once").isTrue();
  }

  /**
   * Who published more than one piece while a carrier was about to park may have relied on it as a
   * searcher, which wakes another for the rest once it finds something. By hand, on one that is not
   * started: whoever takes the bell in the window between its look and its own going back decides,
   * and no two threads were seen to meet there.
   */
  @Test
  void aCarrierThatGoesBackFromParkingSearches() throws Exception {
    Carriers carriers = new Carriers("test", 2);
    Carrier carrier = carriers.all()[0];
    carriers.ready.add(new Resumable.Free(carriers));
    Method rest = Carrier.class.getDeclaredMethod("rest");
    rest.setAccessible(true);
    assertThat(rest.invoke(carrier)).isEqualTo(true);
    assertThat(carrier.isParked()).isFalse();
    assertThat(carriers.anySearching()).isTrue();
  }

  /**
   * A spare that parks is woken for a source that rings, and finds that it is one too many: the
   * ring must not end with it, while the only other carrier is busy and the watcher asleep.
   */
  @Test
  void aSpareThatStandsDownHandsOnWhatItWasWokenFor() {
    Carriers carriers = carriers(1);
    AtomicBoolean pending = new AtomicBoolean();
    AtomicInteger polls = new AtomicInteger();
    PollSource source =
        new PollSource() {
          @Override
          public int poll() {
            polls.incrementAndGet();
            return 0;
          }

          @Override
          public boolean hasPending() {
            return pending.get();
          }
        };
    Polled polled = carriers.addSource(source, Carriers.NAP_NANOS_MAX);
    AtomicBoolean stop = new AtomicBoolean();
    loops(carriers, 1, stop);
    join(start(carriers, () -> {})); // by a spare, since the only carrier loops
    Carrier spare = carriers.all()[1];
    Eventually.holds("the watcher sleeps", carriers::isWatcherAsleep);
    assertThat(spare.isParked())
        .as("the spare is parked, and nobody has told it to leave")
        .isTrue();
    int before = polls.get();
    pending.set(true);
    carriers.ring();
    try {
      Eventually.holds("somebody polls", () -> polls.get() > before);
    } finally {
      stop.set(true);
      carriers.removeSource(polled);
    }
  }

  @Test
  void idleAllSleepWithoutLimit() {
    Carriers carriers = carriers(3);
    for (int i = 0; i < 100; i++) {
      join(start(carriers, Thread::yield));
    }
    assertAllSleep(carriers);
    Eventually.holds("the watcher sleeps", carriers::isWatcherAsleep);
  }

  /** Whoever napped for a source that went does not keep the others from the next one. */
  @Test
  void aSourceThatComesAfterAnotherWentIsPolled() {
    Carriers carriers = carriers(2);
    for (int round = 0; round < 20; round++) {
      AtomicBoolean stop = new AtomicBoolean();
      loops(carriers, 1, stop); // so that it is not always the same one that naps
      polledAndGone(carriers, true);
      stop.set(true);
      assertAllSleep(carriers);
      polledAndGone(carriers, false);
      assertAllSleep(carriers);
    }
  }

  private static void polledAndGone(Carriers carriers, boolean untilOneNaps) {
    AtomicInteger polls = new AtomicInteger();
    PollSource pending =
        () -> {
          polls.incrementAndGet();
          return 0;
        };
    Polled polled = carriers.addSource(pending, Carriers.NAP_NANOS_MAX);
    // longer than they search on for it
    long naps = System.nanoTime() + (untilOneNaps ? 2 * Nap.SEARCH_NANOS : 0);
    Eventually.holds(
        "it is polled",
        () ->
            polls.get() > 0
                && System.nanoTime() >= naps
                && (!untilOneNaps || carriers.anyParked()));
    carriers.removeSource(polled);
  }
}
