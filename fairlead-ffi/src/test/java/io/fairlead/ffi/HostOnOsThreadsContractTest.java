package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.sim.DriverContract;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/**
 * The strict host driver with contexts current per operating-system thread, as a GPU has them: all
 * rules again, and what only shows here (requirement rows 001.1 and 002.1).
 */
@EnabledOnOs({OS.LINUX, OS.MAC})
@SuppressWarnings("ThreadPriorityCheck") // yielding is what brings a task to another carrier
class HostOnOsThreadsContractTest extends DriverContract {
  private static final int TASKS = 200;
  private static final int ROUNDS = 50;

  @Override
  protected Driver open() {
    return new HostDriverProvider()
        .open(
            Map.of(
                "devices", "2",
                "workers", "2",
                "strict", "true",
                "memory", Long.toString(memoryBytes())));
  }

  /**
   * The problem that Fairlead is for: what a task made current is not current when it comes back.
   */
  @Test
  void aContextIsLostOnTheWayThroughAYield() throws InterruptedException {
    long[] contexts = {context, driver.retain(1)};
    AtomicInteger wrong = new AtomicInteger();
    run(
        task -> {
          for (int i = 0; i < ROUNDS; i++) {
            driver.makeCurrent(contexts[task % 2]);
            Thread.yield();
            if (driver.current() != contexts[task % 2]) {
              wrong.incrementAndGet();
            }
          }
        });
    assertThat(wrong.get()).as("of %d", TASKS * ROUNDS).isPositive();
  }

  /** And that it need not be: bind, call, restore without a suspension in between. */
  @Test
  void aContextBoundAroundEachCallIsNeverWrong() throws InterruptedException {
    long other = driver.retain(1);
    long[] contexts = {context, other};
    long here = stream();
    driver.makeCurrent(other);
    long there = driver.streamCreate(other, 0, null);
    long[] streams = {here, there};
    driver.makeCurrent(context);
    run(
        task -> {
          for (int i = 0; i < ROUNDS; i++) {
            long before = driver.current();
            driver.makeCurrent(contexts[task % 2]);
            long block = driver.allocAsync(streams[task % 2], 256);
            driver.freeAsync(streams[task % 2], block);
            driver.makeCurrent(before);
            Thread.yield();
          }
        });
    assertThat(driver.current()).isEqualTo(context);
    await(here);
  }

  private interface TaskBody {
    void run(int task);
  }

  private void run(TaskBody body) throws InterruptedException {
    AtomicReference<Throwable> failed = new AtomicReference<>();
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < TASKS; t++) {
      int task = t;
      threads.add(
          Thread.ofVirtual()
              .start(
                  () -> {
                    try {
                      body.run(task);
                    } catch (DriverException | AssertionError e) {
                      failed.compareAndSet(null, e);
                    }
                  }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertThat(failed.get()).isNull();
  }
}
