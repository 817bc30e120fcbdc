package io.fairlead.device;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.task.Completion;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Streams that others made: one record for each, numbers that never fall, an orderly end. */
@Timeout(60)
class AdoptedStreamTest {

  @Test
  void aContextClosesWithAnAdoptedStreamOpen() {
    World world = new World(FakeDriver.stepped());
    long foreign = world.driver.foreignStream();
    world.context.adoptStream(foreign);
    world.driver.foreignWork(foreign, "foreign");
    world.driver.automatic();
    world.context.close();
    assertThat(world.driver.count("release")).isEqualTo(1);
    assertThat(world.driver.openEvents()).isZero();
    assertThat(world.driver.openStreams()).as("it is its maker's").isEqualTo(1);
    world.close();
  }

  @Test
  void aLostContextClosesWithAnAdoptedStreamOpen() {
    World world = new World(FakeDriver.strict());
    world.context.adoptStream(world.driver.foreignStream());
    world.driver.fail("as the test wants");
    World.until("the loss is known", () -> isLost(world.context));
    world.context.close();
    assertThat(world.driver.count("release")).isEqualTo(1);
    world.close();
  }

  private static boolean isLost(DeviceContext context) {
    if (!context.isLost()) {
      context.reportedLost(); // nobody is notified of an adopted stream
    }
    return context.isLost();
  }

  @Test
  void aContextClosesAfterAnAdoptedStreamWasDestroyedByItsMaker() {
    World world = new World(FakeDriver.strict());
    long foreign = world.driver.foreignStream();
    world.context.adoptStream(foreign);
    world.driver.makeCurrent(world.context.nativeContext());
    world.driver.streamDestroy(foreign);
    world.driver.makeCurrent(0);
    world.context.close();
    assertThat(world.driver.count("release")).isEqualTo(1);
    world.close();
  }

  @Test
  void adoptedByManyAtOnceItIsOneStream() throws Exception {
    try (World world = new World(FakeDriver.strict())) {
      long foreign = world.driver.foreignStream();
      CountDownLatch hold = new CountDownLatch(1);
      Completion<Boolean> held =
          world
              .context
              .owner()
              .call(
                  () -> {
                    hold.await();
                    return true;
                  });
      Set<DeviceStream> seen = ConcurrentHashMap.newKeySet();
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        threads.add(Thread.ofPlatform().start(() -> seen.add(world.context.adoptStream(foreign))));
      }
      World.until("all have asked the owner", () -> world.context.owner().queued() == 3);
      hold.countDown();
      held.await();
      for (Thread thread : threads) {
        thread.join();
      }
      assertThat(seen).hasSize(1);
    }
  }

  @Test
  void adoptedAgainItWaitsForWhatCameAfterTheFirstTime() {
    try (World world = new World(FakeDriver.stepped())) {
      long foreign = world.driver.foreignStream();
      world.driver.foreignWork(foreign, "first");
      DeviceStream before = world.context.adoptStream(foreign);
      Completion<Void> first = before.reached();
      before.close();
      world.driver.foreignWork(foreign, "second");
      Completion<Void> second = world.context.adoptStream(foreign).reached();
      world.driver.endForeign(foreign);
      first.await();
      assertThat(world.driver.ended()).containsExactly("first");
      World.until("the first adoption has ended", () -> !world.context.isKnown(before));
      assertThat(second.isDone()).isFalse();
      world.driver.endForeign(foreign);
      second.await();
      assertThat(world.driver.ended()).containsExactly("first", "second");
    }
  }

  /** Its maker may destroy it as soon as close has returned. */
  @Test
  void aClosedOneIsNotTouchedAnyMore() {
    try (World world = new World(FakeDriver.stepped())) {
      long foreign = world.driver.foreignStream();
      DeviceStream adopted = world.context.adoptStream(foreign);
      world.driver.foreignWork(foreign, "foreign");
      Mark mark = adopted.mark();
      adopted.close();
      long signals = world.driver.count("signal");
      long records = world.driver.count("eventRecord");
      assertThat(signals).isEqualTo(1);
      assertThat(records).isEqualTo(1);
      Completion<Void> reached = adopted.reached(mark);
      DeviceStream other = world.context.stream();
      other.after(mark);
      World.work(other, "after");
      world.driver.endOne(other);
      assertThat(world.driver.ended()).isEmpty();
      world.driver.endForeign(foreign);
      reached.await();
      assertThat(world.driver.ended()).containsExactly("foreign", "after");
      assertThat(world.driver.count("signal")).isEqualTo(signals);
      assertThat(world.driver.count("eventRecord")).isEqualTo(records);
    }
  }

  @Test
  void asManyMarksAsOneLikesWaitForNothing() {
    try (World world = new World(FakeDriver.stepped())) {
      long foreign = world.driver.foreignStream();
      DeviceStream adopted = world.context.adoptStream(foreign);
      world.driver.foreignWork(foreign, "long");
      Mark last = adopted.mark();
      for (int i = 0; i < 2 * world.context.config().unfinishedMax(); i++) {
        last = adopted.mark();
      }
      Completion<Void> reached = adopted.reached(last);
      assertThat(reached.isDone()).isFalse();
      world.driver.endForeign(foreign);
      reached.await();
    }
  }
}
