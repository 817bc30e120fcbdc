package io.fairlead.ffi.mpi;

import io.fairlead.comm.Launch;

/** Ranks of MPICH keep the contract, at SERIALIZED. */
class MpichTransportContractTest extends MpiTransportContract {
  MpichTransportContractTest() {
    super(Launch.Family.MPICH, "serialized");
  }
}
