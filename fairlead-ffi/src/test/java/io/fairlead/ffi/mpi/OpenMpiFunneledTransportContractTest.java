package io.fairlead.ffi.mpi;

import io.fairlead.comm.Launch;

/** Ranks of Open MPI keep the contract, at FUNNELED. */
class OpenMpiFunneledTransportContractTest extends MpiTransportContract {
  OpenMpiFunneledTransportContractTest() {
    super(Launch.Family.OPEN_MPI, "funneled");
  }
}
