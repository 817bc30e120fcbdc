package io.fairlead.lab.canary.console;

class Logger {
  void log() {
    System.getLogger("canary").log(System.Logger.Level.INFO, "quiet");
  }
}
