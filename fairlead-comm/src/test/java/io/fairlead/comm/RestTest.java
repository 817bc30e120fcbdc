package io.fairlead.comm;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.fault.Mutant;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** When a loop sleeps for long, and what ends that. */
@Timeout(60)
class RestTest {

  /** A transport's part, which does as it is told. */
  private static final class Told implements Rest.Progress {
    final List<String> calls = new ArrayList<>();
    int found;
    boolean quiet = true;
    boolean resting;

    @Override
    public int poll(boolean asked) {
      calls.add(asked ? "asked" : "poll");
      return found;
    }

    @Override
    public int pollBeforeRest(boolean asked) {
      calls.add("announced poll");
      resting = true;
      return found == 0 && quiet ? Rest.MAY_REST : found;
    }

    @Override
    public boolean isResting() {
      return resting;
    }

    @Override
    public void endRest() {
      calls.add("end");
      resting = false;
    }

    String takeCalls() {
      String all = String.join(", ", calls);
      calls.clear();
      return all;
    }
  }

  private long now = 1;
  private final Told told = new Told();
  private final Rest rest = new Rest(told, () -> now);

  private long napThenPoll(boolean busy) {
    final long nap = rest.napNanosMax();
    now += nap == Rest.REST_NAP_NANOS_MAX ? 10_000_000 : 100_000;
    rest.poll(busy, false);
    return nap;
  }

  /** Until the next nap is a long one. */
  private void untilAtRest() {
    int naps = 0;
    while (napThenPoll(false) != Rest.REST_NAP_NANOS_MAX) {
      naps++;
    }
    assertThat(naps * 100_000L).isGreaterThanOrEqualTo(Rest.REST_NANOS);
    told.calls.clear();
  }

  @Test
  void itNapsForAWhileBeforeItRestsAndStaysAnnounced() {
    rest.poll(false, false);
    untilAtRest();
    for (int i = 0; i < 3; i++) {
      assertThat(napThenPoll(false)).isEqualTo(Rest.REST_NAP_NANOS_MAX);
      assertThat(told.takeCalls()).isEqualTo("announced poll");
      assertThat(rest.hasRung()).isFalse();
    }
  }

  @Test
  void whoRingsIsSeenBeforeTheNapAndItLooksForAWhile() {
    untilAtRest();
    told.resting = false; // a ring
    assertThat(rest.hasRung()).isTrue();
    rest.napNanosMax();
    rest.poll(false, false);
    rest.poll(false, false);
    assertThat(told.takeCalls()).isEqualTo("end, poll, poll");
    assertThat(rest.napNanosMax()).isEqualTo(Rest.NAP_NANOS_MAX);
    untilAtRest();
  }

  /**
   * What others hand to its owner: nothing of the transport's, so the announcement stands still.
   */
  @Test
  void aLoopThatIsBusyIsAnnouncedNoLonger() {
    untilAtRest();
    napThenPoll(true);
    assertThat(told.takeCalls()).isEqualTo("end, poll");
    assertThat(rest.napNanosMax()).isEqualTo(Rest.NAP_NANOS_MAX);
  }

  /** They have looked, most likely, and go to sleep. */
  @Test
  void whoRingsWhileOthersLookIsLookedFor() {
    told.found = Rest.OTHERS_LOOK;
    assertThat(rest.poll(false, false)).isZero();
    assertThat(rest.isLookedFor()).isTrue();
    told.found = 1;
    assertThat(rest.poll(false, true)).isEqualTo(1);
    assertThat(rest.isLookedFor()).isFalse();
    assertThat(told.takeCalls()).isEqualTo("poll, asked");
  }

  @Test
  void twoPollsWithoutANapEndTheRest() {
    untilAtRest();
    napThenPoll(false);
    rest.poll(false, false);
    assertThat(told.takeCalls()).isEqualTo("announced poll, end, poll");
    assertThat(rest.napNanosMax()).isEqualTo(Rest.NAP_NANOS_MAX);
  }

  @Test
  void whatIsInFlightIsNotSleptOver() {
    told.quiet = false;
    for (int i = 0; i < 200; i++) {
      assertThat(napThenPoll(false)).isEqualTo(Rest.NAP_NANOS_MAX);
    }
    told.quiet = true;
    napThenPoll(false);
    assertThat(rest.napNanosMax()).isEqualTo(Rest.REST_NAP_NANOS_MAX);
    told.quiet = false;
    napThenPoll(false);
    assertThat(rest.napNanosMax()).isEqualTo(Rest.NAP_NANOS_MAX);
  }

  @Test
  void whatAnAnnouncedPollFindsIsAnswered() {
    untilAtRest();
    told.found = 3;
    rest.napNanosMax();
    assertThat(rest.poll(false, false)).isEqualTo(3);
    assertThat(rest.napNanosMax()).isEqualTo(Rest.NAP_NANOS_MAX);
  }

  // --- with an engine ---------------------------------------------------------------------------

  private static World world(ThreadLevel level) {
    TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
    return GuardedTransport.world(tasks, 1, level, CommConfig.DEFAULT, true);
  }

  private static GuardedTransport transport(World world) {
    return (GuardedTransport) world.ranks.getFirst().engine().transport;
  }

  /** The loop of an engine sleeps, is rung, and sleeps again. */
  @ParameterizedTest
  @EnumSource(names = {"FUNNELED", "SERIALIZED"})
  void anEngineRestsAndIsRung(ThreadLevel level) {
    try (World world = world(level)) {
      GuardedTransport transport = transport(world);
      transport.rings = true;
      for (int i = 0; i < 3; i++) {
        Eventually.holds("the loop rests", transport::isResting);
        CommLoop loop = world.ranks.getFirst().engine().loop();
        long before = loop.rings();
        Eventually.holds(
            "it is rung",
            () -> {
              transport.ring();
              return loop.rings() > before;
            });
      }
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  @Test
  void aTransportThatCannotRingIsPolledOn() {
    try (World world = world(ThreadLevel.SERIALIZED)) {
      GuardedTransport transport = transport(world);
      long before = transport.polls.sum();
      Eventually.holds("polls go on", () -> transport.polls.sum() > before + 100);
      assertThat(transport.isResting()).isFalse();
    }
  }

  /** What comes just before the announcement rings nobody, so a poll has to come after it. */
  @Test
  void theAnnouncementIsBeforeThePoll() {
    assertThat(violationsOfALoopAtRest()).isEmpty();
  }

  @Test
  void aLoopThatAnnouncesTooLateIsFound() {
    try (Mutant.Handle _ = Mutant.enable("comm.polls-before-it-announces")) {
      assertThat(violationsOfALoopAtRest())
          .contains("a rest without a poll after its announcement");
    }
  }

  private static List<String> violationsOfALoopAtRest() {
    try (World world = world(ThreadLevel.SERIALIZED)) {
      GuardedTransport transport = transport(world);
      transport.rings = true;
      Eventually.holds("the loop asks whether it may sleep", () -> transport.rests.sum() > 0);
      return GuardedTransport.violations(world);
    }
  }
}
