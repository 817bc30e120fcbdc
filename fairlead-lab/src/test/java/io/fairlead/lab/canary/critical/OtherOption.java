package io.fairlead.lab.canary.critical;

import java.lang.foreign.Linker;

class OtherOption {
  Linker.Option option() {
    return Linker.Option.firstVariadicArg(1);
  }
}
