package io.fairlead.ffi;

import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.sim.LaunchArguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Which signal a stream gets, ticket or event, and that it makes no difference, on the stand-in.
 */
@Timeout(60)
@EnabledOnOs(OS.LINUX)
class CudaSignalsTest {
  private static final String TICKET = "cuStreamWriteValue64_v2";
  private static final String EVENT = "cuEventRecord";
  private static final String QUERY = "cuEventQuery";

  private final StandInLibrary standIn = StandInLibrary.get();
  private final List<Runnable> held = new ArrayList<>();
  private Driver driver;
  private long context;
  private long module;

  private void open(String tickets, String signals) {
    standIn.reset();
    driver =
        new CudaDriverProvider(standIn.path().toString())
            .open(Map.of("tickets", tickets, "signals", signals));
    context = driver.retain(0);
    driver.makeCurrent(context);
    module = driver.moduleLoad(context, CudaKernels.STAND_IN);
  }

  private void open(String tickets) {
    open(tickets, "write");
  }

  @AfterEach
  void close() {
    held.forEach(Runnable::run);
    driver.close();
    assertThat(standIn.traps()).isEmpty();
    standIn.assertNothingIsLeft();
    standIn.reset();
  }

  private long stream() {
    return driver.streamCreate(context, 0, null);
  }

  private List<Long> streams(int count) {
    List<Long> streams = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      streams.add(stream());
    }
    return streams;
  }

  private Runnable hold(long stream) {
    Runnable letGo = CudaKernels.hold(driver, module, stream);
    held.add(letGo);
    return letGo;
  }

  private long ask(long stream) {
    driver.ask(context, new long[] {stream}, 1, 0);
    return driver.reached(stream);
  }

  private static void await(BooleanSupplier condition) {
    while (!condition.getAsBoolean()) {
      Thread.onSpinWait();
    }
  }

  /** Calls of that function that the body makes. */
  private long calls(String function, Runnable body) {
    long before = standIn.calls(function);
    body.run();
    return standIn.calls(function) - before;
  }

  // --- permits ------------------------------------------------------------------------------

  @Test
  void soManyStreamsHaveATicketOutstandingAndNoMore() {
    open("2");
    List<Long> slow = streams(4);
    List<Runnable> letGo = slow.stream().map(this::hold).toList();
    assertThat(calls(TICKET, () -> slow.forEach(stream -> driver.signal(stream, 1)))).isEqualTo(2);
    assertThat(slow.stream().map(driver::mustAsk)).containsExactly(false, false, true, true);
    assertThat(calls(TICKET, () -> driver.signal(slow.get(0), 2)))
        .as("a stream that has a permit keeps it")
        .isEqualTo(1);
    letGo.get(1).run();
    await(() -> driver.reached(slow.get(1)) == 1);
    assertThat(calls(TICKET, () -> driver.signal(slow.get(3), 2)))
        .as("the permit of one whose ticket has arrived")
        .isEqualTo(1);
    assertThat(calls(EVENT, () -> driver.signal(slow.get(1), 2)))
        .as("whose permit has gone")
        .isEqualTo(1);
    letGo.forEach(Runnable::run);
    for (long stream : slow.subList(0, 2)) {
      await(() -> ask(stream) == 2);
    }
    await(() -> ask(slow.get(2)) == 1);
    await(() -> ask(slow.get(3)) == 2);
  }

  @Test
  void aPermitOutlivesItsStreamUntilTheLastTicketHasArrived() {
    open("1");
    long gone = stream();
    Runnable letGo = hold(gone);
    driver.signal(gone, 1);
    driver.streamDestroy(gone);
    long next = stream();
    assertThat(calls(EVENT, () -> driver.signal(next, 1))).isEqualTo(1);
    await(() -> ask(next) == 1);
    letGo.run();
    await(
        () -> {
          long value = driver.reached(next) + 1;
          boolean ticket = calls(TICKET, () -> driver.signal(next, value)) == 1;
          await(() -> ask(next) == value);
          return ticket;
        });
  }

  @Test
  void anIdleStreamNeedsNoQuestion() {
    open("16");
    for (int i = 0; i < 40; i++) {
      long stream = stream();
      assertThat(calls(TICKET, () -> driver.signal(stream, 1))).isEqualTo(1);
      await(() -> driver.reached(stream) == 1);
      assertThat(driver.mustAsk(stream)).isFalse();
    }
  }

  // --- questions ----------------------------------------------------------------------------

  /** What has ended is not asked about again, and one question does for all that came before. */
  @Test
  void aQuestionIsAboutTheOldestThenTheNewest() {
    open("0");
    long stream = stream();
    Runnable letGo = hold(stream);
    for (long value = 1; value <= 50; value++) {
      driver.signal(stream, value);
    }
    assertThat(calls(QUERY, () -> ask(stream))).isEqualTo(1);
    letGo.run();
    driver.streamSynchronize(stream); // so that all have ended
    assertThat(driver.reached(stream)).isEqualTo(50);
    assertThat(calls(QUERY, () -> ask(stream))).as("nothing is left to ask").isZero();
    long other = stream();
    driver.signal(other, 1);
    driver.signal(other, 2);
    await(() -> standIn.calls(QUERY) >= 0 && ask(other) == 2);
    assertThat(driver.mustAsk(other)).isFalse();
  }

  @Test
  void timeEndsAQuestionAfterOneStream() {
    open("0");
    List<Long> slow = streams(5);
    slow.forEach(this::hold);
    slow.forEach(stream -> driver.signal(stream, 1));
    long[] all = slow.stream().mapToLong(Long::longValue).toArray();
    assertThat(driver.ask(context, all, 5, 0)).isEqualTo(1);
    assertThat(driver.ask(context, all, 5, Long.MAX_VALUE)).isEqualTo(5);
  }

  /** In mode GLOBAL a query on any thread would invalidate it. */
  @Test
  void aQuestionDisturbsNoCapture() {
    open("0");
    long stream = stream();
    Runnable letGo = hold(stream);
    driver.signal(stream, 1);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment captured = pointer(arena, "cuStreamCreateWithPriority", 1, 0);
      assertThat(standIn.call("cuStreamBeginCapture_v2", captured, 0)).isZero();
      assertThat(ask(stream)).isZero();
      letGo.run();
      await(() -> ask(stream) == 1);
      MemorySegment graph = arena.allocate(JAVA_LONG);
      assertThat(standIn.call("cuStreamEndCapture", captured, graph)).isZero();
      assertThat(standIn.call("cuGraphDestroy", at(graph))).isZero();
      assertThat(standIn.call("cuStreamDestroy_v2", captured)).isZero();
    }
  }

  private MemorySegment pointer(Arena arena, String function, Object... rest) {
    MemorySegment out = arena.allocate(JAVA_LONG);
    Object[] all = new Object[rest.length + 1];
    all[0] = out;
    System.arraycopy(rest, 0, all, 1, rest.length);
    assertThat(standIn.call(function, all)).as(function).isZero();
    return at(out);
  }

  private static MemorySegment at(MemorySegment pointer) {
    return MemorySegment.ofAddress(pointer.get(JAVA_LONG, 0));
  }

  // --- the pool of events -------------------------------------------------------------------

  /** Tickets then, permit or not; and afterwards all events are there again. */
  @Test
  void moreSignalsThanEventsAreTicketsAndArriveToo() {
    open("0");
    long slow = stream();
    List<Long> streams = streams(12);
    long event = driver.eventCreate(context);
    Runnable letGo = hold(slow);
    driver.eventRecord(event, slow);
    streams.forEach(stream -> driver.streamWaitEvent(stream, event));
    long tickets =
        calls(
            TICKET,
            () -> {
              for (long value = 1; value <= 100; value++) {
                for (long stream : streams) {
                  driver.signal(stream, value);
                }
              }
            });
    assertThat(tickets).isEqualTo(1_200 - 1_024);
    List<Long> ends = new ArrayList<>();
    for (long stream : streams.subList(0, 6)) {
      ends.add(end(stream));
      driver.streamDestroy(stream);
    }
    letGo.run();
    for (long stream : streams.subList(6, 12)) {
      await(() -> ask(stream) == 100);
    }
    // a stream that was destroyed goes on until its work is done
    ends.forEach(end -> await(() -> driver.eventQuery(end)));
    streams.subList(6, 12).forEach(this::ask); // a ticket may have told it that it is done
    // those of the streams that went are asked about one by one, with other questions
    long last = streams.getLast();
    for (int i = 0; i < 600; i++) {
      ask(last);
    }
    long events =
        calls(
            EVENT,
            () -> {
              for (long value = 101; value <= 1_124; value++) {
                driver.signal(last, value);
              }
            });
    assertThat(events).isEqualTo(1_024);
    await(() -> ask(last) == 1_124);
  }

  /** What waits longest is asked for first, so each has its turn. */
  @Test
  void aDestroyedStreamThatRunsOnHoldsUpNoOthersEvents() {
    open("0");
    long done = stream();
    long held = stream();
    Runnable letGo = hold(done);
    Runnable letGoToo = hold(held);
    for (long value = 1; value <= 512; value++) {
      driver.signal(done, value);
      driver.signal(held, value);
    }
    long end = end(done);
    driver.streamDestroy(done);
    driver.streamDestroy(held);
    letGo.run();
    await(() -> driver.eventQuery(end));
    long other = stream();
    for (int i = 0; i < 1_024; i++) {
      ask(other);
    }
    long events =
        calls(
            EVENT,
            () -> {
              for (long value = 1; value <= 512; value++) {
                driver.signal(other, value);
              }
            });
    assertThat(events).isEqualTo(512);
    letGoToo.run();
    await(() -> ask(other) == 512);
  }

  /** An event behind all that the stream was given. */
  private long end(long stream) {
    long end = driver.eventCreate(context);
    driver.eventRecord(end, stream);
    return end;
  }

  @Test
  void aRefusedRecordMayBeGivenAgain() {
    open("0");
    long stream = stream();
    standIn.failNext(EVENT, DriverException.OUT_OF_MEMORY, 1);
    assertThatThrownBy(() -> driver.signal(stream, 9))
        .isInstanceOfSatisfying(DriverException.class, e -> assertThat(e.isOutOfMemory()).isTrue());
    assertThat(driver.mustAsk(stream)).isFalse();
    driver.signal(stream, 8);
    await(() -> ask(stream) == 8);
  }

  @Test
  void aQuestionSeesAFault() {
    open("0");
    long stream = stream();
    hold(stream);
    driver.signal(stream, 1);
    standIn.fault(0, 719);
    assertThat(ask(stream)).isZero();
    assertThat(driver.status(context))
        .isNotNull()
        .extracting(DriverException::status)
        .isEqualTo(719);
    assertThat(driver.ask(context, new long[] {stream}, 1, 0)).isEqualTo(1);
  }

  /** The word has 32 bits; a stream whose signals are events for long must not lose count. */
  @Test
  void filledSignalsAndEventsKnowTheirUpperHalf() {
    open("0", "fill");
    long stream = stream();
    long value = 1;
    for (long step : new long[] {1, 1 << 29, (1 << 30) - 1, (1 << 30) - 1, 3, 1 << 29}) {
      for (int i = 0; i < 8; i++) {
        value += step;
        long now = value;
        driver.signal(stream, now);
        await(() -> ask(stream) == now);
      }
    }
    assertThat(value).isGreaterThan(1L << 33);
  }

  @Test
  void theSettingIsChecked() {
    open("0");
    for (String wrong : List.of("-1", "many", "1025", "")) {
      assertThatThrownBy(
              () ->
                  new CudaDriverProvider(standIn.path().toString()).open(Map.of("tickets", wrong)))
          .hasMessageContaining("the setting 'tickets' takes auto or a number from 0 to 1024");
    }
  }

  // --- at random ----------------------------------------------------------------------------

  /**
   * Streams that signal and come after each other at random while others ask: no value falls, none
   * is there before the work that it stands for, and all arrive.
   */
  @ParameterizedTest
  @ValueSource(strings = {"0", "1", "2", "auto"})
  void atRandomNoSignalIsEarlyAndNoneIsLost(String tickets) throws InterruptedException {
    long seed = 20_261_130L + tickets.hashCode();
    System.out.println("seed " + seed);
    open(tickets);
    SplittableRandom random = new SplittableRandom(seed);
    int count = 40;
    List<Long> streams = streams(count);
    long[] handles = streams.stream().mapToLong(Long::longValue).toArray();
    long event = driver.eventCreate(context);
    MemorySegment progress = driver.hostAlloc(context, 8L * count).fill((byte) 0);
    long[] sums = new long[count];
    AtomicReference<Throwable> failed = new AtomicReference<>();
    Thread asking = Thread.ofPlatform().start(() -> askOn(handles, failed));
    for (int step = 0; step < 4_000; step++) {
      int i = random.nextInt(count);
      switch (random.nextInt(4)) {
        case 0 -> {
          driver.eventRecord(event, handles[random.nextInt(count)]);
          driver.streamWaitEvent(handles[i], event);
        }
        case 1 -> launchCount(handles[i], progress.address() + 8L * i);
        default -> {
          launchCount(handles[i], progress.address() + 8L * i);
          sums[i]++;
          driver.signal(handles[i], sums[i]);
        }
      }
      int j = random.nextInt(count);
      long reached = driver.reached(handles[j]);
      assertThat(reached).isLessThanOrEqualTo(progress.getAtIndex(JAVA_LONG, j));
      assertThat(reached).isLessThanOrEqualTo(sums[j]);
    }
    for (int i = 0; i < count; i++) {
      int stream = i;
      await(() -> driver.reached(handles[stream]) == sums[stream] || failed.get() != null);
    }
    asking.interrupt();
    asking.join();
    assertThat(failed.get()).isNull();
  }

  /** One more each time, so at least as many as signals. */
  private void launchCount(long stream, long counter) {
    driver.launch(
        stream, kernel("count"), CudaKernels.ALONE, new LaunchArguments().buffer(counter, 8));
  }

  private long kernel(String name) {
    return driver.kernel(module, name);
  }

  private void askOn(long[] handles, AtomicReference<Throwable> failed) {
    long[] seen = new long[handles.length];
    try {
      while (!Thread.interrupted()) {
        driver.ask(context, handles, handles.length, 50_000);
        for (int i = 0; i < handles.length; i++) {
          long reached = driver.reached(handles[i]);
          assertThat(reached).isGreaterThanOrEqualTo(seen[i]);
          seen[i] = reached;
        }
      }
    } catch (Throwable thrown) {
      failed.set(thrown);
    }
  }
}
