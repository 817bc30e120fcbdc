package io.fairlead.ffi.mpi;

import io.fairlead.comm.Launch;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.WireTransport;
import org.jspecify.annotations.Nullable;

/** Opens transports over MPI, and says whether it could. No state of its own; any thread. */
public final class MpiTransports {
  private MpiTransports() {}

  /** Why there is no MPI here that fits the launcher; null if there is one. Loads it. */
  public static @Nullable String unavailable() {
    try {
      MpiLibrary _ = library();
      return null;
    } catch (TransportException e) {
      return e.getMessage();
    } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
      return MpiProcess.NO_ACCESS;
    }
  }

  /**
   * The library and its version, and why idle ranks cannot be woken, if so; empty if there is none.
   */
  public static String version() {
    try {
      String napping = DoorbellFitting.missing();
      return library() + (napping.isEmpty() ? "" : "; idle ranks nap: " + napping);
    } catch (TransportException | ExceptionInInitializerError | NoClassDefFoundError e) {
      return "";
    }
  }

  private static MpiLibrary library() {
    return MpiLibrary.find(Launch.current().orElse(null));
  }

  /**
   * Opens this process's rank of all that were launched. Waits for the others.
   *
   * @throws TransportException LIBRARY: why it cannot be
   */
  public static Transport open(TransportSettings settings) {
    MpiProcess process = MpiProcess.enter();
    return open(process, process.library.world, settings);
  }

  /** As the other, on a communicator that is given. */
  public static Transport open(long communicator, TransportSettings settings) {
    return open(MpiProcess.enter(), communicator, settings);
  }

  private static Transport open(MpiProcess process, long parent, TransportSettings settings) {
    try {
      return new WireTransport(MpiWire.open(process, parent), settings);
    } catch (RuntimeException | Error failure) {
      // Not every rank may have got so far, so ending MPI, where they all meet, could wait for
      // ever.
      process.abandon();
      throw failure;
    }
  }
}
