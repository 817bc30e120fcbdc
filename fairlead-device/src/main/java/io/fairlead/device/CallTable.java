package io.fairlead.device;

import io.fairlead.device.spi.DriverCall;
import java.util.function.Predicate;

/** A yes or no for each driver call, asked once: to look is one array read. Immutable. */
@SuppressWarnings("EnumOrdinal") // an index into an array that lives no longer than the enum
final class CallTable {
  private final boolean[] yes;

  CallTable(Predicate<DriverCall> asked) {
    DriverCall[] calls = DriverCall.values();
    yes = new boolean[calls.length];
    for (DriverCall call : calls) {
      yes[call.ordinal()] = asked.test(call);
    }
  }

  boolean has(DriverCall call) {
    return yes[call.ordinal()];
  }
}
