package io.fairlead.host;

import io.fairlead.device.spi.DriverCall;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Which calls and operations are to fail, by kind and count. Any thread; lock-free. */
final class FaultPlan {
  private final Countdowns calls = new Countdowns();
  private final Countdowns operations = new Countdowns();

  /** What is armed for one kind: the one that brings {@code left} to 0 fails. */
  private record Countdown(AtomicLong left, int status) {}

  /** For each kind, what is armed last. */
  private static final class Countdowns {
    private final Map<DriverCall, Countdown> armed = new ConcurrentHashMap<>();

    void arm(DriverCall kind, long nth, int status) {
      armed.put(kind, new Countdown(new AtomicLong(nth), status));
    }

    /** The status to fail with, or 0. */
    int next(DriverCall kind) {
      Countdown countdown = armed.get(kind);
      return countdown != null && countdown.left.decrementAndGet() == 0 ? countdown.status : 0;
    }
  }

  void failCall(DriverCall kind, long nth, int status) {
    calls.arm(kind, nth, status);
  }

  void failOperation(DriverCall kind, long nth, int status) {
    operations.arm(kind, nth, status);
  }

  void beforeCall(DriverCall kind) {
    int status = calls.next(kind);
    if (status != 0) {
      throw Status.refused(status, "injected into a call of " + kind);
    }
  }

  void beforeOperation(Operation operation) {
    int status = operations.next(operation.call());
    if (status != 0) {
      throw Status.fatal(status, "injected into " + operation.describe(), null);
    }
  }
}
