package io.fairlead.solver.internal.device;

/** Where the scalars of an iteration lie in their device buffer. */
final class Slots {
  private Slots() {}

  /** Always 1, so that a kernel can take a factor from the host alone. */
  static final int ONE = 0;

  /** {@code p·q}, {@code r·q}, {@code q·q}, next to each other. */
  static final int PQ = 1;

  static final int RQ = 2;
  static final int QQ = 3;

  /** {@code r·r} and the {@code r·z} that follows it, next to each other. */
  static final int RR = 4;

  static final int NEXT_RZ = 5;

  /** The {@code r·z} of the direction in use. */
  static final int RZ = 6;

  static final int ALPHA = 7;
  static final int BETA = 8;

  /** The {@code r·r} that the step in progress leads to. */
  static final int PREDICTED = 9;

  static final int COUNT = 16;
}
