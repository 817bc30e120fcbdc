package io.fairlead.ffi.cuda;

/**
 * The driver's own context that is current on the calling OS thread. Between {@link #bind} and
 * {@link #restore} nothing may suspend.
 */
final class Current {
  private Current() {}

  /** The driver's context, or 0, also where the one that was current has been destroyed. */
  static long get(CudaApi api) {
    Scratch scratch = Scratch.take();
    try {
      int status = api.ctxGetCurrent(scratch.answer());
      return status == Status.SUCCESS ? scratch.longAnswer() : 0;
    } finally {
      scratch.giveBack();
    }
  }

  /** Makes {@code context} current for calls of our own; answers what to restore. */
  static long bind(CudaApi api, long context) {
    long previous = get(api);
    if (previous != context) {
      api.ctxSetCurrent(context);
    }
    return previous;
  }

  /** If the previous one has ended meanwhile, none is current. */
  static void restore(CudaApi api, long context, long previous) {
    if (previous != context && api.ctxSetCurrent(previous) != Status.SUCCESS) {
      api.ctxSetCurrent(0);
    }
  }
}
