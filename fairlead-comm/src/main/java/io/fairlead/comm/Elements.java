package io.fairlead.comm;

import java.lang.foreign.MemorySegment;

/**
 * What {@link Reduction} has to know about the kind of its values, which lie in an array.
 *
 * @param <A> the type of the array
 */
abstract class Elements<A> {
  static final double[] NONE = {};

  static final Elements<double[]> DOUBLES =
      new Elements<>(Double.BYTES) {
        @Override
        int length(double[] values) {
          return values.length;
        }

        @Override
        double[] make(int length) {
          return new double[length];
        }

        @Override
        MemorySegment segment(double[] values) {
          return MemorySegment.ofArray(values);
        }

        @Override
        void combine(ReduceOp op, double[] into, double[] with, int from, int count) {
          op.combine(into, with, from, count);
        }
      };

  static final Elements<float[]> FLOATS =
      new Elements<>(Float.BYTES) {
        @Override
        int length(float[] values) {
          return values.length;
        }

        @Override
        float[] make(int length) {
          return new float[length];
        }

        @Override
        MemorySegment segment(float[] values) {
          return MemorySegment.ofArray(values);
        }

        @Override
        void combine(ReduceOp op, float[] into, float[] with, int from, int count) {
          op.combine(into, with, from, count);
        }
      };

  static final Elements<long[]> LONGS =
      new Elements<>(Long.BYTES) {
        @Override
        int length(long[] values) {
          return values.length;
        }

        @Override
        long[] make(int length) {
          return new long[length];
        }

        @Override
        MemorySegment segment(long[] values) {
          return MemorySegment.ofArray(values);
        }

        @Override
        void combine(ReduceOp op, long[] into, long[] with, int from, int count) {
          op.combine(into, with, from, count);
        }
      };

  static final Elements<int[]> INTS =
      new Elements<>(Integer.BYTES) {
        @Override
        int length(int[] values) {
          return values.length;
        }

        @Override
        int[] make(int length) {
          return new int[length];
        }

        @Override
        MemorySegment segment(int[] values) {
          return MemorySegment.ofArray(values);
        }

        @Override
        void combine(ReduceOp op, int[] into, int[] with, int from, int count) {
          op.combine(into, with, from, count);
        }
      };

  /** Of one value. */
  final int bytes;

  private Elements(int bytes) {
    this.bytes = bytes;
  }

  abstract int length(A values);

  abstract A make(int length);

  abstract MemorySegment segment(A values);

  /** The first {@code count} of {@code into} op= those of {@code with} at {@code from}. */
  abstract void combine(ReduceOp op, A into, A with, int from, int count);
}
