package io.fairlead.comm;

import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.MessageListener;
import io.fairlead.comm.spi.MessageRequest;
import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportCaps;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.task.Role;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.IntSupplier;
import java.util.function.Supplier;

/**
 * The in-process transport behind another thread level, with a guard at its door: it writes down
 * every entry that the level or the law forbids. A native transport would crash or corrupt there.
 *
 * <p>Below MULTIPLE a transport must not suspend a virtual thread for what only others inside can
 * end. The one below has locks that might, if they were contended; so the ranks of a world enter it
 * one at a time, looking again and again.
 */
final class GuardedTransport implements Transport {
  private final Transport inner;
  private final ThreadLevel level;
  private final AtomicBoolean door;
  private final boolean polled;
  private final AtomicReference<String> only = new AtomicReference<>();
  private final AtomicReference<Thread> inside = new AtomicReference<>();
  final Queue<String> violations = new ConcurrentLinkedQueue<>();
  final LongAdder entries = new LongAdder();
  final LongAdder polls = new LongAdder();

  /** What a poll finds beside. */
  volatile IntSupplier found = () -> 0;

  /** Whether it can ring; {@link #ring} does. What a poll finds rings nobody. */
  volatile boolean rings;

  /** Whether nothing is in flight. */
  volatile boolean quiet = true;

  private volatile boolean resting;
  private volatile Runnable bell = () -> {};
  private boolean polledSince;

  /** How often a loop asked whether it may sleep. */
  final LongAdder rests = new LongAdder();

  private GuardedTransport(Transport inner, ThreadLevel level, AtomicBoolean door, boolean polled) {
    this.inner = inner;
    this.level = level;
    this.door = door;
    this.polled = polled;
  }

  /** Ranks over guarded transports; see {@link #violations}. */
  static World world(int size, ThreadLevel level, CommConfig config) {
    return world(TaskRuntime.open(TaskConfig.DEFAULT), size, level, config, false);
  }

  /** The same; if {@code polled}, they say that they need progress, as a message library does. */
  static World world(
      TaskRuntime tasks, int size, ThreadLevel level, CommConfig config, boolean polled) {
    AtomicBoolean door = new AtomicBoolean();
    TransportSettings settings =
        new TransportSettings(size, config.eagerBytes(), config.eagerMessages());
    List<Comm> ranks = new ArrayList<>();
    for (Transport transport : InProcess.provider().open(settings)) {
      ranks.add(Comm.over(tasks, new GuardedTransport(transport, level, door, polled), config));
    }
    return new World(tasks, ranks);
  }

  static List<String> violations(World world) {
    List<String> all = new ArrayList<>();
    for (Comm rank : world.ranks) {
      all.addAll(((GuardedTransport) rank.engine().transport).violations);
    }
    return all;
  }

  static long entries(World world) {
    long sum = 0;
    for (Comm rank : world.ranks) {
      sum += ((GuardedTransport) rank.engine().transport).entries.sum();
    }
    return sum;
  }

  private <T> T enter(String call, Supplier<T> body) {
    entries.increment();
    Role role = Role.current();
    if (role == Role.DEVICE_MANAGER || role == Role.CLEANER) {
      violations.add(call + " by " + role);
    }
    Thread self = Thread.currentThread();
    if (level.compareTo(ThreadLevel.SERIALIZED) < 0) {
      only.compareAndSet(null, platformThread(self));
      if (!only.get().equals(platformThread(self))) {
        violations.add(call + " by " + self + " beside " + only.get());
      }
    }
    if (level == ThreadLevel.MULTIPLE) {
      return body.get();
    }
    Thread before = inside.getAndSet(self);
    if (before != null) {
      violations.add(call + " by " + self + " while " + before + " is inside");
    }
    while (!door.compareAndSet(false, true)) {
      letOthersRun(self);
    }
    try {
      return body.get();
    } finally {
      door.set(false);
      inside.set(null);
    }
  }

  /**
   * Whoever is inside may have been suspended there, by a lock of the engine's that a callback came
   * for, and needs a carrier to go on. A task on a communication thread keeps that: what else runs
   * there would enter.
   */
  @SuppressWarnings("ThreadPriorityCheck") // a yield is a suspension
  private static void letOthersRun(Thread self) {
    if (self.isVirtual() && platformThread(self).contains("-comm-")) {
      Thread.onSpinWait();
    } else {
      Thread.yield();
    }
  }

  /** Its name; that of a virtual thread stands behind its state: {@code …/runnable@NAME}. */
  private static String platformThread(Thread thread) {
    String text = thread.toString();
    return thread.isVirtual() ? text.substring(text.indexOf('@') + 1) : thread.getName();
  }

  private void enter(String call, Runnable body) {
    enter(
        call,
        () -> {
          body.run();
          return true;
        });
  }

  @Override
  public String name() {
    return "guarded";
  }

  @Override
  public int rank() {
    return inner.rank();
  }

  @Override
  public int size() {
    return inner.size();
  }

  @Override
  public ThreadLevel threadLevel() {
    return level;
  }

  @Override
  public TransportCaps caps() {
    TransportCaps caps = inner.caps();
    return polled ? new TransportCaps(true, caps.oneSided(), caps.tagMax()) : caps;
  }

  @Override
  public int openChannel(int parent, int index) {
    return enter("openChannel", () -> inner.openChannel(parent, index));
  }

  @Override
  public void send(SendRequest request) {
    enter("send", () -> inner.send(request));
  }

  @Override
  public void receive(ReceiveRequest request) {
    enter("receive", () -> inner.receive(request));
  }

  @Override
  public void message(MessageRequest request) {
    enter("message", () -> inner.message(request));
  }

  @Override
  public void listen(int channel, MessageListener listener) {
    enter("listen", () -> inner.listen(channel, listener));
  }

  @Override
  public long expose(MemorySegment segment) {
    return enter("expose", () -> inner.expose(segment));
  }

  @Override
  public void conceal(long key) {
    enter("conceal", () -> inner.conceal(key));
  }

  @Override
  public void put(CopyRequest request) {
    enter("put", () -> inner.put(request));
  }

  @Override
  public void get(CopyRequest request) {
    enter("get", () -> inner.get(request));
  }

  @Override
  public boolean cancel(Request request) {
    return enter("cancel", () -> inner.cancel(request));
  }

  @Override
  public int poll() {
    return enter(
        "poll",
        () -> {
          polls.increment();
          polledSince = true;
          return inner.poll() + found.getAsInt();
        });
  }

  @Override
  public boolean announceRest(Runnable wakes) {
    return enter(
        "announceRest",
        () -> {
          polledSince = false;
          bell = wakes;
          resting = rings;
          return rings;
        });
  }

  @Override
  public boolean mayRest() {
    return enter(
        "mayRest",
        () -> {
          if (!polledSince) {
            violations.add("a rest without a poll after its announcement");
          }
          rests.increment();
          return quiet && resting;
        });
  }

  @Override
  public boolean isResting() {
    return resting;
  }

  @Override
  public void endRest() {
    resting = false;
  }

  /** Something came: as a peer, or this rank's own call, would say. */
  void ring() {
    if (resting) {
      resting = false;
      bell.run();
    }
  }

  @Override
  public void abort(Throwable cause) {
    enter("abort", () -> inner.abort(cause));
  }

  @Override
  public List<Undelivered> closeChannel(int channel) {
    return enter("closeChannel", () -> inner.closeChannel(channel));
  }

  @Override
  public void close() {
    enter("close", inner::close);
  }
}
