package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceConfig;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.Mark;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.WaitMode;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * What race tests of the ledger use storages with: two streams of a device, of as many operations
 * as there are numbers for, all of them over, so that no edge is made.
 */
final class RaceStreams {
  private static final int NUMBERS = 20;

  /** The last operation in {@link #ownedWithImage}. */
  static final long LAST_OWN = 18;

  private static final DeviceContext CONTEXT = context();

  /** The owner's. */
  static final DeviceStream ONE = stream();

  /** Anybody's. */
  static final DeviceStream OTHER = stream();

  private RaceStreams() {}

  private static DeviceContext context() {
    TaskRuntime tasks = TaskRuntime.open(new TaskConfig(WaitMode.NONBLOCKING, 16, 0, 0, 1_000));
    Driver driver = new HostDriverProvider().open(Map.of("memory", "1048576", "workers", "1"));
    return DeviceContext.open(tasks, driver, 0, DeviceConfig.defaults());
  }

  private static DeviceStream stream() {
    DeviceStream stream = CONTEXT.openStream(0);
    for (int i = 0; i < NUMBERS; i++) {
      stream.enqueue(DriverCall.LAUNCH, "nothing", (_, _) -> {});
    }
    stream.reached().awaitUninterruptibly();
    return stream;
  }

  /** A storage that was allocated and last written as operation 1 of its owner. */
  static Storage owned() {
    Charge charge = new Budget(256).tryCharge(new Account("task", 1, null), 256);
    Block block =
        new Block(
            4096,
            new Frontier(new Mark(ONE, 1), List.of()),
            Objects.requireNonNull(charge, "there is room"));
    return Storage.of(block, 256, Site.NOT_KEPT, ONE);
  }

  /** As {@link #owned}, with a copy of its bytes below. */
  static Storage ownedWithImage() {
    Storage storage = owned();
    Keeper keeper = Keeper.of(new Account("task", 1, null), null);
    storage.beginCopy();
    Image image = new Nothing(storage.acquireToCopy(OTHER, -1));
    storage.recordedCopy(OTHER, 1);
    storage.keep(keeper);
    storage.commit(image);
    storage.unkeep(keeper);
    own(storage);
    return storage;
  }

  /** Reads by the owner, until what others have read, and is over, is forgotten. */
  private static void own(Storage storage) {
    for (long number = 2; number <= LAST_OWN; number++) {
      storage.acquire(ONE, Access.READ);
      storage.recorded(ONE, number, Access.READ);
    }
  }

  /** An image without bytes. */
  static final class Nothing extends Image {
    Nothing(long generation) {
      super(256);
      this.generation = generation;
    }

    @Override
    Tier tier() {
      return Tier.HOST;
    }

    @Override
    void prepare(DeviceStream stream, ReadAhead ahead) {
      throw new UnsupportedOperationException("there is nothing to read");
    }

    @Override
    void copyUp(DeviceStream stream, long address, ReadAhead ahead, Consumer<Mark> enqueued) {
      throw new UnsupportedOperationException("there is nothing to copy");
    }

    @Override
    void drop() {}
  }
}
