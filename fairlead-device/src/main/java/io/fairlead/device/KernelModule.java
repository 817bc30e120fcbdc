package io.fairlead.device;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.task.Collected;
import io.fairlead.task.Retired;
import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Code that is loaded on one device. Any thread. Belongs to whoever loaded it; closing unloads it
 * once all work that was enqueued by then has ended. The context unloads what is left.
 */
public final class KernelModule implements AutoCloseable {
  private final Loaded loaded;
  private final Cleaner.Cleanable cleanable;

  KernelModule(Loaded loaded, String madeAt) {
    this.loaded = loaded;
    Loaded core = loaded;
    this.cleanable = Collected.register(this, () -> core.retire(madeAt));
  }

  /** As in its {@link ModuleSource}. */
  public String name() {
    return loaded.name;
  }

  public DeviceContext context() {
    return loaded.context;
  }

  /** The one of its {@link ModuleSource}'s images that was loaded. */
  public ModuleImage image() {
    return loaded.image;
  }

  /**
   * A kernel of this module, with its code on the device, so that its first launch does not wait
   * for that. Any thread; waits for the owner, who may be waiting for kernels that run.
   *
   * @param params what it takes, in order; checked at each launch, and what the order of work on
   *     its buffers stands on
   * @throws DeviceException if the module has no such kernel; the message names those it has
   * @throws IllegalStateException if the module was closed
   */
  public Kernel kernel(String kernelName, Param... params) {
    requireOpen("kernel " + kernelName);
    long handle =
        loaded.context.driverCall(
            DriverCall.KERNEL,
            "find kernel " + kernelName + " in module " + name(),
            () -> loaded.context.driver().kernel(loaded.handle, kernelName));
    return new Kernel(this, kernelName, handle, params.clone());
  }

  Loaded loaded() {
    return loaded;
  }

  void requireOpen(String operation) {
    if (loaded.closed.get()) {
      throw new IllegalStateException(
          operation
              + ": module "
              + name()
              + " was closed; keep it open while its kernels are used");
    }
  }

  /** Unloads it once everything enqueued so far has ended. Does not wait; idempotent. */
  @Override
  public void close() {
    loaded.retire(null);
    cleanable.clean();
  }

  /** The driver's side of a module; does not keep the module itself alive. */
  static final class Loaded {
    final DeviceContext context;
    final String name;
    final long handle;
    final ModuleImage image;
    final AtomicBoolean closed = new AtomicBoolean();
    private final AtomicBoolean unloaded = new AtomicBoolean();

    /** Graphs with kernels of it: the last one gone, or the close after that, unloads it. */
    private final AtomicInteger holds = new AtomicInteger();

    Loaded(DeviceContext context, String name, long handle, ModuleImage image) {
      this.context = context;
      this.name = name;
      this.handle = handle;
      this.image = image;
    }

    /** Any thread, the cleaner's too: takes no lock and calls no driver. First call wins. */
    void retire(@Nullable String leakedFrom) {
      if (closed.compareAndSet(false, true)) {
        context.owner().retire(new Unload(this, leakedFrom));
      }
    }

    /** Keeps it loaded for a graph. Any thread. */
    void hold() {
      holds.incrementAndGet();
      if (closed.get()) {
        letGo();
        throw new IllegalStateException(
            "module " + name + " was closed; keep it open while a graph is made of its kernels");
      }
    }

    /** Any thread. */
    void letGo() {
      if (holds.decrementAndGet() == 0 && closed.get()) {
        context.owner().retire(new Unload(this, null));
      }
    }

    /** Unloads it if nothing can be running it, else when that is so. Owner only. */
    private void unloadWhenIdle() {
      if (holds.get() > 0) {
        return; // the last one to let go comes back
      }
      context.afterAllWork(this::unload);
    }

    /** Unloads it now. Owner only; once. */
    void unload() {
      if (unloaded.compareAndSet(false, true)) {
        closed.set(true);
        context.quietly(
            DriverCall.MODULE_UNLOAD,
            "unload module " + name,
            () -> context.driver().moduleUnload(handle));
        context.forget(this);
      }
    }
  }

  private static final class Unload extends Retired {
    private final Loaded loaded;
    private final @Nullable String leakedFrom;

    Unload(Loaded loaded, @Nullable String leakedFrom) {
      this.loaded = loaded;
      this.leakedFrom = leakedFrom;
    }

    @Override
    protected void release() {
      if (leakedFrom != null) {
        loaded.context.reportLeak("module " + loaded.name, leakedFrom);
      }
      loaded.unloadWhenIdle();
    }
  }
}
