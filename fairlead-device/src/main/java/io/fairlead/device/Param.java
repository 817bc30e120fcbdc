package io.fairlead.device;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One parameter of a kernel: a scalar by value, or a buffer with what the kernel does to it. Meant
 * for static import:
 *
 * <pre>{@code
 * Kernel axpy = module.kernel("axpy", F64, in(F64), inOut(F64));
 * }</pre>
 *
 * @param type the scalar's type, or the buffer's element type
 * @param access what the kernel does with the buffer; null for a scalar
 */
public record Param(ElementType type, @Nullable Access access) {
  /** A {@code double} by value. */
  public static final Param F64 = new Param(ElementType.F64, null);

  /** A {@code float} by value. */
  public static final Param F32 = new Param(ElementType.F32, null);

  /** An {@code int} by value. */
  public static final Param I32 = new Param(ElementType.I32, null);

  /** A {@code long} by value. */
  public static final Param I64 = new Param(ElementType.I64, null);

  /** A {@code byte} by value. */
  public static final Param I8 = new Param(ElementType.I8, null);

  public Param {
    Objects.requireNonNull(type, "type");
  }

  /** A buffer that the kernel only reads. */
  public static Param in(ElementType type) {
    return new Param(type, Access.READ);
  }

  /** A buffer that the kernel overwrites without reading it. */
  public static Param out(ElementType type) {
    return new Param(type, Access.WRITE);
  }

  /** A buffer that the kernel reads and writes. */
  public static Param inOut(ElementType type) {
    return new Param(type, Access.READ_WRITE);
  }

  /** As {@link #in(ElementType)}, so that {@code in(F64)} works with {@code Param.*} imported. */
  public static Param in(Param scalar) {
    return in(elementOf(scalar));
  }

  /** As {@link #out(ElementType)}. */
  public static Param out(Param scalar) {
    return out(elementOf(scalar));
  }

  /** As {@link #inOut(ElementType)}. */
  public static Param inOut(Param scalar) {
    return inOut(elementOf(scalar));
  }

  private static ElementType elementOf(Param scalar) {
    if (!scalar.isScalar()) {
      throw new IllegalArgumentException(
          "in, out and inOut take an element type, not the parameter " + scalar);
    }
    return scalar.type;
  }

  public boolean isScalar() {
    return access == null;
  }

  /** As it is written in a declaration: {@code F64}, {@code in(F64)}. */
  @Override
  public String toString() {
    return switch (access) {
      case null -> type.name();
      case READ -> "in(" + type + ")";
      case WRITE -> "out(" + type + ")";
      case READ_WRITE -> "inOut(" + type + ")";
    };
  }
}
