package io.fairlead.ffi.mpi;

import io.fairlead.comm.Launch;

/** Ranks of MPICH keep the contract, at FUNNELED. */
class MpichFunneledTransportContractTest extends MpiTransportContract {
  MpichFunneledTransportContractTest() {
    super(Launch.Family.MPICH, "funneled");
  }
}
