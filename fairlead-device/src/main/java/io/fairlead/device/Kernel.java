package io.fairlead.device;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import java.util.Arrays;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * A kernel with its declared parameters. Immutable; any thread, any number at once.
 *
 * <p>The declaration is what the checks and the order of work stand on: a buffer that is declared
 * {@code in} but written would not be ordered against its readers.
 */
public final class Kernel {
  private final KernelModule module;
  private final String name;
  private final long handle;
  private final Param[] params;
  private final String operation;

  /** Position in the arguments of each buffer, in order, and its access. */
  private final int[] bufferIndexes;

  private final Access[] accesses;

  Kernel(KernelModule module, String name, long handle, Param[] params) {
    this.module = module;
    this.name = name;
    this.handle = handle;
    this.params = params;
    this.operation = "launch " + name;
    int[] indexes = new int[params.length];
    Access[] found = new Access[params.length];
    int buffers = 0;
    for (int i = 0; i < params.length; i++) {
      Access access = params[i].access();
      if (access != null) {
        indexes[buffers] = i;
        found[buffers++] = access;
      }
    }
    this.bufferIndexes = Arrays.copyOf(indexes, buffers);
    this.accesses = Arrays.copyOf(found, buffers);
  }

  public String name() {
    return name;
  }

  /** As it was declared: {@code axpy(F64, in(F64), inOut(F64))}. */
  @Override
  public String toString() {
    return Arrays.stream(params)
        .map(Param::toString)
        .collect(Collectors.joining(", ", name + "(", ")"));
  }

  /**
   * Enqueues a launch on the current task's stream. Does not wait for the device; parks the task
   * while its stream has too many unfinished operations.
   *
   * @param args one for each parameter: {@code Double} for F64, {@code Float} for F32, {@code
   *     Integer} for I32, {@code Long} for I64, {@code Byte} for I8, an {@link Operand} for a
   *     buffer. Nothing is converted
   * @throws IllegalArgumentException that says which argument, what was expected and what came;
   *     nothing is enqueued then
   * @throws DeviceException if the driver refuses the launch. What fails while the kernel runs
   *     loses the context and surfaces in {@link DeviceLostException} on every wait
   */
  public void launch(Grid grid, @Nullable Object... args) {
    launch(module.context().stream(), grid, args);
  }

  /** As the other {@code launch}, on this stream. */
  public void launch(DeviceStream stream, Grid grid, @Nullable Object... args) {
    module.requireOpen(operation);
    requireSameContext(stream);
    requireCount(args.length);
    LaunchArguments arguments = new LaunchArguments(params);
    enqueue(stream, grid, taken(args, arguments), arguments);
  }

  /**
   * Checks the arguments and takes the scalars; returns the buffers. A method of its own because of
   * its loop: where that stands in {@code launch}, a process that has just started compiles the
   * whole way to the driver twice, once to replace a loop of a dozen turns while it runs.
   */
  private Operand[] taken(@Nullable Object[] args, LaunchArguments arguments) {
    Operand[] operands = new Operand[bufferIndexes.length];
    int buffers = 0;
    for (int i = 0; i < params.length; i++) {
      Param param = params[i];
      if (param.isScalar()) {
        arguments.set(i, scalarBits(i, args[i]), param.type().bytes());
      } else {
        Operand operand = buffer(i, args[i]);
        operands[buffers++] = operand;
        arguments.set(i, 0, operand.bytes());
      }
    }
    return operands;
  }

  private void enqueue(
      DeviceStream stream, Grid grid, Operand[] operands, LaunchArguments arguments) {
    Driver driver = module.context().driver();
    stream.launch(
        operation,
        grid.items(),
        operands,
        accesses,
        (streamHandle, addresses) -> {
          for (int i = 0; i < bufferIndexes.length; i++) {
            arguments.setAddress(bufferIndexes[i], addresses[i]);
          }
          Capture writing = stream.core().capture();
          if (writing != null) {
            writing.holdings.hold(module.loaded());
          }
          driver.launch(streamHandle, handle, grid, arguments);
        });
  }

  /**
   * How many blocks like those of {@code grid} the device holds at once, whatever else runs: the
   * most that a {@linkplain Grid#cooperative cooperative} launch may have. A kernel with more items
   * than so many threads is launched with fewer threads, and loops. Any thread; waits for the
   * owner.
   *
   * @throws DeviceException if the device knows no such thing, as the host device
   */
  public long residentBlocks(Grid grid) {
    module.requireOpen("resident blocks of " + name);
    DeviceContext context = module.context();
    return context.driverCall(
        DriverCall.KERNEL,
        "resident blocks of " + name,
        () -> context.driver().residentBlocks(handle, grid));
  }

  /** Adds a launch to a graph. */
  GraphBuilder.Node addTo(GraphBuilder graph, Grid grid, @Nullable Object[] args) {
    module.requireOpen(operation);
    requireCount(args.length);
    LaunchArguments arguments = new LaunchArguments(params);
    Operand[] operands = taken(args, arguments);
    graph.hold(this, module);
    for (int i = 0; i < operands.length; i++) {
      arguments.setAddress(bufferIndexes[i], graph.hold(operands[i], accesses[i]));
    }
    return graph.add(
        operands,
        accesses,
        (graphs, handleOfGraph, after) ->
            graphs.addLaunch(handleOfGraph, after, handle, grid, arguments));
  }

  private void requireSameContext(DeviceStream stream) {
    if (stream.context() != module.context()) {
      throw new IllegalArgumentException(
          this + " was loaded on another device than " + stream + "; load the module there too");
    }
  }

  private void requireCount(int count) {
    if (count != params.length) {
      throw new IllegalArgumentException(
          this + " takes " + params.length + " arguments after the grid, but " + count + " came");
    }
  }

  private long scalarBits(int index, @Nullable Object arg) {
    return switch (params[index].type()) {
      case F64 ->
          arg instanceof Double value
              ? Double.doubleToRawLongBits(value)
              : refuse(index, "a double", arg);
      case F32 ->
          arg instanceof Float value
              ? Float.floatToRawIntBits(value) & 0xFFFF_FFFFL
              : refuse(index, "a float", arg);
      case I32 ->
          arg instanceof Integer value ? value & 0xFFFF_FFFFL : refuse(index, "an int", arg);
      case I64 -> arg instanceof Long value ? value : refuse(index, "a long", arg);
      case I8 -> arg instanceof Byte value ? value & 0xFFL : refuse(index, "a byte", arg);
    };
  }

  private Operand buffer(int index, @Nullable Object arg) {
    if (!(arg instanceof Operand operand)) {
      throw refusal(index, "a device buffer", arg);
    }
    int element = params[index].type().bytes();
    if (operand.bytes() % element != 0) {
      throw refusal(index, "a buffer of whole elements of " + element + " bytes", arg);
    }
    return operand;
  }

  private long refuse(int index, String expected, @Nullable Object arg) {
    throw refusal(index, expected, arg);
  }

  private IllegalArgumentException refusal(int index, String expected, @Nullable Object arg) {
    return new IllegalArgumentException(
        this
            + ": argument "
            + (index + 1)
            + " is declared "
            + params[index]
            + " and takes "
            + expected
            + ", but "
            + describe(arg)
            + " came");
  }

  private static String describe(@Nullable Object arg) {
    return switch (arg) {
      case null -> "null";
      case Operand operand -> "a device buffer of " + operand.bytes() + " bytes";
      case Number number -> "the " + number.getClass().getSimpleName() + " " + number;
      default -> "a " + arg.getClass().getName();
    };
  }
}
