package io.fairlead.comm;

/** How {@link Comm#allReduce} combines two values. Applied in rank order: ((r0 op r1) op r2) … */
public enum ReduceOp {
  /** Adds; not rearranged, so the rounding is the same on every rank and in every run. */
  SUM {
    @Override
    void combine(double[] into, double[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] += with[from + i];
      }
    }

    @Override
    void combine(float[] into, float[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] += with[from + i];
      }
    }

    @Override
    void combine(long[] into, long[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] += with[from + i];
      }
    }

    @Override
    void combine(int[] into, int[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] += with[from + i];
      }
    }
  },
  /** As {@link Math#max(double, double)}: NaN wins. */
  MAX {
    @Override
    void combine(double[] into, double[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] = Math.max(into[i], with[from + i]);
      }
    }

    @Override
    void combine(float[] into, float[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] = Math.max(into[i], with[from + i]);
      }
    }

    @Override
    void combine(long[] into, long[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] = Math.max(into[i], with[from + i]);
      }
    }

    @Override
    void combine(int[] into, int[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] = Math.max(into[i], with[from + i]);
      }
    }
  },
  /** As {@link Math#min(double, double)}: NaN wins. */
  MIN {
    @Override
    void combine(double[] into, double[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] = Math.min(into[i], with[from + i]);
      }
    }

    @Override
    void combine(float[] into, float[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] = Math.min(into[i], with[from + i]);
      }
    }

    @Override
    void combine(long[] into, long[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] = Math.min(into[i], with[from + i]);
      }
    }

    @Override
    void combine(int[] into, int[] with, int from, int count) {
      for (int i = 0; i < count; i++) {
        into[i] = Math.min(into[i], with[from + i]);
      }
    }
  };

  /** The first {@code count} of {@code into} op= those of {@code with} at {@code from}. */
  abstract void combine(double[] into, double[] with, int from, int count);

  abstract void combine(float[] into, float[] with, int from, int count);

  abstract void combine(long[] into, long[] with, int from, int count);

  abstract void combine(int[] into, int[] with, int from, int count);
}
