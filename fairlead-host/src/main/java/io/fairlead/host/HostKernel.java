package io.fairlead.host;

import io.fairlead.device.spi.JavaKernel;

/** A kernel of a loaded module. */
final class HostKernel extends HandleTable.Entry {
  private final HostContext context;
  final String name;
  final JavaKernel code;

  HostKernel(HostContext context, String name, JavaKernel code) {
    this.context = context;
    this.name = name;
    this.code = code;
  }

  @Override
  HandleTable.Kind kind() {
    return HandleTable.Kind.KERNEL;
  }

  @Override
  HostContext context() {
    return context;
  }
}
