package io.fairlead.host;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.KernelArguments;
import io.fairlead.device.spi.ModuleImage;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What the embedded device promises beyond the driver contract. */
@Timeout(60)
class HostDriverTest {
  private Driver driver;
  private long context;

  private void open(String... settings) {
    Map<String, String> map = new ConcurrentHashMap<>(Map.of("memory", "8m"));
    for (int i = 0; i < settings.length; i += 2) {
      map.put(settings[i], settings[i + 1]);
    }
    driver = new HostDriverProvider().open(map);
    context = driver.retain(0);
    driver.makeCurrent(context);
  }

  @AfterEach
  void close() {
    driver.makeCurrent(0);
    driver.close();
  }

  private record NoArguments() implements KernelArguments {
    @Override
    public int count() {
      return 0;
    }

    @Override
    public boolean isBuffer(int index) {
      return false;
    }

    @Override
    public long bits(int index) {
      throw new IndexOutOfBoundsException(index);
    }

    @Override
    public long bytes(int index) {
      throw new IndexOutOfBoundsException(index);
    }

    @Override
    public MemorySegment buffer(int index) {
      throw new IndexOutOfBoundsException(index);
    }
  }

  private void launch(long stream, Grid grid, JavaKernel kernel) {
    long module = driver.moduleLoad(context, new ModuleImage.Java(Map.of("k", kernel)));
    driver.launch(stream, driver.kernel(module, "k"), grid, new NoArguments());
  }

  private void hold(long stream, CountDownLatch latch) {
    launch(
        stream,
        Grid.of(1),
        (a, begin, end) -> {
          try {
            latch.await();
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
        });
  }

  @Test
  void higherPrioritiesGoFirst() {
    open("workers", "1");
    CountDownLatch latch = new CountDownLatch(1);
    hold(driver.streamCreate(context, 0, null), latch);
    List<Integer> order = new CopyOnWriteArrayList<>();
    List<Long> streams = new ArrayList<>();
    for (int priority : new int[] {-7, 0, 1, 2, 99, 1, 0}) {
      long stream = driver.streamCreate(context, priority, null);
      launch(stream, Grid.of(1), (a, begin, end) -> order.add(priority));
      streams.add(stream);
    }
    latch.countDown();
    streams.forEach(driver::streamSynchronize);
    assertThat(order).containsExactly(2, 99, 1, 1, -7, 0, 0);
  }

  @Test
  void noKernelIsSharedWhileAnotherStreamWaits() {
    open("workers", "2");
    CountDownLatch end = new CountDownLatch(1);
    CountDownLatch latch = new CountDownLatch(1);
    hold(driver.streamCreate(context, 0, null), end);
    long high = driver.streamCreate(context, 2, null);
    hold(high, latch);
    long low = driver.streamCreate(context, 0, null);
    launch(low, Grid.of(1), (a, begin, last) -> {});
    List<Long> pieces = new CopyOnWriteArrayList<>();
    launch(high, Grid.of(100).withGrain(1), (a, begin, last) -> pieces.add(last - begin));
    latch.countDown();
    driver.streamSynchronize(high);
    end.countDown();
    assertThat(pieces).containsExactly(100L);
  }

  /**
   * Two streams get work while the workers are about to park: whoever takes the first must see to
   * it that somebody takes the second, which the first one's kernel waits for.
   */
  @Test
  void aWorkerThatGoesBackFromParkingHandsTheWakeOn() {
    open("workers", "2");
    AtomicLong opened = new AtomicLong();
    AtomicLong late = new AtomicLong();
    long first = driver.streamCreate(context, 0, null);
    long second = driver.streamCreate(context, 0, null);
    SplittableRandom random = new SplittableRandom(7);
    for (long round = 1; round <= 20_000 && late.get() == 0; round++) {
      long mine = round;
      letGoBy(random.nextInt(120_000));
      launch(
          first,
          Grid.of(1),
          (a, begin, end) -> {
            long deadline = System.nanoTime() + 5_000_000_000L;
            while (opened.get() != mine && late.get() == 0) {
              Thread.onSpinWait();
              if (System.nanoTime() - deadline > 0) {
                late.set(mine);
              }
            }
          });
      launch(second, Grid.of(1), (a, begin, end) -> opened.set(mine));
      driver.streamSynchronize(first);
    }
    assertThat(late).as("the round in which nobody took the second stream").hasValue(0);
  }

  private static void letGoBy(long nanos) {
    long end = System.nanoTime() + nanos;
    while (System.nanoTime() - end < 0) {
      Thread.onSpinWait();
    }
  }

  @Test
  void noStreamStarves() {
    open("workers", "1");
    AtomicLong done = new AtomicLong();
    CountDownLatch latch = new CountDownLatch(1);
    long high = driver.streamCreate(context, 2, null);
    long low = driver.streamCreate(context, 0, null);
    hold(high, latch);
    AtomicLong highDoneBeforeLow = new AtomicLong(-1);
    int launches = 20_000;
    long module =
        driver.moduleLoad(
            context, new ModuleImage.Java(Map.of("k", (a, begin, end) -> done.incrementAndGet())));
    long kernel = driver.kernel(module, "k");
    for (int i = 0; i < launches; i++) {
      driver.launch(high, kernel, Grid.of(1), new NoArguments());
    }
    launch(low, Grid.of(1), (a, begin, end) -> highDoneBeforeLow.set(done.get()));
    latch.countDown();
    driver.streamSynchronize(low);
    driver.streamSynchronize(high);
    assertThat(highDoneBeforeLow.get()).isBetween(0L, launches - 1L);
  }

  @Test
  void largeKernelsRunOnSeveralWorkersAndSmallOnesOnOne() {
    open("workers", "3");
    long stream = driver.streamCreate(context, 0, null);
    Set<Thread> threads = ConcurrentHashMap.newKeySet();
    CountDownLatch three = new CountDownLatch(3);
    launch(
        stream,
        Grid.of(300).withGrain(1),
        (a, begin, end) -> {
          if (threads.add(Thread.currentThread())) {
            three.countDown();
            try {
              three.await();
            } catch (InterruptedException e) {
              Thread.currentThread().interrupt();
            }
          }
        });
    driver.streamSynchronize(stream);
    assertThat(threads).hasSize(3);
    List<Long> pieces = new CopyOnWriteArrayList<>();
    launch(stream, Grid.of(300).withGrain(300), (a, begin, end) -> pieces.add(end - begin));
    driver.streamSynchronize(stream);
    assertThat(pieces).containsExactly(300L);
  }

  @Test
  void kernelTimeIsCounted() {
    open();
    long stream = driver.streamCreate(context, 0, null);
    assertThat(driver.kernelNanos(context)).isZero();
    launch(
        stream,
        Grid.of(1),
        (a, begin, end) -> {
          long start = System.nanoTime();
          while (System.nanoTime() - start < 1_000_000) {
            Thread.onSpinWait();
          }
        });
    driver.streamSynchronize(stream);
    assertThat(driver.kernelNanos(context)).isGreaterThanOrEqualTo(1_000_000);
    assertThat(driver.kernelNanos(context + 1)).isEqualTo(-1);
  }

  @Test
  void useBeforeTheAllocationWasReachedIsAFault() {
    open("workers", "2");
    CountDownLatch latch = new CountDownLatch(1);
    long owner = driver.streamCreate(context, 0, null);
    long other = driver.streamCreate(context, 0, null);
    hold(owner, latch);
    long block = driver.allocAsync(owner, 64);
    driver.fill(other, block, 64, (byte) 0);
    assertThatThrownBy(() -> driver.streamSynchronize(other))
        .isInstanceOf(DriverException.class)
        .hasMessageContaining("before its allocation was reached")
        .hasMessageContaining("order the streams with an event");
    latch.countDown();
  }

  @Test
  void useAfterAFreeThatItDidNotWaitForIsAFault() {
    open("workers", "2");
    CountDownLatch latch = new CountDownLatch(1);
    long owner = driver.streamCreate(context, 0, null);
    long other = driver.streamCreate(context, 0, null);
    long block = driver.allocAsync(owner, 64);
    driver.streamSynchronize(owner);
    hold(other, latch);
    driver.fill(other, block, 64, (byte) 0);
    driver.freeAsync(owner, block);
    driver.streamSynchronize(owner);
    latch.countDown();
    assertThatThrownBy(() -> driver.streamSynchronize(other))
        .hasMessageContaining("after it was freed");
  }

  @Test
  void freedMemoryIsPoisonedOnRequest() {
    open("poison", "true");
    long stream = driver.streamCreate(context, 0, null);
    MemorySegment host = driver.hostAlloc(context, 64);
    long block = driver.allocAsync(stream, 64);
    driver.fill(stream, block, 64, (byte) 1);
    driver.freeAsync(stream, block);
    long again = driver.allocAsync(stream, 64);
    assertThat(again).isEqualTo(block);
    driver.copyToHost(stream, host, again);
    driver.streamSynchronize(stream);
    assertThat(host.toArray(JAVA_BYTE)).containsOnly((byte) 0xDB);
  }

  /** What is not goes to a direct file through one more copy, a piece at a time. */
  @Test
  void largePageLockedBlocksBeginAtAPage() {
    open();
    for (long bytes = 64 << 10; bytes <= 4 << 20; bytes *= 2) {
      for (int i = 0; i < 4; i++) {
        assertThat(driver.hostAlloc(context, bytes).address() % 4096).isZero();
      }
    }
  }

  @Test
  void hostMemoryThatADeviceCannotReadIsRefusedWithACure() {
    open();
    long stream = driver.streamCreate(context, 0, null);
    long block = driver.allocAsync(stream, 64);
    assertThatThrownBy(
            () -> driver.copyToDevice(stream, block, MemorySegment.ofArray(new byte[64])))
        .hasMessageContaining("native memory");
    try (Arena confined = Arena.ofConfined()) {
      MemorySegment memory = confined.allocate(64);
      assertThatThrownBy(() -> driver.copyToDevice(stream, block, memory))
          .hasMessageContaining("Arena.ofShared()");
    }
    try (Arena shared = Arena.ofShared()) {
      MemorySegment memory = shared.allocate(64).asReadOnly();
      driver.copyToDevice(stream, block, memory);
      assertThatThrownBy(() -> driver.copyToHost(stream, memory, block))
          .hasMessageContaining("read-only");
      driver.streamSynchronize(stream);
    }
    assertThat(driver.status(context)).isNull();
  }

  @Test
  void signalsMustNotFall() {
    open();
    long stream = driver.streamCreate(context, 0, null);
    driver.signal(stream, 5);
    assertThatThrownBy(() -> driver.signal(stream, 4)).hasMessageContaining("must not fall");
  }

  @Test
  void errorsOfAKernelLoseTheContextToo() {
    open();
    long stream = driver.streamCreate(context, 0, null);
    launch(
        stream,
        Grid.of(1),
        (a, begin, end) -> {
          throw new StackOverflowError("thrown by the kernel on purpose");
        });
    assertThatThrownBy(() -> driver.streamSynchronize(stream))
        .hasMessageContaining("kernel 'k' over 1 items")
        .hasMessageContaining("StackOverflowError");
  }

  @Test
  void injectedFaultsHitTheNthCall() {
    open();
    long stream = driver.streamCreate(context, 0, null);
    HostFaults faults = HostFaults.of(driver);
    faults.failCall(DriverCall.ALLOC_ASYNC, 3, DriverException.OUT_OF_MEMORY);
    driver.allocAsync(stream, 8);
    driver.allocAsync(stream, 8);
    assertThatThrownBy(() -> driver.allocAsync(stream, 8))
        .isInstanceOfSatisfying(DriverException.class, e -> assertThat(e.isOutOfMemory()).isTrue());
    long block = driver.allocAsync(stream, 8);
    driver.streamSynchronize(stream);
    assertThat(driver.status(context)).isNull();
    faults.failOperation(DriverCall.FILL, 2, DriverException.ILLEGAL_ADDRESS);
    driver.fill(stream, block, 8, (byte) 1);
    driver.streamSynchronize(stream);
    driver.fill(stream, block, 8, (byte) 1);
    assertThatThrownBy(() -> driver.streamSynchronize(stream)).hasMessageContaining("injected");
    assertThat(driver.status(context).status()).isEqualTo(DriverException.ILLEGAL_ADDRESS);
    faults.clear();
    assertThatThrownBy(() -> faults.failCall(DriverCall.FILL, 0, 1)).hasMessageContaining("from 1");
  }

  @Test
  void aContextWhoseStreamWaitsForAnotherCanEnd() {
    open("devices", "2");
    long other = driver.retain(1);
    driver.makeCurrent(other);
    long there = driver.streamCreate(other, 0, null);
    long event = driver.eventCreate(other);
    long module =
        driver.moduleLoad(
            other,
            new ModuleImage.Java(
                Map.of(
                    "hold",
                    (a, begin, end) -> {
                      while (driver.current() == 0 && !Thread.currentThread().isInterrupted()) {
                        if (driver.status(context) != null) {
                          return;
                        }
                        Thread.onSpinWait();
                      }
                    })));
    driver.launch(there, driver.kernel(module, "hold"), Grid.of(1), new NoArguments());
    driver.eventRecord(event, there);
    driver.makeCurrent(context);
    long here = driver.streamCreate(context, 0, null);
    driver.streamWaitEvent(here, event);
    driver.signal(here, 1);
    driver.release(context);
    assertThat(driver.status(context)).as("the context ended").isNotNull();
    driver.streamSynchronize(there);
  }
}
