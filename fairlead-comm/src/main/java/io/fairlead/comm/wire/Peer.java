package io.fairlead.comm.wire;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.fault.Mutant;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What one rank knows of another: how many packets may still go, what credit is left, and what
 * waits to go.
 *
 * <p><b>Window.</b> At most {@link Wire#packetsPerPeer} packets are on their way, less {@link
 * #ACKS} for acknowledgements, which are not counted. Each packet says how many came the other way;
 * one that says nothing else goes when half the window was used and nobody said so, when half of
 * the credit has come back, or when the peer waits to close.
 *
 * <p>A send in short form says none of that, so it goes in full once {@link #isToTell}.
 *
 * <p><b>Classes.</b> What is sent for a peer's progress (answers, credits, pulls, closing) goes
 * before all data and needs no credit; data leaves a part of the window to it. The receiver always
 * takes every packet off the wire, so the window always opens again.
 *
 * <p><b>Credit</b> is room for messages that nobody has asked for yet, in messages and bytes, given
 * in {@link Hello}. An eighth of it is only for collectives.
 */
final class Peer {
  /**
   * Acknowledgements that may be on their way beside the window: each answers half a window, half a
   * credit of messages or of bytes, and so there are two of each; and one for a close.
   */
  static final int ACKS = 8;

  final int rank;
  private final Rank home;
  private final Wire wire;
  private final int window;
  private final int dataWindow;

  /** By what was sent in full to the peer, and by what came so. */
  final Routes spoken = new Routes();

  final Routes heard = new Routes();

  /** Counts of packets, all of them modulo 2³². */
  private int sent;

  private int acked;
  private int received;
  private int told;
  private boolean ackNow;

  /** The peer's hello has come: there is credit, and it speaks as we do. */
  boolean greeted;

  /** It said that nothing will come any more, and wants to know that we heard. */
  boolean leaving;

  /** Nothing goes to it any more. */
  boolean left;

  /** This rank's last word to it goes once all that waits has gone. */
  private boolean parting;

  /** That has gone, and nothing but acknowledgements follows: the peer may be gone when it came. */
  private boolean parted;

  /** It knows that the world is over. */
  boolean knowsFault;

  private int grantMessages;
  private int grantBytes;
  private int usedMessages;
  private int usedBytes;
  private int returnedMessages;
  private int returnedBytes;

  private final int ownMessages;
  private final int ownBytes;
  private int keptMessages;
  private int keptBytes;
  private int givenMessages;
  private int givenBytes;
  private int toldMessages;
  private int toldBytes;

  /** So much of each is said by a packet of its own, and by the next one whatever it is. */
  private final int ackAt;

  private final int ackMessagesAt;
  private final int ackBytesAt;
  private final int tellAt;
  private final int tellMessagesAt;
  private final int tellBytesAt;

  private @Nullable Control first;
  private @Nullable Control last;
  private long[] done = new long[16];
  private int doneCount;

  /** Sends and messages that are held back, by class; see {@link Departures}. */
  final HeldOps heldCollectives = new HeldOps();

  final HeldOps heldData = new HeldOps();
  final HeldOps heldCopies = new HeldOps();
  final Map<HeldLane.Key, HeldLane> heldLanes = new HashMap<>();
  final Set<HeldLane> unannounced = new LinkedHashSet<>();

  /** Pulls that were not answered yet. */
  final Queue<HeldLane.Key> owed = new ArrayDeque<>();

  /** Whether it is in the list of peers to be flushed. */
  boolean dirty;

  Peer(Rank home, int rank, int ownMessages, int ownBytes) {
    this.home = home;
    this.wire = home.wire;
    this.rank = rank;
    this.window = wire.packetsPerPeer() - ACKS;
    this.dataWindow = window - Math.max(1, window / 8);
    this.ownMessages = ownMessages;
    this.ownBytes = ownBytes;
    this.ackAt = half(window);
    this.ackMessagesAt = half(ownMessages);
    this.ackBytesAt = half(ownBytes);
    this.tellAt = half(ackAt);
    this.tellMessagesAt = half(ackMessagesAt);
    this.tellBytesAt = half(ackBytesAt);
  }

  /** Something at least. */
  private static int half(int all) {
    return Math.max(1, (all + 1) / 2);
  }

  // --- room on the way --------------------------------------------------------------------------

  /** A packet for an answer or the like; null: not now. */
  @Nullable Packet takeForControl() {
    return sent - acked < window ? wire.take() : null;
  }

  /** A packet for data, which goes after all else. */
  @Nullable Packet takeForData() {
    return first == null && sent - acked < dataWindow ? wire.take() : null;
  }

  /** A packet for what the peer has asked for. */
  @Nullable Packet takeForPulled() {
    return first == null ? takeForControl() : null;
  }

  /** Whether all that was sent has been handed over at the peer. */
  boolean isAllAcked() {
    return sent == acked && first == null && doneCount == 0 && parting == parted;
  }

  /** Whether something waits for room on the way. */
  boolean isWaiting() {
    return first != null
        || doneCount > 0
        || parting != parted
        || !heldData.isEmpty()
        || !heldCollectives.isEmpty()
        || !heldCopies.isEmpty()
        || !owed.isEmpty();
  }

  /** Sends a packet whose fields after the first two words are written. */
  void go(Packet packet, Kind kind, int flags, int payload) {
    MemorySegment memory = packet.memory();
    Frame.stamp(memory, kind.number, flags, received);
    Frame.credits(memory, givenMessages, givenBytes);
    told = received;
    toldMessages = givenMessages;
    toldBytes = givenBytes;
    ackNow = false;
    if (kind != Kind.ACK) {
      sent++;
    }
    wire.send(rank, packet, Frame.HEADER + payload);
  }

  /** Sends one in short form, which says nothing of what came. */
  void goShort(Packet packet, int route, int payload) {
    Frame.shorten(packet.memory(), route);
    sent++;
    wire.send(rank, packet, Frame.SHORT_HEADER + payload);
  }

  /**
   * So much has come that the next packet is to say it, whatever it is: half of what an
   * acknowledgement of its own would go for, so that a steady exchange needs none.
   */
  boolean isToTell() {
    return ackNow
        || received - told >= tellAt
        || givenMessages - toldMessages >= tellMessagesAt
        || givenBytes - toldBytes >= tellBytesAt;
  }

  // --- control ----------------------------------------------------------------------------------

  /** Sends at once if there is room and nothing waits; else it waits its turn. */
  void control(Kind kind, int flags, int channel, int tag, long bytes, long id) {
    Packet packet = isOver() || first != null ? null : takeForControl();
    if (packet == null) {
      queue(new Control(kind, flags, channel, tag, bytes, id, null));
    } else {
      fill(packet, kind, flags, channel, tag, bytes, id, null);
    }
  }

  /** The same, for what says why. */
  void words(Kind kind, int tag, long id, String words) {
    queue(new Control(kind, 0, 0, tag, 0, id, words));
    flushControl();
  }

  /** Answers that an operation of the peer's failed. */
  void refuse(long id, TransportException cause) {
    words(Kind.ENDED, Answers.of(cause.reason()), id, Faults.words(cause));
  }

  /** Says, after all that waits, that nothing will come any more. Once. */
  void part() {
    parting = true;
    home.dirty(this);
  }

  /** Whether nothing but acknowledgements goes to it any more. */
  boolean isOver() {
    return left || parted;
  }

  private void queue(Control control) {
    if (isOver()) {
      return;
    }
    home.dirty(this);
    if (last == null) {
      first = control;
    } else {
      last.next = control;
    }
    last = control;
  }

  private void fill(
      Packet packet,
      Kind kind,
      int flags,
      int channel,
      int tag,
      long bytes,
      long id,
      @Nullable String words) {
    Frame.lane(packet.memory(), channel, tag);
    Frame.bytes(packet.memory(), bytes, id);
    int payload = 0;
    if (words != null) {
      payload = Frame.putWords(packet.memory(), words);
    } else if (kind == Kind.HELLO) {
      Hello.write(home, packet.memory());
      payload = Hello.BYTES;
    }
    go(packet, kind, flags, payload);
  }

  /** Answers that a message is over; told to the peer with others. */
  void done(long id) {
    if (isOver()) {
      return;
    }
    if (doneCount == done.length) {
      done = Arrays.copyOf(done, doneCount * 2);
    }
    done[doneCount++] = id;
    home.dirty(this);
  }

  /**
   * Sends what waits, but for data.
   *
   * @return false: something is left, for want of packets or window
   */
  boolean flushControl() {
    while (first != null) {
      Packet packet = takeForControl();
      if (packet == null) {
        return false;
      }
      Control control = first;
      first = control.next;
      if (first == null) {
        last = null;
      }
      fill(
          packet,
          control.kind,
          control.flags,
          control.channel,
          control.tag,
          control.bytes,
          control.id,
          control.words);
    }
    return flushDone() && flushParting();
  }

  private boolean flushParting() {
    if (parting == parted) {
      return true;
    }
    Packet packet = takeForControl();
    if (packet == null) {
      return false;
    }
    fill(packet, Kind.BYE, 0, 0, 0, 0, 0, null);
    parted = true;
    return true;
  }

  private boolean flushDone() {
    int from = 0;
    while (from < doneCount) {
      Packet packet = takeForControl();
      if (packet == null) {
        System.arraycopy(done, from, done, 0, doneCount - from);
        doneCount -= from;
        return false;
      }
      MemorySegment memory = packet.memory();
      int room = (int) (memory.byteSize() - Frame.HEADER) / Long.BYTES;
      int count = Math.min(room, doneCount - from);
      for (int i = 0; i < count; i++) {
        Frame.putLong(memory, Frame.HEADER + (long) i * Long.BYTES, done[from + i]);
      }
      from += count;
      Frame.lane(memory, 0, 0);
      Frame.bytes(memory, count, 0);
      go(packet, Kind.DONE, 0, count * Long.BYTES);
    }
    doneCount = 0;
    return true;
  }

  /** Says what came, if that is due; false: it is, and there is no packet. */
  boolean flushAck() {
    if (!isAckDue() || left) {
      return true;
    }
    Packet packet = wire.take();
    if (packet == null) {
      return false;
    }
    fill(packet, Kind.ACK, 0, 0, 0, 0, 0, null);
    return true;
  }

  boolean isAckDue() {
    return (ackNow && told != received)
        || received - told >= ackAt
        || givenMessages - toldMessages >= ackMessagesAt
        || givenBytes - toldBytes >= ackBytesAt;
  }

  /** Nothing more is wanted of it. */
  boolean isGone() {
    return leaving || left;
  }

  /** The peer waits for an acknowledgement. */
  void ackNow() {
    ackNow = true;
  }

  /** Nothing reaches it any more. */
  void drop() {
    left = true;
    parted = parting;
    first = null;
    last = null;
    doneCount = 0;
    acked = sent;
  }

  // --- what came --------------------------------------------------------------------------------

  /**
   * Takes what each header says.
   *
   * @return false: it cannot be true
   */
  boolean heard(boolean counted, int ack, int messages, int bytes) {
    if (counted) {
      received++;
    }
    int newlyAcked = ack - acked;
    int newMessages = messages - returnedMessages;
    int newBytes = bytes - returnedBytes;
    boolean possible =
        newlyAcked >= 0
            && newlyAcked <= sent - acked
            && newMessages >= 0
            && newMessages <= usedMessages - returnedMessages
            && newBytes >= 0
            && newBytes <= usedBytes - returnedBytes
            && received - told <= window;
    if (possible) {
      acked = ack;
      returnedMessages = messages;
      returnedBytes = bytes;
    }
    return possible;
  }

  /**
   * A packet came in short form.
   *
   * @return false: more came than the window has room for
   */
  boolean heardShort() {
    received++;
    return received - told <= window;
  }

  // --- credit -----------------------------------------------------------------------------------

  void grant(int messages, int bytes) {
    grantMessages = messages;
    grantBytes = bytes;
    greeted = true;
  }

  boolean hasCredit(boolean collective, int bytes) {
    int messages = grantMessages - (usedMessages - returnedMessages);
    int left = grantBytes - (usedBytes - returnedBytes);
    if (Mutant.on("wire.ignores-credit")) {
      return true;
    }
    if (collective) {
      return messages > 0 && left >= bytes;
    }
    return messages > grantMessages / 8 && left - grantBytes / 8 >= bytes;
  }

  void useCredit(int bytes) {
    usedMessages++;
    usedBytes += bytes;
  }

  void unuseCredit(int bytes) {
    usedMessages--;
    usedBytes -= bytes;
  }

  /** A message with credit is kept here; false: the peer had none to use. */
  boolean keep(int bytes) {
    keptMessages++;
    keptBytes += bytes;
    return keptMessages <= ownMessages && keptBytes <= ownBytes;
  }

  /** It is not kept any more: the peer may send others. */
  void giveCredit(int bytes) {
    keptMessages--;
    keptBytes -= bytes;
    if (Mutant.on("wire.keeps-credit")) {
      return;
    }
    givenMessages++;
    givenBytes += bytes;
  }

  /** Messages to the peer whose credit has not come back. */
  int creditOut() {
    return usedMessages - returnedMessages;
  }

  @Override
  public String toString() {
    return "to "
        + rank
        + ": "
        + (sent - acked)
        + " packets on their way, "
        + (usedMessages - returnedMessages)
        + " of "
        + grantMessages
        + " messages and "
        + (usedBytes - returnedBytes)
        + " of "
        + grantBytes
        + " bytes of credit used, held "
        + heldLanes.keySet();
  }
}
