package io.fairlead.lab.canary.console;

class BadTalker {
  void out() {
    System.out.println();
  }

  void err() {
    System.err.println();
  }

  void trace(Throwable failure) {
    failure.printStackTrace();
  }
}
