package io.fairlead.cli.torture;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceGraph;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.TaskCancelledException;
import io.fairlead.fault.TaskInterruptedException;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Drill;
import io.fairlead.memory.Hold;
import io.fairlead.memory.Lease;
import io.fairlead.memory.Oom;
import io.fairlead.memory.Reservation;
import io.fairlead.task.Completion;
import io.fairlead.task.Fork;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.ScopePolicy;
import io.fairlead.task.Task;
import io.fairlead.task.TaskScope;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.SplittableRandom;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * One task that does what its seed says with buffers of its own, and knows what each of them holds.
 *
 * <p>It keeps the rules under which nobody may run out of memory for good: outside of {@link Oom}
 * it keeps one small buffer at a time, and never waits for a reservation while it has one. So
 * whatever it meets besides interrupts, cancellation and what fails on purpose, is a fault.
 */
final class Actor {
  private static final int BUFFERS_MAX = 16;
  private static final int CHILD_BUFFERS_MAX = 3;
  private static final int CHILD_STEPS_MAX = 12;
  private static final int DOWNLOADS_MAX = 3;

  /** Of the limit: the largest buffer, and the largest that is held or lent. */
  private static final long LARGE_SHARE = 16;

  private static final long KEPT_SHARE = 512;
  private static final long SMALL_WORDS = 512;
  private static final long MIDDLE_WORDS = 16 << 10;

  private final Round round;
  private final Device device;
  private final TortureKernels kernels;
  private final Tally tally;
  private final SplittableRandom random;
  private final boolean isChild;
  private final List<Known> buffers = new ArrayList<>();
  private final ArrayDeque<Download> downloads = new ArrayDeque<>();
  private Leased.@Nullable Entry kept;
  private @Nullable DeviceBuffer wrong;
  private boolean reserves;

  /** What is on its way to the host. */
  private record Download(Completion<Long> firstWrong, String what) {}

  Actor(Round round, long seed, boolean isChild) {
    this.round = round;
    this.device = round.device();
    this.kernels = round.kernels();
    this.tally = round.tally();
    this.random = new SplittableRandom(seed);
    this.isChild = isChild;
  }

  int run(int steps) {
    try {
      begin();
      for (int i = 0; i < steps; i++) {
        guarded(this::step);
        tally.steps.increment();
      }
      finish();
      return steps;
    } finally {
      buffers.forEach(Known::close);
      if (wrong != null) {
        wrong.close();
      }
    }
  }

  // --- what may happen ----------------------------------------------------------------------

  /** Whether it was done. */
  private boolean guarded(Runnable what) {
    try {
      what.run();
      return true;
    } catch (TaskInterruptedException interrupted) {
      tally.interrupted.increment();
      boolean _ = Task.interrupted();
      Task.current().checkCancelled();
    } catch (OutOfDeviceMemoryException refused) {
      if (!isOnPurpose(refused)) {
        throw refused;
      }
      tally.refused.increment();
    }
    return false;
  }

  static boolean isOnPurpose(OutOfDeviceMemoryException refused) {
    String why = String.valueOf(refused.getMessage());
    return why.contains("on purpose") || why.contains("this is a drill");
  }

  /** Until it was done. */
  private void persist(Runnable what) {
    while (!guarded(what)) {
      Thread.onSpinWait();
    }
  }

  private void begin() {
    persist(
        () -> {
          if (wrong == null) {
            wrong = device.allocate(Long.BYTES);
          }
          wrong.fill((byte) 0);
        });
  }

  private void finish() {
    while (!downloads.isEmpty()) {
      persist(this::endDownload);
    }
    for (Known each : buffers) {
      persist(() -> download(each));
    }
    persist(this::lookAtWrong);
  }

  private void lookAtWrong() {
    long count = Objects.requireNonNull(wrong).toLongs()[0];
    if (count != 0) {
      throw new TortureFailedException(
          count + " words that kernels have looked at were not what was written", null);
    }
  }

  // --- steps --------------------------------------------------------------------------------

  private void step() {
    int max = isChild ? CHILD_BUFFERS_MAX : BUFFERS_MAX;
    if (buffers.isEmpty() || (buffers.size() < max && random.nextInt(4) == 0)) {
      allocate();
      return;
    }
    switch (random.nextInt(isChild ? 22 : 32)) {
      case 0, 1 -> write(any());
      case 2, 3 -> add(any());
      case 4, 5 -> move(any(), any());
      case 6 -> copy(any(), any());
      case 7, 8, 9 -> check(any());
      case 10 -> download(any());
      case 11 -> beginDownload(any());
      case 12 -> part(any());
      case 13 -> closeOne();
      case 14 -> round.leased().endOne();
      case 15 -> any().buffer.spill().await();
      case 16 -> any().buffer.priority(random.nextInt(3));
      case 17 -> keep();
      case 18 -> lend();
      case 19 -> graph();
      case 20 -> pause();
      case 21 -> endDownload();
      case 22, 23 -> reserve();
      case 24 -> request();
      case 25, 26, 27 -> retry();
      case 28 -> split();
      default -> children();
    }
  }

  private Known any() {
    return buffers.get(random.nextInt(buffers.size()));
  }

  private long size() {
    long large = device.memory().limit() / LARGE_SHARE / Long.BYTES;
    int kind = random.nextInt(20);
    return 1 + random.nextLong(kind < 11 ? SMALL_WORDS : kind < 19 ? MIDDLE_WORDS : large);
  }

  private void allocate() {
    Known made = new Known(device.allocate(size() * Long.BYTES));
    buffers.add(made);
    write(made);
  }

  private void write(Known to) {
    long base = random.nextLong();
    if (random.nextBoolean()) {
      kernels.write.launch(TortureKernels.each(to.words), to.buffer, to.words, base);
    } else {
      to.isKnown = false; // it may be broken off in its middle
      to.buffer.upload(Content.of(to.words, base));
    }
    to.holds(base);
  }

  /** Writes it first, if nobody knows what it holds. */
  private Known known(Known one) {
    if (!one.isKnown) {
      write(one);
    }
    return one;
  }

  private void add(Known one) {
    long by = random.nextLong();
    Known to = known(one);
    if (!to.isLent() && random.nextInt(3) == 0) {
      try (DeviceStream other = device.context().openStream(0)) {
        kernels.add.launch(other, TortureKernels.each(to.words), to.buffer, to.words, by);
        to.holds(to.base + by); // whatever its close meets
      }
    } else {
      kernels.add.launch(TortureKernels.each(to.words), to.buffer, to.words, by);
      to.holds(to.base + by);
    }
  }

  private void move(Known from, Known to) {
    if (from != to && from.words >= to.words) {
      long by = random.nextLong();
      known(from);
      kernels.move.launch(TortureKernels.each(to.words), from.buffer, to.buffer, to.words, by);
      to.holds(from.base + by);
    }
  }

  private void copy(Known from, Known to) {
    if (from != to && from.words >= to.words) {
      long first = random.nextLong(from.words - to.words + 1);
      known(from);
      to.isKnown = false;
      to.buffer.copyFrom(0, from.buffer, first * Long.BYTES, to.words * Long.BYTES);
      to.holds(from.base + first * Content.STEP);
    }
  }

  // --- looking ------------------------------------------------------------------------------

  private void check(Known one) {
    known(one);
    DeviceBuffer count = Objects.requireNonNull(wrong);
    kernels.check.launch(TortureKernels.each(one.words), one.buffer, count, one.words, one.base);
    tally.checks.increment();
    if (random.nextInt(8) == 0) {
      lookAtWrong();
    }
  }

  private void download(Known one) {
    known(one);
    requireRight(one.buffer, one.base);
    tally.checks.increment();
  }

  private static void requireRight(DeviceBuffer buffer, long base) {
    requireRight(
        buffer.download(words -> Content.firstWrong(words, base)).await(), describe(buffer));
  }

  private static void requireRight(long firstWrong, String what) {
    if (firstWrong >= 0) {
      throw new TortureFailedException(
          "word " + firstWrong + " of a " + what + " is not what was written", null);
    }
  }

  private static String describe(DeviceBuffer buffer) {
    return buffer + ", tier " + buffer.tier();
  }

  private void part(Known one) {
    known(one);
    long first = random.nextLong(one.words);
    long count = 1 + random.nextLong(one.words - first);
    requireRight(
        one.buffer.slice(first * Long.BYTES, count * Long.BYTES), one.base + first * Content.STEP);
    tally.checks.increment();
  }

  /** What comes after it must not be seen in it. */
  private void beginDownload(Known one) {
    known(one);
    long base = one.base;
    downloads.add(
        new Download(
            one.buffer.download(words -> Content.firstWrong(words, base)), describe(one.buffer)));
    if (downloads.size() > DOWNLOADS_MAX) {
      endDownload();
    }
  }

  private void endDownload() {
    Download first = downloads.peekFirst();
    if (first != null) {
      long at = first.firstWrong.await(); // may be interrupted, and is asked again then
      downloads.removeFirst();
      requireRight(at, first.what);
      tally.checks.increment();
    }
  }

  // --- keeping ------------------------------------------------------------------------------

  private void closeOne() {
    buffers.remove(random.nextInt(buffers.size())).close(); // whatever uses it just then
  }

  private @Nullable Known mayKeep() {
    Known one = any();
    boolean small = one.words * Long.BYTES <= device.memory().limit() / KEPT_SHARE;
    return small && (kept == null || !kept.isOpen()) ? one : null;
  }

  private void keep() {
    Known one = mayKeep();
    if (one != null) {
      Hold hold = one.buffer.hold();
      hold.handOn();
      kept = round.leased().add(hold);
    }
  }

  private void lend() {
    Known one = mayKeep();
    if (one != null && !one.isLent()) {
      Access access = random.nextBoolean() ? Access.READ : Access.READ_WRITE;
      Lease lease = one.buffer.lease(device.stream(), access);
      lease.handOn();
      kept = round.leased().add(lease);
      one.lease = kept;
    }
  }

  private void graph() {
    Known one = mayKeep();
    if (one == null || one.isLent()) {
      return;
    }
    known(one);
    long by = random.nextLong();
    try (DeviceGraph graph =
        device.capture(
            "add",
            stream ->
                kernels.add.launch(
                    stream, TortureKernels.each(one.words), one.buffer, one.words, by))) {
      int launches = random.nextInt(3);
      for (int i = 0; i < launches; i++) {
        graph.launch();
        one.holds(one.base + by);
      }
    }
  }

  private void pause() {
    LockSupport.parkNanos(random.nextInt(2_000_000));
  }

  // --- promises -----------------------------------------------------------------------------

  private void reserve() {
    if (reserves) {
      Optional<Reservation> more =
          device.tryReserve(1 + random.nextLong(device.memory().limit() / 8));
      more.ifPresent(Reservation::close);
      return;
    }
    try (Reservation _ = device.reserve(1 + random.nextLong(device.memory().limit() / 8))) {
      reserves = true;
      int steps = random.nextInt(6);
      for (int i = 0; i < steps; i++) {
        guarded(this::step);
      }
    } finally {
      reserves = false;
    }
  }

  private void request() {
    if (reserves) {
      return;
    }
    Completion<Reservation> asked =
        device.requestReservation(1 + random.nextLong(device.memory().limit() / 8));
    if (random.nextInt(3) == 0) {
      asked.cancel();
    }
    asked.onDone(
        done -> {
          if (done.state() == Completion.State.DONE) {
            done.getNow().close();
          }
        });
    if (random.nextBoolean()) {
      add(any());
    }
  }

  // --- work that can give way ---------------------------------------------------------------

  private boolean mayTry() {
    return !reserves && (kept == null || !kept.isOpen());
  }

  private void retry() {
    if (mayTry()) {
      long seed = random.nextLong();
      try (Drill _ = random.nextInt(4) > 0 ? null : drill(Drill.Kind.ROLL_BACK)) {
        Oom.retry(device, () -> piece(seed, true));
      }
    }
  }

  private Drill drill(Drill.Kind kind) {
    return Oom.drill(device, 1 + random.nextInt(4), kind);
  }

  /** Does the same each time. */
  private long piece(long seed, boolean outer) {
    SplittableRandom own = new SplittableRandom(seed);
    long limit = device.memory().limit();
    long all = own.nextLong(limit / (outer ? 3 : 6)) / Long.BYTES;
    List<Known> made = new ArrayList<>();
    List<Hold> holds = new ArrayList<>();
    try {
      for (long words = 0; words < all; words += made.getLast().words) {
        Known next = new Known(device.allocate((1 + own.nextLong(limit / 64)) * Long.BYTES));
        made.add(next);
        next.holds(own.nextLong());
        kernels.write.launch(TortureKernels.each(next.words), next.buffer, next.words, next.base);
        if (own.nextInt(3) > 0) {
          holds.add(made.get(own.nextInt(made.size())).buffer.hold());
        }
        if (own.nextInt(8) == 0) {
          device.stream().reached().await(); // so that others come between
        }
        Known before = own.nextInt(4) == 0 && !buffers.isEmpty() ? buffers.getFirst() : null;
        if (before != null && before.isKnown) {
          requireRight(before.buffer, before.base);
        }
      }
      if (outer && own.nextInt(3) == 0) {
        long inner = own.nextLong();
        Oom.retry(device, () -> piece(inner, false));
      }
      made.forEach(each -> requireRight(each.buffer, each.base));
      tally.checks.add(made.size());
      return all;
    } finally {
      holds.forEach(Hold::close);
      made.forEach(Known::close);
    }
  }

  private void split() {
    if (!mayTry()) {
      return;
    }
    long all = 1 + random.nextLong(2 * device.memory().limit() / Long.BYTES);
    long least = device.memory().limit() / 256 / Long.BYTES;
    long base = random.nextLong();
    List<Long> parts;
    try (Drill _ = random.nextInt(4) > 0 ? null : drill(Drill.Kind.SPLIT)) {
      parts =
          Oom.splitAndRetry(
              device,
              all,
              words -> words <= least ? List.of(words) : List.of(words / 2, words - words / 2),
              words -> held(words, base));
    }
    long sum = parts.stream().mapToLong(each -> each).sum();
    if (sum != all) {
      throw new TortureFailedException("parts of " + all + " words are " + sum + " together", null);
    }
  }

  private long held(long words, long base) {
    try (DeviceBuffer part = device.allocate(words * Long.BYTES);
        Hold hold = part.hold()) {
      kernels.write.launch(TortureKernels.each(words), part, words, base);
      requireRight(part, base);
      tally.checks.increment();
      return hold == null ? 0 : words;
    }
  }

  // --- children -----------------------------------------------------------------------------

  /** Which end by themselves, or are cancelled, or too late. */
  private void children() {
    List<Fork<Integer>> forks = new ArrayList<>();
    try (TaskScope<Integer> scope = round.scope(ScopeOptions.of(ScopePolicy.COLLECT))) {
      int count = 1 + random.nextInt(3);
      for (int i = 0; i < count; i++) {
        ForkOptions options =
            ForkOptions.named("child").priority(random.nextInt(4)).eager(random.nextBoolean());
        if (random.nextBoolean()) {
          options = options.deadline(Duration.ofNanos(1 + random.nextInt(20_000_000)));
        }
        long seed = random.nextLong();
        int steps = random.nextInt(CHILD_STEPS_MAX);
        forks.add(scope.fork(options, () -> new Actor(round, seed, true).run(steps)));
      }
      if (random.nextInt(3) == 0) {
        guarded(() -> add(any()));
        scope.cancel(null);
      }
      join(scope);
    } finally {
      for (Fork<Integer> each : forks) {
        requireExpected(each);
      }
    }
  }

  private void join(TaskScope<Integer> scope) {
    try {
      scope.join();
    } catch (TaskCancelledException ofTheScope) {
      Task.current().checkCancelled();
    }
  }

  private void requireExpected(Fork<Integer> fork) {
    Throwable failure = fork.failure();
    if (failure == null) {
      return;
    }
    boolean expected =
        failure instanceof TaskCancelledException
            || failure instanceof DeadlineExceededException
            || failure instanceof TaskInterruptedException;
    if (!expected) {
      round.broken(new TortureFailedException("a child failed: " + failure.getMessage(), failure));
    }
    tally.cancelled.increment();
  }
}
