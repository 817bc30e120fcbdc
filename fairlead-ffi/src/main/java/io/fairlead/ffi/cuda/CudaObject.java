package io.fairlead.ffi.cuda;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Locale;

/**
 * Something that has a handle, and that the driver must not lose while a call uses it.
 *
 * <p>A caller may destroy an object while another thread is inside a call with it. Handles keep a
 * later call out; this count keeps the object alive until the calls that are under way are out:
 *
 * <pre>
 *   uses 1 (there) --enter--> n --exit--> ... --the handle is given up: exit--> 0: dispose(), once
 * </pre>
 *
 * The last one out disposes, whoever it is; nobody waits for anybody. An object with 0 uses is
 * never used again.
 *
 * <pre>
 * field  | writer               | reader | mode, guard
 * handle | once, before the     | any    | plain, published by the table's slot
 *        | table has it         |        |
 * uses   | any                  | any    | atomic; 0 stays 0
 * </pre>
 */
abstract class CudaObject {
  /** What a handle may be of; the code stands in its lowest bits and is never 0. */
  enum Kind {
    CONTEXT(1),
    STREAM(2),
    EVENT(3),
    MODULE(4),
    KERNEL(5),
    GRAPH(6),
    EXECUTABLE(7);

    final int code;

    Kind(int code) {
      this.code = code;
    }

    String noun() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  private static final VarHandle USES;

  static {
    try {
      USES = MethodHandles.lookup().findVarHandle(CudaObject.class, "uses", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private long handle;
  private volatile int uses = 1;

  final long handle() {
    return handle;
  }

  /** The table only, before it publishes the object. */
  final void handle(long given) {
    handle = given;
  }

  abstract Kind kind();

  abstract CudaContext context();

  /** Keeps the object alive until {@link #exit}; false if it is gone. */
  final boolean enter() {
    int seen;
    do {
      seen = uses;
      if (seen == 0) {
        return false;
      }
    } while (!USES.compareAndSet(this, seen, seen + 1));
    return true;
  }

  final void exit() {
    if ((int) USES.getAndAdd(this, -1) == 1) {
      dispose();
    }
  }

  /** Whether nobody uses it and nobody will. */
  final boolean isDisposed() {
    return uses == 0;
  }

  /** Gives it back to the driver. Once; on any thread; never throws, never suspends. */
  abstract void dispose();
}
