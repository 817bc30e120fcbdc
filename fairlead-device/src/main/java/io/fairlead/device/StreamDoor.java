package io.fairlead.device;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * Lets calls on a stream that are made without its turn in, except while it is captured: recorded
 * then, an event would become part of the graph, and a wait inside the driver would end the
 * capture.
 *
 * <pre>
 *   OPEN --close(), nobody waits inside--> SHUT --open()--> OPEN
 * </pre>
 *
 * <pre>
 * field | writer | reader | mode, guard
 * state | any    | any    | atomic: the top bit is "shut", then the calls that wait inside the
 *       |        |        | driver (16 bits), then those that do not (15)
 * </pre>
 */
final class StreamDoor {
  private static final int SHUT = Integer.MIN_VALUE;
  private static final int WAITING = 1 << 15;
  private static final int BRIEF_MASK = WAITING - 1;

  private static final VarHandle STATE;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(StreamDoor.class, "state", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private volatile int state;

  /** For one short call; then {@link #leave}. False if the door is shut. */
  boolean enter() {
    return come(1);
  }

  void leave() {
    STATE.getAndAdd(this, -1);
  }

  /** For a call that waits inside the driver; then {@link #leaveAwake}. False if it is shut. */
  boolean enterToWait() {
    return come(WAITING);
  }

  void leaveAwake() {
    STATE.getAndAdd(this, -WAITING);
  }

  private boolean come(int what) {
    int seen;
    do {
      seen = state;
      if (seen < 0) {
        return false;
      }
    } while (!STATE.compareAndSet(this, seen, seen + what));
    return true;
  }

  /**
   * Shuts the door, and waits for the short calls that are inside. One caller at a time.
   *
   * @return false, and it is open, if somebody waits inside the driver
   */
  boolean close() {
    STATE.getAndBitwiseOr(this, SHUT);
    if ((state & ~SHUT) >= WAITING) {
      open();
      return false;
    }
    while ((state & BRIEF_MASK) != 0) {
      Thread.onSpinWait();
    }
    return true;
  }

  void open() {
    STATE.getAndBitwiseAnd(this, ~SHUT);
  }
}
