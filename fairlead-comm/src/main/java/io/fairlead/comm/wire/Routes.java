package io.fairlead.comm.wire;

import java.util.Arrays;

/**
 * Which routes, of channel and tag, short sends of one rank to another have gone by, so that the
 * next one need only name the place: {@link Frame}, short form.
 *
 * <p>Each rank keeps one table of what it has spoken to a peer, and one of what the peer has spoken
 * to it. A place belongs to the last route that was spoken in full and has this number. Packets
 * come in the order sent, so at each packet both ranks' tables are the same. There are {@link
 * #COUNT} places, whatever is sent.
 */
final class Routes {
  /** A byte's worth. */
  static final int COUNT = 256;

  /** Of a place that nobody has spoken for: no tag is negative. */
  static final long NONE = -1;

  private static final long[] NOTHING_SPOKEN = new long[COUNT];

  static {
    Arrays.fill(NOTHING_SPOKEN, NONE);
  }

  /** Shared until something is spoken: most pairs of ranks never speak. */
  private long[] lanes = NOTHING_SPOKEN;

  private boolean shared = true;

  /**
   * The place of a route, the same on all ranks. Neighbouring tags, and neighbouring channels with
   * few tags each, have places of their own.
   *
   * @param lane as by {@link Frame#lane(int, int)}
   */
  static int number(long lane) {
    return ((int) (lane >>> 32) + 37 * (int) lane) & COUNT - 1;
  }

  /** Whether a place is this route's. */
  boolean has(int number, long lane) {
    return lanes[number] == lane;
  }

  /** The route of a place; {@link #NONE}: nobody spoke. */
  long lane(int number) {
    return lanes[number];
  }

  /** A route was spoken in full. */
  void speak(long lane) {
    if (shared) {
      lanes = NOTHING_SPOKEN.clone();
      shared = false;
    }
    lanes[number(lane)] = lane;
  }
}
