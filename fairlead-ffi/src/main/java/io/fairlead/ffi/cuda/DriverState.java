package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverCall;

/**
 * What the objects of one driver share.
 *
 * @param wideSignals signals are 64-bit values that the stream writes; else 32-bit ones that it
 *     fills in
 */
record DriverState(CudaApi api, HandleTable handles, boolean wideSignals, NeedsCurrent needs) {

  /**
   * Which calls need their context current; known once the first context was there to try them.
   *
   * <pre>
   * field | writer                         | reader | mode, guard
   * known | the first retain, under a lock | any    | volatile; its array is not changed after
   * </pre>
   */
  static final class NeedsCurrent {
    private static final boolean[] ALL = all();
    private volatile boolean[] known = ALL;

    boolean of(DriverCall call) {
      return known[call.ordinal()];
    }

    boolean isKnown() {
      return known != ALL;
    }

    void learn(boolean[] found) {
      known = found;
    }

    private static boolean[] all() {
      boolean[] all = new boolean[DriverCall.values().length];
      java.util.Arrays.fill(all, true);
      return all;
    }
  }
}
