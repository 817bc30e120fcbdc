package io.fairlead.ffi.posix;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import java.util.Locale;

/**
 * Sleeping on a word of memory that processes share, by Linux's {@code futex}. The system compares
 * and goes to sleep in one step, so a wake that comes after the word has changed is never lost.
 *
 * <p>Any platform thread. The words are ints at multiples of four bytes, in memory that stays
 * mapped until the call returns.
 */
public final class Futex {
  /** How a sleep ended. */
  public enum Woken {
    /** By a wake, by a signal, or because the word had another value. */
    MAYBE,
    /** The system does not take the call, so the next one would not sleep either. */
    REFUSED
  }

  // of Linux, the same on all processors; without the flag for one process alone
  private static final int OPERATION_WAIT = 0;
  private static final int OPERATION_WAKE = 1;

  private static final int INTERRUPTED = 4;
  private static final int TRY_AGAIN = 11;

  private Futex() {}

  /** Whether the system has it, as a trial shows. Never blocks. */
  public static boolean isAvailable() {
    if (number() < 0) {
      return false;
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment word = arena.allocate(JAVA_INT);
      return wake(word) == 0 && await(word, 1) == Woken.MAYBE; // it is 0, so nobody sleeps
    }
  }

  /** Sleeps while the word has this value. Nothing but {@link #wake} or a signal ends that. */
  public static Woken await(MemorySegment word, int value) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment state = arena.allocate(Calls.STATE);
      long status =
          (long) Calls.WAIT.invokeExact(state, number(), word, OPERATION_WAIT, value, 0L, 0L, 0);
      int error = status < 0 ? (int) Calls.ERROR.get(state, 0L) : 0;
      boolean well = error == 0 || error == TRY_AGAIN || error == INTERRUPTED;
      return well ? Woken.MAYBE : Woken.REFUSED;
    } catch (Throwable e) {
      throw ForeignCall.unexpected("futex", e);
    }
  }

  /**
   * Wakes all who sleep on the word, in whatever process. Never blocks.
   *
   * @return how many there were; below zero: the system does not take the call
   */
  public static int wake(MemorySegment word) {
    try {
      return (int)
          (long)
              Calls.WAKE.invokeExact(number(), word, OPERATION_WAKE, Integer.MAX_VALUE, 0L, 0L, 0);
    } catch (Throwable e) {
      throw ForeignCall.unexpected("futex", e);
    }
  }

  /** The number of the system call here; below zero: not known. */
  private static long number() {
    return Calls.NUMBER;
  }

  /** Loaded where they are first needed. */
  private static final class Calls {
    static final long NUMBER = find();

    static final MemoryLayout STATE = Linker.Option.captureStateLayout();
    static final VarHandle ERROR = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    static final MethodHandle WAIT = handle(Linker.Option.captureCallState("errno"));
    static final MethodHandle WAKE = handle();

    private static long find() {
      if (!System.getProperty("os.name", "").toLowerCase(Locale.ROOT).contains("linux")) {
        return -1;
      }
      return switch (System.getProperty("os.arch", "")) {
        case "amd64" -> 202;
        case "aarch64", "riscv64" -> 98;
        default -> -1;
      };
    }

    private static MethodHandle handle(Linker.Option... options) {
      Linker linker = Linker.nativeLinker();
      Linker.Option[] all = Arrays.copyOf(options, options.length + 1);
      all[options.length] = Linker.Option.firstVariadicArg(1);
      return linker.downcallHandle(
          linker.defaultLookup().findOrThrow("syscall"),
          FunctionDescriptor.of(
              JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT),
          all);
    }
  }
}
