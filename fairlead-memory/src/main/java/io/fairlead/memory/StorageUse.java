package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Operand;

/** A use of a storage that is no buffer's own; its ledger is told as of any other. */
interface StorageUse extends Operand {
  Storage storage();

  @Override
  default void recorded(DeviceStream stream, long sequence, Access access) {
    storage().recorded(stream, sequence, access);
  }

  @Override
  default void abandoned(DeviceStream stream, Access access) {
    storage().abandoned(stream, access);
  }

  @Override
  default long order() {
    return storage().id;
  }
}
