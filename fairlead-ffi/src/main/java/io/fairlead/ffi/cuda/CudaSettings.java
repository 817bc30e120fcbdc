package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverException;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * What may be said when the driver is opened. Validated once.
 *
 * @param library the driver's library, or null for the usual names
 * @param compiler NVRTC's library, or null for the usual names
 * @param signals how streams write how far they are
 * @param tickets how many streams may have such a write outstanding at once; the signals of more
 *     are events, which are asked for. {@link #TICKETS_AUTO}: half of the device's hardware queues
 * @param profiler the library of a tool that listens to NVTX, or null if there is none
 * @param code which forms of a module are loaded
 * @param reuse across which streams the driver's own pool gives on what was freed; null for what it
 *     does by itself, but for {@link Reuse#INTERNAL}
 */
public record CudaSettings(
    @Nullable String library,
    @Nullable String compiler,
    Signals signals,
    int tickets,
    @Nullable String profiler,
    Code code,
    @Nullable Set<Reuse> reuse) {

  /** When what was freed on one stream may serve another one, in the driver's own pool. */
  public enum Reuse {
    /** Where an event already orders that one behind the free. */
    EVENTS(1),
    /** Where the free has been reached by then. */
    OPPORTUNISTIC(2),
    /** The driver makes it wait for the free: an order that nobody asked for. */
    INTERNAL(3);

    final int attribute;

    Reuse(int attribute) {
      this.attribute = attribute;
    }
  }

  /** Which forms of a module are loaded; with all but {@code ANY}, one that lacks it is refused. */
  public enum Code {
    /** The first that fits the device. */
    ANY,
    /** Cubins and fatbins. */
    BINARY,
    /** CUDA C++, compiled here. */
    SOURCE,
    /** PTX. */
    PTX
  }

  /** As many streams as leave others' work alone. */
  public static final int TICKETS_AUTO = -1;

  /** More than a GPU has hardware queues; for who wants no events at all. */
  private static final int TICKETS_MAX = 1_024;

  /** How a stream writes its signal. */
  public enum Signals {
    /** {@code WRITE} if all devices can, else {@code FILL}. */
    AUTO,
    /** By a stream write-value of 64 bits. */
    WRITE,
    /** By filling 32 bits, which any device can; the upper half is known to the host. */
    FILL
  }

  /** The library, also as a setting; for the command line and for tests. */
  public static final String LIBRARY_PROPERTY = "fairlead.cuda.library";

  /** NVRTC's library, also as a setting. */
  public static final String COMPILER_PROPERTY = "fairlead.cuda.nvrtc";

  /** Which forms of a module are loaded, also as a setting. */
  public static final String CODE_PROPERTY = "fairlead.cuda.code";

  /** How streams tell how far they are, also as a setting. */
  public static final String SIGNALS_PROPERTY = "fairlead.cuda.signals";

  /** How many streams may have a ticket outstanding, also as a setting. */
  public static final String TICKETS_PROPERTY = "fairlead.cuda.tickets";

  /** When the driver's own pool gives on what was freed, also as a setting. */
  public static final String REUSE_PROPERTY = "fairlead.cuda.reuse";

  private static final Set<String> KEYS =
      Set.of("library", "nvrtc", "signals", "tickets", "nvtx", "code", "reuse");

  /**
   * Settings by key, for what is not given the system properties, for the rest the usual.
   *
   * @throws DriverException INVALID_VALUE that names the key that is not known
   */
  public static CudaSettings of(Map<String, String> settings) {
    for (String key : new TreeSet<>(settings.keySet())) {
      if (!KEYS.contains(key)) {
        throw Status.invalidValue(
            "the cuda driver has no setting '"
                + key
                + "'; it has library, nvrtc, signals, tickets, nvtx, code and reuse");
      }
    }
    return new CudaSettings(
        settings.getOrDefault("library", System.getProperty(LIBRARY_PROPERTY)),
        settings.getOrDefault("nvrtc", System.getProperty(COMPILER_PROPERTY)),
        signals(settings.getOrDefault("signals", System.getProperty(SIGNALS_PROPERTY, "auto"))),
        tickets(settings.getOrDefault("tickets", System.getProperty(TICKETS_PROPERTY, "auto"))),
        settings.getOrDefault("nvtx", System.getenv(Nvtx.VARIABLE)),
        code(settings.getOrDefault("code", System.getProperty(CODE_PROPERTY, "any"))),
        reuse(settings.getOrDefault("reuse", System.getProperty(REUSE_PROPERTY, "auto"))));
  }

  private static @Nullable Set<Reuse> reuse(String text) {
    if (text.equals("auto")) {
      return null;
    }
    Set<Reuse> found = EnumSet.noneOf(Reuse.class);
    for (String each : text.equals("none") ? new String[0] : text.split(",", -1)) {
      found.add(
          switch (each) {
            case "events" -> Reuse.EVENTS;
            case "opportunistic" -> Reuse.OPPORTUNISTIC;
            case "internal" -> Reuse.INTERNAL;
            default ->
                throw Status.invalidValue(
                    "the setting 'reuse' (or -D"
                        + REUSE_PROPERTY
                        + ") takes auto, none, or some of events, opportunistic and internal with"
                        + " commas between, not "
                        + text);
          });
    }
    return Collections.unmodifiableSet(found);
  }

  private static Code code(String text) {
    return switch (text) {
      case "any" -> Code.ANY;
      case "binary" -> Code.BINARY;
      case "source" -> Code.SOURCE;
      case "ptx" -> Code.PTX;
      default ->
          throw Status.invalidValue(
              "the setting 'code' (or -D"
                  + CODE_PROPERTY
                  + ") takes any, binary, source or ptx, not "
                  + text);
    };
  }

  private static int tickets(String text) {
    if (text.equals("auto")) {
      return TICKETS_AUTO;
    }
    int number;
    try {
      number = Integer.parseInt(text);
    } catch (NumberFormatException e) {
      number = -1;
    }
    if (number < 0 || number > TICKETS_MAX) {
      throw Status.invalidValue(
          "the setting 'tickets' takes auto or a number from 0 to "
              + TICKETS_MAX
              + ", not "
              + text);
    }
    return number;
  }

  private static Signals signals(String text) {
    return switch (text) {
      case "auto" -> Signals.AUTO;
      case "write" -> Signals.WRITE;
      case "fill" -> Signals.FILL;
      default ->
          throw Status.invalidValue("the setting 'signals' takes auto, write or fill, not " + text);
    };
  }
}
