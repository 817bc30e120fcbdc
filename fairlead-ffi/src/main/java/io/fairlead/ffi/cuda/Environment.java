package io.fairlead.ffi.cuda;

import io.fairlead.ffi.posix.ProcessEnvironment;

/**
 * The one environment variable that matters here: {@code CUDA_DEVICE_MAX_CONNECTIONS}, how many
 * hardware queues the driver uses. A stream's signal behind long work occupies one, and once they
 * are all occupied the work of other streams sticks. The driver's own choice is 8; 32 is the most.
 * So it is set to 32 in this process before the driver is loaded, unless somebody has set it.
 *
 * <p>It is the C library's environment that is changed: {@link System#getenv} does not show it,
 * programs started by this process do not inherit it from Java.
 */
final class Environment {
  private static final String CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS";
  private static final int CONNECTIONS_MAX = 32;

  /** What the driver takes if nobody says anything. */
  private static final int CONNECTIONS_DEFAULT = 8;

  /** Before this class was loaded; Java reads the environment as the process starts. */
  private static final boolean GIVEN = System.getenv(CONNECTIONS) != null;

  private static final int CHOSEN = choose();

  private Environment() {}

  /** Sets what is not set. Once for the process; call it before a driver is loaded. */
  static void prepare() {
    if (CHOSEN < 1) {
      throw new AssertionError("the class is initialised by now");
    }
  }

  /**
   * How many streams may have an outstanding signal at once.
   *
   * <p>Measured on an H200: with 8 queues the first count at which other streams were stuck was 7,
   * with 32 it was 31 and 16 was free of it. Half the queues is below both.
   *
   * @param driverWasInUse whether somebody had a context before us: the driver had read the
   *     variable by then, so that only what the process was started with counts
   */
  static int streamsWithSignals(boolean driverWasInUse) {
    int queues = driverWasInUse && !GIVEN ? CONNECTIONS_DEFAULT : CHOSEN;
    return Math.max(1, queues / 2);
  }

  private static int choose() {
    String present = ProcessEnvironment.get(CONNECTIONS);
    if (present != null) {
      return parse(present);
    }
    // Where there is no such environment, the driver's own choice stands.
    boolean set = ProcessEnvironment.setIfAbsent(CONNECTIONS, Integer.toString(CONNECTIONS_MAX));
    return set ? CONNECTIONS_MAX : CONNECTIONS_DEFAULT;
  }

  /** As the driver reads it: what is no number from 1 to 32 is not taken. */
  private static int parse(String text) {
    try {
      int number = Integer.parseInt(text.strip());
      return number < 1 || number > CONNECTIONS_MAX ? CONNECTIONS_DEFAULT : number;
    } catch (NumberFormatException e) {
      return CONNECTIONS_DEFAULT;
    }
  }
}
