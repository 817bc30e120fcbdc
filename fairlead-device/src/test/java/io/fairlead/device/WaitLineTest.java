package io.fairlead.device;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.PriorityQueue;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

/** The first one first, in whatever order they come. */
class WaitLineTest {
  @Test
  void asAPriorityQueue() {
    for (long seed = 0; seed < 200; seed++) {
      SplittableRandom random = new SplittableRandom(seed);
      WaitLine<Long> line = new WaitLine<>();
      PriorityQueue<Long> expected = new PriorityQueue<>();
      int range = 1 + random.nextInt(50);
      for (int i = 0; i < 300; i++) {
        int what = random.nextInt(10);
        if (what < 6) {
          long waiter = (long) i / 4 + random.nextInt(range);
          line.add(waiter);
          expected.add(waiter);
        } else if (what < 9) {
          assertThat(line.peek()).isEqualTo(expected.peek());
          assertThat(line.poll()).as("seed " + seed).isEqualTo(expected.poll());
        } else {
          long gone = random.nextInt(7);
          line.removeIf(each -> each % 7 == gone);
          expected.removeIf(each -> each % 7 == gone);
        }
        assertThat(line.size()).isEqualTo(expected.size());
        assertThat(line.isEmpty()).isEqualTo(expected.isEmpty());
      }
    }
  }
}
