package io.fairlead.lab.canary.monitor;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/** A monitor around what it guards, and the native call outside. */
@SuppressWarnings("restricted") // a native call is what this is about
class Guard {
  private final MethodHandle handle =
      Linker.nativeLinker().downcallHandle(MemorySegment.NULL, FunctionDescriptor.ofVoid());

  private int calls;

  int call() throws Throwable {
    synchronized (this) {
      if (calls < 0) {
        return calls;
      }
      calls++;
    }
    handle.invokeExact();
    return counted();
  }

  private synchronized int counted() {
    return calls;
  }
}
