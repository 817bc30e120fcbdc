package io.fairlead.fault;

import org.jspecify.annotations.Nullable;

/** A call of an engine could not be made, or its body failed with a checked exception. */
public final class EngineException extends FairleadException {
  private final String engine;

  public EngineException(String engine, String message, @Nullable Throwable cause) {
    super(Severity.OPERATION, "engine '" + engine + "': " + message, cause);
    this.engine = engine;
  }

  /** The engine's name. */
  public String engine() {
    return engine;
  }
}
