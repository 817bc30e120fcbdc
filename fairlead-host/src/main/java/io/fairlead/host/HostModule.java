package io.fairlead.host;

import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.JavaKernel;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;

/** A loaded module: kernels that are Java code, by name. */
final class HostModule extends HandleTable.Entry {
  private final HostContext context;
  private final HandleTable handles;
  private final Map<String, JavaKernel> code;
  private final Map<String, HostKernel> kernels = new ConcurrentHashMap<>();

  HostModule(HostContext context, HandleTable handles, Map<String, JavaKernel> code) {
    this.context = context;
    this.handles = handles;
    this.code = code;
    // All kernels get their handles now, in a call that may block; looking one up only reads.
    code.forEach((name, body) -> kernels.put(name, kernel(name, body)));
  }

  private HostKernel kernel(String name, JavaKernel body) {
    HostKernel kernel = new HostKernel(context, name, body);
    handles.add(kernel);
    return kernel;
  }

  HostKernel kernel(String name) {
    HostKernel kernel = kernels.get(name);
    if (kernel == null) {
      throw Status.refused(
          DriverException.NOT_FOUND,
          "the module has no kernel '" + name + "'; it has " + new TreeSet<>(code.keySet()));
    }
    return kernel;
  }

  void unload() {
    kernels.values().forEach(handles::remove);
  }

  @Override
  HandleTable.Kind kind() {
    return HandleTable.Kind.MODULE;
  }

  @Override
  HostContext context() {
    return context;
  }
}
