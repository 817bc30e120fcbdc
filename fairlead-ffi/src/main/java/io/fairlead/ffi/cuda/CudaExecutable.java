package io.fairlead.ffi.cuda;

/**
 * A graph that can be launched. The driver's is not safe for two threads at once, so a lock that
 * spins is held around each launch.
 */
final class CudaExecutable extends CudaObject {
  private final long raw;
  private final CudaContext context;
  private final SpinLock lock = new SpinLock();

  CudaExecutable(CudaContext context, long raw) {
    this.context = context;
    this.raw = raw;
  }

  /** The caller has entered both. */
  void launch(CudaStream stream) {
    int status;
    lock.lock();
    try {
      status = context.api.graphs().launch(raw, stream.raw);
    } finally {
      lock.unlock();
    }
    context.check(status, "cuGraphLaunch");
  }

  @Override
  Kind kind() {
    return Kind.EXECUTABLE;
  }

  @Override
  CudaContext context() {
    return context;
  }

  /** What was launched still ends. */
  @Override
  void dispose() {
    context.disposing("cuGraphExecDestroy", () -> context.api.graphs().execDestroy(raw));
  }
}
