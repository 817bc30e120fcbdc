package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.memory.DeviceBuffer;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

/** A buffer that no array could hold, as the vectors of a large solve are, on the stand-in. */
@Timeout(120)
@EnabledOnOs(OS.LINUX)
class LargeBufferTest {
  private static final long BYTES = 5L << 30;

  /** One above 2^31, and one above 2^32, where an int is back at nothing. */
  private static final long[] OFFSETS = {(1L << 31) + 4096, (1L << 32) + 8192};

  @TempDir static Path folder;

  @Test
  void itsEndIsUploadedCopiedFilledAndFetched() throws IOException, InterruptedException {
    Path library = StandIn.build(folder);
    StandIn.setMemory(library, 2 * BYTES);
    StandIn.with(
        library,
        () -> {
          check();
          return null;
        });
  }

  /** On the device that there is. */
  static void check() {
    FairleadConfig config = FairleadConfig.defaults().withDevice("cuda");
    try (Fairlead fairlead = Fairlead.open(config);
        DeviceBuffer buffer = fairlead.device().allocate(BYTES)) {
      assertThat(buffer.bytes()).isEqualTo(BYTES);
      double[] values = {1.5, 2.5, 3.5};
      for (long offset : OFFSETS) {
        DeviceBuffer part = buffer.slice(offset, 24);
        part.upload(values);
        assertThat(part.toDoubles()).containsExactly(values);
      }
      buffer.copyFrom(BYTES - 24, buffer, OFFSETS[1], 24);
      buffer.slice(OFFSETS[1], 24).fill((byte) 0);
      assertThat(buffer.slice(BYTES - 24, 24).toDoubles()).containsExactly(values);
      assertThat(buffer.slice(OFFSETS[1], 24).toDoubles()).containsExactly(0, 0, 0);
      assertThat(buffer.slice(OFFSETS[0], 24).toDoubles()).containsExactly(values);
    }
  }
}
