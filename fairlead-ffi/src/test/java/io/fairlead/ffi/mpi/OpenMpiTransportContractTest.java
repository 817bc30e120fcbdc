package io.fairlead.ffi.mpi;

import io.fairlead.comm.Launch;

/** Ranks of Open MPI keep the contract, at SERIALIZED. */
class OpenMpiTransportContractTest extends MpiTransportContract {
  OpenMpiTransportContractTest() {
    super(Launch.Family.OPEN_MPI, "serialized");
  }
}
