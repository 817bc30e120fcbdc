package io.fairlead.runtime;

import io.fairlead.comm.Comm;
import org.jspecify.annotations.Nullable;

/** What each of several ranks does. */
@FunctionalInterface
public interface RankBody<T extends @Nullable Object> {
  /**
   * Runs as one rank.
   *
   * @param comm this rank's communicator; closed when the body has ended
   */
  T run(Comm comm) throws Exception;
}
