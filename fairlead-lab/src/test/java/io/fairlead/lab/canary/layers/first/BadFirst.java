package io.fairlead.lab.canary.layers.first;

import io.fairlead.lab.canary.layers.second.Second;

/** Reaches ahead. */
class BadFirst {
  Object next() {
    return new Second();
  }
}
