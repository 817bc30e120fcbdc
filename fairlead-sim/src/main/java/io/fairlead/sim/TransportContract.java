package io.fairlead.sim;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.comm.spi.Arrival;
import io.fairlead.comm.spi.MessageListener;
import io.fairlead.comm.spi.Segments;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.Traffic;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.spi.Undelivered;
import io.fairlead.sim.TransportRequests.Copy;
import io.fairlead.sim.TransportRequests.Message;
import io.fairlead.sim.TransportRequests.Receive;
import io.fairlead.sim.TransportRequests.Send;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * What every transport must keep to; see {@link Transport}. A transport's tests extend this and say
 * how to open one. All ranks are driven by one thread, which polls all of them while it waits; only
 * transports at MULTIPLE meet several.
 */
@Timeout(60)
public abstract class TransportContract {
  private static final long EAGER_BYTES = 1 << 20;
  private static final int EAGER_MESSAGES = 64;

  /** Between two polls, so that several waiting threads leave the cores to each other. */
  private static final long POLL_NANOS = 10_000;

  private static final int ROOT = Transport.ROOT_CHANNEL;

  private List<Transport> ranks = List.of();

  /** For the tests of a transport. */
  protected TransportContract() {}

  /** Opens all ranks of a world, in this process. */
  protected abstract List<Transport> open(TransportSettings settings);

  /** Whether what a rank failed for reaches the others as the same object, not only in words. */
  protected boolean sharesCauses() {
    return true;
  }

  @AfterEach
  final void closeRanks() {
    ranks.forEach(Transport::close);
    ranks.forEach(Transport::close);
  }

  // --- matching ---------------------------------------------------------------------------------

  @Test
  final void ranksKnowTheirPlaces() {
    world(3);
    for (int i = 0; i < 3; i++) {
      assertThat(ranks.get(i).rank()).isEqualTo(i);
      assertThat(ranks.get(i).size()).isEqualTo(3);
      assertThat(ranks.get(i).caps().tagMax()).isGreaterThanOrEqualTo(32_767);
    }
  }

  @Test
  final void aPostedReceiveTakesTheMessage() {
    world(2);
    MemorySegment into = memory(8);
    Receive receive = receive(1, 0, 5, into);
    assertThat(receive.isDone()).isFalse();
    Send send = send(0, 1, 5, bytes(8, 1));
    done(send, receive);
    assertThat(receive.from).isZero();
    assertThat(receive.length).isEqualTo(8);
    assertThat(into.mismatch(bytes(8, 1))).isEqualTo(-1);
  }

  @Test
  final void aMessageThatComesFirstIsKeptWithinTheBound() {
    world(2);
    for (int length : new int[] {0, 1, 8, 4096, 100_000}) {
      Send send = send(0, 1, 5, bytes(length, length));
      done(send);
      Receive receive = receive(1, 0, 5, memory(length));
      done(receive);
      assertThat(receive.place().mismatch(bytes(length, length))).isEqualTo(-1);
    }
  }

  @Test
  final void beyondTheBoundTheSenderWaitsAndNothingIsLost() {
    world(2);
    List<Send> sends = new ArrayList<>();
    for (int i = 0; i < 3 * EAGER_MESSAGES; i++) {
      sends.add(send(0, 1, 5, bytes(32, i)));
    }
    pollAll();
    assertThat(sends.getLast().isDone()).isFalse();
    for (int i = 0; i < sends.size(); i++) {
      Receive receive = receive(1, 0, 5, memory(32));
      done(receive, sends.get(i));
      assertThat(receive.place().mismatch(bytes(32, i))).isEqualTo(-1);
    }
  }

  @Test
  final void theBoundInBytesHolds() {
    world(2);
    Send large = send(0, 1, 5, bytes((int) EAGER_BYTES + 1, 1));
    Send small = send(0, 1, 6, bytes(8, 2));
    done(small);
    assertThat(large.isDone()).isFalse();
    Receive receive = receive(1, 0, 5);
    done(receive, large);
    assertThat(receive.data.mismatch(bytes((int) EAGER_BYTES + 1, 1))).isEqualTo(-1);
  }

  @Test
  final void oneSourceAndTagIsFirstInFirstOut() {
    world(2);
    Receive first = receive(1, 0, 5, memory(8));
    Receive second = receive(1, 0, 5, memory(8));
    List<Send> sends = new ArrayList<>();
    for (int i = 0; i < 6; i++) {
      sends.add(send(0, 1, 5, bytes(8, i)));
    }
    List<Receive> receives = new ArrayList<>(List.of(first, second));
    while (receives.size() < 6) {
      receives.add(receive(1, 0, 5, memory(8)));
    }
    sends.forEach(this::done);
    for (int i = 0; i < 6; i++) {
      done(receives.get(i));
      assertThat(receives.get(i).place().mismatch(bytes(8, i))).isEqualTo(-1);
    }
  }

  @Test
  final void tagsSourcesTrafficAndChannelsDoNotMix() {
    world(3);
    int channel = ranks.get(0).openChannel(ROOT, 0);
    ranks.get(1).openChannel(ROOT, 0);
    ranks.get(2).openChannel(ROOT, 0);
    Receive wanted = receive(2, 0, 5, memory(8));
    done(send(1, 2, 5, bytes(8, 1)), send(0, 2, 6, bytes(8, 2)));
    done(
        post(0, new Send(ROOT, Traffic.COLLECTIVE, 2, 5, bytes(8, 3))),
        post(0, new Send(channel, Traffic.DATA, 2, 5, bytes(8, 4))));
    assertThat(wanted.isDone()).isFalse();
    done(send(0, 2, 5, bytes(8, 5)), wanted);
    assertThat(wanted.place().mismatch(bytes(8, 5))).isEqualTo(-1);
    Receive other = post(2, new Receive(channel, Traffic.DATA, 0, 5, memory(8)));
    Receive collective = post(2, new Receive(ROOT, Traffic.COLLECTIVE, 0, 5, memory(8)));
    done(other, collective);
    assertThat(other.place().mismatch(bytes(8, 4))).isEqualTo(-1);
    assertThat(collective.place().mismatch(bytes(8, 3))).isEqualTo(-1);
  }

  @Test
  final void aReceiveFromAnyTakesWhatCameFirst() {
    world(3);
    done(send(1, 2, 5, bytes(8, 1)));
    done(send(0, 2, 5, bytes(8, 2)));
    Receive first = receive(2, Transport.ANY, 5, memory(8));
    Receive second = receive(2, Transport.ANY, 5, memory(8));
    done(first, second);
    assertThat(List.of(first.from, second.from)).containsExactlyInAnyOrder(0, 1);
    assertThat(first.place().mismatch(bytes(8, first.from == 1 ? 1 : 2))).isEqualTo(-1);
  }

  @Test
  final void ofTwoReceivesThatCouldTheOlderTakesIt() {
    world(2);
    Receive any = receive(1, Transport.ANY, 5, memory(8));
    Receive named = receive(1, 0, 5, memory(8));
    Receive anyAgain = receive(1, Transport.ANY, 5, memory(8));
    for (int i = 0; i < 3; i++) {
      done(send(0, 1, 5, bytes(8, i)));
    }
    done(any, named, anyAgain);
    assertThat(any.place().mismatch(bytes(8, 0))).isEqualTo(-1);
    assertThat(named.place().mismatch(bytes(8, 1))).isEqualTo(-1);
    assertThat(anyAgain.place().mismatch(bytes(8, 2))).isEqualTo(-1);
  }

  @Test
  final void aRankSendsToItself() {
    world(1);
    Send send = send(0, 0, 5, bytes(8, 1));
    Receive receive = receive(0, 0, 5, memory(8));
    done(send, receive);
    assertThat(receive.place().mismatch(bytes(8, 1))).isEqualTo(-1);
  }

  // --- memory -----------------------------------------------------------------------------------

  @Test
  final void blobsAreGatheredAndScattered() {
    world(2);
    MemorySegment whole = bytes(100, 7);
    for (boolean receiveFirst : new boolean[] {true, false}) {
      MemorySegment[] into = {memory(30), memory(0), memory(69), memory(1)};
      Send send =
          new Send(ROOT, Traffic.DATA, 1, 5, whole.asSlice(0, 50), memory(0), whole.asSlice(50));
      Receive receive = new Receive(ROOT, Traffic.DATA, 0, 5, into);
      if (receiveFirst) {
        post(1, receive);
        post(0, send);
      } else {
        post(0, send);
        post(1, receive);
      }
      done(send, receive);
      MemorySegment joined = memory(100);
      Segments.copy(into, new MemorySegment[] {joined});
      assertThat(joined.mismatch(whole)).isEqualTo(-1);
    }
  }

  @Test
  final void aMessageMayHaveNoBlobs() {
    world(2);
    Send send = post(0, new Send(ROOT, Traffic.DATA, 1, 5));
    Receive receive = receive(1, 0, 5);
    done(send, receive);
    assertThat(receive.length).isZero();
    assertThat(receive.data.byteSize()).isZero();
  }

  @Test
  final void aReceiveWithoutSegmentsTakesAnyLength() {
    world(2);
    Receive first = receive(1, 0, 5);
    done(send(0, 1, 5, bytes(1000, 1)), send(0, 1, 5, bytes(3, 2)));
    Receive second = receive(1, 0, 5);
    done(first, second);
    assertThat(first.data.mismatch(bytes(1000, 1))).isEqualTo(-1);
    assertThat(second.data.mismatch(bytes(3, 2))).isEqualTo(-1);
  }

  @Test
  final void anotherSizeFailsTheReceiveAndNotTheSend() {
    world(2);
    for (int length : new int[] {4, 12}) {
      Receive posted = receive(1, 0, 5, memory(8));
      done(send(0, 1, 5, bytes(length, 1)));
      failed(posted, Reason.SIZE_MISMATCH);
      done(send(0, 1, 6, bytes(length, 1)));
      Receive later = receive(1, 0, 6, memory(8));
      failed(later, Reason.SIZE_MISMATCH);
    }
    Receive next = receive(1, 0, 5, memory(8));
    done(send(0, 1, 5, bytes(8, 3)), next);
    assertThat(next.place().mismatch(bytes(8, 3))).isEqualTo(-1);
  }

  @Test
  final void memoryThatIsGoneFailsBothSidesAndOnlyThem() {
    world(2);
    Receive receive = receive(1, 0, 5, memory(8));
    MemorySegment gone;
    try (Arena arena = Arena.ofShared()) {
      gone = arena.allocate(8);
    }
    Send send = send(0, 1, 5, gone);
    failed(send, Reason.MEMORY);
    failed(receive, Reason.MEMORY);
    Receive next = receive(1, 0, 5, memory(8));
    done(send(0, 1, 5, bytes(8, 1)), next);
  }

  // --- active messages --------------------------------------------------------------------------

  @Test
  final void aMessageKeepsItsHeaderAndItsBlobs() {
    world(2);
    Inbox inbox = new Inbox();
    ranks.get(1).listen(ROOT, inbox);
    Message message = message(0, 1, 9, bytes(3, 1), bytes(100, 2), memory(0), bytes(5, 3));
    Arrival arrival = arrival(inbox, 0);
    assertThat(arrival.source()).isZero();
    assertThat(arrival.handler()).isEqualTo(9);
    assertThat(arrival.headerBytes()).isEqualTo(3);
    assertThat(arrival.blobs()).isEqualTo(3);
    assertThat(arrival.bytes(0)).isEqualTo(100);
    assertThat(arrival.bytes(1)).isZero();
    assertThat(message.isDone()).isFalse();
    MemorySegment header = memory(3);
    assertThat(arrival.readHeader(header)).isTrue();
    assertThat(header.mismatch(bytes(3, 1))).isEqualTo(-1);
    MemorySegment[] into = {memory(100), memory(0), memory(5)};
    Landing landing = new Landing();
    arrival.accept(into, landing);
    done(message);
    until(() -> landing.landed);
    assertThat(into[0].mismatch(bytes(100, 2))).isEqualTo(-1);
    assertThat(into[2].mismatch(bytes(5, 3))).isEqualTo(-1);
  }

  @Test
  final void messagesArriveInOrderAlsoThoseThatCameBeforeTheListener() {
    world(2);
    List<Message> messages = new ArrayList<>();
    for (int i = 0; i < 5; i++) {
      messages.add(message(0, 1, i, memory(0)));
    }
    pollAll();
    Inbox inbox = new Inbox();
    ranks.get(1).listen(ROOT, inbox);
    for (int i = 5; i < 10; i++) {
      messages.add(message(0, 1, i, memory(0)));
    }
    arrival(inbox, 9);
    for (int i = 0; i < 10; i++) {
      assertThat(inbox.arrivals.get(i).handler()).isEqualTo(i);
      inbox.arrivals.get(i).accept(new MemorySegment[0], new Landing());
      done(messages.get(i));
    }
  }

  @Test
  final void aRefusedMessageFailsItsSender() {
    world(2);
    Inbox inbox = new Inbox();
    ranks.get(1).listen(ROOT, inbox);
    Message message = message(0, 1, 9, memory(1), bytes(10, 1));
    arrival(inbox, 0).refuse(new TransportException(Reason.LIBRARY, "not today", null));
    failed(message, Reason.LIBRARY);
  }

  @Test
  final void aWithdrawnMessageNeverLands() {
    world(2);
    Inbox inbox = new Inbox();
    ranks.get(1).listen(ROOT, inbox);
    Message message = message(0, 1, 9, memory(1), bytes(10, 1));
    Arrival arrival = arrival(inbox, 0);
    message.withdrawn = true;
    if (ranks.get(0).cancel(message)) {
      Landing landing = new Landing();
      assertThat(arrival.readHeader(memory(1))).isFalse();
      arrival.accept(new MemorySegment[] {memory(10)}, landing);
      until(() -> landing.failure != null);
      assertThat(message.isDone()).isFalse();
    }
  }

  // --- one-sided --------------------------------------------------------------------------------

  @Test
  final void putAndGetReachWhatIsExposedAndNothingElse() {
    world(2);
    assumeTrue(ranks.get(0).caps().oneSided(), "this transport has no put and get");
    MemorySegment window = memory(64);
    long key = ranks.get(1).expose(window);
    Copy put = new Copy(ROOT, 1, key, 16, bytes(16, 1));
    ranks.get(0).put(put);
    done(put);
    assertThat(window.asSlice(16, 16).mismatch(bytes(16, 1))).isEqualTo(-1);
    Copy get = new Copy(ROOT, 1, key, 16, memory(16));
    ranks.get(0).get(get);
    done(get);
    assertThat(get.local().mismatch(bytes(16, 1))).isEqualTo(-1);
    for (long offset : new long[] {-1, 49, Long.MAX_VALUE}) {
      Copy outside = new Copy(ROOT, 1, key, offset, memory(16));
      ranks.get(0).put(outside);
      failed(outside, Reason.MEMORY);
    }
    ranks.get(1).conceal(key);
    Copy late = new Copy(ROOT, 1, key, 0, memory(16));
    ranks.get(0).get(late);
    failed(late, Reason.MEMORY);
  }

  // --- withdrawing ------------------------------------------------------------------------------

  @Test
  final void aWithdrawnReceiveLeavesTheMessageToTheNext() {
    world(2);
    Receive first = receive(1, 0, 5, memory(8));
    Receive second = receive(1, 0, 5, memory(8));
    first.withdrawn = true;
    assertThat(ranks.get(1).cancel(first)).isTrue();
    done(send(0, 1, 5, bytes(8, 1)), second);
    assertThat(first.isDone()).isFalse();
    assertThat(first.place().mismatch(memory(8))).isEqualTo(-1);
    assertThat(ranks.get(1).cancel(second)).isFalse();
  }

  @Test
  final void aReceiveThatNobodyWantsIsPassedOverBeforeItIsTakenBack() {
    world(2);
    Receive first = receive(1, 0, 5, memory(8));
    Receive second = receive(1, 0, 5, memory(8));
    first.withdrawn = true;
    done(send(0, 1, 5, bytes(8, 1)), second);
    assertThat(first.isDone()).isFalse();
    assertThat(ranks.get(1).cancel(first)).isTrue();
  }

  @Test
  final void whatIsWithdrawnBeforeItIsPostedFailsAndIsNotTakenBack() {
    world(2);
    Receive receive = new Receive(ROOT, Traffic.DATA, 0, 5, memory(8));
    receive.withdrawn = true;
    failed(post(1, receive), Reason.WITHDRAWN);
    assertThat(ranks.get(1).cancel(receive)).isFalse();
    Send send = new Send(ROOT, Traffic.DATA, 1, 5, memory(8));
    send.withdrawn = true;
    failed(post(0, send), Reason.WITHDRAWN);
    assertThat(ranks.get(0).cancel(send)).isFalse();
    Message message = new Message(ROOT, 1, 9, memory(0));
    message.withdrawn = true;
    ranks.get(0).message(message);
    failed(message, Reason.WITHDRAWN);
    assertThat(ranks.get(0).cancel(message)).isFalse();
    done(send(0, 1, 5, bytes(8, 1)), receive(1, 0, 5, memory(8)));
  }

  @Test
  final void aWithdrawnSendIsNotReceived() {
    worldWithoutRoom(2);
    Send first = send(0, 1, 5, bytes(8, 1));
    Send second = send(0, 1, 5, bytes(8, 2));
    first.withdrawn = true;
    assertThat(ranks.get(0).cancel(first)).isTrue();
    Receive receive = receive(1, 0, 5, memory(8));
    done(receive, second);
    assertThat(receive.place().mismatch(bytes(8, 2))).isEqualTo(-1);
    assertThat(first.isDone()).isFalse();
  }

  // --- ends -------------------------------------------------------------------------------------

  @Test
  final void closingEndsWhatWaitsOnBothSides() {
    world(3);
    Receive own = receive(1, 0, 5, memory(8));
    Receive peers = receive(0, 1, 6, memory(8));
    Receive others = receive(0, 2, 6, memory(8));
    Receive any = receive(0, Transport.ANY, 7, memory(8));
    ranks.get(1).closeChannel(ROOT);
    failed(own, Reason.CLOSED);
    failed(peers, Reason.PEER_CLOSED);
    failed(send(0, 1, 5, bytes(8, 1)), Reason.PEER_CLOSED);
    failed(send(1, 0, 5, bytes(8, 1)), Reason.CLOSED);
    failed(receive(1, 0, 5, memory(8)), Reason.CLOSED);
    failed(message(0, 1, 1, memory(0)), Reason.PEER_CLOSED);
    failed(message(1, 0, 1, memory(0)), Reason.CLOSED);
    assertThat(others.isDone() || any.isDone()).isFalse();
    done(send(2, 0, 6, bytes(8, 1)), others);
    ranks.get(2).closeChannel(ROOT);
    failed(any, Reason.PEER_CLOSED);
    assertThat(ranks.get(1).closeChannel(ROOT)).isEmpty();
  }

  @Test
  final void whatWasSentBeforeTheCloseIsStillReceived() {
    world(2);
    done(send(0, 1, 5, bytes(8, 1)));
    ranks.get(0).closeChannel(ROOT);
    Receive receive = receive(1, 0, 5, memory(8));
    done(receive);
    assertThat(receive.place().mismatch(bytes(8, 1))).isEqualTo(-1);
    failed(receive(1, 0, 5, memory(8)), Reason.PEER_CLOSED);
  }

  @Test
  final void closingNamesWhatWasSentAndNotReceived() {
    world(2);
    done(send(0, 1, 5, bytes(8, 1)), send(0, 1, 6, bytes(16, 1)));
    assertThat(ranks.get(1).closeChannel(ROOT))
        .containsExactly(new Undelivered("send", 0, 1, 5, 8), new Undelivered("send", 0, 1, 6, 16));
  }

  @Test
  final void closingFailsTheSendersThatWait() {
    worldWithoutRoom(3);
    Send toClosing = send(0, 1, 5, bytes(8, 1));
    Send fromClosing = send(1, 2, 5, bytes(8, 1));
    Message early = message(1, 2, 9, memory(0));
    Message earlyTo = message(0, 1, 9, memory(0));
    assertThat(ranks.get(1).closeChannel(ROOT)).isEmpty();
    failed(toClosing, Reason.PEER_CLOSED);
    failed(fromClosing, Reason.CLOSED);
    failed(early, Reason.CLOSED);
    failed(earlyTo, Reason.PEER_CLOSED);
    failed(receive(2, 1, 5, memory(8)), Reason.PEER_CLOSED);
  }

  @Test
  final void channelsCloseOneByOneAndAreTheSameOnAllRanks() {
    world(2);
    int first = ranks.get(0).openChannel(ROOT, 0);
    int second = ranks.get(0).openChannel(ROOT, 1);
    int below = ranks.get(0).openChannel(first, 0);
    assertThat(List.of(ROOT, first, second, below)).doesNotHaveDuplicates();
    assertThat(ranks.get(1).openChannel(ROOT, 1)).isEqualTo(second);
    assertThat(ranks.get(1).openChannel(first, 0)).isEqualTo(below);
    assertThat(ranks.get(1).openChannel(ROOT, 0)).isEqualTo(first);
    Receive onFirst = post(1, new Receive(first, Traffic.DATA, 0, 5, memory(8)));
    Receive onRoot = receive(1, 0, 5, memory(8));
    ranks.get(0).closeChannel(first);
    failed(onFirst, Reason.PEER_CLOSED);
    done(send(0, 1, 5, bytes(8, 1)), onRoot);
    ranks.get(1).closeChannel(first);
    failed(post(1, new Receive(first, Traffic.DATA, 0, 5, memory(8))), Reason.CLOSED);
  }

  /** A rank that has closed a channel can be waited for in no child of it. */
  @Test
  final void aChannelEndsWithItsParent() {
    world(2);
    int before = ranks.get(1).openChannel(ROOT, 0);
    int below = ranks.get(1).openChannel(before, 0);
    Receive waiting = post(1, new Receive(below, Traffic.DATA, 0, 5, memory(8)));
    Receive other = receive(1, 0, 5, memory(8));
    assertThat(ranks.get(0).openChannel(ROOT, 1)).isEqualTo(ranks.get(1).openChannel(ROOT, 1));
    int known = ranks.get(0).openChannel(ROOT, 1);
    done(post(0, new Send(known, Traffic.DATA, 1, 5, bytes(8, 1))));
    ranks.get(0).closeChannel(ROOT);
    failed(other, Reason.PEER_CLOSED);
    failed(waiting, Reason.PEER_CLOSED);
    failed(post(0, new Receive(known, Traffic.DATA, 1, 5, memory(8))), Reason.CLOSED);
    done(post(1, new Receive(known, Traffic.DATA, 0, 5, memory(8))));
    failed(post(1, new Receive(known, Traffic.DATA, 0, 5, memory(8))), Reason.PEER_CLOSED);
    int after = ranks.get(1).openChannel(ROOT, 2);
    failed(post(1, new Receive(after, Traffic.DATA, 0, 5, memory(8))), Reason.PEER_CLOSED);
    failed(post(1, new Send(after, Traffic.DATA, 0, 5, bytes(8, 1))), Reason.PEER_CLOSED);
    done(post(1, new Send(after, Traffic.DATA, 1, 5, bytes(8, 1))));
    done(post(1, new Receive(after, Traffic.DATA, 1, 5, memory(8))));
  }

  @Test
  final void nothingIsExposedThatNobodyCanReach() {
    world(2);
    assumeTrue(ranks.get(0).caps().oneSided());
    ranks.get(1).abort(new IllegalStateException("rank 1 broke"));
    failed(receive(0, 1, 5, memory(8)), Reason.PEER_FAILED);
    assertThatThrownBy(() -> ranks.get(0).expose(memory(8))).hasMessageContaining("rank 1 broke");
  }

  @Test
  final void nothingIsExposedByWhoHasClosed() {
    world(2);
    assumeTrue(ranks.get(0).caps().oneSided());
    ranks.get(0).close();
    assertThatThrownBy(() -> ranks.get(0).expose(memory(8)))
        .hasMessageContaining("closed the communicator itself");
  }

  @Test
  final void aRankThatFailsFailsAllWithItsCause() {
    worldWithoutRoom(3);
    Send stalled = send(0, 2, 5, bytes(8, 1));
    Receive own = receive(1, 0, 5, memory(8));
    Receive elsewhere = receive(0, 2, 5, memory(8));
    Message message = message(2, 0, 9, memory(0));
    IllegalStateException cause = new IllegalStateException("rank 1 broke");
    ranks.get(1).abort(cause);
    for (TransportRequests.Probe request : List.of(stalled, own, elsewhere, message)) {
      assertCause(failed(request, Reason.PEER_FAILED), cause);
    }
    ranks.get(2).abort(new IllegalStateException("a later failure"));
    assertCause(failed(send(0, 2, 5, bytes(8, 1)), Reason.PEER_FAILED), cause);
    assertCause(failed(receive(2, 0, 5, memory(8)), Reason.PEER_FAILED), cause);
    assertCause(failed(message(2, 0, 9, memory(0)), Reason.PEER_FAILED), cause);
  }

  private void assertCause(TransportException failure, Throwable cause) {
    assertThat(failure).hasMessageContaining(cause.toString());
    if (sharesCauses()) {
      assertThat(failure).hasCause(cause);
    }
  }

  // --- several threads --------------------------------------------------------------------------

  @Test
  final void atMultipleThreadsMixFreely() throws InterruptedException {
    world(4);
    assumeTrue(ranks.get(0).threadLevel() == ThreadLevel.MULTIPLE, "only at MULTIPLE");
    int rounds = 500;
    CountDownLatch ends = new CountDownLatch(4);
    AtomicReference<@Nullable Throwable> fault = new AtomicReference<>(null);
    for (int rank = 0; rank < 4; rank++) {
      int me = rank;
      Thread.ofPlatform()
          .start(
              () -> {
                try {
                  ring(me, rounds);
                } catch (RuntimeException | Error e) {
                  fault.compareAndSet(null, e);
                } finally {
                  ends.countDown();
                }
              });
    }
    assertThat(ends.await(50, TimeUnit.SECONDS)).isTrue();
    assertThat(fault.get()).isNull();
  }

  private void ring(int me, int rounds) {
    SplittableRandom random = new SplittableRandom(me);
    int next = (me + 1) % 4;
    int before = (me + 3) % 4;
    for (int i = 0; i < rounds; i++) {
      int length = (i * 37) % 5_000;
      boolean receiveFirst = random.nextBoolean();
      Receive receive = new Receive(ROOT, Traffic.DATA, before, i % 3, memory(length));
      if (receiveFirst) {
        ranks.get(me).receive(receive);
      }
      Send send = new Send(ROOT, Traffic.DATA, next, i % 3, bytes(length, i));
      ranks.get(me).send(send);
      if (!receiveFirst) {
        ranks.get(me).receive(receive);
      }
      until(() -> send.isDone() && receive.isDone());
      if (receive.failure != null || receive.place().mismatch(bytes(length, i)) != -1) {
        throw new AssertionError("round " + i + " of rank " + me + " got something else");
      }
    }
  }

  // --- helpers ----------------------------------------------------------------------------------

  private void world(int size) {
    ranks = open(new TransportSettings(size, EAGER_BYTES, EAGER_MESSAGES));
    assertThat(ranks).hasSize(size);
  }

  /** Nothing is kept: every message that comes first waits with its sender. */
  private void worldWithoutRoom(int size) {
    ranks = open(new TransportSettings(size, 0, 0));
  }

  private Send send(int rank, int target, int tag, MemorySegment blob) {
    return post(rank, new Send(ROOT, Traffic.DATA, target, tag, blob));
  }

  private Send post(int rank, Send send) {
    ranks.get(rank).send(send);
    return send;
  }

  private Receive receive(int rank, int source, int tag, MemorySegment... into) {
    return post(rank, new Receive(ROOT, Traffic.DATA, source, tag, into));
  }

  private Receive post(int rank, Receive receive) {
    ranks.get(rank).receive(receive);
    return receive;
  }

  private Message message(
      int rank, int target, int handler, MemorySegment header, MemorySegment... blobs) {
    Message message = new Message(ROOT, target, handler, header, blobs);
    ranks.get(rank).message(message);
    return message;
  }

  private Arrival arrival(Inbox inbox, int index) {
    until(() -> inbox.arrivals.size() > index);
    return inbox.arrivals.get(index);
  }

  private void done(TransportRequests.Probe... requests) {
    for (TransportRequests.Probe request : requests) {
      until(request::isDone);
      assertThat(request.failure()).isNull();
      assertThat(request.ends()).as("a request ends once").isEqualTo(1);
    }
  }

  private TransportException failed(TransportRequests.Probe request, Reason reason) {
    until(request::isDone);
    TransportException failure = request.failure();
    if (failure == null) {
      throw new AssertionError("expected to fail as " + reason + ", but it was done: " + request);
    }
    assertThat(failure.reason()).isEqualTo(reason);
    assertThat(request.ends()).as("a request ends once").isEqualTo(1);
    return failure;
  }

  private void until(BooleanSupplier condition) {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (!condition.getAsBoolean()) {
      pollAll();
      if (System.nanoTime() > deadline) {
        throw new AssertionError("it did not end within 30 s");
      }
      LockSupport.parkNanos(POLL_NANOS);
    }
  }

  private void pollAll() {
    for (Transport rank : ranks) {
      if (rank.caps().progress()) {
        rank.poll();
      }
    }
  }

  static MemorySegment memory(int length) {
    return MemorySegment.ofArray(new byte[length]);
  }

  static MemorySegment bytes(int length, long seed) {
    byte[] bytes = new byte[length];
    new SplittableRandom(seed).nextBytes(bytes);
    return MemorySegment.ofArray(bytes);
  }

  private static final class Inbox implements MessageListener {
    final List<Arrival> arrivals = new ArrayList<>();

    @Override
    public void arrived(Arrival arrival) {
      arrivals.add(arrival);
    }
  }

  private static final class Landing implements Arrival.Landing {
    private boolean landed;
    private @Nullable TransportException failure;

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
