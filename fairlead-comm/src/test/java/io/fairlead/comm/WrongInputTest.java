package io.fairlead.comm;

import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What callers get wrong is said in words that tell what to do, and leaves nothing behind. */
@Timeout(60)
class WrongInputTest {
  private static final Duration SOON = Duration.ofSeconds(30);

  private final World world = new World(2);
  private final Comm comm = world.rank(0);

  private interface Call {
    void run() throws Exception;
  }

  @AfterEach
  void nothingIsTakenAndTheWorldGoesOn() {
    assertThat(comm.engine().lender.bytesLent()).isZero();
    assertThat(comm.engine().gates.out()).isZero();
    world.each(rank -> rank.barrier().await(SOON));
    world.close();
  }

  private static void wrong(String advice, Call... calls) {
    for (Call call : calls) {
      assertThatThrownBy(call::run)
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining(advice);
    }
  }

  private static void missing(Call... calls) {
    for (Call call : calls) {
      assertThatThrownBy(call::run).isInstanceOf(NullPointerException.class);
    }
  }

  @Test
  void ranksThatThereAreNot() {
    wrong(
        "there is no rank 2: ranks are 0 to 1",
        () -> comm.send(2, 1, longs(1)),
        () -> comm.send(2, 1, null, Blob.of(longs(1))),
        () -> comm.receive(2, 1),
        () -> comm.receiveInto(2, 1, Blob.of(memory(8))),
        () -> comm.message(2, 1, longs(1)),
        () -> comm.put(2, 1, 0, longs(1)),
        () -> comm.get(2, 1, 0, memory(8)),
        () -> comm.broadcast(2, longs(1)),
        () -> comm.gather(2, longs(1), null));
    wrong("or Comm.ANY", () -> comm.receive(-2, 1));
    wrong(
        "Comm.ANY is for receives: name a rank, 0 to 1",
        () -> comm.send(Comm.ANY, 1, longs(1)),
        () -> comm.message(Comm.ANY, 1, longs(1)),
        () -> comm.put(Comm.ANY, 1, 0, longs(1)),
        () -> comm.get(Comm.ANY, 1, 0, memory(8)),
        () -> comm.broadcast(Comm.ANY, longs(1)));
  }

  @Test
  void tagsAndOffsets() {
    wrong(
        "tag -1 is not within 0 to 2147483647: choose one that is",
        () -> comm.send(1, -1, longs(1)),
        () -> comm.send(1, -1, null, Blob.of(longs(1))),
        () -> comm.receive(1, -1),
        () -> comm.receiveInto(1, -1, Blob.of(memory(8))));
    wrong("0 or more, not -1", () -> comm.put(1, 1, -1, longs(1)));
  }

  @Test
  void memoryThatCannotBeUsed() {
    MemorySegment closed;
    try (Arena arena = Arena.ofShared()) {
      closed = arena.allocate(8);
    }
    wrong(
        "arena is closed already: keep it open",
        () -> comm.send(1, 1, closed),
        () -> Blob.of(closed),
        () -> comm.receive(1, 1, closed),
        () -> comm.message(1, 1, closed),
        () -> comm.expose(closed),
        () -> comm.get(1, 1, 0, closed),
        () -> comm.broadcast(0, closed),
        () -> comm.gather(1, closed, null),
        () -> comm.allGather(longs(1), closed),
        () ->
            comm.allToAll(
                new MemorySegment[] {longs(1), longs(1)}, new MemorySegment[] {closed, closed}));
    MemorySegment constant = longs(1).asReadOnly();
    wrong(
        "read-only, and what comes is written to it: pass one that is not",
        () -> comm.receive(1, 1, constant),
        () -> comm.receiveInto(1, 1, Blob.of(constant)),
        () -> comm.get(1, 1, 0, constant));
    try (Arena confined = Arena.ofConfined()) {
      wrong("use Arena.ofShared()", () -> comm.send(1, 1, confined.allocate(8)));
    }
  }

  @Test
  void nothingWhereSomethingIsNeeded() {
    missing(
        () -> comm.send(1, 1, longs(1), null),
        () -> comm.send(1, 1, (MemorySegment[]) null),
        () -> comm.send(1, 1, null, Blob.of(longs(1)), null),
        () -> comm.send(1, 1, null, comm.lend(8), null),
        () -> comm.receive(1, 1, longs(1), null),
        () -> comm.receiveInto(1, 1, Blob.of(longs(1)), null),
        () -> comm.message(1, 1, (MemorySegment) null),
        () -> comm.message(1, 1, longs(1), comm.lend(8), null),
        () -> comm.handle(1, null),
        () -> comm.handle(1, null, (source, header, blobs) -> {}),
        () -> comm.expose(null),
        () -> comm.put(1, 1, 0, (MemorySegment) null),
        () -> comm.get(1, 1, 0, null),
        () -> comm.allReduce((double[]) null, ReduceOp.SUM),
        () -> comm.allReduce(new double[1], null),
        () -> comm.broadcast(0, null),
        () -> comm.gather(0, null, null),
        () -> comm.allGather(null, longs(1)),
        () -> comm.allToAll(new MemorySegment[] {longs(1), null}, new MemorySegment[2]),
        () -> comm.affine(null),
        () -> comm.fail(null));
  }

  @Test
  void buffersOfOthersAndThoseThatAreGone() {
    LentBuffer foreign = world.rank(1).lend(8);
    wrong(
        "lent by another rank: lend one from the communicator that sends it",
        () -> comm.send(1, 1, null, foreign),
        () -> comm.send(1, 1, null, comm.lend(8), foreign),
        () -> comm.message(1, 1, longs(1), foreign));
    foreign.close();
    assertThatThrownBy(() -> comm.send(1, 1, null, foreign)).hasMessageContaining("lend");
    LentBuffer own = comm.lend(8);
    own.close();
    assertThatThrownBy(() -> comm.send(1, 1, null, own))
        .hasMessageContaining("was sent or closed before: lend another one");
    wrong("receive elsewhere", () -> comm.receiveInto(1, 1, own));
    wrong("get into another one", () -> comm.getInto(1, 1, 0, own));
    wrong("name the places, or call receive", () -> comm.receiveInto(1, 1));
    wrong("0 bytes or more, not -1", () -> comm.lend(-1), () -> comm.tryLend(-1));
    wrong("raise CommConfig.lentBytes", () -> comm.lend(1L << 40));
    try (LentBuffer small = comm.lend(8)) {
      assertThatThrownBy(() -> small.write(4, longs(1)))
          .isInstanceOf(IndexOutOfBoundsException.class);
    }
  }

  @Test
  void headersAndHandlers() {
    wrong("send it as a blob, or raise", () -> comm.message(1, 1, memory(1 << 20)));
    comm.handle(-1, (source, header, blobs) -> {});
    assertThatThrownBy(() -> comm.handle(-1, (source, header, blobs) -> {}))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("handler -1 is set already: choose another id");
  }

  @Test
  void lengthsOfCollectives() {
    wrong("name the room for all blocks, 16 bytes", () -> comm.gather(0, longs(1), null));
    wrong("need 16 bytes, 'all' has 8", () -> comm.gather(0, longs(1), memory(8)));
    wrong("need 16 bytes, 'all' has 8", () -> comm.allGather(longs(1), memory(8)));
    wrong("a multiple of that, not 9 and 9", () -> comm.allToAll(memory(9), memory(9)));
    wrong(
        "a block for each of the 2 ranks, not 1",
        () -> comm.allToAll(new MemorySegment[1], new MemorySegment[2]));
    wrong(
        "for itself differ: 8 and 4",
        () ->
            comm.allToAll(
                new MemorySegment[] {memory(8), memory(8)},
                new MemorySegment[] {memory(4), memory(8)}));
  }

  /** It fails all ranks: others wait for what will not come. */
  @Test
  void collectivesThatDoNotMatchAreToldTheRule() {
    try (World apart = new World(2)) {
      Completion<?> one = apart.rank(0).barrier();
      Completion<?> other = apart.rank(1).allReduce(new double[3], ReduceOp.SUM);
      for (Completion<?> each : List.of(one, other)) {
        assertThatThrownBy(() -> each.await(SOON))
            .isInstanceOf(CommException.class)
            .hasMessageContaining(
                "every rank calls the same collectives of a communicator, in the same order, of"
                    + " the same lengths");
      }
    }
  }

  /**
   * A device manager may not wait for a place in the queue, and half a collective would fail all
   * ranks.
   */
  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void aCollectiveOfADeviceManagerNeedsNoRoomInTheQueue(ThreadLevel level) {
    try (World apart = GuardedTransport.world(4, level, CommConfig.DEFAULT.withSlots(1, 1))) {
      List<Completion<?>> answers = new ArrayList<>();
      for (Comm rank : apart.ranks) {
        Owner manager = apart.tasks.owner("manager-" + rank.rank(), Role.DEVICE_MANAGER);
        MemorySegment all = memory(32);
        answers.add(
            manager
                .call(
                    () -> {
                      Completion<?> first = rank.allToAll(memory(32), all);
                      Completion<?> second = rank.allReduce(new double[3], ReduceOp.SUM);
                      Completion<?> third = rank.broadcast(1, memory(8));
                      return List.of(first, second, third);
                    })
                .await(SOON)
                .getLast());
      }
      answers.forEach(answer -> answer.await(SOON));
      assertThat(GuardedTransport.violations(apart)).isEmpty();
      assertThat(apart.rank(0).stats().refused()).isZero();
    }
  }

  @Test
  void aMessageOfAnotherLengthSaysHowToTakeIt() {
    Completion<Received> received = comm.receive(1, 1, memory(4));
    world.rank(1).send(0, 1, longs(1)).await(SOON);
    assertThatThrownBy(() -> received.await(SOON))
        .hasMessageContaining("make both sides agree, or receive without segments")
        .extracting(failure -> ((CommException) failure).reason())
        .isEqualTo(Reason.SIZE_MISMATCH);
  }
}
