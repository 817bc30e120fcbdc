package io.fairlead.sim;

import io.fairlead.device.spi.KernelArguments;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/**
 * Launch arguments for tests of drivers, written down one after another. Not thread-safe; a driver
 * copies them before a launch returns, so one may be changed and launched again.
 */
public final class LaunchArguments implements KernelArguments {
  private record Argument(long bits, long bytes, boolean isBuffer) {}

  private final List<Argument> arguments = new ArrayList<>();

  /** No arguments yet. */
  public LaunchArguments() {}

  public LaunchArguments scalar(double value) {
    arguments.add(new Argument(Double.doubleToRawLongBits(value), Double.BYTES, false));
    return this;
  }

  public LaunchArguments scalar(long value) {
    arguments.add(new Argument(value, Long.BYTES, false));
    return this;
  }

  /** An {@code int} by value, in 4 bytes. */
  public LaunchArguments narrow(int value) {
    arguments.add(new Argument(value & 0xFFFF_FFFFL, Integer.BYTES, false));
    return this;
  }

  /** A device buffer: where it begins, and how much of it the kernel may touch. */
  public LaunchArguments buffer(long address, long bytes) {
    arguments.add(new Argument(address, bytes, true));
    return this;
  }

  /** Forgets all arguments, so that others can be written down. */
  public LaunchArguments clear() {
    arguments.clear();
    return this;
  }

  @Override
  public int count() {
    return arguments.size();
  }

  @Override
  public boolean isBuffer(int index) {
    return arguments.get(index).isBuffer();
  }

  @Override
  public long bits(int index) {
    return arguments.get(index).bits();
  }

  @Override
  public long bytes(int index) {
    return arguments.get(index).bytes();
  }

  @Override
  public MemorySegment buffer(int index) {
    throw new UnsupportedOperationException("only the driver knows the memory behind an address");
  }
}
