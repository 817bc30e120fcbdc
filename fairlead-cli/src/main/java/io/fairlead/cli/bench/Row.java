package io.fairlead.cli.bench;

import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * One figure of a benchmark.
 *
 * @param value the figure that is asked for, in {@code unit}; {@code must} and {@code goal} are
 *     bounds on it
 * @param better {@code lower} or {@code higher}
 * @param baseline what the alternative measured in the same run, or null where there is none: in
 *     {@code unit}, except that a row in {@code x} gives the alternative's own median
 * @param ratio ours over the baseline's, or null
 * @param n how many samples
 * @param p50 median of the samples, in {@code unit}
 * @param p99 99th percentile of the samples, in {@code unit}
 * @param must the bound that has to be kept, or null
 * @param goal the bound that is wanted, or null
 * @param missing why there is no figure, in a few words; null where there is one
 */
public record Row(
    String id,
    double value,
    String unit,
    String better,
    @Nullable Double baseline,
    @Nullable Double ratio,
    int n,
    double p50,
    double p99,
    @Nullable Double must,
    @Nullable Double goal,
    @Nullable String missing) {

  /** A row with a figure. */
  public Row(
      String id,
      double value,
      String unit,
      String better,
      @Nullable Double baseline,
      @Nullable Double ratio,
      int n,
      double p50,
      double p99,
      @Nullable Double must,
      @Nullable Double goal) {
    this(id, value, unit, better, baseline, ratio, n, p50, p99, must, goal, null);
  }

  /** A row that was asked for and has no figure. */
  public static Row missing(String id, String why) {
    double none = Double.NaN;
    return new Row(id, none, "-", "lower", null, null, 0, none, none, null, null, why);
  }

  /** A row whose value is the median of its samples and that is compared with nothing. */
  public static Row median(String id, String unit, String better, Samples samples) {
    double median = samples.median();
    return new Row(
        id, median, unit, better, null, null, samples.count(), median, samples.p99(), null, null);
  }

  /** A row whose value is the 99th percentile of its samples. */
  public static Row late(String id, String unit, Samples samples) {
    double late = samples.p99();
    return new Row(
        id, late, unit, "lower", null, null, samples.count(), samples.median(), late, null, null);
  }

  /** A row whose value is the median of the ratios of samples taken in turn. */
  public static Row ratio(String id, Samples ours, Samples theirs) {
    Samples ratios = ours.over(theirs);
    return new Row(
        id,
        ratios.median(),
        "x",
        "lower",
        theirs.median(),
        ratios.median(),
        ratios.count(),
        ratios.median(),
        ratios.p99(),
        null,
        null);
  }

  /** A row with one exact figure: a count, a size. */
  public static Row exact(String id, String unit, String better, double value) {
    return new Row(id, value, unit, better, null, null, 1, value, value, null, null);
  }

  /** The same figure beside what another one measured. */
  public Row against(double theirs) {
    return new Row(
        id, value, unit, better, theirs, value / theirs, n, p50, p99, must, goal, missing);
  }

  /** The same figure with its bounds. */
  public Row bounds(@Nullable Double keep, @Nullable Double wanted) {
    return new Row(id, value, unit, better, baseline, ratio, n, p50, p99, keep, wanted, missing);
  }

  /** The same figure, which is better the higher it is. */
  public Row higherIsBetter() {
    return new Row(id, value, unit, "higher", baseline, ratio, n, p50, p99, must, goal, missing);
  }

  /** How the value stands against its bounds, in a word. */
  public String verdict() {
    if (missing != null) {
      return missing;
    }
    if (goal != null && keeps(goal)) {
      return "goal";
    }
    if (must != null) {
      return keeps(must) ? "kept" : "MISSED";
    }
    return goal == null ? "" : "short";
  }

  private boolean keeps(double bound) {
    return better.equals("lower") ? value <= bound : value >= bound;
  }

  /** The row as it stands in a JSON report. */
  public Map<String, @Nullable Object> toMap() {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("id", id);
    map.put("value", value);
    map.put("unit", unit);
    map.put("better", better);
    map.put("baseline", baseline);
    map.put("ratio", ratio);
    map.put("n", n);
    map.put("p50", p50);
    map.put("p99", p99);
    map.put("must", must);
    map.put("goal", goal);
    map.put("missing", missing);
    return map;
  }
}
