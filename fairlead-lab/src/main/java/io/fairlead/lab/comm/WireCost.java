package io.fairlead.lab.comm;

import com.sun.management.ThreadMXBean;
import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.Received;
import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.WireTransport;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * What the protocol core costs a message of 8 bytes, over a wire that costs next to nothing: time,
 * memory and calls of the wire, for both ends together, driven by one thread. The requests are made
 * beforehand and not counted.
 *
 * <p>{@code java io.fairlead.lab.comm.WireCost [rounds]}. Trust no time that it prints on a busy
 * machine; it prints the load for that reason. Bytes and calls do not depend on that.
 */
public final class WireCost {
  private static final int BATCH = 10_000;

  /** Messages that come before their receives, at a time: within the credit of the default. */
  private static final int EARLY = 32;

  private static final int TAG = 7;

  private final PipeWire[] wires = PipeWire.wires(2);
  private final Transport first;
  private final Transport second;
  private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
  private final int rounds;
  private long ended;

  private WireCost(int rounds) {
    this.rounds = rounds;
    TransportSettings settings = new TransportSettings(2, 4L << 20, 4096);
    first = new WireTransport(wires[0], settings);
    second = new WireTransport(wires[1], settings);
    for (int i = 0; i < 4; i++) {
      first.poll();
      second.poll();
    }
  }

  /** Measures and prints a line for each way. */
  public static void main(String[] args) {
    int rounds = args.length > 0 ? Integer.parseInt(args[0]) : 300;
    WireCost cost = new WireCost(rounds);
    for (boolean counted : new boolean[] {false, true}) {
      cost.measure("ping-pong, receive first, native", counted, memory(), cost::pingPong);
      cost.measure("ping-pong, receive first, heap", counted, heap(), cost::pingPong);
      cost.measure("ping-pong, any source", counted, heap(), cost::anySource);
      cost.measure("stream, receive first", counted, heap(), cost::stream);
      cost.measure("stream, receive later", counted, heap(), cost::early);
    }
    throughComm(rounds);
  }

  /** A task that sends to its own rank and receives: all that stands above the core too. */
  private static void throughComm(int rounds) {
    PipeWire wire = PipeWire.wires(1)[0];
    TransportSettings settings = new TransportSettings(1, 4L << 20, 4096);
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Comm comm = Comm.over(tasks, new WireTransport(wire, settings), CommConfig.DEFAULT);
        TaskScope<String> scope = tasks.scope()) {
      scope.fork(() -> toItself(comm, wire, rounds));
      scope.join();
    }
  }

  private static String toItself(Comm comm, PipeWire wire, int rounds) {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    MemorySegment out = Arena.ofAuto().allocate(8);
    MemorySegment in = Arena.ofAuto().allocate(8);
    double[] nanos = new double[rounds];
    long bytes = 0;
    long sends = 0;
    for (int round = -rounds; round < rounds; round++) {
      long sent = wire.sends;
      long before = threads.getTotalThreadAllocatedBytes();
      long begin = System.nanoTime();
      for (int i = 0; i < BATCH; i++) {
        Completion<Received> received = comm.receive(0, TAG, in);
        comm.send(0, TAG, out).await();
        received.await();
      }
      nanos[Math.max(round, 0)] = (System.nanoTime() - begin) / (double) BATCH;
      bytes = threads.getTotalThreadAllocatedBytes() - before;
      sends = wire.sends - sent;
    }
    print("Comm, task to its own rank", nanos, bytes, sends, 0);
    return "measured";
  }

  private static MemorySegment[] memory() {
    return new MemorySegment[] {Arena.global().allocate(8)};
  }

  private static MemorySegment[] heap() {
    return new MemorySegment[] {MemorySegment.ofArray(new long[1])};
  }

  private interface Way {
    void run(Send[] sends, Receive[] receives);
  }

  private void measure(String name, boolean counted, MemorySegment[] memory, Way way) {
    double[] nanos = new double[rounds];
    long bytes = 0;
    long sends = 0;
    long polls = 0;
    for (int round = 0; round < rounds; round++) {
      boolean any = name.contains("any");
      Send[] out = new Send[BATCH];
      Receive[] in = new Receive[BATCH];
      for (int i = 0; i < BATCH; i++) {
        boolean there = i % 2 == 0 || !name.startsWith("ping");
        out[i] = new Send(there ? 1 : 0, memory);
        in[i] = new Receive(any ? Transport.ANY : there ? 0 : 1, memory);
      }
      ended = 0;
      long sent = wires[0].sends + wires[1].sends;
      long polled = wires[0].polls + wires[1].polls;
      long before = threads.getCurrentThreadAllocatedBytes();
      long begin = System.nanoTime();
      way.run(out, in);
      nanos[round] = (System.nanoTime() - begin) / (double) BATCH;
      bytes = threads.getCurrentThreadAllocatedBytes() - before;
      sends = wires[0].sends + wires[1].sends - sent;
      polls = wires[0].polls + wires[1].polls - polled;
      if (ended != 2L * BATCH) {
        throw new IllegalStateException(name + ": " + ended + " requests ended, not all");
      }
    }
    if (counted) {
      print(name, nanos, bytes, sends, polls);
    }
  }

  private static void print(String name, double[] nanos, long bytes, long sends, long polls) {
    Arrays.sort(nanos);
    System.out.printf(
        Locale.ROOT,
        "%-34s %6.1f ns (best %.1f), %5.1f B, %.3f sends, %.3f polls a message; load %.1f%n",
        name,
        nanos[nanos.length / 2],
        nanos[0],
        bytes / (double) BATCH,
        sends / (double) BATCH,
        polls / (double) BATCH,
        ManagementFactory.getOperatingSystemMXBean().getSystemLoadAverage());
  }

  private void pingPong(Send[] sends, Receive[] receives) {
    for (int i = 0; i < BATCH; i += 2) {
      second.receive(receives[i]);
      first.send(sends[i]);
      second.poll();
      first.receive(receives[i + 1]);
      second.send(sends[i + 1]);
      first.poll();
    }
  }

  private void anySource(Send[] sends, Receive[] receives) {
    pingPong(sends, receives);
  }

  private void stream(Send[] sends, Receive[] receives) {
    for (int i = 0; i < BATCH; i++) {
      second.receive(receives[i]);
      first.send(sends[i]);
      if (i % EARLY == EARLY - 1 || i == BATCH - 1) {
        second.poll();
        first.poll();
      }
    }
  }

  private void early(Send[] sends, Receive[] receives) {
    for (int i = 0; i < BATCH; i += EARLY) {
      int end = Math.min(i + EARLY, BATCH);
      for (int j = i; j < end; j++) {
        first.send(sends[j]);
      }
      second.poll();
      for (int j = i; j < end; j++) {
        second.receive(receives[j]);
      }
      first.poll();
    }
  }

  private final class Send extends SendRequest {
    Send(int target, MemorySegment[] memory) {
      super(Transport.ROOT_CHANNEL, Traffic.DATA, target, TAG, memory);
    }

    @Override
    public void sent() {
      ended++;
    }

    @Override
    public boolean isWithdrawn() {
      return false;
    }

    @Override
    public void failed(TransportException cause) {
      throw new IllegalStateException(cause);
    }
  }

  private final class Receive extends ReceiveRequest {
    Receive(int source, MemorySegment[] memory) {
      super(Transport.ROOT_CHANNEL, Traffic.DATA, source, TAG, memory);
    }

    @Override
    public void received(int source, long bytes, @Nullable MemorySegment data) {
      ended++;
    }

    @Override
    public boolean isWithdrawn() {
      return false;
    }

    @Override
    public void failed(TransportException cause) {
      throw new IllegalStateException(cause);
    }
  }
}
