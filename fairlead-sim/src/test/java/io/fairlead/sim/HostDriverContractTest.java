package io.fairlead.sim;

import io.fairlead.device.spi.Driver;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.host.HostStepper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Nested;

/** The driver's rules against the embedded device in each of its modes. */
class HostDriverContractTest {

  private abstract static class OnHost extends DriverContract {
    private final Map<String, String> settings;

    /** Settings in pairs. */
    OnHost(String... settings) {
      this.settings = new HashMap<>(Map.of("devices", "2", "workers", "2"));
      this.settings.put("memory", Long.toString(memoryBytes()));
      for (int i = 0; i < settings.length; i += 2) {
        this.settings.put(settings[i], settings[i + 1]);
      }
    }

    @Override
    protected Driver open() {
      return new HostDriverProvider().open(settings);
    }
  }

  @Nested
  class Normal extends OnHost {}

  @Nested
  class Strict extends OnHost {
    Strict() {
      super("strict", "true");
    }
  }

  @Nested
  class Polled extends OnHost {
    Polled() {
      super("notify", "false");
    }
  }

  @Nested
  class WorkersThatNeverSpin extends OnHost {
    WorkersThatNeverSpin() {
      super("spinMicros", "0", "poison", "true");
    }
  }

  @Nested
  class ManyWorkers extends OnHost {
    ManyWorkers() {
      super("workers", "7", "poison", "true");
    }
  }

  /** A thread steps the device in an order that a seed decides; a failure prints the seed. */
  @Nested
  class Stepped extends OnHost {
    private final long seed = Long.getLong("fairlead.seed", System.nanoTime());
    private final Set<Long> heldStreams = ConcurrentHashMap.newKeySet();
    private Thread stepping;
    private volatile boolean stop;

    Stepped() {
      super("stepped", "true");
    }

    @Override
    protected Driver open() {
      System.out.println("stepped contract: -Dfairlead.seed=" + seed);
      return super.open();
    }

    /** Each step looks at every stream. */
    @Override
    protected int rounds() {
      return 5;
    }

    /** The stream is not stepped: nothing on it starts. */
    @Override
    protected Runnable hold(long stream) {
      heldStreams.add(stream);
      return () -> heldStreams.remove(stream);
    }

    @BeforeEach
    void startStepping() {
      HostStepper stepper = HostStepper.of(driver);
      Random random = new Random(seed);
      stepping = Thread.ofPlatform().daemon().start(() -> step(stepper, random));
    }

    private void step(HostStepper stepper, Random random) {
      while (!stop) {
        List<Long> ready = new ArrayList<>(stepper.ready());
        ready.removeAll(heldStreams);
        if (ready.isEmpty()) {
          LockSupport.parkNanos(20_000); // the test may need this processor
        } else {
          stepper.complete(ready.get(random.nextInt(ready.size())));
        }
      }
    }

    @AfterEach
    void stopStepping() throws InterruptedException {
      stop = true;
      stepping.join();
    }
  }
}
