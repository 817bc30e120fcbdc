package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIfSystemProperty;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Tasks that look in the place of their idle carrier. Most looks here would last longer than any
 * test may, so whatever happens meanwhile happens because the look made room for it.
 */
@Timeout(120)
@DisabledIfSystemProperty(
    named = "fairlead.test.closed",
    matches = "true",
    disabledReason = "there are no own carriers where the package is closed")
class LookingTest {
  private static final long FOR_EVER = Duration.ofHours(1).toNanos();

  /** Looks of somebody who does not stop. */
  private static final int MANY = 20_000;

  /** Of what holds on a machine that gives everybody a processor. */
  private static final int ROUNDS = 20;

  private final List<Carriers> opened = new ArrayList<>();
  private final Kernels kernels = new Kernels();

  private Carriers carriers(int regulars, boolean watched) {
    Carriers carriers = new Carriers("look", regulars);
    carriers.lookNanos = FOR_EVER;
    opened.add(watched ? carriers.start() : carriers.startUnwatched());
    carriers.addSource(kernels, Carriers.NAP_NANOS_MAX);
    return carriers;
  }

  @AfterEach
  void close() {
    kernels.all.forEach(kernel -> kernel.ended = true);
    opened.forEach(Carriers::close);
  }

  /** What runs on a device: its end is there to be seen, and nobody is told. */
  private static final class Kernel implements WaitHelp {
    final Completion.Source<String> source = Completion.source(this);
    final AtomicInteger looks = new AtomicInteger();
    volatile Thread foundBy;
    volatile boolean ended;

    @Override
    public boolean poll() {
      if (ended && source.complete("ended")) {
        foundBy = Thread.currentThread();
      }
      return source.completion().isDone();
    }

    @Override
    public boolean isFoundByLooking() {
      return true;
    }

    @Override
    public boolean isReady() {
      looks.incrementAndGet();
      return ended;
    }

    @Override
    public boolean block(long nanos) {
      return false;
    }

    void isLookedAt() {
      assertThat(isLookedAtWithin(Duration.ofSeconds(15))).as("a task looks").isTrue();
    }

    boolean isLookedAtWithin(Duration most) {
      int seen = looks.get();
      return Eventually.holdsWithin(most, () -> looks.get() > seen + 2);
    }

    boolean isLeftAlone() {
      int seen = looks.get();
      return !Eventually.holdsWithin(Duration.ofMillis(20), () -> looks.get() > seen);
    }
  }

  /** Finds the ends of kernels. */
  private static final class Kernels implements PollSource {
    final List<Kernel> all = new CopyOnWriteArrayList<>();

    Kernel launch() {
      Kernel kernel = new Kernel();
      all.add(kernel);
      return kernel;
    }

    @Override
    public int poll() {
      int found = 0;
      for (Kernel kernel : all) {
        found += !isDone(kernel) && kernel.poll() ? 1 : 0;
      }
      return found;
    }

    @Override
    public boolean hasPending() {
      return all.stream().anyMatch(kernel -> !isDone(kernel));
    }

    @Override
    public boolean mayFind() {
      return all.stream().anyMatch(kernel -> !isDone(kernel) && kernel.ended);
    }

    private static boolean isDone(Kernel kernel) {
      return kernel.source.completion().isDone();
    }
  }

  private static Thread start(Carriers carriers, Runnable body) {
    Thread thread = carriers.thread(body);
    thread.start();
    return thread;
  }

  private static Thread waiter(Carriers carriers, Kernel kernel) {
    return start(carriers, kernel.source.completion()::await);
  }

  private static void holds(String what, BooleanSupplier condition) {
    assertThat(Eventually.holdsWithin(Duration.ofSeconds(15), condition)).as(what).isTrue();
  }

  private static void join(Thread thread) {
    try {
      assertThat(thread.join(Duration.ofSeconds(15))).as(thread + " ended").isTrue();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static boolean endsWhile(Thread thread, Kernel looked) {
    int until = looked.looks.get() + MANY;
    holds("it ends, or is not let", () -> !thread.isAlive() || looked.looks.get() > until);
    return !thread.isAlive();
  }

  private static int parked(Carriers carriers) {
    int parked = 0;
    for (Carrier carrier : carriers.all()) {
      parked += carrier.isParked() ? 1 : 0;
    }
    return parked;
  }

  /** So many, and not in a nap from which they come back. */
  private static void sleepsForGood(Carriers carriers, int count) {
    holds(
        "the others sleep",
        () ->
            parked(carriers) == count
                && !Eventually.holdsWithin(Duration.ofMillis(5), () -> parked(carriers) != count));
  }

  private static void assertIdle(Carriers carriers) {
    holds(
        "all sleep",
        () -> {
          for (Carrier carrier : carriers.all()) {
            if (!carrier.isParked() || carrier.isMounted()) {
              return false;
            }
          }
          return !carriers.anySearching() && !carriers.pendingUnattended();
        });
  }

  // --- it looks

  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void aTaskFindsItsEndItselfAndGoesOn(int regulars) {
    Carriers carriers = carriers(regulars, false);
    for (int i = 0; i < 20; i++) {
      assertIdle(carriers); // who goes idle after it would take over
      Kernel kernel = kernels.launch();
      Thread waiter = waiter(carriers, kernel);
      kernel.isLookedAt();
      sleepsForGood(carriers, regulars - 1);
      kernel.ended = true;
      join(waiter);
      assertThat(kernel.foundBy).isSameAs(waiter);
    }
    assertIdle(carriers);
  }

  @Test
  void whileItLooksItsCarrierCountsAsIdle() {
    Carriers carriers = carriers(1, false);
    Kernel kernel = kernels.launch();
    Thread waiter = waiter(carriers, kernel);
    kernel.isLookedAt();
    Carrier only = carriers.all()[0];
    assertThat(carriers.anySearching()).isTrue();
    assertThat(only.isMounted()).isFalse();
    assertThat(carriers.isAttendant(only)).isTrue();
    kernel.ended = true;
    join(waiter);
    assertIdle(carriers);
    assertThat(carriers.isAttendant(only)).isFalse();
  }

  /** Which says when it is done, but finds nobody to wake then. */
  @Test
  void aTaskThatWaitsForAnOwnerLooks() {
    Carriers carriers = carriers(1, false);
    Kernel pending = kernels.launch(); // for which the only carrier searches at all
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, carriers)) {
      Owner owner = runtime.owner("looked-for", Role.OWNER);
      AtomicBoolean go = new AtomicBoolean();
      AtomicReference<Integer> seen = new AtomicReference<>();
      Thread waiter =
          start(
              carriers,
              () ->
                  seen.set(
                      owner
                          .call(
                              () -> {
                                while (!go.get()) {
                                  Thread.onSpinWait();
                                }
                                return 42;
                              })
                          .await()));
      holds("it looks", () -> carriers.anySearching() && !carriers.all()[0].isMounted());
      holds("and is not parked", () -> waiter.getState() == Thread.State.RUNNABLE);
      go.set(true);
      join(waiter);
      assertThat(seen).hasValue(42);
    }
    pending.ended = true;
    assertIdle(carriers);
  }

  @Test
  void aTaskThatIsToldNotToLookParks() {
    Carriers carriers = carriers(1, false);
    carriers.lookNanos = 0;
    Kernel kernel = kernels.launch();
    Thread waiter = waiter(carriers, kernel);
    Eventually.waits(waiter);
    kernel.ended = true;
    carriers.ring();
    join(waiter);
    assertThat(kernel.looks).hasValue(0);
    assertThat(kernel.foundBy).isSameAs(carriers.all()[0]);
  }

  @Test
  void aLookEndsInTimeAndTheCarrierGoesOn() {
    Carriers carriers = carriers(1, false);
    carriers.lookNanos = Nap.SEARCH_NANOS;
    Kernel kernel = kernels.launch();
    Thread waiter = waiter(carriers, kernel);
    Eventually.waits(waiter);
    assertThat(kernel.isLeftAlone()).isTrue();
    kernel.ended = true;
    join(waiter);
    assertThat(kernel.foundBy).isSameAs(carriers.all()[0]);
    assertIdle(carriers);
  }

  // --- and makes room

  @Test
  void whatBecomesReadyMeanwhileRuns() {
    Carriers carriers = carriers(1, false);
    Kernel kernel = kernels.launch();
    Thread waiter = waiter(carriers, kernel);
    for (int i = 0; i < 50; i++) {
      join(start(carriers, () -> {}));
      Eventually.waits(waiter); // its carrier looks on, which is no task's time any more
    }
    kernel.ended = true;
    join(waiter);
  }

  @Test
  void aLookThatIgnoresWorkIsSeen() {
    Carriers carriers = carriers(1, false);
    Kernel kernel = kernels.launch();
    try (Mutant.Handle _ = Mutant.enable("look.ignores-work")) {
      Thread waiter = waiter(carriers, kernel);
      kernel.isLookedAt();
      Thread other = start(carriers, () -> {});
      assertThat(endsWhile(other, kernel)).isFalse();
      kernel.ended = true;
      join(waiter);
      join(other);
    }
  }

  @Test
  void whatMayRunOnItsCarrierOnlyRuns() {
    Carriers carriers = carriers(1, false);
    Thread stays = carriers.threadThatStays(LockSupport::park);
    stays.start();
    Eventually.waits(stays);
    Kernel kernel = kernels.launch();
    Thread waiter = waiter(carriers, kernel);
    kernel.isLookedAt();
    LockSupport.unpark(stays);
    join(stays);
    kernel.ended = true;
    join(waiter);
  }

  /** Its callbacks run on the carrier, as no task. */
  @Test
  void whatOthersWaitForIsFoundByTheCarrier() {
    Carriers carriers = carriers(1, false);
    Kernel first = kernels.launch();
    Kernel second = kernels.launch();
    AtomicReference<Role> role = new AtomicReference<>();
    first.source.completion().onDone(done -> role.set(Role.current()));
    Thread parked = waiter(carriers, first);
    first.isLookedAt();
    Thread looks = waiter(carriers, second); // and the first one goes aside for it
    second.isLookedAt();
    first.ended = true;
    join(parked);
    assertThat(first.foundBy).isSameAs(carriers.all()[0]);
    assertThat(role.get()).isEqualTo(Role.DEVICE_MANAGER);
    assertThat(looks.isAlive()).isTrue();
    second.ended = true;
    join(looks);
    assertIdle(carriers);
  }

  @Test
  void aLookThatIgnoresWhatAPollWouldFindIsSeen() {
    Carriers carriers = carriers(1, false);
    Kernel first = kernels.launch();
    Kernel second = kernels.launch();
    Thread parked = waiter(carriers, first);
    first.isLookedAt();
    try (Mutant.Handle _ = Mutant.enable("look.ignores-finds")) {
      Thread looks = waiter(carriers, second);
      second.isLookedAt();
      first.ended = true;
      assertThat(endsWhile(parked, second)).isFalse();
      second.ended = true;
      join(looks);
      join(parked);
    }
  }

  /** On a busy machine a look may end for other reasons, so there are some rounds. */
  @Test
  void theOneThatWaitsLastLooksAlone() {
    Carriers carriers = carriers(2, false);
    boolean looksStill = false;
    for (int round = 0; round < ROUNDS && !looksStill; round++) {
      Kernel first = kernels.launch();
      Kernel second = kernels.launch();
      Thread looks = waitsAfterIt(carriers, first, second);
      looksStill = second.isLookedAtWithin(Duration.ofSeconds(1));
      first.ended = true;
      holds("its carrier is asked", () -> first.source.completion().isDone());
      second.ended = true;
      join(looks);
    }
    assertThat(looksStill).as("the carrier of the first did not take over again").isTrue();
    assertIdle(carriers);
  }

  @Test
  void aCarrierThatTakesOverAgainIsSeen() {
    Carriers carriers = carriers(2, false);
    Kernel first = kernels.launch();
    Kernel second = kernels.launch();
    try (Mutant.Handle _ = Mutant.enable("look.takes-back")) {
      Thread looks = waitsAfterIt(carriers, first, second);
      Eventually.waits(looks);
      first.ended = true;
      second.ended = true;
      join(looks);
    }
  }

  /** On the other carrier; gives its thread once that of the first has parked. */
  private static Thread waitsAfterIt(Carriers carriers, Kernel first, Kernel second) {
    AtomicBoolean runs = new AtomicBoolean();
    AtomicBoolean go = new AtomicBoolean();
    Thread last =
        start(
            carriers,
            () -> {
              runs.set(true);
              while (!go.get()) {
                Thread.onSpinWait();
              }
              second.source.completion().await();
            });
    holds("it keeps a carrier", runs::get);
    Thread parks = waiter(carriers, first);
    first.isLookedAt();
    go.set(true);
    Eventually.waits(parks);
    return last;
  }

  @Test
  void aMemberOfAStrandLetsTheOthersRun() throws Exception {
    Carriers carriers = carriers(1, false);
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, carriers)) {
      Strand strand = runtime.strand("turns");
      ForkOptions in = ForkOptions.DEFAULT.placement(new Placement.Serial(strand));
      Kernel kernel = kernels.launch();
      try (TaskScope<String> scope = runtime.scope()) {
        scope.fork(in, kernel.source.completion()::await);
        kernel.isLookedAt();
        scope.fork(
            in,
            () -> {
              kernel.ended = true; // nobody else says so
              return "other";
            });
        assertThat(scope.join()).containsExactly("ended", "other");
      }
    }
  }

  // --- and ends early

  @Test
  void anInterruptEndsIt() {
    Carriers carriers = carriers(1, false);
    Kernel kernel = kernels.launch();
    assertThat(thrown(carriers, kernel, Thread::interrupt))
        .isInstanceOf(TaskInterruptedException.class);
  }

  @Test
  void aCancellationOfWhatIsAwaitedEndsIt() {
    Carriers carriers = carriers(1, false);
    Kernel kernel = kernels.launch();
    assertThat(thrown(carriers, kernel, waiter -> kernel.source.completion().cancel()))
        .isInstanceOf(TaskCancelledException.class);
  }

  @Test
  void aDeadlineEndsIt() {
    Carriers carriers = carriers(1, false);
    Kernel kernel = kernels.launch();
    AtomicReference<FairleadException> thrown = new AtomicReference<>();
    join(
        start(
            carriers,
            () -> {
              try {
                kernel.source.completion().await(Duration.ofMillis(5));
              } catch (FairleadException e) {
                thrown.set(e);
              }
            }));
    assertThat(thrown.get()).isInstanceOf(DeadlineExceededException.class);
  }

  @Test
  void aCancellationOfItsTaskEndsIt() {
    Carriers carriers = carriers(2, false);
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT, carriers)) {
      Kernel kernel = kernels.launch();
      AtomicReference<FairleadException> thrown = new AtomicReference<>();
      try (TaskScope<String> scope = runtime.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
        Fork<String> fork =
            scope.fork(
                () -> {
                  try {
                    return kernel.source.completion().await();
                  } catch (FairleadException e) {
                    thrown.set(e);
                    throw e;
                  }
                });
        kernel.isLookedAt();
        fork.task().cancel(null);
        scope.join();
      }
      assertThat(thrown.get()).isInstanceOf(TaskCancelledException.class);
    }
  }

  private FairleadException thrown(
      Carriers carriers, Kernel kernel, java.util.function.Consumer<Thread> act) {
    AtomicReference<FairleadException> thrown = new AtomicReference<>();
    Thread waiter =
        start(
            carriers,
            () -> {
              try {
                kernel.source.completion().await();
              } catch (FairleadException e) {
                thrown.set(e);
              }
            });
    kernel.isLookedAt();
    act.accept(waiter);
    join(waiter);
    return thrown.get();
  }

  // --- a task that cannot be taken off its carrier

  /** The look ends for work that its carrier then cannot take: others must have been told. */
  @Test
  void whatAPinnedTaskLeavesIsTakenByOthers() throws Throwable {
    Carriers carriers = carriers(2, true);
    Kernel kernel = kernels.launch();
    Thread pinned = start(carriers, () -> awaitPinned(kernel));
    kernel.isLookedAt();
    for (int i = 0; i < 20; i++) {
      join(start(carriers, () -> {}));
    }
    kernel.ended = true;
    join(pinned);
    assertIdle(carriers);
  }

  @Test
  void aPinnedTaskThatStaysCountedIsSeen() {
    Carriers carriers = carriers(2, false); // a watcher would see to it, late
    Kernel kernel = kernels.launch();
    try (Mutant.Handle _ = Mutant.enable("look.stays-counted")) {
      Thread pinned = start(carriers, () -> awaitPinned(kernel));
      kernel.isLookedAt();
      sleepsForGood(carriers, 1);
      Thread other = start(carriers, () -> {});
      Eventually.waits(pinned);
      assertThat(Eventually.holdsWithin(Duration.ofMillis(50), () -> !other.isAlive())).isFalse();
      carriers.stopSearch(); // as it should have
      carriers.signal();
      join(other);
      kernel.ended = true;
      carriers.signal();
      join(pinned);
    }
  }

  /** Calls back from native code, which no virtual thread can leave. */
  private static void awaitPinned(Kernel kernel) {
    try (Arena arena = Arena.ofConfined()) {
      Linker linker = Linker.nativeLinker();
      FunctionDescriptor compares =
          FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS);
      MethodHandle body =
          MethodHandles.lookup()
              .findStatic(
                  LookingTest.class,
                  "compare",
                  MethodType.methodType(
                      int.class, Kernel.class, MemorySegment.class, MemorySegment.class))
              .bindTo(kernel);
      MethodHandle sort =
          linker.downcallHandle(
              linker.defaultLookup().find("qsort").orElseThrow(),
              FunctionDescriptor.ofVoid(
                  ValueLayout.ADDRESS,
                  ValueLayout.JAVA_LONG,
                  ValueLayout.JAVA_LONG,
                  ValueLayout.ADDRESS));
      sort.invoke(arena.allocate(8), 2L, 4L, linker.upcallStub(body, compares, arena));
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  @SuppressWarnings("unused") // by the name
  private static int compare(Kernel kernel, MemorySegment one, MemorySegment other) {
    kernel.source.completion().await();
    return 0;
  }

  // --- none is lost

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 4})
  void noneIsLostAmongLooksAndWakes(int regulars) {
    long seed = Long.getLong("fairlead.seed", System.nanoTime() & 0xffff_ffffL);
    System.out.println("seed: -Dfairlead.seed=" + seed);
    Carriers carriers = carriers(regulars, false);
    carriers.lookNanos = Nap.SEARCH_NANOS;
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < 24; t++) {
      SplittableRandom random = new SplittableRandom(seed + t);
      threads.add(carriers.thread(() -> looksAndWakes(carriers, random)));
    }
    threads.forEach(Thread::start);
    while (kernels.all.stream().anyMatch(kernel -> !kernel.ended)
        || threads.stream().anyMatch(Thread::isAlive)) {
      for (Kernel kernel : kernels.all) {
        kernel.ended = true;
      }
      Thread.onSpinWait();
      kernels.all.removeIf(kernel -> kernel.source.completion().isDone());
    }
    threads.forEach(LookingTest::join);
    assertIdle(carriers);
  }

  private void looksAndWakes(Carriers carriers, SplittableRandom random) {
    for (int step = 0; step < 200; step++) {
      switch (random.nextInt(4)) {
        case 0 -> join(start(carriers, () -> {}));
        case 1 -> LockSupport.parkNanos(random.nextInt(1, 100_000));
        default -> kernels.launch().source.completion().await();
      }
    }
  }
}
