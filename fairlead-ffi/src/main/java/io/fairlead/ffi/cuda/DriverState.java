package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverCall;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What the objects of one driver share.
 *
 * @param wideSignals signals are 64-bit values that the stream writes; else 32-bit ones that it
 *     fills in
 * @param reuse see {@link CudaSettings#reuse}
 */
record DriverState(
    CudaApi api,
    HandleTable handles,
    boolean wideSignals,
    NeedsCurrent needs,
    @Nullable Set<CudaSettings.Reuse> reuse) {

  /**
   * Which calls need their context current; known once the first context was there to try them.
   *
   * <pre>
   * field  | writer                         | reader | mode, guard
   * needed | the first retain, under a lock | any    | volatile; the set is not changed after
   * status | the first retain, before that  | any    | plain, published by it
   * </pre>
   */
  static final class NeedsCurrent {
    private volatile @Nullable Set<DriverCall> needed;
    private boolean status = true;

    /** All do until it is known. */
    boolean of(DriverCall call) {
      Set<DriverCall> known = needed;
      return known == null || known.contains(call);
    }

    boolean isKnown() {
      return needed != null;
    }

    /** Whether the question if a stream is captured does; others' calls ask it in passing. */
    boolean ofCaptureStatus() {
      return needed == null || status;
    }

    void learn(Set<DriverCall> found, boolean captureStatus) {
      status = captureStatus;
      needed = found;
    }
  }
}
