package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class CommandQueueTest {
  @Test
  void keepsOrderAndRefusesWhenFull() {
    CommandQueue queue = new CommandQueue(4);
    for (int round = 0; round < 10; round++) {
      Runnable[] commands = new Runnable[4];
      for (int i = 0; i < 4; i++) {
        AtomicInteger own = new AtomicInteger(i);
        commands[i] = own::get;
        assertThat(queue.offer(commands[i])).isEqualTo(CommandQueue.Offer.ADDED);
      }
      assertThat(queue.offer(() -> {})).isEqualTo(CommandQueue.Offer.FULL);
      assertThat(queue.size()).isEqualTo(4);
      for (int i = 0; i < 4; i++) {
        assertThat(queue.poll()).isSameAs(commands[i]);
      }
      assertThat(queue.poll()).isNull();
      assertThat(queue.isEmpty()).isTrue();
    }
  }

  @Test
  void closeKeepsWhatIsThere() {
    CommandQueue queue = new CommandQueue(4);
    queue.offer(() -> {});
    queue.close();
    assertThat(queue.offer(() -> {})).isEqualTo(CommandQueue.Offer.CLOSED);
    assertThat(queue.isEmpty()).isFalse();
    assertThat(queue.size()).isEqualTo(1);
    assertThat(queue.poll()).isNotNull();
    assertThat(queue.isEmpty()).isTrue();
  }
}
