package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static io.fairlead.comm.World.value;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportProvider;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import io.fairlead.task.TaskScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(60)
class CommTest {
  private static final Duration SOON = Duration.ofSeconds(30);

  @Test
  void aMessageOfSeveralBlobsIsGatheredAndScattered_row004_3() {
    try (World world = new World(2)) {
      MemorySegment whole = bytes(1000, 1);
      MemorySegment[] into = {memory(1), memory(499), memory(500)};
      Completion<Received> received = world.rank(1).receive(0, 7, into);
      Completion<?> sent = world.rank(0).send(1, 7, whole.asSlice(0, 600), whole.asSlice(600));
      sent.await(SOON);
      Received message = received.await(SOON);
      assertThat(message.source()).isZero();
      assertThat(message.tag()).isEqualTo(7);
      assertThat(message.bytes()).isEqualTo(1000);
      assertThat(into[1].mismatch(whole.asSlice(1, 499))).isEqualTo(-1);
      assertThat(into[2].mismatch(whole.asSlice(500))).isEqualTo(-1);
    }
  }

  @Test
  void tasksExchangeAndNoCommunicationThreadIsStarted() {
    try (World world = new World(4)) {
      world.each(
          comm -> {
            MemorySegment into = memory(8);
            for (int i = 0; i < 100; i++) {
              Completion<Received> received = comm.receive((comm.rank() + 3) % 4, i, into);
              comm.send((comm.rank() + 1) % 4, i, longs(i * 10L + comm.rank())).await();
              received.await();
              assertThat(value(into)).isEqualTo(i * 10L + (comm.rank() + 3) % 4);
            }
          });
      assertThat(world.rank(0).engine().startedLoop()).isNull();
      CommStats stats = world.rank(0).stats();
      assertThat(stats.sent()).isEqualTo(100);
      assertThat(stats.received()).isEqualTo(100);
      assertThat(stats.bytesReceived()).isEqualTo(800);
      assertThat(stats.shifted()).isZero();
    }
  }

  @Test
  void aMessageOfUnknownLengthComesInASegmentOfItsOwn() {
    try (World world = new World(2)) {
      world.rank(0).send(1, 1, bytes(123, 4)).await(SOON);
      Received received = world.rank(1).receive(Comm.ANY, 1).await(SOON);
      assertThat(received.data().mismatch(bytes(123, 4))).isEqualTo(-1);
    }
  }

  @Test
  void anotherSizeFailsTheReceiverAndNotTheSender() {
    try (World world = new World(2)) {
      Completion<Received> received = world.rank(1).receive(0, 1, memory(8));
      world.rank(0).send(1, 1, memory(9)).await(SOON);
      assertThatThrownBy(() -> received.await(SOON))
          .isInstanceOf(CommException.class)
          .hasMessageContaining("receive of 8 bytes from rank 0, tag 1 on rank 1")
          .hasMessageContaining("has 9 bytes");
      assertThat(reason(received)).isEqualTo(Reason.SIZE_MISMATCH);
    }
  }

  @Test
  void wrongArgumentsAreThrownAtOnce() {
    try (World world = new World(2);
        Arena confined = Arena.ofConfined()) {
      Comm comm = world.rank(0);
      MemorySegment mine = confined.allocate(8);
      assertThatThrownBy(() -> comm.send(2, 0, memory(1)))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("no rank 2: ranks are 0 to 1");
      assertThatThrownBy(() -> comm.send(-1, 0)).isInstanceOf(IllegalArgumentException.class);
      assertThatThrownBy(() -> comm.send(1, -1)).isInstanceOf(IllegalArgumentException.class);
      assertThatThrownBy(() -> comm.receive(1, -2)).isInstanceOf(IllegalArgumentException.class);
      assertThatThrownBy(() -> comm.send(1, 0, mine))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("Arena.ofShared()");
      assertThatThrownBy(() -> comm.receive(1, 0, memory(8).asReadOnly()))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("read-only");
      assertThatThrownBy(() -> comm.message(1, 0, memory(100_000)))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("headerBytesMax");
    }
  }

  @Test
  void beyondTheBoundTheSenderWaitsAndAFloodOccupiesNoMore() {
    CommConfig config = CommConfig.DEFAULT.withEager(1 << 16, 1000);
    try (World world = new World(2, config)) {
      List<Completion<?>> sends = new ArrayList<>();
      for (int i = 0; i < 20_000; i++) {
        sends.add(world.rank(0).send(1, 3, longs(i, i, i, i)));
      }
      long done = sends.stream().filter(Completion::isDone).count();
      assertThat(done).isBetween(1L, (1L << 16) / 32);
      for (int i = 0; i < 20_000; i++) {
        MemorySegment into = memory(32);
        world.rank(1).receive(0, 3, into).await(SOON);
        assertThat(value(into)).isEqualTo(i);
      }
      assertThat(sends).allMatch(Completion::isDone);
    }
  }

  @Test
  void tenThousandTasksWaitToReceiveAndAllAreServed() {
    int tasks = 10_000;
    try (World world = new World(2);
        TaskScope<Long> scope = world.tasks.scope()) {
      for (int i = 0; i < tasks; i++) {
        int tag = i;
        scope.fork(
            () -> {
              MemorySegment into = memory(8);
              world.rank(1).receive(0, tag, into).await();
              return value(into);
            });
      }
      for (int i = tasks - 1; i >= 0; i--) {
        world.rank(0).send(1, i, longs(i)).await(SOON);
      }
      List<Long> values = scope.join();
      for (int i = 0; i < tasks; i++) {
        assertThat(values.get(i)).isEqualTo(i);
      }
    }
  }

  @Test
  void theInProcessTransportIsFoundAsAService() {
    assertThat(ServiceLoader.load(TransportProvider.class))
        .anyMatch(found -> found.name().equals("in-process") && found.unavailable() == null);
  }

  // --- cancelling -------------------------------------------------------------------------------

  @Test
  void aCancelledReceiveLeavesItsMemoryAndItsMessageAlone() {
    try (World world = new World(2)) {
      MemorySegment first = memory(8);
      MemorySegment second = memory(8);
      Completion<Received> cancelled = world.rank(1).receive(0, 1, first);
      Completion<Received> next = world.rank(1).receive(0, 1, second);
      assertThat(cancelled.cancel()).isTrue();
      world.rank(0).send(1, 1, longs(42)).await(SOON);
      next.await(SOON);
      assertThat(value(first)).isZero();
      assertThat(value(second)).isEqualTo(42);
    }
  }

  @Test
  void aCancelledSendIsNeverReceived() {
    try (World world = new World(2, CommConfig.DEFAULT.withEager(0, 0))) {
      Completion<?> cancelled = world.rank(0).send(1, 1, longs(1));
      Completion<?> next = world.rank(0).send(1, 1, longs(2));
      assertThat(cancelled.cancel()).isTrue();
      MemorySegment into = memory(8);
      world.rank(1).receive(0, 1, into).await(SOON);
      next.await(SOON);
      assertThat(value(into)).isEqualTo(2);
    }
  }

  // --- gates ------------------------------------------------------------------------------------

  @Test
  void aSendWaitsForItsGateAndNobodyBlocks_row004_6() {
    try (World world = new World(2)) {
      Completion.Source<String> gate = Completion.source();
      MemorySegment into = memory(8);
      MemorySegment data = longs(0);
      Completion<Received> received = world.rank(1).receive(0, 1, into);
      Completion<?> sent = world.rank(0).send(1, 1, gate.completion(), Blob.of(data));
      assertThat(sent.isDone()).isFalse();
      data.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, 7);
      gate.complete("computed");
      sent.await(SOON);
      received.await(SOON);
      assertThat(value(into)).isEqualTo(7);
    }
  }

  @Test
  void aFailedGateFailsTheSendWithItsCause() {
    try (World world = new World(2)) {
      Completion.Source<String> gate = Completion.source();
      Completion<?> sent = world.rank(0).send(1, 1, gate.completion(), Blob.of(longs(1)));
      IllegalStateException cause = new IllegalStateException("the kernel failed");
      gate.fail(cause);
      assertThatThrownBy(() -> sent.await(SOON))
          .isInstanceOf(CommException.class)
          .hasMessageContaining("the kernel failed")
          .hasCause(cause);
      world.rank(0).send(1, 1, longs(2)).await(SOON);
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(2);
    }
  }

  @Test
  void aGateThatIsDoneCostsNoPlace() {
    try (World world = new World(2, CommConfig.DEFAULT.withSlots(1, 1))) {
      for (int i = 0; i < 10; i++) {
        Completion<String> open = Completion.completed("open");
        world.rank(0).send(1, 1, open, Blob.of(longs(i))).await(SOON);
      }
      assertThat(world.rank(0).engine().gates.out()).isZero();
    }
  }

  @Test
  void placesOfGatedSendsAreBoundedAndComeBack() throws Exception {
    try (World world = new World(2, CommConfig.DEFAULT.withSlots(2, 1))) {
      List<Completion.Source<String>> gates = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        gates.add(Completion.source());
      }
      world.rank(0).send(1, 1, gates.get(0).completion(), Blob.of(longs(0)));
      Completion<?> second = world.rank(0).send(1, 1, gates.get(1).completion(), Blob.of(longs(1)));
      CompletableFuture<Completion<?>> third = new CompletableFuture<>();
      Thread.ofVirtual()
          .start(
              () ->
                  third.complete(
                      world.rank(0).send(1, 1, gates.get(2).completion(), Blob.of(longs(2)))));
      assertThat(third.isDone()).isFalse();
      assertThat(second.cancel()).isTrue();
      Completion<?> sent = third.get(30, TimeUnit.SECONDS);
      gates.get(2).complete("open");
      gates.get(0).complete("open");
      sent.await(SOON);
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isZero();
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(2);
      assertThat(world.rank(0).engine().gates.out()).isZero();
    }
  }

  // --- lent buffers -----------------------------------------------------------------------------

  @Test
  void aLentBufferIsTheEnginesOnceSent_row004_4() {
    try (World world = new World(2)) {
      Comm comm = world.rank(0);
      LentBuffer buffer = comm.lend(16);
      buffer.setLong(0, 5);
      buffer.setDouble(8, 0.5);
      comm.send(1, 1, null, buffer).await(SOON);
      assertThatThrownBy(() -> buffer.setLong(0, 6))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("belongs to the engine");
      assertThatThrownBy(() -> comm.send(1, 1, null, buffer))
          .isInstanceOf(IllegalStateException.class);
      buffer.close();
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(5);
      assertThat(comm.engine().lender.bytesLent()).isZero();
    }
  }

  @Test
  void lendingIsBoundedAndGoesOnWhenBuffersComeBack() throws Exception {
    try (World world = new World(2, CommConfig.DEFAULT.withLentBytes(1024))) {
      Comm comm = world.rank(0);
      assertThatThrownBy(() -> comm.lend(2048))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("can never be lent within 1024 bytes");
      LentBuffer first = comm.lend(1000);
      assertThat(comm.tryLend(1)).isEmpty();
      CompletableFuture<LentBuffer> second = new CompletableFuture<>();
      Thread.ofVirtual().start(() -> second.complete(comm.lend(500)));
      comm.send(1, 1, null, first).await(SOON);
      second.get(30, TimeUnit.SECONDS).close();
      assertThat(comm.tryLend(1024)).isPresent();
    }
  }

  @Test
  void aFailedSendGivesItsLentBufferBack() {
    try (World world = new World(2)) {
      Comm comm = world.rank(0);
      Completion.Source<String> gate = Completion.source();
      LentBuffer buffer = comm.lend(16);
      Completion<?> sent = comm.send(1, 1, gate.completion(), buffer);
      gate.fail(new IllegalStateException("no"));
      assertThat(sent.state()).isEqualTo(Completion.State.FAILED);
      assertThat(comm.engine().lender.bytesLent()).isZero();
      assertThat(comm.engine().gates.out()).isZero();
    }
  }

  // --- ends -------------------------------------------------------------------------------------

  @Test
  void closingFailsWhatIsPendingAndSaysWhich() {
    try (World world = new World(3)) {
      Completion<Received> own = world.rank(1).receive(0, 5, memory(8));
      Completion<Received> peers = world.rank(0).receive(1, 6, memory(8));
      Completion.Source<String> gate = Completion.source();
      Completion<?> gated = world.rank(1).send(0, 9, gate.completion(), Blob.of(longs(1)));
      world.rank(1).close();
      world.rank(1).close();
      assertThat(reason(own)).isEqualTo(Reason.CLOSED);
      assertThat(own.cause()).hasMessageContaining("receive of 8 bytes from rank 0, tag 5");
      assertThat(reason(peers)).isEqualTo(Reason.PEER_CLOSED);
      assertThat(peers.cause()).hasMessageContaining("rank 1 closed");
      assertThat(reason(gated)).isEqualTo(Reason.CLOSED);
      gate.complete("late");
      assertThat(reason(world.rank(1).send(0, 1, longs(1)))).isEqualTo(Reason.CLOSED);
      assertThat(reason(world.rank(0).send(1, 1, longs(1)))).isEqualTo(Reason.PEER_CLOSED);
    }
  }

  @Test
  void closingNamesWhatWasSentAndNotReceived() {
    try (World world = new World(2)) {
      world.rank(0).send(1, 5, bytes(8, 1)).await(SOON);
      assertThat(world.rank(1).undelivered()).isEmpty();
      world.rank(1).close();
      assertThat(world.rank(1).undelivered()).containsExactly(new Undelivered("send", 0, 1, 5, 8));
      assertThat(world.rank(1).stats().undelivered()).isEqualTo(1);
    }
  }

  @Test
  void aRankThatFailsFailsTheWaitsOfAllWithItsCause() {
    try (World world = new World(3)) {
      Completion<Received> elsewhere = world.rank(0).receive(2, 6, memory(8));
      Completion<?> collective = world.rank(2).barrier();
      IllegalStateException cause = new IllegalStateException("rank 1 broke");
      world.rank(1).fail(cause);
      assertThatThrownBy(() -> elsewhere.await(SOON))
          .isInstanceOf(CommException.class)
          .hasMessageContaining("rank 1 failed")
          .hasCause(cause);
      assertThat(collective.cause()).isInstanceOf(CommException.class).hasCause(cause);
      assertThat(world.rank(0).send(2, 1, longs(1)).cause()).hasCause(cause);
      assertThat(world.rank(0).barrier().cause()).hasCause(cause);
    }
  }

  @Test
  void duplicatesDoNotMeetAndCloseByThemselves() {
    try (World world = new World(2)) {
      Comm first = world.rank(0).duplicate();
      Comm second = world.rank(0).duplicate();
      Comm firstPeer = world.rank(1).duplicate();
      first.send(1, 1, longs(1)).await(SOON);
      second.send(1, 1, longs(2)).await(SOON);
      world.rank(0).send(1, 1, longs(3)).await(SOON);
      assertThat(value(firstPeer.receive(0, 1).await(SOON).data())).isEqualTo(1);
      Comm secondPeer = world.rank(1).duplicate();
      assertThat(value(secondPeer.receive(0, 1).await(SOON).data())).isEqualTo(2);
      assertThat(value(world.rank(1).receive(0, 1).await(SOON).data())).isEqualTo(3);
      first.close();
      assertThat(reason(firstPeer.receive(0, 1))).isEqualTo(Reason.PEER_CLOSED);
      second.send(1, 2, longs(4)).await(SOON);
      Completion<Received> pending = secondPeer.receive(0, 3);
      world.rank(1).close();
      assertThat(reason(pending)).isEqualTo(Reason.CLOSED);
      assertThat(secondPeer.undelivered()).hasSize(1);
    }
  }

  @Test
  @Timeout(60)
  void aGatedSendThatIsCancelledByWhatItCompletesDoesNotWaitForItself() {
    try (World world = new World(2)) {
      Completion.Source<String> gate = Completion.source();
      Completion<Received> received = world.rank(1).receive(0, 1, World.memory(8));
      Completion<?> sent = world.rank(0).send(1, 1, gate.completion(), Blob.of(World.longs(1)));
      received.onDone(done -> sent.cancel()); // on the thread that posts the send

      gate.complete("go");
      assertThat(received.isDone()).isTrue();
    }
  }

  @Test
  void aStalledSendThatIsCancelledByWhatItsReceiveCompletesDoesNotWaitForItself()
      throws InterruptedException {
    // not closed if this fails: closing would wait for the thread that hangs
    World world = new World(2, CommConfig.DEFAULT.withEager(0, 0));
    Completion<?> stalled = world.rank(0).send(1, 1, bytes(100, 1));
    assertThat(stalled.isDone()).isFalse();
    CountDownLatch inside = new CountDownLatch(1);
    CountDownLatch registered = new CountDownLatch(1);
    world
        .rank(1)
        .handle(
            1,
            (source, header, blobs) -> {
              inside.countDown();
              try {
                registered.await();
              } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
              }
            });
    world.rank(0).message(1, 1, memory(0)).await(SOON);
    inside.await();
    Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
    // shifted to the communication thread, which the handler holds until the callback is there
    Completion<Received> received = manager.call(() -> world.rank(1).receive(0, 1)).await(SOON);
    assertThat(received.isDone()).isFalse();
    received.onDone(done -> stalled.cancel());
    registered.countDown();
    assertThat(received.await(SOON).data().mismatch(bytes(100, 1))).isEqualTo(-1);
    Completion.Source<String> alive = Completion.source();
    world.rank(1).handle(2, (source, header, blobs) -> alive.complete("the thread goes on"));
    world.rank(0).message(1, 2, memory(0));
    alive.completion().await(SOON);
    world.close();
  }

  @Test
  void whatAnAbortLeftUnreadIsNamedWhenTheRankCloses() {
    try (World world = new World(2)) {
      world.rank(0).send(1, 5, bytes(8, 1)).await(SOON);
      world.rank(0).fail(new IllegalStateException("rank 0 broke"));
      world.rank(1).close();
      assertThat(world.rank(1).undelivered()).containsExactly(new Undelivered("send", 0, 1, 5, 8));
    }
  }

  private static Reason reason(Completion<?> completion) {
    assertThat(completion.isDone()).as("it has ended").isTrue();
    assertThat(completion.cause()).isInstanceOf(CommException.class);
    return ((CommException) completion.cause()).reason();
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void everyMessageIsCountedOnceWhoeverEndsIt(ThreadLevel level) {
    int senders = 8;
    int each = level == ThreadLevel.MULTIPLE ? 2_000 : 200; // where nobody takes turns
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT);
        TaskScope<String> scope = world.tasks.scope()) {
      for (Comm comm : world.ranks) {
        for (int tag = 0; tag < senders; tag++) {
          int own = tag;
          scope.fork(() -> exchange(comm, own, each));
        }
      }
      scope.join();
      for (Comm comm : world.ranks) {
        CommStats stats = comm.stats();
        assertThat(stats.sent()).as("sent").isEqualTo((long) senders * each);
        assertThat(stats.received()).as("received").isEqualTo((long) senders * each);
        assertThat(stats.bytesSent()).as("bytes sent").isEqualTo(8L * senders * each);
        assertThat(stats.bytesReceived()).as("bytes received").isEqualTo(8L * senders * each);
      }
    }
  }

  private static String exchange(Comm comm, int tag, int times) {
    int peer = 1 - comm.rank();
    for (int i = 0; i < times; i++) {
      Completion<Received> received = comm.receive(peer, tag);
      comm.send(peer, tag, longs(i)).await();
      received.await();
    }
    return "exchanged";
  }
}
