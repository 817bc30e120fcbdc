package io.fairlead.lab.canary.bare;

class BadThrower {
  void unchecked() {
    throw new RuntimeException("what failed?");
  }

  void checked() throws Exception {
    throw new Exception("what failed?");
  }
}
