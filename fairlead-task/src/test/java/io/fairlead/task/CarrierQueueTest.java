package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class CarrierQueueTest {

  /** Known by its number. */
  private static final class Numbered extends Resumable {
    final int number;

    Numbered(int number) {
      super(null, null);
      this.number = number;
    }

    @Override
    void queue() {
      throw new AssertionError("not executed here");
    }
  }

  private static int number(Resumable ready) {
    return ready == null ? -1 : ((Numbered) ready).number;
  }

  @Test
  void firstInFirstOutUntilFull() {
    CarrierQueue queue = new CarrierQueue();
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < CarrierQueue.CAPACITY; i++) {
        assertThat(queue.offer(new Numbered(i))).isTrue();
      }
      assertThat(queue.offer(new Numbered(-2))).isFalse();
      for (int i = 0; i < CarrierQueue.CAPACITY; i++) {
        assertThat(number(queue.poll())).isEqualTo(i);
      }
      assertThat(queue.poll()).isNull();
      assertThat(queue.isEmpty()).isTrue();
    }
  }

  @Test
  void thievesTakeTheOlderHalf() {
    CarrierQueue queue = new CarrierQueue();
    CarrierQueue thief = new CarrierQueue();
    ReadyQueue rest = new ReadyQueue();
    for (int i = 0; i < 5; i++) {
      queue.offer(new Numbered(i));
    }
    assertThat(number(queue.steal(thief, rest))).isZero();
    assertThat(number(thief.poll())).isEqualTo(1);
    assertThat(number(thief.poll())).isEqualTo(2);
    assertThat(thief.poll()).isNull();
    assertThat(number(queue.poll())).isEqualTo(3);
    assertThat(rest.isEmpty()).isTrue();
  }

  @Test
  void whatDoesNotFitTheThiefIsNotLost() {
    CarrierQueue queue = new CarrierQueue();
    CarrierQueue thief = new CarrierQueue();
    ReadyQueue rest = new ReadyQueue();
    for (int i = 0; i < 4; i++) {
      queue.offer(new Numbered(i));
    }
    while (thief.offer(new Numbered(99))) {
      // until it is full
    }
    assertThat(number(queue.steal(thief, rest))).isZero();
    assertThat(number(rest.poll())).isEqualTo(1);
  }

  @Test
  void theCommonQueueKeepsOrderAndSharesABurst() {
    ReadyQueue queue = new ReadyQueue();
    CarrierQueue own = new CarrierQueue();
    assertThat(queue.take(own, 2)).isNull();
    for (int i = 0; i < 9; i++) {
      queue.add(new Numbered(i));
    }
    assertThat(number(queue.take(own, 2))).isZero();
    for (int i = 1; i <= 4; i++) {
      assertThat(number(own.poll())).isEqualTo(i);
    }
    assertThat(own.poll()).isNull();
    queue.add(new Numbered(9));
    for (int i = 5; i <= 9; i++) {
      assertThat(queue.isEmpty()).isFalse();
      assertThat(number(queue.poll())).isEqualTo(i);
    }
    assertThat(queue.isEmpty()).isTrue();
  }

  @Test
  void eachIsTakenOnceHoweverManyTake() throws InterruptedException {
    int count = 200_000;
    CarrierQueue queue = new CarrierQueue();
    ReadyQueue common = new ReadyQueue();
    AtomicIntegerArray taken = new AtomicIntegerArray(count);
    AtomicBoolean ended = new AtomicBoolean();
    List<Thread> takers = new ArrayList<>();
    for (int t = 0; t < 3; t++) {
      takers.add(Thread.ofPlatform().start(() -> takeAll(queue, common, taken, ended)));
    }
    for (int i = 0; i < count; i++) {
      Numbered next = new Numbered(i);
      if (i % 5 == 0 || !queue.offer(next)) {
        common.add(next);
      }
    }
    ended.set(true);
    for (Thread taker : takers) {
      taker.join();
    }
    for (int i = 0; i < count; i++) {
      assertThat(taken.get(i)).as("number " + i).isEqualTo(1);
    }
    assertThat(queue.isEmpty()).isTrue();
    assertThat(common.isEmpty()).isTrue();
  }

  private static void takeAll(
      CarrierQueue queue, ReadyQueue common, AtomicIntegerArray taken, AtomicBoolean ended) {
    CarrierQueue own = new CarrierQueue();
    boolean last = false;
    while (true) {
      Resumable next = own.poll();
      if (next == null) {
        next = queue.steal(own, common);
      }
      if (next == null) {
        next = common.take(own, 3);
      }
      if (next != null) {
        taken.incrementAndGet(number(next));
      } else if (last && common.isEmpty()) {
        return;
      } else {
        last = ended.get();
      }
    }
  }
}
