package io.fairlead.solver.internal.device;

import io.fairlead.comm.Comm;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Reservation;
import io.fairlead.runtime.Fairlead;
import io.fairlead.solver.internal.device.ConjugateGradients.Goal;
import io.fairlead.solver.internal.device.ConjugateGradients.Outcome;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * All ranks' parts of one solver, and how to run something on all of them. Rank r uses device r
 * modulo the number of devices.
 *
 * <p>Threads: any, also at once; each run gets tasks, streams, vectors and a communicator of its
 * own.
 */
public final class RankParts implements AutoCloseable {
  private final Fairlead fairlead;
  private final List<RankPart> parts;
  private final Map<Device, SolverKernels> kernels;
  private final Turns turns = new Turns();
  private final long solveBytes;
  private final long residentBytes;

  /** What one rank did. */
  public record Done<T>(T result, Phases.Spent spent, long nanos) {}

  private interface Body<T> {
    T run(ConjugateGradients rank);
  }

  private RankParts(Fairlead fairlead, List<RankPart> parts, Map<Device, SolverKernels> kernels) {
    this.fairlead = fairlead;
    this.parts = parts;
    this.kernels = kernels;
    this.solveBytes = parts.stream().mapToLong(Workspace::bytes).sum();
    this.residentBytes = parts.stream().mapToLong(part -> part.uploads().total()).sum();
  }

  /** Puts every rank's part on its device. Waits for the uploads to be enqueued. */
  public static RankParts make(Fairlead fairlead, Distribution distribution, int ranks) {
    Map<Device, SolverKernels> kernels = new LinkedHashMap<>();
    try {
      for (int rank = 0; rank < ranks; rank++) {
        kernels.computeIfAbsent(deviceOf(fairlead, rank), SolverKernels::load);
      }
      List<RankPart> parts = makeParts(fairlead, distribution, ranks, kernels);
      RankParts made = new RankParts(fairlead, parts, kernels);
      made.requireRoom();
      return made;
    } catch (RuntimeException | Error failure) {
      kernels.values().forEach(SolverKernels::close);
      throw failure;
    }
  }

  /** In which form a device gets the kernels: loads them, and lets them go. Blocks its task. */
  public static String kernelForm(Device device) {
    try (SolverKernels kernels = SolverKernels.load(device)) {
      return kernels.form();
    }
  }

  /** In which form the devices have the kernels. */
  public String kernelForms() {
    return kernels.values().stream()
        .map(SolverKernels::form)
        .distinct()
        .collect(Collectors.joining("; "));
  }

  private static List<RankPart> makeParts(
      Fairlead fairlead, Distribution distribution, int ranks, Map<Device, SolverKernels> kernels) {
    List<RankPart> made = new ArrayList<>();
    try {
      for (int rank = 0; rank < ranks; rank++) {
        Device device = deviceOf(fairlead, rank);
        SolverKernels ofDevice = kernels.get(device);
        if (ofDevice != null) {
          made.add(distribution.part(rank, device, ofDevice));
        }
      }
      return List.copyOf(made);
    } catch (RuntimeException | Error failure) {
      made.forEach(RankPart::close);
      throw failure;
    }
  }

  /** A solve that would wait for room that the solver itself holds must not begin. */
  private void requireRoom() {
    for (Device device : kernels.keySet()) {
      long resident = bytesOn(device, part -> part.uploads().total());
      long solve = bytesOn(device, Workspace::bytes);
      long limit = device.memory().limit();
      if (resident + solve > limit) {
        parts.forEach(RankPart::close);
        throw new OutOfDeviceMemoryException(
            "the matrices take %,d bytes of device %d and a solve %,d more, but its limit is %,d bytes; raise the limit, or use more devices"
                .formatted(resident, device.info().ordinal(), solve, limit),
            "set up a solver",
            device.info().ordinal(),
            null);
      }
    }
  }

  private static Device deviceOf(Fairlead fairlead, int rank) {
    return fairlead.device(rank % fairlead.devices().size());
  }

  /** Device memory that one run takes, all ranks together. */
  public long solveBytes() {
    return solveBytes;
  }

  /** Device memory that the parts take. */
  public long residentBytes() {
    return residentBytes;
  }

  /** Levels of the hierarchy. */
  public int levels() {
    return parts.getFirst().levels().size();
  }

  /** Solves for one right-hand side; x is replaced by the solution. Waits for all ranks. */
  public List<Done<Outcome>> solve(double[] b, double[] x, boolean zeroGuess, Goal goal) {
    return run(
        fairlead.config().waitMode(),
        rank -> rank.solve(b, x, zeroGuess, rank.isFirst() ? goal : goal.silent()));
  }

  /** Runs V-cycles alone, whose waits are of that mode. Waits for all ranks. */
  public List<Done<Cycles>> cycles(double[] b, int count, WaitMode mode) {
    return run(mode, rank -> rank.cycles(b, count));
  }

  /**
   * V-cycles of one rank.
   *
   * @param relativeResiduals after each
   * @param nanos all of them, without what came before
   */
  @SuppressWarnings("ArrayRecordComponent")
  public record Cycles(double[] relativeResiduals, long nanos) {}

  /** Kernel time so far of the devices in use, or -1 where a driver does not measure it. */
  public long kernelNanos() {
    long sum = 0;
    for (Device device : kernels.keySet()) {
      long nanos = device.context().stats().kernelNanos();
      if (nanos < 0) {
        return -1;
      }
      sum += nanos;
    }
    return sum;
  }

  /** A run is a task of its own, which holds its reservation: any thread may have asked for it. */
  private <T> List<Done<T>> run(WaitMode mode, Body<T> body) {
    List<Device> devices = List.copyOf(kernels.keySet());
    if (parts.size() == 1 && mode == WaitMode.BLOCKING) {
      // A wait holds a thread then, which must not be a carrier: rank tasks have their own.
      return fairlead.ranks(1, mode, comm -> reserved(devices, 0, body)).getFirst();
    }
    ScopeOptions options = ScopeOptions.DEFAULT.waitMode(mode);
    try (TaskScope<List<Done<T>>> scope = fairlead.scope(options)) {
      scope.fork(() -> reserved(devices, 0, body));
      return scope.join().getFirst();
    }
  }

  /**
   * Memory is reserved device by device in their order, before the ranks begin: runs that each hold
   * a part of what they need cannot wait for each other.
   */
  private <T> List<Done<T>> reserved(List<Device> devices, int next, Body<T> body) {
    if (next == devices.size()) {
      return withMemory(body);
    }
    Device device = devices.get(next);
    try (Reservation _ = device.reserve(bytesOn(device, Workspace::bytes))) {
      return reserved(devices, next + 1, body);
    }
  }

  private long bytesOn(Device device, ToLongFunction<RankPart> bytes) {
    return parts.stream().filter(part -> part.device() == device).mapToLong(bytes).sum();
  }

  private <T> List<Done<T>> withMemory(Body<T> body) {
    List<DeviceBuffer> memory = turns.allocate(this::allocate);
    try {
      return parts.size() == 1
          ? List.of(runRank(parts.getFirst(), memory.getFirst(), null, body))
          : runRanks(memory, body);
    } finally {
      memory.forEach(DeviceBuffer::close);
      turns.ended();
    }
  }

  /** All ranks' memory, or nothing. */
  private List<DeviceBuffer> allocate() {
    List<DeviceBuffer> memory = new ArrayList<>();
    try {
      for (RankPart part : parts) {
        memory.add(part.device().allocate(Workspace.bytes(part)));
      }
      return memory;
    } catch (RuntimeException | Error failure) {
      memory.forEach(DeviceBuffer::close);
      throw failure;
    }
  }

  /** When one rank fails, the others' waits fail because of it: its failure is the one to throw. */
  private <T> List<Done<T>> runRanks(List<DeviceBuffer> memory, Body<T> body) {
    AtomicReference<@Nullable RuntimeException> first = new AtomicReference<>();
    try {
      return fairlead.ranks(parts.size(), comm -> runRank(memory, comm, first, body));
    } catch (RuntimeException failure) {
      RuntimeException cause = first.get();
      throw cause == null ? failure : cause;
    }
  }

  private <T> Done<T> runRank(
      List<DeviceBuffer> memory,
      Comm comm,
      AtomicReference<@Nullable RuntimeException> first,
      Body<T> body) {
    int rank = comm.rank();
    try {
      return runRank(parts.get(rank), memory.get(rank), comm, failing(comm, first, body));
    } catch (RuntimeException failure) {
      first.compareAndSet(null, failure);
      throw failure;
    }
  }

  /**
   * A failed rank fails its communicator before it gives back its pinned blocks: no message comes
   * into them any more.
   */
  private static <T> Body<T> failing(
      Comm comm, AtomicReference<@Nullable RuntimeException> first, Body<T> body) {
    return rank -> {
      try {
        return body.run(rank);
      } catch (RuntimeException failure) {
        first.compareAndSet(null, failure);
        comm.fail(failure);
        throw failure;
      }
    };
  }

  private static <T> Done<T> runRank(
      RankPart part, DeviceBuffer memory, @Nullable Comm comm, Body<T> body) {
    long start = System.nanoTime();
    try (ConjugateGradients rank = ConjugateGradients.open(part, memory, comm)) {
      T result = body.run(rank);
      return new Done<>(result, rank.phases().spent(), System.nanoTime() - start);
    }
  }

  /** Frees the memory in stream order. Runs that are under way fail; end them before. */
  @Override
  public void close() {
    parts.forEach(RankPart::close);
    kernels.values().forEach(SolverKernels::close);
  }
}
