package io.fairlead.runtime;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;

/** Not everything closed as it should; what went wrong is suppressed here, each with its cause. */
public final class CloseFailure extends FairleadException {
  private static final long serialVersionUID = 1L;

  CloseFailure() {
    super(
        Severity.PROCESS, "not everything closed as it should; see what is suppressed here", null);
  }

  void throwIfAny() {
    if (getSuppressed().length > 0) {
      throw this;
    }
  }
}
