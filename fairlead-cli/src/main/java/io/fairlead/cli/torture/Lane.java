package io.fairlead.cli.torture;

import io.fairlead.comm.Blob;
import io.fairlead.comm.Comm;
import io.fairlead.comm.Received;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.task.Completion;
import java.util.SplittableRandom;

/**
 * Messages of device buffers from one task to another, on a tag of their own. Both sides draw the
 * sizes and contents from the same seed. What was sent is written over, or closed, at once.
 */
final class Lane {
  private static final int BYTES_SHIFT = 3;
  private static final long WORDS_MAX = 2048;

  private final Round round;
  private final Device device;
  private final TortureKernels kernels;
  private final long seed;
  private final int tag;
  private final int messages;

  Lane(Round round, long seed, int tag, int messages) {
    this.round = round;
    this.device = round.device();
    this.kernels = round.kernels();
    this.seed = seed;
    this.tag = tag;
    this.messages = messages;
  }

  int send(Comm comm) {
    SplittableRandom both = new SplittableRandom(seed);
    for (int i = 0; i < messages; i++) {
      long words = 1 + both.nextLong(WORDS_MAX);
      long base = both.nextLong();
      try (DeviceBuffer buffer = allocate(words)) {
        kernels.write.launch(TortureKernels.each(words), buffer, words, base);
        Completion<?> sent = comm.send(1, tag, null, Blob.of(buffer));
        if (i % 2 == 0) {
          kernels.add.launch(TortureKernels.each(words), buffer, words, 1L);
          buffer.spill();
        }
        if (i % 3 > 0) {
          sent.await();
        }
      }
    }
    return messages;
  }

  int receive(Comm comm) {
    SplittableRandom both = new SplittableRandom(seed);
    for (int i = 0; i < messages; i++) {
      long words = 1 + both.nextLong(WORDS_MAX);
      long base = both.nextLong();
      try (DeviceBuffer buffer = allocate(words)) {
        Completion<Received> received = comm.receiveInto(0, tag, Blob.of(buffer));
        if (i % 2 == 0) {
          buffer.spill();
        }
        received.await();
        long wrong = buffer.download(got -> Content.firstWrong(got, base)).await();
        if (wrong >= 0) {
          throw new TortureFailedException(
              "word " + wrong + " of message " + i + " of tag " + tag + " is not what was sent",
              null);
        }
      }
      round.tally().messages.increment();
    }
    return messages;
  }

  private DeviceBuffer allocate(long words) {
    while (true) {
      try {
        return device.allocate(words << BYTES_SHIFT);
      } catch (OutOfDeviceMemoryException refused) {
        if (!Actor.isOnPurpose(refused)) {
          throw refused;
        }
        round.tally().refused.increment();
      }
    }
  }
}
