package io.fairlead.cli;

import io.fairlead.comm.Launch;
import io.fairlead.runtime.FairleadConfig;
import java.util.Optional;

/**
 * Which rank of the command this process is. Only the first prints results and progress; every rank
 * says what went wrong with it.
 *
 * @param rank this process, from 0
 * @param size how many there are
 * @param areProcesses whether each rank is a process, so that they meet in {@code Fairlead.world}
 */
record LaunchedRanks(int rank, int size, boolean areProcesses) {

  /** As a launcher says, unless the settings keep this process to itself. */
  static LaunchedRanks current() {
    return of(FairleadConfig.fromSystem().transport(), Launch.current());
  }

  static LaunchedRanks of(String transport, Optional<Launch> launch) {
    if (transport.equals("in-process")) {
      return new LaunchedRanks(0, 1, false);
    }
    if (launch.isPresent()) {
      return new LaunchedRanks(launch.get().rank(), launch.get().size(), true);
    }
    return new LaunchedRanks(0, 1, !transport.equals(FairleadConfig.AUTO));
  }

  boolean isFirst() {
    return rank == 0;
  }
}
