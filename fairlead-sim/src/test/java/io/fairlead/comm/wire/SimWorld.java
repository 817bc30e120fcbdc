package io.fairlead.comm.wire;

import io.fairlead.comm.spi.ReceiveRequest;
import io.fairlead.comm.spi.Request;
import io.fairlead.comm.spi.SendRequest;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.sim.SimNetwork;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Cores over a simulated network, driven by one thread, and requests that say how they ended. */
final class SimWorld {
  private static final Duration PATIENCE = Duration.ofMillis(60);

  final SimNetwork network;
  final List<WireTransport> ranks = new ArrayList<>();
  private final Set<Integer> inside = new HashSet<>();

  SimWorld(long seed, TransportSettings settings, SimNetwork.Settings how) {
    network = new SimNetwork(seed, settings.ranks(), how);
    network.onPause(this::pollOthers);
    for (int rank = 0; rank < settings.ranks(); rank++) {
      ranks.add(new WireTransport(network.wire(rank), settings, PATIENCE));
    }
  }

  private void pollOthers(int rank) {
    inside.add(rank);
    for (WireTransport other : ranks) {
      if (!inside.contains(other.rank())) {
        other.poll();
      }
    }
    inside.remove(rank);
  }

  WireTransport rank(int rank) {
    return ranks.get(rank);
  }

  void poll(int times) {
    for (int i = 0; i < times; i++) {
      ranks.forEach(Transport::poll);
    }
  }

  /** Until so many polls have brought nothing about. */
  void settle() {
    int silent = 0;
    for (int i = 0; i < 1_000_000 && silent < 100; i++) {
      int ends = 0;
      for (WireTransport rank : ranks) {
        ends += rank.poll();
      }
      silent = ends == 0 ? silent + 1 : 0;
    }
  }

  void close() {
    ranks.forEach(Transport::close);
  }

  static MemorySegment memory(long bytes) {
    return Arena.ofAuto().allocate(Math.max(bytes, 1), 8).asSlice(0, bytes);
  }

  /** How a request ended. */
  static final class End {
    int times;
    @Nullable TransportException failure;

    boolean isDone() {
      return times > 0;
    }

    private void done(@Nullable TransportException cause) {
      times++;
      failure = cause;
    }
  }

  /** Something that was asked, and its end. */
  record Asked(Request request, End end) {}

  Asked send(int source, int target, Traffic traffic, int tag, MemorySegment memory) {
    End end = new End();
    SendRequest request =
        new SendRequest(0, traffic, target, tag, new MemorySegment[] {memory}) {
          @Override
          public void sent() {
            end.done(null);
          }

          @Override
          public boolean isWithdrawn() {
            return false;
          }

          @Override
          public void failed(TransportException cause) {
            end.done(cause);
          }
        };
    rank(source).send(request);
    return new Asked(request, end);
  }

  Asked receive(int target, int source, Traffic traffic, int tag, @Nullable MemorySegment memory) {
    return receive(rank(target), source, traffic, tag, memory);
  }

  static Asked receive(
      WireTransport at, int source, Traffic traffic, int tag, @Nullable MemorySegment memory) {
    End end = new End();
    MemorySegment[] into = memory == null ? null : new MemorySegment[] {memory};
    ReceiveRequest request =
        new ReceiveRequest(0, traffic, source, tag, into) {
          @Override
          public void received(int from, long bytes, @Nullable MemorySegment data) {
            end.done(null);
          }

          @Override
          public boolean isWithdrawn() {
            return false;
          }

          @Override
          public void failed(TransportException cause) {
            end.done(cause);
          }
        };
    at.receive(request);
    return new Asked(request, end);
  }
}
