package io.fairlead.ffi.mpi;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.fairlead.comm.Launch;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.ffi.mpi.MpiFlavour.Constant;
import io.fairlead.ffi.posix.ProcessEnvironment;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.SequencedSet;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * One MPI library: found, loaded, and told which family it is of. Immutable; any thread, since
 * nothing here enters MPI but what MPI allows before its start.
 *
 * <p>Which one: that of the setting; else one that is in the process already, since two MPIs in one
 * process break each other; else by the launcher, since ranks of one family cannot be reached by
 * the other and would each run alone.
 *
 * <p>Before it is loaded, {@code UCX_ERROR_SIGNALS} is set to nothing unless it is set: UCX, below
 * both families, would catch SIGSEGV, which the JVM uses for its null checks, and end the process
 * at the first. A library that was loaded stays loaded.
 */
final class MpiLibrary {
  /** Names the library: a file name that the system's loader finds, or a path. */
  static final String PROPERTY = "fairlead.mpi.library";

  private static final List<String> OPEN_MPI = List.of("libmpi.so.40", "libmpi.so");
  private static final List<String> MPICH =
      List.of("libmpich.so.12", "libmpi.so.12", "libmpich.so", "libmpi.so");
  private static final List<String> ANY =
      List.of("libmpi.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi.so");

  /** MPICH's longest; Open MPI's is 256. */
  private static final int VERSION_BYTES_MAX = 8192;

  private static final int ERROR_BYTES_MAX = 1024;

  final String name;
  final MpiFlavour flavour;
  final MpiApi api;

  /** What the library says it is, on one line. */
  final String version;

  final long world;
  final long self;
  final long bytes;
  final long errorsReturn;

  private MpiLibrary(
      String name, MpiFlavour flavour, MpiApi api, String version, SymbolLookup symbols) {
    this.name = name;
    this.flavour = flavour;
    this.api = api;
    this.version = version;
    this.world = flavour.constant(Constant.COMM_WORLD, symbols::find);
    this.self = flavour.constant(Constant.COMM_SELF, symbols::find);
    this.bytes = flavour.constant(Constant.BYTE, symbols::find);
    this.errorsReturn = flavour.constant(Constant.ERRORS_RETURN, symbols::find);
  }

  // --- finding ----------------------------------------------------------------------------------

  /**
   * Loads the library that fits how this process was started. Blocks for some 10 ms.
   *
   * @param launch how it was started; null: by itself
   * @throws TransportException LIBRARY, saying what is missing and what to install or pass
   */
  static MpiLibrary find(@Nullable Launch launch) {
    String named = System.getProperty(PROPERTY);
    if (named != null && !named.isBlank()) {
      return checked(open(named.strip(), launch), launch);
    }
    return find(launch, candidates(launch));
  }

  /** The first of these names that can be loaded. */
  static MpiLibrary find(@Nullable Launch launch, SequencedSet<String> candidates) {
    List<String> failures = new ArrayList<>();
    for (String candidate : candidates) {
      SymbolLookup symbols = lookup(candidate, failures);
      if (symbols != null) {
        return checked(of(candidate, symbols), launch);
      }
    }
    throw refused(
        "no MPI library is here: tried "
            + String.join(", ", candidates)
            + "; "
            + advice(launch)
            + ", or name the library with -D"
            + PROPERTY
            + "=PATH");
  }

  private static String advice(@Nullable Launch launch) {
    return switch (launch == null ? Launch.Family.ANY : launch.family()) {
      case OPEN_MPI -> "install Open MPI (Debian: libopenmpi-dev openmpi-bin)";
      case MPICH -> "install MPICH (Debian: libmpich-dev mpich)";
      case ANY ->
          "install Open MPI (Debian: libopenmpi-dev openmpi-bin) or MPICH (libmpich-dev mpich)";
    };
  }

  private static SequencedSet<String> candidates(@Nullable Launch launch) {
    SequencedSet<String> names = new LinkedHashSet<>(mapped());
    names.addAll(
        switch (launch == null ? Launch.Family.ANY : launch.family()) {
          case OPEN_MPI -> OPEN_MPI;
          case MPICH -> MPICH;
          case ANY -> ANY;
        });
    return names;
  }

  /** MPI libraries that somebody has loaded into this process, where the system tells. */
  private static List<String> mapped() {
    try (Stream<String> lines = Files.lines(Path.of("/proc/self/maps"))) {
      return lines
          .map(line -> line.substring(Math.max(0, line.indexOf('/'))))
          .filter(path -> path.matches("/.*/libmpi(ch|_abi)?\\.so(\\.\\d+)*"))
          .distinct()
          .toList();
    } catch (IOException | java.io.UncheckedIOException notLinux) {
      return List.of();
    }
  }

  private static MpiLibrary open(String name, @Nullable Launch launch) {
    List<String> failures = new ArrayList<>();
    SymbolLookup symbols = lookup(name, failures);
    if (symbols == null) {
      throw refused(
          name
              + " cannot be loaded: "
              + failures.getFirst()
              + "; correct -D"
              + PROPERTY
              + ", or leave it out and "
              + advice(launch));
    }
    return of(name, symbols);
  }

  private static @Nullable SymbolLookup lookup(String name, List<String> failures) {
    prepareEnvironment();
    try {
      return SymbolLookup.libraryLookup(name, Arena.global());
    } catch (IllegalArgumentException e) {
      failures.add(String.valueOf(e.getMessage()));
      return null;
    } catch (IllegalCallerException e) {
      throw new TransportException(Reason.LIBRARY, MpiProcess.NO_ACCESS, e);
    }
  }

  private static void prepareEnvironment() {
    ProcessEnvironment.setIfAbsent("UCX_ERROR_SIGNALS", "");
  }

  // --- telling what it is -----------------------------------------------------------------------

  private static MpiLibrary of(String name, SymbolLookup symbols) {
    refuseStandardInterface(name, symbols);
    if (symbols.find("MPI_Init_thread").isEmpty()) {
      throw refused(name + " is there, and is no MPI library: it has no MPI_Init_thread");
    }
    MpiApi api = new MpiApi(symbols);
    if (!api.missing().isEmpty()) {
      throw refused(
          name
              + " cannot be used: it has no "
              + String.join(", ", api.missing())
              + "; MPI 3 or newer is needed");
    }
    String version = readVersion(api);
    MpiFlavour flavour = flavour(symbols, version);
    if (flavour == null) {
      throw refused(
          name
              + " ("
              + version
              + ") is neither Open MPI nor of MPICH's family, and no other is known");
    }
    return new MpiLibrary(name, flavour, api, version, symbols);
  }

  /** A library of the MPI 5 interface answers 1 or more; Open MPI's own answers -1. */
  private static void refuseStandardInterface(String name, SymbolLookup symbols) {
    Optional<MemorySegment> question = symbols.find("MPI_Abi_get_version");
    if (question.isEmpty()) {
      return;
    }
    FunctionDescriptor type =
        FunctionDescriptor.of(JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment major = arena.allocate(JAVA_INT);
      MemorySegment minor = arena.allocate(JAVA_INT);
      int status =
          (int)
              Linker.nativeLinker().downcallHandle(question.get(), type).invokeExact(major, minor);
      if (status == 0 && major.get(JAVA_INT, 0) > 0) {
        throw refused(
            name
                + " has the standard interface of MPI 5, which is not driven yet; name the same"
                + " installation's own library with -D"
                + PROPERTY
                + "=PATH (libmpi.so.40 or libmpich.so.12)");
      }
    } catch (Throwable e) {
      throw unexpected("MPI_Abi_get_version", e);
    }
  }

  private static @Nullable MpiFlavour flavour(SymbolLookup symbols, String version) {
    if (symbols.find(Constant.COMM_WORLD.openMpiSymbol()).isPresent()) {
      return MpiFlavour.OPEN_MPI;
    }
    boolean mpich =
        symbols.find("MPII_Version_string").isPresent()
            || Stream.of("MPICH", "MVAPICH", "Intel(R) MPI").anyMatch(version::contains);
    return mpich ? MpiFlavour.MPICH : null;
  }

  /** Legal before MPI's start. */
  private static String readVersion(MpiApi api) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = arena.allocate(VERSION_BYTES_MAX);
      MemorySegment length = arena.allocate(JAVA_INT);
      int status = api.getLibraryVersion(text.address(), length.address());
      if (status != 0) {
        return "of unknown version, MPI_Get_library_version answers " + status;
      }
      String all = text.getString(0);
      String first = all.lines().findFirst().orElse("").replaceAll("[\\s:]+", " ").strip();
      first = first.replace("Version ", "");
      int details = first.indexOf(',');
      return details < 0 ? first : first.substring(0, details);
    }
  }

  private static MpiLibrary checked(MpiLibrary library, @Nullable Launch launch) {
    Launch.Family of =
        library.flavour == MpiFlavour.OPEN_MPI ? Launch.Family.OPEN_MPI : Launch.Family.MPICH;
    if (launch != null && launch.family() != Launch.Family.ANY && launch.family() != of) {
      throw refused(
          launch.launcher()
              + " started this process, but "
              + library.name
              + " is "
              + library.version
              + ", whose ranks it does not know: each would run alone. Start with that library's own"
              + " launcher (Debian: mpirun.openmpi, mpirun.mpich), or name the launcher's library"
              + " with -D"
              + PROPERTY
              + "=PATH");
    }
    return library;
  }

  // --- errors -----------------------------------------------------------------------------------

  static TransportException refused(String message) {
    return new TransportException(Reason.LIBRARY, message, null);
  }

  /** What MPI says of an error code, with the call that answered it. After MPI's start. */
  TransportException failure(String call, int status) {
    return new TransportException(Reason.LIBRARY, call + ": " + errorText(status), null);
  }

  String errorText(int status) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = arena.allocate(ERROR_BYTES_MAX);
      MemorySegment length = arena.allocate(JAVA_INT);
      int known = api.errorString(status, text.address(), length.address());
      return known == 0 ? text.getString(0).strip() : "MPI error " + status;
    }
  }

  void check(String call, int status) {
    if (status != 0) {
      throw failure(call, status);
    }
  }

  @Override
  public String toString() {
    return version + " (" + name + ")";
  }
}
