package io.fairlead.memory;

import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Up to where a range was used: its last write, and every read since. Whoever writes it next comes
 * after all of them. Immutable.
 */
final class Frontier {
  /** Nobody uses it any more. */
  static final Frontier NONE = new Frontier(null, List.of());

  final @Nullable Mark write;
  final List<Mark> reads;

  Frontier(@Nullable Mark write, List<Mark> reads) {
    this.write = write;
    this.reads = reads;
  }

  /** What is left of it: uses that are not known to have ended. A memory read for each. */
  Frontier unreached() {
    Mark still = write != null && write.stream().isReached(write) ? null : write;
    List<Mark> stillRead =
        reads.isEmpty()
            ? reads
            : reads.stream().filter(each -> !each.stream().isReached(each)).toList();
    return still == null && stillRead.isEmpty() ? NONE : new Frontier(still, stillRead);
  }

  /** Whether every use is known to have ended; not if the driver no longer knows a stream. */
  boolean isReached() {
    try {
      return unreached() == NONE;
    } catch (DeviceException unknown) {
      return false;
    }
  }

  /** Whether work that {@code stream} is given next comes after all of it anyway. */
  boolean isBefore(DeviceStream stream) {
    try {
      if (write != null && !stream.comesAfter(write)) {
        return false;
      }
      for (Mark read : reads) {
        if (!stream.comesAfter(read)) {
          return false;
        }
      }
      return true;
    } catch (DeviceException unknown) {
      return false;
    }
  }

  int size() {
    return reads.size() + (write == null ? 0 : 1);
  }

  /** One of its uses. */
  Mark mark(int index) {
    return write == null ? reads.get(index) : index == 0 ? write : reads.get(index - 1);
  }

  @Override
  public String toString() {
    return "write " + write + ", reads " + reads;
  }
}
