package io.fairlead.lab.canary.threadidentity;

/** Asks a thread for what it is to do, not who it is. */
class Interrupter {
  boolean interrupted() {
    return Thread.currentThread().isInterrupted();
  }
}
