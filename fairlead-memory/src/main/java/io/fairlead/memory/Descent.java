package io.fairlead.memory;

import io.fairlead.task.BriefLock;
import java.util.BitSet;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The way of one image from pinned memory to disk. It may begin while the image is still being
 * made: each piece is written as soon as it has arrived from the device.
 *
 * <pre>
 * ARRIVING --the storage has left the device--> WRITING --all written--> published --> landed, with a file
 *    |                                             \--a write failed----> abandoned --> landed, without
 *    \------it has not--> abandoned, once what is being written has ended ------------> landed, without
 * </pre>
 *
 * The pinned memory is kept until it has landed. Begun and ended by the spiller; goes on where
 * completions are settled; what becomes of it is the spiller's again.
 *
 * <pre>
 * field         | writer                  | reader    | guard
 * handed, left, | spiller; who settles    | same      | lock, a leaf
 * over, failed  | pieces and writes       |           |
 * file          | who settles the publication | spiller | written before it has landed
 * </pre>
 */
final class Descent {
  final Storage storage;
  final HostImage from;
  private final Writing writing;
  private final Consumer<Descent> landed;
  private final BriefLock lock = new BriefLock();

  /** Pieces that were handed to be written. */
  private final BitSet handed = new BitSet();

  /** Writes under way, and one more until it is known whether the storage has left the device. */
  private int left = 1;

  private boolean over;
  private boolean failed;
  private @Nullable DiskImage file;

  /**
   * @param from with a reference for this
   * @param landed told once, on any thread
   */
  Descent(Storage storage, HostImage from, Writing writing, Consumer<Descent> landed) {
    this.storage = storage;
    this.from = from;
    this.writing = writing;
    this.landed = landed;
  }

  /** A piece is there: it is written, unless it was handed over before. Does not wait. */
  void arrived(int piece) {
    lock.lock();
    try {
      if (over || handed.get(piece)) {
        return;
      }
      handed.set(piece);
      left++;
    } finally {
      lock.unlock();
    }
    boolean begun = false;
    try {
      from.writeTo(writing, piece).onDone(written -> ended(written.cause() == null));
      begun = true;
    } finally {
      if (!begun) {
        ended(false);
      }
    }
  }

  /** The storage has left the device, and all of the image is there. Does not wait. */
  void complete() {
    boolean handedOver = false;
    try {
      for (int i = 0; i < from.pieces(); i++) {
        arrived(i);
      }
      handedOver = true;
    } finally {
      ended(handedOver);
    }
  }

  /** There is no such image, after all. */
  void giveUp() {
    ended(false);
  }

  private void ended(boolean well) {
    boolean last;
    boolean publish;
    lock.lock();
    try {
      failed |= !well;
      last = --left == 0;
      over |= last;
      publish = !failed;
    } finally {
      lock.unlock();
    }
    if (last && publish) {
      publish();
    } else if (last) {
      writing.abandon().onDone(_ -> landed.accept(this));
    }
  }

  private void publish() {
    writing
        .publish()
        .onDone(
            published -> {
              if (published.cause() == null) {
                file = published.getNow();
              }
              landed.accept(this);
            });
  }

  /** After it has landed: the storage's image is the file from now on, if all went well. */
  void end(long chunkBytes) {
    DiskImage arrived = file;
    if (arrived != null) {
      FileImage image = new FileImage(arrived, chunkBytes);
      if (storage.replaceImage(from, image)) {
        from.release(); // the storage's
      } else {
        image.release(); // it came back, or was closed
      }
    }
    from.release();
  }
}
