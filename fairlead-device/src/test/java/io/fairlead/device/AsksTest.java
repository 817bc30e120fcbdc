package io.fairlead.device;

import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.task.Completion;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Whom the poller asks about, where signals do not arrive by themselves. */
class AsksTest {
  private static final int STREAMS = 200;

  private static List<DeviceStream> held(World world, int count) {
    List<DeviceStream> streams = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      DeviceStream stream = world.context.openStream(0);
      work(stream, "work " + i);
      streams.add(stream);
    }
    return streams;
  }

  private static List<Completion<Void>> waits(List<DeviceStream> streams) {
    return streams.stream().map(DeviceStream::reached).toList();
  }

  private static Set<Long> askedAbout(World world) {
    Set<Long> handles = new HashSet<>();
    world.driver.questions().forEach(handles::addAll);
    return handles;
  }

  @Test
  void everyStreamIsAskedAboutAndNeverTooManyAtOnce() {
    try (World world = new World(FakeDriver.asked())) {
      List<DeviceStream> streams = held(world, STREAMS);
      List<Completion<Void>> waits = waits(streams);
      World.until("all were asked about", () -> askedAbout(world).size() == STREAMS);
      assertThat(world.driver.questions())
          .allSatisfy(each -> assertThat(each).hasSizeBetween(1, Asks.ASKED_MAX))
          .filteredOn(each -> each.size() > Asks.REPEATED_MAX)
          .allSatisfy(each -> assertThat(each).doesNotHaveDuplicates());
      assertThat(waits).noneMatch(Completion::isDone);
      world.driver.endAll();
      Completion.all(waits).await();
    }
  }

  @Test
  void aQuestionThatGoesWrongIsForgotten() {
    try (World world = new World(FakeDriver.asked())) {
      List<DeviceStream> streams = held(world, 3);
      Asks asks = new Asks(world.driver, world.context.nativeContext());
      streams.forEach(each -> asks.add(each.core()));
      world.driver.failNextQuestion();
      assertThatThrownBy(asks::ask).hasMessageContaining("on purpose");
      assertThat(asks.ask()).as("nobody was added since").isZero();
      assertThat(world.driver.questions()).isEmpty();
      asks.add(streams.getFirst().core());
      asks.ask();
      assertThat(askedAbout(world)).containsExactly(streams.getFirst().handle());
      world.driver.endAll();
    }
  }

  @Test
  void nobodyIsAskedAboutWhomNobodyWaitsFor() {
    try (World world = new World(FakeDriver.asked())) {
      List<DeviceStream> streams = held(world, 3);
      DeviceStream waited = streams.get(1);
      Completion<Void> wait = waited.reached();
      World.until("it was asked about", () -> !world.driver.questions().isEmpty());
      assertThat(askedAbout(world)).containsExactly(waited.handle());
      world.driver.endAll();
      wait.await();
    }
  }

  /** Between two polls lies more than a question takes: a young wait is as good as a spin. */
  @Test
  void aYoungWaitIsAskedAboutSeveralTimesInARow() {
    try (World world = new World(FakeDriver.asked())) {
      DeviceStream stream = world.context.openStream(0);
      World.until(
          "somebody came round while the wait was young",
          () -> {
            work(stream, "work");
            Completion<Void> wait = stream.reached();
            int before = world.driver.questions().size();
            World.until("it was asked about", () -> world.driver.questions().size() > before);
            world.driver.endOne(stream);
            wait.await();
            return world.driver.questions().stream()
                .anyMatch(each -> each.size() == Asks.REPEATED_MAX);
          });
      work(stream, "long");
      Completion<Void> wait = stream.reached();
      World.until("it is asked about once each time", () -> isAskedOnce(world));
      world.driver.endAll();
      wait.await();
      assertThat(askedAbout(world)).containsExactly(stream.handle());
      stream.close();
    }
  }

  private static boolean isAskedOnce(World world) {
    List<List<Long>> questions = world.driver.questions();
    return questions.subList(Math.max(0, questions.size() - 3), questions.size()).stream()
        .allMatch(each -> each.size() == 1);
  }

  /** Streams that end in the order in which they were waited for are found at once. */
  @Test
  void whileStreamsEndInOrderTheOldestAreInEveryQuestion() {
    try (World world = new World(FakeDriver.asked())) {
      List<DeviceStream> streams = held(world, STREAMS);
      List<Completion<Void>> waits = waits(streams);
      World.until("all were asked about", () -> askedAbout(world).size() == STREAMS);
      List<Integer> questions = new ArrayList<>();
      for (int i = 0; i < 50; i++) {
        int before = world.driver.questions().size();
        world.driver.endOne(streams.get(i));
        waits.get(i).await();
        questions.add(world.driver.questions().size() - before);
      }
      // far fewer than it takes to ask about all; the order may be lost now and then on a slow
      // machine
      assertThat(questions.stream().filter(count -> count <= 4)).hasSizeGreaterThan(10);
      world.driver.endAll();
      Completion.all(waits).await();
    }
  }

  /** A wait that has just begun is asked about in the very next questions, beside any others. */
  @Test
  void aNewWaitIsNotLeftBehindOldOnes() {
    try (World world = new World(FakeDriver.asked())) {
      List<DeviceStream> streams = held(world, STREAMS);
      List<Completion<Void>> waits = waits(streams);
      World.until("all were asked about", () -> askedAbout(world).size() == STREAMS);
      DeviceStream young = world.context.openStream(0);
      work(young, "young");
      int asked = world.driver.questions().size();
      Completion<Void> wait = young.reached();
      int last = world.driver.questions().size();
      World.until("it was asked about", () -> askedAbout(world).contains(young.handle()));
      List<List<Long>> questions = world.driver.questions();
      while (!questions.get(asked).contains(young.handle())) {
        asked++;
      }
      // the one that was under way, and at most one whose ranks were settled before the wait was
      assertThat(asked - last).isLessThanOrEqualTo(2);
      world.driver.endOne(young);
      wait.await();
      assertThat(waits).noneMatch(Completion::isDone);
      world.driver.endAll();
      Completion.all(waits).await();
    }
  }

  @Test
  void whoComesAfterAnotherWaitIsNotAskedAboutBeforeThatEnds() {
    try (World world = new World(FakeDriver.asked())) {
      List<DeviceStream> streams = held(world, 20);
      List<Completion<Void>> waits = new ArrayList<>();
      for (int i = 0; i < 20; i++) {
        DeviceStream stream = streams.get(i);
        if (i > 0) {
          stream.after(streams.get(i - 1).mark());
          work(stream, "behind");
        }
        waits.add(stream.reached());
      }
      World.until("some was asked", () -> world.driver.questions().size() > 10);
      assertThat(askedAbout(world)).containsExactly(streams.getFirst().handle());
      world.driver.endOne(streams.getFirst());
      waits.getFirst().await();
      World.until("the next is asked", () -> askedAbout(world).size() == 2);
      assertThat(askedAbout(world)).contains(streams.get(1).handle());
      world.driver.endAll();
      Completion.all(waits).await();
    }
  }

  /** The other stream is waited for as well, but further on than where this one comes after it. */
  @Test
  void anotherWaitFurtherOnHoldsUpNobody() {
    try (World world = new World(FakeDriver.asked())) {
      DeviceStream first = world.context.openStream(0);
      DeviceStream second = world.context.openStream(0);
      work(first, "short");
      second.after(first.mark());
      work(second, "behind");
      work(first, "long");
      Completion<Void> end = first.reached();
      Completion<Void> behind = second.reached();
      world.driver.endOne(first);
      world.driver.endOne(second);
      behind.await();
      assertThat(end.isDone()).isFalse();
      world.driver.endAll();
      end.await();
    }
  }

  /** An edge that was made after what is waited for does not hold it up either. */
  @Test
  void anEdgeBehindTheWaitHoldsUpNobody() {
    try (World world = new World(FakeDriver.asked())) {
      DeviceStream first = world.context.openStream(0);
      DeviceStream second = world.context.openStream(0);
      work(first, "long");
      work(second, "short");
      Completion<Void> shortWait = second.reached();
      Completion<Void> longWait = first.reached();
      second.after(first.mark());
      work(second, "behind");
      world.driver.endOne(second);
      shortWait.await();
      assertThat(longWait.isDone()).isFalse();
      world.driver.endAll();
      longWait.await();
    }
  }

  /** At 0.75 µs for each, less than a hundredth of a core. */
  @ParameterizedTest
  @ValueSource(ints = {1, 16, 48, 64})
  void longWaitsAreAskedAboutSeldom(int streams) {
    double questions = 0;
    long look = 1_000_000;
    for (long age = look; age < 1_000_000_000; age += look) {
      questions += streams * Math.min(1, (double) look / Asks.intervalNanos(age, streams));
    }
    assertThat(questions * 750).isLessThan(0.01 * 1_000_000_000);
  }

  @Test
  void theIntervalIsAShareOfTheWait() {
    assertThat(Asks.intervalNanos(0, 64)).isEqualTo(1);
    assertThat(Asks.intervalNanos(3_200_000, 64)).isEqualTo(100_000);
    assertThat(Asks.intervalNanos(10_000_000_000L, 1)).isEqualTo(10_000_000);
    assertThat(Asks.intervalNanos(10_000_000_000L, 1_000)).isEqualTo(150_000_000);
  }
}
