package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A line of requests, beside a list that is looked through. */
class LineTest {
  private static final int STEPS = 5_000;

  private final Line line = new Line();
  private final List<Budget.Request> expected = new ArrayList<>();
  private final List<Long> wanted = new ArrayList<>();

  static LongStream seeds() {
    return LongStream.rangeClosed(1, Boolean.getBoolean("fairlead.long") ? 300 : 10);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void findsWhatAListFinds(long seed) {
    Random random = new Random(seed);
    for (int step = 0; step < STEPS; step++) {
      boolean grows = (step / 500) % 2 == 0;
      if (expected.isEmpty() || random.nextInt(10) < (grows ? 6 : 4)) {
        add(random.nextInt(100));
      } else if (random.nextInt(20) == 0) {
        int at = random.nextInt(expected.size());
        wanted.set(at, 0L);
        line.change(expected.get(at), 0);
      } else {
        int at = random.nextInt(expected.size());
        wanted.remove(at);
        Budget.Request gone = expected.remove(at);
        assertThat(line.remove(gone)).isTrue();
        assertThat(line.remove(gone)).as("a second time").isFalse();
      }
      check(random, seed);
    }
    assertThat(line.clear()).as("seed %d", seed).isEqualTo(expected);
    assertThat(line.size()).isZero();
    assertThat(line.peek()).isNull();
  }

  private Budget.Request add(long bytes) {
    Budget.Request request = new Budget.Request(new Account("any", 1, null), bytes, false);
    line.add(request, bytes);
    expected.add(request);
    wanted.add(bytes);
    return request;
  }

  private void check(Random random, long seed) {
    assertThat(line.size()).as("seed %d", seed).isEqualTo(expected.size());
    assertThat(line.toList()).as("seed %d", seed).isEqualTo(expected);
    assertThat(line.peek()).isSameAs(expected.isEmpty() ? null : expected.getFirst());
    if (!expected.isEmpty()) {
      int at = random.nextInt(expected.size());
      Budget.Request next = at + 1 < expected.size() ? expected.get(at + 1) : null;
      assertThat(line.after(expected.get(at))).as("seed %d", seed).isSameAs(next);
      long most = random.nextInt(100);
      assertThat(line.firstUpTo(most, expected.get(at).slot))
          .as("seed %d: up to %d", seed, most)
          .isSameAs(firstUpTo(most, at));
    }
  }

  private Budget.Request firstUpTo(long most, int from) {
    for (int i = from; i < expected.size(); i++) {
      if (wanted.get(i) <= most) {
        return expected.get(i);
      }
    }
    return null;
  }

  /** Whoever comes, goes, and looks for who fits, as many as there may be. */
  @ParameterizedTest
  @ValueSource(ints = {100, 10_000, 100_000})
  void takesFewSteps(int many) {
    for (int i = 0; i < many; i++) {
      add(1_000);
    }
    long before = line.steps();
    for (int i = 0; i < 1_000; i++) {
      Budget.Request last = add(900);
      assertThat(line.firstUpTo(950, 0)).isSameAs(last);
      assertThat(line.firstUpTo(500, 0)).isNull();
      line.remove(last);
      line.remove(line.peek());
      add(1_000);
    }
    assertThat((line.steps() - before) / 1_000).as("of each").isLessThan(200);
  }
}
