package io.fairlead.comm.spi;

/**
 * What a transport can do, asked once when it is opened.
 *
 * @param progress nothing moves unless somebody calls {@link Transport#poll()}; the engine's owner
 *     does so
 * @param oneSided {@link Transport#put} and {@link Transport#get} work
 * @param tagMax the largest tag; tags are 0 … {@code tagMax}
 */
public record TransportCaps(boolean progress, boolean oneSided, int tagMax) {

  /** Every transport must take at least these tags (the least that MPI promises). */
  public static final int TAG_MAX_LEAST = 32_767;

  public TransportCaps {
    if (tagMax < TAG_MAX_LEAST) {
      throw new IllegalArgumentException(
          "a transport takes tags up to " + TAG_MAX_LEAST + " at least, this one says " + tagMax);
    }
  }
}
