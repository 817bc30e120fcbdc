package io.fairlead.lab.canary.throwable;

class Thrower {
  public void something() throws java.io.IOException {}

  void hidden() throws Throwable {}
}
