package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.task.Collected;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Where streams come from and where they go. */
class StreamLifeTest {

  @Test
  void aTaskThatNeverUsesTheDeviceMakesNoStream() throws Exception {
    try (World world = new World(FakeDriver.strict());
        TaskScope<Integer> scope = world.tasks.scope()) {
      scope.fork(() -> 1);
      scope.join();
      assertThat(world.driver.count("streamCreate")).isZero();
    }
  }

  @Test
  void anIdleStreamIsTakenBeforeANewOneIsMade() throws Exception {
    try (World world = new World(FakeDriver.strict())) {
      Set<Long> used = ConcurrentHashMap.newKeySet();
      for (int i = 0; i < 20; i++) {
        try (TaskScope<Void> scope = world.tasks.scope()) {
          scope.fork(
              () -> {
                DeviceStream stream = world.context.stream();
                used.add(stream.id());
                work(stream, "work");
                return null; // its end is not waited for, but seen
              });
          scope.join();
        }
      }
      assertThat(used).hasSize(1);
    }
  }

  @Test
  void aStreamWithUnfinishedWorkIsNotIdle() throws Exception {
    try (World world = new World(FakeDriver.stepped())) {
      List<DeviceStream> used = new ArrayList<>();
      for (int i = 0; i < 2; i++) {
        try (TaskScope<Void> scope = world.tasks.scope()) {
          scope.fork(
              () -> {
                used.add(world.context.stream());
                work(world.context.stream(), "work");
                return null;
              });
          scope.join();
        }
      }
      assertThat(used.get(0)).isNotSameAs(used.get(1));
    }
  }

  @Test
  void moreTasksThanStreamsShareThem() throws Exception {
    DeviceConfig config = DeviceConfig.defaults().withStreamsMax(3);
    try (World world = new World(FakeDriver.strict(), config);
        TaskScope<Void> scope = world.tasks.scope()) {
      Set<Long> used = ConcurrentHashMap.newKeySet();
      CountDownLatch all = new CountDownLatch(12);
      for (int i = 0; i < 12; i++) {
        scope.fork(
            () -> {
              used.add(world.context.stream().id());
              assertThat(world.context.stream()).isSameAs(world.context.stream());
              all.countDown();
              all.await(); // all hold theirs at once
              work(world.context.stream(), "work");
              return null;
            });
      }
      scope.join();
      assertThat(used).hasSize(3);
    }
  }

  @Test
  void whereTheDriverHasNoMemoryForAStreamTasksShareThoseThatThereAre() throws Exception {
    try (World world = new World(FakeDriver.strict());
        TaskScope<Void> scope = world.tasks.scope()) {
      Set<Long> used = ConcurrentHashMap.newKeySet();
      CountDownLatch all = new CountDownLatch(3);
      CountDownLatch first = new CountDownLatch(1);
      for (int i = 0; i < 3; i++) {
        boolean makes = i == 0;
        scope.fork(
            () -> {
              if (!makes) {
                first.await();
              }
              used.add(world.context.stream().id());
              world.driver.refuseAlways(DriverCall.STREAM_CREATE, true);
              first.countDown();
              all.countDown();
              all.await(); // all hold theirs at once
              work(world.context.stream(), "work");
              return null;
            });
      }
      scope.join();
      assertThat(used).hasSize(1);
      DeviceStream ofThreads = world.context.stream(); // this one never entered
      assertThat(used).contains(ofThreads.id());
    }
  }

  @Test
  void whereThereIsNoneToShareThatIsSaid() {
    try (World world = new World(FakeDriver.strict())) {
      world.driver.refuseAlways(DriverCall.STREAM_CREATE, true);
      assertThatThrownBy(() -> world.context.stream())
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("create stream on device 0");
    }
  }

  /** Nobody waits for the streams that tasks gave back, so nobody has asked about them either. */
  @Test
  void anIdleStreamIsFoundAlsoIfTheDriverMustBeAsked() throws Exception {
    try (World world = new World(FakeDriver.asked())) {
      world.driver.automatic();
      for (int i = 0; i < 5; i++) {
        try (TaskScope<Long> scope = world.tasks.scope()) {
          scope.fork(() -> World.work(world.context.stream(), "work"));
          scope.join();
        }
      }
      assertThat(world.driver.count("streamCreate")).isEqualTo(1);
    }
  }

  @Test
  void threadsThatNeverEnteredShareOneStream() throws Exception {
    try (World world = new World(FakeDriver.strict())) {
      Set<DeviceStream> seen = ConcurrentHashMap.newKeySet();
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < 4; i++) {
        threads.add(Thread.ofPlatform().start(() -> seen.add(world.context.stream())));
      }
      for (Thread thread : threads) {
        thread.join();
      }
      seen.add(world.context.stream());
      assertThat(seen).hasSize(1);
    }
  }

  @Test
  @Timeout(60)
  void theOwnersOwnTasksTakeStreamsWhileOthersWaitForOneToBeMade() throws Exception {
    try (World world = new World(FakeDriver.strict())) {
      CountDownLatch onOwner = new CountDownLatch(1);
      CompletableFuture<Thread> other = new CompletableFuture<>();
      Completion<Long> owners =
          world
              .context
              .owner()
              .call(
                  () -> {
                    onOwner.countDown();
                    Thread waiting = other.get();
                    World.until(
                        "the other one waits for the owner",
                        () -> waiting.getState() == Thread.State.WAITING);
                    return world.context.stream().id();
                  });
      onOwner.await();
      AtomicReference<DeviceStream> others = new AtomicReference<>();
      Thread thread = Thread.ofPlatform().start(() -> others.set(world.context.stream()));
      other.complete(thread);
      assertThat(owners.await(Duration.ofSeconds(30))).isNotNull();
      thread.join();
      assertThat(others.get()).isSameAs(world.context.stream());
    }
  }

  @Test
  void closingATasksOwnStreamDoesNothing() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.stream();
      stream.close();
      work(stream, "work");
      stream.reached().await();
    }
  }

  @Test
  void aClosedStreamIsDestroyedAfterItsWork() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream stream = world.context.openStream(0);
      work(stream, "work");
      Mark mark = stream.mark();
      Completion<Void> reached = stream.reached();
      stream.close();
      stream.close();
      assertThatThrownBy(() -> work(stream, "more"))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("stream " + stream.id() + " was closed");
      world.context.owner().call(() -> null).await();
      assertThat(world.driver.openStreams()).isEqualTo(1);
      world.driver.automatic();
      reached.await();
      World.until("it is destroyed", () -> world.driver.openStreams() == 0);
      assertThat(world.driver.openEvents()).isZero();
      assertThat(world.driver.count("streamDestroy with unfinished work")).isZero();
      assertThat(stream.isReached(mark)).isTrue();
      stream.reached(mark).await();
      world.context.stream().after(mark); // orders nothing, refuses nothing
    }
  }

  @Test
  void aDroppedStreamIsClosedAndReportedByTheOwnerOnly() {
    try (World world = new World(FakeDriver.strict())) {
      drop(world);
      World.until(
          "the dropped stream is destroyed",
          () -> {
            System.gc();
            return world.driver.openStreams() == 0;
          });
      assertThat(world.context.stats().leaks()).isEqualTo(1);
      assertThat(world.driver.openEvents()).isZero();
    }
  }

  @Test
  void theCleanersThreadIsRefused() throws Exception {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.stream();
      CompletableFuture<Throwable> onCleaner = new CompletableFuture<>();
      registerDropped(stream, onCleaner);
      World.until(
          "the cleaner has tried",
          () -> {
            System.gc();
            return onCleaner.isDone();
          });
      assertThat(onCleaner.join())
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("only retires a node");
    }
  }

  private static void registerDropped(DeviceStream stream, CompletableFuture<Throwable> thrown) {
    Collected.register(
        new Object(),
        () -> {
          try {
            work(stream, "work");
            thrown.complete(new AssertionError("not refused"));
          } catch (IllegalStateException e) {
            thrown.complete(e);
          }
        });
  }

  private static void drop(World world) {
    work(world.context.openStream(0), "work");
  }

  @Test
  void aContextClosesInOrder() {
    World world = new World(FakeDriver.strict());
    Kernel kernel = world.kernel("k");
    kernel.launch(io.fairlead.device.spi.Grid.of(1));
    DeviceStream open = world.context.openStream(0);
    world.context.hostBlocks().take(100).close();
    world.driver.forgetCalls();
    world.context.close();
    world.context.close();
    List<String> calls = new ArrayList<>(world.driver.calls());
    calls.removeIf(call -> call.startsWith("signal"));
    assertThat(calls).endsWith("moduleUnload", "hostFree", "release");
    assertThat(calls.subList(0, calls.size() - 3))
        .allMatch(call -> call.equals("eventDestroy") || call.equals("streamDestroy"));
    assertThat(world.driver.openStreams() + world.driver.openEvents()).isZero();
    assertThatThrownBy(() -> work(open, "work"))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("device 0 was closed");
    assertThatThrownBy(() -> world.context.stream()).isInstanceOf(IllegalStateException.class);
    assertThatThrownBy(() -> world.context.openStream(0)).isInstanceOf(IllegalStateException.class);
    world.close();
  }

  @Test
  void aContextThatCannotEndFailsItsWaitersAndCloses() {
    DeviceConfig config = DeviceConfig.defaults().withCloseNanos(20_000_000);
    World world = new World(FakeDriver.stepped(), config);
    DeviceStream stream = world.context.stream();
    work(stream, "never ends");
    Completion<Void> reached = stream.reached();
    world.context.close();
    assertThatThrownBy(reached::await)
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("closed before this work had ended");
    world.close();
  }

  @Test
  void closingWaitsForWorkThatEndsMeanwhile() throws Exception {
    World world = new World(FakeDriver.stepped());
    DeviceStream stream = world.context.stream();
    work(stream, "work");
    AtomicReference<Thread> closer = new AtomicReference<>();
    closer.set(Thread.ofPlatform().start(world.context::close));
    World.until("the closer waits", () -> closer.get().getState() == Thread.State.TIMED_WAITING);
    assertThat(world.driver.openStreams()).isEqualTo(1);
    world.driver.automatic();
    closer.get().join();
    assertThat(world.driver.openStreams()).isZero();
    assertThat(world.driver.count("streamDestroy with unfinished work")).isZero();
    world.close();
  }

  @Test
  void copiesAreCountedAndBoundsChecked() {
    try (World world = new World(FakeDriver.strict());
        Arena arena = Arena.ofConfined()) {
      DeviceStream stream = world.context.stream();
      FakeBuffer buffer = new FakeBuffer(4096, 100);
      stream.copyToDevice(buffer, 10, arena.allocate(90));
      stream.copyToHost(arena.allocate(50), buffer, 0);
      stream.copyOnDevice(buffer, 0, buffer, 50, 50);
      stream.fill(buffer, 0, 100, (byte) 1);
      assertThat(world.driver.calls())
          .containsSubsequence(
              "copyToDevice 4106", "copyToHost 4096", "copyOnDevice 4096 4146", "fill 4096");
      assertThatThrownBy(() -> stream.copyToDevice(buffer, 11, arena.allocate(90)))
          .isInstanceOf(IndexOutOfBoundsException.class)
          .hasMessageContaining("bytes 11 to 101 of a buffer of 100");
      assertThatThrownBy(() -> stream.fill(buffer, -1, 5, (byte) 0))
          .isInstanceOf(IndexOutOfBoundsException.class);
      DeviceStats stats = world.context.stats();
      assertThat(stats.copies()).isEqualTo(4);
      assertThat(stats.bytesUp()).isEqualTo(90);
      assertThat(stats.bytesDown()).isEqualTo(50);
      assertThat(stats.operations()).isEqualTo(4);
    }
  }

  @Test
  void streamNumbersAreNeverUsedTwice() {
    Set<Long> ids = new HashSet<>();
    for (int i = 0; i < 3; i++) {
      try (World world = new World(FakeDriver.strict());
          DeviceStream stream = world.context.openStream(0)) {
        ids.add(stream.id());
      }
    }
    assertThat(ids).hasSize(3);
  }
}
