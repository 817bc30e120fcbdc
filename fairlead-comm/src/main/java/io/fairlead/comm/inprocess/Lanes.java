package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.Traffic;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The lanes of a mailbox by (traffic, source, tag). Empty lanes are taken out and used again, so
 * that a steady exchange allocates none and tags used once leave nothing behind. Guarded by the
 * mailbox lock.
 */
final class Lanes {
  private static final int BUCKETS_LEAST = 16;

  /** Unused lanes kept: enough for the tags of one exchange with many peers. */
  private static final int UNUSED_MAX = 256;

  private @Nullable Lane[] buckets = new @Nullable Lane[BUCKETS_LEAST];
  private int count;
  private @Nullable Lane unused;
  private int unusedCount;

  @Nullable Lane find(Traffic traffic, int source, int tag) {
    Lane lane = buckets[bucket(traffic, source, tag)];
    while (lane != null && !lane.is(traffic, source, tag)) {
      lane = lane.next;
    }
    return lane;
  }

  Lane findOrAdd(Traffic traffic, int source, int tag) {
    Lane found = find(traffic, source, tag);
    return found != null ? found : add(traffic, source, tag);
  }

  private Lane add(Traffic traffic, int source, int tag) {
    if (count >= buckets.length) {
      grow();
    }
    Lane lane = unused;
    if (lane == null) {
      lane = new Lane();
    } else {
      unused = lane.next;
      unusedCount--;
    }
    lane.traffic = traffic;
    lane.source = source;
    lane.tag = tag;
    link(lane);
    count++;
    return lane;
  }

  /** Takes the lane out if nothing is left in it. */
  void tidy(Lane lane) {
    if (!lane.isEmpty()) {
      return;
    }
    int bucket = bucket(lane.traffic, lane.source, lane.tag);
    Lane before = null;
    Lane at = buckets[bucket];
    while (at != null && at != lane) {
      before = at;
      at = at.next;
    }
    if (at == null) {
      return;
    }
    if (before == null) {
      buckets[bucket] = lane.next;
    } else {
      before.next = lane.next;
    }
    count--;
    lane.next = null;
    if (unusedCount < UNUSED_MAX) {
      lane.next = unused;
      unused = lane;
      unusedCount++;
    }
  }

  /** Every lane, once; {@code visit} must not add or take out lanes. */
  void forEach(Consumer<Lane> visit) {
    for (Lane first : buckets) {
      for (Lane lane = first; lane != null; lane = lane.next) {
        visit.accept(lane);
      }
    }
  }

  int count() {
    return count;
  }

  private void grow() {
    @Nullable Lane[] old = buckets;
    buckets = new @Nullable Lane[old.length * 2];
    for (Lane first : old) {
      Lane lane = first;
      while (lane != null) {
        Lane following = lane.next;
        link(lane);
        lane = following;
      }
    }
  }

  private void link(Lane lane) {
    int bucket = bucket(lane.traffic, lane.source, lane.tag);
    lane.next = buckets[bucket];
    buckets[bucket] = lane;
  }

  private int bucket(Traffic traffic, int source, int tag) {
    int hash = (tag * 31 + source) * 31 + (traffic == Traffic.DATA ? 0 : 1);
    hash *= 0x9E3779B9;
    return (hash ^ hash >>> 16) & buckets.length - 1;
  }
}
