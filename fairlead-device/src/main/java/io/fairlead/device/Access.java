package io.fairlead.device;

/** What an operation does with an operand. The ledger orders by it. */
public enum Access {
  /** Only reads. */
  READ,
  /** Overwrites without reading first. */
  WRITE,
  /** Reads and writes. */
  READ_WRITE;

  public boolean writes() {
    return this != READ;
  }

  public boolean reads() {
    return this != WRITE;
  }
}
