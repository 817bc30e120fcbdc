package io.fairlead.lab.canary.throwable;

class BadThrower {
  public void anything() throws Throwable {}
}
