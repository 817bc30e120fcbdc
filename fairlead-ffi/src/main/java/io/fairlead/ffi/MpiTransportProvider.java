package io.fairlead.ffi;

import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportProvider;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.ffi.mpi.MpiTransports;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Messages between processes by MPI: Open MPI, or a library of MPICH's family, told apart when it
 * is loaded.
 *
 * <p>Settings, all optional, are system properties:
 *
 * <table>
 * <caption>Settings of the mpi transport</caption>
 * <tr><th>property</th><th>value</th><th>otherwise</th></tr>
 * <tr><td>{@code fairlead.mpi.library}</td><td>the library, a name or a path</td>
 *     <td>one that is loaded already; else the launcher's family; else libmpi.so.40,
 *     libmpich.so.12, libmpi.so.12, libmpi.so</td></tr>
 * <tr><td>{@code fairlead.mpi.threads}</td><td>{@code serialized}: any thread, one at a time; {@code
 *     funneled}: only the one that opens</td><td>{@code serialized}</td></tr>
 * <tr><td>{@code fairlead.mpi.startSeconds}</td><td>how long ranks wait for each other at the
 *     start</td><td>60</td></tr>
 * <tr><td>{@code fairlead.mpi.doorbell}</td><td>{@code on}, {@code off}: whether ranks of one host
 *     that have nothing to do are woken by who sends</td><td>{@code on}</td></tr>
 * </table>
 *
 * <p>MPI starts in a process once and ends once. It starts with the first transport, and ends when
 * the last one is closed, where all ranks meet; an MPI that somebody else had started is used as it
 * is, and not ended.
 */
public final class MpiTransportProvider implements TransportProvider {

  /** Used by {@link java.util.ServiceLoader}; any thread. */
  public MpiTransportProvider() {}

  @Override
  public String name() {
    return "mpi";
  }

  /** Loads the library, which then stays loaded; starts nothing. */
  @Override
  public @Nullable String unavailable() {
    return MpiTransports.unavailable();
  }

  /** The library and its version; loads it. */
  @Override
  public String version() {
    return MpiTransports.version();
  }

  /**
   * Opens this process's rank among all that the launcher started. All ranks do so together; waits
   * for them.
   *
   * @throws io.fairlead.comm.spi.TransportException LIBRARY, saying what is missing, what does not
   *     fit, or who did not come, and what to do
   */
  @Override
  public List<Transport> open(TransportSettings settings) {
    return List.of(MpiTransports.open(settings));
  }

  /**
   * As {@link #open}, on a communicator of your own, of which every rank makes this call. It is
   * duplicated, and stays yours; MPI is not ended.
   *
   * @param communicator the {@code MPI_Comm}: a pointer in Open MPI, an int in MPICH
   */
  public static Transport open(long communicator, TransportSettings settings) {
    return MpiTransports.open(communicator, settings);
  }
}
