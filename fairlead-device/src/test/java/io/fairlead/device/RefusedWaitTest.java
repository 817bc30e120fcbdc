package io.fairlead.device;

import static io.fairlead.device.Param.in;
import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.Timeout;

/**
 * A wait that the driver refuses says nothing of the work, which goes on: whatever it uses stays
 * until its end was really found.
 */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RefusedWaitTest {

  private static World refusing() {
    World world = new World(FakeDriver.stepped());
    world.driver.refuseAlways(DriverCall.SIGNAL, true);
    return world;
  }

  /** Holds until it was tried again, twice, since the first of them may have been under way. */
  private static void whileTried(World world, Runnable holds) {
    long tries = world.driver.count("signal");
    World.until(
        "it was tried again",
        () -> {
          holds.run();
          return world.driver.count("signal") > tries + 2;
        });
  }

  private static void goOn(World world) {
    world.driver.refuseAlways(DriverCall.SIGNAL, false);
    world.driver.automatic();
  }

  @Test
  void aGraphIsKeptWhileItRuns() {
    try (World world = refusing();
        DeviceStream stream = world.context.openStream(0)) {
      Kernel kernel = world.kernel("k", in(Param.I64));
      FakeBuffer buffer = new FakeBuffer(1_000, 64);
      DeviceGraph graph = stream.capture("g", () -> kernel.launch(stream, Grid.of(8), buffer));
      graph.launch(stream);
      graph.close();
      whileTried(
          world,
          () -> {
            assertThat(world.driver.openGraphs()).isEqualTo(1);
            assertThat(buffer.story()).doesNotContain("let go");
          });
      goOn(world);
      World.until("it is gone", () -> world.driver.openGraphs() == 0);
      World.until("it is let go", () -> buffer.story().getLast().equals("let go"));
    }
  }

  @Test
  void aStreamIsKeptWhileItWorks() {
    try (World world = refusing()) {
      DeviceStream stream = world.context.openStream(0);
      work(stream, "work");
      Mark mark = stream.mark();
      stream.close();
      whileTried(world, () -> assertThat(world.driver.count("streamDestroy")).isZero());
      assertThat(stream.isReached(mark)).isFalse();
      goOn(world);
      World.until("it is destroyed", () -> world.driver.count("streamDestroy") == 1);
      assertThat(world.driver.calls()).doesNotContain("streamDestroy with unfinished work");
      assertThat(stream.isReached(mark)).isTrue();
    }
  }

  @Test
  void aModuleIsKeptWhileItMayRun() {
    try (World world = refusing()) {
      KernelModule module =
          world.context.load(ModuleSource.java("m", Map.of("k", (_, _, _) -> {})));
      work(world.context.stream(), "work");
      module.close();
      whileTried(world, () -> assertThat(world.driver.openModules()).isEqualTo(1));
      goOn(world);
      World.until("it is unloaded", () -> world.driver.openModules() == 0);
    }
  }

  @Test
  void aHostBlockComesBackAfterAll() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(4096);
    World world = new World(FakeDriver.stepped(), config);
    DeviceStream one = world.context.openStream(0);
    DeviceStream other = world.context.openStream(0);
    HostBlock block = world.context.hostBlocks().take(4096);
    work(one, "work");
    work(other, "work");
    block.usedUntil(one.mark());
    world.driver.refuseAlways(DriverCall.SIGNAL, true);
    block.closeAfter(other.mark());
    whileTried(world, () -> assertThat(world.driver.pinnedBlocks()).isEqualTo(1));
    goOn(world);
    world.context.hostBlocks().take(4096).close();
    world.close();
  }

  @Test
  void aContextThatClosesWaitsForItsWork() throws Exception {
    World world = refusing();
    work(world.context.stream(), "work");
    Thread closer = Thread.ofPlatform().start(world.context::close);
    whileTried(world, () -> assertThat(world.driver.count("release")).isZero());
    goOn(world);
    closer.join();
    assertThat(world.driver.calls()).doesNotContain("streamDestroy with unfinished work");
    assertThat(world.driver.ended()).containsExactly("work");
    world.close();
  }

  @Test
  void somethingIsDoneAfterWorkOfSeveralStreams() {
    try (World world = refusing();
        DeviceStream one = world.context.openStream(0);
        DeviceStream other = world.context.openStream(0)) {
      work(one, "one");
      work(other, "other");
      AtomicInteger done = new AtomicInteger();
      world.context.afterWork(List.of(one.mark(), other.mark()), done::incrementAndGet);
      whileTried(world, () -> assertThat(done).hasValue(0));
      world.driver.refuseAlways(DriverCall.SIGNAL, false);
      World.until("one is signalled", () -> one.core().signalled() > 0);
      world.driver.endOne(one);
      assertThat(done).hasValue(0);
      world.driver.endOne(other);
      World.until("both have ended", () -> done.get() == 1);
    }
  }

  /** What a stream of another's did last is known only as long as that is there. */
  @Test
  void anEdgeToAStreamThatItsMakerDestroyedIsRefused() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream mine = world.context.openStream(0)) {
      long foreign = world.driver.foreignStream();
      DeviceStream adopted = world.context.adoptStream(foreign);
      world.driver.foreignWork(foreign, "foreign");
      Mark mark = adopted.mark();
      destroyBehind(world, foreign);
      assertThatThrownBy(() -> mine.after(mark)).isInstanceOf(DeviceException.class);
      adopted.close();
    }
  }

  private static void destroyBehind(World world, long foreign) {
    world.driver.makeCurrent(world.context.nativeContext());
    world.driver.streamDestroy(foreign);
    world.driver.makeCurrent(0);
  }

  /** Nobody asks about a handle that may be anything by now; the end of the context tells. */
  @Test
  void whatADestroyedStreamUsedIsKeptUntilTheContextEnds() {
    World world = new World(FakeDriver.stepped());
    long foreign = world.driver.foreignStream();
    DeviceStream adopted = world.context.adoptStream(foreign);
    world.driver.foreignWork(foreign, "foreign");
    Mark mark = adopted.mark();
    destroyBehind(world, foreign);
    AtomicInteger done = new AtomicInteger();
    world.context.afterWork(List.of(mark), done::incrementAndGet);
    DeviceStream other = world.context.stream();
    long asked = world.driver.calls().size();
    for (int i = 0; i < 3; i++) {
      work(other, "work");
      Completion<Void> reached = other.reached();
      world.driver.endOne(other);
      reached.await();
    }
    assertThat(done).hasValue(0);
    assertThat(world.driver.calls().size() - asked).as("none about it").isEqualTo(6);
    world.context.close();
    assertThat(done).hasValue(1);
    world.close();
  }

  /** Whoever waits for it waits for nothing that the context still has. */
  @Test
  void whatIsBegunAfterTheContextHasEndedIsDoneAllTheSame() {
    World world = new World(FakeDriver.stepped());
    DeviceStream stream = world.context.openStream(0);
    work(stream, "work");
    Mark mark = stream.mark();
    world.driver.automatic();
    world.context.close();
    AtomicInteger done = new AtomicInteger();
    world.context.afterWork(List.of(mark), done::incrementAndGet);
    World.until("it is done", () -> done.get() == 1);
    world.close();
  }

  /** Nor does it wait for what nobody knows the end of. */
  @Test
  void whatADestroyedStreamOfAnotherUsedIsNotWaitedForAfterTheEnd() {
    World world = new World(FakeDriver.stepped());
    DeviceContext other = DeviceContext.open(world.tasks, world.driver, 0, DeviceConfig.defaults());
    long foreign = world.driver.foreignStream();
    DeviceStream adopted = other.adoptStream(foreign);
    world.driver.foreignWork(foreign, "foreign");
    Mark mark = adopted.mark();
    destroyBehind(world, foreign);
    world.driver.automatic();
    world.context.close();
    AtomicInteger done = new AtomicInteger();
    world.context.afterWork(List.of(mark), done::incrementAndGet);
    World.until("it is done", () -> done.get() == 1);
    other.close();
    world.close();
  }

  /** Who only tries is no waiter, and is not told what becomes of the stream. */
  @Test
  void aTryFindsNoBlockThatADestroyedStreamUsed() {
    DeviceConfig config = DeviceConfig.defaults().withHostBytesMax(4096);
    try (World world = new World(FakeDriver.stepped(), config)) {
      HostBlocks blocks = world.context.hostBlocks();
      long foreign = world.driver.foreignStream();
      DeviceStream adopted = world.context.adoptStream(foreign);
      HostBlock block = blocks.take(4096);
      world.driver.foreignWork(foreign, "foreign");
      block.closeAfter(adopted.mark());
      destroyBehind(world, foreign);
      assertThat(blocks.tryTake(4096)).isNull();
    }
  }

  @TestFactory
  Stream<DynamicTest> thatARefusalIsTakenForTheEndIsFound() {
    return Stream.<Runnable>of(
            this::aGraphIsKeptWhileItRuns,
            this::aStreamIsKeptWhileItWorks,
            this::aModuleIsKeptWhileItMayRun,
            this::somethingIsDoneAfterWorkOfSeveralStreams)
        .map(each -> DynamicTest.dynamicTest("mutant", () -> found(each)));
  }

  private static void found(Runnable test) {
    try (Mutant.Handle _ = Mutant.enable("device.refused.is.end")) {
      assertThatThrownBy(test::run).isInstanceOf(AssertionError.class);
    }
  }
}
