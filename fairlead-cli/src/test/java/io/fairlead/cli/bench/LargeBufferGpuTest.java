package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThatCode;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.Fairlead;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** As {@link LargeBufferTest}, on a GPU. */
@Timeout(60)
class LargeBufferGpuTest {
  @Test
  void itsEndIsUploadedCopiedFilledAndFetched() {
    DriverReport cuda =
        Fairlead.drivers().stream()
            .filter(driver -> driver.name().equals("cuda"))
            .findFirst()
            .orElse(new DriverReport("cuda", false, 0, "its provider is not on the path"));
    if (!cuda.available()) {
      System.err.println("!! NOT RUN: needs a CUDA device: " + cuda.text());
    }
    assumeTrue(cuda.available(), cuda.text());
    assertThatCode(LargeBufferTest::check).doesNotThrowAnyException();
  }
}
