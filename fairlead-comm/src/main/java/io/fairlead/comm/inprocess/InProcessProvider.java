package io.fairlead.comm.inprocess;

import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportProvider;
import io.fairlead.comm.spi.TransportSettings;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Opens ranks that share this process. Always there. No state; any thread. */
public final class InProcessProvider implements TransportProvider {

  @Override
  public String name() {
    return "in-process";
  }

  @Override
  public @Nullable String unavailable() {
    return null;
  }

  @Override
  public List<Transport> open(TransportSettings settings) {
    World world = new World(settings);
    List<Transport> transports = new ArrayList<>(settings.ranks());
    for (int rank = 0; rank < settings.ranks(); rank++) {
      transports.add(new InProcessTransport(world, rank));
    }
    return List.copyOf(transports);
  }
}
