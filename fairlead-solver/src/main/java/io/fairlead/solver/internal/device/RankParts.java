package io.fairlead.solver.internal.device;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommException;
import io.fairlead.comm.ReduceOp;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.memory.Reservation;
import io.fairlead.runtime.Fairlead;
import io.fairlead.solver.NotPositiveDefiniteException;
import io.fairlead.solver.internal.RowPartition;
import io.fairlead.solver.internal.device.ConjugateGradients.Goal;
import io.fairlead.solver.internal.device.ConjugateGradients.Outcome;
import io.fairlead.task.Completion;
import io.fairlead.task.ScopeOptions;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * The parts of one solver that are in this process, and how to run something on them: those of all
 * ranks, where rank r uses device r modulo the number of devices; or this process's own, where each
 * rank is a process.
 *
 * <p>Threads: any, also at once; each run gets tasks, streams, vectors and a communicator of its
 * own. Where ranks are processes, all of them ask for the same runs in the same order, one at a
 * time.
 */
public final class RankParts implements AutoCloseable {
  private final Fairlead fairlead;
  private final List<RankPart> parts;
  private final Map<Device, SolverKernels> kernels;
  private final Turns turns = new Turns();

  /** Of ranks that are processes; null: all of them are here. */
  private final @Nullable Comm world;

  private final long solveBytes;
  private final long residentBytes;

  /** What one rank did. */
  public record Done<T>(T result, Phases.Spent spent, long nanos) {}

  private interface Body<T> {
    T run(ConjugateGradients rank);
  }

  private RankParts(
      Fairlead fairlead,
      List<RankPart> parts,
      Map<Device, SolverKernels> kernels,
      @Nullable Comm world) {
    this.fairlead = fairlead;
    this.world = world;
    this.parts = parts;
    this.kernels = kernels;
    this.solveBytes = parts.stream().mapToLong(Workspace::bytes).sum();
    this.residentBytes = parts.stream().mapToLong(part -> part.uploads().total()).sum();
  }

  /** Puts every rank's part on its device. Waits for the uploads to be enqueued. */
  public static RankParts make(Fairlead fairlead, Distribution distribution, int ranks) {
    return make(fairlead, distribution, IntStream.range(0, ranks).boxed().toList(), null);
  }

  /** Puts this process's part on its device; as each rank of {@code world} does with its own. */
  public static RankParts make(Fairlead fairlead, Distribution distribution, Comm world) {
    return make(fairlead, distribution, List.of(world.rank()), world.duplicate());
  }

  private static RankParts make(
      Fairlead fairlead, Distribution distribution, List<Integer> ranks, @Nullable Comm world) {
    Map<Device, SolverKernels> kernels = new LinkedHashMap<>();
    try {
      for (int i = 0; i < ranks.size(); i++) {
        kernels.computeIfAbsent(deviceOf(fairlead, i), SolverKernels::load);
      }
      List<RankPart> parts = makeParts(fairlead, distribution, ranks, kernels);
      RankParts made = new RankParts(fairlead, parts, kernels, world);
      made.requireRoom();
      return made;
    } catch (RuntimeException | Error failure) {
      kernels.values().forEach(SolverKernels::close);
      if (world != null) {
        world.fail(failure); // else its peers would only learn that it has closed
        world.close();
      }
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
      Fairlead fairlead,
      Distribution distribution,
      List<Integer> ranks,
      Map<Device, SolverKernels> kernels) {
    List<RankPart> made = new ArrayList<>();
    try {
      for (int i = 0; i < ranks.size(); i++) {
        Device device = deviceOf(fairlead, i);
        SolverKernels ofDevice = kernels.get(device);
        if (ofDevice != null) {
          made.add(distribution.part(ranks.get(i), device, ofDevice));
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

  /** Of the {@code i}-th rank in this process. */
  private static Device deviceOf(Fairlead fairlead, int i) {
    return fairlead.device(i % fairlead.devices().size());
  }

  /** Device memory that one run takes, all ranks of this process together. */
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

  /**
   * Solves for one right-hand side; x is replaced by the solution, all of it on each rank. Waits
   * for all ranks.
   *
   * @return of the ranks in this process
   */
  public List<Done<Outcome>> solve(double[] b, double[] x, boolean zeroGuess, Goal goal) {
    List<Done<Outcome>> done =
        run(
            fairlead.config().waitMode(),
            rank -> rank.solve(b, x, zeroGuess, rank.isFirst() ? goal : goal.silent()));
    if (world != null) {
      exchangeBlocks(world, x);
    }
    return done;
  }

  /** Each rank has solved for its block, and gets those of the others. */
  private void exchangeBlocks(Comm world, double[] x) {
    RowPartition rows = parts.getFirst().rows();
    MemorySegment all = MemorySegment.ofArray(x);
    List<Completion<?>> copies = new ArrayList<>();
    for (int rank = 0; rank < world.size(); rank++) {
      MemorySegment block = all.asSlice(8L * rows.first(rank), 8L * rows.size(rank));
      copies.add(world.broadcast(rank, block));
    }
    copies.forEach(Completion::await);
  }

  /** The sum of a number over all ranks. Waits for them. */
  public long overRanks(long number) {
    if (world == null) {
      return number;
    }
    long[] sum = {number};
    world.allReduce(sum, ReduceOp.SUM).await();
    return sum[0];
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
    return world == null ? runHere(mode, body) : runWithPeers(world, mode, body);
  }

  /**
   * A rank that fails takes its peers along, which would wait for its messages for ever. It does so
   * before it gives back its pinned blocks, so that no message comes into them any more; and if it
   * failed before it had any.
   */
  private <T> List<Done<T>> runWithPeers(Comm world, WaitMode mode, Body<T> body) {
    try {
      return runHere(
          mode,
          rank -> {
            try {
              return body.run(rank);
            } catch (RuntimeException | Error failure) {
              fail(world, failure);
              throw failure;
            }
          });
    } catch (RuntimeException | Error failure) {
      fail(world, failure);
      throw failure;
    }
  }

  private static void fail(Comm world, Throwable failure) {
    if (failure instanceof NotPositiveDefiniteException) {
      awaitAll(world);
    }
    world.fail(failure);
  }

  /** All ranks find this in the same sum: each shall say so, and none that another one failed. */
  private static void awaitAll(Comm world) {
    try {
      world.barrier().await();
    } catch (CommException anotherFailed) {
      // It did so first, and has said it.
    }
  }

  private <T> List<Done<T>> runHere(WaitMode mode, Body<T> body) {
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
          ? List.of(runRank(parts.getFirst(), memory.getFirst(), world, body))
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
    if (world != null) {
      world.close();
    }
  }
}
