package io.fairlead.comm;

import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.Task;
import io.fairlead.task.TaskScope;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * What every public method does once its communicator is closed, in one table: what goes on fails
 * as CLOSED, in a {@link CommException} that names it; what would have to be kept is refused at
 * once; the rest does no harm. Nothing waits for ever, and nobody is given what cannot be used.
 */
@Timeout(120)
class ClosedTest {
  private static final Duration SOON = Duration.ofSeconds(30);

  private interface Call {
    @Nullable Object on(Comm comm) throws Exception;
  }

  /** Answer a completion that fails. */
  private static Map<String, Call> failing() {
    Map<String, Call> calls = new LinkedHashMap<>();
    calls.put("send of 8 bytes", comm -> comm.send(1, 1, longs(1)));
    calls.put("send of 8 bytes to", comm -> comm.send(1, 1, null, Blob.of(longs(1))));
    calls.put(
        "send of 8 bytes to rank 1",
        comm -> comm.send(1, 1, Completion.source().completion(), Blob.of(longs(1))));
    calls.put("send of 8 bytes to rank 0", comm -> comm.send(0, 1, longs(1)));
    calls.put("receive", comm -> comm.receive(1, 1));
    calls.put("receive of 8 bytes", comm -> comm.receive(1, 1, longs(1)));
    calls.put("receive from any rank", comm -> comm.receive(Comm.ANY, 1));
    calls.put("receive of 8 bytes from rank 1", comm -> comm.receiveInto(1, 1, Blob.of(memory(8))));
    calls.put("message of 8 bytes", comm -> comm.message(1, 1, longs(1)));
    calls.put(
        "message of 8 bytes to rank 1",
        comm -> comm.message(1, 1, Completion.source().completion(), longs(1)));
    calls.put("expose of 8 bytes", comm -> comm.expose(memory(8)));
    calls.put("put of 8 bytes", comm -> comm.put(1, 1, 0, longs(1)));
    calls.put("put of 8 bytes to", comm -> comm.put(1, 1, 0, null, Blob.of(longs(1))));
    calls.put("get of 8 bytes", comm -> comm.get(1, 1, 0, memory(8)));
    calls.put("get of 8 bytes from", comm -> comm.getInto(1, 1, 0, Blob.of(memory(8))));
    calls.put("barrier", Comm::barrier);
    calls.put("all-reduce of 1 values", comm -> comm.allReduce(new double[1], ReduceOp.SUM));
    calls.put("all-reduce of 1 floats", comm -> comm.allReduce(new float[1], ReduceOp.SUM));
    calls.put("all-reduce of 1 longs", comm -> comm.allReduce(new long[1], ReduceOp.SUM));
    calls.put("all-reduce of 1 ints", comm -> comm.allReduce(new int[1], ReduceOp.SUM));
    calls.put("broadcast", comm -> comm.broadcast(0, longs(1)));
    calls.put("gather", comm -> comm.gather(1, longs(1), null));
    calls.put("all-gather", comm -> comm.allGather(longs(1), longs(1, 2)));
    calls.put("all-to-all", comm -> comm.allToAll(longs(1, 2), longs(1, 2)));
    return calls;
  }

  /** Throw. */
  private static Map<String, Call> refused() {
    Map<String, Call> calls = new LinkedHashMap<>();
    calls.put("handle", comm -> handle(comm));
    calls.put("handle, places", comm -> handlePlaces(comm));
    calls.put("duplicate", Comm::duplicate);
    calls.put("termination", Comm::termination);
    calls.put("lend", comm -> comm.lend(8));
    calls.put("tryLend", comm -> comm.tryLend(8));
    calls.put("affine", comm -> comm.affine(() -> "never"));
    return calls;
  }

  private static @Nullable Object handle(Comm comm) {
    comm.handle(7, (source, header, blobs) -> {});
    return null;
  }

  private static @Nullable Object handlePlaces(Comm comm) {
    comm.handle(
        8, (source, header, lengths) -> new MemorySegment[0], (source, header, blobs) -> {});
    return null;
  }

  private static List<String> wrong(Comm comm) {
    List<String> wrong = new ArrayList<>();
    failing().forEach((name, call) -> check(wrong, name, () -> fails(name, call.on(comm))));
    refused().forEach((name, call) -> check(wrong, name, () -> refuses(comm, call)));
    return wrong;
  }

  private interface Check {
    void run() throws Exception;
  }

  private static void check(List<String> wrong, String name, Check check) {
    try {
      check.run();
    } catch (Exception | AssertionError e) {
      wrong.add(name + ": " + e);
    }
  }

  private static void fails(String name, @Nullable Object answer) {
    Completion<?> completion = (Completion<?>) answer;
    assertThatThrownBy(() -> completion.await(Duration.ofSeconds(2)))
        .isInstanceOf(CommException.class)
        .hasMessageContaining(name)
        .hasMessageContaining("rank 0")
        .hasMessageContaining("closed the communicator")
        .extracting(failure -> ((CommException) failure).reason())
        .isEqualTo(Reason.CLOSED);
  }

  private static void refuses(Comm comm, Call call) {
    assertThatThrownBy(() -> call.on(comm))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("closed the communicator");
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void aClosedCommunicator(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      world.rank(0).close();
      assertThat(wrong(world.rank(0))).isEmpty();
    }
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void aClosedDuplicate(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      Comm duplicate = world.rank(0).duplicate();
      duplicate.close();
      assertThat(wrong(duplicate)).isEmpty();
    }
  }

  @Test
  void whatHarmsNobodyDoesNothing() {
    try (World world = new World(2)) {
      Comm closed = world.rank(0);
      Window window = closed.expose(memory(8)).await(SOON);
      LentBuffer lent = closed.lend(8);
      Completion<Received> others = world.rank(1).receive(1, 1);
      closed.close();
      closed.close();
      window.close();
      window.close();
      lent.setLong(0, 1);
      assertThatThrownBy(() -> closed.send(1, 1, null, lent).await(SOON))
          .hasMessageContaining("closed the communicator");
      lent.close();
      closed.fail(new IllegalStateException("of no interest to others"));
      assertThat(closed.rank()).isZero();
      assertThat(closed.size()).isEqualTo(2);
      assertThat(closed.undelivered()).isEmpty();
      assertThat(closed.stats().sent()).isZero();
      assertThat(closed.toString()).contains("rank 0 of 2");
      assertThat(closed.engine().lender.bytesLent()).isZero();
      world.rank(1).send(1, 1, longs(1)).await(SOON);
      assertThat(others.await(SOON).bytes()).isEqualTo(8);
    }
  }

  @Test
  void aWorldThatHasFailedExposesNothing() {
    try (World world = new World(2)) {
      world.rank(1).fail(new IllegalStateException("on purpose"));
      assertThatThrownBy(() -> world.rank(0).expose(memory(8)).await(SOON))
          .isInstanceOf(CommException.class)
          .hasMessageContaining("expose of 8 bytes on rank 0: rank 1 failed")
          .extracting(failure -> ((CommException) failure).reason())
          .isEqualTo(Reason.PEER_FAILED);
    }
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void aClosedTermination(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      Termination begun = world.rank(0).termination();
      begun.begin();
      begun.close();
      begun.close();
      Termination.Hold hold = begun.hold(); // what went on when it closed may do so to its end
      hold.close();
      closedTermination(() -> begun.message(1, 1, longs(1)).await(SOON));
      closedTermination(() -> begun.finish().await(SOON));
      Termination idle = world.rank(0).termination();
      idle.close();
      for (Termination closed : List.of(begun, idle)) {
        closedTermination(closed::begin);
        closedTermination(() -> closed.handle(1, (source, header, blobs) -> {}));
        closedTermination(() -> closed.message(1, 1, longs(1)));
        closedTermination(closed::hold);
        closedTermination(() -> closed.track(Completion.completed(null)));
        assertThat(closed.undelivered()).isEmpty();
      }
      closedTermination(idle::finish);
    }
  }

  private static void closedTermination(ThrowingCallable call) {
    assertThatThrownBy(call).hasMessageContaining("closed");
  }

  // --- others, who wait for what a closed one could have done
  // --------------------------------------

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void aDuplicateOfWhatAPeerHasClosedWaitsForNobody(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      Comm before = world.rank(1).duplicate();
      Completion<Received> waiting = before.receive(0, 1);
      world.rank(0).close();
      Comm after = world.rank(1).duplicate();
      for (Completion<?> answer :
          List.of(waiting, after.receive(0, 1), after.send(0, 1, longs(1)), before.barrier())) {
        assertThatThrownBy(() -> answer.await(SOON))
            .isInstanceOf(CommException.class)
            .hasMessageContaining("rank 0 closed the communicator");
      }
    }
  }

  // --- while it closes
  // -----------------------------------------------------------------------------

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void whoeverIsParkedForAPlaceGoesOn(boolean lends) {
    CommConfig little = CommConfig.DEFAULT.withSlots(1, 16).withLentBytes(64);
    try (World world = new World(2, little)) {
      Comm duplicate = world.rank(0).duplicate();
      Completion<?> never = Completion.source().completion();
      world.rank(0).send(1, 1, never, Blob.of(longs(1))); // takes the only place
      LentBuffer all = world.rank(0).lend(64);
      try (TaskScope<String> scope = world.tasks.scope()) {
        Completion.Source<Task> parks = Completion.source();
        Fork<String> fork =
            scope.fork(
                () -> {
                  parks.complete(Task.current());
                  if (lends) {
                    refuses(duplicate, comm -> comm.lend(8));
                  } else {
                    fails("send", duplicate.send(1, 1, never, Blob.of(longs(1))));
                  }
                  return "went on";
                });
        parks.completion().await(SOON);
        Allowance places = lends ? duplicate.engine().lender.allowance() : duplicate.engine().gates;
        Eventually.is(1, "who waits for a place", places::waiting);
        duplicate.close();
        scope.join();
        assertThat(fork.get()).isEqualTo("went on");
        assertThat(places.waiting()).isZero();
      }
      all.close();
    }
  }

  /** Handlers run during the close, and what they call must not fail the world. */
  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void whatHandlersCallMeanwhileEnds(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      Comm comm = world.rank(0);
      Queue<Completion<?>> answers = new ConcurrentLinkedQueue<>();
      Queue<String> thrown = new ConcurrentLinkedQueue<>();
      comm.handle(
          1,
          (source, header, blobs) -> {
            Eventually.holds("it closes", () -> comm.isClosing());
            Map<String, Call> calls = failing();
            calls.putAll(refused());
            calls.forEach(
                (name, call) -> {
                  try {
                    if (call.on(comm) instanceof Completion<?> answer) {
                      answers.add(answer);
                    }
                  } catch (Exception e) {
                    thrown.add(name + ": " + e);
                  }
                });
          });
      world.rank(1).message(0, 1, longs(1)).await(SOON);
      comm.close();
      assertThat(thrown).isEmpty();
      assertThat(answers).hasSizeGreaterThan(20);
      answers.forEach(answer -> Eventually.holds(answer.toString(), answer::isDone));
      Completion<Received> theirs = world.rank(1).receive(1, 1);
      world.rank(1).send(1, 1, longs(1)).await(SOON);
      assertThat(theirs.await(SOON).bytes()).isEqualTo(8); // the world has not failed
    }
  }
}
