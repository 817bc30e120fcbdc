package io.fairlead.comm;

import io.fairlead.comm.inprocess.InProcessProvider;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportProvider;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.task.TaskRuntime;
import java.util.ArrayList;
import java.util.List;

/** Ranks that live in this process. */
public final class InProcess {
  private InProcess() {}

  /**
   * Makes {@code n} ranks. Any thread; never blocks. The caller closes each communicator; a rank
   * that closes early ends what its peers wait for from it.
   */
  public static List<Comm> ranks(TaskRuntime tasks, int n, CommConfig config) {
    TransportSettings settings =
        new TransportSettings(n, config.eagerBytes(), config.eagerMessages());
    List<Comm> comms = new ArrayList<>(n);
    for (Transport transport : provider().open(settings)) {
      comms.add(Comm.over(tasks, transport, config));
    }
    return List.copyOf(comms);
  }

  /** The provider of the in-process transport, which {@code ServiceLoader} finds too. */
  public static TransportProvider provider() {
    return new InProcessProvider();
  }
}
