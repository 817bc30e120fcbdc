package io.fairlead.runtime;

import io.fairlead.comm.Launch;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;

/**
 * Which devices of a host are whose, where a launcher started several ranks on it. Known before the
 * message library starts, which may want to know the device in use.
 *
 * <p>With as many devices as ranks or more, each rank gets every {@code localSize}-th. With fewer,
 * ranks share them in turn, which is slower and said so: a GPU runs one process's work at a time.
 * The devices are those that the driver shows, so {@code CUDA_VISIBLE_DEVICES} has its say first;
 * where a launcher has given each rank its own by that, each sees one and shares it with nobody.
 */
final class LocalDevices {
  private static final System.Logger LOGGER = System.getLogger("io.fairlead.runtime");

  private LocalDevices() {}

  /** The ordinals of this rank's devices, at least one if there is any. */
  static int[] of(Optional<Launch> launch, int devices) {
    if (launch.isEmpty() || devices == 0) {
      return IntStream.range(0, devices).toArray();
    }
    int ranks = launch.get().localSize();
    int rank = launch.get().localRank();
    return ranks <= devices
        ? IntStream.range(0, devices).filter(each -> each % ranks == rank).toArray()
        : new int[] {rank % devices};
  }

  /**
   * Says so if ranks share a GPU. Where {@code CUDA_VISIBLE_DEVICES} names one device, each rank
   * may see another one, and nobody can tell.
   */
  static void warnIfShared(Optional<Launch> launch, String driver, int devices) {
    warning(launch, driver, devices, System.getenv())
        .ifPresent(words -> LOGGER.log(System.Logger.Level.WARNING, words));
  }

  static Optional<String> warning(
      Optional<Launch> launch, String driver, int devices, Map<String, String> environment) {
    if (launch.isEmpty() || launch.get().localRank() != 0 || launch.get().localSize() <= devices) {
      return Optional.empty();
    }
    String visible = environment.get("CUDA_VISIBLE_DEVICES");
    if (visible != null && !visible.contains(",")) {
      return Optional.empty();
    }
    return Optional.of(
        launch.get().localSize()
            + " ranks share "
            + devices
            + " "
            + driver
            + " device(s) of this host and take turns on them. Start no more ranks than there are"
            + " devices, or use the host device");
  }
}
