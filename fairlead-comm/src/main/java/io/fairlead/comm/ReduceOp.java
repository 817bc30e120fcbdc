package io.fairlead.comm;

/** How {@link Comm#allReduce} combines two values. Applied in rank order: ((r0 op r1) op r2) … */
public enum ReduceOp {
  /** Adds; not rearranged, so the rounding is the same on every rank and in every run. */
  SUM {
    @Override
    void combine(double[] into, int at, double[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[at + i] += with[from + i];
      }
    }
  },
  /** As {@link Math#max(double, double)}: NaN wins. */
  MAX {
    @Override
    void combine(double[] into, int at, double[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[at + i] = Math.max(into[at + i], with[from + i]);
      }
    }
  },
  /** As {@link Math#min(double, double)}: NaN wins. */
  MIN {
    @Override
    void combine(double[] into, int at, double[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[at + i] = Math.min(into[at + i], with[from + i]);
      }
    }
  };

  /** {@code into} op= {@code with}, element by element. */
  abstract void combine(double[] into, int at, double[] with, int from, int count);
}
