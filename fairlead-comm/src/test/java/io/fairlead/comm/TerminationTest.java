package io.fairlead.comm;

import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.value;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatNullPointerException;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What ends an epoch other than its work; what is common to all is in TerminationContract. */
@Timeout(60)
class TerminationTest {
  private static final Duration SOON = Duration.ofSeconds(30);
  private static final int WORK = 1;

  private static List<Termination> begun(World world) {
    List<Termination> all = new ArrayList<>();
    for (Comm comm : world.ranks) {
      Termination work = comm.termination();
      work.handle(WORK, (source, header, blobs) -> {});
      all.add(work);
    }
    all.forEach(Termination::begin);
    return all;
  }

  private static Reason reason(Completion<?> end) {
    Completion.Source<Throwable> cause = Completion.source();
    end.onDone(settled -> cause.complete(settled.cause()));
    return ((CommException) cause.completion().await(SOON)).reason();
  }

  @Test
  void aRankThatFailsEndsTheWaitOfAllAlsoOfThoseThatStillWork() {
    try (World world = new World(3)) {
      List<Termination> all = begun(world);
      Completion<Long> waits = all.get(0).finish();
      Termination.Hold hold = all.get(2).hold();
      Completion<Long> works = all.get(2).finish();
      world.rank(1).fail(new IllegalStateException("the third wheel came off"));
      assertThat(reason(waits)).isEqualTo(Reason.PEER_FAILED);
      assertThat(reason(works)).isEqualTo(Reason.PEER_FAILED);
      assertThat(reason(all.get(1).finish())).isEqualTo(Reason.PEER_FAILED);
      assertThat(waits.cause()).hasStackTraceContaining("the third wheel came off");
      hold.close();
      assertThatThrownBy(all.get(0)::begin)
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("make another one");
    }
  }

  @Test
  void whoClosesWhileOthersWaitEndsTheirWaitAndItsOwn() {
    try (World world = new World(2)) {
      List<Termination> all = begun(world);
      Completion<Long> waits = all.get(0).finish();
      Termination.Hold hold = all.get(1).hold();
      Completion<Long> works = all.get(1).finish();
      world.rank(1).close();
      assertThat(reason(works)).isEqualTo(Reason.CLOSED);
      assertThat(reason(waits)).isEqualTo(Reason.PEER_CLOSED);
      hold.close();
    }
  }

  @Test
  void whatIsRefusedDoesNotCount() {
    try (World world = new World(1)) {
      Termination work = begun(world).getFirst();
      assertThatNullPointerException()
          .isThrownBy(() -> refusesNull(work))
          .withMessage("completion");
      assertThatThrownBy(() -> work.message(1, WORK, longs(0)))
          .isInstanceOf(IllegalArgumentException.class);
      assertThat(work.finish().await(SOON)).isZero();
    }
  }

  @SuppressWarnings("NullAway") // on purpose
  private static void refusesNull(Termination work) {
    work.track(null);
  }

  /** A program that looks for an end again and again, each time with another detection. */
  @Test
  void whatIsClosedIsForgottenByTheCommunicatorThatMadeIt() {
    try (World world = new World(2)) {
      Comm open = world.rank(0).duplicate();
      for (int i = 0; i < 10; i++) {
        world.rank(0).duplicate().close();
        world.rank(0).termination().close();
        open.duplicate().close();
      }
      assertThat(world.rank(0).duplicatesOpen()).isEqualTo(1);
      assertThat(open.duplicatesOpen()).isZero();
    }
  }

  /** It takes part in no wave, so nothing else would tell it. */
  @Test
  void whoStillWorksHearsThatAnotherOneCloses() {
    try (World world = new World(2)) {
      List<Termination> all = begun(world);
      Termination.Hold hold = all.get(0).hold();
      Completion<Long> works = all.get(0).finish();
      all.get(1).close();
      assertThat(reason(works)).isEqualTo(Reason.PEER_CLOSED);
      assertThatThrownBy(all.get(0)::begin).isInstanceOf(IllegalStateException.class);
      hold.close();
    }
  }

  @Test
  void aHandlerThatThrowsFailsTheEpochOnAllRanks() {
    try (World world = new World(2)) {
      List<Termination> all = begun(world);
      for (Termination work : all) {
        work.handle(
            2,
            (source, header, blobs) -> {
              throw new UnsupportedOperationException("broken handler");
            });
      }
      all.get(0).message(1, 2, longs(1));
      for (Completion<Long> end : all.stream().map(Termination::finish).toList()) {
        assertThat(reason(end)).isEqualTo(Reason.PEER_FAILED);
        assertThat(end.cause()).hasStackTraceContaining("broken handler");
      }
    }
  }

  /** What nobody takes any more is named, as of any communicator. */
  @Test
  void messagesOfAnEpochThatNeverBeginsHereAreNamedWhenItCloses() {
    try (World world = new World(2)) {
      Termination ahead = world.rank(0).termination();
      Termination behind = world.rank(1).termination();
      AtomicLong handled = new AtomicLong();
      behind.handle(WORK, (source, header, blobs) -> handled.incrementAndGet());
      ahead.begin();
      ahead.message(1, WORK, longs(5)).await(SOON);
      behind.close();
      assertThat(behind.undelivered()).hasSize(1);
      assertThat(behind.undelivered().getFirst().toString()).contains("handler 1");
      assertThat(handled).hasValue(0);
    }
  }

  /** While work is to be waited for nobody asks again and again whether it is over. */
  @Test
  void aRankThatWaitsForOthersTakesPartInOneLookOnly() {
    try (World world = new World(2)) {
      Termination one = world.rank(0).termination();
      Termination two = world.rank(1).termination();
      Completion.Source<Boolean> turnedBack = Completion.source();
      two.handle(WORK, (source, header, blobs) -> two.message(source, WORK, header));
      Termination.Hold[] hold = new Termination.Hold[1];
      one.handle(
          WORK,
          (source, header, blobs) -> {
            if (value(header) == 0) {
              turnedBack.complete(true);
            } else {
              one.message(1, WORK, longs(value(header) - 1));
            }
          });
      one.begin();
      two.begin();
      hold[0] = one.hold();
      one.message(1, WORK, longs(100));
      Completion<Long> here = one.finish();
      Completion<Long> there = two.finish();
      turnedBack.completion().await(SOON);
      assertThat(world.rank(0).stats().collectives()).isZero();
      assertThat(world.rank(1).stats().collectives()).isLessThanOrEqualTo(1);
      hold[0].close();
      hold[0].close(); // twice is harmless
      assertThat(here.await(SOON)).isEqualTo(202);
      assertThat(there.await(SOON)).isEqualTo(202);
      assertThat(world.rank(1).stats().collectives()).isBetween(2L, 3L);
    }
  }

  /**
   * Rank 0 takes part in the first wave and gets work after that; rank 1 takes part when it has
   * sent one message and handled one, so that as many seem to have ended as were sent.
   */
  @Test
  void oneWaveThatAddsUpIsNoEnd() {
    try (World world = new World(2)) {
      Late late = new Late(world);
      Eventually.is(2, "waves of rank 1", () -> world.rank(1).stats().collectives());
      assertThat(late.ends).as("rank 0 has work").noneMatch(Completion::isDone);
      late.work.close();
      for (Completion<Long> end : late.ends) {
        assertThat(end.await(SOON)).isEqualTo(2);
      }
    }
  }

  @Test
  void anEndThatOneWaveFindsIsSeenToBeEarly() {
    try (Mutant.Handle _ = Mutant.enable("termination.one-wave");
        World world = new World(2)) {
      Late late = new Late(world);
      for (Completion<Long> end : late.ends) {
        assertThat(end.await(SOON)).as("though rank 0 has work").isEqualTo(1);
      }
      late.work.close();
    }
  }

  /** As far as the first wave's end. */
  private static final class Late {
    final Termination.Hold work;
    final List<Completion<Long>> ends = new ArrayList<>();

    Late(World world) {
      Termination one = world.rank(0).termination();
      Termination two = world.rank(1).termination();
      Completion.Source<Termination.Hold> taken = Completion.source();
      Completion.Source<Boolean> back = Completion.source();
      one.handle(
          WORK,
          (source, header, blobs) -> {
            taken.complete(one.hold());
            one.message(source, WORK, header);
          });
      two.handle(WORK, (source, header, blobs) -> back.complete(true));
      one.begin();
      two.begin();
      ends.add(one.finish());
      Eventually.is(1, "waves of rank 0", () -> world.rank(0).stats().collectives());
      two.message(0, WORK, longs(1));
      work = taken.completion().await(SOON);
      back.completion().await(SOON);
      ends.add(two.finish());
    }
  }

  /** Device managers act too; neither they nor the detection enter where they must not. */
  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void deviceManagersMaySendHoldAndFinish(ThreadLevel level) {
    try (World world = GuardedTransport.world(3, level, CommConfig.DEFAULT)) {
      Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
      AtomicLong handled = new AtomicLong();
      List<Termination> all = new ArrayList<>();
      for (Comm comm : world.ranks) {
        Termination work = comm.termination();
        work.handle(
            WORK,
            (source, header, blobs) -> {
              handled.incrementAndGet();
              Termination.Hold hold = work.hold();
              long left = value(header);
              manager.trySubmit(
                  () -> {
                    if (left > 0) {
                      work.message((comm.rank() + 1) % 3, WORK, longs(left - 1));
                    }
                    hold.close();
                  });
            });
        all.add(work);
      }
      for (int epoch = 1; epoch <= 5; epoch++) {
        List<Completion<Long>> ends = new ArrayList<>();
        for (Termination work : all) {
          ends.add(
              manager
                  .call(
                      () -> {
                        work.begin();
                        work.message(0, WORK, longs(10));
                        return work.finish();
                      })
                  .await(SOON));
        }
        for (Completion<Long> end : ends) {
          assertThat(end.await(SOON)).isEqualTo(33);
        }
        assertThat(handled).hasValue(33L * epoch);
      }
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  /** A message that was sent before its cancel came is handled, and counts until it was. */
  @Test
  void aCancelThatComesTooLateChangesNothing() {
    try (World world = new World(2)) {
      List<Termination> all = new ArrayList<>();
      AtomicLong handled = new AtomicLong();
      for (Comm comm : world.ranks) {
        Termination work = comm.termination();
        work.handle(WORK, (source, header, blobs) -> handled.incrementAndGet());
        all.add(work);
      }
      for (int epoch = 0; epoch < 100; epoch++) {
        all.forEach(Termination::begin);
        long before = handled.get();
        Completion.Source<Boolean> gate = Completion.source();
        Completion<?> sent = all.get(0).message(1, WORK, gate.completion(), longs(epoch));
        Completion<Boolean> opened =
            world.rank(1).affine(() -> gate.complete(true)); // beside the cancel
        sent.cancel();
        List<Completion<Long>> ends = all.stream().map(Termination::finish).toList();
        for (Completion<Long> end : ends) {
          assertThat(end.await(SOON)).isEqualTo(1);
        }
        assertThat(handled.get() - before).isBetween(0L, 1L);
        opened.await(SOON);
        assertThat(all.get(1).undelivered()).isEmpty();
      }
    }
  }
}
