package io.fairlead.lab.canary.naming;

import org.junit.jupiter.api.Test;

abstract class ThingContract {
  @Test
  void keepsIt() {}
}
