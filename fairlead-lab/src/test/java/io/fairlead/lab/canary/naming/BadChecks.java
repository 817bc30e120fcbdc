package io.fairlead.lab.canary.naming;

import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

class BadChecks {
  @Test
  void wouldNeverRun() {}

  @Nested
  class Inner {
    @Test
    void wouldNeverRunEither() {}
  }
}
