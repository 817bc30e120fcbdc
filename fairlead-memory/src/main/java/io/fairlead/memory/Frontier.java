package io.fairlead.memory;

import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.task.Completion;
import java.util.ArrayList;
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
    Mark still = write != null && isReached(write) ? null : write;
    List<Mark> stillRead = unreached(reads);
    return still == null && stillRead.isEmpty() ? NONE : new Frontier(still, stillRead);
  }

  private static List<Mark> unreached(List<Mark> reads) {
    List<Mark> left = List.of(); // mostly all have ended: nothing is made then
    for (Mark read : reads) {
      if (!isOver(read) && !isReached(read)) {
        if (left.isEmpty()) {
          left = new ArrayList<>(reads.size());
        }
        left.add(read);
      }
    }
    return left;
  }

  /**
   * What two ranges that become one were used for, and up to where on each stream. A write of
   * either may stand among the reads: whoever writes next comes after both, and whoever reads first
   * reads what nobody has said.
   */
  static Frontier join(Frontier one, Frontier other) {
    if (one == NONE || other == NONE) {
      return one == NONE ? other : one;
    }
    Mark write = one.write == null ? other.write : one.write;
    List<Mark> reads = new ArrayList<>(one.size() + other.size());
    for (Frontier each : List.of(one, other)) {
      for (int i = 0; i < each.size(); i++) {
        Mark mark = each.mark(i);
        if (write != null && write.stream() == mark.stream()) {
          write = later(write, mark);
        } else {
          addLatest(reads, mark);
        }
      }
    }
    return new Frontier(write, reads);
  }

  private static void addLatest(List<Mark> marks, Mark mark) {
    for (int i = 0; i < marks.size(); i++) {
      Mark known = marks.get(i);
      if (known.stream() == mark.stream()) {
        marks.set(i, later(known, mark));
        return;
      }
    }
    marks.add(mark);
  }

  private static Mark later(Mark one, Mark other) {
    return one.sequence() >= other.sequence() ? one : other;
  }

  /** As {@link #unreached}; all of it if the driver no longer knows a stream. */
  Frontier left() {
    try {
      return unreached();
    } catch (DeviceException unknown) {
      return this;
    }
  }

  /**
   * Whether the reader, which may be another device than the memory's, is lost: it brings nobody
   * anything any more, and cannot be waited for.
   */
  static boolean isOver(Mark read) {
    return read.stream().context().isLost();
  }

  /** The end of one use; failed also if the driver no longer knows the stream. */
  static Completion<Void> endOf(Mark mark) {
    try {
      return mark.stream().reached(mark);
    } catch (DeviceException unknown) {
      return Completion.failed(unknown);
    }
  }

  private static boolean isReached(Mark mark) {
    return mark.stream().isReached(mark);
  }

  /** The same, and false of a stream that the driver no longer knows: who waits is told why. */
  static boolean isReachedIfKnown(Mark mark) {
    try {
      return isReached(mark);
    } catch (DeviceException unknown) {
      return false;
    }
  }

  /** Whether every use is known to have ended; not if the driver no longer knows a stream. */
  boolean isReached() {
    return left() == NONE;
  }

  /** Whether work that {@code stream} is given next comes after all of it anyway. */
  boolean isBefore(DeviceStream stream) {
    try {
      if (write != null && !stream.comesAfter(write)) {
        return false;
      }
      for (Mark read : reads) {
        if (!isOver(read) && !stream.comesAfter(read)) {
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
