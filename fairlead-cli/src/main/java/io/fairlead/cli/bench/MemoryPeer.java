package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What allocations and pinned copies cost in C on a GPU, as "memory.c" measures them. Run once for
 * each suite.
 *
 * <p>Confined to the thread that measures.
 */
final class MemoryPeer {
  /** As in "memory.c": so many are copied at once. */
  static final int LARGE = 4;

  static final long LARGE_BYTES = 64L << 20;
  static final int SMALL = 1024;
  static final long SMALL_BYTES = 4096;

  /** It needs no kernels. */
  private static final Path NO_IMAGE = Path.of("none");

  private final CudaPeer c;
  private Map<String, Samples> known = Map.of();

  MemoryPeer() {
    this(CudaPeer.script("memory.sh"));
  }

  MemoryPeer(CudaPeer c) {
    this.c = c;
  }

  /** By name, in nanoseconds; none where it cannot be built, which is told to who waits. */
  Map<String, Samples> samples(int scale, Progress progress)
      throws IOException, InterruptedException {
    if (known.isEmpty()) {
      try {
        known = parse(c.samples(NO_IMAGE, scale, ChildProcess.cores(Integer.MAX_VALUE)));
      } catch (CudaPeer.MissingException none) {
        progress.done("no baseline in C: " + none.getMessage());
      }
    }
    return known;
  }

  private static Map<String, Samples> parse(List<String> lines) {
    Map<String, Samples> samples = new HashMap<>();
    lines.stream()
        .flatMap(line -> SampleLine.parse(line).stream())
        .forEach(line -> samples.put(line.name(), line.samples()));
    return samples;
  }
}
