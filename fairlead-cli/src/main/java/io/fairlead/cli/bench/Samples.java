package io.fairlead.cli.bench;

import java.util.Arrays;
import java.util.List;
import java.util.function.DoubleUnaryOperator;

/** Measured figures, in the order they were taken. Immutable. */
public final class Samples {
  private final double[] inOrder;
  private final double[] sorted;

  private Samples(double[] values) {
    if (values.length == 0) {
      throw new IllegalArgumentException("a figure needs at least one sample");
    }
    this.inOrder = values;
    this.sorted = values.clone();
    Arrays.sort(sorted);
  }

  /** Takes a copy of the figures. */
  public static Samples of(List<Double> values) {
    return new Samples(values.stream().mapToDouble(Double::doubleValue).toArray());
  }

  /** Takes a copy of the figures. */
  public static Samples of(double... values) {
    return new Samples(values.clone());
  }

  /** How many there are. */
  public int count() {
    return sorted.length;
  }

  /** The one in the middle, or the mean of the two. */
  public double median() {
    int n = sorted.length;
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
  }

  /** The smallest value that at least 99 of 100 samples do not exceed. */
  public double p99() {
    return quantile(0.99);
  }

  /**
   * The smallest value that at least this part of the samples, above 0 and up to 1, do not exceed.
   */
  public double quantile(double part) {
    return sorted[(int) Math.ceil(part * sorted.length) - 1];
  }

  /** The least. */
  public double min() {
    return sorted[0];
  }

  /** The greatest. */
  public double max() {
    return sorted[sorted.length - 1];
  }

  /** Sample by sample, this over the other: what was measured in turn is compared in pairs. */
  public Samples over(Samples other) {
    if (other.count() != count()) {
      throw new IllegalArgumentException(count() + " samples over " + other.count());
    }
    double[] ratios = new double[count()];
    for (int i = 0; i < ratios.length; i++) {
      ratios[i] = inOrder[i] / other.inOrder[i];
    }
    return new Samples(ratios);
  }

  /** All of them together. */
  public double sum() {
    return Arrays.stream(sorted).sum();
  }

  /** How many are above that. */
  public int above(double bound) {
    return (int) Arrays.stream(sorted).filter(each -> each > bound).count();
  }

  /** Sample by sample, both together. */
  public Samples plus(Samples other) {
    return minus(other.times(-1));
  }

  /** These, then the others. */
  public Samples and(Samples others) {
    double[] all = Arrays.copyOf(inOrder, count() + others.count());
    System.arraycopy(others.inOrder, 0, all, count(), others.count());
    return new Samples(all);
  }

  /** Sample by sample, this less the other. */
  public Samples minus(Samples other) {
    if (other.count() != count()) {
      throw new IllegalArgumentException(count() + " samples less " + other.count());
    }
    double[] differences = new double[count()];
    for (int i = 0; i < differences.length; i++) {
      differences[i] = inOrder[i] - other.inOrder[i];
    }
    return new Samples(differences);
  }

  /** Each sample times {@code factor}: another unit. */
  public Samples times(double factor) {
    return map(v -> v * factor);
  }

  /** What a function makes of each sample. */
  public Samples map(DoubleUnaryOperator function) {
    return new Samples(Arrays.stream(inOrder).map(function).toArray());
  }
}
