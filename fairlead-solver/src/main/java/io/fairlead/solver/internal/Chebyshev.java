package io.fairlead.solver.internal;

/**
 * The smoother: a Chebyshev polynomial in {@code D⁻¹A}, which needs only products with A and so
 * runs alike on any device and any number of ranks.
 *
 * <pre>
 *   r = b − A x;  d = 0
 *   for k in 0 .. degree − 1:
 *     d = momentum[k] · d + gain[k] · D⁻¹ r
 *     x = x + weight[k] · d
 *     if k &lt; degree − 1:  r = r − A d
 * </pre>
 *
 * @param kind which polynomial
 * @param degree products with {@code D⁻¹} in one application, 1 to 4
 * @param ratio for {@link Kind#FIRST}: the smoothed interval is {@code [λ/ratio, λ]}
 */
public record Chebyshev(Kind kind, int degree, double ratio) {

  /** Which polynomial. */
  public enum Kind {
    /** The classical one, least in the maximum norm on an interval. */
    FIRST,
    /** The fourth kind with the optimised weights of Lottes (2023): no interval to guess. */
    FOURTH
  }

  /** The steps for one level's eigenvalue. */
  @SuppressWarnings("ArrayRecordComponent") // shared, never compared
  public record Steps(double[] momentum, double[] gain, double[] weight) {}

  /** The optimised weights for degrees 1 to 4. */
  private static final double[][] WEIGHTS = {
    {1.12500000000000},
    {1.02387287570313, 1.26408905371085},
    {1.00842544782028, 1.08867839208730, 1.33753125909618},
    {1.00391310427285, 1.04035811188593, 1.14863498546254, 1.38268869241000}
  };

  /** Checks the degree and the ratio. */
  public Chebyshev {
    if (degree < 1 || degree > WEIGHTS.length || !(ratio > 1)) {
      throw new IllegalArgumentException(
          "Chebyshev degree " + degree + ", ratio " + ratio + ": expected 1 to 4, and above 1");
    }
  }

  /** Returns the steps for a level with this largest eigenvalue. */
  public Steps steps(double lambdaMax) {
    return switch (kind) {
      case FIRST -> first(lambdaMax);
      case FOURTH -> fourth(lambdaMax);
    };
  }

  private Steps first(double lambdaMax) {
    double centre = 0.5 * lambdaMax * (1 + 1 / ratio);
    double radius = 0.5 * lambdaMax * (1 - 1 / ratio);
    double[] momentum = new double[degree];
    double[] gain = new double[degree];
    double[] weight = new double[degree];
    double rho = radius / centre;
    gain[0] = 1 / centre;
    weight[0] = 1;
    for (int k = 1; k < degree; k++) {
      double next = 1 / (2 * centre / radius - rho);
      momentum[k] = next * rho;
      gain[k] = 2 * next / radius;
      weight[k] = 1;
      rho = next;
    }
    return new Steps(momentum, gain, weight);
  }

  private Steps fourth(double lambdaMax) {
    double[] momentum = new double[degree];
    double[] gain = new double[degree];
    for (int k = 1; k <= degree; k++) {
      momentum[k - 1] = k == 1 ? 0 : (2.0 * k - 3) / (2 * k + 1);
      gain[k - 1] = (8.0 * k - 4) / ((2 * k + 1) * lambdaMax);
    }
    return new Steps(momentum, gain, WEIGHTS[degree - 1].clone());
  }
}
