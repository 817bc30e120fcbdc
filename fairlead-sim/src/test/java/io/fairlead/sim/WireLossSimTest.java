package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.sim.TransportRequests.Copy;
import io.fairlead.sim.TransportRequests.Message;
import io.fairlead.sim.TransportRequests.Probe;
import io.fairlead.sim.TransportRequests.Receive;
import io.fairlead.sim.TransportRequests.Send;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks that die, and messages that are longer than memory. */
@Timeout(110)
class WireLossSimTest {
  private static final int ROOT = Transport.ROOT_CHANNEL;
  private static final Duration PATIENCE = Duration.ofMillis(200);
  private static final long GIB = 1L << 30;

  private static MemorySegment memory(long bytes) {
    return Arena.ofAuto().allocate(Math.max(1, bytes), 8).asSlice(0, bytes);
  }

  /** Nothing is there: only a wire that does not look may be given it. */
  private static MemorySegment pretended(long bytes) {
    return MemorySegment.ofAddress(1L << 20).reinterpret(bytes);
  }

  @ParameterizedTest(name = "seed {0}")
  @ValueSource(ints = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19})
  void whoWaitsForADeadRankIsTold(int seed) {
    SplittableRandom random = new SplittableRandom(seed);
    int size = 2 + random.nextInt(3);
    int victim = random.nextInt(size);
    SimNetwork.Settings how = SimNetwork.Settings.QUICK.withWant(512, 6, 1_000, 1 + seed % 4);
    SimRanks ranks = new SimRanks(seed, new TransportSettings(size, 9_000, 60), how, PATIENCE);
    List<Probe> asked = new ArrayList<>();
    for (int i = 0; i < 120; i++) {
      int rank = random.nextInt(size);
      Transport from = ranks.transports.get(rank);
      int peer = random.nextInt(size);
      Probe probe = request(random, from, peer);
      if (rank != victim) {
        asked.add(probe);
      }
      ranks.transports.get(random.nextInt(size)).poll();
    }
    Receive waiting = new Receive(ROOT, Traffic.DATA, victim, 99);
    ranks.transports.get((victim + 1) % size).receive(waiting);
    ranks.network.kill(victim);
    for (int i = 0; i < 100; i++) {
      ranks.transports.forEach(Transport::poll);
    }
    assertThat(waiting.isDone()).as("seed %d: who waits for the dead is told", seed).isTrue();
    assertThat(waiting.failure).isNotNull();
    assertThat(waiting.failure.reason()).isEqualTo(Reason.PEER_FAILED);
    assertThat(waiting.failure).hasMessageContaining("rank " + victim);
    long begin = System.nanoTime();
    for (Transport transport : ranks.transports) {
      if (transport.rank() != victim) {
        transport.close();
      }
    }
    assertThat(Duration.ofNanos(System.nanoTime() - begin)).isLessThan(Duration.ofSeconds(20));
    assertThat(asked).allSatisfy(probe -> assertThat(probe.ends()).isEqualTo(1));
    assertThat(ranks.network.violations()).isEmpty();
  }

  @Test
  void theMemoryOfASendThatFailedIsReadNoMore() {
    SimNetwork.Settings how = SimNetwork.Settings.QUICK.withWant(512, 6, 1_000, 0);
    SimRanks ranks = new SimRanks(1, new TransportSettings(2, 9_000, 60), how, PATIENCE);
    Transport zero = ranks.transports.get(0);
    Receive receive = new Receive(ROOT, Traffic.DATA, 0, 1, memory(100_000));
    try (Arena arena = Arena.ofShared()) {
      MemorySegment data = arena.allocate(100_000, 8).fill((byte) 1);
      Send send = new Send(ROOT, Traffic.DATA, 1, 1, data);
      ranks.transports.get(1).receive(receive);
      zero.send(send);
      poll(ranks, 8);
      assertThat(receive.place().mismatch(data)).as("bytes that came").isPositive();
      assertThat(send.isDone()).isFalse();
      zero.abort(new IllegalStateException("enough"));
      assertThat(send.failure()).isNotNull();
    }
    poll(ranks, 100);
    assertThat(receive.failure()).isNotNull();
    assertThat(ranks.network.violations()).isEmpty();
  }

  private static Probe request(SplittableRandom random, Transport from, int peer) {
    int bytes = random.nextInt(2) == 0 ? random.nextInt(40) : random.nextInt(5_000);
    return switch (random.nextInt(4)) {
      case 0 -> {
        Receive receive = new Receive(ROOT, Traffic.DATA, peer, 1);
        from.receive(receive);
        yield receive;
      }
      case 1 -> {
        MemorySegment[] blobs = {memory(bytes)};
        Message message = new Message(ROOT, peer, 1, memory(8), blobs);
        from.message(message);
        yield message;
      }
      case 2 -> {
        Copy copy = new Copy(ROOT, peer, 1, 0, memory(bytes));
        from.get(copy);
        yield copy;
      }
      default -> {
        Send send = new Send(ROOT, Traffic.DATA, peer, 1, memory(bytes));
        from.send(send);
        yield send;
      }
    };
  }

  // --- longer than an int -----------------------------------------------------------------------

  private static SimRanks pretending() {
    SimNetwork.Settings how = SimNetwork.Settings.QUICK.withoutCopies(GIB);
    return new SimRanks(1, new TransportSettings(2, 4 << 20, 4096), how, PATIENCE);
  }

  private static void poll(SimRanks ranks) {
    for (int i = 0; i < 200; i++) {
      ranks.transports.forEach(Transport::poll);
    }
    assertThat(ranks.network.violations()).isEmpty();
    assertThat(ranks.network.leftovers()).isZero();
  }

  @Test
  void sendsBeyondAnInt() {
    for (long bytes : new long[] {2 * GIB - 1, 2 * GIB, 5 * GIB + 7, 1L << 42}) {
      SimRanks ranks = pretending();
      Send send = new Send(ROOT, Traffic.DATA, 1, 1, pretended(bytes));
      Receive receive = new Receive(ROOT, Traffic.DATA, 0, 1, pretended(bytes));
      ranks.transports.get(0).send(send);
      ranks.transports.get(1).receive(receive);
      for (int i = 0; i < 100 && !receive.isDone(); i++) {
        poll(ranks, 200);
      }
      assertThat(receive.failure).isNull();
      assertThat(receive.length).isEqualTo(bytes);
      assertThat(send.isDone()).isTrue();
      poll(ranks);
    }
  }

  private static void poll(SimRanks ranks, int times) {
    for (int i = 0; i < times; i++) {
      ranks.transports.forEach(Transport::poll);
    }
  }

  @Test
  void aLongSendToAShorterReceiveIsNamedInFull() {
    SimRanks ranks = pretending();
    ranks.transports.get(0).send(new Send(ROOT, Traffic.DATA, 1, 1, pretended(5 * GIB)));
    Receive receive = new Receive(ROOT, Traffic.DATA, 0, 1, pretended(GIB));
    ranks.transports.get(1).receive(receive);
    poll(ranks);
    assertThat(receive.failure).isNotNull();
    assertThat(receive.failure.reason()).isEqualTo(Reason.SIZE_MISMATCH);
    assertThat(receive.failure).hasMessageContaining("" + 5 * GIB).hasMessageContaining("" + GIB);
  }

  @Test
  void copiesBeyondAnInt() {
    SimRanks ranks = pretending();
    long key = ranks.transports.get(1).expose(pretended(9 * GIB));
    Copy put = new Copy(ROOT, 1, key, 3 * GIB, pretended(5 * GIB));
    Copy get = new Copy(ROOT, 1, key, 4 * GIB + 1, pretended(5 * GIB - 1));
    Copy beyond = new Copy(ROOT, 1, key, 5 * GIB, pretended(5 * GIB));
    Copy around = new Copy(ROOT, 1, key, Long.MAX_VALUE - 1, pretended(5 * GIB));
    ranks.transports.get(0).put(put);
    ranks.transports.get(0).get(get);
    ranks.transports.get(0).put(beyond);
    ranks.transports.get(0).get(around);
    poll(ranks);
    assertThat(List.of(put, get, beyond, around)).allMatch(Copy::isDone);
    assertThat(put.failure()).isNull();
    assertThat(get.failure()).isNull();
    assertThat(beyond.failure()).isNotNull();
    assertThat(around.failure()).isNotNull();
  }

  @Test
  void blobsBeyondAnInt() {
    SimRanks ranks = pretending();
    MemorySegment[] into = {pretended(3 * GIB), pretended(2 * GIB + 1)};
    List<Long> lengths = new ArrayList<>();
    AtomicInteger landed = new AtomicInteger();
    ranks
        .transports
        .get(1)
        .listen(
            ROOT,
            arrival -> {
              lengths.add(arrival.bytes(0));
              lengths.add(arrival.bytes(1));
              arrival.accept(into, new Counted(landed));
            });
    Message message = new Message(ROOT, 1, 1, memory(8), into);
    ranks.transports.get(0).message(message);
    poll(ranks);
    assertThat(lengths).containsExactly(3 * GIB, 2 * GIB + 1);
    assertThat(landed).hasValue(1);
    assertThat(message.isDone()).isTrue();
    assertThat(message.failure()).isNull();
  }

  private record Counted(AtomicInteger times) implements Arrival.Landing {
    @Override
    public void landed() {
      times.incrementAndGet();
    }

    @Override
    public void failed(TransportException cause) {
      throw new AssertionError(cause);
    }
  }
}
