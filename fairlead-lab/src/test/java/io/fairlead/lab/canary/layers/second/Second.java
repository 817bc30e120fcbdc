package io.fairlead.lab.canary.layers.second;

import io.fairlead.lab.canary.layers.first.First;

/** May see the first step. */
public class Second {
  Object previous() {
    return First.class;
  }
}
