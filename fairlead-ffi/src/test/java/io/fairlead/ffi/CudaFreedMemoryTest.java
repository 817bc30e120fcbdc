package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.spi.Driver;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/**
 * The driver puts together what was freed only where somebody waits for it: before large requests,
 * for frees that have ended, and never for others. On the stand-in, by its calls.
 */
@Timeout(60)
@EnabledOnOs(OS.LINUX)
class CudaFreedMemoryTest {
  private static final String WAIT = "cuEventSynchronize";
  private static final String RECORD = "cuEventRecord";
  private static final long LARGE = 2L << 20;
  private static final long SMALL = 4096;

  private final StandInLibrary standIn = StandInLibrary.get();
  private final List<Runnable> held = new ArrayList<>();
  private final AtomicLong mark = new AtomicLong();
  private Driver driver;
  private long context;
  private long module;
  private long stream;

  @BeforeEach
  void open() {
    standIn.reset();
    driver = new CudaDriverProvider(standIn.path().toString()).open(Map.of());
    context = driver.retain(0);
    driver.makeCurrent(context);
    module = driver.moduleLoad(context, CudaKernels.STAND_IN);
    stream = driver.streamCreate(context, 0, null);
  }

  @AfterEach
  void close() {
    held.forEach(Runnable::run);
    driver.close();
    assertThat(standIn.traps()).isEmpty();
    standIn.assertNothingIsLeft();
    standIn.reset();
  }

  private Runnable hold(long which) {
    Runnable letGo = CudaKernels.hold(driver, module, which);
    held.add(letGo);
    return letGo;
  }

  private void free(long on, long bytes) {
    driver.freeAsync(on, driver.allocAsync(on, bytes));
  }

  private void await(long which) {
    long value = mark.incrementAndGet();
    driver.signal(which, value);
    while (driver.reached(which) < value) {
      driver.ask(context, new long[] {which}, 1, 0);
    }
  }

  /** Calls of that function that the body makes. */
  private long calls(String function, Runnable body) {
    long before = standIn.calls(function);
    body.run();
    return standIn.calls(function) - before;
  }

  private void allocate(long on, long bytes) {
    long block = driver.allocAsync(on, bytes);
    driver.freeAsync(on, block);
  }

  @Test
  void aLargeRequestHasWhatWasFreedPutTogether() {
    free(stream, SMALL);
    await(stream);
    assertThat(calls(WAIT, () -> allocate(stream, LARGE))).isEqualTo(1);
    await(stream);
    assertThat(calls(WAIT, () -> allocate(stream, LARGE))).as("its own free since").isEqualTo(1);
  }

  @Test
  void aSmallRequestDoesNot() {
    free(stream, SMALL);
    await(stream);
    assertThat(calls(WAIT, () -> allocate(stream, LARGE - 1))).isZero();
    assertThat(calls(RECORD, () -> free(stream, SMALL))).as("one event will do").isZero();
  }

  @Test
  void nobodyWaitsForAFreeThatHasNotEnded() {
    long other = driver.streamCreate(context, 0, null);
    long block = driver.allocAsync(stream, SMALL);
    Runnable letGo = hold(stream);
    driver.freeAsync(stream, block);
    assertThat(calls(WAIT, () -> allocate(other, LARGE))).isZero();
    letGo.run();
    await(stream);
    await(other);
    assertThat(calls(WAIT, () -> allocate(other, LARGE))).as("of both streams").isEqualTo(2);
  }

  /** What came after the event is behind the next one, of which nobody has to free again. */
  @Test
  void whatWasFreedLaterIsPutTogetherToo() {
    long other = driver.streamCreate(context, 0, null);
    long early = driver.allocAsync(stream, SMALL);
    long late = driver.allocAsync(stream, SMALL);
    driver.freeAsync(stream, early);
    driver.freeAsync(stream, late);
    await(stream);
    assertThat(calls(RECORD, () -> driver.freeAsync(other, driver.allocAsync(other, LARGE))))
        .as("of the first stream again, and of its own free")
        .isEqualTo(2);
    await(stream);
    await(other);
    assertThat(calls(WAIT, () -> allocate(other, LARGE))).isEqualTo(2);
  }

  @Test
  void aStreamThatIsGoneLeavesNothingBehind() {
    long gone = driver.streamCreate(context, 0, null);
    free(gone, SMALL);
    free(gone, SMALL);
    await(gone);
    driver.streamDestroy(gone);
    assertThat(calls(WAIT, () -> allocate(stream, LARGE))).isEqualTo(1);
    await(stream);
    assertThat(calls(WAIT, () -> allocate(stream, LARGE))).as("its own only").isEqualTo(1);
  }

  /** Signals need events, too: streams that come and go must not keep them all. */
  @Test
  void onlySoManyEventsAreKeptForWhatWasFreed() {
    assertThat(calls(RECORD, () -> freeOnStreamsThatGo(300))).isBetween(1L, 256L);
    await(stream);
    assertThat(calls(WAIT, () -> allocate(stream, LARGE))).isPositive();
    assertThat(calls(RECORD, () -> freeOnStreamsThatGo(1))).as("and there is room again").isOne();
  }

  private void freeOnStreamsThatGo(int count) {
    for (int i = 0; i < count; i++) {
      long gone = driver.streamCreate(context, 0, null);
      free(gone, SMALL);
      await(gone);
      driver.streamDestroy(gone);
    }
  }

  /** Others may capture it, and would have our event in their graph. */
  @Test
  void aStreamThatOthersKnowIsLeftAlone() {
    long raw = driver.streamNative(stream);
    assertThat(raw).isNotZero();
    assertThat(calls(RECORD, () -> free(stream, SMALL))).isZero();
    await(stream);
    assertThat(calls(WAIT, () -> allocate(stream, LARGE))).isZero();
  }
}
