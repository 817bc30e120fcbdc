package io.fairlead.ffi;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.sim.DriverContract;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntSupplier;
import org.junit.jupiter.api.BeforeEach;

/** The driver's rules on a GPU. */
class CudaGpuContractTest extends DriverContract {

  /** By context; loaded before anything runs, since loading may wait for kernels that do. */
  private final Map<Long, Long> modules = new HashMap<>();

  private int devices;

  @Override
  protected Driver open() {
    Driver opened = CudaGpu.open();
    devices = opened.deviceCount();
    return opened;
  }

  @BeforeEach
  void load() {
    modules.put(context, driver.moduleLoad(context, image()));
  }

  private long module() {
    return modules.computeIfAbsent(
        driver.current(), current -> driver.moduleLoad(current, image()));
  }

  @Override
  protected int devices() {
    return devices;
  }

  /** Others may use it too, and the driver itself does. */
  @Override
  protected boolean isMemoryOurs() {
    return false;
  }

  @Override
  protected ModuleImage image() {
    return CudaKernels.PTX;
  }

  @Override
  protected Runnable hold(long stream) {
    return CudaKernels.hold(driver, module(), stream);
  }

  @Override
  protected Runnable holdAll(List<Long> streams) {
    return CudaKernels.holdAll(driver, module(), streams);
  }

  /** So many grids that wait are resident at once on any GPU of note: 128 are. */
  @Override
  protected int heldStreamsMax() {
    return 120;
  }

  /** Driver 580 fills memory of another device, whose peer it is not, when it is asked to. */
  @Override
  protected boolean hasOneAddressSpace() {
    return true;
  }

  @Override
  protected boolean isChecked() {
    return CudaGpu.isChecked();
  }

  @Override
  protected boolean mayLoseContexts() {
    return CudaGpu.mayFault();
  }

  /** Driver 580 answers each retain with the first fault. */
  @Override
  protected boolean replacesLostContexts() {
    return false;
  }

  @Override
  protected IntSupplier fault(long stream) {
    Runnable fault = CudaKernels.fault(driver, module(), stream);
    return () -> {
      fault.run();
      return DriverException.ILLEGAL_ADDRESS;
    };
  }
}
