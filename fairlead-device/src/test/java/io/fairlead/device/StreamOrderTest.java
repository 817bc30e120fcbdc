package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.fault.Mutant;
import io.fairlead.task.TaskScope;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Order between streams, on a driver that ends operations one by one. */
class StreamOrderTest {

  @Test
  void anEdgeHoldsLaterWorkBack() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0)) {
      work(a, "a1");
      b.after(a.mark());
      work(b, "b1");
      world.driver.endOne(b);
      assertThat(world.driver.ended()).isEmpty();
      world.driver.endOne(a);
      assertThat(world.driver.ended()).containsExactly("a1", "b1");
    }
  }

  @Test
  void theMutantThatSkipsEdgesIsFound() {
    try (Mutant.Handle _ = Mutant.enable("device.edge.skip")) {
      assertThatThrownBy(this::anEdgeHoldsLaterWorkBack).isInstanceOf(AssertionError.class);
    }
  }

  @Test
  void anEdgeIsAnOperationOfItsOwn() {
    // else work after b's mark would not come after a's, once b's last operation has ended
    try (World world = new World(FakeDriver.stepped());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0);
        DeviceStream c = world.context.openStream(0)) {
      work(a, "a1");
      b.after(a.mark());
      assertThat(b.mark().sequence()).isEqualTo(1);
      c.after(b.mark());
      work(c, "c1");
      world.driver.endOne(c);
      assertThat(world.driver.ended()).isEmpty();
      world.driver.endOne(a);
      assertThat(world.driver.ended()).containsExactly("a1", "c1");
    }
  }

  @Test
  void noEdgeToWorkThatIsKnownToHaveEnded() {
    try (World world = new World(FakeDriver.strict());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0)) {
      work(a, "a1");
      a.reached().await();
      world.driver.forgetCalls();
      b.after(a.mark());
      assertThat(world.driver.calls()).isEmpty();
      assertThat(world.context.stats().edgesElided()).isEqualTo(1);
    }
  }

  @Test
  void noSecondEdgeToWhatComesBeforeAnyway() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0);
        DeviceStream c = world.context.openStream(0)) {
      work(a, "a1");
      Mark a1 = a.mark();
      b.after(a1);
      work(b, "b1");
      c.after(b.mark());
      world.driver.forgetCalls();
      b.after(a1);
      c.after(a1); // through b
      assertThat(world.driver.calls()).isEmpty();
      assertThat(world.context.stats().edges()).isEqualTo(2);
    }
  }

  @Test
  void anEventRecordedLateOrdersTooMuchAndNeverTooLittle() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0)) {
      work(a, "a1");
      Mark a1 = a.mark();
      work(a, "a2");
      b.after(a1);
      work(b, "b1");
      world.driver.endOne(b);
      world.driver.endOne(a);
      assertThat(world.driver.ended()).containsExactly("a1");
      world.driver.endOne(a);
      assertThat(world.driver.ended()).containsExactly("a1", "a2", "b1");
    }
  }

  @Test
  void aCheckpointKeepsLaterWorkOutOfEdges() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0)) {
      work(a, "a1");
      Mark a1 = a.mark();
      a.checkpoint();
      work(a, "waits for the outside");
      b.after(a1);
      work(b, "b1");
      world.driver.endOne(b);
      world.driver.endOne(a);
      assertThat(world.driver.ended()).containsExactly("a1", "b1");
    }
  }

  @Test
  void edgesCreateNoEvents() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0)) {
      world.driver.forgetCalls();
      for (int i = 0; i < 100; i++) {
        work(a, "a" + i);
        b.after(a.mark());
        work(b, "b" + i);
        a.after(b.mark());
      }
      assertThat(world.driver.count("eventCreate")).isZero();
      assertThat(world.driver.count("streamWaitEvent")).isEqualTo(200);
      world.driver.endAll();
      world.context.reached().await();
      assertThat(world.driver.ended()).hasSize(200).startsWith("a0", "b0", "a1", "b1", "a2");
    }
  }

  @Test
  void aChildComesAfterWhatItsParentHadEnqueued() throws Exception {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream mine = world.context.stream();
      work(mine, "parent");
      AtomicReference<DeviceStream> childs = new AtomicReference<>();
      try (TaskScope<Void> scope = world.tasks.scope()) {
        scope.fork(
            () -> {
              childs.set(world.context.stream());
              work(childs.get(), "child");
              return null;
            });
        scope.join();
      }
      assertThat(childs.get()).isNotSameAs(mine);
      world.driver.endOne(childs.get());
      assertThat(world.driver.ended()).isEmpty();
      world.driver.endOne(mine);
      assertThat(world.driver.ended()).containsExactly("parent", "child");
    }
  }

  @Test
  void whatFollowsAJoinComesAfterTheChildrensWork() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream mine = world.context.stream();
      List<DeviceStream> childs = new java.util.concurrent.CopyOnWriteArrayList<>();
      try (TaskScope<Void> scope = world.tasks.scope()) {
        for (int i = 0; i < 3; i++) {
          String name = "child" + i;
          scope.fork(
              () -> {
                DeviceStream own = world.context.stream();
                childs.add(own);
                work(own, name);
                return null;
              });
        }
        scope.join();
      }
      work(mine, "parent"); // on a stream that the parent held before
      world.driver.endOne(mine);
      assertThat(world.driver.ended()).isEmpty();
      childs.forEach(world.driver::endOne);
      assertThat(world.driver.ended()).hasSize(4).endsWith("parent");
    }
  }

  @Test
  void aMarkAfterAJoinStandsForTheChildrensWorkToo() {
    try (World world = new World(FakeDriver.stepped())) {
      DeviceStream mine = world.context.stream();
      AtomicReference<DeviceStream> childs = new AtomicReference<>();
      try (TaskScope<Void> scope = world.tasks.scope()) {
        scope.fork(
            () -> {
              childs.set(world.context.stream());
              work(childs.get(), "child");
              return null;
            });
        scope.join();
      }
      var reached = mine.reached();
      assertThat(reached.isDone()).isFalse();
      world.driver.endOne(childs.get());
      reached.await();
    }
  }

  @Test
  void orderGoesThroughTasksThatEnqueueNothing() {
    try (World world = new World(FakeDriver.stepped())) {
      AtomicReference<DeviceStream> grandchilds = new AtomicReference<>();
      try (TaskScope<Void> outer = world.tasks.scope()) {
        outer.fork(
            () -> {
              try (TaskScope<Void> inner = world.tasks.scope()) {
                inner.fork(
                    () -> {
                      grandchilds.set(world.context.stream());
                      work(grandchilds.get(), "grandchild");
                      return null;
                    });
                inner.join();
              }
              return null;
            });
        outer.join();
      }
      DeviceStream mine = world.context.stream();
      work(mine, "after");
      world.driver.endOne(mine);
      assertThat(world.driver.ended()).isEmpty();
      world.driver.endOne(grandchilds.get());
      assertThat(world.driver.ended()).containsExactly("grandchild", "after");
    }
  }

  @Test
  void anAdoptedStreamsMarkStandsForForeignWork() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream b = world.context.openStream(0)) {
      long foreign = world.driver.foreignStream();
      DeviceStream adopted = world.context.adoptStream(foreign);
      assertThat(world.context.adoptStream(foreign)).isSameAs(adopted);
      world.driver.foreignWork(foreign, "foreign");
      var reached = adopted.reached();
      b.after(adopted.mark());
      work(b, "b1");
      world.driver.endOne(b);
      assertThat(reached.isDone()).isFalse();
      assertThat(world.driver.ended()).isEmpty();
      world.driver.endForeign(foreign);
      reached.await();
      assertThat(world.driver.ended()).containsExactly("foreign", "b1");
      adopted.close();
      World.until("the adopted stream is let go", () -> !world.context.isKnown(adopted));
      assertThat(world.driver.count("streamDestroy")).isZero();
    }
  }
}
