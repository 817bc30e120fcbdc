package io.fairlead.comm;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.task.Completion;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Very many tasks that wait to receive, each with a tag of its own: all are served. */
@Timeout(110)
class WaitersTest {
  private static final Duration SOON = Duration.ofSeconds(100);
  private static final int TASKS = Boolean.getBoolean("fairlead.long") ? 100_000 : 10_000;

  @Test
  void everyOneOfThemIsServedWhateverTheOrderOfTheMessages() {
    int[] tags = shuffled(TASKS, 7);
    AtomicLong sum = new AtomicLong();
    AtomicLong waiting = new AtomicLong();
    try (World world = new World(2)) {
      world.each(
          comm -> {
            if (comm.rank() == 1) {
              receive(world, comm, waiting, sum);
            } else {
              Eventually.is(TASKS, "tasks that have come to wait", waiting::get);
              List<Completion<?>> sent = new ArrayList<>();
              for (int tag : tags) {
                sent.add(comm.send(1, tag, World.longs(tag)));
              }
              sent.forEach(send -> send.await(SOON));
            }
          });
      Eventually.is(TASKS, "messages received", () -> world.rank(1).stats().received());
    }
    assertThat(sum.get()).isEqualTo(TASKS * (TASKS - 1L) / 2);
  }

  private static void receive(World world, Comm comm, AtomicLong waiting, AtomicLong sum) {
    try (var scope = world.tasks.<String>scope()) {
      for (int i = 0; i < TASKS; i++) {
        int tag = i;
        scope.fork(
            () -> {
              Completion<Received> received = comm.receive(0, tag);
              waiting.incrementAndGet();
              long value = World.value(received.await(SOON).data());
              assertThat(value).isEqualTo(tag);
              sum.addAndGet(value);
              return "served";
            });
      }
      scope.join();
    }
  }

  private static int[] shuffled(int count, long seed) {
    SplittableRandom random = new SplittableRandom(seed);
    int[] all = new int[count];
    for (int i = 0; i < count; i++) {
      int other = random.nextInt(i + 1);
      all[i] = all[other];
      all[other] = i;
    }
    return all;
  }
}
