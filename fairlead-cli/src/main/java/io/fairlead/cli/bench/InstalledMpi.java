package io.fairlead.cli.bench;

import io.fairlead.comm.Launch;
import io.fairlead.ffi.MpiLauncher;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * An MPI that is installed here: how programs are started with it, and compiled for it.
 *
 * @param launcher its {@code mpirun}
 * @param compiler its {@code mpicc}; null: programs in C cannot be built for it
 */
record InstalledMpi(Flavour flavour, Path launcher, @Nullable Path compiler) {

  /** Whose MPI it is. */
  enum Flavour {
    OPEN_MPI("openmpi", Launch.Family.OPEN_MPI, "--bind-to"),
    MPICH("mpich", Launch.Family.MPICH, "-bind-to");

    private final String word;
    private final Launch.Family family;
    private final String bindOption;

    /**
     * @param word in the names of rows, and of its programs where both are installed
     * @param family of its launcher
     * @param bindOption how its launcher is told what a rank may use
     */
    Flavour(String word, Launch.Family family, String bindOption) {
      this.word = word;
      this.family = family;
      this.bindOption = bindOption;
    }

    String word() {
      return word;
    }
  }

  /** What a rank may use: launchers choose differently if they are not told. */
  enum Binding {
    /** Whatever there is. */
    UNBOUND("none"),
    /** A core of its own. */
    BOUND("core");

    /** In the words of launchers. */
    private final String choice;

    Binding(String choice) {
      this.choice = choice;
    }

    String word() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  /**
   * What launchers tell those that they start, by the beginnings of names; a launcher that is
   * started by one of these must not see it.
   */
  private static final List<String> OF_LAUNCHERS =
      List.of("OMPI_", "OPAL_", "ORTE_", "PRTE_", "PMIX_", "PMI_", "HYDI_", "MPI_LOCAL", "MPIR_");

  /** In Open MPI and in MPICH: the rank of who was started. */
  private static final List<String> RANKS =
      List.of("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK");

  /** Open MPI starts nothing for root unless told so; root has asked for this benchmark. */
  private static final List<String> AS_ROOT =
      List.of("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");

  /** Those that are found along {@code PATH}, each once. */
  static List<InstalledMpi> found() {
    String path = System.getenv("PATH");
    return path == null
        ? List.of()
        : found(
            Arrays.stream(path.split(":", -1)).filter(f -> !f.isEmpty()).map(Path::of).toList());
  }

  /**
   * Those in one of these folders: under a name of its own, or as what the usual name stands for.
   */
  static List<InstalledMpi> found(List<Path> folders) {
    List<InstalledMpi> found = new ArrayList<>();
    Optional<MpiLauncher> usual = program("mpirun", folders).flatMap(MpiLauncher::at);
    for (Flavour flavour : Flavour.values()) {
      Optional<Path> own = program("mpirun." + flavour.word, folders);
      if (own.isPresent()) {
        found.add(
            new InstalledMpi(
                flavour, own.get(), program("mpicc." + flavour.word, folders).orElse(null)));
      } else if (usual.isPresent() && usual.get().family() == flavour.family) {
        Path launcher = usual.get().command();
        found.add(new InstalledMpi(flavour, launcher, program("mpicc", folders).orElse(null)));
      }
    }
    return List.copyOf(found);
  }

  private static Optional<Path> program(String name, List<Path> folders) {
    return folders.stream()
        .map(folder -> folder.resolve(name))
        .filter(file -> Files.isExecutable(file) && !Files.isDirectory(file))
        .findFirst();
  }

  /** What stands before a command to start it as so many ranks on this machine. */
  List<String> command(int ranks, Binding binding) {
    List<String> words = new ArrayList<>();
    words.addAll(List.of(launcher.toString(), flavour.bindOption, binding.choice));
    if (flavour == Flavour.OPEN_MPI && ranks > Runtime.getRuntime().availableProcessors()) {
      words.add("--oversubscribe");
    }
    words.addAll(List.of("-n", "" + ranks));
    return words;
  }

  /** Takes out of an environment what a launcher put there. */
  static void forget(Map<String, String> environment) {
    environment.keySet().removeIf(name -> OF_LAUNCHERS.stream().anyMatch(name::startsWith));
  }

  /** Makes the environment of a launcher from this process's. */
  static void prepare(Map<String, String> environment) {
    if ("root".equals(System.getProperty("user.name"))) {
      AS_ROOT.forEach(name -> environment.put(name, "1"));
    }
  }

  /**
   * Which rank a launcher made of the process with this environment; empty: it was not launched.
   */
  static Optional<Integer> rank(Map<String, String> environment) {
    return RANKS.stream()
        .map(environment::get)
        .filter(text -> text != null && text.matches("\\d{1,9}"))
        .map(Integer::valueOf)
        .findFirst();
  }

  /** In words, for who waits. */
  String describe() {
    return flavour.word + " (" + launcher + ")";
  }
}
