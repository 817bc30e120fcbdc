package io.fairlead.comm;

import io.fairlead.comm.spi.Segments;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The blobs of one send as the transport sees them: one host segment each.
 *
 * <p>Device buffers are staged: their copies to host memory are enqueued here, on the calling
 * task's stream, and the send waits for them. Staging comes from the lent buffers while there are
 * any and from the heap otherwise; waiting for some here would let ranks that send to each other
 * starve. It is not pinned: a send ends when its receiver wants it, and nobody may hold pinned
 * blocks that long. The copies pass through pinned blocks, which they give back on their own.
 *
 * <p>Written by the submitting thread; read by whoever ends the send.
 */
final class Parcel {
  /** Of all messages that are a header alone. Nothing is ever written to it. */
  private static final Parcel EMPTY = new Parcel(0);

  private final MemorySegment[] segments;

  /** What goes back to the lender at the end. A list of its own once there is any. */
  private List<LentBuffer> lent = List.of();

  /** Copies from devices that may still write to staging. Likewise. */
  private List<Completion<?>> copies = List.of();

  /** What stands for several gates; null if there is one at most. */
  private @Nullable Completion<?> combined;

  private Parcel(int blobs) {
    this.segments = new MemorySegment[blobs];
  }

  /** Takes over lent buffers and starts copies; if one cannot be, the others are let go. */
  static Parcel of(CommEngine engine, Blob[] blobs) {
    if (blobs.length == 0) {
      return EMPTY;
    }
    Parcel parcel = new Parcel(blobs.length);
    boolean complete = false;
    try {
      // All that can be refused comes first, so that no copy is begun in vain.
      for (int i = 0; i < blobs.length; i++) {
        parcel.segments[i] = parcel.segment(engine, blobs[i]);
      }
      for (int i = 0; i < blobs.length; i++) {
        if (blobs[i] instanceof DeviceBlob device) {
          parcel.copies = with(parcel.copies, device.buffer().downloadTo(parcel.segments[i]));
        }
      }
      complete = true;
    } finally {
      if (!complete) {
        parcel.giveBack();
      }
    }
    return parcel;
  }

  private MemorySegment segment(CommEngine engine, Blob blob) {
    return switch (Objects.requireNonNull(blob, "blob")) {
      case HostBlob host -> host.segment();
      case LentBuffer buffer -> {
        MemorySegment segment = buffer.send(engine.lender);
        lent = with(lent, buffer);
        yield segment;
      }
      case DeviceBlob device -> staging(engine, device.bytes());
    };
  }

  /** Most have none, and a list of none need not be made for each message. */
  private static <T> List<T> with(List<T> some, T one) {
    List<T> more = some.isEmpty() ? new ArrayList<>(1) : some;
    more.add(one);
    return more;
  }

  private MemorySegment staging(CommEngine engine, long bytes) {
    LentBuffer buffer = engine.lender.tryStage(bytes);
    if (buffer == null) {
      return Segments.allocate(bytes);
    }
    lent = with(lent, buffer);
    return buffer.send(engine.lender);
  }

  MemorySegment[] segments() {
    return segments;
  }

  /** What the send has to wait for: {@code after}, the copies, both, or null for nothing. */
  @Nullable Completion<?> gate(@Nullable Completion<?> after) {
    if (copies.isEmpty()) {
      return after;
    }
    if (after == null && copies.size() == 1) {
      return copies.getFirst();
    }
    List<Completion<?>> parts = new ArrayList<>(copies);
    if (after != null) {
      parts.add(after);
    }
    Completion<?> made = all(parts);
    combined = made;
    return made;
  }

  /** The send has ended: what was lent goes back as soon as no copy writes to it any more. */
  void giveBack() {
    Completion<?> gates = combined;
    if (gates != null) {
      gates.cancel(); // if one of them never opens, this would hang on it for ever
    }
    if (lent.isEmpty()) {
      return;
    }
    if (copies.isEmpty()) {
      lent.forEach(LentBuffer::ended);
    } else {
      all(copies).onDone(settled -> lent.forEach(LentBuffer::ended));
    }
  }

  @SuppressWarnings("unchecked") // the values are never looked at
  private static Completion<?> all(List<Completion<?>> parts) {
    List<Completion<Object>> objects = new ArrayList<>(parts.size());
    parts.forEach(part -> objects.add((Completion<Object>) part));
    return Completion.all(objects);
  }
}
