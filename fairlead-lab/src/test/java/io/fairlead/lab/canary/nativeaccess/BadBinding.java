package io.fairlead.lab.canary.nativeaccess;

import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;

class BadBinding {
  Object bind() {
    return Linker.nativeLinker();
  }

  Object lookup() {
    return SymbolLookup.loaderLookup();
  }
}
