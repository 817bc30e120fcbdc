package io.fairlead.comm.wire;

import io.fairlead.comm.spi.CopyRequest;
import io.fairlead.comm.spi.TransportException;
import java.lang.foreign.MemorySegment;
import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * One-sided copies. Short ones go with the packet that asks, or with the one that answers; longer
 * ones are offered and taken like messages. They need no credit: what comes has its place.
 */
final class Copies {
  /** Key and offset. */
  private static final int WHERE = 2 * Long.BYTES;

  private final Rank rank;
  private final Map<Long, MemorySegment> exposed = new HashMap<>();
  private long keys;

  Copies(Rank rank) {
    this.rank = rank;
  }

  // --- exposed memory ---------------------------------------------------------------------------

  long expose(MemorySegment segment) {
    long key = ++keys;
    exposed.put(key, segment);
    return key;
  }

  void conceal(long key) {
    exposed.remove(key);
  }

  void concealAll() {
    exposed.clear();
  }

  /** The part of what is exposed; else its failure is in {@link #refusal}. */
  private @Nullable MemorySegment part(long key, long offset, long bytes) {
    MemorySegment segment = exposed.get(key);
    if (segment == null || bytes < 0 || offset < 0 || offset > segment.byteSize() - bytes) {
      return null;
    }
    return segment.asSlice(offset, bytes);
  }

  private String refusal(long key, long offset, long bytes) {
    MemorySegment segment = exposed.get(key);
    return segment == null
        ? "rank "
            + rank.number
            + " exposes nothing as "
            + key
            + ": send the key of a window of its that is open"
        : bytes
            + " bytes at offset "
            + offset
            + " are not within the "
            + segment.byteSize()
            + " bytes that rank "
            + rank.number
            + " exposed";
  }

  // --- asking -----------------------------------------------------------------------------------

  void put(CopyRequest request, Peer peer) {
    submit(CopyOp.of(CopyOp.Task.PUT, peer, request));
  }

  void get(CopyRequest request, Peer peer) {
    submit(CopyOp.of(CopyOp.Task.GET, peer, request));
  }

  private void submit(CopyOp op) {
    HeldOps held = op.peer.heldCopies;
    if (!held.isEmpty() || !tryGo(op)) {
      held.add(op);
      rank.dirty(op.peer);
    }
  }

  /** Sends what waited for room; false: some still does. */
  boolean flush(Peer peer) {
    Op op;
    while ((op = peer.heldCopies.first) != null) {
      peer.heldCopies.remove(op);
      if (!tryGo((CopyOp) op)) {
        peer.heldCopies.addFirst(op);
        return false;
      }
    }
    return true;
  }

  private boolean tryGo(CopyOp op) {
    Packet packet = op.peer.takeForData();
    if (packet == null) {
      return false;
    }
    switch (op.task) {
      case PUT -> goPut(op, packet);
      case GET -> goGet(op, packet);
      case SERVE -> goServe(op, packet);
    }
    return true;
  }

  private void goPut(CopyOp op, Packet packet) {
    MemorySegment memory = packet.memory();
    boolean whole = op.bytes() <= rank.payloadMax - WHERE;
    if (whole) {
      try {
        MemorySegment.copy(op.memory(), 0, memory, Frame.HEADER + WHERE, op.bytes());
      } catch (RuntimeException e) {
        rank.wire.give(packet);
        rank.departures().finish(op, Faults.unreachable(rank.number, op.peer.rank, e));
        return;
      }
    }
    op.id = rank.ops.add(op);
    op.state = whole ? Op.State.WAITING : Op.State.OFFERED;
    writeWhere(op, memory);
    int flags = op.memory().isNative() ? 0 : Frame.STAGED;
    int payload = whole ? WHERE + (int) op.bytes() : WHERE;
    op.peer.go(packet, whole ? Kind.PUT : Kind.PUT_OFFER, flags, payload);
  }

  private void goGet(CopyOp op, Packet packet) {
    op.id = rank.ops.add(op);
    op.state = Op.State.WAITING;
    writeWhere(op, packet.memory());
    op.peer.go(packet, Kind.GET, 0, WHERE);
  }

  private static void writeWhere(CopyOp op, MemorySegment memory) {
    CopyRequest request = (CopyRequest) op.request;
    if (request == null) {
      throw new AssertionError("a copy that nobody asked for");
    }
    Frame.lane(memory, op.channel, 0);
    Frame.bytes(memory, op.bytes(), op.id);
    Frame.putLong(memory, Frame.HEADER, request.key());
    Frame.putLong(memory, Frame.HEADER + Long.BYTES, request.offset());
  }

  private void goServe(CopyOp op, Packet packet) {
    MemorySegment memory = packet.memory();
    Frame.lane(memory, 0, 0);
    if (op.bytes() > rank.payloadMax) {
      op.id = rank.ops.add(op);
      op.state = Op.State.OFFERED;
      Frame.bytes(memory, op.bytes(), op.id);
      Frame.putLong(memory, Frame.HEADER, op.asked);
      int flags = op.memory().isNative() ? 0 : Frame.STAGED;
      op.peer.go(packet, Kind.GET_OFFER, flags, Long.BYTES);
      return;
    }
    try {
      MemorySegment.copy(op.memory(), 0, memory, Frame.HEADER, op.bytes());
    } catch (RuntimeException e) {
      rank.wire.give(packet);
      op.peer.refuse(op.asked, Faults.unreachable(rank.number, op.peer.rank, e));
      return;
    }
    Frame.bytes(memory, op.bytes(), op.asked);
    op.peer.go(packet, Kind.GOT, 0, (int) op.bytes());
  }

  // --- asked ------------------------------------------------------------------------------------

  /** PUT, PUT_OFFER and GET. */
  void asked(Peer peer, Kind kind, MemorySegment packet, int flags, int payload) {
    long bytes = Frame.bytes(packet);
    long id = Frame.id(packet);
    boolean whole = kind == Kind.PUT;
    if (payload < WHERE || bytes < 0 || (whole && bytes != payload - WHERE)) {
      rank.lie(peer, "a copy of " + bytes + " bytes in " + payload);
      return;
    }
    long key = Frame.getLong(packet, Frame.HEADER);
    long offset = Frame.getLong(packet, Frame.HEADER + Long.BYTES);
    MemorySegment part = part(key, offset, bytes);
    if (part == null) {
      peer.refuse(id, Faults.memory(refusal(key, offset, bytes)));
    } else if (kind == Kind.GET) {
      submit(CopyOp.serve(peer, id, part));
    } else if (whole) {
      putHere(peer, id, packet, part);
    } else {
      landPut(peer, id, part, (flags & Frame.STAGED) != 0);
    }
  }

  private void putHere(Peer peer, long id, MemorySegment packet, MemorySegment part) {
    try {
      MemorySegment.copy(packet, Frame.HEADER + WHERE, part, 0, part.byteSize());
    } catch (RuntimeException e) {
      peer.refuse(id, Faults.unreachable(peer.rank, rank.number, e));
      return;
    }
    peer.done(id);
  }

  private void landPut(Peer peer, long id, MemorySegment part, boolean staged) {
    MemorySegment[] into = {part};
    if (!Cursor.reachable(into, true)) {
      peer.refuse(id, Faults.unreachable(peer.rank, rank.number, null));
    } else if (part.byteSize() == 0) {
      rank.lie(peer, "an offer to put nothing");
    } else {
      rank.landings().add(new PutLanding(peer, id, into, staged));
    }
  }

  // --- answered ---------------------------------------------------------------------------------

  /** What a get asked for came with the answer. */
  void got(Peer peer, MemorySegment packet, int payload) {
    CopyOp op = waitingGet(peer, Frame.id(packet), Frame.bytes(packet));
    if (op == null || payload != op.bytes()) {
      rank.lie(peer, "an answer to a get that was not asked, " + payload + " bytes");
      return;
    }
    TransportException fault = null;
    try {
      MemorySegment.copy(packet, Frame.HEADER, op.memory(), 0, payload);
    } catch (RuntimeException e) {
      fault = Faults.unreachable(peer.rank, rank.number, e);
    }
    rank.departures().finish(op, fault);
  }

  /** What a get asked for can be taken. */
  void getOffer(Peer peer, MemorySegment packet, int flags, int payload) {
    long asked = payload < Long.BYTES ? -1 : Frame.getLong(packet, Frame.HEADER);
    CopyOp op = waitingGet(peer, asked, Frame.bytes(packet));
    if (op == null || op.bytes() == 0) {
      rank.lie(peer, "an offer for a get that was not asked");
      return;
    }
    long offer = Frame.id(packet);
    MemorySegment[] into = {op.memory()};
    if (Cursor.reachable(into, true)) {
      boolean staged = (flags & Frame.STAGED) != 0;
      rank.landings().add(new GetLanding(op, offer, into, staged));
    } else {
      TransportException cause = Faults.unreachable(peer.rank, rank.number, null);
      peer.refuse(offer, cause);
      rank.departures().finish(op, cause);
    }
  }

  private @Nullable CopyOp waitingGet(Peer peer, long id, long bytes) {
    Op op = rank.ops.find(id, peer);
    boolean get =
        op instanceof CopyOp copy
            && copy.task == CopyOp.Task.GET
            && copy.state == Op.State.WAITING
            && copy.bytes() == bytes;
    return get ? (CopyOp) op : null;
  }

  // --- transfers --------------------------------------------------------------------------------

  private final class PutLanding extends Inbound {
    private final long id;

    PutLanding(Peer peer, long id, MemorySegment[] into, boolean staged) {
      super(
          Copies.this.rank,
          peer,
          Copies.this.rank.channel(0),
          id,
          new long[] {into[0].byteSize()},
          into,
          staged);
      this.id = id;
    }

    @Override
    void landed() {
      peer.done(id);
    }

    @Override
    void nothing() {
      // A put is not taken back; a rank that says so has told its own task.
    }

    @Override
    void broken(TransportException cause) {
      if (!isShort()) {
        peer.refuse(id, cause);
      }
    }
  }

  private final class GetLanding extends Inbound {
    private final CopyOp op;

    GetLanding(CopyOp op, long offer, MemorySegment[] into, boolean staged) {
      super(
          Copies.this.rank,
          op.peer,
          Copies.this.rank.channel(op.channel),
          offer,
          new long[] {op.bytes()},
          into,
          staged);
      this.op = op;
    }

    @Override
    void landed() {
      rank.departures().finish(op, null);
    }

    @Override
    void nothing() {
      rank.departures().finish(op, Faults.memory("rank " + peer.rank + " gave nothing"));
    }

    @Override
    void broken(TransportException cause) {
      rank.departures().finish(op, cause);
    }
  }
}
