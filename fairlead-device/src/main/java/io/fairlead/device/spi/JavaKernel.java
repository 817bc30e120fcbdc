package io.fairlead.device.spi;

/**
 * A kernel in Java, for the host device. It may be called for several pieces of the grid at the
 * same time, from the device's worker threads, and must only touch its own items' results. An
 * exception is an asynchronous fault: it loses the context.
 *
 * <p>The plain loop is the fast one: count with the {@code long} that is given, and let nothing but
 * that count and what does not change in the loop make an index.
 *
 * {@snippet :
 * (arguments, begin, end) -> {
 *   double a = arguments.f64(0);
 *   MemorySegment x = arguments.buffer(1);
 *   MemorySegment y = arguments.buffer(2);
 *   for (long i = begin; i < end; i++) {
 *     y.setAtIndex(
 *         JAVA_DOUBLE, i, y.getAtIndex(JAVA_DOUBLE, i) + a * x.getAtIndex(JAVA_DOUBLE, i));
 *   }
 * }
 * }
 *
 * <p>The compiler takes the bounds checks out of such a loop and unrolls it. It does neither where
 * an {@code int} from {@code (int) begin} on counts a segment's items, nor where an {@code int} is
 * compared with {@code end}: both take more than twice as long on data that is in the caches. Code
 * that needs an {@code int} (for arrays or NIO buffers) narrows both ends before the loop.
 */
@FunctionalInterface
public interface JavaKernel {
  /** Runs the work items {@code begin} (inclusive) to {@code end} (exclusive). */
  void run(KernelArguments arguments, long begin, long end);
}
