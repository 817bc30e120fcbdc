package io.fairlead.memory;

import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskLocal;
import io.fairlead.task.TaskRuntime;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * What others have registered with a device, and the threads on which it is asked.
 *
 * <p>A call may block for as long as it likes, so each has a platform thread, and there are never
 * more of them than registrations; those that have nothing to do end. Whoever asks waits for the
 * answer as long as {@link #patienceNanos} at most, and goes on without it.
 *
 * <p>Registrations are known weakly: their makers keep them. Any thread, for every method; none
 * blocks, but {@link #close}.
 */
final class Spillables {
  /** As long as a call may take before others go on without it. */
  private static final long PATIENCE_NANOS = 1_000_000_000;

  /** How long who gave nothing is left alone, unless it says that something has changed. */
  private static final long REST_NANOS = 100_000_000;

  /** The same; tests choose them. */
  static volatile long patienceNanos = PATIENCE_NANOS;

  static volatile long restNanos = REST_NANOS;

  private static final long THREAD_IDLE_SECONDS = 10;

  /** Whether the task is inside of a call: then it must not wait for what waits for it. */
  private static final TaskLocal<Boolean> INSIDE = TaskLocal.of(false);

  private final Device device;
  private final TaskRuntime tasks;
  private final Ticks ticks;
  private final CopyOnWriteArrayList<WeakReference<SpillRegistration>> known =
      new CopyOnWriteArrayList<>();
  private final ThreadPoolExecutor threads;

  Spillables(Device device, TaskRuntime tasks, Ticks ticks) {
    this.device = device;
    this.tasks = tasks;
    this.ticks = ticks;
    this.threads =
        new ThreadPoolExecutor(
            0,
            Integer.MAX_VALUE, // one for each registration at most
            THREAD_IDLE_SECONDS,
            TimeUnit.SECONDS,
            new SynchronousQueue<>(),
            Thread.ofPlatform()
                .daemon()
                .name("fairlead-spillables-" + device.info().ordinal() + "-", 0)
                .factory());
  }

  /** Whether the calling task is inside of a call of a spillable, of whichever device. */
  static boolean isInside() {
    return INSIDE.get() && !Mutant.on("spillable.inside.waits");
  }

  SpillRegistration register(String name, Spillable.Memory memory, Spillable spillable) {
    SpillRegistration made = new SpillRegistration(device, ticks, name, memory, spillable);
    closed();
    known.add(new WeakReference<>(made));
    return made;
  }

  /** Some may be gone. */
  void closed() {
    known.removeIf(
        each -> {
          SpillRegistration there = each.get();
          return there == null || !there.isOpen();
        });
  }

  /** Those that can still be asked, some time. */
  List<SpillRegistration> open() {
    if (known.isEmpty()) {
      return List.of();
    }
    List<SpillRegistration> open = new ArrayList<>();
    for (WeakReference<SpillRegistration> each : known) {
      SpillRegistration there = each.get();
      if (there != null && there.isOpen()) {
        open.add(there);
      }
    }
    return open;
  }

  List<SpillRegistration> open(Spillable.Memory memory) {
    List<SpillRegistration> open = open();
    return open.isEmpty() ? open : open.stream().filter(each -> each.memory == memory).toList();
  }

  boolean hasAny(Spillable.Memory memory) {
    return !open(memory).isEmpty();
  }

  /** Whether one of those that take of the limit has not been asked since it said it was used. */
  boolean mayGive() {
    long now = System.nanoTime();
    for (SpillRegistration each : open(Spillable.Memory.TRACKED)) {
      if (each.isAnswering(now) || (each.isReady() && !each.isSpent())) {
        return !Mutant.on("spillable.ladder.skip");
      }
    }
    return false;
  }

  /**
   * Begins a call.
   *
   * @return its answer, which never fails; null if none can begin now
   */
  @Nullable Completion<Long> ask(SpillRegistration each, long bytes) {
    if (!each.begin()) {
      return null;
    }
    Completion.Source<Long> answer = Completion.source(OwnWait.OTHERS);
    boolean begun = false;
    try {
      threads.execute(() -> call(each, bytes, answer));
      begun = true;
    } catch (RejectedExecutionException closed) {
      // the device is being closed: nobody needs it any more
    } finally {
      if (!begun) {
        each.end();
      }
    }
    return begun ? answer.completion() : null;
  }

  private void call(SpillRegistration each, long bytes, Completion.Source<Long> answer) {
    long freed = 0;
    try {
      freed = tasks.enter("spill " + each.name, 0, () -> callInTask(each, bytes));
    } catch (RuntimeException | Error failure) {
      each.failed(failure);
    } finally {
      each.end();
      answer.complete(freed);
      device.spiller().answered();
    }
  }

  private long callInTask(SpillRegistration each, long bytes) throws Exception {
    device.account().gives = true;
    return INSIDE.where(true, () -> each.call(bytes));
  }

  /**
   * The device closes: nobody is asked any more. Waits for calls that are going on, for a while.
   */
  void close() {
    open().forEach(SpillRegistration::close);
    threads.shutdown();
    boolean interrupted = false;
    try {
      boolean _ = threads.awaitTermination(patienceNanos, TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      interrupted = true;
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
