package io.fairlead.device;

import io.fairlead.device.spi.OsThreads;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/** Tells OS threads apart with {@code pthread_self}, so that the fake driver cannot be fooled. */
final class PosixThreads implements OsThreads {
  @SuppressWarnings("restricted") // a test may call the system
  private static final MethodHandle SELF =
      Linker.nativeLinker()
          .downcallHandle(
              Linker.nativeLinker().defaultLookup().find("pthread_self").orElseThrow(),
              FunctionDescriptor.of(ValueLayout.JAVA_LONG));

  @Override
  public long current() {
    try {
      return (long) SELF.invokeExact();
    } catch (Throwable e) {
      throw new AssertionError("pthread_self does not throw", e);
    }
  }
}
