package io.fairlead.ffi.cuda;

/** An event without timing. Immutable. */
final class CudaEvent extends CudaObject {
  /** Measuring time would make each record ten times as dear. */
  static final int DISABLE_TIMING = 0x2;

  final long raw;
  private final CudaContext context;

  CudaEvent(CudaContext context, long raw) {
    this.context = context;
    this.raw = raw;
  }

  @Override
  Kind kind() {
    return Kind.EVENT;
  }

  @Override
  CudaContext context() {
    return context;
  }

  @Override
  void dispose() {
    context.disposing("cuEventDestroy", () -> context.api.eventDestroy(raw));
  }
}
