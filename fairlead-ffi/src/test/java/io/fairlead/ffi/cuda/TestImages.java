package io.fairlead.ffi.cuda;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** Parts of images that nvcc made, by themselves. */
public final class TestImages {
  private static final int HEADER = 16;

  private TestImages() {}

  /** The cubin in a fatbin that is for this architecture. */
  public static byte[] cubin(byte[] fatbin, int architecture) {
    ByteBuffer bytes = ByteBuffer.wrap(fatbin).order(ByteOrder.LITTLE_ENDIAN);
    int at = HEADER;
    while (bytes.getInt(at + 28) != architecture) {
      at += bytes.getInt(at + 4) + (int) bytes.getLong(at + 8);
    }
    int body = at + bytes.getInt(at + 4);
    return Arrays.copyOfRange(fatbin, body, body + (int) bytes.getLong(at + 8));
  }
}
