package io.fairlead.lab.canary.critical;

import java.lang.foreign.Linker;

class BadOption {
  Linker.Option option() {
    return Linker.Option.critical(false);
  }
}
