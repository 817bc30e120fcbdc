package io.fairlead.cli.bench;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;

/**
 * Looks again and again whether a thread that runs virtual threads is blocked by one of them, until
 * it is closed. Seen is what lasts from one look to the next: two milliseconds and more.
 */
final class CarrierWatch implements AutoCloseable {
  private static final long PERIOD_NANOS = 2_000_000;

  /** Frames and state of a thread are of two moments: only what all of these see is so. */
  private static final int READINGS = 4;

  private final Thread watcher;
  private volatile boolean over;
  private volatile int blocked;
  private volatile int looks;

  private CarrierWatch() {
    watcher = Thread.ofPlatform().daemon().name("carrier-watch").unstarted(this::watch);
  }

  /** One that looks from now on. */
  static CarrierWatch begin() {
    CarrierWatch watch = new CarrierWatch();
    watch.watcher.start();
    return watch;
  }

  /** How often a carrier was seen to be blocked so far. Any thread. */
  int blocked() {
    return blocked;
  }

  /** How often it has looked. Any thread. */
  int looks() {
    return looks;
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // written by this thread only
  private void watch() {
    Set<Thread> before = Set.of();
    while (!over) {
      Set<Thread> now = new HashSet<>();
      Thread.getAllStackTraces()
          .forEach(
              (thread, frames) -> {
                if (isMounted(frames) && isBlocked(thread)) {
                  now.add(thread);
                }
              });
      Set<Thread> lasting = new HashSet<>(now);
      lasting.retainAll(before);
      blocked += lasting.size();
      looks++;
      before = now;
      LockSupport.parkNanos(PERIOD_NANOS);
    }
  }

  /**
   * A carrier that waits by itself has no task mounted, and no frame of one on its stack. One that
   * has just begun to may have had one when its frames were read.
   */
  private static boolean isBlocked(Thread thread) {
    for (int i = 0; i < READINGS; i++) {
      if (!waits(thread) || !isMounted(thread.getStackTrace())) {
        return false;
      }
    }
    return waits(thread);
  }

  private static boolean waits(Thread thread) {
    return switch (thread.getState()) {
      case BLOCKED, WAITING, TIMED_WAITING -> true;
      case NEW, RUNNABLE, TERMINATED -> false;
    };
  }

  private static boolean isMounted(StackTraceElement[] frames) {
    for (StackTraceElement frame : frames) {
      if (frame.getClassName().equals("jdk.internal.vm.Continuation")) {
        return true;
      }
    }
    return false;
  }

  /** Waits for the look that goes on. */
  @Override
  public void close() {
    over = true;
    boolean interrupted = false;
    while (watcher.isAlive()) {
      try {
        watcher.join();
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
