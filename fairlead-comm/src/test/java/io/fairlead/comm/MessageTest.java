package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static io.fairlead.comm.World.value;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import io.fairlead.task.Role;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class MessageTest {
  private static final Duration SOON = Duration.ofSeconds(30);

  @Test
  void aHandlerGetsTheHeaderAndAllBlobsOnTheCommunicationThread_row004_3() {
    try (World world = new World(2)) {
      Completion.Source<Role> seen = Completion.source();
      List<MemorySegment> got = new ArrayList<>();
      world
          .rank(1)
          .handle(
              4,
              (source, header, blobs) -> {
                got.add(header);
                got.addAll(blobs);
                seen.complete(source == 0 ? Role.current() : Role.FOREIGN);
              });
      LentBuffer lent = world.rank(0).lend(8);
      lent.setLong(0, 77);
      world
          .rank(0)
          .message(1, 4, longs(1), Blob.of(bytes(100, 1)), lent, Blob.of(memory(0)))
          .await(SOON);
      assertThat(seen.completion().await(SOON)).isEqualTo(Role.COMM);
      assertThat(got).hasSize(4);
      assertThat(value(got.get(0))).isEqualTo(1);
      assertThat(got.get(1).mismatch(bytes(100, 1))).isEqualTo(-1);
      assertThat(value(got.get(2))).isEqualTo(77);
      assertThat(got.get(3).byteSize()).isZero();
    }
  }

  @Test
  void messagesOfOneSourceAreHandledInOrderWhateverTheirSizes() {
    int count = 2_000;
    try (World world = new World(3, CommConfig.DEFAULT.withMessageBytes(10_000))) {
      List<List<Long>> orders = List.of(new ArrayList<>(), new ArrayList<>());
      Completion.Source<String> all = Completion.source();
      int[] left = {2 * count};
      world
          .rank(2)
          .handle(
              1,
              (source, header, blobs) -> {
                orders.get(source).add(value(header));
                if (--left[0] == 0) {
                  all.complete("all");
                }
              });
      world.each(
          comm -> {
            if (comm.rank() == 2) {
              return;
            }
            List<Completion<Void>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
              sent.add(comm.message(2, 1, longs(i), Blob.of(bytes(i * 31 % 9_000, i))));
            }
            Completion.all(sent).await(SOON);
          });
      all.completion().await(SOON);
      for (List<Long> order : orders) {
        assertThat(order).hasSize(count).isSorted();
      }
      assertThat(world.rank(0).stats().submitted()).isEqualTo(count);
      // counted and given back once the handler has returned, which is after it signalled
      Eventually.is(2L * count, "handled", () -> world.rank(2).stats().handled());
      Eventually.is(0, "bytes kept", world.rank(2)::messageBytesKept);
    }
  }

  @Test
  void messagesWaitForTheirHandlerAndTheSenderForRoom() {
    try (World world = new World(2, CommConfig.DEFAULT.withMessageBytes(1000))) {
      List<Completion<?>> sent = new ArrayList<>();
      for (int i = 0; i < 10; i++) {
        sent.add(world.rank(0).message(1, 1, longs(i), Blob.of(memory(392))));
      }
      assertThat(sent.get(0).isDone()).isTrue();
      assertThat(sent.get(1).isDone()).isTrue();
      assertThat(sent.get(9).isDone()).isFalse();
      Completion.Source<String> all = Completion.source();
      List<Long> seen = new ArrayList<>();
      world
          .rank(1)
          .handle(
              1,
              (source, header, blobs) -> {
                seen.add(value(header));
                if (seen.size() == 10) {
                  all.complete("all");
                }
              });
      all.completion().await(SOON);
      sent.forEach(completion -> completion.await(SOON));
      assertThat(seen).isSorted();
    }
  }

  @Test
  void aMessageLongerThanTheBoundGetsThrough() {
    try (World world = new World(2, CommConfig.DEFAULT.withMessageBytes(100))) {
      Completion.Source<MemorySegment> seen = Completion.source();
      world.rank(1).handle(1, (source, header, blobs) -> seen.complete(blobs.getFirst()));
      world.rank(0).message(1, 1, memory(0), Blob.of(bytes(1 << 20, 5))).await(SOON);
      assertThat(seen.completion().await(SOON).mismatch(bytes(1 << 20, 5))).isEqualTo(-1);
    }
  }

  @Test
  void theReceiverChoosesThePlacesOnceTheHeaderIsHereOneMessageAtATime_row004_3() {
    try (World world = new World(2)) {
      MemorySegment place = bytes(5000, 0);
      List<String> order = new ArrayList<>();
      Completion.Source<String> all = Completion.source();
      world
          .rank(1)
          .handle(
              1,
              (source, header, lengths) -> {
                order.add("choose " + value(header) + " " + Arrays.toString(lengths));
                return new MemorySegment[] {place, memory(0)};
              },
              (source, header, blobs) -> {
                long number = value(header);
                boolean here = place.mismatch(bytes(5000, number)) == -1;
                order.add(
                    "handle " + number + (here && blobs.getFirst().equals(place) ? "" : " wrong"));
                if (number == 3) {
                  all.complete("all");
                }
              });
      for (int i = 1; i <= 3; i++) {
        world.rank(0).message(1, 1, longs(i), Blob.of(bytes(5000, i)), Blob.of(memory(0)));
      }
      all.completion().await(SOON);
      assertThat(order)
          .containsExactly(
              "choose 1 [5000, 0]",
              "handle 1",
              "choose 2 [5000, 0]",
              "handle 2",
              "choose 3 [5000, 0]",
              "handle 3");
    }
  }

  @Test
  void aMessageWithoutBlobsNeedsNoPlaces() {
    try (World world = new World(2)) {
      Completion.Source<Long> seen = Completion.source();
      world
          .rank(1)
          .handle(
              1,
              (source, header, lengths) -> {
                throw new AssertionError("nothing to choose");
              },
              (source, header, blobs) -> seen.complete(value(header)));
      world.rank(0).message(1, 1, longs(4)).await(SOON);
      assertThat(seen.completion().await(SOON)).isEqualTo(4);
    }
  }

  @Test
  void placesThatDoNotFitFailAllRanks() {
    for (MemorySegment wrong : List.of(memory(7), memory(8).asReadOnly())) {
      try (World world = new World(2)) {
        Completion<Received> waiting = world.rank(0).receive(1, 1);
        world
            .rank(1)
            .handle(
                1,
                (source, header, lengths) -> new MemorySegment[] {wrong},
                (source, header, blobs) -> {});
        Completion<?> sent = world.rank(0).message(1, 1, longs(1), Blob.of(memory(8)));
        assertThatThrownBy(() -> sent.await(SOON)).isInstanceOf(CommException.class);
        assertThatThrownBy(() -> waiting.await(SOON))
            .hasStackTraceContaining("places for handler 1 of rank 1 failed")
            .hasCauseInstanceOf(Throwable.class);
      }
    }
  }

  @Test
  void handlersReply() {
    try (World world = new World(2)) {
      world
          .rank(1)
          .handle(
              1,
              (source, header, blobs) ->
                  world.rank(1).message(source, 2, longs(value(header) + 1)));
      Completion.Source<Long> reply = Completion.source();
      world.rank(0).handle(2, (source, header, blobs) -> reply.complete(value(header)));
      world.rank(0).message(1, 1, longs(41)).await(SOON);
      assertThat(reply.completion().await(SOON)).isEqualTo(42);
    }
  }

  @Test
  void waitingInAHandlerIsRefused() {
    try (World world = new World(2)) {
      Completion.Source<Throwable> seen = Completion.source();
      Completion<?> never = world.rank(1).receive(0, 99);
      world
          .rank(1)
          .handle(
              1,
              (source, header, blobs) -> {
                try {
                  never.await();
                } catch (IllegalStateException refused) {
                  seen.complete(refused);
                }
              });
      world.rank(0).message(1, 1, memory(0)).await(SOON);
      assertThat(seen.completion().await(SOON)).hasMessageContaining("onDone");
    }
  }

  @Test
  void aHandlerThatThrowsFailsAllRanksWithItsCause() {
    try (World world = new World(2)) {
      Completion<Received> waiting = world.rank(0).receive(1, 1);
      world
          .rank(1)
          .handle(
              1,
              (source, header, blobs) -> {
                throw new UnsupportedOperationException("broken handler");
              });
      world.rank(0).message(1, 1, memory(0)).await(SOON);
      assertThatThrownBy(() -> waiting.await(SOON))
          .isInstanceOf(CommException.class)
          .hasStackTraceContaining("handler 1 of rank 1 threw on a message from rank 0")
          .hasStackTraceContaining("broken handler");
    }
  }

  @Test
  void aHandlerIdIsSetOnce() {
    try (World world = new World(1)) {
      world.rank(0).handle(1, (source, header, blobs) -> {});
      assertThatThrownBy(() -> world.rank(0).handle(1, (source, header, blobs) -> {}))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("handler 1 is set already");
    }
  }

  @Test
  void closingHandlesWhatArrivedAndNamesWhatHasNoHandler() {
    try (World world = new World(2)) {
      List<Long> seen = new ArrayList<>();
      world.rank(1).handle(1, (source, header, blobs) -> seen.add(value(header)));
      for (int i = 0; i < 100; i++) {
        world.rank(0).message(1, 1, longs(i)).await(SOON);
      }
      world.rank(0).message(1, 2, memory(0)).await(SOON);
      world.rank(1).close();
      assertThat(seen).hasSize(100).isSorted();
      assertThat(world.rank(1).undelivered()).hasSize(1);
      assertThat(world.rank(1).undelivered().getFirst().id()).isEqualTo(2);
      CommException late = failure(world.rank(0).message(1, 1, memory(0)));
      assertThat(late.reason()).isEqualTo(Reason.PEER_CLOSED);
    }
  }

  @Test
  void aHandlerMayCloseItsCommunicator() {
    try (World world = new World(2)) {
      world.rank(1).handle(1, (source, header, blobs) -> world.rank(1).close());
      Completion<Received> waiting = world.rank(0).receive(1, 1);
      world.rank(0).message(1, 1, memory(0)).await(SOON);
      assertThatThrownBy(() -> waiting.await(SOON)).hasMessageContaining("rank 1 closed");
    }
  }

  @Test
  void aMessageWaitsForItsGate() {
    try (World world = new World(2)) {
      Completion.Source<Long> seen = Completion.source();
      world.rank(1).handle(1, (source, header, blobs) -> seen.complete(value(blobs.getFirst())));
      Completion.Source<String> gate = Completion.source();
      MemorySegment data = longs(0);
      Completion<?> sent = world.rank(0).message(1, 1, gate.completion(), memory(0), Blob.of(data));
      assertThat(sent.isDone()).isFalse();
      data.set(ValueLayout.JAVA_LONG_UNALIGNED, 0, 9);
      gate.complete("open");
      sent.await(SOON);
      assertThat(seen.completion().await(SOON)).isEqualTo(9);
    }
  }

  private static CommException failure(Completion<?> completion) {
    return (CommException) Objects.requireNonNull(completion.cause());
  }
}
