package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.Mutant;
import io.fairlead.fault.TaskFailedException;
import io.fairlead.task.Completion;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.Role;
import io.fairlead.task.Task;
import io.fairlead.task.TaskScope;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What others register to be asked for memory: in which order, and what if they misbehave. */
@Timeout(120)
class SpillableTest {
  private static final int UNIT = 64 << 10;
  private static final Spillable.Memory TRACKED = Spillable.Memory.TRACKED;

  private final long patienceBefore = Spillables.patienceNanos;
  private final long graceBefore = Ladder.graceNanos;
  private TestDevice world;
  private Device device;

  /** A limit of so many units; others' memory lies outside of it. */
  private void open(int units, SpillConfig spill) {
    open(units, spill, Duration.ofHours(1), Duration.ofHours(1));
  }

  private void open(int units, SpillConfig spill, Duration wait, Duration grace) {
    world =
        TestDevice.open(
            MemoryConfig.defaults()
                .withLimit((long) units * UNIT)
                .withChunk(4096)
                .withWait(wait)
                .withGrace(grace)
                .withSpill(spill));
    device = world.device;
  }

  @AfterEach
  void close() {
    Spillables.patienceNanos = patienceBefore;
    Ladder.graceNanos = graceBefore;
    if (world != null) {
      world.awaitNothingInUse();
      world.close();
    }
  }

  /** Without an object for each byte. */
  private static boolean isAll(DeviceBuffer buffer, int value) {
    boolean all = true;
    for (byte each : buffer.toBytes()) {
      all &= each == value;
    }
    return all;
  }

  private static SpillConfig toHost() {
    return SpillConfig.TO_HOST.withHostBytesMax(16 << 20);
  }

  // snippet:cache
  /** Buffers that can be made again, so they need not be copied anywhere. */
  private final class Cache implements Spillable, AutoCloseable {
    private final ArrayDeque<DeviceBuffer> entries = new ArrayDeque<>();
    final SpillRegistration registration;

    Cache(String name, int units, int priority) {
      registration = device.register(name, TRACKED, this);
      registration.priority(priority);
      for (int i = 0; i < units; i++) {
        DeviceBuffer entry = device.allocate(UNIT);
        entry.priority(Integer.MAX_VALUE); // dropped sooner than copied
        entries.add(entry);
      }
    }

    @Override
    public synchronized long spillableBytes() {
      return (long) entries.size() * UNIT;
    }

    @Override
    public synchronized long spill(long bytes) {
      long freed = 0;
      while (freed < bytes && !entries.isEmpty()) {
        entries.removeFirst().close();
        freed += UNIT;
      }
      return freed;
    }

    @Override
    public void close() {
      registration.close();
      spill(Long.MAX_VALUE);
    }

    // end:cache

    synchronized int units() {
      return entries.size();
    }
  }

  // snippet:pressure
  /** What the library calls when it has got no memory: whether it may try again. */
  private static boolean afterFailedAllocation(SpillRegistration library, long bytes) {
    return library.makeRoom(bytes, Duration.ofMinutes(1)) >= bytes;
  }

  // end:pressure

  // --- who is asked, and when ---------------------------------------------------------------

  @Test
  void aCacheIsAskedForWhatIsMissing() {
    open(4, SpillConfig.OFF);
    try (Cache cache = new Cache("cache", 4, 0);
        DeviceBuffer first = device.allocate(UNIT);
        DeviceBuffer second = device.allocate(UNIT)) {
      assertThat(first.bytes() + second.bytes()).isEqualTo(2L * UNIT);
      assertThat(cache.units()).isEqualTo(2);
      assertThat(atItsEnd(cache.registration)).isEqualTo(new SpillableStats(2, 2L * UNIT, 0, 0));
      assertThat(cache.registration.toString()).contains("'cache'", "asked 2 times");
    }
  }

  @Test
  void nobodyIsAskedWhileThereIsMemory() {
    open(4, toHost());
    try (Cache cache = new Cache("cache", 2, 0);
        DeviceBuffer buffer = device.allocate(2 * UNIT)) {
      assertThat(buffer.bytes()).isEqualTo(2L * UNIT);
      assertThat(cache.registration.stats().calls()).isZero();
    }
  }

  @Test
  void lowestPriorityFirstTogetherWithBuffers() {
    open(4, toHost());
    try (Cache last = new Cache("last", 1, 2);
        Cache first = new Cache("first", 1, 0);
        DeviceBuffer second = device.allocate(UNIT);
        DeviceBuffer stays = device.allocate(UNIT);
        var _ = stays.hold()) {
      second.fill((byte) 5);
      second.priority(1);
      try (DeviceBuffer one = device.allocate(UNIT);
          var _ = one.hold()) {
        assertThat(first.units()).as("the lowest").isZero();
        assertThat(last.units()).isEqualTo(1);
        assertThat(second.tier()).isEqualTo(Tier.DEVICE);
        try (DeviceBuffer two = device.allocate(UNIT);
            var _ = two.hold()) {
          assertThat(second.tier()).as("the next one").isEqualTo(Tier.HOST);
          assertThat(last.units()).isEqualTo(1);
          try (DeviceBuffer three = device.allocate(UNIT)) {
            assertThat(three.bytes()).isEqualTo(UNIT);
            assertThat(last.units()).as("the highest").isZero();
          }
        }
      }
      assertThat(second.toBytes()).containsOnly(5);
    }
  }

  @Test
  void whatWasUsedLongestAgoFirst() {
    open(4, SpillConfig.OFF);
    try (Cache older = new Cache("older", 2, 0);
        Cache newer = new Cache("newer", 2, 0)) {
      older.registration.used();
      newer.registration.used();
      try (DeviceBuffer one = device.allocate(UNIT)) {
        assertThat(one.bytes()).isEqualTo(UNIT);
      }
      // asking for memory has moved the clock on
      int before = older.units();
      older.registration.used();
      try (DeviceBuffer more = device.allocate((4L - before - newer.units() + 1) * UNIT)) {
        assertThat(more.bytes()).isPositive();
        assertThat(older.units()).isEqualTo(before);
        assertThat(newer.units()).isEqualTo(1);
      }
    }
  }

  @Test
  void whoWaitsToReserveIsGivenWhatNobodyUses() {
    open(4, SpillConfig.OFF);
    try (Cache cache = new Cache("cache", 4, 0);
        Reservation reservation = device.reserve(3 * UNIT)) {
      assertThat(reservation.bytes()).isEqualTo(3L * UNIT);
      assertThat(cache.units()).isEqualTo(1);
    }
  }

  @Test
  void eachCallHasATaskAndAThreadThatMayBlock() {
    open(2, SpillConfig.OFF);
    AtomicReference<String> seen = new AtomicReference<>();
    DeviceBuffer entry = device.allocate(2 * UNIT);
    SpillRegistration registration =
        device.register(
            "blocks",
            TRACKED,
            simple(
                bytes -> {
                  seen.set(
                      Task.current().name() + Thread.currentThread().isVirtual() + Role.current());
                  entry.close();
                  return 2L * UNIT;
                }));
    try (DeviceBuffer next = device.allocate(UNIT)) {
      assertThat(next.bytes()).isEqualTo(UNIT);
      assertThat(seen).hasValue("spill blocksfalseTASK");
      assertThat(atItsEnd(registration).calls()).isEqualTo(1);
    }
  }

  private interface Body {
    long spill(long bytes) throws Exception;
  }

  private static Spillable simple(Body body) {
    return new Spillable() {
      @Override
      public long spillableBytes() {
        return Long.MAX_VALUE;
      }

      @Override
      public long spill(long bytes) throws Exception {
        return body.spill(bytes);
      }
    };
  }

  /** Who got the memory goes on before the call has returned. */
  private static SpillableStats atItsEnd(SpillRegistration registration) {
    registration.close();
    registration.ended().await();
    return registration.stats();
  }

  // --- who misbehaves -----------------------------------------------------------------------

  @Test
  void oneThatThrowsHasFreedNothingAndOthersAreAsked() {
    open(2, toHost());
    List<Body> bodies =
        List.of(
            _ -> {
              throw new IllegalStateException("on purpose");
            },
            _ -> {
              throw new IOException("on purpose");
            },
            _ -> {
              throw new AssertionError("on purpose");
            },
            _ -> -1);
    List<SpillRegistration> hostile = new ArrayList<>();
    for (Body body : bodies) {
      SpillRegistration each = device.register("hostile", TRACKED, simple(body));
      each.priority(-1);
      hostile.add(each);
    }
    try (DeviceBuffer idle = device.allocate(2 * UNIT)) {
      idle.fill((byte) 3);
      try (DeviceBuffer next = device.allocate(UNIT)) {
        assertThat(next.bytes()).isEqualTo(UNIT);
      }
      for (SpillRegistration each : hostile) {
        assertThat(atItsEnd(each).calls()).isPositive();
        assertThat(each.stats().freedBytes()).isZero();
      }
      assertThat(hostile.subList(0, 3)).allMatch(each -> each.stats().failures() > 0);
      assertThat(isAll(idle, 3)).isTrue();
    }
  }

  @Test
  void oneThatDoesNotReturnInTimeIsLeftAlone() {
    open(2, toHost());
    Spillables.patienceNanos = 1_000_000;
    CountDownLatch go = new CountDownLatch(1);
    SpillRegistration hangs = device.register("hangs", TRACKED, simple(_ -> waitFor(go)));
    hangs.priority(-1);
    try (DeviceBuffer idle = device.allocate(2 * UNIT)) {
      idle.fill((byte) 3);
      try (DeviceBuffer next = device.allocate(UNIT)) {
        assertThat(next.bytes()).isEqualTo(UNIT);
      }
      hangs.close();
      assertThat(hangs.ended().isDone()).as("a call goes on").isFalse();
      go.countDown();
      assertThat(atItsEnd(hangs)).isEqualTo(new SpillableStats(1, 0, 0, 1));
      assertThat(isAll(idle, 3)).isTrue();
    }
  }

  private static long waitFor(CountDownLatch latch) throws InterruptedException {
    latch.await();
    return 0;
  }

  @Test
  void whoHoldsAllItselfFailsThoughOneNeverReturns() {
    open(2, SpillConfig.OFF, Duration.ofHours(1), Duration.ofMillis(1));
    Spillables.patienceNanos = 1_000_000;
    CountDownLatch go = new CountDownLatch(1);
    SpillRegistration hangs = device.register("hangs", TRACKED, simple(_ -> waitFor(go)));
    world.tasks.enter(
        "holder",
        0,
        () -> {
          try (DeviceBuffer own = device.allocate(2 * UNIT)) {
            assertThat(own.bytes()).isEqualTo(2L * UNIT);
            do {
              assertThat(catchThrowable(() -> device.allocate(UNIT)))
                  .isInstanceOf(OutOfDeviceMemoryException.class)
                  .hasMessageContaining("the driver says ")
                  .hasMessageContaining("others: 'hangs' (priority 0) was asked ");
            } while (hangs.stats().late() == 0); // the ladder may have been quicker
            assertThat(catchThrowable(() -> device.allocate(UNIT)))
                .hasMessageContaining("others: 'hangs' (priority 0) was asked 1 times")
                .hasMessageContaining("a call has not returned");
          }
          return null;
        });
    go.countDown();
    hangs.close();
    hangs.ended().await();
  }

  @Test
  void oneThatLiesIsNotBelieved() {
    open(2, toHost());
    AtomicInteger calls = new AtomicInteger();
    SpillRegistration lies =
        device.register(
            "lies",
            TRACKED,
            simple(
                bytes -> {
                  calls.incrementAndGet();
                  return bytes;
                }));
    lies.priority(-1);
    try (DeviceBuffer idle = device.allocate(2 * UNIT)) {
      idle.fill((byte) 3);
      try (DeviceBuffer next = device.allocate(UNIT)) {
        assertThat(next.bytes()).isEqualTo(UNIT);
      }
      assertThat(calls.get()).isPositive();
      lies.close();
      lies.ended().await();
      assertThat(isAll(idle, 3)).isTrue();
    }
  }

  /** Else it is asked again and again, and nobody after it ever. */
  @Test
  void believingOneThatLiesWouldBeFound() {
    open(2, toHost());
    CountDownLatch often = new CountDownLatch(100);
    SpillRegistration lies =
        device.register(
            "lies",
            TRACKED,
            simple(
                bytes -> {
                  often.countDown();
                  return bytes;
                }));
    lies.priority(-1);
    try (TaskScope<Long> scope = world.tasks.scope();
        DeviceBuffer idle = device.allocate(2 * UNIT)) {
      idle.fill((byte) 3);
      try (var _ = Mutant.enable("spillable.believe")) {
        scope.fork(ForkOptions.named("waits").eager(true), this::allocateUnit);
        awaitQuietly(often);
        assertThat(idle.tier()).isEqualTo(Tier.DEVICE);
      }
      assertThat(scope.join()).containsExactly((long) UNIT);
    } finally {
      lies.close();
      lies.ended().await();
    }
  }

  private long allocateUnit() {
    try (DeviceBuffer next = device.allocate(UNIT)) {
      return next.bytes();
    }
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  /** All that could make it wait for memory: the limit, the turn, a reservation, a child. */
  @Test
  void aCallDoesNotWaitForMemory() {
    open(4, toHost());
    ConcurrentLinkedQueue<Throwable> refused = new ConcurrentLinkedQueue<>();
    AtomicReference<Long> free = new AtomicReference<>();
    DeviceBuffer entry = device.allocate(UNIT);
    DeviceBuffer below = device.allocate(UNIT);
    below.spill().await();
    SpillRegistration calls =
        device.register(
            "calls",
            TRACKED,
            simple(
                _ -> {
                  refused.add(catchThrowable(() -> device.allocate(2 * UNIT)));
                  refused.add(catchThrowable(() -> device.reserve(2 * UNIT)));
                  refused.add(catchThrowable(() -> below.fill((byte) 1)));
                  refused.add(catchThrowable(this::allocateInChild));
                  free.set(device.makeRoom(Sizes.MAX, Duration.ofHours(1)));
                  entry.close();
                  return UNIT;
                }));
    try (DeviceBuffer held = device.allocate(3 * UNIT);
        var _ = held.hold()) {
      calls.priority(-1);
      try (DeviceBuffer next = device.allocate(UNIT)) {
        assertThat(next.bytes()).isEqualTo(UNIT);
      }
      assertThat(free.get()).as("only told").isPositive();
      assertThat(refused).hasSize(4);
      assertThat(refused)
          .allSatisfy(
              each ->
                  assertThat(each)
                      .isInstanceOf(OutOfDeviceMemoryException.class)
                      .hasMessageContaining("inside of a call of a Spillable"));
      assertThat(atItsEnd(calls).failures()).isZero();
    } finally {
      entry.close();
      below.close();
    }
  }

  /** Else the call waits for what waits for it, until its time is over. */
  @Test
  void aCallThatWaitsForMemoryIsFound() {
    open(2, toHost());
    Spillables.patienceNanos = 1_000_000;
    SpillRegistration waits =
        device.register(
            "waits",
            TRACKED,
            simple(
                _ -> {
                  try (DeviceBuffer all = device.allocate(2 * UNIT)) {
                    return all.bytes() > 0 ? 0 : 1;
                  }
                }));
    waits.priority(-1);
    try (DeviceBuffer idle = device.allocate(2 * UNIT);
        var _ = Mutant.enable("spillable.inside.waits")) {
      idle.fill((byte) 3);
      try (DeviceBuffer next = device.allocate(UNIT)) {
        assertThat(next.bytes()).isEqualTo(UNIT);
      }
      assertThat(atItsEnd(waits)).isEqualTo(new SpillableStats(1, 0, 0, 1));
      assertThat(isAll(idle, 3)).isTrue();
    }
  }

  private void allocateInChild() {
    try (TaskScope<Long> scope = world.tasks.scope()) {
      var child =
          scope.fork(
              ForkOptions.named("child").eager(true), () -> device.allocate(2 * UNIT).bytes());
      scope.join();
      throw new AssertionError("it has " + child);
    } catch (TaskFailedException failed) {
      throw (RuntimeException) failed.getCause();
    }
  }

  /** Though somebody waits for more than that. */
  @Test
  void aCallMayAllocateWhatIsThere() {
    open(4, SpillConfig.OFF);
    AtomicReference<Long> got = new AtomicReference<>(0L);
    DeviceBuffer entry = device.allocate(2 * UNIT);
    SpillRegistration calls =
        device.register(
            "calls",
            TRACKED,
            simple(
                _ -> {
                  try (DeviceBuffer small = device.allocate(UNIT)) {
                    small.fill((byte) 1);
                    got.set(small.bytes());
                  }
                  entry.close();
                  return 2 * UNIT;
                }));
    try (DeviceBuffer held = device.allocate(UNIT);
        DeviceBuffer next = device.allocate(3 * UNIT)) {
      assertThat(held.bytes() + next.bytes()).isEqualTo(4L * UNIT);
    }
    assertThat(atItsEnd(calls)).isEqualTo(new SpillableStats(1, 2L * UNIT, 0, 0));
    assertThat(got).hasValue((long) UNIT);
  }

  @Test
  void oneMayCloseItselfInACall() {
    open(2, toHost());
    AtomicReference<SpillRegistration> itself = new AtomicReference<>();
    itself.set(
        device.register(
            "closes",
            TRACKED,
            simple(
                _ -> {
                  itself.get().close();
                  itself.get().close();
                  return 0;
                })));
    itself.get().priority(-1);
    try (DeviceBuffer idle = device.allocate(2 * UNIT)) {
      idle.fill((byte) 3);
      for (int i = 0; i < 3; i++) {
        try (DeviceBuffer next = device.allocate(2 * UNIT)) {
          assertThat(next.bytes()).isEqualTo(2L * UNIT);
        }
        assertThat(isAll(idle, 3)).isTrue();
      }
      itself.get().ended().await();
      assertThat(itself.get().stats().calls()).isEqualTo(1);
    }
  }

  @Test
  void aClosedOneIsNotAskedAndADeviceClosesWhatIsOpen() {
    open(2, toHost());
    SpillRegistration closed = device.register("closed", TRACKED, simple(bytes -> bytes));
    closed.close();
    closed.close();
    closed.ended().await();
    SpillRegistration open = device.register("open", TRACKED, simple(bytes -> bytes));
    try (DeviceBuffer idle = device.allocate(2 * UNIT)) {
      idle.fill((byte) 3);
      try (DeviceBuffer next = device.allocate(UNIT)) {
        assertThat(next.bytes()).isEqualTo(UNIT);
      }
    }
    assertThat(closed.stats().calls()).isZero();
    device.close();
    open.ended().await();
    assertThatThrownBy(() -> device.register("late", TRACKED, simple(bytes -> bytes)))
        .hasMessageContaining("was closed");
    world.close();
    world = null;
  }

  @Test
  void oneThatIsCollectedIsNotAsked() {
    open(2, toHost());
    AtomicInteger calls = new AtomicInteger();
    WeakReference<SpillRegistration> dropped = registerAndDrop(calls);
    awaitCollected(dropped);
    try (DeviceBuffer idle = device.allocate(2 * UNIT)) {
      idle.fill((byte) 3);
      try (DeviceBuffer next = device.allocate(UNIT)) {
        assertThat(next.bytes()).isEqualTo(UNIT);
      }
    }
    assertThat(calls).hasValue(0);
    assertThat(device.spillables().open()).isEmpty();
  }

  private WeakReference<SpillRegistration> registerAndDrop(AtomicInteger calls) {
    return new WeakReference<>(
        device.register("dropped", TRACKED, simple(_ -> calls.incrementAndGet())));
  }

  private static void awaitCollected(WeakReference<?> what) {
    while (what.get() != null) {
      System.gc();
      LockSupport.parkNanos(1_000_000);
    }
  }

  // --- in the ladder ------------------------------------------------------------------------

  /**
   * Two tasks that each keep one unit and want one more, and a cache that has two. It has not
   * answered while the ladder looks.
   */
  private MemoryStats.Waits twoWhoWaitForACache() {
    open(4, SpillConfig.OFF);
    Ladder.graceNanos = 0;
    CountDownLatch asked = new CountDownLatch(1);
    CountDownLatch answer = new CountDownLatch(1);
    CountDownLatch both = new CountDownLatch(2);
    ArrayDeque<DeviceBuffer> entries = new ArrayDeque<>();
    entries.add(device.allocate(UNIT));
    entries.add(device.allocate(UNIT));
    try (SpillRegistration cache =
            device.register(
                "cache",
                TRACKED,
                simple(
                    _ -> {
                      asked.countDown();
                      answer.await();
                      entries.forEach(DeviceBuffer::close);
                      return 2 * UNIT;
                    }));
        TaskScope<Long> scope = world.tasks.scope()) {
      for (int i = 0; i < 2; i++) {
        scope.fork(
            ForkOptions.named("keeps " + i).eager(true),
            () -> Oom.retry(device, () -> keepOneAndWantOneMore(both)));
      }
      // who is rolled back before it was asked may end without it
      while (device.memory().waits().rollbacks() == 0
          && (asked.getCount() > 0 || device.memory().waits().now() < 2)) {
        LockSupport.parkNanos(100_000);
      }
      for (int i = 0; i < 3; i++) {
        Ladder.awaitLook();
      }
      answer.countDown();
      assertThat(scope.join()).containsExactly(2L * UNIT, 2L * UNIT);
      assertThat(cache.stats().calls() + device.memory().waits().rollbacks()).isPositive();
    } finally {
      entries.forEach(DeviceBuffer::close);
    }
    return device.memory().waits();
  }

  private long keepOneAndWantOneMore(CountDownLatch both) {
    try (DeviceBuffer one = device.allocate(UNIT);
        var _ = one.hold()) {
      both.countDown();
      awaitQuietly(both);
      try (DeviceBuffer other = device.allocate(UNIT)) {
        return one.bytes() + other.bytes();
      }
    }
  }

  @Test
  void nobodyGivesWayBeforeOthersHaveAnswered() {
    Spillables.patienceNanos = Duration.ofHours(1).toNanos();
    MemoryStats.Waits waits = twoWhoWaitForACache();
    assertThat(waits.rollbacks()).as("rollbacks").isZero();
    assertThat(waits.failures()).as("failures").isZero();
  }

  @Test
  void aLadderThatForgetsOthersIsFound() {
    Spillables.patienceNanos = Duration.ofHours(1).toNanos();
    try (var _ = Mutant.enable("spillable.ladder.skip")) {
      assertThat(twoWhoWaitForACache().rollbacks()).isPositive();
    }
  }

  // --- outside of the limit -----------------------------------------------------------------

  /** Others have three quarters of the device, and the limit is all of it. */
  private Foreigners othersHaveMost(SpillConfig spill) {
    open((int) (TestDevice.MEMORY / UNIT), spill);
    Foreigners others = new Foreigners(world, UNIT);
    others.take((int) (TestDevice.MEMORY / UNIT * 3 / 4));
    return others;
  }

  @Test
  void othersAreAskedWhereTheDriverHasNoRoom() {
    try (Foreigners others = othersHaveMost(SpillConfig.OFF);
        SpillRegistration pool =
            device.register("pool", Spillable.Memory.UNTRACKED, simple(others::free));
        DeviceBuffer half = device.allocate(TestDevice.MEMORY / 2)) {
      half.fill((byte) 1);
      assertThat(half.bytes()).isEqualTo(TestDevice.MEMORY / 2);
      assertThat(pool.stats().freedBytes()).isGreaterThanOrEqualTo(TestDevice.MEMORY / 4);
      assertThat(device.realMemory().oursBytes()).isEqualTo(TestDevice.MEMORY / 2);
      assertThat(device.realMemory().othersBytes()).isEqualTo(others.bytes());
    }
  }

  @Test
  void aRefusalNamesOthers() {
    try (Foreigners others = othersHaveMost(SpillConfig.OFF);
        SpillRegistration pool =
            device.register("pool", Spillable.Memory.UNTRACKED, simple(_ -> 0))) {
      assertThatThrownBy(() -> device.allocate(TestDevice.MEMORY / 2))
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("the driver has no room although the limit has")
          .hasMessageContaining("others 3.0 MiB (3145728 bytes)")
          .hasMessageContaining("others: 'pool' (priority 0, outside of the limit) was asked 1");
      assertThat(others.bytes()).isEqualTo(TestDevice.MEMORY * 3 / 4);
      assertThat(pool.stats().freedBytes()).isZero();
    }
  }

  @Test
  void buffersThatComeFirstLeaveBeforeOthersAreAsked() {
    try (Foreigners others = othersHaveMost(toHost());
        DeviceBuffer idle = device.allocate(TestDevice.MEMORY / 4)) {
      idle.fill((byte) 4);
      idle.priority(-1);
      AtomicReference<Tier> tier = new AtomicReference<>();
      try (SpillRegistration pool =
              device.register(
                  "pool",
                  Spillable.Memory.UNTRACKED,
                  simple(
                      bytes -> {
                        tier.compareAndSet(null, idle.tier());
                        return others.free(bytes);
                      }));
          DeviceBuffer next = device.allocate(TestDevice.MEMORY / 4)) {
        assertThat(idle.tier()).isEqualTo(Tier.HOST);
        assertThat(pool.stats().calls()).isZero();
        try (DeviceBuffer more = device.allocate(TestDevice.MEMORY / 4);
            var _ = next.hold()) {
          assertThat(more.bytes() + next.bytes()).isEqualTo(TestDevice.MEMORY / 2);
        }
      }
      assertThat(isAll(idle, 4)).isTrue();
    }
  }

  @Test
  void othersThatComeFirstAreAskedBeforeBuffersLeave() {
    try (Foreigners others = othersHaveMost(toHost());
        DeviceBuffer idle = device.allocate(TestDevice.MEMORY / 4);
        SpillRegistration pool =
            device.register("pool", Spillable.Memory.UNTRACKED, simple(others::free))) {
      idle.fill((byte) 4);
      pool.priority(-1);
      try (DeviceBuffer next = device.allocate(TestDevice.MEMORY / 4)) {
        assertThat(next.bytes()).isEqualTo(TestDevice.MEMORY / 4);
        assertThat(idle.tier()).isEqualTo(Tier.DEVICE);
        assertThat(pool.stats().calls()).isPositive();
      }
    }
  }

  // --- others who need room -----------------------------------------------------------------

  @Test
  void buffersLeaveForOthers() {
    open((int) (TestDevice.MEMORY / UNIT), toHost());
    try (Foreigners others = new Foreigners(world, TestDevice.MEMORY / 2);
        DeviceBuffer idle = device.allocate(TestDevice.MEMORY * 3 / 4)) {
      idle.fill((byte) 4);
      assertThat(others.take()).isFalse();
      long free = device.makeRoom(TestDevice.MEMORY / 2, Duration.ofHours(1));
      assertThat(free).isGreaterThanOrEqualTo(TestDevice.MEMORY / 2);
      assertThat(idle.tier()).isEqualTo(Tier.HOST);
      assertThat(others.take()).isTrue();
      others.free(1);
      assertThat(isAll(idle, 4)).isTrue();
    }
    awaitNothingKept();
  }

  /** What others have asked for is theirs for a moment. */
  private void awaitNothingKept() {
    while (device.memory().inUse() > 0) {
      LockSupport.parkNanos(1_000_000);
      device.context().reached().await();
    }
  }

  @Test
  void whatIsKeptForReuseGoesToOthersFirst() {
    open((int) (TestDevice.MEMORY / UNIT), toHost());
    try (Foreigners others = new Foreigners(world, UNIT);
        DeviceBuffer stays = device.allocate(TestDevice.MEMORY / 2)) {
      for (int i = 0; i < 8; i++) { // each half a quarter of the device, and none is used any more
        try (DeviceBuffer once = device.allocate(TestDevice.MEMORY / 16)) {
          once.fill((byte) 1);
        }
      }
      device.context().reached().await();
      long free = device.makeRoom(TestDevice.MEMORY / 2, Duration.ofHours(1));
      assertThat(free).isEqualTo(TestDevice.MEMORY / 2);
      assertThat(stays.tier()).isEqualTo(Tier.DEVICE);
      others.take((int) (TestDevice.MEMORY / 2 / UNIT));
    }
  }

  @Test
  void cachesAreAskedForOthersAndWhoAsksIsNot() {
    open((int) (TestDevice.MEMORY / UNIT), SpillConfig.OFF);
    int units = (int) (TestDevice.MEMORY / UNIT);
    try (Foreigners others = new Foreigners(world, UNIT);
        Cache cache = new Cache("cache", units / 2, 0);
        SpillRegistration library =
            device.register("library", Spillable.Memory.UNTRACKED, simple(others::free))) {
      library.priority(-1);
      others.take(units / 2);
      assertThat(others.take()).isFalse();
      assertThat(afterFailedAllocation(library, 8L * UNIT)).isTrue();
      assertThat(cache.units()).isLessThanOrEqualTo(units / 2 - 8);
      assertThat(library.stats().calls()).isZero();
      others.take(8);
      int left = cache.units();
      assertThat(device.makeRoom(4 * UNIT, Duration.ofHours(1))).isGreaterThanOrEqualTo(4L * UNIT);
      assertThat(library.stats().calls()).as("it is asked for somebody else").isPositive();
      assertThat(cache.units()).isEqualTo(left);
    }
    awaitNothingKept();
  }

  @Test
  void itEndsWhenTheTimeIsOverOrNothingCanLeave() {
    open((int) (TestDevice.MEMORY / UNIT), toHost());
    try (DeviceBuffer held = device.allocate(TestDevice.MEMORY * 3 / 4);
        var _ = held.hold()) {
      assertThat(device.makeRoom(TestDevice.MEMORY / 2, Duration.ofMillis(1)))
          .isEqualTo(TestDevice.MEMORY / 4);
      assertThat(device.makeRoom(TestDevice.MEMORY / 2, Duration.ZERO))
          .isEqualTo(TestDevice.MEMORY / 4);
      assertThat(device.makeRoom(TestDevice.MEMORY / 2, Duration.ofSeconds(-1)))
          .isEqualTo(TestDevice.MEMORY / 4);
      assertThat(device.memory().waits().now()).isZero();
    }
    device.close();
    assertThatThrownBy(() -> device.makeRoom(1, Duration.ZERO)).hasMessageContaining("was closed");
    world.close();
    world = null;
  }

  /** All but a little is held, so nothing can leave as long as those who hold it go on. */
  private void allocateBesideWhoWantsMore(Duration wait) {
    open((int) (TestDevice.MEMORY / UNIT), toHost(), wait, Duration.ofHours(1));
    Thread asks = null;
    try (DeviceBuffer held = device.allocate(TestDevice.MEMORY - 4 * UNIT)) {
      Hold hold = held.hold();
      AtomicLong room = new AtomicLong();
      asks =
          Thread.ofPlatform()
              .start(
                  () -> room.set(device.makeRoom(TestDevice.MEMORY / 2, Duration.ofSeconds(100))));
      while (device.spiller().looks() == 0) { // it has begun to ask for what is not free
        LockSupport.parkNanos(100_000);
      }
      try (DeviceBuffer small = device.allocate(2 * UNIT)) {
        assertThat(small.bytes()).isEqualTo(2 * UNIT);
        assertThat(room).as("room for others, not yet").hasValue(0);
      } finally {
        hold.close();
      }
      joined(asks);
      assertThat(room.get()).isGreaterThanOrEqualTo(TestDevice.MEMORY / 2);
    } finally {
      if (asks != null) {
        joined(asks);
      }
    }
    awaitNothingKept();
  }

  private static void joined(Thread thread) {
    try {
      thread.join();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void whoWantsMoreThanCanLeaveDoesNotHoldUpOthers() {
    allocateBesideWhoWantsMore(Duration.ofHours(1));
  }

  @Test
  void whoKeepsWhatOthersWaitForIsFound() {
    try (var _ = Mutant.enable("pressure.keeps-on")) {
      assertThatThrownBy(() -> allocateBesideWhoWantsMore(Duration.ofMillis(500)))
          .isInstanceOf(OutOfDeviceMemoryException.class);
    }
  }

  /** Without anything to spill there is nothing to wait for, whatever the time. */
  @Test
  void withoutAnythingThatCanLeaveItReturnsAtOnce() {
    open((int) (TestDevice.MEMORY / UNIT), SpillConfig.OFF);
    try (DeviceBuffer held = device.allocate(TestDevice.MEMORY * 3 / 4)) {
      assertThat(held.bytes()).isPositive();
      assertThat(device.makeRoom(TestDevice.MEMORY / 2, Duration.ofDays(100_000_000)))
          .isEqualTo(TestDevice.MEMORY / 4);
    }
  }

  @Test
  void anOwnersThreadIsOnlyTold() {
    open((int) (TestDevice.MEMORY / UNIT), toHost());
    try (DeviceBuffer idle = device.allocate(TestDevice.MEMORY * 3 / 4)) {
      idle.fill((byte) 4);
      Completion<Long> free =
          device
              .context()
              .owner()
              .call(() -> device.makeRoom(TestDevice.MEMORY / 2, Duration.ofHours(1)));
      assertThat(free.await()).isEqualTo(TestDevice.MEMORY / 4);
      assertThat(idle.tier()).isEqualTo(Tier.DEVICE);
    }
  }

  /** Many at once, from tasks and from threads, while our own tasks allocate. */
  @Test
  void manyAskAtOnce() throws InterruptedException {
    open((int) (TestDevice.MEMORY / UNIT), toHost());
    try (Foreigners others = new Foreigners(world, 4 * UNIT);
        TaskScope<Integer> scope = world.tasks.scope()) {
      List<Thread> threads = new ArrayList<>();
      AtomicInteger got = new AtomicInteger();
      for (int i = 0; i < 3; i++) {
        Runnable asks =
            () -> {
              for (int round = 0; round < 4; round++) {
                device.makeRoom(8 * UNIT, Duration.ofMillis(20));
                if (others.take()) {
                  got.incrementAndGet();
                  others.free(1);
                }
              }
            };
        threads.add(Thread.ofPlatform().start(asks));
        int task = i;
        scope.fork(ForkOptions.named("works " + i).eager(true), () -> work(task));
      }
      for (Thread each : threads) {
        each.join();
      }
      assertThat(scope.join()).containsExactly(0, 1, 2);
      assertThat(got.get()).isPositive();
    }
    awaitNothingKept();
  }

  private int work(int task) {
    for (int round = 0; round < 5; round++) {
      try (DeviceBuffer mine = device.allocate(16 * UNIT)) {
        mine.fill((byte) task);
        assertThat(isAll(mine, task)).isTrue();
      }
    }
    return task;
  }
}
