package io.fairlead.runtime;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import org.jspecify.annotations.Nullable;

/** No driver that was asked for can be opened here; the message says why and what to do. */
public final class DriverUnavailableException extends FairleadException {
  private static final long serialVersionUID = 1L;

  DriverUnavailableException(String message, @Nullable Throwable cause) {
    super(Severity.PROCESS, message, cause);
  }
}
