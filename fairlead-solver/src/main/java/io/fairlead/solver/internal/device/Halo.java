package io.fairlead.solver.internal.device;

import io.fairlead.memory.DeviceBuffer;
import io.fairlead.solver.internal.LocalMatrix;
import org.jspecify.annotations.Nullable;

/**
 * What a product with a distributed matrix takes from other ranks and gives to them; see {@link
 * LocalMatrix}.
 *
 * @param owned vector entries that the rank owns; its ghosts follow them
 * @param ghosts how many there are
 * @param sendIndex the owned entries to send, on the device; null if there are none
 */
@SuppressWarnings("ArrayRecordComponent")
record Halo(
    int owned,
    int ghosts,
    int[] receiveRanks,
    int[] receivePtr,
    int[] sendRanks,
    int[] sendPtr,
    @Nullable DeviceBuffer sendIndex) {

  /** A vector that the rank has all of. */
  static Halo none(int length) {
    int[] zero = {0};
    return new Halo(length, 0, new int[0], zero, new int[0], zero, null);
  }

  static Halo of(LocalMatrix local, Uploads uploads) {
    int[] send = local.send();
    return new Halo(
        local.owned(),
        local.ghosts().length,
        local.receiveRanks(),
        local.receivePtr(),
        local.sendRanks(),
        local.sendPtr(),
        send.length == 0 ? null : uploads.ints(send, send.length));
  }

  int sends() {
    return sendPtr[sendRanks.length];
  }

  boolean isEmpty() {
    return receiveRanks.length == 0 && sendRanks.length == 0;
  }
}
