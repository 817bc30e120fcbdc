package io.fairlead.ffi.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What a library without some of the functions for graphs is said to lack. */
class GraphApiTest {
  private static final MemorySegment THERE = MemorySegment.ofAddress(1);

  @Test
  void saysWhatIsMissing() {
    assertThat(new GraphApi(names -> THERE).missing()).isEmpty();
    assertThat(
            new GraphApi(
                    names ->
                        List.of(names).contains("cuStreamBeginCapture_v2")
                            ? MemorySegment.NULL
                            : THERE)
                .missing())
        .containsExactly("cuStreamBeginCapture_v2");
  }

  /** A driver before CUDA 12 has only the first version of it, whose layout begins the same. */
  @Test
  void anOlderNameDoesAsWell() {
    GraphApi older =
        new GraphApi(
            names -> List.of(names).contains("cuGraphAddKernelNode") ? THERE : MemorySegment.NULL);
    assertThat(older.missing()).contains("cuGraphLaunch").doesNotContain("cuGraphAddKernelNode_v2");
  }

  @Test
  void uploadingMayBeMissing() {
    GraphApi without =
        new GraphApi(
            names -> List.of(names).contains("cuGraphUpload") ? MemorySegment.NULL : THERE);
    assertThat(without.hasUpload()).isFalse();
    assertThat(without.missing()).isEmpty();
  }
}
