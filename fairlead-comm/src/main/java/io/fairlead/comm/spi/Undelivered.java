package io.fairlead.comm.spi;

/**
 * A message that its sender was told is sent, and that nobody received before the channel closed.
 *
 * @param kind how it was sent: "send", "collective" (a part of one) or "message"
 * @param id the tag of a send or collective, the handler of a message
 */
public record Undelivered(String kind, int source, int target, int id, long bytes) {

  @Override
  public String toString() {
    String name = kind.equals("message") ? ", handler " : ", tag ";
    return kind + " of " + bytes + " bytes from rank " + source + " to rank " + target + name + id;
  }
}
