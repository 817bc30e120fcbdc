package io.fairlead.memory;

import java.util.Locale;

/** Sizes: how the device rounds them, and how messages say them. */
final class Sizes {
  /** Every driver hands out memory in multiples of this, so it is what a buffer really takes. */
  static final long GRANULE = 256;

  /** Above this, rounding up would overflow; no device comes near it. */
  static final long MAX = Long.MAX_VALUE - GRANULE;

  private static final String[] UNITS = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

  private Sizes() {}

  static long rounded(long bytes) {
    return (bytes + GRANULE - 1) & -GRANULE;
  }

  /** "512 bytes", "1.5 MiB (1572864 bytes)". */
  static String text(long bytes) {
    if (bytes < 1024) {
      return bytes + (bytes == 1 ? " byte" : " bytes");
    }
    int unit = (63 - Long.numberOfLeadingZeros(bytes)) / 10 - 1;
    double scaled = (double) bytes / (1L << (10 * (unit + 1)));
    return String.format(Locale.ROOT, "%.1f %s (%d bytes)", scaled, UNITS[unit], bytes);
  }
}
