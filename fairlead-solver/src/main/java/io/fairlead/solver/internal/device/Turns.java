package io.fairlead.solver.internal.device;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.task.Completion;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Lets runs that were admitted by their reservation get their memory although the device's free
 * space is in pieces that are too small: such a run waits until another has given its memory back.
 * It holds nothing meanwhile, so runs cannot wait for each other in a circle.
 *
 * <p>Threads: any. All state is one immutable value that is replaced by compare-and-set.
 */
final class Turns {
  /**
   * What there is to wait for.
   *
   * @param holders runs that hold memory
   * @param nextEnd is done when the next of them has closed it
   */
  private record State(int holders, Completion.Source<@Nullable Void> nextEnd) {
    State joined() {
      return new State(holders + 1, nextEnd);
    }

    State left() {
      return new State(holders - 1, Completion.source());
    }
  }

  private final AtomicReference<State> state =
      new AtomicReference<>(new State(0, Completion.source()));

  /**
   * Runs {@code attempt} until it succeeds, waiting for other runs' ends in between.
   *
   * @throws OutOfDeviceMemoryException if no other run holds memory that it could wait for
   */
  List<DeviceBuffer> allocate(Supplier<List<DeviceBuffer>> attempt) {
    while (true) {
      State before = state.get();
      try {
        List<DeviceBuffer> memory = attempt.get();
        state.updateAndGet(State::joined);
        return memory;
      } catch (OutOfDeviceMemoryException refused) {
        awaitAnEnd(before, refused);
      }
    }
  }

  /** Returns when a run has ended since {@code before}. */
  private void awaitAnEnd(State before, OutOfDeviceMemoryException refused) {
    State now = state.get();
    if (now.nextEnd() != before.nextEnd()) {
      return;
    }
    if (now.holders() == 0) {
      throw refused;
    }
    before.nextEnd().completion().await();
  }

  /** A run has closed its memory. */
  void ended() {
    state.getAndUpdate(State::left).nextEnd().complete(null);
  }
}
