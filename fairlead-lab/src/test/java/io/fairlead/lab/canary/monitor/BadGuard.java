package io.fairlead.lab.canary.monitor;

import io.fairlead.task.Binding;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/** A monitor around native calls, in all the ways there are. */
@SuppressWarnings("restricted") // a native call is what this is about
class BadGuard {
  private final MethodHandle handle =
      Linker.nativeLinker().downcallHandle(MemorySegment.NULL, FunctionDescriptor.ofVoid());

  private boolean ready;

  synchronized void wholeMethod() throws Throwable {
    handle.invokeExact();
  }

  void block() throws Throwable {
    synchronized (this) {
      if (!ready) {
        return;
      }
      handle.invokeExact();
    }
  }

  void throughAnother() throws Throwable {
    synchronized (this) {
      call();
    }
  }

  private void call() throws Throwable {
    handle.invokeExact();
  }

  synchronized Runnable throughLambda() {
    return () -> {
      try {
        call();
      } catch (Throwable e) {
        throw new AssertionError(e);
      }
    };
  }

  synchronized long throughInterface(Binding binding) {
    return binding.bind();
  }
}
