package io.fairlead.comm.spi;

import java.util.List;
import org.jspecify.annotations.Nullable;

/** Makes transports of one kind. Found with {@link java.util.ServiceLoader}. */
public interface TransportProvider {

  /** The name to ask for it by, such as {@code in-process}. */
  String name();

  /** What would carry the messages, such as a library and its version; empty: the name says it. */
  default String version() {
    return "";
  }

  /** Why it cannot be used here, in words for the user; null if it can. Loads nothing for good. */
  @Nullable String unavailable();

  /**
   * Opens the transports of the ranks that live in this process, in rank order: all of them for
   * ranks in one process, one for a launched rank. The calling thread counts as the one that opened
   * them.
   */
  List<Transport> open(TransportSettings settings);
}
