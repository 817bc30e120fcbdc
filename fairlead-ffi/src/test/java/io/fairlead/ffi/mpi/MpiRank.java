package io.fairlead.ffi.mpi;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.sim.remote.RankAgent;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import org.jspecify.annotations.Nullable;

/**
 * A rank's process under the contract suite. It stays in MPI as long as it lives, and opens each
 * world over a communicator of the first ranks, which is also how a user gives one of their own.
 */
final class MpiRank {
  /** MPI's word for "none of the groups"; the same in both families. */
  private static final int UNDEFINED = -32_766;

  private final MpiProcess process;
  private final MethodHandle split;

  private MpiRank(MpiProcess process) {
    this.process = process;
    this.split =
        Linker.nativeLinker()
            .downcallHandle(
                SymbolLookup.libraryLookup(process.library.name, Arena.global())
                    .findOrThrow("MPI_Comm_split"),
                FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG));
  }

  public static void main(String[] arguments) throws IOException {
    MpiProcess process = MpiProcess.enter();
    MpiRank rank = new MpiRank(process);
    RankAgent.serve(Integer.parseInt(arguments[0]), rank.number(), rank::open);
    process.endAll(); // all are here, also if a suite had a world fail
  }

  private int number() {
    return MpiProcess.number(
        process.library,
        "MPI_Comm_rank",
        to -> process.library.api.commRank(process.library.world, to));
  }

  private @Nullable Transport open(TransportSettings settings) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment made = arena.allocate(JAVA_LONG);
      int color = number() < settings.ranks() ? 0 : UNDEFINED;
      int status;
      try {
        status = (int) split.invokeExact(process.library.world, color, number(), made.address());
      } catch (Throwable e) {
        throw unexpected("MPI_Comm_split", e);
      }
      process.library.check("MPI_Comm_split", status);
      return color == UNDEFINED
          ? null
          : MpiTransports.open(process.library.flavour.handle(made, 0), settings);
    }
  }
}
