package io.fairlead.comm.wire;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The lanes of a rank. Empty ones are taken out and used again, so that a steady exchange allocates
 * none and tags used once leave nothing behind. The one that was emptied last stays until another
 * one is: the next message often goes by it.
 */
final class Lanes {
  private static final int BUCKETS_LEAST = 64;

  /** Unused lanes kept: enough for the tags of one exchange with many peers. */
  private static final int UNUSED_MAX = 256;

  private @Nullable Lane[] buckets = new @Nullable Lane[BUCKETS_LEAST];
  private int count;
  private @Nullable Lane unused;
  private int unusedCount;

  /** Emptied last; may have been filled again. */
  private @Nullable Lane resting;

  @Nullable Lane find(int channel, int kind, int source, int tag) {
    Lane lane = buckets[bucket(channel, kind, source, tag)];
    while (lane != null && !lane.is(channel, kind, source, tag)) {
      lane = lane.next;
    }
    return lane;
  }

  Lane findOrAdd(int channel, int kind, int source, int tag) {
    Lane found = find(channel, kind, source, tag);
    return found != null ? found : add(channel, kind, source, tag);
  }

  private Lane add(int channel, int kind, int source, int tag) {
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
    lane.channel = channel;
    lane.kind = kind;
    lane.source = source;
    lane.tag = tag;
    link(lane);
    lane.linked = true;
    count++;
    return lane;
  }

  /** Takes the lane out if nothing is left in it, now or once another one is empty. */
  void tidy(Lane lane) {
    Lane before = resting;
    if (lane == before || !lane.linked || !lane.isEmpty()) {
      return;
    }
    resting = lane;
    if (before != null && before.isEmpty()) {
      takeOut(before);
    }
  }

  private void takeOut(Lane lane) {
    int bucket = bucket(lane.channel, lane.kind, lane.source, lane.tag);
    Lane before = null;
    Lane at = buckets[bucket];
    while (at != null && at != lane) {
      before = at;
      at = at.next;
    }
    if (before == null) {
      buckets[bucket] = lane.next;
    } else {
      before.next = lane.next;
    }
    count--;
    lane.linked = false;
    lane.next = null;
    if (unusedCount < UNUSED_MAX) {
      lane.next = unused;
      unused = lane;
      unusedCount++;
    }
  }

  /** All lanes of a channel, as they are now. */
  List<Lane> of(int channel) {
    List<Lane> found = new ArrayList<>();
    for (Lane first : buckets) {
      for (Lane lane = first; lane != null; lane = lane.next) {
        if (lane.channel == channel) {
          found.add(lane);
        }
      }
    }
    return found;
  }

  /** How many are in use. */
  int count() {
    Lane last = resting;
    return last != null && last.isEmpty() ? count - 1 : count;
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
    int bucket = bucket(lane.channel, lane.kind, lane.source, lane.tag);
    lane.next = buckets[bucket];
    buckets[bucket] = lane;
  }

  private int bucket(int channel, int kind, int source, int tag) {
    int hash = ((tag * 31 + source) * 31 + channel) * 31 + kind;
    hash *= 0x9E3779B9;
    return (hash ^ hash >>> 16) & buckets.length - 1;
  }
}
