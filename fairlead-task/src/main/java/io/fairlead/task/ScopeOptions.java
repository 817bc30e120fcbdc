package io.fairlead.task;

import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How a scope behaves.
 *
 * @param name for messages and thread dumps
 * @param policy what join makes of the children's outcomes
 * @param deadline from the opening of the scope on: when it has passed, the scope is cancelled and
 *     join throws {@link io.fairlead.fault.DeadlineExceededException}; null for none
 * @param waitMode how the children wait; null: as the task that opens the scope
 */
public record ScopeOptions(
    String name, ScopePolicy policy, @Nullable Duration deadline, @Nullable WaitMode waitMode) {

  /** Named "scope", ALL_SUCCEED, no deadline, the opener's wait mode. */
  public static final ScopeOptions DEFAULT =
      new ScopeOptions("scope", ScopePolicy.ALL_SUCCEED, null, null);

  public ScopeOptions {
    Objects.requireNonNull(name, "name");
    Objects.requireNonNull(policy, "policy");
    if (deadline != null && (deadline.isNegative() || deadline.isZero())) {
      throw new IllegalArgumentException(
          "scope '" + name + "': deadline " + deadline + " has passed before it began");
    }
  }

  /** The default with this policy. */
  public static ScopeOptions of(ScopePolicy policy) {
    return DEFAULT.policy(policy);
  }

  /** A copy with this name. */
  public ScopeOptions name(String value) {
    return new ScopeOptions(value, policy, deadline, waitMode);
  }

  /** A copy with this policy. */
  public ScopeOptions policy(ScopePolicy value) {
    return new ScopeOptions(name, value, deadline, waitMode);
  }

  /** A copy with this deadline. */
  public ScopeOptions deadline(Duration value) {
    return new ScopeOptions(name, policy, value, waitMode);
  }

  /** A copy whose children wait this way. */
  public ScopeOptions waitMode(WaitMode value) {
    return new ScopeOptions(name, policy, deadline, value);
  }
}
