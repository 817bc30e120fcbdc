package io.fairlead.memory;

import io.fairlead.device.DeviceStream;
import io.fairlead.task.Completion;
import org.jspecify.annotations.Nullable;

/** What stands around a pool: it hands on what it does not change. */
abstract class ForwardingPool implements Pool {
  final Pool inner;

  ForwardingPool(Pool inner) {
    this.inner = inner;
  }

  @Override
  public @Nullable Block reuse(DeviceStream stream, Account account, long bytes) {
    return inner.reuse(stream, account, bytes);
  }

  @Override
  public @Nullable Block reuseUnfinished(DeviceStream stream, Account account, long bytes) {
    return inner.reuseUnfinished(stream, account, bytes);
  }

  @Override
  public Block allocate(DeviceStream stream, long bytes, Charge charge) {
    return inner.allocate(stream, bytes, charge);
  }

  @Override
  public boolean giveBack(Storage storage, Charge charge) {
    return inner.giveBack(storage, charge);
  }

  @Override
  public Completion<@Nullable Void> trim(long bytes) {
    return inner.trim(bytes);
  }

  @Override
  public long cached() {
    return inner.cached();
  }

  @Override
  public long reused() {
    return inner.reused();
  }

  @Override
  public void abandon() {
    inner.abandon();
  }

  @Override
  public void close() {
    inner.close();
  }
}
