package io.fairlead.cli.bench;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.InProcess;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportProvider;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.RankBody;
import io.fairlead.task.ForkOptions;
import io.fairlead.task.TaskScope;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * The ranks of a measurement, as far as they live in this process: all of them, or the one that a
 * launcher made of it. Every probe is written for one rank, and meets its peers here or elsewhere.
 *
 * <p>Confined to the thread that measures.
 */
final class CommWorld implements AutoCloseable {
  /** The transport of ranks that all live in this process. */
  static final String IN_PROCESS = InProcess.provider().name();

  private final Fairlead fairlead;
  private final List<Comm> here;

  private CommWorld(Fairlead fairlead, List<Comm> here) {
    this.fairlead = fairlead;
    this.here = here;
  }

  /** Two ranks, as the program would have them. */
  static CommWorld open(Fairlead fairlead, String transport) {
    return open(fairlead, transport, 2, CommConfig.DEFAULT, UnaryOperator.identity());
  }

  /**
   * Ranks over a transport.
   *
   * @param ranks how many, where no launcher says
   * @param around puts something around each rank's transport
   * @throws TransportMissingException if there is no such transport here
   */
  static CommWorld open(
      Fairlead fairlead,
      String transport,
      int ranks,
      CommConfig config,
      UnaryOperator<Transport> around) {
    TransportSettings settings =
        new TransportSettings(ranks, config.eagerBytes(), config.eagerMessages());
    TransportProvider provider = provider(transport);
    List<Comm> here = new ArrayList<>();
    if (transport.equals(IN_PROCESS)) {
      for (Transport each : provider.open(settings)) {
        here.add(Comm.over(fairlead.tasks(), around.apply(each), config));
      }
    } else {
      // on the communication thread, as Fairlead.world() does: a library may want to be used there
      Supplier<Transport> one = () -> around.apply(provider.open(settings).getFirst());
      here.add(Comm.open(fairlead.tasks(), one, config));
    }
    return new CommWorld(fairlead, List.copyOf(here));
  }

  private static TransportProvider provider(String name) {
    TransportProvider found =
        ServiceLoader.load(TransportProvider.class).stream()
            .map(ServiceLoader.Provider::get)
            .filter(provider -> provider.name().equals(name))
            .findFirst()
            .orElseThrow(
                () -> new TransportMissingException(name, "it is not part of this program"));
    String why = found.unavailable();
    if (why != null) {
      throw new TransportMissingException(name, why);
    }
    return found;
  }

  /** The ranks that live here. */
  List<Comm> here() {
    return here;
  }

  /**
   * Runs the body as each rank that lives here, in a task of its own, and waits for all of them. A
   * rank that fails takes its peers along.
   *
   * @return what rank 0 returned; empty where it lives elsewhere
   */
  <T extends @Nullable Object> Optional<T> run(RankBody<T> body) {
    try (TaskScope<T> scope = fairlead.scope()) {
      for (Comm comm : here) {
        ForkOptions options = ForkOptions.named("rank-" + comm.rank()).eager(true);
        scope.fork(options, () -> runRank(comm, body));
      }
      List<T> results = scope.join();
      return here.getFirst().rank() == 0
          ? Optional.ofNullable(results.getFirst())
          : Optional.empty();
    }
  }

  private static <T extends @Nullable Object> T runRank(Comm comm, RankBody<T> body)
      throws Exception {
    try {
      return body.run(comm);
    } catch (Exception | Error failure) {
      comm.fail(failure);
      throw failure;
    }
  }

  @Override
  public void close() {
    here.forEach(Comm::close);
  }

  /** There is no way to send by it. */
  static final class TransportMissingException extends FairleadException {
    private static final long serialVersionUID = 1L;

    TransportMissingException(String name, String why) {
      super(Severity.OPERATION, "the transport '" + name + "' cannot be used: " + why, null);
    }
  }
}
