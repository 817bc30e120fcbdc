package io.fairlead.ffi.cuda;

import java.lang.foreign.Arena;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A piece of native memory that one call writes its answer to, or a launch its parameters. Taken
 * before the call and given back after it; nothing suspends in between, so there are about as many
 * in use as OS threads inside the driver.
 *
 * <p>The pool is an array of which each caller tries its own corner first. The corner is only a
 * place to begin looking: nothing about the thread is kept.
 *
 * <p>Layout of a block: {@link #PARAMETERS_MAX} pointers to the values behind them, written once,
 * then the values, 8 bytes each. A call that wants an answer uses the values.
 *
 * <pre>
 * field | writer                     | reader | mode, guard
 * taken | who takes and gives back   | same   | CAS false to true (acquire); release when given back,
 *       |                            |        | so that the next one's writes come after our reads
 * </pre>
 */
final class Scratch {
  /** Parameters of a launch that fit; more are rare, and get memory of their own. */
  static final int PARAMETERS_MAX = 64;

  private static final int BYTES = 2 * PARAMETERS_MAX * Long.BYTES;

  /** More than threads that are inside the driver at once on any machine that is known. */
  private static final int BLOCKS = 256;

  private static final VarHandle TAKEN;
  private static final Scratch[] POOL = new Scratch[BLOCKS];

  static {
    try {
      TAKEN = MethodHandles.lookup().findVarHandle(Scratch.class, "taken", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
    long base = Arena.global().allocate((long) BLOCKS * BYTES, 64).address();
    for (int i = 0; i < BLOCKS; i++) {
      POOL[i] = new Scratch(base + (long) i * BYTES);
    }
  }

  private final long address;

  @SuppressWarnings("unused") // through TAKEN
  private boolean taken;

  private Scratch(long address) {
    this.address = address;
    writePointers(address, address + PARAMETERS_MAX * Long.BYTES, PARAMETERS_MAX);
  }

  /** Fills {@code count} pointers at {@code target} to values that follow each other. */
  static void writePointers(long target, long values, int count) {
    for (int i = 0; i < count; i++) {
      Memory.setLong(target + (long) i * Long.BYTES, values + (long) i * Long.BYTES);
    }
  }

  static Scratch take() {
    int start = System.identityHashCode(Thread.currentThread());
    while (true) {
      for (int i = 0; i < BLOCKS; i++) {
        Scratch block = POOL[(start + i) & (BLOCKS - 1)];
        if (TAKEN.compareAndSet(block, false, true)) {
          return block;
        }
      }
      Thread.onSpinWait();
    }
  }

  void giveBack() {
    TAKEN.setRelease(this, false);
  }

  /** Where the pointers to all values begin. */
  long pointers() {
    return address;
  }

  /** Where value {@code index} lies. */
  long value(int index) {
    return address + (PARAMETERS_MAX + (long) index) * Long.BYTES;
  }

  /** Where a call writes its answer. */
  long answer() {
    return value(0);
  }

  long longAnswer() {
    return Memory.getLong(answer());
  }

  int intAnswer() {
    return Memory.getInt(answer());
  }
}
