package io.fairlead.memory;

/**
 * What the {@link Ladder} says to a task that waits for memory: it gets none where it is. Never
 * seen by users: who waited throws something that they know instead, with the place where it was.
 */
final class Verdict extends RuntimeException {
  private static final long serialVersionUID = 1;

  enum Kind {
    /** Give back what the try has taken, and begin it again once there is room. */
    ROLL_BACK,
    /** The same, but there is nobody to wait for: only less would fit. */
    SPLIT,
    /** Nobody can give way any more. */
    FAIL
  }

  final Kind kind;

  /** Bytes that were asked for when it was told. */
  final long asked;

  /** Bytes that the try is known to need. */
  final long demand;

  /** Bytes that it can have at most, beside what its task keeps outside of it. */
  final long cap;

  /** Who waits for whom. */
  final String graph;

  Verdict(Kind kind, long asked, long demand, long cap, String why, String graph) {
    super(why, null, false, false);
    this.kind = kind;
    this.asked = asked;
    this.demand = demand;
    this.cap = cap;
    this.graph = graph;
  }

  String why() {
    return String.valueOf(getMessage());
  }
}
