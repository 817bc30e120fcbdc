package io.fairlead.device.spi;

/**
 * A kernel in Java, for the host device. It may be called for several pieces of the grid at the
 * same time, from the device's worker threads, and must only touch its own items' results. An
 * exception is an asynchronous fault: it loses the context.
 */
@FunctionalInterface
public interface JavaKernel {
  /** Runs the work items {@code begin} (inclusive) to {@code end} (exclusive). */
  void run(KernelArguments arguments, long begin, long end);
}
