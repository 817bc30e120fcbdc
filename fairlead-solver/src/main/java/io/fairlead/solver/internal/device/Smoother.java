package io.fairlead.solver.internal.device;

import io.fairlead.solver.internal.Chebyshev;
import java.util.ArrayList;
import java.util.List;

/**
 * The Chebyshev smoother of one level as steps of the smoothing kernel, which needs no vector but
 * the iterates:
 *
 * <pre>
 *   y₁ = y₀ + gain₀ D⁻¹ (b − A y₀)                              from zero: y₁ = gain₀ D⁻¹ b
 *   yₖ₊₁ = ofX yₖ + ofOld yₖ₋₁ + gain D⁻¹ (b − A yₖ)
 * </pre>
 *
 * <p>The correction d of {@link Chebyshev} is the difference of two iterates. Weights other than 1
 * move x apart from the iterate that the residual belongs to; for degrees 1 and 2 the last step
 * makes up for it, for higher degrees it would take another vector, so they are refused.
 *
 * @param first the gain of the first step
 * @param rest the steps after it
 */
record Smoother(double first, List<Step> rest) {

  record Step(double ofX, double ofOld, double gain) {}

  /** Division by the diagonal. */
  static final Smoother JACOBI = new Smoother(1.0, List.of());

  static Smoother of(Chebyshev chebyshev, double lambdaMax) {
    Chebyshev.Steps steps = chebyshev.steps(lambdaMax);
    double[] weight = steps.weight();
    return switch (chebyshev.degree()) {
      case 1 -> new Smoother(weight[0] * steps.gain()[0], List.of());
      case 2 -> new Smoother(steps.gain()[0], List.of(second(steps)));
      default -> new Smoother(steps.gain()[0], unweighted(steps));
    };
  }

  private static Step second(Chebyshev.Steps steps) {
    double along = steps.weight()[0] + steps.weight()[1] * steps.momentum()[1];
    return new Step(along, 1.0 - along, steps.weight()[1] * steps.gain()[1]);
  }

  private static List<Step> unweighted(Chebyshev.Steps steps) {
    List<Step> rest = new ArrayList<>();
    for (int k = 0; k < steps.gain().length; k++) {
      if (steps.weight()[k] != 1.0) {
        throw new IllegalArgumentException(
            "a weighted Chebyshev smoother of degree "
                + steps.gain().length
                + "; expected degree 1 or 2, or weights of 1");
      }
      if (k > 0) {
        double momentum = steps.momentum()[k];
        rest.add(new Step(1.0 + momentum, -momentum, steps.gain()[k]));
      }
    }
    return List.copyOf(rest);
  }
}
