package io.fairlead.device;

/** The element types that kernels know. */
public enum ElementType {
  I8(1),
  I32(4),
  I64(8),
  F32(4),
  F64(8);

  private final int bytes;

  ElementType(int bytes) {
    this.bytes = bytes;
  }

  /** Bytes of one element. */
  public int bytes() {
    return bytes;
  }
}
