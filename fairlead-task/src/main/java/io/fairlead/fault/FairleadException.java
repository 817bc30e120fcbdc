package io.fairlead.fault;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The root of every error that Fairlead throws for a fault. Misuse is not a fault: it gets an
 * {@link IllegalStateException} or {@link IllegalArgumentException} that names the likely mistake.
 *
 * <p>One instance may be thrown in many tasks at once (all waiters of one failed completion get the
 * same cause), so instances are not changed once thrown.
 */
public abstract class FairleadException extends RuntimeException {
  private final Severity severity;

  protected FairleadException(Severity severity, String message, @Nullable Throwable cause) {
    super(message, cause);
    this.severity = Objects.requireNonNull(severity, "severity");
  }

  /** What is lost. Any thread; never blocks. */
  public final Severity severity() {
    return severity;
  }
}
