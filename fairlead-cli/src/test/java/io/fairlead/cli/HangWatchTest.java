package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class HangWatchTest {
  @Test
  void equalStacksAreShownOnceWithTheirNumber() {
    List<String> dump =
        List.of(
            "4711",
            "",
            "#1 \"main\" WAITING",
            "    at a.A.wait(A.java:1)",
            "    - parking to wait for <0x1>",
            "    at a.A.main(A.java:2)",
            "",
            "#2 \"one\" virtual",
            "    at a.A.run(A.java:3)",
            "    - waiting on <0x2>",
            "",
            "#3 \"two\" virtual",
            "    at a.A.run(A.java:3)",
            "    - waiting on <0x3>",
            "");
    assertThat(HangWatch.grouped(dump).lines())
        .containsExactly(
            "2 x #2 \"one\" virtual",
            "  at a.A.run(A.java:3)",
            "1 x #1 \"main\" WAITING",
            "  at a.A.wait(A.java:1)",
            "  at a.A.main(A.java:2)");
  }

  @Test
  void virtualThreadsAreShownToo() throws InterruptedException {
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch end = new CountDownLatch(1);
    Thread thread =
        Thread.ofVirtual()
            .name("hangs-here")
            .start(
                () -> {
                  begun.countDown();
                  awaitQuietly(end);
                });
    begun.await();
    try {
      assertThat(HangWatch.stacks()).contains("hangs-here", "awaitQuietly", "\"main\"");
    } finally {
      end.countDown();
      thread.join();
    }
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts it", e);
    }
  }
}
