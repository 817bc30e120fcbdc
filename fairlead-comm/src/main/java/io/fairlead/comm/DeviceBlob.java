package io.fairlead.comm;

import io.fairlead.memory.DeviceBuffer;

/**
 * A device buffer, or a view of one. Sent: its content as of the calling task's stream. Received
 * into: written in the order of the ledger, like any other use.
 */
record DeviceBlob(DeviceBuffer buffer) implements Blob {

  @Override
  public long bytes() {
    return buffer.bytes();
  }
}
