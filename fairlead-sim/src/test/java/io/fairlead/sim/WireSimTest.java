package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.sim.TransportRequests.Copy;
import io.fairlead.sim.TransportRequests.Message;
import io.fairlead.sim.TransportRequests.Receive;
import io.fairlead.sim.TransportRequests.Send;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.stream.LongStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Random traffic from one seed over a random network: sends of all lengths and pieces, heap and
 * native, receives named and of any source, messages that are accepted at once, later or not at
 * all, puts and gets, cancels. Every byte, the order of each source and tag, and the end of every
 * request are checked, and that nothing is left behind. One seed alone: {@code -Dfairlead.seed=N}.
 */
@Timeout(110)
class WireSimTest {
  private static final int ROOT = Transport.ROOT_CHANNEL;
  private static final int NAMED_TAGS = 3;
  private static final int ANY_TAG = 10;

  /** Sends of this tag may be taken back, so receives do not know what they get. */
  private static final int LOOSE_TAG = 5;

  private static final int HEADER = 3 * Long.BYTES;

  /** With {@code -Dfairlead.long=true} also many that are new each time. */
  static LongStream seeds() {
    Long only = Long.getLong("fairlead.seed");
    if (only != null) {
      return LongStream.of(only);
    }
    int fresh = Boolean.getBoolean("fairlead.long") ? 2_000 : 0;
    return LongStream.concat(
        LongStream.range(0, Integer.getInteger("fairlead.seeds", 100)),
        new SplittableRandom(System.nanoTime()).longs(fresh));
  }

  @ParameterizedTest(name = "seed {0}")
  @MethodSource("seeds")
  void everythingArrivesOnceInOrderAndEnds(long seed) {
    Run run = new Run(seed);
    run.traffic();
    run.settle();
    run.check();
    run.close();
  }

  private record LaneKey(int source, int target, Traffic traffic, int tag) {}

  /** What one lane sent and was asked for, in order. */
  private static final class LaneLog {
    final List<Send> sends = new ArrayList<>();
    final List<Receive> receives = new ArrayList<>();
    final List<Send> withdrawn = new ArrayList<>();
    long sequence;
  }

  private static final class Run {
    private final SplittableRandom random;
    private final int size;
    private final SimRanks ranks;
    private final Map<LaneKey, LaneLog> lanes = new LinkedHashMap<>();
    private final List<Mail> mails = new ArrayList<>();
    private final List<Copy> copies = new ArrayList<>();
    private final List<Receive> anyReceives = new ArrayList<>();
    private final Set<Receive> discarded = new HashSet<>();
    private final Map<Receive, Integer> targets = new HashMap<>();
    private final List<Queue<Runnable>> later = new ArrayList<>();
    private final List<MemorySegment> windows = new ArrayList<>();
    private final long[] keys;
    private final Map<Long, MemorySegment> written = new HashMap<>();

    Run(long seed) {
      random = new SplittableRandom(seed);
      size = 1 + random.nextInt(4);
      SimNetwork.Settings how =
          SimNetwork.Settings.QUICK.withLevel(
              random.nextBoolean() ? ThreadLevel.FUNNELED : ThreadLevel.SERIALIZED);
      if (random.nextInt(4) > 0) {
        how =
            how.withWant(
                512 + 8 * random.nextInt(100),
                1 + random.nextInt(6),
                600 + random.nextInt(2000),
                random.nextInt(8));
      }
      TransportSettings settings =
          new TransportSettings(size, random.nextInt(3) * 6_000L, random.nextInt(3) * 20);
      ranks = new SimRanks(seed, settings, how);
      keys = new long[size];
      for (Transport transport : ranks.transports) {
        int rank = transport.rank();
        later.add(new ArrayDeque<>());
        MemorySegment window = memory(20_000);
        windows.add(window);
        keys[rank] = transport.expose(window);
        transport.listen(ROOT, arrival -> arrived(rank, arrival));
      }
    }

    private Transport rank(int number) {
      return ranks.transports.get(number);
    }

    private MemorySegment memory(long bytes) {
      return random.nextBoolean()
          ? Arena.ofAuto().allocate(Math.max(bytes, 1), 8).asSlice(0, bytes)
          : MemorySegment.ofArray(new byte[(int) bytes]);
    }

    private int length() {
      return switch (random.nextInt(10)) {
        case 0 -> random.nextInt(9_000);
        case 1, 2 -> random.nextInt(1_200);
        default -> random.nextInt(40);
      };
    }

    // --- what is done ---------------------------------------------------------------------------

    void traffic() {
      int steps = 100 + random.nextInt(400);
      for (int i = 0; i < steps; i++) {
        switch (random.nextInt(14)) {
          case 0, 1, 2 -> send(random.nextInt(size), random.nextInt(size), namedTag());
          case 3, 4 -> receive(random.nextInt(size), random.nextInt(size), namedTag());
          case 5 -> send(random.nextInt(size), random.nextInt(size), ANY_TAG);
          case 6 -> receiveAny(random.nextInt(size));
          case 7 -> mail(random.nextInt(size), random.nextInt(size));
          case 8 -> copy(random.nextInt(size), random.nextInt(size));
          case 9 -> cancelOne();
          case 10 -> answerOne();
          case 11 -> loose(random.nextInt(size), random.nextInt(size));
          default -> rank(random.nextInt(size)).poll();
        }
      }
    }

    private void loose(int source, int target) {
      if (random.nextInt(3) > 0) {
        send(source, target, LOOSE_TAG);
      } else {
        receive(target, source, LOOSE_TAG);
      }
    }

    private int namedTag() {
      return random.nextInt(NAMED_TAGS);
    }

    /** Collectives on one of the tags, so that both kinds meet credit and the want of it. */
    private static Traffic traffic(int tag) {
      return tag == 0 ? Traffic.COLLECTIVE : Traffic.DATA;
    }

    private LaneLog lane(int source, int target, int tag) {
      return lanes.computeIfAbsent(
          new LaneKey(source, target, traffic(tag), tag), key -> new LaneLog());
    }

    private void send(int source, int target, int tag) {
      LaneLog lane = lane(source, target, tag);
      MemorySegment message = message(source, lane.sequence++, HEADER + length());
      int cut = random.nextInt((int) message.byteSize() + 1);
      MemorySegment[] blobs =
          random.nextBoolean()
              ? new MemorySegment[] {message}
              : new MemorySegment[] {message.asSlice(0, cut), message.asSlice(cut)};
      Send send = new Send(ROOT, traffic(tag), target, tag, blobs);
      lane.sends.add(send);
      rank(source).send(send);
    }

    private MemorySegment message(int source, long sequence, int length) {
      long seed = random.nextLong();
      MemorySegment message = memory(length);
      message.copyFrom(TransportContract.bytes(length, seed));
      message.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, sequence);
      message.set(ValueLayout.JAVA_LONG_UNALIGNED, 8, source);
      message.set(ValueLayout.JAVA_LONG_UNALIGNED, 16, seed);
      return message;
    }

    private void receive(int target, int source, int tag) {
      LaneLog lane = lane(source, target, tag);
      int index = lane.receives.size();
      Receive receive;
      if (tag != LOOSE_TAG && index < lane.sends.size() && random.nextBoolean()) {
        long bytes = lane.sends.get(index).bytes();
        long cut = random.nextLong(bytes + 1);
        receive =
            random.nextBoolean()
                ? new Receive(ROOT, traffic(tag), source, tag, memory(bytes))
                : new Receive(ROOT, traffic(tag), source, tag, memory(cut), memory(bytes - cut));
      } else {
        receive = new Receive(ROOT, traffic(tag), source, tag);
      }
      lane.receives.add(receive);
      rank(target).receive(receive);
    }

    private void receiveAny(int target) {
      Receive receive = new Receive(ROOT, traffic(ANY_TAG), Transport.ANY, ANY_TAG);
      anyReceives.add(receive);
      targets.put(receive, target);
      rank(target).receive(receive);
    }

    /** Takes back a receive, the newest of its lane, so that the others keep their places. */
    private void cancelOne() {
      List<LaneKey> known = new ArrayList<>(lanes.keySet());
      if (known.isEmpty()) {
        return;
      }
      LaneKey key = known.get(random.nextInt(known.size()));
      LaneLog lane = lanes.get(key);
      if (key.tag == LOOSE_TAG && !lane.sends.isEmpty()) {
        cancelSend(key, lane, random.nextInt(lane.sends.size()));
      } else if (key.tag != ANY_TAG && !lane.receives.isEmpty()) {
        cancelReceive(key, lane);
      }
    }

    private void cancelSend(LaneKey key, LaneLog lane, int index) {
      Send send = lane.sends.get(index);
      if (send.isDone()) {
        return;
      }
      send.withdrawn = true;
      if (rank(key.source).cancel(send)) {
        lane.sends.remove(index);
        lane.withdrawn.add(send);
      } else {
        send.withdrawn = false;
      }
    }

    private void cancelReceive(LaneKey key, LaneLog lane) {
      Receive newest = lane.receives.getLast();
      if (newest.isDone()) {
        return;
      }
      newest.withdrawn = true;
      if (rank(key.target).cancel(newest)) {
        lane.receives.removeLast();
      } else {
        newest.withdrawn = false;
        discarded.add(newest);
      }
    }

    // --- active messages ------------------------------------------------------------------------

    private void mail(int source, int target) {
      MemorySegment header = memory(random.nextInt(10) == 0 ? random.nextInt(3_000) : 16);
      MemorySegment[] blobs = new MemorySegment[random.nextInt(5)];
      long seed = random.nextLong();
      for (int i = 0; i < blobs.length; i++) {
        blobs[i] = memory(length());
        blobs[i].copyFrom(TransportContract.bytes((int) blobs[i].byteSize(), seed + i));
      }
      header.copyFrom(TransportContract.bytes((int) header.byteSize(), seed));
      Message message = new Message(ROOT, target, mails.size(), header, blobs);
      mails.add(new Mail(source, message));
      rank(source).message(message);
    }

    private void arrived(int rank, Arrival arrival) {
      Mail mail = mails.get(arrival.handler());
      assertThat(arrival.source()).isEqualTo(mail.source);
      assertThat(mail.message.target()).isEqualTo(rank);
      mail.arrived++;
      if (random.nextInt(3) == 0) {
        answer(mail, arrival);
      } else {
        later(rank).add(() -> answer(mail, arrival));
      }
    }

    private Queue<Runnable> later(int rank) {
      return later.get(rank);
    }

    private void answer(Mail mail, Arrival arrival) {
      if (random.nextInt(6) == 0) {
        mail.refused = true;
        arrival.refuse(new TransportException(Reason.LIBRARY, "not today", null));
        return;
      }
      MemorySegment header = memory(arrival.headerBytes());
      assertThat(arrival.readHeader(header)).isTrue();
      assertThat(header.mismatch(mail.message.header())).isEqualTo(-1);
      mail.into = new MemorySegment[arrival.blobs()];
      for (int i = 0; i < mail.into.length; i++) {
        mail.into[i] = memory(arrival.bytes(i));
      }
      arrival.accept(mail.into, mail);
    }

    private void answerOne() {
      Runnable answer = later(random.nextInt(size)).poll();
      if (answer != null) {
        answer.run();
      }
    }

    // --- copies ---------------------------------------------------------------------------------

    /** Each into or out of a place of its own, so that no copy sees another. */
    private void copy(int source, int target) {
      int length = length();
      long at = (copies.size() * 1_000L) % 10_000;
      boolean fits = at + length <= 20_000 && copies.size() < 10;
      if (!fits) {
        return;
      }
      length = Math.min(length, 1_000);
      MemorySegment local = memory(length);
      Copy copy = new Copy(ROOT, target, keys[target], at, local);
      copies.add(copy);
      if (random.nextBoolean()) {
        local.copyFrom(TransportContract.bytes(length, copies.size()));
        written.put((long) copies.size() - 1, windows.get(target).asSlice(at, length));
        rank(source).put(copy);
      } else {
        windows
            .get(target)
            .asSlice(at, length)
            .copyFrom(TransportContract.bytes(length, copies.size()));
        written.put((long) copies.size() - 1, local);
        rank(source).get(copy);
      }
    }

    // --- the end --------------------------------------------------------------------------------

    /** Asks for everything that was sent, and answers everything that came. */
    void settle() {
      for (Map.Entry<LaneKey, LaneLog> entry : List.copyOf(lanes.entrySet())) {
        LaneKey key = entry.getKey();
        LaneLog lane = entry.getValue();
        while (key.tag != ANY_TAG && lane.receives.size() < lane.sends.size()) {
          receive(key.target, key.source, key.tag);
        }
        while (key.tag != ANY_TAG && lane.sends.size() < lane.receives.size()) {
          send(key.source, key.target, key.tag);
        }
      }
      for (int target = 0; target < size; target++) {
        while (anySends(target) > anyPosted(target)) {
          receiveAny(target);
        }
        while (anySends(target) < anyPosted(target)) {
          send(random.nextInt(size), target, ANY_TAG);
        }
      }
      for (int i = 0; i < 20_000 && !isOver(); i++) {
        ranks.transports.forEach(Transport::poll);
        answerOne();
      }
    }

    private long anySends(int target) {
      return lanes.entrySet().stream()
          .filter(entry -> entry.getKey().tag == ANY_TAG && entry.getKey().target == target)
          .mapToLong(entry -> entry.getValue().sends.size())
          .sum();
    }

    private long anyPosted(int target) {
      return targets.values().stream().filter(known -> known == target).count();
    }

    private boolean isOver() {
      boolean over = copies.stream().allMatch(Copy::isDone);
      over &= mails.stream().allMatch(Mail::isOver);
      over &= anyReceives.stream().allMatch(Receive::isDone);
      for (LaneLog lane : lanes.values()) {
        over &= lane.sends.stream().allMatch(Send::isDone);
        over &= lane.receives.stream().allMatch(Receive::isDone);
      }
      return over && ranks.network.leftovers() == 0;
    }

    void check() {
      if (!isOver()) {
        throw new AssertionError("something never ends: " + ranks.transports);
      }
      assertThat(ranks.network.violations()).isEmpty();
      lanes.forEach(this::checkLane);
      Map<Long, Long> next = new HashMap<>();
      for (Receive receive : anyReceives) {
        ended(receive, "a receive from any");
        long lane = (long) receive.from << 32 | targets.get(receive);
        long expected = next.merge(lane, 1L, Long::sum) - 1;
        checkMessage(receive, receive.from, expected);
      }
      for (Mail mail : mails) {
        mail.check();
      }
      for (int i = 0; i < copies.size(); i++) {
        ended(copies.get(i), "copy " + i);
        MemorySegment place = written.get((long) i);
        MemorySegment sent = TransportContract.bytes((int) place.byteSize(), i + 1L);
        assertThat(place.mismatch(sent)).as("copy %d", i).isEqualTo(-1);
      }
    }

    private static void ended(TransportRequests.Probe request, String what) {
      assertThat(request.isDone()).as(what + " ends").isTrue();
      assertThat(request.ends()).as(what + " ends once").isEqualTo(1);
      assertThat(request.failure()).as(what).isNull();
    }

    private void checkLane(LaneKey key, LaneLog lane) {
      for (Send send : lane.sends) {
        ended(send, "a send of " + send.bytes() + " bytes, " + key);
      }
      for (Send send : lane.withdrawn) {
        assertThat(send.isDone()).as("a send that was taken back ends").isFalse();
      }
      Set<Long> arrived = new HashSet<>();
      for (int i = 0; i < lane.receives.size(); i++) {
        Receive receive = lane.receives.get(i);
        ended(receive, "receive " + i + " of " + key);
        if (discarded.contains(receive)) {
          continue;
        }
        long sequence =
            key.tag == LOOSE_TAG ? receive.data.get(ValueLayout.JAVA_LONG_UNALIGNED, 0) : i;
        checkMessage(receive, key.source, sequence);
        assertThat(arrived.add(sequence)).as("message %d arrives once", sequence).isTrue();
      }
    }

    private static void checkMessage(Receive receive, int source, long sequence) {
      MemorySegment[] into = receive.into();
      MemorySegment data = receive.data;
      if (into != null) {
        data = MemorySegment.ofArray(new byte[(int) Segments.bytes(into)]);
        Segments.copy(into, new MemorySegment[] {data});
      }
      assertThat(data.byteSize()).isEqualTo(receive.length);
      assertThat(data.get(ValueLayout.JAVA_LONG_UNALIGNED, 0)).isEqualTo(sequence);
      assertThat(data.get(ValueLayout.JAVA_LONG_UNALIGNED, 8)).isEqualTo(source);
      long seed = data.get(ValueLayout.JAVA_LONG_UNALIGNED, 16);
      MemorySegment expected = TransportContract.bytes((int) data.byteSize(), seed);
      assertThat(data.asSlice(HEADER).mismatch(expected.asSlice(HEADER))).isEqualTo(-1);
    }

    void close() {
      for (Transport transport : ranks.transports) {
        assertThat(transport.closeChannel(ROOT)).isEmpty();
      }
      ranks.transports.forEach(Transport::close);
      assertThat(ranks.network.violations()).isEmpty();
      assertThat(ranks.network.leftovers()).isZero();
    }
  }

  /** One active message, and what became of it. */
  private static final class Mail implements Arrival.Landing {
    final int source;
    final Message message;
    int arrived;
    boolean refused;
    MemorySegment @Nullable [] into;
    private boolean landed;
    private @Nullable TransportException failure;

    Mail(int source, Message message) {
      this.source = source;
      this.message = message;
    }

    boolean isOver() {
      return message.isDone() && (refused || landed || failure != null);
    }

    void check() {
      assertThat(message.ends()).isEqualTo(1);
      assertThat(arrived).isEqualTo(1);
      assertThat(failure).isNull();
      if (refused) {
        assertThat(message.failure()).isNotNull();
        return;
      }
      assertThat(message.failure()).isNull();
      MemorySegment[] places = into;
      assertThat(places).isNotNull();
      for (int i = 0; places != null && i < places.length; i++) {
        assertThat(places[i].mismatch(message.blobs()[i])).isEqualTo(-1);
      }
    }

    @Override
    public void landed() {
      landed = true;
    }

    @Override
    public void failed(TransportException cause) {
      failure = cause;
    }
  }
}
