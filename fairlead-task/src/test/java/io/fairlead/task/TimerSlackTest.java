package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

class TimerSlackTest {
  @Test
  void aThreadOfOursSleepsAsExactlyAsItAsks() throws InterruptedException, IOException {
    assumeTrue(
        Files.isWritable(TimerSlack.ofThisThread()), "the system does not let threads say so");
    String before = Files.readString(TimerSlack.ofThisThread());
    AtomicReference<String> ours = new AtomicReference<>("");
    Thread thread = Role.OWNER.newThread("exact", () -> ours.set(slack()));
    thread.start();
    thread.join();
    assertThat(ours.get()).isEqualTo("1000");
    assertThat(Files.readString(TimerSlack.ofThisThread())).isEqualTo(before);
  }

  private static String slack() {
    try {
      return Files.readString(TimerSlack.ofThisThread()).strip();
    } catch (IOException unreadable) {
      return unreadable.toString();
    }
  }
}
