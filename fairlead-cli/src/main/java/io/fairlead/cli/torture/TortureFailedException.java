package io.fairlead.cli.torture;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import org.jspecify.annotations.Nullable;

/** Something was not as it has to be. */
final class TortureFailedException extends FairleadException {
  private static final long serialVersionUID = 1L;

  TortureFailedException(String what, @Nullable Throwable cause) {
    super(Severity.OPERATION, what, cause);
  }
}
