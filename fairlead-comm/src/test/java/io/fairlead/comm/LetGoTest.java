package io.fairlead.comm;

import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Whoever keeps what a call answered, or a gate that never opens, keeps no memory of messages that
 * are over; nor does the communicator, which stays open meanwhile.
 */
@Timeout(120)
class LetGoTest {
  private static final Duration SOON = Duration.ofSeconds(60);

  /** What is kept of operations that are over, and the arrays that they read and wrote. */
  private static final class Kept {
    final List<Object> answers = new ArrayList<>();
    final List<WeakReference<?>> arrays = new ArrayList<>();

    MemorySegment array(int length) {
      byte[] made = new byte[length];
      arrays.add(new WeakReference<>(made));
      return MemorySegment.ofArray(made);
    }

    <T> Completion<T> keep(Completion<T> answer) {
      answers.add(answer);
      return answer;
    }

    void letsGo() {
      try {
        Eventually.is(
            0,
            "arrays that somebody keeps",
            () -> {
              System.gc();
              return arrays.stream().filter(each -> !each.refersTo(null)).count();
            });
      } finally {
        Reference.reachabilityFence(this);
      }
    }
  }

  private static World world(ThreadLevel level) {
    return GuardedTransport.world(
        TaskRuntime.open(TaskConfig.DEFAULT), 2, level, CommConfig.DEFAULT, true);
  }

  private static Kept exchanged(World world) {
    Kept kept = new Kept();
    Comm one = world.rank(0);
    Comm other = world.rank(1);
    Completion<Received> received = kept.keep(other.receive(0, 1, kept.array(100)));
    kept.keep(one.send(1, 1, kept.array(100))).await(SOON);
    received.await(SOON);
    kept.keep(one.message(1, 1, kept.array(8), Blob.of(kept.array(50)))).await(SOON);
    Window window = other.expose(memory(64)).await(SOON);
    kept.keep(one.put(1, window.key(), 0, kept.array(64))).await(SOON);
    kept.keep(one.get(1, window.key(), 0, kept.array(64))).await(SOON);
    window.close();
    Completion<?> all = kept.keep(other.broadcast(0, kept.array(30)));
    kept.keep(one.broadcast(0, kept.array(30))).await(SOON);
    all.await(SOON);
    return kept;
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void anAnswerKeepsNoMemoryOfWhatIsDone(ThreadLevel level) {
    try (World world = world(level)) {
      world.rank(1).handle(1, (source, header, blobs) -> {});
      exchanged(world).letsGo();
    }
  }

  private static Kept cancelled(World world) {
    Kept kept = new Kept();
    kept.keep(world.rank(0).receive(1, 1, kept.array(100))).cancel();
    Completion<?> sent = kept.keep(world.rank(0).send(1, 1, kept.array(1 << 20)));
    sent.cancel();
    return kept;
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void anAnswerKeepsNoMemoryOfWhatWasCancelled(ThreadLevel level) {
    try (World world = world(level)) {
      cancelled(world).letsGo();
    }
  }

  private static Kept failed(World world) {
    Kept kept = new Kept();
    Completion<Received> answer = kept.keep(world.rank(0).receive(1, 1, kept.array(100)));
    world.rank(1).send(0, 1, longs(1)).await(SOON);
    Eventually.is(1, "failed", () -> answer.isDone() ? 1 : 0);
    assertThat(answer.cause()).hasMessageContaining("100");
    return kept;
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void anAnswerKeepsNoMemoryOfWhatFailed(ThreadLevel level) {
    try (World world = world(level)) {
      failed(world).letsGo();
    }
  }

  /** The queue to the communication thread has nothing behind them, perhaps for ever. */
  private static Kept shifted(World world, Owner manager) {
    Kept kept = new Kept();
    manager
        .call(
            () -> {
              kept.keep(world.rank(0).send(1, 1, kept.array(100)));
              return kept.keep(world.rank(0).receive(1, 1, kept.array(100)));
            })
        .await(SOON)
        .onDone(received -> {});
    kept.keep(world.rank(1).send(0, 1, kept.array(100))).await(SOON);
    kept.answers.forEach(each -> ((Completion<?>) each).await(SOON));
    return kept;
  }

  @Test
  void theQueueKeepsNoMemoryOfWhatWentThroughIt() {
    try (World world = new World(2)) {
      Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
      shifted(world, manager).letsGo();
    }
  }

  private static Kept cancelledBehind(Completion<?> gate, Comm comm) {
    Kept kept = new Kept();
    kept.answers.add(gate);
    List<Completion<?>> sends = new ArrayList<>();
    for (int i = 0; i < 10; i++) {
      sends.add(kept.keep(comm.send(1, 1, gate, Blob.of(kept.array(100)))));
      sends.add(kept.keep(comm.message(1, 1, gate, kept.array(8), Blob.of(kept.array(100)))));
      sends.add(kept.keep(comm.send(1, 1, null, Blob.of(kept.array(100)))));
    }
    sends.forEach(Completion::cancel);
    return kept;
  }

  @Test
  void aGateThatNeverOpensKeepsNoMemoryOfWhatWasCancelledBehindIt() {
    try (World world = new World(2)) {
      Completion.Source<String> gate = Completion.source();
      cancelledBehind(gate.completion(), world.rank(0)).letsGo();
    }
  }
}
