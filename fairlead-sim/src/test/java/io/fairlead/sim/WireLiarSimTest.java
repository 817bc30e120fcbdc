package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.fault.Mutant;
import io.fairlead.sim.TransportRequests.Copy;
import io.fairlead.sim.TransportRequests.Message;
import io.fairlead.sim.TransportRequests.Receive;
import io.fairlead.sim.TransportRequests.Send;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.stream.LongStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * One packet says what is not so: a number in it is changed on its way, or its length. Whatever
 * that is, nothing is thrown but at those who wait, nothing is touched out of range, and every
 * request ends, once; where the lie is noticed, the words name who told it. One seed alone: {@code
 * -Dfairlead.seed=N}.
 */
@Timeout(110)
class WireLiarSimTest {
  private static final int ROOT = Transport.ROOT_CHANNEL;
  private static final int HEADER = 40;
  private static final int SHORT = 25;
  private static final long ACCEPTED_MAX = 1 << 20;
  private static final Duration PATIENCE = Duration.ofMillis(20);
  private static final TransportSettings ROOM = new TransportSettings(2, 1 << 20, 4096);
  private static final ValueLayout.OfInt INT =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong LONG =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  /** With {@code -Dfairlead.long=true} also many that are new each time. */
  static LongStream seeds() {
    Long only = Long.getLong("fairlead.seed");
    if (only != null) {
      return LongStream.of(only);
    }
    int fresh = Boolean.getBoolean("fairlead.long") ? 5_000 : 0;
    return LongStream.concat(
        LongStream.range(0, Integer.getInteger("fairlead.seeds", 400)),
        new SplittableRandom(System.nanoTime()).longs(fresh));
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("seeds")
  void aFalsifiedPacketEndsEverythingAndThrowsNothing(long seed) {
    Run run = new Run(seed);
    run.traffic();
    run.close();
    run.check();
  }

  // --- one lie each -----------------------------------------------------------------------------

  private static SimRanks lying(int kind, Lie lie) {
    SimRanks ranks = new SimRanks(1, ROOM, SimNetwork.Settings.QUICK, PATIENCE);
    boolean[] told = new boolean[1];
    ranks.network.tamper(
        (source, target, memory, bytes) -> {
          if (told[0]
              || source != 0
              || target != 1
              || memory.get(ValueLayout.JAVA_BYTE, 0) != kind) {
            return bytes;
          }
          told[0] = true;
          return lie.tell(memory, bytes);
        });
    return ranks;
  }

  private interface Lie {
    int tell(MemorySegment packet, int bytes);
  }

  private static void poll(SimRanks ranks) {
    for (int i = 0; i < 50; i++) {
      ranks.transports.forEach(Transport::poll);
    }
  }

  /** What rank 1's receive of a short send ends with. */
  private static Receive shortSend(Lie lie) {
    SimRanks ranks = lying(2, lie);
    Receive receive = new Receive(ROOT, Traffic.DATA, 0, 1);
    ranks.transports.get(1).receive(receive);
    ranks.transports.get(0).send(new Send(ROOT, Traffic.DATA, 1, 1, memory(64)));
    poll(ranks);
    return receive;
  }

  @Test
  void lengthsThatDoNotFitAreNoticed() {
    for (long length : new long[] {-1, 63, 65, 4_000, Long.MIN_VALUE, Long.MAX_VALUE}) {
      Receive receive =
          shortSend(
              (packet, bytes) -> {
                packet.set(LONG, 24, length);
                return bytes;
              });
      assertNoticed(receive.failure, "a short send of " + length);
    }
    for (int arriving : new int[] {0, 1, HEADER - 1, HEADER, HEADER + 63, HEADER + 65, 4_096}) {
      Receive receive = shortSend((packet, bytes) -> arriving);
      assertNoticed(receive.failure, "a packet of " + arriving);
    }
  }

  /** What rank 1's second receive of a short send ends with, which comes in short form. */
  private static Receive secondSend(Lie lie) {
    SimRanks ranks = lying(SHORT, lie);
    Receive receive = new Receive(ROOT, Traffic.DATA, 0, 1);
    ranks.transports.get(1).receive(new Receive(ROOT, Traffic.DATA, 0, 1));
    ranks.transports.get(1).receive(receive);
    poll(ranks);
    for (int i = 0; i < 2; i++) {
      ranks.transports.get(0).send(new Send(ROOT, Traffic.DATA, 1, 1, memory(64)));
    }
    poll(ranks);
    return receive;
  }

  @Test
  void shortFormsThatCannotBeAreNoticed() {
    assertThat(secondSend((packet, bytes) -> bytes).failure).isNull();
    for (int route = 0; route < 256; route++) {
      byte said = (byte) route;
      boolean[] other = new boolean[1];
      Receive receive =
          secondSend(
              (packet, bytes) -> {
                other[0] = packet.get(ValueLayout.JAVA_BYTE, 1) != said;
                packet.set(ValueLayout.JAVA_BYTE, 1, said);
                return bytes;
              });
      if (other[0]) {
        assertNoticed(receive.failure, "a route " + route + " that was not spoken");
      } else {
        assertThat(receive.failure).isNull();
      }
    }
    for (int arriving : new int[] {0, 1, 4_096 - HEADER + 3, 4_096, 4_097}) {
      Receive receive = secondSend((packet, bytes) -> arriving);
      assertNoticed(receive.failure, "a packet of " + arriving);
    }
    for (int kind : new int[] {0, 1, 2, 7, 21, 24, 26, 255}) {
      Receive receive =
          secondSend(
              (packet, bytes) -> {
                packet.set(ValueLayout.JAVA_BYTE, 0, (byte) kind);
                return 10;
              });
      assertNoticed(receive.failure, "a packet of kind " + kind + ", 10 bytes");
    }
  }

  @Test
  void aRouteThatWasChangedOnItsWayIsNoticedWhenItIsUsed() {
    SimRanks ranks =
        lying(
            2,
            (packet, bytes) -> {
              packet.set(INT, 20, 2);
              return bytes;
            });
    Receive receive = new Receive(ROOT, Traffic.DATA, 0, 1);
    ranks.transports.get(1).receive(receive);
    poll(ranks);
    for (int i = 0; i < 2; i++) {
      ranks.transports.get(0).send(new Send(ROOT, Traffic.DATA, 1, 1, memory(8)));
    }
    poll(ranks);
    assertNoticed(receive.failure, "a send by a route that came with another tag");
  }

  private static void assertNoticed(@Nullable Throwable failure, String lie) {
    assertThat(failure).as(lie).isInstanceOf(TransportException.class);
    assertThat(failure).as(lie).hasMessageContaining("rank 0 sent what cannot be");
  }

  @Test
  void kindsTagsAndCountsThatCannotBeAreNoticed() {
    for (int kind : new int[] {0, 25, 127, 200, 255}) {
      Receive receive =
          shortSend(
              (packet, bytes) -> {
                packet.set(ValueLayout.JAVA_BYTE, 0, (byte) kind);
                return bytes;
              });
      assertNoticed(receive.failure, "a packet of kind " + kind);
    }
    for (int at : new int[] {4, 8, 12, 20}) {
      for (int value : new int[] {-1, Integer.MIN_VALUE}) {
        Receive receive =
            shortSend(
                (packet, bytes) -> {
                  packet.set(INT, at, value);
                  return bytes;
                });
        assertNoticed(receive.failure, value + " at " + at);
      }
    }
  }

  @Test
  void theTestWouldSeeALengthThatIsBelieved() {
    try (Mutant.Handle bug = Mutant.enable("wire.believes-length")) {
      Receive receive =
          shortSend(
              (packet, bytes) -> {
                packet.set(LONG, 24, 65);
                return bytes;
              });
      assertThat(bug).isNotNull();
      assertThat(receive.failure).isNull();
    }
  }

  @Test
  void everybodyIsToldOfALie() {
    assertThat(thirdRankIsTold()).isTrue();
  }

  @Test
  void theTestWouldSeeAnAbortThatIsNotSpread() {
    try (Mutant.Handle bug = Mutant.enable("wire.keeps-fault")) {
      assertThat(bug).isNotNull();
      assertThat(thirdRankIsTold()).isFalse();
    }
  }

  /** Rank 2 waits for rank 0, whom rank 1 finds lying. */
  private static boolean thirdRankIsTold() {
    TransportSettings three = new TransportSettings(3, 1 << 20, 4096);
    SimRanks ranks = new SimRanks(1, three, SimNetwork.Settings.QUICK, PATIENCE);
    Receive waiting = new Receive(ROOT, Traffic.DATA, 0, 1);
    ranks.transports.get(2).receive(waiting);
    poll(ranks);
    ranks.network.tamper((source, target, memory, bytes) -> target == 1 ? 7 : bytes);
    ranks.transports.get(0).send(new Send(ROOT, Traffic.DATA, 1, 1, memory(8)));
    poll(ranks);
    return waiting.isDone();
  }

  private static MemorySegment memory(long bytes) {
    return Arena.ofAuto().allocate(Math.max(bytes, 1), 8).asSlice(0, bytes);
  }

  // --- any lie ----------------------------------------------------------------------------------

  private static final class Run {
    private final long seed;
    private final SplittableRandom random;
    private final int size;
    private final SimRanks ranks;
    private final int liar;
    private final int victim;
    private final int packet;
    private int packets;
    private String lie = "none";
    private final List<TransportRequests.Probe> asked = new ArrayList<>();
    private final List<Landing> landings = new ArrayList<>();
    private final long[] keys;

    Run(long seed) {
      this.seed = seed;
      random = new SplittableRandom(seed);
      size = 2 + random.nextInt(2);
      SimNetwork.Settings how =
          random.nextBoolean()
              ? SimNetwork.Settings.QUICK
              : SimNetwork.Settings.QUICK.withWant(512, 6, 1_000, random.nextInt(4));
      TransportSettings settings = new TransportSettings(size, random.nextInt(3) * 9_000L, 60);
      ranks = new SimRanks(seed, settings, how, PATIENCE);
      liar = random.nextInt(size);
      victim = (liar + 1) % size;
      packet = random.nextInt(60);
      keys = new long[size];
      for (Transport transport : ranks.transports) {
        keys[transport.rank()] = transport.expose(memory(10_000));
        transport.listen(ROOT, this::arrived);
      }
      ranks.network.tamper(this::tamper);
    }

    private int tamper(int source, int target, MemorySegment memory, int bytes) {
      if (source != liar || target != victim || packets++ != packet) {
        return bytes;
      }
      int kind = memory.get(ValueLayout.JAVA_BYTE, 0);
      if (kind == SHORT && random.nextBoolean()) {
        // Few routes are spoken here, so half of the lies name one that may be.
        int route = random.nextBoolean() ? random.nextInt(4) : random.nextInt(256);
        lie = "route " + route;
        memory.set(ValueLayout.JAVA_BYTE, 1, (byte) route);
        return bytes;
      }
      int what = random.nextInt(12);
      lie = "kind " + kind + ", lie " + what;
      switch (what) {
        case 0 -> memory.set(ValueLayout.JAVA_BYTE, 0, (byte) random.nextInt(26));
        case 1 -> memory.set(ValueLayout.JAVA_BYTE, 1, (byte) random.nextInt(64));
        case 2, 3, 4, 5, 6 -> {
          int at = new int[] {4, 8, 12, 16, 20}[what - 2];
          memory.set(INT, at, (int) number(memory.get(INT, at)));
        }
        case 7, 8 -> memory.set(LONG, 24, number(memory.get(LONG, 24)));
        case 9 -> memory.set(LONG, 32, number(memory.get(LONG, 32)));
        case 10 -> {
          int words = (bytes - HEADER) / Long.BYTES;
          if (words > 0) {
            int at = HEADER + Long.BYTES * random.nextInt(Math.min(words, 4));
            memory.set(LONG, at, number(memory.get(LONG, at)));
          }
        }
        default -> {
          return random.nextInt(bytes + 2);
        }
      }
      return bytes;
    }

    private long number(long old) {
      return switch (random.nextInt(9)) {
        case 0 -> -1;
        case 1 -> 0;
        case 2 -> 1;
        case 3 -> Long.MIN_VALUE;
        case 4 -> Long.MAX_VALUE;
        case 5 -> 1L << 40;
        case 6 -> old + 1;
        case 7 -> old - 1;
        default -> random.nextInt(100_000);
      };
    }

    void traffic() {
      for (int i = 0; i < 200; i++) {
        int source = random.nextInt(2) == 0 ? liar : random.nextInt(size);
        int target = random.nextInt(2) == 0 ? victim : random.nextInt(size);
        int tag = random.nextInt(2);
        Traffic traffic = tag == 0 ? Traffic.COLLECTIVE : Traffic.DATA;
        Transport from = ranks.transports.get(source);
        Transport to = ranks.transports.get(target);
        switch (random.nextInt(9)) {
          case 0, 1 -> from.send(ask(new Send(ROOT, traffic, target, tag, memory(length()))));
          case 2 -> to.receive(ask(new Receive(ROOT, traffic, source, tag)));
          case 3 -> to.receive(ask(new Receive(ROOT, traffic, source, tag, memory(length()))));
          case 4 -> to.receive(ask(new Receive(ROOT, traffic, Transport.ANY, tag)));
          case 5 -> {
            MemorySegment[] blobs = {memory(length()), memory(length())};
            MemorySegment header = memory(random.nextInt(8) == 0 ? 6_000 : 16);
            from.message(ask(new Message(ROOT, target, i, header, blobs)));
          }
          case 6 -> {
            Copy copy = ask(new Copy(ROOT, target, keys[target], i, memory(length())));
            if (random.nextBoolean()) {
              from.put(copy);
            } else {
              from.get(copy);
            }
          }
          default -> ranks.transports.get(random.nextInt(size)).poll();
        }
      }
      for (int i = 0; i < 200; i++) {
        ranks.transports.forEach(Transport::poll);
      }
    }

    private <T extends TransportRequests.Probe> T ask(T request) {
      asked.add(request);
      return request;
    }

    private int length() {
      return random.nextInt(3) == 0 ? random.nextInt(6_000) : random.nextInt(40);
    }

    private void arrived(Arrival arrival) {
      long sum = 0;
      for (int i = 0; i < arrival.blobs(); i++) {
        assertThat(arrival.bytes(i)).isNotNegative();
        sum += Math.min(arrival.bytes(i), ACCEPTED_MAX);
      }
      if (random.nextInt(6) == 0 || sum >= ACCEPTED_MAX) {
        arrival.refuse(new TransportException(Reason.LIBRARY, "not today", null));
        return;
      }
      arrival.readHeader(memory(arrival.headerBytes()));
      MemorySegment[] into = new MemorySegment[arrival.blobs()];
      for (int i = 0; i < into.length; i++) {
        into[i] = memory(arrival.bytes(i));
      }
      Landing landing = new Landing();
      landings.add(landing);
      arrival.accept(into, landing);
    }

    void close() {
      ranks.transports.forEach(Transport::close);
    }

    void check() {
      String what = "seed " + seed + ": " + lie + ", rank " + liar + " to " + victim;
      for (TransportRequests.Probe request : asked) {
        assertThat(request.ends()).as("%s: ends of %s", what, request).isEqualTo(1);
        TransportException failure = request.failure();
        if (failure != null && failure.reason() == Reason.PEER_FAILED) {
          // What is changed on its way may make the other one look like the liar.
          assertThat(failure.getMessage()).as(what).containsPattern("rank [" + liar + victim + "]");
        }
      }
      for (Landing landing : landings) {
        assertThat(landing.ends).as("%s: ends of a landing", what).isEqualTo(1);
      }
      assertThat(ranks.network.violations())
          .as(what)
          // Whoever says that he took what he did not, gets more.
          .allMatch(violation -> violation.contains("packets on their way"));
    }
  }

  private static final class Landing implements Arrival.Landing {
    private int ends;

    @Override
    public void landed() {
      ends++;
    }

    @Override
    public void failed(TransportException cause) {
      ends++;
    }
  }
}
