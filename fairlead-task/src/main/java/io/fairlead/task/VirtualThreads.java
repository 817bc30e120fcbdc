package io.fairlead.task;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.Executor;
import org.jspecify.annotations.Nullable;

/**
 * The JDK's two doors that own carriers need: virtual threads with a scheduler of ours, and the
 * platform thread below a virtual one; and one that they use where it is: yielding the platform
 * thread below. All are in {@code java.lang} and not public; they are there only where that package
 * was opened to this module.
 *
 * <p>All else that is done with a virtual thread is public API. A JDK whose doors look otherwise
 * counts as closed, and says so.
 */
final class VirtualThreads {
  private static final @Nullable MethodHandle BUILDER;
  private static final @Nullable MethodHandle CARRIER;
  private static final @Nullable MethodHandle YIELD;
  private static final @Nullable String CLOSED;

  static {
    MethodHandle builder = null;
    MethodHandle carrier = null;
    MethodHandle yield = null;
    String closed = null;
    try {
      MethodHandles.Lookup lookup =
          MethodHandles.privateLookupIn(Thread.class, MethodHandles.lookup());
      Class<?> type = Class.forName("java.lang.ThreadBuilders$VirtualThreadBuilder");
      builder =
          lookup
              .findConstructor(type, MethodType.methodType(void.class, Executor.class))
              .asType(MethodType.methodType(Thread.Builder.OfVirtual.class, Executor.class));
      carrier =
          lookup.findStatic(
              Thread.class, "currentCarrierThread", MethodType.methodType(Thread.class));
      builder.invoke((Executor) Runnable::run);
      yield = yieldOrNull(lookup);
    } catch (IllegalAccessException shut) {
      closed = "java.base does not open java.lang to this module";
    } catch (UnsupportedOperationException none) {
      closed = "this Java's virtual threads are platform threads, which nobody schedules";
    } catch (Throwable other) {
      closed = "Java " + Runtime.version().feature() + " has no such scheduler: " + other;
    }
    BUILDER = closed == null ? builder : null;
    CARRIER = closed == null ? carrier : null;
    YIELD = closed == null ? yield : null;
    CLOSED = closed;
  }

  private VirtualThreads() {}

  /** The one door that may be shut: see {@link #canYieldCarrier}. */
  private static @Nullable MethodHandle yieldOrNull(MethodHandles.Lookup lookup) {
    try {
      return lookup.findStatic(Thread.class, "yield0", MethodType.methodType(void.class));
    } catch (ReflectiveOperationException none) {
      return null;
    }
  }

  /** Whether {@link #yieldCarrier} can be had; whoever cannot use it must not spin for long. */
  static boolean canYieldCarrier() {
    return YIELD != null;
  }

  /** Lets other platform threads have this processor; a virtual thread stays where it is. */
  @SuppressWarnings("NullAway") // asked before
  static void yieldCarrier() {
    try {
      YIELD.invokeExact();
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException("the JDK did not yield", e);
    }
  }

  /** Why virtual threads cannot be scheduled by us, or null if they can. */
  static @Nullable String closed() {
    return CLOSED;
  }

  /** What to pass to {@code java} to open the package to this module. */
  static String flag() {
    Module module = VirtualThreads.class.getModule();
    return "--add-opens java.base/java.lang="
        + (module.isNamed() ? module.getName() : "ALL-UNNAMED");
  }

  /** A virtual thread, not started, whose continuations go to this scheduler. */
  @SuppressWarnings("NullAway") // own carriers are made only where both doors are open
  static Thread unstarted(Executor scheduler, Runnable body) {
    try {
      // No inherited thread-locals: state follows the task.
      return ((Thread.Builder.OfVirtual) BUILDER.invokeExact(scheduler))
          .inheritInheritableThreadLocals(false)
          .unstarted(body);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException("the JDK's builder of virtual threads threw", e);
    }
  }

  /** The platform thread that runs the caller, which may be a virtual one mounted on it. */
  @SuppressWarnings("NullAway") // as above
  static Thread carrier() {
    try {
      return (Thread) CARRIER.invokeExact();
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException("the JDK did not tell the carrier", e);
    }
  }
}
