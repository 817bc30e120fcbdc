package io.fairlead.sim;

import io.fairlead.comm.InProcess;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import java.util.List;

/** The in-process transport keeps the contract of all transports (row 004.5). */
class InProcessTransportContractTest extends TransportContract {

  @Override
  protected List<Transport> open(TransportSettings settings) {
    return InProcess.provider().open(settings);
  }
}
