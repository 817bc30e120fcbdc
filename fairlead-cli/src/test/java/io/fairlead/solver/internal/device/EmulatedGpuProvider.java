package io.fairlead.solver.internal.device;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverProvider;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.KernelArguments;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.host.HostDriverProvider;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.MalformedURLException;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The host device as a GPU would have it: takes kernels in CUDA C++ and none in Java, and launches
 * threads in blocks. Its kernels run on an {@link EmulatedGpu}; all else is the host driver's.
 */
public final class EmulatedGpuProvider implements DriverProvider {
  static final String NAME = "emulated-gpu";

  /** Used by {@link java.util.ServiceLoader}. */
  public EmulatedGpuProvider() {}

  /** Opens it with so many devices. Skips the test, loudly, where nothing compiles the kernels. */
  static Fairlead open(int devices) {
    EmulatedGpu.get();
    ClassLoader mine = Thread.currentThread().getContextClassLoader();
    Thread.currentThread().setContextClassLoader(new Providing(mine));
    try {
      return Fairlead.open(
          FairleadConfig.defaults()
              .withDevice(NAME)
              .withDriverSetting("devices", Integer.toString(devices))
              .withDriverSetting("workers", "2")
              .withDriverSetting("memory", "256m"));
    } finally {
      Thread.currentThread().setContextClassLoader(mine);
    }
  }

  @Override
  public String name() {
    return NAME;
  }

  @Override
  public int preference() {
    return -1;
  }

  @Override
  public Probe probe() {
    return new Probe.Available("1", 1);
  }

  @Override
  public Driver open(Map<String, String> settings) {
    Driver host = new HostDriverProvider().open(settings);
    return (Driver)
        Proxy.newProxyInstance(
            Driver.class.getClassLoader(),
            new Class<?>[] {Driver.class},
            (_, method, arguments) -> call(host, method, arguments));
  }

  private static Object call(Driver host, Method method, Object[] arguments) throws Throwable {
    return switch (method.getName()) {
      case "accepts" -> arguments[arguments.length - 1] instanceof ModuleImage.CudaSource;
      case "moduleLoad" -> host.moduleLoad((long) arguments[0], kernels());
      case "launch" -> launch(host, arguments);
      default -> forward(host, method, arguments);
    };
  }

  private static Object forward(Driver host, Method method, Object[] arguments) throws Throwable {
    try {
      return method.invoke(host, arguments);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  private static ModuleImage kernels() {
    Map<String, JavaKernel> kernels = new HashMap<>();
    for (String name : JavaKernels.ALL.keySet()) {
      kernels.put(name, (arguments, begin, end) -> run(name, arguments, begin, end));
    }
    return new ModuleImage.Java(kernels);
  }

  /** Here one work item is a block, and what the launch was stands behind the arguments. */
  private static Object launch(Driver host, Object[] a) {
    Grid grid = (Grid) a[2];
    long blocks = Math.ceilDiv(grid.items(), (long) grid.block());
    WithGrid arguments = new WithGrid((KernelArguments) a[3], grid.block(), grid.items());
    host.launch((long) a[0], (long) a[1], new Grid(blocks, 1, 2), arguments);
    return null;
  }

  private static void run(String name, KernelArguments arguments, long begin, long end) {
    int count = arguments.count() - 2;
    int threads = arguments.i32(count);
    long items = arguments.i64(count + 1);
    int blocks = (int) Math.ceilDiv(items, (long) threads);
    EmulatedGpu.Launch launch = new EmulatedGpu.Launch(blocks, threads, items, false);
    EmulatedGpu.get().run(name, launch, (int) begin, (int) end, arguments, count);
  }

  private record WithGrid(KernelArguments of, int threads, long items) implements KernelArguments {
    @Override
    public int count() {
      return of.count() + 2;
    }

    @Override
    public boolean isBuffer(int index) {
      return index < of.count() && of.isBuffer(index);
    }

    @Override
    public long bits(int index) {
      int behind = index - of.count();
      return behind < 0 ? of.bits(index) : behind == 0 ? threads : items;
    }

    @Override
    public long bytes(int index) {
      int behind = index - of.count();
      return behind < 0 ? of.bytes(index) : behind == 0 ? Integer.BYTES : Long.BYTES;
    }

    @Override
    public MemorySegment buffer(int index) {
      return of.buffer(index);
    }
  }

  /** Finds this provider too; it is not listed for other tests. */
  private static final class Providing extends ClassLoader {
    private static final String LIST = "META-INF/services/" + DriverProvider.class.getName();

    Providing(ClassLoader parent) {
      super(parent);
    }

    @Override
    protected Enumeration<URL> findResources(String name) {
      return name.equals(LIST)
          ? Collections.enumeration(List.of(list()))
          : Collections.emptyEnumeration();
    }

    private static URL list() {
      try {
        Path list = Files.createTempFile("providers", ".txt");
        list.toFile().deleteOnExit();
        return Files.writeString(list, EmulatedGpuProvider.class.getName()).toUri().toURL();
      } catch (MalformedURLException e) {
        throw new IllegalStateException(e);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
