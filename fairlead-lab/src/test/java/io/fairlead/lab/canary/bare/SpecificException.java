package io.fairlead.lab.canary.bare;

/** Calls the constructor of RuntimeException, as a subclass must. */
class SpecificException extends RuntimeException {
  SpecificException(String message) {
    super(message);
  }
}
