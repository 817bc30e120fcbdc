package io.fairlead.comm.spi;

/**
 * What a transport is opened with.
 *
 * @param ranks how many ranks, where the launcher does not say
 * @param eagerBytes the most bytes a rank keeps of messages that nobody has received yet
 * @param eagerMessages the most such messages
 */
public record TransportSettings(int ranks, long eagerBytes, int eagerMessages) {

  public TransportSettings {
    if (ranks < 1) {
      throw new IllegalArgumentException("there is at least one rank, not " + ranks);
    }
    if (eagerBytes < 0 || eagerMessages < 0) {
      throw new IllegalArgumentException(
          "bounds are not negative: eagerBytes " + eagerBytes + ", messages " + eagerMessages);
    }
  }
}
