package io.fairlead.comm;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/**
 * A receive into device buffers, or a mix of them and host memory: the message comes whole to host
 * memory, made when it is there, and is then spread.
 *
 * <p>Nothing is held while the receive waits, so any number of them may. Copies to a device may
 * have to wait for pinned memory, which whoever ends a receive must not; so they are begun by a
 * task of their own.
 */
final class Landed {
  private final CommEngine engine;
  private final Blob[] into;
  private final long bytes;
  private final Completion.Source<Received> source = Completion.source();

  Landed(CommEngine engine, Blob[] into) {
    this.engine = engine;
    this.into = into;
    long sum = 0;
    for (Blob blob : into) {
      sum = Math.addExact(sum, blob.bytes());
    }
    this.bytes = sum;
  }

  Completion<Received> after(Completion<Received> arrival) {
    arrival.onDone(this::arrived);
    source.onCancel(arrival::cancel);
    return source.completion();
  }

  private void arrived(Completion<Received> arrival) {
    Throwable cause = arrival.cause();
    if (cause != null) {
      source.fail(cause);
      return;
    }
    Received received = arrival.getNow();
    if (received.bytes() != bytes) {
      source.fail(mismatch(received));
    } else {
      Thread.ofVirtual().name("fairlead-comm-upload").start(() -> spread(received));
    }
  }

  private void spread(Received received) {
    try {
      List<Completion<Void>> copies =
          engine.tasks.enter("comm-upload", 0, () -> begin(received.data()));
      Completion.all(copies).onDone(all -> end(all, received));
    } catch (RuntimeException | Error failure) {
      source.fail(failure);
    }
  }

  private void end(Completion<List<Void>> all, Received received) {
    Throwable cause = all.cause();
    if (cause != null) {
      source.fail(cause);
    } else {
      source.complete(
          new Received(received.source(), received.tag(), received.bytes(), Received.NO_DATA));
    }
  }

  private List<Completion<Void>> begin(MemorySegment data) {
    List<Completion<Void>> copies = new ArrayList<>();
    long offset = 0;
    for (Blob blob : into) {
      MemorySegment part = data.asSlice(offset, blob.bytes());
      switch (blob) {
        case HostBlob host -> host.segment().copyFrom(part);
        case DeviceBlob device -> copies.add(device.buffer().uploadFrom(part));
        case LentBuffer lent -> throw new AssertionError("refused when the receive was posted");
      }
      offset += blob.bytes();
    }
    return copies;
  }

  private CommException mismatch(Received received) {
    TransportException below =
        new TransportException(
            Reason.SIZE_MISMATCH,
            "the message has "
                + received.bytes()
                + " bytes, the receive has room for exactly "
                + bytes
                + ": make both sides agree",
            null);
    return Failures.of(
        engine.rank(),
        received.source(),
        "receive of " + bytes + " bytes from rank " + received.source() + ", tag " + received.tag(),
        below);
  }
}
