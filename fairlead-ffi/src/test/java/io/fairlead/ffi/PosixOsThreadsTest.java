package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.OsThreads;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.ServiceLoader;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

@Timeout(60)
@EnabledOnOs({OS.LINUX, OS.MAC})
@SuppressWarnings("ThreadPriorityCheck") // yielding is what brings a task to another carrier
class PosixOsThreadsTest {
  private final OsThreads threads = new PosixOsThreads();

  @Test
  void isFound() {
    assertThat(ServiceLoader.load(OsThreads.class)).hasOnlyElementsOfType(PosixOsThreads.class);
  }

  @Test
  void aThreadKeepsItsNumber() {
    long first = threads.current();
    assertThat(first).isPositive();
    for (int i = 0; i < 1_000; i++) {
      assertThat(threads.current()).isEqualTo(first);
    }
    assertThat(new PosixOsThreads().current()).isEqualTo(first);
  }

  @Test
  void liveThreadsHaveDifferentNumbers() throws InterruptedException {
    Set<Long> numbers = ConcurrentHashMap.newKeySet();
    CountDownLatch all = new CountDownLatch(20);
    List<Thread> started = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      started.add(
          Thread.ofPlatform()
              .start(
                  () -> {
                    numbers.add(threads.current());
                    all.countDown();
                    awaitQuietly(all);
                  }));
    }
    for (Thread thread : started) {
      thread.join();
    }
    assertThat(numbers).hasSize(20);
  }

  /**
   * With pthread_self this fails: a new thread gets the stack, and so the number, of a dead one.
   */
  @Test
  void aNumberIsNotGivenToALaterThread() throws InterruptedException {
    Set<Long> numbers = new HashSet<>();
    for (int i = 0; i < 200; i++) {
      long[] seen = new long[1];
      Thread thread = Thread.ofPlatform().start(() -> seen[0] = threads.current());
      thread.join();
      assertThat(numbers.add(seen[0])).isTrue();
    }
  }

  @Test
  void virtualThreadsShowTheirCarriersNumber() throws InterruptedException {
    Set<Long> numbers = ConcurrentHashMap.newKeySet();
    Set<String> carriers = ConcurrentHashMap.newKeySet();
    List<Thread> started = new ArrayList<>();
    for (int i = 0; i < 500; i++) {
      started.add(
          Thread.ofVirtual()
              .start(
                  () -> {
                    for (int round = 0; round < 20; round++) {
                      numbers.add(threads.current());
                      String text = Thread.currentThread().toString();
                      carriers.add(text.substring(text.lastIndexOf('@') + 1));
                      Thread.yield();
                    }
                  }));
    }
    for (Thread thread : started) {
      thread.join();
    }
    assertThat(numbers).hasSameSizeAs(carriers);
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
