package io.fairlead.comm;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What a launcher of ranks, such as {@code mpirun}, told this process about itself. Launchers say
 * it in the environment, so it is known before any message library is loaded.
 *
 * @param launcher in words: {@code Open MPI's mpirun}
 * @param family the message libraries that understand this launcher
 * @param rank this process among all, 0 … {@code size} − 1
 * @param size how many processes were launched
 * @param localRank this process among those of its host, 0 … {@code localSize} − 1; by it processes
 *     share the devices of a host
 * @param localSize how many of them run on this host
 */
public record Launch(
    String launcher, Family family, int rank, int size, int localRank, int localSize) {

  /** Whose launcher it is; its processes find each other only by a library of the same family. */
  public enum Family {
    /** Open MPI, and what is built on it. */
    OPEN_MPI,
    /** MPICH, Intel MPI, MVAPICH: what Hydra launches. */
    MPICH,
    /** Slurm starts ranks of any library that was built for it. */
    ANY
  }

  /** The names under which one launcher says it. The local ones may be missing. */
  private record Words(
      String launcher,
      Family family,
      List<String> needed,
      String rank,
      String size,
      String localRank,
      String localSize) {}

  private static final List<Words> KNOWN =
      List.of(
          new Words(
              "Open MPI's mpirun",
              Family.OPEN_MPI,
              List.of(),
              "OMPI_COMM_WORLD_RANK",
              "OMPI_COMM_WORLD_SIZE",
              "OMPI_COMM_WORLD_LOCAL_RANK",
              "OMPI_COMM_WORLD_LOCAL_SIZE"),
          // Before Hydra's, whose names Slurm sets too.
          new Words(
              "Slurm's srun",
              Family.ANY,
              List.of("SLURM_STEP_ID"),
              "SLURM_PROCID",
              "SLURM_STEP_NUM_TASKS",
              "SLURM_LOCALID",
              "SLURM_STEP_TASKS_PER_NODE"),
          new Words(
              "MPICH's mpiexec",
              Family.MPICH,
              List.of(),
              "PMI_RANK",
              "PMI_SIZE",
              "MPI_LOCALRANKID",
              "MPI_LOCALNRANKS"));

  /** A batch script without srun is one process, and says so like this. */
  private static final Set<String> NO_STEP = Set.of("4294967291", "batch");

  public Launch {
    if (size < 1 || rank < 0 || rank >= size) {
      throw new IllegalArgumentException(launcher + " says rank " + rank + " of " + size);
    }
    if (localSize < 1 || localRank < 0 || localRank >= localSize) {
      throw new IllegalArgumentException(
          launcher + " says local rank " + localRank + " of " + localSize);
    }
  }

  /** How this process was launched; empty if it was started by itself. Any thread. */
  public static Optional<Launch> current() {
    return of(System.getenv());
  }

  /**
   * As {@link #current}, from an environment.
   *
   * @throws IllegalArgumentException if what a launcher says there cannot be
   */
  public static Optional<Launch> of(Map<String, String> environment) {
    for (Words words : KNOWN) {
      Launch found = read(words, environment);
      if (found != null) {
        return Optional.of(found);
      }
    }
    return Optional.empty();
  }

  private static @Nullable Launch read(Words words, Map<String, String> environment) {
    Integer rank = number(environment, words.rank);
    Integer size = number(environment, words.size);
    if (rank == null || size == null || !environment.keySet().containsAll(words.needed)) {
      return null;
    }
    for (String each : words.needed) {
      if (NO_STEP.contains(environment.get(each))) {
        return null;
      }
    }
    Integer localRank = number(environment, words.localRank);
    Integer localSize = number(environment, words.localSize);
    int local = localRank == null ? 0 : localRank;
    int locals = Math.max(local + 1, localSize == null ? 1 : localSize);
    return new Launch(words.launcher, words.family, rank, size, local, locals);
  }

  /** The number at the front: Slurm says {@code 4(x2)} for two hosts of four. */
  private static @Nullable Integer number(Map<String, String> environment, String name) {
    String text = environment.getOrDefault(name, "");
    int digits = 0;
    while (digits < text.length() && digits < 9 && Character.isDigit(text.charAt(digits))) {
      digits++;
    }
    return digits == 0 ? null : Integer.valueOf(text.substring(0, digits));
  }
}
