package io.fairlead.runtime;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.Launch;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.comm.spi.TransportProvider;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.task.TaskRuntime;
import java.util.List;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The communicator of all ranks of this program. Opened when it is first asked for, and not before:
 * devices are open by then, as message libraries that know of devices want it, and a program that
 * never sends anything starts no such library.
 *
 * <pre>
 * UNASKED --comm()--> OPEN --close()--> CLOSED
 *      \________________close()____________/
 * </pre>
 *
 * <pre>
 * field  | writer        | reader | mode, guard
 * comm   | first who asks | any    | lock
 * closed | who closes    | any    | lock
 * </pre>
 *
 * The lock is held while ranks meet, so those who ask meanwhile wait with the first.
 */
final class World implements AutoCloseable {
  private static final String IN_PROCESS = "in-process";
  private static final String MPI = "mpi";

  private final TaskRuntime tasks;
  private final FairleadConfig config;
  private final RankTraffic traffic;
  private final ReentrantLock lock = new ReentrantLock();
  private @Nullable Comm comm;
  private boolean closed;

  World(TaskRuntime tasks, FairleadConfig config, RankTraffic traffic) {
    this.tasks = tasks;
    this.config = config;
    this.traffic = traffic;
  }

  Comm comm() {
    lock.lock();
    try {
      if (closed) {
        throw new IllegalStateException("this Fairlead was closed; open another one");
      }
      Comm opened = comm;
      if (opened == null) {
        TransportProvider provider = choose(config.transport(), Launch.current(), providers());
        opened = open(provider);
        comm = opened;
      }
      return opened;
    } finally {
      lock.unlock();
    }
  }

  /** What the transports on the path say of themselves. */
  static List<TransportReport> reports() {
    return providers().stream().map(World::report).toList();
  }

  private static TransportReport report(TransportProvider provider) {
    String missing = provider.unavailable();
    return missing == null
        ? new TransportReport(provider.name(), true, provider.version())
        : new TransportReport(provider.name(), false, missing);
  }

  private Comm open(TransportProvider provider) {
    CommConfig limits = CommConfig.DEFAULT;
    TransportSettings settings =
        new TransportSettings(1, limits.eagerBytes(), limits.eagerMessages());
    return Comm.open(tasks, () -> provider.open(settings).getFirst(), limits);
  }

  private static List<TransportProvider> providers() {
    return ServiceLoader.load(TransportProvider.class).stream()
        .map(ServiceLoader.Provider::get)
        .toList();
  }

  /**
   * The provider that is named, or that fits how the process was started. Nothing falls back: ranks
   * that a launcher started and that cannot reach each other would each do all of the work.
   */
  static TransportProvider choose(
      String named, Optional<Launch> launch, List<TransportProvider> providers) {
    boolean auto = named.equals(FairleadConfig.AUTO);
    String name = auto ? (launch.isPresent() ? MPI : IN_PROCESS) : named;
    String why =
        auto && launch.isPresent()
            ? launch.get().launcher() + " started " + launch.get().size() + " ranks, and "
            : "";
    TransportProvider provider =
        providers.stream()
            .filter(each -> each.name().equals(name))
            .findFirst()
            .orElseThrow(
                () ->
                    refused(
                        why
                            + "there is no transport '"
                            + name
                            + "' on the path; "
                            + found(providers)));
    String missing = provider.unavailable();
    if (missing != null) {
      throw refused(why + "transport '" + name + "' cannot be used: " + missing);
    }
    return provider;
  }

  private static TransportException refused(String message) {
    return new TransportException(Reason.LIBRARY, message, null);
  }

  private static String found(List<TransportProvider> providers) {
    return providers.isEmpty()
        ? "found none"
        : "found "
            + String.join(", ", providers.stream().map(TransportProvider::name).toList())
            + "; io.fairlead.ffi brings mpi";
  }

  @Override
  public void close() {
    Comm opened;
    lock.lock();
    try {
      closed = true;
      opened = comm;
      comm = null;
    } finally {
      lock.unlock();
    }
    if (opened != null) {
      traffic.add(opened.stats());
      opened.close();
    }
  }
}
